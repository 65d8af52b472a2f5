"""Readers for stereo cameras (ZED, RealSense, OAK) and benchmarks (KITTI, Middlebury, cvkit, Cityscapes).

Files of ZED and RealSense hold a calibration for each resolution, because smaller images may be crops.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import Projections, invert_transform, make_rotation, make_transform
from pamcli.calibration.description import CameraDescription, CameraPair, pair_cameras
from pamcli.calibration.geometry import Floats
from pamcli.calibration.parsing import (
    KB4,
    PINHOLE,
    RADTAN,
    RATIONAL,
    Section,
    Source,
    is_fisheye,
    parse_lines,
    prefix_names,
    read_integer,
    read_numbers,
    unsupported_lens,
    walk,
)
from pamcli.errors import InputError

ZED_SIZES = {  # of the modes that sections are named after, full sensor first
    **{"2K": (2208, 1242), "4K": (3840, 2160), "QHDPLUS": (3200, 1800), "FHD1200": (1920, 1200)},
    **{"FHD": (1920, 1080), "HD": (1280, 720), "SVGA": (960, 600), "VGA": (672, 376)},
}


def read_zed(source: Source) -> CameraDescription | None:
    """Read sections LEFT_CAM_HD, RIGHT_CAM_HD and so on with fx fy cx cy and the distortion, and STEREO.

    The distortion may have sections LEFT_DISTO and RIGHT_DISTO of its own; without p1 and p2 it is that of a
    fisheye. STEREO has Baseline, TY, TZ in millimetres (metres in some), and RX, CV, RZ, the rotation vector.
    """
    if "[LEFT_CAM_" not in source.texts[0].upper():
        return None
    sections = parse_lines(source.texts[0]).items()
    found = [(title, each) for title, each in sections if isinstance(each, dict)]
    values = Section({f"{title.upper()}.{k.lower()}": v for title, each in found for k, v in each.items()})
    baseline = values.number("STEREO.baseline")
    pairs = []
    for mode, size in ZED_SIZES.items():
        if f"LEFT_CAM_{mode}.fx" not in values or f"RIGHT_CAM_{mode}.fx" not in values:
            continue
        cameras = []
        for side in ("LEFT", "RIGHT"):
            lens = f"{side}_DISTO." if f"{side}_DISTO.k1" in values else f"{side}_CAM_{mode}."
            fisheye = f"{lens}p1" not in values and f"{lens}k4" in values
            coefficients = KB4 if fisheye else RATIONAL if f"{lens}k6" in values else f"{RADTAN} k3"
            keys = prefix_names(f"{side}_CAM_{mode}.", PINHOLE), prefix_names(lens, coefficients)
            cameras.append(values.camera(*keys, fisheye))
        rx, cv, rz, ty, tz = (
            values.number(f"STEREO.{key}_{mode.lower()}", values.get(f"STEREO.{key}", "0"))
            for key in ("rx", "cv", "rz", "ty", "tz")
        )
        transform = make_transform(make_rotation(np.array([rx, cv, rz])), np.array([-baseline, ty, tz]))
        pairs.append(CameraPair(cameras, transform, (size, size)))
    if not pairs:
        raise InputError(f"must have sections LEFT_CAM_ and RIGHT_CAM_ of one of {', '.join(ZED_SIZES)}")
    return CameraDescription("ZED", pairs, metres=1e-3 if abs(baseline) > 1 else 1.0)


def read_viewer(source: Source) -> CameraDescription:
    """Read the calibration that RealSense Viewer saves: rectified images of every resolution, millimetres."""
    tree = source.tree
    baseline = abs(tree.number("baseline"))
    found: list[Projections] = []
    for prefix in (f"rectified.{index}." for index in range(32)):
        if tree.number(f"{prefix}width", 0) and tree.number(f"{prefix}height", 0):
            size = tree.size(f"{prefix}width {prefix}height")
            left = tree.camera(prefix_names(prefix, "fx fy ppx ppy")).matrix
            found.append(Projections.from_left(left, baseline, size=size))
    if not found:
        raise InputError("rectified.0.width and rectified.0.height are missing")
    found.sort(key=lambda each: each.size or (0, 0), reverse=True)
    notes = ["this is the calibration of the infrared images, which the camera rectifies"]
    return CameraDescription("RealSense", projections=found, metres=1e-3, notes=notes, swappable=False)


_SIDE = re.compile(
    "(left|depth|(?:infra(?:red)?|ir|fisheye)[ _]?1)|(right|(?:infra(?:red)?|ir|fisheye)[ _]?2)|(colou?r|rgb)"
)


def _find_sides(name: str) -> tuple[int, ...]:
    """Return the cameras that a name mentions: 0 is the left infrared one, 1 the right one, 2 colour."""
    return tuple((found.lastindex or 1) - 1 for found in _SIDE.finditer(name.lower()))


def read_realsense(source: Source) -> CameraDescription | None:
    """Read intrinsics and extrinsics of librealsense: the rotation by columns, the translation in metres."""
    below = [(name.replace(".", " "), each) for name, each in walk(source.tree) if isinstance(each, Mapping)]
    sections = [("", source.tree), *((name, Section(each, f"{name}: ")) for name, each in below)]
    lenses = [(name, each) for name, each in sections if {"fx", "fy", "ppx", "ppy"} <= each.keys()]
    found = [(name, each) for name, each in sections if {"rotation", "translation"} <= each.keys()]
    if not found and any("baseline" in name.lower() for name, _ in walk(source.tree)):
        return None  # rectified images, described by names
    cameras = [(side, each) for name, each in lenses for side in _find_sides(name.replace("depth", ""))[:1]]
    poses = {}
    for name, each in found:
        sides = _find_sides(name)
        sides = sides if len(sides) == 2 or len(found) > 1 else (0, 1)
        rotation = each.numbers("rotation", 9).reshape(3, 3).T
        poses[sides] = make_transform(rotation, each.numbers("translation", 3))
    pair, known = source.pair or (0, 1), dict(cameras)
    transform = _find_pose(poses, pair)
    if transform is None or not known.keys() >= {*pair} or len(known) < len(cameras):
        message = f"holds intrinsics of {len(lenses)} cameras and {len(found)} extrinsics of a RealSense"
        hint = "it needs the intrinsics of infrared1 and infrared2, and the transform from one to the other"
        raise InputError(message, hint)
    both = [known[side] for side in pair]
    return CameraDescription("RealSense", [_pair_realsense(both, transform)], numbers=pair)


def _find_pose(poses: Mapping[tuple[int, ...], Floats], pair: tuple[int, int]) -> Floats | None:
    """Return the transform (4, 4) between two cameras, of which the file may state the inverse."""
    inverse = poses.get(pair[::-1])
    return poses.get(pair, None if inverse is None else invert_transform(inverse))


def _pair_realsense(sections: Sequence[Section], transform: Floats) -> CameraPair:
    cameras, sizes = [], []
    for each in sections:
        model = str(each.get("model", "")).lower().removeprefix("distortion.")
        unlike = any(word in model for word in ("inverse", "modified", "ftheta"))
        fisheye = is_fisheye("none" if unlike else model, f"{each.prefix}model")
        if unlike and each.numbers("coeffs", default=[]).any():
            raise unsupported_lens(f"{each.prefix}model", model, "pam calibration make calibrates them")
        each["coeffs"] = each.numbers("coeffs", default=[])[: 4 if fisheye else None]
        cameras.append(each.camera("fx fy ppx ppy", "coeffs", fisheye))
        sizes.append(each.size("width height"))
    return CameraPair(cameras, transform, sizes)


_INTRINSIC = re.compile(r'[ \t]*Intrinsic of "([^"\n]{1,60})" / (\d{1,5}x\d{1,5}) /')
_EXTRINSIC = re.compile(r'[ \t]*Extrinsic from "([^"\n]{1,60})"\s+To\s+"([^"\n]{1,60})"')


def read_listing(source: Source) -> CameraDescription | None:
    """Read what `rs-enumerate-devices -c` prints: intrinsics per resolution, and extrinsics in metres."""
    if len(source.texts) != 1 or not _INTRINSIC.search(source.texts[0]):
        return None
    cameras: dict[str, dict[int, Section]] = {}
    poses: dict[tuple[int, ...], list[str]] = {}
    below: Any = None
    for line in source.texts[0].splitlines():
        name, _, value = line.partition(":")
        if found := _INTRINSIC.match(line):
            below = Section({}, f"{found[1]}: ")
            for side in _find_sides(found[1].replace("Depth", "")):
                cameras.setdefault(found[2], {})[side] = below
        elif found := _EXTRINSIC.match(line):
            below = poses[_find_sides(f"{found[1]} {found[2]}")] = []
        elif isinstance(below, list) and len(below) < 12:
            below += line.rpartition(":")[2].split()
        elif isinstance(below, dict) and value:
            below[name.strip().lower().replace("distortion", "model")] = value.strip()
    pair = source.pair or (0, 1)
    largest = {side: each for sides in cameras.values() for side, each in sides.items()}
    both = [sides for sides in (*cameras.values(), largest) if sides.keys() >= {*pair}]
    both = both[:-1] or both  # the largest resolution of each camera if they share none
    values = {way: read_numbers(text, "Extrinsic", 12) for way, text in poses.items() if {*way} == {*pair}}
    found_poses = {way: make_transform(each[:9].reshape(3, 3), each[9:]) for way, each in values.items()}
    if (transform := _find_pose(found_poses, pair)) is None or not both:
        message = "must list the intrinsics of both infrared cameras and the extrinsics between them"
        raise InputError(message, "rs-enumerate-devices -c lists both")
    pairs = [_pair_realsense([sides[side] for side in pair], transform) for sides in both]
    pairs.sort(key=lambda pair: pair.sizes[0] or (0, 0), reverse=True)
    return CameraDescription("RealSense", pairs, numbers=pair)


def read_oak(source: Source) -> CameraDescription:
    """Read what DepthAI's eepromToJsonFile writes: extrinsics in cm from each socket to toCameraSocket."""
    data = source.tree["cameraData"]
    entries = [*data.items()] if isinstance(data, Mapping) else data if isinstance(data, list) else []
    if not entries or not all(isinstance(each, list | tuple) and len(each) == 2 for each in entries):
        raise InputError("cameraData must be a list of sockets and their cameras")
    sockets = {
        (socket := read_integer(key, "cameraData")): Section(each, f"socket {socket}: ")
        for key, each in entries
        if isinstance(each, Mapping)
    }
    stereo = source.tree.get("stereoRectificationData")
    pair = source.pair or (1, 2)
    if source.pair is None and isinstance(stereo, Mapping):
        first, second = (int(Section(stereo).number(f"{side}CameraSocket")) for side in ("left", "right"))
        pair = (first, second) if min(first, second) >= 0 else pair
    placed, roots = [], set()
    for socket in pair:
        if socket not in sockets:
            others = ", ".join(map(str, sorted(sockets)))
            raise InputError(f"has no camera in socket {socket}", f"choose `cameras` from sockets {others}")
        each = sockets[socket]
        fisheye = each.number("cameraType", 0) == 1
        each["distortionCoeff"] = each.numbers("distortionCoeff", default=[])[: 4 if fisheye else None]
        camera = each.camera("intrinsicMatrix", "distortionCoeff", fisheye)
        root, pose = _follow_extrinsics(sockets, socket)
        placed.append((camera, pose, each.size("width height")))
        roots.add(root)
    if len(roots) > 1:
        raise InputError(f"the extrinsics of sockets {pair[0]} and {pair[1]} must lead to a common camera")
    notes = [f"the left camera is in socket {pair[0]}, the right one in socket {pair[1]}"]
    pairs = [pair_cameras(placed)]
    return CameraDescription("OAK (DepthAI)", pairs, metres=1e-2, notes=notes, numbers=pair)


