"""pam doctor: whether a calibration is right for a pair, and whether pam works here."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from pamcli import __version__
from pamcli.cli.console import JSON, Console, as_options
from pamcli.errors import DeviceError, InputError, PamError, UsageError
from pamcli.files.suffixes import is_recording
from pamcli.settings import parsing
from pamcli.settings.options import argument, flag, option
from pamcli.settings.shared import EXTRINSICS, FISHEYE, CalibrationFiles, Extrinsics, Limit


class Pair(CalibrationFiles, Limit, panel="Calibration"):
    """Pair of pictures whose calibration is examined. Raises UsageError for what contradicts itself."""

    inputs: list[str] | None = argument(
        "Two pictures, to tell whether the calibration is right for them. Without them: whether pam works "
        "here.",
        metavar="LEFT RIGHT",
        show_default=False,
        rich_help_panel="Input",
    )
    fisheye: bool = FISHEYE
    extrinsics: Extrinsics = EXTRINSICS
    known_length: list[Any] | None = option(
        "Compare the distance between two pixels of the left picture, as it is given, with this length.",
        metavar="X1,Y1,X2,Y2=1.20m",
        parse=parsing.known_length,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs and len(self.inputs) != 2 and not self.recorded:
            count = "1 picture is" if len(self.inputs) == 1 else f"{len(self.inputs)} pictures are"
            raise UsageError(f"{count} given, not a left and a right one")
        if (given := self.set_options(without=("inputs", "max_pixels"))) and not self.inputs:
            hint = "pam doctor LEFT RIGHT --calibration FILE"
            raise UsageError(f"{given[0]} is about a pair of pictures, and none is given", hint)
        if given and not self.calibration and not self.recorded:
            raise UsageError(f"{given[0]} takes a calibration", "--calibration FILE")

    @property
    def recorded(self) -> bool:
        """Whether the pair is the first one of a ROS bag."""
        return bool(self.inputs) and len(self.inputs or ()) == 1 and is_recording((self.inputs or [""])[0])


def command(
    pair: Pair,
    gpu_check: bool = flag(
        "Run every network in every precision on CPU and GPU: a table to paste where GPUs are discussed.",
        rich_help_panel="Performance",
    ),
    json: bool = JSON,
) -> None:
    """Tell whether a calibration is right for a pair of pictures; or, without them, whether pam works here.

    With a pair: whether rows agree as the calibration promises, and if not, where and by how much; whether
    left and right are exchanged; whether size, focal length and baseline are plausible; how far away things
    are by it. A line for each finding, with what to do; ends with code 3 where something is wrong.

    Without: versions, what the processor can, what auto chooses, whether weights and pictures are sound. Ends
    with the code of the first thing that is wrong.

    $ pam doctor
    $ pam doctor photo_left.jpg photo_right.jpg --calibration rig.yaml
    """
    console = Console(jsonl=json)
    if gpu_check:
        if pair.inputs:
            raise UsageError("--gpu-check takes no pictures")
        _check_gpu(console)
    elif pair.inputs:
        _examine(pair, console)
    else:
        _examine_installation(console)


def _examine(asked: Pair, console: Console) -> None:
    from pamcli.batch.depth import named, read_description
    from pamcli.calibration.examining import KnownLength, examine, examine_reading
    from pamcli.calibration.files import naming
    from pamcli.imaging.stereo_pair import read_pair

    known = [KnownLength(*each) for each in asked.known_length or ()]
    files, reading, recording = asked.calibration_files, None, None
    if asked.recorded:
        from pamcli.recordings.bags import Recording

        recording = Recording((asked.inputs or [""])[0], 1)
        files = files or ([recording.place] if recording.described else [])
    if files:
        how = {"fisheye": asked.fisheye, "extrinsics": asked.extrinsics}
        reading = read_description(asked, **how, recording=recording)  # type: ignore[arg-type]
    if recording is not None:
        first = recording.numbers[0].tolist()
        pictures = recording.read(first, max_pixels=asked.max_pixels, rectify=False).stretch_contrast()
    else:
        left, right = map(Path, asked.inputs or ())
        same_size = reading is None or not reading[0].differs
        pictures = read_pair(left, right, max_pixels=asked.max_pixels, same_size=same_size).stretch_contrast()
    views = pictures.left.pixels, pictures.right.pixels
    with naming(named(files)):
        findings = examine_reading(*views, *reading, known) if reading else examine(*views, None, known)
    told = [replace(each, do=each.do and as_options(each.do)) for each in findings]
    wrong = any(each.verdict == "wrong" for each in told)
    console.answer({"findings": [asdict(each) for each in told], "ok": not wrong}, *map(str, told))
    if wrong:
        raise typer.Exit(InputError.exit_code)


def _examine_installation(console: Console) -> None:
    from pamcli.inference.system_checks import format_checks, run_checks

    found = run_checks()
    failures = [each for each in found.values() if isinstance(each, PamError)]
    facts = {
        name: f"FAILED: {as_options(str(each))}" if isinstance(each, PamError) else each
        for name, each in found.items()
    }
    console.answer({**facts, "ok": not failures}, *format_checks(facts))
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _check_gpu(console: Console) -> None:
    with console.starting("the networks"):
        from pamcli.inference import gpu_check
    if not gpu_check.gpus():
        console.inform("PyTorch can use no GPU here: this is the CPU half of the check")
    facts, rows = {"pam": __version__, **gpu_check.machine()}, [*gpu_check.check()]
    sound = all(row.sound for row in rows)
    titles = ["; ".join(f"{key} {fact}" for key, fact in facts.items()), ""]
    table = [gpu_check.HEADER, ("---",) * len(gpu_check.HEADER), *(row.cells for row in rows)]
    titles += [f"| {' | '.join(cells)} |" for cells in table]
    console.answer({**facts, "rows": [asdict(row) for row in rows], "ok": sound}, *titles)
    if not sound:
        raise typer.Exit(DeviceError.exit_code)
