"""Calibrations that leave something open: the images tell which reading fits, or that none does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import calibration_files as files
import cv2
import numpy as np
import pytest
from simulated_rigs import make_rig, photograph_room

from pamcli.batch.rectification import rectify_files
from pamcli.calibration.camera import make_transform, scale_matrix
from pamcli.calibration.description import CameraDescription, CameraPair, Interpretation
from pamcli.calibration.examination import examine_interpretations
from pamcli.calibration.feature_rectification import estimate_rectification
from pamcli.calibration.files import read_calibration
from pamcli.calibration.interpretations import compare_interpretations
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError, UsageError
from pamcli.imaging.preflight import Finding

SIZE = (400, 250)
Views = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def rig() -> Rig:
    found = make_rig(4, size=SIZE)
    return replace(found, left=four(found.left), right=four(found.right))


def four(camera: object) -> object:
    """A camera with four coefficients, as either of OpenCV's models may have."""
    return replace(camera, distortion=camera.distortion[:4])


@pytest.fixture(scope="module")
def taken(rig: Rig) -> Views:
    return photograph_room(rig)


def describe(
    rig: Rig, rotation: np.ndarray, translation: np.ndarray, metres: float | None = 1.0
) -> CameraDescription:
    pair = CameraPair((rig.left, rig.right), make_transform(rotation, translation), (rig.size, rig.size))
    return CameraDescription("a test", [pair], metres=metres)


def test_meanings_of_r_and_t_are_distinguished(rig: Rig, taken: Views) -> None:
    r, t = rig.rotation, rig.translation
    right = compare_interpretations(describe(rig, r, t), Interpretation(), *taken)
    assert right.better is None
    assert right.row_error < 0.3
    for way, given in {"rows": (r.T, t), "position": (r, -r.T @ t)}.items():  # for "pose", see below
        found = compare_interpretations(describe(rig, *given), Interpretation(), *taken)
        assert found.do == f"`extrinsics` {way}"
        assert "rows agree to 0." in found.text
        assert describe(rig, *given).resolve(found.better).rig is not None


def find_wrong(views: Views, description: CameraDescription) -> Finding:
    findings = examine_interpretations(*views, description, Interpretation())
    (found,) = (each for each in findings if each.verdict == "wrong")
    return found


def test_fisheye_and_swapped_cameras_are_distinguished(taken: Views, rig: Rig) -> None:
    fisheye = make_rig(3, size=(512, 320), fisheye=True)
    left, right = (replace(camera, fisheye=False) for camera in (fisheye.left, fisheye.right))
    unnamed = replace(fisheye, left=left, right=right)
    wide = describe(unnamed, fisheye.rotation, fisheye.translation)
    found = find_wrong(photograph_room(fisheye), wide)
    assert (found.topic, found.do) == ("cameras", "`fisheye`")
    other = compare_interpretations(wide, Interpretation(fisheye=True), *photograph_room(unnamed))
    assert other.do == "leave out `fisheye`"
    back = make_transform(rig.rotation.T, -rig.rotation.T @ rig.translation)
    turned = CameraDescription("a test", [CameraPair((rig.right, rig.left), back, (SIZE, SIZE))])
    found = find_wrong(taken, turned)
    assert found.do == "`cameras` 1:0"
    assert "is left of the left camera; rows agree to 0." in found.text


def write(folder: Path, rig: Rig, rotation: np.ndarray, translation: np.ndarray, views: Views) -> Path:
    for name, view in zip(("left.png", "right.png"), views, strict=True):
        cv2.imwrite(str(folder / name), view)
    values = {"K1": rig.left.matrix, "D1": rig.left.distortion, "image_width": SIZE[0]}
    values |= {"K2": rig.right.matrix, "D2": rig.right.distortion, "image_height": SIZE[1]}
    path = folder / "rig.yaml"
    path.write_text(files.opencv(**values, R=rotation, T=translation))
    return path


def test_rectify_names_the_interpretation_that_fits(rig: Rig, taken: Views, tmp_path: Path) -> None:
    r, t = rig.rotation, rig.translation
    pair = [tmp_path / "left.png", tmp_path / "right.png"]
    path = write(tmp_path, rig, r.T, -r.T @ t, taken)
    with pytest.raises(
        InputError, match=r"left of the left camera; rows agree .* \(give `extrinsics` pose\)"
    ):
        rectify_files(*pair, output=f"{tmp_path}/out/", calibration=[path])
    (outcome,) = rectify_files(*pair, output=f"{tmp_path}/out/", calibration=[path], extrinsics="pose")
    assert outcome.error is None
    assert outcome.facts["vertical_offset"] < 0.3
    write(tmp_path, rig, cv2.Rodrigues(np.radians([9.0, 0, 4]))[0] @ r, t, taken)
    (outcome,) = rectify_files(*pair, output=f"{tmp_path}/far/", calibration=[path])
    assert isinstance(outcome.error, InputError)
    assert "px apart after rectification" in str(outcome.error)
    assert not [*(tmp_path / "far").glob("*")]


