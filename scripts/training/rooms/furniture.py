"""Import models from furniture libraries (.sh3f files of Sweet Home 3D) into Blender."""

from __future__ import annotations

import zipfile
from pathlib import Path
from random import Random
from typing import Any

import bpy
import numpy as np
from libraries import list_models
from mathutils import Matrix

MOST_POINTS = 120_000


class Catalogue:
    """The models of all libraries in a folder; `cache` is a folder for their unpacked files."""

    def __init__(self, folder: str, cache: Path) -> None:
        self.cache = cache
        self.models = [model for path in sorted(Path(folder).glob("*.sh3f")) for model in list_models(path)]

    def import_model(self, rng: Random, category: str) -> Any:
        """Import a random model of a category that stands around the origin; None if it fails."""
        models = [model for model in self.models if model.category == category]
        if not models:
            return None
        model = rng.choice(models)
        folder = self.cache / model.library.stem
        path = folder / model.file
        if not path.exists():
            with zipfile.ZipFile(model.library) as library:
                inside = str(Path(model.file).parent) + "/"
                library.extractall(folder, [name for name in library.namelist() if name.startswith(inside)])
        before = set(bpy.data.objects)
        try:
            bpy.ops.wm.obj_import(filepath=str(path), use_split_objects=False, use_split_groups=False)
        except RuntimeError:
            return None
        new = [each for each in bpy.data.objects if each not in before]
        meshes = [each for each in new if each.type == "MESH"]
        if len(meshes) != 1 or not 0 < len(meshes[0].data.vertices) <= MOST_POINTS:
            for each in new:
                bpy.data.objects.remove(each)
            return None
        return stand_upright(meshes[0], model.longest)


def stand_upright(thing: Any, longest: float) -> Any:
    """Scale an imported model to its size in metres and put it on the ground around the origin."""
    mesh = thing.data
    mesh.transform(thing.matrix_basis)
    thing.matrix_basis = Matrix.Identity(4)
    points = np.empty(3 * len(mesh.vertices), np.float32)
    mesh.vertices.foreach_get("co", points)
    low, high = points.reshape(-1, 3).min(axis=0), points.reshape(-1, 3).max(axis=0)
    scale = longest / max(float((high - low).max()), 1e-6)
    middle = (low + high) / 2
    mesh.transform(Matrix.Scale(scale, 4) @ Matrix.Translation((-middle[0], -middle[1], -low[2])))
    for slot in thing.material_slots:  # textures that the library lacks would be pink
        nodes = slot.material.node_tree.nodes if slot.material and slot.material.use_nodes else ()
        if any(node.type == "TEX_IMAGE" and not (node.image and node.image.size[0]) for node in nodes):
            slot.material = None
    return thing
