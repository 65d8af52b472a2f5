"""Compose pairs in the world of a track: cameras, light, looks of surfaces, and objects near the camera."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from libraries import Model
from meshes import Mesh, convert_shape
from objects import FURNITURE, SEE_THROUGH, STREET, build_car
from PIL import Image
from renderer import Light, Look, Part, Pose, Renderer, Thing, Vector
from shapes import Shape, build_window
from tracks import Game, Surface, turn
from wavefront import read_model

PHOTOS = 24  # textures of photographs in one world
HOLES = {"alphatest", "alphablend", "grass", "decal"}
WATER = {"displace"}
SKIPPED = {"additive", "ghost"}
DARK = 0.02, 0.02, 0.02
GLASS = {"pane", "dark glass"}
PAINTED = {"paint", "rail", "frame", "wire", "post", "ring", "spoke", "slat", "band", "stem"}


class World:
    """A track in the memory of OpenGL, with textures that may replace its own."""

    def __init__(
        self,
        renderer: Renderer,
        game: Game,
        track: str,
        photos: Sequence[Path],
        furniture: Sequence[Model],
        rng: Random,
    ) -> None:
        self.renderer, self.game = renderer, game
        self.road = game.read_road(track)
        self.faults: frozenset[str] = frozenset()
        self.looks = Random()  # for what faults change, so that the same number gives the same scene
        self.vehicles = [model for model in furniture if model.category == "Vehicles"]
        self.furniture = [model for model in furniture if model.category != "Vehicles"]
        self.textures: dict[Path, Any] = {}
        self.models: dict[Path, list[tuple[Surface, Part]]] = {}
        self.pieces: dict[Model, list[tuple[Look, Mesh, Part]]] = {}
        surfaces = [each for each in game.load_track(track) if each.shader not in SKIPPED]
        self.surfaces = [(each, renderer.upload_mesh(each.mesh)) for each in surfaces]
        chosen = rng.sample(photos, min(PHOTOS, len(photos)))
        self.white = renderer.upload_image(Image.new("RGB", (8, 8), (255, 255, 255)))
        self.photos = [self.load_texture(path) for path in chosen] or [self.white]

    def load_texture(self, path: Path) -> Any:
        if path not in self.textures:
            self.textures[path] = self.renderer.load_texture(path)
        return self.textures[path]

    def compose(self, rng: Random, faults: frozenset[str]) -> tuple[Pose, Light, list[Thing]]:
        """Return a camera in the world, the light, and everything in the scene."""
        self.faults, self.looks = faults, Random(rng.random())
        pose = self.draw_pose(rng)
        light = self.draw_light(rng, pose)
        things = [Thing(part, self.draw_look(surface), np.eye(4)) for surface, part in self.surfaces]
        for _ in range(rng.choice((0, 1, 2, 3, 4))):
            things += self.add_on_road(rng, pose)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            things += self.add_near(rng, pose)
        for _ in range(self.looks.randint(1, 3) if "panes" in faults else 0):
            things += self.add_pane(self.looks, pose)
        return pose, light, things

    def draw_pose(self, rng: Random) -> Pose:
        """Draw a camera above the road that looks along it, or to its sides."""
        at = rng.randrange(len(self.road))
        corners = self.road[at]
        eye = corners[:2].mean(axis=0) + rng.uniform(-0.4, 0.4) * (corners[1] - corners[0])
        along = self.road[(at + 3) % len(self.road)].mean(axis=0) - corners.mean(axis=0)
        along /= np.linalg.norm(along) + 1e-9
        yaw = rng.gauss(0, 0.2) if rng.random() < 0.5 else rng.gauss(0, 0.9)
        forward = turn(np.array([0, math.degrees(yaw), 0])) @ along + (0, rng.uniform(-0.2, 0.15), 0)
        forward /= np.linalg.norm(forward)
        right = np.cross((rng.gauss(0, 0.03), 1, rng.gauss(0, 0.03)), forward)
        right /= np.linalg.norm(right)
        focal = self.renderer.width * math.exp(rng.uniform(math.log(0.5), math.log(1.4)))
        axes = np.stack([right, np.cross(forward, right), forward])
        return Pose(eye + np.array([0, rng.uniform(0.6, 2.2), 0]), axes, focal)

    def draw_light(self, rng: Random, pose: Pose) -> Light:
        """Draw sun, sky, haze, and the surroundings that surfaces reflect."""
        sun = np.array([rng.gauss(0, 1), abs(rng.gauss(0, 1)) + 0.4, rng.gauss(0, 1)])
        warm = np.array([1, rng.uniform(0.85, 1), rng.uniform(0.65, 1)])
        zenith = rng.uniform(0.6, 1.6) * np.array([rng.uniform(0.6, 1), rng.uniform(0.75, 1), 1])
        light = Light(
            surroundings=rng.choice(self.photos),
            sun=sun / np.linalg.norm(sun),
            centre=pose.eye,
            sunlight=tuple(rng.choice((0.2, 1, 2, 3)) * warm),
            zenith=tuple(zenith),
            ground=tuple(zenith * rng.uniform(0.15, 0.5)),
            fog=tuple(zenith * rng.uniform(0.5, 0.9)),
            ambient=rng.uniform(0.3, 0.7),
            haze=10 ** rng.uniform(-4, -2.2),
            radius=math.exp(rng.uniform(math.log(8), math.log(200))),
            cloudy=rng.uniform(0, 1),
        )
        rng = self.looks
        if "night" in self.faults:
            places = [(rng.gauss(0, 0.4), rng.uniform(-0.2, 0.4), rng.uniform(-1, 15)) for _ in light.lamps]
            dark = tuple(rng.uniform(0.002, 0.03) * zenith)
            light = replace(light, sunlight=(0.0, 0.0, 0.0), zenith=dark, ground=dark, fog=dark)
            lamplight, lamps = rng.uniform(3, 30) * warm, [tuple(pose.place(*place)) for place in places]
            light = replace(light, lamplight=tuple(lamplight), lamps=lamps)
        return replace(light, wetness=rng.uniform(0.2, 1) if "water" in self.faults else 0)

    def draw_look(self, surface: Surface) -> Look:
        """Draw the look of a surface of the game: its own, or another texture, with or without gloss."""
        rng = self.looks
        own = self.load_texture(surface.texture)
        if surface.shader in WATER:
            look = Look(own, reflectance=0.02, roughness=rng.uniform(0, 0.2), tint=(0.4, 0.5, 0.5))
            return replace(look, ripple=rng.uniform(0, 0.08))
        if surface.shader in HOLES:
            return Look(own, cutoff=0.5)
        look = Look(rng.choice(self.photos) if rng.random() < 0.15 else own)
        replaced, colour = rng.random() < 0.5, draw_colour(rng)
        if "plain" in self.faults and replaced:
            look = Look(self.white, tint=colour)
        return self.add_gloss(look)

    def add_gloss(self, look: Look, likely: float = 0.5) -> Look:
        """Make a surface reflect, as varnish or as metal."""
        rng = self.looks
        reflectance = rng.uniform(0.03, 0.08) if rng.random() < 0.6 else rng.uniform(0.2, 0.9)
        roughness, dark = rng.uniform(0, 1) ** 2, rng.uniform(0.2, 1)
        if rng.random() > likely or "reflections" not in self.faults:
            return look
        tint = tuple(dark * each for each in look.tint)
        return replace(look, reflectance=reflectance, roughness=roughness, tint=tint)

    def add_on_road(self, rng: Random, pose: Pose) -> list[Thing]:
        """Put an object on the road in front of the camera, mostly a vehicle."""
        ahead = (self.road.mean(axis=1) - pose.eye) @ pose.axes.T
        seen = (ahead[:, 2] > 3) & (ahead[:, 2] < 40)
        seen &= np.abs(ahead[:, 0]) < 0.7 * self.renderer.width / 2 / pose.focal * ahead[:, 2] + 4
        if not seen.any():
            return []
        corners = self.road[rng.choice(np.flatnonzero(seen).tolist())]
        weights = np.array([rng.random() for _ in range(4)])
        place = weights @ corners / weights.sum()
        matrix = np.eye(4)
        along = corners[3] - corners[0]
        turned = math.degrees(math.atan2(along[0], along[2])) + rng.choice((0, 180, rng.uniform(0, 360)))
        matrix[:3, :3], matrix[:3, 3] = turn(np.array([0, turned, 0])), place
        if rng.random() < 0.6 and self.vehicles:
            parts = self.load_furniture(rng.choice(self.vehicles))
            return [Thing(part, self.draw_finish(look), matrix) for look, _, part in parts]
        return self.add_shape((build_car if rng.random() < 0.4 else rng.choice(STREET))(rng), matrix)

    def add_near(self, rng: Random, pose: Pose) -> list[Thing]:
        """Put an object in the air near the camera, upright or turned."""
        parts: list[tuple[Mesh, Part, Look]]
        kind = rng.choice(("shape", "shape", "model", "furniture" if self.furniture else "model"))
        if kind == "shape":
            builders = rng.choice((SEE_THROUGH, SEE_THROUGH, STREET, FURNITURE))
            meshes = convert_shape(rng.choice(builders)(rng))
            parts = [(mesh, self.renderer.upload_mesh(mesh), self.draw_paint(mesh)) for mesh in meshes]
        elif kind == "model":
            surfaces = self.load_model(rng.choice(self.game.models))
            parts = [(surface.mesh, part, self.draw_look(surface)) for surface, part in surfaces]
        else:
            pieces = self.load_furniture(rng.choice(self.furniture))
            parts = [(mesh, part, self.draw_finish(look)) for look, mesh, part in pieces]
        if not parts:
            return []
        points = np.concatenate([mesh.vertices[:, :3] for mesh, *_ in parts])
        low, high = points.min(axis=0), points.max(axis=0)
        depth = math.exp(rng.uniform(math.log(1.2), math.log(12)))
        half = self.renderer.width / 2 / pose.focal
        size = depth * half * math.exp(rng.uniform(math.log(0.3), math.log(1.5)))
        free = rng.random() < 0.4
        angles = np.array([rng.uniform(0, 360) if free or axis == 1 else 0 for axis in range(3)])
        matrix = np.eye(4)
        matrix[:3, :3] = turn(angles) * size / max(float((high - low).max()), 1e-3)
        place = pose.place(rng.uniform(-0.9, 0.9) * half, rng.uniform(-0.6, 0.4) * half, depth)
        matrix[:3, 3] = place - matrix[:3, :3] @ ((low + high) / 2)
        return [Thing(part, look, matrix) for _, part, look in parts]

    def add_pane(self, rng: Random, pose: Pose) -> list[Thing]:
        """Put a window with glazing bars in front of the camera."""
        depth = math.exp(rng.uniform(math.log(1), math.log(8)))
        half = depth * self.renderer.width / 2 / pose.focal
        width, height = (half * rng.uniform(0.25, 1) for _ in range(2))
        shape = build_window(rng, width, height, 0.1, glazed=True)
        matrix = np.eye(4)
        yaw = math.degrees(math.atan2(pose.axes[2][0], pose.axes[2][2])) + rng.gauss(0, 25)
        matrix[:3, :3] = turn(np.array([0, yaw, 0]))
        middle = matrix[:3, :3] @ (width / 2, height / 2, 0)
        across, up = (rng.uniform(-0.6, 0.6) * half / depth for _ in range(2))
        matrix[:3, 3] = pose.place(across, up, depth) - middle
        return self.add_shape(shape, matrix)

    def add_shape(self, shape: Shape, matrix: Vector) -> list[Thing]:
        return [
            Thing(self.renderer.upload_mesh(mesh), self.draw_paint(mesh), matrix)
            for mesh in convert_shape(shape)
        ]

    def draw_paint(self, mesh: Mesh) -> Look:
        """Draw the look of a part of a shape by the name of its material."""
        rng, name = self.looks, mesh.material
        paint, photo = Look(self.white, tint=draw_colour(rng)), Look(rng.choice(self.photos))
        if name in GLASS:
            clear = rng.uniform(0.4, 0.95) if name == "dark glass" else rng.uniform(0.03, 0.3)
            look = Look(self.white, tint=DARK)
            if name == "pane" and rng.random() < 0.4:
                look = replace(photo, tint=(0.7, 0.7, 0.7))  # dirt
            if "panes" in self.faults:
                look = replace(look, opacity=clear)
            return replace(look, reflectance=0.05) if {"panes", "reflections"} & self.faults else look
        if name == "tyre":
            return Look(self.white, tint=DARK)
        if name in PAINTED:
            return self.add_gloss(paint, likely=0.9 if name == "paint" else 0.4)
        return self.add_gloss(paint if rng.random() < 0.3 else photo)

    def draw_finish(self, own: Look) -> Look:
        """Draw the look of a part of furniture: its own colour or another one, or glass."""
        if own.opacity < 1:
            return own if "panes" in self.faults else replace(own, opacity=1.0)
        colour = draw_colour(self.looks)
        if own.texture is self.white and self.looks.random() < 0.4:
            own = replace(own, tint=colour)
        return self.add_gloss(own, likely=0.8)

    def load_furniture(self, model: Model) -> list[tuple[Look, Mesh, Part]]:
        """Return looks, meshes and parts of a model."""
        if model not in self.pieces:
            self.pieces[model] = []
            for (colour, opacity, image), mesh in read_model(model):
                look = Look(self.white, tint=colour)
                if opacity < 0.9:
                    look = Look(self.white, tint=DARK, reflectance=0.05, opacity=max(opacity, 0.1))
                elif image is not None:
                    look = Look(self.renderer.upload_image(image), cutoff=0.5)
                self.pieces[model].append((look, mesh, self.renderer.upload_mesh(mesh)))
        return self.pieces[model]

    def load_model(self, path: Path) -> list[tuple[Surface, Part]]:
        if path not in self.models:
            surfaces = [each for each in self.game.load_model(path) if each.shader not in SKIPPED]
            self.models[path] = [(each, self.renderer.upload_mesh(each.mesh)) for each in surfaces]
        return self.models[path]


def draw_colour(rng: Random) -> tuple[float, ...]:
    """Draw a linear colour, grey in half of the cases."""
    value, colourful = rng.uniform(0.01, 0.9), rng.choice((0.05, 0.05, 0.5, 0.9))
    return tuple(value * (1 - colourful * rng.random()) for _ in range(3))
