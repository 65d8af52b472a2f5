"""One diagnosis of a pair: identical, unrelated, exchanged, shifted, not rectified, or upright cameras.

Features of both views are matched on a reduced image, to both sides; some of them are then measured at full
size, to a fraction of a pixel.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.matching import (
    Matches,
    find_matches,
    grey,
    match_densely,
    reduced,
    reduction,
    refine_matches,
)
from pamcli.imaging.view_order import weigh_order

REACH = 0.4, 0.1
"""How far across and down a feature is looked for, as a share of the width and of the longer side."""
REFINED = 48  # matches measured at full size, at most
ENOUGH_MATCHES = 10  # fewer matches give no verdict about order and rows, unless their rows agree:
ENOUGH_ALIKE, ALIKE = 5, 1.0
"""Measured matches that suffice where most lie within so many pixels of their median row offset."""
WRONG_SIDE, RIGHT_SIDE = 0.3, 0.1
"""Share of the matches with negative disparities from which on the order of the views is examined; of those
that take a side, the share on the right one below which no camera pair gives such disparities as they are."""
ORDER_LOG_ODDS = 1.25
"""Evidence that decides the order of the views: all of 40 benchmark pairs reach it, in either order."""
SMALLEST, SLACK = 16, 8
"""Pixels of the smallest side that is examined for it, and around the disparities of the matches."""
CONFIRMED = 0.3
"""Views count as unrelated while less than this share of the matches looked at in full size are there too: of
73 real pairs it was 0.56 and more, of views of different scenes 0.13 and less
(scripts/measure_confidence.py)."""
COMMON = 0.55
"""Share of the pixels for which dense matching of small copies agrees from both sides, below which views are
unrelated: of 21 real pairs, sharp or blurred until they had no details, it was 0.60 and more, of views of
different scenes 0.49 and less."""
SMALL, PLAIN = 100, 8.0
"""Pixels of a side, and grey levels by which rows vary, below which such copies say nothing."""
BELOW = 0.05
"""Share of the matches that may lie below the disparities that are searched."""
MAX_VERTICAL_ERROR = 1.0  # pixels by which matches of a rectified pair may lie above or below each other
STEP = 10  # px, of which a suggested `min_disparity` is a multiple
UPRIGHT_MATCHES, UPRIGHT_ERROR, UPRIGHT_SPREAD = 12, 1.5, 3.0
"""One camera is above the other where so many matches agree in their columns to so many pixels, and nine of
ten differ in their row offsets by more than the spread, other than by a turned image."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pair, and what to do."""

    topic: str
    text: str
    do: str

    def __str__(self) -> str:
        return f"{self.text}: {self.do}"


