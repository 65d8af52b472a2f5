"""Readers for calibrations of benchmarks: KITTI, DrivingStereo, Middlebury, ETH3D, cvkit and Cityscapes."""

import re

from pamcli.calibration.camera import StatedRectification, make_transform
from pamcli.calibration.description import CameraDescription, CameraPair, Projections, describe_rectified
from pamcli.calibration.geometry import Size
from pamcli.calibration.parsing import (
    Source,
    read_matrix,
    read_matrix_camera,
    read_number,
    read_numbers,
    read_sides,
    read_size,
)
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
    if len(found) < 2 and source.pair is None:
        raise InputError(f"holds one camera ({', '.join(found.values())}), a pair needs 2")
    pair, notes = source.pair, []
    if pair is None:
        first, second = (2, 3) if {2, 3} <= found.keys() else sorted(found)[:2]
        pair = first, second
        notes = [f"cameras {pair[0]} and {pair[1]}{', in colour,' if pair == (2, 3) else ''} are used"]
    left, right = sides = [f"{index:0{width}}" if raw else str(index) for index in pair]

    def read_side_size(key: str) -> Size | None:
        return read_size(lines[key], key) if key in lines else None

    keys = (f"P_rect_{left}", f"P_rect_{right}") if raw else (f"P{left}", f"P{right}")
    p1, p2 = (read_matrix(lines.get(key), key, 3, 4) for key in keys)
    size = read_side_size(f"S_rect_{left}")
    projections = [Projections(p1, p2, size, keys)]
    if not raw or not all(f"{name}_{side}" in lines for name in "KRT" for side in sides):
        return CameraDescription("KITTI", projections=projections, notes=notes)
    cameras = [read_matrix_camera(lines, f"K_{side}", f"D_{side}") for side in sides]
    r1, r2 = (read_matrix(lines[f"R_{side}"], f"R_{side}", 3, 3) for side in sides)
    t1, t2 = (read_numbers(lines[f"T_{side}"], f"T_{side}", 3) for side in sides)
    rotation, stated = r2 @ r1.T, None
    if size is not None and all(f"R_rect_{side}" in lines for side in sides):
        turns = [read_matrix(lines[f"R_rect_{side}"], f"R_rect_{side}", 3, 3) for side in sides]
        stated = StatedRectification((turns[0], turns[1]), (p1, p2), size)
    sizes = [read_side_size(f"S_{side}") for side in sides]
    pairs = [CameraPair(cameras, make_transform(rotation, t2 - rotation @ t1), sizes, stated)]
    return CameraDescription("KITTI", pairs, projections, notes=notes)


def has_middlebury(source: Source) -> bool:
    return "cam0" in source.read_lines("=")


def read_middlebury(source: Source) -> CameraDescription:
    """Read cam0=[f 0 cx; 0 f cy; 0 0 1], cam1, baseline in millimetres, doffs, width, height, ndisp."""
    lines = source.read_lines("=", once=True)
    left = read_matrix(lines.get("cam0"), "cam0", 3, 3)
    right = read_matrix(lines["cam1"], "cam1", 3, 3) if "cam1" in lines else left
    baseline = read_number(lines.get("baseline"), "baseline")
    offset, notes = float(right[0, 2] - left[0, 2]), []
    if "doffs" in lines:
        stated = read_number(lines["doffs"], "doffs")
        if right is not left and abs(stated - offset) > 0.5:
            notes = [f"doffs is {stated:g} px and is used, but the principal points differ by {offset:g} px"]
        offset = stated
    bound = read_number(lines["ndisp"], "ndisp") if lines.get("ndisp") else 0.0
    return describe_rectified(
        "Middlebury",
        (float(left[0, 0]), float(left[1, 1])),
        (float(left[0, 2]), float(left[1, 2])),
        baseline,
        offset=offset,
        size=read_sides(lines, "width", "height") if "width" in lines else None,
        ndisp=bound if bound > 0 else None,
        metres=1e-3,
        notes=notes,
    )


def has_cvkit(source: Source) -> bool:
    return "camera.A" in source.read_lines("=")


def read_cvkit(source: Source) -> CameraDescription:
    """Read camera.A, camera.width, camera.height, and t (m) or rho (t times the focal length)."""
    lines = source.read_lines("=", once=True)
    left = read_matrix(lines["camera.A"], "camera.A", 3, 3)
    focal = float(left[0, 0]), float(left[1, 1])
    if not focal[0] > 0:
        raise InputError("the focal length of camera.A must be above 0")
    key = "t" if "t" in lines else "rho"
    baseline = read_number(lines.get(key), "t or rho") / (1.0 if key == "t" else focal[0])
    has_size = "camera.width" in lines or "camera.height" in lines
    size = read_sides(lines, "camera.width", "camera.height") if has_size else None
    return describe_rectified("cvkit", focal, (float(left[0, 2]), float(left[1, 2])), baseline, size=size)


def read_cityscapes(source: Source) -> CameraDescription:
    """Read extrinsic.baseline and intrinsic.fx, fy, u0, v0 of rectified images."""
    keys = ("intrinsic.fx", "intrinsic.fy", "intrinsic.u0", "intrinsic.v0", "extrinsic.baseline")
    fx, fy, x, y, baseline = (read_number(source.flat.get(key), key) for key in keys)
    return describe_rectified("Cityscapes", (fx, fy), (x, y), baseline)
