"""pam calibration: what a calibration file says, in metres, pixels and degrees."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pamcli.cli import parsing
from pamcli.cli.groups import argument, command, flag, group, option
from pamcli.cli.metric import FISHEYE, Files
from pamcli.cli.options import Answer, Messages

if TYPE_CHECKING:
    from pamcli.calibration.rectified import Calibration
    from pamcli.calibration.rig import Rig

app = group("Calibrations of stereo cameras.")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Which calibration."""

    panel: ClassVar[str] = "Input"
    files: list[str] = argument("One file, or two that belong together.", default=MISSING, metavar="FILE")
    cameras: tuple[int, int] | None = option(
        "Of a file that has several, as in 0:1.", metavar="L:R", parse=parsing.cameras
    )
    fisheye: bool = flag(FISHEYE)


@command(app, "show", "What a file says, in metres, pixels and degrees.")
def show(given: Shown, text: Answer, messages: Messages) -> None:
    """Show what was understood of a calibration: OpenCV, ROS camera_info, Kalibr, KITTI or Middlebury.

    $ pam calibration show calib.txt
    $ pam calibration show rig.yaml --json
    """
    console = messages.console()
    files = Files(calibration=given.files, cameras=given.cameras)
    stored = files.read(console)
    facts: dict[str, Any] = {"kind": stored.kind}
    if stored.rig is not None:
        from pamcli.calibration.files import naming

        with naming(files.name):
            facts |= {"rig": _rig(stored.rig.as_fisheye() if given.fisheye else stored.rig)}
    if stored.rectified is not None:
        facts |= {"rectified": _rectified(stored.rectified)}
        for warning in stored.rectified.warnings():
            console.warn(warning)
    elif stored.rig is not None and stored.rig.baseline > 5:
        console.warn(
            f"a baseline of {stored.rig.baseline:g} m: perhaps millimetres that were taken for metres"
        )
    if text.json:
        console.record(facts)
        return
    console.result(f"{stored.kind} calibration")
    for title, part in (("cameras as they stand", "rig"), ("rectified pictures", "rectified")):
        if part in facts:
            console.result(f"{title}:")
            for name, value in facts[part].items():
                console.result(f"  {name.replace('_', ' '):28}{_text(value)}")


def _rectified(calibration: Calibration) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "size_px": calibration.size,
        "focal_length_px": calibration.focal_length,
        "principal_point_px": calibration.principal,
        "doffs_px": calibration.offset,
        "baseline_m": calibration.baseline,
    }
    if calibration.size:
        facts["field_of_view_degrees"] = _angles(
            calibration.size, calibration.focal_length, calibration.vertical_focal_length
        )
    return facts


def _rig(rig: Rig) -> dict[str, Any]:
    facts: dict[str, Any] = {"size_px": rig.size, "model": "fisheye" if rig.left.fisheye else "pinhole"}
    for name, camera in (("left", rig.left), ("right", rig.right)):
        matrix = camera.matrix
        facts[f"{name}_focal_px"] = [float(matrix[0, 0]), float(matrix[1, 1])]
        facts[f"{name}_principal_px"] = [float(matrix[0, 2]), float(matrix[1, 2])]
        facts[f"{name}_distortion"] = camera.distortion.tolist()
    facts |= {
        "baseline_m": rig.baseline,
        "right_camera_at_m": rig.center.tolist(),
        "right_camera_turned_degrees": rig.angle,
    }
    if rig.size:
        facts["field_of_view_degrees"] = _angles(rig.size, *(float(rig.left.matrix[i, i]) for i in (0, 1)))
    return facts


def _angles(size: tuple[int, int], fx: float, fy: float) -> list[float]:
    return [2 * math.degrees(math.atan(side / 2 / f)) for side, f in zip(size, (fx, fy), strict=True)]


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else f"{round(value, 6):.10g}"
