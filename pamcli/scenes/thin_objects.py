"""Generate thin or perforated objects (twigs, wires, fences, leaves), and occluders for real images.

Textures are (4, FINER h, FINER w): premultiplied RGB and opacity.
"""

import math

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes import appearance
from pamcli.scenes.stage import Stage
from pamcli.scenes.surfaces import Pair
from pamcli.scenes.textures import cut, generate_texture, make_opaque, random_paint

Rgb = NDArray[np.uint8]
FINER = 2  # texels per px
MOST_TEXELS = 1400  # largest side
FRACTION = 4  # fractional bits of the coordinates of lines


def add_twigs(stage: Stage) -> None:
    """Add branches that fork until they are a pixel thick, in front of other objects."""
    for _ in range(int(stage.rng.integers(1, 4))):
        size = _texels(stage, (0.5, 1.1), (0.3, 0.9))
        mask = branch_mask(stage.rng, *size)
        _add(stage, cut(bark(stage.rng, *size), mask), tilt=(0.5, 0.3), turn=3.0)


def add_wires(stage: Stage) -> None:
    """Add sagging parallel wires across the image or into its depth."""
    for _ in range(int(stage.rng.integers(1, 3))):
        size = _texels(stage, (0.1, 0.5), (0.9, 1.5))
        mask = wire_mask(stage.rng, *size)
        _add(stage, cut(paint(stage.rng, *size), mask), tilt=(0.8, 0.1), turn=0.25, height=(0.05, 0.6))


