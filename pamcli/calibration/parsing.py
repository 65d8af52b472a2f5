"""Calibration files as texts and trees of named values, and numbers read from them."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, check_rotation, make_transform
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.mat_files import read_mat
from pamcli.errors import InputError
from pamcli.files.safe_reading import LARGEST_SETTINGS, parse_json, parse_npz, parse_xml, parse_yaml

Tree = Mapping[str, Any]

MOST_VALUES = 10_000  # in one matrix, or names examined in one file: YAML aliases make billions of a few
MOST_DOCUMENTS = 50  # of a YAML file, for example a recorded topic
LONGEST_NUMBER = 400  # characters
LARGEST_NUMBER = 1e12
SAVE_ARRAYS = (
    "write all arrays into one file: numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)"
)
_FISHEYE = "fisheye equidistant kb4 kannalabrandt4 kannalabrandt8 kannalabrandt equi 1 true"
_PINHOLE = (
    "none plumbbob radtan radialtangential pinhole perspective browncony rationalpolynomial radtan8 "
    "pinholeradtan8 pinholeradtan brownconrady rational 0 false"
)


@dataclass(frozen=True)
class Source:
    """The files of one calibration, and the cameras that the user selects."""

    contents: Sequence[tuple[str, bytes]]  # name and content of each file
    pair: tuple[int, int] | None = None  # numbers of the left and the right camera; None: the default ones
    read_beside: Callable[[str], bytes | None] = lambda name: None
    """Reads another file of the same folder that the first one names; None: it does not exist."""

    @cached_property
    def parsed(self) -> list[tuple[str, list[Tree], str]]:
        """Text ("" of a binary file), trees, and the parsing error ("" if none) of each file."""
        return [parse(data) for _, data in self.contents]

    @property
    def texts(self) -> list[str]:
        return [text for text, _, _ in self.parsed]

    @cached_property
    def trees(self) -> list[Tree]:
        """All different trees of all files."""
        found: list[Tree] = []
        for tree in itertools.chain.from_iterable(trees for _, trees, _ in self.parsed):
            if not any(tree is each or (len(tree) < 50 and _is_equal(tree, each)) for each in found):
                found.append(tree)
        return found

    @cached_property
    def tree(self) -> Tree:
        """The names of all trees together."""
        return {name: value for tree in self.trees for name, value in tree.items()}

    @cached_property
    def flat(self) -> Tree:
        """The same with dotted names, such as Camera.fx for fx below Camera."""
        return dict(walk(self.tree))

    def read_lines(self, mark: str, *, once: bool = False) -> dict[str, str]:
        """Return the lines "name<mark>value" of a single file, {} for several files.

        Raises InputError if `once` is set and a name has two values.
        """
        lines: dict[str, str] = {}
        for line in self.texts[0].splitlines() if len(self.texts) == 1 else ():
            name, found, value = (part.strip() for part in line.partition(mark))
            known = (
                lines.setdefault(name, value) if found and re.fullmatch(r"[A-Za-z][\w.]*", name) else value
            )
            if known != value and once:
                raise InputError(f"{name} is given twice: {known[:40]} and {value[:40]}")
        return lines


def _is_equal(one: Tree, other: Tree) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False


def walk(tree: Tree, depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of everything below a tree, at most `MOST_VALUES`."""

    def walk_all() -> Iterator[tuple[str, Any]]:
        waiting = [("", tree, depth)]
        while waiting:
            name, value, left = waiting.pop(0)
            for key, each in value.items():
                yield (path := f"{name}{key}"), each
                if isinstance(each, Mapping) and left:
                    waiting.append((f"{path}.", each, left - 1))

    return itertools.islice(walk_all(), MOST_VALUES)


