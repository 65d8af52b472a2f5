"""Calibration files as texts and trees of named values, and numbers read from them."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, check_rotation, make_rotation, make_transform, pinhole_matrix
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.mat_files import read_mat
from pamcli.errors import InputError
from pamcli.files.paths import pluralize
from pamcli.files.safe_reading import LARGEST_SETTINGS, parse_json, parse_npz, parse_xml, parse_yaml

MOST_VALUES = 10_000  # in one matrix, or names examined in one file: YAML aliases make billions of a few
MOST_DOCUMENTS = 50  # of a YAML file, for example a recorded topic
LONGEST_NUMBER = 400  # characters
LARGEST_NUMBER = 1e12
PINHOLE, RADTAN, RATIONAL, KB4 = "fx fy cx cy", "k1 k2 p1 p2", "k1 k2 p1 p2 k3 k4 k5 k6", "k1 k2 k3 k4"
SAVE_ARRAYS = (
    "write all arrays into one file: numpy.savez('rig.npz', K1=..., D1=..., K2=..., D2=..., R=..., T=...)"
)
_BINARIES = (  # first bytes of binary files that cannot be read, what is wrong, and what to do
    (rb"\x93NUMPY", "holds a single array", SAVE_ARRAYS),
    (rb"\x80[\2-\5]", "is a pickle, which can run any program when it is read", SAVE_ARRAYS),
    (  # COLMAP's cameras.bin and rigs.bin start with an 8-byte count
        rb".\0{7}.{17}",
        "is a binary file, perhaps of COLMAP",
        "convert it to cameras.txt and rigs.txt: colmap model_converter --output_type TXT",
    ),
)
_FISHEYE = "fisheye equidistant kb4 kannalabrandt4 kannalabrandt8 kannalabrandt equi 1 true"
_PINHOLE = (
    "none plumbbob radtan radialtangential pinhole perspective browncony rationalpolynomial radtan8 "
    "pinholeradtan8 pinholeradtan brownconrady rational 0 false"
)


class Source:
    """The files of one calibration, and the cameras that the user selects.

    `pair` has the numbers of the left and the right camera, or is None for the default ones.
    """

    def __init__(self, contents: Sequence[tuple[str, bytes]], pair: tuple[int, int] | None = None) -> None:
        """Parse the names and contents of files. Raises InputError."""
        self.contents, self.pair = contents, pair
        self.parsed = [parse(data) for _, data in contents]
        self.texts = [text for text, _, _ in self.parsed]
        self.trees: list[Section] = []
        for tree in itertools.chain.from_iterable(trees for _, trees, _ in self.parsed):
            with suppress(ValueError):  # arrays cannot be compared
                if any(tree is each or (len(tree) < 50 and tree == each) for each in self.trees):
                    continue
            self.trees.append(tree)
        self.tree = Section({name: value for tree in self.trees for name, value in tree.items()})
        self.flat = Section(dict(walk(self.tree)))  # by dotted names, such as Camera.fx for fx below Camera
        self.keys = [*self.flat, *(f"{name}=" for name in self.read_lines("="))]

    def read_lines(self, mark: str, *, once: bool = False) -> "Section":
        """Return names and values of lines name=value (mark "="); `once`: repeated names raise InputError."""
        lines = Section()
        for line in self.texts[0].splitlines() if len(self.texts) == 1 else ():
            name, found, value = (part.strip() for part in line.partition(mark))
            if not found or not re.fullmatch(r"[A-Za-z][\w.]*", name):
                continue
            if lines.setdefault(name, value) != value and once:
                raise InputError(f"{name} is given twice: {lines[name][:40]} and {value[:40]}")
        return lines

    def select_pair(self, count: int) -> tuple[int, int]:
        """Return the numbers of the selected cameras, by default the first two. Raises InputError."""
        pair = self.pair or (0, 1)
        if max(pair) >= count:
            raise InputError(f"holds {pluralize(count, 'camera')}, a pair needs 2", "`cameras` counts from 0")
        return pair


def walk(tree: Mapping[str, Any], depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of everything below a tree, at most `MOST_VALUES`."""
    waiting, count = [("", tree, depth)], 0
    while waiting:
        name, value, left = waiting.pop(0)
        for key, each in itertools.islice(value.items(), MOST_VALUES - count):
            count += 1
            yield (path := f"{name}{key}"), each
            if isinstance(each, Mapping) and left:
                waiting.append((f"{path}.", each, left - 1))


