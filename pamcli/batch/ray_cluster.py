"""How is a batch spread over a cluster? Ray places the workers, each of which holds the network."""

import importlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from pamcli.batch.jobs import Result
from pamcli.batch.work import attempt
from pamcli.errors import DeviceError, PamError, UsageError

AT_ONCE = 2  # jobs that a worker does: while one is computed, another is read or written
HELD = 4  # jobs that a worker has: so it need not wait for an answer from far away before it takes the next
TRIES = 3  # a job whose worker ends so many times is given up: it may be what ends them
CORES = 4  # of a worker without a GPU, where nodes have so many
ANSWER = 5.0  # seconds within which a cluster has to
PATIENCE = 300.0  # seconds until some worker has to be there


class Worker:
    """An actor."""

    def __init__(self, work: Any, folder: str) -> None:
        self.work, self.folder = work, folder
        self.computing = threading.Lock()

    def start(self) -> None:
        """Go to the folder and load. Raises PamError."""
        try:
            os.chdir(self.folder)  # names of pictures may be relative
        except OSError as error:
            place = f"the node {socket.gethostname()} has no folder {self.folder}"
            raise DeviceError(place, "all nodes must see the same folders") from error
        self.work.start()

    def run(self, job: Any) -> Any:
        """What was saved, or PamError."""
        loaded = attempt(self.work.load, job)
        with self.computing:
            computed = attempt(self.work.compute, job, loaded)
        del loaded
        return attempt(self.work.save, job, computed)


def run_on_ray(
    jobs: Iterable[Any], work: Any, *, address: str = "auto", cores: int | None = None, gpus: bool = True
) -> Generator[tuple[Any, Any], None, None]:
    """Run the steps of `Work` for every job on a cluster and yield each as it is done, with what came of it.

    `address`: of the cluster; auto: the one that this machine belongs to; local: this machine alone. `cores`:
    of each worker, where it gets no GPU; with `gpus` each has one if the cluster has any. No more jobs are
    taken than the workers have (`HELD` each). Where a node is lost, its jobs are done elsewhere.
    Raises UsageError, DeviceError, and what `work.start` raises.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UsageError("ray is not installed", "pip install 'pamcli[ray]'") from None
    _connect(ray, address)
    try:
        count, options = _placed([node["Resources"] for node in ray.nodes() if node["Alive"]], cores, gpus)
        kind = ray.remote(Worker).options(max_concurrency=AT_ONCE, **options)
        yield from _spread(ray, iter(jobs), lambda: kind.remote(work, os.getcwd()), count)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")  # 0.4 kB of each job would stay here
    # Ray has no option that keeps its messages about lost workers off stdout, where the results go.
    setattr(importlib.import_module("ray._private.worker"), "print_to_stdstream", lambda *said, **how: None)  # noqa: B010
    place = address if address in ("auto", "local") or ":" in address else f"{address}:6379"
    host, _, port = place.removeprefix("ray://").rpartition(":")
    try:
        if host:  # Ray itself would try for a minute, and tell of it
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
        ray.init(place, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise DeviceError(
            f"no Ray cluster answers at {address}", "ray start --head begins one; local is this machine alone"
        ) from error


def _placed(nodes: list[dict[str, float]], cores: int | None, gpus: bool) -> tuple[int, dict[str, int]]:
    """How many workers the nodes hold, and what Ray gives to each. Raises DeviceError."""
    graphics = sum(int(node.get("GPU", 0)) for node in nodes) if gpus else 0
    if graphics:
        return graphics, {"num_gpus": 1, "num_cpus": 1}
    processors = [int(node.get("CPU", 0)) for node in nodes]
    cores = cores or min([CORES, *filter(None, processors)])
    count = sum(each // cores for each in processors)
    if not count:
        raise DeviceError(f"no node of the cluster has {cores} cores")
    return count, {"num_cpus": cores}


def _spread(ray: Any, jobs: Any, new_worker: Any, count: int) -> Generator[tuple[Any, Any], None, None]:
    workers: dict[int, Any] = {}
    load: dict[int, int] = {}
    """Work that each worker has in hand; those alone that have started."""
    starting: dict[Any, int] = {}
    running: dict[Any, tuple[int, Any, int]] = {}
    again: deque[tuple[Any, int]] = deque()
    """Jobs to try again, each with how often it was tried."""
    more, failures = True, 0

    def start() -> None:
        number = len(workers)
        workers[number] = new_worker()
        starting[workers[number].start.remote()] = number

    for _ in range(count):
        start()
    while True:
        while more or again:
            # What was there when a worker ended is tried alone: so others are not taken for what ended it.
            weight = HELD if again else 1
            if not (free := [number for number in load if load[number] + weight <= HELD]):
                break
            try:
                job, tries = again.popleft() if again else (next(jobs), 1)
            except StopIteration:
                more = False
                break
            if job.done or job.error is not None:  # there is nothing to do
                yield job, job.error or Result(job)
                continue
            number = min(free, key=load.__getitem__)
            load[number] += weight
            running[workers[number].run.remote(job)] = number, job, tries
        if not (more or again or running):
            return
        ready, rest = ray.wait([*running, *starting], num_returns=1, timeout=PATIENCE)
        if ready and rest:  # what else is there: of a thousand workers, one by one would be slow
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        if not ready and not running:
            raise DeviceError(f"no node of the cluster took a worker within {PATIENCE:.0f} s")
        for ref in ready:
            result = ended = None
            try:
                result = ray.get(ref)
            except PamError as error:  # of `start`
                raise getattr(error, "cause", error) from None
            except ray.exceptions.RayError as error:
                ended = error
            if ref in starting:
                number = starting.pop(ref)
                if ended is None:
                    load[number] = 0
                    continue
                failures += 1
                if failures > TRIES * count:
                    reason = str(ended).strip().partition("\n")[0]
                    raise DeviceError(f"workers of the cluster do not start: {reason}") from ended
                start()
                continue
            number, job, tries = running.pop(ref)
            if ended is None:
                if number in load:  # else it was lost after this job
                    load[number] -= 1 if tries == 1 else HELD
                yield job, result
                continue
            if load.pop(number, None) is not None:  # the first to tell that this worker is lost
                start()
            if tries < TRIES:
                again.append((job, tries + 1))
            else:
                lost = DeviceError(
                    f"its worker ended {TRIES} times", "too little memory on its node, perhaps"
                )
                yield job, lost
