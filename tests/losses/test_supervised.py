"""Supervised terms: they want the truth, sub-pixel and at every scale, and nothing of what is not known."""

from __future__ import annotations

import math

import pytest
import torch
from loss_examples import value
from torch import Tensor

from pamcli.losses.supervised import (
    LARGEST_ERROR,
    SMALLEST_PROBABILITY,
    attention_likelihood,
    error_likelihood,
    find_visible_left,
    find_visible_right,
    match_likelihood,
    sample_truth,
    smooth_l1,
)
from pamcli.networks.parallax import ParallaxMaps, RowAttention, attention

NAN = torch.nan


def row(*values: float) -> Tensor:
    """(1, 1, W)."""
    return torch.tensor(values, dtype=torch.float32).view(1, 1, -1)


def test_smooth_l1_is_quadratic_below_a_pixel_and_linear_above() -> None:
    truth = row(10, 10, 10, NAN)
    quotient = smooth_l1(row(10.5, 13, 10, 99), truth, truth.isfinite())
    assert quotient.total == pytest.approx(0.5 * 0.25 + 2.5)
    assert quotient.count == 3


def test_the_likelihood_of_an_error_is_laplaces() -> None:
    found, truth = row(10, 13, 10.25, 5, 300).requires_grad_(), row(10.5, 10, 10, NAN, 20)
    scales = row(0.2, 2, 1, 1, 8).log().requires_grad_()
    quotient = error_likelihood(scales, found, truth, truth.isfinite())
    errors = row(0.5, 3, 0.25, 0, LARGEST_ERROR)
    logs = torch.distributions.Laplace(0.0, scales.exp()).log_prob(errors)
    expected = -(logs.sum() - logs[0, 0, 3])
    assert quotient.total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert quotient.count == 4
    quotient.total.backward()
    assert found.grad is None, "the disparity learns nothing of it"
    assert scales.grad[0, 0, 3] == 0


@pytest.mark.parametrize("limit", [0.5, 1.0, 8.0])
def test_errors_beyond_the_limit_grow_logarithmically(limit: float) -> None:
    def loss(error: float) -> tuple[float, float]:
        found = torch.full((1, 1, 1), 50 + error, dtype=torch.float64).requires_grad_()
        quotient = smooth_l1(found, torch.full((1, 1, 1), 50.0), torch.ones(1, 1, 1), limit)
        quotient.total.backward()
        return float(quotient.total.detach()), float(found.grad)

    (value_at, slope), (beyond, less_steep) = loss(0.999 * limit), loss(1.001 * limit)
    assert beyond == pytest.approx(value_at, abs=0.003 * limit)
    assert less_steep == pytest.approx(slope, rel=0.01)
    assert loss(-4 * limit)[0] == pytest.approx(loss(4 * limit)[0])
    assert loss(100 * limit)[1] == pytest.approx(slope / 100, rel=0.01)
    assert loss(40 * limit)[0] - loss(20 * limit)[0] == pytest.approx(slope * limit * math.log(2), rel=0.01)
    plain = value(smooth_l1(*(torch.full((1, 1, 1), x) for x in (0.9 * limit, 0.0, 1.0))))
    assert loss(0.9 * limit)[0] == pytest.approx(float(plain), rel=1e-5)


