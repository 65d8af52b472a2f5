"""Calibrations: the options of all commands that take one, and pam calibration: what a file says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pamcli.cli import parsing
from pamcli.cli.groups import OptionGroup, argument, command, flag, group, option
from pamcli.cli.options import JSON, Messages

if TYPE_CHECKING:
    from pamcli.calibration.rectified import Calibration
    from pamcli.calibration.rig import Rig

app = group("Calibrations of stereo cameras.")
FISHEYE = flag("Take the coefficients in an OpenCV file as those of its fisheye model.")
CAMERAS = option(
    "Take these cameras of a file that has several as left and right; 1:0 exchanges two.",
    metavar="L:R",
    parse=parsing.cameras,
)


class Files(OptionGroup, panel="Calibration"):
    """A calibration in files."""

    calibration: list[str] | None = option(
        "Read the calibration from a file of OpenCV, ROS, Kalibr, ZED, RealSense, MATLAB, COLMAP, "
        "KITTI ... (pam guide calibration). Twice for two files: left and right camera, or intrinsics and "
        "extrinsics.",
        metavar="FILE",
    )
    cameras: tuple[int, int] | None = CAMERAS
    baseline: float | None = option(
        "Take this distance of the cameras instead of the file's.", metavar="METRES"
    )


class Cameras(Files):
    """The calibration of rectified pictures, in files or by hand."""

    focal: float | None = option("Focal length of the rectified pictures.", metavar="PX")
    doffs: float | None = option(
        "x of the right principal point minus that of the left one.", metavar="PX", parse=parsing.number
    )


@command(app, "show", "Show what a file says, in metres, pixels and degrees.")
def show(
    messages: Messages,
    files: list[str] = argument("One file, or two that belong together.", default=..., metavar="FILE"),
    cameras: tuple[int, int] | None = CAMERAS,
    fisheye: bool = FISHEYE,
    json: bool = JSON,
) -> None:
    """Show what was understood of a calibration, of any of the programs in pam guide calibration.

    $ pam calibration show calib.txt
    $ pam calibration show rig.yaml --json
    """
    console = messages.console(jsonl=json)
    from pamcli.batch.metres import named, read_calibrations

    stored = read_calibrations(files, cameras, None)
    facts: dict[str, Any] = {"kind": stored.kind}
    if stored.rig is not None:
        from pamcli.calibration.files import naming

        with naming(named(files)):
            facts |= {"rig": _rig(stored.rig.as_fisheye() if fisheye else stored.rig)}
        facts["rig"] |= _other_sizes(stored.rig)
    if stored.rectified is not None:
        facts |= {"rectified": _rectified(stored.rectified)}
        facts["rectified"] |= _other_sizes(stored.rectified)
        for warning in stored.rectified.warnings():
            console.warn(warning)
    elif stored.rig is not None and stored.rig.baseline > 5:
        console.warn(
            f"a baseline of {stored.rig.baseline:g} m: perhaps millimetres that were taken for metres"
        )
    lines = [f"{stored.kind} calibration"]
    for title, part in (("cameras as they stand", "rig"), ("rectified pictures", "rectified")):
        if part in facts:
            lines.append(f"{title}:")
            lines += [f"  {name.replace('_', ' '):28}{_text(value)}" for name, value in facts[part].items()]
    console.answer(facts, *lines)


def _rectified(calibration: Calibration) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "size_px": calibration.size,
        "focal_length_px": calibration.focal_length,
        "principal_point_px": calibration.principal,
        "doffs_px": calibration.offset,
        "baseline_m": calibration.baseline,
    }
    if calibration.size:
        facts["field_of_view_degrees"] = calibration.field_of_view
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
        facts["field_of_view_degrees"] = rig.left.field_of_view(rig.size)
    return facts


def _other_sizes(found: Rig | Calibration) -> dict[str, Any]:
    others = [each.size for each in found.others]
    return {"also_of_size_px": others} if others else {}


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, list | tuple):
        if any(isinstance(each, tuple) for each in value):
            return "; ".join(map(_text, value))
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else f"{round(value, 6):.10g}"
