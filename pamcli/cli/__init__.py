"""Hold the `pam` command: the only package that parses options, prints, or exits."""

import os
import signal
import sys
import warnings
from difflib import get_close_matches
from types import FrameType
from typing import Any, NoReturn

import typer
from typer import TyperException
from typer.core import TyperCommand, TyperGroup
from typer.main import get_install_completion_arguments

from pamcli.cli.console import complain, guard_streams
from pamcli.cli.groups import Group, make_command, show_version
from pamcli.errors import PamError, convert_system_error, describe_missing_package
from pamcli.systems import TERMINATIONS

EXPORT = {
    "colmap": ("images:colmap", "Write a workspace for COLMAP."),
    "nerfstudio": ("images:nerfstudio", "Write a data set for nerfstudio."),
}
CALIBRATION = {
    "show": ("calibration:show", "Show the values of a calibration file, in metres, pixels and degrees."),
    "make": ("calibration:make", "Calibrate a stereo rig from images of a board."),
}
EVAL = {
    "disparity": ("evaluate:disparity", "Evaluate disparity maps by the benchmarks' metrics."),
    "superres": ("evaluate:superres", "Measure PSNR and SSIM of upscaled images."),
    "protocols": ("evaluate:protocols", "List the evaluation protocols for disparity."),
}
TRAIN = {
    "disparity": ("train:disparity", "Train a matcher."),
    "superres": ("train:superres", "Train a super-resolution network."),
}
DATASET = {
    "list": ("dataset:list_sources", "List the data sets that can be read."),
    "verify": ("dataset:verify", "Check data sets for missing and damaged files."),
    "preview": ("dataset:preview", "Show pairs of a data set in one image."),
    "stats": ("dataset:stats", "Measure sizes, disparities, sharpness, duplicates."),
    "label": ("dataset:label", "Write pseudo-labels for pairs without ground truth."),
    "prepare-flickr1024": ("dataset:prepare_flickr1024", "Cut training patches for super-resolution."),
}
WEIGHTS = {
    "list": ("weights:list_weights", "List the shipped weights."),
    "info": ("weights:info", "Show what a weights file contains."),
    "verify": ("weights:verify", "Check that weights are undamaged."),
    "import": ("weights:import_checkpoint", "Convert a checkpoint of the authors."),
    "export": ("weights:export_network", "Export a network to ONNX."),
    "push": ("weights:push", "Publish trained weights on the Hugging Face Hub."),
    "describe": ("weights:describe", "Find the inputs and outputs of a network of another project."),
}
COMMANDS: dict[str, dict[str, Any]] = {
    "Process image pairs": {
        "disparity": ("images:match", "Compute disparity maps, depth maps and point clouds."),
        "superres": ("images:upscale", "Upscale both images of a pair, up to 4 times."),
        "rectify": ("images:rectify", "Rectify image pairs, with or without a calibration."),
        "depth": ("images:convert", "Convert stored disparity maps to depth maps and point clouds."),
        "export": (EXPORT, "Write rectified images, cameras and depth maps for other programs."),
        "live": ("live:command", "Match cameras and streams while they run."),
        "view": ("images:show", "Show a result in the browser."),
    },
    "Calibrate and check": {
        "calibration": (CALIBRATION, "Calibrate stereo cameras, and show calibration files."),
        "doctor": ("doctor:command", "Check an image pair and its calibration, or this installation."),
    },
    "Evaluate": {
        "eval": (EVAL, "Evaluate disparity maps and super-resolution on data sets with ground truth."),
        "submit": ("evaluate:submit", "Write a submission archive for a benchmark."),
    },
    "Train": {
        "train": (TRAIN, "Train the networks, with or without ground truth."),
        "dataset": (DATASET, "List, check, preview, measure, label and prepare data sets."),
        "weights": (
            WEIGHTS,
            "List, check, import, export and publish weights; describe networks of other projects.",
        ),
    },
    "Get help": {
        "guide": ("guide:command", "Show the pages of the guide."),
        "help": ("guide:show_help", "Show help on a command."),
    },
}
"""The commands below each heading of the help: module and function, or members of a group; line of help."""

_own = make_command("pam", "", show_version)
app = Group(
    "Match stereo pairs and upscale them, with parallax attention networks.\n\n"
    "pam guide lists the pages of the guide; pam COMMAND --help shows the options of a command.",
    COMMANDS,
    params=[*_own.params, *get_install_completion_arguments()],
    callback=_own.callback,
    invoke_without_command=True,
)


def main() -> NoReturn:
    """Run the command line and exit with the code of `pamcli.errors`."""
    run_guarded(app, "pam")


def run_guarded(program: TyperCommand | TyperGroup, name: str) -> NoReturn:
    """Run a program and exit with the code of `pamcli.errors`; any error is reported on one line.

    PAM_TRACEBACK=1 in the environment shows the traceback of errors.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their developers, not the users of pam
    for number in TERMINATIONS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
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


def _run(program: TyperCommand | TyperGroup, name: str) -> int:
    code = program(prog_name=name, standalone_mode=False) or 0
    sys.stdout.flush()
    return code


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
    "--grey": ("gray", "grayscale", "greyscale"),
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
        listed = "commands" if message.startswith("No such command") else "options"
        complain(f"{message.replace('Value error, ', '').rstrip('.')} ({command} --help lists all {listed})")
    return error.exit_code
