"""Lay out the charts of a report, which `templates/chart.html` draws as inline SVG."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ERROR_EDGES = (0, 0.25, 0.5, 1, 2, 3, 4, 8, 16, 32, math.inf)  # edges, px, for small and large errors

Ticks = list[tuple[float, str]]


@dataclass(frozen=True)
class Chart:
    """Bars or lines. Positions are fractions of the axes: 0 at the left and bottom, 1 at the other end."""

    title: str
    label: str  # description for people who do not see the chart
    x_title: str
    x_ticks: Ticks
    y_ticks: Ticks
    y_title: str = ""
    bars: list[tuple[str, str, str, float]] = field(default_factory=list)
    """Tip, kind ("right" or "wrong"), text and height of each bar."""
    lines: dict[str, list[tuple[float, float, str]]] = field(default_factory=dict)
    """Positions and tips of the points of each line, by name."""
    caption: str = ""


def make_histogram(
    title: str, edges: Sequence[float], counts: Sequence[int], wrong_from: float = math.inf, without: int = 0
) -> Chart:
    """Lay out a histogram of errors: bars of equal width whose heights are shares of the pixels.

    `counts` are the numbers of pixels between rising `edges`, px, of which the last may be inf. Errors from
    `wrong_from` on count as wrong. Pixels `without` an estimate have a bar of their own.
    """
    spans = [
        f"{low:g} px and more" if math.isinf(high) else f"{low:g} to {high:g} px"
        for low, high in itertools.pairwise(edges)
    ]
    kinds = ["wrong" if low >= wrong_from else "right" for low in edges[:-1]]
    if without:
        spans, kinds, counts = [*spans, "no estimate"], [*kinds, "wrong"], [*counts, without]
    shares = [100 * count / (sum(counts) or 1) for count in counts]
    top, y_ticks = _make_y_axis(max(shares), " %")
    x_ticks = [(n / len(shares), f"{edge:g}") for n, edge in enumerate(edges) if math.isfinite(edge)]
    if without:
        x_ticks.append((1 - 0.5 / len(shares), "none"))
    bars = [
        (f"{span}: {share:.2f} %", kind, f"{share:.1f}", share / top)
        for span, kind, share in zip(spans, kinds, shares, strict=True)
    ]
    label = f"{title}: share of the pixels in each range of errors"
    return Chart(title, label, "error (px)", x_ticks, y_ticks, bars=bars)


def make_curves(
    title: str,
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    x_title: str,
    y_title: str,
    caption: str = "",
) -> Chart:
    """Lay out at most three lines from 0 upwards: y values by name, NaN = unknown; the first is on top."""
    points = {
        name: [each for each in zip(x, y, strict=True) if math.isfinite(each[1])]
        for name, y in curves.items()
    }
    low, width = min(x), max(max(x) - min(x), 1e-9)
    top, y_ticks = _make_y_axis(max((y for line in points.values() for _, y in line), default=1))
    step = _round_step(width)
    round_numbers = range(math.ceil(low / step - 1e-9), math.floor((low + width) / step + 1e-9) + 1)
    x_ticks = [((step * n - low) / width, f"{step * n:g}") for n in round_numbers]
    lines = {
        name: [((x - low) / width, y / top, f"{name}, at {x:.3g}: {y:.3g}") for x, y in line]
        for name, line in points.items()
    }
    label = f"{title}: {y_title} over {x_title}, {' and '.join(points)}"
    return Chart(title, label, x_title, x_ticks, y_ticks, y_title, lines=lines, caption=caption)


def _make_y_axis(highest: float, unit: str = "") -> tuple[float, Ticks]:
    """Return the end of an axis just above `highest`, and positions and labels of about four round ticks."""
    step = _round_step(highest if highest > 0 else 1)
    ticks = [step * index for index in range(math.ceil(highest / step) + 1 if highest > 0 else 5)]
    return ticks[-1], [(tick / ticks[-1], f"{tick:g}{unit}") for tick in ticks]


def _round_step(span: float) -> float:
    rough = span / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
