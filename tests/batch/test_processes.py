"""A batch in several processes of one thread each: in order, whole, and nothing left when it ends."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray_steps import WriteSteps, numbered

from pamcli import MatchSettings
from pamcli.batch import run as processes
from pamcli.batch.run import count_processes, run_job
from pamcli.errors import DeviceError, InputError, ModelError, UsageError
from pamcli.workers import answer_in_processes


def run_in_processes(jobs: Any, work: Any, count: int) -> Any:
    return answer_in_processes(partial(run_job, work), jobs, count, prepares=True)


def test_jobs_come_in_their_order_and_fail_alone(tmp_path: Path) -> None:
    work: Any = WriteSteps(tmp_path)
    found = [*run_in_processes(numbered([*range(9), 98, 99, 7]), work, 2)]
    assert [job.line for job, _ in found] == [*range(9), 98, 99, 7]
    answers = [outcome for _, outcome in found]
    assert [*map(str, answers[:9])] == [str(number**2) for number in range(9)]
    assert isinstance(answers[9], DeviceError)  # its process ended
    assert isinstance(answers[10], InputError)
    assert (answers[10].message, answers[10].hint) == ("99 is bad", "leave it out")
    assert answers[11] == "49"  # another process took the place of the one that ended


def test_a_network_that_cannot_be_loaded_ends_the_batch(tmp_path: Path) -> None:
    work: Any = WriteSteps(tmp_path, broken="damaged")
    with pytest.raises(ModelError, match="damaged"):
        list(run_in_processes(numbered(range(4)), work, 2))


def test_a_caller_that_stops_leaves_no_process(tmp_path: Path) -> None:
    work: Any = WriteSteps(tmp_path, seconds=0.2, notes_pid=True)
    run = run_in_processes(numbered(range(50)), work, 2)
    next(run)
    run.close()
    pids = {path.read_text() for path in tmp_path.glob("*.pid")}
    assert pids
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len([*tmp_path.glob("*.txt")]) < 10


def batch(pairs: int | None, *, sequential: str | None = None, **given: Any) -> Any:
    """Stand in for a batch of so many pairs."""
    names = None if pairs is None else SimpleNamespace(pairs=())
    settings = MatchSettings(**{"device": "cpu", **given})
    plan = {"settings": settings, "pairing": names, "total": pairs, "many": True, "videos": {}}
    processor = SimpleNamespace(sequential=sequential)
    return SimpleNamespace(plan=SimpleNamespace(**plan, uses_ray=False, frames=None), processor=processor)


def test_how_many_processes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    monkeypatch.setattr(processes, "get_free_memory", lambda: 100 * processes.PROCESS_MEMORY)
    monkeypatch.setattr(
        processes, "_count_pixels", lambda batch: processes.LEAST_PIXELS // processes.LEAST_PAIRS
    )
    enough = 4 * processes.LEAST_PAIRS
    assert [count_processes(batch(pairs)) for pairs in (enough, enough - 1)] == [4, 3]
    assert count_processes(batch(None)) == 1  # a list that is still arriving
    assert count_processes(batch(enough, max_memory=2 * processes.PROCESS_MEMORY)) == 2
    assert count_processes(batch(enough, device="cuda")) == 1
    assert count_processes(batch(enough, sequential="`steady`")) == 1
    assert count_processes(batch(2, workers=3)) == 2
    assert count_processes(batch(enough, workers=7, device="cuda")) == 7
    with pytest.raises(UsageError, match="`workers` 3 and `steady`"):
        count_processes(batch(enough, workers=3, sequential="`steady`"))
    monkeypatch.setattr(processes, "_count_pixels", lambda batch: 32 * 24)
    assert count_processes(batch(enough)) == 1