def test_unknown_ground_truth_never_reaches_a_gradient() -> None:
    disparity = row(1, 2, 3, 4).requires_grad_()
    truth = row(NAN, 5, torch.inf, 4)
    with torch.autograd.set_detect_anomaly(True):  # not even inside
        value(smooth_l1(disparity, truth, truth.isfinite())).backward()
    assert disparity.grad.flatten().tolist() == [0, -0.5, 0, 0]


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8, 16])
def test_truth_is_sampled_at_the_centres_of_cells(stride: int) -> None:
    column = torch.arange(48.0).expand(1, 48, 48)
    truth, mask = sample_truth(column, torch.ones(1, 48, 48, dtype=torch.bool), stride)
    centre = (torch.arange(48 // stride) + 0.5) * stride - 0.5
    assert truth.shape == mask.shape == (1, 48 // stride, 48 // stride)
    assert (truth * stride - centre).abs().max() <= 0.5
    assert mask.all()


def test_the_ground_truth_of_a_scale_does_not_mix_near_and_far() -> None:
    truth = torch.full((1, 16, 32), 8.0)
    truth[..., 13:] = 100
    truth[0, 2, 2] = NAN
    counts = torch.ones_like(truth, dtype=torch.bool)
    counts[0, 6, 6] = False
    coarse, mask = sample_truth(truth, counts, 4)
    assert set(coarse[mask].tolist()) == {2.0, 25.0}
    assert (~mask).nonzero().tolist() == [[0, 0, 0], [0, 1, 1]]


def test_likelihood_shares_a_position_between_its_neighbours() -> None:
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.4]).view(1, 1, 1, 4)
    everywhere = torch.ones(1, 1, 1, dtype=torch.bool)
    for position, expected in {
        1.0: -math.log(0.2),
        1.25: -0.75 * math.log(0.2) - 0.25 * math.log(0.3),
        3.0: -math.log(0.4),
        0.0: -math.log(0.1),
    }.items():
        quotient = match_likelihood(probabilities, row(position), everywhere)
        assert value(quotient) == pytest.approx(expected, rel=1e-6)
        assert quotient.count == 1


def test_likelihood_leaves_out_what_the_map_cannot_say() -> None:
    width = 12
    allowed = attention(torch.zeros(1, 1, width, width), "left", max_disparity=4)
    mask = torch.ones(1, 1, width, dtype=torch.bool)
    column = torch.arange(float(width)).view(1, 1, width)
    assert match_likelihood(allowed, column, mask).count == width  # disparity 0: the next entry is not asked
    assert match_likelihood(allowed, column - 2.5, mask).count == width - 3
    assert match_likelihood(allowed, column - 3.5, mask).count == 0  # partly beyond the maximum disparity
    assert match_likelihood(allowed, column + 0.5, mask).count == 0  # a negative disparity


def test_a_map_that_is_sure_of_a_wrong_position_still_learns() -> None:
    cost = torch.zeros(1, 1, 1, 8)
    cost[..., 0] = 60  # the true position has probability 1e-26
    cost.requires_grad_()
    probabilities = attention(cost)
    assert SMALLEST_PROBABILITY < float(probabilities.detach()[..., 5]) < 1e-20
    value(match_likelihood(probabilities, row(5.0), torch.ones(1, 1, 1, dtype=torch.bool))).backward()
    assert cost.grad[0, 0, 0, [0, 5]].tolist() == pytest.approx([1, -1], abs=1e-4)  # as a cross entropy


def test_likelihood_gradients_are_finite_for_zero_attention() -> None:
    cost = torch.zeros(1, 1, 3, 3)
    cost[..., 0] = 500  # everything else becomes exactly zero
    cost.requires_grad_()
    mask = torch.ones(1, 1, 3, dtype=torch.bool)
    quotient = match_likelihood(attention(cost, "left"), row(0, 0.5, 2), mask)
    value(quotient).backward()
    assert quotient.total.isfinite()
    assert cost.grad.isfinite().all()


@pytest.mark.parametrize("stride", [1, 4, 16])
@pytest.mark.parametrize("disparity", [0.0, 20.0, 37.0])
def test_true_maps_of_both_views_are_likely_at_every_scale(stride: int, disparity: float) -> None:
    """A map made of the geometry alone: full-size column x lies at (x + 1/2) / s - 1/2 in both views."""
    width = 192 // stride
    full_size = (torch.arange(float(width)) + 0.5) * stride - 0.5
    left, right = full_size[:, None], full_size
    near = (1 - (left - disparity - right).abs() / stride).clamp(min=0)  # (W, V), linear between columns
    right_to_left = near.expand(1, 2, -1, -1)
    everywhere = torch.ones(1, 2, width, dtype=torch.bool)
    maps = ParallaxMaps(right_to_left, right_to_left.transpose(-1, -2), everywhere, everywhere)
    truth = torch.full((1, 2 * stride, 192), disparity)
    counts = torch.ones_like(truth, dtype=torch.bool)
    # The least that a position shared between two columns can cost: its own entropy.
    share = disparity / stride % 1
    entropy = -sum(p * math.log(p) for p in (share, 1 - share) if p)
    inside = 2 * (width - math.ceil(disparity / stride))
    for quotient in attention_likelihood(maps, stride, (truth, counts), (truth, counts)):
        assert quotient.count == inside
        assert value(quotient) == pytest.approx(entropy, abs=1e-4)


def step_scene() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Background of disparity 2, an object of 8 over left columns 20 to 29: truths and visible pixels."""
    column = torch.arange(50)
    left, right = torch.full((50,), 2.0), torch.full((50,), 2.0)
    left[20:30] = 8
    right[12:22] = 8  # columns 20 - 8 to 29 - 8
    seen_left = (column >= 2) & ~((column >= 14) & (column < 20))  # hidden: right columns 12 to 17 are object
    seen_right = (column < 48) & ~((column >= 22) & (column < 28))
    views = (left, right, seen_left, seen_right)
    return tuple(view.expand(1, 3, 50) for view in views)  # type: ignore[return-value]


def test_visible_pixels_from_the_truth_of_both_images() -> None:
    left, right, seen_left, seen_right = step_scene()
    assert torch.equal(find_visible_left(left, right), seen_left)
    assert torch.equal(find_visible_right(left, right), seen_right)


def test_visible_pixels_from_the_left_truth_alone() -> None:
    left, right, seen_left, _ = step_scene()
    assert torch.equal(find_visible_left(left), seen_left)
    mixed = find_visible_left(left.repeat(2, 1, 1), torch.cat((right, torch.full_like(right, NAN))))
    assert torch.equal(mixed, seen_left.repeat(2, 1, 1))


def test_between_two_columns_both_have_to_agree() -> None:
    left, right = torch.full((1, 1, 50), 6.5), torch.full((1, 1, 50), 6.5)
    right[..., 30] = NAN  # a neighbour of the matches of 36 and 37: the left truth alone tells of these
    assert torch.equal(find_visible_left(left, right)[0, 0], torch.arange(50) >= 7)
    left[..., 20:30] = 12  # covers right columns 8 to 17
    hidden = (~find_visible_left(left)[0, 0]).nonzero().flatten().tolist()
    assert hidden == [*range(7), *range(14, 20)]  # 14 lies at 7.5


def test_a_slanted_surface_does_not_hide_itself() -> None:
    for slope in (-0.5, 0.3):
        truth = (15 + slope * torch.arange(40.0)).clamp(min=0).expand(1, 2, 40)
        inside = torch.arange(40) - truth >= 0
        assert torch.equal(find_visible_left(truth), inside)


def test_unknown_pixels_are_not_visible_and_hide_nothing() -> None:
    left, right, seen_left, _ = step_scene()
    left, right = left.clone(), right.clone()
    left[..., 5:8] = NAN
    right[..., 12:15] = right[..., 35:37] = NAN  # the left truth alone tells of these
    expected = seen_left.clone()
    expected[..., 5:8] = False
    assert torch.equal(find_visible_left(left, right), expected)
    nothing = torch.full_like(left, NAN)
    assert not find_visible_left(nothing).any()
    assert not find_visible_left(nothing, nothing).any()


def test_likelihoods_of_logarithms_and_attention_agree() -> None:
    torch.manual_seed(1)
    logs = RowAttention.from_cost(3 * torch.randn(2, 4, 24, 24), "left")
    position = torch.arange(24) - 8 * torch.rand(2, 4, 24)
    mask = torch.rand(2, 4, 24) < 0.8
    one = match_likelihood(logs, position, mask)
    other = match_likelihood(logs.log_map().exp(), position, mask)
    assert one.count == other.count
    torch.testing.assert_close(one.total, other.total)
    beyond = match_likelihood(logs, torch.arange(24) + 2.0 + 0 * position, mask)
    assert beyond.count == 0, "no pixel matches at a negative disparity"
