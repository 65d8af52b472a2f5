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
    pair_from_poses,
    part,
    pinhole_matrix,
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


def has_viewer(source: Source) -> bool:
    return "rectified.0.fx" in source.tree


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
        made.append(
            camera_of(
                pinhole_matrix(*values),
                f"{name}: fx",
                coefficients[: 4 if fisheye else None],
                f"{name}: coeffs",
                fisheye,
            )
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
    poses: dict[tuple[int, int], list[str]] = {}
    below: Any = None
    for line in source.texts[0].splitlines():
        if found := _INTRINSIC.match(line):
            below, side = {}, _side(found[1])
            if side is not None:
                cameras.setdefault(found[2], {})[side] = below
        elif found := _EXTRINSIC.match(line):
            below, sides = [], (_side(found[1]), _side(found[2]))
            if None not in sides:
                poses[sides] = below  # type: ignore[index]
        elif isinstance(below, list) and len(below) < 12:
            below += line.rpartition(":")[2].split()
        elif isinstance(below, dict) and ":" in line:
            name, _, value = line.partition(":")
            name = {"distortion": "model"}.get(name.strip().lower(), name.strip().lower())
            below[name] = value.strip()
    pose = poses.get((0, 1)) or poses.get((1, 0))
    both = [sides for sides in cameras.values() if len(sides) == 2]
    if not (pose and both):
        raise InputError(
            f"lists {'no' if not both else 'the'} intrinsics and {'no' if not pose else 'the'} extrinsics of "
            "both infrared cameras of a RealSense",
            "rs-enumerate-devices -c lists both",
        )
    values = numbers(pose, "Extrinsic", 12)
    transform = transform_of(values[:9].reshape(3, 3), values[9:])
    if (0, 1) not in poses:
        transform = inverse(transform)
    pairs = [
        _realsense_pair(
            [("Infrared 1", sides[0]), ("Infrared 2", sides[1])], transform[:3, :3], transform[:3, 3]
        )
        for sides in both
    ]
    pairs.sort(key=lambda pair: pair.size or (0, 0), reverse=True)
    return Described("RealSense", pairs)


def has_oak(source: Source) -> bool:
    return "cameraData" in source.tree


def read_oak(source: Source) -> Described:
    """Read the calibration of an OAK camera as DepthAI's eepromToJsonFile writes it, lengths in centimetres.

    Each camera's extrinsics lead from its coordinates to those of the socket toCameraSocket.
    """
    data = source.tree["cameraData"]
    entries = data.items() if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping | list) or not all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[1], Mapping) for each in entries
    ):
        raise InputError("cameraData is not a list of sockets and their cameras")
    sockets: dict[int, Tree] = {whole_number(socket, "cameraData"): each for socket, each in entries}
    stereo = source.tree.get("stereoRectificationData")
    pair = source.pair
    if pair is None:
        names = ("leftCameraSocket", "rightCameraSocket")
        stated = [number(stereo.get(key), key) if isinstance(stereo, Mapping) else -1 for key in names]
        pair = (int(stated[0]), int(stated[1])) if min(stated) >= 0 else (1, 2)
    cameras, poses, sizes, roots = [], [], [], []
    for socket in pair:
        if socket not in sockets:
            raise InputError(
                f"has no camera in socket {socket}",
                f"`cameras` chooses among {', '.join(map(str, sorted(sockets)))}",
            )
        each, key = sockets[socket], f"socket {socket}"
        fisheye = number(each.get("cameraType", 0), f"{key}: cameraType") == 1
        coefficients = numbers(each.get("distortionCoeff") or [], f"{key}: distortionCoeff")
        camera = matrix(each.get("intrinsicMatrix"), f"{key}: intrinsicMatrix", 3, 3)
        cameras.append(
            camera_of(
                camera,
                f"{key}: intrinsicMatrix",
                coefficients[: 4 if fisheye else None],
                f"{key}: distortionCoeff",
                fisheye,
            )
        )
        sizes.append(size_of([each.get("width"), each.get("height")], f"{key}: width x height"))
        root, pose = _oak_pose(sockets, socket)
        roots.append(root)
        poses.append(pose)
    if roots[0] != roots[1]:
        raise InputError(f"extrinsics of sockets {pair[0]} and {pair[1]} do not lead to a common camera")
    notes = [f"left camera in socket {pair[0]}, right one in socket {pair[1]}"]
    return Described("OAK (DepthAI)", [pair_from_poses(cameras, poses, sizes)], metres=1e-2, notes=notes)


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
