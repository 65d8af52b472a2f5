"""Read models in Wavefront's format (OBJ and MTL) from furniture libraries."""

from __future__ import annotations

import functools
import io
import posixpath
import zipfile
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from libraries import Model
from meshes import Mesh
from PIL import Image, UnidentifiedImageError


class Material(NamedTuple):
    """The look of a part of a model."""

    colour: tuple[float, ...] = (0.6, 0.6, 0.6)
    opacity: float = 1.0
    image: Image.Image | None = None


@functools.lru_cache(maxsize=64)
def read_model(model: Model) -> tuple[tuple[Material, Mesh], ...]:
    """Return materials and meshes of a model in metres, which stands on y = 0 around the origin."""
    with zipfile.ZipFile(model.library) as library:
        text = library.read(model.file).decode("latin1")
        materials: dict[str, Material] = {}
        values: dict[str, list[list[float]]] = {"v": [[0, 0, 0]], "vt": [[0, 0]], "vn": [[0, 0, 0]]}
        corners: dict[str, list[tuple[int, int, int]]] = {}
        name = ""
        for line in text.splitlines():
            key, *words = line.split() or [""]
            if key in values:
                values[key].append([float(word) for word in words[: 2 if key == "vt" else 3]])
            elif key == "usemtl":
                name = " ".join(words)
            elif key == "mtllib":
                file = posixpath.join(posixpath.dirname(model.file), " ".join(words))
                materials |= read_materials(library, file)
            elif key == "f":
                face = [find_corner(word, values) for word in words]
                for side in pairwise(face[1:]):
                    corners.setdefault(name, []).extend((face[0], *side))
    points, uv, normals = (np.array(each, dtype=np.float64) for each in values.values())
    low, high = points[1:].min(axis=0), points[1:].max(axis=0)  # indices begin with 1
    scale = model.longest / max(float((high - low).max()), 1e-6)
    points = scale * (points - [(low[0] + high[0]) / 2, low[1], (low[2] + high[2]) / 2])
    mirror, parts = np.array([1, 1, -1]), []  # coordinates become left-handed
    for name, chosen in corners.items():
        at = np.array(chosen)
        place, turned = points[at[:, 0]] * mirror, normals[at[:, 2]] * mirror
        texture = uv[at[:, 1]] * (1, -1)
        vertices = np.concatenate([place, texture, np.ones_like(place), turned], axis=1)
        triangles = np.arange(len(at), dtype=np.uint32).reshape(-1, 3)
        material = materials.get(name, Material())
        parts.append((material, Mesh(name, vertices.astype(np.float32), triangles)))
    return tuple(parts)


def find_corner(word: str, values: dict[str, list[list[float]]]) -> tuple[int, int, int]:
    """Return the indices of point, texture coordinates and normal of a corner."""
    numbers = [int(number or 0) for number in word.split("/")] + [0, 0]
    point, uv, normal = (
        number if number >= 0 else len(known) + number
        for number, known in zip(numbers, values.values(), strict=False)
    )
    return point, uv, normal


def read_materials(library: zipfile.ZipFile, file: str) -> dict[str, Material]:
    """Return the materials of an MTL file by name; none if it is missing."""
    materials: dict[str, Material] = {}
    name = ""
    for line in library.read(file).decode("latin1").splitlines() if file in library.namelist() else ():
        key, *words = line.split() or [""]
        if key == "newmtl":
            name = " ".join(words)
            materials[name] = Material()
        elif key == "Kd":
            materials[name] = materials[name]._replace(colour=tuple(map(float, words[:3])))
        elif key == "d":
            materials[name] = materials[name]._replace(opacity=float(words[-1]))
        elif key == "map_Kd":
            image = posixpath.join(posixpath.dirname(file), words[-1])
            try:
                found = Image.open(io.BytesIO(library.read(image))).convert("RGBA")
            except (KeyError, UnidentifiedImageError):
                continue
            materials[name] = materials[name]._replace(image=found, colour=(1.0, 1.0, 1.0))
    return materials
