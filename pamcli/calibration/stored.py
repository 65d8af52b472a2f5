"""What the readers of calibration files make: a rig, the calibration of rectified pictures, or both."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from pamcli.calibration.parsing import Tree, number, numbers
from pamcli.calibration.rectified import LONGEST_BASELINE, Calibration, Floats
from pamcli.calibration.rig import Camera, Rig, StatedRectification, check_rotation
from pamcli.errors import InputError


@dataclass(frozen=True)
class StoredCalibration:
    """What a file says about a pair of cameras."""

    kind: str
    """What the file is, for people: whose format, which part of it."""
    rig: Rig | None = None
    """The cameras as they stand; None where the file describes rectified pictures alone."""
    rectified: Calibration | None = None
    """Geometry of rectified pictures; None where the file describes none."""
    notes: Sequence[str] = ()
    """What was taken for granted."""
    unit_note: str | None = None
    """What was taken for granted of the unit of lengths; None: the file, or its kind, states it."""

    def changed(self, baseline: float | None, fisheye: bool) -> Self:
        """Take another distance of the cameras, metres; coefficients for a fisheye's. Raises InputError."""
        rig, rectified = self.rig, self.rectified
        if rig is not None:
            rig = rig if baseline is None else rig.with_baseline(baseline)
            rig = rig.as_fisheye() if fisheye else rig
        if rectified is not None and baseline is not None:
            rectified = rectified.replaced(baseline=baseline)
        return replace(self, rig=rig, rectified=rectified)

    def warnings(self) -> list[str]:
        """What looks wrong, a line each."""
        if self.rectified is not None:
            return self.rectified.warnings()
        if self.rig is None or self.rig.baseline <= LONGEST_BASELINE:
            return []
        return [f"a baseline of {self.rig.baseline:g} m: perhaps millimetres that were taken for metres"]

    def facts(self) -> dict[str, Any]:
        """State what was understood, by names that end in the units: of the rig, of rectified pictures."""
        facts: dict[str, Any] = {"kind": self.kind}
        if self.rig is not None:
            facts["rig"] = _rig_facts(self.rig) | _other_sizes(self.rig)
        if self.rectified is not None:
            facts["rectified"] = _rectified_facts(self.rectified) | _other_sizes(self.rectified)
        return facts

    def lines(self) -> list[str]:
        """State the same for people."""
        facts, lines = self.facts(), [f"{self.kind} calibration"]
        for title, part in (("cameras as they stand", "rig"), ("rectified pictures", "rectified")):
            if part in facts:
                lines.append(f"{title}:")
                lines += [f"  {key.replace('_', ' '):28}{_text(value)}" for key, value in facts[part].items()]
        return lines


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, list | tuple):
        if any(isinstance(each, tuple) for each in value):
            return "; ".join(map(_text, value))
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else f"{round(value, 6):.10g}"


def _rectified_facts(calibration: Calibration) -> dict[str, Any]:
    return {
        "size_px": calibration.size,
        "focal_length_px": calibration.focal_length,
        "principal_point_px": calibration.principal,
        "doffs_px": calibration.offset,
        "baseline_m": calibration.baseline,
        **({"field_of_view_degrees": calibration.field_of_view} if calibration.size else {}),
    }


def _rig_facts(rig: Rig) -> dict[str, Any]:
    facts: dict[str, Any] = {"size_px": rig.size, "model": "fisheye" if rig.left.fisheye else "pinhole"}
    for name, camera in (("left", rig.left), ("right", rig.right)):
        facts[f"{name}_focal_px"] = [float(camera.matrix[i, i]) for i in (0, 1)]
        facts[f"{name}_principal_px"] = [float(camera.matrix[i, 2]) for i in (0, 1)]
        facts[f"{name}_distortion"] = camera.distortion.tolist()
    return facts | {
        "baseline_m": rig.baseline,
        "right_camera_at_m": rig.center.tolist(),
        "right_camera_turned_degrees": rig.angle,
        **({"field_of_view_degrees": known(rig.left.field_of_view(rig.size))} if rig.size else {}),
    }


def known(angles: Iterable[float]) -> list[float | None]:
    """The numbers, None for NaN, which JSON has not."""
    return [None if math.isnan(angle) else angle for angle in angles]


def _other_sizes(found: Rig | Calibration) -> dict[str, Any]:
    return {"also_of_size_px": [each.size for each in found.others]} if found.others else {}


def camera_of(
    intrinsics: Floats, key: str, distortion: Floats, distortion_key: str, fisheye: bool = False
) -> Camera:
    """A camera, of whose numbers InputError names the key."""
    try:
        return Camera(intrinsics, distortion, fisheye)
    except InputError as error:
        wrong = distortion_key if "coefficients" in error.message else key
        raise InputError(f"{wrong} {error.message}") from None


def pinhole_matrix(fx: float, fy: float, x: float, y: float) -> Floats:
    """(3, 3) of focal lengths and principal point, pixels."""
    return np.array([[fx, 0, x], [0, fy, y], [0, 0, 1.0]])


