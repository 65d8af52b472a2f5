"""`pam doctor`: check the calibration of a pair, or the installation."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import typer

from pamcli import __version__
from pamcli.cli.console import Console, format_option_names
from pamcli.errors import DeviceError, InputError, PamError, UsageError
from pamcli.files.paths import is_recording, states_layout
from pamcli.settings.options import argument, flag, option
from pamcli.settings.parsing import KnownLength
from pamcli.settings.shared import CalibrationFiles, LensesAndPose, Limit, Packed

HINT = "pam doctor LEFT RIGHT --calibration FILE"
LAYOUT = "pam doctor LEFT RIGHT; an image that holds both views requires `packed`"


class Pair(CalibrationFiles, LensesAndPose, Limit, Packed, panel="Calibration"):
    """The image pair whose calibration is checked."""

    inputs: Sequence[str] | None = argument(
        "Two images, an image that holds both views, or a ROS bag, to check its calibration. Without images: "
        "check the installation.",
        metavar="LEFT RIGHT",
        show_default=False,
        panel="Input",
    )
    known_length: Sequence[KnownLength] | None = option(
        "Distance between two pixels of the left image before rectification, to check the calibration."
    )

    def check(self) -> None:
        if self.inputs and len(self.inputs) != 2 - bool(self.packed) and not self.holds_both_views:
            needed = "one image" if self.packed else "a left and a right image"
            raise UsageError(f"expected {needed}, got {len(self.inputs)}", LAYOUT)
        if (given := self.set_options(without=("inputs", "max_pixels"))) and not self.inputs:
            raise UsageError(f"{given[0]} requires an image pair", HINT)
        if given and not self.calibration and not self.holds_both_views:
            raise UsageError(f"{given[0]} requires --calibration", HINT)

    @property
    def holds_both_views(self) -> bool:
        """True if one ROS bag or one image with both views is given."""
        inputs = self.inputs or []
        return len(inputs) == 1 and bool(self.packed or is_recording(inputs[0]) or states_layout(inputs[0]))


def command(
    pair: Pair,
    console: Console,
    gpu_check: bool = flag(
        "Run every network in every precision on CPU and GPU, and print a table to paste into an issue.",
        panel="Performance",
    ),
) -> None:
    """Check an image pair and its calibration; without images, check the installation.

    With images or a ROS bag, it checks the rows after rectification, the order of the images, their size, the
    focal length, the baseline and the resulting distances. It prints one line for each finding, with a
    remedy. The exit code is 3 if something is wrong.

    Without images, it prints versions, processor features and automatic choices, and checks weights, image
    files and a small pair. The exit code is that of the first failure.

    $ pam doctor
    $ pam doctor photo_left.jpg photo_right.jpg --calibration rig.yaml
    """
    if gpu_check:
        if pair.inputs:
            raise UsageError("cannot use both --gpu-check and images")
        _check_gpu(console)
    elif pair.inputs:
        _examine(pair, console)
    else:
        _examine_installation(console)


def _examine(options: Pair, console: Console) -> None:
    from pamcli.batch.camera_files import read_description, read_stated_calibration
    from pamcli.calibration.description import StoredCalibration
    from pamcli.calibration.examination import examine, examine_interpretations
    from pamcli.calibration.files import prefix_errors
    from pamcli.imaging.images import read_pair
    from pamcli.imaging.packed_views import make_rectilinear, read_packed_pair

    files, reading, recording, stored = options.calibration_files, None, None, None
    inputs = options.inputs or []
    if is_recording(inputs[0]) and len(inputs) == 1:
        from pamcli.recordings.bags import Recording

        recording = Recording(inputs[0], 1)
        files = files or ([recording.place] if recording.camera_description else [])
    if files:
        how = {"fisheye": options.fisheye, "extrinsics": options.extrinsics}
        reading = read_description(options, **how, recording=recording)  # type: ignore[arg-type]
    if recording is not None:
        first = recording.numbers[0].tolist()
        images = recording.read(first, max_pixels=options.max_pixels, rectify=False)
    elif len(inputs) == 1:
        layout = options.packed or "auto"
        packed = read_packed_pair(Path(inputs[0]), layout, max_pixels=options.max_pixels, name=inputs[0])
        images = make_rectilinear(packed)
        if stated := read_stated_calibration(images, options):
            stored = StoredCalibration("photo", rectified=stated)
        elif not files:
            console.inform(f"{images.title} does not state its calibration: only its images are checked")
    else:
        same_size = reading is None or not reading[0].has_two_sizes
        images = read_pair(*map(Path, inputs), max_pixels=options.max_pixels, same_size=same_size)
    images = images.stretch_contrast()
    if images.note:
        console.inform(images.note)
    views = images.left.pixels, images.right.pixels
    check = partial(examine, *views, stored)
    if reading is not None:
        check = partial(examine_interpretations, *views, *reading)
    with prefix_errors(", ".join(map(str, files))):
        findings = check(options.known_length or ())
    findings = [replace(each, do=each.do and format_option_names(each.do)) for each in findings]
    is_ok = all(each.verdict != "wrong" for each in findings)
    console.answer({"findings": [asdict(each) for each in findings], "ok": is_ok}, *map(str, findings))
    if not is_ok:
        raise typer.Exit(InputError.exit_code)


def _examine_installation(console: Console) -> None:
    from pamcli.inference.system_checks import format_checks, run_checks

    found = run_checks()
    failures = {name: each for name, each in found.items() if isinstance(each, PamError)}
    facts = found | {name: f"FAILED: {format_option_names(str(each))}" for name, each in failures.items()}
    console.answer({**facts, "ok": not failures}, *format_checks(facts))
    if failures:
        raise typer.Exit(next(iter(failures.values())).exit_code)


def _check_gpu(console: Console) -> None:
    with console.starting("the networks"):
        from pamcli.inference import gpu_check
    if not gpu_check.list_gpus():
        console.inform("PyTorch finds no GPU, so only the CPU is checked")
    facts, rows = {"pam": __version__, **gpu_check.describe_machine()}, [*gpu_check.check_networks()]
    sound = all(row.is_ok for row in rows)
    titles = ["; ".join(f"{key} {fact}" for key, fact in facts.items()), ""]
    table = [gpu_check.HEADER, ("---",) * len(gpu_check.HEADER), *(row.cells for row in rows)]
    titles += [f"| {' | '.join(cells)} |" for cells in table]
    console.answer({**facts, "rows": [asdict(row) for row in rows], "ok": sound}, *titles)
    if not sound:
        raise typer.Exit(DeviceError.exit_code)
