"""Generate rooms with objects, loose objects in front of a wall, corridors, and the walls of tunnels."""

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from pamcli.scenes import appearance
from pamcli.scenes.render import Layer
from pamcli.scenes.solids import AHEAD, DOWN, RIGHT, Block, Camera, Face, Light, Vector, render_face
from pamcli.scenes.stage import CLOSEST, Stage
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


def make_room(
    rng: Generator, library: TextureLibrary, height: int, width: int, largest: float, cases: frozenset[str]
) -> Stage:
    """Return a room whose nearest objects have disparity `largest` (px); its layers cover both views."""
    focal = width * float(rng.uniform(0.7, 1.6))
    inside = rng.random() >= (0.3 if "walls" in cases else 0.6) or "floors" in cases
    share = rng.uniform(0.2, 0.8, 2) if inside else (0.5, 0.5)
    camera = Camera(focal, (float(share[0]) * width, float(share[1]) * height), 0.0, (width, height))
    stage = Stage(rng, library, height, width, largest, camera, cases)
    (_add_room if inside else _add_loose_objects)(stage)
    _add_thin_objects(stage)
    backdrop = min(stage.uniform(0.01, 2), 0.1 * largest)
    stage.add_backdrop(Surface(backdrop), density=stage.uniform(0.5, 1.5))
    return stage


def _draw_range(rng: Generator, least: int, most: int) -> range:
    return range(int(rng.integers(least, (least + most) // 2 if rng.random() < 0.6 else most)))


def _add_loose_objects(stage: Stage) -> None:
    rng, (x, y) = stage.rng, stage.camera.centre
    far = stage.uniform(0.02, 0.4) * stage.largest
    tilt = stage.uniform(0, 0.65)
    wall = Surface.tilted(far, x, y, stage.angle(tilt, 1.2), stage.angle(tilt, 1.2), stage.camera.focal)
    stage.add_backdrop(stage.add_waves(wall, 0.5 * far) if rng.random() < 0.4 else wall)

    def somewhere() -> float:
        return far + (stage.largest - far) * float(rng.beta(1, 1.5))

    for _ in range(int(rng.choice([0, 2, 5]))):
        disparity = somewhere()
        foot = stage.camera.ground_at(stage.uniform(0, 1.1) * stage.width, disparity)
        foot[1] = (stage.uniform(0.1, 1.2) * stage.height - y) / disparity
        _add_crate(stage, foot, disparity)
    for _ in _draw_range(rng, 2, 22):
        at = stage.uniform(-0.05, 1.15) * stage.width, stage.uniform(-0.05, 1.05) * stage.height
        stage.add_object(somewhere(), at, stage.extent(), (0.5, 0.5), rng.choice([0.1, 1.0]))


def _add_room(stage: Stage) -> None:
    rng, (x, y) = stage.rng, stage.camera.centre
    back = stage.uniform(0.15, 0.6) * stage.largest
    tilts = rng.normal(0, 0.2), rng.normal(0, 0.1)
    stage.add_backdrop(Surface.tilted(back, x, y, *tilts, stage.camera.focal))
    near = back / (CLOSEST * stage.largest)
    # Rows from the vanishing point to the foot and to the top of the wall.
    floor = max(stage.uniform(0.1, 0.6) * stage.height, near * (stage.height - y))
    stage.add_backdrop(Surface(-back * y / floor, 0.0, back / floor), case="floors")
    if rng.random() < 0.4:
        ceiling = max(stage.uniform(0.15, 0.7) * stage.height, near * y)
        stage.add_backdrop(Surface(back * y / ceiling, 0.0, -back / ceiling))
    for side in (-1, 1):
        if rng.random() < 0.5:
            # Side walls are at most as steep as `CLOSEST` permits.
            most = CLOSEST * stage.largest / max(x if side < 0 else stage.width - x, 0.1 * stage.width)
            slope = back / (stage.uniform(0.15, 0.8) * stage.width)
            slope = side * min(slope, most, 2.0 if side < 0 else 0.7)
            stage.add_backdrop(Surface(-slope * x, slope, 0.0))
    for _ in range(int(rng.integers(0, 3))):
        _add_table(stage, y, back / floor)
    for _ in range(int(rng.integers(0, 6))):
        at, disparity = stage.uniform(0, 1.1) * stage.width, stage.log_uniform(back, stage.largest)
        foot = stage.camera.ground_at(at, disparity)
        foot[1] = floor / back
        _add_crate(stage, foot, disparity)
    for _ in _draw_range(rng, 3, 18):
        disparity = back + (stage.largest - back) * float(rng.beta(1, 1.3))
        size, at = stage.extent(), stage.uniform(-0.05, 1.15) * stage.width
        standing = rng.random() < 0.5
        on_floor = y + disparity * floor / back - size[0] / 2
        middle = on_floor if standing else stage.uniform(0, 1) * stage.height
        tilt, turn = (0.15, 0.1) if standing else (0.5, 0.5)
        stage.add_object(disparity, (at, middle), size, (0.6, tilt), turn)


def _add_crate(stage: Stage, foot: Vector, disparity: float) -> None:
    """Add a box with a texture on each face, standing at `foot`, unless it is too near to render."""
    rng = stage.rng
    height, width = (side / disparity for side in stage.extent())
    block = Block(foot, stage.uniform(-np.pi, np.pi), stage.log_uniform(0.15, 1.5) * width, width, height)
    too_near = stage.camera.focal / max(block.nearest(), 1) > 1.3 * stage.largest
    if not too_near and stage.camera.is_visible(block.corners()):
        light = Light(np.array([rng.normal(), 1, rng.normal()]), stage.uniform(0.2, 0.8))
        stage.add_block(block, light, lambda _, rows, columns: stage.skin(rows, columns))


def _add_table(stage: Stage, horizon: float, fall: float) -> None:
    lift = fall * stage.uniform(1.2, 2.5)
    near = horizon + stage.uniform(0.2, 0.9) * stage.largest / lift
    far = horizon + stage.uniform(0.4, 0.9) * (near - horizon)
    left = stage.uniform(-0.2, 0.6) * stage.width
    right = left + stage.uniform(0.2, 0.6) * stage.width
    lean = stage.uniform(-0.5, 0.5)
    sides = (1.0, lean, -left - lean * near), (-1.0, lean, right - lean * near)
    stage.add_backdrop(Surface(-lift * horizon, 0.0, lift), [(0.0, 1.0, -far), (0.0, -1.0, near), *sides])


def _add_thin_objects(stage: Stage) -> None:
    rng = stage.rng
    for _ in range(int(rng.choice([0, 1, 2, 4], p=[0.5, 0.2, 0.2, 0.1]))):
        disparity = stage.uniform(0.15, 1.0) * stage.largest
        at = stage.uniform(0, 1.1) * stage.width, stage.uniform(0, 1) * stage.height
        if rng.random() < 0.5:  # a pole
            size = stage.log_uniform(0.3, 2) * stage.height, stage.log_uniform(3, 12)
            stage.add_object(disparity, at, size, (0.2, 0.2), 0.1)
        else:
            stage.add_object(disparity, at, stage.extent(), (0.6, 0.3), 0.1, thin=True)