def parse(data: bytes) -> tuple[str, list["Section"], str]:
    """Return the text of a file ("" if binary), its trees, and the parsing error ("" if none)."""
    if data.startswith(b"PK"):
        try:
            return "", [Section(parse_npz(data))], ""
        except ValueError as error:
            raise InputError(f"cannot be read as .npz of plain arrays: {error}", SAVE_ARRAYS) from error
    if data.startswith((b"MATLAB", b"\x89HDF")):
        return "", [Section(read_mat(data))], ""
    for start, message, hint in _BINARIES:
        if re.match(start, data, re.DOTALL):
            raise InputError(message, hint)
    if b"'optimization_inputs" in data:  # mrcal: megabytes that are not YAML
        data = re.sub(rb"b'[^'\n]*'", b"''", data)
    if len(data) > LARGEST_SETTINGS:
        message = f"has more than {LARGEST_SETTINGS >> 20} MB of text, too much for a calibration"
        hint = "for rectification maps (stereoMapL_x ...), give the calibration they were made from"
        raise InputError(message, hint)
    try:
        lines = data.decode("utf-8-sig").splitlines()
        if b"\0" in data:
            raise ValueError
    except ValueError:
        raise InputError("is not a text file") from None
    # Without blank lines, which regular expressions would scan repeatedly.
    text = "".join(f"{line}\n" for line in lines if line and not line.isspace())
    return text, *_parse_trees(text.lstrip())


def _parse_trees(text: str) -> tuple[list["Section"], str]:
    trees: list[Any] = []
    problem = ""
    kind = {"<": "XML", "{": "JSON", "[": "JSON"}.get(text[:1], "YAML")
    try:
        if kind == "YAML":
            trees.extend(itertools.islice(parse_yaml(text), MOST_DOCUMENTS))
        else:
            trees = [parse_xml(text) if kind == "XML" else parse_json(text)]
    except ValueError as error:
        problem = f"not valid {kind}: {error}"
        if kind == "JSON":  # perhaps of mrcal, or a list that only looks like JSON
            with suppress(ValueError, StopIteration):
                trees = [next(tree for tree in parse_yaml(text) if isinstance(tree, dict))]
                problem = ""
    trees = [
        {"list": tree} if isinstance(tree, list) and tree[:1] and isinstance(tree[0], dict) else tree
        for tree in trees
    ]
    return [
        Section({str(k): v for k, v in tree.items()}) for tree in trees if isinstance(tree, dict)
    ], problem


def parse_lines(text: str) -> dict[str, Any]:
    """Return the values of lines "name = value" below lines "[section]", if there are such."""
    found: dict[str, Any] = {}
    section, lines = found, [line.strip() for line in text.splitlines()]
    if len(lines) == 2 and all(line.count(",") > 2 for line in lines):  # a table of one row
        return dict(zip(*([part.strip() for part in line.split(",")] for line in lines), strict=False))
    if len(lines) == 1 and text.count("=") > 2:
        lines = re.split(r"[\s,;]+(?=[A-Za-z]\w*\s*=)", lines[0])
    for line in lines:
        name, equals, value = (part.strip() for part in line.partition("="))
        if heading := re.fullmatch(r"\[(\w[\w .-]*)\]", line):
            section = found.setdefault(heading[1], {})
        elif equals and re.fullmatch(r"[A-Za-z][\w.]*", name):
            section[name] = value
    return found


def read_numbers(value: Any, key: str, *counts: int) -> Floats:
    """Return all numbers of a value, in order; `counts` are allowed. Raises InputError naming the key."""
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
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"{key} is missing")
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    with suppress(ValueError, OverflowError):
        if is_number and len(str(value)) <= LONGEST_NUMBER and abs(result := float(value)) < LARGEST_NUMBER:
            return result
    raise InputError(f"{key} must hold finite numbers, got {str(value)[:20]!r}")


