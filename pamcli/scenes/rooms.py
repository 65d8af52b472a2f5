"""Generate rooms with objects, and loose objects in front of a wall."""

import numpy as np
from numpy.random import Generator

from pamcli.scenes.solids import Block, Camera, Light, Vector
from pamcli.scenes.stage import CLOSEST, Stage
from pamcli.scenes.surfaces import Surface
from pamcli.scenes.textures import TextureLibrary


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
