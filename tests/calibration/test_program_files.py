"""Files of many programs describe one rig: all are read alike, whatever their order and names."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import calibration_files as files
import cv2
import numpy as np
import pytest
from calibration_files import check_rectified, check_rig, example, examples

from pamcli.calibration.camera import Camera
from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.files import encode_calibration, read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError, PamError

Read = Callable[..., StoredCalibration]

EXACT = {  # format and files of the rig
    "opencv's yaml": ("OpenCV", "opencv.yaml"),
    "opencv's xml": ("OpenCV", "opencv.xml"),
    "opencv's json": ("OpenCV", "opencv.json"),
    "opencv's two files": ("OpenCV", "intrinsics.yaml extrinsics.yaml"),
    "opencv's cameras apart": ("YAML", "opencv_left.yaml opencv_right.yaml pose.yaml"),
    "opencv's cameras with their poses": ("JSON", "posed_left.json posed_right.json"),
    "npz": ("OpenCV", "rig.npz"),
    "npz and its pose": ("OpenCV", "cameras.npz pose.npz"),
    "a .dat set": (".dat set", "intrinsics0.dat intrinsics1.dat rot_trans0.dat rot_trans1.dat"),
    "a .dat set with one pose": (".dat set", "intrinsics0.dat intrinsics1.dat rot_trans1.dat"),
    "ros": ("ROS camera_info", "ros_left.yaml ros_right.yaml"),
    "ros topics": ("ROS camera_info", "topic_left.yaml topic_right.yaml"),
    "ros 2 topics": ("ROS camera_info", "topic2_left.yaml topic2_right.yaml"),
    "ost.txt": ("ROS ost", "ost.txt"),
    "two ost.ini": ("ROS ost", "ost_left.ini ost_right.ini"),
    "kalibr": ("Kalibr, OpenVINS", "kalibr.yaml"),
    "kalibr with an inertial sensor": ("Kalibr, OpenVINS", "kalibr_imu.yaml"),
    "openvins": ("Kalibr, OpenVINS", "openvins.yaml"),
    "euroc": ("EuRoC", "euroc_left.yaml euroc_right.yaml"),
    "orb-slam2": ("ORB-SLAM", "orb_slam2.yaml"),
    "orb-slam3": ("ORB-SLAM", "orb_slam3.yaml"),
    "stella_vslam": ("stella_vslam", "stella_rectifier.yaml"),
    "mrcal": ("mrcal", "left.cameramodel right.cameramodel"),
    "colmap": ("COLMAP", "colmap_cameras.txt colmap_rigs.txt"),
    "colmap, rigs first": ("COLMAP", "colmap_rigs.txt colmap_cameras.txt"),
    "colmap's images": ("COLMAP", "colmap_cameras.txt colmap_images.txt"),
    "colmap's config": ("COLMAP", "colmap_rig_config.json"),
    "kitti raw": ("KITTI", "kitti_raw.txt"),
    "realsense's library": ("RealSense", "realsense_library.json"),
    "rs-enumerate-devices": ("RealSense", "realsense_listing.txt"),
    "oak": ("OAK (DepthAI)", "oak.json"),
    "matlab's struct": ("MATLAB", "matlab.mat"),
    "of R2022b": ("MATLAB", "matlab_r2022b.mat"),
    "fields as variables": ("MATLAB", "matlab_fields.mat"),
    "matlab's json": ("MATLAB", "matlab.json"),
    "matlab's parameters in three files": ("MATLAB", "matlab_left.json matlab_right.json matlab_pose.json"),
    "calibration toolbox": ("MATLAB Calibration Toolbox", "toolbox.mat"),
}
WITHOUT_SIZE = {"colmap's config", "npz and its pose", "opencv's two files", "a .dat set"}
WITHOUT_SIZE |= {"a .dat set with one pose"}
FISHEYES = {
    "kalibr": "kalibr_fisheye.yaml",
    "opencv that states it": "opencv_fisheye.yaml",
    "opencv by its names": "opencv_fe.yaml",
    "vins-fusion": "vins.yaml vins_fisheye_left.yaml vins_fisheye_right.yaml",
    "basalt": "basalt.json",
    "openvins": "openvins_fisheye.yaml",
    "orb-slam3": "orb_slam3_fisheye.yaml",
    "orb-slam3 before 1.0": "orb_slam3_before_1_0.yaml",
}
RECTIFIED = {
    "stella_vslam": ("stella.yaml", files.SIZE),
    "Cityscapes": ("cityscapes.json", None),
    "KITTI": ("kitti_two_lines.txt", None),
    "cvkit": ("cvkit.txt", files.SIZE),
    "K.txt": ("K.txt", None),
    "JSON": ("focal_and_baseline.json", files.SIZE),
    "OpenCV": ("opencv_q.yaml", None),
}
ALL = {name: contents for name, (_, contents) in EXACT.items()} | FISHEYES
ALL |= {kind: name for kind, (name, _) in RECTIFIED.items()}
ALL |= {"odometry": "kitti_odometry.txt", "middlebury": "middlebury.txt", "zed x one": "zed_x_one.conf"}
DRIVING_STEREO = example("kitti_raw.txt")
for number, other in {"00": 101, "01": 103, "03": 105}.items():
    DRIVING_STEREO = DRIVING_STEREO.replace(f"_{number}:", f"_{other}:")


@pytest.mark.parametrize("name", EXACT)
def test_a_rig_as_its_program_writes_it(name: str, read: Read) -> None:
    kind, names = EXACT[name]
    contents = examples(names)
    stored = read(*contents)
    assert stored.kind == kind
    check_rig(stored, known_size=name not in WITHOUT_SIZE)
    with pytest.raises(InputError, match=r"left of the left camera \(swap the cameras: `cameras` 1:0"):
        read(*contents, cameras=(2, 1) if name == "oak" else (1, 0))


@pytest.mark.parametrize("name", FISHEYES)
def test_a_fisheye_rig(name: str, read: Read) -> None:
    check_rig(read(*examples(FISHEYES[name])), fisheye=True)


@pytest.mark.parametrize("kind", RECTIFIED)
def test_rectified_images_as_their_program_writes_them(kind: str, read: Read) -> None:
    name, size = RECTIFIED[kind]
    stored = read(example(name))
    assert (stored.kind, stored.rig, stored.unit_note is None) == (kind, None, kind != "OpenCV")
    check_rectified(stored.rectified, size)


@pytest.mark.parametrize(
    "names",
    [
        "K1 D1 K2 D2",
        "cameraMatrix1 distCoeffs1 cameraMatrix2 distCoeffs2",
        "mtx_l dist_l mtx_r dist_r",
        "leftCameraMatrix leftDistortion rightCameraMatrix rightDistortion",
        "K_left D_left K_right D_right",
        "intrinsics0 distortion0 intrinsics1 distortion1",
        "cam_matrix_left dist_coeffs_left cam_matrix_right dist_coeffs_right",
    ],
)
def test_names_that_arrays_go_by(names: str, read: Read) -> None:
    values = (files.K1, files.D1[None], files.K2, files.D2[:, None])
    arrays = dict(zip(names.split(), values, strict=True))
    check_rig(read(files.opencv(**arrays, rot=files.R, trans=files.T)), known_size=False)


@pytest.mark.parametrize(
    ("unit", "factor"), [("mm", 1000), ("millimetres", 1000), ("cm", 100), ("m", 1), (None, 1)]
)
def test_length_units_and_rotations_as_a_vector(unit: str | None, factor: int, read: Read) -> None:
    vector = cv2.Rodrigues(files.R)[0]
    rig = {**files.RIG, "R": vector, "T": files.T * factor, "size": np.array(files.SIZE)}
    stored = read(files.opencv(**rig, **({"length_unit": unit} if unit else {})))
    check_rig(stored)
    note = "lengths are assumed to be in metres, because OpenCV states no unit"
    assert (stored.rectified, stored.unit_note) == (None, None if unit else note)


def test_drivingstereo_numbers_its_cameras_from_101(read: Read) -> None:
    stored = read(DRIVING_STEREO, cameras=(101, 103))
    assert stored.rig.baseline == pytest.approx(2 * files.BASELINE)
    check_rig(read(DRIVING_STEREO, cameras=(101, 105)))
    lines = DRIVING_STEREO.splitlines(True)
    part = "".join(line for line in lines if not line.startswith("K_103"))
    assert read(part, cameras=(101, 103)).rig is None
    skewed = read(
        "".join(re.sub(r"(K_10\d: \S+) \S+", r"\1 -5e-01", line) for line in lines), cameras=(101, 105)
    )
    assert skewed.rig is None
    check_rectified(skewed.rectified)
    assert "K has skew" in skewed.notes[-1]


def test_kitti_raw_and_odometry(read: Read) -> None:
    assert read(example("kitti_raw.txt")).notes == ["cameras 2 and 3, in colour, are used"]
    wide = read(example("kitti_raw.txt"), cameras=(0, 1))
    assert wide.rig.baseline == wide.rectified.baseline == pytest.approx(2 * files.BASELINE)
    assert wide.notes == []
    stored = read(example("kitti_odometry.txt"))
    grey = read(example("kitti_odometry.txt"), cameras=(0, 1)).rectified
    assert stored.rig is None
    assert stored.rectified.baseline == pytest.approx(0.532331, abs=1e-6)
    assert grey.baseline == pytest.approx(0.537166, abs=1e-6)
    assert (stored.rectified.focal_length, grey.principal) == (718.856, (607.1928, 185.2157))


def test_rectified_images_of_kitti_are_known_by_their_size(read: Read) -> None:
    """Its calib_cam_to_cam.txt describes the cameras, its images are those of its rectification."""
    text = example("kitti_raw.txt").replace("S_rect_02: 6.400000e+02 4.800000e+02", "S_rect_02: 620 187")
    rig = read(text).rig
    with pytest.raises(InputError, match=r"310x94 px are rectified already.*as they"):
        rig.for_size(310, 94)
    assert rig.for_size(640, 480).compute_rectification().calibration.size == (620, 187)
    assert rig.for_size(1280, 960).compute_rectification().calibration.size == (1240, 374)


@pytest.mark.parametrize(
    "names",
    ["ros_left.yaml ros_right.yaml", "kitti_raw.txt", "intrinsics.yaml extrinsics.yaml"],
)
def test_files_that_state_a_rectification(names: str, read: Read) -> None:
    stored = read(*examples(names))
    check_rectified(stored.rectified, None if "intrinsics" in names else files.SIZE)
    stated = stored.rig.stated
    np.testing.assert_allclose(stated.rotations, (files.R1, files.R2), atol=1e-9)
    np.testing.assert_allclose((stated.p1, stated.p2), (files.P1, files.P2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("left", [0, 2])
def test_kalibr_with_a_camera_between_the_two(left: int, read: Read) -> None:
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
    check_rig(read(text, cameras=(left, 2 - left)))


def test_parallel_kalibr_cameras_are_rectified(read: Read) -> None:
    text = """cam0: {camera_model: pinhole, intrinsics: [500, 500, 320, 240], distortion_model: none,
  distortion_coeffs: [], resolution: [640, 480]}
