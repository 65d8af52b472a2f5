"""Both views of a rectified pair, from two pictures or from one that holds both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pamcli.errors import InputError
from pamcli.imaging.images import Picture, read_picture

Layout = Literal["lr", "rl", "tb", "bt"]
"""How a packed picture holds its views: lr, the left view on the left; rl, exchanged (cross-eyed); tb, the
left view on top; bt, exchanged."""


@dataclass(frozen=True)
class StereoPair:
    """Two views of one size and orientation. Raises InputError when they are not."""

    left: Picture
    right: Picture
    name: str
    """What messages call the pair."""

    def __post_init__(self) -> None:
        sizes = [f"{view.pixels.shape[1]} x {view.pixels.shape[0]}" for view in (self.left, self.right)]
        if self.left.orientation != self.right.orientation:
            raise InputError(
                f"{self.name}: the views have different EXIF orientations "
                f"({self.left.orientation} and {self.right.orientation})",
                "a rectified pair has one; rotate the pixels and drop the tag",
            )
        if sizes[0] != sizes[1]:
            raise InputError(
                f"{self.name}: the views differ in size, left {sizes[0]}, right {sizes[1]} pixels",
                "both pictures of a rectified pair have one size",
            )

    @property
    def width(self) -> int:
        return int(self.left.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.left.pixels.shape[0])


def read_pair(left: Path, right: Path, *, max_pixels: int | None) -> StereoPair:
    """Read both views. Raises InputError as `read_picture` and `StereoPair` do."""
    views = [read_picture(path, max_pixels=max_pixels) for path in (left, right)]
    return StereoPair(views[0], views[1], f"{left}, {right}")


def read_packed_pair(
    source: Path | bytes, layout: Layout, *, max_pixels: int | None, name: str
) -> StereoPair:
    """Read one picture that holds both views.

    `source`: a path, or the bytes of a file. Raises InputError when it cannot be read or halved.
    """
    picture = read_picture(source, max_pixels=max_pixels, name=name)
    beside = layout in ("lr", "rl")
    length = picture.pixels.shape[1 if beside else 0]
    if length % 2:
        raise InputError(
            f"{name}: {'a width' if beside else 'a height'} of {length} px cannot be halved",
            f"--packed {layout} wants both views in one picture, equally large",
        )
    halves = []
    for start in (0, length // 2):
        part = slice(start, start + length // 2)
        area = (slice(None), part) if beside else (part, slice(None))
        alpha = None if picture.alpha is None else picture.alpha[area]
        halves.append(replace(picture, pixels=picture.pixels[area], alpha=alpha))
    first, second = halves
    return StereoPair(*((first, second) if layout in ("lr", "tb") else (second, first)), name)
