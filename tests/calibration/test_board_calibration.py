"""Rigs are recovered from the corners of boards, with a realistic uncertainty."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from simulated_rigs import make_rig, sample_poses

from pamcli.calibration.board_calibration import BoardCalibration, calibrate_rig
from pamcli.calibration.boards import Board, Detection
from pamcli.calibration.bundle_adjustment import Corners
from pamcli.calibration.files import encode_rig, read_calibration
from pamcli.calibration.report import find_dark_regions, list_advice, select_file_facts
from pamcli.calibration.rig import Rig
from pamcli.calibration.sightings import Sighting, SightingCollector
from pamcli.errors import InputError

BOARD = Board(9, 6, 0.03)
NOISE = 0.03
Poses = list[tuple[np.ndarray, np.ndarray]]


def sightings(
    rig: Rig,
    poses: Poses,
    *,
    moved: dict[int, tuple[float, float, float]] | None = None,
) -> list[Sighting]:
    """Sightings by both cameras, with noise. moved: metres by which boards move between both exposures."""
    random = np.random.default_rng(0)
    found = []
    for number, (rotation, translation) in enumerate(poses):
        views: list[Detection | None] = []
        for side, camera in enumerate((rig.left, rig.right)):
            place = BOARD.points @ rotation.T + translation
            if side:
                place = (place + (moved or {}).get(number, 0)) @ rig.rotation.T + rig.translation
            pixels = camera.project(place)
            inside = ((pixels > 4) & (pixels < np.array(rig.size) - 5)).all()
            pixels = pixels + random.normal(0, NOISE, pixels.shape)
            views.append(Detection(Corners(np.arange(54), pixels), 1.6) if inside else None)
        if any(views):
            found.append(Sighting(f"{number:04}", views[0], views[1]))
    return found


@pytest.fixture(scope="module")
def pinhole() -> Rig:
    return make_rig(3)


@pytest.fixture(scope="module", params=[False, True], ids=["pinhole", "fisheye"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return make_rig(3, fisheye=request.param)


@pytest.fixture(scope="module")
def made(rig: Rig) -> BoardCalibration:
    return calibrate_rig(sightings(rig, sample_poses(rig, 20, 3)), BOARD, rig.size, fisheye=rig.left.fisheye)


def test_rig_is_recovered(rig: Rig, made: BoardCalibration) -> None:
    sides = (made.rig.left, rig.left), (made.rig.right, rig.right)
    for (found, true), deviations in zip(sides, made.uncertainty.focal, strict=True):
        for axis, deviation in enumerate(deviations):
            assert deviation < 5e-4 * true.matrix[axis, axis]
            assert found.matrix[axis, axis] == pytest.approx(true.matrix[axis, axis], abs=3 * deviation)
        np.testing.assert_allclose(found.matrix[:2, 2], true.matrix[:2, 2], atol=0.5)
    assert made.uncertainty.baseline < 5e-4 * rig.baseline
    assert made.rig.baseline == pytest.approx(rig.baseline, abs=3 * made.uncertainty.baseline)
    assert made.error == pytest.approx(NOISE * np.sqrt(2), rel=0.1)
    assert made.uncertainty.left_out_error == pytest.approx(made.error, rel=0.15)
    assert made.uncertainty.left_out_error > made.error
    assert made.rows["rms"] == pytest.approx(NOISE * np.sqrt(2), rel=0.25)
    assert made.rows["rms"] < made.rows["p95"] < made.rows["worst"]
    np.testing.assert_allclose(made.rig.rotation, rig.rotation, atol=5e-4)
    np.testing.assert_allclose(made.rig.center, rig.center, atol=2e-3 * rig.baseline)
    assert (made.rejections, made.misfits) == ([], 0)
    assert not any("lens fits" in each for each in list_advice(made))


def test_spoiled_boards_and_corners_are_left_out(pinhole: Rig) -> None:
    moves = {3: (0.004, 0, 0), 9: (0, 0.01, 0.01)}
    given = sightings(pinhole, sample_poses(pinhole, 14, 3), moved=moves)
    given[2] = replace(given[2], left=replace(given[2].left, blur=9.0))
    given[4].left.corners.pixels[[10, 20]] += [[5, 3], [-2, 2]]
    given[7].left.corners.pixels[:] += np.random.default_rng(1).normal(0, 4, (54, 2))
    found = calibrate_rig(given, BOARD, pinhole.size)
    assert {each.name: each.reason.split(" by ")[0] for each in found.rejections} == {
        "0002": "blurred: edges are 9 px wide, those of most boards 1.6 px",
        "0003": "the cameras disagree",
        "0007": "corners are off",
        "0009": "the cameras disagree",
    }
    assert found.corners_left_out == 2
    assert found.error == pytest.approx(NOISE * np.sqrt(2), rel=0.1)
    assert found.rig.baseline == pytest.approx(pinhole.baseline, rel=1e-3)
    tips = list_advice(found)
    assert "in 2 pairs the board moved" in tips[0]
    assert f"both cameras see the board in {found.pairs} pairs: take at least 15" in tips


def test_advice_names_missing_boards(pinhole: Rig) -> None:
    def in_the_corner(found: Detection | None) -> bool:
        places = np.zeros((1, 2)) if found is None else found.corners.pixels / pinhole.size
        return bool(((places[:, 0] > 0.73) & (places[:, 1] < 0.27)).any())

    given = sightings(pinhole, sample_poses(pinhole, 24, 3))
    found = calibrate_rig([each for each in given if not in_the_corner(each.left)], BOARD, pinhole.size)
    tips = list_advice(found)
    assert "boards in the upper right corner of the left image: 0, take 3 more there" in tips
    assert list_advice(found, [{"upper right corner"}, set()]) == [
        each for each in tips if "upper right corner of the left" not in each
    ]


def test_wrong_lens_model_is_advised_against() -> None:
    # The other way round, a fisheye's polynomial can be nearly that of a pinhole's weak distortion.
    rig = make_rig(12, fisheye=True)
    given = sightings(rig, sample_poses(rig, 7, 3))
    try:
        tips = list_advice(calibrate_rig(given, BOARD, rig.size))
    except InputError as error:
        tips = [str(error.hint)]
    assert "lens fits to 0.04 px" in tips[0]
    assert "use `fisheye`" in tips[0]


def test_advice_on_flat_poses_and_large_errors(made: BoardCalibration) -> None:
    solution = made.solution
    flat = replace(solution, poses=np.zeros_like(solution.poses))
    assert any("tilted by less than 0 degrees" in each for each in list_advice(replace(made, solution=flat)))
    worse = [[None if each is None else 20 * each for each in view] for view in solution.residuals]
    tips = list_advice(replace(made, solution=replace(solution, residuals=worse)))
    assert "stiff, flat plate" in tips[0]


def test_dark_regions() -> None:
    y, x = np.mgrid[-1:1:40j, -1:1:60j]
    circle = np.where(x**2 + y**2 < 1, 130, 4).astype(np.uint8)
    assert find_dark_regions(circle) == set()
    small = np.where((1.2 * x) ** 2 + (1.2 * y) ** 2 < 1, 130, 4).astype(np.uint8)
    assert find_dark_regions(small) == {
        f"{a} {b} corner" for a in ("upper", "lower") for b in ("left", "right")
    }


def test_calibration_file_round_trip(made: BoardCalibration, tmp_path: object) -> None:
    path = tmp_path / "rig.yaml"
    path.write_bytes(encode_rig(made.rig, select_file_facts(made, BOARD)))
    stored = read_calibration(path)
    assert not stored.notes
    assert stored.rectified is None
    for found, wanted in ((stored.rig.left, made.rig.left), (stored.rig.right, made.rig.right)):
        np.testing.assert_allclose(found.matrix, wanted.matrix)
        np.testing.assert_allclose(found.distortion, wanted.distortion)
        assert found.fisheye == wanted.fisheye
    np.testing.assert_allclose(stored.rig.translation, made.rig.translation)
    assert stored.rig.size == made.rig.size
    file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    np.testing.assert_allclose(file.getNode("T").mat().ravel(), 1000 * made.rig.translation)
    np.testing.assert_allclose(file.getNode("K2").mat(), made.rig.right.matrix)
    assert file.getNode("length_unit").string() == "mm"
    assert file.getNode("baseline_deviation").real() == pytest.approx(1000 * made.uncertainty.baseline)


def test_images_of_two_sizes_and_without_a_board_are_refused() -> None:
    with pytest.raises(InputError, match=r"3: the left image is 40x30 px, the right one 20x15 px.*resize"):
        SightingCollector(BOARD).add("3", np.zeros((30, 40, 3)), np.zeros((15, 20, 3)))
    found = SightingCollector(BOARD)
    plain = np.full((250, 400, 3), 100, np.uint8)
    found.add("1", plain, plain)
    with pytest.raises(InputError, match=r"2 is 399x250 px.*400x250"):
        found.add("2", plain[:, 1:], plain[:, 1:])
    with pytest.raises(InputError, match="no image shows the board"):
        calibrate_rig(found.sightings, BOARD, (400, 250))
