"""`pam rectify`: crooked photographs become those that they were made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image
from PIL.ExifTags import IFD, Base
from unrectified import Photographs, photographs, sample
from video_files import write_video

from pamcli.calibration.files import read_calibration
from pamcli.imaging.images import read_image

BOX = (100, 60, 500, 360)
"""The part of the sample pair that is photographed, 400x300 px."""


@pytest.fixture(scope="module")
def taken() -> Photographs:
    return photographs(*sample(BOX))


@pytest.fixture
def rig(here: Path, taken: Photographs) -> Path:
    """left.png, right.png and rig.yaml in the current folder."""
    taken.write(here)
    return here


def difference(path: str, expected: np.ndarray) -> float:
    """Median difference in grey levels of 8 bits, away from the edges."""
    found = read_image(Path(path)).pixels
    scale = 257 if found.dtype == np.uint16 else 1
    inner = slice(30, -30)
    return float(np.median(np.abs(found[inner, inner] / scale - expected[inner, inner].astype(float))))


def test_a_pair_and_its_calibration(rig: Path, taken: Photographs) -> None:
    run = succeed("rectify left.png right.png --calibration rig.yaml -o l.png --output-right r.png")
    assert run.lines == ["l.png", "r.png"]
    assert names(".") == ["calibration.yaml", "l.png", "left.png", "r.png", "rig.yaml", "right.png"]
    left, right = sample(BOX)
    assert difference("l.png", left) < 3 < difference("left.png", left)
    assert difference("r.png", right) < 3 < difference("right.png", right)
    calibration = read_calibration(Path("calibration.yaml")).rectified
    assert calibration.focal_length == pytest.approx(taken.focal_length)
    assert calibration.baseline == pytest.approx(taken.baseline)
    assert calibration.size == (400, 300)
    cameras = read_calibration("rig.yaml").rig
    lenses = [each for side in (cameras.left, cameras.right) for each in (side.matrix, side.distortion)]
    expected = cv2.stereoRectify(*lenses, (400, 300), cameras.rotation, cameras.translation.reshape(3, 1))
    file = cv2.FileStorage("calibration.yaml", cv2.FILE_STORAGE_READ)
    for key, rotation in zip(("R1", "R2"), expected, strict=False):
        np.testing.assert_allclose(file.getNode(key).mat(), rotation, atol=1e-9)
    said = run.complaints
    assert said[0] == "rig.yaml: lengths are assumed to be in metres, because OpenCV states no unit"
    assert any(line.startswith("calibration.yaml: focal length ") for line in said)
    (offset,) = (float(line.split()[3]) for line in said if line.startswith("median vertical offset"))
    assert offset < 0.3
    assert not any("warning" in line for line in said)


def test_kalibrs_fisheyes_whichever_camera_it_names_first(here: Path) -> None:
    """Also of 16 bits, which stay 16 bits."""
    left, right = sample(BOX)
    taken = photographs(*(view.astype(np.uint16) * 257 for view in (left, right)), fisheye=True)
    taken.write(here)
    k1, d1, k2, d2, r, t = (np.asarray(taken.rig[key]) for key in ("M1", "D1", "M2", "D2", "R", "T"))

    def camera(k: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        intrinsics = [float(k[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2))]
        lens = {"distortion_model": "equidistant", "distortion_coeffs": d.tolist()}
        size = {"resolution": [left.shape[1], left.shape[0]]}
        return {"camera_model": "pinhole", "intrinsics": intrinsics} | lens | size

    back = {"T_cn_cnm1": [*np.column_stack([r.T, -r.T @ t]).tolist(), [0, 0, 0, 1]]}
    chain = {"cam0": camera(k2, d2), "cam1": camera(k1, d1) | back}
    Path("back.yaml").write_text(yaml.safe_dump(chain))
    command = ["rectify", "left.png", "right.png", "--calibration", "back.yaml", "-o", "out/"]
    with unchanged():
        refuse(pam(*command), 3, "left of the left camera", "--cameras 1:0")
    run = succeed(*command, "--cameras", "1:0")
    assert read_image(Path("out/left.png")).pixels.dtype == np.uint16
    assert difference("out/left.png", left) < 4
    assert difference("out/right.png", right) < 4
    # Of the lens's angles some are lost in a flat image: how many is said, and which option takes more.
    (said,) = (line for line in run.complaints if "fisheye lens" in line)
    assert said.endswith("(--fov changes it)")
    sees, keeps = (float(width) for width in re.findall(r"(\d+)x\d+ degrees", said))
    assert 2 * np.degrees(np.arctan(left.shape[1] / 2 / k1[0, 0])) * 0.97 < keeps < sees
    succeed("rectify left.png right.png --calibration rig.yaml --fisheye -o same/")
    assert Path("same/right.png").read_bytes() == Path("out/right.png").read_bytes()


def test_resized_images_whose_calibration_was_not(rig: Path) -> None:
    text = re.sub(r"image_(width|height): .*\n", "", Path("rig.yaml").read_text())
    Path("sizeless.yaml").write_text(text)
    for side in ("left", "right"):
        image = Image.open(f"{side}.png")
        image.resize([each // 2 for each in image.size]).save(f"{side}.png")
    run = pam("rectify left.png right.png --calibration sizeless.yaml -o out/")
    said = r"the principal point .* if it was resized, multiply the calibration by ([\d.]+)"
    found = re.search(said, run.stderr)
    assert found, run.stderr
    assert float(found[1]) == pytest.approx(0.5, rel=0.1)


def test_a_batch_is_resumed(rig: Path, taken: Photographs) -> None:
    for name in ("a", "b"):
        taken.write(rig, f"lefts/{name}.jpg", f"rights/{name}.jpg")
    command = ["rectify", "lefts", "rights", "--calibration", "rig.yaml", "-o", "out/", "--format", "jpg"]
    run = succeed(*command, "--jsonl")
    assert [record["vertical_offset"] < 0.5 for record in run.records] == [True, True]
    assert "px, in 2 checked pairs" in run.stderr
    files = ["a_left.jpg", "a_right.jpg", "b_left.jpg", "b_right.jpg", "calibration.yaml"]
    assert names("out") == files
    Path("out/b_left.jpg").unlink()
    again = pam(*command, "--skip-existing")
    assert again.lines == ["out/b_left.jpg", "out/b_right.jpg"]
    assert names("out") == files


def test_the_cameras_own_calibration_is_not_replaced_by_what_a_list_makes(rig: Path) -> None:
    Path("out").mkdir()
    Path("rig.yaml").rename("out/calibration.yaml")
    before = Path("out/calibration.yaml").read_bytes()
    command = ["rectify", "--pairs", "-", "--calibration", "out/calibration.yaml", "-o", "out/{}.png"]
    run = pam(*command, "--overwrite", stdin=b"left.png\tright.png\n")
    assert run.code == 6, run.stderr
    assert "out/calibration.yaml would overwrite an input" in run.stderr
    assert Path("out/calibration.yaml").read_bytes() == before


def test_another_calibration_in_the_way_is_kept(rig: Path) -> None:
    Path("calibration.yaml").write_text("P1: mine\n")
    command = ["rectify", "left.png", "right.png", "--calibration", "rig.yaml", "-o", "l.png", "-q"]
    with unchanged():
        refuse(pam(*command), 2, "calibration.yaml exists", "--overwrite")
    succeed(*command, "--output-calibration", "other.yaml")
    assert Path("calibration.yaml").read_text() == "P1: mine\n"
    assert read_calibration(Path("other.yaml")).rectified is not None
    succeed(*command, "--overwrite")
    assert read_calibration(Path("calibration.yaml")).rectified is not None


def test_what_is_seen_and_how_large(rig: Path) -> None:
    command = "rectify left.png right.png --calibration rig.yaml -o out/ --overwrite"
    run = succeed(command, "--alpha", "1", "--size", "200x150", "--baseline", "0.5")
    assert "assumed to be in metres" not in run.stderr
    whole = read_image(Path("out/left.png")).pixels
    assert whole.shape == (150, 200, 3)
    assert (whole[:4] == 0).all(axis=2).mean() > 0.3  # black beyond what the camera saw
    calibration = read_calibration(Path("out/calibration.yaml")).rectified
    assert calibration.size == (200, 150)
    assert calibration.baseline == pytest.approx(0.5)
    run = pam(command, "--baseline", "193")
    assert "warning: rig.yaml: the baseline of 193 m is perhaps in millimetres" in run.stderr


def test_ros_has_its_own_projections(rig: Path, taken: Photographs) -> None:
    """A robot may rectify at another focal length: its matrices serve its images here."""
    left, right = taken.ros(focal_length=330.0)
    Path("left.yaml").write_text(left)
    Path("right.yaml").write_text(right)
    run = succeed("rectify left.png right.png --calibration left.yaml --calibration right.yaml -o out/")
    assert run.complaints[0] == "rectified with R and P of the calibration"
    made = read_calibration(Path("out/calibration.yaml")).rectified
    said = read_calibration("left.yaml", "right.yaml").rectified
    assert (made.focal_length, made.principal) == (said.focal_length, said.principal) == (330, (199.5, 149.5))
    assert made.baseline == pytest.approx(taken.baseline)


def test_without_a_calibration(here: Path) -> None:
    taken = photographs(*sample(BOX))
    taken.write(here)
    notes = Image.Exif()
    notes[Base.Make], notes[Base.Orientation] = "Maker", 1
    notes.get_ifd(IFD.Exif).update({Base.DateTimeOriginal: "2024:05:06 07:08:09", Base.FocalLength: 35.0})
    with Image.open("left.png") as image:
        image.load()
    image.save("left.png", exif=notes, dpi=(300, 300), icc_profile=b"profile")
    run = succeed("rectify", "left.png", "right.png", "--uncalibrated", "-o", "out/", "--jsonl")
    assert names("out") == ["left.png", "right.png"]
    assert "distances remain unknown" in run.stderr
    assert "only the left image" not in run.stderr
    assert run.records[0]["vertical_offset"] < 0.5
    with Image.open("out/left.png") as written:
        assert written.info["dpi"] == pytest.approx((300, 300), abs=0.02)
        assert written.info["icc_profile"] == b"profile"
        assert written.getexif()[Base.Make] == "Maker"
        assert written.getexif().get_ifd(IFD.Exif) == {Base.DateTimeOriginal: "2024:05:06 07:08:09"}
    assert not read_image(Path("out/right.png")).exif
    alone = pam("rectify", "left.png", "right.png", "--uncalibrated", "-o", "alone.png")
    assert "only the left image is written: --output-right writes the right one" in alone.stderr


def test_refusals_write_nothing(rig: Path) -> None:
    Path("calib.txt").write_text("cam0=[100 0 50; 0 100 50; 0 0 1]\nbaseline=100\n")
    small = (
        Path("rig.yaml").read_text().replace("width: 400", "width: 320").replace("height: 300", "height: 200")
    )
    Path("small.yaml").write_text(small)
    for side in ("left", "right"):
        Path(f"{side}s").mkdir()
        Path(f"{side}s/a.png").hardlink_to(f"{side}.png")
    Path("old").mkdir()
    Path("old/calibration.yaml").write_text("of other images")
    table = """
        2 left.png right.png -o l.png | --calibration or --uncalibrated is missing
        2 left.png right.png -o l.png --calibration rig.yaml --fov 60 --alpha 1 | both --fov and --alpha
        3 left.png right.png -o l.png --calibration none.yaml | none.yaml | there is no such file
        3 left.png right.png -o l.png --calibration calib.txt | describes images that are already rectified
        2 left.png right.png -o l.png --calibration rig.yaml --size 5 | --size | '5'
        2 left.png right.png -o l.png --calibration rig.yaml --baseline 0 | --baseline '0' is not a length
        2 left.png right.png -o l.png --calibration rig.yaml --cameras 1 | --cameras | '1'
        3 left.png right.png -o l.png --calibration rig.yaml --fisheye | 5 distortion coefficients, expected 4
        3 left.png right.png -o l.png --calibration small.yaml | for 320x200 px | 400x300 px | aspect ratios
        2 left.png right.png -o old/ --uncalibrated --overwrite | old/calibration.yaml exists | another folder
        2 lefts rights -o old/ --uncalibrated --overwrite | old/calibration.yaml exists | name another folder
    """
    calibrated = (
        "calibration rig.yaml",
        "output-calibration new.yaml",
        "cameras 1:0",
        "baseline 0.1",
        "alpha 0",
    )
    for option in (*calibrated, "fov 60", "fisheye"):
        words = f"left.png right.png -o l.png --{option} --uncalibrated"
        table += f"\n 2 {words} | --uncalibrated and --{option.split()[0]}"
    refuse_all(table, "rectify -q")


def test_a_right_video_alone_has_its_calibration_beside_it(rig: Path) -> None:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    for side in ("left", "right"):
        write_video(Path(f"{side}.mkv"), [read_image(Path(f"{side}.png")).pixels] * 2)
    Path("rig.yaml").rename("calibration.yaml")
    command = ["rectify", "left.mkv", "right.mkv", "--calibration", "calibration.yaml", "--overwrite"]
    with unchanged():
        refuse(pam(*command, "--output-right", "out.mkv"), 2, "calibration.yaml")
    succeed(*command, "--output-right", "out/r.mkv")
    assert names("out") == ["calibration.yaml", "r.mkv"]
