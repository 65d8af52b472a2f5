"""The charts of a report: how errors are spread, and how they fall with confidence.

Where each part lies is computed here, as a part of the axes: 0 at the left and the bottom, 1 at the right and
the top. `templates/chart.html` draws it as inline SVG.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ERROR_EDGES = (0, 0.25, 0.5, 1, 2, 3, 4, 8, 16, 32, math.inf)
"""Edges, px, of a histogram of disparity errors that show both the small and the large."""


@dataclass(frozen=True)
class Histogram:
    """How many pixels have an error between one edge and the next."""

    title: str
    edges: tuple[float, ...]
    """Edges, px, rising, one more than there are counts; the last may be inf."""
    counts: tuple[int, ...]
    wrong_from: float = math.inf
    """Errors from here on count as wrong, and get another colour; one of the edges."""
    without: int = 0
    """Pixels with a truth, but no estimate: a bar of their own where there are any."""
    caption: str = ""

    def drawn(self) -> dict[str, Any]:
        """Lay out bars of equal width, whatever they span, as high as the share of the pixels in them."""
        spans = [
            f"{low:g} px and more" if math.isinf(high) else f"{low:g} to {high:g} px"
            for low, high in itertools.pairwise(self.edges)
        ]
        kinds = ["wrong" if low >= self.wrong_from else "right" for low in self.edges[:-1]]
        counts = [*self.counts]
        if self.without:
            spans, kinds, counts = [*spans, "no estimate"], [*kinds, "wrong"], [*counts, self.without]
        shares = [100 * count / (sum(counts) or 1) for count in counts]
        top, y_ticks = _y_axis(max(shares), " %")
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
    """Lines over one axis: at most three, the one that was measured first, the oracle second."""

    title: str
    x: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    """y of each, by its name; NaN: not known."""
    x_title: str
    y_title: str
    caption: str = ""

    def drawn(self) -> dict[str, Any]:
        """Lay out lines, from 0 upwards; the first one lies on top."""
        points = {
            name: [each for each in zip(self.x, y, strict=True) if math.isfinite(each[1])]
            for name, y in self.curves.items()
        }
        low, width = min(self.x), max(max(self.x) - min(self.x), 1e-9)
        top, y_ticks = _y_axis(max((y for line in points.values() for _, y in line), default=1))
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


def _y_axis(highest: float, unit: str = "") -> tuple[float, list[tuple[float, str]]]:
    """Return an axis's end just above `highest`, and places and texts of about four round steps from 0 on."""
    step = _round_step(highest if highest > 0 else 1)
    ticks = [step * index for index in range(math.ceil(highest / step) + 1 if highest > 0 else 5)]
    return ticks[-1], [(tick / ticks[-1], f"{tick:g}{unit}") for tick in ticks]


def _round_step(span: float) -> float:
    rough = span / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
