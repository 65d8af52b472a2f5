"""Convert image arrays for networks and back."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError
from pamcli.imaging.resize import resize_area

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}  # largest values

Pixels = NDArray[np.generic]  # an image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]


def check_pair(left: Pixels, right: Pixels, smallest: int) -> None:
    """Raise InputError unless both are (H, W, 3) of one size, at least `smallest` px on each side."""
    for name, image in (("left", left), ("right", right)):
        if (problem := _find_problem(image, smallest)) is not None:
            what, hint = problem
            raise InputError(f"the {name} image {what}", hint)
    if left.shape != right.shape:
        raise InputError(
            f"the left image is {left.shape[1]}x{left.shape[0]} but the right image is "
            f"{right.shape[1]}x{right.shape[0]}: both images of a rectified pair must have the same size",
            "rectify them first: pam rectify",
        )


def _find_problem(image: Any, smallest: int) -> tuple[str, str | None] | None:
    """Return what is wrong with an image array, and a hint."""
    is_array = isinstance(image, np.ndarray | np.generic)
    if not is_array:
        hint = "use pamcli.read_image(path).pixels, or numpy.asarray for images of other libraries"
        return f"must be a NumPy array, got {type(image).__name__}", hint
    if image.ndim != 3 or image.shape[2] != 3:
        advice = None
        if image.ndim == 2:
            advice = "numpy.dstack([grey] * 3) converts a grey image"
        elif image.ndim == 4:
            advice = "pass one pair at a time"
        elif image.shape[2:] == (4,):
            advice = "image[..., :3] omits the alpha channel"
        elif image.ndim == 3 and image.shape[0] == 3:
            advice = "image.transpose(1, 2, 0) moves the channels to the end"
        return f"must be (height, width, 3), got {image.shape}", advice
    if min(image.shape[:2]) < smallest:
        size = f"is {image.shape[1]}x{image.shape[0]}"
        return f"{size}: both sides must be at least {smallest} px", "use larger images"
    if image.dtype.newbyteorder("=") in RANGES:
        return None
    if not np.issubdtype(image.dtype, np.floating):
        return f"must be uint8, uint16 or floating-point, got {image.dtype}", "convert it to one of these"
    low, high = (float(np.float32(bound)) for bound in (image.min(), image.max()))
    if np.isnan(low):
        return "contains NaN", "numpy.nan_to_num replaces NaN by 0"
    if low < 0 or high > 1:
        values = f"has values from {low:g} to {high:g}: floating-point images must be in [0, 1]"
        return values, "divide it by its largest possible value"
    return None


def padding(
    height: int, width: int, multiple: int = 1, size: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Return the rows to add at the top and the columns at the right, to multiples or to a `size`."""
    if size is not None:
        return size[0] - height, size[1] - width
    return -height % multiple, -width % multiple


def to_plain(image: Pixels) -> NDArray[np.uint8 | np.float32]:
    """Return the image as contiguous uint8, or as float32 in [0, 1], which every device supports."""
    kind = image.dtype.newbyteorder("=")
    if kind == np.uint8:
        return np.require(image, np.uint8, ("C", "W"))  # as torch requires
    return np.divide(image, np.float32(RANGES.get(kind, 1)), dtype=np.float32)


def to_network(image: Tensor, rows: int = 0, columns: int = 0) -> Tensor:
    """Convert (H, W, 3), of `to_plain`, to (1, 3, H + above, W + beside) in [0, 1], edges repeated."""
    planes = image.permute(2, 0, 1)[None].float().contiguous()
    if image.dtype == torch.uint8:
        planes = planes / 255
    return F.pad(planes, (0, columns, rows, 0), mode="replicate") if rows or columns else planes


def to_pixels(image: Tensor, kind: np.dtype[np.generic]) -> Tensor:
    """Convert (3, H, W) in about [0, 1], clamped, to (H, W, 3): uint8 for uint8, else float32."""
    pixels = image.clamp(0, 1).permute(1, 2, 0)
    largest = RANGES.get(kind.newbyteorder("="))
    if largest is not None:
        pixels = (pixels * largest).round()
    return (pixels.to(torch.uint8) if largest == 255 else pixels).contiguous()


def shift_pair(left: Pixels, right: Pixels, pixels: int) -> tuple[Pixels, Pixels]:
    """Widen both images (H, W, 3) by |pixels| at their edges, so that disparities grow by `pixels`."""
    sides = (pixels, 0) if pixels > 0 else (0, -pixels)
    one, other = ((0, 0), sides, (0, 0)), ((0, 0), sides[::-1], (0, 0))
    return np.pad(left, one, mode="edge"), np.pad(right, other, mode="edge")


def resize_image(image: Pixels, height: int, width: int) -> Pixels:
    """Resize (H, W, 3) bicubically or by area; keep uint8, and uint16 when downscaling, else float32."""
    kind = image.dtype.newbyteorder("=")
    if height <= image.shape[0] and width <= image.shape[1]:
        return resize_area(image.astype(kind if kind in RANGES else np.float32, copy=False), width, height)
    if image.dtype != np.uint8:
        image = image.astype(np.float32) / np.float32(RANGES.get(kind, 1))
    channels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None]  # torch needs a writable copy
    # antialias selects the usual cubic (a = -0.5) and has no other effect when upscaling.
    upscaled = F.interpolate(channels, (height, width), mode="bicubic", antialias=True)
    if image.dtype != np.uint8:
        upscaled.clamp_(0, 1)
    return upscaled[0].permute(1, 2, 0).numpy()
