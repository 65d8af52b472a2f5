"""The parts of parallax attention that have no weights, against golden numbers and plain loops."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
import torch
from formulas import golden
from torch import Tensor

from pamcli.networks.parallax import (
    VISIBLE_THRESHOLD,
    clean_mask,
    cycle_map,
    fill_occlusions,
    find_consistent,
    gather_features,
    matching_cost,
    parallax_maps,
    regress_disparity,
)


def clean_by_opencv(valid: Tensor, pad: bool = False) -> Tensor:
    """Region by region, 8-connected; then closed by a disc of radius 3."""
    y, x = np.mgrid[-3:4, -3:4]
    disc = (x**2 + y**2 <= 9).astype(np.uint8)
    cleaned = []
    for mask in (~valid).numpy().astype(np.uint8):
        for value, least in ((1, 20), (0, 10)):
            regions = (mask == value).astype(np.uint8)
            count, labels, statistics, _ = cv2.connectedComponentsWithStats(regions, connectivity=8)
            for label in range(1, count):
                if statistics[label, cv2.CC_STAT_AREA] < least:
                    mask[labels == label] = 1 - value
        closed = cv2.morphologyEx(np.pad(mask, 3 * pad), cv2.MORPH_CLOSE, disc)
        cleaned.append(torch.from_numpy(closed[3:-3, 3:-3] if pad else closed) == 0)
    return torch.stack(cleaned)


def fill_step_by_step(disparity: Tensor, valid: Tensor) -> Tensor:
    """One step of the authors' partial convolution at a time: to the right, then to the left."""
    filled = disparity.clone()
    for row, known in zip(filled.view(-1, filled.shape[-1]), valid.view(-1, valid.shape[-1]), strict=True):
        seen = known.clone()
        order = range(1, len(row))
        for j in order:
            if not seen[j] and seen[j - 1]:
                row[j], seen[j] = row[j - 1] / (1 + 1e-4), True
        for j in reversed(order):
            if not seen[j - 1] and seen[j]:
                row[j - 1], seen[j - 1] = row[j] / (1 + 1e-4), True
    return filled


@pytest.mark.parametrize(("pad_closing", "key"), [(False, "clean_pasmnet"), (True, "clean_passrnet")])
def test_mask_clean_up(pad_closing: bool, key: str) -> None:
    g = golden("output_module")
    cleaned = clean_mask(torch.from_numpy(g["raw_valid"]).bool(), pad_closing)
    assert np.array_equal(cleaned.numpy(), g[key].astype(bool))
    assert not np.array_equal(g["raw_valid"], g[key])


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("density", [0.45, 0.8])
def test_mask_clean_up_of_random_masks(density: float, pad: bool) -> None:
    random = torch.Generator().manual_seed(int(100 * density))
    masks = torch.rand(6, 40, 57, generator=random) < density
    masks[3:] = masks[3:, ::4, ::3].repeat_interleave(4, 1).repeat_interleave(3, 2)[:, :40, :57]
    assert torch.equal(clean_mask(masks, pad), clean_by_opencv(masks, pad))


@pytest.mark.parametrize("length", [19, 20])
def test_a_winding_region_is_counted_whole(length: int) -> None:
    """The longest thin region there is under the limit: labels need the most rounds to cross it."""
    valid = torch.ones(1, 24, 24, dtype=torch.bool)
    for step in range(length):
        valid[0, 1 + step, 1 + step] = False
    if length == 19:
        assert clean_mask(valid).all()
    else:
        assert torch.equal(clean_mask(valid), clean_by_opencv(valid))
        assert not clean_mask(valid).all()


def test_occlusion_filling() -> None:
    g = golden("output_module")
    initial, valid = torch.from_numpy(g["initial"]), torch.from_numpy(g["valid"]).bool()
    filled = fill_occlusions(initial, valid)
    some = valid.any(-1)
    assert (~some).sum() == 1
    assert (filled - torch.from_numpy(g["filled"]))[some].abs().max() < 1e-4
    assert torch.equal(filled[~some], initial[~some])  # the authors' code writes 0 here
    assert torch.all(torch.from_numpy(g["filled"])[~some] == 0)


def test_occlusion_filling_equals_the_walk_pixel_by_pixel() -> None:
    random = torch.Generator().manual_seed(3)
    disparity = torch.rand(2, 30, 83, generator=random) * 50
    valid = torch.rand(2, 30, 83, generator=random) < torch.linspace(0, 0.3, 30)[:, None]
    assert (fill_occlusions(disparity, valid) - fill_step_by_step(disparity, valid)).abs().max() < 1e-4


def test_a_known_shift_is_found() -> None:
    """Distinct features, right view = left view shifted by d: the toy example of Section 3.1.2."""
    d, width = 3, 20
    features = torch.eye(width + d)[None, :, None, :] * 100  # (1, C, 1, W + d): each column its own channel
    left, right = features[..., :width], features[..., d:]
    maps = parallax_maps(
        matching_cost(left, right), matching_cost(right, left), ordered=True, max_disparity=None
    )
    found = regress_disparity(maps.right_to_left)
    assert torch.allclose(found[..., d:], torch.tensor(float(d)), atol=1e-4)
    cycle = cycle_map(maps.right_to_left, maps.left_to_right)
    assert torch.allclose(cycle[0, 0, d:, d:], torch.eye(width - d), atol=1e-4)
    values = torch.arange(width, dtype=torch.float32).expand(1, 2, 1, width)
    gathered = gather_features(maps.right_to_left, values)
    assert torch.allclose(gathered[..., d:], values[..., : width - d], atol=1e-4)


def test_cost_is_float32_under_autocast() -> None:
    query = torch.randn(1, 4, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert matching_cost(query.bfloat16(), query.bfloat16()).dtype == torch.float32


def test_the_disparity_is_float32_under_autocast() -> None:
    """Column 300 is no bf16 number."""
    maps = torch.eye(320)[None, None].roll(4, 2)  # row j looks at column j - 4
    plain = regress_disparity(maps)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(regress_disparity(maps), plain)
    assert torch.all(plain[..., 4:] == 4)


def test_disparities_that_point_at_each_other_are_consistent() -> None:
    left, right = torch.full((2, 1, 5, 20), 4.0), torch.full((2, 1, 5, 20), 4.0)
    found = find_consistent(left, right)
    assert found.shape == left.shape
    assert found.dtype == torch.bool
    assert found[..., 4:].all()
    assert not found[..., :4].any(), "the match lies outside the right view"
    assert find_consistent(left, right + VISIBLE_THRESHOLD)[..., 4:].all()
    assert not find_consistent(left, right + VISIBLE_THRESHOLD + 0.01).any()
    assert not find_consistent(left, right - VISIBLE_THRESHOLD - 0.01).any()
    assert find_consistent(left, right + 3, threshold=3)[..., 4:].all()


def test_consistency_equals_its_loop_on_random_disparities() -> None:
    random = torch.Generator().manual_seed(2)
    left = torch.rand(3, 25, generator=random) * 12
    right = left.flip(-1) * 0.5 + torch.rand(3, 25, generator=random) * 4
    found = find_consistent(left, right)
    assert 0.1 < found.float().mean() < 0.9
    for i in range(3):
        for j in range(25):
            position = j - float(left[i, j])
            low = math.floor(position)
            expected = False
            if position >= 0:
                high = min(low + 1, 24)
                there = (1 - (position - low)) * right[i, low] + (position - low) * right[i, high]
                expected = abs(float(there) - float(left[i, j])) <= VISIBLE_THRESHOLD
            assert bool(found[i, j]) == expected
