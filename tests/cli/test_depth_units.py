"""One option for the unit of disparity files: in pam depth, pam eval, pam dataset and pairs:."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from pam_program import Run, pam, refuse
from PIL import Image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
MAP = np.add.outer(np.linspace(20, 40, 60), np.linspace(0, 20, 80))


def depth(*arguments: str) -> Run:
    return pam(
        "depth", *arguments, "--focal", "700", "--baseline", "0.12m", "--depth", "z.npy", "--overwrite"
    )


@pytest.mark.parametrize(
    ("units", "said"),
    [(16, "--scale 16 (OpenCV's StereoSGBM)"), (100, "PNG files are read with 256 units per px")],
)
def test_depth_of_files_in_other_units(here: Path, units: int, said: str) -> None:
    cv2.imwrite("d.png", np.rint(MAP * units).astype(np.uint16))
    assert said in depth("d.png").stderr
    assert depth("d.png", "--scale", str(units)).complaints == []
    metres = np.load("z.npy")
    assert (metres.min(), metres.max()) == pytest.approx((1.4, 4.2), rel=0.01)
    refuse(depth("d.png", "--prediction-scale", "16"), 2, "did you mean --scale?")


def test_opencv_integers_and_their_marker_become_no_wall(here: Path) -> None:
    numbers = np.rint(MAP * 16).astype(np.int16)
    numbers[:, 30:39] = -16
    np.save("d.npy", numbers)
    assert "are -1 px and are treated as unknown" in depth("d.npy").stderr
    metres = np.load("z.npy")
    assert np.isnan(metres[:, 30:39]).all()
    assert (np.nanmin(metres), np.nanmax(metres)) == pytest.approx((1.4, 4.2), rel=0.01)


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
    assert pam("dataset verify pairs:set?scale=100").code == 0
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
        assert pam("depth", "d.npy", *camera, "-o", place).code == 0
        assert pam("depth", place, *camera, "--invert", "-o", f"{place}.npy").code == 0
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
    for point, said in (("159.5,119.5", "multiply the calibration by 0.25"), ("42,28", ""), ("159,40", "")):
        run = pam(
            "depth", "d.npy", "--focal", "700", "--baseline", "1", "--principal-point", point, "--at", "1,2"
        )
        assert ("multiply" in run.stderr) == bool(said)
        assert said in run.stderr
    assert (
        "(--focal 175 and --principal-point 39.875,29.875)"
        in pam(
            *(
                "depth",
                "d.npy",
                "--focal",
                "700",
                "--baseline",
                "1",
                "--principal-point",
                "159.5,119.5",
                "--at",
                "1,2",
            )
        ).stderr
    )


def test_a_stated_marker_becomes_unknown(here: Path) -> None:
    numbers = MAP.astype(np.float32)
    numbers[:, 30:39] = 25.5
    np.save("d.npy", numbers)
    depth("d.npy", "--scale", "1")
    assert np.isfinite(np.load("z.npy")).all()
    assert depth("d.npy", "--scale", "1", "--invalid", "25.5").complaints == []
    metres = np.load("z.npy")
    assert np.isnan(metres[:, 30:39]).all()
    assert np.isfinite(metres[:, :30]).all()
