"""A calibration as its files and the user state it: a rig, the geometry of rectified images, or both."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pamcli.calibration.rectified import Calibration, baseline_warnings
from pamcli.calibration.rig import Rig


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
    doubt: str | None = None
    """Why that unit is implausible."""

    def warnings(self) -> list[str]:
        """List what looks wrong, a line each."""
        if self.doubt:
            return [self.doubt]
        if self.rectified is not None:
            return self.rectified.warnings()
        return [] if self.rig is None else baseline_warnings(self.rig.baseline)

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
    facts: dict[str, Any] = {"size_px": rig.size}
    if rig.right_size:
        facts["right_size_px"] = rig.right_size
    facts |= {"model": "fisheye" if rig.left.fisheye else "pinhole"}
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
