"""Generate corridors and tunnel walls, viewed lengthwise between a floor, a ceiling and two sides."""

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from pamcli.scenes import appearance
from pamcli.scenes.render import Layer
from pamcli.scenes.solids import AHEAD, DOWN, RIGHT, Camera, Face, Light, Vector, render_face
from pamcli.scenes.stage import Stage
from pamcli.scenes.surfaces import Surface
from pamcli.scenes.textures import TextureLibrary, bare_surface, make_opaque

NARROWEST = 1.5  # baselines from the left camera to a side, so that the right camera is inside too
LAMPS = 256  # texels from one lamp to the next


def make_corridor(
    rng: Generator, library: TextureLibrary, height: int, width: int, largest: float, cases: frozenset[str]
) -> Stage:
    """Return a corridor whose nearest objects have disparity `largest` (px); its layers cover both views."""
    focal = float(width * rng.uniform(0.6, 1.4))
    centre = float(rng.uniform(0.2, 0.8) * width), float(rng.uniform(0.25, 0.7) * height)
    eye = (height - centre[1]) / (largest * rng.uniform(0.4, 1.0))
    camera = Camera(focal, centre, eye, (width, height))
    stage = Stage(rng, library, height, width, largest, camera, cases)
    above = centre[1] / (largest * stage.uniform(0.3, 0.9))
    edges = centre[0], width - centre[0]
    sides = [max(edge / (largest * stage.uniform(0.5, 1.1)), NARROWEST) for edge in edges]
    end = stage.uniform(0.03, 0.25) * largest
    floor = bare_surface(rng) if rng.random() < 0.5 else stage.background("floors")
    _add_plane(stage, camera.height * DOWN, RIGHT, AHEAD, floor, 0.02 * camera.height)
    wall = bare_surface(rng) if rng.random() < 0.75 else library.background(rng)
    ceiling = _lamp_texture(rng, stage.uniform(0.4, 0.95), 1.5) if rng.random() < 0.7 else bare_surface(rng)
    _add_plane(stage, -above * DOWN, RIGHT, AHEAD, ceiling, 4 * above / LAMPS * stage.uniform(0.5, 2))
    for sign, side in zip((-1, 1), sides, strict=True):
        _add_plane(stage, sign * side * RIGHT, AHEAD, DOWN, wall, 0.02 * side)
        for _ in range(int(rng.integers(0, 5))):
            _add_door(stage, sign, side, above, end)
    stage.add(Layer(Surface(end), bare_surface(rng), np.eye(3), endless=True))
    for _ in range(int(rng.integers(0, 8))):
        disparity = end + (largest - end) * float(rng.beta(1, 1.5))
        x, size = stage.uniform(0, 1.1) * width, stage.extent()
        y = centre[1] + disparity * camera.height - size[0] / 2
        stage.add_object(disparity, (x, y), size, (0.6, 0.1), 0.1)
    return stage


def line_tunnel(stage: Stage, half_width: float, metre: float) -> None:
    """Add the sides and end of a tunnel, a ceiling with lamps, and sometimes bevels."""
    rng, camera = stage.rng, stage.camera
    edges = camera.centre[0], stage.width - camera.centre[0]
    sides = [max(half_width, edge / (1.1 * stage.largest), NARROWEST) for edge in edges]
    above = max(stage.uniform(2, 5) * metre, camera.centre[1] / (1.1 * stage.largest), 0.5)
    grey = stage.uniform(0.03, 0.3)
    wall, lamps = bare_surface(rng, grey), _lamp_texture(rng, grey, stage.uniform(2, 8))
    spacing = stage.uniform(3, 12) * metre / LAMPS
    for sign, side in zip((-1, 1), sides, strict=True):
        _add_plane(stage, sign * side * RIGHT, AHEAD, DOWN, wall, spacing)
        if rng.random() < 0.5:
            bevel = stage.uniform(0.2, 0.6) * min(side, above)
            corner = sign * (side - bevel) * RIGHT - above * DOWN
            texture = lamps if rng.random() < 0.3 else wall
            _add_plane(stage, corner, sign * RIGHT + DOWN, AHEAD, texture, spacing)
    _add_plane(stage, -above * DOWN, RIGHT, AHEAD, lamps, spacing)
    exit_ = appearance.sky(rng) if rng.random() < 0.5 else bare_surface(rng, 0.02)
    end = min(stage.uniform(0.3, 4.0), 0.1 * stage.largest)
    stage.add(Layer(Surface(end), exit_, np.eye(3), endless=True))


def _add_plane(
    stage: Stage, origin: Vector, across: Vector, down: Vector, texture: Tensor, texel: float
) -> None:
    """Add an endless plane through `origin` whose texels measure `texel` baselines."""
    homography, surface = stage.camera.frame(origin, texel * across, texel * down)
    stage.add(Layer(surface, texture, homography, endless=True))


def _lamp_texture(rng: Generator, grey: float, light: float) -> Tensor:
    """Return a uniform texture with a lamp brighter than white and its glow; rows run along the tunnel."""
    rows, columns = LAMPS // 2, 96
    y, x = np.arange(rows)[:, None], np.arange(columns)[None]
    middle, half = rng.uniform(0, columns), rng.uniform(1.5, 8, 2)
    shine = np.exp(-np.hypot(y / 3, x - middle) / rng.uniform(4, 20))
    texture = make_opaque(np.repeat(np.clip(grey * (0.6 + shine), 0, 1)[..., None], 3, 2))
    lamp = torch.from_numpy((y < 4 * half[0]) & (np.abs(x - middle) < half[1]))
    warm = torch.tensor([1.0, rng.uniform(0.6, 1.0), rng.uniform(0.3, 1.0)], dtype=torch.float32)
    texture[:3, lamp] = (light * warm)[:, None]
    return texture


def _add_door(stage: Stage, sign: int, side: float, above: float, end: float) -> None:
    """Add a framed door, board or window of one colour to the left (-1) or right (1) side."""
    rng, camera = stage.rng, stage.camera
    z = camera.focal / stage.log_uniform(end, 0.9 * stage.largest)
    storey = camera.height + above
    top, width = stage.uniform(0.5, 0.9) * storey - camera.height, stage.uniform(0.2, 0.6) * storey
    down = (top + camera.height if rng.random() < 0.6 else 0.3 * storey) * DOWN
    near, across = sign * 0.999 * side * RIGHT - top * DOWN + z * AHEAD, width * AHEAD
    look, frame = bare_surface(rng, size=64), stage.uniform(0.0, 0.9)
    look[:3, :, :3] = look[:3, :, -3:] = frame
    look[:3, :3] = frame
    shape = Face(near, across, down) if sign < 0 else Face(near + across, -across, down)
    stage.add(render_face(camera, Light(DOWN, 1.0), shape, look))
