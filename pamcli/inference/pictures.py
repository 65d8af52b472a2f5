"""Tensors for the networks made of pictures, in the size in which they are matched best.

The finest attention has a quarter of the pictures' rows and columns: what is narrower than four pixels can be
lost to what is behind it. Enlarged pictures lose less, for time that grows with their pixels. Of pictures
that are far larger than those that the networks learned from, more is found where they are reduced.
"""

import copy
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError, UsageError
from pamcli.imaging.resize import area_mean

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
"""Largest value of the integer types; floating-point pictures are in [0, 1]."""

Pixels = NDArray[np.generic]
"""A picture (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""

MatchSize = float | Literal["auto"]
"""Size in which pictures are matched: up to `MOST` how many times as large on each side as they are; from
`NARROWEST` on a width in pixels; auto: see `matched_size`."""

LEAST, MOST = 1 / 16, 4.0
NARROWEST = 64

AUTO_MOST = 2.0
AUTO_PIXELS = 850_000
"""`auto` enlarges smaller pictures to so many pixels, and at most twice on each side.

Chosen for the fewest errors on KITTI and Middlebury (scripts/training/README.md); scripts/training/ship.py
measures other sizes."""

AUTO_LARGEST = 3_000_000
"""`auto` reduces larger pictures to so many pixels (scripts/measure_match_size.py)."""

AUTO_LEAST = 1.1  # a smaller factor, up or down, is not worth the interpolation

SMALLEST_SIDE = 16  # pixels of what is matched


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


def check_match_size(size: MatchSize) -> MatchSize:
    """The size itself. Raises UsageError: neither a factor from `LEAST` to `MOST`, a width, nor auto."""
    if size != "auto" and not (LEAST <= size <= MOST or NARROWEST <= size <= 65535):  # also true for NaN
        raise UsageError(
            f"pictures cannot be matched at {size:g}",
            f"auto, a factor from {LEAST:g} to {MOST:g}, or a width from {NARROWEST} px on",
        )
    return size


def matched_size(
    size: MatchSize, height: int, width: int, most: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Rows and columns in which pictures of `height` x `width` pixels are matched.

    auto: small pictures enlarged to `AUTO_PIXELS`, but no more than fit into `most` (rows, columns); large
    ones reduced to `AUTO_LARGEST`. Raises UsageError: a width that is more than `MOST` times theirs.
    """
    if size == "auto":
        times = max(1.0, min(AUTO_MOST, (AUTO_PIXELS / (height * width)) ** 0.5))
        if most is not None:
            times = max(1.0, min(times, most[0] / height, most[1] / width))
        if height * width > AUTO_LARGEST:
            times = (AUTO_LARGEST / (height * width)) ** 0.5
        if 1 / AUTO_LEAST < times < AUTO_LEAST:
            return height, width
    else:
        times = size if size < NARROWEST else size / width
        if times > MOST:
            raise UsageError(
                f"a width of {size:g} px is more than {MOST:g} times that of the pictures, {width} px"
            )
    return max(round(times * height), SMALLEST_SIDE), max(round(times * width), SMALLEST_SIDE)


def resized(view: Pixels, height: int, width: int) -> Pixels:
    """A picture (H, W, 3) in `height` x `width` pixels: bicubic where it grows, else the mean of its pixels.

    uint8 remains, and uint16 where pictures are reduced; all else becomes float32.
    """
    if height <= view.shape[0] and width <= view.shape[1]:
        given = view.dtype.newbyteorder("=")
        return area_mean(view.astype(given if given in RANGES else np.float32, copy=False), width, height)
    if view.dtype != np.uint8:
        view = view.astype(np.float32) / np.float32(RANGES.get(view.dtype.newbyteorder("="), 1))
    channels = torch.from_numpy(view.copy()).permute(2, 0, 1)[None]  # torch wants to own what it may write to
    # With antialias, which changes nothing where pictures grow, torch takes the usual cubic (a = -0.5).
    larger = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if view.dtype != np.uint8:
        larger.clamp_(0, 1)
    return larger[0].permute(1, 2, 0).numpy()
