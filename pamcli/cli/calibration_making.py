"""pam calibration make: a rig's calibration from pictures, or videos, of a board."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamcli.cli import options, parsing
from pamcli.cli.console import Console, as_options
from pamcli.cli.groups import OptionGroup, argument, flag, option
from pamcli.cli.options import JSON, check_new_file
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import counted, listed, shown
from pamcli.files.pairing import PairName, hold_both_views, resolve_packed, resolve_pairs
from pamcli.files.suffixes import VIDEO_SUFFIXES, PackedLayout

if TYPE_CHECKING:
    from pamcli.calibration.board_videos import Moment
    from pamcli.imaging.stereo_pair import StereoPair

NAMED = 8
"""Pairs that are named of those that are left out; the JSON names all."""


class Boards(options.Limit, panel="Input"):
    """Pictures of the board, and what the board is. Raises UsageError."""

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

    @property
    def videos(self) -> bool:
        """Tell whether all inputs are videos. Raises UsageError where one of two is."""
        found = [Path(text).suffix.lower() in VIDEO_SUFFIXES for text in self.inputs]
        if any(found) and not all(found):
            raise UsageError(f"of {listed(self.inputs)} one is a video, the other one is none")
        return all(found)

    def moments(self, console: Console) -> tuple[int, Iterator[_Moment]]:
        """Number of moments, about, and the pictures of each. Raises UsageError, InputError."""
        both = self.packed is not None or hold_both_views(self.inputs)
        if len(self.inputs) != (1 if both else 2):
            raise UsageError(
                f"LEFT RIGHT are {counted(len(self.inputs), 'place')}, {listed(self.inputs)}",
                "two folders, templates or videos; one with --packed",
            )
        if self.videos:
            return self._frames(console)
        if both:
            found = resolve_packed(self.inputs, by_suffix=self.packed is None)
        else:
            found = resolve_pairs(*self.inputs)
        if found.unpaired:
            alone = f"{counted(len(found.unpaired), 'picture')} without a partner"
            console.warn(f"{alone}: {listed(found.unpaired)}")
        pairs = found.pairs
        return len(pairs), (
            _Moment(shown(pair.key or pair.left.name), partial(self._read, pair)) for pair in pairs
        )

    def _read(self, pair: PairName) -> StereoPair:
        from pamcli.imaging.stereo_pair import read_packed_pair, read_pair

        if pair.right is not None:
            return read_pair(pair.left, pair.right, max_pixels=self.max_pixels)
        layout = self.packed or "auto"
        return read_packed_pair(pair.left, layout, max_pixels=self.max_pixels, name=shown(pair.left))

    def _frames(self, console: Console) -> tuple[int, Iterator[_Moment]]:
        from pamcli.calibration.board_videos import clip

        if self.packed == "auto":
            raise UsageError("a video does not say how it holds both views", "--packed lr, rl, tb or bt")
        for path in (paths := list(map(Path, self.inputs))):
            if not path.is_file():
                raise InputError(f"no such file: {shown(path)}")
        found = clip(paths[0], paths[1] if len(paths) > 1 else None)
        if found.warning:
            console.warn(found.warning)
        return found.count, (
            _Moment(
                frame.name,
                partial(self._views, frame.name, frame.left, frame.right),
                partial(self._next, frame),
            )
            for frame in found.moments
        )

    def _views(self, name: str, left: Any, right: Any) -> StereoPair:
        from pamcli.imaging.images import Picture
        from pamcli.imaging.stereo_pair import StereoPair, halved

        if right is not None:
            return StereoPair(Picture(left), Picture(right), name)
        return halved(Picture(left), self.packed or "lr", name)

    def _next(self, frame: Moment) -> Any:
        """The left view of the frame behind it; None: there is none."""
        if frame.following is None or frame.right is not None:
            return frame.following
        return self._views(frame.name, frame.following, None).left.pixels


@dataclass(frozen=True)
class _Moment:
    """Two pictures of one time, not read yet; of a video also the left one's next frame."""

    name: str
    read: Callable[[], StereoPair]
    following: Callable[[], Any] | None = None


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
    if "" in boards.inputs:
        raise parsing.empty("LEFT RIGHT")
    check_new_file(output.output, ".yaml", ".yml", overwrite=output.overwrite)
    if output.page is not None:
        check_new_file(output.page, ".html", overwrite=output.overwrite, option="--page")
    total, moments = boards.moments(console)
    with console.starting("OpenCV"):
        from pamcli.calibration.advice import advice, dark_regions
        from pamcli.calibration.board_videos import spread
        from pamcli.calibration.boards import Board
        from pamcli.calibration.collecting import Collector
        from pamcli.calibration.files import encode_rig
        from pamcli.calibration.making import make
        from pamcli.calibration.report import calibration_facts, report_lines, stored_facts
    board = Board(*boards.board, boards.square, boards.marker)
    found = Collector(board)
    with console.progress("pairs", total) as bar:
        for moment in moments:
            try:
                pair = moment.read()
            except InputError as error:
                found.failed(moment.name, error)
            else:
                following = moment.following() if moment.following else None
                found.add(moment.name, pair.left.pixels, pair.right.pixels, following)
            bar.advance()
    size = found.require_any()
    sightings = spread(found.sightings, size) if boards.videos else found.sightings
    if len(sightings) < len(found.sightings):
        console.inform(
            f"{len(found.sightings)} boards were found, the {len(sightings)} that differ most are taken"
        )
    made = make(sightings, board, size, fisheye=boards.fisheye)
    tips = [as_options(tip) for tip in advice(made, [dark_regions(each) for each in found.brightest])]
    left_out = [*made.left_out, *found.left_out]
    facts = calibration_facts(made, board, left_out, tips)
    lines = report_lines(facts)
    write_atomically(output.output, encode_rig(made.rig, stored_facts(made, board)))
    if output.page is not None:
        from pamcli.viewing.calibration_page import render_calibration

        page = render_calibration(
            output.output.name,
            made,
            board,
            pictures=found.pictures,
            lines=lines,
            left_out=left_out,
            tips=tips,
        )
        write_atomically(output.page, page)
    written = [str(path) for path in (output.output, output.page) if path is not None]
    text = [f"{name:<24}{value}" for name, value in lines]
    text += _listing("left out", [f"{each.name}: {each.reason}" for each in left_out])
    text += _listing("to improve it", tips)
    console.answer({"written": written, **facts}, *written, *text)


def _listing(title: str, items: list[str]) -> list[str]:
    more = [f"  and {len(items) - NAMED} more (--json names all)"] if len(items) > NAMED else []
    return [f"{title}:", *(f"  {item}" for item in items[:NAMED]), *more] if items else []
