"""Render surfaces with OpenGL on the CPU (Mesa's llvmpipe), without a display."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import moderngl
import numpy as np
from meshes import Matrix, Mesh
from numpy.typing import NDArray
from PIL import Image
from shaders import DEPTH, SKY, SKY_VERTEX, SURFACE, VERTEX

from pamcli.errors import PamError

Values = NDArray[np.float32]
Vector = NDArray[np.float64]
TEXTURE = 512, 512  # llvmpipe compiles shaders again for each size and format of textures
FINER = 2  # rows and columns of samples per pixel
BIAS = -1  # of mipmap levels, relative to those of the samples
CELL = 40.0  # m, side of the parts of a surface that are skipped outside of the view
DOME = 2000.0  # m, distance of the sky
LAYOUT = "3f 2f 3f 3f", "position", "uv", "colour", "normal"
DEPTH_LAYOUT = "3f 2f 24x", "position", "uv"


class Pose(NamedTuple):
    """A camera: position (m), axes to the right, up and forward (rows), and focal length (px)."""

    eye: Vector
    axes: Vector
    focal: float

    def shift(self, right: float = 0, up: float = 0, forward: float = 0) -> Pose:
        """Return the camera moved along its axes (m)."""
        return self._replace(eye=self.eye + np.array([right, up, forward]) @ self.axes)

    def place(self, across: float, up: float, depth: float) -> Vector:
        """Return the point at a depth (m) that is seen at a tangent across and up."""
        return self.eye + depth * (np.array([across, up, 1]) @ self.axes)


@dataclass(frozen=True)
class Look:
    """The appearance of a surface."""

    texture: Any
    cutoff: float = 0.0  # alpha below which the surface has a hole
    reflectance: float = 0.0  # of light along the normal; Fresnel's equations (Schlick) give the others
    roughness: float = 0.0
    opacity: float = 1.0
    ripple: float = 0.0
    tint: tuple[float, ...] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Part:
    """A surface in the memory of OpenGL, in chunks of triangles with a sphere around each."""

    colours: Any
    depths: Any
    centres: Vector
    radii: Vector
    first: NDArray[np.intp]
    last: NDArray[np.intp]


class Thing(NamedTuple):
    """A surface with its appearance and its place (4, 4)."""

    part: Part
    look: Look
    placement: Matrix


@dataclass(frozen=True)
class Light:
    """What lights a scene; colours are linear, and 1 is white in daylight."""

    surroundings: Any  # texture
    sun: Vector  # direction
    centre: Vector  # of the sphere of the surroundings
    sunlight: tuple[float, ...] = (1.0, 1.0, 1.0)
    zenith: tuple[float, ...] = (1.0, 1.0, 1.0)
    ground: tuple[float, ...] = (0.3, 0.3, 0.3)
    fog: tuple[float, ...] = (0.7, 0.7, 0.7)
    lamplight: tuple[float, ...] = (0.0, 0.0, 0.0)
    lamps: list[tuple[float, ...]] = field(default_factory=lambda: [(0.0, 0.0, 0.0)] * 3)
    ambient: float = 0.4
    haze: float = 0.001  # per m
    radius: float = 50.0  # m, of the sphere of the surroundings
    wetness: float = 0.0
    cloudy: float = 0.5


class Renderer:
    """An OpenGL context that renders images of one size."""

    def __init__(self, width: int, height: int) -> None:
        try:
            self.context = context = moderngl.create_standalone_context(backend="egl")
        except Exception as error:
            raise PamError(
                f"cannot use OpenGL: {error}", "apt-get install libegl1 libgl1-mesa-dri"
            ) from error
        context.gc_mode = "auto"
        self.width, self.height = width, height
        self.surface = context.program(vertex_shader=VERTEX, fragment_shader=SURFACE)
        self.depth = context.program(vertex_shader=VERTEX, fragment_shader=DEPTH)
        self.sky = context.program(vertex_shader=SKY_VERTEX, fragment_shader=SKY)
        corners = context.buffer(np.array([-1, -1, 3, -1, -1, 3], np.float32).tobytes())
        self.backdrop = context.vertex_array(self.sky, [(corners, "2f", "corner")])
        self.large, self.small = self.create_target(FINER, 4, "f2"), self.create_target(1, 4, "f2")
        self.depths = self.create_target(1, 1, "f4")

    def create_target(self, finer: int, channels: int, kind: str) -> Any:
        size = finer * self.width, finer * self.height
        return self.context.framebuffer(
            [self.context.texture(size, channels, dtype=kind)], self.context.depth_renderbuffer(size)
        )

    def upload_image(self, image: Image.Image) -> Any:
        """Return a texture of an image."""
        image = image.convert("RGBA").resize(TEXTURE)
        texture = self.context.texture(image.size, 4, image.tobytes())
        texture.build_mipmaps()
        texture.filter = moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR
        return texture

    def load_texture(self, path: Path) -> Any:
        with Image.open(path) as image:
            if path.suffix == ".jpg":
                image.draft("RGB", TEXTURE)
            return self.upload_image(image)

    def upload_mesh(self, mesh: Mesh) -> Part:
        """Return a mesh in the memory of OpenGL, its triangles ordered by where they lie."""
        corners = mesh.vertices[mesh.triangles, :3].astype(np.float64)
        cells = np.floor(corners.mean(axis=1) / CELL).astype(np.int64) @ (1 << 40, 1 << 20, 1)
        order = np.argsort(cells, kind="stable")
        corners, cells = corners[order], cells[order]
        first = np.flatnonzero(np.diff(cells, prepend=cells[0] - 1))
        last = np.append(first[1:], len(cells))
        low = np.minimum.reduceat(corners.min(axis=1), first)
        high = np.maximum.reduceat(corners.max(axis=1), first)
        vertices = self.context.buffer(mesh.vertices.tobytes())
        indices = self.context.buffer(mesh.triangles[order].tobytes())
        colours = self.context.vertex_array(self.surface, [(vertices, *LAYOUT)], indices)
        depths = self.context.vertex_array(self.depth, [(vertices, *DEPTH_LAYOUT)], indices)
        radii = np.linalg.norm(high - low, axis=1) / 2
        return Part(colours, depths, (low + high) / 2, radii, first, last)

    def measure_depth(self, pose: Pose, things: Sequence[Thing], nearest: float) -> Values:
        """Return the depth (H, W) of each pixel centre, m."""
        self.depths.use()
        self.context.disable(moderngl.BLEND)
        self.depths.clear(DOME, depth=1.0)
        self.depth["bias"].value = BIAS - np.log2(FINER)  # the mipmap levels of the colours
        self.draw(pose, things, nearest, self.depth)
        return self.read(self.depths)[..., 0]

    def render(self, poses: Sequence[Pose], things: Sequence[Thing], nearest: float, light: Light) -> Values:
        """Return linear colours (H, W, 3); several poses are places of a camera that moves.

        Args:
            poses: one pose, or poses during the exposure, whose images are averaged.
            things: everything in the scene.
            nearest: depth before which nothing is rendered, m.
            light: the light of the scene.
        """
        if len(poses) == 1:
            fine = self.render_once(self.large, poses[0], things, nearest, light)
            rows = fine.reshape(self.height, FINER, self.width, FINER, 3)
            return np.asarray(rows.mean(axis=(1, 3)))
        images = [self.render_once(self.small, pose, things, nearest, light) for pose in poses]
        return np.asarray(np.mean(images, axis=0, dtype=np.float32))

    def render_once(
        self, target: Any, pose: Pose, things: Sequence[Thing], nearest: float, light: Light
    ) -> Values:
        target.use()
        self.context.disable(moderngl.BLEND)
        target.clear(depth=1.0)
        for name, value in vars(light).items():
            for program in (self.surface, self.sky):
                if name != "surroundings" and name in program:
                    program[name].value = value if np.isscalar(value) or name == "lamps" else tuple(value)
        self.surface["eye"].value = tuple(pose.eye)
        light.surroundings.use(1)
        self.surface["surroundings"].value = self.sky["surroundings"].value = 1
        solid = [thing for thing in things if thing.look.opacity == 1]
        self.depth["bias"].value = BIAS
        target.color_mask = False, False, False, False
        self.draw(pose, solid, nearest, self.depth)
        target.color_mask = True, True, True, True
        self.context.depth_func = "=="  # light is computed once per sample
        self.draw(pose, solid, nearest, self.surface)
        self.context.depth_func = "<="
        self.context.enable(moderngl.DEPTH_TEST)
        self.sky["axes"].write(pose.axes.astype(np.float32).tobytes())
        self.sky["extent"].value = self.width / 2 / pose.focal, self.height / 2 / pose.focal
        self.backdrop.render()
        glass = [thing for thing in things if thing.look.opacity < 1]
        if glass:
            self.context.enable(moderngl.BLEND)
            self.context.blend_func = moderngl.ONE, moderngl.ONE_MINUS_SRC_ALPHA
            glass.sort(key=lambda thing: -float(np.linalg.norm(thing.placement[:3, 3] - pose.eye)))
            target.depth_mask = False
            self.draw(pose, glass, nearest, self.surface)
            target.depth_mask = True
        return self.read(target)[..., :3]

    def read(self, target: Any) -> Values:
        """Return the values (H, W, channels) of a target, from the top row down."""
        texture = target.color_attachments[0]
        values = np.frombuffer(texture.read(), texture.dtype)
        values = values.reshape(texture.height, texture.width, texture.components)
        return values[::-1].astype(np.float32)

    def draw(self, pose: Pose, things: Sequence[Thing], nearest: float, program: Any) -> None:
        """Draw things into the target in use, without those outside of the view."""
        self.context.enable(moderngl.DEPTH_TEST)
        slopes = np.array([self.width, self.height]) / 2 / pose.focal
        projection = np.zeros((4, 4))
        projection[0, 0], projection[1, 1] = 1 / slopes
        projection[2, 2] = (DOME + nearest) / (DOME - nearest)
        projection[2, 3] = -2 * DOME * nearest / (DOME - nearest)
        projection[3, 2] = 1
        view = np.eye(4)
        view[:3, :3], view[:3, 3] = pose.axes, -pose.axes @ pose.eye
        program["projection"].write((projection @ view).T.astype(np.float32).tobytes())
        names = [name for name in Look.__dataclass_fields__ if name != "texture" and name in program]
        for part, look, placement in things:
            scale = np.cbrt(abs(np.linalg.det(placement[:3, :3])))
            centres = part.centres @ placement[:3, :3].T + placement[:3, 3]
            across, up, depth = ((centres - pose.eye) @ pose.axes.T).T
            reach = 1.5 * scale * part.radii
            visible = (depth > -reach) & (np.abs(across) < slopes[0] * depth + reach * np.hypot(1, slopes[0]))
            visible &= np.abs(up) < slopes[1] * depth + reach * np.hypot(1, slopes[1])
            if not visible.any():
                continue
            look.texture.use(0)
            program["image"].value = 0
            program["placement"].write(placement.T.astype(np.float32).tobytes())
            for name in names:
                program[name].value = getattr(look, name)
            array = part.colours if program is self.surface else part.depths
            edges = np.diff(visible.astype(np.int8), prepend=0, append=0)
            for begin, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
                start = int(part.first[begin])
                array.render(vertices=3 * (int(part.last[end - 1]) - start), first=3 * start)
