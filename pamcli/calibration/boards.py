"""Detection of chessboards and ChArUco boards, with corners accurate to a few hundredths of a pixel.

OpenCV detects the boards; its chessboard detector is off by up to 0.1 px on tilted boards and bent lenses,
cornerSubPix by 0.025 px, so corners are refined with the latter.
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

from pamcli.calibration.bundle_adjustment import Corners
from pamcli.calibration.geometry import Floats
from pamcli.errors import InputError, UsageError
from pamcli.imaging.images import downscale_to_uint8

Grey = NDArray[np.uint8]

SEARCH_SIDE = 1000  # px, longer side to which images are downscaled for the search
LARGEST_SQUARE = 2.0  # m; a larger side was probably meant in mm
FEWEST_CORNERS = 8  # visible corners that a ChArUco board needs; a part of it may be outside the image
# OpenCV's marker dictionaries, with the sizes of smaller ones that begin with the same markers.
DICTIONARIES = {
    **dict.fromkeys(("4X4_1000", "5X5_1000", "6X6_1000", "7X7_1000"), (50, 100, 250, 1000)),
    **dict.fromkeys(("ARUCO_ORIGINAL", "ARUCO_MIP_36H12", "APRILTAG_16H5", "APRILTAG_25H9"), ()),
    **dict.fromkeys(("APRILTAG_36H10", "APRILTAG_36H11"), ()),
}


@dataclass(frozen=True)
class Board:
    """A calibration board and its size in metres. Raises InputError for too few squares or a large marker."""

    columns: int  # inner corners of a chessboard, squares of a ChArUco board, as OpenCV counts them
    rows: int
    square: float  # m, side of a square
    marker: float | None = None  # m, side of a ChArUco marker; None: a chessboard

    def __post_init__(self) -> None:
        least = 3 if self.marker is None else 2
        if min(self.grid) < least or max(self.grid) < 3:
            counts = f"{self.grid[0]}x{self.grid[1]} inner corners, at least 3x{least} are required"
            raise InputError(f"the board has {counts}", "use a larger board")
        if self.square > LARGEST_SQUARE:
            message = f"`square` must be at most {LARGEST_SQUARE:g} m, got {self.square:g} m"
            raise UsageError(message, "state the unit, such as 25mm; a number without a unit means metres")
        if self.marker is not None and not 0 < self.marker < self.square:
            message = f"`marker` ({self.marker:g} m) must be smaller than `square` ({self.square:g} m)"
            raise InputError(message, "state the side of a marker and the side of a square")

    @property
    def grid(self) -> tuple[int, int]:
        less = int(self.marker is not None)
        return self.columns - less, self.rows - less

    @cached_property
    def points(self) -> Floats:
        """Inner corners (N, 3), row by row, in metres in the board's coordinates."""
        x, y = np.meshgrid(np.arange(self.grid[0]), np.arange(self.grid[1]))
        return np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3).astype(np.float64) * self.square

    @property
    def kind(self) -> str:
        name = "chessboard" if self.marker is None else "ChArUco board"
        return f"{name} of {self.columns}x{self.rows}"


@dataclass(frozen=True)
class Detection:
    """A board that was detected in an image."""

    corners: Corners
    blur: float  # px, width of the edges, in the direction with wider edges


