"""Measuring in training is measuring by pam eval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.evaluation.disparity import Disparity
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import measure
from pamcli.imaging.images import write_image
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import build_network, save_network
from pamcli.training.validation import Validator, round_weights

CPU = Compute(torch.device("cpu"), "bf16")


@pytest.fixture
def kitti(tmp_path: Path) -> str:
    """Three pairs as KITTI 2015 has them, 96 x 64 px, noise shifted by 8 px."""
    rng = np.random.default_rng(0)
    for part in ("image_2", "image_3", "disp_occ_0"):
        (tmp_path / "training" / part).mkdir(parents=True)
    for index in range(3):
        wide = rng.integers(0, 256, (64, 104, 3), np.uint8)
        name = f"training/%s/{index:06d}_10.png"
        Image.fromarray(wide[:, :96]).save(tmp_path / (name % "image_2"))
        Image.fromarray(wide[:, 8:]).save(tmp_path / (name % "image_3"))
        Image.fromarray(np.full((64, 96), 8 * 256, np.uint16)).save(tmp_path / (name % "disp_occ_0"))
    return f"kitti2015:{tmp_path}"


def test_every_pair_is_looked_at_before_a_run(kitti: str, tmp_path: Path) -> None:
    assert Validator.open([kitti], None).sets
    (tmp_path / "training/image_3/000002_10.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"image_3/000002_10\.png"):
        Validator.open([kitti], None)


def test_figures_and_images_are_those_of_the_stored_file(kitti: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec("pasmnet", max_disparity=32)
    weights = round_weights(build_network(spec).state_dict())
    one = f"{kitti}?first=1"
    found = Validator.open([one, kitti], None).measure(weights, spec, CPU, lambda: None)

    save_network(weights, spec, tmp_path / "w.safetensors")
    matcher = StereoMatcher.load(tmp_path / "w.safetensors", device="cpu", precision="fp32")

    def estimate(sample: Sample) -> Estimate:
        return Estimate(matcher(sample.left, sample.right, extras=()).disparity)

    pooled = measure(Disparity(), open_data(one), {"network": estimate}).meter.pooled_metrics["all"]
    assert found.figures["kitti2015/training"] == {"D1": pooled["d1"], "EPE": pooled["epe"]}
    assert found.figure == pytest.approx(np.mean([figures["D1"] for figures in found.figures.values()]))
    assert 0 < found.figure <= 100

    for name, pixels in found.images.items():
        write_image(tmp_path / "shown" / f"{name}.png", pixels)
    first, *others = sorted((tmp_path / "shown").iterdir())
    assert (first.name, len(others)) == ("1-kitti2015-1.png", 2)
    shown, left = np.asarray(Image.open(first)), open_data(one).load(0).left
    assert shown.shape == (128, 96, 3)
    assert np.array_equal(shown[:64], left), "the view is above its disparity"


def test_data_without_a_truth_is_refused_before_it_is_needed(tmp_path: Path) -> None:
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        Image.new("RGB", (80, 32)).save(tmp_path / side / "a.png")
    with pytest.raises(InputError, match="no ground truth"):
        Validator.open([f"pairs:{tmp_path}"], None)
    assert len(Validator.open([f"pairs:{tmp_path}"], 2).sets) == 1
    for side in ("left", "right"):
        Image.new("RGB", (40, 40)).save(tmp_path / side / "a.png")
    with pytest.raises(InputError, match="too small to measure"):
        Validator.open([f"pairs:{tmp_path}"], 2)


def test_weights_are_kept_in_half_precision_where_they_fit() -> None:
    state = {
        "weight": torch.tensor([0.1]),
        "running_var": torch.tensor([1e6]),
        "num_batches_tracked": torch.tensor(7),
    }
    stored = round_weights(state)
    assert [value.dtype for value in stored.values()] == [torch.float16, torch.float32, torch.int64]
    assert stored["running_var"].item() == 1e6
    state["num_batches_tracked"] += 1
    assert stored["num_batches_tracked"].item() == 7


@pytest.mark.parametrize(("name", "size"), [("pasmnet2", "auto"), ("pasmnet", 1.0)])
def test_pairs_are_matched_in_the_size_of_pam_disparity(
    name: str, size: object, kitti: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    def noted(matcher: StereoMatcher, *_: object) -> tuple[dict[str, float], list[np.ndarray]]:
        found.append(matcher.match_size)
        return {"D1": 0.0}, []

    monkeypatch.setattr("pamcli.training.validation._measure_disparity", noted)
    spec = ModelSpec(name)
    Validator.open([kitti], None).measure(build_network(spec).state_dict(), spec, CPU, lambda: None)
    assert found == [size]
