"""Calibration files: the one table of what is read, and what is written as OpenCV's YAML."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pamcli.calibration import benchmark_files as bench
from pamcli.calibration import camera_files as device
from pamcli.calibration import colmap_files as colmap
from pamcli.calibration import matlab_files as matlab
from pamcli.calibration import opencv_files as opencv
from pamcli.calibration import ros_files as ros
from pamcli.calibration import slam_files as slam
from pamcli.calibration.described import Choice, Described, Extrinsics
from pamcli.calibration.parsing import Source, walk
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.rig import Rig
from pamcli.calibration.stored import StoredCalibration
from pamcli.errors import InputError, UsageError
from pamcli.files.safe_reading import read_bytes
from pamcli.files.units import parse_length

MOST_FILES = 4  # of a .dat set
MINIMAL = (
    "a minimal file has two lines, cam0=[f 0 cx; 0 f cy; 0 0 1] and baseline=120 (mm), for rectified images, "
    "or K1: [f, 0, cx, 0, f, cy, 0, 0, 1], K2, R and T in YAML: pam guide calibration-files"
)


@dataclass(frozen=True)
class Reader:
    """One format of calibration files."""

    name: str
    detect: Callable[[Source], bool] | str
    """Whether it recognises files; or the names, such as Camera.fx, by which it does."""
    read: Callable[[Source], Described]
    keys: str = ""
    """Names that such a file has, for a message about one that lacks some."""
    numbered: bool = False
    """It may describe more than two cameras, of which `cameras` chooses by number."""

    def recognises(self, source: Source) -> bool:
        if isinstance(self.detect, str):
            return set(self.detect.split()) <= source.flat.keys()
        return self.detect(source)


VINS = "body_T_cam0 body_T_cam1 cam0_calib cam1_calib"
CAMERA_INFO = "camera_matrix projection_matrix rectification_matrix"
ORB_SLAM = "Camera.fx Camera.fy Camera.cx Camera.cy Camera.bf"
CITYSCAPES = "extrinsic.baseline intrinsic.fx"
READERS = (
    Reader("COLMAP", colmap.has_colmap, colmap.read_colmap, "", True),
    Reader("KITTI, DrivingStereo", bench.has_kitti, bench.read_kitti, "P0 P1", True),
    Reader("ROS ost", ros.has_ost, ros.read_ost),
    Reader("ZED", device.has_zed, device.read_zed),
    Reader("Middlebury, ETH3D", bench.has_middlebury, bench.read_middlebury, "cam0 baseline"),
    Reader("cvkit", bench.has_cvkit, bench.read_cvkit, "camera.A t"),
    Reader("K.txt, two lines of KITTI", opencv.has_numbers, opencv.read_numbers, "", True),
    Reader("RealSense listing", device.has_listing, device.read_listing),
    Reader(".dat set", opencv.has_dat, opencv.read_dat),
    Reader("VINS-Fusion", slam.has_vins, slam.read_vins, VINS, True),
    Reader("Kalibr, OpenVINS", slam.has_kalibr, slam.read_kalibr, "cam0 cam1", True),
    Reader("Basalt", "value0.T_imu_cam", slam.read_basalt, "value0.T_imu_cam value0.intrinsics", True),
    Reader("OAK (DepthAI)", "cameraData", device.read_oak, "cameraData", True),
    Reader("mrcal", "lensmodel", slam.read_mrcal, "lensmodel intrinsics extrinsics imagersize", True),
    Reader("EuRoC", "T_BS", slam.read_euroc, "T_BS intrinsics camera_model distortion_model resolution"),
    Reader("ROS topic", ros.has_topics, ros.read_topics, "K D R P width height distortion_model"),
    Reader("cameras apart", opencv.has_cameras_apart, opencv.read_cameras_apart, "camera_matrix R T"),
    Reader("ROS camera_info", ros.has_camera_info, ros.read_camera_info, CAMERA_INFO),
    Reader("ORB-SLAM, stella_vslam", slam.has_orb_slam, slam.read_orb_slam, ORB_SLAM),
    Reader("MATLAB", matlab.has_matlab, matlab.read_matlab, "CameraParameters1 CameraParameters2"),
    Reader("RealSense Viewer", "rectified.0.fx", device.read_viewer, "baseline rectified.0.fx"),
    Reader("RealSense preset", device.has_preset, device.refuse_preset),
    Reader("RealSense", device.has_realsense, device.read_realsense, "fx fy ppx ppy rotation translation"),
    Reader("Cityscapes", CITYSCAPES, bench.read_cityscapes, CITYSCAPES),
    Reader("rectification maps", opencv.has_maps, opencv.refuse_maps),
    Reader("OpenCV", opencv.has_opencv, opencv.read_opencv, "K1 D1 K2 D2 R T"),
)
"""Formats in the order in which they are tried: the first one that recognises the files reads them."""


def read_calibration(
    *paths: str | Path,
    cameras: tuple[int, int] | None = None,
    extrinsics: Extrinsics = "transform",
    fisheye: bool = False,
    unit: str | float | None = None,
    baseline: str | float | None = None,
) -> StoredCalibration:
    """Read a calibration, recognised by its content.

    >>> calibration = pamcli.read_calibration("calib.txt").rectified

    Args:
        paths: One file, or several that belong together: of the left and of the right camera (ROS, EuRoC), of
            intrinsics and extrinsics (OpenCV), of cameras and rigs (COLMAP).
        cameras: Numbers of the left and the right camera, where a file (Kalibr, COLMAP, KITTI) describes
            several; (1, 0) exchanges two.
        extrinsics: How R and T are meant, one of `described.EXTRINSICS`.
        fisheye: Take the coefficients for those of OpenCV's fisheye model.
        unit: Length of one unit of the file ("mm", "25mm", metres), where the file does not state it.
        baseline: Distance of the cameras ("120mm", metres) instead of the file's.

    Raises:
        InputError: Names file and key: unreadable, unknown, text or NaN where numbers belong, wrong sizes,
            singular, left and right exchanged.
        UsageError: Too many files, or a unit for a file that states its own.
    """
    with naming(", ".join(map(str, paths))):
        described, choice = describe_calibration(*paths, cameras=cameras)
        return described.finished(replace(choice, **choice_of(extrinsics, fisheye, unit, baseline)))


def choice_of(
    extrinsics: Extrinsics, fisheye: bool, unit: str | float | None, baseline: str | float | None
) -> dict[str, Any]:
    """Return the fields of `Choice`, with lengths in metres."""
    return {
        "extrinsics": extrinsics,
        "fisheye": fisheye,
        "unit": None if unit is None else parse_length(unit, "`unit`"),
        "baseline": None if baseline is None else parse_length(baseline, "`baseline`"),
    }


def describe_calibration(
    *paths: str | Path, cameras: tuple[int, int] | None = None
) -> tuple[Described, Choice]:
    """Read what files say of two cameras, and whether `cameras` exchanges them."""
    if not 1 <= len(paths) <= MOST_FILES:
        raise UsageError(f"{len(paths)} calibration files are given, and 1 to {MOST_FILES} belong together")

    def read_beside(name: str) -> bytes | None:
        with suppress(InputError):
            return read_bytes(Path(paths[0]).parent / name)
        return None

    with naming(", ".join(map(str, paths))):
        contents = [(str(path), read_bytes(Path(path))) for path in paths]
        source = Source(contents, cameras, read_beside)
        reader = next((each for each in READERS if each.recognises(source)), None)
        if reader is None:
            raise _unknown(source)
        if not reader.numbered and cameras not in (None, (0, 1), (1, 0)):
            raise InputError("has two cameras alone", "leave out `cameras`, or exchange the two with 1:0")
        return reader.read(source), Choice(exchanged=not reader.numbered and cameras == (1, 0))


def _unknown(source: Source) -> InputError:
    """Say which names a file has, which format is closest, what that one lacks, and which were tried."""
    problem = next((problem for _, trees, problem in source.parsed if problem and not trees), "")
    names = dict.fromkeys([*source.tree, *source.lines("="), *([] if problem else source.lines(":"))])
    known = {name for name, _ in walk(source.tree)} | names.keys()
    words = [each.keys.split() for each in READERS]
    scores = [len(known.intersection(keys)) / max(len(keys), 1) for keys in words]
    best = max(range(len(READERS)), key=lambda index: scores[index])
    said = "holds no calibration of a format that pam reads"
    if problem:
        said += f"; it is {problem}"
    if names:
        some = ", ".join(str(name)[:30] for name in [*names][:8])
        said += f"; it has the keys {some}{' ...' if len(names) > 8 else ''}"
    if scores[best] > 0:
        missing = [key for key in words[best] if key not in known]
        are = "is" if len(missing) == 1 else "are"
        said += f"; {READERS[best].name} is closest, but {', '.join(missing)} {are} missing"
    tried = ", ".join(
        dict.fromkeys(each.name for each in READERS if "maps" not in each.name and "preset" not in each.name)
    )
    return InputError(f"{said}. Tried: {tried}", MINIMAL)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of the file into what is said of a calibration that is wrong."""
    try:
        yield
    except InputError as error:
        raise (
            error if name in error.message else InputError(f"{name}: {error.message}", error.hint)
        ) from error


