"""A quick look at a pair before the network sees it: nearly black, unrelated, exchanged, not rectified?

Features of both views are matched on a reduced picture, in a band of rows and to BOTH sides; some of them are
then measured at full size, to a fraction of a pixel. This only yields warnings.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.matching import find_matches, grey, match_densely, reduced, reduction, refine_matches

REACH_X, REACH_Y = 0.4, 0.05
"""How far to either side, and up and down, a feature is looked for, as a share of the width and the longer
side."""
REFINED = 48  # matches measured at full size, at most
ENOUGH_MATCHES = 10  # fewer matches give no verdict about order and rows
RIGHT_SIDE = 0.1
"""Views count as exchanged while less than this share of the matches that take a side take the right one."""
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
BELOW = 0.1
"""Share of the matches that may lie below the disparities that are searched: of 80 rectified pairs 0.06 and
less lay below 0."""
FEW_BITS = 12
"""Bits that some cameras give, written to the lower end of 16: white is one sixteenth of white then, and of
the sample pair twice as many pixels are wrong, with 10 bits four times as many."""
MAX_VERTICAL_ERROR = 1.0  # pixels by which matches of a rectified pair may lie above or below each other


@dataclass(frozen=True)
class PairCheck:
    """What a quick look found; pixels are those of the full-size pictures."""

    matches: int = 0
    """Trustworthy matches found; with fewer than `ENOUGH_MATCHES` nothing is said about order and rows."""
    median_disparity: float = 0.0
    """Median of left x - right x over the matches, >= 0 for a pair in the right order; 0 without matches."""
    exchanged: bool = False
    """Nearly all matches lie on the wrong side: the left picture is probably the right view."""
    vertical_offset: float = 0.0
    """Median of right y - left y: positive where the right view shows things lower; 0 without a verdict."""
    vertical_error: float = 0.0
    """Median of |right y - left y|: also large where the offsets cancel out, as in a rotated view."""
    identical: bool = False
    """Both pictures have the same pixels; nothing else was looked at then."""
    unrelated: bool = False
    """Hardly anything of one picture is in the other: probably two scenes."""
    lowest: float = 0.0
    """Below this, at least, lie a tenth of the matches; 0 without a verdict."""
    largest: int | None = None
    """Largest value of pictures of 16 bits that use the lower `FEW_BITS` at most; None: they use more."""

    def warnings(self, min_disparity: float | None = None) -> list[str]:
        """One line for each thing that looks wrong, with its remedy; empty for a usable pair.

        min_disparity: where a search for disparities begins, pixels; None: there is none.
        """
        lines = []
        if self.largest is not None:
            bits = max(self.largest.bit_length(), 8)
            lines.append(
                f"in pictures of 16 bits no value is above {self.largest}, so they are nearly black: if the "
                f"camera gives {bits} bits, multiply its values by {1 << 16 - bits}"
            )
        if self.identical:
            same = "both pictures are identical, so there is no disparity to find"
            return [*lines, f"{same}: give the two views of a scene"]
        if self.unrelated:
            what = "the pictures seem to show different scenes"
            return [*lines, f"{what}: hardly anything of one is found in the other"]
        searched = min_disparity is not None and self.lowest >= min_disparity
        if self.exchanged and not (searched and min_disparity):
            lines.append(
                f"the views look exchanged (median disparity {self.median_disparity:.1f} px): swap the two "
                "arguments; for a packed picture take `packed` rl instead of lr, or bt instead of tb"
            )
        elif min_disparity is not None and not searched:
            lines.append(
                f"a tenth of the matches or more have disparities below {self.lowest:.0f} px, and nothing "
                f"below {min_disparity:g} px is searched: lower `min_disparity`"
            )
        if self.vertical_error > MAX_VERTICAL_ERROR:
            if abs(self.vertical_offset) > 0.5 * self.vertical_error:
                side = "lower" if self.vertical_offset > 0 else "higher"
                found = f"matches sit {abs(self.vertical_offset):.1f} px {side} in the right view"
            else:
                found = f"matches sit about {self.vertical_error:.1f} px above or below each other"
            lines.append(
                f"{found}: the pair is not rectified (more than {MAX_VERTICAL_ERROR:g} px), "
                "rectify it first (pam rectify)"
            )
        return lines


def check_pair(left: NDArray[np.generic], right: NDArray[np.generic]) -> PairCheck:
    """Look at two views, (H, W, 3) uint8 or uint16 of one size; any H and W, small ones yield no verdict.

    Raises ValueError where the shapes differ or are not (H, W, 3).
    """
    if left.shape != right.shape or left.ndim != 3 or left.shape[2] != 3:
        raise ValueError(f"two pictures (H, W, 3) of one size are needed, not {left.shape} and {right.shape}")
    largest = 1 << FEW_BITS
    if left.dtype == right.dtype == np.uint16:
        largest = int(max(left.max(), right.max()))
    return replace(_looked_at(left, right), largest=None if largest >> FEW_BITS else largest)


def _looked_at(left: NDArray[np.generic], right: NDArray[np.generic]) -> PairCheck:
    if _identical(left, right):
        return PairCheck(identical=True)
    height, width = left.shape[:2]
    found, factor = find_matches(left, right, (REACH_X * width, REACH_Y * max(height, width)))
    measured = refine_matches(left, right, found, factor, REFINED)
    looked_at = min(len(found), REFINED)
    few = looked_at < ENOUGH_MATCHES
    if few or len(measured) < CONFIRMED * looked_at:
        common = _common(left, right)
        if (not few) if common is None else common < COMMON:
            return PairCheck(len(found), unrelated=True)
    if not len(found):
        return PairCheck()
    enough = len(measured) >= ENOUGH_MATCHES
    median = float(np.median((measured if enough else found).disparity))
    # What is far away has hardly any disparity and takes no side; one reduced pixel counts `factor`.
    right_side = np.count_nonzero(found.disparity > factor)
    wrong_side = np.count_nonzero(found.disparity < -factor)
    exchanged = bool(
        wrong_side >= max(ENOUGH_MATCHES, len(found) / 2)
        and right_side < RIGHT_SIDE * (right_side + wrong_side)
    )
    offset = float(np.median(measured.dy)) if enough else 0.0
    error = float(np.median(np.abs(measured.dy))) if enough else 0.0
    lowest = float(np.quantile(found.disparity, BELOW)) + factor + 2 if not few else 0.0
    return PairCheck(len(found), median, exchanged, offset, error, lowest=lowest)


def _common(left: NDArray[np.generic], right: NDArray[np.generic]) -> float | None:
    """Share of the pixels of small copies whose matches lead back to them; None: too small or plain."""
    factor = reduction(left.shape, 60_000, 320)
    if min(left.shape[:2]) < SMALL * factor:
        return None
    one, two = (grey(reduced(view, factor)) for view in (left, right))
    if min(float(view.std(axis=1).mean()) for view in (one, two)) < PLAIN:
        return None
    reach = int(0.3 * one.shape[1])
    return float(match_densely(one, two, -reach, reach).first_seen.mean())


def _identical(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    """Equal pixel by pixel; stops at the first band of rows that differs."""
    for row in range(0, len(left), 64):
        if not np.array_equal(left[row : row + 64], right[row : row + 64]):
            return False
    return left.dtype == right.dtype
