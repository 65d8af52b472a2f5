"""Materials of rendered scenes: photographs, patterns, paint, metal, mirrors and glass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import bpy

Colour = tuple[float, float, float]

LOOKS = {  # what a material of a shape looks like; others are chosen at random
    "floor": ("photo", "noise", "glossy", "tiles", "plain"),
    "ground": ("asphalt", "grain", "tiles", "photo"),
    "road": ("asphalt",),
    "wall": ("plain", "plain", "plain", "worn", "worn", "photo", "bricks", "noise"),
    "facade": ("plain", "worn", "worn", "bricks", "bricks", "noise", "photo"),
    "ceiling": ("plain",),
    "pane": ("glass", "glass", "dark glass"),
    "mirror": ("mirror",),
    "image": ("photo", "photo", "photo", "glossy", "mirror"),
    "dark glass": ("dark glass",),
    "paint": ("paint",),
    "tyre": ("black",),
    "leaf": ("leaf",),
    "stem": ("plain",),
    "trunk": ("noise",),
    "wire": ("metal", "plain", "black"),
    "spoke": ("metal", "plain", "black"),
    "ring": ("metal", "plain", "black"),
    "rail": ("metal", "plain", "black"),
    "slat": ("plain", "plain", "metal", "noise", "black"),
    "post": ("plain", "metal", "black", "paint"),
    "band": ("plain", "paint"),
    "shade": ("cloth", "light", "plain"),
    "bottle": ("glass", "glass", "paint", "plain", "metal"),
}
TEXTURED = ("photo", "noise", "grain", "asphalt", "tiles", "bricks", "cloth", "worn")
ANY_LOOK = (
    "photo",
    "photo",
    "photo",
    "plain",
    "worn",
    "worn",
    "noise",
    "bricks",
    "glossy",
    "metal",
    "glass",
    "cloth",
)


class Materials:
    """A source of random materials; `photos` are the image files to use as textures."""

    def __init__(self, rng: Random, photos: Sequence[Path]) -> None:
        self.rng, self.photos = rng, photos

    def create_for(self, name: str) -> Any:
        """Create a material for a part of a shape, such as "leg" or "wall"."""
        return self.create(self.rng.choice(LOOKS.get(name, ANY_LOOK)))

    def create(self, look: str) -> Any:
        """Create a material of a given look with random colours, textures and gloss."""
        rng, colour = self.rng, self.draw_colour()
        material = bpy.data.materials.new(look)
        material.use_nodes = True
        nodes, connect = material.node_tree.nodes, material.node_tree.links.new
        shader = nodes["Principled BSDF"]
        roughness, metallic, transmission = rng.uniform(0.35, 1), 0.0, 0.0
        if look == "glossy":
            roughness, metallic = rng.uniform(0.03, 0.3), rng.choice((0, 0, 1))
        elif look == "metal":
            roughness, metallic, colour = rng.uniform(0.1, 0.5), 1, (rng.uniform(0.3, 0.9),) * 3
        elif look == "mirror":
            roughness, metallic, colour = rng.uniform(0, 0.03), 1, (rng.uniform(0.75, 0.95),) * 3
        elif look == "paint":
            roughness = rng.uniform(0.15, 0.4)
            shader.inputs["Coat Weight"].default_value = 1
        elif look in ("black", "dark glass"):
            colour = (rng.uniform(0.01, 0.06),) * 3
            roughness = rng.uniform(0.5, 0.9) if look == "black" else rng.uniform(0, 0.08)
        elif look == "glass":
            roughness, transmission = rng.choice((0, 0, 0.08)), 1
            colour = rng.uniform(0.85, 1), rng.uniform(0.85, 1), rng.uniform(0.85, 1)
        elif look == "leaf":
            colour = (rng.uniform(0.02, 0.25), rng.uniform(0.1, 0.45), rng.uniform(0.01, 0.1))
        elif look == "light":
            shader.inputs["Emission Color"].default_value = (1, rng.uniform(0.7, 1), rng.uniform(0.5, 1), 1)
            shader.inputs["Emission Strength"].default_value = rng.uniform(1, 8)
        values = {"Roughness": roughness, "Metallic": metallic, "Transmission Weight": transmission}
        for name, value in {**values, "Base Color": (*colour, 1)}.items():
            shader.inputs[name].default_value = value
        if look in TEXTURED:
            texture = self.create_texture(look, nodes, connect)
            connect(texture, shader.inputs["Base Color"])
            if look != "photo" and rng.random() < 0.4:
                bump = nodes.new("ShaderNodeBump")
                bump.inputs["Strength"].default_value = rng.uniform(0.05, 0.4)
                connect(texture, bump.inputs["Height"])
                connect(bump.outputs["Normal"], shader.inputs["Normal"])
        return material

    def create_texture(self, look: str, nodes: Any, connect: Callable[[Any, Any], Any]) -> Any:
        """Create a texture in the coordinates of the object, and return its colour output."""
        rng = self.rng
        coordinates, mapping = nodes.new("ShaderNodeTexCoord"), nodes.new("ShaderNodeMapping")
        connect(coordinates.outputs["Object"], mapping.inputs["Vector"])
        if look == "photo" and self.photos:
            texture = nodes.new("ShaderNodeTexImage")
            texture.image = bpy.data.images.load(str(rng.choice(self.photos)), check_existing=True)
            texture.projection, texture.projection_blend, texture.extension = "BOX", 0.1, "MIRROR"
            mapping.inputs["Scale"].default_value = (10 ** rng.uniform(-0.9, 0.2),) * 3
            connect(mapping.outputs["Vector"], texture.inputs["Vector"])
            return texture.outputs["Color"]
        ramp = nodes.new("ShaderNodeValToRGB")
        colours: list[tuple[float, ...]] = [self.draw_colour(), self.draw_colour()]
        if look == "asphalt":
            colours[0] = (rng.uniform(0.05, 0.4),) * 3
        if look not in ("photo", "noise"):  # two similar colours
            darker = rng.uniform(0.8, 0.97) if look == "worn" else rng.uniform(0.4, 0.85)
            colours[1] = tuple(channel * darker for channel in colours[0])
        for element, colour in zip(ramp.color_ramp.elements, colours, strict=True):
            element.color = (*colour, 1)
        if look in ("tiles", "bricks"):
            texture = nodes.new("ShaderNodeTexBrick")
            texture.offset = rng.choice((0, 0.5))
            texture.inputs["Scale"].default_value = rng.uniform(1, 5)
            texture.inputs["Brick Width"].default_value = rng.choice((0.25, 0.5, 1))
            texture.inputs["Row Height"].default_value = rng.choice((0.25, 0.25, 0.5))
            texture.inputs["Mortar Size"].default_value = rng.uniform(0.005, 0.02)
            texture.inputs["Mortar"].default_value = (*self.draw_colour(), 1)
            for name, colour in zip(("Color1", "Color2"), colours, strict=True):
                texture.inputs[name].default_value = (*colour, 1)
            # The texture lies in the plane of x and y: turn it for walls, which are built along x.
            mapping.inputs["Rotation"].default_value = math.pi / 2 * (look == "bricks"), 0, 0
            connect(mapping.outputs["Vector"], texture.inputs["Vector"])
            return texture.outputs["Color"]
        kind = rng.choice(("Noise", "Voronoi", "Wave")) if look == "noise" else "Noise"
        texture = nodes.new(f"ShaderNodeTex{kind}")
        finest = {"grain": (1, 2), "asphalt": (0.8, 1.8), "cloth": (1.8, 2.5)}.get(look, (0.2, 2))
        texture.inputs["Scale"].default_value = 10 ** rng.uniform(*finest)
        if kind != "Voronoi":
            texture.inputs["Detail"].default_value = 12
        if kind == "Noise":
            texture.inputs["Roughness"].default_value = rng.uniform(0.6, 0.9)
            ramp.color_ramp.elements[0].position, ramp.color_ramp.elements[1].position = 0.35, 0.65
        connect(mapping.outputs["Vector"], texture.inputs["Vector"])
        connect(texture.outputs[0], ramp.inputs[0])
        return ramp.outputs["Color"]

    def draw_colour(self) -> Colour:
        """Draw a colour: white to grey, or any, of uniform brightness."""
        rng = self.rng
        value, tint = rng.uniform(0.04, 0.9), rng.choice((0.05, 0.2, 0.8))
        red, green, blue = (value * (1 - tint * rng.random()) for _ in range(3))
        return red, green, blue

    def create_sky(self, colour: Colour) -> Any:
        """Create a luminous material of one colour with white clouds."""
        rng = self.rng
        material = bpy.data.materials.new("sky")
        material.use_nodes = True
        nodes, connect = material.node_tree.nodes, material.node_tree.links.new
        nodes.clear()
        emission, output, ramp = (
            nodes.new(f"ShaderNode{name}") for name in ("Emission", "OutputMaterial", "ValToRGB")
        )
        noise, place = nodes.new("ShaderNodeTexNoise"), nodes.new("ShaderNodeTexCoord")
        noise.inputs["Scale"].default_value, noise.inputs["Detail"].default_value = rng.uniform(3, 12), 8
        white, dim = rng.uniform(0.6, 1.3), rng.uniform(0.3, 1)
        blue = [dim * channel for channel in colour]
        for element, shade in zip(ramp.color_ramp.elements, (blue, (white,) * 3), strict=True):
            element.color = (*shade, 1)
        low = rng.choice((0, 0.35, 0.5))
        ramp.color_ramp.elements[0].position, ramp.color_ramp.elements[1].position = low, low + 0.25
        connect(place.outputs["Generated"], noise.inputs["Vector"])
        connect(noise.outputs[0], ramp.inputs[0])
        connect(ramp.outputs[0], emission.inputs["Color"])
        connect(emission.outputs[0], output.inputs[0])
        return material
