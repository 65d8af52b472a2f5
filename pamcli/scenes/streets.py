"""Generate streets: smooth roads with marks and curbs, houses, parked cars, posts, trees, a bright sky."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from pamcli.scenes import appearance
from pamcli.scenes.interiors import line_tunnel
from pamcli.scenes.render import Decal, Layer, Reflection
from pamcli.scenes.solids import AHEAD, DOWN, RIGHT, Block, Camera, Face, Light, Vector, render_face, shadow
from pamcli.scenes.stage import Stage
from pamcli.scenes.surfaces import Surface
from pamcli.scenes.textures import TextureLibrary, bare_surface, cut, random_paint

MOST_SHADOWS = 12


@dataclass
class Street(Stage):
    light: Light = field(kw_only=True)
    metre: float = field(kw_only=True)  # baselines per metre
    half_road: float = field(kw_only=True)  # baselines from the axis of the road to its edge
    darkness: float = field(kw_only=True)  # opacity of shadows
    reflection: Tensor = field(kw_only=True)  # image mirrored in glass and paint
    shadows: list[Decal] = field(default_factory=list)

    def random_reflection(self, disparity: float) -> Reflection:
        """Return the reflection on a surface at `disparity`; mirrored objects mostly lie far behind it."""
        scale = self.log_uniform(0.3, 2.0)
        density = scale, scale * self.uniform(0.5, 2)
        return Reflection(self.reflection, disparity * self.uniform(-0.4, 0.7), density)

    def count_texels(self, size: float, disparity: float, most: int = 320) -> int:
        """Return the number of texels for a length (baselines) seen at a disparity."""
        return int(np.clip(1.3 * size * disparity, 8, most))

    def cast_shadow(self, base: list[Vector] | Vector, height: float) -> None:
        if len(self.shadows) < MOST_SHADOWS and self.darkness > 0.05:
            thrown = shadow(self.camera, self.light, base, height, self.darkness)
            self.shadows += [thrown] if thrown is not None else []

    def random_ground_point(self, nearest: float, farthest: float) -> tuple[Vector, float]:
        """Return a visible point of the ground and its disparity, at most `nearest` parts of the largest."""
        disparity = self.log_uniform(min(farthest, 0.3 * self.largest), nearest * self.largest)
        return self.camera.ground_at(self.uniform(-0.05, 1.1) * self.width, disparity), disparity

    def add_board(
        self, foot: Vector, size: tuple[float, float], texture: Tensor, *, cutout: bool, lean: float = 0.0
    ) -> None:
        """Add an upright rectangle (width, height) that faces the camera, leaning by `lean` radians."""
        across = size[0] * np.array([np.cos(lean), np.sin(lean), 0.0])
        down = size[1] * np.array([-np.sin(lean), np.cos(lean), 0.0])
        shine = self.random_reflection(self.camera.focal / foot[2]) if len(texture) == 5 else None
        shape = Face(foot - across / 2 - down, across, down)
        made = render_face(self.camera, self.light, shape, texture, cutout=cutout, reflection=shine)
        if made is not None:
            self.add(replace(made, light=self.light.compute_shine(self.uniform(0.3, 1.0))))


def add_car(street: Street, *, parked: bool) -> None:
    """Add a car with body and cabin, or a van: a tall box with windows."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.random_ground_point(0.85, 3.0)
    ways = [0.0, np.pi, np.pi / 2, -np.pi / 2]
    heading = float(rng.choice(ways, p=[0.42, 0.42, 0.08, 0.08])) + street.uniform(-0.15, 0.15)
    if parked:  # along the road, on either side of it
        foot[0] = np.copysign(street.half_road - street.uniform(-0.5, 1.5) * metre, foot[0])
        there = (street.uniform(0, 1) * street.width - street.camera.centre[0]) / foot[0]
        if 4 < there < 0.9 * street.largest:
            disparity = there
            foot[2] = street.camera.focal / disparity
    length, width = street.uniform(3.6, 5) * metre, street.uniform(1.6, 1.95) * metre
    front = foot[2] - length / 2
    outline = Block(foot, heading, length, width, 2 * metre)
    too_near = front < 2 or street.camera.focal / front > 1.3 * street.largest
    if too_near or not street.camera.is_visible(outline.corners()):
        return
    colour, van = random_paint(rng), rng.random() < 0.25
    height = street.uniform(1.7, 2.6) * metre if van else street.uniform(0.75, 1.0) * metre
    gloss = np.full((8, 8), street.uniform(0.1, 0.5))
    roof = appearance.add_gloss(np.broadcast_to(colour * 1.1, (8, 8, 3)), gloss)

    def painted(name: str, rows: int, columns: int) -> Tensor:
        if name == "top":
            return roof
        aspect, wheel = (length / height, 0.34 * metre / height) if name in ("left", "right") else (1.0, 0.0)
        return appearance.body(rng, colour, rows, columns, aspect, wheel)

    def glazed(name: str, rows: int, columns: int) -> Tensor:
        panes = int(rng.integers(2, 5)) if name in ("left", "right") else 1
        return roof if name == "top" else appearance.windows(rng, colour, rows, columns, panes)

    lifted, shine = foot - 0.14 * metre * DOWN, street.random_reflection(disparity)
    body = Block(lifted, heading, length, width, height)
    if not street.add_block(body, street.light, painted, reflection=shine):
        return
    base = replace(outline, length=0.95 * length).ring(False)
    street.cast_shadow(base, 0.9 * (height if van else 1.4 * metre))
    if van:
        return
    shift = street.uniform(-0.12, 0.02) * length
    size = length * street.uniform(0.55, 0.75), width * 0.94, street.uniform(0.45, 0.65) * metre
    top = street.uniform(0.6, 0.85), street.uniform(0.75, 0.9), street.uniform(-0.08, 0.02)
    cabin = Block(lifted - height * DOWN + shift * body.along, heading, *size, *top)
    street.add_block(cabin, street.light, glazed, reflection=shine)


