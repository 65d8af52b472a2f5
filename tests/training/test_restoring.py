"""Tests of the state that a checkpoint restores beside the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from pamcli.errors import ModelError
from pamcli.inference.device import Compute
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.loop import Trainer
from pamcli.training.recipes import RECIPES


def trainer(optimizer: Literal["adamw", "muon"] = "adamw") -> Trainer:
    torch.manual_seed(5)
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 1))  # the first one is a matrix
    recipe = replace(RECIPES["scenes"], batch=2, optimizer=optimizer)

    def loss(batch: StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        return (network(batch.left) - batch.right).square().mean(), {}

    compute = Compute(torch.device("cpu"), "fp16")
    return Trainer(recipe, 10, network, loss, compute, Processes(), "about")


def test_the_scale_of_the_gradients_goes_on_where_it_was() -> None:
    one, other = trainer(), trainer()
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    one.scaler.update(1024.0)
    assert other.scaler.get_scale() != 1024
    other.restore(one.make_checkpoint())
    assert other.scaler.get_scale() == 1024


@pytest.mark.parametrize("kinds", [("adamw", "muon"), ("muon", "adamw")])
def test_moments_of_another_optimizer_are_refused(kinds: Any) -> None:
    one, other = (trainer(kind) for kind in kinds)
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    with pytest.raises(ModelError, match="belongs to another network or recipe"):
        other.restore(one.make_checkpoint())


def test_a_run_goes_on_with_muon_as_if_it_had_never_stopped() -> None:
    batches = [StepBatch(*torch.rand(2, 2, 3, 4, 4)) for _ in range(4)]
    straight, one, other = (trainer("muon") for _ in range(3))
    for batch in batches:
        straight.take_step(batch)
    for batch in batches[:2]:
        one.take_step(batch)
    other.restore(one.make_checkpoint())
    for batch in batches[2:]:
        other.take_step(batch)
    for key, weights in straight.network.state_dict().items():
        assert torch.equal(weights, other.network.state_dict()[key]), key
