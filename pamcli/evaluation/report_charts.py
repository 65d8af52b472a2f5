"""The charts of a report: how errors are spread, and how they fall with confidence.

Where each part lies is computed here, in pixels; `templates/chart.html` draws it as inline SVG.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 548, 22, 220
_BAR_GAP = 3

ERROR_EDGES = (0, 0.25, 0.5, 1, 2, 3, 4, 8, 16, 32, math.inf)
"""Pixels: edges of a histogram of disparity errors that show both the small and the large."""


@dataclass(frozen=True)
class Histogram:
    """How many pixels have an error between one edge and the next."""

    title: str
    edges: tuple[float, ...]
    """px; rising, one more than there are counts; the last may be inf."""
    counts: tuple[int, ...]
    wrong_from: float = math.inf
    """Errors from here on count as wrong, and get another colour; one of the edges."""
    without: int = 0
    """Pixels with a truth, but no estimate: a bar of their own where there are any."""
    caption: str = ""

    def drawn(self) -> dict[str, Any]:
        """Bars of equal width, whatever they span, as high as the share of the pixels in them."""
        spans = [
            (
                f"{low:g} px and more" if math.isinf(high) else f"{low:g} to {high:g} px",
                low >= self.wrong_from,
            )
            for low, high in itertools.pairwise(self.edges)
        ]
        total = sum(self.counts) + self.without or 1
        shares = [100 * count / total for count in self.counts]
        if self.without:
            spans.append(("no estimate", True))
            shares.append(100 * self.without / total)
        top, y_ticks = _y_axis(max(shares), " %")
        step = (_RIGHT - _LEFT) / len(shares)
        bars = []
        for index, ((span, wrong), share) in enumerate(zip(spans, shares, strict=True)):
            x, y = _LEFT + index * step, _y(share, top)
            bars.append(
                {
                    "tip": f"{span}: {share:.2f} %",
                    "kind": "wrong" if wrong else "right",
                    "x": round(x + _BAR_GAP / 2, 1),
                    "middle": round(x + step / 2, 1),
                    "y": y,
                    "width": round(step - _BAR_GAP, 1),
                    "height": round(_BOTTOM - y, 1),
                    "figure": f"{share:.1f}",
                }
            )
        x_ticks = [
            (round(_LEFT + index * step, 1), f"{edge:g}")
            for index, edge in enumerate(self.edges)
            if math.isfinite(edge)
        ]
        if self.without:
            x_ticks.append((round(_RIGHT - step / 2, 1), "none"))
        label = f"{self.title}: share of the pixels in each range of errors"
        return _frame(label, x_ticks, "error (px)", y_ticks) | {"bars": bars}


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class CurveChart:
    """Lines over one axis: at most three, the one that was measured first, the oracle second."""

    title: str
    curves: tuple[Curve, ...]
    x_title: str
    y_title: str
    caption: str = ""

    def drawn(self) -> dict[str, Any]:
        """Lines, from 0 upwards; the first one lies on top."""
        xs = [x for curve in self.curves for x in curve.x]
        low, high = min(xs), max(max(xs), min(xs) + 1e-9)
        known = [y for curve in self.curves for y in curve.y if math.isfinite(y)]
        top, y_ticks = _y_axis(max(known, default=1), "")

        def across(x: float) -> float:
            return round(_LEFT + (x - low) / (high - low) * (_RIGHT - _LEFT), 1)

        lines = []
        for index, curve in enumerate(self.curves):
            tips = [
                (across(x), _y(y, top), f"{curve.name}, at {x:.3g}: {y:.3g}")
                for x, y in zip(curve.x, curve.y, strict=True)
                if math.isfinite(y)
            ]
            points = " ".join(f"{x},{y}" for x, y, _ in tips)
            lines.append({"name": curve.name, "kind": f"c{index}", "points": points, "tips": tips})
        step = _round_step(high - low)
        round_numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        x_ticks = [(across(step * index), f"{step * index:g}") for index in round_numbers]
        names = " and ".join(curve.name for curve in self.curves)
        label = f"{self.title}: {self.y_title} over {self.x_title}, {names}"
        return _frame(label, x_ticks, self.x_title, y_ticks) | {"lines": lines, "y_title": self.y_title}


def _frame(
    label: str, x_ticks: list[tuple[float, str]], x_title: str, y_ticks: list[tuple[float, str]]
) -> dict[str, Any]:
    frame = {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "right": _RIGHT, "label": label}
    axes = {"x_ticks": x_ticks, "x_title": x_title, "y_ticks": y_ticks, "y_title": ""}
    return {**frame, **axes, "bars": [], "lines": []}


def _y(value: float, top: float) -> float:
    return round(_BOTTOM - value / top * (_BOTTOM - _TOP), 1)


def _y_axis(highest: float, unit: str) -> tuple[float, list[tuple[float, str]]]:
    """Its end just above `highest`, and places and texts of about four round steps from 0 on."""
    step = _round_step(highest if highest > 0 else 1)
    ticks = [step * index for index in range(math.ceil(highest / step) + 1 if highest > 0 else 5)]
    return ticks[-1], [(_y(tick, ticks[-1]), f"{tick:g}{unit}") for tick in ticks]


def _round_step(span: float) -> float:
    rough = span / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