@dataclass(frozen=True)
class PairCheck:
    """What a look at a pair found; pixels are those of the full-size images."""

    matches: int = 0
    """Trustworthy matches found; with fewer than `ENOUGH_MATCHES` nothing is said about the order."""
    median_disparity: float = 0.0
    """Median of left x - right x over the matches, >= 0 for a pair in the right order; 0 without matches."""
    vertical_offset: float = 0.0
    """Median of right y - left y: positive where the right view shows things lower; 0 without a verdict."""
    vertical_error: float = 0.0
    """Median of |right y - left y|: also large where the offsets cancel out, as in a rotated view."""
    identical: bool = False
    """Both images have the same pixels; nothing else was looked at then."""
    unrelated: bool = False
    """Hardly anything of one image is in the other: probably two scenes."""
    upright: bool = False
    """One camera is above the other."""
    order: float = 0.0
    """Log-odds that the left image is the left view; 0 where there is no doubt, or nothing is known."""
    behind: bool = False
    """Nearly all matches have negative disparities."""
    disparity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    """(N,) disparities of the matches, px."""

    @property
    def exchanged(self) -> bool:
        """The left image is the right view."""
        return self.order < -ORDER_LOG_ODDS

    def problems(self, min_disparity: float | None = None) -> list[Problem]:
        """Return what is wrong, with its remedy; empty for a usable pair.

        min_disparity: where a search for disparities begins, px; None: nothing depends on it.
        """
        if self.identical:
            text = "both images are identical, so there is no disparity to find"
            return [Problem("images", text, "give the two views of a scene")]
        if self.unrelated:
            text = "the images seem to show different scenes, hardly anything of one is found in the other"
            return [Problem("matches", text, "check that both belong to one pair")]
        if self.upright:
            text = "things differ in their rows, not in their columns, as if one camera is above the other"
            return [
                Problem("cameras", text, "`vertical` matches such a pair, the upper camera's image first")
            ]
        found = []
        if self.exchanged:
            text = f"the views look exchanged (median disparity {self.median_disparity:.1f} px)"
            do = "swap the two arguments; of a packed image, `packed` rl instead of lr, or bt instead of tb"
            found.append(Problem("left and right", text, do))
        if self.vertical_error > MAX_VERTICAL_ERROR:
            return [*found, self._rows()]
        if not found and min_disparity is not None:
            found += self._below(min_disparity)
        return found

    def warnings(self, min_disparity: float | None = None) -> list[str]:
        """Return a line for each of the `problems`."""
        return [*map(str, self.problems(min_disparity))]

    def _rows(self) -> Problem:
        error, limit, digits = self.vertical_error, MAX_VERTICAL_ERROR, 1
        while round(error, digits) <= limit and digits < 6:
            digits += 1
        if abs(self.vertical_offset) > 0.9 * error:
            side = "lower" if self.vertical_offset > 0 else "higher"
            text = f"matches sit {error:.{digits}f} px {side} in the right view"
        else:
            text = f"matches sit about {error:.{digits}f} px above or below each other"
        do = "rectify it first (pam rectify)"
        return Problem("rows", f"{text}, the pair is not rectified (more than {limit:g} px)", do)

    def _below(self, min_disparity: float) -> list[Problem]:
        """Say whether many matches lie below the disparities that are searched."""
        share = float(np.mean(self.disparity < min_disparity - 2)) if len(self.disparity) else 0.0
        if self.matches < ENOUGH_MATCHES or share <= BELOW:
            return []
        lowest = STEP * math.floor((float(np.quantile(self.disparity, 0.02)) - 2) / STEP)
        do = f"`min_disparity` {lowest} searches them"
        if self.behind and self.order < ORDER_LOG_ODDS:
            do += "; if near things come out as far ones, swap the two arguments instead"
        text = f"{100 * share:.0f} % of the matches have disparities below {min_disparity:g} px"
        return [Problem("left and right", f"the pair is shifted, {text}", do)]


def check_pair(left: NDArray[np.generic], right: NDArray[np.generic], most: int = REFINED) -> PairCheck:
    """Look at two views, (H, W, 3) uint8 or uint16 of one size; any H and W, tiny ones yield no verdict.

    most: matches that are measured at full size. Raises ValueError where the shapes differ or are not
    (H, W, 3).
    """
    if left.shape != right.shape or left.ndim != 3 or left.shape[2] != 3:
        raise ValueError(f"two pictures (H, W, 3) of one size are needed, not {left.shape} and {right.shape}")
    if _identical(left, right):
        return PairCheck(identical=True)
    height, width = left.shape[:2]
    across, down = REACH[0] * width, REACH[1] * max(height, width)
    found, measured, factor = measured_matches(left, right, (across, down), most)
    offset = float(np.median(measured.dy)) if len(measured) else 0.0
    alike = int(np.count_nonzero(np.abs(measured.dy - offset) <= ALIKE))
    enough = len(measured) >= ENOUGH_MATCHES or (alike >= ENOUGH_ALIKE and alike > 0.6 * len(measured))
    error = float(np.median(np.abs(measured.dy))) if enough else 0.0
    looked_at = min(len(found), most)
    few = looked_at < ENOUGH_MATCHES
    doubtful = not enough or len(measured) < CONFIRMED * looked_at
    if (doubtful or error > UPRIGHT_SPREAD) and _is_upright(left, right, most):
        return PairCheck(len(found), upright=True)
    if doubtful and alike < max(ENOUGH_ALIKE, 0.6 * len(measured)):
        common = _common(left, right, offset)
        if (not few) if common is None else common < COMMON:
            return PairCheck(len(found), unrelated=True)
    if not len(found):
        return PairCheck()
    median = float(np.median((measured if enough else found).disparity))
    near_rows = np.abs(found.dy - offset) <= factor + 2 * max(ALIKE, error)
    disparity = found.disparity[near_rows] if enough else found.disparity
    # What is far away has hardly any disparity and takes no side; one reduced pixel counts `factor`.
    right_side = np.count_nonzero(disparity > factor)
    wrong_side = np.count_nonzero(disparity < -factor)
    suspect = wrong_side >= max(ENOUGH_MATCHES, WRONG_SIDE * len(disparity))
    behind = bool(
        suspect and 2 * wrong_side >= len(disparity) and right_side < RIGHT_SIDE * (right_side + wrong_side)
    )
    order = _order(left, right, offset, disparity) if suspect else 0.0
    return PairCheck(
        len(found), median, offset if enough else 0.0, error, order=order, behind=behind, disparity=disparity
    )


