"""What tests run on two processes: `python two_processes.py SCENARIO FOLDER`, as torchrun would start it.

Each process leaves what its scenario returns in FOLDER/RANK.pt; a PamError ends it with its exit code and one
line on stderr, as in `pam`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.errors import OutputError, PamError
from pamcli.losses.total import GroundTruth, matching_terms, total_loss
from pamcli.losses.weights import LossWeights
from pamcli.networks.pasmnet import CascadedParallaxAttention, PASMnet
from pamcli.training.distributed import Processes, wrap

WORLD = 2
CPU = torch.device("cpu")

ALL_TERMS = LossWeights(
    photometric=1,
    smoothness=0.1,
    pam_photometric=1,
    pam_smoothness=1,
    pam_cycle=1,
    refined=1,
    initial=0.5,
    likelihood=1,
)
ATTENTION_ALONE = LossWeights(pam_photometric=1, pam_cycle=1, initial=0.5, likelihood=1)
"""Nothing here looks at the refined disparity."""

PARTS = (slice(0, 1), slice(1, 3))
"""Which pairs of the joined batch each process has: one, full of detail and known nearly everywhere; and two,
flat and hardly known."""

Batch = tuple[Tensor, Tensor, GroundTruth]
State = dict[str, dict[str, Any]]


def joined_batch(dtype: torch.dtype = torch.float32) -> Batch:
    """Three pairs of 64 x 64, of disparities from 2 to 12 pixels."""
    random = torch.Generator().manual_seed(5)
    count, height, width = PARTS[-1].stop, 64, 64
    slope = torch.linspace(2, 12, height)[:, None].expand(height, width)
    disparity = torch.stack([slope.roll(10 * i, 0) for i in range(count)])
    texture = torch.randn(count, 3, height, width + 32, generator=random)
    texture[PARTS[1]] = F.avg_pool2d(texture[PARTS[1]], 9, stride=1, padding=4)
    column = (torch.arange(width) + disparity.round().long())[:, None].expand(-1, 3, -1, -1)
    share_known = torch.tensor([0.9, 0.05, 0.05])[:, None, None]
    known, right_known = (torch.rand(disparity.shape, generator=random) < share_known for _ in range(2))
    inside = torch.arange(width).expand_as(known)
    truth = GroundTruth(
        torch.where(known, disparity, torch.nan),
        torch.where(right_known, disparity, torch.nan),
        visible=inside >= disparity,
        right_visible=inside < width - disparity,
    )
    return texture[..., :width].to(dtype), texture.gather(-1, column).to(dtype), truth


def part_of(batch: Batch, rank: int) -> Batch:
    """The share of one process."""
    left, right, truth = batch
    part = GroundTruth(*[values[PARTS[rank]] for values in truth if values is not None])
    return left[PARTS[rank]], right[PARTS[rank]], part


def pasmnet(dtype: torch.dtype = torch.float32, *, frozen: bool = True) -> PASMnet:
    """A shallow network of random weights; `frozen`: without statistics of the batch.

    Queries are four times as long as at the start, so that the masks differ between pairs.
    """
    torch.manual_seed(1)
    network = PASMnet(cas_pam=CascadedParallaxAttention(1)).to(dtype).train()
    with torch.no_grad():
        for name, module in network.named_modules():
            if name.endswith("query.1"):
                assert isinstance(module, nn.BatchNorm2d)
                module.weight.fill_(4)
    for module in network.modules():
        if frozen and isinstance(module, nn.BatchNorm2d):
            module.eval()
    return network


def loss_of(
    weights: LossWeights, reduce_count: Callable[[Tensor], Tensor] = lambda counts: counts
) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    def loss(
        network: nn.Module, left: Tensor, right: Tensor, truth: GroundTruth
    ) -> tuple[Tensor, dict[str, Tensor]]:
        matching = network(left, right, all_stages=True)
        total, values = total_loss(matching_terms(matching, left, right, weights, truth), reduce_count)
        return total, values | {"disparity": matching.disparity.detach()}

    return loss


@contextmanager
def each_picture_by_itself() -> Iterator[None]:
    """Convolve without oneDNN, whose algorithm, and so its rounding, depends on the size of the batch."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def after_two_steps(network: nn.Module, step: Callable[..., Any], batch: Batch) -> State:
    """Gradients of the second step, weights unchanged: in the first one torch sets up its buckets."""
    for _ in range(2):
        network.zero_grad()
        loss, values = step(*batch)
        loss.backward()
    gradients = {name: weight.grad for name, weight in network.named_parameters()}
    return {"gradients": gradients, "buffers": dict(network.named_buffers()), "values": values}


