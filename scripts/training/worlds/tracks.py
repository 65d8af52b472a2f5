"""Tracks of SuperTuxKart: everything that stands in them, and the line along which one drives."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from meshes import Matrix, Mesh, read_spm
from numpy.typing import NDArray

SKIPPED = {"sky", "particle", "billboard", "sfx-emitter", "action-trigger", "cutscene_camera", "light"}
DEEPEST = 3  # libraries inside libraries


class Surface(NamedTuple):
    """All triangles of a track that share a texture; `shader` says how the game draws them."""

    texture: Path
    shader: str
    mesh: Mesh


class Game:
    """The files of the game, in the folder `data`."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.tracks = sorted(path.parent.name for path in data.glob("tracks/*/quads.xml"))
        folders = ("library/*/*.spm", "karts/*/*.spm", "models/*.spm")
        self.models = sorted(path for pattern in folders for path in data.glob(pattern))
        self.shaders: dict[str, str] = {}
        for path in sorted(data.glob("**/*materials.xml")):
            for material in ET.parse(path).getroot().iter("material"):
                self.shaders.setdefault(material.get("name", ""), material.get("shader", "solid"))

    def load_track(self, name: str) -> list[Surface]:
        """Return the surfaces of a track."""
        folder = self.data / "tracks" / name
        scene = ET.parse(folder / "scene.xml").getroot()
        groups: dict[Path, list[Mesh]] = {}
        for path, matrix, folders in self.find_meshes(scene, [folder], np.eye(4), 0):
            for mesh in read_spm(path):
                if texture := self.find_texture(mesh.material, folders):
                    groups.setdefault(texture, []).append(mesh.transform(matrix))
        return [self.join(texture, meshes) for texture, meshes in groups.items()]

    def load_model(self, path: Path) -> list[Surface]:
        """Return the surfaces of a model, one for each texture."""
        groups: dict[Path, list[Mesh]] = {}
        for mesh in read_spm(path):
            if texture := self.find_texture(mesh.material, [path.parent]):
                groups.setdefault(texture, []).append(mesh)
        return [self.join(texture, meshes) for texture, meshes in groups.items()]

    def join(self, texture: Path, meshes: list[Mesh]) -> Surface:
        """Return one surface of several meshes."""
        starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
        triangles = [mesh.triangles + start for mesh, start in zip(meshes, starts, strict=False)]
        mesh = Mesh(
            texture.name,
            np.concatenate([mesh.vertices for mesh in meshes]),
            np.concatenate(triangles).astype(np.uint32),
        )
        return Surface(texture, self.shaders.get(texture.name, "solid"), mesh)

    def find_texture(self, name: str, folders: list[Path]) -> Path | None:
        """Return the file of a texture, or None."""
        paths = (folder / name for folder in (*folders, self.data / "textures"))
        return next((path for path in paths if path.is_file()), None)

    def find_meshes(
        self, root: ET.Element, folders: list[Path], matrix: Matrix, depth: int
    ) -> Iterator[tuple[Path, Matrix, list[Path]]]:
        """Yield the file of each mesh, its place, and the folders of its textures."""
        finest: dict[str | None, str | None] = {
            group.get("name"): next((each.get("model") for each in group if each.get("model")), None)
            for group in root.iter("group")
        }
        instances = {id(each) for lod in root.iter("lod") for each in lod.iter()}
        for element in root.iter():
            if id(element) in instances or element.get("type") in SKIPPED:
                continue
            if element.tag in ("static-object", "object", "track"):
                shared = element.get("lod_instance") == "true"
                model = finest.get(element.get("lod_group")) if shared else element.get("model")
                paths = [folder / model for folder in folders if model and model.endswith(".spm")]
                if path := next((path for path in paths if path.is_file()), None):
                    yield path, matrix @ read_matrix(element), folders
            elif element.tag == "library" and depth < DEEPEST:
                folder = self.data / "library" / element.get("name", "")
                if (folder / "node.xml").is_file():
                    inside = ET.parse(folder / "node.xml").getroot()
                    placed = matrix @ read_matrix(element)
                    yield from self.find_meshes(inside, [folder, *folders], placed, depth + 1)

    def read_road(self, name: str) -> NDArray[np.float64]:
        """Return the quadrangles (N, 4, 3) of the road of a track, in the order of driving."""
        quads: list[list[NDArray[np.float64]]] = []
        for element in ET.parse(self.data / "tracks" / name / "quads.xml").getroot().iter("quad"):
            corners = []
            for key in ("p0", "p1", "p2", "p3"):
                text = element.get(key, "0 0 0")
                if ":" in text:  # corner of an earlier one
                    quad, corner = map(int, text.split(":"))
                    corners.append(quads[quad][corner])
                else:
                    corners.append(np.array(text.split(), dtype=np.float64))
            quads.append(corners)
        return np.array(quads)


def turn(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (3, 3) of rotations about x, then y, then z, by angles in degrees."""
    (cx, cy, cz), (sx, sy, sz) = np.cos(np.radians(angles)), np.sin(np.radians(angles))
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return np.asarray(about_z @ about_y @ about_x)


def read_matrix(element: ET.Element) -> Matrix:
    """Return the place (4, 4) of an element of a scene."""
    values = {"xyz": "0 0 0", "hpr": "0 0 0", "scale": "1 1 1"}
    parts = {key: np.array(element.get(key, text).split(), dtype=np.float64) for key, text in values.items()}
    matrix = np.eye(4)
    matrix[:3, :3] = turn(parts["hpr"]) * parts["scale"]
    matrix[:3, 3] = parts["xyz"]
    return matrix
