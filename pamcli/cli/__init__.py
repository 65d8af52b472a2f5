"""Hold the `pam` command: the only package that parses options, prints, or exits."""

import os
import signal
import sys
import warnings
from difflib import get_close_matches
from types import FrameType
from typing import Annotated, Literal, NoReturn

import typer
from typer import TyperException

from pamcli import __version__
from pamcli.cli import calibration, dataset, doctor, evaluate, guide, train, weights
from pamcli.cli.console import TERMINATIONS, Console, Messages, complain, guard_streams, run_batch
from pamcli.cli.groups import command, group
from pamcli.errors import PamError, convert_system_error, describe_missing_package
from pamcli.settings.batches import (
    DepthSettings,
    ExportSettings,
    MatchSettings,
    RectifySettings,
    UpscaleSettings,
    ViewSettings,
)
from pamcli.settings.evaluation import SubmitSettings
from pamcli.settings.options import argument


def match(settings: MatchSettings, console: Console) -> None:
    """Compute the disparity map of an image pair: how far each left pixel is shifted in the right image, px.

    The images must be rectified (pam rectify): a point lies in the same row of both, and left pixel (y, x)
    matches right pixel (y, x - disparity). Paths of results are printed to stdout, all else to stderr.

    The shipped weights were trained on synthetic scenes and few real pairs. In streets and rooms, about one
    pixel in twenty is wrong by more than 3 px; --min-confidence removes most of them (pam guide confidence).

    $ pam disparity left.png right.png -o map.pfm --color-map map.png --confidence conf.tif
    $ pam disparity lefts/ rights/ -o out/ --skip-existing
    """
    from pamcli.batch.matching import match_files

    run_batch(match_files, settings, console, loading=settings.name)


def upscale(settings: UpscaleSettings, console: Console) -> None:
    """Upscale both images of a pair, each with detail from the other.

    The images must be rectified (pam rectify): a point lies in the same row of both. Bit depth (8 or 16),
    transparency, colour profile and EXIF data are kept. Paths of results are printed to stdout, all else to
    stderr.

    $ pam superres left.png right.png --scale 4 -o left_x4.png --output-right right_x4.png
    $ pam superres lefts/ rights/ --scale 2 --input camera -o upscaled/
    """
    from pamcli.batch.upscaling import upscale_files

    run_batch(upscale_files, settings, console, loading=settings.name)


def rectify(settings: RectifySettings, console: Console) -> None:
    """Rectify image pairs, so that a point lies in the same row of both images.

    The images keep their bit depth (8 or 16 bits). With --calibration, the calibration of the rectified
    images is written next to them.

    $ pam rectify photo_left.jpg photo_right.jpg --calibration rig.yaml -o rectified/
    $ pam rectify photo_left.jpg photo_right.jpg --uncalibrated -o straight/
    """
    from pamcli.batch.rectification import rectify_files

    run_batch(rectify_files, settings, console)


def convert(settings: DepthSettings, console: Console) -> None:
    """Convert stored disparity maps to depth maps and point clouds, in metres.

    Units per pixel and markers of unknown pixels are recognised for the formats of common programs; --scale
    and --invalid override them.

    $ pam depth disp.pfm --calibration calib.txt --depth metres.tif
    $ pam depth disparities/ --calibration calib.txt --image lefts/ --point-cloud clouds/
    """
    from pamcli.batch.depth import depth_files

    run_batch(depth_files, settings, console)


def show(settings: ViewSettings, messages: Messages) -> None:
    """Show a result in the browser: image, disparity, depth, confidence, distances and point cloud.

    The page is served on this computer only, until Ctrl-C. Its address is printed on stdout.

    $ pam view disp.html
    $ pam view disp.pfm left.png --calibration calib.txt
    """
    console = messages.console()
    import webbrowser

    from pamcli.batch.viewing import open_server

    server = open_server(settings)
    try:
        console.result(server.address)
        console.inform("press Ctrl-C to stop")
        if not settings.no_browser and not webbrowser.open(server.address):
            console.warn("no browser found: open the address yourself")
        server.serve_forever()
    finally:
        server.server_close()


