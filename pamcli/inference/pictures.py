"""Tensors for the networks, made of pictures a few rows at a time, and pictures of their results."""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
"""Largest value of the integer types; floating-point pictures are in [0, 1]."""

Pixels = NDArray[np.generic]
"""A picture (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""


class PairRows:
    """The rows of a pair as the networks read them, made from its arrays a few at a time.

    The edge is repeated at the top and at the right until both sides are multiples of something (as the
    authors do), or as long as they have to be.
    """

    def __init__(
        self,
        left: Pixels,
        right: Pixels,
        *,
        smallest: int = 1,
        multiple: int = 1,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Both views (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1].

        `size`: (rows, columns) that they get, in place of `multiple`. Raises InputError unless they are that,
        of one size, at least `smallest` px on each side, and no larger than `size`.
        """
        for name, view in (("left", left), ("right", right)):
            _check(view, name, smallest)
        if left.shape != right.shape:
            raise InputError(
                f"the views differ in size: left {left.shape[1]} x {left.shape[0]}, "
                f"right {right.shape[1]} x {right.shape[0]}",
                "rectified pictures have one size",
            )
        self.views = left, right
        self.picture_height, self.picture_width = left.shape[:2]
        self.above, self.beside = -self.picture_height % multiple, -self.picture_width % multiple
        if size is not None:
            self.above, self.beside = size[0] - self.picture_height, size[1] - self.picture_width
            if min(self.above, self.beside) < 0:
                raise InputError(
                    f"pictures of {self.picture_width} x {self.picture_height} do not fit the network, which "
                    f"was exported for {size[1]} x {size[0]}",
                    "export it for their size, or for any",
                )
        self.height, self.width = self.picture_height + self.above, self.picture_width + self.beside

    def mirrored(self) -> "PairRows":
        """The pair whose left view is the mirrored right one: its disparities are positive again."""
        other = copy.copy(self)
        other.views = self.views[1][:, ::-1], self.views[0][:, ::-1]
        return other

    def __call__(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1 of both padded views, left first: (2, 3, R, W) float32 in [0, 1]."""
        there = np.arange(first, last).clip(self.above) - self.above
        both = np.empty((2, last - first, self.width, 3), np.float32)
        repeated = last - first - (there[-1] + 1 - there[0])
        for rows, view in zip(both, self.views, strict=True):
            whole = np.float32(RANGES.get(view.dtype.newbyteorder("="), 1))
            given = view[there[0] : there[-1] + 1]
            np.divide(given, whole, out=rows[repeated:, : self.picture_width], dtype=np.float32)
        both[:, :, self.picture_width :] = both[:, :, self.picture_width - 1 : self.picture_width]
        both[:, :repeated] = both[:, repeated : repeated + 1]
        return torch.from_numpy(both).permute(0, 3, 1, 2)

    def crop(self, values: Tensor) -> Tensor:
        """What belongs to the pictures of (..., H, W)."""
        return values[..., self.above :, : self.picture_width]


def moved(left: Pixels, right: Pixels, pixels: int) -> tuple[Pixels, Pixels]:
    """Both views (H, W, 3) wider by |pixels|, their edges repeated, so that disparities grow by `pixels`."""
    sides = (pixels, 0) if pixels > 0 else (0, -pixels)
    one, other = ((0, 0), sides, (0, 0)), ((0, 0), sides[::-1], (0, 0))
    return np.pad(left, one, mode="edge"), np.pad(right, other, mode="edge")


def write_rows(rows: Tensor, into: Pixels) -> None:
    """Rows of a picture (3, R, W) in about [0, 1], clamped, into (R, W, 3) of any type that is read."""
    clamped = rows.clamp(0, 1).permute(1, 2, 0)
    largest = RANGES.get(into.dtype.newbyteorder("="))
    into[:] = (clamped if largest is None else (clamped * largest).round()).cpu().numpy()


def _check(view: Pixels, name: str, smallest: int) -> None:
    if not isinstance(view, np.ndarray | np.generic):
        raise InputError(
            f"the {name} picture is of type {type(view).__name__}, not a NumPy array",
            "pamcli.read_picture(path).pixels is one, and numpy.asarray makes one of others' pictures",
        )
    if view.ndim != 3 or view.shape[2] != 3:
        grey = "numpy.dstack([grey] * 3) makes one of a grey picture" if view.ndim == 2 else None
        raise InputError(f"the {name} picture has shape {view.shape}, not (height, width, 3)", grey)
    if min(view.shape[:2]) < smallest:
        raise InputError(
            f"the {name} picture is {view.shape[1]} x {view.shape[0]} pixels",
            f"both sides must have at least {smallest}",
        )
    if view.dtype.newbyteorder("=") in RANGES:
        return
    if not np.issubdtype(view.dtype, np.floating):
        raise InputError(f"the {name} picture is {view.dtype}", "pass uint8, uint16 or float in [0, 1]")
    low, high = (float(np.float32(bound)) for bound in (view.min(), view.max()))
    if not (low >= 0 and high <= 1):  # also true for NaN
        raise InputError(
            f"the {name} picture has values from {low:g} to {high:g}", "floating-point pictures are in [0, 1]"
        )
