"""What tests run on two processes: `python two_processes.py SCENARIO FOLDER`, as torchrun starts it.

Each process leaves what its scenario returns in FOLDER/RANK.pt; a PamError ends it with its exit code and one
line on stderr, as in `pam`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pamcli.errors import OutputError, PamError
from pamcli.training.distributed import Loss, Processes, wrap

WORLD = 2
CPU = torch.device("cpu")
PARTS = (slice(0, 1), slice(1, 3))
"""Which images of the joined batch each process has: one known nearly everywhere, and two hardly known."""


class Found(NamedTuple):
    learned: Tensor
    ignored: Tensor


class Toy(nn.Module):
    """A network with running statistics, and a part whose result no loss looks at."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.learned, self.ignored = nn.Conv2d(4, 1, 1), nn.Conv2d(4, 1, 1)
        self.double()
        self.features[1].train(not frozen)

    def forward(self, images: Tensor) -> Found:
        features = self.features(images)
        return Found(self.learned(features), self.ignored(features))


def joined_batch() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(5)
    images, chance = (torch.rand(3, *shape, generator=random).double() for shape in ((3, 9, 9), (1, 7, 7)))
    return images, chance < torch.tensor([0.9, 0.05, 0.05]).view(3, 1, 1, 1)


def mean_square(reduce_count: Callable[[Tensor], Tensor] = lambda count: count) -> Loss:
    """This process's share of the mean over the known pixels of all processes."""

    def loss(network: nn.Module, images: Tensor, known: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        error = (network(images).learned.square() * known).sum() / reduce_count(known.sum())
        return error, {"error": error.detach()}

    return loss


def learn(network: Toy, step: Loss, images: Tensor, known: Tensor) -> dict[str, dict[str, Any]]:
    """Gradients of the second step, weights unchanged: in the first one torch sets up its buckets."""
    for _ in range(2):
        network.zero_grad()
        loss, values = step(images, known)
        loss.backward()
    gradients = {name: weight.grad for name, weight in network.named_parameters()}
    return {"gradients": gradients, "buffers": dict(network.named_buffers()), "values": values}


def together(processes: Processes) -> dict[str, Any]:
    processes.require_same("the same recipe")
    me = processes.rank
    counts = torch.tensor([me + 1.0, 10.0], requires_grad=True)
    found: dict[str, Any] = {
        "rank": me,
        "nobody": processes.any_true(False),
        "one": processes.any_true(me == 1),
        "sum": processes.sum_values([me + 0.1, 2]),
        "counts": processes.sum_counts(counts),
        "own counts": counts.detach(),
    }
    for norm, frozen in (("frozen", True), ("learning", False)):
        network = Toy(frozen=frozen)
        step = wrap(network, mean_square(processes.sum_counts), processes, CPU)
        found[norm] = learn(network, step, *(each[PARTS[me]] for each in joined_batch()))
    return found


def other_options(processes: Processes) -> None:
    processes.require_same(f"seed {processes.rank}")


def one_fails(processes: Processes) -> None:
    if processes.rank == 1:
        raise OutputError("the disk is full")
    processes.sum_values([0])


SCENARIOS: dict[str, Callable[[Processes], Any]] = {
    "together": together,
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