def add_post(street: Street) -> None:
    """Add a lamp post, bollard, traffic light or sign."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.random_ground_point(0.9, 4.0)
    if rng.random() < 0.5:
        foot[0] = rng.choice([-1, 1]) * (street.half_road + street.uniform(-0.5, 3) * metre)
    width = min(max(street.log_uniform(0.05, 0.3) * metre, 2.0 / disparity), 16 / disparity)
    height = (street.uniform(0.7, 1.2) if rng.random() < 0.3 else street.uniform(2, 9)) * metre
    texture = appearance.post(rng, street.count_texels(height, disparity, 200), 10)
    street.add_board(foot, (width, height), texture, cutout=False, lean=float(rng.normal(0, 0.02)))
    street.cast_shadow([foot - width / 2 * RIGHT, foot + width / 2 * RIGHT], height)
    if height < 1.5 * metre or rng.random() < 0.4:
        return
    front = foot - np.array([0, height * street.uniform(0.5, 0.9), 0.05 * metre])
    size = street.uniform(0.3, 1.0) * metre
    n = street.count_texels(size, disparity, 96)
    if rng.random() >= 0.6:
        street.add_board(front, (0.4 * size, size), appearance.post(rng, n, n), cutout=False)
        return
    mask = appearance.random_shape(rng, n, n)
    plate = street.library.skin(rng, n, n) if rng.random() < 0.3 else appearance.post(rng, n, n)
    street.add_board(front, (size, size), cut(plate, mask), cutout=True)


def add_tree(street: Street) -> None:
    """Add a trunk with a crown of one to three bunches of leaves."""
    rng, metre = street.rng, street.metre
    foot, disparity = street.random_ground_point(0.7, 3.0)
    if abs(foot[0]) < street.half_road:
        foot[0] = np.copysign(street.half_road + street.uniform(0, 8) * metre, foot[0])
    trunk, width = street.uniform(0.5, 4) * metre, street.uniform(0.15, 0.6) * metre
    texels = street.count_texels(trunk, disparity, 200), street.count_texels(width, disparity, 64)
    bark = street.library.skin(rng, *texels) * torch.tensor([0.5, 0.45, 0.4, 1])[:, None, None]
    street.add_board(foot, (width, 1.3 * trunk), bark, cutout=False, lean=float(rng.normal(0, 0.05)))
    size = street.uniform(2, 7) * metre
    n = street.count_texels(size, disparity, 256)
    for _ in range(int(rng.integers(1, 4))):
        away = rng.uniform((-0.4, -0.4, -0.3), (0.4, 0.2, 0.3)) * size - trunk * DOWN
        extent = size * street.uniform(0.6, 1.2), size * street.uniform(0.5, 1)
        if (foot + away)[2] > 3:
            street.add_board(foot + away, extent, appearance.leaves(rng, n, n), cutout=True)
    base = [foot + np.array([i, 0, j]) * size / 4 for i in (-1, 1) for j in (-1, 1)]
    street.cast_shadow(base, trunk + size / 2)


def add_standing_object(street: Street) -> None:
    """Add a standing cut-out (person, animal, object), or a shape with a random texture."""
    rng = street.rng
    foot, disparity = street.random_ground_point(0.95, 5.0)
    height = street.uniform(0.4, 2.1) * street.metre
    texture = street.library.cutout(rng)
    if texture is None:
        n = street.count_texels(height, disparity, 256)
        texture = cut(street.library.skin(rng, n, n), appearance.random_shape(rng, n, n))
    width = height * texture.shape[2] / texture.shape[1]
    street.add_board(foot, (width, height), texture, cutout=True)
    street.cast_shadow([foot - width / 3 * RIGHT, foot + width / 3 * RIGHT], height)


def make_street(
    rng: Generator, library: TextureLibrary, height: int, width: int, largest: float, cases: frozenset[str]
) -> Street:
    """Return a street whose nearest objects have disparity `largest` (px); its layers cover both views."""
    uniform = rng.uniform
    horizon, vanishing = uniform(0.05, 0.65) * height, uniform(0.0, 1.1) * width
    at_foot = largest * uniform(0.5, 0.95)
    focal = float(np.exp(rng.uniform(np.log(0.55), np.log(1.5)))) * width
    camera = Camera(focal, (vanishing, horizon), (height - horizon) / at_foot, (width, height))
    metre = camera.height / uniform(1.2, 2.3)
    turn, rise = uniform(0, 2 * np.pi), uniform(0.4, 1.2)
    direction = np.array([np.cos(turn) * np.cos(rise), np.sin(rise), np.sin(turn) * np.cos(rise)])
    overcast = rng.random() < 0.35
    street = Street(
        *(rng, library, height, width, largest, camera, cases),
        light=Light(direction, uniform(0.7, 0.95) if overcast else uniform(0.25, 0.6)),
        metre=metre,
        half_road=uniform(2.5, 7) * metre,
        darkness=uniform(0, 0.3) if overcast else uniform(0.4, 0.8),
        reflection=appearance.surroundings(rng, library),
    )
    if "tunnels" in cases:
        street.light = Light(DOWN, uniform(0.1, 0.6))
        line_tunnel(street, street.half_road + uniform(0.3, 3) * metre, metre)
    else:
        for side in (-1, 1):
            if rng.random() < 0.7:
                _add_houses(street, side)
            if rng.random() < 0.6:
                _add_curb(street, side)
        _add_far_objects(street)
    for attempt in range(int(rng.integers(1, 9))):
        add_car(street, parked="tunnels" not in cases and attempt % 3 > 0)
    outdoors = 0 if "tunnels" in cases else 1
    for thing, least, most in ((add_tree, 0, 5), (add_post, 2, 11), (add_standing_object, 0, 5)):
        for _ in range(int(rng.integers(least, most)) * outdoors):
            thing(street)
    _add_ground(street)
    _add_sky(street)
    return street


def _add_ground(street: Street) -> None:
    rng, camera, metre = street.rng, street.camera, street.metre
    texel = metre * street.log_uniform(0.008, 0.03)
    smooth = rng.random() < 0.7 or "tunnels" in street.cases
    texture = appearance.asphalt(rng, 384) if smooth else street.library.background(rng)
    if "floors" in street.cases:
        texture = bare_surface(rng)
    origin = np.array([0.0, camera.height, 1.0])
    homography, surface = camera.frame(origin, texel * RIGHT, texel * AHEAD)
    decals = [*_make_marks(street), *street.shadows]
    if rng.random() < 0.3:
        dark = appearance.dapples(rng, 256, street.darkness)
        spot, _ = camera.frame(origin, street.uniform(0.02, 0.1) * metre * RIGHT, 0.06 * metre * AHEAD)
        decals.append(Decal(dark, spot, endless=True))
    light = street.light.compute_reflected(DOWN)
    street.add(Layer(surface, texture, homography, endless=True, light=light, decals=tuple(decals)))


def _make_marks(street: Street) -> list[Decal]:
    rng, camera, metre = street.rng, street.camera, street.metre
    marks, worn = [], street.uniform(0.4, 1.0)
    for _ in range(int(rng.integers(0, 5))):
        origin = np.array([street.uniform(-1, 1) * street.half_road, camera.height, 1.5 * metre])
        texture = torch.full((4, 600, 6), worn)
        if rng.random() < 0.5:
            period, part = street.uniform(20, 90), street.uniform(0.3, 0.6)
            texture *= ((torch.arange(600) / period) % 1 < part)[:, None]
        texture[:3] *= street.uniform(0.75, 1.0)
        sideways, along = street.uniform(0.1, 0.25) * metre / 6 * RIGHT, 0.1 * metre * AHEAD
        if rng.random() < 0.15:
            origin = np.array([-30 * metre, camera.height, street.uniform(4, 20) * metre])
            sideways, along = 4 * sideways[[2, 1, 0]], along[[2, 1, 0]]
        marks.append(Decal(texture, camera.frame(origin, sideways, along)[0]))
    return marks


def _add_sky(street: Street) -> None:
    rng = street.rng
    disparity = min(street.uniform(0.0, 0.5), 0.05 * street.largest)
    texture = appearance.sky(rng) if rng.random() < 0.75 else street.library.background(rng)
    rows, columns = texture.shape[1:]
    fitting = rows / max(street.camera.centre[1], 20.0)
    scale = fitting if rng.random() < 0.75 else street.uniform(0.5, 1.5)
    homography = np.array([[scale, 0, columns / 3], [0, scale, 0], [0, 0, 1]])
    street.add(Layer(Surface(disparity), texture, homography, endless=True))


def _add_houses(street: Street, side: int) -> None:
    rng, metre, camera = street.rng, street.metre, street.camera
    edge = street.width - camera.centre[0] if side > 0 else camera.centre[0]
    line = max(street.half_road + street.uniform(1, 8) * metre, edge / (1.1 * street.largest), 1.5)
    z, depth = street.uniform(1, 12) * metre, 10 * metre
    for _ in range(int(rng.integers(1, 5))):
        storeys, bays = int(rng.integers(2, 6)), int(rng.integers(3, 8))
        height, length = storeys * street.uniform(2.8, 4.0) * metre, street.uniform(6, 30) * metre
        foot = np.array([side * (line + depth / 2), camera.height, z + length / 2])
        house = Block(foot, 0.0, length, depth, height)
        z += length + (street.uniform(1, 12) * metre if rng.random() < 0.4 else 0.0)
        line += street.uniform(-0.5, 1.5) * metre
        if camera.is_visible(house.corners()):
            wall = appearance.facade(rng, street.library, 384, 384, storeys, bays)
            per_metre = 384 / bays / (street.uniform(2, 4) * metre)
            sides = {"left": length, "right": length, "front": depth, "rear": depth}
            texels = {name: (size * per_metre, 384.0) for name, size in sides.items()}
            shine = street.random_reflection(camera.focal / max(house.nearest(), 1.0))
            street.add_block(house, street.light, _make_skins(wall, wall[:, :8, :8]), texels, shine)


def _make_skins(side: Tensor, top: Tensor) -> Callable[[str, int, int], Tensor]:
    return lambda name, rows, columns: top if name == "top" else side


def _add_curb(street: Street, side: int) -> None:
    camera, metre = street.camera, street.metre
    width, length = street.uniform(1.5, 12) * metre, 80 * metre
    foot = np.array([side * (street.half_road + width / 2), camera.height, length / 2 + 0.3])
    smooth = street.rng.random() < 0.6
    top = appearance.asphalt(street.rng, 128) if smooth else street.library.background(street.rng)
    rim = (top[:, :16] * 1.1).clamp(max=1)
    scale = 1 / (street.log_uniform(0.01, 0.03) * metre)
    along = length * scale
    texels = {"top": (along, width * scale), "left": (along, 16.0), "right": (along, 16.0)}
    curb = Block(foot, 0.0, length, width, street.uniform(0.08, 0.2) * metre)
    street.add_block(curb, street.light, _make_skins(rim, top), texels)


def _add_far_objects(street: Street) -> None:
    """Add hedges, facades or textured rectangles at the end of the road."""
    rng, library = street.rng, street.library
    for _ in range(int(rng.integers(1, 4))):
        disparity = street.log_uniform(1.0, max(1.5, 0.12 * street.largest))
        foot = street.camera.ground_at(street.uniform(-0.2, 1.2) * street.width, disparity)
        size = rng.uniform((0.2, 0.05), (1.0, 0.4)) * street.width / disparity
        rows, columns = (street.count_texels(size[i], disparity, most) for i, most in ((1, 256), (0, 512)))
        kind = rng.choice(3, p=[0.6, 0.2, 0.2])
        if kind == 0:
            texture = appearance.leaves(rng, rows, columns)
        elif kind == 1:
            texture = appearance.facade(rng, library, rows, columns, 3, 7)
        else:
            texture = library.skin(rng, rows, columns)
        street.add_board(foot, (size[0], size[1]), texture, cutout=kind == 0)