cam1: {camera_model: pinhole, intrinsics: [500, 500, 325, 240], distortion_model: none,
  distortion_coeffs: [], resolution: [640, 480],
  T_cn_cnm1: [[1, 0, 0, -0.2], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}
"""
    assert read(text).rectified == Calibration(500, 0.2, 5, (320, 240), (640, 480))
    higher = read(text.replace("325, 240", "325, 239"))
    assert (higher.rig is not None, higher.rectified) == (True, None)


MIDDLEBURY = example("middlebury.txt")


def test_middlebury(read: Read) -> None:
    stored = read(MIDDLEBURY)
    wanted = Calibration(3979.911, 0.193001, 124.343, (1244.772, 1019.507), (2964, 1988), ndisp=280)
    assert (stored.rectified, stored.notes) == (wanted, [])
    oblong = read(MIDDLEBURY.replace("0 3979.911 1019.507", "0 3900 1019.507")).rectified
    assert (oblong.focal_length, oblong.focal_length_y) == (3979.911, 3900)
    (note,) = read(MIDDLEBURY.replace("doffs=124.343", "doffs=0")).notes
    assert note == "doffs is 0 px and is used, but the principal points differ by 124.343 px"
    flipped = read(MIDDLEBURY.replace("baseline=", "baseline=-"), cameras=(1, 0)).rectified
    centre = (1244.772 + 124.343, 1019.507)
    assert flipped == Calibration(3979.911, 0.193001, -124.343, centre, (2964, 1988), ndisp=280)
    check_rectified(read(files.opencv(P1=files.P2, P2=files.P1), cameras=(1, 0)).rectified, size=None)


def test_what_is_written_is_read_back_and_by_opencv(tmp_path: Path) -> None:
    wanted = Calibration(512.5, 0.1234567890123, 3.25, (319.125, 240.0625), (640, 480))
    path = tmp_path / "calibration.yaml"
    path.write_bytes(encode_calibration(wanted))
    stored = read_calibration(path)
    assert (stored.rectified, stored.unit_note) == (wanted, None)
    file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    np.testing.assert_allclose(file.getNode("Q").mat(), wanted.reprojection())
    assert file.getNode("P2").mat()[0, 3] == pytest.approx(-512.5 * 0.1234567890123)
    path.write_text(files.opencv(Q=wanted.reprojection(), image_width=640, image_height=480))
    q = read_calibration(path).rectified
    assert (q.focal_length, q.baseline, q.offset) == pytest.approx((512.5, 0.1234567890123, 3.25))


def test_vins_fusion_names_the_files_of_its_cameras(read: Read, tmp_path: Path) -> None:
    stored = read(*examples("vins.yaml vins_left.yaml vins_right.yaml"))
    assert stored.kind == "VINS-Fusion"
    alone = read_calibration(tmp_path / "file0")  # beside the others, which it names
    for found in (stored.rig, alone.rig):
        np.testing.assert_allclose(found.translation, files.T, atol=1e-9)
        np.testing.assert_allclose(found.right.distortion, files.D2[:4], rtol=1e-9)
    (tmp_path / "file2").unlink()
    with pytest.raises(InputError, match="cam1_calib is file2, which does not exist"):
        read_calibration(tmp_path / "file0")


def test_orb_slam_knows_the_rectified_images(read: Read) -> None:
    check_rectified(read(example("orb_slam2.yaml")).rectified)
    text = example("orb_slam3_rectified.yaml")
    assert read(text).rectified == Calibration(435.2, 0.11, 0, (367.5, 252.25), (752, 480))
    other = text.replace("Camera1.", "Camera.").replace("Stereo.b: 0.11", "Camera.bf: 47.872")
    assert read(other).rectified.baseline == pytest.approx(0.11)


def test_zed_has_a_rig_for_each_resolution(read: Read) -> None:
    rig = read(example("zed.conf")).rig
    assert rig.sizes == ((2208, 1242), (1920, 1080), (1280, 720))
    for size, factor, shift in (((2208, 1242), 1.5, 0), ((1920, 1080), 1, 30.5), ((1280, 720), 1, 0)):
        one = rig.for_size(*size)
        assert one.size == size
        row = [factor * files.K1[0, 0], 0, factor * files.K1[0, 2] + shift]
        assert one.left.matrix[0] == pytest.approx(row)
        np.testing.assert_allclose(one.right.distortion, files.D2, rtol=1e-9)
        np.testing.assert_allclose(one.translation, files.T, atol=1e-9)
        np.testing.assert_allclose(one.rotation, files.R, atol=1e-9)
    with pytest.raises(InputError, match=r"cannot scale the calibration to 1104x621 px"):
        rig.for_size(1104, 621)  # they cut out unlike parts of the sensor
    assert rig.with_baseline(0.3).for_size(1280, 720).baseline == pytest.approx(0.3)
    apart = read(example("zed_x_one.conf")).rig
    assert (apart.size, apart.left.fisheye) == ((1920, 1200), False)
    np.testing.assert_allclose(apart.left.distortion, [*files.D1, 0, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(apart.translation, files.T, atol=1e-9)
    fisheye = read(example("zed_x_one_fisheye.conf")).rig.left
    assert fisheye.fisheye
    np.testing.assert_allclose(fisheye.distortion, files.D1[:4], rtol=1e-9)


def test_realsense_viewer_has_a_calibration_for_each_resolution(read: Read) -> None:
    stored = read(example("realsense_viewer.json"))
    found = stored.rectified
    assert stored.notes == ["this is the calibration of the infrared images, which the camera rectifies"]
    assert found.sizes == ((1920, 1080), (1280, 720))
    small = found.for_size(1280, 720)
    assert (small.focal_length, small.principal) == (638.136, (647.891, 351.912))
    assert small.baseline == pytest.approx(0.0500648)
    assert found.with_baseline(0.1).for_size(1280, 720).baseline == 0.1
    assert found.for_size(640, 360).focal_length == pytest.approx(957.204 / 3)
    assert found.with_pixels(focal_length=500, offset=3).for_size(640, 360).focal_length == 500


def test_colmap_states_no_unit(read: Read) -> None:
    stored = read(*examples("colmap_cameras_opencv.txt colmap_rig_config_ids.json"))
    assert stored.unit_note == "lengths are assumed to be in metres, because COLMAP states no unit"
    np.testing.assert_allclose(stored.rig.left.matrix, files.K1, rtol=1e-9)
    np.testing.assert_allclose(stored.rig.left.distortion, files.D1[:4], rtol=1e-9)
    np.testing.assert_allclose(stored.rig.translation, files.T, atol=1e-9)
    cameras = example("colmap_cameras_opencv.txt").replace("OPENCV", "PINHOLE")
    cameras = re.sub(r"(PINHOLE(?: \S+){6}).*", r"\1", cameras)
    pinhole = read(cameras, example("colmap_rigs.txt")).rig
    assert pinhole.left.distortion.size == 0


def test_angles_beyond_a_fisheye_model_are_none() -> None:
    """Its model ends within the image."""
    camera = Camera(np.array([[200.0, 0, 640], [0, 200, 360], [0, 0, 1]]), np.array([-0.1, 0, 0, 0]), True)
    rig = Rig(camera, camera, np.eye(3), np.array([-0.1, 0, 0]), (1280, 720))
    assert np.isnan(rig.left.field_of_view((1280, 720))[0])
    facts = StoredCalibration("a fisheye", rig).facts()
    json.dumps(facts, allow_nan=False)
    assert facts["rig"]["field_of_view_degrees"][0] is None


@pytest.mark.parametrize("name", ALL)
def test_random_damages_are_explained_or_harmless(name: str, read: Read) -> None:
    draw = random.Random(name)
    contents = examples(ALL[name])
    refused: list[PamError] = []
    for _ in range(12):
        data = bytearray(contents[0])
        for _ in range(draw.randint(1, 3)):
            at, length = draw.randrange(len(data)), draw.randint(0, 40)
            words = (b"", b"nan", b"-1e999", b"x", b":", b"[", b"\0", b"\xff", b"1" * 5000, draw.randbytes(4))
            data[at : at + length] = draw.choice(words)
        try:
            stored = read(bytes(data), *contents[1:])
            assert stored.rig or stored.rectified
        except PamError as error:
            refused.append(error)
    assert refused
    assert {error.exit_code for error in refused} == {3}
    assert all("file0" in str(error) and "\n" not in str(error) for error in refused)
