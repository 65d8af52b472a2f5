"""Rendered worlds: the ground truth of both views agrees with geometry and with the images."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from PIL import Image

SCRIPTS = Path(__file__).parents[1] / "scripts" / "training"
sys.path += [str(SCRIPTS), str(SCRIPTS / "rooms"), str(SCRIPTS / "worlds")]
import libraries  # noqa: E402
import meshes  # noqa: E402
import objects  # noqa: E402
import photons  # noqa: E402
import render_rooms  # noqa: E402
import shapes  # noqa: E402
import wavefront  # noqa: E402

FOCAL, BASELINE, WALL, BOX = 200.0, 0.4, 8.0, 4.0


def test_shapes_become_upright_meshes_with_outward_normals() -> None:
    shape = shapes.Shape()
    shape.add_box((-1, -2, 0), (1, 2, 3), "crate")
    (mesh,) = meshes.convert_shape(shape)
    assert mesh.material == "crate"
    assert mesh.triangles.shape == (12, 3)
    np.testing.assert_array_equal(np.ptp(mesh.vertices[:, :3], axis=0), (2, 3, 4))
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices[:, 8:], axis=1), 1, rtol=1e-6)
    car = meshes.convert_shape(objects.build_car(Random(1)))
    assert {"paint", "dark glass", "tyre"} <= {mesh.material for mesh in car}


def test_meshes_of_the_game_are_read_with_and_without_colours(tmp_path: Path) -> None:
    vertices = b"".join(
        struct.pack("<3fI", number, 2, 3, 511) + colour + struct.pack("<2e", 0.5, 0.25)
        for number, colour in enumerate((b"\x80", b"\x01\xff\x00\x33", b"\x80"))
    )
    header = b"SP\x0a\x03" + bytes(24) + struct.pack("<H", 1) + b"\x05a.png\x00"
    body = struct.pack("<HHIIH", 1, 1, 3, 3, 0) + vertices + bytes((0, 1, 2))
    path = tmp_path / "a.spm"
    path.write_bytes(header + body)
    (mesh,) = meshes.read_spm(path)
    assert mesh.material == "a.png"
    np.testing.assert_array_equal(mesh.vertices[:, 0], (0, 1, 2))
    np.testing.assert_allclose(mesh.vertices[1], (1, 2, 3, 0.5, 0.25, 1, 0, 0.2, 1, 0, 0), rtol=1e-6)
    np.testing.assert_array_equal(mesh.vertices[2, 5:8], 1)
    path.with_suffix(".cut.spm").write_bytes(header + body[:-20])
    assert meshes.read_spm(path.with_suffix(".cut.spm")) == ()


def test_models_of_furniture_stand_on_the_ground_in_metres(tmp_path: Path) -> None:
    entry = {"model": "/a/a.obj", "width": 200, "depth": 50, "height": 100, "category": "Vehicles"}
    lines = "\n".join(f"{key}#1={value}" for key, value in entry.items())
    points = "v 5 1 0\nv 9 1 0\nv 9 3 1\nv 5 3 1\nvn 0 0 1\n"
    with zipfile.ZipFile(tmp_path / "a.sh3f", "w") as library:
        library.writestr("PluginFurnitureCatalog.properties", lines)
        library.writestr("a/a.mtl", "newmtl glass\nKd 0.1 0.2 0.3\nd 0.25\n")
        library.writestr("a/a.obj", f"mtllib a.mtl\n{points}usemtl glass\nf 1//1 2//1 3//1 -1//-1\n")
    (model,) = libraries.list_models(tmp_path / "a.sh3f")
    ((material, mesh),) = wavefront.read_model(model)
    assert (material.colour, material.opacity) == ((0.1, 0.2, 0.3), 0.25)
    assert mesh.triangles.shape == (2, 3)
    np.testing.assert_allclose(mesh.vertices[:, :3].min(axis=0), (-1, 0, -0.25))
    np.testing.assert_allclose(mesh.vertices[:, :3].max(axis=0), (1, 1, 0.25))
    np.testing.assert_array_equal(mesh.vertices[:, 8:], [(0, 0, -1)] * 6)


def test_few_photons_keep_the_mean_and_add_their_noise() -> None:
    view = np.full((100, 100, 3), 0.2, np.float32)
    noisy = photons.count_photons(np.random.default_rng(0), view, 25)
    assert noisy.mean() == pytest.approx(0.2, rel=0.01)
    assert noisy.std() == pytest.approx(0.2 / 5, rel=0.05)


def test_missing_opengl_is_reported() -> None:
    code = "import importlib.util as u; u.find_spec = lambda name: None; import render_worlds"
    run = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.strip().endswith("moderngl is missing: python -m pip install moderngl")


@pytest.fixture(scope="module")
def scene() -> Any:
    """Return the module, a renderer of small images, a box before a wall, their look, light, and a pose."""
    renderer = pytest.importorskip("renderer", reason="rendering requires moderngl")
    try:
        canvas = renderer.Renderer(160, 96)
    except renderer.PamError as error:
        pytest.skip(f"rendering requires OpenGL: {error}")
    grain = np.random.default_rng(0).integers(20, 236, (64, 64, 3), np.uint8)
    look = renderer.Look(canvas.upload_image(Image.fromarray(grain).resize((512, 512))))
    shape = shapes.Shape()
    shape.add_box((-9, WALL, -9), (9, WALL + 1, 9), "wall")
    shape.add_box((-0.5, BOX, -0.5), (0.5, BOX + 1, 0.5), "box")
    parts = [canvas.upload_mesh(mesh) for mesh in meshes.convert_shape(shape)]
    light = renderer.Light(look.texture, np.array([0, 0, -1]), np.zeros(3), ambient=0.5)
    return renderer, canvas, parts, look, light, renderer.Pose(np.zeros(3), np.eye(3), FOCAL)


def test_mirrors_have_finite_light(scene: Any) -> None:
    renderer, canvas, parts, look, light, left = scene
    rng, turn = np.random.default_rng(0), np.eye(4)
    for _ in range(60):
        turn[:3, :3] = np.linalg.qr(np.eye(3) + rng.normal(0, 0.2, (3, 3)))[0]
        things = [renderer.Thing(part, replace(look, reflectance=0.5), turn) for part in parts]
        assert np.isfinite(canvas.render([left], things, 0.1, light)).all()


def test_both_disparity_maps_agree_with_geometry_and_images(scene: Any) -> None:
    renderer, canvas, parts, look, light, left = scene
    things = [renderer.Thing(part, look, np.eye(4)) for part in parts]
    views, disparities = [], []
    for pose in (left, left.shift(BASELINE)):
        views.append(canvas.render([pose], things, 0.1, light))
        disparities.append(FOCAL * BASELINE / canvas.measure_depth(pose, things, 0.1))
    inside = slice(40, 56), slice(72, 88)  # the box fills 25 pixels around the middle of the left view
    np.testing.assert_allclose(disparities[0][inside], FOCAL * BASELINE / BOX, rtol=1e-4)
    np.testing.assert_allclose(disparities[0][:20], FOCAL * BASELINE / WALL, rtol=1e-4)
    np.testing.assert_allclose(disparities[1][48, 55:72], FOCAL * BASELINE / BOX, rtol=1e-4)
    assert render_rooms.find_fault(*render_rooms.develop(*views, 0), *disparities) is None
    visible, _ = render_rooms.compare_disparities(*disparities)
    match = np.arange(160) - disparities[0].round().astype(int)
    warped = np.take_along_axis(views[1], match.clip(0)[..., None], axis=1)
    assert np.abs(warped - views[0])[visible].mean() < 0.01 * views[0].mean()
    moving = canvas.render([left.shift(0.05 * step) for step in range(-2, 3)], things, 0.1, light)
    assert np.abs(np.diff(moving, axis=1)).mean() < 0.7 * np.abs(np.diff(views[0], axis=1)).mean()
