"""What a reader finds in calibration files, and how it becomes a rig and its rectified geometry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pamcli.calibration.camera import Camera, StatedRectification, check_rotation
from pamcli.calibration.parsing import Tree, matrix, number, numbers
from pamcli.calibration.rectified import Calibration, Floats
from pamcli.calibration.rig import Rig
from pamcli.calibration.stored import StoredCalibration
from pamcli.errors import InputError, UsageError

Size = tuple[int, int]
Extrinsics = Literal["transform", "pose", "rows", "position"]
EXTRINSICS: Mapping[str, str] = {
    "transform": "x2 = R x1 + T (OpenCV)",
    "pose": "x1 = R x2 + T (pose of the right camera)",
    "rows": "x2 = x1 R + T (row vectors, MATLAB)",
    "position": "x2 = R (x1 - T) (T is where the right camera is)",
}
"""How R and T lead from a point x1 of the left camera to x2 of the right one."""
OTHER_UNITS = "`unit` mm, `unit` cm, or `unit` 25mm for board squares of 25 mm"
UNUSUAL = 1.0  # metres of a baseline from which on a unit that is not stated is doubted
_FISHEYE = {"fisheye", "equidistant", "kb4", "kannalabrandt4", "kannalabrandt8", "kannalabrandt", "equi"}
_PINHOLE = {"", "none", "plumbbob", "radtan", "radialtangential", "pinhole", "perspective", "browncony"}
_PINHOLE |= {"rationalpolynomial", "radtan8", "pinholeradtan8", "pinholeradtan", "brownconrady", "rational"}


@dataclass(frozen=True, eq=False)
class CameraPair:
    """Two cameras in the order of their file: x2 = rotation @ x1 + translation."""

    cameras: Sequence[Camera]
    rotation: Floats
    translation: Floats
    """(3,), in the file's unit of length."""
    size: Size | None = None
    other_size: Size | None = None
    """(width, height) of the second camera's images; None = that of the first one's."""
    stated: StatedRectification | None = None

    def rig(self, choice: Choice, scale: float) -> Rig:
        """Build the rig as the choice says. scale: metres per unit. Raises InputError."""
        (first, second), turn, move = self.cameras, self.rotation, scale * self.translation
        size, other, stated = self.size, self.other_size, self.stated and self.stated.in_metres(scale)
        if choice.extrinsics != "transform":
            stated = None
        if choice.extrinsics == "pose":
            turn, move = turn.T, -turn.T @ move
        elif choice.extrinsics == "rows":
            turn = turn.T
        elif choice.extrinsics == "position":
            move = -turn @ move
        if choice.exchanged:
            stated = stated and stated.exchanged()
            first, second, turn, move = second, first, turn.T, -turn.T @ move
            size, other = (other, size) if other and size else (size, other)
        found = Rig(first, second, np.ascontiguousarray(turn), move, size, stated=stated, right_size=other)
        return found.as_fisheye() if choice.fisheye else found


@dataclass(frozen=True, eq=False)
class Projections:
    """Cameras of rectified images: K [I | t] each, (3, 4), t in the file's unit of length."""

    p1: Floats
    p2: Floats
    size: Size | None = None
    keys: tuple[str, str] = ("P1", "P2")
    ndisp: float | None = None
    stated: tuple[float, float] | None = None
    """Baseline, in the file's unit, and offset as the file states them, to the last digit."""

    def calibration(self, exchanged: bool, scale: float) -> Calibration:
        """Return the geometry of the rectified images. Raises InputError."""
        (p1, p2), keys = (each * [1, 1, 1, scale] for each in (self.p1, self.p2)), self.keys
        if exchanged:
            p1, p2, keys = p2, p1, keys[::-1]
        fx, fy, f2 = float(p1[0, 0]), float(p1[1, 1]), float(p2[0, 0])
        if not (fx > 0 and fy > 0 and f2 > 0):
            raise InputError(f"{keys[0]} or {keys[1]} is singular: its focal length is not above 0")
        if abs(f2 - fx) > 1e-3 * fx:
            said = f"{keys[0]} and {keys[1]} have focal lengths of {fx:g} and {f2:g} px, so are not rectified"
            raise InputError(said)
        across, down = (p1[:2, 3] - p2[:2, 3]) / (fx, fy)
        if abs(down) > abs(across):
            raise InputError(f"the cameras stand above each other ({keys[1]}), not beside each other")
        found = replace(Calibration.of(p1, p2, self.size), ndisp=self.ndisp)
        if self.stated is None:
            return found
        sign = -1 if exchanged else 1
        return replace(found, baseline=sign * scale * self.stated[0], offset=sign * self.stated[1])


