"""Diagnose a pair: identical, unrelated, exchanged, shifted, not rectified, or one camera above the other.

Features are matched on downscaled images in both directions; some matches are then measured at full size to a
fraction of a pixel.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.dense_matching import Grey, match_densely, weigh_order
from pamcli.imaging.images import choose_downscaling, downscale_to_uint8, to_grey

AREA = 190_000  # px, area to which images are downscaled before feature detection
REACH = 0.4, 0.1  # largest distance of a match across and down, as a part of the width and of the longer side
REFINED = 48  # largest number of matches measured at full size
ENOUGH_MATCHES = 10  # fewer matches give no verdict on order and rows, unless their rows agree:
ENOUGH_ALIKE, ALIKE = 5, 1.0  # measured matches that suffice if most row offsets are so near (px) the median
WRONG_SIDE = 0.3  # share of negative disparities from which the order of the images is examined
RIGHT_SIDE = 0.1  # share of the right order, among matches that show one, below which a pair is shifted
ORDER_LOG_ODDS = 1.25  # decides the order; all 40 benchmark pairs reach it in either order
SMALLEST, SLACK = 16, 8  # px: smallest side of images whose order is examined, search margin around matches
CONFIRMED = 0.3
"""Images count as unrelated if less than this share of the matches is confirmed at full size: 73 real
pairs have at least 0.56, images of different scenes at most 0.13 (scripts/measure_confidence.py)."""
ONE_ROW = 0.5
"""Images count as a pair if this share of at least `ENOUGH_MATCHES` matches, of any disparity, has one row
offset to a downscaled pixel. Of the matches between different scenes, these are a few percent."""
COMMON = 0.55
"""Share of pixels with consistent dense matches in small copies below which images are unrelated: 21 real
pairs, sharp or strongly blurred, have at least 0.60, images of different scenes at most 0.49."""
SMALL, SMALL_AREA, PLAIN = 48, 10_000, 8.0
"""Copies with a smaller side (px) or area (px), or less variation of rows (grey levels), are not checked."""
BELOW = 0.05  # largest share of matches below the searched disparities
MAX_VERTICAL_ERROR = 1.0  # px, largest vertical error of a rectified pair
STEP = 10  # px, suggested values of `min_disparity` are multiples of it
UPRIGHT_MATCHES, UPRIGHT_ERROR, UPRIGHT_SPREAD = 12, 1.5, 3.0
"""One camera is above the other if this many matches agree in their columns to this many px, and 90 % of
their row offsets, after removing a rotation, spread by more than this many px."""

_KEYPOINTS = 1500
_RATIO = 0.8  # Lowe's ratio test: largest distance relative to the second-best match
_HALF, _GOOD = 6, 0.75  # half the side (px) of patches compared at full size, smallest correlation of a match
_SEAM, _POLE = 1.5, 0.2
"""Limits for a panorama of 360 degrees: difference of its outer columns relative to neighbouring ones, and
variation of its outer rows, which are the poles, relative to the middle one."""

Pixels = NDArray[Any]  # an image (H, W, 3)
Floats = NDArray[np.float64]
Matches = np.recarray[Any, Any]
"""N features visible in both full-size images, of the fields `MATCH`: x and y in the first image, px from the
centre of the top left pixel; disparity: first x - second x; dy: second y - first y."""
MATCH = np.dtype([(name, np.float64) for name in ("x", "y", "disparity", "dy")])
MeasuredMatches = tuple[Matches, Matches, int]
"""All matches, those measured at full size, and the downscaling factor."""


Verdict = Literal["ok", "look", "wrong"]


@dataclass(frozen=True)
class Finding:
    """One result of an examination; the verdict "look" leaves the judgement to the user."""

    topic: str
    verdict: Verdict
    text: str
    do: str | None = None  # remedy

    def __str__(self) -> str:
        mark = self.verdict.upper() if self.verdict == "wrong" else self.verdict
        return f"{mark:<6}{self.topic}: {self.text}{f' -> {self.do}' if self.do else ''}"


@dataclass(frozen=True)
class PairCheck:
    """The result of checking a pair, in pixels of the full-size images."""

    matches: int = 0  # reliable matches; fewer than `ENOUGH_MATCHES` give no verdict on the order
    median_disparity: float = 0.0  # of left x - right x (px), >= 0 in the right order; 0 without matches
    vertical_offset: float = 0.0  # median of right y - left y (px); 0 without a verdict
    vertical_error: float = 0.0  # median of |right y - left y| (px); also large if the offsets cancel out
    identical: bool = False  # True if both images have the same pixels; nothing else is checked then
    panorama: bool = False  # True if both images look like panoramas of 360 degrees; nothing else is checked
    unrelated: bool = False  # True if the images share hardly anything and probably show two scenes
    upright: bool = False  # True if one camera is above the other
    order: float = 0.0  # log-odds that the left image is the left view; 0 if unknown or not in doubt
    is_exchanged: bool = False  # True if the left image is the right view
    behind: bool = False  # True if nearly all matches have negative disparities
    disparity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    """(N,) disparities of the matches, px."""

    def problems(self, min_disparity: float | None = None) -> list[Finding]:
        """Return the problems with their remedies, given the smallest searched disparity (px) if any."""
        if self.identical:
            reason = "both images are identical, so all disparities would be 0"
            return [Finding("images", "wrong", reason, "use the two views of a scene")]
        if self.panorama:
            reason = "both images look like panoramas of 360 degrees (equirectangular), not like flat images"
            return [Finding("projection", "wrong", reason, "match a view of 90 degrees with `vr180` 90")]
        if self.unrelated:
            reason = "the images seem to show different scenes: hardly any part of one appears in the other"
            do = "check that both belong to one pair, and the layout of packed images"
            return [Finding("matches", "wrong", reason, do)]
        if self.upright:
            reason = "the rows of both images differ, not the columns, as if one camera is above the other"
            do = "use `vertical`, and pass the image of the upper camera first"
            return [Finding("cameras", "wrong", reason, do)]
        found = []
        if self.is_exchanged:
            reason = f"the views look exchanged (median disparity {self.median_disparity:.1f} px)"
            do = "swap the two arguments; for packed images, use `packed` rl for lr, or bt for tb"
            found.append(Finding("left and right", "wrong", reason, do))
        error = self.vertical_error
        if error > MAX_VERTICAL_ERROR:
            digits = next(count for count in range(1, 9) if round(error, count) > MAX_VERTICAL_ERROR)
            side = "above or below each other"
            if abs(self.vertical_offset) > 0.9 * error:
                side = f"{'lower' if self.vertical_offset > 0 else 'higher'} in the right image"
            reason = f"matches lie {error:.{digits}f} px {side}, so the pair is not rectified"
            reason += f" (more than {MAX_VERTICAL_ERROR:g} px)"
            do = "rectify it first: pam rectify with `calibration`, or `uncalibrated`"
            found.append(Finding("rows", "wrong", reason, do))
        if not self.is_exchanged and min_disparity is not None and self.matches >= ENOUGH_MATCHES:
            share = float(np.mean(self.disparity < min_disparity - 2)) if len(self.disparity) else 0.0
            if share > (WRONG_SIDE if found else BELOW):  # more matches are wrong in rows that disagree
                lowest = STEP * math.floor((float(np.quantile(self.disparity, 0.02)) - 2) / STEP)
                do = f"use `min_disparity` {lowest} to search them"
                if found:
                    do = f"rectify with `uncalibrated`, or {do}"
                if self.behind and self.order < ORDER_LOG_ODDS:
                    do += "; if near objects come out as far ones, swap the two arguments instead"
                reason = f"{100 * share:.0f} % of the matches have disparities below {min_disparity:g} px"
                found.append(Finding("left and right", "wrong", f"the pair is shifted: {reason}", do))
        return found


def check_pair(
    left: Pixels, right: Pixels, most: int = REFINED, measured_matches: MeasuredMatches | None = None
) -> PairCheck:
    """Check two images (H, W, 3) of one size, measuring at most `most` matches at full size.

    `measured_matches` are the results of `measure_pair` with the same `most`, if known already.
    """
    if left.dtype == right.dtype and np.array_equal(left[::64], right[::64]) and np.array_equal(left, right):
        return PairCheck(identical=True)
    if left.shape[1] == 2 * left.shape[0] and is_panorama(left) and is_panorama(right):
        return PairCheck(panorama=True)
    found, measured, factor = measured_matches or measure_pair(left, right, most)
    offset = float(np.median(measured.dy)) if len(measured) else 0.0
    alike = int(np.count_nonzero(np.abs(measured.dy - offset) <= ALIKE))
    enough = len(measured) >= ENOUGH_MATCHES or (alike >= ENOUGH_ALIKE and alike > 0.6 * len(measured))
    error = float(np.median(np.abs(measured.dy))) if enough else 0.0
    looked_at = min(len(found), most)
    doubtful = not enough or len(measured) < CONFIRMED * looked_at
    if (doubtful or error > UPRIGHT_SPREAD) and _is_upright(left, right, most):
        return PairCheck(len(found), upright=True)
    if doubtful and alike < max(ENOUGH_ALIKE, 0.6 * len(measured)) and _take_one_row(found, factor) is None:
        common = _measure_common(left, right, offset)
        if (looked_at >= ENOUGH_MATCHES) if common is None else common < COMMON:
            return PairCheck(len(found), unrelated=True)
    if not len(found):
        return PairCheck()
    median = float(np.median((measured if enough else found).disparity))
    near_rows = np.abs(found.dy - offset) <= factor + 2 * max(ALIKE, error)
    disparity = found.disparity[near_rows] if enough else found.disparity
    # Distant points have hardly any disparity and indicate no order; a downscaled pixel is `factor` px.
    right_side = np.count_nonzero(disparity > factor)
    wrong_side = np.count_nonzero(disparity < -factor)
    suspect = wrong_side >= max(ENOUGH_MATCHES, WRONG_SIDE * len(disparity))
    few_right = right_side < RIGHT_SIDE * (right_side + wrong_side)
    behind = bool(suspect and few_right and 2 * wrong_side >= len(disparity))
    order = _weigh_order(left, right, offset, disparity) if suspect else 0.0
    shown: dict[str, Any] = {"order": order, "is_exchanged": order < -ORDER_LOG_ODDS, "behind": behind}
    return PairCheck(len(found), median, offset if enough else 0.0, error, **shown, disparity=disparity)


def is_panorama(pixels: np.ndarray) -> bool:
    """Return True if an image (H, W, 3) looks like an equirectangular panorama of 360 degrees."""
    height, width = pixels.shape[:2]
    if width != 2 * height or height < 32:
        return False
    grey = pixels[:, [0, 1, -2, -1]].astype(np.float32).mean(axis=2)
    seam, beside = (float(np.abs(grey[:, a] - grey[:, b]).mean()) for a, b in ((0, 3), (0, 1)))
    first, middle, last = pixels[[0, height // 2, -1]].astype(np.float32).mean(axis=2).std(axis=1)
    has_poles = max(first, last) < _POLE * middle < grey[:, 0].std()  # not a black frame
    return bool(has_poles and seam <= _SEAM * beside + 0.01 * middle)


def measure_pair(left: Pixels, right: Pixels, most: int, *, upright: bool = False) -> MeasuredMatches:
    """Return the matches of two images side by side, or of an upper and a lower one (`upright`).

    If few are confirmed, matches of any disparity in one row replace them: the objects may be very near.
    """
    height, width = left.shape[:2]
    across, down = REACH[0] * width, REACH[1] * max(height, width)
    reach = (down, REACH[0] * height) if upright else (across, down)
    found, factor = find_matches(left, right, reach)
    measured = refine_matches(left, right, found, factor, most)
    if len(measured) < ENOUGH_MATCHES and factor == 1:
        more, _ = find_matches(left, right, reach, upscaling=2)
        better = refine_matches(left, right, more, 1, most)
        if len(better) > max(len(measured), ENOUGH_ALIKE):
            found, measured = more, better
    if not upright and len(measured) < max(ENOUGH_MATCHES, CONFIRMED * min(len(found), most)):
        wide, factor = find_matches(left, right, (width, down))
        near = _take_one_row(wide, factor)
        if near is not None:
            return near, refine_matches(left, right, near, factor, most), factor
    return found, measured, factor


def _take_one_row(found: Matches, factor: int) -> Matches | None:
    """Return the matches with the usual row offset, to a downscaled pixel, or None if these are too few."""
    if len(found) < ENOUGH_MATCHES:
        return None
    near = found[np.abs(found.dy - np.median(found.dy)) <= factor]
    return near if len(near) >= max(ENOUGH_MATCHES, ONE_ROW * len(found)) else None


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
    if not len(at) or len(to) < 2:
        return at[:0], to[:0]
    near = back = None
    if reach is not None:
        near = (np.abs(at[:, None] - to) <= reach).all(axis=2).view(np.uint8)
        back = near.T.copy()
    distances, candidates = cv2.batchDistance(here, there, cv2.CV_32F, K=2, mask=near)
    _, nearest = cv2.batchDistance(there, here, cv2.CV_32F, K=1, mask=back)
    best, second_best = candidates.T
    distances = distances.astype(np.float64)
    is_match = (second_best >= 0) & (distances[:, 0] < ratio * distances[:, 1])
    is_match &= nearest[best, 0] == np.arange(len(at))
    return at[is_match], to[best[is_match]]


def find_matches(
    first: Pixels, second: Pixels, reach: tuple[float, float], upscaling: int = 1
) -> tuple[Matches, int]:
    """Return the matches of images (H, W, 3) within |disparity| and |dy| (px), and the downscaling factor."""
    import cv2

    factor = choose_downscaling(first.shape, AREA, 500)
    at = to = np.zeros((0, 2))
    if min(first.shape[:2]) >= 2 * _HALF * factor:
        views = [first, second]
        for side, view in enumerate(views):
            views[side] = cv2.cvtColor(downscale_to_uint8(view, factor), cv2.COLOR_RGB2GRAY)
            if upscaling > 1:
                size = upscaling * first.shape[1], upscaling * first.shape[0]
                views[side] = cv2.resize(views[side], size, interpolation=cv2.INTER_CUBIC)
        scale = upscaling / factor
        at, to = match_keypoints(views[0], views[1], _KEYPOINTS, _RATIO, (reach[0] * scale, reach[1] * scale))
    pixel = factor / upscaling
    (x, y), (disparity, rise) = (at * pixel + (pixel - 1) / 2).T, ((at - to) * pixel).T
    return np.rec.fromarrays([x, y, disparity, -rise], MATCH), factor


def refine_matches(first: Pixels, second: Pixels, matches: Matches, factor: int, most: int) -> Matches:
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
    return np.array(rows, MATCH).view(np.recarray)


def interpolate_peak(three: NDArray[Any]) -> float:
    """Return the vertex, in [-0.5, 0.5] from the middle, of the parabola through three values."""
    before, at, after = map(float, three)
    curve = before - 2 * at + after
    return float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0 else 0.0


def _is_upright(left: Pixels, right: Pixels, most: int) -> bool:
    """Return True if columns agree, and rows differ from place to place as disparities do."""
    _, found, _ = measure_pair(left, right, most, upright=True)
    if len(found) < UPRIGHT_MATCHES or float(np.median(np.abs(found.disparity))) > UPRIGHT_ERROR:
        return False
    good = found[np.abs(found.disparity) < 2 * UPRIGHT_ERROR]
    terms = np.column_stack([np.ones(len(good)), good.x])  # a rotated image has linear offsets too
    rest = good.dy - terms @ np.linalg.lstsq(terms, good.dy, rcond=None)[0]
    low, high = np.percentile(rest, (5, 95))
    return 2 * len(good) > len(found) and float(high - low) > UPRIGHT_SPREAD


def _weigh_order(left: Pixels, right: Pixels, offset: float, disparity: NDArray[np.float64]) -> float:
    """Return the log-odds that the first image is the left one, given row offset and disparities (px)."""
    factor = choose_downscaling(left.shape, 120_000, 480)
    one, two = downscale_to_uint8(left, factor), downscale_to_uint8(right, factor)
    two = np.roll(two, -round(offset / factor), axis=0)
    low, middle, high = np.quantile(disparity, (0.02, 0.5, 0.98)) / factor
    move, width = round(float(middle)), one.shape[1]
    one, two = one[:, max(move, 0) : width + min(move, 0)], two[:, max(-move, 0) : width - max(move, 0)]
    if min(one.shape[:2]) < SMALLEST:
        return 0.0
    reach = int(low) - move - SLACK, int(high) - move + SLACK
    match = match_densely(to_grey(one), to_grey(two), *reach)
    return weigh_order(one, two, match)


def _measure_common(left: Pixels, right: Pixels, offset: float) -> float | None:
    """Return the share of consistent matches in small copies, or None if these are too small or plain."""
    factor = choose_downscaling(left.shape, 60_000, 320)
    height, width = left.shape[:2]
    if min(height, width) < SMALL * factor or height * width < SMALL_AREA * factor**2:
        return None
    one, two = (to_grey(downscale_to_uint8(view, factor)) for view in (left, right))
    if min(float(view.std(axis=1).mean()) for view in (one, two)) < PLAIN:
        return None
    reach = int(0.3 * one.shape[1])
    moves = {0, -round(offset / factor)}
    return max(
        float(match_densely(one, np.roll(two, move, 0), -reach, reach).first_seen.mean()) for move in moves
    )
