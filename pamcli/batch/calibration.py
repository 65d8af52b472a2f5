"""Calibrate two cameras from images or videos of a board."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pamcli.batch import LOG
from pamcli.batch.frames import FramePairs, pair_messages
from pamcli.batch.jobs import EMPTY_NAME, PACKED_HINT, are_videos
from pamcli.batch.processing import read_views
from pamcli.calibration.board_calibration import BoardCalibration, calibrate_rig
from pamcli.calibration.boards import Board
from pamcli.calibration.files import encode_rig
from pamcli.calibration.geometry import Pixels
from pamcli.calibration.report import (
    collect_facts,
    find_dark_regions,
    format_facts,
    list_advice,
    select_file_facts,
)
from pamcli.calibration.sightings import (
    SAMPLED_MOMENTS,
    FramePair,
    Rejection,
    SightingCollector,
    VideoClip,
    open_videos,
    select_diverse,
)
from pamcli.errors import InputError, UsageError
from pamcli.files.pairing import PairPaths, resolve_packed, resolve_pairs
from pamcli.files.paths import are_packed, is_recording, join_names, quote
from pamcli.files.suffixes import PackedLayout
from pamcli.imaging.images import RgbImage
from pamcli.imaging.stereo_pair import StereoPair, split_packed
from pamcli.settings.options import Place
from pamcli.settings.shared import MAX_PIXELS


@dataclass(frozen=True)
class Moment:
    """The images that both cameras took at one moment, or the error in reading them."""

    name: str
    pair: StereoPair | InputError
    following: Pixels | None = None
    """The next frame of the left camera's video."""


SHOWN = 8
"""Pairs and tips that `Calibrated.lines` lists; `facts` has all."""


class BoardImages:
    """Images of a board from both cameras, read one moment at a time."""

    def __init__(
        self, inputs: Sequence[Place], packed: PackedLayout | None = None, max_pixels: int | None = MAX_PIXELS
    ) -> None:
        """Find two folders, templates or videos, or one that holds both views in the layout `packed`.

        Raises UsageError, InputError. Suspected problems are logged.
        """
        texts = [*map(str, inputs)]
        if "" in texts:
            raise UsageError("LEFT RIGHT is empty", EMPTY_NAME)
        self.layout, self.max_pixels = packed or ("auto" if are_packed(texts) else None), max_pixels
        self.clip: VideoClip | None = None
        self.pairs: Sequence[PairPaths] = ()
        self.recording: Any = None
        if len(texts) == 1 and is_recording(texts[0]):
            frames = pair_messages(texts[0]).pairs
            assert isinstance(frames, FramePairs)
            self.pairs, self.recording = frames.spread(SAMPLED_MOMENTS), frames.recording
            return
        if len(texts) != (2 if self.layout is None else 1):
            raise UsageError(
                f"LEFT RIGHT must be two folders, templates or videos, got {join_names(texts)}",
                "pass a single one with `packed`",
            )
        if are_videos(texts):
            self.clip = self._open_clip([*map(Path, texts)])
            return
        try:
            packed_ones = self.layout is not None
            found = resolve_packed(texts, by_suffix=not packed) if packed_ones else resolve_pairs(*texts)
        except UsageError as error:
            if "`pairs`" not in (error.hint or ""):
                raise
            hint = "give both images of a pair the same name, for example with links (ln -s)"
            raise UsageError(error.message, hint) from error
        if found.unpaired:
            LOG.warning("ignored, without a partner: %s", join_names(found.unpaired))
        self.pairs = tuple(found.pairs)

    def _open_clip(self, paths: list[Path]) -> VideoClip:
        if self.layout == "auto":
            raise UsageError("the layout of a video must be stated", PACKED_HINT)
        found = open_videos(paths[0], paths[1] if len(paths) > 1 else None)
        if found.warning:
            LOG.warning(found.warning)
        return found

    def __len__(self) -> int:
        """Return the number of moments, approximate for a video."""
        return len(self.pairs) if self.clip is None else self.clip.count

    def __iter__(self) -> Iterator[Moment]:
        for pair in self.pairs:
            yield self._read_moment(pair)
        for frame in self.clip.moments if self.clip else ():
            yield self._read_moment(frame)

    def _read_moment(self, moment: PairPaths | FramePair) -> Moment:
        name = moment.name if not isinstance(moment, PairPaths) else quote(moment.key or moment.left.name)
        try:
            if isinstance(moment, PairPaths):
                if moment.frames is not None:
                    pair = self.recording.read(moment.frames, max_pixels=self.max_pixels, rectify=False)
                    return Moment(name, pair)
                return Moment(name, read_views(moment, self.layout, self.max_pixels, same_size=False))
            pair, following = self._read_pair(name, moment.left, moment.right), moment.following
            if following is not None and moment.right is None:
                following = self._read_pair(name, following, None).left.pixels
            return Moment(name, pair, following)
        except InputError as error:
            return Moment(name, error)

    def _read_pair(self, name: str, left: Pixels, right: Pixels | None) -> StereoPair:
        if right is not None:
            return StereoPair(RgbImage(left), RgbImage(right), name)
        return split_packed(RgbImage(left), self.layout or "lr", name)


