"""The paper's loss terms equal the authors' numbers once their known factors are taken out."""

from __future__ import annotations

import numpy as np
import pytest
import random_networks
import torch
import torch.nn.functional as F
from formulas import golden, golden_pair
from loss_examples import maps_of, random_costs, random_pictures, value
from random_networks import normalised
from torch import Tensor

from pamcli.losses.supervised import Quotient, masked_mean
from pamcli.losses.unsupervised import (
    appearance_loss,
    attention_cycle,
    attention_photometric,
    attention_smoothness,
    charbonnier_loss,
    downsample,
    photometric_loss,
    smoothness_loss,
    squared_error_loss,
    warp_right_to_left,
)
from pamcli.networks.parallax import ParallaxMaps, regress_disparity
from pamcli.networks.pasmnet import STAGE_STRIDES, Matching

STAGE_SHARES = (0.2, 0.3, 0.5)

Example = tuple[dict[str, np.ndarray], Matching, Tensor, Tensor]


@pytest.fixture(scope="module")
def pasmnet() -> Example:
    left, right = map(normalised, golden_pair("pasmnet"))
    with torch.inference_mode():
        matching: Matching = random_networks.pasmnet()(left, right, all_stages=True)
    return golden("pasmnet"), matching, left, right


def authors_pam_terms(maps: ParallaxMaps, left: Tensor, right: Tensor) -> dict[str, float]:
    """Our terms with the factors of the vectors: theirs are means over all elements."""
    batch, height, width, _ = maps.right_to_left.shape
    pixels = batch * height * width
    vertical, diagonal = attention_smoothness(maps)
    return {
        "pam_photometric": sum(float(q.total) / pixels for q in attention_photometric(maps, left, right)),
        "pam_cycle": sum(float(q.total) / (pixels * width) for q in attention_cycle(maps)),
        "pam_smoothness": float(vertical.total) / (batch * (height - 1) * width * width)
        + float(diagonal.total) / (batch * height * (width - 1) ** 2),
    }


def test_attention_terms_of_pasmnet_agree_with_the_vectors(pasmnet: Example) -> None:
    g, matching, left, right = pasmnet
    terms = [
        authors_pam_terms(maps, downsample(left, stride), downsample(right, stride))
        for maps, stride in zip(matching.maps, STAGE_STRIDES, strict=True)
    ]
    for name in terms[0]:
        total = sum(share * term[name] for share, term in zip(STAGE_SHARES, terms, strict=True))
        assert total == pytest.approx(float(g[f"loss_{name}"]), rel=1e-5), name


@pytest.mark.parametrize("scale", [2, 4])
def test_attention_terms_of_passrnet_agree_with_the_vectors(scale: int) -> None:
    g, (left, right) = golden(f"passrnet_x{scale}"), golden_pair(f"passrnet_x{scale}")
    with torch.inference_mode():
        terms = authors_pam_terms(random_networks.passrnet(scale)(left, right).maps, left, right)
    for term, ours in terms.items():
        assert ours == pytest.approx(float(g[f"loss_{term}"]), rel=1e-5), term


def warp_as_the_authors(right: Tensor, disparity: Tensor) -> Tensor:
    """Samples at x w / (w - 1) - 0.5 - d and y h / (h - 1) - 0.5, border padding."""
    height, width = right.shape[-2:]
    x = torch.arange(width) * width / (width - 1) - 0.5 - disparity[:, 0]
    y = (torch.arange(height) * height / (height - 1) - 0.5)[:, None].expand_as(x)
    grid = torch.stack(((2 * x + 1) / width - 1, (2 * y + 1) / height - 1), -1)
    return F.grid_sample(right, grid, padding_mode="border", align_corners=False)


def enlarged(valid: Tensor) -> Tensor:
    return valid.repeat_interleave(4, -2).repeat_interleave(4, -1)


def test_photometric_loss_agrees_with_the_vectors(pasmnet: Example) -> None:
    g, matching, left, right = pasmnet
    rebuilt = warp_as_the_authors(right, matching.disparity)
    quotient = masked_mean(
        appearance_loss(left, rebuilt), enlarged(matching.maps[-1].valid_left)
    )  # what `photometric_loss` does with its own warp
    assert float(quotient.total) / matching.disparity.numel() == pytest.approx(
        float(g["loss_photometric"]), rel=1e-5
    )


