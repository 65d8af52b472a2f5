"""Learning rates: pure functions of the step, so that a resumed run needs no state of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pamcli.checked import Share, checked
from pamcli.errors import UsageError

Kind = Literal["constant", "step", "cosine", "one-cycle"]
ONE_CYCLE_START = 1 / 25
"""Where one-cycle's rise begins, as a part of the peak."""


@checked
@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves over a run; positions are parts of the run in [0, 1].

    constant: the peak. step: times `factor` at each of `milestones`. cosine: down to `final` times the peak.
    one-cycle: up from 1/25 of the peak during `warmup`, then cosine down to `final` times the peak.
    Raises UsageError: a kind that does not exist, a number out of its range.
    """

    kind: Kind = "constant"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the run in which the rate rises in a straight line (for one-cycle: as half a cosine)."""
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    final: Share = 0.0
    hold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Until here a cosine stays at the peak."""

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(self.milestones):
            raise UsageError("a schedule's milestones are rising parts of the run between 0 and 1")


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
    begins = max(schedule.warmup, schedule.hold)
    return peak * _between(1.0, schedule.final, max(done - begins, 0) / (1 - begins))


def _between(start: float, end: float, part: float) -> float:
    """Half a cosine from `start` (part 0) to `end` (part 1)."""
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2