def measured_matches(
    left: NDArray[np.generic], right: NDArray[np.generic], reach: tuple[float, float], most: int
) -> tuple[Matches, Matches, int]:
    """Return all matches, those that were measured at full size, and the factor of the reduced views.

    Small views are enlarged for it where too few are found. reach: as of `find_matches`.
    """
    found, factor = find_matches(left, right, reach)
    measured = refine_matches(left, right, found, factor, most)
    if len(measured) < ENOUGH_MATCHES and factor == 1:
        more, _ = find_matches(left, right, reach, enlarge=2)
        better = refine_matches(left, right, more, 1, most)
        if len(better) > max(len(measured), ENOUGH_ALIKE):
            found, measured = more, better
    return found, measured, factor


def _is_upright(left: NDArray[np.generic], right: NDArray[np.generic], most: int) -> bool:
    """Whether columns agree, and rows differ from place to place as disparities do."""
    height, width = left.shape[:2]
    reach = REACH[1] * max(height, width), REACH[0] * height
    _, found, _ = measured_matches(left, right, reach, most)
    if len(found) < UPRIGHT_MATCHES or float(np.median(np.abs(found.disparity))) > UPRIGHT_ERROR:
        return False
    good = found.take(np.abs(found.disparity) < 2 * UPRIGHT_ERROR)
    terms = np.column_stack([np.ones(len(good)), good.x])  # a turned image has such offsets, too
    rest = good.dy - terms @ np.linalg.lstsq(terms, good.dy, rcond=None)[0]
    low, high = np.percentile(rest, (5, 95))
    return 2 * len(good) > len(found) and float(high - low) > UPRIGHT_SPREAD


def _order(
    left: NDArray[np.generic], right: NDArray[np.generic], offset: float, disparity: NDArray[np.float64]
) -> float:
    """Log-odds that the first view is the left one, by which surface hides the other.

    offset: of rows, px. disparity: of matches, px; what both views show is compared.
    """
    factor = reduction(left.shape, 120_000, 480)
    one, two = reduced(left, factor), reduced(right, factor)
    two = np.roll(two, -round(offset / factor), axis=0)
    low, middle, high = np.quantile(disparity, (0.02, 0.5, 0.98)) / factor
    move, width = round(float(middle)), one.shape[1]
    one, two = one[:, max(move, 0) : width + min(move, 0)], two[:, max(-move, 0) : width - max(move, 0)]
    if min(one.shape[:2]) < SMALLEST:
        return 0.0
    reach = int(low) - move - SLACK, int(high) - move + SLACK
    return weigh_order(one, two, match_densely(grey(one), grey(two), *reach)).log_odds


def _common(left: NDArray[np.generic], right: NDArray[np.generic], offset: float) -> float | None:
    """Share of the pixels of small copies whose matches lead back to them; None: too small or plain.

    offset: pixels by which the rows of the right view may be lower.
    """
    factor = reduction(left.shape, 60_000, 320)
    if min(left.shape[:2]) < SMALL * factor:
        return None
    one, two = (grey(reduced(view, factor)) for view in (left, right))
    if min(float(view.std(axis=1).mean()) for view in (one, two)) < PLAIN:
        return None
    reach = int(0.3 * one.shape[1])
    moves = {0, -round(offset / factor)}
    return max(
        float(match_densely(one, np.roll(two, move, 0), -reach, reach).first_seen.mean()) for move in moves
    )


def _identical(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    """Equal pixel by pixel; stops at the first band of rows that differs."""
    for row in range(0, len(left), 64):
        if not np.array_equal(left[row : row + 64], right[row : row + 64]):
            return False
    return left.dtype == right.dtype