def test_smoothness_agrees_with_the_vectors(pasmnet: Example) -> None:
    g, matching, left, _ = pasmnet
    weights = sum(float(torch.exp(-left.diff(dim=axis).abs().mean(1)).sum()) for axis in (-1, -2))
    quotient = smoothness_loss(matching.disparity, left)
    assert float(quotient.total) / weights == pytest.approx(float(g["loss_smoothness"]), rel=1e-5)
    assert quotient.count == matching.disparity.numel()


@pytest.mark.parametrize("shift", [0, 7])
def test_warping_by_a_whole_shift_is_exact(shift: int) -> None:
    _, right = random_pictures(1, 2, 5, 40)
    warped = warp_right_to_left(right, torch.full((2, 1, 5, 40), float(shift)))
    assert torch.equal(warped[..., shift:], right[..., : 40 - shift])
    assert torch.equal(warped[..., :shift], right[..., :1].expand(-1, -1, -1, shift))  # the border goes on


def test_warping_by_a_part_of_a_pixel_shares_between_neighbours() -> None:
    _, right = random_pictures(1, 1, 4, 30)
    warped = warp_right_to_left(right, torch.full((1, 1, 4, 30), 2.25))
    expected = 0.75 * right[..., 1:-2] + 0.25 * right[..., :-3]
    assert torch.allclose(warped[..., 3:], expected, atol=1e-6)


def test_ssim_and_its_gradient_are_those_of_an_explicit_window() -> None:
    x, y = random_pictures(3, 2, 14, 17)
    ours = appearance_loss(x, y.requires_grad_())
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (our_gradient,) = torch.autograd.grad(ours, y, upstream)
    x, y = x.double(), y.detach().double().requires_grad_()
    g = torch.exp(-((torch.arange(11.0, dtype=torch.double) - 5) ** 2) / (2 * 1.5**2))
    window = (g[:, None] * g / g.sum() ** 2).expand(3, 1, 11, 11)

    def blur(values: Tensor) -> Tensor:
        return F.conv2d(values, window, padding=5, groups=3)

    mean_x, mean_y = blur(x), blur(y)
    var_x, var_y = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2
    covariance = blur(x * y) - mean_x * mean_y
    ssim = (2 * mean_x * mean_y + 1e-4) * (2 * covariance + 9e-4)
    ssim /= (mean_x**2 + mean_y**2 + 1e-4) * (var_x + var_y + 9e-4)
    expected = (0.85 * (1 - ssim) / 2 + 0.15 * (x - y).abs()).mean(1)
    (gradient,) = torch.autograd.grad(expected, y, upstream.double())
    assert (ours - expected).abs().max() < 1e-5
    assert (our_gradient - gradient).abs().max() < 1e-5 * gradient.abs().max()


def test_cycle_loss_of_perfect_and_of_flat_attention() -> None:
    identity = torch.eye(20).expand(1, 3, 20, 20)
    everywhere = torch.ones(1, 3, 20, dtype=torch.bool)
    assert float(value(*attention_cycle(ParallaxMaps(identity, identity, everywhere, everywhere)))) == 0
    flat = torch.full((1, 3, 20, 20), 1 / 20)
    cycle = attention_cycle(ParallaxMaps(flat, flat, everywhere, everywhere))
    assert [float(value(q)) for q in cycle] == pytest.approx([1.9, 1.9])


def test_attention_terms_count_the_valid_pixels_of_each_image() -> None:
    maps = maps_of(*random_costs(4, 2, 5, 12))
    left, right = random_pictures(4, 2, 5, 12)
    for of_left, of_right in (attention_cycle(maps), attention_photometric(maps, left, right)):
        assert of_left.count == maps.valid_left.sum()
        assert of_right.count == maps.valid_right.sum()
    cycle = maps.right_to_left.detach() @ maps.left_to_right.detach()
    by_hand = float((cycle - torch.eye(12)).abs().sum(-1)[maps.valid_left].mean())
    assert float(value(attention_cycle(maps)[0]).detach()) == pytest.approx(by_hand, rel=1e-5)