@dataclass(frozen=True)
class Choice:
    """What a user says about a calibration beyond its files."""

    exchanged: bool = False
    """The second camera is the left one."""
    extrinsics: Extrinsics = "transform"
    fisheye: bool = False
    """The coefficients are those of OpenCV's fisheye model."""
    unit: float | None = None
    """Metres per unit of length, where the file does not state it."""
    baseline: float | None = None
    """Metres, instead of the file's."""


@dataclass(frozen=True, eq=False)
class Described:
    """Two cameras as their files describe them, before a user's choice."""

    kind: str
    """Format, for people."""
    pairs: Sequence[CameraPair] = ()
    """The cameras as they stand, for images of each size."""
    projections: Sequence[Projections] = ()
    """The cameras of rectified images, for each size; empty where the file has none."""
    metres: float | None = 1.0
    """Metres per unit of length; None = not stated."""
    notes: Sequence[str] = ()
    exchangeable: bool = True

    @property
    def differs(self) -> bool:
        """Whether the images of the two cameras differ in size."""
        return any(pair.other_size for pair in self.pairs)

    def finished(self, choice: Choice = Choice()) -> StoredCalibration:
        """Apply a user's choice. Raises InputError for cameras that are no stereo pair; UsageError."""
        if choice.unit is not None and self.metres is not None:
            raise UsageError(
                "the calibration states its unit of length", "leave out `unit`, or give `baseline`"
            )
        if choice.exchanged and not self.exchangeable:
            raise InputError("is of a camera whose left and right are fixed", "leave out `cameras`")
        scale = self.metres or choice.unit or 1.0
        rig = rectified = None
        if self.pairs:
            rigs = [pair.rig(choice, scale) for pair in self.pairs]
            rig = replace(rigs[0], others=tuple(rigs[1:]))
        if self.projections and choice.extrinsics == "transform":
            all_sizes = [each.calibration(choice.exchanged, scale) for each in self.projections]
            rectified = replace(all_sizes[0], others=tuple(all_sizes[1:]))
        elif rig is not None:
            rectified = rig.rectified()
        if choice.baseline is not None:
            rig = rig and rig.with_baseline(choice.baseline)
            rectified = rectified and rectified.replaced(baseline=choice.baseline)
        unit = doubt = None
        if self.metres is None and choice.unit is None and choice.baseline is None:
            unit = f"lengths are taken for metres, which {self.kind} does not state"
            doubt = _doubt_unit((rig or rectified).baseline if rig or rectified else 0.0)  # type: ignore[union-attr]
        return StoredCalibration(self.kind, rig, rectified, self.notes, unit, doubt)


def _doubt_unit(length: float) -> str | None:
    """Name the likely units of a baseline that is implausible in metres."""
    if length < UNUSUAL:
        return None
    likely = f"mm ({length:g} mm)"
    if length <= 300:
        likely = f"{likely} or cm ({length:g} cm)"
    if length <= 30:
        likely = f"{likely.replace(' or', ',')} or board squares"
    unlikely = f"a baseline of {length:g} m is unlikely, and the file does not state its unit of length"
    return f"{unlikely}: it is probably {likely}; state it with {OTHER_UNITS}"


def camera_of(
    intrinsics: Floats, key: str, distortion: Floats, distortion_key: str, fisheye: bool = False
) -> Camera:
    """Build a camera, of whose numbers InputError names the key."""
    try:
        return Camera(intrinsics, distortion, fisheye)
    except InputError as error:
        wrong = distortion_key if "coefficients" in error.message else key
        raise InputError(f"{wrong} {error.message}", error.hint) from None


def pinhole_matrix(fx: float, fy: float, x: float, y: float) -> Floats:
    """Return (3, 3) of focal lengths and principal point, pixels."""
    return np.array([[fx, 0, x], [0, fy, y], [0, 0, 1.0]])


