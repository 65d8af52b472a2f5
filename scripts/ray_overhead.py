"""Measure the overhead of Ray per pair, and the memory of its driver, with jobs that do nothing.

python scripts/ray_overhead.py --jobs 20000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable
from itertools import repeat
from typing import Any, cast

from pamcli.batch.plan import Job
from pamcli.batch.ray_cluster import run_on_ray
from pamcli.batch.run import run_overlapped

MOST = 20


class NoWork:
    def start(self) -> None:
        pass

    def load(self, job: Job) -> Job:
        return job

    def compute(self, job: Job, loaded: Job) -> Job:
        return loaded

    def save(self, job: Job, computed: Job) -> Any:
        return time.process_time()


def milliseconds_each(outcomes: Iterable[tuple[Any, Any]], jobs: int) -> list[float]:
    """Milliseconds of each job after the first, with which all starts: as time passes, and of the processors.

    The latter of this process and of the worker, which other work on the machine leaves as they are.
    """
    results = iter(outcomes)
    worker = next(results)[1]
    start, here = time.perf_counter(), time.process_time()
    found = [seconds for _, seconds in results]
    assert len(found) == jobs - 1
    spent = (time.perf_counter() - start, time.process_time() - here, max(found) - worker)
    return [1000 * each / (jobs - 1) for each in spent]


def driver_memory() -> int:
    """Most that this process took, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    jobs, steps = parser.parse_args().jobs, cast(Any, NoWork())
    near, *_ = milliseconds_each(run_overlapped(repeat(Job(None), jobs), steps), jobs)
    taken = []
    for count in (jobs // 10, jobs):
        far = milliseconds_each(run_on_ray(repeat(Job(None), count), steps, "local", 1, gpus=False), count)
        taken.append(driver_memory())
    print(
        f"Ray adds {far[0] - near:.2f} ms to a pair ({MOST} are allowed): {far[0]:.2f} not {near:.2f}; "
        f"processor time {far[1]:.2f} ms here, {far[2]:.2f} of the worker; memory here "
        f"{taken[0] / 1e3:.1f} MB after {jobs // 10}, {taken[1] / 1e3:.1f} MB after {jobs}"
    )


if __name__ == "__main__":
    main()
