"""Row offsets of a rectified pair: their size and place, and the shift, rotation or scale behind them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from pamcli.calibration.geometry import Floats
from pamcli.imaging.matching import Matches
from pamcli.imaging.preflight import ENOUGH_MATCHES

ENOUGH = 20  # matches that a rotation and a scale require
FEW = 3  # a ninth of the image needs more matches to be compared with the others
VISIBLE = 0.3  # px between two edges of the image from which a rotation or scale is reported


@dataclass(frozen=True)
class RowOffsets:
    """Row offsets of matches between two rectified images: right y - left y, px."""

    matches: Matches
    median: float  # px, median distance
    p90: float  # px, 90 % of the distances are smaller
    shift: float  # px by which the right image is lower in its middle
    angle: float  # degrees by which it is rotated clockwise
    stretch: float  # relative vertical scale, minus 1
    worst: tuple[str, float] | None  # ninth of the image with the largest median, and that median

    @property
    def pattern(self) -> str:
        """Words for shift, rotation and scale, the largest first; "" if nothing stands out."""
        parts = {}
        if abs(self.shift) > VISIBLE / 2:
            parts[f"{abs(self.shift):.1f} px {'lower' if self.shift > 0 else 'higher'}"] = abs(self.shift)
        if (across := abs(math.radians(self.angle)) * float(np.ptp(self.matches.x))) > VISIBLE:
            way = "clockwise" if self.angle > 0 else "counter-clockwise"
            parts[f"rotated by {abs(self.angle):.2f} degrees {way}"] = across / 2
        if (down := abs(self.stretch) * float(np.ptp(self.matches.y))) > VISIBLE:
            word = "larger" if self.stretch > 0 else "smaller"
            parts[f"{100 * abs(self.stretch):.2f} % {word} from top to bottom"] = down / 2
        return ", ".join(sorted(parts, key=lambda part: -parts[part]))


def summarize_row_offsets(matches: Matches, width: int, height: int) -> RowOffsets | None:
    """Summarize matches between images of this size (px); return None for too few matches."""
    if len(matches) < ENOUGH_MATCHES:
        return None
    x, y = matches.x - (width - 1) / 2, matches.y - (height - 1) / 2
    terms = np.column_stack([np.ones(len(matches)), x, y])
    if len(matches) < ENOUGH:
        terms[:, 1:] = 0.0
    keep = np.abs(matches.dy - np.median(matches.dy)) < max(3.0, 6 * _measure_spread(matches.dy))
    fit = np.zeros(3)
    for _ in range(4):  # rejects wrong matches
        fit[:] = np.linalg.lstsq(terms[keep], matches.dy[keep], rcond=None)[0]
        off = matches.dy - terms @ fit
        keep = np.abs(off) < max(0.5, 3.5 * _measure_spread(off[keep]))
    good = matches.take(keep)
    median, p90 = np.percentile(np.abs(good.dy), (50, 90)).tolist()
    shift, slope, stretch = fit.tolist()
    angle = math.degrees(math.atan(slope))
    return RowOffsets(good, median, p90, shift, angle, stretch, _find_worst(good, width, height))


def _measure_spread(values: Floats) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _find_worst(matches: Matches, width: int, height: int) -> tuple[str, float] | None:
    ninths = itertools.product(("upper", "", "lower"), ("left", "", "right"))
    places = 3 * (matches.y // (height / 3)) + matches.x // (width / 3)
    parts = [(" ".join(filter(None, name)), matches.dy[places == at]) for at, name in enumerate(ninths)]
    medians = [(name or "middle", float(np.median(each))) for name, each in parts if len(each) > FEW]
    return max(medians, key=lambda each: abs(each[1])) if len(medians) > 1 else None
