"""Our networks compute the authors' numbers (tolerances: the vectors' own, float32)."""

from __future__ import annotations

import numpy as np
import pytest
import random_networks
import torch
from formulas import golden, golden_pair
from random_networks import normalised, passrnet
from torch import Tensor

from pamcli.networks.pasmnet import Matching
from pamcli.networks.passrnet import SuperResolution


def match(views: slice = slice(None), max_disparity: int | None = None) -> Matching:
    left, right = (normalised(view)[views] for view in golden_pair("pasmnet"))
    with torch.inference_mode():
        result: Matching = random_networks.pasmnet()(left, right, max_disparity, all_stages=True)
    return result


@pytest.fixture(scope="module")
def matching() -> Matching:
    return match()


@pytest.fixture(scope="module", params=[2, 4])
def scale(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def superres(scale: int) -> SuperResolution:
    with torch.inference_mode():
        result: SuperResolution = passrnet(scale)(*golden_pair(f"passrnet_x{scale}"), both=True)
    return result


def close(ours: Tensor, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours.numpy() - theirs.astype(np.float32)).max() < tolerance


def test_disparity(matching: Matching) -> None:
    close(matching.disparity, golden("pasmnet")["disparity"], 5e-4)
    close(matching.disparity, golden("pasmnet")["train_disparity"], 5e-4)


def test_disparity_with_prior(matching: Matching) -> None:
    limited = match(max_disparity=64)
    close(limited.disparity, golden("pasmnet")["disparity_maxdisp64"], 5e-4)
    assert (limited.disparity - matching.disparity).abs().max() > 0.1  # the prior matters in this vector
    m = limited.maps[-1]
    assert torch.all(m.right_to_left.tril(-64 // 4) == 0)
    assert torch.all(m.left_to_right.triu(64 // 4) == 0)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_attention_and_masks_of_every_stage(matching: Matching, stage: int) -> None:
    g, m = golden("pasmnet"), matching.maps[stage - 1]
    tolerance = 1e-3 if stage == 3 else 1e-5  # the third is stored in half precision
    close(m.right_to_left, g[f"att_right2left_s{stage}"], tolerance)
    close(m.left_to_right, g[f"att_left2right_s{stage}"], tolerance)
    assert np.array_equal(m.valid_left.numpy(), g[f"valid_left_s{stage}"][:, 0].astype(bool))
    assert np.array_equal(m.valid_right.numpy(), g[f"valid_right_s{stage}"][:, 0].astype(bool))


def test_super_resolved_left_view(scale: int, superres: SuperResolution) -> None:
    close(superres.left, golden(f"passrnet_x{scale}")["sr_left"], 1e-4)


def test_super_resolution_attention_and_masks(scale: int, superres: SuperResolution) -> None:
    g, m = golden(f"passrnet_x{scale}"), superres.maps
    close(m.right_to_left, g["att_right2left"], 1e-3)  # stored in half precision
    close(m.left_to_right, g["att_left2right"], 1e-3)
    assert np.array_equal(m.valid_left.numpy(), g["valid_left"][:, 0].astype(bool))
    assert np.array_equal(m.valid_right.numpy(), g["valid_right"][:, 0].astype(bool))


def test_masks_and_results_are_per_image(matching: Matching) -> None:
    """A pair's result does not depend on its neighbours in the batch (the authors' clean-up joins them)."""
    alone = match(slice(1, None))
    assert torch.equal(matching.maps[-1].valid_left[1:], alone.maps[-1].valid_left)
    assert (matching.disparity[1:] - alone.disparity).abs().max() < 1e-4
