"""Both views of a rectified pair, from two pictures or from one that holds both; and both in one."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pamcli.errors import InputError
from pamcli.files.guarded import open_source
from pamcli.files.suffixes import JPS_SUFFIX, PackedLayout, Packing
from pamcli.imaging.images import Picture, decode_picture, read_picture
from pamcli.imaging.jpeg_views import jps_layout, mpo_views
from pamcli.imaging.resize import imresize_to

RED_CYAN = "red-cyan"


@dataclass(frozen=True)
class StereoPair:
    """Two views of one size and orientation. Raises InputError when they are not."""

    left: Picture
    right: Picture
    name: str
    """What messages call the pair."""
    files: tuple[Path, ...] = ()
    """Where the views come from; empty: from what `name` says."""
    same_size: bool = True
    """False where views of two sizes are allowed, which a calibration describes."""

    def __post_init__(self) -> None:
        left, right = self.left.pixels.shape, self.right.pixels.shape
        if self.left.orientation != self.right.orientation:
            raise InputError(
                f"{self.name}: the views have different EXIF orientations "
                f"({self.left.orientation} and {self.right.orientation})",
                "a rectified pair has one; rotate the pixels and drop the tag",
            )
        if left != right and self.same_size:
            sizes = f"left {left[1]} x {left[0]}, right {right[1]} x {right[0]} pixels"
            said = f"{self.name}: the views differ in size, {sizes}"
            raise InputError(
                said,
                "both images of a rectified pair have one size: pam rectify LEFT RIGHT --calibration FILE",
            )

    @property
    def title(self) -> str:
        """Names of the files without their folders, an equal one once."""
        return ", ".join(dict.fromkeys(file.name for file in self.files or (Path(self.name),)))

    @property
    def width(self) -> int:
        return int(self.left.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.left.pixels.shape[0])


def read_pair(left: Path, right: Path, *, max_pixels: int | None, same_size: bool = True) -> StereoPair:
    """Read both views. Raises InputError as `read_picture` and `StereoPair` do."""
    one, two = read_picture(left, max_pixels=max_pixels), read_picture(right, max_pixels=max_pixels)
    return StereoPair(one, two, f"{left}, {right}", (left, right), same_size)


def read_packed_pair(
    source: Path | bytes, layout: PackedLayout, *, max_pixels: int | None, name: str
) -> StereoPair:
    """Read one file that holds both views, full-size: squeezed ones are stretched again (bicubic).

    `source`: a path, or the bytes of a file. The views of an MPO are its pictures in their order, exchanged
    with `rl`. A JPS without a word about its layout is cross-eyed, as is the custom. Raises InputError when
    it cannot be read or halved, or does not hold what `layout` says.
    """
    with open_source(source, name) as stream:
        views = mpo_views(stream, name, named_so=layout == "auto")
        if len(views) == 2:
            if layout not in ("auto", "lr", "rl"):
                said = f"{name} holds two pictures, not one with both views"
                raise InputError(said, f"leave out `packed` {layout}")
            left, right = (
                decode_picture(io.BytesIO(view), f"{name}, picture {number}", max_pixels)
                for number, view in enumerate(views, 1)
            )
            return StereoPair(*((right, left) if layout == "rl" else (left, right)), name)
        if layout == "auto":
            layout = jps_layout(stream, name, Path(name).suffix.lower() == JPS_SUFFIX)
        picture = decode_picture(stream, name, max_pixels)
    return halved(picture, layout, name)


def halved(picture: Picture, layout: PackedLayout, name: str) -> StereoPair:
    """The views of a picture that holds both; not `auto`. Raises InputError where it cannot be halved."""
    order, _, half = layout.partition("-")
    axis = 1 if order in ("lr", "rl") else 0
    length = picture.pixels.shape[axis]
    if length % 2:
        said = f"{name}: {'a width' if axis else 'a height'} of {length} px cannot be halved"
        raise InputError(said, f"`packed` {layout} wants both views in one picture, equally large")
    height, width = picture.pixels.shape[:2]

    def parts(samples: np.ndarray) -> list[np.ndarray]:
        halves = np.split(samples, 2, axis)
        return [imresize_to(each, width, height) for each in halves] if half else halves

    alphas = [None, None] if picture.alpha is None else parts(picture.alpha)
    both = zip(parts(picture.pixels), alphas, strict=True)
    first, second = (replace(picture, pixels=pixels, alpha=alpha) for pixels, alpha in both)
    return StereoPair(*((first, second) if order in ("lr", "tb") else (second, first)), name)


def packed_size(height: int, width: int, packing: Packing) -> tuple[int, int]:
    """Height and width of the picture that holds two views of this size."""
    across, down = {"l": (2, 1), "r": (2, 1), "t": (1, 2), "b": (1, 2)}[packing[0]]
    return (height, width) if packing == RED_CYAN else (down * height, across * width)


def packed(left: Picture, right: Picture, packing: Packing) -> Picture:
    """Two views of one size as one picture, with the profile and the notes of the left one.

    It has 16 bits where one of them has. A view without alpha counts as opaque where the other one has alpha.
    Red-cyan: red of the left view, green and blue of the right one, opaque.
    """
    if left.pixels.dtype != right.pixels.dtype:
        left, right = _of_16_bits(left), _of_16_bits(right)
    grey = left.grey and right.grey and packing != RED_CYAN
    profile = None if left.grey and not grey else left.icc_profile  # one of grey levels tells no colours
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


def _of_16_bits(view: Picture) -> Picture:
    if view.pixels.dtype == np.uint16:
        return view
    deep = np.uint16(257)  # 255 becomes 65535
    return replace(view, pixels=view.pixels * deep, alpha=None if view.alpha is None else view.alpha * deep)
