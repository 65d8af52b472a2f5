"""PASSRnet 2 in its plain form."""

from __future__ import annotations

import pytest
import torch
from random_networks import passrnet2, picture_pair

from pamcli.losses.total import Truth, superres_terms, total_loss
from pamcli.losses.weights import LossWeights
from pamcli.networks.passrnet2 import (
    DETAIL_GAIN,
    PHASES,
    GatedBlock,
    PASSRnet2,
    _between,
    bicubic,
    most_attended,
)


@pytest.mark.parametrize(
    ("scale", "blocks", "parameters"),
    [(2, 16, 469_836), (3, 16, 478_491), (4, 16, 490_608), (2, 32, 895_820), (4, 32, 916_592)],
)
def test_its_size(scale: int, blocks: int, parameters: int) -> None:
    assert sum(p.numel() for p in PASSRnet2(scale, blocks).parameters()) == parameters


def test_what_learns_and_what_does_not_compute_the_same() -> None:
    """Halves of a gate are computed by themselves where there is a gradient."""
    torch.manual_seed(0)
    block, x = GatedBlock(), torch.randn(2, 64, 9, 11)
    for parameter in block.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    learning = block(x.clone().requires_grad_())
    with torch.no_grad():
        torch.testing.assert_close(learning.detach(), block(x.clone()))


def test_a_fresh_one_is_bicubic_enlargement_and_looks_at_one_view_alone() -> None:
    torch.manual_seed(0)
    network, views = PASSRnet2(4), picture_pair(12, 30)
    result = network(views[:1], views[1:], both=True)
    torch.testing.assert_close(result.left, bicubic(views[:1], 4))
    torch.nn.init.normal_(network.last.weight, std=0.1)
    result = network(views[:1], views[1:])
    assert (result.left - bicubic(views[:1], 4)).abs().mean() > 0.01
    assert torch.equal(result.left, network(views[:1], torch.rand_like(views[1:])).left)


def test_exchanged_views_give_exchanged_pictures() -> None:
    views = picture_pair(11, 23)
    there = passrnet2(2)(views[:1], views[1:], both=True)
    back = passrnet2(2)(views[1:], views[:1], both=True)
    torch.testing.assert_close(there.left, back.right)
    torch.testing.assert_close(there.right, back.left)
    torch.testing.assert_close(there.maps.right_to_left, back.maps.left_to_right)
    assert passrnet2(2)(views[:1], views[1:]).right is None


def test_detail_is_what_the_other_view_has_beyond_interpolation_sorted_by_its_place() -> None:
    """Matches of a quarter of a pixel to the right, attended to by 3 : 1, in one row of a known picture."""
    own = torch.tensor([0.2, 0.4, 0.2, 0.6]).expand(1, 3, 1, 4).contiguous()
    other = torch.tensor([0.9, 0.5, 0.1, 0.7]).expand(1, 3, 1, 4).contiguous()
    maps = torch.zeros(1, 1, 4, 4)
    maps[0, 0, 1] = torch.tensor([0, 0.2, 0.6, 0])  # its match is 1.75: pixel 2 lies 0.25 to its right
    maps[0, 0, [0, 2, 3], [0, 2, 3]] = 1  # exactly there
    found = _between(own, other, *most_attended(maps))[0, :, 0]
    weights, detail = found[:PHASES], found[PHASES:].view(3, PHASES, 4)
    torch.testing.assert_close(weights[:, 1], 0.8 * torch.tensor([0, 0, 0.5, 0.5]))  # centres 0.125 and 0.375
    torch.testing.assert_close(weights[:, 0], torch.tensor([0, 0.5, 0.5, 0]))
    beyond = 0.1 - (0.4 + 0.25 * (0.2 - 0.4))
    torch.testing.assert_close(detail[0, :, 1], DETAIL_GAIN * beyond * weights[:, 1])
    torch.testing.assert_close(detail[2, :, 3], DETAIL_GAIN * (0.7 - 0.6) * weights[:, 3])


def test_rows_are_enlarged_with_what_the_other_view_has_in_them() -> None:
    """Row 12 of the right view changes the left picture no further off than 3x3 convolutions reach."""
    views = picture_pair(60, 16)
    changed = views.clone()
    changed[1, :, 12] = 1 - changed[1, :, 12]
    network = passrnet2(2)
    difference = (network(views[:1], views[1:]).left - network(changed[:1], changed[1:]).left).abs()
    reach = 2 + 16  # the first, the last and one of each block
    assert difference[:, :, : 2 * (12 + reach + 1)].max() > 1e-4
    assert difference[:, :, 2 * (12 + reach + 1) :].max() == 0


def test_the_papers_losses_reach_every_weight() -> None:
    """Maps are those of the last exchange; the picture's loss reaches all exchanges."""
    torch.manual_seed(1)
    network, views = PASSRnet2(2), picture_pair(16, 32)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    result = network(views[:1], views[1:], both=True)
    maps = result.maps
    torch.testing.assert_close(maps.right_to_left.sum(-1), torch.ones(1, 16, 32))
    weights = LossWeights(
        super_resolution=1, pam=1, pam_photometric=1, pam_smoothness=1, pam_cycle=1, likelihood=1
    )
    high = torch.rand(2, 1, 3, 32, 64)
    truth = Truth(torch.full((1, 16, 32), 3.0), torch.full((1, 16, 32), 3.0))
    loss, values = total_loss(superres_terms(result, views[:1], views[1:], *high, weights, truth))
    assert {
        "super_resolution",
        "pam_photometric",
        "pam_smoothness",
        "pam_cycle",
        "likelihood",
    } <= values.keys()
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert len(network.exchanges) == 4


@pytest.mark.parametrize(("blocks", "behind"), [(16, [3, 7, 11, 15]), (32, [7, 15, 23, 31])])
def test_views_are_exchanged_four_times_whatever_the_depth(blocks: int, behind: list[int]) -> None:
    network = PASSRnet2(4, blocks)
    assert network.exchange_behind == behind == [*map(int, network.exchanges)]
    assert (len(network.blocks), network.detail_behind) == (blocks, behind[1])