@contextmanager
def truly_double(dtype: torch.dtype) -> Iterator[None]:
    """Compute nothing in float32 for a network in float64, as attention and losses would."""
    shorten = Tensor.float
    if dtype == torch.float64:
        Tensor.float = Tensor.double
    try:
        yield
    finally:
        Tensor.float = shorten


def in_one_process(weights: LossWeights, dtype: torch.dtype = torch.float32) -> State:
    """The joined batch."""
    network, loss = pasmnet(dtype), loss_of(weights)
    with truly_double(dtype), each_picture_by_itself():
        return after_two_steps(network, lambda *batch: loss(network, *batch), joined_batch(dtype))


def whole_network(processes: Processes) -> dict[str, State]:
    def state(weights: LossWeights, dtype: torch.dtype = torch.float32, *, frozen: bool = True) -> State:
        network = pasmnet(dtype, frozen=frozen)
        step = wrap(network, loss_of(weights, processes.sum_counts), processes, CPU)
        with truly_double(dtype), each_picture_by_itself():
            return after_two_steps(network, step, part_of(joined_batch(dtype), processes.rank))

    return {
        "float32": state(ALL_TERMS),
        "float64": state(ALL_TERMS, torch.float64),
        "attention alone": state(ATTENTION_ALONE),
        "trained norms": state(ALL_TERMS, frozen=False),
    }


def messages(processes: Processes) -> dict[str, Any]:
    me = processes.rank
    processes.sum_values([0])
    processes.require_same("the same recipe")
    counts = torch.tensor([me + 1.0, 10.0], requires_grad=True)
    return {
        "rank": me,
        "nobody": processes.any_true(False),
        "one": processes.any_true(me == 1),
        "sum": processes.sum_values([me + 0.1, 2]),
        "counts": processes.sum_counts(counts),
        "own counts": counts.detach(),
    }


def other_options(processes: Processes) -> None:
    processes.require_same(f"seed {processes.rank}")


def one_fails(processes: Processes) -> None:
    if processes.rank == 1:
        raise OutputError("the disk is full")
    processes.sum_values([0])


SCENARIOS: dict[str, Callable[[Processes], Any]] = {
    "whole_network": whole_network,
    "messages": messages,
    "other_options": other_options,
    "one_fails": one_fails,
}


def run(scenario: str, folder: Path) -> list[tuple[int, str]]:
    """Exit code and stderr of each process, in the environment that torchrun would give it.

    The processes are forks of this one, which has torch loaded already.
    """
    from ports import free_port  # which torchrun's own processes do not find, nor need

    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD)}
    fork, started = multiprocessing.get_context("fork"), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which libraries have started and wait
        for rank in range(WORLD):
            environment = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = fork.Process(target=_forked, args=(scenario, folder, rank, environment))
            process.start()
            started.append(process)
    for process in started:
        process.join()
    return [(process.exitcode, _stderr(folder, rank).read_text()) for rank, process in enumerate(started)]


def _stderr(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.stderr"


def _forked(scenario: str, folder: Path, rank: int, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    with open(_stderr(folder, rank), "w") as sys.stderr:
        os.dup2(sys.stderr.fileno(), 2)  # libraries' own words, too
        sys.exit(main(scenario, str(folder)))


def results(scenario: str, folder: Path) -> list[Any]:
    """What the scenario returned on each process."""
    for code, stderr in run(scenario, folder):
        assert code == 0, stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def main(scenario: str, folder: str) -> int:
    try:
        processes = Processes.from_environment()
        with processes.connect(CPU):
            torch.save(SCENARIOS[scenario](processes), Path(folder) / f"{processes.rank}.pt")
    except PamError as error:
        sys.stderr.write(f"pam: {error}\n")
        return error.exit_code
    finally:
        assert not dist.is_initialized(), "the group outlives its context"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
