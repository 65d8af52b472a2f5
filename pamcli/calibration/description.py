"""Cameras as calibration files describe them, and the calibration that follows from an interpretation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pamcli.calibration.camera import Camera, OtherCamera, Projections, invert_transform, make_transform
from pamcli.calibration.geometry import Calibration, Floats, Size, check_baseline
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError, UsageError
from pamcli.files.units import parse_length

Extrinsics = Literal["transform", "pose", "rows", "position"]
# Meanings of R and T, for a point x1 in left and x2 in right camera coordinates.
EXTRINSICS: Mapping[str, str] = {
    "transform": "x2 = R x1 + T (OpenCV)",
    "pose": "x1 = R x2 + T (pose of the right camera)",
    "rows": "x2 = x1 R + T (row vectors, MATLAB)",
    "position": "x2 = R (x1 - T) (position of the right camera)",
}
LONGEST_METRES = 1.0  # a longer baseline without a stated unit is probably not in metres


@dataclass(frozen=True)
class Interpretation:
    """The options of a user for an ambiguous calibration."""

    swapped: bool = False  # the second camera is the left one
    extrinsics: Extrinsics = "transform"
    fisheye: bool = False  # the coefficients are those of OpenCV's fisheye model
    unit: Any = None  # length of one unit of the file ("mm" or metres), if the file does not state it
    baseline: Any = None  # ("120mm" or metres) instead of the file's

    def __post_init__(self) -> None:
        if self.extrinsics not in EXTRINSICS:
            message = f"`extrinsics` must be one of {', '.join(EXTRINSICS)}, got {str(self.extrinsics)[:40]}"
            raise UsageError(message)
        for name in ("unit", "baseline"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, parse_length(value, f"`{name}`"))


@dataclass(frozen=True, eq=False)
class CameraPair:
    """Two cameras in the order of their file, with images of one size."""

    cameras: Sequence[Camera]
    transform: Floats  # (4, 4) from first to second camera coordinates, in the file's unit of length
    sizes: Sequence[Size | None] = (None, None)

    def build_rig(self, interpretation: Interpretation, scale: float) -> Rig:
        """Build the rig, given the metres per unit of length. Raises InputError."""
        first, second = self.cameras
        if interpretation.fisheye:
            first, second = (replace(camera, fisheye=True) for camera in (first, second))
        size, other = self.sizes
        rotation, translation = self.transform[:3, :3], scale * self.transform[:3, 3]
        if interpretation.extrinsics == "pose":
            rotation, translation = rotation.T, -rotation.T @ translation
        elif interpretation.extrinsics == "rows":
            rotation = rotation.T
        elif interpretation.extrinsics == "position":
            translation = -rotation @ translation
        if interpretation.swapped:
            first, second = second, first
            rotation, translation = rotation.T, -rotation.T @ translation
            size, other = other or size, size
        right_size = other if size and other != size else None
        rotation = np.ascontiguousarray(rotation)
        return Rig(first, second, rotation, translation, size, right_size=right_size)


def pair_cameras(placed: Iterable[tuple[Camera, Floats, Size | None]]) -> CameraPair:
    """Build a pair from two cameras, their poses (4, 4) in common coordinates, and their image sizes."""
    cameras, poses, sizes = zip(*placed, strict=True)
    return CameraPair(cameras, invert_transform(poses[1]) @ poses[0], sizes)


@dataclass(frozen=True, eq=False)
class CameraDescription:
    """Two cameras as their files describe them, before a user's interpretation."""

    kind: str  # format, for people
    pairs: Sequence[CameraPair] = ()  # unrectified cameras, for each image size
    projections: Sequence[Projections] = ()  # cameras of rectified images, for each image size
    metres: float | None = 1.0  # metres per unit of length; None: not stated
    notes: Sequence[str] = ()
    swappable: bool = True
    numbers: tuple[int, int] | None = None  # of the two cameras if the file may hold more of them

    @property
    def has_two_sizes(self) -> bool:
        return any(None not in pair.sizes and pair.sizes[0] != pair.sizes[1] for pair in self.pairs)

    def describe_second(self, swapped: bool, metres: float) -> list[OtherCamera]:
        """Return the second camera as seen from the first one, for each image size; rectified if described.

        metres: length of one unit if the files do not state it. Raises InputError.
        """
        first, second = (1, 0) if swapped else (0, 1)
        found = []
        for pair in () if self.projections else self.pairs:
            transform = invert_transform(pair.transform) if swapped else pair.transform
            found.append(OtherCamera(pair.cameras[second], transform, pair.sizes[second], pair.sizes[first]))
        for each in self.projections:
            both = each.p1, each.p2
            places = [np.linalg.solve(p[:, :3], p[:, 3]) for p in both]
            transform = make_transform(np.eye(3), places[second] - places[first])
            camera = Camera(both[second][:, :3], np.zeros(0))
            found.append(OtherCamera(camera, transform, each.size, each.size, is_rectified=True))
        if not all(each.transform[:3, 3].any() for each in found):
            message = "states no distance between the two cameras"
            raise InputError(message, "add R and T, or P2 with the baseline")
        return [each.scale_lengths(self.metres or metres) for each in found]

    def resolve(self, interpretation: Interpretation = Interpretation()) -> StoredCalibration:
        """Return the calibration with a user's interpretation. Raises InputError, UsageError."""
        if interpretation.unit is not None and self.metres is not None:
            message = "cannot use `unit`: the calibration states its unit of length"
            raise UsageError(message, "omit `unit`, or use `baseline`")
        if interpretation.swapped and not self.swappable:
            raise InputError("cannot swap the cameras of this device", "omit `cameras`")
        scale = self.metres or interpretation.unit or 1.0
        rig = rectified = None
        given = self.projections if interpretation.extrinsics == "transform" else ()
        projections = [each.interpret(interpretation.swapped, scale) for each in given]
        if self.pairs:
            rigs = [pair.build_rig(interpretation, scale) for pair in self.pairs]
            stated = projections[0] if projections and projections[0].rotations else None
            rig = replace(rigs[0], others=tuple(rigs[1:]), stated=stated)
        if projections:
            found = [each.build_calibration() for each in projections]
            rectified = replace(found[0], others=tuple(found[1:]))
        elif rig is not None:
            rectified = rig.to_calibration()
        if interpretation.baseline is not None:
            rig = rig and rig.with_baseline(interpretation.baseline)
            rectified = rectified and rectified.with_baseline(interpretation.baseline)
        note = doubt = None
        if self.metres is None and interpretation.unit is None and interpretation.baseline is None:
            note = f"lengths are assumed to be in metres, because {self.kind} states no unit"
            baseline = rig.baseline if rig else rectified.baseline if rectified else 0.0
            if baseline >= LONGEST_METRES:
                units = ["mm", *["cm"] * (baseline <= 300), *["board squares"] * (baseline <= 30)]
                doubt = f"a baseline of {baseline:g} m is implausible, and the file states no unit: it is "
                doubt += f"probably in {' or '.join(units)}; state `unit` mm, `unit` cm, or `unit` 25mm for "
                doubt += "board squares of 25 mm"
        return StoredCalibration(self.kind, rig, rectified, self.notes, note, doubt)


