"""Generate outlines of objects, and textures for streets: cars, windows, facades, roads, skies, leaves.

Outlines are opacity masks (H, W) float32 in [0, 1]; textures are as in `textures`, and those of shiny
surfaces have a fifth channel, the share of the reflection.
"""

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes.textures import TextureLibrary, make_opaque, noise

Mask = NDArray[np.float32]
Colours = NDArray[np.float64]


def random_shape(rng: Generator, height: int, width: int, *, thin: bool = False) -> Mask:
    """Return a random solid outline; or, if `thin`, one with parts of 1 to 6 px, mostly holes."""
    outlines = (bars, net, branches) if thin else (box, ellipse, polygon, blob, ring)
    return outlines[rng.integers(len(outlines))](rng, height, width)


def box(rng: Generator, height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.float32)
    mask[1:-1, 1:-1] = 1
    return mask


def ellipse(rng: Generator, height: int, width: int) -> Mask:
    x, y = _make_grid(height, width)
    power = rng.choice([2.0, 2.0, 3.0, 6.0])
    radius = (np.abs(x) ** power + np.abs(y) ** power) ** (1 / power)
    return _soften((1 - radius) * min(height, width) / 2)


def ring(rng: Generator, height: int, width: int) -> Mask:
    x, y = _make_grid(height, width)
    inner = rng.uniform(0.3, 0.9)
    radius = np.hypot(x, y)
    return _soften(np.minimum(1 - radius, radius - inner) * min(height, width) / 2)


def polygon(rng: Generator, height: int, width: int) -> Mask:
    """Return a star-shaped polygon with 3 to 9 corners."""
    corners = int(rng.integers(3, 10))
    angle = np.sort(rng.uniform(0, 2 * np.pi, corners))
    radius = rng.uniform(0.4, 1.0, corners)
    around = 1 + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    places = np.rint(np.array([width - 1, height - 1]) / 2 * around * 256).astype(np.int32)
    mask = cv2.fillPoly(np.zeros((height, width), np.uint8), [places], 255, cv2.LINE_AA, 8)
    return np.asarray(mask / np.float32(255), np.float32)


def blob(rng: Generator, height: int, width: int) -> Mask:
    x, y = _make_grid(height, width)
    angle, edge = np.arctan2(y, x), np.full((height, width), 0.7)
    for order in range(2, 7):
        edge += rng.uniform(0, 0.3 / order) * np.sin(order * angle + rng.uniform(0, 2 * np.pi))
    return _soften((edge - np.hypot(x, y)) * min(height, width) / 2)


def bars(rng: Generator, height: int, width: int) -> Mask:
    along = np.arange(width)[None] + rng.uniform(-0.3, 0.3) * np.arange(height)[:, None]
    thickness = rng.uniform(1, 5)
    spacing = thickness + rng.uniform(6, 60)
    return _soften(thickness / 2 - np.abs((along % spacing) - spacing / 2))


def net(rng: Generator, height: int, width: int) -> Mask:
    thickness = rng.uniform(1, 3)
    turn = rng.uniform(-0.6, 0.6)
    spacing = rng.uniform(10, 40)
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    u, v = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
    nearest = np.minimum(*(np.abs((w % spacing) - spacing / 2) for w in (u, v)))
    return _soften(thickness / 2 - nearest)


def branches(rng: Generator, height: int, width: int) -> Mask:
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    mask = np.zeros((height, width), np.float32)
    for _ in range(int(rng.integers(1, 7))):
        turn = rng.uniform(0, np.pi)
        offset = rng.uniform(0, width), rng.uniform(0, height)
        distance = np.abs((x - offset[0]) * np.sin(turn) - (y - offset[1]) * np.cos(turn))
        mask = np.maximum(mask, _soften(rng.uniform(0.7, 3.5) - distance))
    return mask


