"""Files of many programs tell of one rig; what cannot be read is refused with the way out."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import calibration_files as files
import more_programs as more
import numpy as np
import program_files as programs
import pytest
from mat_writer import mat
from test_reading_calibrations import check_rectified, check_rig

from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.files import read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, PamError

OPENCV_ARRAYS = {"mtxL": files.K1, "distL": files.D1, "mtxR": files.K2, "distR": files.D2}
POSE = {"R": files.R, "T": files.T.reshape(3, 1)}
EXACT: dict[str, tuple[str, tuple[str | bytes, ...]]] = {
    "opencv's yaml": ("OpenCV", (files.OPENCV_4,)),
    "opencv's xml": ("OpenCV", (files.OPENCV_XML,)),
    "opencv's json": ("OpenCV", (files.OPENCV_JSON,)),
    "opencv's two files": ("OpenCV", (files.INTRINSICS, files.EXTRINSICS)),
    "ros": ("ROS camera_info", (files.ROS_LEFT, files.ROS_RIGHT)),
    "kalibr": ("Kalibr camchain", (files.kalibr(),)),
    "kitti raw": ("KITTI", (files.kitti_raw(),)),
    "openvins": ("OpenVINS", (programs.chain(),)),
    "kalibr with an inertial sensor": ("Kalibr camchain", (programs.chain("T_cam_imu"),)),
    "euroc": ("EuRoC", (programs.euroc(True), programs.euroc(False))),
    "orb-slam2": ("ORB-SLAM", (programs.orb_slam2(),)),
    "orb-slam3": ("ORB-SLAM", (programs.orb_slam3(),)),
    "zed x one": ("ZED", (programs.zed(True),)),
    "realsense's library": ("RealSense", (programs.realsense_library(),)),
    "ost.txt": ("ROS ost", (programs.ost("left", "right"),)),
    "two ost.ini": ("ROS ost", (programs.ost("left"), programs.ost("right"))),
    "matlab's struct": ("MATLAB", (mat({"rig": programs.stereo_parameters()}),)),
    "of R2022b": ("MATLAB", (mat({"s": programs.stereo_parameters(modern=True)}, order=">"),)),
    "fields as variables": ("MATLAB", (mat(programs.stereo_parameters(), compressed=False),)),
    "matlab's json": ("MATLAB", (programs.stereo_parameters_json(),)),
    "calibration toolbox": ("MATLAB Calibration Toolbox", (mat(programs.TOOLBOX),)),
    "colmap": ("COLMAP", (programs.colmap_cameras("FULL_OPENCV"), programs.colmap_rigs())),
    "colmap, rigs first": ("COLMAP", (programs.colmap_rigs(), programs.colmap_cameras("FULL_OPENCV"))),
    "colmap's config": ("COLMAP", (programs.colmap_rig_config(True),)),
    "ros topics": ("ROS camera_info", more.topics(False)),
    "ros 2 topics": ("ROS camera_info", more.topics(True)),
    "ros topics in one file": ("ROS camera_info", ("".join(more.topics(False)),)),
    "oak": ("OAK (DepthAI)", (more.oak(),)),
    "mrcal": ("mrcal", (more.mrcal(True), more.mrcal(False))),
    "rs-enumerate-devices": ("RealSense", (more.listing(),)),
    "stella_vslam": ("stella_vslam", (more.STELLA_RECTIFIER,)),
    "a .dat set": (".dat set", more.dat("k0", "k1", "p0", "p1")),
    "a .dat set with one pose": (".dat set", more.dat("k0", "k1", "p1")),
    "opencv's cameras apart": ("OpenCV", (*more.APART, files.opencv(R=files.R, T=files.T))),
    "npz": ("OpenCV", (programs.npz(**OPENCV_ARRAYS, **POSE, imageSize=np.array(files.SIZE)),)),
    "npz and its pose": ("OpenCV", (programs.npz(**OPENCV_ARRAYS), programs.npz(**POSE))),
}
EXACT["opencv's cameras with their poses"] = ("OpenCV", more.posed_cameras())
EXACT["matlab's parameters in three files"] = ("MATLAB", more.matlab_parts())
STATED_FISHEYE = {**files.RIG, "D1": files.FISHEYE1, "D2": files.FISHEYE2, "fisheye": 1}
FISHEYE_NAMES = {"D_LEFT_FE": files.FISHEYE1, "D_RIGHT_FE": files.FISHEYE2, "Size": files.SIZE}
FISHEYES: dict[str, tuple[str, ...]] = {
    "kalibr": (files.kalibr("equidistant"),),
    "opencv that states it": (files.opencv(**STATED_FISHEYE, image_width=640, image_height=480),),
    "opencv by its names": (
        files.opencv(K_LEFT=files.K1, K_RIGHT=files.K2, R=files.R, T=files.T, **FISHEYE_NAMES),
    ),
    "vins-fusion": more.vins(fisheye=True),
    "basalt": (more.basalt(),),
    "openvins": (programs.chain(fisheye=True),),
    "orb-slam3": (programs.orb_slam3(fisheye=True),),
    "orb-slam3 before 1.0": (programs.orb_slam3(fisheye=True, old=True),),
}


WITHOUT_SIZE = (
    "colmap's config",
    "npz and its pose",
    "opencv's two files",
    "a .dat set",
    "a .dat set with one pose",
)


def read(folder: Path, *contents: str | bytes, **options: object) -> StoredCalibration:
    paths = [folder / f"file{index}" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_calibration(*paths, **options)  # type: ignore[arg-type]


def cut(stored: StoredCalibration) -> StoredCalibration:
    """Without the coefficients that are 0."""
    assert stored.rig is not None
    left, right = (
        replace(camera, distortion=camera.distortion[:5]) for camera in (stored.rig.left, stored.rig.right)
    )
    return replace(stored, rig=replace(stored.rig, left=left, right=right))


@pytest.mark.parametrize("name", EXACT)
def test_a_rig_as_its_program_writes_it(name: str, tmp_path: Path) -> None:
    kind, contents = EXACT[name]
    stored = read(tmp_path, *contents)
    assert stored.kind == kind
    if name == "oak":  # with all coefficients that OpenCV has
        stored = cut(stored)
    if name in ("zed x one",):  # of images of 1920 x 1200
        assert stored.rig is not None
        stored = StoredCalibration(kind, read(tmp_path, programs.orb_slam3()).rig)
    check_rig(stored, known_size=name not in WITHOUT_SIZE)


RECTIFIED = {
    "stella_vslam": (more.STELLA, files.SIZE),
    "Cityscapes": (more.CITYSCAPES, None),
    "KITTI": (more.TWO_LINES, None),
    "cvkit": (more.CVKIT, files.SIZE),
    "K.txt": (more.K_TXT, None),
    "JSON": (more.FOCAL_AND_BASELINE, files.SIZE),
}


@pytest.mark.parametrize("kind", RECTIFIED)
def test_rectified_images_as_their_program_writes_them(kind: str, tmp_path: Path) -> None:
    text, size = RECTIFIED[kind]
    stored = read(tmp_path, text)
    assert (stored.kind, stored.rig, stored.unit_note) == (kind, None, None)
    check_rectified(stored.rectified, size)


def test_drivingstereo_numbers_its_cameras_from_101(tmp_path: Path) -> None:
    stored = read(tmp_path, more.DRIVING_STEREO, cameras=(101, 103))
    assert stored.rig is not None
    assert stored.rig.baseline == pytest.approx(2 * files.BASELINE)
    check_rig(read(tmp_path, more.DRIVING_STEREO, cameras=(101, 105)))
    part = "".join(line for line in more.DRIVING_STEREO.splitlines(True) if not line.startswith("K_103"))
    assert read(tmp_path, part, cameras=(101, 103)).rig is None


def test_skew_beside_rectified_images_is_ignored(tmp_path: Path) -> None:
    skewed = [re.sub(r"(K_10\d: \S+) \S+", r"\1 -5e-01", line) for line in more.DRIVING_STEREO.splitlines()]
    stored = read(tmp_path, "\n".join(skewed), cameras=(101, 105))
    assert stored.rig is None
    check_rectified(stored.rectified)
    assert "K has skew" in stored.notes[-1]


def test_large_baselines_in_json_are_millimetres(tmp_path: Path) -> None:
    stored = read(tmp_path, '{"fx": 1068, "fy": 1068, "cx": 977, "cy": 562.4, "baseline": 119.9}')
    assert stored.rectified is not None
    assert stored.rectified.baseline == pytest.approx(0.1199)
    assert stored.notes == ["the baseline of 119.9 is assumed to be in millimetres"]


def test_mrcal_keeps_megabytes_of_its_optimization(tmp_path: Path) -> None:
    both = (more.mrcal(left).replace("P)h>", "P)h>" * 400_000) for left in (True, False))
    check_rig(read(tmp_path, *both))


def test_vins_fusion_names_the_files_of_its_cameras(tmp_path: Path) -> None:
    texts = more.vins()
    stored = read(tmp_path, *texts)
    assert stored.kind == "VINS-Fusion"
    alone = read_calibration(tmp_path / "file0")  # beside the others, which it names
    for found in (stored, alone):
        assert found.rig is not None
        np.testing.assert_allclose(found.rig.translation, files.T, atol=1e-9)
        np.testing.assert_allclose(found.rig.right.distortion, files.D2[:4], rtol=1e-9)
    (tmp_path / "file2").unlink()
    with pytest.raises(InputError, match="cam1_calib is file2, which does not exist"):
        read_calibration(tmp_path / "file0")


@pytest.mark.parametrize("name", FISHEYES)
def test_a_fisheye_rig(name: str, tmp_path: Path) -> None:
    check_rig(read(tmp_path, *FISHEYES[name]), fisheye=True)


@pytest.mark.parametrize("name", [name for name in EXACT if name not in ("zed x one", "oak")])
def test_one_that_counts_from_the_right_is_exchanged_by_cameras(name: str, tmp_path: Path) -> None:
    _, contents = EXACT[name]
    with pytest.raises(InputError, match=r"is left of the left camera \(swap the cameras: `cameras` 1:0"):
        read(tmp_path, *contents, cameras=(1, 0))
    rig = read(tmp_path, *contents).rig
    assert rig is not None
    given = {"K1": files.K2, "D1": files.D2, "K2": files.K1, "D2": files.D1}
    given |= {"R": rig.rotation.T, "T": -rig.rotation.T @ rig.translation}
    with pytest.raises(InputError, match="swap the cameras"):
        read(tmp_path, programs.npz(**given))
    check_rig(read(tmp_path, programs.npz(**given), cameras=(1, 0)), known_size=False)


@pytest.mark.parametrize("content", [files.OPENCV_Q, files.MIDDLEBURY, programs.ORB_SLAM3_RECTIFIED])
def test_rectified_images_exchanged_twice_are_the_same(content: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="swap the cameras: `cameras` 1:0"):
        read(tmp_path, content, cameras=(1, 0))


def test_rectified_images_that_count_from_the_right(tmp_path: Path) -> None:
    flipped = files.MIDDLEBURY.replace("baseline=193.001", "baseline=-193.001")
    found = read(tmp_path, flipped, cameras=(1, 0)).rectified
    assert found == Calibration(
        3979.911, 0.193001, -124.343, (1244.772 + 124.343, 1019.507), (2964, 1988), ndisp=280
    )
    given = files.opencv(P1=files.P2, P2=files.P1)
    check_rectified(read(tmp_path, given, cameras=(1, 0)).rectified, size=None)


def test_orb_slam_knows_the_rectified_images(tmp_path: Path) -> None:
    check_rectified(read(tmp_path, programs.orb_slam2()).rectified)
    found = read(tmp_path, programs.ORB_SLAM3_RECTIFIED).rectified
    assert found == Calibration(435.2, 0.11, 0, (367.5, 252.25), (752, 480))
    text = programs.ORB_SLAM3_RECTIFIED.replace("Camera1.", "Camera.").replace(
        "Stereo.b: 0.11", "Camera.bf: 47.872"
    )
    found = read(tmp_path, text).rectified
    assert found is not None
    assert found.baseline == pytest.approx(0.11)


def test_zed_has_a_rig_for_each_resolution(tmp_path: Path) -> None:
    rig = read(tmp_path, programs.zed()).rig
    assert rig is not None
    assert rig.sizes == ((2208, 1242), (1920, 1080), (1280, 720))
    for size, factor, shift in (((2208, 1242), 1.5, 0), ((1920, 1080), 1, 30.5), ((1280, 720), 1, 0)):
        one = rig.for_size(*size)
        assert one.size == size
        assert one.left.matrix[0] == pytest.approx(
            [factor * files.K1[0, 0], 0, factor * files.K1[0, 2] + shift]
        )
        np.testing.assert_allclose(one.right.distortion, files.D2, rtol=1e-9)
        np.testing.assert_allclose(one.translation, files.T, atol=1e-9)
        np.testing.assert_allclose(one.rotation, files.R, atol=1e-9)
    with pytest.raises(InputError, match=r"cannot scale the calibration to 1104x621 px"):
        rig.for_size(1104, 621)  # they cut out unlike parts of the sensor
    assert rig.with_baseline(0.3).for_size(1280, 720).baseline == pytest.approx(0.3)
    apart = read(tmp_path, programs.zed(True)).rig
    assert apart is not None
    assert apart.size == (1920, 1200)
    np.testing.assert_allclose(apart.left.distortion[:5], files.D1, rtol=1e-9)
    fisheye = read(tmp_path, programs.zed(True, fisheye=True)).rig
    assert fisheye is not None
    assert fisheye.left.fisheye
    np.testing.assert_allclose(fisheye.left.distortion, files.D1[:4], rtol=1e-9)


def test_realsense_viewer_has_a_calibration_for_each_resolution(tmp_path: Path) -> None:
    stored = read(tmp_path, programs.REALSENSE_VIEWER)
    found = stored.rectified
    assert found is not None
    assert stored.notes == ["this is the calibration of the infrared images, which the camera rectifies"]
    assert found.sizes == ((1920, 1080), (1280, 720))
    small = found.for_size(1280, 720)
    assert (small.focal_length, small.principal) == (638.136, (647.891, 351.912))
    assert small.baseline == pytest.approx(0.0500648)
    assert found.with_baseline(0.1).for_size(1280, 720).baseline == 0.1
    assert found.for_size(640, 360).focal_length == pytest.approx(957.204 / 3)
    assert found.with_pixels(focal_length=500, offset=3).for_size(640, 360).focal_length == 500


def test_colmap_says_that_its_unit_is_not_known(tmp_path: Path) -> None:
    stored = read(tmp_path, programs.colmap_cameras("OPENCV"), programs.colmap_rig_config())
    assert stored.unit_note == "lengths are assumed to be in metres, because COLMAP states no unit"
    assert stored.rig is not None
    np.testing.assert_allclose(stored.rig.left.matrix, files.K1, rtol=1e-9)
    np.testing.assert_allclose(stored.rig.left.distortion, files.D1[:4], rtol=1e-9)
    np.testing.assert_allclose(stored.rig.translation, files.T, atol=1e-9)
    pinhole = read(tmp_path, programs.colmap_cameras("PINHOLE"), programs.colmap_rigs()).rig
    assert pinhole is not None
    assert pinhole.left.distortion.size == 0


@pytest.mark.parametrize(
    "names",
    [
        ("K1", "D1", "K2", "D2"),
        ("cameraMatrix1", "distCoeffs1", "cameraMatrix2", "distCoeffs2"),
        ("mtx_l", "dist_l", "mtx_r", "dist_r"),
        ("leftCameraMatrix", "leftDistortion", "rightCameraMatrix", "rightDistortion"),
        ("K_left", "D_left", "K_right", "D_right"),
        ("intrinsics0", "distortion0", "intrinsics1", "distortion1"),
        ("cam_matrix_left", "dist_coeffs_left", "cam_matrix_right", "dist_coeffs_right"),
    ],
)
def test_names_that_arrays_go_by(names: tuple[str, ...], tmp_path: Path) -> None:
    arrays = dict(zip(names, (files.K1, files.D1[None], files.K2, files.D2[:, None]), strict=True))
    check_rig(read(tmp_path, programs.npz(**arrays, rot=files.R, trans=files.T)), known_size=False)


@pytest.mark.parametrize("unit", ["mm", "millimetres", "cm", "m"])
def test_a_length_unit_that_the_file_states(unit: str, tmp_path: Path) -> None:
    factor = {"m": 1, "c": 100}.get(unit[0] if unit != "mm" and unit != "millimetres" else "", 1000)
    rig = {**files.RIG, "T": files.T * factor, "length_unit": unit, "image_width": 640, "image_height": 480}
    stored = read(tmp_path, files.opencv(**rig))
    check_rig(stored)
    assert stored.unit_note is None


def test_skew_is_refused(tmp_path: Path) -> None:
    found = programs.stereo_parameters()
    matrix = found["CameraParameters1"]["IntrinsicMatrix"]  # type: ignore[index]
    matrix[1, 0] = 0.3
    with pytest.raises(InputError, match="has skew"):
        read(tmp_path, mat({"rig": found}))


def test_more_cameras_than_there_are(tmp_path: Path) -> None:
    for content in (programs.orb_slam3(), programs.zed(), programs.ost("left", "right")):
        with pytest.raises(InputError, match="holds two cameras, numbered 0 and 1"):
            read(tmp_path, content, cameras=(2, 3))
    with pytest.raises(InputError, match="holds 2 cameras"):
        read(tmp_path, programs.colmap_cameras(), programs.colmap_rigs(), cameras=(0, 2))


ALL = {name: contents for name, (_, contents) in EXACT.items()} | FISHEYES
ALL |= {kind: (text,) for kind, (text, _) in RECTIFIED.items()}
ALL |= {"odometry": (files.KITTI_ODOMETRY,), "middlebury": (files.MIDDLEBURY,), "q": (files.OPENCV_Q,)}


@pytest.mark.parametrize("name", ALL)
def test_random_damages_are_explained_or_harmless(name: str, tmp_path: Path) -> None:
    draw = random.Random(name)
    contents = [c.encode() if isinstance(c, str) else c for c in ALL[name]]
    refused: list[PamError] = []
    for _ in range(30):
        data = bytearray(contents[0])
        for _ in range(draw.randint(1, 3)):
            at, length = draw.randrange(len(data)), draw.randint(0, 40)
            words = (b"", b"nan", b"-1e999", b"x", b":", b"[", b"\0", b"\xff", b"1" * 5000, draw.randbytes(4))
            data[at : at + length] = draw.choice(words)
        try:
            stored = read(tmp_path, bytes(data), *contents[1:])
            assert stored.rig or stored.rectified
        except PamError as error:
            refused.append(error)
    assert len(refused) > 2
    assert {error.exit_code for error in refused} == {3}
    assert all("file0" in str(error) and "\n" not in str(error) for error in refused)


def test_a_matrix_that_lost_a_number_is_named(tmp_path: Path) -> None:
    lost = {"mtx_l": [[700, 0, 320], [0, 700], [0, 0, 1]], "dist_l": [0] * 5}
    (tmp_path / "cal.json").write_text(json.dumps(lost | {"mtx_r": [[0] * 3] * 3, "dist_r": [0] * 5}))
    with pytest.raises(InputError, match="mtx_l"):
        read_calibration(tmp_path / "cal.json")
