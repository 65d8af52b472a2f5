"""CNNIQA and SR-metric: a plain transcription of the network, both formats of weights, and the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from pamcli.errors import ModelError
from pamcli.evaluation.image_quality import CNNIQA, load_cnniqa


@pytest.fixture
def network() -> CNNIQA:
    torch.manual_seed(0)
    return CNNIQA().eval()


def score_plainly(network: CNNIQA, image: np.ndarray) -> float:
    """The mean over patches, each normalised and scored by itself."""
    grey = np.asarray(Image.fromarray(image).convert("L")) / 255
    scores = []
    for top in range(0, grey.shape[0] - 32, 32):
        for left in range(0, grey.shape[1] - 32, 32):
            patch = grey[top : top + 32, left : left + 32]
            around = np.lib.stride_tricks.sliding_window_view(np.pad(patch, 1, mode="symmetric"), (3, 3))
            normal = (patch - around.mean(axis=(2, 3))) / (around.std(axis=(2, 3)) + 1)
            maps = network.conv1(torch.tensor(normal, dtype=torch.float32)[None])
            values = torch.cat([maps.amax((1, 2)), maps.amin((1, 2))])
            scores.append(network.fc3(network.fc2(network.fc1(values).relu()).relu()).item())
    return float(np.mean(scores))


@pytest.mark.parametrize("size", [(96, 65), (70, 100)])
def test_a_score_is_the_mean_of_all_patches(network: CNNIQA, size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    assert network.score(image) == pytest.approx(score_plainly(network, image), abs=1e-5)


def test_weights_are_read_from_both_formats(network: CNNIQA, tmp_path: Path) -> None:
    state = network.state_dict()
    torch.save(state, tmp_path / "old", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state}, tmp_path / "new.pth")
    safetensors.torch.save_file(state, tmp_path / "new.safetensors")
    for name in ("old", "new.pth", "new.safetensors"):
        loaded = load_cnniqa(tmp_path / name).state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in state.items())
    torch.save({**state, "fc3.bias": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"other\.pth does not hold the weights of CNNIQA"):
        load_cnniqa(tmp_path / "other.pth")
    with pytest.raises(ModelError, match=r"none does not exist"):
        load_cnniqa(tmp_path / "none")
