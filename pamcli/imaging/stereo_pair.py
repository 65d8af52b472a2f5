"""Read both views of a rectified pair from two images or a packed one, and pack two views into one."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.errors import InputError
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import MPO_SUFFIX, PackedLayout, Packing
from pamcli.imaging import images
from pamcli.imaging.camera_faults import detect_camera_fault
from pamcli.imaging.heif import read_spatial
from pamcli.imaging.images import RgbImage, decode_image, make_upright, read_image
from pamcli.imaging.resize import imresize_to
from pamcli.imaging.vr180 import FIELD_OF_VIEW, FULL_SPHERE, HALF_SPHERE, find_right_view, make_rectilinear

RED_CYAN = "red-cyan"
Levels = tuple[int, int]  # levels of a file that become 0 and the largest one
ALL_LEVELS = 0, 65535
_LOW_CONTRAST = {np.dtype(np.uint8): 0.5, np.dtype(np.uint16): 0.25}
"""Shares of the levels; images that use more are left as they are."""
_OUTLIERS = 0.1, 99.9  # percentiles of both images together that become the lowest and the highest level


@dataclass(frozen=True)
class StereoPair:
    """Two views of one size and orientation. Raises InputError if these differ."""

    left: RgbImage
    right: RgbImage
    name: str  # name of the pair in messages
    files: tuple[Path, ...] = ()  # files of the views; empty if `name` describes the source
    same_size: bool = True  # False if a calibration permits views of two sizes
    levels: Levels = ALL_LEVELS
    unstretched: tuple[np.ndarray, ...] = ()
    """Pixels of both views before `stretch_contrast`, if it changed them."""
    stated: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `Calibration` that the source states for these views; empty if it states none."""
    note: str | None = None  # on how the views were read, for the user
    span: Sequence[float] | None = None  # degrees that the views of a VR180 photo span, as `HALF_SPHERE`

    def __post_init__(self) -> None:
        left, right = self.left.pixels.shape, self.right.pixels.shape
        if self.left.orientation != self.right.orientation:
            found = f"{self.left.orientation} and {self.right.orientation}"
            reason = f"{self.name}: the views have different EXIF orientations ({found})"
            raise InputError(reason, "rotate the pixels of both images and remove the orientation tags")
        if left != right and self.same_size:
            names = [*map(str, self.files)] or [f"{self.name}: the left view", "the right view"]
            sizes = f"{names[0]} is {left[1]}x{left[0]} but {names[1]} is {right[1]}x{right[0]}"
            hint = "resize or crop both to one size; pam rectify --calibration FILE accepts the sizes in FILE"
            raise InputError(f"{sizes}: both images of a rectified pair must have the same size", hint)

    @property
    def title(self) -> str:
        """File names without folders; equal names appear once."""
        return ", ".join(dict.fromkeys(file.name for file in self.files or (Path(self.name),)))

    @property
    def width(self) -> int:
        return int(self.left.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.left.pixels.shape[0])

    @cached_property
    def camera_fault(self) -> str | None:
        """The first camera fault that one of the views shows, with the name of its file; None if none."""
        files = [file.name for file in self.files] or [self.title] * 2
        for file, view in zip(files, (self.left, self.right), strict=True):
            if fault := detect_camera_fault(view):
                return f"{file}: {fault}"
        return None

    def make_rectilinear(self, field_of_view: float | None = None) -> "StereoPair":
        """Return rectilinear views `field_of_view` degrees wide, with a calibration without baseline.

        Views that are twice as wide as high span 360 degrees, others 180 degrees.

        None: those of a VR180 photo become 90 degrees wide, and others stay unchanged.
        """
        if self.span is None and field_of_view is None:
            return self
        views, angle = (self.left, self.right), field_of_view or FIELD_OF_VIEW
        span = self.span or (FULL_SPHERE if self.width == 2 * self.height else HALF_SPHERE)
        (left, right), stated = make_rectilinear(views, angle, span, self.name)
        return replace(self, left=left, right=right, stated=stated, span=None)

    def stretch_contrast(self, *, eight_bits: bool = False) -> "StereoPair":
        """Stretch views of low contrast as `stretch_levels` does; others stay unchanged."""
        left, right, levels = stretch_levels(self.left.pixels, self.right.pixels, eight_bits=eight_bits)
        if levels == ALL_LEVELS:
            return self
        before = self.left.pixels, self.right.pixels
        views = replace(self.left, pixels=left), replace(self.right, pixels=right)
        return replace(self, left=views[0], right=views[1], levels=levels, unstretched=before)


def read_pair(left: Path, right: Path, *, max_pixels: int | None, same_size: bool = True) -> StereoPair:
    """Read both views. Raises InputError as `read_image` and `StereoPair` do."""
    one, two = read_image(left, max_pixels=max_pixels), read_image(right, max_pixels=max_pixels)
    return StereoPair(one, two, f"{left}, {right}", (left, right), same_size)


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
        views = [] if is_pair else images.split_mpo(stream, name, expect_pair=states_two)
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
            layout = images.read_stated_layout(stream, name)
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


def stretch_levels(
    left: np.ndarray, right: np.ndarray, *, eight_bits: bool = False
) -> tuple[np.ndarray, np.ndarray, Levels]:
    """Stretch images (H, W, 3) of low contrast over all levels, both alike; return the levels used.

    uint16 images are stretched, and with `eight_bits` uint8 images, too.
    """
    kind = left.dtype
    if kind != right.dtype or kind not in _LOW_CONTRAST or (kind == np.uint8 and not eight_bits):
        return left, right, ALL_LEVELS
    samples = np.concatenate([view[:: max(1, len(view) // 500)].ravel() for view in (left, right)])
    low, high = (int(level) for level in np.percentile(samples, _OUTLIERS))
    largest = np.iinfo(kind).max
    if not 0 < high - low < _LOW_CONTRAST[kind] * largest:
        return left, right, ALL_LEVELS
    factor = np.float32(largest / (high - low))
    left, right = (
        np.rint(((view.astype(np.float32) - low) * factor).clip(0, largest)).astype(kind)
        for view in (left, right)
    )
    return left, right, (low, high)


def restore_levels(pixels: np.ndarray, unstretched: np.ndarray, levels: Levels) -> np.ndarray:
    """Undo `stretch_levels` on an upscaled image; levels outside of the stretched ones are interpolated."""
    low, high = levels
    restored = low + pixels * ((high - low) / 65535)
    beyond = unstretched - unstretched.clip(low, high).astype(np.float32)
    if beyond.any():
        upscaled = imresize_to(beyond, pixels.shape[1], pixels.shape[0])
        restored += upscaled.clip(beyond.min(), beyond.max())
    return np.rint(restored).astype(np.uint16)
