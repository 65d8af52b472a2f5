"""Upscale pairs of arrays by super-resolution."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.images import ALL_LEVELS, Levels, stretch_levels
from pamcli.imaging.resize import imresize_to
from pamcli.inference import Report
from pamcli.inference.device import catch_memory_errors, get_used_memory
from pamcli.inference.images import Pixels, check_pair
from pamcli.inference.model import load_model, reload
from pamcli.inference.protocol import StereoModel
from pamcli.inference.tiles import Limit, run_in_bands, split_progress
from pamcli.registry.catalog import DEFAULT_UPSCALING, locate
from pamcli.settings.shared import Compute, Upscaling

SMALLEST_SIDE = 8
FLIPS = ((False, False), (True, False), (False, True), (True, True))  # of an ensemble: horizontal, vertical
SUMS: dict[np.dtype[Any], np.dtype[Any]] = {  # data types that hold the sum of four images
    np.dtype(np.uint8): np.dtype(np.uint16),
    np.dtype(np.uint16): np.dtype(np.uint32),
}


class _Arguments(Upscaling, Compute):
    """The arguments of `StereoUpscaler.load`, checked like the options of the commands."""


class StereoUpscaler:
    """A PASSRnet or PASSRnet 2 on a device, for any number of pairs.

    >>> upscaler = StereoUpscaler.load()
    >>> left_x4, right_x4 = upscaler(left, right)  # (H, W, 3) RGB each, to (4 H, 4 W, 3)
    """

    def __init__(
        self,
        model: StereoModel,
        *,
        max_memory: int | None = None,
        ensemble: bool = False,
        scale: float | None = None,
    ) -> None:
        """Use a model for super-resolution.

        Args:
            model: A model with a scale.
            max_memory: As in `StereoMatcher.load`.
            ensemble: Average over the flips of the pair, for four times the work.
            scale: Upscaling factor if smaller than the network's; results are downscaled to it by the bicubic
                filter of the literature's low-resolution pairs (`imresize`).

        Raises:
            UsageError: A scale that is not above 1, or above the network's.
        """
        self.model, self.spec, self.compute = model, model.spec, model.compute
        self._limit = None if max_memory is None else Limit(max_memory, get_used_memory(self.compute.device))
        self._origin: tuple[Upscaling, Path] | None = None  # the settings of `load`, and the file
        assert model.spec.scale is not None
        self._network_scale = model.spec.scale
        self.ensemble, self.scale = ensemble, self._network_scale if scale is None else scale
        if not 1 < self.scale <= self._network_scale:
            what = f"a network that upscales by {self._network_scale} cannot upscale by {self.scale:g}"
            raise UsageError(what, f"use a scale above 1, up to {self._network_scale}")

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a note on extra preprocessing of images of a size (px), if any."""
        note = self.model.adaptation_note(height, width)
        return note and f"images of {width}x{height} are {note}"

    def upscaled_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width, px, of the upscaled image."""
        return math.ceil(round(self.scale * height, 6)), math.ceil(round(self.scale * width, 6))

    @classmethod
    def load(
        cls,
        weights: str | Path = DEFAULT_UPSCALING[4],
        *,
        device: str = "auto",
        precision: str = "auto",
        max_memory: int | str | None = None,
        ensemble: bool = False,
        scale: float | None = None,
        network_from: str | None = None,
    ) -> "StereoUpscaler":
        """Load a network once; arguments and errors as in `StereoMatcher.load` and the constructor."""
        arguments: dict[str, Any] = {key: value for key, value in locals().items() if key != "cls"}
        if not isinstance(weights, str | Path):
            raise UsageError(f"`weights` must be a name or a path, got {weights!r}")
        return cls.from_settings(_Arguments(**arguments))

    @classmethod
    def from_settings(cls, settings: Upscaling, path: Path | None = None) -> "StereoUpscaler":
        """Load the network that the settings name. path: the file of the weights, if known already."""
        assert isinstance(settings, Compute)
        file = path or locate(settings.name)
        model = load_model(file, settings)
        spec = model.spec
        if spec.row.task != "superres":
            what = f"{path or settings.name} is a {spec.architecture}, which does not upscale images"
            raise ModelError(what, f"use {DEFAULT_UPSCALING[4]}")
        options: Any = {"ensemble": settings.ensemble, "scale": settings.scale}
        upscaler = cls(model, max_memory=settings.max_memory, **options)
        upscaler._origin = settings, file.absolute()
        return upscaler

    def __reduce__(self) -> tuple[Any, ...]:
        return reload(self, self._origin)

    def __call__(self, left: Pixels, right: Pixels, *, progress: Report = None) -> tuple[Pixels, Pixels]:
        """Upscale both images of a rectified pair.

        16-bit images of low contrast are stretched first, and the results have the original levels again.

        Args:
            left: (H, W, 3) RGB, at least 8 px; uint8, uint16, or floating-point in [0, 1].
            right: Likewise, of the same size.
            progress: Called repeatedly with the completed fraction, up to 1.

        Returns:
            Both upscaled images, each in the type of its input.

        Raises:
            InputError: The arrays are not such a pair.
            DeviceError: Not enough memory.
        """
        upscaled_left, upscaled_right = self._upscale(left, right, progress, both=True)
        return upscaled_left, upscaled_right

    def upscale_left(self, left: Pixels, right: Pixels, *, progress: Report = None) -> Pixels:
        """Upscale only the left image, in two thirds of the time for PASSRnet; otherwise as `__call__`."""
        return self._upscale(left, right, progress, both=False)[0]

    def _upscale(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> list[Pixels]:
        """Upscale to the chosen scale, with the contrast at which the network is best."""
        check_pair(left, right, SMALLEST_SIDE)
        with catch_memory_errors(f"not enough memory for a pair of {left.shape[1]}x{left.shape[0]}"):
            one, other, levels = stretch_levels(left, right)
            upscaled = self._average_flips(one, other, progress, both=both)
        size = self.upscaled_size(*left.shape[:2])
        made = []
        for image, view in zip(upscaled, (left, right), strict=False):
            if image.shape[:2] != size:
                image = imresize_to(image, size[1], size[0])
                image = np.clip(image, 0, 1) if image.dtype.kind == "f" else image
            made.append(image if levels == ALL_LEVELS else restore_levels(image, view, levels))
        return made

    def _average_flips(self, left: Pixels, right: Pixels, progress: Report, *, both: bool) -> list[Pixels]:
        """Upscale by the network's factor, averaged over all flips for an ensemble."""
        flips = FLIPS if self.ensemble else FLIPS[:1]
        sums: list[NDArray[Any]] = []
        for (across, down), report in zip(flips, split_progress(progress, [1.0] * len(flips)), strict=True):
            flip = slice(None, None, -1 if down else 1), slice(None, None, -1 if across else 1)
            views = left[flip], right[flip]
            # Mirroring exchanges the images, which keeps disparities positive.
            ordered = views[::-1] if across else views
            held = sum(total.nbytes for total in sums)
            made = self._run(*ordered, report, both=both or across, held=held)
            made = (made[::-1] if across else made)[: 2 if both else 1]
            if not self.ensemble:
                return made
            if not sums:
                sums = [view.astype(SUMS.get(view.dtype.newbyteorder("="), view.dtype)) for view in made]
                continue
            for total, view in zip(sums, made, strict=True):
                total += view[flip]
        return [
            (total / len(FLIPS) if total.dtype.kind == "f" else (total + 2) // len(FLIPS)).astype(view.dtype)
            for total, view in zip(sums, (left, right), strict=False)
        ]

    def _run(self, left: Pixels, right: Pixels, report: Report, *, both: bool, held: int) -> list[Pixels]:
        """Run the network; `held`: bytes of earlier results."""
        scale = self._network_scale
        factor = scale**2 + (self.scale**2 if self.scale < scale else 0)
        results = held + int(sum(factor * image.nbytes for image in ((left, right) if both else (left,))))
        compute = partial(self.model.upscale, both=both)
        given: Any = {"limit": self._limit, "scale": scale, "results": results, "progress": report}
        return list(run_in_bands(self.model, compute, (left, right), **given).values())


def restore_levels(pixels: np.ndarray, unstretched: np.ndarray, levels: Levels) -> np.ndarray:
    """Undo `stretch_levels` on an upscaled image; levels outside of the stretched ones are interpolated."""
    low, high = levels
    restored = low + pixels * ((high - low) / 65535)
    beyond = unstretched - unstretched.clip(low, high).astype(np.float32)
    if beyond.any():
        upscaled = imresize_to(beyond, pixels.shape[1], pixels.shape[0])
        restored += upscaled.clip(beyond.min(), beyond.max())
    return np.rint(restored).astype(np.uint16)
