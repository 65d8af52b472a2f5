"""Looking for a board in one pair of pictures after the other, and what is kept of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.board_videos import STILL, motion
from pamcli.calibration.boards import FEWEST, Board, Finder, Grey, finder_for, other_boards
from pamcli.calibration.making import LeftOut, Sighting
from pamcli.errors import InputError
from pamcli.imaging.images import to_uint8
from pamcli.imaging.matching import to_grey

SHOWN = 640
"""Pixels of the longer side of the pictures that are kept."""
BRIGHTNESS = 60
"""Pixels of the longer side of what is kept of the brightness."""
COUNTED = 4
"""Images in which a chessboard's corners are counted: a smaller board is found in a larger one, too."""
LOOKED_AGAIN = 12
"""Pictures without a board that are looked at for another board, where there is none at all."""


class Collector:
    """Sightings of a board, collected from one pair of pictures after the other."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.sightings: list[Sighting] = []
        self.left_out: list[LeftOut] = []
        self.pictures: dict[str, tuple[Grey, Grey]] = {}
        """Small pictures (h, w) of each sighting, by its name."""
        self.brightest: list[Grey] = []
        """Brightest level that each place ever had, a very small picture for each camera."""
        self.size: tuple[int, int] | None = None
        """(width, height) of the pictures."""
        self.count = 0
        self._finder: Finder | None = None
        self._without: list[Grey] = []
        self._counted: list[Grey] = []

    def add(
        self, name: str, left: NDArray[Any], right: NDArray[Any], following: NDArray[Any] | None = None
    ) -> None:
        """Look at one pair, (H, W, 3) RGB, uint8 or uint16. following: the left video's next frame.

        Raises InputError: pictures of another size than those before.
        """
        size = left.shape[1], left.shape[0]
        if self.size not in (None, size):
            raise InputError(
                f"{name} has {size[0]} x {size[1]} pixels, others {self.size[0]} x {self.size[1]}",
                "take the pictures of one calibration at one size",
            )
        self.size = size
        self.count += 1
        views = [_grey(view) for view in (left, right)]
        small = [_small(view, BRIGHTNESS) for view in views]
        before = self.brightest or small
        self.brightest = [np.maximum(one, two) for one, two in zip(before, small, strict=True)]
        self._finder = self._finder or finder_for(self.board, views)
        if self._finder is None and len(self._without) < LOOKED_AGAIN:
            self._without += views
        one, two = (self._finder.find(view) if self._finder else None for view in views)
        if self.board.marker is None and len(self._counted) < COUNTED:
            self._counted += [view for view, seen in zip(views, (one, two), strict=True) if seen]
            if len(self._counted) >= COUNTED:
                self._require_count()
        if one is None and two is None:
            least = "the whole board" if self.board.marker is None else f"{FEWEST} corners of the board"
            self.left_out.append(LeftOut(name, f"neither picture shows {least}"))
            return
        if following is not None and one is not None:
            moved = motion(views[0], _grey(following), one.corners.pixels)
            if moved > STILL:
                how = f"moving: by {moved:.0f} px from one frame to the next"
                self.left_out.append(LeftOut(name, how))
                return
        self.sightings.append(Sighting(name, one, two))
        self.pictures[name] = _small(views[0], SHOWN), _small(views[1], SHOWN)

    def _require_count(self) -> None:
        """Raise InputError where most images show a board with other counts than those given."""
        if (other := other_boards(self.board, self._counted)) is not None:
            raise InputError(
                f"the board is not one of {self.board.columns}x{self.board.rows} inner corners",
                f"it has {other.columns}x{other.rows}: `board` {other.columns}x{other.rows}",
            )

    def failed(self, name: str, error: InputError) -> None:
        """A pair that cannot be read."""
        self.count += 1
        self.left_out.append(LeftOut(name, str(error)))

    def require_any(self) -> tuple[int, int]:
        """The size of the pictures. Raises InputError where no picture shows the board."""
        if self.sightings and self.size is not None:
            if len(self._counted) < COUNTED:
                self._require_count()
            return self.size
        if self.size is None:
            first = f": {self.left_out[0].reason}" if self.left_out else ""
            raise InputError(f"no pair of pictures could be read{first}")
        hint = "`board` counts the inner corners of a chessboard, but the squares of a ChArUco board"
        if (other := other_boards(self.board, self._without)) is not None:
            hint = f"they show one of {other.columns}x{other.rows}: `board` {other.columns}x{other.rows}"
        raise InputError(f"no {self.board.kind} is in the {self.count} pairs of pictures", hint)


def _grey(view: NDArray[Any]) -> Grey:
    return to_grey(np.ascontiguousarray(to_uint8(view)))


def _small(view: Grey, side: int) -> Grey:
    import cv2

    scale = min(1.0, side / max(view.shape))
    size = (max(1, round(view.shape[1] * scale)), max(1, round(view.shape[0] * scale)))
    return np.asarray(cv2.resize(view, size, interpolation=cv2.INTER_AREA), np.uint8)
