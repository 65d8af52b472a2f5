"""Boards in pictures: chessboards and ChArUco boards, their corners to a few hundredths of a pixel.

OpenCV finds them. Its chessboard detector's own places are off by up to a tenth of a pixel where a board is
tilted or the lens bends it, cornerSubPix's by a fortieth, so those are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.fitting import Corners
from pamcli.calibration.rectified import Floats
from pamcli.errors import InputError, UsageError
from pamcli.imaging.matching import downscale_to_uint8

Grey = NDArray[np.uint8]

SEARCHED = 1000
"""Pixels of the longer side to which larger pictures are reduced for the search."""
LARGEST_SQUARE = 2.0
"""Metres of a square's side, beyond which millimetres were meant."""
FEWEST = 8
"""Corners that a camera must see of a ChArUco board, which may be seen in part."""
DICTIONARIES = {
    "4X4_1000": (50, 100, 250, 1000),
    "5X5_1000": (50, 100, 250, 1000),
    "6X6_1000": (50, 100, 250, 1000),
    "7X7_1000": (50, 100, 250, 1000),
    "ARUCO_ORIGINAL": (),
    "ARUCO_MIP_36H12": (),
    "APRILTAG_16H5": (),
    "APRILTAG_25H9": (),
    "APRILTAG_36H10": (),
    "APRILTAG_36H11": (),
}
"""Dictionaries of OpenCV, the larger of each family, and how many markers the smaller ones have, which begin
as it does."""


NOTHING = np.zeros(0, np.intp), np.zeros((0, 2))
"""Numbers and places of corners, where none is seen."""


@dataclass(frozen=True)
class Board:
    """A board and its size in metres. Raises InputError: too few squares, a marker that fills its square."""

    columns: int
    rows: int
    """Columns and rows: inner corners of a chessboard, squares of a ChArUco board, as OpenCV counts them."""
    square: float
    """Metres: a side of a square."""
    marker: float | None = None
    """Metres: a side of a ChArUco board's marker; None = a chessboard."""

    def __post_init__(self) -> None:
        least = 3 if self.marker is None else 2  # of what OpenCV finds
        if min(self.grid) < least or max(self.grid) < 3:
            raise InputError(
                f"a board of {self.columns} x {self.rows} has {self.grid[0]} x {self.grid[1]} inner corners",
                f"it takes 3 x {least} at least",
            )
        if self.square > LARGEST_SQUARE:
            raise UsageError(
                f"a square of {self.square:g} m is unlikely",
                "`square` takes a unit, as in 25mm; without one it means metres",
            )
        if self.marker is not None and not 0 < self.marker < self.square:
            raise InputError(
                "the marker is not smaller than the square", "give sides in `marker` and `square`"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Columns and rows of the inner corners."""
        less = 0 if self.marker is None else 1
        return self.columns - less, self.rows - less

    @cached_property
    def points(self) -> Floats:
        """(N, 3) metres: the inner corners, row by row, in the board's coordinates."""
        x, y = np.meshgrid(np.arange(self.grid[0]), np.arange(self.grid[1]))
        return np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3).astype(np.float64) * self.square

    def turned(self, upright: bool) -> Board:
        """Return the board with its longer side down if upright, else across."""
        sides = sorted((self.columns, self.rows), reverse=not upright)
        return replace(self, columns=sides[0], rows=sides[1])

    @property
    def kind(self) -> str:
        name = "chessboard" if self.marker is None else "ChArUco board"
        return f"{name} of {self.columns} x {self.rows}"


@dataclass(frozen=True)
class Found:
    """A board in a picture."""

    corners: Corners
    blur: float
    """Pixels: the width of its edges, in the direction in which they are wider."""


