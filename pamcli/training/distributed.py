"""Training on several processes as if their batches were one.

A step on W processes has the gradients and batch-norm statistics of one process with all W batches:

- batch norm normalises with the moments of the joined batch (`JointBatchNorm2d`);
- every mean of the loss divides by the count of the joined batch (`Processes.sum_counts`, given to
  `losses.total.total_loss` as `reduce_count`);
- gradients are those of the sum of the processes' losses (`wrap`).

What every process does is a collective of all: each must take the same steps, with the same terms of the
loss, or the others wait for it.
"""

import gc
import hashlib
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from pamcli.errors import DeviceError, PamError, UsageError

PATIENCE_TO_MEET = timedelta(minutes=5)  # how long a process waits at the start until all others are there

PATIENCE = timedelta(hours=2)
"""How long a process waits for the others later, as while the main one validates."""

_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_HOW_TO_START = "start several processes with torchrun, or one without these variables"

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""Loss of a network and a batch: the scalar to differentiate and figures for the journal, detached."""


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    local_rank: int = 0
    """Among those of this machine: the number of its GPU."""
    world: int = 1
    """How many processes there are."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Processes":
        """Processes as torchrun sets RANK, LOCAL_RANK and WORLD_SIZE; one process where none of them is set.

        Raises UsageError for numbers that are missing, are none, or contradict each other.
        """
        if not any(name in environment for name in _NUMBERS):
            return cls()
        for name in _NUMBERS + _ADDRESS:
            if not environment.get(name):
                given = next(n for n in _NUMBERS if n in environment)
                raise UsageError(f"the environment has {given} but no {name}", _HOW_TO_START)
        for name in (*_NUMBERS, "MASTER_PORT"):
            if not (environment[name].isascii() and environment[name].isdigit()):
                raise UsageError(f"{name} is {environment[name]!r}, not a whole number", _HOW_TO_START)
        rank, local_rank, world = (int(environment[name]) for name in _NUMBERS)
        if not local_rank <= rank < world:
            numbers = f"RANK {rank}, LOCAL_RANK {local_rank} and WORLD_SIZE {world}"
            raise UsageError(f"{numbers} contradict each other", _HOW_TO_START)
        return cls(rank, local_rank, world)

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files and talks."""
        return self.rank == 0

    def device(self, asked: str) -> str:
        """The device for this process: of several, each takes its own GPU.

        Raises UsageError for several processes on one GPU, DeviceError for fewer GPUs than processes.
        """
        if self.world == 1:
            return asked
        if asked == "auto":
            asked = "cuda" if torch.cuda.is_available() else "cpu"
        if asked == "cpu":
            return asked
        if asked != "cuda":
            raise UsageError(f"{self.world} processes cannot share {asked}", "use `device` cuda or cpu")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.local_rank >= count:
            raise DeviceError(
                f"no GPU for process {self.local_rank + 1} of this machine, which has {count}",
                "lower --nproc_per_node, or use `device` cpu",
            )
        return f"cuda:{self.local_rank}"

    @contextmanager
    def connected(self, device: torch.device, patience: timedelta = PATIENCE_TO_MEET) -> Iterator[None]:
        """Connect with the other processes, and part from them in the end, also after an error.

        Tensors on the CPU travel by gloo, those on a GPU by NCCL. Nobody may hold what `wrap` returned by
        then: as the last to hold the group, DistributedDataParallel would keep Python's lock while it waits
        for the group's thread, and that may wait for the lock.

        Raises PamError if the others cannot be reached within `patience`, or are lost later.
        """
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            store, _, _ = next(rendezvous("env://", self.rank, self.world, timeout=patience))
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(
                backend, store=store, rank=self.rank, world_size=self.world, timeout=PATIENCE
            )
        except (RuntimeError, ValueError) as error:
            where = ":".join(os.environ.get(name, "?") for name in _ADDRESS)
            raise PamError(
                f"process {self.rank} of {self.world} did not meet the others at {where}: {_line(error)}",
                "start as many processes as WORLD_SIZE says; the port must be free, and open to all machines",
            ) from error
        clean = device.type != "cuda"
        try:
            yield
            clean = True
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # which hold what `wrap` returned
            if not isinstance(error, RuntimeError):
                raise
            if isinstance(error, dist.DistError) or "gloo" in str(error):
                raise PamError(
                    f"process {self.rank} of {self.world} has lost the others: {_line(error)}",
                    "one of them ended: see what it said, then go on with `resume`",
                ) from error
            raise
        finally:
            gc.collect()  # DistributedDataParallel holds itself
            # NCCL waits for the others here, who may never come after an error: then the process's end parts.
            if clean:
                dist.destroy_process_group()

    def any_of(self, flag: bool) -> bool:
        """Whether any process says so: if one has to stop, all do."""
        return self.sum_of([flag])[0] > 0

    def sum_of(self, values: Sequence[float]) -> list[float]:
        """Sums over the processes of numbers on the host, in float64."""
        numbers = torch.tensor(list(values), dtype=torch.float64)
        if self.world > 1:
            dist.all_reduce(numbers)
        return [float(number) for number in numbers]

    def sum_counts(self, counts: Tensor) -> Tensor:
        """Sums over the processes of a tensor on the device, without gradient; nothing comes to the host."""
        if self.world == 1:
            return counts
        counts = counts.detach().clone()
        dist.all_reduce(counts)
        return counts

    def require_same(self, text: str) -> None:
        """UsageError on all processes, the same, unless all give the same text (a recipe)."""
        if self.world == 1:
            return
        digest = torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(digest) for _ in range(self.world)]
        dist.all_gather(digests, digest)
        others = [str(rank) for rank in range(self.world) if not torch.equal(digests[rank], digests[0])]
        if others:
            who = f"process {others[0]} has" if len(others) == 1 else f"processes {', '.join(others)} have"
            raise UsageError(f"{who} other options than process 0", "start all processes alike")


def wrap(network: nn.Module, loss: Loss, processes: Processes, device: torch.device) -> Loss:
    """The function that a step calls instead of `loss(network, ...)`; the network now trains jointly.

    `loss(network, *batch)` returns this process's share of the loss (`total_loss`): the shares of
    all processes add up to the loss of the joined batch. Here the share is multiplied by the number of
    processes, for DistributedDataParallel takes the mean of their gradients, and the sum is due. After the
    backward pass every process has the same gradients. The network's own parameters are trained, and it goes
    on serving alone as before, in evaluation mode without the others.

    The loss is computed within DistributedDataParallel's forward: it follows tensors, tuples and dicts, but
    no dataclass such as `Matching`, of which a static graph would silently reduce nothing; and it takes what
    is returned for what is differentiated, so that it would wait for the gradients of a refinement whose
    terms are switched off. Such parameters' gradients stay None, as with one process. Static: which terms
    there are must not change during the run.
    """
    if processes.world == 1:
        return lambda *batch: loss(network, *batch)
    join_batch_norms(network)
    # Buffers are the joint statistics, alike everywhere. Newer versions of torch have another name for it.
    known = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {buffers: False, "static_graph": True}
    if device.type == "cuda":
        options["device_ids"] = [device]
    return DistributedDataParallel(_Share(network, loss, processes.world), **options)


class _Share(nn.Module):
    def __init__(self, network: nn.Module, loss: Loss, world: int) -> None:
        super().__init__()
        self.network, self.loss, self.world = network, loss, world

    def forward(self, *batch: object) -> tuple[Tensor, dict[str, Tensor]]:
        share, values = self.loss(self.network, *batch)
        return share * self.world, values


def join_batch_norms(network: nn.Module) -> None:
    """Make every `nn.BatchNorm2d` of the network a `JointBatchNorm2d`, in place."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = JointBatchNorm2d  # has no state of its own: all else stays as it is


