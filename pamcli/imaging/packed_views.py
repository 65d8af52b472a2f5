"""Read both views of a rectified pair from one file, and pack two views into one image."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from pamcli.errors import InputError
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import MPO_SUFFIX, PackedLayout, Packing
from pamcli.imaging.heif import read_spatial
from pamcli.imaging.images import RgbImage, StereoPair, decode_image, make_upright, read_image
from pamcli.imaging.jpeg import read_stated_layout, split_mpo
from pamcli.imaging.resize import imresize_to
from pamcli.imaging.vr180 import find_right_view

RED_CYAN = "red-cyan"


def read_packed_pair(
    source: Path | bytes, layout: PackedLayout, *, max_pixels: int | None, name: str
) -> StereoPair:
    """Read both views from one file; squeezed views are resized to full size (bicubic).

    An MPO holds two images in their order, which `rl` exchanges. `auto` takes the layout from the file; a JPS
    or PNS that states none is cross-eyed by convention.
    """
    with open_source(source, name) as stream:
        spatial = read_spatial(stream, name, max_pixels)
        half_sphere = None if spatial else find_right_view(stream, name)
        states_two = layout == "auto" or Path(name).suffix.lower() == MPO_SUFFIX
        is_pair = spatial or half_sphere
        views = [] if is_pair else split_mpo(stream, name, expect_pair=states_two)
        if (is_pair and layout != "auto") or (views and layout not in ("auto", "lr", "rl")):
            reason = f"{name} stores the views as two images, not packed as {layout}"
            raise InputError(reason, f"omit `packed` {layout}")
        if spatial:
            one, two, stated = spatial
            return StereoPair(make_upright(one), make_upright(two), name, stated=stated)
        if half_sphere:
            left = decode_image(stream, name, max_pixels)
            right = read_image(half_sphere[0], max_pixels=max_pixels, name=name)
            return StereoPair(left, right, name, span=half_sphere[1])
        if views:
            left, right = (
                decode_image(io.BytesIO(view), f"{name}, image {number}", max_pixels)
                for number, view in enumerate(views, 1)
            )
            return StereoPair(*((right, left) if layout == "rl" else (left, right)), name)
        if layout == "auto":
            layout = read_stated_layout(stream, name)
        image = decode_image(stream, name, max_pixels)
    return split_packed(image, layout, name)


def split_packed(image: RgbImage, layout: PackedLayout, name: str) -> StereoPair:
    """Split an image into its two views; `layout` is not `auto`. Raises InputError if it is too small.

    The last column or row of an odd number is dropped, as in scans.
    """
    if layout == RED_CYAN:
        return StereoPair(*_split_anaglyph(image), name)
    order, _, half = layout.partition("-")
    axis = 1 if order in ("lr", "rl") else 0
    height, width = image.pixels.shape[:2]
    side, note = (height, width)[axis], None
    if side < 2:
        reason = f"{name} is {width}x{height}, which cannot hold two views"
        raise InputError(reason, f"check `packed` {layout}")
    if side % 2:
        kind, line = (("height", "row"), ("width", "column"))[axis]
        note = f"the {kind} of {side} px is odd: the last {line} is dropped"
        width, height = (width - 1, height) if axis else (width, height - 1)

    def split(samples: np.ndarray) -> list[np.ndarray]:
        if order == "rows":
            return [_deinterlace(samples[:height], first) for first in (0, 1)]
        halves = np.split(samples[:height, :width], 2, axis)
        return [imresize_to(each, width, height) for each in halves] if half else halves

    alphas = [None, None] if image.alpha is None else split(image.alpha)
    both = zip(split(image.pixels), alphas, strict=True)
    first, second = (replace(image, pixels=pixels, alpha=alpha) for pixels, alpha in both)
    left_first = order in ("lr", "tb") or layout == "rows-lr"
    return StereoPair(*((first, second) if left_first else (second, first)), name, note=note)


def _deinterlace(samples: np.ndarray, first: int) -> np.ndarray:
    """Keep every second row (H, W, ...) from `first` (0 or 1) on, and interpolate the others (bicubic)."""
    rows = samples[first::2].astype(np.float32)
    beyond = np.concatenate([rows[:1], rows[:1], rows, rows[-1:], rows[-1:]])
    near, far = beyond[1:-2] + beyond[2:-1], beyond[:-3] + beyond[3:]
    between = (9 * near - far)[1 - first :][: len(rows)] / 16
    made = samples.copy()
    made[1 - first :: 2] = np.rint(between).clip(0, np.iinfo(samples.dtype).max)
    return made


def _split_anaglyph(image: RgbImage) -> tuple[RgbImage, RgbImage]:
    """Return the red channel, and the mean of green and blue with the same brightness, as grey images."""
    red, cyan = image.pixels[..., 0], image.pixels[..., 1:].mean(axis=2)
    contrast = red.std() / max(float(cyan.std()), 1.0)
    cyan = (cyan - cyan.mean()) * contrast + red.mean()
    largest = np.iinfo(red.dtype).max
    views = red, np.rint(cyan.clip(0, largest)).astype(red.dtype)
    left, right = (np.repeat(view[..., None], 3, axis=2) for view in views)
    return replace(image, pixels=left, grey=True), replace(image, pixels=right, grey=True)


def compute_packed_size(height: int, width: int, packing: Packing) -> tuple[int, int]:
    """Return height and width of the image that holds two views of this size."""
    if packing == RED_CYAN:
        return height, width
    return (height, 2 * width) if packing in ("lr", "rl") else (2 * height, width)


def pack_views(left: RgbImage, right: RgbImage, packing: Packing) -> RgbImage:
    """Pack two views of one size into one image, with the profile and EXIF block of the left one.

    It has 16 bits, and alpha, if one view does. Red-cyan takes red from the left view and is opaque.
    """
    if left.pixels.dtype != right.pixels.dtype:
        left, right = _to_uint16(left), _to_uint16(right)
    grey = left.grey and right.grey and packing != RED_CYAN
    profile = None if left.grey and not grey else left.icc_profile  # a grey profile cannot describe colours
    alpha = None
    if packing == RED_CYAN:
        pixels = right.pixels.copy()
        pixels[..., 0] = left.pixels[..., 0]
    else:
        views = (left, right) if packing in ("lr", "tb") else (right, left)
        axis = 1 if packing in ("lr", "rl") else 0
        pixels = np.concatenate([view.pixels for view in views], axis)
        if left.alpha is not None or right.alpha is not None:
            opaque = np.full_like(left.pixels[..., 0], np.iinfo(left.pixels.dtype).max)
            alpha = np.concatenate([opaque if view.alpha is None else view.alpha for view in views], axis)
    return replace(left, pixels=pixels, alpha=alpha, grey=grey, icc_profile=profile)


def _to_uint16(view: RgbImage) -> RgbImage:
    if view.pixels.dtype == np.uint16:
        return view
    factor = np.uint16(257)  # 255 becomes 65535
    return replace(
        view, pixels=view.pixels * factor, alpha=None if view.alpha is None else view.alpha * factor
    )
