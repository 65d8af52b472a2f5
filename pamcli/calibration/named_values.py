"""Read calibrations of no fixed format, by one table of names and by where values stand.

A camera is any section, list entry or file with a focal length and a centre, or a camera matrix. Values that
stand in the section of no camera, such as R, T and the baseline, belong to both.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pamcli.calibration.alignment import OtherCamera
from pamcli.calibration.camera import Camera, invert_transform, make_rotation, make_transform, pinhole_matrix
from pamcli.calibration.description import (
    CameraDescription,
    CameraPair,
    Projections,
    describe_rectified,
    pair_cameras,
)
from pamcli.calibration.geometry import Floats, Size
from pamcli.calibration.opencv_files import KNOWN, canonical_names
from pamcli.calibration.parsing import (
    KB4,
    MOST_VALUES,
    RATIONAL,
    Section,
    Source,
    is_fisheye,
    read_quaternion_pose,
)
from pamcli.errors import InputError
from pamcli.files.units import parse_length

_TABLE = {  # names of a value in lower case without marks, by its meaning
    "focal": "f focal focallength focallengthpx focallengthpixels focalpx focallengthinpixels",  # or fx, fy
    "fx": "fx focalx focallengthx fu flx fxpx",
    "fy": "fy focaly focallengthy fv fly fypx",
    "centre": "principalpoint principal pp center centre opticalcenter opticalcentre imagecenter",
    "cx": "cx ppx u0 x0 centerx centrex principalx principalpointx cxpx",
    "cy": "cy ppy v0 y0 centery centrey principaly principalpointy cypx",
    "D": "disto coeffs distortionparameters distortionvector distortionmodelparameters distortioncoeffients",
    "model": "distortionmodel distortiontype lensmodel cameramodel",
    "size": "size imagesize imgsize imgshape imagedimension imagedimensions dimensions resolution "
    "imageresolution",
    "width": "width imagewidth imgwidth w",
    "height": "height imageheight imgheight h",
    "to": "tcw tcamimu tcs worldtocamera worldtocam world2cam w2c cameraextrinsics",
    "from": "tsc tbs timucam twc cameratoworld camtoworld cam2world camerapose c2w",
    "unit": "unit units lengthunit baselineunit worldunits",
    **{name: name for name in RATIONAL.split()},
}
_MEANINGS = {"m": "M", **{name: key for name, key in KNOWN.items() if key not in ("P", "Q")}}
_MEANINGS |= {name: meaning for meaning, names in _TABLE.items() for name in names.split()}
_MEANINGS |= {"rt": "to", "extrinsic": "to", "extrinsics": "to", "extrinsicmatrix": "to"}
_MEANINGS |= dict.fromkeys(("transform", "transformation", "tlr", "trl", "lefttoright"), "RT")
_NUMBERS = {"fx", "fy", "cx", "cy", "width", "height", *RATIONAL.split()}
_COUNTS = {"M": (4, 9), "to": (12, 16), "from": (12, 16), "RT": (12, 16), "R": (3, 9), "T": (3,)}
_BASELINE = re.compile(r"(?:stereo|camera|cam)?_?baseline_?(?:length|distance|in)?_?([a-z]*)")
_UNITS = {**dict.fromkeys(("m", "meter", "meters", "metre", "metres"), "m"), "mm": "mm", "cm": "cm"}
_UNITS |= dict.fromkeys(("millimeters", "millimetres", "millimeter"), "mm")
_SIDE = re.compile(r"(?:^|[\W_]|cam|camera)(left|right|l|r)(?:$|[\W_]|cam|camera)", re.I)
_FLAT = re.compile(
    r"(left|right|l|r)_(.+)|(left|right)([A-Z].*)|(.+?)_?(left|right|Left|Right)|(.+)_(l|r)|([fc][xy])_?([01])"
)
_FLAT_SIDES = {"left": "left", "l": "left", "0": "left", "right": "right", "r": "right", "1": "right"}
MOST_SECTIONS, DEEPEST_SECTION = 500, 6
"""Sections that are searched for cameras, and their largest depth."""

_Path = tuple[str, ...]


class _Values(Section):
    """Values of some sections by their names, and the names by meaning."""

    def __init__(self, sections: Iterable[Mapping[str, Any]], prefix: str = "") -> None:
        super().__init__({}, prefix)
        self.names: dict[str, str] = {}
        for section in sections:
            for name, given in section.items():
                value = _flatten(given)
                meaning = _MEANINGS.get(re.sub(r"[\W_]", "", name).lower())
                if meaning and meaning not in self.names and _fits(meaning, value):
                    self.names[meaning], self[name] = name, value
                elif (
                    (name == "b" or _BASELINE.fullmatch(name.lower()))
                    and "baseline" not in self.names
                    and _is_number(value)
                ):
                    self.names["baseline"], self[name] = name, value

    @property
    def has_lens(self) -> bool:
        known = self.names.keys()
        return "M" in known or (
            bool({"focal", "fx"} & known) and ("centre" in known or {"cx", "cy"} <= known)
        )

    def read_all(self, *meanings: str) -> Floats:
        """Return the numbers of the values that have these meanings."""
        return np.concatenate([self.numbers(self.names[each]) for each in meanings if each in self.names])

    def read_lens(self) -> Camera:
        names, model = self.names, self.names.get("model", "")
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
        fisheye = is_fisheye(self.get(model) or "", f"{self.prefix}{model}") if model else False
        order = (KB4 if fisheye else RATIONAL).split()
        distortion = np.array([self.number(names[each]) if each in names else 0.0 for each in order])
        while distortion.size > 4 and not distortion[-1]:
            distortion = distortion[:-1]
        distortion = distortion if distortion.any() else np.zeros(0)
        if "D" in names:
            distortion = self.numbers(names["D"], default=[])
        return self.make_camera(matrix, key, distortion, names.get("D", "k1"), fisheye)

    def read_size(self, lens: Camera) -> Size | None:
        """Return the image size, with the side first that fits the centre of the image."""
        if "size" in self.names:
            width, height = self.size(self.names["size"])
            centre = lens.matrix[:2, 2]
            turned = abs(centre - [height / 2, width / 2]).sum() < abs(centre - [width / 2, height / 2]).sum()
            return (height, width) if turned else (width, height)
        if {"width", "height"} <= self.names.keys():
            return self.size(f"{self.names['width']} {self.names['height']}")
        return None

    def read_pose(self, *, shared: bool = False) -> Floats | None:
        """Return the transform (4, 4) to camera coordinates, or to the right camera if `shared`."""
        names = self.names
        if {"R", "T"} <= names.keys():
            rotation = self.numbers(names["R"], 3, 9)
            rotation = make_rotation(rotation) if rotation.size == 3 else rotation.reshape(3, 3)
            return make_transform(rotation, self.numbers(names["T"], 3))
        if "from" in names:
            return None if shared else invert_transform(self.pose(names["from"]))
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
    named = {str(name).lower().removeprefix("q"): each for name, each in value.items()}
    if {"w", "x", "y", "z"} <= named.keys():
        return read_quaternion_pose([named[name] for name in "wxyz"], [0, 0, 0], "the rotation")[
            :3, :3
        ].tolist()
    return [named[name] for name in "xyz" if name in named] if {"x", "y"} <= named.keys() else value


def _fits(meaning: str, value: Any) -> bool:
    """Return True if a value has the shape that its meaning needs."""
    if isinstance(value, Mapping):
        return meaning not in _NUMBERS and "data" in value
    if meaning in _NUMBERS or meaning in ("unit", "model"):
        return _is_number(value)
    if meaning in _COUNTS:
        return _count(value) in _COUNTS[meaning]
    return value is not None and (meaning != "D" or not _is_number(value) or len(str(value).split()) > 1)


def _count(value: Any) -> int:
    """Return how many numbers a value holds, at most `MOST_VALUES`."""
    if isinstance(value, str):
        return len(re.findall(r"[^\s,;\[\]]+", value))
    if isinstance(value, np.ndarray):
        return int(value.size)
    return sum(map(_count, value[:MOST_VALUES])) if isinstance(value, list | tuple) else 1


def _list_sections(value: Any, path: _Path) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """Yield each mapping below a value with its path."""
    if isinstance(value, Mapping):
        yield path, {str(name): each for name, each in value.items()}
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, each in items:
        is_list = isinstance(each, list) and each and isinstance(each[0], Mapping)
        if (is_list or isinstance(each, Mapping)) and len(path) < DEEPEST_SECTION:
            yield from _list_sections(each, (*path, str(name)))


def _find_cameras(source: Source) -> tuple[list[tuple[_Path, Mapping[str, Any]]], list[_Path]]:
    """Return all sections with their paths, and the paths of those that are cameras."""
    parsed = [tree for _, trees, _ in source.parsed_contents for tree in trees]  # also equal ones
    trees = map(_split_sides, parsed or map(_parse_lines, source.texts))
    files = (_list_sections(tree, (f"file {number}",)) for number, tree in enumerate(trees, 1))
    places = [*itertools.islice(itertools.chain.from_iterable(files), MOST_SECTIONS)]
    cameras = [path for path, section in places if _Values([section]).has_lens]
    cameras = [
        path for path in cameras if not any(path[:length] in cameras for length in range(1, len(path)))
    ]
    rest = [section for path, section in places if path[-1] not in ("left", "right")]
    halves = [
        path
        for path, section in places
        if path[-1] in ("left", "right") and _Values([section, *rest]).has_lens
    ]
    if len(cameras) < 2 and len(halves) == 2:  # fx, cx_left and cx_right
        cameras = halves
    return places, cameras


def read_placed(source: Source, metres: float) -> OtherCamera | None:
    """Read one camera with R and T that lead to it from the left camera; None if there are more, or none."""
    places, cameras = _find_cameras(source)
    values = _Values(section for _, section in places)
    if len(cameras) != 1 or "P2" in canonical_names(source.tree):
        return None
    lens, transform = values.read_lens(), values.read_pose(shared=True)
    if transform is None and "baseline" in values.names:
        return None
    if transform is None:
        message = "holds one camera, but not its position beside the left camera"
        raise InputError(message, "add R and T with x2 = R x1 + T, or give `align_to` FILE:NUMBER of a rig")
    unit = values.get(values.names.get("unit", ""))
    other = OtherCamera(lens, transform, values.read_size(lens))
    return other.scale_lengths(metres if unit is None else parse_length(str(unit), "unit"))


def read_named(source: Source) -> CameraDescription | None:
    """Read one camera of a rectified pair, or two cameras, from named values; None if there is no camera."""
    if {"M1", "M2", "P1", "P2", "Q"} & canonical_names(source.tree).keys():
        return None
    places, cameras = _find_cameras(source)
    text = source.texts[0].lstrip()[:1]
    kind = {"<": "XML", "{": "JSON", "[": "JSON", "": "NumPy"}.get(text, "YAML")
    if len(cameras) < 2:
        values, has_choice = _Values(section for _, section in places), source.pair not in (None, (0, 1))
        return _describe_one(values, kind, len(source.contents), has_choice)
    scopes = [_find_scope(path, cameras) for path in cameras]
    first, second = pair = _choose_pair(source, cameras)
    notes = [f"cameras {first} and {second} of {len(cameras)} are used"] if len(cameras) > 2 else []
    shared = [section for path, section in places if not any(_is_below(path, scope) for scope in scopes)]
    both = []
    for index in pair:
        own = [section for path, section in places if _is_below(path, scopes[index])]
        prefix = f"{' '.join(scopes[index][-1:])}: "
        both.append((_Values([*own, *shared], prefix), _Values(own, prefix).read_pose()))
    usual = _choose_pair(Source(source.contents), cameras)
    common = _Values(
        shared if {*pair} == {*usual} else ()
    )  # R and T lead from the first to the second camera
    return replace(_describe_pair(both, common, kind, notes, pair == usual[::-1]), numbers=pair)


def _parse_lines(text: str) -> dict[str, Any]:
    """Return the values of lines "name = value" below lines "[section]", if there are such."""
    found: dict[str, Any] = {}
    section = found
    for line in map(str.strip, text.splitlines()):
        name, equals, value = (part.strip() for part in line.partition("="))
        if heading := re.fullmatch(r"\[(\w[\w .-]*)\]", line):
            section = found.setdefault(heading[1], {})
        elif equals and re.fullmatch(r"[A-Za-z][\w.]*", name):
            section[name] = value
    return found


def _is_below(path: _Path, scope: _Path) -> bool:
    return path[: len(scope)] == scope


def _split_sides(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tree whose values with names such as left_fx or cx_right are in sections left and right."""
    found: dict[str, Any] = {"left": {}, "right": {}}
    others = {}
    for name, value in tree.items():
        match = _FLAT.fullmatch(name)
        parts = [part for part in match.groups() if part] if match else []
        side = next((_FLAT_SIDES[part.lower()] for part in parts if part.lower() in _FLAT_SIDES), "")
        stem = "".join(part for part in parts if part.lower() not in _FLAT_SIDES)
        is_lens = _MEANINGS.get(re.sub(r"[\W_]", "", stem).lower(), "R") not in ("R", "T", "unit")
        if side and is_lens and not isinstance(value, Mapping):
            found[side][stem] = value
        else:
            others[name] = value
    return {**others, **found} if found["left"] and found["right"] else tree


