"""The sum of PASSRnet's losses: the paper's, and what it can learn from besides."""

from __future__ import annotations

import pytest
import torch
from loss_examples import maps_of, random_costs, random_pictures, truth_of, value
from paper_weights import SUPER_RESOLUTION
from torch import Tensor

from pamcli.losses.total import superres_terms, total_loss
from pamcli.losses.unsupervised import attention_cycle
from pamcli.losses.weights import LossWeights
from pamcli.networks.passrnet import SuperResolution

UNKNOWN = truth_of(torch.full((2, 8, 12), torch.nan))


def example_superres(*, both: bool) -> tuple[SuperResolution, list[Tensor], list[Tensor]]:
    costs = [*random_costs(3, 2, 8, 12)]
    low, high = [*random_pictures(4, 2, 8, 12)], [*random_pictures(5, 2, 16, 24)]
    pictures = [picture.requires_grad_() for picture in random_pictures(6, 2, 16, 24)]
    maps = maps_of(costs[0], costs[1], ordered=False)
    return SuperResolution(pictures[0], pictures[1] if both else None, lambda: maps), [*low, *high], costs


@pytest.mark.parametrize("both", [False, True])
def test_the_super_resolution_loss_is_the_papers(both: bool) -> None:
    result, pictures, _ = example_superres(both=both)
    terms = superres_terms(result, *pictures, SUPER_RESOLUTION, UNKNOWN)
    assert list(terms) == ["super_resolution", "pam_photometric", "pam_smoothness", "pam_cycle"]
    values = total_loss(terms)[1]
    errors = [(result.left - pictures[2]).square().mean()]
    if result.right is not None:
        errors.append((result.right - pictures[3]).square().mean())
    assert torch.allclose(values["super_resolution"], torch.stack(errors).mean(), rtol=1e-5)
    assert torch.allclose(values["pam_cycle"], 0.005 * value(*attention_cycle(result.maps)), rtol=1e-5)


def test_the_psnr_of_both_views_is_one_term() -> None:
    result, pictures, _ = example_superres(both=True)
    terms = superres_terms(result, *pictures, LossWeights(psnr=0.5), UNKNOWN)
    views = torch.cat((result.left, result.right)) - torch.cat(pictures[2:])
    expected = torch.log1p(views.square().mean((1, 2, 3)) / 1e-3).mean() / 2
    assert torch.allclose(total_loss(terms)[0], expected, rtol=1e-5)


def test_superres_learns_by_charbonnier_and_ground_truth() -> None:
    result, pictures, costs = example_superres(both=False)
    weights = LossWeights(charbonnier=1, likelihood=0.1)
    disparity = torch.full((2, 8, 12), 3.0)
    terms = superres_terms(result, *pictures, weights, truth_of(disparity, disparity))
    assert set(terms) == {"charbonnier", "likelihood"}
    of_left, of_right = (quotient for _, quotient in terms["likelihood"])
    assert of_left.count == of_right.count == 2 * 8 * 9
    for gradient in torch.autograd.grad(total_loss(terms)[0], [*costs, result.left]):
        assert gradient.abs().sum() > 0
