"""Convert image arrays for networks and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import InputError
from pamcli.imaging.resize import resize_area
from pamcli.networks.blocks import upsample
from pamcli.networks.parallax import valid_mask

RANGES = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}  # largest values

Pixels = NDArray[np.generic]  # an image (H, W, 3) RGB: uint8, uint16, or floating-point in [0, 1]

Pair = tuple[Pixels, Pixels]


def check_pair(left: Any, right: Any, smallest: int) -> None:
    """Raise InputError unless both are (H, W, 3) of one size, at least `smallest` px on each side."""
    for name, image in (("left", left), ("right", right)):
        what = hint = None
        is_array = isinstance(image, np.ndarray | np.generic)
        if not is_array:
            what = f"must be a NumPy array, got {type(image).__name__}"
            hint = "use pamcli.read_image(path).pixels, or numpy.asarray for images of other libraries"
        elif image.ndim != 3 or image.shape[2] != 3:
            what, hint = f"must be (height, width, 3), got {image.shape}", _suggest_axes(image)
        elif min(image.shape[:2]) < smallest:
            size = f"{image.shape[1]}x{image.shape[0]}"
            what, hint = f"is {size}: both sides must be at least {smallest} px", "use larger images"
        elif np.issubdtype(image.dtype, np.floating):
            low, high = float(np.float32(image.min())), float(np.float32(image.max()))
            if np.isnan(low):
                what, hint = "contains NaN", "numpy.nan_to_num replaces NaN by 0"
            elif low < 0 or high > 1:
                what = f"has values from {low:g} to {high:g}: floating-point images must be in [0, 1]"
                hint = "divide it by its largest possible value"
        elif image.dtype.newbyteorder("=") not in RANGES:
            what = f"must be uint8, uint16 or floating-point, got {image.dtype}"
            hint = "convert it to one of these"
        if what is not None:
            raise InputError(f"the {name} image {what}", hint)
    if left.shape != right.shape:
        raise InputError(
            f"the left image is {left.shape[1]}x{left.shape[0]} but the right image is "
            f"{right.shape[1]}x{right.shape[0]}: both images of a rectified pair must have the same size",
            "rectify them first: pam rectify",
        )


def _suggest_axes(image: Any) -> str | None:
    """Return a hint for an array that is not (H, W, 3)."""
    if image.ndim == 2:
        return "numpy.dstack([grey] * 3) converts a grey image"
    if image.ndim == 4:
        return "pass one pair at a time"
    if image.shape[2:] == (4,):
        return "image[..., :3] omits the alpha channel"
    channels_first = image.ndim == 3 and image.shape[0] == 3
    return "image.transpose(1, 2, 0) moves the channels to the end" if channels_first else None


def to_plain(image: Pixels) -> NDArray[np.uint8 | np.float32]:
    """Return the image as contiguous uint8, or as float32 in [0, 1], which every device supports."""
    kind = image.dtype.newbyteorder("=")
    if kind == np.uint8:
        return np.require(image, np.uint8, ("C", "W"))  # as torch requires
    return np.divide(image, np.float32(RANGES.get(kind, 1)), dtype=np.float32, order="C")


def to_eight_bits(image: Pixels) -> NDArray[np.uint8]:
    plain = to_plain(image)
    return plain.view(np.uint8) if plain.dtype == np.uint8 else np.rint(255 * plain).astype(np.uint8)


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


def crop_extras(
    extras: Sequence[str], above: int, width: int, mass: Tensor, confidence: Tensor | None
) -> list[Tensor]:
    """Return the maps named `extras` at full size, without `above` rows and columns beyond `width`."""
    # attention mass and confidence: (1, H/4, W/4)
    outputs = []
    for name in extras:
        if name == "confidence":
            assert confidence is not None
            full = upsample(confidence[None], 4)[0, 0]
        else:
            full = valid_mask(mass)[0].repeat_interleave(4, 0).repeat_interleave(4, 1)
        outputs.append(full[above:, :width])
    return outputs


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
