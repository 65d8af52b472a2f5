"""Factory calibrations of stereo cameras: ZED's SN….conf and RealSense's JSON.

Both hold one calibration for each resolution, since smaller pictures may be cut from the sensor's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from pamcli.calibration.parsing import Tree, number, numbers, size_of
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.rig import rotation_of
from pamcli.calibration.stored import StoredCalibration, camera_of, named_camera, pinhole_matrix, rig_of
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
"""Pictures of the resolutions that sections are named after, the sensor's own first."""


def zed(text: str, exchanged: bool) -> StoredCalibration:
    """Sections LEFT_CAM_HD, RIGHT_CAM_HD and so on with fx fy cx cy and the distortion, and STEREO.

    The distortion may stand apart, in LEFT_DISTO and RIGHT_DISTO; there, without p1 and p2 it is a fisheye's.
    Of STEREO: Baseline, TY, TZ in millimetres (metres in some), and RX, CV, RZ, the rotation vector.
    """
    values: dict[str, str] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").upper()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            values[f"{section}.{name.strip().lower()}"] = value.strip()
    rigs = []
    for mode, size in ZED_SIZES.items():
        if f"LEFT_CAM_{mode}.fx" not in values or f"RIGHT_CAM_{mode}.fx" not in values:
            continue
        cameras = []
        for side in ("LEFT", "RIGHT"):
            lens = f"{side}_DISTO." if f"{side}_DISTO.k1" in values else f"{side}_CAM_{mode}."
            fisheye = f"{lens}p1" not in values and f"{lens}k4" in values
            keys = [f"k{i}" for i in range(1, 5)] if fisheye else ["k1", "k2", "p1", "p2", "k3"]
            if not fisheye and f"{lens}k6" in values:
                keys += ["k4", "k5", "k6"]
            found = np.array([number(values.get(lens + key, "0"), lens + key) for key in keys])
            camera = named_camera(values, f"{side}_CAM_{mode}.", ())
            cameras.append(camera_of(camera.matrix, f"{lens}fx", found, f"{lens}k1", fisheye))

        def stereo(name: str, mode: str = mode) -> float:
            key = f"STEREO.{name}_{mode.lower()}"
            return number(values.get(key, values.get(f"STEREO.{name}", "0")), key)

        baseline = number(values.get("STEREO.baseline"), "STEREO.Baseline")
        unit = 1e-3 if abs(baseline) > 1 else 1.0
        rotation = rotation_of(np.array([stereo("rx"), stereo("cv"), stereo("rz")]))
        translation = unit * np.array([-baseline, stereo("ty"), stereo("tz")])
        rigs.append(rig_of(cameras, rotation, translation, size, exchanged))
    if not rigs:
        raise InputError(f"has no sections LEFT_CAM_ and RIGHT_CAM_ of {', '.join(ZED_SIZES)}")
    return StoredCalibration("ZED", replace(rigs[0], others=tuple(rigs[1:])))


def realsense(tree: Tree, exchanged: bool) -> StoredCalibration:
    """The calibration that RealSense Viewer saves, or both cameras' intrinsics and extrinsics as its library
    has them (ppx ppy fx fy coeffs; rotation column by column, translation in metres)."""
    if "rectified.0.fx" in tree:
        return _viewer(tree, exchanged)
    cameras = {name: each for name, each in _named(tree) if {"fx", "fy", "ppx", "ppy"} <= each.keys()}
    sides = [[name for name in cameras if re.search(pattern, name.lower())] for pattern in _SIDES]
    poses = [each for name, each in _named(tree) if {"rotation", "translation"} <= each.keys()]
    if any(len(side) != 1 for side in sides) or len(poses) != 1:
        raise InputError(
            f"holds the intrinsics of {len(cameras)} cameras and {len(poses)} extrinsics of a RealSense",
            "it takes those of infrared1 and infrared2, and of the way from the one to the other",
        )
    found = [(name, cameras[name]) for (name,) in sides]
    made = []
    for name, each in found:
        values = [number(each[key], f"{name}: {key}") for key in ("fx", "fy", "ppx", "ppy")]
        coefficients = numbers(each.get("coeffs") or [], f"{name}: coeffs")
        model = str(each.get("model", "")).lower()
        fisheye = "kannala" in model
        if coefficients.any() and not fisheye and ("inverse" in model or "ftheta" in model):
            raise InputError(f"{name}: model {model[:40]} is none that OpenCV has", "calibrate the cameras")
        distortion = coefficients[:4] if fisheye else coefficients
        made.append(camera_of(pinhole_matrix(*values), f"{name}: fx", distortion, f"{name}: coeffs", fisheye))
    sizes = [size_of([each.get("width"), each.get("height")], f"{name}: width") for name, each in found]
    if sizes[0] != sizes[1]:
        raise InputError("the two cameras have pictures of different sizes")
    rotation = numbers(poses[0]["rotation"], "rotation", 9).reshape(3, 3).T
    translation = numbers(poses[0]["translation"], "translation", 3)
    rig = rig_of(made, rotation, translation, sizes[0], exchanged)
    return StoredCalibration("RealSense", rig, rig.rectified())


_SIDES = (r"left|infra(red)?[ _]?1|ir[ _]?1", r"right|infra(red)?[ _]?2|ir[ _]?2")


def _viewer(tree: Tree, exchanged: bool) -> StoredCalibration:
    baseline = abs(number(tree.get("baseline"), "baseline")) / 1000
    found = []
    for index in range(32):
        prefix = f"rectified.{index}."
        sides = [tree.get(prefix + key, 0) for key in ("width", "height")]
        if any(number(side, prefix + "width") == 0 for side in sides):
            continue  # a resolution that this camera does not have
        fx, fy, x, y = (number(tree.get(prefix + key), prefix + key) for key in ("fx", "fy", "ppx", "ppy"))
        size = size_of(sides, prefix + "width")
        found.append(Calibration(fx, baseline, 0.0, (x, y), size, None if fx == fy else fy))
    if not found:
        raise InputError("rectified.0 and the others have no size")
    if exchanged:
        raise InputError("is of a camera whose left and right are fixed", "leave out `cameras`")
    found.sort(key=lambda each: each.size or (0, 0), reverse=True)
    notes = ["of the infrared pictures, which come from the camera rectified"]
    return StoredCalibration("RealSense", None, replace(found[0], others=tuple(found[1:])), notes)


def _named(tree: Tree, name: str = "", depth: int = 4) -> Iterator[tuple[str, Tree]]:
    """Find all that has names inside, with the names that lead to it."""
    yield name, tree
    for key, value in tree.items() if depth else ():
        if isinstance(value, Mapping):
            yield from _named(value, f"{name} {key}".strip(), depth - 1)


def is_realsense(tree: Tree) -> bool:
    """Whether a file is of a RealSense, be it one without a calibration. Raises InputError: settings."""
    if "rectified.0.fx" in tree:
        return True
    settings = tree.get("parameters")
    names = [*tree, *(settings if isinstance(settings, Mapping) else ())]
    if any(name.startswith("param-") for name in names):
        raise InputError(
            "holds settings of a RealSense (a preset), and no calibration",
            "RealSense Viewer saves one under More, Calibration Data, Save As",
        )
    return any({"ppx", "ppy"} <= each.keys() for _, each in _named(tree))
