"""Run every network in every precision on CPU and GPU, and compare accuracy and speed."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import PamError
from pamcli.inference.device import cpu_has_bf16, first_line, peak_memory
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.sample_pair import sample_pair
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.architectures import ARCHITECTURES, Task
from pamcli.registry.catalog import locate, read_header

MATCHED = slice(100, 356), slice(100, 484)  # rows and columns of the sample pair
UPSCALED = slice(200, 264), slice(200, 296)

GPU_RUNS = 5  # number of timed GPU runs, of which the median counts, after one warm-up run

UNITS: dict[Task, str] = {"disparity": "px", "superres": "grey levels"}
MOST: dict[Task, tuple[float, float]] = {"disparity": (0.01, 0.15), "superres": (0.05, 1.0)}

HEADER = "network", "device", "precision", "ms", "mean error", "largest error", "GPU memory", ""


@dataclass(frozen=True)
class Row:
    """The result of one network on one device in one precision."""

    network: str
    device: str
    precision: str
    verdict: str  # ok; WRONG: too far from fp32 on the CPU; FAILED or skipped, with the reason
    milliseconds: float | None = None
    mean: float | None = None  # deviation from fp32 on the CPU, in `unit`
    largest: float | None = None
    unit: str = ""
    memory: int | None = None  # peak GPU memory, bytes

    @property
    def is_ok(self) -> bool:
        return not self.verdict.startswith(("WRONG", "FAILED"))

    @property
    def cells(self) -> tuple[str, ...]:
        figures = ["", "", "", ""]
        if self.milliseconds is not None:
            off = [f"{each:.2g} {self.unit}" for each in (self.mean, self.largest)]
            memory = "" if self.memory is None else f"{self.memory / 1e9:.2f} GB"
            figures = [f"{self.milliseconds:.0f}", *off, memory]
        return self.network, self.device, self.precision, *figures, self.verdict


def list_gpus() -> list[str]:
    """Return the kinds of GPU that PyTorch can use here."""
    found = ["cuda"] if torch.cuda.is_available() else []
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def describe_machine() -> dict[str, str]:
    facts = {"torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"}
    facts["cpu"] = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        capability = f"compute capability {properties.major}.{properties.minor}"
        facts["gpu"] = f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, {capability}"
    elif torch.backends.mps.is_available():
        facts["gpu"] = "Apple, mps"
    return facts


def check_networks() -> Iterator[Row]:
    """Run every shipped network and yield one row each, starting with fp32 on the CPU."""
    for name in (name for row in ARCHITECTURES.values() for name in row.shipped):
        task = read_header(locate(name, check=False)).spec.row.task
        reference = None
        for device in ("cpu", *list_gpus()):
            for precision in ("fp32", "bf16", "fp16"):
                row, found = _measure(name, task, device, precision, reference)
                reference = found if reference is None else reference
                yield row


def _measure(
    name: str, task: Task, device: str, precision: str, reference: NDArray[np.float32] | None
) -> tuple[Row, NDArray[np.float32] | None]:
    if device == "cpu" and (precision == "fp16" or (precision == "bf16" and not cpu_has_bf16())):
        reason = "it requires a GPU" if precision == "fp16" else "this processor emulates it"
        return Row(name, device, precision, f"skipped: {reason}"), None
    try:
        found, seconds, memory = _run(name, task, device, precision)
    except (PamError, RuntimeError, MemoryError, TypeError) as error:
        return Row(name, device, precision, f"FAILED: {first_line(error)}"), None
    apart = np.abs(found - (found if reference is None else reference))
    mean = float(apart.mean())
    exact, short = MOST[task]
    within = mean <= (exact if precision == "fp32" else short)  # False for NaN
    figures = 1000 * seconds, mean, float(apart.max()), UNITS[task], memory
    return Row(name, device, precision, "ok" if within else "WRONG", *figures), found


def _run(name: str, task: Task, device: str, precision: str) -> tuple[NDArray[np.float32], float, int | None]:
    """Return a network's result as one array, the seconds per pair, and GPU bytes."""
    pair, is_matcher = sample_pair(), task == "disparity"
    part = MATCHED if is_matcher else UPSCALED
    compute: Any = {"device": device, "precision": precision}
    network: Any = (
        StereoMatcher.load(name, **compute, match_size=1.0)
        if is_matcher
        else StereoUpscaler.load(name, **compute)
    )

    def run() -> NDArray[np.float32]:
        found = network(pair.left[part], pair.right[part])
        return found.disparity if is_matcher else np.stack(found).astype(np.float32)

    if device == "cpu":
        start = time.perf_counter()
        return run(), time.perf_counter() - start, None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found, times = run(), []
    for _ in range(GPU_RUNS):
        start = time.perf_counter()
        found = run()  # on the CPU, so the GPU has finished
        times.append(time.perf_counter() - start)
    peak = peak_memory(network.compute.device) if device == "cuda" else None
    return found, statistics.median(times), peak
