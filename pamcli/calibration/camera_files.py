"""Factory calibrations of stereo cameras: ZED, RealSense and OAK.

Those of ZED and RealSense hold one calibration for each resolution, since smaller images may be cut from the
sensor's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pamcli.calibration.camera import rotation_of
from pamcli.calibration.described import (
    CameraPair,
    Described,
    Projections,
    both_sizes,
    camera_of,
    inverse,
    is_fisheye,
    named_camera,
    part,
    pinhole_matrix,
    placed_pair,
    rectified_images,
    transform_of,
)
from pamcli.calibration.parsing import Source, Tree, matrix, number, numbers, size_of, walk, whole_number
from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError

ZED_SIZES = {
    "2K": (2208, 1242),
    "4K": (3840, 2160),
    "QHDPLUS": (3200, 1800),
    "FHD1200": (1920, 1200),
    "FHD": (1920, 1080),
    "HD": (1280, 720),
    "SVGA": (960, 600),
    "VGA": (672, 376),
}
"""Images of the resolutions that sections are named after, the sensor's own first."""


def has_zed(source: Source) -> bool:
    return "[LEFT_CAM_" in source.texts[0].upper()


def read_zed(source: Source) -> Described:
    """Read sections LEFT_CAM_HD, RIGHT_CAM_HD and so on with fx fy cx cy and the distortion, and STEREO.

    The distortion may stand apart, in LEFT_DISTO and RIGHT_DISTO; there, without p1 and p2 it is a fisheye's.
    STEREO has Baseline, TY, TZ in millimetres (metres in some), and RX, CV, RZ, the rotation vector.
    """
    values: dict[str, str] = {}
    section = ""
    for line in map(str.strip, source.texts[0].splitlines()):
        if line.startswith("["):
            section = line.strip("[]").upper()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            values[f"{section}.{name.strip().lower()}"] = value.strip()
    baseline = number(values.get("STEREO.baseline"), "STEREO.Baseline")
    pairs = []
    for mode, size in ZED_SIZES.items():
        if f"LEFT_CAM_{mode}.fx" not in values or f"RIGHT_CAM_{mode}.fx" not in values:
            continue
        cameras = []
        for side in ("LEFT", "RIGHT"):
            lens = f"{side}_DISTO." if f"{side}_DISTO.k1" in values else f"{side}_CAM_{mode}."
            fisheye = f"{lens}p1" not in values and f"{lens}k4" in values
            keys = "k1 k2 k3 k4" if fisheye else "k1 k2 p1 p2 k3"
            if not fisheye and f"{lens}k6" in values:
                keys += " k4 k5 k6"
            found = np.array([number(values.get(lens + key, "0"), lens + key) for key in keys.split()])
            camera = named_camera(values, f"{side}_CAM_{mode}.", "")
            cameras.append(camera_of(camera.matrix, f"{lens}fx", found, f"{lens}k1", fisheye))

        def stereo(name: str, mode: str = mode) -> float:
            key = f"STEREO.{name}_{mode.lower()}"
            return number(values.get(key, values.get(f"STEREO.{name}", "0")), key)

        rotation = rotation_of(np.array([stereo("rx"), stereo("cv"), stereo("rz")]))
        pairs.append(CameraPair(cameras, rotation, np.array([-baseline, stereo("ty"), stereo("tz")]), size))
    if not pairs:
        raise InputError(f"has no sections LEFT_CAM_ and RIGHT_CAM_ of {', '.join(ZED_SIZES)}")
    return Described("ZED", pairs, metres=1e-3 if abs(baseline) > 1 else 1.0)


_SIDES = (r"left|(infra(red)?|ir|fisheye)[ _]?1", r"right|(infra(red)?|ir|fisheye)[ _]?2")


def _side(name: str) -> int | None:
    """Return which camera of a RealSense a name is of: 0 left, 1 right; None: another one."""
    return next((side for side, pattern in enumerate(_SIDES) if re.search(pattern, name.lower())), None)


