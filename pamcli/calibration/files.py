"""Calibration files: read whatever kind they are of, and written as OpenCV's YAML."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pamcli.calibration import formats
from pamcli.calibration.formats import OPENCV_NAMES, StoredCalibration
from pamcli.calibration.parsing import Tree, lines_of, read_text, tree_of
from pamcli.calibration.rectified import Calibration
from pamcli.errors import InputError, UsageError

KNOWN = "OpenCV (YAML, XML, JSON), ROS camera_info, Kalibr camchain, KITTI and Middlebury files can be read"


def read_calibration(*paths: str | Path, cameras: tuple[int, int] | None = None) -> StoredCalibration:
    """Read a calibration, recognised by its content. Lengths are in metres, save OpenCV's, as they are.

    paths: one file, or two that belong together: ROS's of the left and of the right camera, or OpenCV's
    intrinsics and extrinsics. cameras: the numbers of the left and the right one, where a file (Kalibr,
    KITTI) describes several. Raises InputError naming file and key: unreadable, no calibration, text or NaN
    where numbers belong, matrices of wrong sizes, singular, left and right exchanged; UsageError: more files.
    """
    if not 1 <= len(paths) <= 2:
        raise UsageError(f"{len(paths)} calibration files are given, where one or two belong together")
    with naming(", ".join(map(str, paths))):
        return _understood([read_text(Path(path)) for path in paths], cameras)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What is wrong in it with a calibration is said with the name of its file."""
    try:
        yield
    except InputError as error:
        raise (
            error if name in error.message else InputError(f"{name}: {error.message}", error.hint)
        ) from error


def _understood(texts: Sequence[str], cameras: tuple[int, int] | None) -> StoredCalibration:
    if len(texts) == 1 and re.search(r"^P(\d|_rect_\d\d):\s*[-+.\d]", texts[0], re.MULTILINE):
        return formats.kitti(lines_of(texts[0], ":"), cameras)
    middlebury = lines_of(texts[0], "=") if len(texts) == 1 else {}
    trees = [] if "cam0" in middlebury else [tree_of(text) for text in texts]
    if len(trees) == 1 and any(re.fullmatch(r"cam\d+", key) for key in trees[0]):
        return formats.kalibr(trees[0], cameras or (0, 1))
    if cameras not in (None, (0, 1)):
        raise InputError("has two cameras alone", "leave out `cameras`, which is about KITTI's and Kalibr's")
    if "cam0" in middlebury:
        return formats.middlebury(middlebury)
    if all({"camera_matrix", "projection_matrix"} & tree.keys() for tree in trees):
        return formats.ros(trees)
    together: Tree = {key: value for tree in trees for key, value in tree.items()}
    if {name for names in OPENCV_NAMES.values() for name in names} & together.keys():
        return formats.opencv(together)
    raise InputError("holds no calibration that is known", KNOWN)


def encode_calibration(calibration: Calibration) -> bytes:
    """OpenCV's YAML with P1, P2, Q, baseline (metres), image_width and image_height.

    Needs `principal` and `size`. `read_calibration`, and OpenCV's FileStorage, read it back.
    """
    import cv2

    assert calibration.size is not None
    mode = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | cv2.FILE_STORAGE_FORMAT_YAML
    file = cv2.FileStorage("", mode)
    for key, side in zip(("image_width", "image_height"), calibration.size, strict=True):
        file.write(key, side)
    file.write("baseline", calibration.baseline)
    for key, values in zip(("P1", "P2"), calibration.projections(), strict=True):
        file.write(key, values)
    file.write("Q", calibration.reprojection())
    text: str = file.releaseAndGetString()
    return text.encode()