def named_camera(tree: Tree, prefix: str, coefficients: Sequence[str], fisheye: bool = False) -> Camera:
    """Read keys such as Camera1.fx, fy, cx, cy and the coefficients, of which missing ones are 0."""
    fx, fy, x, y = (number(tree.get(prefix + key), prefix + key) for key in ("fx", "fy", "cx", "cy"))
    found = [number(tree.get(prefix + key, 0), prefix + key) for key in coefficients]
    return camera_of(pinhole_matrix(fx, fy, x, y), prefix + "fx", np.array(found), prefix + "k1", fisheye)


def rig_of(
    cameras: Sequence[Camera],
    rotation: Floats,
    translation: Floats,
    size: tuple[int, int] | None,
    exchanged: bool = False,
    stated: StatedRectification | None = None,
) -> Rig:
    """The rig of two cameras, a point x of the first one's coordinates being rotation @ x + translation in
    the second one's; exchanged: the second one is the left one. Raises InputError."""
    first, second = cameras
    if exchanged:
        stated = stated and stated.exchanged()
        first, second, rotation, translation = second, first, rotation.T, -rotation.T @ translation
    return Rig(first, second, np.ascontiguousarray(rotation), translation, size, stated=stated)


def rig_of_poses(
    cameras: Sequence[Camera], poses: Sequence[Floats], size: tuple[int, int] | None, exchanged: bool = False
) -> Rig:
    """Build a rig as `rig_of` does, from the pose of each camera: (4, 4), its coordinates to common ones."""
    from_first = inverse(poses[1]) @ poses[0]
    return rig_of(cameras, from_first[:3, :3], from_first[:3, 3], size, exchanged)


def projected(
    p1: Floats, p2: Floats, keys: tuple[str, str], size: tuple[int, int] | None, exchanged: bool = False
) -> Calibration:
    """Read the projections of rectified cameras, K [I | t] each, of which only the difference of t counts."""
    if exchanged:
        p1, p2, keys = p2, p1, keys[::-1]
    fx, fy, f2 = float(p1[0, 0]), float(p1[1, 1]), float(p2[0, 0])
    if not (fx > 0 and fy > 0 and f2 > 0):
        raise InputError(f"{keys[0]} or {keys[1]} is singular: its focal length is not above 0")
    if abs(f2 - fx) > 1e-3 * fx:
        raise InputError(
            f"{keys[0]} and {keys[1]} have focal lengths of {fx:g} and {f2:g} px, so are not rectified"
        )
    across, down = (p1[:2, 3] - p2[:2, 3]) / (fx, fy)
    if abs(down) > abs(across):
        raise InputError(f"the cameras stand above each other ({keys[1]}), not beside each other")
    return Calibration.of(p1, p2, size)


def one_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the size of both cameras' pictures. Raises InputError: they differ."""
    if sizes[0] != sizes[1]:
        raise InputError("the two cameras have pictures of different sizes")
    return sizes[0]


def part(tree: Tree, key: str) -> Tree:
    """What stands below a key. Raises InputError: nothing, or no names."""
    found = tree.get(key)
    if not isinstance(found, Mapping):
        raise InputError(f"{key} is missing")
    return found


def is_fisheye(model: Any, key: str) -> bool:
    """Whether a model of distortion of this name is that of a fisheye. Raises InputError: not known."""
    text = str(model).lower()
    if text in ("fisheye", "equidistant", "1", "true"):
        return True
    if text in ("", "0", "false", "none", "plumb_bob", "radtan", "pinhole", "rational_polynomial"):
        return False
    raise InputError(f"{key} {text[:30]!r} is not known")


def rigid(value: Any, key: str) -> Floats:
    """(4, 4), of a matrix (4, 4) or its first three rows. Raises InputError: no rotation in it."""
    found: Floats = np.eye(4)
    found[:3] = numbers(value, key, 12, 16)[:12].reshape(3, 4)
    check_rotation(found[:3, :3], f"{key} holds no rotation")
    return found


def inverse(pose: Floats) -> Floats:
    """(4, 4): the way back."""
    found: Floats = np.eye(4)
    found[:3, :3] = pose[:3, :3].T
    found[:3, 3] = -pose[:3, :3].T @ pose[:3, 3]
    return found


def turned(quaternion: Any, translation: Any, key: str) -> Floats:
    """(4, 4) from w x y z of a rotation, and x y z. Raises InputError: no rotation."""
    w, x, y, z = numbers(quaternion, key, 4)
    length = w * w + x * x + y * y + z * z
    if not length > 0:
        raise InputError(f"{key} is zero, and no rotation")
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    found: Floats = np.eye(4)
    found[:3, :3] += 2 / length * (w * cross + cross @ cross)
    found[:3, 3] = numbers(translation, key, 3)
    return found


def metres(unit: Any, key: str) -> float:
    """Metres in a unit of length: "mm", "millimeters" ... Raises InputError: not known."""
    text = str(unit).strip().lower().replace("re", "er").rstrip("s")
    known = {"mm": 1e-3, "millimeter": 1e-3, "cm": 1e-2, "centimeter": 1e-2, "m": 1.0, "meter": 1.0}
    known |= {"in": 0.0254, "inch": 0.0254, "inche": 0.0254}
    if text not in known:
        raise InputError(f"{key} {str(unit)[:30]!r} is not known", "mm, cm, m or in")
    return known[text]
