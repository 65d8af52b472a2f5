"""The checks of rendered pairs find wrong ground truth, and the meshes are sound, without Blender."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pamcli.data.open import open_data

SCRIPTS = Path(__file__).parents[1] / "scripts" / "training"
sys.path += [str(SCRIPTS), str(SCRIPTS / "rooms")]
import render_rooms  # noqa: E402

Arrays = list[np.ndarray]


def render_square() -> Arrays:
    """A textured wall at 6 px with a textured square at 14 px in front: images and disparities."""
    rng = np.random.default_rng(0)
    wall, square = (rng.integers(40, 220, (64, 160, 3), np.uint8) for _ in range(2))
    left, right = wall.copy(), np.roll(wall, -6, axis=1)
    disparity, right_disparity = (np.full((64, 160), 6, np.float32) for _ in range(2))
    left[20:44, 60:90] = square[20:44, 60:90]
    right[20:44, 46:76] = square[20:44, 60:90]
    disparity[20:44, 60:90] = right_disparity[20:44, 46:76] = 14
    return [left, right, disparity, right_disparity]


def test_a_right_pair_is_kept() -> None:
    pair = render_square()
    assert render_rooms.find_fault(*pair) is None
    visible, contradictory = render_rooms.compare_disparities(*pair[2:])
    assert not contradictory.any()
    assert not visible[30, 52:60].any()  # occluded by the square in the right image
    assert visible[30, 62:88].all()


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (slice(2, 4), lambda values: values + 1, "fit the images better with -1 px"),
        (slice(2, 4), lambda values: values * 1.25, "fit the images better"),
        (slice(3, 4), lambda values: values - 2, "contradict"),
        (slice(3, 4), np.fliplr, "contradict"),
        (slice(0, 2), np.zeros_like, "the left image is blank"),
        (slice(2, 3), lambda values: values - 6, "ranges from 0 to 8 px"),
    ],
)
def test_a_wrong_pair_is_not_kept(index: slice, change: object, message: str) -> None:
    pair = render_square()
    pair[index] = map(change, pair[index])
    fault = render_rooms.find_fault(*pair)
    assert fault is not None
    assert message in fault


def test_written_pairs_are_read_with_the_ground_truth_of_both_images(tmp_path: Path) -> None:
    left, right, disparity, right_disparity = render_square()
    render_rooms.write_pair(tmp_path, 7, (left, right), (disparity, right_disparity))
    sample = open_data(f"pairs:{tmp_path}").load(0)
    assert sample.name == "00007"
    np.testing.assert_array_equal(sample.right, right)
    np.testing.assert_array_equal(sample.right_disparity, right_disparity)
    assert all(path.exists() for path in render_rooms.list_files(tmp_path, 7))
