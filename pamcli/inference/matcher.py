"""Match pairs of arrays."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.camera_faults import MatchingFault, find_matching_fault
from pamcli.imaging.edge_upsampling import upsample_along_edges
from pamcli.imaging.resize import downscale_disparity, resize_nearest
from pamcli.imaging.stereo_pair import stretch_levels
from pamcli.inference import Progress
from pamcli.inference.agreement import find_visible, measure_agreement
from pamcli.inference.device import catch_memory_errors
from pamcli.inference.images import (
    Pixels,
    check_pair,
    resize_image,
    shift_pair,
    to_plain,
)
from pamcli.inference.model import StereoModel
from pamcli.inference.models import load_model, name_portably
from pamcli.inference.result import StereoResult
from pamcli.inference.tiles import MemoryBudget, split_progress
from pamcli.registry.catalog import DEFAULT_MATCHING
from pamcli.registry.resolution import (
    NARROWEST_MATCH,
    SMALLEST_SIDE,
    EffortName,
    MatchSize,
    check_match_size,
    choose_matching_size,
)
from pamcli.settings.shared import Compute, Matching

EXTRAS = frozenset({"right_disparity", "visible", "confidence"})  # outputs besides the left disparity

UPSAMPLING = 0.05  # time to upsample a pixel to full size, relative to matching one


class _Arguments(Matching, Compute):
    """The arguments of `StereoMatcher.load`, checked like the options of the commands."""


class StereoMatcher:
    """A matching network on a device, for any number of pairs.

    >>> matcher = StereoMatcher.load()
    >>> result = matcher(left, right)  # two (H, W, 3) RGB arrays of a rectified pair
    >>> result.disparity.shape == left.shape[:2]
    """

    def __init__(
        self,
        model: StereoModel,
        max_disparity: int | None = None,
        *,
        max_memory: int | None = None,
        match_size: MatchSize = 1.0,
        min_disparity: int = 0,
    ) -> None:
        """Use a model for matching; the other arguments and errors are those of `load`."""
        if max_disparity is not None and max_disparity < max(1, min_disparity + 1):
            raise UsageError(
                f"`max_disparity` {max_disparity} px must be at least {max(1, min_disparity + 1)} px, as "
                f"`min_disparity` is {min_disparity} px",
                "use a larger `max_disparity`, or omit it",
            )
        self.model, self.spec, self.compute = model, model.spec, model.compute
        self.min_disparity = min_disparity
        self.max_disparity = None if max_disparity is None else -(-max_disparity // 16) * 16
        check_match_size(match_size)
        self._requested_size = match_size
        self.match_size = model.check_search(self.max_disparity, min_disparity, match_size)
        self._budget = MemoryBudget(model, max_memory)
        self._recipe: dict[str, Any] | None = None

    @classmethod
    def load(
        cls,
        weights: str | Path = DEFAULT_MATCHING,
        *,
        device: str = "auto",
        precision: str = "auto",
        max_disparity: int | Literal["stored"] | None = "stored",
        max_memory: int | str | None = None,
        match_size: MatchSize | None = None,
        min_disparity: int = 0,
        network_from: str | None = None,
        effort: EffortName | None = None,
    ) -> "StereoMatcher":
        """Load a network once.

        Args:
            weights: A registered name, a path (also of an .onnx file or a network description), or
                hf:owner/repo/file.safetensors[@revision]; a `Path` is always a path.
            device: auto, cpu, cuda, cuda:N or mps; for .onnx files also tensorrt, openvino or coreml.
            precision: auto, fp32, bf16 or fp16.
            max_disparity: px, rounded up to a multiple of 16 (some networks search slightly further);
                None = no limit; "stored" = the maximum of the training.
            max_memory: Bytes that the program may use on the device, or a text such as "4GB"; None = a
                comfortable amount.
            match_size: Matching resolution: a factor from 1/16 to 4, a width in px, or "auto" (as effort
                "normal"); None = by `effort`.
            min_disparity: Start of the search, px; below 0 for shifted or converging images.
            network_from: "module:function" that builds the PyTorch network described by `weights`; its code
                runs.
            effort: Rule for the matching resolution, see `resolution.EFFORTS`; None = the network's default:
                "normal" for pasmnet2, the image size for the paper's.

        Raises:
            ModelError, DeviceError, UsageError: The weights, the device or an argument is invalid.
        """
        arguments: dict[str, Any] = {key: value for key, value in locals().items() if key != "cls"}
        settings = _Arguments(**arguments)
        if not isinstance(arguments["min_disparity"], Integral):
            raise UsageError(f"`min_disparity` must be a whole number, got {min_disparity}")
        model = load_model(weights, device, precision, network_from=network_from)
        spec = model.spec
        if spec.row.task != "disparity":
            raise ModelError(
                f"{weights} is a {spec.architecture}, which does not match images", f"use {DEFAULT_MATCHING}"
            )
        limit = settings.max_disparity
        matcher = cls(
            model,
            spec.max_disparity if limit == "stored" else limit,
            max_memory=settings.max_memory,
            match_size=settings.match_size or settings.effort or spec.row.match_size,
            min_disparity=min_disparity,
        )
        matcher._recipe = {**arguments, "weights": name_portably(weights)}
        return matcher

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights' name and the arguments of `load`, which loads the network again."""
        if self._recipe is None:
            raise TypeError("only a StereoMatcher of `StereoMatcher.load` can be pickled")
        return partial(type(self).load, **self._recipe), ()

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a note on the preprocessing for models of a fixed size or search range, if any."""
        views = height, width + abs(self.min_disparity)
        size = wanted = self._matching_size(*views)
        if self.model.reduced_size(*views) is None:
            wanted = self._matching_size(*views, requested=True)
        note = self.model.adaptation_note(*size)
        if not note and size == wanted:
            return None
        steps = []
        better = f"{wanted[1]}x{wanted[0]}"
        if size != views or size != wanted:
            steps.append(f"matched at {size[1]}x{size[0]}" + f" instead of {better}" * (size != wanted))
        if note:
            steps.append(note)
        text = f"images of {width}x{height} are {' and '.join(steps)}"
        if size != wanted and self.model.size is not None:
            text += f"; export the network for {better}, or for any size"
        return text

    def find_fault(self, left: Pixels, right: Pixels) -> MatchingFault | None:
        """Return what limits the matching resolution of a pair of small images; None with `match_size`."""
        size = left.shape[:2]
        if not isinstance(self.match_size, str) or self._matching_size(*size) <= size:
            return None
        views = (np.asarray(to_plain(view)) for view in stretch_levels(left, right)[:2])
        return find_matching_fault(
            *(view if view.dtype == np.uint8 else np.rint(255 * view).astype(np.uint8) for view in views)
        )

    def __call__(
        self,
        left: Pixels,
        right: Pixels,
        *,
        extras: Collection[str] = (),
        progress: Progress | None = None,
        fault: MatchingFault | Literal["detect"] | None = "detect",
    ) -> StereoResult:
        """Match a rectified pair; 16-bit images of low contrast are stretched first.

        Args:
            left: (H, W, 3) RGB, at least 16 px; uint8, uint16, or floating-point in [0, 1].
            right: Likewise, of the same size.
            extras: Further outputs: "right_disparity" and "visible" cost a second pass on the mirrored pair,
                "confidence" little (for PASMnet up to 60 %).
            progress: Called repeatedly with the completed fraction, up to 1.
            fault: The result of `find_fault` for this pair, or for the first frame of a video.

        Returns:
            The disparity map and the requested outputs.

        Raises:
            InputError: The arrays are not such a pair.
            DeviceError: Not enough memory.
            UsageError: Unknown output, or a matching width far above the image's.
        """
        extras = {extras} if isinstance(extras, str) else set(extras or ())
        if unknown := extras - EXTRAS:
            raise UsageError(
                f"unknown output {sorted(unknown)[0]!r}, expected one of {', '.join(sorted(EXTRAS))}"
            )
        check_pair(left, right, SMALLEST_SIDE)
        with catch_memory_errors(f"not enough memory for a pair of {left.shape[1]}x{left.shape[0]}"):
            fault = self.find_fault(left, right) if fault == "detect" else fault
            return replace(self._match_levels(left, right, extras, progress, fault), fault=fault)

    def _match_levels(
        self,
        left: Pixels,
        right: Pixels,
        extras: Collection[str],
        progress: Progress | None,
        fault: MatchingFault | None,
    ) -> StereoResult:
        """Match with stretched contrast, from `min_disparity` on."""
        left, right, _ = stretch_levels(left, right)
        least, limit = self.min_disparity, self.max_disparity
        if not least:
            return self._match(left, right, extras, limit, progress, fault)
        width = left.shape[1]
        limit = None if limit is None else -(-(limit - least) // 16) * 16
        found = self._match(*shift_pair(left, right, -least), extras, limit, progress, fault)
        sides = slice(max(-least, 0), max(-least, 0) + width), slice(max(least, 0), max(least, 0) + width)
        result = found.map_arrays(
            lambda values: values[:, sides[0]].copy(),
            lambda values: values[:, sides[1]],
            disparity=lambda values: values + np.float32(least),
        )
        if result.visible is not None:
            there = np.arange(width) - result.disparity
            result.visible[(there < 0) | (there > width - 1)] = False
        if result.matched_size is None:
            return result
        rows, columns = result.matched_size  # of the widened images
        return replace(result, matched_size=(rows, round(columns * width / (width + abs(least)))))

    def _matching_size(
        self, height: int, width: int, *, requested: bool = False, largest: float = math.inf
    ) -> tuple[int, int]:
        """Return height and width of the matching resolution, or of the `requested` one without limits.

        largest: the factor by which images are upscaled at most if `match_size` is an effort.
        """
        size, most = (self._requested_size, None) if requested else (self.match_size, self.model.size)
        if isinstance(size, str):
            reduced = self.model.reduced_size(height, width)
            return reduced or choose_matching_size(size, height, width, most, largest=largest)
        if size >= NARROWEST_MATCH:  # a width, of images that `min_disparity` has widened
            size = size * width / (width - abs(self.min_disparity))
        return choose_matching_size(size, height, width, most)

    def _match(
        self,
        left: Pixels,
        right: Pixels,
        extras: Collection[str],
        max_disparity: int | None,
        progress: Progress | None,
        fault: MatchingFault | None,
    ) -> StereoResult:
        """Match images whose disparities are not negative."""
        height, width = left.shape[:2]
        rows, columns = self._matching_size(height, width, largest=fault.most if fault else math.inf)
        views = left, right
        if (rows, columns) != (height, width):
            views = resize_image(left, rows, columns), resize_image(right, rows, columns)
            if max_disparity is not None:
                max_disparity = -(-max_disparity * columns // (16 * width)) * 16
        if max_disparity is not None and self.max_disparity != self.spec.max_disparity:  # else as trained
            max_disparity += self.spec.row.searched_beyond
        needing = {"right_disparity", "visible"} | (set() if self.model.has_confidence else {"confidence"})
        passes = 1 if needing.isdisjoint(extras) else 2
        upsamplings = 1 + ("right_disparity" in extras) if columns < width else 0
        work = [float(rows * columns)] * passes + [UPSAMPLING * height * width] * upsamplings
        reports = split_progress(progress, work)
        found = self._match_resized(views, extras, max_disparity, (left, right), reports[:passes])
        if views[0] is left:
            return found
        found = replace(found, matched_size=(rows, columns))
        if upsamplings:
            return _upsample(found, views, (left, right), reports[passes:])
        downscale = partial(downscale_disparity, width=width, height=height)
        nearest = partial(resize_nearest, width=width, height=height)
        return replace(
            found,
            disparity=downscale(found.disparity),
            right_disparity=None if found.right_disparity is None else downscale(found.right_disparity),
            visible=None if found.visible is None else nearest(found.visible),
            confidence=None if found.confidence is None else nearest(found.confidence),
        )

    def _match_resized(
        self,
        views: tuple[Pixels, Pixels],
        extras: Collection[str],
        max_disparity: int | None,
        originals: tuple[Pixels, Pixels],
        reports: Sequence[Progress],
    ) -> StereoResult:
        """Match images at their size; `originals`: the images before resizing."""
        twice = len(reports) == 2
        with_confidence, with_visible = "confidence" in extras, "visible" in extras
        pixels = views[0][..., 0].size + (originals[0][..., 0].size if originals[0] is not views[0] else 0)
        results = 4 * pixels * (1 + 2 * twice + 2 * with_confidence)

        def run(left: Pixels, right: Pixels, report: Progress, *extras: str) -> dict[str, NDArray[Any]]:
            match = partial(self.model.match, max_disparity=max_disparity, extras=extras)
            found = self._budget.run(
                match, left, right, results=results, originals=originals, progress=report
            )
            report(1)
            return found

        found = run(*views, reports[0], *["confidence"] * with_confidence, *["visible"] * with_visible)
        disparity, confidence = found["disparity"], found.get("confidence")
        right_disparity = visible = None
        if twice:
            right_disparity = found.get("right_disparity")
            if right_disparity is None:
                mirrored = views[1][:, ::-1], views[0][:, ::-1]
                mirror = run(*mirrored, reports[1])["disparity"]
                right_disparity = np.ascontiguousarray(mirror[:, ::-1])
            if with_visible:
                visible = find_visible(disparity, right_disparity, found.get("visible"))
            if with_confidence and confidence is None:
                confidence = measure_agreement(disparity, right_disparity)
        returned = right_disparity if "right_disparity" in extras else None
        return StereoResult(disparity, returned, visible, confidence)


def _upsample(
    result: StereoResult,
    reduced: tuple[Pixels, Pixels],
    views: tuple[Pixels, Pixels],
    reports: Sequence[Progress],
) -> StereoResult:
    """Upsample the result of resized images to the size of `views`, in their px."""
    height, width = views[0].shape[:2]
    pixels = np.float32(width / reduced[0].shape[1])
    others = {"visible": result.visible, "confidence": result.confidence}
    maps = {name: values.astype(np.float32) for name, values in others.items() if values is not None}

    def upsample(view: int, *small: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        disparity, *rest = upsample_along_edges(
            small[0], small[1:], reduced[view], views[view], done=lambda row: reports[view](row / height)
        )
        disparity *= pixels
        return [disparity, *rest]

    disparity, *rest = upsample(0, result.disparity, *maps.values())
    large: dict[str, Any] = dict(zip(maps, rest, strict=True))
    if "visible" in large:
        large["visible"] = large["visible"] >= 0.5
    if result.right_disparity is not None:
        (large["right_disparity"],) = upsample(1, result.right_disparity)
    return replace(result, disparity=disparity, **large)
