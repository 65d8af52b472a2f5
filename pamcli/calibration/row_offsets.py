"""Offsets between the rows of a rectified pair: how large, where, and whether a shift, a turn or a scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pamcli.calibration.rectified import Floats, Pixels
from pamcli.imaging.matching import Matches
from pamcli.imaging.preflight import ENOUGH_MATCHES, REACH, measure_matches

MEASURED = 400
"""Matches that are measured to a fraction of a pixel, at most."""
ENOUGH = 20
"""Matches without which nothing is said of a turn and a scale."""
FEW_HERE = 3
"""Matches of which a ninth of the picture must have more to be compared with the others."""
SEEN = 0.3
"""Pixels between two edges of the picture from which on a turn or a scale is said."""


@dataclass(frozen=True)
class RowOffsets:
    """Row offsets of matches between two rectified pictures: right y - left y, pixels."""

    matches: Matches
    median: float
    """Median distance."""
    p90: float
    """Nine of ten are off by less."""
    shift: float
    """Pixels by which the right picture is lower, in the middle."""
    turn: float
    """Degrees by which it is turned clockwise about its middle."""
    stretch: float
    """Share by which it is higher, from top to bottom."""
    worst: tuple[str, float] | None
    """The ninth of the picture with the largest median, and that; None: too few matches to tell."""

    @property
    def pattern(self) -> str:
        """Words for the shift, the turn and the scale, the largest first; "" where nothing stands out."""
        parts = {}
        if abs(self.shift) > SEEN / 2:
            way = "lower" if self.shift > 0 else "higher"
            parts[f"{abs(self.shift):.1f} px {way}"] = abs(self.shift)
        side = float(np.ptp(self.matches.x)) if len(self.matches) else 0.0
        if (across := abs(math.radians(self.turn)) * side) > SEEN:
            way = "clockwise" if self.turn > 0 else "counter-clockwise"
            parts[f"turned by {abs(self.turn):.2f} degrees {way}"] = across / 2
        tall = float(np.ptp(self.matches.y)) if len(self.matches) else 0.0
        if (down := abs(self.stretch) * tall) > SEEN:
            word = "larger" if self.stretch > 0 else "smaller"
            parts[f"{100 * abs(self.stretch):.2f} % {word} from top to bottom"] = down / 2
        return ", ".join(sorted(parts, key=lambda part: -parts[part]))


def row_offsets(left: Pixels, right: Pixels) -> RowOffsets | None:
    """Measure two pictures (H, W, 3), uint8 or uint16, of one size; None: too few matches to tell."""
    height, width = left.shape[:2]
    reach = REACH[0] * width, REACH[1] * max(height, width)
    _, matches, _ = measure_matches(left, right, reach, MEASURED)
    if len(matches) < ENOUGH_MATCHES:
        return None
    middle = (width - 1) / 2, (height - 1) / 2
    terms = np.column_stack([np.ones(len(matches)), matches.x - middle[0], matches.y - middle[1]])
    keep = np.abs(matches.dy - np.median(matches.dy)) < max(3.0, 6 * _spread(matches.dy))
    fit = np.zeros(3)
    if len(matches) < ENOUGH:
        terms[:, 1:] = 0.0
    for _ in range(4):  # wrong matches lie anywhere
        fit = np.linalg.lstsq(terms[keep], matches.dy[keep], rcond=None)[0]
        off = matches.dy - terms @ fit
        keep = np.abs(off) < max(0.5, 3.5 * _spread(off[keep]))
    good = matches.take(keep)
    sizes = np.abs(good.dy)
    median, p90 = float(np.median(sizes)), float(np.percentile(sizes, 90))
    shift, slope, stretch = fit.tolist()
    turn = math.degrees(math.atan(slope))
    return RowOffsets(good, median, p90, shift, turn, stretch, _worst(good, width, height))


def _spread(values: Floats) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _worst(matches: Matches, width: int, height: int) -> tuple[str, float] | None:
    medians = {}
    for row, down in enumerate(("upper", "", "lower")):
        for column, across in enumerate(("left", "", "right")):
            here = (matches.x // (width / 3) == column) & (matches.y // (height / 3) == row)
            if np.count_nonzero(here) > FEW_HERE:
                name = " ".join(part for part in (down, across) if part) or "middle"
                medians[name] = float(np.median(matches.dy[here]))
    if len(medians) < 2:
        return None
    name = max(medians, key=lambda each: abs(medians[each]))
    return name, medians[name]
