"""What Ray costs for each pair, and what its driver holds: jobs without work, by one worker, by one process.

python scripts/ray_overhead.py --jobs 20000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable
from typing import Any

from pamcli.inference.pipeline import Outcome, run_overlapped
from pamcli.inference.ray_cluster import run_on_ray


class NoWork:
    def start(self) -> None:
        pass

    def settled(self, job: int) -> None:
        pass

    def load(self, job: int) -> int:
        return job

    def compute(self, job: int, loaded: int) -> int:
        return loaded

    def save(self, job: int, computed: int) -> int:
        return computed


def seconds_each(outcomes: Iterable[Outcome[Any, Any]], jobs: int) -> float:
    """Of each job after the first, with which all starts."""
    results = iter(outcomes)
    next(results)
    start = time.perf_counter()
    assert sum(1 for _ in results) == jobs - 1
    return (time.perf_counter() - start) / (jobs - 1)


def driver_memory() -> int:
    """Most that this process took, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    jobs, steps = parser.parse_args().jobs, NoWork()
    near = seconds_each(run_overlapped(range(jobs), steps.load, steps.compute, steps.save), jobs)
    taken = []
    for count in (jobs // 10, jobs):
        far = seconds_each(run_on_ray(range(count), steps, address="local", cores=1, gpus=False), count)
        taken.append(driver_memory())
    print(f"a pair costs {1000 * near:.2f} ms in one process, {1000 * far:.2f} ms by Ray")
    print(f"the driver takes {taken[0]} kB after {jobs // 10} jobs, {taken[1]} kB after {jobs}")


if __name__ == "__main__":
    main()
