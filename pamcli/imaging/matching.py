"""Match two images with OpenCV: features (SIFT) and dense disparities (semi-global matching).

Either image may be the left one: x in the first and x - disparity in the second show the same point, and
disparities may have either sign.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.images import to_uint8

Grey = NDArray[np.uint8]
Colours = NDArray[np.uint8]
Values = NDArray[np.float32]
Floats = NDArray[np.float64]

AREA = 190_000  # px, area to which images are downscaled before feature detection
_KEYPOINTS = 1500
_RATIO = 0.8  # Lowe's ratio test: largest distance relative to the second-best match
_HALF, _GOOD = 6, 0.75  # half the side (px) of patches compared at full size, smallest correlation of a match
_CONSISTENT = 1.0  # px, largest difference between both images' disparities for a point visible in both


@dataclass(frozen=True)
class Matches:
    """N features visible in both full-size images, in px from the centre of the top left pixel."""

    x: Floats
    y: Floats
    disparity: Floats  # first x - second x
    dy: Floats  # second y - first y

    def __len__(self) -> int:
        return len(self.x)

    def take(self, keep: NDArray[np.bool_] | NDArray[np.intp]) -> "Matches":
        return Matches(self.x[keep], self.y[keep], self.disparity[keep], self.dy[keep])


class DenseMatch(NamedTuple):
    """Disparities of two images, first x - second x, px."""

    first: Values  # (H, W) for every pixel, including wrong ones
    second: Values  # (H, W) for the second image; x + disparity is the position in the first
    first_seen: NDArray[np.bool_]  # (H, W) mask of pixels whose match leads back to them
    second_seen: NDArray[np.bool_]


def choose_downscaling(shape: tuple[int, ...], area: int, width: int) -> int:
    """Return the smallest whole factor that downscales (H, W, ...) to at most an area and a width."""
    return max(1, -(-shape[1] // width), int(np.ceil(np.sqrt(shape[0] * shape[1] / area))))


def downscale_to_uint8(view: NDArray[Any], factor: int) -> Colours:
    """Downscale (H, W, ...) uint8 or uint16 (its levels stretched) to uint8 by a whole factor, as means."""
    import cv2

    height, width = view.shape[0] // factor, view.shape[1] // factor
    small = view
    if factor > 1:
        cut = view[: height * factor, : width * factor]
        small = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    if small.dtype == np.uint16:
        small = cv2.normalize(small, None, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U)
    return np.ascontiguousarray(small, dtype=np.uint8)


def to_grey(view: NDArray[Any]) -> Grey:
    """Convert RGB (H, W, 3), uint8 or uint16, to 8-bit grey levels (H, W)."""
    import cv2

    view = np.ascontiguousarray(to_uint8(view))
    return np.asarray(cv2.cvtColor(view, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def match_keypoints(
    first: Grey, second: Grey, most: int, ratio: float, reach: tuple[float, float] | None = None
) -> tuple[Floats, Floats]:
    """Return x and y (N, 2) of SIFT matches in both images, at most `reach` px apart in x and y."""
    import cv2

    detector = cv2.SIFT.create(nfeatures=most, contrastThreshold=0.02)
    one, here = detector.detectAndCompute(first, None)
    two, there = detector.detectAndCompute(second, None)
    at = np.array(cv2.KeyPoint.convert(one), np.float64).reshape(-1, 2)
    to = np.array(cv2.KeyPoint.convert(two), np.float64).reshape(-1, 2)
    pairs: list[tuple[int, int]] = []
    if len(at) and len(to):
        near = back = None
        if reach is not None:
            near = (np.abs(at[:, None] - to) <= reach).all(axis=2).view(np.uint8)
            back = near.T.copy()
        matcher = cv2.BFMatcher()
        nearest = {
            each[0].queryIdx: each[0].trainIdx for each in matcher.knnMatch(there, here, 1, back) if each
        }
        for found in matcher.knnMatch(here, there, 2, near):
            if len(found) == 2 and found[0].distance < ratio * found[1].distance:
                best = found[0].queryIdx, found[0].trainIdx
                if nearest.get(best[1]) == best[0]:
                    pairs.append(best)
    i, j = np.array(pairs, np.intp).reshape(-1, 2).T
    return at[i], to[j]


def find_matches(
    first: NDArray[Any], second: NDArray[Any], reach: tuple[float, float], upscaling: int = 1
) -> tuple[Matches, int]:
    """Return the matches of images (H, W, 3) within |disparity| and |dy| (px), and the downscaling factor."""
    import cv2

    factor = choose_downscaling(first.shape, AREA, 500)
    at = to = np.zeros((0, 2))
    if min(first.shape[:2]) >= 2 * _HALF * factor:
        views = [to_grey(downscale_to_uint8(first, factor)), to_grey(downscale_to_uint8(second, factor))]
        if upscaling > 1:
            size = (upscaling * first.shape[1], upscaling * first.shape[0])
            views = [np.asarray(cv2.resize(view, size, interpolation=cv2.INTER_CUBIC)) for view in views]
        scale = upscaling / factor
        at, to = match_keypoints(views[0], views[1], _KEYPOINTS, _RATIO, (reach[0] * scale, reach[1] * scale))
    pixel = factor / upscaling
    (x, y), (disparity, rise) = (at * pixel + (pixel - 1) / 2).T, ((at - to) * pixel).T
    return Matches(x, y, disparity, -rise), factor


def refine_matches(
    first: NDArray[Any], second: NDArray[Any], matches: Matches, factor: int, most: int
) -> Matches:
    """Return at most `most` matches, measured at full size to a fraction of a pixel; see `find_matches`."""
    import cv2

    places = np.linspace(0, len(matches) - 1, min(most, len(matches)))
    half, reach = _HALF + factor, factor + 1
    rows = []
    for i in np.unique(places.astype(np.intp)):
        there_x, there_y = round(matches.x[i] - matches.disparity[i]), round(matches.y[i] + matches.dy[i])
        x, y = round(matches.x[i]), round(matches.y[i])
        if min(x, y) < half or min(there_x, there_y) < half + reach:  # a slice would begin at the other end
            continue
        patch = first[y - half : y + half + 1, x - half : x + half + 1, 1].astype(np.float32)
        area = second[there_y - half - reach :, there_x - half - reach :, 1]
        area = area[: 2 * (half + reach) + 1, : 2 * (half + reach) + 1].astype(np.float32)
        if patch.shape != (2 * half + 1,) * 2 or area.shape != (2 * (half + reach) + 1,) * 2:
            continue
        score = cv2.matchTemplate(area, patch, cv2.TM_CCOEFF_NORMED)
        _, best, _, (column, row) = cv2.minMaxLoc(score)
        if best >= _GOOD and 0 < row < 2 * reach and 0 < column < 2 * reach:
            right = there_x + column - reach + interpolate_peak(score[row, column - 1 : column + 2])
            below = there_y + row - reach + interpolate_peak(score[row - 1 : row + 2, column])
            rows.append((x, y, x - right, below - y))
    return Matches(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)


def interpolate_peak(three: NDArray[Any]) -> float:
    """Return the vertex, in [-0.5, 0.5] from the middle, of the parabola through three values."""
    before, at, after = map(float, three)
    curve = before - 2 * at + after
    return float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0 else 0.0


def match_densely(first: Grey, second: Grey, low: int, high: int) -> DenseMatch:
    """Match two images (H, W) of one size with disparities from low to high (px), both included."""
    one = _match_semi_global(first, second, low, high)
    two = _match_semi_global(second[:, ::-1], first[:, ::-1], low, high)[:, ::-1]
    return DenseMatch(one, two, _check_consistency(one, two, -1), _check_consistency(two, one, 1))


def match_reliably(left: Grey, right: Grey, most: int) -> Values:
    """Return the disparities (H, W), 0 to `most` px, of a rectified pair where block matching is reliable.

    On 20 KITTI pairs, these are 80.5 % of the pixels with ground truth, 2.4 % of them wrong (D1).
    """
    sure = {"uniquenessRatio": 15, "speckleWindowSize": 100, "speckleRange": 2, "P2": 500, "preFilterCap": 31}
    one = _match_semi_global(left, right, 0, most, **sure)
    two = _match_semi_global(right[:, ::-1], left[:, ::-1], 0, most, **sure)[:, ::-1]
    one, two = (np.where(each >= 0, each, np.float32(np.nan)) for each in (one, two))
    return np.where(_check_consistency(one, two, -1), one, np.float32(np.nan))


def _match_semi_global(first: Grey, second: Grey, low: int, high: int, **overrides: int) -> Values:
    """Match two images; values below `low` mark missing matches. Settings of OpenCV override the defaults."""
    import cv2

    settings = {"blockSize": 3, "P1": 8 * 3**2, "P2": 32 * 3**2, "preFilterCap": 15} | overrides
    matcher = cv2.StereoSGBM.create(
        minDisparity=low,
        numDisparities=-(-(high - low + 1) // 16) * 16,
        mode=cv2.StereoSGBM_MODE_HH,
        **settings,
    )
    # OpenCV returns no disparities near the image borders.
    before, after = max(high + 16, 0), max(-low, 0)
    sides = [cv2.copyMakeBorder(view, 0, 0, before, after, cv2.BORDER_REPLICATE) for view in (first, second)]
    found = matcher.compute(sides[0], sides[1])[:, before : before + first.shape[1]]
    return np.asarray(found / 16, dtype=np.float32)


def _check_consistency(disparity: Values, other: Values, sign: int) -> NDArray[np.bool_]:
    width = disparity.shape[1]
    places = np.rint(np.arange(width) + sign * np.nan_to_num(disparity)).astype(np.intp)
    there = np.take_along_axis(other, np.clip(places, 0, width - 1), axis=1)
    return np.asarray((places >= 0) & (places < width) & (np.abs(there - disparity) <= _CONSISTENT))
