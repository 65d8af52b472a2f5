"""The table of names of values in calibrations of no fixed format, and values that are read by it."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pamcli.calibration.camera import Camera, invert_transform, pinhole_matrix
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.opencv_files import KNOWN
from pamcli.calibration.parsing import KB4, MOST_VALUES, RATIONAL, Section, is_fisheye, read_quaternion_pose
from pamcli.errors import InputError
from pamcli.files.units import parse_length

_TABLE = {  # names of a value in lower case without marks, by its meaning
    "focal": "f focal focallength focallengthpx focallengthpixels focalpx focallengthinpixels",  # or fx, fy
    "focal mm": "focallengthmm focalmm flmm",
    "sensor mm": "sensorwidthmm sensorwidth",
    "fx": "fx focalx focallengthx focallengthxpx fu flx fxpx",
    "fy": "fy focaly focallengthy focallengthypx fv fly fypx",
    "centre": "principalpoint principal pp center centre opticalcenter opticalcentre imagecenter",
    "cx": "cx ppx u0 x0 centerx centrex focalcenterxpx principalx principalpointx cxpx",
    "cy": "cy ppy v0 y0 centery centrey focalcenterypx principaly principalpointy cypx",
    "D": "disto coeffs distortionparameters distortionvector distortionmodelparameters distortioncoeffients",
    "model": "distortionmodel distortiontype",
    "lens": "lensmodel cameramodel projectionmodel cameratype",
    "size": "size imagesize imgsize imgshape imagedimension imagedimensions dimensions resolution "
    "imageresolution",
    "width": "width imagewidth imgwidth w",
    "height": "height imageheight imgheight h",
    "to": "worldtocamera worldtocam world2cam w2c cameraextrinsics",
    "from": "tbs cameratoworld camtoworld cam2world camerapose c2w vehiclese3camera",
    "bf": "bf",
    "chain": "tcncnm1",
    "unit": "unit units lengthunit baselineunit worldunits",
    **{name: name for name in RATIONAL.split()},
}
_MEANINGS = {name: key for name, key in KNOWN.items() if key not in ("P", "Q")} | {"cameraintrinsic": "M"}
_MEANINGS |= {name: meaning for meaning, names in _TABLE.items() for name in names.split()}
_MEANINGS |= {"rt": "to", "extrinsic": "to", "extrinsics": "to", "extrinsicmatrix": "to"}
_MEANINGS |= dict.fromkeys(("transform", "transformation", "tlr", "trl", "lefttoright"), "RT")
_FRAMES, _EYES = "world|w|body|b|imu|i|base|vehicle|rig|ego|s", "camera|cam|c"
_POSES = {  # T_a_b leads from b to a
    re.compile(f"t(?:{_FRAMES})(?:{_EYES})\\d?"): "from",
    re.compile(f"t(?:{_EYES})\\d?(?:{_FRAMES})"): "to",
    re.compile(
        f"t(?:{_EYES})?1(?:{_EYES})?0|trightleft|rightfromleft|left2right|(?:{_EYES})0to(?:{_EYES})1"
    ): "RT",
    re.compile(
        f"t(?:{_EYES})?0(?:{_EYES})?1|tleftright|leftfromright|right(?:2|to)left|(?:{_EYES})1to(?:{_EYES})0"
    ): "inverse RT",
}
_NUMBERS = {"baseline", "fx", "fy", "cx", "cy", "width", "height", "bf", *RATIONAL.split()}
_NUMBERS |= {"focal mm", "sensor mm"}
_POSE_NAMES = "to", "from", "RT", "inverse RT", "chain"
_COUNTS = {"M": (4, 9), "R": (3, 9), "T": (3,), **dict.fromkeys(_POSE_NAMES, (12, 16))}
_BASELINE = re.compile(r"(?:stereo|camera|cam)?_?baseline_?(?:length|distance|in)?_?([a-z]*)")
_UNITS = {**dict.fromkeys(("m", "meter", "meters", "metre", "metres"), "m"), "mm": "mm", "cm": "cm"}
_UNITS |= dict.fromkeys(("millimeters", "millimetres", "millimeter"), "mm")
NEAR_CORNER = 0.05  # part of both sides of an image


@lru_cache(10_000)
def find_meaning(name: str) -> str | None:
    """Return the meaning of a name, a key of the table, or None."""
    plain = re.sub(r"[\W_]", "", name).lower()
    if name == "b" or _BASELINE.fullmatch(name.lower()):
        return "baseline"
    found = (meaning for pattern, meaning in _POSES.items() if pattern.fullmatch(plain))
    return _MEANINGS.get(plain) or next(found, None)


class NamedValues(Section):
    """Values of some sections by their names, and the names by meaning."""

    def __init__(self, sections: Iterable[Mapping[str, Any]], prefix: str = "", depth: int = 0) -> None:
        super().__init__({}, prefix)
        self.names = known = dict[str, str]()
        self.differing = ""  # name of a rotation or translation that is stated twice with different values
        for section in sections:
            for name, given in section.items():
                value, meaning = _flatten(given), find_meaning(name)
                is_pose = meaning in _POSE_NAMES and isinstance(value, Mapping) and "data" not in value
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
        order = (KB4 if fisheye else RATIONAL).split()
        distortion = np.array([self.number(names[each]) if each in names else 0.0 for each in order])
        while distortion.size > 4 and not distortion[-1]:
            distortion = distortion[:-1]
        distortion = distortion if distortion.any() else np.zeros(0)
        if "D" in names:
            distortion = self.numbers(names["D"], default=[])
            distortion = distortion if distortion.any() or len(distortion) > 3 else np.zeros(0)
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


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
        return read_quaternion_pose([named[name] for name in "wxyz"], [0, 0, 0], "the rotation")[
            :3, :3
        ].tolist()
    return [named[name] for name in "xyz" if name in named] if {"x", "y"} <= named.keys() else value


def _fits(meaning: str, value: Any) -> bool:
    """Return True if a value has the shape that its meaning needs."""
    if isinstance(value, Mapping):
        return meaning not in _NUMBERS and "data" in value
    if meaning in _NUMBERS or meaning in ("unit", "model", "lens"):
        return _is_number(value)
    if meaning in _COUNTS:
        return _count(value) in _COUNTS[meaning]
    return value is not None and (meaning != "D" or not _is_number(value) or _count(value) > 1)


def _count(value: Any) -> int:
    """Return how many numbers a value holds, at most `MOST_VALUES`."""
    if isinstance(value, str):
        return len(re.findall(r"[^\s,;\[\]]+", value))
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_count, value[:MOST_VALUES])) if isinstance(value, list | tuple) else 1
