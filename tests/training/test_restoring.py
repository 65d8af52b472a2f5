"""What a checkpoint brings back beside the weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from pamcli.inference.device import Compute
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.loop import Trainer
from pamcli.training.recipes import RECIPES


def trainer() -> Trainer:
    torch.manual_seed(5)
    network = nn.Conv2d(3, 3, 1)

    def loss(batch: StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        return (network(batch.left) - batch.right).square().mean(), {}

    compute = Compute(torch.device("cpu"), "fp16")
    return Trainer(replace(RECIPES["scenes"], batch=2), 10, network, loss, compute, Processes(), "about")


def test_the_scale_of_the_gradients_goes_on_where_it_was() -> None:
    one, other = trainer(), trainer()
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    one.scaler.update(1024.0)
    assert other.scaler.get_scale() != 1024
    other.restore(one.state())
    assert other.scaler.get_scale() == 1024


def test_a_checkpoint_from_before_there_were_several_rates_is_taken() -> None:
    one, other = trainer(), trainer()
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    checkpoint = one.state()
    for group in checkpoint.optimizer["param_groups"]:
        del group["factor"]
    other.restore(checkpoint)
    other.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    assert other.step == 2
