"""Upscale pairs of arrays by super-resolution."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import ModelError, UsageError
from pamcli.imaging.resize import imresize_to
from pamcli.inference import Progress
from pamcli.inference.images import Pixels, check_pair
from pamcli.inference.model import StereoModel
from pamcli.inference.models import load_model, portions
from pamcli.inference.tiles import MemoryBudget
from pamcli.registry.catalog import DEFAULT_UPSCALING

SMALLEST_SIDE = 8
FLIPS = ((False, False), (True, False), (False, True), (True, True))
"""Flips of an ensemble: horizontal, vertical."""
SUMS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.uint8): np.dtype(np.uint16),
    np.dtype(np.uint16): np.dtype(np.uint32),
}
"""Data types that hold the sum of four images, and two more bits."""


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

        `max_memory`: as in `StereoMatcher.load`. `ensemble`: average over the flips of the pair, for four
        times the work. `scale`: upscaling factor if smaller than the network's; results are downscaled to it
        by the bicubic filter of the literature's low-resolution pairs (`imresize`). Raises UsageError: a
        scale that is not above 1, or above the network's.
        """
        self.model, self.spec, self.compute = model, model.spec, model.compute
        self._budget = MemoryBudget(model, max_memory)
        spec = model.spec
        assert spec.scale is not None
        self.ensemble, self.scale = ensemble, spec.scale if scale is None else scale
        if not 1 < self.scale <= spec.scale:
            raise UsageError(
                f"a network that enlarges {spec.scale} times cannot enlarge {self.scale:g} times",
                f"a scale above 1, up to {spec.scale}",
            )

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a note on extra preprocessing of images of a size (px), if any."""
        return self.model.adaptation_note(height, width)

    def size_of(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width, px, of the upscaled image."""
        larger = [math.ceil(round(self.scale * side, 6)) for side in (height, width)]
        return larger[0], larger[1]

    @classmethod
    def load(
        cls,
        weights: str | Path = DEFAULT_UPSCALING[4],
        *,
        device: str = "auto",
        precision: str = "auto",
        max_memory: int | None = None,
        ensemble: bool = False,
        scale: float | None = None,
        network_from: str | None = None,
    ) -> "StereoUpscaler":
        """Load a network once; arguments and errors as in `StereoMatcher.load` and the constructor."""
        model = load_model(weights, device, precision, network_from=network_from)
        spec = model.spec
        if spec.row.task != "superres":
            raise ModelError(
                f"{weights} is a {spec.architecture}, which enlarges nothing", f"use {DEFAULT_UPSCALING[4]}"
            )
        return cls(model, max_memory=max_memory, ensemble=ensemble, scale=scale)

    def __call__(
        self, left: Pixels, right: Pixels, *, progress: Progress | None = None
    ) -> tuple[Pixels, Pixels]:
        """Upscale both images of a rectified pair.

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
        enlarged = self._enlarged(left, right, progress, both=True)
        return self._reduced(enlarged[0], left), self._reduced(enlarged[1], right)

    def upscale_left(self, left: Pixels, right: Pixels, *, progress: Progress | None = None) -> Pixels:
        """Upscale only the left image, in two thirds of the time for PASSRnet; otherwise as `__call__`."""
        return self._reduced(self._enlarged(left, right, progress, both=False)[0], left)

    def _reduced(self, enlarged: Pixels, view: Pixels) -> Pixels:
        height, width = self.size_of(*view.shape[:2])
        if enlarged.shape[:2] == (height, width):
            return enlarged
        smaller = imresize_to(enlarged, width, height)
        return np.clip(smaller, 0, 1) if smaller.dtype.kind == "f" else smaller

    def _enlarged(
        self, left: Pixels, right: Pixels, progress: Progress | None, *, both: bool
    ) -> list[Pixels]:
        told = portions(progress, [1.0] * (len(FLIPS) if self.ensemble else 1))
        if not self.ensemble:
            return self._enlarge(left, right, told[0], both=both)
        sums: list[NDArray[Any]] = []
        for (across, down), part in zip(FLIPS, told, strict=True):
            flip = slice(None, None, -1 if down else 1), slice(None, None, -1 if across else 1)
            views = left[flip], right[flip]
            # Mirroring exchanges the images, which keeps disparities positive.
            kept = sum(total.nbytes for total in sums)
            made = self._enlarge(*(views[::-1] if across else views), part, both=both or across, kept=kept)
            made = (made[::-1] if across else made)[: 2 if both else 1]
            if not sums:
                sums = [view.astype(SUMS.get(view.dtype.newbyteorder("="), view.dtype)) for view in made]
                continue
            for total, view in zip(sums, made, strict=True):
                total += view[flip]
        return [
            (total / len(FLIPS) if total.dtype.kind == "f" else (total + 2) // len(FLIPS)).astype(view.dtype)
            for total, view in zip(sums, (left, right), strict=False)
        ]

    def _enlarge(
        self, left: Pixels, right: Pixels, told: Progress, *, both: bool, kept: int = 0
    ) -> list[Pixels]:
        check_pair(left, right, SMALLEST_SIDE)
        scale = self.spec.scale
        assert scale is not None
        given = (left, right) if both else (left,)
        times = scale**2 + (self.scale**2 if self.scale < scale else 0)  # of the bytes of an image
        results = kept + int(sum(times * image.nbytes for image in given))

        def compute(left: Pixels, right: Pixels, progress: Progress) -> dict[str, Pixels]:
            made = self.model.upscale(left, right, both=both, progress=progress)
            return dict(zip(("left", "right"), made, strict=False))

        found = self._budget.run(compute, left, right, scale=scale, results=results, progress=told)
        told(1)
        return list(found.values())
