"""Pairs a second of training: the examples alone, the steps alone, and both together, in one run.

    python scripts/training/throughput.py --data procedural:photos/ [--steps 12] [--batch 4] [--crop 512x256]

The three lines tell what holds training up: the loop comes close to the slower of the other two. Nothing else
should run meanwhile; OMP_NUM_THREADS says how many threads a step uses.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from pamcli.data.open import open_data
from pamcli.inference.device import training_compute
from pamcli.training.distributed import Processes, wrap
from pamcli.training.examples import Batch, Examples, loader
from pamcli.training.loop import Trainer
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import named_recipe
from pamcli.training.starting import starting_network
from pamcli.training.tasks import loss_function, training_mode

WARM_UP = 2  # steps before the clock runs


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
    recipe = named_recipe(given.recipe or ("scenes" if given.task == "disparity" else "superres"), given.task)
    recipe = replace(recipe, batch=given.batch, steps=given.steps + WARM_UP, epochs=None)
    if given.crop:
        width, height = map(int, given.crop.split("x"))
        recipe = replace(recipe, crop=(height, width))
    source = open_data(given.data)
    examples = Examples(
        [(source, 1.0)], recipe.task, recipe.crop, recipe.seed, recipe.augmentation, scale=recipe.scale
    )
    trainer = _trainer(recipe, given.device)
    compute = trainer.compute
    height, width = recipe.crop
    print(
        f"{recipe.name}, batches of {recipe.batch} at {width}x{height}, {compute.device} in "
        f"{compute.precision}, {torch.get_num_threads()} threads, pairs a second:"
    )
    alone = loader(examples, 0, given.steps + WARM_UP, recipe.batch, 0)
    batch = next(alone)
    print(f"  examples alone, one process  {_speed(recipe, alone, None):6.2f}")
    print(
        f"  steps alone                  {_speed(recipe, itertools.repeat(batch, given.steps), trainer):6.2f}"
    )
    trainer = _trainer(recipe, given.device)
    together = loader(examples, 0, given.steps + WARM_UP, recipe.batch, given.workers)
    print(f"  the loop, {given.workers} worker(s)         {_speed(recipe, together, trainer):6.2f}")


def _trainer(recipe: Recipe, device: str) -> Trainer:
    compute = training_compute(Processes.from_environment().device(device), recipe.precision)
    network = starting_network(recipe).to(compute.device)
    training_mode(recipe, network)
    processes = Processes.from_environment()
    loss = wrap(network, loss_function(recipe, compute, processes), processes, compute.device)
    assert recipe.steps is not None
    return Trainer(recipe, recipe.steps, network, loss, compute, processes, "")


def _speed(recipe: Recipe, batches: Iterator[Batch], trainer: Trainer | None) -> float:
    """Pairs a second, the first steps left out."""
    done, start = 0, time.perf_counter()
    for number, batch in enumerate(batches):
        if trainer is not None:
            trainer.take_step(batch)
        if number < WARM_UP:
            start = time.perf_counter()
        else:
            done += 1
    if trainer is not None and trainer.compute.device.type == "cuda":
        torch.cuda.synchronize()
    return done * recipe.batch / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
