"""What two views share, found by OpenCV: features (SIFT) and dense disparities (semi-global matching).

Neither view is taken for the left one: x in the first view and x - disparity in the second show the same
thing, and disparities have either sign.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.uint8]
Colours = NDArray[np.uint8]
Values = NDArray[np.float32]
Floats = NDArray[np.float64]

AREA = 190_000  # pixels to which views are reduced before features are looked for
_KEYPOINTS = 1500
_RATIO = 0.8  # of the distance to the second-best match: Lowe's ratio test
_HALF, _GOOD = 6, 0.75
"""Half a side of the patches that are compared at full size, and the correlation that a match must have."""
_CONSISTENT = 1.0  # pixels by which the disparities of both views may differ where both see a thing


@dataclass(frozen=True)
class Matches:
    """N features that both views show; pixels of the full-size views, from the top left pixel's centre."""

    x: Floats
    y: Floats
    disparity: Floats
    """First x - second x."""
    dy: Floats
    """Second y - first y."""

    def __len__(self) -> int:
        return len(self.x)

    def take(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> "Matches":
        return Matches(self.x[keep], self.y[keep], self.disparity[keep], self.dy[keep])


@dataclass(frozen=True)
class DenseMatch:
    """Disparities of two views, first x - second x, in pixels."""

    first: Values
    """(H, W), of every pixel, also where they cannot be right."""
    second: Values
    """(H, W): of the second view's pixels; x + disparity is the place in the first one."""
    first_seen: NDArray[np.bool_]
    """(H, W): the second view leads back to the same place."""
    second_seen: NDArray[np.bool_]


def reduction(shape: tuple[int, ...], area: int, width: int) -> int:
    """The smallest whole factor that reduces (H, W, ...) to no more than an area and a width."""
    return max(1, -(-shape[1] // width), int(np.ceil(np.sqrt(shape[0] * shape[1] / area))))


def reduced(view: NDArray[Any], factor: int) -> Colours:
    """(H, W, ...) uint8 or uint16 -> (H // factor, W // factor, ...) uint8, each pixel the mean of a block.

    16 bits are spread from the darkest to the brightest level.
    """
    import cv2

    height, width = view.shape[0] // factor, view.shape[1] // factor
    small = view
    if factor > 1:
        cut = view[: height * factor, : width * factor]
        small = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    if small.dtype == np.uint16:
        small = cv2.normalize(small, None, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U)
    return np.ascontiguousarray(small, dtype=np.uint8)


def grey(view: Colours) -> Grey:
    import cv2

    return np.asarray(cv2.cvtColor(view, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def match_keypoints(
    first: Grey, second: Grey, most: int, ratio: float, reach: tuple[float, float] | None = None
) -> tuple[Floats, Floats]:
    """x and y (N, 2) of SIFT's keypoints in both views that match, each the best for the other.

    most: keypoints of a view. ratio: Lowe's, of the distances to the best and the second-best match. reach:
    largest |x| and |y| between the two, pixels; None: any.
    """
    import cv2

    detector = cv2.SIFT.create(nfeatures=most, contrastThreshold=0.02)
    one, here = detector.detectAndCompute(first, None)
    two, there = detector.detectAndCompute(second, None)
    at = np.array(cv2.KeyPoint.convert(one), np.float64).reshape(-1, 2)
    to = np.array(cv2.KeyPoint.convert(two), np.float64).reshape(-1, 2)
    pairs: list[tuple[int, int]] = []
    if len(at) and len(to):
        near = None
        if reach is not None:
            near = (np.abs(at[:, None] - to) <= reach).all(axis=2).view(np.uint8)
        matcher, back = cv2.BFMatcher(), {}
        for (match,) in filter(
            None, matcher.knnMatch(there, here, 1, None if near is None else near.T.copy())
        ):
            back[match.queryIdx] = match.trainIdx
        for found in matcher.knnMatch(here, there, 2, near):
            if len(found) == 2 and found[0].distance < ratio * found[1].distance:
                best = found[0].queryIdx, found[0].trainIdx
                if back.get(best[1]) == best[0]:
                    pairs.append(best)
    i, j = np.array(pairs, np.intp).reshape(-1, 2).T
    return at[i], to[j]


def find_matches(
    first: NDArray[Any], second: NDArray[Any], reach: tuple[float, float], enlarge: int = 1
) -> tuple[Matches, int]:
    """Matches of views (H, W, 3), uint8 or uint16, of one size, and by what factor the views were reduced.

    reach: largest |disparity| and |dy|, pixels. enlarge: factor by which views that are not reduced are
    enlarged. Matches are good to about half a pixel of the reduced views.
    """
    import cv2

    factor = reduction(first.shape, AREA, 500)
    at = to = np.zeros((0, 2))
    if min(first.shape[:2]) >= 2 * _HALF * factor:
        views = [grey(reduced(first, factor)), grey(reduced(second, factor))]
        if enlarge > 1:
            size = (enlarge * first.shape[1], enlarge * first.shape[0])
            views = [np.asarray(cv2.resize(view, size, interpolation=cv2.INTER_CUBIC)) for view in views]
        scale = enlarge / factor
        at, to = match_keypoints(views[0], views[1], _KEYPOINTS, _RATIO, (reach[0] * scale, reach[1] * scale))
    pixel = factor / enlarge
    (x, y), (disparity, rise) = (at * pixel + (pixel - 1) / 2).T, ((at - to) * pixel).T
    return Matches(x, y, disparity, -rise), factor


def refine_matches(
    first: NDArray[Any], second: NDArray[Any], matches: Matches, factor: int, most: int
) -> Matches:
    """Measure at most `most` of the matches in the full-size views, to a fraction of a pixel; see
    `find_matches`."""
    import cv2

    places = np.linspace(0, len(matches) - 1, min(most, len(matches)))
    chosen = matches.take(np.unique(places.astype(np.intp)))
    half, reach = _HALF + factor, factor + 1
    rows = []
    for x, y, disparity, dy in zip(chosen.x, chosen.y, chosen.disparity, chosen.dy, strict=True):
        x, y, there_x, there_y = map(round, map(float, (x, y, x - disparity, y + dy)))
        patch, area = _cut(first, x, y, half), _cut(second, there_x, there_y, half + reach)
        if patch is None or area is None:
            continue
        score = cv2.matchTemplate(area, patch, cv2.TM_CCOEFF_NORMED)
        _, best, _, (column, row) = cv2.minMaxLoc(score)
        if best >= _GOOD and 0 < row < 2 * reach and 0 < column < 2 * reach:
            right = there_x + column - reach + peak(score[row, column - 1 : column + 2])
            below = there_y + row - reach + peak(score[row - 1 : row + 2, column])
            rows.append((x, y, x - right, below - y))
    return Matches(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)


def _cut(view: NDArray[Any], x: int, y: int, half: int) -> Values | None:
    """The green channel around (x, y), (2 half + 1, 2 half + 1); None where it leaves the view."""
    if min(x, y) < half or x + half >= view.shape[1] or y + half >= view.shape[0]:
        return None
    return view[y - half : y + half + 1, x - half : x + half + 1, 1].astype(np.float32)


def peak(three: NDArray[Any]) -> float:
    """Where between -0.5 and 0.5 of the middle one the parabola through three values has its top."""
    before, at, after = map(float, three)
    curve = before - 2 * at + after
    return float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0 else 0.0


def match_densely(first: Grey, second: Grey, low: int, high: int) -> DenseMatch:
    """Match two views (H, W) of one size with disparities low .. high, both included."""
    one = _semi_global(first, second, low, high)
    two = _semi_global(second[:, ::-1], first[:, ::-1], low, high)[:, ::-1]
    return DenseMatch(one, two, _consistent(one, two, -1), _consistent(two, one, 1))


def agreed_disparity(left: Grey, right: Grey, most: int) -> Values:
    """Disparities of a rectified pair where block matching is sure of them; NaN elsewhere.

    left, right: views (H, W) of one size. most: the largest disparity that is searched, pixels. Sure is what
    is clearly the best match, the same from both views, and no speck. On 20 KITTI pairs that is
    80.5 % of the pixels with a truth, of which 2.4 % are wrong (D1).
    """
    sure = {"uniquenessRatio": 15, "speckleWindowSize": 100, "speckleRange": 2, "P2": 500, "preFilterCap": 31}
    one = _semi_global(left, right, 0, most, **sure)
    two = _semi_global(right[:, ::-1], left[:, ::-1], 0, most, **sure)[:, ::-1]
    one, two = (np.where(each >= 0, each, np.float32(np.nan)) for each in (one, two))
    return np.where(_consistent(one, two, -1), one, np.float32(np.nan))


def _semi_global(first: Grey, second: Grey, low: int, high: int, **otherwise: int) -> Values:
    """Below `low` where nothing is found, if `otherwise`, OpenCV's settings, allow for that."""
    import cv2

    settings = {"blockSize": 3, "P1": 8 * 3**2, "P2": 32 * 3**2, "preFilterCap": 15} | otherwise
    matcher = cv2.StereoSGBM.create(
        minDisparity=low,
        numDisparities=-(-(high - low + 1) // 16) * 16,
        mode=cv2.StereoSGBM_MODE_HH,
        **settings,
    )
    # OpenCV gives no disparities to what lies nearer the edge.
    before, after = max(high + 16, 0), max(-low, 0)
    sides = [cv2.copyMakeBorder(view, 0, 0, before, after, cv2.BORDER_REPLICATE) for view in (first, second)]
    found = matcher.compute(sides[0], sides[1])[:, before : before + first.shape[1]]
    return np.asarray(found / 16, dtype=np.float32)


def _consistent(disparity: Values, other: Values, sign: int) -> NDArray[np.bool_]:
    width = disparity.shape[1]
    places = np.rint(np.arange(width) + sign * np.nan_to_num(disparity)).astype(np.intp)
    there = np.take_along_axis(other, np.clip(places, 0, width - 1), axis=1)
    return np.asarray((places >= 0) & (places < width) & (np.abs(there - disparity) <= _CONSISTENT))
