"""A right calibration passes the examination, and each fault is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest
from simulated_rigs import FLOOR, WALL, make_rig, photograph_room

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.examination import KnownLength, examine
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.measurements import summarize_row_offsets
from pamcli.calibration.rig import Rig
from pamcli.imaging.matching import Matches
from pamcli.imaging.preflight import Finding

SIZE = (640, 400)
Views = tuple[np.ndarray, np.ndarray]
ENDS = np.array([[0.5, -0.3, WALL], [1.2, 0.1, WALL]])
"""Two points on the wall, in the left camera's coordinates, metres."""


@dataclass(frozen=True)
class Room:
    """A room, photographed by a rig and rectified."""

    rig: Rig
    views: Views
    rectified: Views
    calibration: Calibration

    def resize(self, width: int, height: int) -> Views:
        left, right = (cv2.resize(view, (width, height), interpolation=cv2.INTER_AREA) for view in self.views)
        return left, right


def photograph_rectified(*, fisheye: bool = False) -> Room:
    rig = make_rig(4, fisheye=fisheye, size=SIZE)
    left, right = photograph_room(rig)
    found = rig.compute_rectification()
    return Room(rig, (left, right), (found.left(left), found.right(right)), found.calibration)


@pytest.fixture(scope="module")
def room() -> Room:
    return photograph_rectified()


def store(cameras: Rig | None = None, pictures: Calibration | None = None) -> StoredCalibration:
    return StoredCalibration("a made-up one", cameras, pictures)


def turn_right(rig: Rig, *degrees: float) -> Rig:
    """The rig as it would have been calibrated before its right camera turned back by these angles."""
    turn = cv2.Rodrigues(np.radians(degrees))[0]
    return replace(rig, rotation=turn @ rig.rotation, translation=turn @ rig.translation)


def check(
    views: Views,
    stored: StoredCalibration | None,
    wrong: str = "",
    topic: str = "",
    *words: str,
    known: Sequence[KnownLength] = (),
) -> dict[str, Finding]:
    """Check which topics are wrong, and the words of one topic; return the findings by topic."""
    findings = {each.topic: each for each in examine(*views, stored, known)}
    assert ", ".join(each.topic for each in findings.values() if each.verdict == "wrong") == wrong
    for word in words:
        assert word in f"{findings[topic].verdict}: {findings[topic].text} -> {findings[topic].do}"
    return findings


@pytest.mark.parametrize("fisheye", [False, True], ids=["pinhole", "fisheye"])
def test_a_right_calibration(fisheye: bool, room: Room) -> None:
    room = photograph_rectified(fisheye=True) if fisheye else room
    found = check(room.views, store(room.rig), "", "size", "640x400 px, as in the calibration")
    assert found["rows"].verdict == found["left and right"].verdict == "ok"
    assert float(found["rows"].text.split(" matches are ")[1].split(" px")[0]) < 0.15
    assert "median 4 m" in found["baseline"].text or fisheye
    assert ("ground" in found) == fisheye  # the other one sees the wall alone
    if fisheye:
        assert float(found["ground"].text.split()[2]) == pytest.approx(FLOOR, rel=0.06)


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ((0, 0, 0.5), "rotated by 0.50 degrees counter-clockwise; largest in the lower left part"),
        ((-0.3, 0, 0), "the right image is 4.1 px higher"),
    ],
)
def test_a_camera_that_turned_since(degrees: tuple[float, ...], said: str, room: Room) -> None:
    check(room.views, store(turn_right(room.rig, *degrees)), "rows", "rows", said, "pam calibration make")


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
    assert rows.pattern == said


def test_exchanged_images(room: Room) -> None:
    for views, stored in ((room.views, store(room.rig)), (room.rectified, store(None, room.calibration))):
        check(views[::-1], stored, "left and right", "left and right", "-> swap the two")
    k = np.array(room.calibration.projections())[:, :, :3]
    cameras = [replace(room.rig.left, matrix=each, distortion=np.zeros(5)) for each in k]
    parallel = store(Rig(cameras[0], cameras[1], np.eye(3), np.array([-room.rig.baseline, 0, 0]), SIZE))
    check(room.rectified, parallel)
    check(room.rectified[::-1], parallel, "left and right")
    # Upside down, the images have nothing in common.
    mixed = room.views[0], room.views[1][::-1].copy()
    check(mixed, store(room.rig), "matches", "matches", "check that both belong to one pair")