class Finder:
    """Looks for one board in pictures."""

    def __init__(self, board: Board, dictionary: str | None = None, old: bool = False) -> None:
        """dictionary: the name of the markers', of `DICTIONARIES`. old: the first square is white, as in
        boards of OpenCV before 4.6 with an even number of rows."""
        import cv2

        self.board, self.detector = board, None
        if board.marker is not None and dictionary is not None:
            markers = cv2.aruco.getPredefinedDictionary(_number(dictionary, board))
            size = (board.columns, board.rows)
            layout = cv2.aruco.CharucoBoard(size, board.square, board.marker, markers)
            layout.setLegacyPattern(old)
            self.detector = cv2.aruco.CharucoDetector(layout)

    def find(self, picture: Grey) -> Found | None:
        """Find the board in a picture (H, W). None: no board, or not enough of it."""
        ids, pixels = self._marked(picture) if self.board.marker is not None else self._chessboard(picture)
        if not len(ids) or (self.board.marker is not None and len(ids) < FEWEST):
            return None
        grid = self._grid(ids, pixels)
        pixels = _refined(picture, pixels, _reach(grid, self._margin))
        grid = self._grid(ids, pixels)
        if np.linalg.matrix_rank(self.board.points[ids] - self.board.points[ids][0]) < 2:
            return None
        return Found(Corners(ids, pixels), _blur(picture, grid, self._margin))

    @property
    def _margin(self) -> float:
        """Share of a square's side that is of one colour beside an edge."""
        return 0.4 if self.board.marker is None else 0.4 * (1 - self.board.marker / self.board.square)

    def _grid(self, ids: NDArray[np.intp], pixels: Floats) -> Floats:
        """(rows, columns, 2), NaN where a corner was not seen."""
        columns, rows = self.board.grid
        grid = np.full((rows * columns, 2), np.nan)
        grid[ids] = pixels
        return grid.reshape(rows, columns, 2)

    def _chessboard(self, picture: Grey) -> tuple[NDArray[np.intp], Floats]:
        import cv2

        factor = max(1, -(-max(picture.shape) // SEARCHED))
        for step in sorted({factor, 1}, reverse=True):
            small = downscale_to_uint8(picture, step)
            good, found = cv2.findChessboardCornersSB(
                small, self.board.grid, flags=cv2.CALIB_CB_NORMALIZE_IMAGE
            )
            if good:
                pixels = (found.reshape(-1, 2).astype(np.float64) + 0.5) * step - 0.5
                return np.arange(len(pixels)), self._upright(picture, pixels)
        return NOTHING

    def _upright(self, picture: Grey, pixels: Floats) -> Floats:
        """The corners from the dark end of the board on, and never mirrored."""
        columns, rows = self.board.grid
        grid = pixels.reshape(rows, columns, 2)
        (across, down) = grid[0, 1] - grid[0, 0], grid[1, 0] - grid[0, 0]
        if across[0] * down[1] < across[1] * down[0]:
            grid = grid[::-1]
        if (columns + rows) % 2:
            first, last = (
                _level(picture, at[0, 0] - (at[0, 1] - at[0, 0] + at[1, 0] - at[0, 0]) / 2)
                for at in (grid, grid[::-1, ::-1])
            )
            if first > last:
                grid = grid[::-1, ::-1]
        return grid.reshape(-1, 2)

    def _marked(self, picture: Grey) -> tuple[NDArray[np.intp], Floats]:
        if self.detector is None:
            return NOTHING
        found, ids, _, _ = self.detector.detectBoard(picture)
        if found is None or ids is None:
            return NOTHING
        return ids.ravel().astype(np.intp), found.reshape(-1, 2).astype(np.float64)


def aligned(board: Board, left: Corners, right: Corners) -> Corners:
    """The right camera's corners, numbered as the left one's where a chessboard does not tell its ends apart.

    Of the numberings that the board allows, the one in which its rows run the same way in both pictures.
    """
    columns, rows = board.grid
    if board.marker is not None or (columns + rows) % 2:
        return right
    one, two = (each.pixels.reshape(rows, columns, 2) for each in (left, right))
    turns = [two, two[::-1, ::-1]]
    if columns == rows:
        turns += [np.rot90(two), np.rot90(two, -1)]
    towards = one[0, -1] - one[0, 0]
    best = max(turns, key=lambda each: float(towards @ (each[0, -1] - each[0, 0])))
    return Corners(right.ids, np.ascontiguousarray(best).reshape(-1, 2))


def finder_for(board: Board, pictures: Sequence[Grey]) -> Finder | None:
    """Make what finds the board in one of the pictures at least; None: no picture shows such a board.

    A ChArUco board gets the dictionary and the layout with which most corners are found.
    """
    if board.marker is None:
        finder = Finder(board)
        return finder if any(finder.find(picture) for picture in pictures) else None
    for picture in pictures:
        counts = {name: _markers(board, name, picture) for name in DICTIONARIES}
        likely = [name for name, count in counts.items() if count >= max(4, 0.5 * max(counts.values()))]
        tried = [Finder(board, name, old) for name in likely for old in (False, True)]
        found = [(finder, each.corners) for finder in tried if (each := finder.find(picture)) is not None]
        if found:
            return max(found, key=lambda each: len(each[1]))[0]
    return None


def other_boards(board: Board, pictures: Sequence[Grey]) -> Board | None:
    """Return the board that images show instead, whose squares or inner corners were counted otherwise."""
    if board.marker is None:
        seen = Counter(size for size in map(chessboard_size, pictures) if size is not None)
        for size, _ in seen.most_common(1):
            if set(size) != {board.columns, board.rows}:
                return replace(board, columns=size[0], rows=size[1]).turned(board.columns < board.rows)
        return None
    counts = [(board.columns + more, board.rows + extra) for more in (-1, 0, 1) for extra in (-1, 0, 1)]
    for columns, rows in (*counts, (board.rows, board.columns)):
        with suppress(InputError):
            other = replace(board, columns=columns, rows=rows)
            if other != board and finder_for(other, pictures[:2]) is not None:
                return other
    return None


def chessboard_size(picture: Grey) -> tuple[int, int] | None:
    """Return how many inner corners the chessboard in an image (H, W) has, the longer side first."""
    import cv2

    small = downscale_to_uint8(picture, max(1, -(-max(picture.shape) // SEARCHED)))
    flags = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_LARGER
    good, _, corners = cv2.findChessboardCornersSBWithMeta(small, (3, 3), flags)
    return (max(corners.shape[:2]), min(corners.shape[:2])) if good else None


def _markers(board: Board, name: str, picture: Grey) -> int:
    """Count the board's markers that the picture shows."""
    import cv2

    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(_number(name, board)))
    ids = detector.detectMarkers(picture)[1]
    return 0 if ids is None else int(np.count_nonzero(ids < board.columns * board.rows // 2))


def _number(name: str, board: Board) -> int:
    """OpenCV's number of a dictionary, of a family the smallest one that has markers enough."""
    import cv2

    count = board.columns * board.rows // 2
    size = next((size for size in DICTIONARIES[name] if size >= count), None)
    return int(getattr(cv2.aruco, f"DICT_{name if size is None else f'{name[:3]}_{size}'}"))


def _reach(grid: Floats, margin: float) -> int:
    """Pixels to each side of a corner in which nothing but its own four edges is seen."""
    steps = [np.linalg.norm(np.diff(grid, axis=axis), axis=-1) for axis in (0, 1)]
    nearest = min((float(np.nanmin(step)) for step in steps if np.isfinite(step).any()), default=8.0)
    return int(np.clip(margin * nearest, 2, 10))


def _refined(picture: Grey, pixels: Floats, reach: int) -> Floats:
    import cv2

    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
    start = pixels.astype(np.float32).reshape(-1, 1, 2)
    found: Floats = cv2.cornerSubPix(picture, start, (reach, reach), (-1, -1), stop).reshape(-1, 2) * 1.0
    far = np.linalg.norm(found - pixels, axis=1) > reach
    found[far] = pixels[far]
    return found


def _level(picture: Grey, place: Floats) -> float:
    """Mean grey level around a place; of one outside the picture that of its edge."""
    x, y = (
        int(np.clip(round(float(at)), 0, side - 1))
        for at, side in zip(place, picture.shape[::-1], strict=True)
    )
    return float(picture[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].mean())


def _blur(picture: Grey, grid: Floats, margin: float) -> float:
    """Median width of the edges between neighbouring corners, pixels; the larger one of both directions.

    Width: the step in grey levels over the steepest slope. Edges along rows and columns are looked at apart,
    since a moving board smears those alone that it does not move along.
    """
    widths = []
    for axis in (0, 1):
        one, two = (grid[:-1], grid[1:]) if axis == 0 else (grid[:, :-1], grid[:, 1:])
        known = np.isfinite(one).all(axis=-1) & np.isfinite(two).all(axis=-1)
        one, two = one[known], two[known]
        along = two - one
        length = np.linalg.norm(along, axis=1)
        if not len(length):
            continue
        across = np.column_stack([-along[:, 1], along[:, 0]]) / length[:, None]
        half = max(2.0, margin * float(np.median(length)))
        steps = np.arange(-half, half + 0.25, 0.5)
        parts = one[:, None] + np.array([0.35, 0.5, 0.65])[:, None] * along[:, None]
        places = (parts[:, :, None] + across[:, None, None] * steps[:, None]).astype(np.float32)
        profiles = _sampled(picture, places).mean(axis=1)
        rise = np.abs(profiles[:, -2:].mean(axis=1) - profiles[:, :2].mean(axis=1))
        slope = np.abs(np.diff(profiles, axis=1)).max(axis=1) / 0.5
        clear = rise > 10
        if clear.any():
            widths.append(float(np.median(rise[clear] / slope[clear])))
    return max(widths, default=0.0)


def _sampled(picture: Grey, places: NDArray[np.float32]) -> NDArray[Any]:
    import cv2

    flat = places.reshape(-1, 1, 2)
    found = np.concatenate(
        [
            cv2.remap(picture, flat[i : i + 30_000], None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            for i in range(0, len(flat), 30_000)
        ]
    )
    return found.reshape(places.shape[:-1]).astype(np.float64)