def add_fences(stage: Stage) -> None:
    """Add fences of bars, netting, or rails on posts, in one colour."""
    for _ in range(int(stage.rng.integers(1, 3))):
        rows, columns = _texels(stage, (0.25, 0.9), (0.5, 1.3))
        outline = (appearance.bars, appearance.net, rail_mask)[stage.rng.integers(3)]
        mask = cv2.resize(outline(stage.rng, rows // 2, columns // 2), (columns, rows))
        _add(stage, cut(paint(stage.rng, rows, columns), mask), (0.7, 0.05), turn=0.05, height=(0.4, 0.9))


def add_foliage(stage: Stage) -> None:
    """Add bushes of single leaves with some depth."""
    rng = stage.rng
    for _ in range(int(rng.integers(1, 4))):
        middle = stage.uniform(0, 1.1) * stage.width, stage.uniform(0.1, 0.9) * stage.height
        disparity, spread = stage.uniform(0.1, 0.9) * stage.largest, stage.uniform(0.1, 0.3)
        for _ in range(int(rng.integers(2, 6))):
            rows, columns = _texels(stage, (0.25, 0.7), (0.15, 0.5), most=480)
            x, y = (float(m + spread * stage.height * rng.normal()) for m in middle)
            near = disparity * (1 + 0.5 * spread * float(np.clip(rng.normal(), -1.5, 1.5)))
            size = rows / FINER, columns / FINER
            stage.add_cutout(leaf_texture(rng, rows, columns), near, (x, y), size, (0.4, 0.4), 1.0)


def _texels(stage: Stage, height: Pair, width: Pair, most: int = MOST_TEXELS) -> tuple[int, int]:
    """Return rows and columns of a texture for an object sized in parts of the image."""
    sides = (stage.uniform(*part) * side for part, side in ((height, stage.height), (width, stage.width)))
    rows, columns = (int(np.clip(FINER * side, 24, most)) for side in sides)
    return rows, columns


def _add(stage: Stage, texture: Tensor, tilt: Pair, turn: float, height: Pair = (0.1, 0.9)) -> None:
    disparity = stage.uniform(0.15, 1.0) * stage.largest
    size = texture.shape[1] / FINER, texture.shape[2] / FINER
    at = stage.uniform(0.1, 1.0) * stage.width, stage.uniform(*height) * stage.height
    stage.add_cutout(texture, disparity, at, size, tilt, turn)


def paint(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return one colour, mostly of paint, steel or rubber, with a vertical gradient."""
    light = np.linspace(-1, 1, rows)[:, None, None]
    colour = random_paint(rng) * (1 + rng.uniform(0, 0.5) * light)
    return make_opaque(np.broadcast_to(np.clip(colour, 0, 1), (rows, columns, 3)))


def bark(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return brown, grey or nearly black with uneven light."""
    colour = rng.uniform(0.05, 0.5) * np.array([1.0, rng.uniform(0.75, 1.0), rng.uniform(0.5, 1.0)])
    light = np.linspace(rng.uniform(0.5, 1.5), rng.uniform(0.5, 1.5), columns)[:, None]
    return make_opaque(np.broadcast_to(np.clip(colour * light, 0, 1), (rows, columns, 3)))


def branch_mask(rng: Generator, rows: int, columns: int) -> appearance.Mask:
    """Return a branch from the middle of the lower edge with its twigs, at least two texels thick."""
    mask = np.zeros((rows, columns), np.uint8)
    scale, start = 2**FRACTION, np.array([columns / 2, rows])
    growing = [(start, -np.pi / 2 + rng.normal(0, 0.3), 0.4 * rows, rng.uniform(4, 14))]
    while growing:
        place, angle, length, thickness = growing.pop()
        end = place + length * np.array([np.cos(angle), np.sin(angle)])
        there, here = (np.rint(scale * point).astype(int).tolist() for point in (end, place))
        cv2.line(mask, here, there, 255, max(2, round(thickness)), cv2.LINE_AA, FRACTION)
        if length < 16:
            continue
        for _ in range(int(rng.integers(2, 4))):
            part = rng.uniform(0.3, 1.0)
            further = angle + rng.normal(0, 0.6), length * rng.uniform(0.45, 0.8), 0.65 * thickness
            growing.append((place + part * (end - place), *further))
    return _opacity(mask)


def wire_mask(rng: Generator, rows: int, columns: int) -> appearance.Mask:
    """Return one to five equal wires, two to six texels thick."""
    mask = np.zeros((rows, columns), np.uint8)
    x = np.linspace(0, 1, 40)
    sag, fall = rng.uniform(0, 0.5) * rows, rng.uniform(-0.2, 0.2) * rows
    count, thickness = int(rng.integers(1, 6)), int(rng.integers(2, 7))
    for number in range(count):
        top = (0.1 + 0.5 * number / count) * rows
        y = top + fall * x + 4 * sag * x * (1 - x)
        points = np.rint(2**FRACTION * np.stack((x * columns, y), 1)).astype(np.int32)
        cv2.polylines(mask, [points], False, 255, thickness, cv2.LINE_AA, FRACTION)
    return _opacity(mask)


def rail_mask(rng: Generator, rows: int, columns: int) -> appearance.Mask:
    """Return two to five horizontal rails on posts."""
    mask = np.zeros((rows, columns), np.uint8)
    width = int(rng.integers(1, 7))
    for y in np.linspace(0.05, rng.uniform(0.5, 0.9), int(rng.integers(2, 6))):
        mask[int(y * rows) : int(y * rows) + width] = 255
    spacing, post = int(rng.uniform(0.3, 1.5) * rows), int(rng.integers(2, 10))
    for x in range(int(rng.integers(0, spacing)), columns, spacing):
        mask[:, x : x + post] = 255
    return _opacity(mask)


def leaf_texture(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return sprigs with leaves of varying brightness."""
    size = float(np.exp(rng.uniform(np.log(5), np.log(0.12 * min(rows, columns) + 6))))
    count = int(min(0.5 * rows * columns / size**2, 400))
    mask = np.rint(255 * branch_mask(rng, rows, columns)).astype(np.uint8)
    image = np.full((rows, columns, 3), rng.uniform(15, 90), np.uint8)
    green = np.array([rng.uniform(0.3, 1.0), rng.uniform(0.6, 1.0), rng.uniform(0.05, 0.4)])
    places = rng.normal(0.5, 0.2, (count, 2)) * (columns, rows)
    slim, contrast, light = rng.uniform(0.25, 0.7), rng.uniform(0.2, 0.8), rng.uniform(80, 250)
    for place in places:
        level = light * (1 - contrast * rng.random())
        ellipse = tuple(map(float, place)), (size, slim * size), float(rng.uniform(0, 180))
        cv2.ellipse(mask, ellipse, 255, -1, cv2.LINE_AA)
        cv2.ellipse(image, ellipse, tuple((green * level).tolist()), -1, cv2.LINE_AA)
    return cut(make_opaque(image / np.float32(255)), _opacity(mask))


def _opacity(mask: NDArray[np.uint8]) -> appearance.Mask:
    return (mask / np.float32(255)).astype(np.float32)


def glass(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return a framed, translucent and mirroring pane of glass, (5, rows, columns)."""
    frame = int(rng.integers(2, 12))
    colours = np.broadcast_to(rng.uniform(0.0, 0.6, 3), (rows, columns, 3)).copy()
    pane = np.zeros((rows, columns), np.bool_)
    pane[frame:-frame, frame:-frame] = True
    colours[~pane] = random_paint(rng)
    opacity = np.where(pane, rng.uniform(0.52, 0.8), 1.0).astype(np.float32)
    texture = appearance.add_gloss(colours, np.where(pane, rng.uniform(0.1, 0.5), 0.0))
    return texture * torch.from_numpy(opacity)


def random_occluder(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    """Return a random occluder for an image (H, W, 3), and the standard deviation of its relative slant."""
    return OCCLUDERS[rng.choice(len(OCCLUDERS), p=_SHARES)](rng, image)


def _choose_size(rng: Generator, image: Rgb, high: float, wide: float) -> tuple[int, int]:
    """Return rows and columns (texels) for limits given in parts of the image height."""
    height = len(image)
    rows = math.exp(rng.uniform(math.log(high / 4), math.log(high)))
    columns = math.exp(rng.uniform(math.log(wide / 4), math.log(wide)))
    return max(8, int(FINER * height * rows)), max(8, int(FINER * height * columns))


def _make_post(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, _ = _choose_size(rng, image, 1.2, 0.1)
    columns = max(4, int(FINER * math.exp(rng.uniform(math.log(2), math.log(0.08 * len(image))))))
    texture = appearance.post(rng, rows, columns)
    texture[:, :, [0, -1]] *= 0.5
    return texture, 0.0


def _make_fence(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.7, 1.2)
    outline = (appearance.bars, appearance.net, rail_mask)[rng.integers(3)]
    mask = cv2.resize(outline(rng, rows // 2 + 1, columns // 2 + 1), (columns, rows))
    return cut(paint(rng, rows, columns), mask), 0.15


def _make_twig(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.9, 0.9)
    mask = branch_mask(rng, rows, columns)
    if rng.random() < 0.5:
        mask = mask[::-1].copy()
    return cut(bark(rng, rows, columns), mask), 0.1


def _make_wire(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.4, 2.0)
    return cut(paint(rng, rows, columns), wire_mask(rng, rows, columns)), 0.15


def _make_shape(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.7, 0.7)
    return cut(_make_surface(rng, image, rows, columns), appearance.random_shape(rng, rows, columns)), 0.1


def _make_framework(rng: Generator, image: Rgb) -> tuple[Tensor, float]:
    rows, columns = _choose_size(rng, image, 0.9, 0.9)
    return cut(_make_surface(rng, image, rows, columns), appearance.framework(rng, rows, columns)), 0.1


def _make_surface(rng: Generator, image: Rgb, rows: int, columns: int) -> Tensor:
    """Return one colour, a generated texture, or another part of the image."""
    height, width = image.shape[:2]
    look = rng.random()
    if look < 0.2:
        return paint(rng, rows, columns)
    if look < 0.5:
        return generate_texture(rng, rows, columns)
    high, wide = min(rows // FINER, height), min(columns // FINER, width)
    top, left = int(rng.integers(height - high + 1)), int(rng.integers(width - wide + 1))
    piece = image[top : top + high, left : left + wide][:, :: rng.choice([-1, 1])]
    piece = cv2.resize(np.ascontiguousarray(piece), (columns, rows), interpolation=cv2.INTER_CUBIC)
    return make_opaque(piece / np.float32(255) * np.float32(rng.uniform(0.6, 1.4))).clamp(0, 1)


OCCLUDERS = (_make_post, _make_fence, _make_twig, _make_wire, _make_shape, _make_framework)
_SHARES = (0.25, 0.1, 0.1, 0.1, 0.25, 0.2)
