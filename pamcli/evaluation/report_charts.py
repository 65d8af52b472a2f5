"""The charts of a report, as inline SVG: how errors are spread, and how they fall with confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 22, 40
_BAR_GAP = 3

ERROR_EDGES = (0, 0.25, 0.5, 1, 2, 3, 4, 8, 16, 32, math.inf)
"""Pixels: edges of a histogram of disparity errors that show both the small and the large."""


@dataclass(frozen=True)
class Histogram:
    """How many pixels have an error between one edge and the next."""

    title: str
    edges: tuple[float, ...]
    """Rising, one more than there are counts; the last may be inf."""
    counts: tuple[int, ...]
    unit: str = "px"
    wrong_from: float | None = None
    """Errors from here on count as wrong, and get another colour; one of the edges."""
    without: int = 0
    """Pixels with a truth, but no estimate: a bar of their own where there are any."""
    caption: str = ""

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1 or not self.counts:
            raise ValueError("a histogram has one edge more than it has counts, and at least one count")


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or not self.x:
            raise ValueError("a curve has as many x as y, and at least one")


@dataclass(frozen=True)
class CurveChart:
    """Lines over one axis: at most three, the one that was measured first, the oracle second."""

    title: str
    curves: tuple[Curve, ...]
    x_title: str
    y_title: str
    caption: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.curves) <= 3:
            raise ValueError("a chart has one to three curves")


def histogram_svg(histogram: Histogram) -> str:
    """Bars of equal width, whatever the bins span, as high as the share of the pixels in them."""
    total = sum(histogram.counts) + histogram.without or 1
    shares = [100 * count / total for count in histogram.counts]
    if histogram.without:
        shares.append(100 * histogram.without / total)
    ticks = _ticks(max(shares))
    step = (_WIDTH - _LEFT - _RIGHT) / len(shares)
    parts = [_y_axis(ticks, "%")]
    for index, share in enumerate(shares):
        x, y = _LEFT + index * step, _y(share, ticks[-1])
        span, wrong = _bin(histogram, index)
        parts.append(
            f'<g><title>{escape(span)}: {share:.2f} %</title><rect class="{"wrong" if wrong else "right"}" '
            f'x="{x + _BAR_GAP / 2:.1f}" y="{y:.1f}" width="{step - _BAR_GAP:.1f}" '
            f'height="{_y(0, ticks[-1]) - y:.1f}"/>'
            f'<text class="figure" x="{x + step / 2:.1f}" y="{y - 5:.1f}" text-anchor="middle">'
            f"{share:.1f}</text></g>"
        )
    finite = [edge for edge in histogram.edges if math.isfinite(edge)]
    parts += [_x_label(_LEFT + index * step, f"{edge:g}") for index, edge in enumerate(finite)]
    if histogram.without:
        parts.append(_x_label(_WIDTH - _RIGHT - step / 2, "none"))
    parts.append(_x_title(f"error ({histogram.unit})"))
    label = f"{histogram.title}: share of the pixels in each range of errors"
    return _svg(label, parts)


def _bin(histogram: Histogram, index: int) -> tuple[str, bool]:
    """What a bar stands for, and whether it is wrong."""
    if index == len(histogram.counts):
        return "no estimate", True
    low, high = histogram.edges[index : index + 2]
    span = (
        f"{low:g} {histogram.unit} and more" if math.isinf(high) else f"{low:g} to {high:g} {histogram.unit}"
    )
    return span, histogram.wrong_from is not None and low >= histogram.wrong_from


def curves_svg(chart: CurveChart) -> str:
    """Lines, from 0 upwards."""
    known = [y for curve in chart.curves for y in curve.y if math.isfinite(y)]
    xs = [x for curve in chart.curves for x in curve.x]
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)
    ticks = _ticks(max(known, default=1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)
        return across, _y(y, ticks[-1])

    parts = [_y_axis(ticks, ""), _x_title(chart.x_title)]
    parts += [
        f'<text x="{_LEFT}" y="12">{escape(chart.y_title)}</text>',
        *(_x_label(place(x, 0)[0], f"{x:g}") for x in _between(x_low, x_high)),
    ]
    for index, curve in reversed(list(enumerate(chart.curves))):  # the measured one lies on top
        points = [(x, y, *place(x, y)) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
        line = " ".join(f"{across:.1f},{up:.1f}" for _, _, across, up in points)
        parts.append(f'<polyline class="curve c{index}" points="{line}"/>')
        parts += [
            f'<circle class="point" cx="{across:.1f}" cy="{up:.1f}" r="5">'
            f"<title>{escape(f'{curve.name}, at {x:.3g}: {y:.3g}')}</title></circle>"
            for x, y, across, up in points
        ]
    names = " and ".join(curve.name for curve in chart.curves)
    return _svg(f"{chart.title}: {chart.y_title} over {chart.x_title}, {names}", parts)


def curve_legend(chart: CurveChart) -> str:
    """A sample of each line with its name."""
    items = [
        f'<span><svg viewBox="0 0 32 10" aria-hidden="true"><path class="curve c{index}" d="M0 5h32"/></svg>'
        f"{escape(curve.name)}</span>"
        for index, curve in enumerate(chart.curves)
    ]
    return f'<p class="legend">{"".join(items)}</p>'


def _svg(label: str, parts: list[str]) -> str:
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
    return f"{head}{''.join(parts)}</svg>"


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)


def _y_axis(ticks: list[float], unit: str) -> str:
    lines = []
    for tick in ticks:
        y = _y(tick, ticks[-1])
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}{unit and " " + unit}</text>'
        )
    return "".join(lines)


def _x_label(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>'


def _x_title(text: str) -> str:
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return f'<text x="{middle:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(text)}</text>'


def _ticks(highest: float) -> list[float]:
    """From 0 to just above `highest`, in about four round steps."""
    step = _round_step(highest if highest > 0 else 1)
    return [step * index for index in range(math.ceil(highest / step) + 1 if highest > 0 else 5)]


def _between(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`."""
    step = _round_step(high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * index for index in range(first, last + 1)]


def _round_step(span: float) -> float:
    rough = span / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