def colmap(settings: ExportSettings, console: Console) -> None:
    """Write rectified images, their cameras and their depth maps as a workspace for COLMAP.

    The folder contains images/, stereo/depth_maps/ and rig_config.json for `colmap rig_configurator`. For a
    single pair, it also contains a sparse model with both poses and coloured points.

    $ pam export colmap left.png right.png --calibration calib.txt -o scene/
    $ pam export colmap lefts/ rights/ --calibration calib.txt -o scenes/
    """
    _export(settings, console, "colmap")


def nerfstudio(settings: ExportSettings, console: Console) -> None:
    """Write the rectified images of a pair, their cameras and their depth maps for nerfstudio.

    The folder contains images/, depths/ (16 bits, mm), points.ply and transforms.json, which `ns-train`
    reads.

    $ pam export nerfstudio left.png right.png --calibration calib.txt -o nerf/
    $ pam export nerfstudio left.png right.png --focal 700 --baseline 120mm -o studio/
    """
    _export(settings, console, "nerfstudio")


def _export(settings: ExportSettings, console: Console, kind: Literal["colmap", "nerfstudio"]) -> None:
    from pamcli.batch.export import Export

    export = Export(settings, kind)
    try:
        run_batch(lambda _: export.batch, export.settings, console, loading=settings.name)
    finally:  # also if a pair failed: the cameras are those of the others
        for path in export.write_cameras():
            if not console.jsonl:
                console.path(path)


def submit_results(settings: SubmitSettings, messages: Messages) -> None:
    """Write a submission archive for KITTI 2012, KITTI 2015, Middlebury or ETH3D.

    The results are a network's, or files (--predictions). The archive is read back and verified; missing
    images are reported before the network runs.

    $ pam submit --data middlebury:MiddEval3 -o middlebury.zip
    $ pam submit --data middlebury:MiddEval3 --weights pasmnet -o pasmnet.zip
    """
    console = messages.console()
    from pamcli.evaluation.submissions import submit

    written = submit(settings, console)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.images} images, {written.files} files, verified")
    console.path(settings.output)


app = group(
    "Match stereo pairs and upscale them, with parallax attention networks.\n\n"
    "pam guide lists the pages of the guide; pam COMMAND --help shows the options of a command.",
    completion=True,
)
evaluation = group("Evaluate disparity maps and super-resolution on data sets with ground truth.")
exporting = group("Write rectified images, cameras and depth maps for other programs.")
training = group("Train the networks, with or without ground truth.")
command(app, "disparity", "Compute disparity maps, depth maps and point clouds.")(match)
command(app, "superres", "Upscale both images of a pair, up to 4 times.")(upscale)
command(app, "rectify", "Rectify image pairs, with or without a calibration.")(rectify)
command(app, "depth", "Convert stored disparity maps to depth maps and point clouds.")(convert)
command(app, "view", "Show a result in the browser.")(show)
command(evaluation, "disparity", "Evaluate disparity maps by the benchmarks' metrics.")(evaluate.disparity)
command(evaluation, "superres", "Measure PSNR and SSIM of upscaled images.")(evaluate.superres)
command(evaluation, "protocols", "List the evaluation protocols for disparity.")(evaluate.protocols)
app.add_typer(evaluation, name="eval")
command(exporting, "colmap", "Write a workspace for COLMAP.")(colmap)
command(exporting, "nerfstudio", "Write a data set for nerfstudio.")(nerfstudio)
app.add_typer(exporting, name="export")
command(app, "submit", "Write a submission archive for a benchmark.")(submit_results)
command(training, "disparity", "Train a matcher.")(train.disparity)
command(training, "superres", "Train a super-resolution network.")(train.superres)
app.add_typer(training, name="train")
command(app, "guide", "Show the pages of the guide.")(guide.command)
command(app, "doctor", "Check an image pair and its calibration, or this installation.")(doctor.command)
app.add_typer(calibration.app, name="calibration")
app.add_typer(weights.app, name="weights")
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


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"pam {__version__}")
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line and exit with the code of `pamcli.errors`."""
    run_guarded(app, "pam")


def run_guarded(program: typer.Typer, name: str) -> NoReturn:
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


def _run(program: typer.Typer, name: str) -> int:
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
