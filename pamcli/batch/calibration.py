"""Calibrate two cameras from images or videos of a board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs, pair_frames, pair_messages
from pamcli.batch.plan import EMPTY_NAME, PACKED_HINT, are_videos
from pamcli.batch.processing import PairReader
from pamcli.calibration.board_calibration import BoardCalibration, calibrate_rig
from pamcli.calibration.boards import Board
from pamcli.calibration.files import encode_rig
from pamcli.calibration.report import (
    collect_facts,
    find_dark_regions,
    format_facts,
    list_advice,
    select_file_facts,
)
from pamcli.calibration.sightings import SAMPLED_MOMENTS, Rejection, SightingCollector, select_diverse
from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import resolve_packed, resolve_pairs
from pamcli.files.paths import are_packed, is_recording, join_names, quote
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.packed_views import split_packed

MOST_SHOWN = 8  # pairs and tips that `Calibrated.lines` lists; `facts` has all


class BoardImages(PairReader):
    """Images of a board from both cameras, read one pair at a time."""

    def __init__(self, inputs: Sequence[str], packed: PackedLayout | None, max_pixels: int | None) -> None:
        """Find two folders, templates or videos, or one that holds both views in the layout `packed`.

        Raises UsageError, InputError. Suspected problems are logged.
        """
        texts = [*inputs]
        if "" in texts:
            raise UsageError("LEFT RIGHT is empty", EMPTY_NAME)
        layout: PackedLayout | None = packed or ("auto" if are_packed(texts) else None)
        self.max_pixels, self.packed, self.rectifies_recording, self.same_size = (
            max_pixels,
            layout,
            False,
            False,
        )
        if len(texts) == 1 and is_recording(texts[0]):
            found = pair_messages(texts[0])
        elif len(texts) != (2 if layout is None else 1):
            raise UsageError(
                f"LEFT RIGHT must be two folders, templates or videos, got {join_names(texts)}",
                "pass a single one with `packed`",
            )
        elif are_videos(texts):
            if layout == "auto":
                raise UsageError("the layout of a video must be stated", PACKED_HINT)
            found = pair_frames(texts)
        elif layout is not None:
            found = resolve_packed(texts, by_suffix=not packed)
        else:
            try:
                found = resolve_pairs(*texts)
            except UsageError as error:
                if "`pairs`" not in (error.hint or ""):
                    raise
                hint = "give both images of a pair the same name, for example with links (ln -s)"
                raise UsageError(error.message, hint) from error
        if found.unpaired:
            LOG.warning("ignored, without a partner: %s", join_names(found.unpaired))
        self.pairs, self.are_frames = found.pairs, False
        if isinstance(found.pairs, FramePairs):
            self.pairs, self.recording = found.pairs.spread(SAMPLED_MOMENTS), found.pairs.recording
            self.are_frames = found.pairs.recording is None
            """True for videos, of which only the most different moments are used."""

    def __len__(self) -> int:
        return len(self.pairs)

    def find_boards(self, board: Board, advance: Callable[[], None]) -> SightingCollector:
        """Detect the board in each pair; reject images that cannot be read. Raises InputError."""
        found = SightingCollector(board)
        for pair in self.pairs:
            name, following = quote(pair.key or pair.left.name), None
            try:
                video, number = None, 0
                if pair.frames is not None and self.recording is None:
                    video, number = self.input_videos[pair.left], pair.frames[0]
                    name = f"frame {number} ({video.times[number]:.1f} s)"
                views = self.read_views(pair)
                if video is not None and number + 1 < len(video.stamps):
                    after = video.frame(number + 1)  # decoded last: frames are read in ascending order
                    after = after if pair.right else split_packed(after, self.packed or "lr", name).left
                    following = after.pixels
            except InputError as error:
                found.reject(name, error)
            else:
                found.add(name, views.left.pixels, views.right.pixels, following)
            advance()
        return found


@dataclass(frozen=True)
class Calibrated:
    """A new calibration, and its report."""

    made: BoardCalibration
    board: Board
    found: SightingCollector  # the detected boards
    left_out: Sequence[Rejection]  # unused pairs, with the reasons
    tips: Sequence[str]  # advice on how to improve the calibration

    def facts(self) -> dict[str, Any]:
        """Return the quality of the calibration in px, m and shares."""
        return collect_facts(self.made, self.board, self.left_out, self.tips)

    def file(self) -> bytes:
        """Return the calibration as OpenCV's YAML."""
        return encode_rig(self.made.rig, select_file_facts(self.made, self.board))

    def lines(self) -> list[str]:
        """Return a report: quality, unused pairs, and tips."""
        lines = [f"{name:<24}{value}" for name, value in format_facts(self.facts())]
        left_out = [f"{each.name}: {each.reason}" for each in self.left_out]
        for title, items in (("not used", left_out), ("to improve it", self.tips)):
            if items:
                lines += [f"{title}:", *(f"  {item}" for item in items[:MOST_SHOWN])]
            if len(items) > MOST_SHOWN:
                lines.append(f"  and {len(items) - MOST_SHOWN} more (--json names all)")
        return lines

    def page(self, title: str) -> bytes:
        """Return an HTML page with the corners, the coverage and a rectified pair."""
        from pamcli.viewing.calibration_page import render_calibration

        return render_calibration(
            title,
            self.made,
            images=self.found.images,
            lines=format_facts(self.facts()),
            rejections=self.left_out,
            advice=self.tips,
        )


def fit_boards(
    found: SightingCollector, *, fisheye: bool, tip: Callable[[str], str], thin: bool = False
) -> Calibrated:
    """Calibrate two cameras from detected boards.

    Args:
        found: The boards in images of both cameras.
        fisheye: Whether to fit OpenCV's fisheye model.
        tip: Converts the text of a tip.
        thin: Whether to use only the most different boards.

    Raises InputError if no image shows the board, sizes differ, or the boards are too few.
    """
    size, sightings = found.require_sightings(), found.sightings
    if thin:
        sightings = select_diverse(sightings, size)
    if len(sightings) < len(found.sightings):
        LOG.info(f"the {len(sightings)} most different of {len(found.sightings)} detected boards are used")
    made = calibrate_rig(sightings, found.board, size, fisheye=fisheye)
    tips = [tip(each) for each in list_advice(made, [find_dark_regions(each) for each in found.brightest])]
    return Calibrated(made, found.board, found, [*made.rejections, *found.rejections], tips)
