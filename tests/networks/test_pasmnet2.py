"""PASMnet 2 computes the numbers of the prototype that its description came from; its parts, by hand."""

from __future__ import annotations

import torch
from formulas import formula_images, golden
from random_networks import normalised, pasmnet2
from torch import Tensor

from pamcli.networks.parallax import received_mass
from pamcli.networks.pasmnet2 import (
    DILATIONS,
    REACH,
    PASMnet2,
    Update,
    confidence,
    convex_enlarged,
    looked_up,
    mixed_neighbours,
    neighbours,
    surroundings,
    windowed_regression,
)


def pictures(*, small: bool = False) -> tuple[Tensor, Tensor]:
    g = golden("pasmnet2")
    seed, n, h, w, shift = (int(g[key]) for key in ("seed", "n", "h", "w", "shift"))
    left, right = formula_images(seed, n, h, w, shift)
    cut = (slice(0, 1), slice(None), slice(0, 64), slice(0, 96)) if small else ()
    return normalised(left)[cut], normalised(right)[cut]


def random_map(height: int, width: int, seed: int = 0) -> Tensor:
    cost = 4 * torch.randn(1, height, width, width, generator=torch.Generator().manual_seed(seed))
    return cost.masked_fill(torch.ones(width, width).triu(1).bool(), -torch.inf).softmax(-1)


def test_every_value_is_the_prototypes() -> None:
    g = {key: torch.from_numpy(value) for key, value in golden("pasmnet2").items()}
    with torch.inference_mode():
        found = pasmnet2()(*pictures(), all_stages=True)
    assert (found.initial - g["initial"]).abs().max() < 1e-3
    _, mass = windowed_regression(found.maps[-1].right_to_left)
    assert (mass - g["confidence"]).abs().max() < 1e-5
    received = received_mass(found.maps[-1].left_to_right).clamp(max=2)
    assert (received - g["received"]).abs().max() < 1e-5
    for update, expected in zip(found.updates, g["updates"], strict=True):
        assert (update - expected).abs().max() < 1e-3
    assert (found.disparity[:, 0] - g["disparity"]).abs().max() < 5e-3
    assert [m.right_to_left.shape[1:3] for m in found.maps] == [(6, 16), (12, 32), (24, 64)]


