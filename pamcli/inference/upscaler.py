"""Super-resolution of two arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import ModelError
from pamcli.inference.device import Compute
from pamcli.inference.loading import AnyNetwork, AnySpec, NetworkOnDevice, load, portions
from pamcli.inference.memory import memory_errors
from pamcli.inference.pictures import PairRows, Pixels, write_rows
from pamcli.registry.catalog import DEFAULT_UPSCALING
from pamcli.streaming.matching import Progress

SMALLEST_SIDE = 8
FLIPS = ((False, False), (True, False), (False, True), (True, True))
"""Flips of an ensemble: whether the pair is mirrored from side to side, and from top to bottom."""
SUMS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.uint8): np.dtype(np.uint16),
    np.dtype(np.uint16): np.dtype(np.uint32),
}
"""What holds the sum of four pictures, and two more."""


class StereoUpscaler(NetworkOnDevice):
    """A PASSRnet or PASSRnet 2 on a device, for any number of pairs.

    >>> upscaler = StereoUpscaler.load()
    >>> left_x4, right_x4 = upscaler(left, right)  # (H, W, 3) RGB each, to (4 H, 4 W, 3)
    """

    def __init__(
        self,
        network: AnyNetwork,
        spec: AnySpec,
        compute: Compute,
        *,
        max_memory: int | None = None,
        ensemble: bool = False,
    ) -> None:
        """The network as it is now: a copy is made for inference. `max_memory` as of `StereoMatcher`.

        `ensemble`: the mean over the flips of the pair, for four times the work.
        """
        super().__init__(network, spec, compute, max_memory)
        self.ensemble = ensemble

    @property
    def scale(self) -> int:
        """Enlargement of both sides."""
        assert self.spec.scale is not None
        return self.spec.scale

    @classmethod
    def load(
        cls,
        weights: str | Path = DEFAULT_UPSCALING[4],
        *,
        device: str = "auto",
        precision: str = "auto",
        max_memory: int | None = None,
        ensemble: bool = False,
        network_from: str | None = None,
    ) -> "StereoUpscaler":
        """Load a network once; arguments and errors as of `StereoMatcher.load`; `ensemble` as above."""
        network, spec, compute = load(weights, device, precision, network_from=network_from)
        if spec.row.task != "superres":
            raise ModelError(
                f"{weights} is a {spec.architecture}, which enlarges nothing", f"use {DEFAULT_UPSCALING[4]}"
            )
        return cls(network, spec, compute, max_memory=max_memory, ensemble=ensemble)

    def __call__(
        self, left: Pixels, right: Pixels, *, progress: Progress | None = None
    ) -> tuple[Pixels, Pixels]:
        """Enlarge both views of a rectified pair of (H, W, 3) RGB arrays, any size from 8 px up.

        uint8, uint16, or floating-point in [0, 1]; each result has the type of its view. `progress` is told,
        ever again, about what share of the work is done, up to 1. Raises InputError for arrays that are no
        such pair, DeviceError when memory does not suffice.
        """
        enlarged = self._enlarged(left, right, progress, both=True)
        return enlarged[0], enlarged[1]

    def left_only(self, left: Pixels, right: Pixels, *, progress: Progress | None = None) -> Pixels:
        """Enlarge the left view alone: of PASSRnet in two thirds of the time. As `__call__` otherwise."""
        return self._enlarged(left, right, progress, both=False)[0]

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
            # Mirrored, the right view is the left one: disparities stay positive.
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
        pair = PairRows(left, right, smallest=SMALLEST_SIDE, size=self.size)
        height, width, scale = pair.height, pair.width, self.scale
        given = (left, right) if both else (left,)
        strip = self._strip(
            pair,
            (left, right),
            kept + sum(scale**2 * view.nbytes for view in given),
            scale=scale,
            views=len(given),
        )

        reading = self.spec.row.reading
        rows_of_all, written = len(given) * scale * height, [0] * len(given)

        def rows(first: int, last: int) -> Tensor:
            if reading and strip < height:  # else they are all read at once
                told(reading * last / height)
            return pair(first, last).to(self.compute.device)  # exact: they are enlarged, too

        def write(view: int, first: int, picture: Tensor) -> None:
            write_rows(picture, enlarged[view][first : first + picture.shape[1]])
            written[view] = first + picture.shape[1]
            told(reading + (1 - reading) * sum(written) / rows_of_all)

        message = f"not enough memory for a pair of {width} x {height} pixels"
        with torch.inference_mode(), self.compute.exactly(), memory_errors(message):
            enlarged = [np.empty((scale * height, scale * width, 3), view.dtype) for view in given]
            self.streamed.enlarge(rows, height, width, write, both=both, strip=strip)
        within = slice(scale * pair.above, None), slice(scale * pair.picture_width)
        return [np.ascontiguousarray(view[within]) for view in enlarged]