@dataclass(frozen=True)
class StoredCalibration:
    """A calibration of a pair of cameras that was read from files."""

    kind: str  # format of the files, for people
    rig: Rig | None = None  # the cameras; None if the files describe only rectified images
    rectified: Calibration | None = None  # of the rectified images; None if the files describe none
    notes: Sequence[str] = ()  # assumptions
    unit_note: str | None = None  # assumption about the unit of length; None if it is stated
    doubt: str | None = None  # why that unit is implausible, with a remedy

    def warnings(self) -> list[str]:
        if self.doubt or self.rectified is None:
            return [self.doubt] if self.doubt else check_baseline(self.rig.baseline) if self.rig else []
        return self.rectified.warnings()

    def facts(self) -> dict[str, Any]:
        """Return the values by names that end in their units."""
        facts: dict[str, Any] = {"kind": self.kind}
        values: dict[str, Any]
        if rig := self.rig:
            facts["rig"] = values = {"size_px": rig.size}
            if rig.right_size:
                values["right_size_px"] = rig.right_size
            values["model"] = "fisheye" if rig.left.fisheye else "pinhole"
            for name, camera in (("left", rig.left), ("right", rig.right)):
                values[f"{name}_focal_px"] = camera.matrix[[0, 1], [0, 1]].tolist()
                values[f"{name}_principal_px"] = camera.matrix[:2, 2].tolist()
                values[f"{name}_distortion"] = camera.distortion.tolist()
            values["baseline_m"] = rig.baseline
            values["right_camera_at_m"] = rig.center.tolist()
            values["right_camera_turned_degrees"] = rig.angle
            if rig.size:
                values["field_of_view_degrees"] = replace_nan(rig.left.field_of_view(rig.size))
        if found := self.rectified:
            facts["rectified"] = values = {"size_px": found.size, "focal_length_px": found.focal_length}
            values |= {"principal_point_px": found.principal, "doffs_px": found.offset}
            values["baseline_m"] = found.baseline
            if found.size:
                values["field_of_view_degrees"] = found.field_of_view
        for name, cameras in (("rig", rig), ("rectified", found)):
            if cameras is not None and cameras.others:
                facts[name]["also_of_size_px"] = [each.size for each in cameras.others]
        return facts

    def lines(self) -> list[str]:
        facts, lines = self.facts(), [f"{self.kind} calibration"]
        for title, name in (("cameras", "rig"), ("rectified images", "rectified")):
            if name in facts:
                lines.append(f"{title}:")
                lines += [
                    f"  {key.replace('_', ' '):28}{_format(key, it)}" for key, it in facts[name].items()
                ]
        return lines


def _format(key: str, value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, list | tuple):
        is_list = any(isinstance(each, tuple) for each in value)
        separator = "x" if key.endswith("size_px") and not is_list else ", "
        return separator.join(_format(key if is_list else "", each) for each in value) or "none"
    return value if isinstance(value, str) else f"{round(value, 6):.10g}"


def replace_nan(angles: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(angle) else angle for angle in angles]