class BoardDetector:
    """Detector of one board in grey images.

    A ChArUco board needs a dictionary, one of `DICTIONARIES`. `legacy`: its first square is white, as OpenCV
    before 4.6 drew boards with an even number of rows.
    """

    def __init__(self, board: Board, dictionary: str = "", legacy: bool = False) -> None:
        import cv2

        self.board = board
        if board.marker is not None:
            size, markers = (board.columns, board.rows), _load_dictionary(dictionary, board)
            layout = cv2.aruco.CharucoBoard(size, board.square, board.marker, markers)
            layout.setLegacyPattern(legacy)
            self.detector = cv2.aruco.CharucoDetector(layout)

    def detect(self, image: Grey) -> Detection | None:
        """Return the board in an image (H, W), or None if too little of it is visible."""
        import cv2

        if self.board.marker is None:
            found = self._detect_chessboard(image)
            ids = np.arange(len(self.board.points))
        else:
            found, ids, _, _ = self.detector.detectBoard(image)
        if found is None or ids is None or (self.board.marker is not None and len(ids) < FEWEST_CORNERS):
            return None
        ids, pixels = ids.ravel().astype(np.intp), found.reshape(-1, 2).astype(np.float64)
        # Share of a square's side that has one colour beside an edge.
        margin = 0.4 * (1 - (self.board.marker or 0.0) / self.board.square)
        grid = self._to_grid(ids, pixels)
        steps = [np.linalg.norm(np.diff(grid, axis=axis), axis=-1) for axis in (0, 1)]
        nearest = min((float(np.nanmin(step)) for step in steps if np.isfinite(step).any()), default=8.0)
        reach = int(np.clip(margin * nearest, 2, 10))  # only the corner's own four edges lie within it
        stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
        start = pixels.astype(np.float32).reshape(-1, 1, 2)
        refined = cv2.cornerSubPix(image, start, (reach, reach), (-1, -1), stop).reshape(-1, 2) * 1.0
        far = np.linalg.norm(refined - pixels, axis=1) > reach
        pixels = np.where(far[:, None], pixels, refined)
        if np.linalg.matrix_rank(self.board.points[ids] - self.board.points[ids][0]) < 2:
            return None
        return Detection(Corners(ids, pixels), _measure_blur(image, self._to_grid(ids, pixels), margin))

    def _to_grid(self, ids: NDArray[np.intp], pixels: Floats) -> Floats:
        columns, rows = self.board.grid
        grid = np.full((rows * columns, 2), np.nan)
        grid[ids] = pixels
        return grid.reshape(rows, columns, 2)

    def _detect_chessboard(self, image: Grey) -> Floats | None:
        import cv2

        factor = max(1, -(-max(image.shape) // SEARCH_SIDE))
        for step in sorted({factor, 1}, reverse=True):
            small = downscale_to_uint8(image, step)
            flags = cv2.CALIB_CB_NORMALIZE_IMAGE
            good, found = cv2.findChessboardCornersSB(small, self.board.grid, flags=flags)
            if good:
                pixels = (found.reshape(-1, 2).astype(np.float64) + 0.5) * step - 0.5
                return self._orient(image, pixels)
        return None

    def _orient(self, image: Grey, pixels: Floats) -> Floats:
        """Order corners from the dark end of the board, and never mirrored."""
        columns, rows = self.board.grid
        grid = pixels.reshape(rows, columns, 2)
        across, down = grid[0, 1] - grid[0, 0], grid[1, 0] - grid[0, 0]
        if across[0] * down[1] < across[1] * down[0]:
            grid = grid[::-1]
        levels = []
        for at in (grid, grid[::-1, ::-1]):
            place = at[0, 0] - (at[0, 1] - at[0, 0] + at[1, 0] - at[0, 0]) / 2
            x, y = np.clip(np.rint(place), 0, np.array(image.shape[::-1]) - 1).astype(int)
            levels.append(float(image[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].mean()))
        if (columns + rows) % 2 and levels[0] > levels[1]:
            grid = grid[::-1, ::-1]
        return grid.reshape(-1, 2)


def align_corners(board: Board, left: Corners, right: Corners) -> Corners:
    """Renumber the right corners of a symmetric chessboard so that its rows run as in the left image."""
    columns, rows = board.grid
    if board.marker is not None or (columns + rows) % 2:
        return right
    one, two = (each.pixels.reshape(rows, columns, 2) for each in (left, right))
    turns = [two, two[::-1, ::-1]]
    if columns == rows:
        turns += [np.rot90(two), np.rot90(two, -1)]
    direction = one[0, -1] - one[0, 0]
    best = max(turns, key=lambda each: float(direction @ (each[0, -1] - each[0, 0])))
    return Corners(right.ids, np.ascontiguousarray(best).reshape(-1, 2))


def find_detector(board: Board, images: Sequence[Grey]) -> BoardDetector | None:
    """Return the detector that finds most corners in the first image that shows the board, or None."""
    import cv2

    if board.marker is None:
        detector = BoardDetector(board)
        return detector if any(detector.detect(image) for image in images) else None
    for image in images:
        counts = {}
        for name in DICTIONARIES:
            ids = cv2.aruco.ArucoDetector(_load_dictionary(name, board)).detectMarkers(image)[1]
            counts[name] = 0 if ids is None else np.count_nonzero(ids < board.columns * board.rows // 2)
        likely = [name for name, count in counts.items() if count >= max(4, 0.5 * max(counts.values()))]
        candidates = [BoardDetector(board, name, legacy) for name in likely for legacy in (False, True)]
        found = [(each, seen.corners) for each in candidates if (seen := each.detect(image)) is not None]
        if found:
            return max(found, key=lambda each: len(each[1]))[0]
    return None


def guess_board(board: Board, images: Sequence[Grey]) -> Board | None:
    if board.marker is None:
        sizes = Counter(size for size in map(count_inner_corners, images) if size is not None)
        for size, _ in sizes.most_common(1):
            if set(size) != {board.columns, board.rows}:
                columns, rows = size[::-1] if board.columns < board.rows else size
                return replace(board, columns=columns, rows=rows)
        return None
    counts = [(board.columns + more, board.rows + extra) for more in (-1, 0, 1) for extra in (-1, 0, 1)]
    for columns, rows in (*counts, (board.rows, board.columns)):
        with suppress(InputError):
            other = replace(board, columns=columns, rows=rows)
            if other != board and find_detector(other, images[:2]) is not None:
                return other
    return None


def count_inner_corners(image: Grey) -> tuple[int, int] | None:
    """Return the inner corners of the chessboard in an image (H, W) along its longer and shorter side."""
    import cv2

    small = downscale_to_uint8(image, max(1, -(-max(image.shape) // SEARCH_SIDE)))
    flags = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_LARGER
    good, _, corners = cv2.findChessboardCornersSBWithMeta(small, (3, 3), flags)
    return (max(corners.shape[:2]), min(corners.shape[:2])) if good else None


def _load_dictionary(name: str, board: Board) -> Any:
    """Load a dictionary of OpenCV, the smallest of its family with enough markers for the board."""
    import cv2

    count = board.columns * board.rows // 2
    size = next((size for size in DICTIONARIES[name] if size >= count), None)
    number = getattr(cv2.aruco, f"DICT_{name if size is None else f'{name[:3]}_{size}'}")
    return cv2.aruco.getPredefinedDictionary(number)


def _measure_blur(image: Grey, grid: Floats, margin: float) -> float:
    """Return the median width (px) of edges between neighbouring corners, the larger of both directions.

    The width is the step in grey levels divided by the steepest slope. Directions are measured separately,
    because motion blurs only the edges that are not parallel to it.
    """
    import cv2

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
        lines, border = places.reshape(-1, len(steps), 2), cv2.BORDER_REPLICATE
        levels = cv2.remap(image, lines, None, cv2.INTER_LINEAR, borderMode=border)
        profiles = levels.reshape(places.shape[:-1]).astype(np.float64).mean(axis=1)
        rise = np.abs(profiles[:, -2:].mean(axis=1) - profiles[:, :2].mean(axis=1))
        slope = np.abs(np.diff(profiles, axis=1)).max(axis=1) / 0.5
        clear = rise > 10
        if clear.any():
            widths.append(float(np.median(rise[clear] / slope[clear])))
    return max(widths, default=0.0)