def parse(data: bytes) -> tuple[str, list[Tree], str]:
    """Return the text of a file, its trees, and why there are none. Raises InputError."""
    if data.startswith(b"PK"):
        try:
            return "", [parse_npz(data)], ""
        except ValueError as error:
            raise InputError(f"cannot be read as .npz of plain arrays: {error}", SAVE_ARRAYS) from error
    if data.startswith((b"MATLAB", b"\x89HDF")):
        return "", [read_mat(data)], ""
    if data.startswith(b"\x93NUMPY"):
        raise InputError("holds a single array", SAVE_ARRAYS)
    if data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        raise InputError("is a pickle, which can run any program when it is read", SAVE_ARRAYS)
    # COLMAP's cameras.bin and rigs.bin start with an 8-byte count.
    if len(data) > 24 and data[1:8] == bytes(7):
        raise InputError(
            "is a binary file, perhaps of COLMAP",
            "convert it to cameras.txt and rigs.txt: colmap model_converter --output_type TXT",
        )
    if b"'optimization_inputs" in data:  # mrcal: megabytes that are not YAML
        data = re.sub(rb"b'[^'\n]*'", b"''", data)
    if len(data) > LARGEST_SETTINGS:
        raise InputError(
            f"has more than {LARGEST_SETTINGS >> 20} MB of text, too much for a calibration",
            "for rectification maps (stereoMapL_x ...), give the calibration they were made from",
        )
    try:
        lines = data.decode("utf-8-sig").splitlines()
        if b"\0" in data:
            raise ValueError
    except ValueError:
        raise InputError("is not a text file") from None
    # Without blank lines, which regular expressions would scan repeatedly.
    text = "".join(f"{line}\n" for line in lines if line and not line.isspace())
    trees, problem = _parse_trees(text.lstrip())
    return text, trees, problem


def _parse_trees(text: str) -> tuple[list[Tree], str]:
    trees: list[Any] = []
    problem = ""
    kind = {"<": "XML", "{": "JSON", "[": "JSON"}.get(text[:1], "YAML")
    try:
        if kind == "XML":
            trees = [parse_xml(text)]
        elif kind == "JSON":
            trees = [_parse_json_or_yaml(text)]
        else:
            for tree in itertools.islice(parse_yaml(text), MOST_DOCUMENTS):
                trees.append(tree)
    except ValueError as error:
        problem = f"not valid {kind}: {error}"
    found: list[Tree] = []
    for tree in trees:
        if isinstance(tree, list) and tree and isinstance(tree[0], dict):
            tree = {"list": tree}
        if isinstance(tree, dict):
            found.append({str(name): value for name, value in tree.items()})
    return found, problem


