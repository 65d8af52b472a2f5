"""A step in parts, one after the other, is the step of the whole batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from pamcli.inference.device import Compute
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.loop import Trainer
from pamcli.training.recipes import RECIPES

PAIRS = 5
"""Pairs of one of several processes: they need not go up in the parts, nor be as many."""


def take_step(accumulate: int) -> tuple[dict[str, float], list[Tensor]]:
    """The figures of a step, and the gradients."""
    torch.manual_seed(5)
    network = nn.Conv2d(3, 3, 1)

    def loss(batch: StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        error = (network(batch.left) - batch.right).square().mean()
        return error, {"error": error.detach()}

    recipe = replace(RECIPES["scenes"], batch=PAIRS * accumulate, accumulate=accumulate)
    compute = Compute(torch.device("cpu"), "fp32")
    trainer = Trainer(recipe, 1, network, loss, compute, Processes(), "about")
    left, right = torch.rand(2, PAIRS, 3, 4, 4, generator=torch.Generator().manual_seed(1)).unbind()
    figures, _ = trainer.take_step(StepBatch(left, right))
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return {name: value.item() for name, value in figures.items()}, gradients


@pytest.mark.parametrize("accumulate", [2, 3, PAIRS, 9])
def test_parts_count_by_their_pairs(accumulate: int) -> None:
    (figures, gradients), (whole, expected) = take_step(accumulate), take_step(1)
    assert figures == pytest.approx(whole, rel=1e-5)
    assert len(gradients) == 2
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)