def read_viewer(source: Source) -> Described:
    """Read the calibration that RealSense Viewer saves: rectified images of every resolution, millimetres."""
    tree = source.tree
    baseline = abs(number(tree.get("baseline"), "baseline"))
    found: list[Projections] = []
    for index in range(32):
        prefix = f"rectified.{index}."
        sides = [tree.get(prefix + key, 0) for key in ("width", "height")]
        if any(number(side, prefix + "width") == 0 for side in sides):
            continue  # a resolution that this camera does not have
        fx, fy, x, y = (number(tree.get(prefix + key), prefix + key) for key in ("fx", "fy", "ppx", "ppy"))
        size = size_of(sides, prefix + "width")
        found += rectified_images("RealSense", (fx, fy), (x, y), baseline, size=size).projections
    if not found:
        raise InputError("rectified.0 and the others have no size")
    found.sort(key=lambda each: each.size or (0, 0), reverse=True)
    notes = ["of the infrared images, which come from the camera rectified"]
    return Described("RealSense", projections=found, metres=1e-3, notes=notes, exchangeable=False)


def has_preset(source: Source) -> bool:
    return any(re.fullmatch(r"(parameters\.)?param-.*", name) for name in source.flat)


def refuse_preset(source: Source) -> Described:
    """Say where a RealSense's calibration is found."""
    raise InputError(
        "holds settings of a RealSense (a preset), and no calibration",
        "RealSense Viewer saves one under More, Calibration Data, Save As",
    )


