"""`pam doctor LEFT RIGHT --calibration FILE`: a line for each finding, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import photo_files
import pytest
import stereo_files
from pam_program import pam, refuse_all
from PIL import Image
from simulated_rigs import WALL, make_rig, photograph_room

from pamcli.calibration.files import encode_rig
from pamcli.calibration.rig import Rig

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
PAIR = ("left.png", "right.png", "--calibration", "rig.yaml")


@pytest.fixture(scope="module")
def rig() -> Rig:
    return make_rig(4, size=(400, 250))


@pytest.fixture(scope="module")
def views(rig: Rig) -> tuple[np.ndarray, np.ndarray]:
    return photograph_room(rig)


@pytest.fixture
def taken(here: Path, rig: Rig, views: tuple[np.ndarray, np.ndarray]) -> Path:
    for name, view in zip(("left.png", "right.png"), views, strict=True):
        Image.fromarray(view).save(here / name)
    (here / "rig.yaml").write_bytes(encode_rig(rig, {}))
    return here


def test_a_right_calibration_ends_with_0(taken: Path) -> None:
    run = pam("doctor", *PAIR)
    assert run.code == 0, run.stderr
    assert [line.split(": ")[0] for line in run.lines] == [
        "ok    size",
        "ok    rows",
        "ok    left and right",
        "look  baseline",
    ]
    assert run.lines[-1].endswith("state --known-length")
    (found,) = pam("doctor", *PAIR, "--json").records
    assert found["ok"] is True
    assert [each["verdict"] for each in found["findings"]] == ["ok", "ok", "ok", "look"]


def test_what_is_wrong_ends_with_3(taken: Path) -> None:
    run = pam("doctor", "right.png", "left.png", "--calibration", "rig.yaml")
    assert run.code == 3
    assert run.lines[-1].startswith("WRONG left and right: ")
    assert run.lines[-1].endswith(" -> swap the two images")
    run = pam("doctor", *PAIR, "--baseline", "120", "--json")
    assert run.code == 3
    (found,) = run.records
    assert found["ok"] is False
    assert found["findings"][-1]["do"].endswith("--baseline 120mm")


def test_known_lengths(taken: Path, rig: Rig) -> None:
    ends = np.array([[0.5, -0.3, WALL], [1.2, 0.1, WALL]])
    pixels = ",".join(f"{value:.1f}" for value in rig.left.project(ends).ravel())
    metres = float(np.linalg.norm(ends[0] - ends[1]))
    run = pam("doctor", *PAIR, "--known-length", f"{pixels}={100 * metres:.1f}cm")
    assert run.code == 0, run.stdout
    assert run.lines[-1].startswith("ok    known length ")
    run = pam("doctor", *PAIR, "--known-length", f"{pixels}={2 * metres:.3f}m")
    assert run.code == 3
    assert "distances are 0.5" in run.lines[-1]
    assert "--baseline 0.1" in run.lines[-1]


def test_refusals(taken: Path) -> None:
    Image.new("RGB", (64, 48)).save("small.png")
    table = """
        2 left.png | expected a left and a right image, got 1 | --packed
        2 left.png right.png --packed lr | expected one image, got 2
        2 --calibration rig.yaml | --calibration requires an image pair | LEFT RIGHT
        2 left.png right.png --baseline 1 | --baseline requires --calibration
        2 left.png right.png --gpu-check | cannot use both --gpu-check and images
        2 left.png right.png --calibration rig.yaml --known-length 1,2,3=4m | X1,Y1,X2,Y2=LENGTH | '1,2,3=4m'
        2 left.png right.png --calibration rig.yaml --known-length 1,2,1,2=4m | --known-length | X1,Y1,X2,Y2
        2 left.png right.png --calibration rig.yaml --known-length 1,2,3,4=4x | '4x' is not a length
        3 left.png right.png --calibration none.yaml | none.yaml
        3 left.png small.png --calibration rig.yaml | small.png
        3 left.png none.png --calibration rig.yaml | none.png
    """
    refuse_all(table, "doctor")


def test_a_photo_is_checked_with_the_calibration_that_it_states(here: Path) -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")
    views = [np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB")) for side in ("left", "right")]
    views = [view[100:260, 160:400] for view in views]
    cameras = [photo_files.camera(1.2, 0.5, 0.5, (0, 0, 0)), photo_files.camera(1.2, 0.5, 0.5, (19200, 0, 0))]
    Path("IMG_1.HEIC").write_bytes(photo_files.spatial(photo_files.heic(*views), cameras))
    run = pam("doctor", "IMG_1.HEIC")
    assert run.code == 0, run.stderr
    assert [line.split(": ")[0] for line in run.lines][:3] == [
        "ok    size",
        "ok    rows",
        "ok    left and right",
    ]
    assert "19.2 mm" in run.stdout.decode()
    assert "40 mm" in pam("doctor", "IMG_1.HEIC", "--baseline", "40mm").stdout.decode()


def test_an_mpo_is_checked_without_calibration(here: Path) -> None:
    left, right = (
        np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB"))[100:260, 160:400]
        for side in ("left", "right")
    )
    Path("a.mpo").write_bytes(stereo_files.mpo(stereo_files.jpeg(left), stereo_files.jpeg(right)))
    run = pam("doctor", "a.mpo")
    assert run.code == 0, run.stderr
    assert "a.mpo does not state its calibration" in run.stderr
    Path("b.mpo").write_bytes(stereo_files.mpo(stereo_files.jpeg(right), stereo_files.jpeg(left)))
    assert pam("doctor", "b.mpo").code == 3


def test_an_image_with_both_views_is_checked(taken: Path, views: tuple[np.ndarray, np.ndarray]) -> None:
    Image.fromarray(np.concatenate(views[::-1], axis=1)).save("crossed.png")
    run = pam("doctor", "crossed.png", "--packed", "lr")
    assert run.code == 3, run.stderr
    assert any(line.startswith("WRONG") and "uncalibrated" in line for line in run.lines), run.lines
