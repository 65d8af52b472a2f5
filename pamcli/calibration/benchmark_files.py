"""Readers for calibrations of benchmarks: KITTI, DrivingStereo, Middlebury, ETH3D, cvkit and Cityscapes."""

import re
from typing import Any

from pamcli.calibration.camera import StatedRectification, make_transform
from pamcli.calibration.description import CameraDescription, CameraPair, Projections, describe_rectified
from pamcli.calibration.parsing import Source
from pamcli.errors import InputError

_PROJECTION = re.compile(r"P(_rect_)?(\d{1,3})")


def has_kitti(source: Source) -> bool:
    lines = source.read_lines(":").items()
    return any(_PROJECTION.fullmatch(name) and value[:1] in "+-.0123456789" for name, value in lines)


def read_kitti(source: Source) -> CameraDescription:
    """Read P0 ... P3, or P_rect_00 ... with K, D, R and T before rectification (raw data, DrivingStereo)."""
    lines = source.read_lines(":", once=True)
    found = {int(match[2]): name for name in lines if (match := _PROJECTION.fullmatch(name))}
    raw = any("rect" in name for name in found.values())
    width = max(len(name.removeprefix("P_rect_")) for name in found.values())
    pair, notes = source.pair, []
    if pair is None:
        if len(found) < 2:
            raise InputError(f"holds one camera ({', '.join(found.values())}), a pair needs 2")
        first, second = (2, 3) if {2, 3} <= found.keys() else sorted(found)[:2]
        pair = first, second
        notes = [f"cameras {first} and {second}{', in colour,' if pair == (2, 3) else ''} are used"]
    left, right = sides = [f"{index:0{width}}" if raw else str(index) for index in pair]
    keys = (f"P_rect_{left}", f"P_rect_{right}") if raw else (f"P{left}", f"P{right}")
    p1, p2 = (lines.matrix(key, 3, 4) for key in keys)
    size = lines.size(f"S_rect_{left}") if f"S_rect_{left}" in lines else None
    projections = [Projections(p1, p2, size, keys)]
    if not raw or not all(f"{name}_{side}" in lines for name in "KRT" for side in sides):
        return CameraDescription("KITTI", projections=projections, notes=notes)
    cameras = [lines.matrix_camera(f"K_{side}", f"D_{side}") for side in sides]
    r1, r2 = (lines.matrix(f"R_{side}", 3, 3) for side in sides)
    t1, t2 = (lines.numbers(f"T_{side}", 3) for side in sides)
    rotation, stated = r2 @ r1.T, None
    if size is not None and all(f"R_rect_{side}" in lines for side in sides):
        turns = [lines.matrix(f"R_rect_{side}", 3, 3) for side in sides]
        stated = StatedRectification((turns[0], turns[1]), (p1, p2), size)
    sizes = [lines.size(f"S_{side}") if f"S_{side}" in lines else None for side in sides]
    pairs = [CameraPair(cameras, make_transform(rotation, t2 - rotation @ t1), sizes, stated)]
    return CameraDescription("KITTI", pairs, projections, notes=notes)


def read_middlebury(source: Source) -> CameraDescription:
    """Read cam0=[f 0 cx; 0 f cy; 0 0 1], cam1, baseline in millimetres, doffs, width, height, ndisp."""
    lines = source.read_lines("=", once=True)
    left = lines.matrix("cam0", 3, 3)
    right = lines.matrix("cam1", 3, 3) if "cam1" in lines else left
    offset, notes = float(right[0, 2] - left[0, 2]), []
    if "doffs" in lines:
        stated = lines.number("doffs")
        if right is not left and abs(stated - offset) > 0.5:
            notes = [f"doffs is {stated:g} px and is used, but the principal points differ by {offset:g} px"]
        offset = stated
    size = lines.size("width", "height") if "width" in lines else None
    ndisp = (lines.number("ndisp") if lines.get("ndisp") else 0) or None
    values: Any = {"offset": offset, "size": size, "ndisp": ndisp, "metres": 1e-3, "notes": notes}
    return describe_rectified("Middlebury", left, lines.number("baseline"), **values)


def read_cvkit(source: Source) -> CameraDescription:
    """Read camera.A, camera.width, camera.height, and t (m) or rho (t times the focal length)."""
    lines = source.read_lines("=", once=True)
    left = lines.matrix("camera.A", 3, 3)
    if not left[0, 0] > 0:
        raise InputError("the focal length of camera.A must be above 0")
    baseline = lines.number("t") if "t" in lines else lines.number("rho") / float(left[0, 0])
    has_size = "camera.width" in lines or "camera.height" in lines
    size = lines.size("camera.width", "camera.height") if has_size else None
    return describe_rectified("cvkit", left, baseline, size=size)


def read_cityscapes(source: Source) -> CameraDescription:
    """Read extrinsic.baseline and intrinsic.fx, fy, u0, v0 of rectified images."""
    left = source.flat.camera("", "intrinsic.", names="fx fy u0 v0").matrix
    return describe_rectified("Cityscapes", left, source.flat.number("extrinsic.baseline"))
