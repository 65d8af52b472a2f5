"""`pam calibration`: show a calibration, or make one from images of a board."""

from collections.abc import Sequence
from pathlib import Path

from pamcli.cli.console import Console, format_option_names
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.suffixes import PackedLayout
from pamcli.settings.options import argument, flag, option
from pamcli.settings.parsing import BoardSize, Metres
from pamcli.settings.shared import CalibrationFiles, CameraChoice, LensesAndPose, Limit, NewFile


def show(
    choice: CameraChoice,
    how: LensesAndPose,
    console: Console,
    files: Sequence[str] = argument("One file, or all files of a calibration.", default=..., metavar="FILE"),
) -> None:
    """Show a calibration file of any program listed in pam guide calibration-files.

    $ pam calibration show calib.txt
    $ pam calibration show rig.yaml
    """
    from pamcli.batch.camera_files import finish_calibration, read_description

    given = CalibrationFiles(calibration=files, cameras=choice.cameras, unit=choice.unit)
    stored = finish_calibration(
        files, *read_description(given, fisheye=how.fisheye, extrinsics=how.extrinsics)
    )
    for warning in stored.warnings():
        console.warn(warning)
    console.answer(stored.facts(), *stored.lines())


class Boards(Limit, panel="Input"):
    """Images of the board, and the board."""

    inputs: Sequence[str] = argument(
        "Two folders (paired by equal names), two templates with {} for the same text, or two videos. With "
        "--packed: one folder or video of images that hold both views.",
        default=...,
        metavar="LEFT RIGHT",
        show_default=False,
    )
    board: BoardSize = option(
        "Inner corners of the chessboard, as OpenCV counts them (9x6 has 10x7 squares); with --marker, "
        "squares of the ChArUco board.",
        default=...,
    )
    square: Metres = option(
        "Side of a square, such as 25mm (without a unit: metres). It scales all distances, so measure "
        "ten squares at once.",
        default=...,
    )
    marker: Metres | None = option(
        "Side of a ChArUco board's markers, such as 18mm (without a unit: metres); the dictionary is "
        "detected.",
    )
    fisheye: bool = flag("Fit fisheye lenses (OpenCV's model with four coefficients).")
    packed: PackedLayout | None = option(
        "Layout of images or videos that hold both views: lr, rl, tb, bt or -half, as for pam disparity.",
        metavar="LAYOUT",
    )


class Outputs(NewFile):
    """Files to write."""

    output: Path = option(
        "Calibration file to write, as OpenCV's YAML (.yaml).", "-o", "--output", default=..., metavar="FILE"
    )
    page: Path | None = option(
        "Page (.html) to write, with the detected corners, the board coverage, and a rectified pair.",
        metavar="FILE",
    )


def make(boards: Boards, output: Outputs, console: Console) -> None:
    """Calibrate two cameras from images that both take of a board at the same time.

    Take at least 20 pairs, with the board in all parts of both images, near and far, and tilted to all sides.
    Boards that are blurred, moved between the exposures or do not fit are rejected and named. The report
    states the row error, the uncertainty of focal length and baseline, and how to improve the calibration.

    $ pam calibration make lefts/ rights/ --board 9x6 --square 25mm -o rig.yaml --page report.html
    $ pam calibration make left.mp4 right.mp4 --board 9x6 --square 25mm -o rig.yaml
    """
    check_new_file(output.output, ".yaml", ".yml", overwrite=output.overwrite)
    if output.page is not None:
        check_new_file(output.page, ".html", overwrite=output.overwrite, option="--page")
    from pamcli.batch.calibration import BoardImages, fit_boards

    images = BoardImages(boards.inputs, boards.packed, boards.max_pixels)
    with console.starting("OpenCV"):
        from pamcli.calibration.boards import Board
    board = Board(*boards.board, boards.square, boards.marker)
    with console.progress("pairs", len(images)) as bar:
        sightings, tip = images.find_boards(board, bar.advance), format_option_names
        found = fit_boards(sightings, fisheye=boards.fisheye, tip=tip, thin=images.are_frames)
    write_atomically(output.output, found.file())
    if output.page is not None:
        write_atomically(output.page, found.page(output.output.name))
    written = [str(path) for path in (output.output, output.page) if path is not None]
    console.answer({"written": written, **found.facts()}, *written, *found.lines())
