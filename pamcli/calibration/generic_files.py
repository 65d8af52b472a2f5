"""Read calibrations of no fixed format, by the names of values and by where they stand.

A camera is any section, list entry or file with a focal length and a centre, or a camera matrix. Values that
stand in the section of no camera, such as R, T and the baseline, belong to both.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import OtherCamera, Projections, invert_transform
from pamcli.calibration.description import CameraDescription, CameraPair, pair_cameras
from pamcli.calibration.geometry import Floats
from pamcli.calibration.named_values import NamedValues, canonical_names, find_meaning
from pamcli.calibration.parsing import Section, Source, parse_lines
from pamcli.errors import InputError

_SIDE = re.compile(r"(?:^|[\W_]|cam|camera)(left|right|l|r)(?:$|[\W_]|cam|camera)", re.I)
_FLAT = re.compile(
    r"(left|right|l|r)_(.+)|(left|right)([A-Z].*)|(.+?)_?(left|right|Left|Right)|(.+)_(l|r)|([fc][xy])_?([01])"
)
_FLAT_SIDES = {"left": "left", "l": "left", "0": "left", "right": "right", "r": "right", "1": "right"}
MOST_SECTIONS, DEEPEST_SECTION = 500, 6
"""Sections in which cameras are searched, and how deep."""

_Path = tuple[str, ...]
_Sections = list[tuple[_Path, Mapping[str, Any]]]
_Cameras = list[tuple[_Path, str]]  # highest section that holds this camera and no other one, and its name


def _list_sections(value: Any, path: _Path) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """Yield each mapping below a value with its path."""
    if isinstance(value, Mapping):
        yield path, {str(name): each for name, each in value.items()}
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, each in items:
        if isinstance(value, list) and isinstance(each, Mapping):
            name = next((each[key] for key in ("name", "key", "id") if isinstance(each.get(key), str)), name)
        is_list = isinstance(each, list) and each and isinstance(each[0], Mapping)
        if (is_list or isinstance(each, Mapping)) and len(path) < DEEPEST_SECTION:
            yield from _list_sections(each, (*path, str(name)))


def _split_sides(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tree whose values with names such as left_fx or cx_right are in sections left and right."""
    found: dict[str, Any] = {"left": {}, "right": {}}
    others = {}
    for name, value in tree.items():
        match = _FLAT.fullmatch(name)
        parts = [part for part in match.groups() if part] if match else []
        side = next((_FLAT_SIDES[part.lower()] for part in parts if part.lower() in _FLAT_SIDES), "")
        stem = "".join(part for part in parts if part.lower() not in _FLAT_SIDES)
        is_lens = find_meaning(stem) not in (None, "R", "T", "unit", "baseline")
        if side and is_lens and not isinstance(value, Mapping):
            found[side][stem] = value
        else:
            others[name] = value
    return {**others, **found} if found["left"] and found["right"] else tree


def _find_cameras(source: Source, trees: Sequence[Section] = ()) -> tuple[_Sections, _Cameras]:
    """Return all sections, and those of cameras, in the order of cam0, cam1 ... if all have such names."""
    parsed = trees or [tree for _, found, _ in source.parsed for tree in found]  # also equal ones
    split = map(_split_sides, parsed or map(parse_lines, source.texts))
    files = (_list_sections(tree, (f"file {number}",)) for number, tree in enumerate(split, 1))
    places = [*itertools.islice(itertools.chain.from_iterable(files), MOST_SECTIONS)]
    lenses = [path for path, section in places if NamedValues([section]).has_lens]
    cameras = [path for path in lenses if not any(path[:length] in lenses for length in range(1, len(path)))]
    sides = [(path, section) for path, section in places if path[-1] in ("left", "right")]
    rest = [section for path, section in places if path[-1] not in ("left", "right")]
    halves = [path for path, section in sides if NamedValues([section, *rest]).has_lens]
    if len(cameras) < 2 and len(halves) == 2:  # fx, cx_left and cx_right
        cameras = halves
    found: _Cameras = []
    for path in cameras:
        above = (path[:length] for length in range(1, len(path) + 1))
        scope = next(each for each in above if sum(_is_below(one, each) for one in cameras) == 1)
        found.append((scope, " ".join(path[1:])))
    numbers = [re.fullmatch(r"(?:cam|camera)_?(\d{1,3})", scope[-1].lower()) for scope, _ in found]
    known = {int(number[1]): camera for number, camera in zip(numbers, found, strict=True) if number}
    return places, [known[number] for number in sorted(known)] if len(known) == len(found) else found


def _is_below(path: _Path, scope: _Path) -> bool:
    return path[: len(scope)] == scope


def read_placed(source: Source, metres: float) -> OtherCamera | None:
    """Read the camera to which R and T lead from the left one; return None unless there is exactly one."""
    places, cameras = _find_cameras(source)
    values = NamedValues(section for _, section in places)
    if len(cameras) != 1 or "P2" in canonical_names(source.tree):
        return None
    lens, transform = values.read_lens(), values.read_pose(shared=True)
    if transform is None and "baseline" in values.names:
        return None
    if transform is None:
        message = "holds one camera, but not its position beside the left camera"
        raise InputError(message, "add R and T with x2 = R x1 + T, or give `align_to` FILE:NUMBER of a rig")
    return OtherCamera(lens, transform, values.read_size(lens)).scale_lengths(values.read_unit() or metres)


