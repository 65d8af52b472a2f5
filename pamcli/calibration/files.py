"""Calibration files: the table of readers, and the writer of OpenCV's YAML."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pamcli.calibration import device_files as device
from pamcli.calibration import opencv_files as opencv
from pamcli.calibration import slam_files as slam
from pamcli.calibration.camera import OtherCamera
from pamcli.calibration.description import CameraDescription, Extrinsics, Interpretation, StoredCalibration
from pamcli.calibration.generic_files import read_named, read_placed
from pamcli.calibration.geometry import Calibration, Floats, Size
from pamcli.calibration.parsing import Source, walk
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError, UsageError
from pamcli.files.safe_reading import read_bytes

MOST_FILES = 4  # of a .dat set
MOST_LINES = 200  # that are searched for marks of unsupported files
MINIMAL = (
    "a minimal file has two lines, cam0=[f 0 cx; 0 f cy; 0 0 1] and baseline=120 (mm), for rectified images, "
    "or K1: [f, 0, cx, 0, f, cy, 0, 0, 1], K2, R and T in YAML: pam guide calibration-files"
)


@dataclass(frozen=True)
class Format:
    """A format of calibration files."""

    name: str
    read: Callable[[Source], CameraDescription | None]  # returns None if the files have another format
    pattern: str = ""  # of a key that such files must have, such as Camera.fx, or cam0= in text; "": any
    keys: str = ""  # keys of such a file, for messages about missing ones
    metres: float | None = None  # metres per unit of length that readers by name cannot know

    def try_read(self, source: Source) -> CameraDescription | None:
        if self.pattern and not any(re.fullmatch(self.pattern, key) for key in source.keys):
            return None
        found = self.read(source)
        return replace(found, kind=self.name, metres=self.metres) if found and self.metres else found


FORMATS = (
    Format("COLMAP", slam.read_colmap),
    Format("KITTI, DrivingStereo", device.read_kitti, keys="P0 P1"),
    Format("ROS ost", opencv.read_ost),
    Format("ZED", device.read_zed),
    Format("Middlebury, ETH3D", device.read_middlebury, "cam0=", "cam0 baseline"),
    Format("cvkit", device.read_cvkit, r"camera\.A=", "camera.A t"),
    Format("K.txt, two lines of KITTI", opencv.read_plain_numbers),
    Format("RealSense listing", device.read_listing),
    Format(".dat set", opencv.read_dat),
    Format("VINS-Fusion", slam.read_vins, "projection_parameters|body_T_cam0|cam0_calib", "body_T_cam0"),
    Format("Kalibr, OpenVINS", read_named, r"cam\d+\.T_\w*(cn|imu)\w*", "cam0 cam1", 1.0),
    Format("Basalt", slam.read_basalt, r"value0\.T_imu_cam", "value0.T_imu_cam value0.intrinsics", 1.0),
    Format("OAK (DepthAI)", device.read_oak, "cameraData", "cameraData"),
    Format("mrcal", slam.read_mrcal, "lensmodel", "lensmodel intrinsics extrinsics imagersize"),
    Format("EuRoC", read_named, "T_BS", "T_BS intrinsics camera_model distortion_model resolution", 1.0),
    Format("ROS camera_info, topic", opencv.read_ros, keys="camera_matrix projection_matrix"),
    Format(
        "ORB-SLAM, stella_vslam",
        slam.read_orb_slam,
        r"Camera1?\.fx|LEFT\.K|StereoRectifier\.K_left",
        "Camera.fx Camera.fy Camera.cx Camera.cy Camera.bf",
    ),
    Format("MATLAB", opencv.read_matlab, keys="CameraParameters1 CameraParameters2"),
    Format("RealSense Viewer", device.read_viewer, r"rectified\.0\.fx", "baseline rectified.0.fx"),
    Format("RealSense", device.read_realsense, r"(.*\.)?ppx", "fx fy ppx ppy rotation translation"),
    Format("Cityscapes", read_named, r"extrinsic\.baseline", "extrinsic.baseline intrinsic.fx", 1.0),
    Format("Argoverse", read_named, "camera_data_", "camera_data_", 1.0),
    Format("focal length, centre and baseline", read_named, keys="fx fy cx cy baseline"),
    Format("OpenCV", opencv.read_opencv),
)
"""Formats in the order of the attempts: the first one that reads the files counts."""

_UNSUPPORTED = tomllib.loads(Path(__file__).with_name("unsupported.toml").read_text("utf-8"))["files"]


def read_calibration(
    *paths: str | Path,
    cameras: tuple[int, int] | None = None,
    extrinsics: Extrinsics = "transform",
    fisheye: bool = False,
    unit: str | float | None = None,
    baseline: str | float | None = None,
) -> StoredCalibration:
    """Read a calibration in any supported format, detected by its content.

    >>> calibration = pamcli.read_calibration("calib.txt").rectified

    Args:
        paths: One file, or several that belong together: left and right camera (ROS, EuRoC), intrinsics and
            extrinsics (OpenCV), cameras and rigs (COLMAP).
        cameras: Numbers of the left and the right camera if a file (Kalibr, COLMAP, KITTI) holds several;
            (1, 0) swaps two cameras.
        extrinsics: Meaning of R and T: "transform" (x2 = R x1 + T), "pose" (x1 = R x2 + T), "rows"
            (x2 = x1 R + T) or "position" (x2 = R (x1 - T)).
        fisheye: Interpret the coefficients as those of OpenCV's fisheye model.
        unit: Length of one unit of the file ("mm", "25mm", or metres) if the file does not state it.
        baseline: Distance of the cameras ("120mm", or metres) instead of the file's.

    Raises:
        InputError: If a file is unreadable, of unknown format, or not a stereo pair; names file and key.
        UsageError: If there are too many files, or a unit for a file that states its unit.
    """
    how = (extrinsics, fisheye, unit, baseline)
    with prefix_errors(", ".join(map(str, paths))):
        description, interpretation = describe_calibration(*paths, cameras=cameras, how=how)
        return description.resolve(interpretation)


def describe_calibration(
    *paths: str | Path, cameras: tuple[int, int] | None = None, how: Sequence[Any] = ()
) -> tuple[CameraDescription, Interpretation]:
    """Return the cameras of files, and their interpretation; `how`: its fields after `swapped`."""
    if not 1 <= len(paths) <= MOST_FILES:
        raise UsageError(f"a calibration has 1 to {MOST_FILES} files, got {len(paths)}")
    if not all(isinstance(path, str | Path) for path in paths):
        kinds = ", ".join(type(path).__name__ for path in paths)
        raise UsageError(f"a calibration file must be a path, got {kinds}")
    if cameras is not None and not (len(cameras) == 2 and all(isinstance(each, int) for each in cameras)):
        raise UsageError(f"`cameras` must be two numbers, got {cameras}", "`cameras` counts them from 0")

    with prefix_errors(", ".join(map(str, paths))):
        contents = [(str(path), read_bytes(Path(path))) for path in paths]
        source = Source(contents, cameras)
        for each in FORMATS:
            if (found := each.try_read(source)) is None:
                continue
            if found.numbers is None and cameras not in (None, (0, 1), (1, 0)):
                message = "holds two cameras, numbered 0 and 1"
                raise InputError(message, "omit `cameras`, or swap them with 1:0")
            return found, Interpretation(found.numbers is None and cameras == (1, 0), *how)
        raise _describe_unknown(source)


def describe_other_camera(
    *paths: str | Path, cameras: tuple[int, int] | None, metres: float
) -> list[OtherCamera]:
    """Return a camera for each size of left images: that of a file with K, R and T, else a rig's second one.

    cameras: Numbers of the left and the other camera. metres: length of one unit if it is not stated.
    """
    with prefix_errors(", ".join(map(str, paths))):
        found = None
        if cameras is None:
            found = read_placed(Source([(str(path), read_bytes(Path(path))) for path in paths]), metres)
        if found is not None:
            others = [found]
        else:
            description, interpretation = describe_calibration(*paths, cameras=cameras)
            others = description.describe_second(interpretation.swapped, metres)
        if any(each.size is None and not each.is_rectified for each in others):
            raise InputError("states no image size of the other camera", "add width and height, px")
        return others


def _describe_unknown(source: Source) -> InputError:
    """Return the error about files that no reader accepts: their keys, the closest format, all formats."""
    texts = [line.strip()[:99] for text in source.texts for line in text.splitlines()[:MOST_LINES]]
    for kind in _UNSUPPORTED:
        if found := [each for each in (*source.flat, *texts) if re.fullmatch(kind["pattern"], each[:99])]:
            name = f" ({', '.join(found[:2])})" if found[0] in source.flat else ""
            return InputError(f"holds {kind['content']}{name}", kind["hint"])
    # Only a file that looks like YAML is called invalid YAML.
    named = [
        each for each in source.contents if each[0].endswith((".yaml", ".yml")) or each[1][:5] == b"%YAML"
    ]
    problems = [problem for _, trees, problem in source.parsed if problem and not trees]
    problem = next((each for each in problems if named or "YAML" not in each), "")
    lines = {} if problem else source.read_lines(":")
    names = dict.fromkeys([*source.tree, *source.read_lines("="), *lines])
    known = {name for name, _ in walk(source.tree)} | names.keys()
    message = "is not a calibration in a supported format"
    if problem:
        message += f"; {problem}"
    if names:
        message += f"; it has the keys {', '.join(str(name)[:30] for name in [*names][:8])}"
        message += " ..." if len(names) > 8 else ""
    keyed = [(each.name, each.keys.split()) for each in FORMATS if each.keys]
    best, keys = max(keyed, key=lambda each: len(known & {*each[1]}) / len(each[1]))
    missing = [key for key in keys if key not in known]
    if len(missing) < len(keys):
        message += f"; {best} is closest, but lacks {', '.join(missing)}"
    return InputError(f"{message}. Supported: {', '.join(each.name for each in FORMATS)}", MINIMAL)


@contextmanager
def prefix_errors(name: str) -> Iterator[None]:
    """Prefix the message of an InputError with the name of a file, or names separated by commas."""
    try:
        yield
    except InputError as error:
        if name in error.message:
            raise
        predicates = "is ", "has ", "holds ", "must ", "does ", "cannot "
        space = " " if error.message.startswith(predicates) and ", " not in name else ": "
        raise InputError(f"{name}{space}{error.message}", error.hint) from error


def encode_calibration(calibration: Calibration, rotations: Sequence[Floats] = ()) -> bytes:
    """Encode a calibration with `principal` and `size` as OpenCV's YAML, with the baseline in metres.

    rotations: R1 and R2 (3, 3), if known, from left and right camera to rectified coordinates.
    """
    p1, p2 = calibration.projections()
    values: dict[str, Any] = {f"R{index}": rotation for index, rotation in enumerate(rotations, start=1)}
    values |= {"baseline": calibration.baseline, "P1": p1, "P2": p2, "Q": calibration.reprojection()}
    return _encode_yaml(calibration.size, values)


def encode_rig(rig: Rig, facts: Mapping[str, int | float | str]) -> bytes:
    """Encode a rig with `size` as OpenCV's YAML: K1, D1, K2, D2, R, T (mm), size, and more facts."""
    model = "fisheye" if rig.left.fisheye else "pinhole"
    values: dict[str, Any] = {"distortion_model": model, "length_unit": "mm"}
    for index, camera in enumerate((rig.left, rig.right), 1):
        values |= {f"K{index}": camera.matrix, f"D{index}": camera.distortion.reshape(1, -1)}
    values |= {"R": rig.rotation, "T": 1000 * rig.translation.reshape(3, 1), **facts}
    return _encode_yaml(rig.size, values)


def _encode_yaml(size: Size | None, values: Mapping[str, Any]) -> bytes:
    """Encode numbers, texts and matrices as OpenCV does, after the size of the images."""
    import cv2

    assert size is not None
    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, value in {"image_width": size[0], "image_height": size[1], **values}.items():
        file.write(key, value)
    return str(file.releaseAndGetString()).encode()
