"""Depth, point clouds and positions of `pam disparity` and `pam depth`, and `pam calibration show`."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from pam_program import Run, names, pam, refuse, refuse_all, succeed
from PIL import Image
from plyfile import PlyData
from unrectified import photographs, sample

from pamcli.calibration.files import read_calibration
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.disparity_files import read_disparity

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
    run = succeed(f"disparity left.png right.png {results} {options}")
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
    succeed(f"disparity left.png right.png -o d.npy --depth z.png --point-cloud p.ply {options}")
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
    run = succeed(command, "z/")
    assert names("z") == ["a_cloud.ply", "a_depth.tif", "b_cloud.ply", "b_depth.tif"]
    np.testing.assert_allclose(depth_of("z/b_depth.tif"), 50 / 11, rtol=1e-6)
    assert len(PlyData.read("z/a_cloud.ply")["vertex"]) == 64 * 96
    run = pam(f"depth disp/{{}}.pfm {HAND} --depth t/{{}}.npy --image lefts/{{}}.png --jsonl")
    assert [record["outputs"]["depth"] for record in run.records] == ["t/a.npy", "t/b.npy"]
    Path("lefts/b.png").unlink()
    refuse(pam(command, "w/"), 2, "no image for disp/b.pfm")
    refuse(pam(f"depth disp {HAND} --image left.png --depth w/"), 2, "one file for several maps")


def test_formula_and_units_are_told(here: Path) -> None:
    Path("d.tif").write_bytes(encode_disparity(np.full((64, 96), 8, np.float32), ".tif").data)
    run = succeed(f"depth d.tif {HAND} -o z.tif --verbose")
    assert "depth (m) = 100 px * 0.5 m / (disparity (px) + 2 px)" in run.stderr
    assert depth_of("z.tif")[0, 0] == pytest.approx(5)
    for name, unit in (("d.tif", "disparity in pixels"), ("z.tif", "metres")):
        with Image.open(name) as file:
            assert file.tag_v2[270] == f"{unit}; NaN is unknown"  # type: ignore[attr-defined]
    assert "depth (m) =" not in pam(f"depth d.tif {HAND} -o quiet.tif").stderr
    Path("d.npy").write_bytes(encode_disparity(np.array([[1.0, 0.1], [np.nan, 0.0]]), ".npy").data)
    run = pam("depth d.npy --focal 100 --baseline 0.5 --depth z.png")
    np.testing.assert_array_equal(np.asarray(Image.open("z.png")), [[50000, 0], [0, 0]])
    assert "1 pixels exceed 65.535 m" in run.stderr


def test_a_calibration_of_another_size_is_scaled_and_said(calib: Path) -> None:
    Path("calib.txt").write_text(CALIB.replace("96", "192").replace("64", "128"))
    np.save("d.npy", np.full((64, 96), 8, np.float32))
    run = succeed("depth d.npy --calibration calib.txt --depth z.npy")
    assert "the calibration of 192x128 px is scaled to 96x64 px: focal length 50 px" in run.stderr
    np.testing.assert_allclose(np.load("z.npy"), 25 / (8 + 1), rtol=1e-5)
    # Pixels that are stated by hand are those of the images.
    succeed("depth d.npy --calibration calib.txt --focal 80 --doffs 3 --depth hand.npy")
    np.testing.assert_allclose(np.load("hand.npy"), 80 * 0.5 / (8 + 3), rtol=1e-6)


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
    run = succeed("calibration", "show", "calib.txt")
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
    assert (facts["kind"], facts["rig"]["model"]) == ("OpenCV", "pinhole")
    assert facts["rig"]["baseline_m"] == pytest.approx(stored.baseline)
    assert facts["rig"]["right_camera_at_m"] == pytest.approx([0.2, 0.004, -0.003])
    assert facts["rig"]["right_camera_turned_degrees"] == pytest.approx(
        np.degrees(np.linalg.norm([0.015, 0.02, 0.02]))
    )
    assert b"  right camera turned degrees 1" in pam("calibration", "show", "rig.yaml").stdout
    photographs(*sample((0, 0, 96, 64)), fisheye=True).write(here)
    (facts,) = pam("calibration show rig.yaml --json --fisheye").records
    assert facts["rig"]["model"] == "fisheye"


def test_negative_disparities(pair: Path, remembering_networks: None) -> None:
    command = "disparity left.png right.png --min-disparity -40"
    succeed(command, "-o", "d.tif", "--color-map", "c.png")
    succeed("disparity", "left.png", "right.png", "-o", "plain.tif")
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
    made = ["a_cloud.ply", "b_depth_cloud.ply"]
    assert names("cloud") == made, "points are in the left camera's coordinates"
    Path("work").mkdir()
    os.chdir("work")
    run = pam(f"depth {HAND} -o z/ {here}/maps/a.tif {here}/maps/b_depth.tif")
    refuse(run, 2, "a.tif lies outside", "name their folder")


def test_lengths_and_the_principal_point(calib: Path) -> None:
    """A unit that the file does not state, lengths with units, points beside the image centre."""
    np.save("d.npy", np.full((4, 6), 10, np.float32))
    rig = "M1: &k [100, 0, 2, 0, 100, 1, 0, 0, 1]\nM2: *k\nR: [1, 0, 0, 0, 1, 0, 0, 0, 1]\nT: [-4.14, 0, 0]\n"
    Path("rig.yaml").write_text(rig)
    Path("K.txt").write_text("100 0 2 0 100 1 0 0 1\n0.5\n")
    for options, expected in {
        "--calibration rig.yaml": 41.4,
        "--calibration rig.yaml --unit mm": 0.0414,
        "--calibration rig.yaml --unit 25mm": 1.035,
        "--focal 100 --baseline 4.14mm": 0.0414,
        "--calibration K.txt --max-depth 600cm": 5.0,
        "--calibration K.txt --max-depth 4": np.nan,
    }.items():
        run = succeed(f"depth d.npy {options} --depth z.npy --overwrite")
        assert ("--unit mm, --unit cm, or --unit 25mm" in run.stderr) == (expected == 41.4)
        assert np.load("z.npy")[0, 0] == pytest.approx(expected, nan_ok=True)
    coarse = pam("depth d.npy --focal 100 --baseline 4.14mm --depth z.png")
    assert "the 1 mm steps of 16 bits are 2.4 % of the median depth" in coarse.stderr
    for name, more in {"centre": (), "stated": ("--principal-point", "2,1")}.items():
        run = pam(f"depth d.npy --focal 100 --baseline 0.5 --point-cloud {name}.ply", *more)
        assert ("the image centre is used as the principal point" in run.stderr) == (name == "centre")
    stated, centre = (PlyData.read(f"{name}.ply")["vertex"] for name in ("stated", "centre"))
    assert (stated["x"][0], stated["y"][0]) == pytest.approx((-0.1, -0.05))
    assert centre["x"][0] == pytest.approx(-0.125)


# --- positions of points and boxes --------------------------------------------------------------------------


SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
CAMERA = ("--focal", "700", "--baseline", "0.1m", "--principal-point", "40,30")


def positions(run: Run) -> list[dict[str, str]]:
    assert run.code == 0, run.stderr
    return [*csv.DictReader(io.StringIO(run.stdout.decode()))]


@pytest.fixture
def maps(here: Path) -> Path:
    (here / "maps").mkdir()
    for name, value in (("near", 35), ("far", 7)):
        np.save(here / f"maps/{name}.npy", np.full((60, 80), value, np.float32))
    return here


def test_positions_as_a_table_and_as_json(maps: Path) -> None:
    command = ("depth", "maps/near.npy", *CAMERA, "--at", "40,30", "--at", "60,10,20,20")
    rows = positions(pam(*command))
    assert [(row["image"], float(row["z_m"])) for row in rows] == [("maps/near.npy", 2)] * 2
    assert float(rows[1]["x_m"]) == pytest.approx(29.5 * 2 / 700, abs=1e-6)
    assert float(rows[0]["z_error_m"]) == pytest.approx(2**2 * 0.5 / 70, rel=1e-4)
    record = json.loads(pam(*command, "--json").stdout)
    assert record["distances"][1]["z_m"] == 2
    assert (record["outputs"], record["status"]) == ({}, "ok")


def test_each_box_of_a_batch_belongs_to_its_image(maps: Path) -> None:
    Path("boxes.csv").write_text("image,x,y,label\nnear,5,5,cup\nfar,5,5,hill\nfar,6,5,tree\n")
    rows = positions(pam("depth", "maps", *CAMERA, "--boxes", "boxes.csv", "-o", "z/"))
    found = {(row["image"], row["label"], float(row["z_m"])) for row in rows}
    far = {("maps/far.npy", label, 10.0) for label in ("hill", "tree")}
    assert found == {("maps/near.npy", "cup", 2.0), *far}
    assert sorted(each.name for each in Path("z").iterdir()) == ["far_depth.tif", "near_depth.tif"]


def test_a_pair_is_measured_where_it_is_confident(here: Path) -> None:
    for side in ("left", "right"):
        Image.open(SAMPLE / f"{side}.png").crop((240, 120, 400, 220)).save(f"{side}.png")
    command = ("disparity", "left.png", "right.png", *CAMERA, "--at", "100,50,20,20", "--max-disparity", "64")
    (row,), (all_of_it,) = positions(pam(*command)), positions(pam(*command, "--min-confidence", "0"))
    assert float(row["z_m"]) == pytest.approx(float(all_of_it["z_m"]), rel=0.05)
    assert 0 < float(row["known"]) < float(all_of_it["known"]) == 1
    (sure,) = positions(pam(*command, "--min-confidence", "1"))
    assert (sure["known"], sure["z_m"]) == ("0", "")


def test_what_is_refused(maps: Path) -> None:
    for side in ("left", "right"):
        Image.new("RGB", (80, 60)).save(f"{side}.png")
    refuse_all("2 maps/near.npy --at 1,2 | --at requires --calibration or --focal", "depth")
    table = """
        2 maps/near.npy --at 1,2,3 | --at must be X,Y or X,Y,WIDTH,HEIGHT
        2 maps/near.npy --at 1,2,0,4 | at least 1 px wide
        2 maps/near.npy --at 1,2 --boxes b.csv | cannot use both
        2 maps/near.npy --at 1,2 -o - | to stdout
        2 maps/near.npy --at 1,2 --skip-existing | cannot use both
        3 maps/near.npy --at 100,2 | outside of the 80x60 px image
        3 maps/near.npy --boxes b.csv | there is no such file
        2 left.jpg right.jpg --at 1,2 | pam disparity LEFT RIGHT
        2 left.png right.png --at 1,2 | pam disparity LEFT RIGHT
    """
    refuse_all(table, "depth", *CAMERA)


def test_disparity_maps_in_place_of_images(maps: Path) -> None:
    run = pam("disparity", "maps/near.npy", *CAMERA, "--at", "1,2")
    refuse(run, 2, "pam depth converts stored disparity maps")
    for side in ("left", "right"):
        Image.new("L", (80, 60)).save(f"disp_{side}.png")
    run = pam("disparity", "disp_left.png", "disp_right.png", "-o", "a.pfm", "--weights", "none.safetensors")
    assert "named like disparity maps: pam depth converts those" in run.stderr


# --- units of disparity files -------------------------------------------------------------------------------


MAP = np.add.outer(np.linspace(20, 40, 60), np.linspace(0, 20, 80))


def depth(*arguments: str) -> Run:
    return pam(
        "depth", *arguments, "--focal", "700", "--baseline", "0.12m", "--depth", "z.npy", "--overwrite"
    )


def test_depth_of_files_in_other_units(here: Path) -> None:
    cv2.imwrite("d.png", np.rint(MAP * 16).astype(np.uint16))
    assert "--scale 16 (OpenCV's StereoSGBM)" in depth("d.png").stderr
    assert depth("d.png", "--scale", "16").complaints == []
    metres = np.load("z.npy")
    assert (metres.min(), metres.max()) == pytest.approx((1.4, 4.2), rel=0.01)
    cv2.imwrite("d.png", np.rint(MAP * 100).astype(np.uint16))
    assert "PNG files are read with 256 units per px" in depth("d.png").stderr
    refuse(depth("d.png", "--prediction-scale", "16"), 2, "did you mean --scale?")


def test_opencv_integers_and_their_marker_become_no_wall(here: Path) -> None:
    numbers = np.rint(MAP * 16).astype(np.int16)
    numbers[:, 30:39] = -16
    np.save("d.npy", numbers)
    assert "are -1 px and are treated as unknown" in depth("d.npy").stderr
    metres = np.load("z.npy")
    assert np.isnan(metres[:, 30:39]).all()
    assert (np.nanmin(metres), np.nanmax(metres)) == pytest.approx((1.4, 4.2), rel=0.01)
    np.save("d.npy", np.where(numbers < 0, 25.5, MAP).astype(np.float32))
    assert depth("d.npy", "--scale", "1", "--invalid", "25.5").complaints == []
    np.testing.assert_array_equal(np.isnan(np.load("z.npy")), numbers < 0)


def test_the_unit_of_a_ground_truth_is_found_and_declared(here: Path) -> None:
    for part in ("left", "right", "disparity"):
        Path("set", part).mkdir(parents=True)
    for side in ("left", "right"):
        image = Image.open(SAMPLE / f"{side}.png").convert("RGB")
        image.crop((240, 120, 540, 290)).save(f"set/{side}/a.png")
    truth = cv2.imread(str(SAMPLE / "disparity.pfm"), cv2.IMREAD_UNCHANGED)[120:290, 240:540]
    truth = np.where(np.isfinite(truth), truth, 0)
    cv2.imwrite("set/disparity/a.png", np.rint(truth * 100).astype(np.uint16))
    run = pam("dataset verify pairs:set")
    assert run.code == 3
    assert b"matches with 100 units per pixel (add the key scale=100)" in run.stdout
    succeed("dataset verify pairs:set?scale=100")
    Path("made").mkdir()
    cv2.imwrite("made/a.png", np.rint(truth * 2.56).astype(np.uint16))
    run = pam("eval disparity --data pairs:set?scale=100 --predictions made")
    refuse(run, 3, "times the ground truth nearly everywhere", "--scale ")


def test_depth_becomes_the_disparity_that_it_was_made_from(here: Path) -> None:
    camera = ("--focal", "700", "--baseline", "0.12m", "--doffs", "3")
    numbers = MAP.astype(np.float32)
    numbers[:, 30:39] = np.nan
    np.save("d.npy", numbers)
    for place, tolerance in (("z.npy", 1e-4), ("z.png", 0.3)):
        succeed("depth", "d.npy", *camera, "-o", place)
        succeed("depth", place, *camera, "--invert", "-o", f"{place}.npy")
        np.testing.assert_allclose(np.load(f"{place}.npy"), numbers, atol=tolerance)
    np.save("cm.npy", (100 * 84 / (MAP + 3)).astype(np.uint8))
    refuse(
        pam("depth", "cm.npy", *camera, "--invert", "-o", "x.npy"), 3, "uint8", "units per m with --scale N"
    )
    refuse(pam("depth", "z.npy", *camera, "--invert"), 2, "--invert requires --depth")
    run = pam("depth", "z.npy", *camera, "--invert", "-o", "x.npy", "--scale", "1000")
    assert "--scale states the units per m" in run.stderr


def test_an_image_that_was_resized_without_its_calibration(here: Path) -> None:
    np.save("d.npy", MAP.astype(np.float32))
    command = "depth d.npy --focal 700 --baseline 1 --at 1,2 --principal-point"
    run = pam(command, "159.5,119.5")
    assert "multiply the calibration by 0.25" in run.stderr
    assert "(--focal 175 and --principal-point 39.875,29.875)" in run.stderr
    for point in ("42,28", "159,40"):
        assert "multiply" not in pam(command, point).stderr
