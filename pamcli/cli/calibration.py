"""Calibrations: options of all commands that take one, and pam calibration: to show one, to make one."""

from pathlib import Path
from typing import Literal

from pamcli.cli import parsing
from pamcli.cli.console import as_options
from pamcli.cli.groups import OptionGroup, argument, command, flag, group, option
from pamcli.cli.options import JSON, Limit, Messages, NewFile, Quiet
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.files.suffixes import PackedLayout

Extrinsics = Literal["transform", "pose", "rows", "position"]
app = group("Calibrations of stereo cameras.")
FISHEYE = flag("Take the coefficients in an OpenCV file as those of its fisheye model.")
EXTRINSICS = option(
    "How R and T lead to the right camera: transform (x2 = R x1 + T), pose (x1 = R x2 + T), rows "
    "(x2 = x1 R + T), position (x2 = R (x1 - T)).",
    default="transform",
)
UNIT = option(
    "Unit of the file's lengths where it states none: mm, cm, m, or 25mm for board squares.",
    metavar="LENGTH",
    parse=parsing.length,
)
CAMERAS = option(
    "Take these cameras of a file that has several as left and right; 1:0 exchanges two.",
    metavar="L:R",
    parse=parsing.cameras,
)


class Files(OptionGroup, panel="Calibration"):
    """A calibration in files."""

    calibration: list[str] | None = option(
        "Read the calibration from a file of OpenCV, ROS, Kalibr, ZED, RealSense, MATLAB, COLMAP, "
        "KITTI ... (pam guide calibration-files). Once for each file: left and right camera, or intrinsics "
        "and extrinsics.",
        metavar="FILE",
    )
    cameras: tuple[int, int] | None = CAMERAS
    baseline: float | None = option(
        "Take this distance of the cameras instead of the file's, as in 120mm; a bare number means metres.",
        metavar="LENGTH",
        parse=parsing.length,
    )
    unit: float | None = UNIT


class Cameras(Files):
    """The calibration of rectified pictures, in files or by hand."""

    focal: float | None = option("Focal length of the rectified pictures.", metavar="PX")
    doffs: float | None = option(
        "x of the right principal point minus that of the left one.", metavar="PX", parse=parsing.number
    )
    principal_point: tuple[float, float] | None = option(
        "Principal point of the left image [default: the file's, else the image centre].",
        metavar="X,Y",
        parse=parsing.point,
    )


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
    $ pam calibration show rig.yaml --json
    """
    console = messages.console(jsonl=json)
    from pamcli.batch.metres import finish_calibration, read_description

    reading = read_description(files, cameras, None, fisheye, extrinsics, unit)
    stored = finish_calibration(files, *reading)
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
    from pamcli.batch.calibrating import BoardPictures, calibrate

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
