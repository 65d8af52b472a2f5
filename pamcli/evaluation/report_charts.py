"""Lay out the charts of a report, which `templates/chart.html` draws as inline SVG.

Positions are fractions of the axes: 0 at the left and bottom, 1 at the right and top.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ERROR_EDGES = (0, 0.25, 0.5, 1, 2, 3, 4, 8, 16, 32, math.inf)  # edges, px, for small and large errors


@dataclass(frozen=True)
class Histogram:
    """A histogram of errors."""

    title: str
    edges: tuple[float, ...]  # edges, px, rising, one more than counts; the last may be inf
    counts: tuple[int, ...]
    wrong_from: float = math.inf  # errors from this edge on count as wrong and have another colour
    without: int = 0  # number of pixels with ground truth but no estimate, shown as a separate bar if not 0
    caption: str = ""

    def lay_out(self) -> dict[str, Any]:
        """Lay out one bar of equal width per range; its height is the share of pixels."""
        spans = [
            f"{low:g} px and more" if math.isinf(high) else f"{low:g} to {high:g} px"
            for low, high in itertools.pairwise(self.edges)
        ]
        kinds = ["wrong" if low >= self.wrong_from else "right" for low in self.edges[:-1]]
        counts = [*self.counts]
        if self.without:
            spans, kinds, counts = [*spans, "no estimate"], [*kinds, "wrong"], [*counts, self.without]
        shares = [100 * count / (sum(counts) or 1) for count in counts]
        top, y_ticks = _make_y_axis(max(shares), " %")
        x_ticks = [(n / len(shares), f"{edge:g}") for n, edge in enumerate(self.edges) if math.isfinite(edge)]
        if self.without:
            x_ticks.append((1 - 0.5 / len(shares), "none"))
        return {
            "label": f"{self.title}: share of the pixels in each range of errors",
            "x_title": "error (px)",
            "x_ticks": x_ticks,
            "y_ticks": y_ticks,
            "bars": [
                (f"{span}: {share:.2f} %", kind, f"{share:.1f}", share / top)
                for span, kind, share in zip(spans, kinds, shares, strict=True)
            ],
        }


@dataclass(frozen=True)
class CurveChart:
    """A chart of at most three lines: the measured method first, the oracle second."""

    title: str
    x: Sequence[float]
    curves: Mapping[str, Sequence[float]]  # the y values of each line, by name; NaN = unknown
    x_title: str
    y_title: str
    caption: str = ""

    def lay_out(self) -> dict[str, Any]:
        """Lay out the lines from 0 upwards; the first one is on top."""
        points = {
            name: [each for each in zip(self.x, y, strict=True) if math.isfinite(each[1])]
            for name, y in self.curves.items()
        }
        low, width = min(self.x), max(max(self.x) - min(self.x), 1e-9)
        top, y_ticks = _make_y_axis(max((y for line in points.values() for _, y in line), default=1))
        step = _round_step(width)
        round_numbers = range(math.ceil(low / step - 1e-9), math.floor((low + width) / step + 1e-9) + 1)
        return {
            "label": f"{self.title}: {self.y_title} over {self.x_title}, {' and '.join(points)}",
            "x_title": self.x_title,
            "x_ticks": [((step * n - low) / width, f"{step * n:g}") for n in round_numbers],
            "y_title": self.y_title,
            "y_ticks": y_ticks,
            "lines": {
                name: [((x - low) / width, y / top, f"{name}, at {x:.3g}: {y:.3g}") for x, y in line]
                for name, line in points.items()
            },
        }


def _make_y_axis(highest: float, unit: str = "") -> tuple[float, list[tuple[float, str]]]:
    """Return the end of an axis just above `highest`, and positions and labels of about four round ticks."""
    step = _round_step(highest if highest > 0 else 1)
    ticks = [step * index for index in range(math.ceil(highest / step) + 1 if highest > 0 else 5)]
    return ticks[-1], [(tick / ticks[-1], f"{tick:g}{unit}") for tick in ticks]


def _round_step(span: float) -> float:
    rough = span / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
