"""Tests of the loss weights: the paper's presets, and storing them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from paper_weights import KITTI, SCENEFLOW, SUPER_RESOLUTION, SUPERVISED

from pamcli.losses.total import STAGE_WEIGHTS
from pamcli.losses.weights import LossWeights
from pamcli.validation import parse_record


def test_presets_are_the_papers() -> None:
    def lambdas(weights: LossWeights) -> tuple[float, ...]:
        return weights.pam_smoothness, weights.pam_cycle, weights.smoothness, weights.pam

    assert lambdas(SCENEFLOW) == (1, 1, 0.1, 1)
    assert lambdas(KITTI) == (5, 5, 0.5, 1)
    assert SUPER_RESOLUTION.pam == 0.005
    assert STAGE_WEIGHTS == (0.2, 0.3, 0.5)
    assert not any(weights.needs_truth for weights in (SCENEFLOW, KITTI, SUPER_RESOLUTION))
    assert SUPERVISED.needs_truth


@pytest.mark.parametrize("weights", [SCENEFLOW, SUPERVISED, replace(KITTI, mask_by_truth_below=192.0)])
def test_weights_survive_json(weights: LossWeights) -> None:
    assert parse_record(LossWeights, json.dumps(asdict(weights))) == weights