@pytest.mark.parametrize(("factor", "unit"), [(1000, "mm"), (100, "cm")])
def test_a_baseline_in_another_unit(factor: int, unit: str, room: Room) -> None:
    long = factor * room.rig.baseline
    do = check(room.views, store(room.rig.with_baseline(long)), "baseline")["baseline"].do or ""
    assert float(do.rpartition(" ")[2].removesuffix(unit)) == pytest.approx(long, rel=1e-4)


def test_a_baseline_that_is_too_short_or_not_stated(room: Room) -> None:
    for metres, said in (
        (room.calibration.baseline / 1000, "1000 times too small: `baseline` 0.0937"),
        (0, "states none"),
    ):
        check(room.rectified, store(None, room.calibration.with_baseline(metres)), *["baseline"] * 2, said)


def test_images_of_other_sizes(room: Room) -> None:
    rig, (left, right) = room.rig, room.views
    check((left[:300], right[:300]), store(rig), "size", "size", "640x300 px", "640x400 px")
    said = "0.5 times the size of the calibration (640x400 px)"
    check(room.resize(320, 200), store(rig), "", "size", "look", said)
    check(room.views, store(replace(rig, size=None)), "", "size", "look")
    stated = store(rig, rig.compute_rectification(size=(600, 300)).calibration)  # of another aspect
    check(room.views, stated, "", "size", "640x400 px, as in the calibration")
    (found,) = (each for each in examine(*room.resize(300, 150), stated) if each.topic == "size")
    assert found.verdict == "look"
    assert "0.5 times the size of the calibration (600x300 px)" in found.text


def test_images_that_are_rectified_already_or_not_yet(room: Room) -> None:
    check(room.rectified, store(room.rig), "rectified", "rectified", "calibration.yaml")
    check(room.rectified, store(room.rig, room.calibration), "", "rectified", "ok")
    check(room.rectified, store(None, room.calibration))
    check(room.rectified, None)
    for stored in (None, store(None, room.calibration)):
        found = {each.topic: each for each in examine(*room.views, stored)}["rows"]
        assert found.verdict == "wrong"
        assert "pam rectify" in (found.do or "")


def test_a_focal_length_in_millimetres(room: Room) -> None:
    findings = examine(*room.rectified, store(None, replace(room.calibration, focal_length=4.0)))
    (found,) = (each for each in findings if each.topic == "focal length")
    assert found.verdict == "wrong"
    assert "178.6 degrees" in found.text


@pytest.mark.parametrize("offset", [-10.0, -60.0])
def test_principal_points_that_put_things_behind_infinity(offset: float, room: Room) -> None:
    wall = room.calibration.focal_length * room.calibration.baseline / WALL
    stored = store(None, replace(room.calibration, offset=offset - wall))
    said = f"100 % of the matches are behind infinity, by up to {-offset:.0f}"
    assert check(room.rectified, stored, *["infinity"] * 2, said)["left and right"].verdict == "ok"


def test_a_known_length(room: Room) -> None:
    one, two = room.rig.left.project(ENDS).tolist()
    known = [((tuple(one), tuple(two)), float(np.linalg.norm(ENDS[0] - ENDS[1])))]
    topic = f"known length {one[0]:g},{one[1]:g},{two[0]:g},{two[1]:g}"
    check(room.views, store(room.rig), "", topic, "ok", known=known)
    longer = store(room.rig.with_baseline(1.2 * room.rig.baseline))
    found = check(room.views, longer, topic, topic, "1.2 times the true ones", known=known)
    do = found[topic].do or ""
    assert float(do.split("`baseline` ")[1].split("m")[0]) == pytest.approx(room.rig.baseline, rel=0.03)
    near = [(((3.0, 3.0), (320.0, 200.0)), 1.0)]
    said = "look: the point 3,3 px has no match in the right image"
    check(room.views, store(room.rig), "", "known length 3,3,320,200", said, known=near)
