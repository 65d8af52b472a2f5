"""Hold the `pam` command: the only package that parses options, prints, or exits."""

import os
import signal
import sys
import warnings
from difflib import get_close_matches
from types import FrameType
from typing import Annotated, NoReturn

import typer
from typer import TyperException

from pamcli import __version__
from pamcli.cli import (
    calibration,
    dataset,
    depth,
    disparity,
    doctor,
    evaluate,
    export,
    guide,
    prepare,
    rectify,
    submit,
    superres,
    train,
    view,
    weights,
)
from pamcli.cli.console import complain, guard_streams
from pamcli.cli.groups import command, group
from pamcli.errors import PamError, convert_system_error, describe_missing_package
from pamcli.settings.options import argument

app = group(
    "Match stereo pairs and upscale them, with parallax attention networks.\n\n"
    "pam guide leads through the first steps; pam COMMAND --help shows the options of a command.",
    completion=True,
)
evaluation = group("Evaluate disparity maps and super-resolution on data sets with ground truth.")
exporting = group("Write rectified images, cameras and depth maps for other programs.")
training = group("Train the networks, with or without ground truth.")
command(app, "disparity", "Compute disparity maps, depth maps and point clouds.")(disparity.command)
command(app, "superres", "Upscale both images of a pair, up to 4 times.")(superres.command)
command(app, "rectify", "Rectify image pairs, with or without a calibration.")(rectify.command)
command(app, "depth", "Convert stored disparity maps to depth maps and point clouds.")(depth.command)
command(app, "view", "Show a result in the browser.")(view.command)
command(evaluation, "disparity", "Evaluate disparity maps by the benchmarks' metrics.")(evaluate.disparity)
command(evaluation, "superres", "Measure PSNR and SSIM of upscaled images.")(evaluate.superres)
command(evaluation, "protocols", "List the evaluation protocols for disparity.")(evaluate.protocols)
app.add_typer(evaluation, name="eval")
command(exporting, "colmap", "Write a workspace for COLMAP.")(export.colmap)
command(exporting, "nerfstudio", "Write a data set for nerfstudio.")(export.nerfstudio)
app.add_typer(exporting, name="export")
command(app, "submit", "Write a submission archive for a benchmark.")(submit.command)
command(training, "disparity", "Train a matcher.")(train.disparity)
command(training, "superres", "Train a super-resolution network.")(train.superres)
app.add_typer(training, name="train")
command(app, "guide", "Show the pages of the guide.")(guide.command)
command(app, "doctor", "Check a calibration against an image pair, or this installation.")(doctor.command)
app.add_typer(calibration.app, name="calibration")
app.add_typer(weights.app, name="weights")
command(dataset.app, "prepare-flickr1024", "Cut training patches for super-resolution.")(prepare.command)
app.add_typer(dataset.app, name="dataset")


@command(app, "help", "Show help on a command.")
def show_help(
    words: list[str] | None = argument("Name of the command, such as eval disparity.", metavar="COMMAND"),
) -> None:
    """Show the help of a command, as `pam COMMAND --help` does.

    $ pam help
    $ pam help eval disparity
    """
    app([*(words or ()), "--help"], prog_name="pam", standalone_mode=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pam {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and exit with the code of `pamcli.errors`."""
    run_guarded(app, "pam")


def run_guarded(program: typer.Typer, name: str) -> NoReturn:
    """Run a program and exit with the code of `pamcli.errors`; any error is reported on one line.

    PAM_TRACEBACK=1 in the environment shows the traceback of errors.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their developers, not the users of pam
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    guard_streams()
    interrupts = _Interrupts()
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, interrupts)
        code = _run(program, name)
    except TyperException as error:
        code = _explain_usage(error)
    except PamError as error:
        complain(str(error), error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # noqa: BLE001 - the one place where an unexpected error becomes a line
        code = 1
        if interrupts.seen:
            code = 130  # the import of a library may turn KeyboardInterrupt into any error
        elif refused := convert_system_error(error):
            complain(str(refused), error)
            code = refused.exit_code
        elif isinstance(error, ModuleNotFoundError):
            complain(describe_missing_package(error), error)
        else:
            complain(f"unexpected {type(error).__name__}: {error} (PAM_TRACEBACK=1 shows where)", error)
    sys.exit(code)


def _run(program: typer.Typer, name: str) -> int:
    return program(prog_name=name, standalone_mode=False) or 0


class _Interrupts:
    """The handler of Ctrl-C: raises KeyboardInterrupt while the program runs, so that it can clean up.

    Before and after that the process ends at once.
    """

    seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        importing = False
        while frame is not None and frame.f_code is not _run.__code__:
            importing |= frame.f_code.co_filename.startswith("<frozen importlib")
            frame = frame.f_back
        if frame is None:
            os._exit(130)
        if importing:  # a library in C prints the exception that interrupted its import
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the program ends
        self.seen = True
        raise KeyboardInterrupt


_SYNONYMS = {
    "--calibration": ("calib", "camera", "intrinsics", "rig"),
    "--color-map": ("cmap", "colormap", "colour-map", "colormaps"),
    "--count": ("frames", "max-frames", "num-frames"),
    "--device": ("cpu", "cuda", "gpu", "gpus", "mps", "no-cuda", "use-gpu"),
    "--image": ("picture", "left-image"),
    "--invalid": ("no-data", "nodata", "unknown-value"),
    "--match-size": ("enlarge", "resize", "resolution"),
    "--max-disparity": ("max-disp", "maxdisp", "ndisp", "num-disparities"),
    "--max-memory": ("memory", "tile", "tile-size", "tiles"),
    "--output": ("dest", "out", "out-dir", "outdir", "outfile", "output-dir", "save"),
    "--overwrite": ("clobber", "force", "yes"),
    "--precision": ("amp", "bf16", "fp16", "half"),
    "--scale": ("factor", "outscale", "prediction-scale", "upscale"),
    "--skip-existing": ("continue", "resume", "skip"),
    "--weights": ("checkpoint", "ckpt", "loadckpt", "model", "restore-ckpt"),
}
"""Names in other programs, by the option of the same meaning."""


def _suggest_option(name: str, known: list[str]) -> str:
    """Return the message for an unknown option, with similar options of the command."""
    word = name.lstrip("-").replace("_", "-").lower()
    meant = [option for option, others in _SYNONYMS.items() if word in others and option in known]
    meant = meant or get_close_matches(f"--{word}", known, 3, 0.75)
    return f"no such option: {name}" + (f", did you mean {' or '.join(meant)}?" if meant else "")


def _explain_usage(error: TyperException) -> int:
    """Report a usage error on one line, or the help that Typer shows without arguments."""
    message = error.format_message()
    if "\n" in message:
        typer.echo(message, err=True)
    else:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "pam"
        if (name := getattr(error, "option_name", None)) and "No such option" in message and context:
            message = _suggest_option(name, [opt for each in context.command.params for opt in each.opts])
        # Typer prefixes the messages of its validator with "Value error".
        complain(f"{message.replace('Value error, ', '').rstrip('.')} ({command} --help lists all options)")
    return error.exit_code
