"""Meshes load in other programs, have holes and no curtains, and stay small; LAS and LAZ hold the points."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pamcli.calibration.geometry import Calibration
from pamcli.calibration.mesh import encode_mesh
from pamcli.calibration.point_cloud import encode_point_cloud, write_point_cloud

CALIBRATION = Calibration(100, 0.2, principal=(15.5, 11.5))


def two_walls() -> tuple[np.ndarray, np.ndarray]:
    """A green wall at 1 m in front of a red one at 2 m (disparities 20 and 10 px), which has a hole."""
    disparity = np.full((24, 32), 10, np.float32)
    disparity[:, 16:] = 20
    disparity[4:8, 4:8] = np.nan
    image = np.zeros((24, 32, 3), np.uint8)
    image[:, :16, 0] = image[:, 16:, 1] = 255
    return disparity, image


def load(data: bytes) -> Any:
    trimesh = pytest.importorskip("trimesh", reason="trimesh is not installed (pip install 'pamcli[test]')")
    (mesh,) = trimesh.load(io.BytesIO(data), file_type="glb").geometry.values()
    return mesh


def test_a_mesh_has_holes_and_separate_surfaces() -> None:
    disparity, image = two_walls()
    data, count = encode_mesh(disparity, CALIBRATION, image=image)
    mesh = load(data)
    faces, points = mesh.faces, mesh.vertices
    assert len(faces) == count == 2 * (23 * 30 - 25)  # without the cells across the edge and the hole
    depths = -points[faces][:, :, 2]
    np.testing.assert_allclose(np.ptp(depths, axis=1), 0, atol=1e-5)
    assert {*np.round(depths.ravel(), 3).tolist()} == {1.0, 2.0}
    np.testing.assert_allclose(points[0], [-15.5 / 100 * 2, 11.5 / 100 * 2, -2], rtol=1e-5)
    assert (mesh.face_normals[:, 2] > 0.99).all()
    colours = mesh.visual.to_color().vertex_colors[:, :3]
    near = points[:, 2] > -1.5
    assert np.abs(colours[near].mean(axis=0) - [0, 255, 0]).max() < 20
    assert np.abs(colours[~near].mean(axis=0) - [255, 0, 0]).max() < 20


def test_a_large_mesh_stays_small_and_far_points_do_not_hide_it() -> None:
    rows = np.linspace(2, 60, 1500, dtype=np.float32)[:, None].repeat(2000, 1)
    rows[:10] = 0.001  # 20 km
    image = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), np.uint8)
    data, count = encode_mesh(rows, Calibration(100, 0.2), image=image)
    assert 1 << 20 < len(data) < 8 << 20
    assert 150_000 < count < 200_000
    mesh = load(data)
    assert mesh.bounds[0][2] > -20
    assert encode_mesh(rows, Calibration(100, 0.2), max_depth=1e6)[1] > count
    assert encode_mesh(rows, Calibration(100, 0.2), stride=50)[1] < count / 50


def test_a_mesh_without_points_or_colours_is_a_file_all_the_same() -> None:
    data, count = encode_mesh(np.full((8, 8), np.nan, np.float32), CALIBRATION)
    assert count == 0
    trimesh = pytest.importorskip("trimesh", reason="trimesh is not installed (pip install 'pamcli[test]')")
    assert len(trimesh.load(io.BytesIO(data), file_type="glb").geometry) == 0
    plain = load(encode_mesh(two_walls()[0], CALIBRATION)[0])
    assert plain.visual.material.baseColorTexture is None


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_las_and_laz_hold_the_points_of_a_ply(suffix: str, tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy", reason="laspy is not installed (pip install 'pamcli[las]')")
    disparity, image = two_walls()
    ply, count = encode_point_cloud(disparity, CALIBRATION, image=image)
    (tmp_path / "cloud.ply").write_bytes(ply)  # from memory, plyfile reads value by value
    vertices = importlib.import_module("plyfile").PlyData.read(tmp_path / "cloud.ply")["vertex"]
    path = tmp_path / f"cloud{suffix}"
    assert write_point_cloud(path, disparity, CALIBRATION, image=image) == count
    las = laspy.read(path)
    assert len(las.points) == count == 24 * 32 - 16
    for axis in "xyz":
        np.testing.assert_allclose(np.asarray(las[axis]), vertices[axis], atol=1e-4)
    np.testing.assert_array_equal(np.asarray(las.red) // 257, vertices["red"])
    np.testing.assert_array_equal(np.asarray(las.green) // 257, vertices["green"])
    sky = np.where(np.isfinite(disparity), disparity, np.float32(1e-7))
    assert write_point_cloud(path, sky, CALIBRATION, overwrite=True) == count
