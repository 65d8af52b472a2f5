"""Corners of rendered boards are found where the made-up cameras see them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from simulated_rigs import make_charuco, make_chessboard, make_rig, photograph, sample_poses

from pamcli.calibration.boards import (
    Board,
    BoardDetector,
    Detection,
    align_corners,
    find_detector,
    guess_board,
)
from pamcli.calibration.bundle_adjustment import Corners
from pamcli.calibration.sightings import MOST_SIGHTINGS, Sighting, select_diverse
from pamcli.errors import InputError

SIZE = (560, 350)
CHESS = Board(9, 6, 0.03)
MARKED = Board(10, 7, 0.03, 0.022)


def test_corners_of_markers_are_accurate() -> None:
    rig = make_rig(3, fisheye=True, size=SIZE)
    (rotation, translation) = sample_poses(rig, 1, 3)[0]
    markers = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_5X5_100)
    flat = make_charuco(cv2.aruco.CharucoBoard((10, 7), 0.03, 0.022, markers))
    ((left, right),) = photograph(rig, flat, [(rotation, translation)], 3)
    found = find_detector(MARKED, [left, right]).detect(left)
    points = (MARKED.points + np.array([0.03, 0.03, 0])) @ rotation.T + translation
    off = np.abs(found.corners.pixels - rig.left.project(points)[found.corners.ids]).max(axis=1)
    assert len(off) > 30
    # Squares of 20 px leave three beside a marker: some corners are worse, and a fit drops them.
    assert np.median(off) < 0.1
    assert np.mean(off > 0.25) <= 0.2
    assert 0.8 < found.blur < 3.2


def test_dictionary_and_layout_are_detected() -> None:
    """AprilTags, on a board whose first square is white, as OpenCV before 4.6 made it."""
    rig = make_rig(4, size=SIZE)
    markers = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36H11)
    layout = cv2.aruco.CharucoBoard((10, 8), 0.03, 0.022, markers)
    layout.setLegacyPattern(True)
    ((left, _),) = photograph(rig, make_charuco(layout), sample_poses(rig, 1, 5), 4)
    board = Board(10, 8, 0.03, 0.022)
    detector = find_detector(board, [left])
    assert len(detector.detect(left).corners) > 0.6 * len(board.points)


def test_no_board_is_found_in_plain_images() -> None:
    plain = np.full(SIZE[::-1], 90, np.uint8)
    assert find_detector(MARKED, [plain]) is None
    assert guess_board(CHESS, [plain]) is None


@pytest.mark.parametrize("degrees", [0, 180])
def test_first_corner_is_at_the_dark_end(degrees: int) -> None:
    rig = make_rig(2, size=SIZE)
    rotation, translation = sample_poses(rig, 1, 8)[0]
    middle, turn = np.array([0.12, 0.075, 0]), cv2.Rodrigues(np.array([0, 0, np.radians(degrees)]))[0]
    turned = rotation @ turn, rotation @ (middle - turn @ middle) + translation
    ((left, _),) = photograph(rig, make_chessboard(9, 6, 0.03), [turned], 2)
    seen = rig.left.project(CHESS.points @ turned[0].T + turned[1])
    assert np.abs(BoardDetector(CHESS).detect(left).corners.pixels - seen).max() < 0.3


def test_symmetric_boards_are_aligned() -> None:
    board = Board(4, 4, 0.03)
    y, x = np.mgrid[0:4, 0:4] * 20.0
    left = np.stack([x + 100, y + 50], axis=-1)
    ids = np.arange(16)
    for seen in (left, left[::-1, ::-1], np.rot90(left), np.rot90(left, -1)):
        right = Corners(ids, np.ascontiguousarray(seen - [30, 2]).reshape(-1, 2))
        same = align_corners(board, Corners(ids, left.reshape(-1, 2)), right)
        np.testing.assert_array_equal(same.pixels, (left - [30, 2]).reshape(-1, 2))


@pytest.mark.parametrize(
    ("values", "message"),
    [((7, 2, 0.1), "3x3"), ((3, 2, 0.1, 0.05), "3x2"), ((5, 4, 0.1, 0.1), "`marker`.*smaller than `square`")],
)
def test_impossible_boards_raise(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Board(*values)


def test_diverse_frames_are_selected() -> None:
    rig = make_rig(5, size=SIZE)
    random = np.random.default_rng(0)
    sightings = []
    for number, (rotation, translation) in enumerate(sample_poses(rig, 40, 5)):
        pixels = rig.left.project(CHESS.points @ rotation.T + translation)
        for frame in range(4):  # the board is held nearly still
            corners = Corners(np.arange(54), pixels + random.normal(0, 0.2, pixels.shape))
            found = Detection(corners, 2.0)
            sightings.append(Sighting(f"{number}.{frame}", found, found))
    chosen = select_diverse(sightings, SIZE)
    assert len(chosen) == MOST_SIGHTINGS
    assert len({each.name.split(".")[0] for each in chosen}) > 37
    assert [each.name for each in chosen] == [each.name for each in sightings if each in chosen]
