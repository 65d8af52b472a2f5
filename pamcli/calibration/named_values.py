"""Values of calibration files by their names: the names that files use are listed in names.toml."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, invert_transform, pinhole_matrix
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.parsing import KB4, MOST_VALUES, RATIONAL, Section, is_fisheye, read_quaternion_pose
from pamcli.errors import InputError
from pamcli.files.units import parse_length

NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
_BY_SIDE, _ALONE, _GENERIC = (
    {name: meaning for meaning, names in NAMES[table].items() for name in names.split()}
    for table in ("by_side", "alone", "generic")
)
_MEANINGS = {
    name: meaning for name, meaning in {**_BY_SIDE, **_ALONE}.items() if meaning not in ("P", "Q")
} | _GENERIC
_SIDES = {"0": "0", "1": "1", "2": "2", "left": "1", "l": "1", "right": "2", "r": "2"}
_FRAMES, _EYES = "world|w|body|b|imu|i|base|vehicle|rig|ego|s", "camera|cam|c"
_POSES = {  # T_a_b leads from b to a
    "from": f"t(?:{_FRAMES})(?:{_EYES})\\d?",
    "to": f"t(?:{_EYES})\\d?(?:{_FRAMES})",
    "RT": f"t(?:{_EYES})?1(?:{_EYES})?0|trightleft|rightfromleft|left2right|(?:{_EYES})0to(?:{_EYES})1",
    "inverse RT": f"t(?:{_EYES})?0(?:{_EYES})?1|tleftright|leftfromright|right(?:2|to)left|"
    f"(?:{_EYES})1to(?:{_EYES})0",
}
_COUNTS = {"M": (4, 9), "R": (3, 9), "T": (3,), **dict.fromkeys((*_POSES, "chain"), (12, 16))}
_NUMBERS = {"baseline", "fx", "fy", "cx", "cy", "width", "height", "bf", *RATIONAL.split()}
_NUMBERS |= {"focal mm", "sensor mm"}
_BASELINE = re.compile(r"(?:stereo|camera|cam)?_?baseline_?(?:length|distance|in)?_?([a-z]*)")
_UNITS = {**dict.fromkeys(("m", "meter", "meters", "metre", "metres"), "m"), "cm": "cm"}
_UNITS |= dict.fromkeys(("mm", "millimeters", "millimetres", "millimeter"), "mm")
NEAR_CORNER = 0.05  # part of both sides of an image


def canonical_names(tree: Section) -> dict[str, str]:
    """Map OpenCV's names (M1 D1 M2 D2 R T RT P1 P2 Q) to the keys that a tree uses for them.

    OpenCV fixes no names: a stem (K, mtx ...) with a side (1, left, L, or 0 where the other one is 1), in any
    case and order, with or without underscores.
    """
    found: dict[str, str] = {}
    for name, value in tree.items():
        plain = re.sub(r"[\W_]", "", name).lower()
        key = _ALONE.get(plain)
        if key is None:
            match = re.fullmatch(r"(left|right)(.+)|(.+?)(left|right|l|r|\d)(fe)?", plain[:60])
            stem, side = (match[2] or match[3], match[1] or match[4]) if match else ("", "")
            if stem not in _BY_SIDE or side not in _SIDES:
                continue
            if not isinstance(value, Mapping | list | tuple | np.ndarray):  # k1 of a lens, not a camera's K
                continue
            key = f"{_BY_SIDE[stem]}{_SIDES[side]}"
        if value is not None:
            found.setdefault(key, name)
    if "M0" in found:  # cameras are counted from 0
        sides = {key: key[0] + {"0": "1", "1": "2"}.get(key[1:], key[1:]) for key in found}
        found = {sides[key]: name for key, name in found.items()}
    return found


@lru_cache(10_000)
def find_meaning(name: str) -> str | None:
    """Return the meaning of a name, a key of the table, or None."""
    plain = re.sub(r"[\W_]", "", name).lower()
    if name == "b" or _BASELINE.fullmatch(name.lower()):
        return "baseline"
    poses = (meaning for meaning, pattern in _POSES.items() if re.fullmatch(pattern, plain))
    return _MEANINGS.get(plain) or next(poses, None)


class NamedValues(Section):
    """Values of some sections by their names, and the names by meaning."""

    def __init__(self, sections: Iterable[Mapping[str, Any]], prefix: str = "", depth: int = 0) -> None:
        super().__init__({}, prefix)
        self.names = known = dict[str, str]()
        self.differing = ""  # name of a rotation or translation that is stated twice with different values
        for section in sections:
            for name, given in section.items():
                value, meaning = _flatten(given), find_meaning(name)
                is_pose = meaning in (*_POSES, "chain") and isinstance(value, Mapping) and "data" not in value
                if is_pose and not depth:
                    pose = NamedValues([value], depth=1).read_pose()
                    value = value if pose is None else pose.ravel().tolist()
                if meaning is None or not _fits(meaning, value):
                    continue
                if meaning not in known:
                    known[meaning], self[name] = name, value
                elif meaning in ("R", "T") and str(value) != str(self[known[meaning]]):
                    self.differing = self.differing or name
        if {"focal mm", "sensor mm", "width"} <= known.keys() and not {"focal", "fx"} & known.keys():
            length, sensor, width = (self.read_all(each) for each in ("focal mm", "sensor mm", "width"))
            known["focal"], self["focal"] = "focal", (length * width / sensor).tolist()

    @property
    def has_lens(self) -> bool:
        known = self.names.keys()
        has_centre = "centre" in known or {"cx", "cy"} <= known
        return "M" in known or (bool({"focal", "fx"} & known) and has_centre)

    def read_all(self, *meanings: str) -> Floats:
        """Return the numbers of the values that have these meanings."""
        return np.concatenate([self.numbers(self.names[each]) for each in meanings if each in self.names])

    def read_lens(self) -> Camera:
        names = self.names
        if "M" in names:
            key = names["M"]
            found = self.numbers(key, 4, 9)
            matrix = found.reshape(3, 3) if found.size == 9 else pinhole_matrix(*found)
        else:
            key = names.get("fx") or names["focal"]
            focal = self.read_all("fx" if "fx" in names else "focal", "fy")
            centre = self.read_all(*(("centre",) if "centre" in names else ("cx", "cy")))
            if focal.size not in (1, 2) or centre.size != 2:
                raise InputError(f"{self.prefix}{key} must hold one or two numbers, and the centre two")
            matrix = pinhole_matrix(focal[0], focal[-1], *centre)
        models = [names[each] for each in ("model", "lens") if each in names]
        fisheye = True in {is_fisheye(self[each] or "", f"{self.prefix}{each}") for each in models}
        if "D" in names:
            distortion = self.numbers(names["D"], default=[])
        else:
            order = (KB4 if fisheye else RATIONAL).split()
            distortion = np.array([self.number(names[each]) if each in names else 0.0 for each in order])
            while distortion.size > 4 and not distortion[-1]:
                distortion = distortion[:-1]
        if not distortion.any() and ("D" not in names or len(distortion) < 4):
            distortion = np.zeros(0)
        return self.make_camera(matrix, key, distortion, names.get("D", "k1"), fisheye)

    def read_size(self, lens: Camera) -> Size | None:
        """Return the image size, with the side first that fits the centre, which must not be in a corner."""
        x, y = lens.matrix[:2, 2]
        if "size" in self.names:
            width, height = self.size(self.names["size"])
            if abs(x - height / 2) + abs(y - width / 2) < abs(x - width / 2) + abs(y - height / 2):
                width, height = height, width
        elif {"width", "height"} <= self.names.keys():
            width, height = self.size(f"{self.names['width']} {self.names['height']}")
        else:
            return None
        if max(abs(x) / width, abs(y) / height) < NEAR_CORNER:
            message = f"{self.prefix}the principal point {x:g},{y:g} px is in a corner of the image"
            raise InputError(message, "if it counts from the centre, add half of the width and of the height")
        return width, height

    def read_pose(self, *, shared: bool = False) -> Floats | None:
        """Return the transform (4, 4) to camera coordinates, or to the right camera if `shared`."""
        names = self.names
        if "from" in names and not shared:
            return invert_transform(self.pose(names["from"]))
        if {"R", "T"} <= names.keys():
            if self.differing and shared:
                message = f"states {self.differing} more than once, with different values"
                raise InputError(message, "leave the R and T with x2 = R x1 + T")
            return self.transform(names["R"], names["T"])
        if "inverse RT" in names and shared:
            return invert_transform(self.pose(names["inverse RT"]))
        key = names.get("to") or (names.get("RT") if shared else None)
        return self.pose(key) if key else None

    def read_unit(self) -> float | None:
        """Return the metres per unit of length, if it is stated."""
        unit = self.get(self.names.get("unit", ""))
        return None if unit is None else parse_length(str(unit), "unit")

    def read_baseline(self) -> tuple[float, float | None, list[str]]:
        """Return the baseline, the metres of its unit (None: not stated), and notes."""
        name = self.names["baseline"]
        baseline, unit = abs(self.number(name)), _BASELINE.fullmatch(name.lower())
        stated = _UNITS.get(unit[1] if unit else "") or self.get(self.names.get("unit", ""))
        if stated:
            return baseline, parse_length(str(stated), name), []
        if baseline <= 1:
            return baseline, None, []
        return baseline, 1e-3, [f"the baseline of {baseline:g} is assumed to be in millimetres"]


def _flatten(value: Any) -> Any:
    """Return the numbers of {x, y}, {x, y, z}, a quaternion {w, x, y, z} or {value} as a list or a number."""
    if not isinstance(value, Mapping):
        return value
    if "value" in value:
        return value["value"]
    if {"px", "py", "pz", "qw", "qx", "qy", "qz"} <= value.keys():
        turn, place = ([value[name] for name in names.split()] for names in ("qw qx qy qz", "px py pz"))
        return read_quaternion_pose(turn, place, "the pose").ravel().tolist()
    named = {str(name).lower().removeprefix("q"): each for name, each in value.items()}
    if _count(value.get("coefficients")) == 4:  # of Argoverse
        named = dict(zip("wxyz", value["coefficients"], strict=False))
    if {"w", "x", "y", "z"} <= named.keys():
        turn = [named[name] for name in "wxyz"]
        return read_quaternion_pose(turn, [0, 0, 0], "the rotation")[:3, :3].tolist()
    return [named[name] for name in "xyz" if name in named] if {"x", "y"} <= named.keys() else value


def _fits(meaning: str, value: Any) -> bool:
    """Return True if a value has the shape that its meaning needs."""
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    if isinstance(value, Mapping):
        return meaning not in _NUMBERS and "data" in value
    if meaning in _NUMBERS or meaning in ("unit", "model", "lens"):
        return is_number
    if meaning in _COUNTS:
        return _count(value) in _COUNTS[meaning]
    return value is not None and (meaning != "D" or not is_number or _count(value) > 1)


def _count(value: Any) -> int:
    """Return how many numbers a value holds, at most `MOST_VALUES`."""
    if isinstance(value, str):
        return len(re.findall(r"[^\s,;\[\]]+", value))
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_count, value[:MOST_VALUES])) if isinstance(value, list | tuple) else 1
