"""PASMnet 2 computes the numbers of the prototype that its description came from; its parts, by hand."""

from __future__ import annotations

import copy

import torch
from formulas import formula_images, golden
from random_networks import normalised, pasmnet2
from torch import Tensor

from pamcli.networks.error_scale import ErrorScale, confidence_of, with_surroundings
from pamcli.networks.pasmnet2 import (
    BORDER,
    REACH,
    UPDATES,
    PASMnet2,
    PASMnet2Matching,
    Stage,
    attention_logs,
    attention_near,
    coarser_of,
    convex_enlarged,
    edged,
    looked_up,
    mixed,
    neighbours,
    windowed_regression,
)

STRIDES = (16, 8, 4)


def pictures(*, small: bool = False) -> tuple[Tensor, Tensor]:
    g = golden("pasmnet2")
    seed, n, h, w, shift = (int(g[key]) for key in ("seed", "n", "h", "w", "shift"))
    left, right = formula_images(seed, n, h, w, shift)
    cut = (slice(0, 1), slice(None), slice(0, 64), slice(0, 96)) if small else ()
    return normalised(left)[cut], normalised(right)[cut]


def random_logs(height: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    cost = 4 * torch.randn(1, height, width, width, generator=torch.Generator().manual_seed(seed))
    return attention_logs(cost, None)


def disturbed() -> PASMnet2:
    """A fresh network of which nothing is zero."""
    torch.manual_seed(0)
    network = PASMnet2()
    for name, parameter in network.named_parameters():
        if name.startswith(("s1", "s2", "s3", "mask")):
            parameter.data += 0.05 * torch.randn_like(parameter)
    return network


def test_every_value_is_the_prototypes() -> None:
    g = {key: torch.from_numpy(value) for key, value in golden("pasmnet2").items()}
    network = copy.deepcopy(pasmnet2())
    for scale, updates in zip((network.s1, network.s2, network.s3), (3, 2, 2), strict=True):  # as it had
        scale.updates = updates
    with torch.inference_mode():
        found = network(*pictures())
    for stride, scale in zip(STRIDES, found.scales, strict=True):
        assert (scale.initial - g[f"initial_{stride}"]).abs().max() < 1e-3
        for update, expected in zip(scale.updates, g[f"updates_{stride}"], strict=True):
            assert (update - expected).abs().max() < 1e-3
    assert (found.scales[-1].received - g["received"]).abs().max() < 1e-4
    assert (found.disparity[:, 0] - g["disparity"]).abs().max() < 5e-3


def test_each_scale_is_updated_as_often_as_is_said() -> None:
    found = pasmnet2()(*pictures(small=True))
    assert tuple(len(scale.updates) for scale in found.scales) == UPDATES


def test_both_directions_are_the_softmax_of_one_matrix() -> None:
    cost = 3 * torch.randn(2, 3, 10, 10, generator=torch.Generator().manual_seed(1))
    for limit in (None, 4):
        there, back = (logs.exp() for logs in attention_logs(cost, limit))
        column = torch.arange(10)
        disparity = column[:, None] - column  # of left column j and right column k
        possible = (disparity >= 0) & (disparity < (limit or 10))
        expected = cost.masked_fill(~possible, -torch.inf)
        assert torch.allclose(there, expected.softmax(-1), atol=1e-6)
        assert torch.allclose(back, expected.softmax(-2).mT, atol=1e-6)
        assert (there[:, :, ~possible] == 0).all()


def test_the_cost_takes_the_queries_and_keys_of_both_views() -> None:
    torch.manual_seed(0)
    stage = Stage(8, blocks=2).eval()
    views = torch.randn(2, 8, 3, 5)
    features, cost = stage(views)
    x, expected = views, torch.zeros(1, 3, 5, 5)
    for block in stage.blocks:
        x, q, k = block(x)
        for y, left, right in ((y, left, right) for y in range(3) for left in range(5) for right in range(5)):
            there, back = q[0, :, y, left] @ k[1, :, y, right], k[0, :, y, left] @ q[1, :, y, right]
            expected[0, y, left, right] += (there + back) / 16
    assert torch.allclose(cost, expected, atol=1e-5)
    assert torch.equal(features, x)


def test_a_maximum_disparity_limits_the_attention_of_all_scales() -> None:
    left, right = pictures()
    with torch.inference_mode():
        free, limited = pasmnet2()(left, right), pasmnet2()(left, right, 64)
    for stride, scale, maps in zip(STRIDES, limited.scales, limited.maps, strict=True):
        assert torch.all(maps.right_to_left.tril(-64 // stride) == 0)
        assert torch.all(maps.left_to_right.triu(64 // stride) == 0)
        assert scale.initial.max() <= 64 / stride - 1
    assert (free.disparity - limited.disparity).abs().max() > 1


def test_every_weight_learns_and_the_matching_learns_through_the_updates() -> None:
    network = disturbed().train()
    found = network(*pictures(small=True))
    (found.disparity.sum() + found.error_scale.sum()).backward()
    still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # The bias before a batch norm has none.
    assert not [name for name in still if not name.endswith(".bias")]


def test_the_likelihood_of_either_direction_teaches_the_matching() -> None:
    network = disturbed().train()
    for direction in ("right_to_left", "left_to_right"):
        found: PASMnet2Matching = network(*pictures(small=True))
        for scale in found.scales:
            network.zero_grad()
            logs: Tensor = getattr(scale, direction)
            logs.diagonal(dim1=-2, dim2=-1).sum().backward(retain_graph=True)
            first = network.E0[0].weight.grad
            assert first is not None
            assert first.abs().sum() > 0


def test_training_begins_with_a_mean_of_neighbours_that_is_mostly_its_own() -> None:
    scale = PASMnet2().s3.eval()
    nothing = torch.zeros(1, 48, 3, 4)
    _, mixing = scale.upd(torch.randn(1, 57, 3, 4), nothing, nothing)
    assert torch.equal(mixing[0, :, 1, 2], torch.tensor([0, 0, 0, 0, 3.0] + 32 * [0]))
    flat = torch.full((1, 3, 4), 2.5)
    assert torch.allclose(mixed(scale.candidates(edged(flat, 9), edged(flat, 1)), mixing), flat)


def test_a_window_around_the_peak_takes_no_notice_of_another_mode() -> None:
    attention = torch.zeros(1, 1, 12, 12)
    attention[0, 0, 10, [3, 4, 9]] = torch.tensor([0.4, 0.2, 0.3])
    attention[0, 0, 1, [0, 1]] = 0.5
    disparity, mass = windowed_regression(attention.log())
    assert torch.isclose(disparity[0, 0, 10], torch.tensor(10 - (3 * 0.4 + 4 * 0.2) / 0.6))
    assert torch.isclose(mass[0, 0, 10], torch.tensor(0.6))
    assert torch.isclose(disparity[0, 0, 1], torch.tensor(0.5))


def test_looking_up_is_linear_between_columns_and_repeats_the_outermost() -> None:
    logs, _ = random_logs(2, 9)
    d = torch.rand(1, 2, 9, generator=torch.Generator().manual_seed(1)) * 10
    found = looked_up(logs, d, REACH)
    assert found.shape == (1, 2 * REACH + 1, 2, 9)
    for y, j, step in ((0, 0, 0), (0, 5, 4), (1, 8, 8), (1, 3, 1)):
        x = float(j - d[0, y, j]) + step - REACH
        low = int(x // 1)
        values = [max(float(logs[0, y, j, min(max(k, 0), 8)]), -16) / 4 for k in (low, low + 1)]
        assert abs(float(found[0, step, y, j]) - (values[0] + (x - low) * (values[1] - values[0]))) < 1e-5


def test_neighbours_and_what_is_seen_of_them() -> None:
    values = torch.arange(12.0).view(1, 3, 4) ** 2
    around = neighbours(edged(values, 1), 1, 1)
    assert around[0, :, 1, 1].tolist() == [0, 1, 4, 16, 25, 36, 64, 81, 100]
    assert around[0, :, 0, 0].tolist() == [0, 0, 1, 0, 0, 1, 16, 16, 25]
    assert torch.equal(neighbours(edged(values, 9), 9, 1), around)
    scale, nothing = PASMnet2().s2, torch.zeros(1, 9, 3, 4)
    trust = torch.tensor([0.5, 1.0]).view(1, 2, 1, 1).expand(1, 2, 3, 4)
    logs = nothing, nothing + 1, nothing[:, :3] + 2
    seen = scale.seen(edged(values, 4), edged(values + 3, 1), logs, trust)
    assert seen.shape == (1, 57, 3, 4)
    assert torch.equal(seen[:, :9], nothing)
    assert torch.allclose(seen[0, 9, 1, 1], -torch.tensor(26.0).log())
    assert torch.allclose(seen[0, 13, 1, 1], torch.tensor(12.0).log())
    assert seen[0, 33:35, 1, 1].tolist() == [0.5, 1]
    assert torch.allclose(seen[0, 35, 0], (torch.arange(4) - values[0, 0]) / BORDER)
    assert torch.equal(seen[:, 36:45], nothing + 1)
    assert torch.allclose(seen[0, 49], torch.tensor(4.0).log())  # 3 px further than its own
    assert torch.equal(seen[:, 54:], nothing[:, :3] + 2)


def test_the_finer_scale_is_told_twice_the_disparity() -> None:
    with torch.inference_mode():
        found = pasmnet2()(*pictures(small=True)).scales[0]
        hidden = torch.randn(1, 48, *found.initial.shape[1:])
        told = coarser_of(found._replace(updates=(torch.full_like(found.initial, 3.0),)), hidden)
    assert told.disparity.shape == (1, 8, 12)
    assert (told.disparity == 6).all()
    assert told.hidden.shape == (1, 48, 8, 12)
    assert told.right_to_left is found.right_to_left


def test_a_mixture_enlarges_a_plane_and_never_leaves_what_is_around() -> None:
    d = torch.rand(1, 3, 5, generator=torch.Generator().manual_seed(2))
    enlarged = convex_enlarged(edged(d, 1), torch.randn(1, 144, 3, 5))
    assert enlarged.shape == (1, 1, 12, 20)
    around = neighbours(edged(4 * d, 1), 1, 1)
    low, high = (
        bound.repeat_interleave(4, 1).repeat_interleave(4, 2) for bound in (around.amin(1), around.amax(1))
    )
    assert ((enlarged[:, 0] >= low - 1e-6) & (enlarged[:, 0] <= high + 1e-6)).all()
    chosen = torch.full((1, 9, 16, 3, 5), -1e4)
    chosen[:, 5, 6] = 1e4  # the right neighbour, for the pixel of row 1, column 2 of the 4 x 4
    assert torch.allclose(
        convex_enlarged(edged(d, 1), chosen.view(1, 144, 3, 5))[0, 0, 1::4, 2::4][:, :-1], 4 * d[0, :, 1:]
    )


def test_attention_near_a_disparity_is_that_of_columns_within_one_and_a_half() -> None:
    logs, _ = random_logs(2, 12)
    d = torch.rand(1, 2, 12, generator=torch.Generator().manual_seed(3)) * 12
    column = torch.arange(12)
    near = (column[:, None] - d[..., None] - column).abs() <= 1.5
    assert torch.allclose(attention_near(logs, d), (logs.exp() * near).sum(-1), atol=1e-6)


def test_confidence_is_the_share_of_a_laplace_distribution_within_three_pixels() -> None:
    scales = torch.tensor([0.1, 1.0, 4.0, 30.0])
    within = torch.distributions.Laplace(torch.zeros(4), scales)
    expected = within.cdf(torch.tensor(3.0)) - within.cdf(torch.tensor(-3.0))
    assert torch.allclose(confidence_of(scales.log()), expected, atol=1e-6)


def test_half_of_the_error_that_is_expected_is_the_mean_of_what_is_expected_around() -> None:
    scales = torch.ones(1, 20, 20)
    scales[0, 8, 10] = 170.0
    found = with_surroundings(scales.log()).exp()  # of rows and columns 6 to 13
    assert found.shape == (1, 8, 8)
    expected = torch.full((8, 8), 1.5)  # 13 x 13 pixels around each, one of which is 170
    expected[2, 4] = (170 + 2) / 2
    torch.testing.assert_close(found[0], expected)


def test_the_error_that_is_expected_depends_on_all_that_is_seen_and_teaches_nothing_else() -> None:
    torch.manual_seed(1)
    expecting = ErrorScale(48)
    hidden, near, d = torch.randn(1, 48, 2, 5), torch.rand(1, 2, 5), 3 * torch.rand(1, 2, 5)
    found = expecting(hidden, near, d, [d, d])
    assert found.shape == (1, 2, 5)
    for other in (
        expecting(hidden + 1, near, d, [d, d]),
        expecting(hidden, near / 2, d, [d, d]),
        expecting(hidden, near, d, [d + 1, d]),
        expecting(hidden, near, d, [d, d + 1]),
    ):
        assert (other != found).any(dim=0).all()
    assert torch.allclose(expecting(hidden, near, d + 2, [d + 2, d + 2]), found, atol=1e-5)
    network = disturbed().train()
    network(*pictures(small=True)).error_scale.sum().backward()
    learned = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert learned == {f"error_scale.{name}" for name, _ in network.error_scale.named_parameters()}


class _Neighbours(torch.nn.Module):
    def forward(self, padded: Tensor) -> Tensor:
        return neighbours(padded, REACH, 2)


def test_neighbours_are_exported_for_maps_of_any_size() -> None:
    sides = {axis: torch.export.Dim(f"side{axis}", min=8 + 2 * REACH, max=4096) for axis in (1, 2)}
    exported = torch.export.export(
        _Neighbours(), (torch.rand(1, 12 + 2 * REACH, 20 + 2 * REACH),), dynamic_shapes=(sides,), strict=False
    )
    other = torch.rand(1, 31 + 2 * REACH, 17 + 2 * REACH)
    assert torch.equal(exported.module()(other), neighbours(other, REACH, 2))
