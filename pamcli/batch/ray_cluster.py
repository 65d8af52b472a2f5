"""Process a batch on a Ray cluster, whose workers hold the network."""

import importlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pamcli.batch.plan import Job, Result
from pamcli.batch.processing import Answers, run_one
from pamcli.errors import DeviceError, PamError, UsageError, suggest_extra

CONCURRENT_JOBS = 2  # jobs that a worker processes at once: one is computed while another is read or written
MOST_HELD_JOBS = 4  # jobs that a worker holds, so that it does not wait for the network
TRIES = 3  # times that a job may end its worker before it fails
CORES = 4  # cores of a worker without a GPU
CONNECT_TIMEOUT = 5.0
PATIENCE = 300.0  # time in which the first worker must start, s


class Worker:
    """A Ray actor that processes jobs."""

    def __init__(self, processor: Any, folder: str) -> None:
        self.processor, self.folder = processor, folder
        self.computing = threading.Lock()

    def start(self) -> None:
        """Change to the folder and load the network. Raises PamError."""
        try:
            os.chdir(self.folder)  # paths of images may be relative
        except OSError as error:
            message = f"the node {socket.gethostname()} has no folder {self.folder}"
            raise DeviceError(message, "all nodes must see the same folders") from error
        self.processor.start()

    def run(self, job: Any) -> Any:
        """Return the result of a job, or its PamError."""
        return run_one(self.processor, job, self.computing)


def run_on_ray(
    jobs: Iterable[Job], processor: Any, address: str, cores: int | None, *, gpus: bool = True
) -> Answers:
    """Run all steps of every job on a cluster; yield each when it is done, with its result or error.

    A worker holds at most `MOST_HELD_JOBS` jobs. If a node is lost, other nodes repeat its jobs. `processor`
    is a `PairProcessor`, `cores` are those of each worker without a GPU. Raises UsageError, DeviceError, and
    the errors of `processor.start`.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise UsageError("ray is not installed", suggest_extra("ray")) from None
    _connect(ray, address)
    try:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        count, options = _plan_workers(nodes, cores, gpus)
        kind = ray.remote(Worker).options(max_concurrency=CONCURRENT_JOBS, **options)
        yield from _spread(ray, iter(jobs), lambda: kind.remote(processor, os.getcwd()), count)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")  # saves 0.4 kB of memory per job
    # Ray has no option that keeps its messages about lost workers off stdout, which holds the results.
    worker = importlib.import_module("ray._private.worker")
    worker.print_to_stdstream = lambda *words, **options: None  # type: ignore[attr-defined]
    place = address if address in ("auto", "local") or ":" in address else f"{address}:6379"
    host, _, port = place.removeprefix("ray://").rpartition(":")
    try:
        if host:  # Ray itself would try for a minute
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
        ray.init(place, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise DeviceError(
            f"no Ray cluster answers at {address}",
            "start one with ray start --head, or use `ray_address` local",
        ) from error


def _plan_workers(nodes: list[dict[str, float]], cores: int | None, gpus: bool) -> tuple[int, dict[str, int]]:
    """Return the number of workers, and the resources of each. Raises DeviceError."""
    graphics = sum(int(node.get("GPU", 0)) for node in nodes) if gpus else 0
    if graphics:
        return graphics, {"num_gpus": 1, "num_cpus": 1}
    processors = [int(node.get("CPU", 0)) for node in nodes]
    cores = cores or min([CORES, *filter(None, processors)])
    count = sum(each // cores for each in processors)
    if not count:
        raise DeviceError(f"no node of the cluster has {cores} cores", "use smaller `ray_cores`")
    return count, {"num_cpus": cores}


def _spread(ray: Any, jobs: Iterator[Job], new_worker: Callable[[], Any], count: int) -> Answers:
    workers: dict[int, Any] = {}
    load: dict[int, int] = {}  # jobs that each started worker holds
    starting: dict[Any, int] = {}
    running: dict[Any, tuple[int, Job, int]] = {}
    again: deque[tuple[Job, int]] = deque()  # jobs to try again, each with its number of tries
    more, failures = True, 0

    def start() -> None:
        number = len(workers)
        workers[number] = new_worker()
        starting[workers[number].start.remote()] = number

    for _ in range(count):
        start()
    while True:
        while more or again:
            # A job whose worker ended is tried alone, so that no other job is blamed for it.
            weight = MOST_HELD_JOBS if again else 1
            if not (free := [number for number in load if load[number] + weight <= MOST_HELD_JOBS]):
                break
            try:
                job, tries = again.popleft() if again else (next(jobs), 1)
            except StopIteration:
                more = False
                break
            if job.done or job.error is not None:  # nothing to do
                yield job, job.error or Result(job)
                continue
            number = min(free, key=load.__getitem__)
            load[number] += weight
            running[workers[number].run.remote(job)] = number, job, tries
        if not (more or again or running):
            return
        ready, rest = ray.wait([*running, *starting], num_returns=1, timeout=PATIENCE)
        if ready and rest:  # take all that are ready: one by one is slow with a thousand workers
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        if not ready and not running:
            raise DeviceError(f"no worker of the cluster started within {PATIENCE:.0f} s")
        for ref in ready:
            result: Any = None
            ended: Exception | None = None
            try:
                result = ray.get(ref)
            except PamError as error:  # raised by `start`
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
                    raise DeviceError(f"the workers of the cluster fail to start: {reason}") from ended
                start()
                continue
            number, job, tries = running.pop(ref)
            if ended is None:
                if number in load:  # else the worker was lost after this job
                    load[number] -= 1 if tries == 1 else MOST_HELD_JOBS
                yield job, result
                continue
            if load.pop(number, None) is not None:  # its first job to report the loss
                start()
            if tries < TRIES:
                again.append((job._replace(is_repeated=True), tries + 1))
            else:
                lost = DeviceError(
                    f"the worker of this pair died {TRIES} times", "its node may be short of memory"
                )
                yield job, lost
