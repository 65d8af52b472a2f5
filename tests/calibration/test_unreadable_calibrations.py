"""Calibrations that cannot be read: what is wrong and what to do."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import time
import tracemalloc
import zlib
from collections.abc import Sequence

import calibration_files as files
import numpy as np
import pytest
from calibration_files import example, examples
from test_program_files import Read

from pamcli.calibration.mat_files import read_mat
from pamcli.errors import InputError


def npz_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


MAPS = {f"stereoMap{side}_{axis}": np.zeros((4, 6, 2), np.int16) for side in "LR" for axis in "xy"}
MIRROR = "data: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1]"
RGBD = "Camera.fx: 500\nCamera.fy: 500\nCamera.cx: 1\nCamera.cy: 2\nCamera.bf: 40\nDepthMapFactor: 5000\n"
LOST = {"mtx_l": [[700, 0, 320], [0, 700], [0, 0, 1]], "dist_l": [0] * 5}
LOST |= {"mtx_r": [[0] * 3] * 3, "dist_r": [0] * 5}
MIDDLEBURY, OPENVINS = example("middlebury.txt"), example("openvins.yaml")
COLMAP = example("colmap_cameras.txt"), example("colmap_rigs.txt")


def opencv(**values: object) -> str:
    given = {key: value for key, value in {**files.RIG, **values}.items() if value is not None}
    return files.opencv(**given)


MIDDLEBURY_REFUSED = [  # a part of the file, what replaces it, and the message
    ("[3979.911", "[1e-300", "focal length is 1e-300 px, expected"),
    ("baseline=193.001", "", "baseline is missing"),
    ("doffs", "baseline=900\ndoffs", "baseline is given twice: "),
    ("baseline=193.001", "baseline=far", "baseline must hold finite numbers, got 'far'"),
    ("cam0=[3979.911 0", "cam0=[0", "cam0 holds 8 numbers, expected 9"),
    ("cam0=[3979.911", "cam0=[0", "the focal lengths of the left camera"),
    ("width=2964", "width=0", "width x height must be an image size in px, got 0x1988"),
]
OPENCV_REFUSED: list[tuple[dict[str, object], str]] = [
    ({"M1": np.diag([1e-300, 1e-300, 1])}, "M1 has focal lengths of 1e-300 and 1e-300 px, expected"),
    ({"M1": np.zeros((3, 3))}, "M1 must be a camera matrix"),
    ({"M2": None}, "M2 is missing"),
    ({"R": None, "T": None}, "R and T are missing"),
    ({"D1": np.zeros(7)}, "D1 has 7 distortion coefficients"),
    ({"R": np.diag([1.0, 1.0, -1.0])}, "R must be a rotation matrix"),
    ({"T": np.zeros(3)}, "the baseline (length of T) is 0 m"),
    ({"T": -files.T}, "left of the left camera"),
    ({"T": np.array([0, 0.2, 0])}, "not beside the left camera (if one is above the other, turn all"),
    ({"distortion_model": "omni"}, "distortion_model 'omni' is not a lens model of OpenCV"),
    ({"P1": files.P1, "P2": files.P2 * [[1.1], [1], [1]]}, "P1 and P2 must have the same focal length"),
]
REFUSED: list[tuple[Sequence[str | bytes], str]] = [
    (examples("euroc_left.yaml"), "holds one camera, a pair needs 2 (give the other camera, too"),
    (
        [re.sub(r"data:[^]]*\]", MIRROR, example(f"euroc_{side}.yaml")) for side in ("left", "right")],
        "T_BS (its first three columns) must be a rotation",
    ),
    ([files.opencv(**MAPS)], "rectification maps, but no baseline (stereoMapL_x, stereoMapL_y"),
    (
        [
            example(f"{side}.cameramodel").replace("OPENCV5", "SPLINED_STEREOGRAPHIC_order=3")
            for side in ("left", "right")
        ],
        "mrcal-convert-lensmodel LENSMODEL_OPENCV8 converts it",
    ),
    (examples("topic2_left.yaml"), "a pair needs 2 (give two files: of the left camera"),
    ([example("realsense_listing.txt").partition("Extrinsic")[0]], "rs-enumerate-devices -c"),
    (examples("intrinsics0.dat intrinsics1.dat"), "holds 2 intrinsics and 0 poses"),
    ([example("basalt.json").replace("kb4", "ds")], "'ds' is not a lens model of OpenCV"),
    (examples("vins_left.yaml"), "give the file with body_T_cam0, too"),
    (
        [example("oak.json").replace('"rightCameraSocket": 2', '"rightCameraSocket": 5')],
        "choose `cameras` from sockets 0, 1, 2",
    ),
    (["a: &a [" + "1, " * 2000 + "1]\nK1: [" + "*a, " * 2000 + "*a]\n"], "file0"),
    (["#polynomial coefficients (ocam_model.ss)\n\n5 -2.1e+02 0 1.4e-03\n"], "one fisheye camera of OC"),
    ([OPENVINS.replace("radtan", "fov")], "'fov' is not a lens model of OpenCV (calibrate with"),
    ([OPENVINS.replace("T_imu_cam", "T_imu")], "R and T between them are missing"),
    (["Calibration results\n=====\nCamera-system parameters:\n\tcam0 (/c): \n"], "give its camchain.yaml"),
    (['{"width": 800, "fov": 90, "baseline": 0.5}'], "a field of view, but no focal length (fov)"),
    ([RGBD], "holds a depth camera (DepthMapFactor)"),
    (examples("realsense_preset.json"), "(save a calibration with RealSense Viewer"),
    (examples("matlab_object.mat"), "an object (stereoParameters) that only MATLAB"),
    (examples("matlab_session.mat"), "rig = toStruct(stereoParams)"),
    (examples("matlab_skewed.mat"), "has skew"),
    ([b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n"], "version 7.3, expected version 5 (save it"),
    (examples("matlab_numbers.mat"), "does not hold stereoParameters"),
    (COLMAP[:1], "no camera poses (give rigs.txt, rig_config.json"),
    (COLMAP[1:], "give cameras.txt, too"),
    ([b"\2" + bytes(7) + bytes(40)], "colmap model_converter --output_type TXT"),
    ([b"\x93NUMPY\x01\x00v\x00"], "a single array (write all arrays into one file: numpy.savez"),
    ([pickle.dumps({"K1": [1.0]})], "is a pickle, which can run any program when it is read (write all"),
    ([npz_bytes(K1=np.array([{}, 1], object))], "cannot be read as .npz of plain arrays"),
    (["fx: 4\ncx: 2\ncy: 1\n"], "`focal` 4, `principal_point` 2,1 and `baseline`"),
    ([json.dumps(LOST)], "mtx_l"),
    *(([MIDDLEBURY.replace(old, new)], message) for old, new, message in MIDDLEBURY_REFUSED),
    *(([opencv(**values)], message) for values, message in OPENCV_REFUSED),
    *(([text], "file0") for text in ("", "\0\0", "hello", "a: b", "[1, 2]", "{", "<a>")),
    *(([text], "file0") for text in ("- 1", "P1: 1", "&a [*a]")),
    (["a" * (1 << 20) + "b"], "more than 1 MB of text"),
]


@pytest.mark.parametrize(("contents", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_read_says_what_to_do(
    contents: Sequence[str | bytes], message: str, read: Read
) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read(*contents)
    assert time.perf_counter() - start < 3
    assert "file0" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "cameras", "message"),
    [
        ("zed.conf", (2, 3), "holds two cameras, numbered 0 and 1"),
        ("colmap_cameras.txt colmap_rigs.txt", (0, 2), "holds 2 cameras"),
        ("opencv_q.yaml", (1, 0), "swap the cameras: `cameras` 1:0"),
        ("orb_slam3_rectified.yaml", (1, 0), "swap the cameras: `cameras` 1:0"),
    ],
)
def test_cameras_that_are_not_there(names: str, cameras: tuple[int, int], message: str, read: Read) -> None:
    with pytest.raises(InputError, match=message):
        read(*examples(names), cameras=cameras)


def test_an_intact_file_of_another_kind_is_not_called_damaged(read: Read) -> None:
    unknown = ("cam_left: {f: 3}\ncam_right: {f: 3}\n", '{"serial": 1, "gain": [1, 2]}', "hello\nworld: [1\n")
    for text in (*unknown, "rate_hz: 3\nintrinsics: 7\n", "<a><b>1</b></a>"):
        with pytest.raises(InputError, match=r"Supported: COLMAP, KITTI.*a minimal file has") as caught:
            read(text)
        assert "damaged" not in str(caught.value)
    said = "it has the keys camera_model, intrinsics; EuRoC is closest, but lacks T_BS"
    with pytest.raises(InputError, match=said):
        read("camera_model: pinhole\nintrinsics: [1, 2]\n")


def test_a_million_line_ends_cost_no_time(read: Read) -> None:
    start = time.perf_counter()
    rig = example("opencv.yaml").replace("...", "")
    assert read("\n" * 1_000_000 + example("cvkit.txt")).rectified is not None
    for text in ("\n" * 900_000 + rig, " \t\n" * 300_000 + rig, f"{rig}time: 1{':1' * 400_000}\n"):
        assert read(text).rig is not None
    with pytest.raises(InputError, match="not a calibration in a supported format"):
        read("\n" * 1_000_000)
    assert time.perf_counter() - start < 10


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def array(kind: int, shape: tuple[int, int], *rest: bytes) -> bytes:
    flags, sides = element(6, struct.pack("<II", kind, 0)), element(5, struct.pack("<ii", *shape))
    return element(14, b"".join((flags, sides, element(1, b"rig"), *rest)))


FIELDS = array(2, (65535, 65535), element(5, struct.pack("<i", 8)), element(1, b"K1".ljust(8, b"\0")))
BOMB = element(15, zlib.compress(array(6, (1, 1), element(9, bytes(40 << 20)))))


@pytest.mark.parametrize("body", [FIELDS, array(1, (65535, 65535)), BOMB * 3, array(2, (-1, 5))])
def test_small_mat_files_that_stand_for_much_cost_little(body: bytes) -> None:
    head = b"MATLAB 5.0".ljust(124) + b"\0\1IM"
    start = time.perf_counter()
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_mat(head + body)
        assert tracemalloc.get_traced_memory()[1] < 512 << 20
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 20
