"""PASMnet 2 computes the numbers of the prototype that its description came from; its parts, by hand."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from formulas import golden, golden_pair
from random_networks import normalised, pasmnet2
from torch import Tensor, nn

from pamcli.networks.parallax import RowAttention
from pamcli.networks.pasmnet2 import (
    REACH,
    PASMnet2,
    PASMnet2Matching,
    average_surroundings,
    convex_upsample,
    expect_error,
    mix,
    neighbours,
)
from pamcli.networks.symmetric_attention import SymmetricAttention, attend, attend_in_blocks

STRIDES = (16, 8, 4)


def pictures(*, small: bool = False) -> tuple[Tensor, Tensor]:
    left, right = golden_pair("pasmnet2")
    cut = (slice(0, 1), slice(None), slice(0, 64), slice(0, 96)) if small else ()
    return normalised(left)[cut], normalised(right)[cut]


def random_attention(
    height: int, width: int, *, inference: bool, limit: int | None = None
) -> SymmetricAttention:
    """Attention of random features, as training or as inference computes it."""
    random = torch.Generator().manual_seed(0)
    left, right = (2 * torch.randn(2, 6, height, width, generator=random) for _ in range(2))
    with torch.set_grad_enabled(not inference):
        return (attend_in_blocks if inference else attend)((left, right), None, limit, finest=True)


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
        assert (scale.attention.initial - g[f"initial_{stride}"]).abs().max() < 1e-3
        for update, expected in zip(scale.updates, g[f"updates_{stride}"], strict=True):
            assert (update - expected).abs().max() < 1e-3
    assert (found.attention_mass - g["received"]).abs().max() < 1e-4
    assert (found.disparity[:, 0] - g["disparity"]).abs().max() < 5e-3


@pytest.mark.parametrize("limit", [None, 4])
def test_both_directions_are_the_softmax_of_one_cost(limit: int | None) -> None:
    found = random_attention(3, 10, inference=False, limit=limit)
    column = torch.arange(10)
    disparity = column[:, None] - column  # of left column j and right column k
    possible = (disparity >= 0) & (disparity < (limit or 10))
    expected = found.cost.masked_fill(~possible, -torch.inf)
    there, back = (direction.log_map().exp() for direction in (found.right_to_left, found.left_to_right))
    assert torch.allclose(there, expected.softmax(-1), atol=1e-6)
    assert torch.allclose(back, expected.softmax(-2).mT, atol=1e-6)
    assert (there[:, :, ~possible] == 0).all()
    assert torch.allclose(found.attention_mass, back.sum(-2), atol=1e-5)


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("columns", [2, 9, 33])
def test_inference_a_few_rows_at_a_time_is_training(
    columns: int, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamcli.networks.symmetric_attention.BLOCK", 3 * columns**2)  # two rows
    random = torch.Generator().manual_seed(1)
    features = [torch.randn(2, 5, 6 * s, columns * s, generator=random) for s in (1, 1, 2, 2)]
    d = torch.rand(2, 12, 2 * columns, generator=random) * 3 * columns  # also left of the row
    found = []
    for compute in (attend, attend_in_blocks):
        coarse = compute((features[0], features[1]), None, limit)
        fine = compute((features[2], features[3]), coarse, None if limit is None else 2 * limit, finest=True)
        half = d[:, ::2, ::2] / 2
        found.append(
            [
                *(fine.lookup(d, REACH), coarse.lookup(half, 1), fine.mass_near(d), fine.normaliser),
                *(fine.initial, fine.mass, fine.attention_mass, coarse.attention_mass),
            ]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_maximum_disparity_limits_the_attention_of_all_scales() -> None:
    left, right = pictures()
    with torch.inference_mode():
        free, limited = pasmnet2()(left, right), pasmnet2()(left, right, 64)
    for stride, scale, maps in zip(STRIDES, limited.scales, limited.maps, strict=True):
        assert torch.all(maps.right_to_left.tril(-64 // stride) == 0)
        assert torch.all(maps.left_to_right.triu(64 // stride) == 0)
        assert scale.attention.initial.max() <= 64 / stride - 1
    assert (free.disparity - limited.disparity).abs().max() > 1


def test_every_weight_learns_and_the_matching_learns_through_the_updates() -> None:
    network = disturbed().train()
    found = network(*pictures(small=True))
    (found.disparity.sum() + found.log_expected_error.sum()).backward()
    still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # The bias before a batch norm has none.
    assert not [name for name in still if not name.endswith(".bias")]


def test_the_likelihood_of_either_direction_teaches_the_matching() -> None:
    network = disturbed().train()
    for direction in ("right_to_left", "left_to_right"):
        for scale in network(*pictures(small=True)).scales:
            network.zero_grad()
            attention: RowAttention = getattr(scale.attention, direction)
            columns = (
                torch.arange(attention.cost.shape[-1]).view(1, 1, -1, 1).expand(*attention.cost.shape[:3], 1)
            )
            attention.log_at(columns).sum().backward(retain_graph=True)
            first = network.E0[0].weight.grad
            assert first is not None
            assert first.abs().sum() > 0


def test_training_begins_with_a_mean_of_neighbours_that_is_mostly_its_own() -> None:
    scale = PASMnet2().s3.eval()
    nothing = torch.zeros(1, 48, 3, 4)
    _, mixing = scale.upd([torch.randn(1, 57, 3, 4)], nothing, nothing)
    assert torch.equal(mixing[0, :, 1, 2], torch.tensor([0, 0, 0, 0, 3.0] + 32 * [0]))
    flat = torch.full((1, 36, 3, 4), 2.5)
    assert torch.allclose(mix(flat, mixing), flat[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mean_of_candidates_weighted_by_softmax_and_a_correction(dtype: torch.dtype) -> None:
    mixing, candidates = torch.randn(2, 5, 3, 4).to(dtype), 9 * torch.rand(2, 4, 3, 4)
    exact = mixing.float()
    expected = ((exact[:, :4].softmax(1) * candidates).sum(1) + exact[:, 4]).clamp(min=0)
    assert torch.allclose(mix(candidates, mixing), expected, atol=1e-5)


def test_a_window_around_the_peak_takes_no_notice_of_another_mode() -> None:
    attention = torch.full((1, 1, 12, 12), 1e-20)
    attention[0, 0, 10, torch.tensor([3, 4, 9])] = torch.tensor([0.4, 0.2, 0.3])
    attention[0, 0, 1, :2] = 0.5
    eye = torch.eye(12).view(1, 12, 1, 12)  # the product of these features is the cost
    found = attend((attention.log()[:, 0].mT[:, :, None], eye))
    assert torch.isclose(found.initial[0, 0, 10], torch.tensor(10 - (3 * 0.4 + 4 * 0.2) / 0.6))
    assert torch.isclose(found.mass[0, 0, 10], torch.tensor(0.6 / 0.9))
    assert torch.isclose(found.initial[0, 0, 1], torch.tensor(0.5))


def test_a_mixture_upsamples_a_plane_and_never_leaves_what_is_around() -> None:
    d = torch.rand(1, 3, 5, generator=torch.Generator().manual_seed(2))
    upsampled = convex_upsample(d, torch.randn(1, 144, 3, 5))
    assert upsampled.shape == (1, 1, 12, 20)
    around = neighbours(4 * d)
    low, high = (
        bound.repeat_interleave(4, 1).repeat_interleave(4, 2) for bound in (around.amin(1), around.amax(1))
    )
    assert ((upsampled[:, 0] >= low - 1e-6) & (upsampled[:, 0] <= high + 1e-6)).all()
    chosen = torch.full((1, 9, 16, 3, 5), -1e4)
    chosen[:, 5, 6] = 1e4  # the right neighbour, for the pixel of row 1, column 2 of the 4 x 4
    assert torch.allclose(
        convex_upsample(d, chosen.view(1, 144, 3, 5))[0, 0, 1::4, 2::4][:, :-1],
        4 * d[0, :, 1:],
    )


@pytest.mark.parametrize("inference", [False, True])
def test_attention_near_a_disparity_is_that_of_columns_within_one_and_a_half(inference: bool) -> None:
    attention = random_attention(2, 12, inference=inference)
    whole = random_attention(2, 12, inference=False).right_to_left.log_map().exp()
    d = torch.rand(2, 2, 12, generator=torch.Generator().manual_seed(3)) * 12
    column = torch.arange(12)
    near = (column[:, None] - d[..., None] - column).abs() <= 1.5
    assert torch.allclose(attention.mass_near(d), (whole * near).sum(-1), atol=1e-6)


@pytest.mark.parametrize("limit", [None, 64])
def test_the_prepared_network_is_the_network(limit: int | None) -> None:
    with torch.inference_mode():
        networks = pasmnet2(), pasmnet2().prepare(torch.float32)
        expected, found = (each(*pictures(small=True), limit) for each in networks)
    with torch.enable_grad():
        learning = pasmnet2()(*pictures(small=True), limit)
    for other in (found, learning):
        assert (other.disparity - expected.disparity).abs().max() < 1e-3
        assert (other.attention_mass - expected.attention_mass).abs().max() < 1e-4
        assert (other.confidence - expected.confidence).abs().max() < 1e-4
    keys = pasmnet2().state_dict().keys()
    assert "st1.blocks.0.query.0.weight" in keys
    assert keys == PASMnet2("wide").state_dict().keys()


def test_confidence_is_the_share_of_a_laplace_distribution_within_three_pixels() -> None:
    scales = torch.tensor([0.1, 1.0, 4.0, 30.0])
    within = torch.distributions.Laplace(torch.zeros(4), scales)
    expected = within.cdf(torch.tensor(3.0)) - within.cdf(torch.tensor(-3.0))
    found = PASMnet2Matching(scales, (), scales.log()).confidence
    assert torch.allclose(found, expected, atol=1e-6)


def test_half_of_the_error_that_is_expected_is_the_mean_of_what_is_expected_around() -> None:
    scales = torch.ones(1, 20, 20)
    scales[0, 8, 10] = 170.0
    found = average_surroundings(scales.log()).exp()
    assert found.shape == (1, 20, 20)
    expected = torch.full((8, 8), 1.5)  # 13 x 13 pixels around each, one of which is 170
    expected[2, 4] = (170 + 2) / 2
    torch.testing.assert_close(found[0, 6:14, 6:14], expected)


def test_the_error_that_is_expected_depends_on_all_that_is_seen_and_teaches_nothing_else() -> None:
    torch.manual_seed(1)
    expecting = partial(expect_error, PASMnet2().error_scale)
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
    network(*pictures(small=True)).log_expected_error.sum().backward()
    learned = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert learned == {f"error_scale.{name}" for name, _ in network.error_scale.named_parameters()}


def test_an_exported_attention_computes_images_of_other_widths() -> None:
    # The tests of ONNX files are skipped without their packages, so nothing else tests this in every run.
    class Lookups(nn.Module):
        def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            found = attend((left, right))
            mass = found.mass_near(found.initial)
            return found.lookup(found.initial, REACH), mass, found.attention_mass

    width = torch.export.Dim("width", min=8, max=99)
    narrow, wide = (torch.rand(2, 1, 4, 3, each).unbind() for each in (12, 17))
    exported = torch.export.export(Lookups(), narrow, dynamic_shapes=({3: width}, {3: width})).module()
    for found, expected in zip(exported(*wide), Lookups()(*wide), strict=True):
        assert torch.allclose(found, expected)
        assert expected.std() > 0