def framework(rng: Generator, height: int, width: int) -> Mask:
    """Return a frame with crossbars, a wheel with spokes, or bent tubes around large holes."""
    mask = np.zeros((height, width), np.uint8)
    thickness = max(2, round(min(height, width) * np.exp(rng.uniform(np.log(0.03), np.log(0.2)))))
    kind = rng.integers(3)
    if kind == 0:
        for side, across in ((height, False), (width, True)):
            count = int(rng.integers(2, 6))
            thick = max(1, min(thickness, side // (2 * count)))  # keeps the holes as wide as the bars
            for place in np.linspace(0, side - thick, count).astype(int):
                band = slice(place, place + thick)
                mask[(slice(None), band) if across else band] = 255
    elif kind == 1:
        middle, radii = (width // 2, height // 2), ((width - thickness) // 2, (height - thickness) // 2)
        cv2.ellipse(mask, middle, radii, 0, 0, 360, 255, thickness, cv2.LINE_AA)
        turn, spoke = rng.uniform(0, np.pi), max(1, round(thickness * rng.uniform(0.2, 1.0)))
        for angle in turn + np.linspace(0, 2 * np.pi, int(rng.integers(0, 9)), endpoint=False):
            rim = np.rint(middle + radii * np.array([np.cos(angle), np.sin(angle)])).astype(int)
            cv2.line(mask, middle, rim.tolist(), 255, spoke, cv2.LINE_AA)
    else:
        for _ in range(int(rng.integers(2, 5))):
            corners = np.rint(rng.uniform(0, 1, (int(rng.integers(3, 6)), 2)) * (width, height))
            closed = bool(rng.integers(2))
            cv2.polylines(mask, [corners.astype(np.int32)], closed, 255, thickness, cv2.LINE_AA)
    return np.asarray(mask / np.float32(255), np.float32)


def _make_grid(height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.linspace(-1, 1, width)[None], np.linspace(-1, 1, height)[:, None]


def _soften(inside: NDArray[np.float64]) -> Mask:
    """Return the opacity for distances inside the edge (px)."""
    return np.asarray(np.clip(inside + 0.5, 0, 1), np.float32)


def add_gloss(colours: Colours, gloss: NDArray[np.floating]) -> Tensor:
    """Return a texture with five channels from colours (H, W, 3) and the share (H, W) of the reflection."""
    share = torch.from_numpy(np.ascontiguousarray(gloss, np.float32))[None]
    return torch.cat((make_opaque(np.clip(colours, 0, 1)), share))


def body(
    rng: Generator, colour: Colours, rows: int, columns: int, aspect: float = 1.0, wheel: float = 0.0
) -> Tensor:
    """Return a car's side, front or rear; `aspect` is width over height, `wheel` a part of the height."""
    y = np.linspace(0, 1, rows)[:, None, None]
    x = np.linspace(0, 1, columns)[None, :, None]
    shade = 1 + rng.uniform(0, 0.5) * (0.5 - y) + rng.uniform(-0.1, 0.1) * (x - 0.5)
    crease = rng.uniform(0.2, 0.6)
    shade = shade * (1 - rng.uniform(0, 0.3) * (y > crease))
    colours = np.broadcast_to(colour * shade, (rows, columns, 3)).copy()
    gloss = np.full((rows, columns), rng.uniform(0.05, 0.4)) * (1 - 0.6 * y[..., 0])
    dark = (y > rng.uniform(0.8, 0.95))[:, 0, 0]
    colours[dark], gloss[dark] = 0.03, 0
    if wheel:
        rim = rng.uniform(0.15, 0.6)
        for centre in (0.18, 0.82):
            radius = np.hypot((x[..., 0] - centre) * aspect, y[..., 0] - 0.95) / wheel
            colours[radius < 1], gloss[radius < 1] = 0.02, 0
            colours[radius < 0.6], gloss[radius < 0.6] = rim, 0.1
    else:  # lamps and a number plate
        for centre, half, level in ((0.12, 0.09, 0.8), (0.88, 0.09, 0.8), (0.5, 0.14, 0.9)):
            row = 0.65 if half > 0.1 else 0.4
            lamp = ((np.abs(x - centre) < half) & (np.abs(y - row) < 0.08))[..., 0]
            red = np.array([0.9, 0.1, 0.1]) if rng.random() < 0.5 and half < 0.1 else np.ones(3)
            colours[lamp], gloss[lamp] = level * red * rng.uniform(0.3, 1), 0.2
    return add_gloss(colours, gloss)


def windows(rng: Generator, colour: Colours, rows: int, columns: int, panes: int) -> Tensor:
    """Return dark, shiny glass in a frame of the body's colour, divided by pillars."""
    y = np.linspace(0, 1, rows)[:, None]
    x = np.linspace(0, 1, columns)[None]
    glass = (y > 0.1) & (y < 0.95) & (np.abs(x - 0.5) < 0.47)
    for pillar in range(1, panes):
        glass = glass & (np.abs(x - pillar / panes) > 0.02)
    dark = rng.uniform(0.01, 0.12)
    colours = np.where(glass[..., None], dark, colour * rng.uniform(0.8, 1.1))
    return add_gloss(colours, np.where(glass, rng.uniform(0.1, 0.55), 0.1))


def facade(
    rng: Generator, library: TextureLibrary, rows: int, columns: int, storeys: int, bays: int
) -> Tensor:
    """Return a wall with rows of equal windows, and perhaps ledges between storeys."""
    wall = _make_plaster(rng, library, rows, columns)
    y = np.linspace(0, storeys, rows, endpoint=False)[:, None]
    x = np.linspace(0, bays, columns, endpoint=False)[None]
    u, v = x % 1, y % 1
    half_width, top, bottom = rng.uniform(0.15, 0.4), rng.uniform(0.1, 0.3), rng.uniform(0.65, 0.9)
    rim = rng.uniform(0.02, 0.08)
    framed = (np.abs(u - 0.5) < half_width + rim) & (v > top - rim) & (v < bottom + rim)
    pane = (np.abs(u - 0.5) < half_width) & (v > top) & (v < bottom)
    pane &= np.abs(u - 0.5) > rng.choice([0.0, 0.02])
    shut = rng.random((storeys + 1, bays + 1))[y.astype(int), x.astype(int)] < rng.uniform(0, 0.3)
    levels = rng.uniform(0.02, 0.25, (storeys + 1, bays + 1))[y.astype(int), x.astype(int)]
    wall = np.where(framed[..., None], rng.uniform(0.2, 0.95), wall)
    wall = np.where(pane[..., None], np.where(shut, 0.6, levels)[..., None], wall)
    if rng.random() < 0.6:
        ledge = np.broadcast_to((v < rng.uniform(0.02, 0.08))[..., None], wall.shape)
        wall = np.where(ledge, wall * rng.uniform(0.5, 1.4), wall)
    return add_gloss(wall, np.where(pane & ~shut, rng.uniform(0, 0.5), 0.0))


def _make_plaster(rng: Generator, library: TextureLibrary, rows: int, columns: int) -> Colours:
    colour = rng.uniform(0.15, 0.85) * (1 + rng.uniform(-0.2, 0.2) * np.array([1.0, 0.2, -1.0]))
    if rng.random() < 0.4:
        photo = library.skin(rng, rows, columns)[:3].permute(1, 2, 0).double().numpy()
        return np.asarray(colour * (0.6 + rng.uniform(0.3, 0.9) * photo))
    grain = noise(rng, rows, columns)[..., None]
    colours = colour * (1 + rng.uniform(0.05, 0.5) * (grain - 0.5))
    if rng.random() < 0.3:  # courses of stone or brick
        pitch, y = rng.uniform(4, 14), np.arange(rows)[:, None]
        joint = (y % pitch < 1) | ((np.arange(columns) + y // pitch % 2 * pitch) % (2 * pitch) < 1)
        colours = np.where(joint[..., None], colours * rng.uniform(0.6, 0.95), colours)
    return np.asarray(colours)


def asphalt(rng: Generator, size: int) -> Tensor:
    """Return a smooth road surface with grain and faint blotches."""
    level = rng.uniform(0.15, 0.5)
    tone = 1 + rng.uniform(-0.04, 0.04) * np.array([1, 0, -1.0])
    blotches = noise(rng, size, size, finest=16)[..., None]
    grain = rng.standard_normal((size, size, 1)) * rng.uniform(0.01, 0.12)
    return make_opaque(np.clip(level * tone * (1 + rng.uniform(0, 0.35) * (blotches - 0.5) + grain), 0, 1))


def sky(rng: Generator) -> Tensor:
    """Return an overexposed white sky, or blue fading to white, sometimes with faint clouds."""
    y = np.linspace(0, 1, 64)[:, None, None]
    blue = np.array([rng.uniform(0.3, 0.8), rng.uniform(0.6, 1), 1.0])
    white = np.ones(1) if rng.random() < 0.5 else np.clip(y * rng.uniform(0.5, 2), 0, 1)
    colours = np.broadcast_to(blue * (1 - white) + white, (64, 64, 3)).copy()
    if rng.random() < 0.3:
        clouds = noise(rng, 64, 64, finest=8)[..., None]
        colours = colours * (1 - rng.uniform(0, 0.3) * clouds)
    return make_opaque(np.clip(colours * rng.uniform(0.9, 1.2), 0, 1))


def leaves(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return a tree crown or bush with lit and shaded leaves, a ragged edge and holes."""
    green = np.array([rng.uniform(0.25, 0.8), rng.uniform(0.45, 0.75), rng.uniform(0.1, 0.3)])
    y, x = np.linspace(-1, 1, rows)[:, None], np.linspace(-1, 1, columns)[None]
    coarse = noise(rng, rows, columns, finest=8, coarsest=64)
    fine = noise(rng, rows, columns, finest=2, coarsest=8)
    inside = 1 - np.hypot(x, y) + 0.8 * (coarse - 0.6) + 0.5 * (fine - 0.5)
    mask = np.clip(inside * 12 + 0.5, 0, 1)
    lit = np.clip(0.55 - 0.4 * y + 0.9 * (coarse - 0.5), 0.1, 1)
    contrast = rng.uniform(0.5, 1.8)
    colours = green * np.clip(lit * (1 + contrast * (fine - 0.5)), 0.03, 1)[..., None] * rng.uniform(0.4, 1.2)
    return make_opaque(np.clip(colours, 0, 1)) * torch.from_numpy(mask.astype(np.float32))


def dapples(rng: Generator, size: int, darkness: float) -> Tensor:
    """Return shadows of leaves: black blotches with an opacity of up to `darkness`."""
    pattern = noise(rng, size, size, finest=4, coarsest=128)
    opacity = darkness * np.clip((pattern - rng.uniform(0.35, 0.7)) * rng.uniform(6, 20) + 0.5, 0, 1)
    return torch.cat((torch.zeros(3, size, size), torch.from_numpy(opacity.astype(np.float32))[None]))


def surroundings(rng: Generator, library: TextureLibrary) -> Tensor:
    """Return an image mirrored in glass and paint: a photo or noise, sometimes with highlights."""
    if library.photos and rng.random() < 0.6:
        texture = library.background(rng)
    else:
        texture = make_opaque(np.repeat(noise(rng, 128, 128, finest=8)[..., None], 3, 2))
    if rng.random() < 0.5:
        texture[:3] += highlights(rng, *texture.shape[1:])[:3]
    return texture


def highlights(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return a few spots brighter than white on black."""
    y, x = torch.arange(rows)[:, None], torch.arange(columns)[None]
    light = torch.zeros(rows, columns)
    for _ in range(int(rng.integers(1, 4))):
        place = (rng.uniform(0, rows), rng.uniform(0, columns))
        spot = ((y - place[0]) ** 2 + (x - place[1]) ** 2) / float(rng.uniform(2, 12)) ** 2
        light += float(rng.uniform(1, 4)) * torch.exp(-spot)
    return torch.cat((light.expand(3, -1, -1), torch.ones(1, rows, columns)))


def soft_shadow(rng: Generator, size: int) -> Tensor:
    """Return a black shape of random outline and softness."""
    mask = torch.from_numpy(random_shape(rng, size, size))[None, None]
    reach = int(rng.integers(0, size // 6))
    if reach:
        mask = F.avg_pool2d(mask, 2 * reach + 1, 1, reach)
    return torch.cat((torch.zeros(3, size, size), float(rng.uniform(0.2, 0.7)) * mask[0]))


def post(rng: Generator, rows: int, columns: int) -> Tensor:
    """Return a round post lit from one side: dark, grey or coloured, sometimes with bands."""
    x = np.linspace(-1, 1, columns)[None, :, None]
    grey = rng.random() < 0.75
    colour = np.full(3, rng.choice([0.05, 0.15, 0.4, 0.7])) if grey else rng.uniform(0.1, 0.8, 3)
    shade = 1 + rng.uniform(-0.5, 0.5) * x - rng.uniform(0, 0.5) * x**2
    colours = np.broadcast_to(colour * shade, (rows, columns, 3)).copy()
    if rng.random() < 0.2:
        bands = (np.arange(rows) / rng.uniform(10, 60) % 1 < 0.5)[:, None, None]
        colours = np.where(bands, colours, rng.uniform(0.3, 0.9))
    return make_opaque(np.clip(colours, 0, 1))
