"""A scene by its number, and what stands where in it: a street, loose layers, or a room with objects."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.random import Generator

from pamcli.data.scenes import looks
from pamcli.data.scenes.camera import photograph
from pamcli.data.scenes.render import Decal, Layer, Reflection, render
from pamcli.data.scenes.solids import SHADOW_TEXELS, Block, Camera, Light, Vector, face
from pamcli.data.scenes.stage import CLOSEST, Stage
from pamcli.data.scenes.streets import make_street
from pamcli.data.scenes.surfaces import Surface
from pamcli.data.scenes.textures import TextureLibrary
from pamcli.data.source import Sample

SMALLEST_RANGE = 6
"""Every scene's largest disparity is at least about this, pixels."""

LARGEST_PART = 0.4
"""And at most about this part of the width: what is nearer leaves the right view."""

USUAL_RANGE = 45.0, 130.0
"""Of the largest disparity, pixels, as cameras on cars and on desks have it ..."""

USUAL = 0.6
"""... and the share of such scenes."""

STREETS = 0.45
"""Share of the scenes."""


@dataclass(frozen=True)
class Scene:
    """Layers, and by how much the pair is not rectified."""

    layers: tuple[Layer, ...]
    drift: tuple[float, float]
    """See `render`."""


def scene_pair(
    library: TextureLibrary, seed: int, number: int, height: int, width: int, device: str = "cpu"
) -> Sample:
    """The scene `number` of the series `seed`, in pictures of (height, width); always the same one.

    device: where it is drawn; on another one it is the same within rounding.
    """
    rng = np.random.default_rng((seed, number))
    scene = make_scene(rng, library, height, width)
    sharpness = float(rng.uniform(0.5, 1.1))
    views = render(scene.layers, height, width, scene.drift, sharpness=sharpness, device=device)
    left, right = photograph(rng, views.left, views.right)
    return Sample(
        name=f"{number:06d}",
        left=left,
        right=right,
        disparity=views.disparity.cpu().numpy(),
        right_disparity=views.right_disparity.cpu().numpy(),
        visible=views.visible.cpu().numpy(),
    )


def make_scene(rng: Generator, library: TextureLibrary, height: int, width: int) -> Scene:
    """A random scene for views of (height, width) pixels."""
    if rng.random() < USUAL:
        largest = float(rng.uniform(*USUAL_RANGE)) * min(1.0, LARGEST_PART * width / USUAL_RANGE[1])
    else:
        largest = float(np.exp(rng.uniform(np.log(SMALLEST_RANGE), np.log(LARGEST_PART * width))))
    if rng.random() < STREETS:
        return Scene(tuple(make_street(rng, library, height, width, largest)), _drift(rng))
    stage = Stage(rng, library, height, width, largest, focal=width * float(rng.uniform(0.7, 1.6)))
    placed = (_loose if rng.random() < 0.6 else _room)(stage)
    layers = [layer for layer in placed if layer is not None]
    layers += [layer for layer in _thin_things(stage) if layer is not None]
    backdrop = min(stage.uniform(0.01, 2), 0.1 * largest)
    layers.append(stage.endless(Surface(backdrop), density=stage.uniform(0.5, 1.5)))
    return Scene(tuple(_shaded(rng, layer) for layer in layers), _drift(rng))


def _shaded(rng: Generator, layer: Layer) -> Layer:
    """In a light of its own; backgrounds with shadows that fall on them, some objects with a reflection."""
    light = float(rng.uniform(0.6, 1.2))
    layer = replace(layer, light=(light * layer.light[0],) * 3)
    if layer.endless:
        if layer.box is not None or rng.random() < 0.5:
            return layer
        rows, columns = layer.texture.shape[1:]
        decals = []
        for _ in range(int(rng.integers(1, 4))):
            size = rng.uniform(0.1, 0.8) * min(rows, columns)
            scale = SHADOW_TEXELS / size
            place = (rng.uniform(0, columns), rng.uniform(0, rows))
            to_mask = np.array(
                [
                    [scale, 0, -scale * place[0]],
                    [0, scale * rng.uniform(0.5, 1.5), -scale * place[1]],
                    [0, 0, 1],
                ]
            )
            decals.append(Decal(looks.blurred_shadow(rng, SHADOW_TEXELS), to_mask @ layer.homography))
        return replace(layer, decals=tuple(decals))
    if len(layer.texture) == 4 and rng.random() < 0.15:
        return replace(
            layer,
            texture=torch.cat((layer.texture, rng.uniform(0.1, 0.5) * layer.texture[3:])),
            reflection=_mirrored(rng, layer),
        )
    return layer


