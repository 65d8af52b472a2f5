"""From pictures to the networks' tensors; small ones are enlarged for that.

The finest attention has a quarter of the pictures' rows and columns: what is narrower than four pixels can be
lost to what is behind it. Enlarged pictures lose less, for time that grows with their pixels.
"""

import copy
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
"""Largest value of the integer types; floating-point pictures are in [0, 1]."""

Pixels = NDArray[np.generic]
"""A picture (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""

Enlarge = float | Literal["auto"]
"""How many times larger, on each side, pictures are matched than they are; auto: see `factor`."""

MOST = 4.0
AUTO_MOST = 2.0
AUTO_PIXELS = 560_000
"""`auto` enlarges up to a little more pixels than a picture of KITTI has, and at most twice."""

AUTO_LEAST = 1.1  # less than that is not worth the interpolation


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
        rows = [
            view[there[0] : there[-1] + 1].astype(np.float32)
            / np.float32(RANGES.get(view.dtype.newbyteorder("="), 1))
            for view in self.views
        ]
        both = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)
        return F.pad(both, (0, self.beside, last - first - both.shape[2], 0), mode="replicate")

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
    if view.ndim != 3 or view.shape[2] != 3:
        raise InputError(f"the {name} picture has shape {view.shape}, not (height, width, 3)")
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


def factor(enlarge: Enlarge, height: int, width: int, most: tuple[int, int] | None = None) -> float:
    """How many times larger a picture of `height` x `width` pixels is matched; auto fits into `most`."""
    if enlarge != "auto":
        return enlarge
    fitting = min(AUTO_MOST, (AUTO_PIXELS / (height * width)) ** 0.5)
    if most is not None:
        fitting = min(fitting, most[0] / height, most[1] / width)
    return fitting if fitting >= AUTO_LEAST else 1.0


def enlarged(view: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """A picture (H, W, 3) in `height` x `width` pixels, bicubic; uint8 remains, all else becomes float32."""
    if view.dtype != np.uint8:
        largest = 65535 if view.dtype.kind == "u" else 1
        view = view.astype(np.float32) / np.float32(largest)
    channels = torch.from_numpy(view.copy()).permute(2, 0, 1)[None]  # torch wants to own what it may write to
    # With antialias, which changes nothing where pictures grow, torch takes the usual cubic (a = -0.5).
    larger = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if view.dtype != np.uint8:
        larger.clamp_(0, 1)
    return larger[0].permute(1, 2, 0).numpy()
