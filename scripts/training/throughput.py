"""Measure the speed of training in pairs per second: examples, steps, and both.

    python scripts/training/throughput.py --data procedural:photos/ [--steps 12] [--batch 4] [--crop 512x256]

The three lines show the bottleneck: the loop comes close to the slower of the other two. Each line also has
the figure by processor time, on which other programs have little influence. OMP_NUM_THREADS sets the threads
of a step. All crops have the size of --crop; scenes serve for as many crops as in the recipe.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from pamcli.data.open import open_data
from pamcli.inference.device import Compute, keep_freed_memory, prepare_arithmetic
from pamcli.training.distributed import Processes
from pamcli.training.examples import Examples, StepBatch, load_batches
from pamcli.training.initialisation import initial_network
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import get_recipe
from pamcli.training.trainer import Trainer, compute_loss

WARM_UP = 2  # steps before the clock runs
KEPT = 4  # scenes that crops are taken of at a time


@dataclass(frozen=True)
class Speed:
    """Pairs a second, and a second of the processor."""

    by_clock: float
    by_processor: float

    def __str__(self) -> str:
        return f"{self.by_clock:6.2f}   {self.by_processor:6.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Pairs a second of training.")
    parser.add_argument("--task", choices=("disparity", "superres"), default="disparity")
    parser.add_argument("--recipe", help="a name of pam train --recipe; the task's default if not given")
    parser.add_argument("--data", required=True, help="as of pam train")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--crop", help="WIDTHxHEIGHT, the recipe's if not given")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    recipe = get_recipe(given.recipe or ("pasmnet2" if given.task == "disparity" else "superres"), given.task)
    recipe = replace(recipe, batch=given.batch, steps=given.steps + WARM_UP, epochs=None, sizes=())
    # Few scenes at a time: new ones come as often as in the middle of a long run, from the beginning on.
    recipe = replace(recipe, scenes=replace(recipe.scenes, pool=KEPT))
    if given.crop:
        width, height = map(int, given.crop.split("x"))
        recipe = replace(recipe, crop=(height, width))
    source = open_data(given.data).with_hard_cases(recipe.scenes.hard)
    with tempfile.TemporaryDirectory() as folder, prepare_arithmetic(Compute.choose(given.device).device):
        keep_freed_memory()
        examples = Examples(recipe, [(source, 1.0)], Path(folder))
        measure(recipe, examples, given.steps, given.workers, given.device)


def measure(recipe: Recipe, examples: Examples, steps: int, workers: int, device: str) -> None:
    """Print the three speeds, and how examples and steps compare."""
    trainer = _trainer(recipe, device)
    compute = trainer.compute
    height, width = recipe.crop
    print(
        f"{recipe.name}, batches of {recipe.batch} at {width}x{height}, {compute.device} in "
        f"{compute.precision}, {torch.get_num_threads()} threads, pairs a second (of the processor's):"
    )
    alone = load_batches(examples, 0, steps + WARM_UP, recipe.batch, 0)
    batch = next(alone)
    prepared = _speed(recipe, alone, None)
    taken = _speed(recipe, itertools.repeat(batch, steps), trainer)
    together = load_batches(examples, 0, steps + WARM_UP, recipe.batch, workers)
    print(f"  examples alone, one process  {prepared}")
    print(f"  steps alone                  {taken}")
    loop = _speed(recipe, together, _trainer(recipe, device))
    print(f"  the loop, {workers} worker(s)         {loop.by_clock:6.2f}")
    print(f"  examples take {taken.by_processor / prepared.by_processor:.0%} of a step's processor time")


def _trainer(recipe: Recipe, device: str) -> Trainer:
    compute = Compute.choose(Processes.from_environment().device(device), recipe.precision, reduce=True)
    network = initial_network(recipe).to(compute.device)
    processes = Processes.from_environment()
    loss = partial(compute_loss, recipe, compute, processes, network)
    assert recipe.steps is not None
    return Trainer(recipe, recipe.steps, network, loss, compute, processes)


def _speed(recipe: Recipe, batches: Iterator[StepBatch], trainer: Trainer | None) -> Speed:
    """Yield all batches but the first ones."""
    done, start, begun = 0, time.perf_counter(), time.process_time()
    for number, batch in enumerate(batches):
        if trainer is not None:
            trainer.take_step(batch)
        if number < WARM_UP:
            start, begun = time.perf_counter(), time.process_time()
        else:
            done += 1
    if trainer is not None and trainer.compute.device.type == "cuda":
        torch.cuda.synchronize()
    pairs = done * recipe.batch
    return Speed(pairs / (time.perf_counter() - start), pairs / (time.process_time() - begun))


if __name__ == "__main__":
    main()