class JointBatchNorm2d(nn.BatchNorm2d):
    """Batch norm that, in training, takes mean and variance over the batches of all processes.

    With one process, and in evaluation mode, it is `nn.BatchNorm2d`. The gradients of weight and bias are
    this process's share; DistributedDataParallel joins them. (torch's SyncBatchNorm is for GPUs alone.)
    """

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, H, W), of a B of its own on each process, but of equal C; any floating-point type."""
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        self._check_input_dim(input)
        with torch.no_grad():
            mean, variance, count = _joint_moments(input)
            self._track(mean, variance * (count / (count - 1)))
        out: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, mean, variance, count, self.eps
        )
        return out

    def _track(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.mul_(1 - share).add_(mean * share)
        self.running_var.mul_(1 - share).add_(unbiased_variance * share)


def _joint_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (C,), variance (C,) and the number of values per channel, of all processes' x (B, C, H, W).

    Each process's sum of squares is about its own mean and is then moved to the joint one (Chan et al.):
    E[x^2] - E[x]^2 would leave little of a small variance. All processes compute the same bits.
    """
    exact = x.to(torch.float64, copy=True)
    own_mean = exact.mean((0, 2, 3))
    own_squares = exact.sub_(_channels(own_mean)).square_().sum((0, 2, 3))
    own_count = torch.full_like(own_mean[:1], x.numel() // x.shape[1])
    own = torch.cat((own_mean, own_squares, own_count))
    each = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(each, own)
    gathered = torch.stack(each)
    means, squares, counts = gathered[:, : x.shape[1]], gathered[:, x.shape[1] : -1], gathered[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    variance = (squares + counts * (means - mean).square()).sum(0) / count
    kept = _at_least_float32(x).dtype
    return mean.to(kept), variance.to(kept), count.to(kept)


class _Normalise(torch.autograd.Function):
    """Batch norm with moments that depend on the input of every process."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.eps = eps
        return F.batch_norm(x, mean, variance, weight, bias, eps=eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, count = ctx.saved_tensors
        gradient = _at_least_float32(gradients[0])
        deviation = (variance + ctx.eps).sqrt()
        normalised = (_at_least_float32(x) - _channels(mean)) / _channels(deviation)
        for_bias = gradient.sum((0, 2, 3))
        for_weight = (gradient * normalised).sum((0, 2, 3))
        joint = torch.stack((for_bias, for_weight))
        dist.all_reduce(joint)
        # What the joint mean and variance pass back to each value of each process.
        via_mean, via_variance = joint / count
        gradient = gradient - _channels(via_mean) - normalised * _channels(via_variance)
        scale = 1 / deviation if weight is None else weight / deviation
        for_x = (gradient * _channels(scale)).to(x.dtype)
        shares = (None, None) if weight is None else (for_weight, for_bias)
        return for_x, *shares, None, None, None, None


def _channels(values: Tensor) -> Tensor:
    """(C,) to (C, 1, 1), to go with (B, C, H, W)."""
    return values[:, None, None]


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _line(error: Exception) -> str:
    """The first line of an error of torch, which may go on with addresses of its own code."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
