"""Disparity files of other programs: units, markers of no measurement, implausible values."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.imaging.disparity_files import find_unit_problem, read_disparity, read_disparity_file

MAP = np.add.outer(np.linspace(20, 40, 60), np.linspace(0, 20, 80)).astype(np.float32)


def stored(path: Path, numbers: np.ndarray) -> Path:
    if path.suffix == ".npy":
        np.save(path, numbers)
    else:
        cv2.imwrite(str(path), numbers)
    return path


@pytest.mark.parametrize(
    ("name", "numbers", "scale"),
    [
        ("kitti.png", np.rint(MAP * 256).astype(np.uint16), None),
        ("sgbm.npy", np.rint(MAP * 16).astype(np.int16), None),
        ("sgbm.tif", np.rint(MAP * 16).astype(np.int16), None),
        ("sgbm.png", np.rint(MAP * 16).astype(np.uint16), 16),
        ("instereo2k.png", np.rint(MAP * 100).astype(np.uint16), 100),
        ("middlebury.png", np.rint(MAP * 4).astype(np.uint8), 4),
        ("levels.npy", np.rint(MAP * 64).astype(np.uint16), 64),
        ("negative.npy", -MAP, -1),
        ("pixels.npy", MAP.astype(np.float64), None),
    ],
)
def test_units(tmp_path: Path, name: str, numbers: np.ndarray, scale: float | None) -> None:
    found = read_disparity_file(stored(tmp_path / name, numbers), scale=scale)
    np.testing.assert_allclose(found.disparity, MAP, atol=0.13)
    assert found.warnings == []


def test_integers_that_do_not_say_their_unit_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"of unknown scale .*`scale` N"):
        read_disparity(stored(tmp_path / "a.npy", (MAP * 4).astype(np.uint16)))
    for scale in (0, 1e300, 1e-300, float("nan")):
        with pytest.raises(UsageError, match="`scale`"):
            read_disparity(tmp_path / "a.npy", scale=scale)


@pytest.mark.parametrize("marker", [0.0, -1.0, -17.0, 9999.0, np.nan, np.inf, -np.inf])
def test_markers_are_no_wall(tmp_path: Path, marker: float) -> None:
    hidden = np.zeros(MAP.shape, bool)
    hidden[:, :9] = True
    found = read_disparity_file(stored(tmp_path / "a.npy", np.where(hidden, np.float32(marker), MAP)))
    assert np.array_equal(np.isnan(found.disparity), hidden)
    said = [f"11 % of the pixels are {marker:g} px and are treated as unknown"]
    assert found.warnings == (said if np.isfinite(marker) else [])


def test_which_values_are_markers(tmp_path: Path) -> None:
    def read(numbers: np.ndarray) -> np.ndarray:
        return read_disparity_file(stored(tmp_path / "a.npy", numbers)).disparity

    beyond = np.rint(MAP * 256).astype(np.float32)
    beyond[-9:] = beyond.max()
    assert np.isfinite(read(beyond)).all()
    lowest = np.rint(MAP * 16).astype(np.int16)
    lowest[:, :9] = 15 * 16  # OpenCV's lowest disparity less one: minDisparity 16
    assert np.isnan(read(lowest)[:, :9]).all()
    levels = np.where(MAP < 40, 5, 11).astype(np.float32)  # a wall, in whole pixels as in old ground truth
    assert np.array_equal(read(levels), levels)
    both = MAP.copy()
    both[:, :9], both[:3, 9:] = 0, 1e6
    assert np.array_equal(np.isnan(read(both)), both != MAP)


@pytest.mark.parametrize(
    ("disparity", "read", "hint"),
    [
        (
            MAP / 16,
            256,
            "disparities of 1.49 to 3.51 px are implausible in an image 80 px wide; `scale` 16 (OpenCV",
        ),
        (MAP * 16, 1, "`scale` 16 (OpenCV's StereoSGBM)"),
        (MAP / 80, 1, "`scale` 0.0125 if they are fractions of the width"),
        (-MAP, 1, "all disparities are negative; use `scale` -1"),
    ],
)
def test_implausible_values_name_the_likely_unit(disparity: np.ndarray, read: float, hint: str) -> None:
    assert hint in (find_unit_problem(disparity, read) or "")
    assert find_unit_problem(MAP, read) is None
