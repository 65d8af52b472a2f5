"""Read both views of a rectified pair from two images or a packed one, and pack two views into one."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pamcli.errors import InputError
from pamcli.files.safe_reading import open_source
from pamcli.files.suffixes import JPS_SUFFIX, PackedLayout, Packing
from pamcli.imaging.images import RgbImage, decode_image, read_image
from pamcli.imaging.jpeg_views import read_jps_layout, split_mpo
from pamcli.imaging.resize import imresize_to

RED_CYAN = "red-cyan"
ALL_LEVELS = 0, 65535
LOW_CONTRAST = 0.25
"""Share of the 16-bit levels from which images are left as they are."""
OUTLIERS = 0.1, 99.9
"""Percentiles of both views together that become the lowest and the highest level."""


@dataclass(frozen=True)
class StereoPair:
    """Two views of one size and orientation. Raises InputError if these differ."""

    left: RgbImage
    right: RgbImage
    name: str
    """Name of the pair in messages."""
    files: tuple[Path, ...] = ()
    """Files of the views; empty if `name` describes the source."""
    same_size: bool = True
    """False if a calibration permits views of two sizes."""
    levels: tuple[int, int] = ALL_LEVELS
    """16-bit levels of the files that became the lowest and the highest level."""

    def __post_init__(self) -> None:
        left, right = self.left.pixels.shape, self.right.pixels.shape
        if self.left.orientation != self.right.orientation:
            raise InputError(
                f"{self.name}: the views have different EXIF orientations "
                f"({self.left.orientation} and {self.right.orientation})",
                "a rectified pair has one; rotate the pixels and drop the tag",
            )
        if left != right and self.same_size:
            names = [*map(str, self.files)] or [f"{self.name}: the left view", "the right view"]
            said = f"{names[0]} is {left[1]}x{left[0]} but {names[1]} is {right[1]}x{right[0]}"
            hint = "rectify them first: pam rectify LEFT RIGHT --calibration FILE"
            raise InputError(f"{said}: both images of a rectified pair must have the same size", hint)

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

    def stretch_contrast(self) -> "StereoPair":
        """Stretch 16-bit views of low contrast over all levels, both alike; others stay unchanged."""
        views = self.left.pixels, self.right.pixels
        if not self.left.pixels.dtype == self.right.pixels.dtype == np.uint16:
            return self
        some = np.concatenate([view[:: max(1, len(view) // 500)].ravel() for view in views])
        low, high = (int(level) for level in np.percentile(some, OUTLIERS))
        if not 0 < high - low < LOW_CONTRAST * 65535:
            return self
        left, right = (
            replace(each, pixels=_spread(each.pixels, low, high)) for each in (self.left, self.right)
        )
        return replace(self, left=left, right=right, levels=(low, high))

    def restore_levels(self, pixels: np.ndarray) -> np.ndarray:
        """Convert 16-bit pixels of stretched views, or of results from them, to the levels of the files."""
        low, high = self.levels
        if self.levels == ALL_LEVELS:
            return pixels
        return np.asarray(np.rint(low + pixels * ((high - low) / 65535)), np.uint16)


def _spread(pixels: np.ndarray, low: int, high: int) -> np.ndarray:
    scaled = (pixels.astype(np.float32) - low) * np.float32(65535 / (high - low))
    return np.asarray(np.rint(scaled.clip(0, 65535)), np.uint16)


def read_pair(left: Path, right: Path, *, max_pixels: int | None, same_size: bool = True) -> StereoPair:
    """Read both views. Raises InputError as `read_image` and `StereoPair` do."""
    one, two = read_image(left, max_pixels=max_pixels), read_image(right, max_pixels=max_pixels)
    return StereoPair(one, two, f"{left}, {right}", (left, right), same_size)


def read_packed_pair(
    source: Path | bytes, layout: PackedLayout, *, max_pixels: int | None, name: str
) -> StereoPair:
    """Read both views from one file; squeezed views are stretched to full size (bicubic).

    The views of an MPO are its images in their order, exchanged by `rl`. A JPS without a layout is cross-eyed
    by convention. `source` is a path or the bytes of a file. Raises InputError if the file cannot be read or
    split, or does not have this layout.
    """
    with open_source(source, name) as stream:
        views = split_mpo(stream, name, named_so=layout == "auto")
        if len(views) == 2:
            if layout not in ("auto", "lr", "rl"):
                said = f"{name} holds two pictures, not one with both views"
                raise InputError(said, f"leave out `pack_views` {layout}")
            left, right = (
                decode_image(io.BytesIO(view), f"{name}, picture {number}", max_pixels)
                for number, view in enumerate(views, 1)
            )
            return StereoPair(*((right, left) if layout == "rl" else (left, right)), name)
        if layout == "auto":
            layout = read_jps_layout(stream, name, Path(name).suffix.lower() == JPS_SUFFIX)
        picture = decode_image(stream, name, max_pixels)
    return split_packed(picture, layout, name)


def split_packed(picture: RgbImage, layout: PackedLayout, name: str) -> StereoPair:
    """Split an image into its two views; `layout` is not `auto`. Raises InputError if it cannot be split."""
    order, _, half = layout.partition("-")
    axis = 1 if order in ("lr", "rl") else 0
    length = picture.pixels.shape[axis]
    if length % 2:
        said = f"{name}: {'a width' if axis else 'a height'} of {length} px cannot be halved"
        raise InputError(said, f"`pack_views` {layout} wants both views in one picture, equally large")
    height, width = picture.pixels.shape[:2]

    def parts(samples: np.ndarray) -> list[np.ndarray]:
        halves = np.split(samples, 2, axis)
        return [imresize_to(each, width, height) for each in halves] if half else halves

    alphas = [None, None] if picture.alpha is None else parts(picture.alpha)
    both = zip(parts(picture.pixels), alphas, strict=True)
    first, second = (replace(picture, pixels=pixels, alpha=alpha) for pixels, alpha in both)
    return StereoPair(*((first, second) if order in ("lr", "tb") else (second, first)), name)


def compute_packed_size(height: int, width: int, packing: Packing) -> tuple[int, int]:
    """Return height and width of the image that holds two views of this size."""
    across, down = {"l": (2, 1), "r": (2, 1), "t": (1, 2), "b": (1, 2)}[packing[0]]
    return (height, width) if packing == RED_CYAN else (down * height, across * width)


def pack_views(left: RgbImage, right: RgbImage, packing: Packing) -> RgbImage:
    """Pack two views of one size into one image, with the profile and EXIF block of the left one.

    The result has 16 bits if one view does. A view without alpha is opaque if the other has alpha. Red-cyan
    takes red from the left view, green and blue from the right one, and is opaque.
    """
    if left.pixels.dtype != right.pixels.dtype:
        left, right = _of_16_bits(left), _of_16_bits(right)
    grey = left.grey and right.grey and packing != RED_CYAN
    profile = None if left.grey and not grey else left.icc_profile  # a grey profile cannot describe colours
    if packing == RED_CYAN:
        pixels = right.pixels.copy()
        pixels[..., 0] = left.pixels[..., 0]
        return replace(left, pixels=pixels, alpha=None, grey=grey, icc_profile=profile)
    order = (left, right) if packing in ("lr", "tb") else (right, left)
    axis = 1 if packing in ("lr", "rl") else 0
    alpha = None
    if left.alpha is not None or right.alpha is not None:
        full = np.iinfo(left.pixels.dtype).max
        parts = [
            np.full(v.pixels.shape[:2], full, v.pixels.dtype) if v.alpha is None else v.alpha for v in order
        ]
        alpha = np.concatenate(parts, axis)
    pixels = np.concatenate([view.pixels for view in order], axis)
    return replace(left, pixels=pixels, alpha=alpha, grey=grey, icc_profile=profile)


def _of_16_bits(view: RgbImage) -> RgbImage:
    if view.pixels.dtype == np.uint16:
        return view
    deep = np.uint16(257)  # 255 becomes 65535
    return replace(view, pixels=view.pixels * deep, alpha=None if view.alpha is None else view.alpha * deep)
