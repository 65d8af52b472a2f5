"""Depth and point clouds of `pam disparity` and `pam depth`, and what `pam calibration show` says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all
from PIL import Image
from plyfile import PlyData
from unrectified import photographs, sample

from pamcli.calibration.files import read_calibration
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_files import encode_disparity, read_disparity

HAND = "--focal 100 --baseline 0.5 --doffs 2"
CALIB = """cam0=[100 0 40; 0 100 30; 0 0 1]
cam1=[100 0 42; 0 100 30; 0 0 1]
doffs=2
baseline=500
width=96
height=64
"""


@pytest.fixture
def calib(pair: Path) -> Path:
    Path("calib.txt").write_text(CALIB)
    return pair


def depth_of(path: str) -> np.ndarray:
    return read_disparity(Path(path))  # the formats are those of disparities


def test_all_results_of_a_pair(calib: Path, remembering_networks: None) -> None:
    results = "-o d.npy --confidence c.npy --depth z.tif --depth-error e.npy --point-cloud p.ply"
    results += " --depth-color-map z.png"
    options = "--calibration calib.txt --disparity-error 0.25"
    run = pam(f"disparity left.png right.png {results} {options}")
    assert run.code == 0, run.stderr
    assert run.lines == ["d.npy", "c.npy", "z.tif", "e.npy", "z.png", "p.ply"]
    disparity = np.load("d.npy")
    depth = 100 * 0.5 / (disparity + 2)
    np.testing.assert_allclose(depth_of("z.tif"), depth, rtol=1e-5)
    np.testing.assert_allclose(np.load("e.npy"), 0.25 * depth**2 / 50, rtol=1e-5)
    colors = colorize(-depth_of("z.tif"), *(-np.percentile(depth_of("z.tif"), (99, 1))))
    np.testing.assert_array_equal(np.asarray(Image.open("z.png")), colors)
    vertex = PlyData.read("p.ply")["vertex"]
    np.testing.assert_allclose(vertex["z"].reshape(64, 96), depth, rtol=1e-5)
    np.testing.assert_allclose(vertex["x"].reshape(64, 96)[:, 50], depth[:, 50] * 0.1, rtol=1e-4)
    np.testing.assert_array_equal(vertex["red"], np.asarray(Image.open("left.png"))[..., 0].ravel())


def test_unknown_pixels_have_no_depth(calib: Path, remembering_networks: None) -> None:
    options = f"{HAND} --unknown occluded --min-confidence 0.5 --max-depth 3 --stride 2"
    run = pam(f"disparity left.png right.png -o d.npy --depth z.png --point-cloud p.ply {options}")
    assert run.code == 0, run.stderr
    depth = 50 / (np.load("d.npy") + 2)
    near = depth <= 3
    assert 0 < np.count_nonzero(near) < near.size
    millimetres = np.asarray(Image.open("z.png")).astype(float)
    np.testing.assert_array_equal(millimetres > 0, near)
    np.testing.assert_allclose(millimetres[near], depth[near] * 1000, atol=0.51)
    assert len(PlyData.read("p.ply")["vertex"]) == np.count_nonzero(near[::2, ::2])


def test_a_batch_from_stored_disparities(calib: Path) -> None:
    for index, name in enumerate(("a", "b")):
        Path("disp").mkdir(exist_ok=True)
        Path("lefts").mkdir(exist_ok=True)
        Path(f"disp/{name}.pfm").write_bytes(encode_disparity(np.full((64, 96), 8.0 + index), ".pfm").data)
        Image.open("left.png").save(f"lefts/{name}.png")
    command = "depth disp --calibration calib.txt --image lefts --depth z/ --point-cloud"
    run = pam(command, "z/")
    assert run.code == 0, run.stderr
    assert names("z") == ["a_cloud.ply", "a_depth.tif", "b_cloud.ply", "b_depth.tif"]
    np.testing.assert_allclose(depth_of("z/b_depth.tif"), 50 / 11, rtol=1e-6)
    assert len(PlyData.read("z/a_cloud.ply")["vertex"]) == 64 * 96
    run = pam(f"depth disp/{{}}.pfm {HAND} --depth t/{{}}.npy --image lefts/{{}}.png --jsonl")
    assert [record["outputs"]["depth"] for record in run.records] == ["t/a.npy", "t/b.npy"]
    Path("lefts/b.png").unlink()
    refuse(pam(command, "w/"), 2, "no image for disp/b.pfm")
    refuse(pam(f"depth disp {HAND} --image left.png --depth w/"), 2, "one file for several maps")


def test_the_sample_by_middleburys_formula() -> None:
    folder = Path(__file__).parents[2] / "scripts" / "sample"
    run = pam("depth", folder / "disparity.pfm", "--calibration", folder / "calib.txt", "-o", "z.npy")
    assert run.code == 0, run.stderr
    expected = 0.193001 * 994.978 / (read_disparity(folder / "disparity.pfm") + 31.086)
    np.testing.assert_allclose(np.load("z.npy"), expected, rtol=1e-5)


def test_formula_and_units_are_told(here: Path) -> None:
    Path("d.tif").write_bytes(encode_disparity(np.full((64, 96), 8, np.float32), ".tif").data)
    run = pam(f"depth d.tif {HAND} -o z.tif --verbose")
    assert run.code == 0, run.stderr
    assert "depth (m) = 100 px * 0.5 m / (disparity (px) + 2 px)" in run.stderr
    assert depth_of("z.tif")[0, 0] == pytest.approx(5)
    for name, unit in (("d.tif", "disparity in pixels"), ("z.tif", "metres")):
        with Image.open(name) as file:
            assert file.tag_v2[270] == f"{unit}; NaN is unknown"  # type: ignore[attr-defined]
    assert "depth (m) =" not in pam(f"depth d.tif {HAND} -o quiet.tif").stderr


def test_beyond_what_a_png_holds(here: Path) -> None:
    Path("d.npy").write_bytes(encode_disparity(np.array([[1.0, 0.1], [np.nan, 0.0]]), ".npy").data)
    run = pam("depth", "d.npy", "--focal", "100", "--baseline", "0.5", "--depth", "z.png")
    assert run.code == 0, run.stderr
    np.testing.assert_array_equal(np.asarray(Image.open("z.png")), [[50000, 0], [0, 0]])
    assert "1 pixels exceed 65.535 m" in run.stderr


def test_a_calibration_of_another_size_is_scaled_and_said(calib: Path, remembering_networks: None) -> None:
    Path("calib.txt").write_text(CALIB.replace("96", "192").replace("64", "128"))
    run = pam("disparity left.png right.png -o d.npy --calibration calib.txt --depth z.npy")
    assert run.code == 0, run.stderr
    assert "the calibration of 192x128 px is scaled to 96x64 px: focal length 50 px" in run.stderr
    np.testing.assert_allclose(np.load("z.npy"), 25 / (np.load("d.npy") + 1), rtol=1e-5)


def test_refusals_write_nothing(calib: Path, remembering_networks: None) -> None:
    Path("wide.txt").write_text(CALIB.replace("height=64", "height=60"))
    Path("empty.txt").write_text(CALIB.replace("cam0=[100 0 40; 0 100 30; 0 0 1]", "cam0="))
    Path("zero.txt").write_text(CALIB.replace("baseline=500", "baseline=0"))
    photographs(*sample((0, 0, 96, 64))).write(calib, "photo_left.png", "photo_right.png")
    table = f"""
        2 --depth z.tif | --depth requires --calibration or --focal
        2 --depth z.tif --focal 100 | --focal requires --baseline or --calibration | --baseline 1 gives
        2 --mesh m.glb | --mesh requires --calibration or --focal | --focal PX and --baseline 1 give
        2 --depth z.tif --focal -1 --baseline 1 | --focal must be a number above 0
        2 --depth z.tif --focal nan --baseline 1 | --focal must be | nan
        2 --depth z.tif {HAND} --max-depth 0 | --max-depth '0' is not a length above 0
        2 --depth-error z.tif {HAND} --disparity-error inf | --disparity-error must
        2 --depth z.tif {HAND} --cameras 1:0 | --cameras requires --calibration
        3 --depth z.tif --calibration wide.txt | for 96x60 px | 96x64 px
        3 --depth z.tif --calibration empty.txt | empty.txt: cam0 is missing
        3 --depth z.tif --calibration none.txt | none.txt
        3 --depth z.tif --calibration rig.yaml | rig.yaml | pam rectify
        2 -o d.pfm --max-depth 20 | --max-depth requires --
        2 -o d.pfm --stride 2 | --stride requires --
        2 -o d.pfm --disparity-error 1 | --disparity-error requires --
    """
    refuse_all(table, "disparity left.png right.png -q")
    run = pam("disparity left.png right.png --depth z.tif --calibration zero.txt")
    assert (run.code, "requires a baseline" in run.complaints[-1]) == (3, True)


def test_show(calib: Path) -> None:
    run = pam("calibration", "show", "calib.txt")
    assert run.code == 0, run.stderr
    assert run.lines == [
        "Middlebury calibration",
        "rectified images:",
        "  size px                     96x64",
        "  focal length px             100",
        "  principal point px          40, 30",
        "  doffs px                    2",
        "  baseline m                  0.5",
        "  field of view degrees       51.282012, 35.489343",
    ]
    Path("calib.txt").write_text(CALIB.replace("baseline=500", "baseline=500000").replace("0 40;", "0 400;"))
    run = pam("calibration", "show", "calib.txt", "--json")
    assert run.records[0]["rectified"]["baseline_m"] == 500
    assert "500 m is perhaps in millimetres" in run.stderr
    assert "the principal point 400,30 px is outside the 96x64 px image" in run.stderr
    Path("calib.txt").write_text(CALIB.replace("cam0=[100", "cam0=[hundred"))
    refuse(pam("calibration show calib.txt"), 3, "calib.txt: cam0 must hold finite numbers, got 'hundred'")


def test_show_cameras_as_they_stand(here: Path) -> None:
    photographs(*sample((0, 0, 96, 64))).write(here)
    (facts,) = pam("calibration", "show", "rig.yaml", "--json").records
    stored = read_calibration(Path("rig.yaml")).rig
    assert facts["kind"] == "OpenCV"
    assert facts["rig"]["baseline_m"] == pytest.approx(stored.baseline)
    assert facts["rig"]["right_camera_at_m"] == pytest.approx([0.2, 0.004, -0.003])
    assert facts["rig"]["right_camera_turned_degrees"] == pytest.approx(
        np.degrees(np.linalg.norm([0.015, 0.02, 0.02]))
    )
    assert b"  right camera turned degrees 1" in pam("calibration", "show", "rig.yaml").stdout


def test_show_a_fisheye(here: Path) -> None:
    photographs(*sample((0, 0, 96, 64)), fisheye=True).write(here)
    for options, model in (((), "pinhole"), (("--fisheye",), "fisheye")):
        (facts,) = pam("calibration", "show", "rig.yaml", "--json", *options).records
        assert facts["rig"]["model"] == model


def test_negative_disparities(pair: Path, remembering_networks: None) -> None:
    command = "disparity left.png right.png --min-disparity -40"
    run = pam(command, "-o", "d.tif", "--color-map", "c.png")
    assert run.code == 0, run.stderr
    plain = pam("disparity", "left.png", "right.png", "-o", "plain.tif")
    assert plain.code == 0
    assert np.median(np.abs(depth_of("d.tif") - depth_of("plain.tif"))) < 1
    table = """
        2 -o d.png | d.png | --min-disparity | .pfm
        2 -o out/ --format png | --min-disparity
        2 --max-disparity none -o d.tif | d.tif | exist
    """
    refuse_all(table, command, "-q")


def test_what_lies_beside_disparities_is_none(here: Path) -> None:
    Path("maps").mkdir()
    for name in ("a", "a_confidence", "a_depth", "a_right", "b_depth"):
        data = encode_disparity(np.full((64, 96), 8.0, np.float32), ".tif").data
        Path(f"maps/{name}.tif").write_bytes(data)
    run = pam(f"depth maps {HAND} --depth z/")
    assert names("z") == ["a_depth.tif", "a_right_depth.tif", "b_depth_depth.tif"]
    said = "ignored, because their names are not those of left disparity maps: "
    assert f"{said}maps/a_confidence.tif, maps/a_depth.tif\n" in run.stderr
    run = pam(f"depth maps {HAND} --point-cloud cloud/ -q")
    assert names("cloud") == ["a_cloud.ply", "b_depth_cloud.ply"], (
        "points are in the left camera's coordinates"
    )


def test_disparities_from_elsewhere_are_sent_to_their_folder(here: Path) -> None:
    for name in ("a", "b"):
        Path(f"{name}.pfm").write_bytes(encode_disparity(np.ones((4, 6), np.float32), ".pfm").data)
    Path("work").mkdir()
    os.chdir("work")
    run = pam(f"depth {HAND} -o z/", f"{here}/a.pfm", f"{here}/b.pfm")
    assert "name their folder" in refuse(run, 2, "a.pfm lies outside")


def test_pixels_by_hand_are_those_of_the_images(calib: Path) -> None:
    """Whatever the size that the calibration is of."""
    Path("calib.txt").write_text(CALIB.replace("96", "192").replace("64", "128"))
    Path("d.pfm").write_bytes(encode_disparity(np.full((64, 96), 8.0, np.float32), ".pfm").data)
    pam("depth d.pfm --calibration calib.txt --focal 80 --doffs 3 --depth z.npy")
    np.testing.assert_allclose(np.load("z.npy"), 80 * 0.5 / (8 + 3), rtol=1e-6)


def test_lengths_and_the_principal_point(calib: Path) -> None:
    """A unit that the file does not state, lengths with units, points beside the image centre."""
    np.save("d.npy", np.full((4, 6), 10, np.float32))
    rig = "M1: &k [100, 0, 2, 0, 100, 1, 0, 0, 1]\nM2: *k\nR: [1, 0, 0, 0, 1, 0, 0, 0, 1]\nT: [-4.14, 0, 0]\n"
    Path("rig.yaml").write_text(rig)
    Path("K.txt").write_text("100 0 2 0 100 1 0 0 1\n0.5\n")
    depths = {}
    for name, arguments in {
        "doubted": ("--calibration", "rig.yaml"),
        "mm": ("--calibration", "rig.yaml", "--unit", "mm"),
        "squares": ("--calibration", "rig.yaml", "--unit", "25mm"),
        "baseline": ("--focal", "100", "--baseline", "4.14mm"),
        "k": ("--calibration", "K.txt", "--max-depth", "600cm"),
        "near": ("--calibration", "K.txt", "--max-depth", "4"),
    }.items():
        run = pam("depth", "d.npy", *arguments, "--depth", f"{name}.npy")
        assert run.code == 0, run.stderr
        assert ("--unit mm, --unit cm, or --unit 25mm" in run.stderr) == (name == "doubted")
        depths[name] = float(np.load(f"{name}.npy")[0, 0])
    expected = {"doubted": 41.4, "mm": 0.0414, "squares": 1.035, "baseline": 0.0414, "k": 5.0, "near": np.nan}
    assert depths == pytest.approx(expected, nan_ok=True)
    coarse = pam("depth", "d.npy", "--focal", "100", "--baseline", "4.14mm", "--depth", "z.png")
    assert "the 1 mm steps of 16 bits are 2.4 % of the median depth" in coarse.stderr
    for name, more in {"centre": (), "stated": ("--principal-point", "2,1")}.items():
        run = pam(f"depth d.npy --focal 100 --baseline 0.5 --point-cloud {name}.ply", *more)
        assert ("the image centre is used as the principal point" in run.stderr) == (name == "centre")
    stated, centre = (PlyData.read(f"{name}.ply")["vertex"] for name in ("stated", "centre"))
    assert (stated["x"][0], stated["y"][0]) == pytest.approx((-0.1, -0.05))
    assert centre["x"][0] == pytest.approx(-0.125)
    kinds = "float x", "float y", "float z", "uchar red", "uchar green", "uchar blue"
    assert [*map(str, stated.properties)] == [f"property {kind}" for kind in kinds]
