"""Steps of training: losses, parts of a batch, frozen batch norm, the average, Muon, restored state."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pamcli.errors import ModelError, UsageError
from pamcli.inference.device import Compute
from pamcli.losses.total import GroundTruth
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.muon import MOMENTUM, OF_ADAMW, Muon, orthogonalize
from pamcli.training.recipe import CropShare
from pamcli.training.recipes import RECIPES
from pamcli.training.trainer import (
    Trainer,
    check_batch_norm,
    compute_loss,
    make_average,
    set_training_mode,
)

CPU = Compute(torch.device("cpu"), "fp32")
PAIRS = 5
"""Pairs of one of several processes: they need not go up in the parts, nor be as many."""


def truth_of(disparity: float) -> GroundTruth:
    left, every = torch.full((2, 32, 64), disparity), torch.ones(2, 32, 64, dtype=torch.bool)
    return GroundTruth(left, left * torch.nan, every, every, torch.tensor([False, False]))


UNKNOWN = truth_of(torch.nan)


def pair(truth: GroundTruth = UNKNOWN) -> StepBatch:
    torch.manual_seed(0)
    left, right = torch.rand(2, 2, 3, 32, 64).unbind()
    return StepBatch(left, right, truth=truth)


def make_trainer(precision: Any = "fp16", **changes: Any) -> Trainer:
    torch.manual_seed(5)
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 1))  # the first one is a matrix

    def loss(batch: StepBatch) -> tuple[Tensor, dict[str, Tensor]]:
        error = (network(batch.left) - batch.right).square().mean()
        return error, {"error": error.detach()}

    recipe = replace(RECIPES["scenes"], **changes)
    return Trainer(recipe, 10, network, loss, Compute(torch.device("cpu"), precision), Processes())


def test_a_batch_without_labels_has_all_terms() -> None:
    losses = replace(RECIPES["unsupervised"].losses, refined=1, likelihood=1)
    loss = partial(compute_loss, replace(RECIPES["scenes"], losses=losses), CPU, Processes())
    _, values = loss(PASMnet(), pair())
    assert values["refined"] == values["likelihood"] == 0
    assert values["photometric"] > 0
    _, labelled = loss(PASMnet(), pair(truth_of(8.0)))
    assert labelled.keys() == values.keys()
    assert labelled["refined"] > 0


def test_the_largest_disparity_is_trained_with_and_stored() -> None:
    recipe = replace(RECIPES["unsupervised"], max_disparity=32)
    seen = []

    class Listening(PASMnet):
        def forward(self, left, right, max_disparity=None, *, all_stages=False):  # type: ignore[no-untyped-def]
            seen.append((max_disparity, all_stages))
            return super().forward(left, right, max_disparity, all_stages=all_stages)

    compute_loss(recipe, CPU, Processes(), Listening(), pair())
    assert seen == [(32, True)]
    assert recipe.model_spec().max_disparity == 32


def test_frozen_batch_norm_alone_is_in_evaluation_mode() -> None:
    network = PASMnet()
    set_training_mode(replace(RECIPES["scenes"], freeze_batch_norm=True), network)
    leaves = [module for module in network.modules() if not list(module.children())]
    modes = {(isinstance(module, nn.BatchNorm2d), module.training) for module in leaves}
    assert modes == {(True, False), (False, True)}


def test_one_small_crop_at_a_time_is_too_little_for_batch_norm() -> None:
    small, larger = (32, 32), (32, 64)
    network = PASMnet()
    before = copy.deepcopy(network.state_dict())

    def check(net: nn.Module = network, world: int = 1, **changes: Any) -> None:
        check_batch_norm(replace(RECIPES["scenes"], **changes), net, Processes(0, 0, world), CPU.device)

    # On a CPU, each process has its own statistics.
    for changes in ({"batch": 1}, {"batch": 2, "accumulate": 2}, {"batch": 2, "world": 2}):
        with pytest.raises(UsageError, match="cannot learn from one pair of 32x32 px") as caught:
            check(crop=small, **changes)
        assert "`crop`" in str(caught.value.hint)
    with pytest.raises(UsageError, match="32x32"):  # a further size, of which one pair fills a step
        check(crop=(32, 32), batch=1, sizes=(CropShare(larger, (0.5,)),))
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    check(crop=small, batch=2)
    check(crop=small, batch=4, world=2)
    check(crop=larger, batch=1)
    check(crop=small, batch=1, freeze_batch_norm=True)
    check(PASMnet2(), crop=small, batch=1, network="pasmnet2", losses=RECIPES["pasmnet2"].losses)


@pytest.mark.parametrize("accumulate", [2, 9])
def test_parts_count_by_their_pairs(accumulate: int) -> None:
    def take_step(parts: int) -> tuple[dict[str, float], list[Any]]:
        trainer = make_trainer("fp32", batch=PAIRS * parts, accumulate=parts)
        left, right = torch.rand(2, PAIRS, 3, 4, 4, generator=torch.Generator().manual_seed(1)).unbind()
        figures, _ = trainer.take_step(StepBatch(left, right))
        gradients = [parameter.grad for parameter in trainer.network.parameters()]
        return {name: value.item() for name, value in figures.items()}, gradients

    (figures, gradients), (whole, expected) = take_step(accumulate), take_step(1)
    assert figures == pytest.approx(whole, rel=1e-5)
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other)


def test_the_gradient_is_clipped() -> None:
    trainer = make_trainer("fp32", clip=1e-3)
    _, norm = trainer.take_step(StepBatch(torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)))
    after = torch.stack([p.grad.norm() for p in trainer.network.parameters() if p.grad is not None]).norm()
    assert norm.item() > 1e-3
    assert after.item() == pytest.approx(1e-3, rel=1e-3)


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


def change(network: nn.Module) -> None:
    """Change weights and running statistics as a step of training does."""
    network(torch.randn(2, 3, 4, 4))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_the_average_is_the_recurrence_of_weights_and_statistics() -> None:
    network = small_network()
    average = make_average(network, 0.9)
    expected = {key: value.clone() for key, value in network.state_dict().items()}
    for number in range(1, 121):
        change(network)
        average.update_parameters(network)
        decay = min(0.9, (1 + number) / (10 + number))
        for key, value in network.state_dict().items():
            if value.is_floating_point():
                expected[key] = decay * expected[key] + (1 - decay) * value
    found = average.module.state_dict()
    for key in ("0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[key], expected[key])
        assert not torch.equal(found[key], network.state_dict()[key])
    assert found["1.num_batches_tracked"].item() == 120


def test_the_end_of_a_run_is_averaged_evenly() -> None:
    network = small_network()
    average = make_average(network, 0.9, mean_from=50)
    for _ in range(50):
        change(network)
        average.update_parameters(network)
    before = average.module.state_dict()["0.weight"].clone()
    seen = []
    for _ in range(40):
        change(network)
        average.update_parameters(network)
        seen.append(network.state_dict()["0.weight"].clone())
    # Begins with what the average of decay 0.9 is worth: about ten steps.
    expected = (10 * before + torch.stack(seen).sum(0)) / (10 + 40)
    torch.testing.assert_close(average.module.state_dict()["0.weight"], expected, atol=1e-4, rtol=1e-3)


def test_the_scale_of_the_gradients_is_restored() -> None:
    one, other = make_trainer(), make_trainer()
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    one.scaler.update(1024.0)
    assert other.scaler.get_scale() != 1024
    other.restore(one.make_checkpoint())
    assert other.scaler.get_scale() == 1024


@pytest.mark.parametrize("kinds", [("adamw", "muon"), ("muon", "adamw")])
def test_moments_of_another_optimizer_are_refused(kinds: Any) -> None:
    one, other = (make_trainer(optimizer=kind) for kind in kinds)
    one.take_step(StepBatch(*torch.rand(2, 2, 3, 4, 4)))
    with pytest.raises(ModelError, match="belongs to another network or recipe"):
        other.restore(one.make_checkpoint())


def test_a_restored_trainer_goes_on_bit_for_bit() -> None:
    """Here with Muon; test_loop.py has AdamW."""
    batches = [StepBatch(*torch.rand(2, 2, 3, 4, 4)) for _ in range(4)]
    straight, one, other = (make_trainer("fp32", optimizer="muon", ema=0.99) for _ in range(3))
    for batch in batches:
        straight.take_step(batch)
    for batch in batches[:2]:
        one.take_step(batch)
    other.restore(one.make_checkpoint())
    for batch in batches[2:]:
        other.take_step(batch)
    for weights, found in ((straight.network.state_dict(), other.network.state_dict()),
                           (straight.result_weights, other.result_weights)):  # fmt: skip
        assert all(torch.equal(value, found[key]) for key, value in weights.items())


RATE, BETAS = 1e-3, (0.9, 0.99)


def layers() -> nn.Sequential:
    """An image's convolution, a depthwise one, and one between many channels."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 64, 1))


