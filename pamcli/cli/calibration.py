"""Calibrations: the options of all commands that take one, and pam calibration: what a file says."""

from typing import Any

from pamcli.cli import parsing
from pamcli.cli.groups import OptionGroup, argument, command, flag, group, option
from pamcli.cli.options import JSON, Messages

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
    from pamcli.batch.metres import read_calibrations

    stored = read_calibrations(files, cameras, None, fisheye)
    for warning in stored.warnings():
        console.warn(warning)
    facts, lines = stored.facts(), [f"{stored.kind} calibration"]
    for title, part in (("cameras as they stand", "rig"), ("rectified pictures", "rectified")):
        if part in facts:
            lines.append(f"{title}:")
            lines += [f"  {name.replace('_', ' '):28}{_text(value)}" for name, value in facts[part].items()]
    console.answer(facts, *lines)


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, list | tuple):
        if any(isinstance(each, tuple) for each in value):
            return "; ".join(map(_text, value))
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else f"{round(value, 6):.10g}"
