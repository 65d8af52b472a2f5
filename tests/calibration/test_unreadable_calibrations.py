"""Calibrations that cannot be read say what is wrong and what to do; every reader has an example."""

from __future__ import annotations

import pickle
import re
import time
from contextlib import suppress
from pathlib import Path

import calibration_files as files
import more_programs as more
import numpy as np
import program_files as programs
import pytest
from mat_writer import mat
from test_program_files import EXACT, FISHEYES, RECTIFIED, read

from pamcli.calibration.files import FORMATS
from pamcli.calibration.parsing import Source
from pamcli.errors import InputError

MAPS = {f"stereoMap{side}_{axis}": np.zeros((4, 6, 2), np.int16) for side in "LR" for axis in "xy"}
MIRROR = "data: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1]"
REFUSED: dict[str, tuple[tuple[str | bytes, ...], str]] = {
    "one euroc": (
        (programs.euroc(True),),
        "holds 1 camera, a pair needs 2 (give two files: cam0/sensor.yaml",
    ),
    "mirrored euroc": (
        tuple(re.sub(r"data: \[[^]]*\]", MIRROR, programs.euroc(left)) for left in (True, False)),
        "T_BS (its first three columns) must be a rotation",
    ),
    "maps": ((files.opencv(**MAPS),), "rectification maps (stereoMapL_x, stereoMapL_y"),
    "splines": (
        tuple(more.mrcal(left, "LENSMODEL_SPLINED_STEREOGRAPHIC_order=3") for left in (True, False)),
        "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it",
    ),
    "one cameramodel": ((more.mrcal(True),), "holds 1 camera, a pair needs 2"),
    "one topic": ((more.topics(True)[0],), "a pair needs 2 (give two files: of the left camera"),
    "listing without extrinsics": ((more.listing().partition("Extrinsic")[0],), "rs-enumerate-devices -c"),
    "intrinsics of a .dat set": (more.dat("k0", "k1"), "holds 2 intrinsics and 0 poses"),
    "double sphere": ((more.basalt(False),), "calibrate with --cam-types kb4 or pinhole-radtan8"),
    "lens of vins": ((more.vins()[1],), "give the file with body_T_cam0, too"),
    "socket": (
        (more.oak().replace('"rightCameraSocket": 2', '"rightCameraSocket": 5'),),
        "choose `cameras` from sockets 0, 1, 2",
    ),
    "id that is a list": (
        (
            programs.colmap_rig_config(True).replace(
                '"ref_sensor": true', '"ref_sensor": true, "camera_id": [1, 2]'
            ),
        ),
        "cameras[0].camera_id holds 2 numbers, expected 1",
    ),
    "count of 5,000 digits": (
        (
            programs.colmap_rigs().replace("1 2 CAMERA 1", f"1 {'2' * 5000} CAMERA 1"),
            programs.colmap_cameras(),
        ),
        "NUM_SENSORS, the number of sensors, must hold finite numbers, got '2222",
    ),
    "aliases": (("a: &a [" + "1, " * 2000 + "1]\nK1: [" + "*a, " * 2000 + "*a]\n",), "file0"),
    "tiny focal length": (
        (files.MIDDLEBURY.replace("[3979.911", "[1e-300"),),
        "focal length is 1e-300 px, expected",
    ),
    "tiny focal length of a camera": (
        (files.opencv(**{**files.RIG, "M1": np.diag([1e-300, 1e-300, 1])}),),
        "M1 has focal lengths of 1e-300 and 1e-300 px, expected",
    ),
    "baseline of 1e-300": ((more.K_TXT.partition("\n")[0] + "\n1e-300\n",), "baseline is 1e-300 m, expected"),
    "ocamcalib": (
        ("#polynomial coefficients (ocam_model.ss)\n\n5 -2.1e+02 0 1.4e-03\n",),
        "one fisheye camera of OC",
    ),
    "one ost": ((programs.ost("left"),), "holds 1 camera"),
    "omni": ((programs.chain().replace("pinhole", "omni"),), "'omni' is not a lens model of OpenCV"),
    "fov": (
        (programs.chain().replace("radtan", "fov"),),
        "'fov' is not a lens model of OpenCV (calibrate with a pinhole",
    ),
    "no pose": ((programs.chain().replace("T_imu_cam", "T_imu"),), "must hold T_cn_cnm1 of cam1"),
    "monocular": (("Camera.fx: 500\nCamera.fy: 500\nCamera.cx: 320\nCamera.cy: 240\n",), "holds one camera"),
    "rgb-d": (
        (
            "Camera.fx: 500\nCamera.fy: 500\nCamera.cx: 1\nCamera.cy: 2\nCamera.bf: 40\n"
            "DepthMapFactor: 5000\n",
        ),
        "holds a depth camera (DepthMapFactor)",
    ),
    "preset": ((programs.REALSENSE_PRESET,), "not a calibration (save a calibration with RealSense Viewer"),
    "one realsense": (('{"fx": 1, "fy": 1, "ppx": 1, "ppy": 1}',), "0 extrinsics of a RealSense"),
    "object": (
        (mat({"stereoParams": b"stereoParameters"}),),
        "an object (stereoParameters) that only MATLAB",
    ),
    "session": ((mat({"s": b"vision.internal.Session"}),), "rig = toStruct(stereoParams)"),
    "hdf5": (
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF\r\n",),
        "version 7.3, expected version 5 (save it",
    ),
    "mat 4": ((b"MATLAB 5.0 MAT-file".ljust(200),), "must be a .mat file of version 5"),
    "other mat": ((mat({"x": np.eye(3)}),), "does not hold stereoParameters"),
    "cameras alone": (
        (programs.colmap_cameras(),),
        "no camera poses (give rigs.txt or rig_config.json",
    ),
    "rigs alone": ((programs.colmap_rigs(),), "give cameras.txt, too"),
    "config alone": ((programs.colmap_rig_config(),), "give cameras.txt, too"),
    "division": (
        (programs.colmap_cameras().replace("OPENCV", "FOV"), programs.colmap_rigs()),
        "model 'FOV' is not a lens model of OpenCV",
    ),
    "colmap's binary": ((b"\2" + bytes(7) + bytes(40),), "colmap model_converter --output_type TXT"),
    "one array": (
        (b"\x93NUMPY\x01\x00v\x00",),
        "holds a single array (write all arrays into one file: numpy.savez",
    ),
    "pickle": (
        (pickle.dumps({"K1": [1.0]}),),
        "is a pickle, which can run any program when it is read (write all arrays",
    ),
    "objects": ((programs.npz(K1=np.array([{}, 1], object)),), "cannot be read as .npz of plain arrays"),
    "torn npz": ((programs.npz(K1=files.K1)[:150],), "cannot be read as .npz of plain arrays"),
    "one camera's npz": ((programs.npz(mtx=files.K1, dist=files.D1),), "must hold K1 D1 K2 D2 R T"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_says_what_to_do(name: str, tmp_path: Path) -> None:
    contents, message = REFUSED[name]
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        read(tmp_path, *contents)
    assert time.perf_counter() - start < 3
    assert message in str(caught.value)
    assert "file0" in str(caught.value)


def test_a_million_line_ends_cost_no_time(tmp_path: Path) -> None:
    start = time.perf_counter()
    assert read(tmp_path, "\n" * 1_000_000 + more.CVKIT).rectified is not None
    with pytest.raises(InputError, match="not a calibration in a supported format"):
        read(tmp_path, "\n" * 1_000_000)
    assert time.perf_counter() - start < 3


def test_every_format_has_an_example() -> None:
    examples = [contents for _, contents in EXACT.values()] + [*FISHEYES.values()]
    examples += [(text,) for text, _ in RECTIFIED.values()] + [contents for contents, _ in REFUSED.values()]
    examples += [(text,) for text in (files.KITTI_ODOMETRY, files.MIDDLEBURY, programs.zed(), files.kalibr())]
    examples += [(programs.REALSENSE_VIEWER,), (files.ROS_LEFT, files.ROS_RIGHT), more.vins()]

    def find_format(contents: tuple[str | bytes, ...]) -> str | None:
        source = Source([("file", c.encode() if isinstance(c, str) else c) for c in contents])
        for each in FORMATS:
            with suppress(InputError):
                if each.try_read(source) is None:
                    continue
            return each.name
        return None

    assert {each.name for each in FORMATS} <= {find_format(contents) for contents in examples}


def test_an_intact_file_of_another_kind_is_not_called_damaged(tmp_path: Path) -> None:
    unknown = ("cam_left: {f: 3}\ncam_right: {f: 3}\n", '{"serial": 1, "gain": [1, 2]}', "hello\nworld: [1\n")
    for text in (*unknown, "T_BS: 1\nrate_hz: 3\nintrinsics: 7\n"[9:], "<a><b>1</b></a>"):
        with pytest.raises(InputError) as caught:
            read(tmp_path, text)
        said = str(caught.value)
        assert "damaged" not in said
        assert "Supported: COLMAP, KITTI" in said
        assert "a minimal file has two lines, cam0=[" in said
        assert "\n" not in said
    with pytest.raises(
        InputError, match="it has the keys camera_model, intrinsics; EuRoC is closest, but lacks T_BS"
    ):
        read(tmp_path, "camera_model: pinhole\nintrinsics: [1, 2, 3, 4]\n")