def _find_scope(path: _Path, cameras: Sequence[_Path]) -> _Path:
    """Return the highest section that holds this camera and no other one."""
    lengths = range(1, len(path) + 1)
    return next(path[:each] for each in lengths if sum(_is_below(one, path[:each]) for one in cameras) == 1)


def _choose_pair(source: Source, cameras: Sequence[_Path]) -> tuple[int, int]:
    """Return the numbers of the left and the right camera: as selected, by their names, or the first two."""
    names = [" ".join(path[1:]) for path in cameras]
    sides = [found[1][0].lower() if (found := _SIDE.search(name)) else "" for name in names]
    if source.pair is None and sides.count("l") == sides.count("r") == 1:
        return sides.index("l"), sides.index("r")
    return source.select_pair(len(cameras))


def _describe_one(values: _Values, kind: str, files: int, has_choice: bool) -> CameraDescription | None:
    """Describe rectified images by their left camera."""
    if not values.has_lens:
        return None
    lens = values.read_lens()
    if lens.distortion.any() or files > 1 or has_choice or "baseline" not in values.names:
        f, x, y = lens.matrix[0, 0], *lens.matrix[:2, 2]
        hint = f"of rectified images, state `focal` {f:g}, `principal_point` {x:g},{y:g} and `baseline`"
        hint = f"give the other camera, too; {hint}"
        holds = "the files hold" if files > 1 else "holds"
        raise InputError(f"{holds} one camera, a pair needs 2", hint)
    baseline, scale, notes = values.read_baseline()
    return describe_rectified(
        kind, lens.matrix, baseline, size=values.read_size(lens), metres=scale, notes=notes
    )