def _parse_json_or_yaml(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        try:  # mrcal's files, and lists that only look like JSON
            return next(tree for tree in parse_yaml(text) if isinstance(tree, dict))
        except (StopIteration, ValueError):
            raise error from None


def read_numbers(value: Any, key: str, *counts: int) -> Floats:
    """Return all numbers of a value, in order; texts such as "[1 0 2; 0 1 3]" hold several.

    Args:
        value: Number, text, array, list, or mapping with "data".
        key: Name for messages.
        counts: Allowed numbers of numbers, by default any.

    Raises:
        InputError: If numbers are missing, not finite, or of another count.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"{key} is missing")
    found: list[float] = []
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            item = item.get("data")
        if isinstance(item, np.ndarray):
            item = item.tolist() if item.size <= MOST_VALUES else [None] * (MOST_VALUES + 1)
        if isinstance(item, str) and len(parts := re.split(r"[\s\[\];,]+", item.strip(" \t\r\n[];,"))) > 1:
            item = parts
        if not isinstance(item, list | tuple):
            found.append(_read_finite(item, key))
            continue
        seen += len(item) + 1
        if seen > MOST_VALUES:
            raise InputError(f"{key} holds too many values for a matrix")
        waiting.extend(reversed(item))
    if counts and len(found) not in counts:
        raise InputError(f"{key} holds {len(found)} numbers, expected {' or '.join(map(str, counts))}")
    return np.array(found, np.float64)


def _read_finite(value: Any, key: str) -> float:
    if value is None:
        raise InputError(f"{key} is missing")
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    try:
        if is_number and len(str(value)) <= LONGEST_NUMBER and abs(result := float(value)) < LARGEST_NUMBER:
            return result
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{key} must hold finite numbers, got {str(value)[:20]!r}")


def read_number(value: Any, key: str) -> float:
    """Read one number, as `read_numbers` reads several."""
    return float(read_numbers(value, key, 1)[0])


def read_integer(value: Any, key: str) -> int:
    """Read a whole number from 0 to a million. Raises InputError naming the key."""
    found = read_number(value, key)
    if found != int(found) or not 0 <= found <= 1e6:
        raise InputError(f"{key} must be a whole number from 0 to 1000000, got {str(value)[:20]}")
    return int(found)


def read_matrix(value: Any, key: str, rows: int, columns: int) -> Floats:
    """Read a matrix, as `read_numbers` reads its entries; the shape may be stated."""
    if isinstance(value, Mapping) and ("rows" in value or "cols" in value):
        stated = tuple(str(value.get(name)) for name in ("rows", "cols"))
        if stated != (str(rows), str(columns)):
            raise InputError(f"{key} has {' x '.join(stated)} entries, expected {rows} x {columns}")
    return read_numbers(value, key, rows * columns).reshape(rows, columns)


def read_size(value: Any, key: str) -> Size:
    """Read width and height of an image. Raises InputError naming the key."""
    width, height = read_numbers(value, key, 2)
    if not all(side >= 1 and side == int(side) and side < 1e6 for side in (width, height)):
        raise InputError(f"{key} must be a size of images in pixels, got {width:g}x{height:g}")
    return int(width), int(height)


def read_sides(tree: Tree, width: str, height: str) -> Size:
    """Read the size of images from two keys of a tree."""
    return read_size([tree.get(width), tree.get(height)], f"{width} x {height}")


def read_section(tree: Tree, key: str) -> Tree:
    """Return the mapping below a key. Raises InputError if it is missing."""
    found = tree.get(key)
    if not isinstance(found, Mapping):
        raise InputError(f"{key} is missing")
    return found


def make_camera(
    intrinsics: Floats, key: str, distortion: Floats, distortion_key: str, fisheye: bool = False
) -> Camera:
    """Build a camera; its InputError names the key of the wrong numbers."""
    try:
        return Camera(intrinsics, distortion, fisheye)
    except InputError as error:
        wrong = distortion_key if "coefficients" in error.message else key
        raise InputError(f"{wrong} {error.message}", error.hint) from None


def pinhole_matrix(fx: float, fy: float, x: float, y: float) -> Floats:
    """Return the camera matrix (3, 3) of focal lengths and principal point, px."""
    return np.array([[fx, 0, x], [0, fy, y], [0, 0, 1.0]])


def read_camera(
    tree: Tree, prefix: str, coefficients: str, fisheye: bool = False, names: str = "fx fy cx cy"
) -> Camera:
    """Read keys such as Camera1.fx, fy, cx, cy, and the coefficients; missing ones are 0."""
    fx, fy, x, y = (read_number(tree.get(prefix + key), prefix + key) for key in names.split())
    found = [read_number(tree.get(prefix + key, 0), prefix + key) for key in coefficients.split()]
    return make_camera(pinhole_matrix(fx, fy, x, y), prefix + "fx", np.array(found), prefix + "k1", fisheye)


def read_matrix_camera(tree: Tree, key: str, distortion_key: str, fisheye: bool = False) -> Camera:
    """Read a camera matrix (3, 3) and the coefficients, which may be missing."""
    coefficients = tree.get(distortion_key)
    found = read_numbers([] if coefficients is None else coefficients, distortion_key)
    return make_camera(read_matrix(tree.get(key), key, 3, 3), key, found, distortion_key, fisheye)


def is_fisheye(model: Any, key: str) -> bool:
    """Return True if a lens model is OpenCV's fisheye. Raises InputError for models OpenCV lacks."""
    text = "".join(letter for letter in str(model).lower() if letter.isalnum())
    if text and text not in (*_FISHEYE.split(), *_PINHOLE.split()):
        hint = "calibrate with a pinhole model (radial and tangential distortion) or a fisheye (kb4)"
        raise unsupported_lens(key, model, hint)
    return text in _FISHEYE.split()


def unsupported_lens(key: str, model: Any, hint: str) -> InputError:
    """Return the error about a lens model that OpenCV lacks."""
    return InputError(f"{key} {str(model)[:40]!r} is not a lens model of OpenCV", hint)


def read_pose(value: Any, key: str) -> Floats:
    """Read a rigid transform (4, 4) or its first three rows. Raises InputError."""
    found = read_numbers(value, key, 12, 16)[:12].reshape(3, 4)
    check_rotation(found[:, :3], f"{key} (its first three columns)")
    return make_transform(found[:, :3], found[:, 3])


def read_quaternion_pose(quaternion: Any, translation: Any, key: str) -> Floats:
    """Read a rigid transform (4, 4) from a quaternion w x y z and a translation. Raises InputError."""
    w, x, y, z = read_numbers(quaternion, key, 4)
    length = w * w + x * x + y * y + z * z
    if not (length > 0 and np.isfinite(length)):
        raise InputError(f"{key} must be a quaternion, got zeros")
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation = np.eye(3) + 2 / length * (w * cross + cross @ cross)
    return make_transform(rotation, read_numbers(translation, key, 3))
