"""Every kind of file tells of the same cameras; what is wrong is said with the file and the key."""

from __future__ import annotations

import json
from pathlib import Path

import calibration_files as files
import cv2
import numpy as np
import pytest

from pamcli.calibration.camera import Camera
from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.files import encode_calibration, read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError


def read(folder: Path, *texts: str, **options: object) -> StoredCalibration:
    paths = [folder / f"file{index}" for index in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return read_calibration(*paths, **options)  # type: ignore[arg-type]


def refuse(folder: Path, text: str, message: str = "") -> None:
    with pytest.raises(InputError, match="file0") as caught:
        read(folder, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def check_rig(stored: StoredCalibration, *, fisheye: bool = False, known_size: bool = True) -> None:
    rig = stored.rig
    assert rig is not None
    coefficients = (files.FISHEYE1, files.FISHEYE2) if fisheye else (files.D1, files.D2)
    for camera, k, d in zip((rig.left, rig.right), (files.K1, files.K2), coefficients, strict=True):
        np.testing.assert_allclose(camera.matrix, k, rtol=1e-9)
        known = np.append(d, np.zeros(8))[: len(camera.distortion)]
        np.testing.assert_allclose(camera.distortion, known, rtol=1e-9)
        assert camera.fisheye == fisheye
    np.testing.assert_allclose(rig.rotation, files.R, atol=1e-9)
    np.testing.assert_allclose(rig.translation, files.T, atol=1e-9)
    np.testing.assert_allclose(rig.center, files.CENTER, atol=1e-9)
    assert rig.size == (files.SIZE if known_size else None)
    assert rig.baseline == pytest.approx(files.BASELINE)
    assert rig.angle == pytest.approx(np.degrees(np.linalg.norm([0.012, -0.023, 0.008])))


def check_rectified(calibration: Calibration | None, size: tuple[int, int] | None = files.SIZE) -> None:
    assert calibration is not None
    assert calibration.focal_length == pytest.approx(files.P1[0, 0])
    assert calibration.baseline == pytest.approx(files.BASELINE)
    assert calibration.offset == pytest.approx(0, abs=1e-9)
    assert calibration.principal == pytest.approx((files.P1[0, 2], files.P1[1, 2]))
    assert calibration.size == size


def test_a_rotation_as_a_vector(tmp_path: Path) -> None:
    vector = files.opencv(**{**files.RIG, "R": cv2.Rodrigues(files.R)[0], "size": np.array(files.SIZE)})
    stored = read(tmp_path, vector)
    check_rig(stored)
    assert stored.rectified is None
    assert stored.unit_note == "lengths are assumed to be in metres, because OpenCV states no unit"


def test_q_alone(tmp_path: Path) -> None:
    check_rectified(read(tmp_path, files.OPENCV_Q).rectified, size=None)


def test_kalibr_with_the_right_camera_first(tmp_path: Path) -> None:
    back = np.column_stack([files.R.T, files.CENTER])  # from the right camera to the left one
    text = files.camchain([(files.K2, files.D2[:4], None), (files.K1, files.D1[:4], back)])
    check_rig(read(tmp_path, text, cameras=(1, 0)))
    with pytest.raises(InputError, match="left of the left camera"):
        read(tmp_path, text)


@pytest.mark.parametrize("left", [0, 2])
def test_kalibr_with_a_camera_between_the_two(left: int, tmp_path: Path) -> None:
    """Where a camera stands follows from all steps on the way, in their order."""
    turn = cv2.Rodrigues(np.array([0.3, -0.2, 0.4]))[0]
    first = np.vstack([np.column_stack([turn, [0.05, -0.4, 0.3]]), [0, 0, 0, 1]])
    whole = np.vstack([np.column_stack([files.R, files.T]), [0, 0, 0, 1]])
    ends = [(files.K1, files.D1[:4]), (files.K2, files.D2[:4])]
    if left == 2:
        whole, ends = np.linalg.inv(whole), ends[::-1]
    second = whole @ np.linalg.inv(first)
    between = (files.K1 * [[2], [2], [1]], files.D2[:4], first[:3])
    text = files.camchain([(*ends[0], None), between, (*ends[1], second[:3])])
    check_rig(read(tmp_path, text, cameras=(left, 2 - left)))


def test_kalibr_without_distortion_is_rectified_where_the_cameras_are_parallel(tmp_path: Path) -> None:
    text = """cam0: {camera_model: pinhole, intrinsics: [500, 500, 320, 240], distortion_model: none,
  distortion_coeffs: [], resolution: [640, 480]}
cam1: {camera_model: pinhole, intrinsics: [500, 500, 325, 240], distortion_model: none,
  distortion_coeffs: [], resolution: [640, 480],
  T_cn_cnm1: [[1, 0, 0, -0.2], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}
"""
    assert read(tmp_path, text).rectified == Calibration(500, 0.2, 5, (320, 240), (640, 480))
    higher = read(tmp_path, text.replace("325, 240", "325, 239"))
    assert higher.rig is not None
    assert higher.rectified is None


def test_kitti_raw(tmp_path: Path) -> None:
    stored = read(tmp_path, files.kitti_raw())
    assert stored.notes == ["cameras 2 and 3, in colour, are used"]
    wide = read(tmp_path, files.kitti_raw(), cameras=(0, 1))
    assert wide.rig is not None
    assert wide.rectified is not None
    assert wide.rig.baseline == pytest.approx(2 * files.BASELINE)
    assert wide.rectified.baseline == pytest.approx(2 * files.BASELINE)
    assert wide.notes == []


@pytest.mark.parametrize(
    "texts",
    [(files.ROS_LEFT, files.ROS_RIGHT), (files.kitti_raw(),), (files.INTRINSICS, files.EXTRINSICS)],
    ids=["ros", "kitti", "opencv"],
)
def test_files_that_say_how_their_images_are_rectified(texts: tuple[str, ...], tmp_path: Path) -> None:
    stored = read(tmp_path, *texts)
    check_rectified(stored.rectified, None if files.INTRINSICS in texts else files.SIZE)
    rig = stored.rig
    assert rig is not None
    assert rig.stated is not None
    for found, expected in zip(rig.stated.rotations, (files.R1, files.R2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    for found, expected in zip(rig.stated.projections, (files.P1, files.P2), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_rectified_images_of_kitti_are_known_by_their_size(tmp_path: Path) -> None:
    """Its calib_cam_to_cam.txt describes the cameras, its images are those of its rectification."""
    text = files.kitti_raw().replace("S_rect_02: 6.400000e+02 4.800000e+02", "S_rect_02: 620 187")
    rig = read(tmp_path, text).rig
    assert rig is not None
    for size in ((620, 187), (310, 94)):
        with pytest.raises(InputError, match=f"{size[0]}x{size[1]} px are rectified already.*as they"):
            rig.for_size(*size)
    assert rig.for_size(640, 480).compute_rectification().calibration.size == (620, 187)  # type: ignore[union-attr]
    assert rig.for_size(1280, 960).compute_rectification().calibration.size == (1240, 374)  # type: ignore[union-attr]


def test_kitti_odometry(tmp_path: Path) -> None:
    stored = read(tmp_path, files.KITTI_ODOMETRY)
    assert stored.rig is None
    color, grey = stored.rectified, read(tmp_path, files.KITTI_ODOMETRY, cameras=(0, 1)).rectified
    assert color is not None
    assert grey is not None
    assert color.baseline == pytest.approx(0.532331, abs=1e-6)
    assert grey.baseline == pytest.approx(0.537166, abs=1e-6)
    assert (color.focal_length, color.principal) == (718.856, (607.1928, 185.2157))


def test_middlebury(tmp_path: Path) -> None:
    stored = read(tmp_path, files.MIDDLEBURY)
    assert stored.rectified == Calibration(
        3979.911, 0.193001, 124.343, (1244.772, 1019.507), (2964, 1988), ndisp=280
    )
    assert stored.notes == []
    oblong = read(tmp_path, files.MIDDLEBURY.replace("0 3979.911 1019.507", "0 3900 1019.507")).rectified
    assert oblong is not None
    assert (oblong.focal_length, oblong.focal_length_y) == (3979.911, 3900)
    (note,) = read(tmp_path, files.MIDDLEBURY.replace("doffs=124.343", "doffs=0")).notes
    assert note == "doffs is 0 px and is used, but the principal points differ by 124.343 px"


def test_what_is_written_is_read_back_and_by_opencv(tmp_path: Path) -> None:
    wanted = Calibration(512.5, 0.1234567890123, 3.25, (319.125, 240.0625), (640, 480))
    path = tmp_path / "calibration.yaml"
    path.write_bytes(encode_calibration(wanted))
    stored = read_calibration(path)
    assert stored.rectified == wanted
    assert stored.unit_note is None
    file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    np.testing.assert_allclose(file.getNode("Q").mat(), wanted.reprojection())
    assert file.getNode("P2").mat()[0, 3] == pytest.approx(-512.5 * 0.1234567890123)
    path.write_text(files.opencv(Q=wanted.reprojection(), image_width=640, image_height=480))
    q = read_calibration(path).rectified
    assert q is not None
    assert (q.focal_length, q.baseline, q.offset) == pytest.approx((512.5, 0.1234567890123, 3.25))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cam0=[3979.911 0 1244.772; 0 3979.911 1019.507; 0 0 1]", "cam0=", "cam0 is missing"),
        ("baseline=193.001", "baseline=", "baseline is missing"),
        ("baseline=193.001", "", "baseline is missing"),
        ("baseline=193.001", "baseline=193.001\nbaseline=900", "baseline is given twice: 193.001 and 900"),
        ("baseline=193.001", "baseline=far", "baseline must hold finite numbers, got 'far'"),
        ("baseline=193.001", "baseline=-193.001", "left of the left camera"),
        ("baseline=193.001", "baseline=nan", "baseline must hold finite numbers, got 'nan'"),
        ("cam0=[3979.911 0", "cam0=[x 0", "cam0 must hold finite numbers, got 'x'"),
        ("cam0=[3979.911 0", "cam0=[0", "cam0 holds 8 numbers, expected 9"),
        ("cam0=[3979.911", "cam0=[0", "the focal lengths of the left camera"),
        ("doffs=124.343", "doffs=inf", "doffs must hold finite numbers, got 'inf'"),
        ("width=2964", "width=0", "width x height must be an image size in px, got 0x1988"),
        ("height=1988", "", "width x height is missing"),
    ],
)
def test_middlebury_with_nonsense(old: str, new: str, message: str, tmp_path: Path) -> None:
    refuse(tmp_path, files.MIDDLEBURY.replace(old, new), message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"M1": np.eye(2)}, "M1 has 2 x 2 entries, expected 3 x 3"),
        ({"M1": np.zeros((3, 3))}, "M1 must be a camera matrix"),
        ({"M2": None}, "M2 is missing"),
        ({"R": None, "T": None}, "R and T are missing"),
        ({"D1": np.zeros(7)}, "D1 has 7 distortion coefficients"),
        ({"D2": np.array([np.nan] * 5)}, "D2 must hold finite numbers, got 'nan'"),
        ({"R": np.ones((3, 3))}, "R must be a rotation matrix"),
        ({"R": np.diag([1.0, 1.0, -1.0])}, "R must be a rotation matrix"),
        ({"T": np.zeros(3)}, "the baseline (length of T) is 0 m"),
        ({"T": -files.T}, "left of the left camera"),
        ({"T": np.array([0.0, 0.2, 0.0])}, "not beside the left camera (if one is above the other, turn all"),
        ({"distortion_model": "omni"}, "distortion_model 'omni' is not a lens model of OpenCV"),
        ({"P1": files.P1, "P2": files.P1 * 0}, "focal lengths of P1 and P2 must be above 0"),
        ({"P1": files.P1, "P2": files.P2 * [[1.1], [1], [1]]}, "P1 and P2 must have the same focal length"),
        ({"P1": files.P2, "P2": files.P1}, "left of the left camera"),
    ],
)
def test_opencv_with_nonsense(values: dict[str, object], message: str, tmp_path: Path) -> None:
    given = {key: value for key, value in {**files.RIG, **values}.items() if value is not None}
    refuse(tmp_path, files.opencv(**given), message)


@pytest.mark.parametrize(
    "text", ["", "\0\0", "hello", "a: b", "[1, 2]", "{", "<a>", "- 1", "P1: 1", "&a [*a]"]
)
def test_no_calibration_at_all(text: str, tmp_path: Path) -> None:
    refuse(tmp_path, text)


def test_missing_and_long_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_calibration(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="it is a folder"):
        read_calibration(tmp_path)
    with pytest.raises(InputError, match="more than 1 MB of text"):
        read(tmp_path, "a" * (1 << 20) + "b")


def test_angles_that_a_fisheye_does_not_tell_are_none() -> None:
    """Its model ends within the image."""
    camera = Camera(np.array([[200.0, 0, 640], [0, 200, 360], [0, 0, 1]]), np.array([-0.1, 0, 0, 0]), True)
    rig = Rig(camera, camera, np.eye(3), np.array([-0.1, 0, 0]), (1280, 720))
    assert rig.left.field_of_view((1280, 720))[0] != rig.left.field_of_view((1280, 720))[0]  # NaN
    facts = StoredCalibration("a fisheye", rig).facts()
    json.dumps(facts, allow_nan=False)
    assert facts["rig"]["field_of_view_degrees"][0] is None
