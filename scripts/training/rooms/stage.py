"""Build rendered scenes in Blender: furnished rooms and streets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import bpy
import numpy as np
from furniture import Catalogue
from materials import Materials
from objects import (
    FURNITURE,
    SEE_THROUGH,
    STREET,
    Builder,
    build_bottle,
    build_car,
    build_crate,
    build_lamp,
    build_post,
    build_table,
    build_tree,
)
from see_through import build_plant, build_slats
from shapes import Shape, build_wall, build_window

INDOORS = ("Living room", "Kitchen", "Bedroom", "Bathroom", "Office", "Miscellaneous", "Lights", "Characters")
OUTDOORS = ("Exterior", "Vehicles", "Characters")


class Stage:
    """A scene under construction.

    Attributes:
        low: lower corner of the space in which the camera may stand, m.
        high: upper corner of that space.
        goals: points that are worth looking at.
    """

    def __init__(self, rng: Random, photos: Sequence[Path], furniture: str | None, cache: Path) -> None:
        self.rng = rng
        self.materials = Materials(rng, photos)
        self.catalogue = Catalogue(furniture, cache) if furniture else None
        self.low, self.high = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
        self.goals: list[tuple[float, float, float]] = []

    def add(self, shape: Shape, at: Sequence[float] = (0, 0, 0), turn: float = 0, bevel: float = 0) -> Any:
        """Add a shape to the scene; each part gets a material of its own."""
        mesh = bpy.data.meshes.new("shape")
        mesh.from_pydata(np.concatenate(shape.points).tolist(), [], shape.faces)
        names = list(dict.fromkeys(shape.materials))
        for name in names:
            mesh.materials.append(self.materials.create_for(name))
        mesh.polygons.foreach_set("material_index", [names.index(name) for name in shape.materials])
        mesh.polygons.foreach_set("use_smooth", shape.smooth)
        thing = bpy.data.objects.new("shape", mesh)
        thing.location, thing.rotation_euler = at, (0, 0, turn)
        bpy.context.collection.objects.link(thing)
        if bevel:
            modifier = thing.modifiers.new("bevel", "BEVEL")
            modifier.width, modifier.segments, modifier.limit_method = bevel, 2, "ANGLE"
        return thing

    def add_box(self, low: Sequence[float], high: Sequence[float], material: str) -> Any:
        """Add a box; its texture begins in its middle."""
        shape, middle = Shape(), (np.array(low) + np.array(high)) / 2
        shape.add_box(np.array(low) - middle, np.array(high) - middle, material)
        return self.add(shape, middle.tolist())

    def add_object(
        self, categories: Sequence[str], builders: Sequence[Builder], at: Sequence[float], turn: float = 0
    ) -> Any:
        """Add an object of the furniture library or of one of the builders, at random."""
        rng, thing = self.rng, None
        if self.catalogue is not None and categories and rng.random() < 0.75:
            thing = self.catalogue.import_model(rng, rng.choice(categories))
        if thing is None:
            return self.add(rng.choice(builders)(rng), at, turn, bevel=rng.choice((0, 0.004)))
        for slot in thing.material_slots:
            if slot.material is None or rng.random() < 0.15:
                slot.material = self.materials.create_for("any")
        thing.location, thing.rotation_euler = at, (0, 0, turn)
        return thing

    def add_light(self, kind: str, at: Sequence[float], energy: float, size: float = 0.1) -> Any:
        """Add a light that the camera does not see, because lights have no depth."""
        light = bpy.data.lights.new(kind, kind)
        light.energy, light.color = energy, (1, self.rng.uniform(0.8, 1), self.rng.uniform(0.65, 1))
        if kind == "SUN":
            light.angle = math.radians(self.rng.uniform(0.5, 8))
        elif kind == "AREA":
            light.size = size
        else:
            light.shadow_soft_size = size
        thing = bpy.data.objects.new(kind, light)
        thing.location, thing.visible_camera = at, False
        bpy.context.collection.objects.link(thing)
        return thing

    def add_sky(self) -> None:
        """Add ambient light, the sun unless it is cloudy, and a dome that gives the sky a depth."""
        rng, scene = self.rng, bpy.context.scene
        scene.world = bpy.data.worlds.new("sky")
        scene.world.use_nodes = True
        tint = rng.uniform(0, 0.5)
        colour = 1 - tint, 1 - tint / 2, 1.0
        scene.world.node_tree.nodes["Background"].inputs["Color"].default_value = (*colour, 1)
        if rng.random() < 0.6:
            sun = self.add_light("SUN", (0, 0, 50), rng.uniform(2, 8))
            sun.rotation_euler = rng.uniform(0.2, 1.25), 0, rng.uniform(0, 2 * math.pi)
        bpy.ops.mesh.primitive_uv_sphere_add(radius=rng.uniform(150, 800), segments=96, ring_count=48)
        dome = bpy.context.object
        dome.visible_shadow = dome.visible_diffuse = False
        dome.data.materials.append(self.materials.create_sky(colour))

    def add_windowed_wall(
        self, size: tuple[float, float], window: tuple[float, float, float], at: Sequence[float], turn: float
    ) -> None:
        """Add a wall that faces -y before it is turned, with equal windows in rows.

        Args:
            size: length and height of the wall, m.
            window: width and height of a window, and the distance to the next one, m; 0 wide = no windows.
            at: left lower corner of the wall.
            turn: angle about z, radians.
        """
        rng, (length, height), (wide, high, gap) = self.rng, size, window
        thickness, sill = rng.uniform(0.1, 0.35), rng.uniform(0.3, 1.1)
        count = int((length - gap) / (wide + gap)) if wide else 0
        start = (length - count * (wide + gap) + gap) / 2
        columns = [(start + i * (wide + gap), start + i * (wide + gap) + wide) for i in range(count)]
        storey = high * rng.uniform(1.5, 1.9)
        rows = (
            [(z, z + high) for z in np.arange(sill, height - high - 0.15, storey).tolist()] if count else []
        )
        self.add(build_wall(length, height, thickness, columns, rows), at, turn)
        windows, glazed = Shape(), rng.random() < 0.75
        one, blind = build_window(rng, wide or 1, high, thickness, glazed), build_slats(rng)
        for left, _ in columns:
            for low, _ in rows:
                windows.add_shape(one, (left, 0, low))
                if rng.random() < 0.12:
                    windows.add_shape(blind, (left + wide / 2, rng.choice((-0.08, thickness + 0.1)), low))
        if windows.points:
            self.add(windows, at, turn)

    def build_room(self) -> None:
        """Build a furnished room with windows, images and mirrors on its walls."""
        rng = self.rng
        width, depth, height = rng.uniform(2.8, 7), rng.uniform(2.8, 7), rng.uniform(2.3, 3.6)
        self.low, self.high = (0.3, 0.3, 0.4), (width - 0.3, depth - 0.3, height - 0.4)
        self.add_sky()
        self.add_box((-60, -60, -3.2), (60, 60, -3), "ground")
        for _ in range(rng.randint(2, 6)):  # houses across the street
            x, y, size = (
                rng.choice((-1, 1)) * rng.uniform(15, 40),
                rng.choice((-1, 1)) * rng.uniform(15, 40),
                rng.uniform(3, 8),
            )
            self.add_box((x - size, y - size, -3), (x + size, y + size, rng.uniform(0, 9)), "facade")
        self.add_box((-0.4, -0.4, -0.2), (width + 0.4, depth + 0.4, 0), "floor")
        self.add_box((-0.4, -0.4, height), (width + 0.4, depth + 0.4, height + 0.2), "ceiling")
        corners = ((0, depth, 0), (width, depth, -math.pi / 2), (width, 0, math.pi), (0, 0, math.pi / 2))
        for number, (x, y, turn) in enumerate(corners):
            length = depth if number % 2 else width
            wide = rng.uniform(0.6, 1.8) if rng.random() < 0.35 else 0
            window = wide, rng.uniform(0.9, min(1.5, height - 1.2)), rng.uniform(0.3, 1.5)
            self.add_windowed_wall((length, height), window, (x, y, 0), turn)
            for _ in range(0 if wide else rng.choice((0, 0, 1, 2))):
                a, b = rng.uniform(0.15, 0.7), rng.uniform(0.15, 0.7)
                along, up = rng.uniform(0.1, 0.9) * length - a, rng.uniform(0.8, 1.8) - b
                hung = Shape()
                hung.add_box((-a, -0.015, -b), (a, 0.0, b), "image")
                for i in (-1, 1):
                    hung.add_box((i * a - 0.02, -0.03, -b - 0.02), (i * a + 0.02, 0, b + 0.02), "frame")
                    hung.add_box((-a, -0.03, i * b - 0.02), (a, 0, i * b + 0.02), "frame")
                c, s = math.cos(turn), math.sin(turn)
                self.add(hung, (x + c * (along + a), y + s * (along + a), up + b), turn)
        for _ in range(rng.randint(1, 4)):
            at = rng.uniform(0.3, width - 0.3), rng.uniform(0.3, depth - 0.3), height - rng.uniform(0.05, 0.5)
            self.add_light(rng.choice(("AREA", "POINT")), at, rng.uniform(20, 200), rng.uniform(0.1, 1.2))
        for number in range(rng.randint(11, 22)):
            at = rng.uniform(0.3, width - 0.3), rng.uniform(0.3, depth - 0.3), 0
            turn = rng.randrange(4) * math.pi / 2 + rng.gauss(0, 0.2)
            see_through = number % 4 == 3
            thing = (
                self.add_object((), SEE_THROUGH, at, turn)
                if see_through
                else self.add_object(INDOORS, FURNITURE, at, turn)
            )
            if not see_through and max(thing.dimensions) < 0.6:  # as if on a table
                thing.location.z = rng.uniform(0.3, 1.2)

        for _ in range(rng.randint(1, 2)):
            self.add_laid_table((rng.uniform(0.8, width - 0.8), rng.uniform(0.8, depth - 0.8)))

    def add_laid_table(self, at: tuple[float, float]) -> None:
        """Add a table with many small objects on it, at which cameras may look."""
        rng, table = self.rng, build_table(self.rng)
        points = np.concatenate(table.points)
        (x, y, _), top = np.abs(points).max(axis=0).tolist(), float(points[:, 2].max())
        self.add(table, (*at, 0), bevel=0.004)
        for _ in range(rng.randint(5, 11)):
            builders = rng.choice(
                (FURNITURE, (build_bottle, build_bottle, build_crate, build_lamp, build_plant))
            )
            thing = self.add_object(INDOORS, builders, (0, 0, 0), rng.uniform(0, 2 * math.pi))
            bpy.context.view_layer.update()
            thing.scale = (rng.uniform(0.08, 0.5) / max(*thing.dimensions, 1e-3),) * 3
            thing.location = at[0] + 0.9 * x * rng.uniform(-1, 1), at[1] + 0.9 * y * rng.uniform(-1, 1), top
        self.goals.append((*at, top + 0.1))

    def build_street(self) -> None:
        """Build a street along y with houses, walls, fences, cars, trees and posts."""
        rng = self.rng
        half, walk, kerb = rng.uniform(2.5, 6), rng.uniform(1.2, 4), rng.uniform(0.02, 0.16)
        edge, end = half + walk, rng.uniform(35, 90)
        self.low, self.high = (-half - 0.6 * walk, 0, 0.5), (half + 0.6 * walk, 8, rng.choice((1.8, 2.5)))
        self.add_sky()
        self.add_box((-250, -250, -0.3), (250, 250, 0), "road")
        for side in (-1, 1):
            inner, outer = sorted((side * half, side * edge))
            self.add_box((inner, -20, -0.2), (outer, end, kerb), "ground")
        for y in np.arange(-10, end, 6).tolist() if rng.random() < 0.7 else ():
            self.add_box((-0.06, y, -0.1), (0.06, y + 3, 0.004), "marking")
        for side, turn in ((-1, math.pi / 2), (1, -math.pi / 2)):
            y = -8.0
            while y < end:
                length, kind = (
                    rng.uniform(5, 18),
                    rng.choice(("house", "house", "house", "wall", "fence", "trees", "trees")),
                )
                start = (side * edge, y if side < 0 else y + length, 0)
                if kind == "house":
                    wide = rng.uniform(0.7, 2.2)
                    size = length, rng.uniform(3.5, 14)
                    self.add_windowed_wall(
                        size, (wide, rng.uniform(0.9, 1.8), rng.uniform(0.4, 2)), start, turn
                    )
                    low, high = sorted((side * (edge + rng.uniform(0.5, 2)), side * (edge + 9)))
                    self.add_box((low, y, 0), (high, y + length, size[1]), "facade")
                elif kind == "wall":
                    self.add_windowed_wall((length, rng.uniform(1, 4)), (0, 1, 1), start, turn)
                elif kind == "fence":
                    fence = build_slats(rng)
                    long = np.ptp(np.concatenate(fence.points)[:, 0])
                    row = Shape()
                    for number in range(max(1, int(length / long))):
                        row.add_shape(fence, ((number + 0.5) * long, 0, 0))
                    self.add(row, start, turn)
                elif kind == "trees":
                    for _ in range(rng.randint(1, 4)):
                        self.add(
                            build_tree(rng),
                            (side * (edge + rng.uniform(0, 3)), y + rng.uniform(0, length), 0),
                        )
                y += length + rng.choice((0, 0, rng.uniform(0.5, 4)))
        self.add_box((-edge - 9, end, 0), (edge + 9, end + 5, rng.uniform(3, 14)), "facade")
        for side in (-1, 1):  # parked cars
            y = rng.uniform(1, 8)
            while y < end and rng.random() < 0.75:
                at = side * (half - 1.1 - rng.uniform(0, 0.3)), y, 0
                self.add_object(
                    ("Vehicles",), (build_car,), at, rng.choice((0, math.pi)) + rng.gauss(0, 0.04)
                )
                y += rng.uniform(5, 14)
        for side in (-1, 1):  # posts in a row, with a cable in half of the cases
            post, step, x = build_post(rng), rng.uniform(1.2, 9), side * (half + rng.uniform(0.2, 0.6))
            top = float(np.concatenate(post.points)[:, 2].max())
            row = Shape()
            for y in np.arange(rng.uniform(1.5, 6), min(end, 12 * step), step).tolist():
                row.add_shape(post, (x, y, kerb))
                if side > 0 and step > 2:
                    share = np.linspace(0, 1, 9)
                    sag = top + kerb - 0.05 - 0.06 * step * share * (1 - share)
                    row.add_tube(np.stack([0 * share + x, y + step * share, sag], axis=1), 0.012, "wire")
            self.add(row)
        for _ in range(rng.randint(8, 16)):
            y, x = (
                1.5 + end * rng.random() ** 2.5,
                rng.choice((-1, 1)) * (half + walk * rng.uniform(0.1, 0.9)),
            )
            x = x if rng.random() < 0.8 else rng.uniform(-half, half)
            turn, categories = rng.uniform(0, 2 * math.pi), OUTDOORS if rng.random() < 0.6 else ()
            self.add_object(categories, STREET, (x, y, kerb), turn)
