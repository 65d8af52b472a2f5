"""Examine and calibrate cameras while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pamcli.calibration.board_calibration import SHARP
from pamcli.calibration.boards import Board
from pamcli.calibration.description import StoredCalibration
from pamcli.calibration.examination import examine
from pamcli.calibration.report import ENOUGH_BOARDS, ENOUGH_PAIRS, SIDES, count_boards, find_dark_regions
from pamcli.calibration.sightings import (
    MOST_SIGHTINGS,
    Sighting,
    SightingCollector,
    find_outline,
    measure_motion,
)
from pamcli.imaging.preflight import Finding
from pamcli.settings.live import LiveSettings
from pamcli.streams.live import LivePair, iterate_pairs

AT_REST = 1.0  # px, largest motion of the corners since the image before
AS_SHARP = 1.5  # largest width of the edges, relative to the sharpest board
MOST_SAID = 3  # parts of the images that a message names
ELSEWHERE = 0.1  # smallest distance of the outline to those taken, as a part of the image width


def examine_pairs(settings: LiveSettings) -> Iterator[list[Finding]]:
    """Yield what `pam doctor` finds in the newest pair, again and again. Raises InputError, UsageError."""
    for pair in iterate_pairs(settings):
        known = pair.calibration
        stored = None if known is None else StoredCalibration("live", rectified=known)
        yield examine(pair.left, pair.right, stored)


class BoardTaker:
    """Takes boards that are sharp, still and somewhere new, until all parts of both images have seen some."""

    def __init__(self, board: Board) -> None:
        self.found = SightingCollector(board)
        self.sharpest = SHARP
        self._before: list[np.ndarray] = []
        """The grey images before."""

    def offer(self, pair: LivePair) -> str | None:
        """Take the board of a pair; return None, or why it is not taken. Raises InputError."""
        sighting, views = self.found.search(f"frame {pair.number}", pair.left, pair.right)
        before, self._before = self._before, views
        if not sighting.detections:
            return "no board in either image"
        moved = 0.0 if before else np.inf
        for seen, now, then in zip((sighting.left, sighting.right), views, before, strict=False):
            if seen is not None:
                moved = max(moved, measure_motion(now, then, seen.corners.pixels))
        if moved > AT_REST:
            return "hold the board still"
        blur = max(each.blur for each in sighting.detections)
        self.sharpest = min(self.sharpest, blur)
        if blur > AS_SHARP * self.sharpest:
            return "the board is blurred: use more light, or focus"
        if self._measure_distance(sighting) < ELSEWHERE:
            return "taken: show the board elsewhere, nearer, farther or tilted"
        self.found.keep(sighting, views)
        return None

    def _measure_distance(self, sighting: Sighting) -> float:
        """Return the distance of the outline to that of the nearest board taken, in image widths."""
        assert self.found.size is not None
        outline = find_outline(sighting, self.found.size)
        others = [each for each in self.found.sightings if each.both >= sighting.both]
        distances = (outline - find_outline(each, self.found.size) for each in others)
        return min(map(float, map(np.linalg.norm, distances)), default=np.inf)

    @property
    def missing(self) -> list[str]:
        """The parts of both images that lack boards, with the number that they need."""
        assert self.found.size is not None
        lacking = []
        for camera, side in enumerate(SIDES):
            seen = ((each.left, each.right)[camera] for each in self.found.sightings)
            boards = [each.corners for each in seen if each is not None]
            dark = find_dark_regions(self.found.brightest[camera])
            counts = count_boards(boards, self.found.size)
            lacking += [
                f"{region} of the {side} image ({ENOUGH_BOARDS - count})"
                for region, count in counts.items()
                if count < ENOUGH_BOARDS and region not in dark
            ]
        return lacking

    @property
    def is_complete(self) -> bool:
        """True if the boards suffice."""
        pairs = sum(each.both for each in self.found.sightings)
        return pairs >= MOST_SIGHTINGS or (pairs >= ENOUGH_PAIRS and not self.missing)


def take_boards(settings: LiveSettings, board: Board, say: Callable[[str], None]) -> BoardTaker:
    """Take boards until they suffice, `count` are taken, the sources end, or Ctrl-C; say what to do.

    Raises InputError.
    """
    taker, said = BoardTaker(board), ""
    try:
        for pair in iterate_pairs(settings):
            problem = taker.offer(pair)
            count = len(taker.found.sightings)
            if problem is None:
                missing = taker.missing
                more = f" and {len(missing) - MOST_SAID} more" if len(missing) > MOST_SAID else ""
                say(f"board {count} taken; missing: {', '.join(missing[:MOST_SAID]) or 'nothing'}{more}")
            elif problem != said:
                say(problem)
            said = problem or ""
            if taker.is_complete or count == settings.count:
                break
    except KeyboardInterrupt:
        if not taker.found.sightings:
            raise
    return taker