def _named(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield all that has names inside, with the names that lead to it."""
    yield "", tree
    yield from ((name.replace(".", " "), each) for name, each in walk(tree) if isinstance(each, Mapping))


def has_realsense(source: Source) -> bool:
    return any({"ppx", "ppy"} <= each.keys() for _, each in _named(source.tree))


def read_realsense(source: Source) -> Described:
    """Read intrinsics and extrinsics as RealSense's library has them.

    ppx ppy fx fy coeffs of both cameras; rotation column by column, translation in metres.
    """
    cameras = [
        (name, each) for name, each in _named(source.tree) if {"fx", "fy", "ppx", "ppy"} <= each.keys()
    ]
    sides = [[each for each in cameras if _side(each[0]) == side] for side in (0, 1)]
    poses = [each for _, each in _named(source.tree) if {"rotation", "translation"} <= each.keys()]
    if any(len(side) != 1 for side in sides) or len(poses) != 1:
        raise InputError(
            f"holds the intrinsics of {len(cameras)} cameras and {len(poses)} extrinsics of a RealSense",
            "it takes those of infrared1 and infrared2, and of the transform from the one to the other",
        )
    rotation = numbers(poses[0]["rotation"], "rotation", 9).reshape(3, 3).T
    translation = numbers(poses[0]["translation"], "translation", 3)
    return Described("RealSense", [_realsense_pair([side[0] for side in sides], rotation, translation)])


def _realsense_pair(named: Sequence[tuple[str, Tree]], rotation: Floats, translation: Floats) -> CameraPair:
    made, sizes = [], []
    for name, each in named:
        values = [number(each.get(key), f"{name}: {key}") for key in ("fx", "fy", "ppx", "ppy")]
        coefficients = numbers(each.get("coeffs") or [], f"{name}: coeffs")
        model = str(each.get("model", "")).lower().removeprefix("distortion.")
        unlike = any(word in model for word in ("inverse", "modified", "ftheta"))
        fisheye = is_fisheye("none" if unlike else model, f"{name}: model")
        if coefficients.any() and unlike:
            raise InputError(f"{name}: model {model[:40]} is none that OpenCV has", "calibrate the cameras")
        coefficients = coefficients[: 4 if fisheye else None]
        made.append(
            camera_of(pinhole_matrix(*values), f"{name}: fx", coefficients, f"{name}: coeffs", fisheye)
        )
        sizes.append(size_of([each.get("width"), each.get("height")], f"{name}: width"))
    return CameraPair(made, rotation, translation, *both_sizes(sizes))


_INTRINSIC = re.compile(r'[ \t]*Intrinsic of "([^"\n]{1,60})" / (\d{1,5}x\d{1,5}) /')
_EXTRINSIC = re.compile(r'[ \t]*Extrinsic from "([^"\n]{1,60})"\s+To\s+"([^"\n]{1,60})"')


def has_listing(source: Source) -> bool:
    return len(source.texts) == 1 and bool(_INTRINSIC.search(source.texts[0]))


def read_listing(source: Source) -> Described:
    """Read what `rs-enumerate-devices -c` prints: intrinsics of every resolution, and extrinsics, metres."""
    cameras: dict[str, dict[int, Tree]] = {}
    poses: dict[tuple[int | None, int | None], list[str]] = {}
    below: Any = None
    for line in source.texts[0].splitlines():
        name, _, value = line.partition(":")
        if found := _INTRINSIC.match(line):
            below = {}
            if (side := _side(found[1])) is not None:
                cameras.setdefault(found[2], {})[side] = below
        elif found := _EXTRINSIC.match(line):
            below = poses[_side(found[1]), _side(found[2])] = []
        elif isinstance(below, list) and len(below) < 12:
            below += line.rpartition(":")[2].split()
        elif isinstance(below, dict) and value:
            below[name.strip().lower().replace("distortion", "model")] = value.strip()
    way = next((way for way in ((0, 1), (1, 0)) if way in poses), None)
    both = [sides for sides in cameras.values() if len(sides) == 2]
    if way is None or not both:
        raise InputError(
            "lists no intrinsics of both infrared cameras of a RealSense, or no extrinsics between them",
            "rs-enumerate-devices -c lists both",
        )
    values = numbers(poses[way], "Extrinsic", 12)
    transform = transform_of(values[:9].reshape(3, 3), values[9:])
    transform = transform if way == (0, 1) else inverse(transform)
    rotation, translation = transform[:3, :3], transform[:3, 3]
    named = [[(f"Infrared {side + 1}", sides[side]) for side in (0, 1)] for sides in both]
    pairs = [_realsense_pair(sides, rotation, translation) for sides in named]
    pairs.sort(key=lambda pair: pair.size or (0, 0), reverse=True)
    return Described("RealSense", pairs)


def read_oak(source: Source) -> Described:
    """Read the calibration of an OAK camera as DepthAI's eepromToJsonFile writes it, lengths in centimetres.

    Each camera's extrinsics lead from its coordinates to those of the socket toCameraSocket.
    """
    data = source.tree["cameraData"]
    entries = [*data.items()] if isinstance(data, Mapping) else data if isinstance(data, list) else []
    if not entries or not all(isinstance(each, list | tuple) and len(each) == 2 for each in entries):
        raise InputError("cameraData is not a list of sockets and their cameras")
    sockets = {
        whole_number(socket, "cameraData"): each for socket, each in entries if isinstance(each, Mapping)
    }
    stereo = source.tree.get("stereoRectificationData")
    pair = source.pair or (1, 2)
    if source.pair is None and isinstance(stereo, Mapping):
        names = ("leftCameraSocket", "rightCameraSocket")
        stated = [int(number(stereo.get(name), name)) for name in names]
        pair = (stated[0], stated[1]) if min(stated) >= 0 else pair
    placed, roots = [], []
    for socket in pair:
        if socket not in sockets:
            others = ", ".join(map(str, sorted(sockets)))
            raise InputError(f"has no camera in socket {socket}", f"`cameras` chooses among {others}")
        each, key = sockets[socket], f"socket {socket}: intrinsicMatrix"
        fisheye = number(each.get("cameraType", 0), "cameraType") == 1
        coefficients = numbers(each.get("distortionCoeff") or [], "distortionCoeff")[: 4 if fisheye else None]
        intrinsics = matrix(each.get("intrinsicMatrix"), key, 3, 3)
        root, pose = _oak_pose(sockets, socket)
        size = size_of([each.get("width"), each.get("height")], "width x height")
        placed.append((camera_of(intrinsics, key, coefficients, "distortionCoeff", fisheye), pose, size))
        roots.append(root)
    if roots[0] != roots[1]:
        raise InputError(f"extrinsics of sockets {pair[0]} and {pair[1]} do not lead to a common camera")
    notes = [f"left camera in socket {pair[0]}, right one in socket {pair[1]}"]
    return Described("OAK (DepthAI)", [placed_pair(placed)], metres=1e-2, notes=notes)


def _oak_pose(sockets: Mapping[int, Tree], socket: int) -> tuple[int, Floats]:
    """Follow the extrinsics of a camera to the end: its socket, and (4, 4) to its coordinates."""
    pose: Floats = np.eye(4)
    for _ in range(len(sockets)):
        key = f"socket {socket}: extrinsics"
        there = part(sockets[socket], "extrinsics")
        target = int(number(there.get("toCameraSocket", -1), f"{key}.toCameraSocket"))
        if target not in sockets or not there.get("rotationMatrix"):
            break
        moves = [
            numbers([each.get(axis) for axis in "xyz"], f"{key}.{name}", 3)
            for name in ("translation", "specTranslation")
            if isinstance(each := there.get(name), Mapping)
        ]
        if not moves:
            raise InputError(f"{key}.translation is missing")
        rotation = matrix(there["rotationMatrix"], f"{key}.rotationMatrix", 3, 3)
        pose = transform_of(rotation, moves[0] if moves[0].any() else moves[-1]) @ pose
        socket = target
    return socket, pose
