"""Sightings of a calibration board in image pairs, and the pairs that are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pamcli.calibration.boards import (
    FEWEST_CORNERS,
    Board,
    BoardDetector,
    Detection,
    Grey,
    find_detector,
    guess_board,
)
from pamcli.calibration.geometry import Floats, Pixels
from pamcli.errors import InputError
from pamcli.imaging.images import to_grey

SHOWN_SIDE, BRIGHTNESS_SIDE = 640, 60  # px, longer side of the images kept for a page and of brightness maps
COUNTED = 4  # images in which corners are counted: a small board is also found inside a larger one
SEARCHED_AGAIN = 12  # images without a board that are searched for boards of other sizes
SAMPLED_MOMENTS = 150  # moments of a video that are examined, evenly over its length
MOST_SIGHTINGS = 50  # sightings that are kept of a video
STILL = 3.0  # px by which a board may move from one frame to the next


@dataclass(frozen=True)
class Sighting:
    """A moment at which at least one camera saw the board."""

    name: str
    left: Detection | None
    right: Detection | None

    @property
    def both(self) -> bool:
        return self.left is not None and self.right is not None

    @property
    def detections(self) -> list[Detection]:
        return [each for each in (self.left, self.right) if each is not None]


@dataclass(frozen=True)
class Rejection:
    """An image pair that the calibration does not use."""

    name: str
    reason: str


class SightingCollector:
    """Search image pairs for a board, one after the other, and collect the sightings."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.sightings: list[Sighting] = []
        self.rejections: list[Rejection] = []
        self.images: dict[str, tuple[Grey, Grey]] = {}  # downscaled images of each sighting
        self.brightest: list[Grey] = []  # for each camera a small map of the largest level at each place
        self.size: tuple[int, int] | None = None
        self.count = 0
        self._detector: BoardDetector | None = None
        self._without: list[Grey] = []
        self._counted: list[Grey] = []

    def add(self, name: str, left: Pixels, right: Pixels, following: Pixels | None = None) -> None:
        """Search a pair, and keep it if it shows the board at rest; else note why not. Raises InputError."""
        sighting, views = self.search(name, left, right)
        moved = 0.0
        if following is not None and sighting.left:
            moved = measure_motion(views[0], to_grey(following), sighting.left.corners.pixels)
        if not sighting.detections:
            least = "the whole board" if self.board.marker is None else f"{FEWEST_CORNERS} corners of it"
            self.rejections.append(Rejection(name, f"neither image shows {least}"))
        elif moved > STILL:
            self.rejections.append(Rejection(name, f"the board moves by {moved:.0f} px per frame"))
        else:
            self.keep(sighting, views)

    def keep(self, sighting: Sighting, views: Sequence[Grey]) -> None:
        """Keep a sighting in a pair of grey images."""
        self.sightings.append(sighting)
        self.images[sighting.name] = _shrink(views[0], SHOWN_SIDE), _shrink(views[1], SHOWN_SIDE)

    def search(self, name: str, left: Pixels, right: Pixels) -> tuple[Sighting, list[Grey]]:
        """Search a pair for the board; return what is seen, and the grey images. Raises InputError."""
        size = left.shape[1], left.shape[0]
        if left.shape != right.shape:
            sizes = f"{size[0]}x{size[1]} px, the right one {right.shape[1]}x{right.shape[0]} px"
            hint = "resize the images of one camera to the size of the other, also before pam rectify"
            raise InputError(f"{name}: the left image is {sizes}", hint)
        if self.size not in (None, size):
            sizes = f"{size[0]}x{size[1]} px, but earlier images are {self.size[0]}x{self.size[1]} px"
            raise InputError(f"{name} is {sizes}", "calibrate with images of one size")
        self.size, self.count = size, self.count + 1
        views = [to_grey(left), to_grey(right)]
        small = [_shrink(view, BRIGHTNESS_SIDE) for view in views]
        self.brightest = [np.maximum(*each) for each in zip(self.brightest or small, small, strict=True)]
        self._detector = self._detector or find_detector(self.board, views)
        if self._detector is None and len(self._without) < SEARCHED_AGAIN:
            self._without += views
        one, two = (self._detector.detect(view) if self._detector else None for view in views)
        if self.board.marker is None and len(self._counted) < COUNTED:
            self._counted += [view for view, seen in zip(views, (one, two), strict=True) if seen]
            if len(self._counted) >= COUNTED:
                self._check_count()
        return Sighting(name, one, two), views

    def _check_count(self) -> None:
        if (other := guess_board(self.board, self._counted)) is not None:
            counts = f"{other.columns}x{other.rows}"
            message = f"{counts} inner corners, not {self.board.columns}x{self.board.rows}"
            raise InputError(f"the images show a board of {message}", f"`board` {counts}")

    def reject(self, name: str, error: InputError) -> None:
        self.count += 1
        self.rejections.append(Rejection(name, str(error)))

    def require_sightings(self) -> tuple[int, int]:
        """Return (width, height) of the images. Raises InputError if no image shows the board."""
        if self.size is None:
            first = f": {self.rejections[0].reason}" if self.rejections else ""
            raise InputError(f"cannot read any image pair{first}")
        if self.sightings:
            if len(self._counted) < COUNTED:
                self._check_count()
            return self.size
        hint = "`board` counts the inner corners of a chessboard, but the squares of a ChArUco board"
        if (other := guess_board(self.board, self._without)) is not None:
            hint = f"they show a board of {other.columns}x{other.rows}: `board` {other.columns}x{other.rows}"
        raise InputError(f"none of the {self.count} image pairs shows a {self.board.kind}", hint)


def _shrink(view: Grey, side: int) -> Grey:
    import cv2

    scale = min(1.0, side / max(view.shape))
    width, height = (max(1, round(length * scale)) for length in view.shape[::-1])
    return np.asarray(cv2.resize(view, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def measure_motion(now: Grey, following: Grey, corners: Floats) -> float:
    """Return the median motion (px) of corners (N, 2) between grey images (H, W), or infinity if lost."""
    import cv2

    start = corners.astype(np.float32).reshape(-1, 1, 2)
    found, good, _ = cv2.calcOpticalFlowPyrLK(now, following, start, None)
    kept = good.ravel() == 1
    moves = np.linalg.norm((found - start).reshape(-1, 2)[kept], axis=1)
    return float(np.median(moves)) if len(moves) else float("inf")


def select_diverse(sightings: Sequence[Sighting], size: tuple[int, int]) -> list[Sighting]:
    """Select the sightings, first those by both cameras, that differ most in position, size and tilt."""
    chosen: list[Sighting] = []
    for both in (True, False):
        group = [each for each in sightings if each.both == both]
        outlines = np.array([find_outline(each, size) for each in group]).reshape(len(group), 8)
        nearest = np.full(len(group), np.inf)
        while len(chosen) < MOST_SIGHTINGS and len(group) and nearest.max() > 0:
            best = int(nearest.argmax())
            chosen.append(group[best])
            nearest = np.minimum(nearest, np.linalg.norm(outlines - outlines[best], axis=1))
    kept = {id(each) for each in chosen}
    return [each for each in sightings if id(each) in kept]


def find_outline(sighting: Sighting, size: tuple[int, int]) -> Floats:
    """Return the four extreme corners of a board (8,), as parts of the image width."""
    pixels = sighting.detections[0].corners.pixels / size[0]
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return np.concatenate([pixels[int(np.argmax(pixels @ corner))] for corner in corners])