def encode_calibration(calibration: Calibration) -> bytes:
    """OpenCV's YAML with P1, P2, Q, baseline (metres), image_width and image_height.

    Needs `principal` and `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    assert calibration.size is not None
    p1, p2 = calibration.projections()
    values = {"baseline": calibration.baseline, "P1": p1, "P2": p2, "Q": calibration.reprojection()}
    return _yaml(calibration.size, values)


def encode_rig(rig: Rig, facts: Mapping[str, int | float | str]) -> bytes:
    """OpenCV's YAML with K1, D1, K2, D2, R, T in millimetres, the size, and facts by their names.

    Needs `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    assert rig.size is not None
    cameras: dict[str, Any] = {}
    for index, camera in enumerate((rig.left, rig.right), 1):
        cameras |= {f"K{index}": camera.matrix, f"D{index}": camera.distortion.reshape(1, -1)}
    model = "fisheye" if rig.left.fisheye else "pinhole"
    place = {"R": rig.rotation, "T": 1000 * rig.translation.reshape(3, 1)}
    return _yaml(rig.size, {"distortion_model": model, "length_unit": "mm", **cameras, **place, **facts})


def _yaml(size: tuple[int, int], values: Mapping[str, Any]) -> bytes:
    """Numbers, texts and matrices by their names, behind the size of the pictures, as OpenCV writes them."""
    import cv2

    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, value in {"image_width": size[0], "image_height": size[1], **values}.items():
        file.write(key, value)
    text: str = file.releaseAndGetString()
    return text.encode()
