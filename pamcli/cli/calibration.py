"""pam calibration: to show a calibration, to make one."""

from pathlib import Path

from pamcli.cli.console import JSON, Messages, Quiet, as_options
from pamcli.cli.groups import command, group
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.suffixes import PackedLayout
from pamcli.settings import parsing
from pamcli.settings.options import argument, flag, option
from pamcli.settings.shared import (
    CAMERAS,
    EXTRINSICS,
    FISHEYE,
    UNIT,
    CalibrationFiles,
    Extrinsics,
    Limit,
    NewFile,
)

app = group("Calibrations of stereo cameras.")


@command(app, "show", "Show what a file says, in metres, pixels and degrees.")
def show(
    messages: Messages,
    files: list[str] = argument("One file, or several that belong together.", default=..., metavar="FILE"),
    cameras: tuple[int, int] | None = CAMERAS,
    fisheye: bool = FISHEYE,
    extrinsics: Extrinsics = EXTRINSICS,
    unit: float | None = UNIT,
    json: bool = JSON,
) -> None:
    """Show what was understood of a calibration, of any of the programs in pam guide calibration-files.

    $ pam calibration show calib.txt
    $ pam calibration show rig.yaml
    """
    console = messages.console(jsonl=json)
    from pamcli.batch.depth import finish_calibration, read_description

    given = CalibrationFiles(calibration=files, cameras=cameras, unit=unit)
    stored = finish_calibration(files, *read_description(given, fisheye=fisheye, extrinsics=extrinsics))
    for warning in stored.warnings():
        console.warn(warning)
    console.answer(stored.facts(), *stored.lines())


class Boards(Limit, panel="Input"):
    """Pictures of the board, and what the board is."""

    inputs: list[str] = argument(
        "Two folders (paired by equal names), two templates in which {} stands for the same text, or two "
        "videos. With --packed: one folder, or one video, that holds both views.",
        default=...,
        metavar="LEFT RIGHT",
        show_default=False,
    )
    board: tuple[int, int] = option(
        "Look for a chessboard of so many inner corners, as OpenCV counts (9x6 has 10 x 7 squares); with "
        "--marker for a ChArUco board of so many squares.",
        default=...,
        metavar="COLUMNSxROWS",
        parse=parsing.board,
    )
    square: float = option(
        "Take a square's side for so long, as in 25mm; a bare number means metres. All distances are as "
        "true as it is: measure ten squares at once.",
        default=...,
        metavar="LENGTH",
        parse=parsing.length,
    )
    marker: float | None = option(
        "Take the board for a ChArUco board with markers of this side, as in 18mm. Its dictionary is "
        "recognised. A bare number means metres.",
        metavar="LENGTH",
        parse=parsing.length,
    )
    fisheye: bool = flag("Fit fisheye lenses (OpenCV's model of four coefficients).")
    packed: PackedLayout | None = option(
        "Take both views from one picture, or one video: lr, rl, tb, bt, -half as for pam disparity."
    )


class Outputs(NewFile):
    """Files that the calibration goes to."""

    output: Path = option(
        "Write the calibration here, as OpenCV's YAML (.yaml).", "-o", "--output", default=..., metavar="FILE"
    )
    page: Path | None = option(
        "Write a page (.html) with the corners, the coverage of the pictures, and a rectified pair.",
        metavar="FILE",
    )
    json: bool = JSON


@command(app, "make", "Make a rig's calibration from boards.")
def make(boards: Boards, output: Outputs, messages: Quiet) -> None:
    """Calibrate two cameras from pictures that both take of a board at the same time.

    Take 20 pairs or more with the board in all parts of both pictures, also in the corners, near and far,
    tilted to all sides. Boards that are blurred, moved between the exposures or do not fit are left out and
    named. The report says how well rows agree, how sure focal length and baseline are (by leaving boards
    out), and what would make it better.

    $ pam calibration make lefts/ rights/ --board 9x6 --square 25mm -o rig.yaml --page report.html
    $ pam calibration make left.mp4 right.mp4 --board 9x6 --square 25mm -o rig.yaml
    """
    console = messages.console(jsonl=output.json)
    check_new_file(output.output, ".yaml", ".yml", overwrite=output.overwrite)
    if output.page is not None:
        check_new_file(output.page, ".html", overwrite=output.overwrite, option="--page")
    from pamcli.batch.calibration import BoardPictures, calibrate

    pictures = BoardPictures(boards.inputs, boards.packed, boards.max_pixels)
    with console.starting("OpenCV"):
        from pamcli.calibration.boards import Board
    board = Board(*boards.board, boards.square, boards.marker)
    with console.progress("pairs", len(pictures)) as bar:
        found = calibrate(pictures, board, fisheye=boards.fisheye, tip=as_options, advance=bar.advance)
    write_atomically(output.output, found.file())
    if output.page is not None:
        write_atomically(output.page, found.page(output.output.name))
    written = [str(path) for path in (output.output, output.page) if path is not None]
    console.answer({"written": written, **found.facts()}, *written, *found.lines())
