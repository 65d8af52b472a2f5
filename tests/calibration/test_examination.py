"""A right calibration passes the examination, and each fault is found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest
from simulated_rigs import FLOOR, WALL, make_rig, photograph_room

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.examination import examine
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.measurements import summarize_row_offsets
from pamcli.calibration.rig import Rig
from pamcli.imaging.preflight import MATCH, Finding

SIZE = (400, 250)
Views = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Room:
    """A room, photographed by a rig and rectified."""

    rig: Rig
    views: Views
    rectified: Views
    calibration: Calibration


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


def check(
    views: Views,
    stored: StoredCalibration | None,
    wrong: str = "",
    topic: str = "",
    *words: str,
) -> dict[str, Finding]:
    """Check which topics are wrong, and the words of one topic; return the findings by topic."""
    findings = {each.topic: each for each in examine(*views, stored)}
    assert ", ".join(each.topic for each in findings.values() if each.verdict == "wrong") == wrong
    for word in words:
        assert word in f"{findings[topic].verdict}: {findings[topic].text} -> {findings[topic].do}"
    return findings


def test_a_right_calibration(room: Room) -> None:
    found = check(room.views, store(room.rig), "", "size", "400x250 px, as in the calibration")
    assert found["rows"].verdict == found["left and right"].verdict == "ok"
    assert float(found["rows"].text.split(" matches are ")[1].split(" px")[0]) < 0.15
    assert "median 4 m" in found["baseline"].text
    assert "ground" not in found
    wide = photograph_rectified(fisheye=True)  # sees the floor, too
    ground = check(wide.views, store(wide.rig))["ground"]
    assert float(ground.text.split()[2]) == pytest.approx(FLOOR, rel=0.06)


def test_a_camera_that_turned_since(room: Room) -> None:
    turn = cv2.Rodrigues(np.radians([0, 0, 0.5]))[0]
    rig = replace(room.rig, rotation=turn @ room.rig.rotation, translation=turn @ room.rig.translation)
    said = "rotated by 0.50 degrees counter-clockwise; largest in the upper left part"
    check(room.views, store(rig), "rows", "rows", said, "pam calibration make")


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
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(0, 399, 20), np.linspace(0, 249, 20)))
    rows = summarize_row_offsets(
        np.rec.fromarrays([x, y, np.zeros(400), shift + slope * (x - 199.5)], MATCH), *SIZE
    )
    assert rows.pattern == said


def test_exchanged_images(room: Room) -> None:
    stated = store(None, room.calibration)
    check(room.rectified[::-1], stated, "left and right", "left and right", "-> swap the two")
    k = np.array(room.calibration.projections())[:, :, :3]
    cameras = [replace(room.rig.left, matrix=each, distortion=np.zeros(5)) for each in k]
    parallel = store(Rig(cameras[0], cameras[1], np.eye(3), np.array([-room.rig.baseline, 0, 0]), SIZE))
    check(room.rectified[::-1], parallel, "left and right")
    # Upside down, the images have nothing in common.
    mixed = room.views[0], room.views[1][::-1].copy()
    check(mixed, store(room.rig), "matches", "matches", "check that both belong to one pair")


def test_baselines_in_another_unit_or_not_stated(room: Room) -> None:
    metres = room.calibration.baseline
    for stated, said in (
        (metres / 1000, "1000 times too small: `baseline` 0.0937"),
        (100 * metres, "it is probably in cm: `baseline` 9.377"),
        (0, "states none"),
    ):
        check(room.rectified, store(None, room.calibration.with_baseline(stated)), *["baseline"] * 2, said)


def test_images_of_other_sizes(room: Room) -> None:
    rig, (left, right) = room.rig, room.views
    check((left[:200], right[:200]), store(rig), "size", "size", "400x200 px", "400x250 px")
    check(room.views, store(replace(rig, size=None)), "", "size", "look")
    stated = store(rig, rig.compute_rectification(size=(600, 300)).calibration)  # of another aspect
    check(room.views, stated, "", "size", "400x250 px, as in the calibration")
    smaller = tuple(cv2.resize(view, (300, 150), interpolation=cv2.INTER_AREA) for view in room.views)
    (found,) = (each for each in examine(*smaller, stated) if each.topic == "size")
    assert found.verdict == "look"
    assert "0.5 times the size of the calibration (600x300 px)" in found.text


def test_images_that_are_rectified_already_or_not_yet(room: Room) -> None:
    check(room.rectified, store(room.rig), "rectified", "rectified", "calibration.yaml")
    check(room.rectified, store(room.rig, room.calibration), "", "rectified", "ok")
    check(room.rectified, None)
    found = {each.topic: each for each in examine(*room.views, None)}["rows"]
    assert found.verdict == "wrong"
    assert "pam rectify" in (found.do or "")


def test_a_focal_length_in_millimetres(room: Room) -> None:
    findings = examine(*room.rectified, store(None, replace(room.calibration, focal_length=4.0)))
    (found,) = (each for each in findings if each.topic == "focal length")
    assert found.verdict == "wrong"
    assert "177.7 degrees" in found.text


def test_a_known_length_at_the_edge(room: Room) -> None:
    findings = examine(*room.views, store(room.rig), [(((3.0, 3.0), (200.0, 125.0)), 1.0)])
    assert findings[-1].topic == "known length 3,3,200,125"
    assert findings[-1].verdict == "look"
    assert "the point 3,3 px has no match in the right image" in findings[-1].text


def test_principal_points_that_put_things_behind_infinity(room: Room) -> None:
    wall = room.calibration.focal_length * room.calibration.baseline / WALL
    stored = store(None, replace(room.calibration, offset=-60 - wall))
    said = "100 % of the matches are behind infinity, by up to 60"
    assert check(room.rectified, stored, *["infinity"] * 2, said)["left and right"].verdict == "ok"