def smaller(rig: Rig) -> Rig:
    """The rig with a right camera of half the resolution."""
    right = replace(rig.right, matrix=scale_matrix(rig.right.matrix, 0.5, 0.5))
    return replace(rig, right=right, right_size=(SIZE[0] // 2, SIZE[1] // 2))


def test_images_of_two_sizes_are_rectified(rig: Rig, tmp_path: Path) -> None:
    both = smaller(rig)
    views = photograph_room(both)
    assert views[1].shape[:2] == (125, 200)
    for name, view in zip(("left.png", "right.png"), views, strict=True):
        cv2.imwrite(str(tmp_path / name), view)
    cameras = []
    poses = (None, np.column_stack([both.rotation, both.translation]))
    for camera, pose in zip((both.left, both.right), poses, strict=True):
        cameras.append((camera.matrix, camera.distortion, pose))
    text = files.camchain(cameras).replace("[640, 480]", "[400, 250]", 1).replace("[640, 480]", "[200, 125]")
    path = tmp_path / "camchain.yaml"
    path.write_text(text)
    pair = [tmp_path / "left.png", tmp_path / "right.png"]
    (outcome,) = rectify_files(*pair, output=f"{tmp_path}/out/", calibration=[path])
    assert outcome.error is None
    assert outcome.facts["vertical_offset"] < 0.4
    assert all(cv2.imread(str(each)).shape == (250, 400, 3) for each in (tmp_path / "out").glob("*.png"))
    path.write_text(text.replace("[200, 125]", "[400, 250]"))
    (outcome,) = rectify_files(*pair, output=f"{tmp_path}/no/", calibration=[path])
    assert "left.png is 400x250 but" in str(outcome.error)


@pytest.mark.parametrize(("degrees", "alpha"), [(28, 1.0), (60, None), (110, 1.0)])
def test_cameras_that_converge_are_refused(degrees: float, alpha: float | None, rig: Rig) -> None:
    turn = cv2.Rodrigues(np.radians([0, degrees, 0]))[0]
    center = cv2.Rodrigues(np.radians([0, degrees / 2, 0]))[0] @ [0.2, 0, 0]
    for one in (turn, turn.T):
        with pytest.raises(InputError, match=f"rotated by {degrees} d|not beside the left") as caught:
            replace(rig, rotation=one, translation=-one @ center).compute_rectification(alpha=alpha)
        assert not (alpha and "`alpha` 1" in str(caught.value))
    turn = cv2.Rodrigues(np.radians([0, 20, 0]))[0]
    little = replace(rig, rotation=turn, translation=turn @ [-0.2, 0, 0])
    assert little.compute_rectification().calibration is not None


def test_unstated_unit_is_doubted(rig: Rig, taken: Views) -> None:
    long = describe(rig, rig.rotation, rig.translation * 120 / rig.baseline, None).resolve()
    assert "mm or cm;" in (long.doubt or "")
    length, units = 4.14, "mm or cm or board squares"
    found = describe(rig, rig.rotation, rig.translation * length / rig.baseline, None)
    stored = found.resolve()
    assert units in (stored.doubt or "")
    assert stored.warnings() == [stored.doubt]
    assert "`unit` mm, `unit` cm, or `unit` 25mm for board squares" in stored.doubt
    stated = found.resolve(Interpretation(unit=0.025))
    assert (stated.doubt, stated.unit_note) == (None, None)
    assert stated.rig.baseline == pytest.approx(0.025 * length)
    (finding,) = [
        each for each in examine_interpretations(*taken, found, Interpretation()) if each.topic == "unit"
    ]
    assert units in f"{finding.text};"
    assert "the median distance is" in finding.text
    assert finding.do == "state `unit` mm, `unit` cm, or `unit` 25mm for board squares of 25 mm"
    with pytest.raises(UsageError, match=r"`unit`.* states its unit"):
        describe(rig, rig.rotation, rig.translation).resolve(Interpretation(unit=0.001))


def test_extrinsics_may_be_one_matrix(rig: Rig, tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rig.rotation, rig.translation
    lenses = {"K1": rig.left.matrix, "K2": rig.right.matrix}
    for name in ("T", "RT", "T_lr", "extrinsics"):
        (tmp_path / "rig.yaml").write_text(files.opencv(**lenses, **{name: pose}))
        found = read_calibration(tmp_path / "rig.yaml", baseline="12cm").rig
        np.testing.assert_allclose(found.rotation, rig.rotation, atol=1e-9)
        assert found.baseline == pytest.approx(0.12)


def test_features_do_not_rectify_too_different_directions(taken: Views) -> None:
    found, _ = estimate_rectification([taken])
    assert found.left(np.full(SIZE[::-1], 255, np.uint8)).mean() > 0.8 * 255
    turned = cv2.warpPerspective(
        taken[1], np.float32([[0.3, 0, 300], [-0.3, 0.6, 100], [-0.0012, 0, 1]]), SIZE
    )
    with pytest.raises(InputError, match=r"empty|cannot rectify|matches between"):
        estimate_rectification([(taken[0], turned)])
