"""The `pam` command: the only floor that parses options, prints, or exits."""

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
    guide,
    prepare,
    rectify,
    submit,
    superres,
    train,
    weights,
)
from pamcli.cli.console import complain, guard_streams
from pamcli.cli.groups import command, group
from pamcli.errors import PamError, convert_system_error, missing_package
from pamcli.settings.options import argument

app = group(
    "Find where each pixel of a left picture sits in the right one, and make both pictures larger with "
    "detail borrowed from each other.",
    completion=True,
)
measure = group("Measure on data sets with ground truth.")
learn = group("Train the networks, with ground truth or without.")
command(app, "disparity", "Find where each left pixel sits in the right picture.")(disparity.command)
command(app, "rectify", "Bring a point into the same row of both pictures.")(rectify.command)
command(app, "depth", "Turn disparities that are there already into metres.")(depth.command)
command(app, "superres", "Make both pictures up to 4 times larger.")(superres.command)
command(measure, "disparity", "Measure disparity as the benchmarks define it.")(evaluate.disparity)
command(measure, "superres", "Measure PSNR and SSIM of enlarged pictures, beside bicubic.")(evaluate.superres)
command(measure, "protocols", "List the rules that papers measure disparity by.")(evaluate.protocols)
app.add_typer(measure, name="eval")
command(app, "submit", "Write archives for the benchmarks' servers.")(submit.command)
command(learn, "disparity", "Train PASMnet or PASMnet 2, which find disparity.")(train.disparity)
command(learn, "superres", "Train PASSRnet or PASSRnet 2, which enlarge pictures.")(train.superres)
app.add_typer(learn, name="train")
command(app, "guide", "Show pages of the guide.")(guide.command)
command(app, "doctor", "Check a calibration against a pair, or whether pam works here.")(doctor.command)
app.add_typer(calibration.app, name="calibration")
app.add_typer(weights.app, name="weights")
command(dataset.app, "prepare-flickr1024", "Cut training patches for super-resolution.")(prepare.command)
app.add_typer(dataset.app, name="dataset")


@command(app, "help", "Show help on a command.")
def show_help(
    words: list[str] | None = argument("Name of the command, as in eval disparity.", metavar="COMMAND"),
) -> None:
    """Show what `pam COMMAND --help` shows.

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
    guarded(app, "pam")


def guarded(program: typer.Typer, name: str) -> NoReturn:
    """Run a program and exit with the code of `pamcli.errors`; whatever goes wrong is one line.

    PAM_TRACEBACK=1 in the environment shows where an unexpected error came from.
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
            code = 130  # what the import of a library makes of it may be anything
        elif refused := convert_system_error(error):
            complain(str(refused), error)
            code = refused.exit_code
        elif isinstance(error, ModuleNotFoundError):
            complain(missing_package(error), error)
        else:
            complain(f"unexpected {type(error).__name__}: {error} (PAM_TRACEBACK=1 shows where)", error)
    sys.exit(code)


def _run(program: typer.Typer, name: str) -> int:
    return program(prog_name=name, standalone_mode=False) or 0


class _Interrupts:
    """The handler of Ctrl-C: KeyboardInterrupt while the program runs, which then can clean up.

    Before and after that there is nobody to catch it, and the process ends at once.
    """

    seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        importing = False
        while frame is not None and frame.f_code is not _run.__code__:
            importing |= frame.f_code.co_filename.startswith("<frozen importlib")
            frame = frame.f_back
        if frame is None:
            os._exit(130)
        if importing:  # a library in C prints what its import was interrupted by
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the program ends
        self.seen = True
        raise KeyboardInterrupt


_MEANT = {
    "--calibration": ("calib", "camera", "intrinsics", "rig"),
    "--color-map": ("cmap", "colormap", "colour-map", "colormaps"),
    "--device": ("cpu", "cuda", "gpu", "gpus", "mps", "no-cuda", "use-gpu"),
    "--max-disparity": ("max-disp", "maxdisp", "ndisp", "num-disparities"),
    "--max-memory": ("memory", "tile", "tile-size", "tiles"),
    "--output": ("dest", "out", "out-dir", "outdir", "outfile", "output-dir", "save"),
    "--overwrite": ("clobber", "force", "yes"),
    "--precision": ("amp", "bf16", "fp16", "half"),
    "--scale": ("factor", "outscale", "prediction-scale", "upscale"),
    "--skip-existing": ("continue", "resume", "skip"),
    "--weights": ("checkpoint", "ckpt", "loadckpt", "model", "restore-ckpt"),
}
"""What options of the same meaning are called in other programs."""


def _no_such_option(name: str, known: list[str]) -> str:
    """Say which options of the command may be meant."""
    word = name.lstrip("-").replace("_", "-").lower()
    meant = [option for option, others in _MEANT.items() if word in others and option in known]
    meant = meant or get_close_matches(f"--{word}", known, 3, 0.75)
    return f"no such option: {name}" + (f", did you mean {' or '.join(meant)}?" if meant else "")


def _explain_usage(error: TyperException) -> int:
    """A mistake in the options, in one line like all other errors; help, for no arguments, as it is."""
    message = error.format_message()
    if "\n" in message:
        typer.echo(message, err=True)
    else:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "pam"
        if (name := getattr(error, "option_name", None)) and "No such option" in message and context:
            message = _no_such_option(name, [opt for each in context.command.params for opt in each.opts])
        # Typer passes on how its validator begins; a bare "." would end a sentence that goes on.
        complain(f"{message.replace('Value error, ', '').rstrip('.')} ({command} --help lists what there is)")
    return error.exit_code
