"""Train on several processes as if their batches were one: joint counts and gradients.

All operations are collective: every process must take the same steps with the same loss terms.
"""

import gc
import hashlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from pamcli.errors import DeviceError, PamError, UsageError

PATIENCE_TO_MEET = timedelta(minutes=5)  # maximum wait for other processes at the start
PATIENCE = timedelta(hours=2)  # maximum later wait, for example during validation
_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_HOW_TO_START = "start several processes with torchrun, or one without these variables"
Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]  # of network and batch: total, values for the log


@dataclass(frozen=True)
class Processes:
    """The rank of this process among those that train together."""

    rank: int = 0
    local_rank: int = 0  # rank on this machine: the number of its GPU
    world: int = 1  # number of processes

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Processes":
        """Read torchrun's ranks; one process if none is set. Raise UsageError for invalid numbers."""
        given = next(filter(environment.__contains__, _NUMBERS), None)
        if given is None:
            return cls()
        for name in _NUMBERS + _ADDRESS:
            if not (value := environment.get(name)):
                raise UsageError(f"the environment has {given}, but not {name}", _HOW_TO_START)
            if name != "MASTER_ADDR" and not (value.isascii() and value.isdigit()):
                raise UsageError(f"{name} must be a whole number, got {value!r}", _HOW_TO_START)
        rank, local_rank, world = (int(environment[name]) for name in _NUMBERS)
        if not local_rank <= rank < world:
            numbers = f"LOCAL_RANK {local_rank}, RANK {rank} and WORLD_SIZE {world}"
            raise UsageError(f"{numbers} must satisfy LOCAL_RANK <= RANK < WORLD_SIZE", _HOW_TO_START)
        return cls(rank, local_rank, world)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def device(self, requested: str) -> str:
        """Return the device of this process; raise UsageError or DeviceError unless each has its own GPU."""
        if self.world == 1:
            return requested
        if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
            return "cpu"
        if requested not in ("auto", "cuda"):
            raise UsageError(f"{self.world} processes cannot share {requested}", "use `device` cuda or cpu")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.local_rank >= count:
            problem = f"process {self.local_rank + 1} of this machine has no GPU: the machine has {count}"
            raise DeviceError(problem, "lower --nproc_per_node, or use `device` cpu")
        return f"cuda:{self.local_rank}"

    @contextmanager
    def connect(self, device: torch.device, patience: timedelta = PATIENCE_TO_MEET) -> Iterator[None]:
        """Connect to the other processes, and disconnect at the end, also after an error.

        No reference to the result of `wrap` may remain at the end: as last owner of the group,
        DistributedDataParallel would hold Python's lock while waiting for the group's thread, which may wait
        for that lock. Raises PamError: the others cannot be reached within `patience`, or are lost later.
        """
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            store, _, _ = next(rendezvous("env://", self.rank, self.world, timeout=patience))
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            who: dict[str, Any] = {"store": store, "rank": self.rank, "world_size": self.world}
            dist.init_process_group(backend, timeout=PATIENCE, **who)
        except (RuntimeError, ValueError) as error:
            where = ":".join(os.environ.get(name, "?") for name in _ADDRESS)
            problem = f"process {self.rank} of {self.world} cannot reach the others at {where}"
            hint = "start WORLD_SIZE processes; the port must be free, and open to all machines"
            raise PamError(f"{problem}: {_line(error)}", hint) from error
        clean = device.type != "cuda"
        try:
            yield
            clean = True
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # frames hold the result of `wrap`
            gloo = isinstance(error, RuntimeError) and "gloo" in str(error)
            if gloo or isinstance(error, dist.DistError):
                problem = f"process {self.rank} of {self.world} has lost the others: {_line(error)}"
                hint = "see the message of the process that failed, then continue with `resume`"
                raise PamError(problem, hint) from error
            raise
        finally:
            gc.collect()  # breaks DistributedDataParallel's reference cycle
            # NCCL waits here for processes that may never come after an error; then process exit disconnects.
            if clean:
                dist.destroy_process_group()

    def any_true(self, flag: bool) -> bool:
        """Return whether any process passes True, so that all of them stop together."""
        return self.sum_values([flag])[0] > 0

    def sum_values(self, values: Sequence[float]) -> list[float]:
        """Return the sums of host numbers over the processes, in float64."""
        sums: list[float] = self.sum_counts(torch.tensor(list(values), dtype=torch.float64)).tolist()
        return sums

    def sum_counts(self, counts: Tensor) -> Tensor:
        """Sum a device tensor over the processes, without gradient or copy to the host."""
        if self.world == 1:
            return counts
        counts = counts.detach().clone()
        dist.all_reduce(counts)
        return counts

    def require_same(self, text: str) -> None:
        """Raise UsageError on all of several processes unless all pass the same text (a recipe)."""
        digest = torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(digest) for _ in range(self.world)]
        dist.all_gather(digests, digest)
        others = [str(rank) for rank in range(self.world) if not torch.equal(digests[rank], digests[0])]
        if others:
            who = f"process {others[0]} has" if len(others) == 1 else f"processes {', '.join(others)} have"
            raise UsageError(f"{who} other options than process 0", "use the same options for all processes")


def wrap(network: nn.Module, loss: Loss, processes: Processes, device: torch.device) -> Loss:
    """Return a replacement of `loss(network, ...)` with which the network trains on several processes.

    `loss(network, *batch)` returns this process's share (`total_loss`); the shares add up to the loss of the
    joint batch. It is multiplied by the number of processes here, because DistributedDataParallel averages
    gradients where the sum is needed. After the backward pass every process has the same gradients.

    The loss is computed inside DistributedDataParallel's forward, because it does not follow dataclasses such
    as `Matching`, whose gradients a static graph would silently not reduce, and because it would wait for
    gradients of a refinement whose terms are off. The set of terms must not change during the run.
    """
    # On GPUs, batch norm is that of the joint batch. On CPUs, which torch does not support for that, each
    # process normalises by its own pairs, and all keep the running statistics of the first one.
    share = _Share(network, loss, processes.world)
    if device.type != "cuda":
        return DistributedDataParallel(share, static_graph=True)
    nn.SyncBatchNorm.convert_sync_batchnorm(share)  # type: ignore[no-untyped-call]
    return DistributedDataParallel(share, device_ids=[device], static_graph=True)


class _Share(nn.Module):
    def __init__(self, network: nn.Module, loss: Loss, world: int) -> None:
        super().__init__()
        self.network, self.loss, self.world = network, loss, world

    def forward(self, *batch: object) -> tuple[Tensor, dict[str, Tensor]]:
        share, values = self.loss(self.network, *batch)
        return share * self.world, values


def _line(error: BaseException) -> str:
    """Return the first line of a torch error, without its C++ stack."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
