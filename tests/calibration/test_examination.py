"""A right calibration passes the examination, and each fault is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest
from scenes import FLOOR, WALL, photograph_room
from simulated_rigs import make_rig, project_points

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.examination import KnownLength, examine
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.rig import Rig
from pamcli.calibration.row_offsets import summarize_row_offsets
from pamcli.imaging.matching import Matches
from pamcli.imaging.preflight import Finding

SIZE = (640, 400)
Views = tuple[np.ndarray, np.ndarray]
ENDS = np.array([[0.5, -0.3, WALL], [1.2, 0.1, WALL]])
"""Two points on the wall, in the left camera's coordinates, metres."""


@pytest.fixture(scope="module")
def rig() -> Rig:
    return make_rig(4, size=SIZE)


@pytest.fixture(scope="module")
def taken(rig: Rig) -> Views:
    return photograph_room(rig)


@pytest.fixture(scope="module")
def rectified(rig: Rig, taken: Views) -> tuple[np.ndarray, np.ndarray, Calibration]:
    found = rig.compute_rectification()
    assert found.calibration is not None
    return found.left(taken[0]), found.right(taken[1]), found.calibration


def store(cameras: Rig | None = None, pictures: Calibration | None = None) -> StoredCalibration:
    return StoredCalibration("a made-up one", cameras, pictures)


def by_topic(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {each.topic: each for each in findings}


def list_wrong(findings: Sequence[Finding]) -> list[str]:
    return [each.topic for each in findings if each.verdict == "wrong"]


def rotate_right(rig: Rig, degrees: Sequence[float]) -> Rig:
    """The rig as it would have been calibrated before its right camera turned back by these angles."""
    turn = cv2.Rodrigues(np.radians(degrees))[0]
    return replace(rig, rotation=turn @ rig.rotation, translation=turn @ rig.translation)


@pytest.mark.parametrize("fisheye", [False, True], ids=["pinhole", "fisheye"])
def test_a_right_calibration(fisheye: bool, rig: Rig, taken: Views) -> None:
    if fisheye:
        rig = make_rig(4, fisheye=True, size=SIZE)
        taken = photograph_room(rig)
    found = by_topic(examine(*taken, store(rig)))
    assert list_wrong(list(found.values())) == []
    assert found["size"].text == "640x400 px, as in the calibration"
    assert found["rows"].verdict == found["left and right"].verdict == "ok"
    assert float(found["rows"].text.split(" matches are ")[1].split(" px")[0]) < 0.15
    assert "median 4 m" in found["baseline"].text or fisheye
    assert ("ground" in found) == fisheye  # the other one sees the wall alone
    if fisheye:
        assert float(found["ground"].text.split()[2]) == pytest.approx(FLOOR, rel=0.06)


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        (
            (0, 0, 0.5),
            "the right image is rotated by 0.50 degrees counter-clockwise; largest in the lower left part",
        ),
        ((-0.3, 0, 0), "the right image is 4.1 px higher"),
    ],
)
def test_a_camera_that_turned_since(degrees: tuple[float, ...], said: str, rig: Rig, taken: Views) -> None:
    found = examine(*taken, store(rotate_right(rig, degrees)))
    assert list_wrong(found) == ["rows"]
    assert said in by_topic(found)["rows"].text
    assert "pam calibration make" in (by_topic(found)["rows"].do or "")


@pytest.mark.parametrize(
    ("slope", "shift", "said"),
    [
        (0.01, 0.0, "rotated by 0.57 degrees clockwise"),
        (-0.01, 0.0, "rotated by 0.57 degrees counter-clockwise"),
        (0.0, 4.0, "4.0 px lower"),
        (0.0, -4.0, "4.0 px higher"),
    ],
)
def test_row_offsets_are_described(slope: float, shift: float, said: str) -> None:
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(0, 639, 20), np.linspace(0, 399, 20)))
    rows = summarize_row_offsets(Matches(x, y, np.zeros(400), shift + slope * (x - 319.5)), *SIZE)
    assert rows is not None
    assert rows.pattern == said


def test_exchanged_images(rig: Rig, taken: Views, rectified: tuple[np.ndarray, ...]) -> None:
    left, right, calibration = rectified
    for pair, stored in ((taken, store(rig)), ((left, right), store(None, calibration))):
        found = examine(*pair[::-1], stored)
        assert list_wrong(found) == ["left and right"]
        assert (by_topic(found)["left and right"].do or "").startswith("swap the two")


def test_exchanged_images_of_cameras_that_are_parallel(rectified: tuple[np.ndarray, ...]) -> None:
    left, right, calibration = rectified
    k = np.array(calibration.projections())[:, :, :3]
    rig = make_rig(4, size=SIZE)
    cameras = [replace(rig.left, matrix=each, distortion=np.zeros(5)) for each in k]
    parallel = Rig(cameras[0], cameras[1], np.eye(3), np.array([-rig.baseline, 0, 0]), SIZE)
    assert list_wrong(examine(left, right, store(parallel))) == []
    assert list_wrong(examine(right, left, store(parallel))) == ["left and right"]


@pytest.mark.parametrize(("factor", "unit"), [(1000, "mm"), (100, "cm")])
def test_a_baseline_in_another_unit(factor: int, unit: str, rig: Rig, taken: Views) -> None:
    found = examine(*taken, store(rig.with_baseline(factor * rig.baseline)))
    assert list_wrong(found) == ["baseline"]
    do = by_topic(found)["baseline"].do or ""
    assert float(do.rpartition(" ")[2].removesuffix(unit)) == pytest.approx(factor * rig.baseline, rel=1e-4)