def named_camera(
    tree: Tree, prefix: str, coefficients: str, fisheye: bool = False, names: str = "fx fy cx cy"
) -> Camera:
    """Read keys such as Camera1.fx, fy, cx, cy and the coefficients, of which missing ones are 0."""
    fx, fy, x, y = (number(tree.get(prefix + key), prefix + key) for key in names.split())
    found = [number(tree.get(prefix + key, 0), prefix + key) for key in coefficients.split()]
    return camera_of(pinhole_matrix(fx, fy, x, y), prefix + "fx", np.array(found), prefix + "k1", fisheye)


def matrix_camera(tree: Tree, key: str, distortion_key: str, fisheye: bool = False) -> Camera:
    """Read a matrix (3, 3) and the coefficients, which may be missing."""
    coefficients = tree.get(distortion_key)
    found = numbers([] if coefficients is None else coefficients, distortion_key)
    return camera_of(matrix(tree.get(key), key, 3, 3), key, found, distortion_key, fisheye)


def rectified_images(
    kind: str,
    focal: tuple[float, float],
    principal: tuple[float, float],
    baseline: float,
    *,
    offset: float = 0.0,
    size: Size | None = None,
    ndisp: float | None = None,
    metres: float | None = 1.0,
    notes: Sequence[str] = (),
) -> Described:
    """Describe rectified images. focal: (fx, fy); offset: right principal point minus the left one."""
    p1 = np.column_stack([pinhole_matrix(*focal, *principal), np.zeros(3)])
    p2 = p1.copy()
    p2[0, 2:] = principal[0] + offset, -focal[0] * baseline
    found = Projections(p1, p2, size, ("the left camera", "the right camera"), ndisp, (baseline, offset))
    return Described(kind, projections=(found,), metres=metres, notes=notes)


Placed = tuple[Camera, Floats, Size | None]
"""A camera, its pose (4, 4), from its coordinates to common ones, and the size of its images."""


def placed_pair(placed: Iterable[Placed]) -> CameraPair:
    """Build a pair from two cameras and their poses."""
    cameras, poses, sizes = zip(*placed, strict=True)
    from_first = inverse(poses[1]) @ poses[0]
    return CameraPair(cameras, from_first[:3, :3], from_first[:3, 3], *both_sizes(sizes))


def both_sizes(sizes: Sequence[Size | None]) -> tuple[Size | None, Size | None]:
    """Return the size of the first camera's images, and that of the second one's where it differs."""
    first, second = sizes
    return first, second if first and second and first != second else None


def part(tree: Tree, key: str) -> Tree:
    """Return what stands below a key. Raises InputError: nothing, or no names."""
    found = tree.get(key)
    if not isinstance(found, Mapping):
        raise InputError(f"{key} is missing")
    return found


def is_fisheye(model: Any, key: str) -> bool:
    """Return whether a lens model is OpenCV's fisheye, by its name. Raises InputError: not in OpenCV."""
    text = "".join(letter for letter in str(model).lower() if letter.isalnum())
    if text in _FISHEYE or text in ("1", "true"):
        return True
    if text in _PINHOLE or text in ("0", "false"):
        return False
    raise InputError(
        f"{key} {str(model)[:30]!r} is not a lens model of OpenCV",
        "calibrate with a pinhole model (radial and tangential distortion) or an equidistant fisheye (kb4)",
    )


def rigid(value: Any, key: str) -> Floats:
    """Return (4, 4), of a matrix (4, 4) or its first three rows. Raises InputError: no rotation in it."""
    found: Floats = np.eye(4)
    found[:3] = numbers(value, key, 12, 16)[:12].reshape(3, 4)
    check_rotation(found[:3, :3], f"{key} holds no rotation")
    return found


def transform_of(rotation: Floats, translation: Floats) -> Floats:
    """Return (4, 4) of a rotation (3, 3) and a translation (3,)."""
    found: Floats = np.eye(4)
    found[:3, :3], found[:3, 3] = rotation, translation
    return found


def inverse(pose: Floats) -> Floats:
    """Return (4, 4), the way back."""
    return transform_of(pose[:3, :3].T, -pose[:3, :3].T @ pose[:3, 3])


def turned(quaternion: Any, translation: Any, key: str) -> Floats:
    """Return (4, 4) from w x y z of a rotation, and x y z. Raises InputError: no rotation."""
    w, x, y, z = numbers(quaternion, key, 4)
    length = w * w + x * x + y * y + z * z
    if not (length > 0 and np.isfinite(length)):
        raise InputError(f"{key} is zero, and no rotation")
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return transform_of(np.eye(3) + 2 / length * (w * cross + cross @ cross), numbers(translation, key, 3))