def test_attention_is_smooth_except_at_disparity_jumps() -> None:
    everywhere = torch.ones(2, 4, 16, dtype=torch.bool)

    def smoothness(position: Tensor) -> list[float]:
        one_hot = F.one_hot(position, 16).float()
        maps = ParallaxMaps(one_hot, torch.zeros_like(one_hot), everywhere, everywhere)
        quotients = attention_smoothness(maps)
        assert all(q.count == 2 * 4 * 16 for q in quotients)
        return [float(q.total) for q in quotients]

    steady = (torch.arange(16) - 3).clamp(min=0).expand(2, 4, 16)
    leaving = 3 * 2 * 4  # the first pixels, clamped to one column, have disparities 0, 1, 2, 3
    assert smoothness(steady) == [0, leaving]
    jump = steady.clone()
    jump[..., 10:] -= 2  # two pixels further: M(9, 6) and M(10, 5) each lack their diagonal neighbour
    assert smoothness(jump) == [0, leaving + 2 * 2 * 4]
    rows = steady.clone()
    rows[:, 2:, 8:] -= 1  # from the third row on, eight pixels differ from the row above, by two entries each
    assert smoothness(rows)[0] == 2 * 8 * 2


def test_an_empty_mask_gives_zero_and_no_gradient() -> None:
    costs = random_costs(5, 1, 4, 8)
    maps = maps_of(*costs)
    nothing = torch.zeros(1, 4, 8, dtype=torch.bool)
    maps = ParallaxMaps(maps.right_to_left, maps.left_to_right, nothing, nothing)
    left, right = random_pictures(5, 1, 4, 8)
    disparity = regress_disparity(maps.right_to_left)[:, None]
    terms = [
        photometric_loss(left, right, disparity, nothing),
        *attention_photometric(maps, left, right),
        *attention_cycle(maps),
    ]
    loss = value(*terms)
    loss.backward()
    assert loss == 0
    for cost in costs:
        assert torch.all(cost.grad == 0)


def all_terms(maps: ParallaxMaps, left: Tensor, right: Tensor) -> dict[str, tuple[Quotient, ...]]:
    disparity = regress_disparity(maps.right_to_left)[:, None]
    return {
        "photometric": (photometric_loss(left, right, disparity, maps.valid_left),),
        "smoothness": (smoothness_loss(disparity, left),),
        "pam_photometric": attention_photometric(maps, left, right),
        "pam_smoothness": attention_smoothness(maps),
        "pam_cycle": attention_cycle(maps),
    }


def test_under_autocast_the_terms_stay_in_float32() -> None:
    maps = maps_of(*(cost.detach() for cost in random_costs(7, 1, 6, 10)))
    left, right = random_pictures(7, 1, 6, 10)
    plain = all_terms(maps, left, right)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for name, quotients in all_terms(maps, left, right).items():
            assert torch.equal(value(*quotients), value(*plain[name])), name


def test_a_disparity_that_is_not_a_number_reaches_the_loss() -> None:
    left, right = random_pictures(8, 1, 4, 8)
    disparity = torch.full((1, 1, 4, 8), torch.nan)
    assert value(photometric_loss(left, right, disparity, torch.ones(1, 4, 8, dtype=torch.bool))).isnan()


def test_superres_errors_are_means_over_pixels_and_channels() -> None:
    picture, truth = random_pictures(9, 2, 6, 8)
    assert value(squared_error_loss(picture, truth)) == pytest.approx(
        float(F.mse_loss(picture, truth)), rel=1e-6
    )
    assert value(charbonnier_loss(picture, truth)) == pytest.approx(
        float(F.l1_loss(picture, truth)), rel=1e-3
    )
    same = picture.clone().requires_grad_()
    value(charbonnier_loss(same, picture)).backward()
    assert torch.all(same.grad == 0)


def test_reduced_images_take_the_middle_of_each_cell() -> None:
    picture = torch.arange(64.0).expand(1, 3, 32, 64)
    assert torch.equal(downsample(picture, 16)[0, 0, 0], torch.tensor([7.5, 23.5, 39.5, 55.5]))
    assert downsample(picture, 1) is picture