def test_a_baseline_that_is_too_short_or_not_stated(rectified: tuple[np.ndarray, ...]) -> None:
    left, right, calibration = rectified
    short = calibration.with_baseline(calibration.baseline / 1000)
    found = examine(left, right, store(None, short))
    assert list_wrong(found) == ["baseline"]
    assert "1000 times too small: `baseline` 0.0937" in (by_topic(found)["baseline"].do or "")
    found = examine(left, right, store(None, calibration.with_baseline(0)))
    assert list_wrong(found) == ["baseline"]
    assert "states none" in by_topic(found)["baseline"].text


def test_images_of_other_sizes(rig: Rig, taken: Views) -> None:
    left, right = taken
    found = examine(left[:300], right[:300], store(rig))
    assert list_wrong(found) == ["size"]
    assert "640x300 px" in found[0].text
    assert "640x400 px" in found[0].text
    small = [cv2.resize(view, (320, 200), interpolation=cv2.INTER_AREA) for view in taken]
    found = examine(small[0], small[1], store(rig))
    assert list_wrong(found) == []
    assert by_topic(found)["size"].verdict == "look"
    assert "0.5 times the size of the calibration (640x400 px)" in by_topic(found)["size"].text
    found = examine(left, right, store(replace(rig, size=None)))
    assert by_topic(found)["size"].verdict == "look"


def test_images_that_are_rectified_already(rig: Rig, rectified: tuple[np.ndarray, ...]) -> None:
    left, right, calibration = rectified
    found = examine(left, right, store(rig))
    assert list_wrong(found) == ["rectified"]
    assert "calibration.yaml" in (by_topic(found)["rectified"].do or "")
    found = examine(left, right, store(rig, calibration))
    assert list_wrong(found) == []
    assert by_topic(found)["rectified"].verdict == "ok"
    assert (
        list_wrong(examine(left, right, store(None, calibration)))
        == list_wrong(examine(left, right, None))
        == []
    )


def test_images_that_are_not_rectified_yet(taken: Views, rectified: tuple[np.ndarray, ...]) -> None:
    for stored in (None, store(None, rectified[2])):
        found = examine(*taken, stored)
        assert "rows" in list_wrong(found)
        assert "pam rectify" in (by_topic(found)["rows"].do or "")


def test_a_focal_length_in_millimetres(rectified: tuple[np.ndarray, ...]) -> None:
    left, right, calibration = rectified
    found = examine(left, right, store(None, replace(calibration, focal_length=4.0)))
    assert "focal length" in list_wrong(found)
    assert "178.6 degrees" in by_topic(found)["focal length"].text


@pytest.mark.parametrize("offset", [-10.0, -60.0])
def test_principal_points_that_put_things_behind_infinity(
    offset: float, rectified: tuple[np.ndarray, ...]
) -> None:
    left, right, calibration = rectified
    wall = calibration.focal_length * calibration.baseline / WALL
    found = examine(left, right, store(None, replace(calibration, offset=offset - wall)))
    assert list_wrong(found) == ["infinity"]
    assert (
        f"100 % of the matches are behind infinity, by up to {-offset:.0f}"
        in by_topic(found)["infinity"].text
    )
    assert by_topic(found)["left and right"].verdict == "ok"


def test_a_known_length(rig: Rig, taken: Views) -> None:
    one, two = (tuple(map(float, each)) for each in project_points(rig.left, ENDS))
    known = KnownLength((one, two), float(np.linalg.norm(ENDS[0] - ENDS[1])))  # type: ignore[arg-type]
    found = examine(*taken, store(rig), [known])
    assert [each.verdict for each in found if each.topic.startswith("known length")] == ["ok"]
    found = examine(*taken, store(rig.with_baseline(1.2 * rig.baseline)), [known])
    (topic,) = list_wrong(found)
    assert topic.startswith("known length")
    do = by_topic(found)[topic].do or ""
    assert "1.2 times the true ones" in do
    assert float(do.split("`baseline` ")[1].split("m")[0]) == pytest.approx(rig.baseline, rel=0.03)


def test_points_that_cannot_be_measured(rig: Rig, taken: Views) -> None:
    known = KnownLength(((3.0, 3.0), (320.0, 200.0)), 1.0)
    (found,) = (
        each for each in examine(*taken, store(rig), [known]) if each.topic.startswith("known length")
    )
    assert found.verdict == "look"
    assert "3,3 px has no match in the right image" in found.text


def test_images_of_two_scenes(rig: Rig, taken: Views) -> None:
    found = examine(taken[0], taken[1][::-1].copy(), store(rig))  # upside down, they have nothing in common
    assert list_wrong(found) == ["matches"]
    assert "check that both belong to one pair" in (found[-1].do or "")


def test_images_of_the_cameras_beside_a_rectification_of_another_aspect(rig: Rig, taken: Views) -> None:
    stated = rig.compute_rectification(size=(600, 300)).calibration
    assert stated is not None
    found = examine(*taken, store(rig, stated))
    assert list_wrong(found) == []
    assert by_topic(found)["size"].text == "640x400 px, as in the calibration"
    half = [cv2.resize(view, (300, 150)) for view in taken]
    size = by_topic(examine(*half, store(rig, stated)))["size"]
    assert size.verdict == "look"
    assert "0.5 times the size of the calibration (600x300 px)" in size.text