def _describe_pair(
    cameras: Sequence[tuple[_Values, Floats | None]],
    shared: _Values,
    kind: str,
    notes: list[str],
    swapped: bool,
) -> CameraDescription:
    """Describe two cameras, each with its values and its pose, and what both share; `swapped`: on request."""
    lenses = [values.read_lens() for values, _ in cameras]
    sizes = [values.read_size(lens) for (values, _), lens in zip(cameras, lenses, strict=True)]
    poses = [pose for _, pose in cameras]
    transform = poses[1] if poses[0] is None else None
    if transform is None and (transform := shared.read_pose(shared=True)) is not None and swapped:
        transform = invert_transform(transform)
    unit = shared.get(shared.names.get("unit", ""))
    scale = None if unit is None else parse_length(str(unit), "unit")
    known = [invert_transform(pose) for pose in poses if pose is not None]
    if len(known) == 2:
        placed = zip(lenses, known, sizes, strict=True)
        return CameraDescription(kind, [pair_cameras(placed)], metres=scale, notes=notes)
    if transform is not None:
        return CameraDescription(kind, [CameraPair(lenses, transform, sizes)], metres=scale, notes=notes)
    if "baseline" not in cameras[1][0].names or any(lens.distortion.any() for lens in lenses):
        hint = "add R and T with x2 = R x1 + T, or the baseline of rectified images"
        raise InputError("holds two cameras, but R and T between them are missing", hint)
    baseline, scale, more = cameras[1][0].read_baseline()
    p1, p2 = (np.column_stack([lens.matrix, np.zeros(3)]) for lens in lenses)
    p2[0, 3] = -p2[0, 0] * (-baseline if swapped else baseline)
    found = Projections(p1, p2, sizes[0], ("the left camera", "the right camera"))
    return CameraDescription(kind, projections=[found], metres=scale, notes=[*notes, *more])
