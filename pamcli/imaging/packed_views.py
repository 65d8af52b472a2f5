"""Read both views of a rectified pair from one file, and pack two views into one image.

Files are packed images, spatial photos, images of stereo cameras (MPO), and VR180 photos (Google's XMP
metadata), whose half panoramas become rectilinear views.
"""

import base64
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pamcli.errors import InputError
from pamcli.files.paths import open_source
from pamcli.files.suffixes import MPO_SUFFIX, PackedLayout, Packing
from pamcli.imaging.heif import read_spatial
from pamcli.imaging.images import RgbImage, StereoPair, decode_image, make_upright, read_image
from pamcli.imaging.jpeg import read_jpeg_header, read_stated_layout, split_mpo
from pamcli.imaging.raster import report_damage
from pamcli.imaging.resize import imresize_to

RED_CYAN = "red-cyan"
FIELD_OF_VIEW = 90.0  # degrees of the view that is made of a photo if no other is asked for
HALF_SPHERE = (-90.0, 90.0, -90.0, 90.0)  # degrees at the left, right, upper and lower edge of 180 degrees
FULL_SPHERE = (-180.0, 180.0, -90.0, 90.0)
_XMP, _EXTENSION = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_LARGEST_SIDE = 32766  # of an image that OpenCV remaps


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


def find_right_view(stream: BinaryIO, name: str) -> tuple[bytes, tuple[float, ...]] | None:
    """Return the JPEG file of a VR180 photo's right view, and the span as `HALF_SPHERE`; else None."""
    image = read_jpeg_header(stream, name)
    if image is None:
        return None
    with report_damage(name):
        segments = [data for kind, data in image.applist if kind == "APP1"]
        text = b"".join(data[len(_XMP) :] for data in segments if data.startswith(_XMP))
        # Behind the name: 32 bytes that identify the whole text, its length, and the offset of this part.
        start = len(_EXTENSION) + 36
        parts = [data[start:] for data in segments if data.startswith(_EXTENSION)]
        text += b"".join(dict(sorted((part[:4], part[4:]) for part in parts)).values())
        if b"GImage:" not in text:
            return None
        found = re.search(rb'GImage:Data(?:\s*=\s*["\']|>)([^"\'<]*)', text)
        if found is None:
            raise InputError(f"{name} is damaged: its metadata lacks the right view")
        return base64.b64decode(found[1]), _parse_span(text)


def _parse_span(text: bytes) -> tuple[float, ...]:
    names = [b"CroppedArea%b" % each for each in (b"Left", b"Top", b"ImageWidth", b"ImageHeight")]
    names += [b"FullPanoWidth", b"FullPanoHeight"]
    found = [re.search(rb'GPano:%bPixels(?:\s*=\s*["\']|>)\s*(\d+)' % each, text) for each in names]
    if None in found:
        return HALF_SPHERE
    left, top, width, height, all_width, all_height = (float(each[1]) for each in found if each)
    edges = [left / all_width * 360 - 180, (left + width) / all_width * 360 - 180]
    edges += [top / all_height * 180 - 90, (top + height) / all_height * 180 - 90]
    if not (-180 <= edges[0] < 0 < edges[1] <= 180 and -90 <= edges[2] < 0 < edges[3] <= 90):
        raise ValueError("the panorama does not cover the forward direction")
    return tuple(edges)


def make_rectilinear(pair: StereoPair, field_of_view: float | None = None) -> StereoPair:
    """Return the views that cameras without distortion see straight ahead, `field_of_view` degrees wide.

    Views that are twice as wide as high span 360 degrees, others 180 degrees. The pair states its calibration
    except for the baseline, which is not known: 0.

    None: those of a VR180 photo become 90 degrees wide, and others stay unchanged.
    """
    if pair.span is None and field_of_view is None:
        return pair
    import cv2

    height, width, angle = pair.height, pair.width, field_of_view or FIELD_OF_VIEW
    span = pair.span or (FULL_SPHERE if width == 2 * height else HALF_SPHERE)
    left, right, top, bottom = np.radians(span)
    half = math.radians(angle) / 2
    if half > min(-left, right, -top, bottom) + 1e-6:
        raise InputError(f"{pair.name} spans less than {angle:g} degrees", "reduce `vr180`")
    focal = width / (right - left)  # pixels per radian
    side = 2 * round(focal * math.tan(half))
    if max(height, width, side) > _LARGEST_SIDE:
        reason = f"{pair.name} is {width}x{height}, which is too large"
        raise InputError(reason, "reduce the images, or `vr180`")
    middle = (side - 1) / 2
    x, y = np.meshgrid(*[(np.arange(side) - middle) / focal] * 2)
    longitude, latitude = np.arctan(x), np.arctan2(y, np.hypot(x, 1))
    across = ((longitude - left) / (right - left) * width - 0.5).astype(np.float32)
    down = ((latitude - top) / (bottom - top) * height - 0.5).astype(np.float32)
    edges: dict[str, Any] = {"interpolation": cv2.INTER_CUBIC, "borderMode": cv2.BORDER_REPLICATE}
    made = [
        replace(view, pixels=cv2.remap(view.pixels, across, down, **edges), alpha=None)
        for view in (pair.left, pair.right)
    ]
    stated = {"focal_length": float(focal), "baseline": 0.0, "principal": (middle, middle)}
    stated["size"] = side, side
    return replace(pair, left=made[0], right=made[1], stated=stated, span=None)


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
