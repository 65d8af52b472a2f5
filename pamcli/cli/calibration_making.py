"""pam calibration make: a rig's calibration from pictures, or videos, of a board."""

from collections.abc import Sequence
from pathlib import Path

from pamcli.cli import options, parsing
from pamcli.cli.console import as_options
from pamcli.cli.groups import OptionGroup, argument, flag, option
from pamcli.cli.options import JSON, check_new_file
from pamcli.files.atomic import write_atomically
from pamcli.files.suffixes import PackedLayout

NAMED = 8
"""Pairs that are named of those that are left out; the JSON names all."""


class Boards(options.Limit, panel="Input"):
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
        "Take a square's side for so long, as in 25mm: all distances are as true as it is. Measure ten "
        "squares at once.",
        default=...,
        metavar="LENGTH",
        parse=parsing.length,
    )
    marker: float | None = option(
        "Take the board for a ChArUco board with markers of this side, as in 18mm. Its dictionary is "
        "recognised.",
        metavar="LENGTH",
        parse=parsing.length,
    )
    fisheye: bool = flag("Fit fisheye lenses (OpenCV's model of four coefficients).")
    packed: PackedLayout | None = option(
        "Take both views from one picture, or one video: lr, rl, tb, bt, -half as for pam disparity."
    )


class Outputs(OptionGroup, panel="Output"):
    """Files that the calibration goes to."""

    output: Path = option(
        "Write the calibration here, as OpenCV's YAML (.yaml).", "-o", "--output", default=..., metavar="FILE"
    )
    page: Path | None = option(
        "Write a page (.html) with the corners, the coverage of the pictures, and a rectified pair.",
        metavar="FILE",
    )
    overwrite: bool = flag("Replace files that exist.")
    json: bool = JSON


def command(boards: Boards, output: Outputs, messages: options.Quiet) -> None:
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
        from pamcli.calibration.report import report_lines
    board = Board(*boards.board, boards.square, boards.marker)
    with console.progress("pairs", len(pictures)) as bar:
        found = calibrate(pictures, board, fisheye=boards.fisheye, tip=as_options, advance=bar.advance)
    facts = found.facts()
    lines = report_lines(facts)
    write_atomically(output.output, found.file())
    if output.page is not None:
        write_atomically(output.page, found.page(output.output.name, lines))
    written = [str(path) for path in (output.output, output.page) if path is not None]
    text = [f"{name:<24}{value}" for name, value in lines]
    text += _listing("left out", [f"{each.name}: {each.reason}" for each in found.left_out])
    text += _listing("to improve it", found.tips)
    console.answer({"written": written, **facts}, *written, *text)


def _listing(title: str, items: Sequence[str]) -> list[str]:
    more = [f"  and {len(items) - NAMED} more (--json names all)"] if len(items) > NAMED else []
    return [f"{title}:", *(f"  {item}" for item in items[:NAMED]), *more] if items else []