def _mirrored(rng: Generator, layer: Layer) -> Reflection:
    x0, y0, x1, y1 = layer.box or (0, 0, 0, 0)
    disparity = layer.surface.disparity_at((x0 + x1) / 2, (y0 + y1) / 2) * float(rng.uniform(-0.4, 0.7))
    scale = float(rng.uniform(0.3, 2))
    return Reflection(looks.highlights(rng, 96, 96), disparity, (scale, scale))


def _drift(rng: Generator) -> tuple[float, float]:
    if rng.random() < 0.5:
        return 0.0, 0.0
    return float(np.clip(rng.normal(0, 0.3), -1, 1)), float(np.clip(rng.normal(0, 0.3), -1, 1))


def _few_or_many(rng: Generator, least: int, most: int) -> int:
    return int(rng.integers(least, (least + most) // 2 if rng.random() < 0.6 else most))


def _loose(stage: Stage) -> list[Layer | None]:
    """A tilted or curved background and objects anywhere before it."""
    rng = stage.rng
    far = stage.uniform(0.02, 0.4) * stage.largest
    x, y = stage.centre
    tilt = stage.uniform(0, 0.65)
    wall = Surface.tilted(far, x, y, stage.angle(tilt, 1.2), stage.angle(tilt, 1.2), stage.focal)
    if rng.random() < 0.4:
        wall = stage.waved(wall, 0.5 * far)
    layers: list[Layer | None] = [stage.endless(wall)]
    camera = Camera(stage.focal, stage.centre, 0.0, (stage.width, stage.height))
    for _ in range(int(rng.choice([0, 2, 5]))):
        disparity = far + (stage.largest - far) * float(rng.beta(1, 1.5))
        foot = camera.ground_at(stage.uniform(0, 1.1) * stage.width, disparity)
        foot[1] = (stage.uniform(0.1, 1.2) * stage.height - y) / disparity
        layers += _crate(stage, camera, foot, disparity)
    for _ in range(_few_or_many(rng, 2, 22)):
        disparity = far + (stage.largest - far) * float(rng.beta(1, 1.5))
        height, width = stage.extent()
        layers.append(
            stage.thing(
                disparity,
                stage.uniform(-0.05, 1.15) * stage.width,
                stage.uniform(-0.05, 1.05) * stage.height,
                height,
                width,
                0.5,
                0.5,
                rng.choice([0.1, 1.0]),
            )
        )
    return layers


def _room(stage: Stage) -> list[Layer | None]:
    """The inside of a box seen towards its back wall, furniture and things in it."""
    rng = stage.rng
    x, y = stage.uniform(0.2, 0.8) * stage.width, stage.uniform(0.2, 0.8) * stage.height
    back = stage.uniform(0.15, 0.6) * stage.largest
    layers: list[Layer | None] = [
        stage.endless(Surface.tilted(back, x, y, rng.normal(0, 0.2), rng.normal(0, 0.1), stage.focal))
    ]
    near = back / (CLOSEST * stage.largest)
    # Rows from the vanishing point to the foot of the wall, and to its top.
    floor = max(stage.uniform(0.1, 0.6) * stage.height, near * (stage.height - y))
    layers.append(stage.endless(Surface(-back * y / floor, 0.0, back / floor)))
    if rng.random() < 0.4:
        ceiling = max(stage.uniform(0.15, 0.7) * stage.height, near * y)
        layers.append(stage.endless(Surface(back * y / ceiling, 0.0, -back / ceiling)))
    for side in (-1, 1):
        if rng.random() < 0.5:
            slope = stage.slope(side * back / (stage.uniform(0.15, 0.8) * stage.width), x)
            layers.append(stage.endless(Surface(-slope * x, slope, 0.0)))
    for _ in range(int(rng.integers(0, 3))):  # table tops: planes above the floor, cut to a quadrangle
        layers.append(_table(stage, y, back / floor))
    camera = Camera(stage.focal, (x, y), floor / back, (stage.width, stage.height))
    for _ in range(int(rng.integers(0, 6))):
        at, disparity = stage.uniform(0, 1.1) * stage.width, stage.log_uniform(back, stage.largest)
        layers += _crate(stage, camera, camera.ground_at(at, disparity), disparity)
    for _ in range(_few_or_many(rng, 3, 18)):
        disparity = back + (stage.largest - back) * float(rng.beta(1, 1.3))
        height, width = stage.extent()
        at = stage.uniform(-0.05, 1.15) * stage.width
        if rng.random() < 0.5:
            foot = y + disparity * floor / back
            layers.append(stage.upright(disparity, at, foot, height, width))
        else:
            row = stage.uniform(0, 1) * stage.height
            layers.append(stage.thing(disparity, at, row, height, width, 0.6, 0.5, 0.5))
    return layers


def _crate(stage: Stage, camera: Camera, foot: Vector, disparity: float) -> list[Layer | None]:
    """A box with a picture on each face, its foot in space; nothing where it cannot be drawn."""
    rng = stage.rng
    height, width = (side / disparity for side in stage.extent())
    length = stage.log_uniform(0.15, 1.5) * width
    block = Block(foot, stage.uniform(-np.pi, np.pi), length, width, height)
    if camera.focal / max(block.nearest(), 1) > 1.3 * stage.largest or not camera.sees(block.corners()):
        return []
    light = Light(np.array([rng.normal(), 1, rng.normal()]), stage.uniform(0.2, 0.8))
    faces = []
    for _, origin, across, down, taper in block.sides():
        rows, columns = (int(np.clip(1.2 * disparity * np.linalg.norm(v), 8, 400)) for v in (down, across))
        try:
            faces.append(
                face(camera, light, origin, across, down, stage.library.skin(rng, rows, columns), taper=taper)
            )
        except ValueError:
            return []
    return list(faces)


def _table(stage: Stage, horizon: float, fall: float) -> Layer | None:
    lift = fall * stage.uniform(1.2, 2.5)
    near = horizon + stage.uniform(0.2, 0.9) * stage.largest / lift
    far = horizon + stage.uniform(0.4, 0.9) * (near - horizon)
    left = stage.uniform(-0.2, 0.6) * stage.width
    right = left + stage.uniform(0.2, 0.6) * stage.width
    lean = stage.uniform(-0.5, 0.5)
    clips = (
        (0.0, 1.0, -far),
        (0.0, -1.0, near),
        (1.0, lean, -left - lean * near),
        (-1.0, lean, right - lean * near),
    )
    return stage.endless(Surface(-lift * horizon, 0.0, lift), clips)


def _thin_things(stage: Stage) -> list[Layer | None]:
    """Poles, fences, nets, wires: in about half of the scenes."""
    rng = stage.rng
    layers: list[Layer | None] = []
    for _ in range(int(rng.choice([0, 1, 2, 4], p=[0.5, 0.2, 0.2, 0.1]))):
        disparity = stage.uniform(0.15, 1.0) * stage.largest
        x, y = stage.uniform(0, 1.1) * stage.width, stage.uniform(0, 1) * stage.height
        if rng.random() < 0.5:  # a pole
            width, height = stage.log_uniform(3, 12), stage.log_uniform(0.3, 2) * stage.height
            layers.append(stage.thing(disparity, x, y, height, width, 0.2, 0.2, 0.1))
        else:
            height, width = stage.extent()
            layers.append(stage.thing(disparity, x, y, height, width, 0.6, 0.3, 0.1, thin=True))
    return layers
