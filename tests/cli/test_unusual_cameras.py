"""Pairs of unusual cameras: 16 bits of low contrast, one camera above the other, images of two sizes."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from pam_program import pam, refuse
from PIL import Image

import pamcli

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"

PAIR = ["left.png", "right.png"]

pytestmark = pytest.mark.usefixtures("networks")


def sample() -> list[np.ndarray]:
    return [np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB")) for side in ("left", "right")]


def put(left: np.ndarray, right: np.ndarray) -> None:
    for name, view in (("left.png", left), ("right.png", right)):
        cv2.imwrite(name, view[..., ::-1] if view.ndim == 3 else view)


@pytest.mark.parametrize(("darkest", "step"), [(51240, 1), (0, 16), (100, 4)], ids=["thermal", "12", "10"])
def test_16_bits_of_low_contrast_are_stretched_and_announced(here: Path, darkest: int, step: int) -> None:
    grey = [cv2.cvtColor(view[150:214, 200:320], cv2.COLOR_RGB2GRAY).astype(np.uint16) for view in sample()]
    raw = [darkest + step * view for view in grey]
    raw[0][0, 0] = 65535  # a hot pixel
    low, high = np.percentile(np.concatenate([view.ravel() for view in raw]), (0.1, 99.9))
    put(*raw)
    run = pam("disparity", "left.png", "right.png", "-o", "raw.npy")
    assert f"levels {low:.0f} to {high:.0f} become 0 to 65535" in run.stderr
    put(*[((view - low) / (high - low) * 65535).clip(0, 65535).astype(np.uint16) for view in raw])
    assert pam("disparity", "left.png", "right.png", "-o", "stretched.npy").complaints == []
    off = np.abs(np.load("raw.npy") - np.load("stretched.npy"))
    assert np.quantile(off, 0.95) < 0.5


def test_arrays_of_low_contrast_are_stretched_too() -> None:
    left, right = (view[150:214, 200:296].astype(np.uint16) for view in sample())
    matcher = pamcli.StereoMatcher.load(device="cpu")
    stretched = matcher(left * 257, right * 257).disparity
    raw = matcher(51240 + left, 51240 + right).disparity
    assert np.quantile(np.abs(raw - stretched), 0.9) < 1


def test_super_resolution_keeps_the_levels_of_the_file(here: Path) -> None:
    grey = [cv2.cvtColor(view[150:190, 200:260], cv2.COLOR_RGB2GRAY).astype(np.uint16) for view in sample()]
    views = [51240 + view for view in grey]
    views[0][10, 10:12] = 65535  # hot, outside of the stretched levels
    put(*views)
    run = pam("superres", "left.png", "right.png", "--scale", "2", "-o", "x.png")
    assert "images of low contrast are stretched" in run.stderr
    found = cv2.imread("x.png", cv2.IMREAD_UNCHANGED)
    assert (found.dtype, found.shape) == (np.uint16, (80, 120))
    assert found[20:22, 20:24].min() > 60000
    found = found[40:]
    assert 51240 <= found.min() < found.max() <= 51240 + 255
    assert abs(float(found.mean()) - 51240 - float(grey[0][20:].mean())) < 2


def test_cameras_above_each_other(here: Path) -> None:
    left, right = (view[150:230, 200:320] for view in sample())
    put(left, right)
    assert pam("disparity", "left.png", "right.png", "-o", "flat.npy").code == 0
    put(*(np.rot90(view, -1) for view in (left, right)))
    for command, result in (("disparity", "x.npy"), ("superres", "x.png")):
        refuse(pam(command, "left.png", "right.png", "-o", result), 3, "one camera is above", "--vertical")
    doctor = pam("doctor", "left.png", "right.png")
    assert doctor.code == 3
    assert "use --vertical" in doctor.stdout.decode()
    run = pam("disparity", "left.png", "right.png", "--vertical", "-o", "upright.npy", "--visible", "v.png")
    assert run.code == 0, run.stderr
    np.testing.assert_allclose(np.load("upright.npy"), np.rot90(np.load("flat.npy"), -1), atol=1e-3)
    assert cv2.imread("v.png").shape[:2] == (120, 80)
    larger = pam("superres", "left.png", "right.png", "--vertical", "--scale", "2", "-o", "x.png")
    assert larger.code == 0, larger.stderr
    assert cv2.imread("x.png").shape[:2] == (240, 160)


def test_images_of_different_sizes_get_one_clear_line(here: Path) -> None:
    left, right = (view[:60, :80] for view in sample())
    put(left, right[:50])
    said = "left.png is 80x60 but right.png is 80x50: both images of a rectified pair must have the same size"
    for command in (["disparity", "-o", "x.npy"], ["superres", "-o", "x.png"], ["doctor"]):
        run = pam(command[0], "left.png", "right.png", *command[1:])
        refuse(run, 3, f"error: {said} (resize or crop both to one size", "pam rectify --calibration FILE")


def test_every_command_has_the_same_diagnosis(here: Path) -> None:
    left, right = sample()
    put(left[150:300, 300:600], right[150:300, 210:510])  # behind the stereo window
    run = pam("disparity", *PAIR, "-o", "a.npy", "--jsonl", "--quiet")
    (warning,) = run.records[0]["warnings"]
    shifted = r"(the pair is shifted: \d+ % of the matches have disparities below 0 px)"
    found = re.match(f"{shifted}: use --min-disparity (-\\d+)", warning)
    assert found, warning
    said, lowest = found.groups()
    assert run.complaints == [f"warning: left.png: {warning}"]
    assert f"{said} -> use --min-disparity {lowest}" in pam("doctor", *PAIR).stdout.decode()
    assert pam("disparity", *PAIR, "-o", "b.npy", "--min-disparity", lowest).complaints == []
    put(left[100:220, 300:500], right[94:214, 300:500])  # a small crop, its right image 6 px lower
    said = "px lower in the right image, so the pair is not rectified"
    runs = pam("disparity -o c.npy", *PAIR), pam("superres --scale 2 -q -o c.png", *PAIR)
    assert all(len(run.complaints) == 1 and said in run.stderr for run in runs)
    assert "the right image is 6." in pam("doctor", *PAIR).stdout.decode()
