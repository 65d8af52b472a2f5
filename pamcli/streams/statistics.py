"""Speed, latency, skew and losses of a live run."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from pamcli.files.paths import pluralize
from pamcli.streams.sources import Capture

RECENT = 300
"""Results from which rate, latency and skew are computed."""
LONG = 9.0
"""Seconds of results from which a drift is computed; jitter hides it in fewer."""


class LiveStatistics:
    """Figures of the recent results."""

    def __init__(self) -> None:
        self.results = 0
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        """When each was ready (s, monotonic), its latency and its skew (s)."""

    def add(self, latency: float, skew: float) -> None:
        """Count a result. latency: s from capture; skew: s by which the right image is later."""
        self.results += 1
        self._recent.append((time.monotonic(), latency, skew))

    def record(self, capture: Capture) -> dict[str, Any]:
        """Return the figures by names that end in their units; None while they are unknown."""
        times, latencies, skews = np.array(self._recent).T
        span = float(times[-1] - times[0])
        median, late = (1000 * np.percentile(latencies, (50, 95))).round(1).tolist()
        drift = 60_000 * float(np.polyfit(times - times[0], skews, 1)[0]) if span > LONG else None
        return {
            "results": self.results,
            "results_per_s": round((len(times) - 1) / span, 2) if span else None,
            "latency_ms": median,
            "latency_95_ms": late,
            "skew_ms": round(1000 * float(np.median(skews)), 2),
            "skew_drift_ms_per_min": None if drift is None else round(drift, 2),
            "tolerance_ms": round(1000 * capture.pairing.tolerance, 1),
            "dropped": capture.pairing.dropped,
            "damaged": sum(each.damaged for each in capture.sources),
            "interruptions": sum(each.interruptions for each in capture.sources),
        }


def format_statistics(found: dict[str, Any]) -> str:
    """Return the figures of `LiveStatistics.record` in one line for people."""
    rate, drift = found["results_per_s"], found["skew_drift_ms_per_min"]
    parts = [pluralize(found["results"], "result") + (f", {rate:.1f} per s" if rate else "")]
    parts.append(f"latency {found['latency_ms']:.0f} ms (95 %: {found['latency_95_ms']:.0f} ms)")
    change = "" if drift is None else f" ({drift:+.1f} ms/min)"
    parts.append(f"skew {found['skew_ms']:+.1f} ms{change}, {found['dropped']} dropped")
    return ", ".join(
        parts + [f"{found[name]} {name}" for name in ("damaged", "interruptions") if found[name]]
    )
