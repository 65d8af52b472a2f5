"""Meshes of triangles: read from the files of a game, or converted from the shapes of `rooms/shapes.py`.

Lengths are metres, and y points up.
"""

from __future__ import annotations

import functools
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from shapes import Shape

Vertices = NDArray[np.float32]
Matrix = NDArray[np.float64]
HEADER = 28  # bytes: the kind of the file, and its bounding box
SKINNED = 1  # kind of a file whose vertices have bones
WHITE = 128  # mark of a vertex without a colour


class Mesh(NamedTuple):
    """Triangles of one material.

    Attributes:
        material: name of a texture, or of a material of a shape.
        vertices: (N, 11): position, texture coordinates, colour, normal.
        triangles: (M, 3) indices of vertices.
    """

    material: str
    vertices: Vertices
    triangles: NDArray[np.uint32]

    def transform(self, matrix: Matrix) -> Mesh:
        """Return the mesh moved by a matrix (4, 4)."""
        vertices = self.vertices.copy()
        vertices[:, :3] = self.vertices[:, :3] @ matrix[:3, :3].T + matrix[:3, 3]
        vertices[:, 8:] = self.vertices[:, 8:] @ matrix[:3, :3].T
        return self._replace(vertices=vertices)


class Reader:
    """A position in the bytes of a file."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def read(self, layout: str) -> tuple[int, ...]:
        """Read little-endian numbers (`struct`)."""
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def read_name(self) -> str:
        (length,) = self.read("B")
        self.at += length
        return self.data[self.at - length : self.at].decode("latin1")


@functools.cache
def read_spm(path: Path) -> tuple[Mesh, ...]:
    """Read the meshes of an SPM file (SuperTuxKart's format, version 1); none if it cannot be read."""
    data = path.read_bytes()
    try:
        reader, meshes = Reader(data, HEADER), []
        textures = [(reader.read_name(), reader.read_name()) for _ in range(*reader.read("H"))]
        for _ in range(*reader.read("H")):
            for _ in range(*reader.read("H")):
                meshes.append(read_buffer(reader, textures))
    except (struct.error, IndexError, ValueError):
        return ()
    return tuple(mesh for mesh in meshes if mesh.material and len(mesh.triangles))


def read_buffer(reader: Reader, textures: list[tuple[str, str]]) -> Mesh:
    """Read vertices and triangles of one material."""
    skinned, flags = reader.data[2] & 7 == SKINNED, reader.data[3]
    has_normals, has_colours, has_tangents = (flags >> bit & 1 for bit in range(3))
    count, corners, material = reader.read("IIH")
    first, second = map(bool, textures[material])
    head = 12 + 4 * has_normals
    tail = (4 + 4 * second + 4 * has_tangents) * first + 16 * skinned
    starts, jumps = np.empty(count, np.intp), np.zeros(count, np.intp)
    at, data = reader.at, reader.data
    for i in range(count):  # a vertex takes three bytes more if it has a colour
        starts[i] = at
        if has_colours:
            jumps[i] = 1 if data[at + head] == WHITE else 4
        at += head + tail + int(jumps[i])
    raw = np.frombuffer(data, np.uint8)

    def gather(begin: NDArray[np.intp], length: int, kind: str) -> NDArray[Any]:
        return np.ascontiguousarray(raw[begin[:, None] + np.arange(length)]).view(kind)

    vertices = np.zeros((count, 11), np.float32)
    vertices[:, :3], vertices[:, 5:8] = gather(starts, 12, "<f4"), 1
    coloured = jumps == 4
    vertices[coloured, 5:8] = gather(starts[coloured] + head + 1, 3, "u1") / np.float32(255)
    if first:
        vertices[:, 3:5] = gather(starts + head + jumps, 4, "<f2")
    reader.at = at
    size, kind = (2, "<u2") if count > 255 else (1, "u1")
    indices = np.frombuffer(data, kind, corners, at).astype(np.uint32).reshape(-1, 3)
    reader.at += size * corners
    if has_normals:
        packed = gather(starts + 12, 4, "<u4").astype(np.int64)
        parts = np.concatenate([packed >> shift & 1023 for shift in (0, 10, 20)], axis=1)
        vertices[:, 8:] = np.where(parts > 511, parts - 1024, parts) / 511
    if not np.isfinite(vertices).all() or indices.max(initial=0) >= count:
        raise ValueError("not a mesh")
    return Mesh(textures[material][0], vertices, indices)


def convert_shape(shape: Shape) -> list[Mesh]:
    """Return a mesh for each material of a shape, whose z becomes y; textures have one metre."""
    points = np.concatenate(shape.points)[:, (0, 2, 1)]
    normals, corners = np.zeros_like(points), []
    for face in shape.faces:
        corners.append(np.array([(face[0], *side) for side in pairwise(face[1:])]))
    names = np.repeat(shape.materials, [len(each) for each in corners])
    smooth = np.repeat(shape.smooth, [len(each) for each in corners])
    triangles = np.concatenate(corners)
    a, b, c = (points[triangles[:, i]] for i in range(3))
    flat = np.cross(b - a, c - a)
    for corner in range(3):
        np.add.at(normals, triangles[:, corner], flat)
    meshes = []
    for name in dict.fromkeys(shape.materials):
        own = triangles[names == name]
        bend = np.where(smooth[names == name, None, None], normals[own], flat[names == name, None])
        bend /= np.maximum(np.linalg.norm(bend, axis=2, keepdims=True), 1e-12)
        place = points[own]
        along = np.abs(flat[names == name]).argmax(axis=1)
        axes = np.array([(2, 1), (0, 2), (0, 1)])[along]  # texture coordinates lie across the main axis
        uv = np.take_along_axis(place, axes[:, None].repeat(3, axis=1), axis=2)
        vertices = np.concatenate([place, uv, np.ones_like(place), bend], axis=2).reshape(-1, 11)
        indices = np.arange(3 * len(own), dtype=np.uint32).reshape(-1, 3)
        meshes.append(Mesh(name, vertices.astype(np.float32), indices))
    return meshes
