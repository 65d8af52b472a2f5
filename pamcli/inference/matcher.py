"""Match pairs of arrays."""

import math
from collections.abc import Collection, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.camera_faults import MatchingFault, find_matching_fault
from pamcli.imaging.images import stretch_levels
from pamcli.imaging.resize import downscale_disparity, resize_nearest, upsample_along_edges
from pamcli.inference import Report
from pamcli.inference.device import catch_memory_errors, get_used_memory
from pamcli.inference.images import (
    Pair,
    Pixels,
    check_pair,
    resize_image,
    shift_pair,
    to_eight_bits,
    to_plain,
)
from pamcli.inference.model import load_model, reload
from pamcli.inference.protocol import Maps, StereoModel
from pamcli.inference.result import StereoResult
from pamcli.inference.tiles import Limit, run_in_bands, split_progress
from pamcli.networks.parallax import find_consistent
from pamcli.registry.catalog import DEFAULT_MATCHING, locate
from pamcli.registry.resolution import (
    NARROWEST_MATCH,
    SMALLEST_SIDE,
    EffortName,
    MatchSize,
    choose_matching_size,
)
from pamcli.settings.shared import Compute, MatcherSettings, Matching

EXTRAS = frozenset({"right_disparity", "visible", "confidence"})  # outputs besides the left disparity
DISPARITIES = {"disparity", "right_disparity"}
ROWS_AT_ONCE = 64  # rows per step of the visibility computation
UPSAMPLING = 0.05  # time to upsample a pixel to full size, relative to matching one


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
        self._requested_size = match_size
        self.match_size = match_size
        if model.has_fixed_search:
            self.match_size = model.check_search(self.max_disparity, min_disparity, match_size)
        self._limit = None if max_memory is None else Limit(max_memory, get_used_memory(self.compute.device))
        self._origin: tuple[Matching, Path] | None = None  # the settings of `load`, and the file

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
        if not isinstance(weights, str | Path):
            raise UsageError(f"`weights` must be a name or a path, got {weights!r}")
        settings = MatcherSettings(**arguments)
        if not isinstance(arguments["min_disparity"], Integral):
            raise UsageError(f"`min_disparity` must be a whole number, got {min_disparity}")
        return cls.from_settings(settings)

    @classmethod
    def from_settings(cls, settings: Matching, path: Path | None = None) -> "StereoMatcher":
        """Load the network that the settings name. path: the file of the weights, if known already."""
        assert isinstance(settings, Compute)
        file = path or locate(settings.name)
        model = load_model(file, settings)
        spec, limit = model.spec, settings.max_disparity
        if spec.row.task != "disparity":
            what = f"{path or settings.name} is a {spec.architecture}, which does not match images"
            raise ModelError(what, f"use {DEFAULT_MATCHING}")
        matcher = cls(
            model,
            spec.max_disparity if limit == "stored" else limit,
            max_memory=settings.max_memory,
            match_size=settings.match_size or settings.effort or spec.row.match_size,
            min_disparity=settings.min_disparity,
        )
        matcher._origin = settings, file.absolute()
        return matcher

    def __reduce__(self) -> tuple[Any, ...]:
        return reload(self, self._origin)

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a note on the preprocessing for models of a fixed size or search range, if any."""
        if not self.model.has_fixed_search:
            return None
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
        """Return what changes how a pair is matched; None with `match_size`, and for images to downscale."""
        size = left.shape[:2]
        if not isinstance(self.match_size, str) or (matched := self._matching_size(*size)) < size:
            return None
        left, right, _ = stretch_levels(left, right, eight_bits=True)
        if left.dtype != np.uint8 or right.dtype != np.uint8:
            left, right = to_eight_bits(left), to_eight_bits(right)
        return find_matching_fault(left, right, are_upscaled=matched > size)

    def __call__(
        self,
        left: Pixels,
        right: Pixels,
        *,
        extras: Collection[str] = (),
        progress: Report = None,
        fault: MatchingFault | Literal["detect"] | None = "detect",
    ) -> StereoResult:
        """Match a rectified pair; images of low contrast are stretched first.

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
            return self._match(left, right, extras, progress, fault)

    def _matching_size(
        self, height: int, width: int, *, requested: bool = False, largest: float = math.inf
    ) -> tuple[int, int]:
        """Return height and width of the matching resolution, or of the `requested` one without limits.

        largest: the factor by which images are upscaled at most if `match_size` is an effort.
        """
        size, most = (self._requested_size, None) if requested else (self.match_size, self.model.size)
        if isinstance(size, str):
            reduced = self.model.reduced_size(height, width) if self.model.has_fixed_search else None
            return reduced or choose_matching_size(size, height, width, most, largest=largest)
        if size >= NARROWEST_MATCH:  # a width, of images that `min_disparity` has widened
            size = size * width / (width - abs(self.min_disparity))
        return choose_matching_size(size, height, width, most)

    def _match(
        self, left: Pixels, right: Pixels, extras: set[str], progress: Report, fault: MatchingFault | None
    ) -> StereoResult:
        """Match with stretched contrast at the matching resolution, from `min_disparity` on."""
        left, right, _ = stretch_levels(left, right, eight_bits=True)
        if fault is not None:
            filters = zip(fault.sharpening, (left, right), strict=True)
            left, right = (view if sharpen is None else sharpen(to_plain(view)) for sharpen, view in filters)
        least, limit = self.min_disparity, self.max_disparity
        views = shift_pair(left, right, -least) if least else (left, right)
        height, width = views[0].shape[:2]
        size = rows, columns = self._matching_size(height, width, largest=fault.most if fault else math.inf)
        if limit is not None:
            limit = -(-(limit - least) // 16) * 16
            if size != (height, width):
                limit = -(-limit * columns // (16 * width)) * 16
            if self.max_disparity != self.spec.max_disparity:  # else as trained
                limit += self.spec.row.searched_beyond
        needing = {"right_disparity", "visible"} | (set() if self.model.has_confidence else {"confidence"})
        passes = 1 if needing.isdisjoint(extras) else 2
        upsamplings = 1 + ("right_disparity" in extras) if columns < width else 0
        reports: Sequence[Report] = [progress]
        if passes + upsamplings > 1:
            work = [float(rows * columns)] * passes + [UPSAMPLING * height * width] * upsamplings
            reports = split_progress(progress, work)
        resized = views
        if size != (height, width):
            resized = resize_image(views[0], *size), resize_image(views[1], *size)
        maps = self._compute(resized, extras, limit, views, reports[:passes])
        if upsamplings:
            maps = _upsample(maps, resized, views, reports[passes:])
        elif resized is not views:
            for name, values in maps.items():
                resize = downscale_disparity if name in DISPARITIES else resize_nearest
                maps[name] = resize(values, width=width, height=height)
        if least:
            # Of the widened images, the columns of the left or the right one.
            width -= abs(least)
            for name, values in maps.items():
                first = max(least, 0) if name == "right_disparity" else max(-least, 0)
                maps[name] = values[:, first : first + width].copy()
                if name in DISPARITIES:
                    maps[name] += np.float32(least)
            if "visible" in maps:
                there = np.arange(width) - maps["disparity"]
                maps["visible"][(there < 0) | (there > width - 1)] = False
            columns = round(columns * width / (width + abs(least)))
        return StereoResult(**maps, matched_size=None if resized is views else (rows, columns), fault=fault)

    def _compute(
        self,
        views: Pair,
        extras: set[str],
        max_disparity: int | None,
        originals: Pair,
        reports: Sequence[Report],
    ) -> Maps:
        """Match images at their size; `originals`: the images before resizing; a report for each pass."""
        twice = len(reports) == 2
        pixels = views[0][..., 0].size + (originals[0][..., 0].size if originals[0] is not views[0] else 0)
        results = 4 * pixels * (1 + 2 * twice + 2 * ("confidence" in extras))
        given: Any = {"limit": self._limit, "results": results, "originals": originals}
        asked = tuple(sorted(extras & {"confidence", "visible"}))
        match = partial(self.model.match, max_disparity=max_disparity, extras=asked)
        maps = run_in_bands(self.model, match, views, progress=reports[0], **given)
        if twice and "right_disparity" not in maps:
            match, mirrored = partial(match, extras=()), (views[1][:, ::-1], views[0][:, ::-1])
            mirror = run_in_bands(self.model, match, mirrored, progress=reports[1], **given)["disparity"]
            maps["right_disparity"] = np.ascontiguousarray(mirror[:, ::-1])
        if "visible" in extras:
            visible = find_visible(maps["disparity"], maps["right_disparity"])
            maps["visible"] = visible & maps.get("visible", True)
        if "confidence" in extras and "confidence" not in maps:
            maps["confidence"] = measure_agreement(maps["disparity"], maps["right_disparity"])
        for name in maps.keys() - extras - {"disparity"}:
            del maps[name]
        return maps


def _upsample(maps: Maps, reduced: Pair, views: Pair, reports: Sequence[Report]) -> Maps:
    """Upsample the maps of resized images along the edges of `views`, to their size and px."""
    height, width = views[0].shape[:2]

    def upsample(view: int, names: Sequence[str]) -> Maps:
        first, *others = (maps[name].astype(np.float32, copy=False) for name in names)
        report = reports[view]
        done = {} if report is None else {"done": lambda row: report(row / height)}
        found = upsample_along_edges(first, others, reduced[view], views[view], **done)
        return dict(zip(names, found, strict=True))

    upsampled = upsample(0, [name for name in maps if name != "right_disparity"])
    if "right_disparity" in maps:
        upsampled |= upsample(1, ["right_disparity"])
    for name in DISPARITIES & upsampled.keys():
        upsampled[name] *= np.float32(width / reduced[0].shape[1])
    if "visible" in upsampled:
        upsampled["visible"] = upsampled["visible"] >= 0.5
    return upsampled


def measure_agreement(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 2^(-d^2) for a difference of both disparity maps (H, W) of d px; 0 outside the right image."""
    width = left.shape[1]
    there = np.nan_to_num(np.arange(width, dtype=np.float32) - left, nan=-1)  # foreign networks return NaN
    inside = (there >= 0) & (there <= width - 1)
    place = np.clip(np.rint(there), 0, width - 1).astype(np.intp)
    apart = left - np.take_along_axis(right, place, axis=1)
    inside &= np.isfinite(apart)
    return np.where(inside, np.exp2(-np.square(np.minimum(np.abs(apart), 10))), 0).astype(np.float32)


def find_visible(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return where the disparities (H, W) of both images agree."""
    visible = np.empty(left.shape, bool)
    for first in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        visible[rows] = find_consistent(torch.from_numpy(left[rows]), torch.from_numpy(right[rows])).numpy()
    return visible
