"""Tests of losses and outputs of the networks in training, in each precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pamcli.inference import device
from pamcli.inference.device import Compute, choose_training_compute
from pamcli.losses.total import GroundTruth
from pamcli.networks.pasmnet import PASMnet
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.training.distributed import Processes
from pamcli.training.examples import StepBatch
from pamcli.training.recipes import RECIPES
from pamcli.training.tasks import loss_function, model_spec, normalise, set_training_mode

CPU = Compute(torch.device("cpu"), "fp32")


UNKNOWN = GroundTruth(torch.full((2, 32, 64), torch.nan))


def pair(truth: GroundTruth = UNKNOWN) -> StepBatch:
    torch.manual_seed(0)
    left, right = torch.rand(2, 2, 3, 32, 64).unbind()
    return StepBatch(left, right, truth=truth)


def test_pasmnet_is_given_normalised_views() -> None:
    view = pair().left
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGE_MEAN, IMAGE_STD))
    torch.testing.assert_close(normalise(view), (view - mean) / std)


def test_a_batch_without_labels_has_all_terms_and_learns_from_those_that_need_none() -> None:
    recipe = replace(
        RECIPES["scenes"], losses=replace(RECIPES["unsupervised"].losses, refined=1, likelihood=1)
    )
    _, values = loss_function(recipe, CPU, Processes())(PASMnet(), pair())
    assert values["refined"] == values["likelihood"] == 0
    assert values["photometric"] > 0
    known = GroundTruth(torch.full((2, 32, 64), 8.0))
    _, labelled = loss_function(recipe, CPU, Processes())(PASMnet(), pair(known))
    assert labelled.keys() == values.keys()
    assert labelled["refined"] > 0


def test_the_prior_is_trained_with_and_stored() -> None:
    recipe = replace(RECIPES["unsupervised"], max_disparity=32)
    seen = []

    class Listening(PASMnet):
        def forward(self, left, right, max_disparity=None, *, all_stages=False):  # type: ignore[no-untyped-def]
            seen.append((max_disparity, all_stages))
            return super().forward(left, right, max_disparity, all_stages=all_stages)

    loss_function(recipe, CPU, Processes())(Listening(), pair())
    assert seen == [(32, True)]
    assert model_spec(recipe, "").max_disparity == 32


def test_frozen_batch_norm_alone_is_in_evaluation_mode() -> None:
    network = PASMnet()
    set_training_mode(replace(RECIPES["scenes"], freeze_batch_norm=True), network)
    modes = {
        (isinstance(module, torch.nn.BatchNorm2d), module.training)
        for module in network.modules()
        if not list(module.children())
    }
    assert modes == {(True, False), (False, True)}


@pytest.mark.parametrize(("gains", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_only_where_the_cpu_gains_by_it(
    monkeypatch: pytest.MonkeyPatch, gains: bool, expected: str
) -> None:
    monkeypatch.setattr(device, "_has_cpu_feature", lambda name: gains)
    assert choose_training_compute("cpu", "auto").precision == expected
    assert choose_training_compute("cpu", "fp32").precision == "fp32"
    assert choose_training_compute("cpu", "bf16").precision == "bf16"
