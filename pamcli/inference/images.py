"""Image arrays as networks read them, and results as image arrays."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}
"""Largest value of the integer types; floating-point images are in [0, 1]."""

Pixels = NDArray[np.generic]
"""An image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]."""


def check_pair(left: Pixels, right: Pixels, smallest: int) -> None:
    """Raise InputError unless both are (H, W, 3) of one size, at least `smallest` px on each side."""
    for name, image in (("left", left), ("right", right)):
        _check(image, name, smallest)
    if left.shape != right.shape:
        raise InputError(
            f"the left image is {left.shape[1]}x{left.shape[0]} but the right image is "
            f"{right.shape[1]}x{right.shape[0]}: both images of a rectified pair must have the same size",
            "rectify them first: pam rectify",
        )


def padding(
    height: int, width: int, multiple: int = 1, size: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Return rows to add at the top and columns at the right, until both sides are multiples of something.

    `size`: rows and columns to pad to, in place of `multiple`. Raises InputError for images that are larger.
    """
    if size is None:
        return -height % multiple, -width % multiple
    above, beside = size[0] - height, size[1] - width
    if min(above, beside) < 0:
        raise InputError(
            f"images of {width}x{height} are larger than {size[1]}x{size[0]}, the size that the network was "
            "exported for",
            "export it for their size, or for any: pam weights export",
        )
    return above, beside


def plain_array(image: Pixels) -> NDArray[np.uint8 | np.float32]:
    """Return the image as contiguous uint8, or as float32 in [0, 1]: what every device takes."""
    kind = image.dtype.newbyteorder("=")
    if kind == np.uint8:
        return np.ascontiguousarray(image, np.uint8)  # torch takes no mirrored view
    return np.divide(image, np.float32(RANGES.get(kind, 1)), dtype=np.float32)


def to_network(image: Tensor, above: int = 0, beside: int = 0) -> Tensor:
    """Convert (H, W, 3), of `plain_array`, to (1, 3, H + above, W + beside) float32 in [0, 1].

    Edges are repeated at the top and at the right, as the authors do.
    """
    planes = image.permute(2, 0, 1)[None].float().contiguous()
    if image.dtype == torch.uint8:
        planes = planes / 255
    return F.pad(planes, (0, beside, above, 0), mode="replicate") if above or beside else planes


def to_pixels(image: Tensor, kind: np.dtype[np.generic]) -> Tensor:
    """Convert (3, H, W) in about [0, 1], clamped, to (H, W, 3): bytes for uint8, else float32."""
    pixels = image.clamp(0, 1).permute(1, 2, 0)
    largest = RANGES.get(kind.newbyteorder("="))
    if largest is not None:
        pixels = (pixels * largest).round()
    return (pixels.to(torch.uint8) if largest == 255 else pixels).contiguous()


def moved(left: Pixels, right: Pixels, pixels: int) -> tuple[Pixels, Pixels]:
    """Widen both images (H, W, 3) by |pixels|, their edges repeated, so that disparities grow by `pixels`."""
    sides = (pixels, 0) if pixels > 0 else (0, -pixels)
    one, other = ((0, 0), sides, (0, 0)), ((0, 0), sides[::-1], (0, 0))
    return np.pad(left, one, mode="edge"), np.pad(right, other, mode="edge")


def _check(image: Pixels, name: str, smallest: int) -> None:
    if not isinstance(image, np.ndarray | np.generic):
        raise InputError(
            f"the {name} image must be a NumPy array, got {type(image).__name__}",
            "use pamcli.read_image(path).pixels, or numpy.asarray for images of other libraries",
        )
    if image.ndim != 3 or image.shape[2] != 3:
        grey = "numpy.dstack([grey] * 3) makes one of a grey image" if image.ndim == 2 else None
        raise InputError(f"the {name} image must be (height, width, 3), got {image.shape}", grey)
    if min(image.shape[:2]) < smallest:
        raise InputError(
            f"the {name} image is {image.shape[1]}x{image.shape[0]}: "
            f"both sides must be at least {smallest} px",
            "use larger images",
        )
    if image.dtype.newbyteorder("=") in RANGES:
        return
    if not np.issubdtype(image.dtype, np.floating):
        raise InputError(
            f"the {name} image must be uint8, uint16 or floating-point, got {image.dtype}",
            "convert it to one of these",
        )
    low, high = (float(np.float32(bound)) for bound in (image.min(), image.max()))
    if not (low >= 0 and high <= 1):  # also true for NaN
        raise InputError(
            f"the {name} image has values from {low:g} to {high:g}: floating-point images must be in [0, 1]",
            "divide it by its largest possible value",
        )
