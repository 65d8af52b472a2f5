"""Rigs are recovered from the corners of boards, with a realistic uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from simulated_rigs import make_chessboard, make_rig, measure_row_errors, photograph, sample_poses

from pamcli.calibration.board_calibration import BoardCalibration, build_rig, calibrate_rig, leave_out_each
from pamcli.calibration.boards import Board, Detection
from pamcli.calibration.bundle_adjustment import Corners, Problem, fit_rig
from pamcli.calibration.files import encode_rig, read_calibration
from pamcli.calibration.report import (
    collect_facts,
    count_boards,
    find_dark_regions,
    format_facts,
    list_advice,
    measure_coverage,
    select_file_facts,
)
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
    points: np.ndarray = BOARD.points,
    seed: int = 0,
) -> list[Sighting]:
    """Sightings by both cameras, with noise. moved: metres by which boards move between both exposures."""
    random = np.random.default_rng(seed)
    found = []
    for number, (rotation, translation) in enumerate(poses):
        views: list[Detection | None] = []
        for side, camera in enumerate((rig.left, rig.right)):
            place = points @ rotation.T + translation
            if side:
                place = (place + (moved or {}).get(number, 0)) @ rig.rotation.T + rig.translation
            pixels = camera.project(place)
            inside = ((pixels > 4) & (pixels < np.array(rig.size) - 5)).all()
            pixels = pixels + random.normal(0, NOISE, pixels.shape)
            views.append(Detection(Corners(np.arange(54), pixels), 1.6) if inside else None)
        if any(views):
            found.append(Sighting(f"{number:04}", views[0], views[1]))
    return found


def calibrate(rig: Rig, given: Sequence[Sighting] | int, poses: int = 3, **options: Any) -> BoardCalibration:
    """Calibrate with sightings, or with a number of random ones. poses: seed of their poses."""
    if isinstance(given, int):
        given = sightings(rig, sample_poses(rig, given, poses), **options)
    return calibrate_rig(given, BOARD, rig.size, fisheye=rig.left.fisheye)


@pytest.fixture(scope="module")
def pinhole() -> Rig:
    return make_rig(3)


@pytest.fixture(scope="module", params=[False, True], ids=["pinhole", "fisheye"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return make_rig(3, fisheye=request.param)


@pytest.fixture(scope="module")
def made(rig: Rig) -> BoardCalibration:
    return calibrate(rig, 20)


def test_rig_is_recovered(rig: Rig, made: BoardCalibration) -> None:
    for found, true in ((made.rig.left, rig.left), (made.rig.right, rig.right)):
        np.testing.assert_allclose(found.matrix[[0, 1], [0, 1]], true.matrix[[0, 1], [0, 1]], rtol=1e-3)
        np.testing.assert_allclose(found.matrix[:2, 2], true.matrix[:2, 2], atol=0.5)
    assert made.rig.baseline == pytest.approx(rig.baseline, rel=1e-3)
    assert made.error == pytest.approx(NOISE * np.sqrt(2), rel=0.1)
    assert made.uncertainty.left_out_error == pytest.approx(made.error, rel=0.15)
    assert made.uncertainty.left_out_error > made.error
    assert made.rows["rms"] == pytest.approx(NOISE * np.sqrt(2), rel=0.25)
    assert made.rows["rms"] < made.rows["p95"] < made.rows["worst"]
    assert measure_row_errors(rig, made.rig).max() < 0.2
    assert (made.rejections, made.misfits) == ([], 0)
    assert not any("lens fits" in each for each in list_advice(made))


def test_fit_of_clean_corners_equals_opencv(pinhole: Rig) -> None:
    both = [each for each in sightings(pinhole, sample_poses(pinhole, 20, 3)) if each.both]
    views = [(each.left.corners, each.right.corners) for each in both]
    problem = Problem(views, BOARD.points, pinhole.size, False)
    solution = fit_rig(problem)
    solution = problem.solve(solution.shared, solution.poses, robust=False)
    found = build_rig(solution.shared, problem)
    points = [BOARD.points.astype(np.float32)] * len(views)
    left, right = ([view[side].pixels.astype(np.float32) for view in views] for side in (0, 1))
    k1, k2 = (camera.matrix.copy() for camera in (pinhole.left, pinhole.right))
    d1, d2 = (camera.distortion.copy() for camera in (pinhole.left, pinhole.right))
    stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 200, 1e-12)
    _, k1, _, k2, _, rotation, translation, *_ = cv2.stereoCalibrate(
        points, left, right, k1, d1, k2, d2, pinhole.size,
        flags=cv2.CALIB_USE_INTRINSIC_GUESS, criteria=stop,
    )  # fmt: skip
    np.testing.assert_allclose(found.left.matrix, k1, rtol=2e-5, atol=2e-2)
    np.testing.assert_allclose(found.right.matrix, k2, rtol=2e-5, atol=2e-2)
    np.testing.assert_allclose(found.translation, translation.ravel(), atol=2e-6)
    np.testing.assert_allclose(found.rotation, rotation, atol=2e-5)


def test_leave_out_equals_a_new_fit(made: BoardCalibration) -> None:
    shared = leave_out_each(made.solution)
    for number in (0, len(shared) // 2):
        stays = [index for index in range(len(made.sightings)) if index != number]
        less = replace(made.problem, views=[made.problem.views[index] for index in stays])
        again = less.solve(made.solution.shared, made.solution.poses[stays], robust=False)
        moved = again.shared - made.solution.shared
        # The step is to first order: it ends within a tenth of its length of the new fit.
        weights = 1 / np.maximum(np.abs(made.solution.shared), 1e-3)
        step = (shared[number] - made.solution.shared) * weights
        assert np.linalg.norm(step - moved * weights) < 0.1 * np.linalg.norm(moved * weights) + 1e-7


def test_errors_are_within_twice_the_uncertainty() -> None:
    """It does as often as the normal distribution has it, 95 %, or a little more: jackknives are cautious."""
    within = []
    for seed, fisheye in ((20, False), (21, True)):
        rig = make_rig(seed, fisheye=fisheye)
        found = calibrate(rig, 16, seed, seed=seed)
        for number, (camera, true) in enumerate(((found.rig.left, rig.left), (found.rig.right, rig.right))):
            for axis in (0, 1):
                off = camera.matrix[axis, axis] - true.matrix[axis, axis]
                within.append(abs(off) < 2 * found.uncertainty.focal[number][axis])
        within.append(abs(found.rig.baseline - rig.baseline) < 2 * found.uncertainty.baseline)
    assert 0.88 < np.mean(within) <= 1


def test_boards_that_moved_are_rejected(pinhole: Rig) -> None:
    moves = {3: (0.004, 0, 0), 9: (0, 0.01, 0.01), 14: (0.001, 0, 0)}
    found = calibrate(pinhole, 16, moved=moves)
    assert [each.name for each in found.rejections] == ["0003", "0009", "0014"]
    assert all("the board moved between the two exposures" in each.reason for each in found.rejections)
    assert found.rig.baseline == pytest.approx(pinhole.baseline, rel=1e-3)
    assert "in 3 pairs the board moved" in list_advice(found)[0]


def test_wrong_corners_are_rejected(pinhole: Rig) -> None:
    given = sightings(pinhole, sample_poses(pinhole, 14, 3))
    given[4].left.corners.pixels[[10, 20]] += [[5, 3], [-2, 2]]
    given[7].left.corners.pixels[:] += np.random.default_rng(1).normal(0, 4, (54, 2))
    found = calibrate(pinhole, given)
    assert [(each.name, each.reason.split(" by ")[0]) for each in found.rejections] == [
        ("0007", "corners are off")
    ]
    assert found.corners_left_out == 2
    assert found.misfits == 2 + sum(len(each.corners) for each in (given[7].left, given[7].right) if each)
    assert found.error == pytest.approx(NOISE * np.sqrt(2), rel=0.1)


def test_blurred_boards_are_rejected(pinhole: Rig) -> None:
    given = sightings(pinhole, sample_poses(pinhole, 12, 3))
    given[2] = replace(given[2], left=replace(given[2].left, blur=9.0))
    found = calibrate(pinhole, given)
    assert [(each.name, each.reason) for each in found.rejections] == [
        ("0002", "blurred: edges are 9 px wide, those of most boards 1.6 px")
    ]


def test_wrong_lens_model_is_advised_against() -> None:
    # The other way round, a fisheye's polynomial can be nearly that of a pinhole's weak distortion.
    rig = make_rig(12, fisheye=True)
    given = sightings(rig, sample_poses(rig, 10, 3))
    try:
        tips = list_advice(calibrate_rig(given, BOARD, rig.size))
    except InputError as error:
        tips = [str(error.hint)]
    assert "lens fits to 0.04 px" in tips[0]
    assert "use `fisheye`" in tips[0]


def test_swapped_cameras_and_too_few_boards_raise(pinhole: Rig) -> None:
    given = sightings(pinhole, sample_poses(pinhole, 12, 3))
    exchanged = [Sighting(each.name, each.right, each.left) for each in given]
    with pytest.raises(InputError, match=r"the images are swapped: .*0\.192\d* m.* \(swap LEFT"):
        calibrate(pinhole, exchanged)
    few = [*[each for each in given if each.both][:2], Sighting("alone", given[0].left, None)]
    seen = "in 2 image pairs, at least 5 are required; the left one sees it in 3, the right one in 2"
    with pytest.raises(InputError, match=seen):
        calibrate(pinhole, few)
    with pytest.raises(InputError, match="no image shows the board"):
        calibrate(pinhole, [])


def test_advice_names_missing_boards(pinhole: Rig) -> None:
    given = sightings(pinhole, sample_poses(pinhole, 40, 3))

    def in_the_corner(found: Detection | None) -> bool:
        places = np.zeros((1, 2)) if found is None else found.corners.pixels / pinhole.size
        return bool(((places[:, 0] > 0.73) & (places[:, 1] < 0.27)).any())

    found = calibrate(pinhole, [each for each in given if not in_the_corner(each.left)])
    tips = list_advice(found)
    assert "boards in the upper right corner of the left image: 0, take 3 more there" in tips
    counts = count_boards(found.camera_corners(0), pinhole.size)
    assert counts["upper right corner"] == 0
    assert counts["middle"] > 3
    assert list_advice(found, [{"upper right corner"}, set()]) == [
        each for each in tips if "upper right corner of the left" not in each
    ]
    assert 0.3 < measure_coverage(found.camera_corners(0), pinhole.size) < 1
    few = calibrate(pinhole, given[:9])
    assert any(
        each.startswith(f"both cameras see the board in {few.pairs} pairs: take at least 15")
        for each in list_advice(few)
    )


def test_advice_on_flat_poses_and_bent_boards(pinhole: Rig) -> None:
    flat: Poses = [
        (np.eye(3), np.array([x, y, z]))
        for x in np.linspace(-0.3, 0.1, 3)
        for y in (-0.2, 0)
        for z in (0.6, 0.7)
    ]
    assert any("tilt" in each for each in list_advice(calibrate(pinhole, sightings(pinhole, flat))))
    bent = BOARD.points.copy()
    bent[:, 2] = 0.003 * ((bent[:, 0] - 0.12) / 0.12) ** 2
    found = calibrate(pinhole, 14, points=bent)
    assert found.error > 0.5
    assert "stiff, flat plate" in list_advice(found)[0]


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


def test_report(made: BoardCalibration) -> None:
    facts = collect_facts(made, BOARD, [], ["do this"])
    lines = dict(format_facts(facts))
    assert facts["pairs_used"] == made.pairs <= len(made.sightings) == facts["boards_used"]
    assert lines["reprojection error"].startswith(f"{made.error:.3f} px")
    assert lines["baseline"] == f"{1000 * made.rig.baseline:.3f} +- {1000 * made.uncertainty.baseline:.3f} mm"
    assert facts["to_improve"] == ["do this"]


def test_calibration_from_images() -> None:
    rig = make_rig(6, size=(400, 250))
    board, poses = Board(9, 6, 0.03), sample_poses(rig, 12, 6)
    found = SightingCollector(board)
    for number, (left, right) in enumerate(
        photograph(rig, make_chessboard(9, 6, 0.03), poses, 6, {4: (9, 3)})
    ):
        found.add(f"{number:02}", *(np.repeat(view[..., None], 3, axis=2) for view in (left, right)))
    plain = np.full((250, 400, 3), 100, np.uint8)
    found.add("nothing", plain, plain)
    found.reject("torn", InputError("torn.png is truncated"))
    assert [each.name for each in found.rejections] == ["nothing", "torn"]
    assert found.require_sightings() == (400, 250)
    with pytest.raises(InputError, match=r"other is 399x250 px.*400x250"):
        found.add("other", plain[:, 1:], plain[:, 1:])
    result = calibrate_rig(found.sightings, board, (400, 250))
    assert [each.name for each in result.rejections] == ["04"]
    assert result.rejections[0].reason.startswith("blurred")
    assert result.error < 0.08
    assert result.rig.left.matrix[0, 0] == pytest.approx(rig.left.matrix[0, 0], rel=0.005)
    assert result.rig.baseline == pytest.approx(rig.baseline, rel=0.003)
    assert measure_row_errors(rig, result.rig).max() < 0.2
    assert result.pairs >= 5


def test_images_of_two_sizes_are_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"3: the left image is 40x30 px, the right one 20x15 px.*resize"):
        SightingCollector(Board(9, 6, 0.03)).add("3", np.zeros((30, 40, 3)), np.zeros((15, 20, 3)))