def test_a_maximum_disparity_limits_the_attention_of_all_stages() -> None:
    left, right = pictures()
    with torch.inference_mode():
        free, limited = pasmnet2()(left, right), pasmnet2()(left, right, 64)
    assert torch.all(limited.maps[-1].right_to_left.tril(-64 // 4) == 0)
    assert limited.initial.max() <= 15
    assert (free.disparity - limited.disparity).abs().max() > 1


def test_every_weight_learns_and_the_matching_learns_through_the_updates() -> None:
    network = PASMnet2().train()
    torch.manual_seed(0)
    for module in (network.upd.out, network.mask[1]):
        torch.nn.init.normal_(module.weight, std=0.05)
    torch.nn.init.ones_(network.upd.res.b[1].weight)
    found = network(*pictures(small=True))
    found.disparity.sum().backward()
    still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # The bias before a batch norm has none, and what the softmax over k takes no notice of, next to none.
    assert not [name for name in still if not name.endswith(".bias")]


def test_training_begins_with_a_mean_of_neighbours_that_is_mostly_its_own() -> None:
    update = Update().eval()
    nothing = torch.zeros(1, 48, 3, 4)
    _, mixing = update(torch.randn(1, 45, 3, 4), nothing, nothing)
    assert torch.equal(mixing[0, :, 1, 2], torch.tensor([0, 0, 0, 0, 3.0] + 23 * [0]))
    flat = torch.full((1, 3, 4), 2.5)
    assert torch.allclose(mixed_neighbours(flat, mixing), flat)


def test_a_window_around_the_peak_takes_no_notice_of_another_mode() -> None:
    attention = torch.zeros(1, 1, 12, 12)
    attention[0, 0, 10, [3, 4, 9]] = torch.tensor([0.4, 0.2, 0.3])
    attention[0, 0, 1, [0, 1]] = 0.5
    attention[0, 0, 5, 5] = 1e-9
    disparity, mass = windowed_regression(attention)
    assert torch.isclose(disparity[0, 0, 10], torch.tensor(10 - (3 * 0.4 + 4 * 0.2) / 0.6))
    assert torch.isclose(mass[0, 0, 10], torch.tensor(0.6))
    assert torch.isclose(disparity[0, 0, 1], torch.tensor(0.5))
    piece, mass_of_piece = windowed_regression(attention[:, :, 8:12, 2:11], (8, 2))
    assert torch.allclose(piece[0, 0, 2], disparity[0, 0, 10])
    assert torch.equal(mass_of_piece[0, 0], mass[0, 0, 8:12])


def test_looking_up_is_linear_between_columns_and_repeats_the_outermost() -> None:
    attention = random_map(2, 9)
    d = torch.rand(1, 2, 9, generator=torch.Generator().manual_seed(1)) * 10
    found = looked_up(lambda k: attention.gather(-1, k), d)
    assert found.shape == (1, 2 * REACH + 1, 2, 9)
    logs = attention.clamp(min=torch.exp(torch.tensor(-16.0))).log() / 4
    for y, j, step in ((0, 0, 0), (0, 5, 4), (1, 8, 8), (1, 3, 1)):
        x = float(j - d[0, y, j]) + step - REACH
        low = int(x // 1)
        values = [float(logs[0, y, j, min(max(k, 0), 8)]) for k in (low, low + 1)]
        assert abs(float(found[0, step, y, j]) - (values[0] + (x - low) * (values[1] - values[0]))) < 1e-5


def test_neighbours_and_their_steps() -> None:
    values = torch.arange(12.0).view(1, 3, 4) ** 2
    around = neighbours(values, 1)
    assert around[0, :, 1, 1].tolist() == [0, 1, 4, 16, 25, 36, 64, 81, 100]
    assert around[0, :, 0, 0].tolist() == [0, 0, 1, 0, 0, 1, 16, 16, 25]
    seen = surroundings(values, torch.full((1, 3, 4), 0.5), torch.ones(1, 3, 4))
    assert seen.shape == (1, 8 * len(DILATIONS) + 3, 3, 4)
    assert torch.allclose(seen[0, 0, 1, 1], -torch.tensor(26.0).log())
    assert torch.allclose(seen[0, 4, 1, 1], torch.tensor(12.0).log())
    assert seen[0, 24:26, 1, 1].tolist() == [0.5, 1]
    assert torch.allclose(seen[0, 26, 0], torch.tensor([0.0, 0.0, -0.25, -0.75]))


def test_a_mixture_enlarges_a_plane_and_never_leaves_what_is_around() -> None:
    d = torch.rand(1, 3, 5, generator=torch.Generator().manual_seed(2))
    enlarged = convex_enlarged(d, torch.randn(1, 144, 3, 5))
    assert enlarged.shape == (1, 1, 12, 20)
    around = neighbours(4 * d, 1)
    low, high = (
        bound.repeat_interleave(4, 1).repeat_interleave(4, 2) for bound in (around.amin(1), around.amax(1))
    )
    assert ((enlarged[:, 0] >= low - 1e-6) & (enlarged[:, 0] <= high + 1e-6)).all()
    chosen = torch.full((1, 9, 16, 3, 5), -1e4)
    chosen[:, 5, 6] = 1e4  # the right neighbour, for the pixel of row 1, column 2 of the 4 x 4
    assert torch.allclose(
        convex_enlarged(d, chosen.view(1, 144, 3, 5))[0, 0, 1::4, 2::4][:, :-1], 4 * d[0, :, 1:]
    )


def test_confidence_is_the_attention_near_the_disparity() -> None:
    attention = random_map(2, 12)
    d = torch.rand(1, 2, 12, generator=torch.Generator().manual_seed(3)) * 12
    found = confidence(lambda k: attention.gather(-1, k), d, d)
    column = torch.arange(12)
    near = (column[:, None] - d[..., None] - column).abs() <= 1.5
    assert torch.allclose(found, (attention * near).sum(-1).clamp(0, 1), atol=1e-6)
    moved = confidence(lambda k: attention.gather(-1, k), d, d + 10)
    assert torch.allclose(moved, found / 2, atol=1e-6)
