"""Train on several processes as if their batches were one: joint moments, counts and gradients.

All operations are collective: every process must take the same steps with the same loss terms.
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
        given = [name for name in _NUMBERS if name in environment]
        if not given:
            return cls()
        for name in _NUMBERS + _ADDRESS:
            if not (value := environment.get(name)):
                raise UsageError(f"the environment has {given[0]}, but not {name}", _HOW_TO_START)
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
        """Raise UsageError on all processes unless all pass the same text (a recipe)."""
        if self.world == 1:
            return
        digest = torch.tensor(list(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
        digests = [torch.empty_like(digest) for _ in range(self.world)]
        dist.all_gather(digests, digest)
        others = [str(rank) for rank in range(self.world) if not torch.equal(digests[rank], digests[0])]
        if others:
            who = f"process {others[0]} has" if len(others) == 1 else f"processes {', '.join(others)} have"
            raise UsageError(f"{who} other options than process 0", "use the same options for all processes")


def wrap(network: nn.Module, loss: Loss, processes: Processes, device: torch.device) -> Loss:
    """Return a replacement of `loss(network, ...)` with which the network trains jointly.

    `loss(network, *batch)` returns this process's share (`total_loss`); the shares add up to the loss of the
    joint batch. It is multiplied by the number of processes here, because DistributedDataParallel averages
    gradients where the sum is needed. After the backward pass every process has the same gradients.

    The loss is computed inside DistributedDataParallel's forward, because it does not follow dataclasses such
    as `Matching`, whose gradients a static graph would silently not reduce, and because it would wait for
    gradients of a refinement whose terms are off. The set of terms must not change during the run.
    """
    if processes.world == 1:
        return lambda *batch: loss(network, *batch)
    join_batch_norms(network)
    # Buffers hold joint statistics, equal everywhere. Newer versions of torch renamed the parameter.
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
    """Turn every `nn.BatchNorm2d` of the network into a `JointBatchNorm2d`, in place."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = JointBatchNorm2d  # the subclass adds no state


class JointBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over the batches of all processes in training; torch's SyncBatchNorm supports only GPUs."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, C, H, W) of any floating-point type; B may differ between processes, C may not."""
        if not self.training or not dist.is_initialized():
            return super().forward(input)
        self._check_input_dim(input)
        with torch.no_grad():
            mean, variance, count = _joint_moments(input)
            self._track(mean, variance * (count / (count - 1)))
        run: Callable[..., Tensor] = _Normalise.apply
        return run(input, self.weight, self.bias, mean, variance, count, self.eps)

    def _track(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        count, mean_before, variance_before = self.num_batches_tracked, self.running_mean, self.running_var
        share = self.momentum
        assert share is not None
        assert count is not None
        assert mean_before is not None
        assert variance_before is not None
        count.add_(1)
        mean_before.mul_(1 - share).add_(mean * share)
        variance_before.mul_(1 - share).add_(unbiased_variance * share)


def _joint_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean (C,), variance (C,) and values per channel of all processes' x (B, C, H, W).

    Squares are summed about each process's own mean, then shifted to the joint mean (Chan et al.).
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
    kept = _to_float32(x).dtype
    return mean.to(kept), variance.to(kept), count.to(kept)


class _Normalise(torch.autograd.Function):
    """Batch norm with moments that depend on the input of every process."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, *rest: Any) -> Tensor:
        mean, variance, count, ctx.eps = rest
        ctx.save_for_backward(x, weight, mean, variance, count)
        return F.batch_norm(x, mean, variance, weight, bias, eps=ctx.eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, count = ctx.saved_tensors
        gradient = _to_float32(gradients[0])
        deviation = (variance + ctx.eps).sqrt()
        normalised = (_to_float32(x) - _channels(mean)) / _channels(deviation)
        for_bias = gradient.sum((0, 2, 3))
        for_weight = (gradient * normalised).sum((0, 2, 3))
        joint = torch.stack((for_bias, for_weight))
        dist.all_reduce(joint)
        # Gradients through the joint mean and variance, for each value of each process.
        via_mean, via_variance = joint / count
        gradient = gradient - _channels(via_mean) - normalised * _channels(via_variance)
        for_x = (gradient * _channels(weight / deviation)).to(x.dtype)
        return for_x, for_weight, for_bias, None, None, None, None


def _channels(values: Tensor) -> Tensor:
    return values[:, None, None]


def _to_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _line(error: BaseException) -> str:
    """Return the first line of a torch error, without its C++ stack."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