def _follow_extrinsics(sockets: Mapping[int, Section], socket: int) -> tuple[int, Floats]:
    """Return the last socket that the extrinsics of a camera lead to, and the transform (4, 4) to it."""
    pose: Floats = np.eye(4)
    for _ in range(len(sockets)):
        there = sockets[socket].section("extrinsics")
        target = int(there.number("toCameraSocket", -1))
        if target not in sockets or not there.get("rotationMatrix"):
            break
        names = [name for name in ("translation", "specTranslation") if isinstance(there.get(name), Mapping)]
        moves = [np.array([there.section(name).number(axis) for axis in "xyz"]) for name in names]
        if not moves:
            raise InputError(f"{there.prefix}translation is missing")
        move = moves[0] if moves[0].any() else moves[-1]
        pose = make_transform(there.matrix("rotationMatrix", 3, 3), move) @ pose
        socket = target
    return socket, pose


_PROJECTION = re.compile(r"P(_rect_)?(\d{1,3})")


def read_kitti(source: Source) -> CameraDescription | None:
    """Read P0 ... P3, or P_rect_00 ... with K, D, R and T before rectification (raw data, DrivingStereo)."""
    values = source.read_lines(":").items()
    if not any(_PROJECTION.fullmatch(name) and value[:1] in "+-.0123456789" for name, value in values):
        return None
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
    size = lines.find_size(f"S_rect_{left}")
    has_cameras = raw and all(f"{name}_{side}" in lines for name in "KRT" for side in sides)
    if has_cameras and any(lines.matrix(f"K_{side}", 3, 3)[0, 1] for side in sides):
        notes.append("K has skew, which OpenCV does not support, so only the rectified images are described")
        has_cameras = False
    pairs, turns = [], list[Floats]()
    if has_cameras:
        cameras = [lines.camera(f"K_{side}", f"D_{side}") for side in sides]
        r1, r2 = (lines.matrix(f"R_{side}", 3, 3) for side in sides)
        t1, t2 = (lines.numbers(f"T_{side}", 3) for side in sides)
        rotation, sizes = r2 @ r1.T, [lines.find_size(f"S_{side}") for side in sides]
        pairs = [CameraPair(cameras, make_transform(rotation, t2 - rotation @ t1), sizes)]
        if size is not None and all(f"R_rect_{side}" in lines for side in sides):
            turns = [lines.matrix(f"R_rect_{side}", 3, 3) for side in sides]
    projections = [Projections(p1, p2, size, keys, rotations=turns)]
    return CameraDescription("KITTI", pairs, projections, notes=notes, numbers=pair)


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
    size = lines.size("width height") if "width" in lines else None
    ndisp = (lines.number("ndisp") if lines.get("ndisp") else 0) or None
    rectified = Projections.from_left(left, lines.number("baseline"), offset, size, ndisp)
    return CameraDescription("Middlebury", projections=[rectified], metres=1e-3, notes=notes)


def read_cvkit(source: Source) -> CameraDescription:
    """Read camera.A, camera.width, camera.height, and t (m) or rho (t times the focal length)."""
    lines = source.read_lines("=", once=True)
    left = lines.matrix("camera.A", 3, 3)
    if not left[0, 0] > 0:
        raise InputError("the focal length of camera.A must be above 0")
    baseline = lines.number("t") if "t" in lines else lines.number("rho") / float(left[0, 0])
    has_size = "camera.width" in lines or "camera.height" in lines
    size = lines.size("camera.width camera.height") if has_size else None
    return CameraDescription("cvkit", projections=[Projections.from_left(left, baseline, size=size)])