@dataclass(frozen=True)
class Calibrated:
    """A new calibration, and its report."""

    made: BoardCalibration
    board: Board
    found: SightingCollector
    """The detected boards."""
    left_out: Sequence[Rejection]
    """Unused pairs, with the reasons."""
    tips: Sequence[str]
    """Advice on how to improve the calibration."""

    def facts(self) -> dict[str, Any]:
        """Return the quality of the calibration in px, m and shares."""
        return collect_facts(self.made, self.board, self.left_out, self.tips)

    def file(self) -> bytes:
        """Return the calibration as OpenCV's YAML."""
        return encode_rig(self.made.rig, select_file_facts(self.made, self.board))

    def lines(self) -> list[str]:
        """Return a report: quality, unused pairs, and tips."""
        said = [f"{name:<24}{value}" for name, value in format_facts(self.facts())]
        left_out = [f"{each.name}: {each.reason}" for each in self.left_out]
        for title, items in (("not used", left_out), ("to improve it", self.tips)):
            if items:
                said += [f"{title}:", *(f"  {item}" for item in items[:SHOWN])]
            if len(items) > SHOWN:
                said.append(f"  and {len(items) - SHOWN} more (--json names all)")
        return said

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


def calibrate(
    images: BoardImages,
    board: Board,
    *,
    fisheye: bool = False,
    tip: Callable[[str], str] = str,
    advance: Callable[[], None] = lambda: None,
) -> Calibrated:
    """Calibrate two cameras from images of a board.

    Args:
        images: Images of the board.
        board: The board.
        fisheye: Whether to fit OpenCV's fisheye model.
        tip: Converts the text of a tip.
        advance: Called after each moment.

    Raises InputError if no image shows the board, sizes differ, or the boards are too few.
    """
    found = SightingCollector(board)
    for moment in images:
        if isinstance(moment.pair, InputError):
            found.reject(moment.name, moment.pair)
        else:
            found.add(moment.name, moment.pair.left.pixels, moment.pair.right.pixels, moment.following)
        advance()
    size, sightings = found.require_sightings(), found.sightings
    if images.clip is not None:
        sightings = select_diverse(sightings, size)
    if len(sightings) < len(found.sightings):
        LOG.info(f"the {len(sightings)} most different of {len(found.sightings)} detected boards are used")
    made = calibrate_rig(sightings, board, size, fisheye=fisheye)
    tips = [tip(each) for each in list_advice(made, [find_dark_regions(each) for each in found.brightest])]
    return Calibrated(made, board, found, [*made.rejections, *found.rejections], tips)