def muon(network: nn.Module, decay: float = 0.0) -> Muon:
    return Muon(network.parameters(), RATE, betas=BETAS, weight_decay=decay)


def learn(network: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    """A step by gradients that depend on the weights alone."""
    x = torch.linspace(-1, 1, 3 * 6 * 7).view(1, 3, 6, 7)
    (network(x) - 1).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (16, 16), (48, 576)])
def test_singular_values_become_about_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * torch.logspace(0, -1, shape[1])
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonalize(matrix) @ right.T
    assert (inner - inner.diag().diag()).abs().max() < 1e-3
    assert inner.diag().max() < 1.3
    assert inner.diag().min() > 0.6


def test_matrices_move_by_muon_and_other_weights_by_adamw() -> None:
    network = layers()
    other = copy.deepcopy(network)
    learn(network, muon(network))
    learn(other, torch.optim.AdamW(other.parameters(), RATE, betas=BETAS, weight_decay=0))
    for key, weights in network.named_parameters():
        if key != "2.weight":
            torch.testing.assert_close(weights, other.get_parameter(key))
    before = layers()[2].weight
    gradient = network[2].weight.grad
    assert isinstance(gradient, torch.Tensor)
    mean = gradient * (1 - MOMENTUM)
    change = orthogonalize((gradient + MOMENTUM * (mean - gradient)).flatten(1)).view_as(gradient)
    torch.testing.assert_close(network[2].weight, before - RATE * OF_ADAMW * 64**0.5 * change)


def test_weights_decay_as_they_do_by_adamw() -> None:
    one, other = layers(), layers()
    learn(one, muon(one))
    learn(other, muon(other, decay=0.1))
    start = layers()[2].weight
    torch.testing.assert_close(other[2].weight, one[2].weight - RATE * 0.1 * start)