def read_named(source: Source, trees: Sequence[Section] = ()) -> CameraDescription | None:
    """Read one camera of a rectified pair, or two cameras, from named values; None if there is no camera.

    trees: In place of those of the files.
    """
    if {"M1", "M2", "P1", "P2", "Q"} & canonical_names(source.tree).keys():
        return None
    places, cameras = _find_cameras(source, trees)
    mark = source.texts[0].lstrip()[:1]
    kind = {"<": "XML", "{": "JSON", "[": "JSON", "": "NumPy"}.get(mark, "YAML") if source.trees else "text"
    if len(cameras) < 2:
        return _describe_one(source, NamedValues(section for _, section in places), kind)
    scopes = [scope for scope, _ in cameras]
    usual = _find_sides([name for _, name in cameras]) or (0, 1)
    first, second = pair = source.select_pair(len(scopes)) if source.pair else usual
    notes = [f"cameras {first} and {second} of {len(scopes)} are used"] if len(scopes) > 2 else []
    shared = [section for path, section in places if not any(_is_below(path, scope) for scope in scopes)]
    found, poses = [], list[Floats | None]()
    for scope in scopes[: max(pair) + 1]:
        own = [section for path, section in places if _is_below(path, scope)]
        values = NamedValues([*own, *shared], f"{' '.join(scope[-1:])}: ")
        found.append(values)
        poses.append(NamedValues(own, values.prefix).read_pose())
        if poses[-1] is None and "chain" in values.names and len(poses) > 1:  # leads from the camera before
            before = poses[-2] if poses[-2] is not None else np.eye(4)
            poses[-2:] = before, values.pose(values.names["chain"]) @ before
    # R and T of both lead from the first camera to the second one.
    common = NamedValues(shared if {*pair} == {*usual} else ())
    swapped = pair == usual[::-1]
    left, right = found[first], found[second]
    lenses = [values.read_lens() for values in (left, right)]
    sizes = [values.read_size(lens) for values, lens in zip((left, right), lenses, strict=True)]
    one, two = (poses[index] for index in pair)
    unit = common.read_unit()
    if one is not None and two is not None:
        placed = zip(lenses, (invert_transform(one), invert_transform(two)), sizes, strict=True)
        return CameraDescription(kind, [pair_cameras(placed)], metres=unit, notes=notes, numbers=pair)
    transform = two if one is None else None
    if transform is None and (transform := common.read_pose(shared=True)) is not None and swapped:
        transform = invert_transform(transform)
    if transform is not None:
        both = CameraPair(lenses, transform, sizes)
        return CameraDescription(kind, [both], metres=unit, notes=notes, numbers=pair)
    if "baseline" not in right.names or any(lens.distortion.any() for lens in lenses):
        hint = "add R and T with x2 = R x1 + T, or the baseline of rectified images"
        raise InputError("holds two cameras, but R and T between them are missing", hint)
    baseline, unit, more = right.read_baseline()
    p1, p2 = (np.column_stack([lens.matrix, np.zeros(3)]) for lens in lenses)
    p2[0, 3] = -p2[0, 0] * (-baseline if swapped else baseline)
    rectified = Projections(p1, p2, sizes[0], ("the left camera", "the right camera"))
    return CameraDescription(kind, (), [rectified], unit, [*notes, *more], numbers=pair)


def _find_sides(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the numbers of the left and the right camera by their names, or None if these are unclear."""
    if len(rest := [each for each in names if "stereo" in each.lower()]) == 2:  # beside single cameras
        names = [each if each in rest else "" for each in names]
    sides = [found[1][0].lower() if (found := _SIDE.search(name)) else "" for name in names]
    is_clear = sides.count("l") == sides.count("r") == 1
    return (sides.index("l"), sides.index("r")) if is_clear else None


def _describe_one(source: Source, values: NamedValues, kind: str) -> CameraDescription | None:
    """Describe rectified images by their left camera."""
    if not values.has_lens:
        return None
    lens, files = values.read_lens(), len(source.contents)
    size = values.read_size(lens)
    if "bf" in values.names and "baseline" not in values.names:
        values["baseline"], values.names["baseline"] = values.number("bf") / lens.matrix[0, 0], "baseline"
        values.names["unit"], values["unit"] = "unit", "m"
    has_choice = source.pair not in (None, (0, 1))
    if lens.distortion.any() or files > 1 or has_choice or "baseline" not in values.names:
        f, x, y = lens.matrix[0, 0], *lens.matrix[:2, 2]
        hint = f"of rectified images, state `focal` {f:g}, `principal_point` {x:g},{y:g} and `baseline`"
        hint = f"give the other camera, too; {hint}"
        holds = "the files hold" if files > 1 else "holds"
        raise InputError(f"{holds} one camera, a pair needs 2", hint)
    baseline, scale, notes = values.read_baseline()
    rectified = Projections.from_left(lens.matrix, baseline, size=size)
    return CameraDescription(kind, projections=[rectified], metres=scale, notes=notes)
