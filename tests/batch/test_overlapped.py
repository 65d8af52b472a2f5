"""The overlapped batch: every outcome in order, no failure that spreads, nothing begun after the end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pamcli.batch.run import run_overlapped as run
from pamcli.errors import DeviceError, InputError, PamError
from pamcli.inference import PAIRS_AT_ONCE

PATIENCE = 20
"""Seconds after which what never comes is a failure."""


threads = 1


@pytest.fixture(params=[1, 3], autouse=True)
def set_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread for each step, as for a CPU, or three, as for a GPU."""
    monkeypatch.setattr(f"{__name__}.threads", request.param)


def run_overlapped(jobs: Iterable[int], *steps: Callable[..., Any]) -> Any:
    """Run three steps, in place of those of a `PairProcessor`."""
    steps_of = SimpleNamespace(**dict(zip(("load", "compute", "save"), steps, strict=True)))
    return run(jobs, steps_of, threads)


def same(job: int, *value: object) -> int:
    return job


def failing(number: int, error: Exception) -> Callable[..., int]:
    """A step that raises at one of the jobs."""

    def step(job: int, *value: object) -> int:
        if job == number:
            raise error
        return job

    return step


def test_every_step_gets_what_the_one_before_made() -> None:
    outcomes = run_overlapped(range(20), lambda job: job + 100, lambda job, x: (job, x), lambda job, x: [x])
    assert list(outcomes) == [(job, [(job, job + 100)]) for job in range(20)]
    assert list(run_overlapped([], same, same, same)) == []


@pytest.mark.parametrize("broken", [0, 1, 2], ids=["load", "compute", "save"])
@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (InputError("torn", "mend it"), InputError, "torn (mend it)"),
        (MemoryError(), DeviceError, "not enough memory"),
        (ZeroDivisionError("oh"), PamError, "unexpected ZeroDivisionError: oh"),
    ],
    ids=["known", "memory", "unexpected"],
)
def test_an_error_ends_its_own_job_only(
    broken: int, error: Exception, kind: type[PamError], said: str
) -> None:
    steps: list[Callable[..., int]] = [same, same, same]
    steps[broken] = failing(3, error)
    outcomes = list(run_overlapped(range(6), *steps))
    assert [job for job, _ in outcomes] == list(range(6))
    assert [saved for job, saved in outcomes if job != 3] == [0, 1, 2, 4, 5]
    assert type(outcomes[3][1]) is kind
    assert str(outcomes[3][1]).startswith(said)


def test_what_failed_does_not_stay_in_memory() -> None:
    kept = []

    def load(job: int) -> np.ndarray:
        picture = np.zeros(3)
        kept.append(weakref.ref(picture))
        if job == 0:
            raise ValueError("odd")
        try:
            picture.reshape(2)
        except ValueError as error:
            raise InputError("torn") from error
        return job

    outcomes = list(run_overlapped(range(2), load, same, same))
    gc.collect()
    assert [type(found) for _, found in outcomes] == [PamError, InputError]
    assert [picture() for picture in kept] == [None, None]


def test_the_steps_overlap() -> None:
    """Each step of a job waits for one of another job, which would be for ever if they took turns."""
    if threads > 1:
        pytest.skip("a job is loaded and computed in one thread, as the next test shows")
    loaded, computed = [threading.Event() for _ in range(4)], [threading.Event() for _ in range(4)]

    def load(job: int) -> int:
        loaded[job].set()
        return job

    def compute(job: int, value: int) -> int:
        assert job == 3 or loaded[job + 1].wait(PATIENCE)  # the next one is loaded
        computed[job].set()
        return job

    def save(job: int, value: int) -> int:
        assert job == 3 or computed[job + 1].wait(PATIENCE)  # the next one is computed
        return job

    outcomes = list(run_overlapped(range(4), load, compute, save))
    assert not [found for _, found in outcomes if isinstance(found, PamError)]


def test_only_a_few_jobs_are_begun_ahead() -> None:
    begun: list[int] = []

    def load(job: int) -> int:
        begun.append(job)
        return job

    for job, _ in run_overlapped(range(50), load, same, same):
        assert len(begun) <= job + 1 + 2 * (PAIRS_AT_ONCE + 2 * (threads - 1))


def test_what_the_jobs_raise_is_raised_after_those_before_it() -> None:
    def jobs() -> Iterator[int]:
        yield 0
        yield 1
        raise InputError("the list is torn")

    done: list[int] = []
    with pytest.raises(InputError, match="the list is torn"):
        done.extend(job for job, _ in run_overlapped(jobs(), same, same, same))
    assert done == [0, 1]


@pytest.mark.parametrize("stops_early", [False, True])
def test_no_thread_outlives_the_batch(stops_early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch aborts the process if a thread drops a tensor while Python ends, so each must be joined."""

    class SlowThread(threading.Thread):
        def run(self) -> None:
            super().run()
            time.sleep(0.6 if self.name.startswith("load") else 0.2)

    monkeypatch.setattr(threading, "Thread", SlowThread)
    monkeypatch.setattr("pamcli.batch.run.PATIENCE", PATIENCE)
    outcomes = run_overlapped(range(5), same, same, same)
    assert next(outcomes)[0] == 0
    outcomes.close() if stops_early else list(outcomes)
    assert threading.enumerate() == [threading.main_thread()]


def test_a_reader_that_waits_for_ever_owns_no_network() -> None:
    class Network:
        def load(self, job: int) -> int:
            return job

        compute = save = same

    def jobs() -> Iterator[int]:
        yield 0
        waiting.set()
        assert more.wait(PATIENCE)

    waiting, more = threading.Event(), threading.Event()
    network = Network()
    outcomes, alive = run(jobs(), network, threads), weakref.ref(network)
    del network
    next(outcomes)
    assert waiting.wait(PATIENCE)
    outcomes.close()
    gc.collect()
    assert alive() is None
    more.set()