class Section(dict[str, Any]):
    """Named values of a file; an InputError about a value starts with the prefix and names its key."""

    def __init__(self, values: Mapping[str, Any] = MappingProxyType({}), prefix: str = "") -> None:
        super().__init__(values)
        self.prefix = prefix

    def numbers(self, key: str, *counts: int, default: Any = None) -> Floats:
        """Read several numbers as `read_numbers` does; the default replaces a missing value."""
        value = self.get(key)
        return read_numbers(default if value is None else value, self.prefix + key, *counts)

    def number(self, key: str, default: Any = None) -> float:
        return float(self.numbers(key, 1, default=default)[0])

    def matrix(self, key: str, rows: int, columns: int) -> Floats:
        """Read a matrix; if its shape is stated, it must be right."""
        value = self.get(key)
        if isinstance(value, Mapping) and ("rows" in value or "cols" in value):
            stated = f"{value.get('rows')} x {value.get('cols')}"
            if stated != f"{rows} x {columns}":
                raise InputError(f"{self.prefix}{key} has {stated} entries, expected {rows} x {columns}")
        return self.numbers(key, rows * columns).reshape(rows, columns)

    def size(self, names: str) -> Size:
        """Read the size of images from one key, or from those of width and height, such as "width height"."""
        keys = names.split()
        value = self.get(keys[0]) if len(keys) == 1 else [self.get(key) for key in keys]
        return read_size(value, self.prefix + " x ".join(keys))

    def find_size(self, *alternatives: str) -> Size | None:
        """Read the size from the first names of which the file has the first one, None if there are none."""
        found = (names for names in alternatives if self.get(names.split()[0]) is not None)
        return next(map(self.size, found), None)

    def section(self, key: str) -> "Section":
        found = self.get(key)
        if not isinstance(found, Mapping):
            raise InputError(f"{self.prefix}{key} is missing")
        return Section(found, f"{self.prefix}{key}: ")

    def pose(self, key: str) -> Floats:
        found = self.numbers(key, 12, 16)[:12].reshape(3, 4)
        check_rotation(found[:, :3], f"{self.prefix}{key} (its first three columns)")
        return make_transform(found[:, :3], found[:, 3])

    def transform(self, rotation: str, translation: str) -> Floats:
        """Read a rotation, as a matrix or a vector, and a translation."""
        is_vector = self.numbers(rotation, 3, 9).size == 3
        turn = make_rotation(self.numbers(rotation)) if is_vector else self.matrix(rotation, 3, 3)
        return make_transform(turn, self.numbers(translation, 3))

    def camera(self, intrinsics: str, distortion: str = "", fisheye: bool = False) -> Camera:
        """Read a camera.

        Args:
            intrinsics: Key of a matrix (3, 3) or of fx fy cx cy, or the keys of these four.
            distortion: Key of all coefficients, which may be missing, or a key of each one, 0 if missing.
            fisheye: True for OpenCV's fisheye model.
        """
        keys, names = intrinsics.split(), distortion.split()
        if len(keys) == 4:
            matrix = pinhole_matrix(*(self.number(key) for key in keys))
        elif isinstance(self.get(keys[0]), Mapping) or len(values := self.numbers(keys[0], 4, 9)) == 9:
            matrix = self.matrix(keys[0], 3, 3)
        else:
            matrix = pinhole_matrix(*values)
        if len(names) == 1:
            found = self.numbers(names[0], default=[])
        else:
            found = np.array([self.number(name, 0) for name in names])
        return self.make_camera(matrix, keys[0], found, names[0] if names else "", fisheye)

    def make_camera(
        self, matrix: Floats, key: str, found: Floats, distortion: str, fisheye: bool = False
    ) -> Camera:
        """Build a camera; its InputError names the key of the wrong numbers."""
        try:
            return Camera(matrix, found, fisheye)
        except InputError as error:
            wrong = distortion if "coefficients" in error.message else key
            raise InputError(f"{self.prefix}{wrong} {error.message}", error.hint) from None


def prefix_names(prefix: str, names: str) -> str:
    return " ".join(f"{prefix}{name}" for name in names.split())


def read_integer(value: Any, key: str) -> int:
    """Read a whole number from 0 to a million. Raises InputError naming the key."""
    (found,) = read_numbers(value, key, 1).tolist()
    if not (found.is_integer() and 0 <= found <= 1e6):
        raise InputError(f"{key} must be a whole number from 0 to 1000000, got {str(value)[:20]}")
    return int(found)


def read_size(value: Any, key: str) -> Size:
    """Read width and height of an image. Raises InputError naming the key."""
    width, height = read_numbers(value, key, 2).tolist()
    if not all(1 <= side < 1e6 and side.is_integer() for side in (width, height)):
        raise InputError(f"{key} must be an image size in px, got {width:g}x{height:g}")
    return int(width), int(height)


def is_fisheye(model: Any, key: str) -> bool:
    """Return True if a lens model is OpenCV's fisheye. Raises InputError for models OpenCV lacks."""
    text = "".join(letter for letter in str(model).lower() if letter.isalnum())
    if text and text not in (*_FISHEYE.split(), *_PINHOLE.split()):
        hint = "calibrate with a pinhole model (radial and tangential distortion) or a fisheye (kb4)"
        raise unsupported_lens(key, model, hint)
    return text in _FISHEYE.split()


def unsupported_lens(key: str, model: Any, hint: str) -> InputError:
    return InputError(f"{key} {str(model)[:40]!r} is not a lens model of OpenCV", hint)


def read_quaternion_pose(quaternion: Any, translation: Any, key: str) -> Floats:
    """Read a rigid transform (4, 4) from a quaternion w x y z and a translation. Raises InputError."""
    w, x, y, z = read_numbers(quaternion, key, 4)
    length = w * w + x * x + y * y + z * z
    if not (length > 0 and np.isfinite(length)):
        raise InputError(f"{key} must be a quaternion, got zeros")
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation = np.eye(3) + 2 / length * (w * cross + cross @ cross)
    return make_transform(rotation, read_numbers(translation, key, 3))
