"""Calibrations of benchmarks: KITTI, DrivingStereo, Middlebury, ETH3D, cvkit and Cityscapes."""

import re

from pamcli.calibration.camera import StatedRectification
from pamcli.calibration.described import (
    CameraPair,
    Described,
    Projections,
    both_sizes,
    matrix_camera,
    rectified_images,
)
from pamcli.calibration.parsing import Source, matrix, number, numbers, size_of
from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError

_PROJECTION = re.compile(r"P(_rect_)?(\d{1,3})")


def has_kitti(source: Source) -> bool:
    return any(
        _PROJECTION.fullmatch(name) and value[:1] in "+-.0123456789"
        for name, value in source.lines(":").items()
    )


def read_kitti(source: Source) -> Described:
    """Read P0 ... P3, or P_rect_00 ... with K, D, R and T before rectification (raw data, DrivingStereo)."""
    lines = source.lines(":", once=True)
    found = {int(match[2]): name for name in lines if (match := _PROJECTION.fullmatch(name))}
    raw = any("rect" in name for name in found.values())
    width = max(len(name.removeprefix("P_rect_")) for name in found.values())
    first = [2, 3] if {2, 3} <= found.keys() else sorted(found)[:2]
    pair, notes = source.pair or first, []
    if source.pair is None:
        notes = [f"cameras {' and '.join(map(str, pair))}" + (", those in colour" if pair == [2, 3] else "")]
    if len(pair) < 2:
        raise InputError(f"holds the projection of one camera, {found[pair[0]]}, and a pair has two")

    def values(key: str, *counts: int) -> Floats:
        return numbers(lines.get(key), key, *counts)

    def size(key: str) -> tuple[int, int] | None:
        return size_of(lines[key], key) if key in lines else None

    left, right = (f"{index:0{width}}" if raw else str(index) for index in pair)
    keys = tuple(f"P_rect_{side}" if raw else f"P{side}" for side in (left, right))
    p1, p2 = (values(key, 12).reshape(3, 4) for key in keys)
    made = size(f"S_rect_{left}")
    projections = [Projections(p1, p2, made, keys)]  # type: ignore[arg-type]
    if not raw or not all(f"{name}_{side}" in lines for name in "KRT" for side in (left, right)):
        return Described("KITTI", projections=projections, notes=notes)
    cameras = [matrix_camera(lines, f"K_{i}", f"D_{i}") for i in (left, right)]
    r1, r2 = (values(f"R_{i}", 9).reshape(3, 3) for i in (left, right))
    t1, t2 = (values(f"T_{i}", 3) for i in (left, right))
    rotation, stated = r2 @ r1.T, None
    if made is not None and all(f"R_rect_{i}" in lines for i in (left, right)):
        turns = [values(f"R_rect_{i}", 9).reshape(3, 3) for i in (left, right)]
        stated = StatedRectification((turns[0], turns[1]), (p1, p2), made)
    sizes = both_sizes([size(f"S_{i}") for i in (left, right)])
    return Described(
        "KITTI", [CameraPair(cameras, rotation, t2 - rotation @ t1, *sizes, stated)], projections, notes=notes
    )


def has_middlebury(source: Source) -> bool:
    return "cam0" in source.lines("=")


def read_middlebury(source: Source) -> Described:
    """Read cam0=[f 0 cx; 0 f cy; 0 0 1], cam1, baseline in millimetres, doffs, width, height, ndisp."""
    lines = source.lines("=", once=True)
    left = matrix(lines.get("cam0"), "cam0", 3, 3)
    right = matrix(lines["cam1"], "cam1", 3, 3) if "cam1" in lines else left
    baseline = number(lines.get("baseline"), "baseline")
    offset, notes = float(right[0, 2] - left[0, 2]), []
    if "doffs" in lines:
        stated = number(lines["doffs"], "doffs")
        if right is not left and abs(stated - offset) > 0.5:
            notes.append(
                f"doffs is {stated:g} px, but the principal points are {offset:g} px apart; doffs is taken"
            )
        offset = stated
    bound = number(lines["ndisp"], "ndisp") if lines.get("ndisp") else 0.0
    return rectified_images(
        "Middlebury",
        (float(left[0, 0]), float(left[1, 1])),
        (float(left[0, 2]), float(left[1, 2])),
        baseline,
        offset=offset,
        size=size_of([lines["width"], lines.get("height")], "width x height") if "width" in lines else None,
        ndisp=bound if bound > 0 else None,
        metres=1e-3,
        notes=notes,
    )


def has_cvkit(source: Source) -> bool:
    return "camera.A" in source.lines("=")


def read_cvkit(source: Source) -> Described:
    """Read camera.A, camera.width, camera.height, and t, metres, or rho, t times the focal length."""
    lines = source.lines("=", once=True)
    left = matrix(lines["camera.A"], "camera.A", 3, 3)
    focal = float(left[0, 0]), float(left[1, 1])
    if not focal[0] > 0:
        raise InputError("camera.A is singular: its focal length is not above 0")
    key = "t" if "t" in lines else "rho"
    baseline = number(lines.get(key), "t or rho") / (1.0 if key == "t" else focal[0])
    size = [lines.get("camera.width"), lines.get("camera.height")]
    known = None if size == [None, None] else size_of(size, "camera.width x camera.height")
    return rectified_images("cvkit", focal, (float(left[0, 2]), float(left[1, 2])), baseline, size=known)


def read_cityscapes(source: Source) -> Described:
    """Read extrinsic.baseline and intrinsic.fx, fy, u0, v0 of rectified images."""
    keys = ("intrinsic.fx", "intrinsic.fy", "intrinsic.u0", "intrinsic.v0", "extrinsic.baseline")
    fx, fy, x, y, baseline = (number(source.flat.get(key), key) for key in keys)
    return rectified_images("Cityscapes", (fx, fy), (x, y), baseline)
