"""Folders for COLMAP and nerfstudio: what they read, and that images, depth maps and cameras agree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse_all, succeed
from PIL import Image

from pamcli.imaging.disparity_files import read_disparity

pytestmark = pytest.mark.usefixtures("networks")
OPTIONS = ["--focal", "100", "--baseline", "0.2", "--doffs", "3", "--principal-point", "47.5,31.5"]


def read_depth_map(path: Path) -> np.ndarray:
    """Read a depth map of COLMAP: width&height&channels& and rows of float32."""
    width, height, channels, values = path.read_bytes().split(b"&", 3)
    assert channels == b"1"
    return np.frombuffer(values, "<f4").reshape(int(height), int(width))


def test_colmap_reads_a_pair(pair: Path) -> None:
    options = [*OPTIONS, "--unknown", "occluded", "--depth", "depth.npy"]
    succeed("disparity", "left.png", "right.png", *options)
    run = succeed("export", "colmap", "left.png", "right.png", *OPTIONS, "-o", "scene/")
    assert {*run.lines} == {f"scene/{name}" for name in names("scene")}
    expected = np.nan_to_num(np.load("depth.npy"))
    found = read_depth_map(Path("scene/stereo/depth_maps/left/left.png.geometric.bin"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for side in ("left", "right"):
        made, given = Image.open(f"scene/images/{side}/left.png"), Image.open(f"{side}.png")
        np.testing.assert_array_equal(np.asarray(made), np.asarray(given))
    cameras = [line.split() for line in Path("scene/sparse/cameras.txt").read_text().splitlines()]
    assert [each[1:4] for each in cameras] == [["PINHOLE", "96", "64"]] * 2
    assert [[float(value) for value in each[4:]] for each in cameras] == [
        [100, 100, 48, 32],
        [100, 100, 51, 32],
    ]
    (rig,) = json.loads(Path("scene/rig_config.json").read_text())
    assert rig["cameras"][0]["ref_sensor"]
    assert rig["cameras"][1]["cam_from_rig_translation"] == [-0.2, 0, 0]


def test_nerfstudio_gets_poses_depths_and_points(pair: Path) -> None:
    succeed("export", "nerfstudio", "left.png", "right.png", *OPTIONS, "-o", "nerf/")
    tree = json.loads(Path("nerf/transforms.json").read_text())
    assert tree["camera_model"] == "OPENCV"
    assert Path("nerf", tree["ply_file_path"]).stat().st_size > 10_000
    left, right = tree["frames"]
    for frame in (left, right):
        with Image.open(Path("nerf", frame["file_path"])) as image:
            assert image.size == (frame["w"], frame["h"]) == (96, 64)
        pose = np.array(frame["transform_matrix"])
        np.testing.assert_array_equal(pose[:3, :3], np.diag([1, -1, -1]))
    assert [frame["cx"] for frame in (left, right)] == [48, 51]
    assert [frame["transform_matrix"][0][3] for frame in (left, right)] == [0, 0.2]
    depths = [read_disparity(Path("nerf", frame["depth_file_path"]), scale=1) for frame in (left, right)]
    succeed("disparity", "left.png", "right.png", *OPTIONS, "--depth", "depth.npy")
    known = np.isfinite(depths[0])
    np.testing.assert_allclose(depths[0][known], 1000 * np.load("depth.npy")[known], atol=0.6)
    assert 0.3 < np.isfinite(depths[1]).mean() < 1  # without the pixels that only the right camera sees


def test_several_pairs_and_what_is_refused(pair: Path) -> None:
    for side in ("left", "right"):
        Path(f"{side}s").mkdir()
        for number in (1, 2):
            shutil.copy(f"{side}.png", f"{side}s/{number}.png")
    command = ["export", "colmap", "lefts", "rights", *OPTIONS, "-o", "scene/"]
    succeed(*command)
    made = names("scene")
    assert [name for name in made if name.startswith(("sparse", "rig"))] == ["rig_config.json"]
    assert len([name for name in made if name.startswith("images/")]) == 4
    Path("scene/rig_config.json").unlink()
    run = succeed(*command, "--skip-existing", "--jsonl")
    assert [record["status"] for record in run.records] == ["skipped"] * 2
    assert names("scene") == made
    Path("scene/images/left/1.png").unlink()
    Path("scene/rig_config.json").unlink()
    Path("rights/1.png").write_bytes(b"damaged")
    assert pam(*command, "--skip-existing").code == 6
    assert Path("scene/rig_config.json").exists()
    table = """
        2 nerfstudio lefts rights OPTIONS -o nerf/ | pose | colmap
        2 colmap left.png right.png -o x/ | --calibration
        2 colmap left.png right.png OPTIONS -o left.png | not a folder
        2 colmap lefts rights OPTIONS -o scene/ | exist | --overwrite
    """
    refuse_all(table.replace("OPTIONS", " ".join(OPTIONS)), "export")
