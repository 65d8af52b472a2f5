"""Learning rates over a run."""

from __future__ import annotations

import pytest

from pamcli.errors import UsageError
from pamcli.training.recipe import ONE_CYCLE_START, Schedule, learning_rate


def rates(schedule: Schedule, steps: int = 100, peak: float = 2.0) -> list[float]:
    return [learning_rate(schedule, peak, step, steps) for step in range(steps)]


def test_constant_stays_at_the_peak() -> None:
    assert set(rates(Schedule())) == {2.0}


def test_step_falls_at_its_milestones_and_not_before() -> None:
    found = rates(Schedule("step", milestones=(0.375, 0.75), factor=0.5))
    assert found[:38] == [2.0] * 38
    assert found[38:75] == [1.0] * 37
    assert found[75:] == [0.5] * 25


def test_cosine_falls_from_the_peak_to_the_final_part() -> None:
    found = rates(Schedule("cosine", final=0.1))
    assert found[0] == 2.0
    assert found[50] == pytest.approx(1.1)
    assert sorted(found, reverse=True) == found
    assert 0.2 < found[-1] < 0.201


def test_warm_up_rises_linearly_from_above_zero() -> None:
    found = rates(Schedule("constant", warmup=0.1))
    assert found[:11] == pytest.approx([0.2 * (i + 1) for i in range(10)] + [2.0])


def test_one_cycle_rises_to_the_peak_then_falls() -> None:
    found = rates(Schedule("one-cycle", warmup=0.3, final=1e-4))
    top = found.index(max(found))
    assert found[top] == pytest.approx(2.0)
    assert top in (29, 30)
    assert found[0] > 2.0 * ONE_CYCLE_START
    assert found[0] < 0.1
    assert found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert found[-1] < 0.01


@pytest.mark.parametrize("kind", ["constant", "step", "cosine", "one-cycle"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_short_runs_have_positive_rates_up_to_the_peak(kind: str, steps: int) -> None:
    schedule = Schedule(kind, warmup=0.05, milestones=(0.5,))  # type: ignore[arg-type]
    assert all(0 < rate <= 2.0 for rate in rates(schedule, steps))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "linear"},
        {"warmup": 1.0},
        {"warmup": -0.1},
        {"kind": "step", "milestones": (0.7, 0.5)},
        {"kind": "step", "milestones": (1.0,)},
        {"kind": "step", "factor": 0.0},
        {"kind": "cosine", "final": 1.5},
    ],
)
def test_what_is_no_schedule_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Schedule(**wrong)  # type: ignore[arg-type]
