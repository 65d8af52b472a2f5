"""Learning rates: pure functions of the step, so that a resumed run needs no state of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pamcli.errors import UsageError

KINDS = ("constant", "step", "cosine", "one-cycle")
ONE_CYCLE_START = 1 / 25
"""Where one-cycle's rise begins, as a part of the peak."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves over a run; positions are parts of the run in [0, 1].

    constant: the peak. step: times `factor` at each of `milestones`. cosine: down to `final` times the peak.
    one-cycle: up from 1/25 of the peak during `warmup`, then cosine down to `final` times the peak.
    Raises UsageError: a kind that does not exist, a number out of its range.
    """

    kind: Literal["constant", "step", "cosine", "one-cycle"] = "constant"
    warmup: float = 0.0
    """Part of the run in which the rate rises in a straight line (for one-cycle: as half a cosine)."""
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no schedule is called {self.kind!r}", f"known: {', '.join(KINDS)}")
        if not 0 <= self.warmup < 1:
            raise UsageError(f"a schedule's warmup of {self.warmup} is no part of a run", "from 0 to below 1")
        if list(self.milestones) != sorted(self.milestones) or not all(0 < m < 1 for m in self.milestones):
            raise UsageError("a schedule's milestones are rising parts of the run between 0 and 1")
        if not (0 < self.factor <= 1 and 0 <= self.final <= 1):
            raise UsageError("a schedule's factor lies above 0, its final part from 0, both up to 1")


def learning_rate(schedule: Schedule, peak: float, step: int, steps: int) -> float:
    """Of step 0, 1, ..., steps - 1 of a run of `steps`."""
    done = step / steps
    if schedule.warmup and done < schedule.warmup:
        # The first step already moves: its rate is that of the end of its own stretch.
        risen = min((step + 1) / (schedule.warmup * steps), 1.0)
        if schedule.kind == "one-cycle":
            return peak * _between(ONE_CYCLE_START, 1.0, risen)
        return peak * risen
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "step":
        return peak * schedule.factor ** sum(done >= milestone for milestone in schedule.milestones)
    fallen = (done - schedule.warmup) / (1 - schedule.warmup)
    return peak * _between(1.0, schedule.final, fallen)


def _between(start: float, end: float, part: float) -> float:
    """Half a cosine from `start` (part 0) to `end` (part 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2
