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
from pamcli.evaluation.methods import BICUBIC
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled, make_superres_pair, measure_upscaled
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.load import save_network
from pamcli.registry.spec import ModelSpec
from pamcli.training.validation import Validator, round_weights, save_images

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


def nothing() -> None:
    pass


def test_every_pair_is_looked_at_before_a_run(kitti: str, tmp_path: Path) -> None:
    assert Validator.open([kitti], None).sets
    (tmp_path / "training/image_3/000002_10.png").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"image_3/000002_10\.png"):
        Validator.open([kitti], None)


def test_disparity_s_figures_are_those_of_the_stored_file(kitti: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec("pasmnet", max_disparity=32)
    weights = round_weights(PASMnet().state_dict())
    found = Validator.open([kitti], None).measure(weights, spec, CPU, nothing)

    save_network(weights, spec, tmp_path / "w.safetensors")
    matcher = StereoMatcher.load(tmp_path / "w.safetensors", device="cpu", precision="fp32")

    def estimate(sample: Sample) -> Estimate:
        return Estimate(matcher(sample.left, sample.right, extras=()).disparity)

    pooled = measure(Disparity(), open_data(kitti), {"network": estimate}).meter.pooled_metrics["all"]
    assert found.figures == {"kitti2015/training": {"D1": pooled["d1"], "EPE": pooled["epe"]}}
    assert found.figure == pooled["d1"]
    assert 0 < found.figure <= 100


def test_super_resolution_s_figures_are_those_of_the_stored_file(kitti: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec("passrnet", scale=2)
    weights = round_weights(PASSRnet(2).state_dict())
    data = f"{kitti}?first=1"
    found = Validator.open([data], 2).measure(weights, spec, CPU, nothing)

    save_network(weights, spec, tmp_path / "w.safetensors")
    upscaler = StereoUpscaler.load(tmp_path / "w.safetensors", device="cpu", precision="fp32")

    def enlarge(pair: SuperresPair) -> Upscaled:
        return Upscaled(*upscaler(pair.low_left, pair.low_right))

    measured = measure(Superres(2), open_data(data), {BICUBIC: SuperresPair.bicubic, "network": enlarge})
    expected = {method: total.headline["left"]["psnr"] for method, total in measured.methods.items()}
    pair = make_superres_pair(
        *(getattr(open_data(data).load(0), view) for view in ("left", "right")), 2, name=""
    )
    single = upscaler.upscale_left(pair.low_left, pair.low_left)
    alone = measure_upscaled(pair, single, single)["left"]["psnr"]
    figures = {"PSNR": expected["network"], "bicubic": expected["bicubic"]}
    assert found.figures == {"kitti2015/training": figures | {"second view": expected["network"] - alone}}
    assert found.figure == expected["network"]
    assert f"second view {expected['network'] - alone:.3f}" in found.lines()[0]


def test_the_figure_is_the_mean_of_the_sets(kitti: str) -> None:
    torch.manual_seed(0)
    weights = round_weights(PASMnet().state_dict())
    validator = Validator.open([f"{kitti}?first=1", kitti], None)
    found = validator.measure(weights, ModelSpec("pasmnet"), CPU, nothing)
    assert len(found.figures) == 2
    assert found.figure == pytest.approx(np.mean([figures["D1"] for figures in found.figures.values()]))


def test_every_pair_is_a_place_to_stop(kitti: str) -> None:
    weights = round_weights(PASMnet().state_dict())
    calls = 0

    def stop_at_the_second() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Validator.open([kitti], None).measure(weights, ModelSpec("pasmnet"), CPU, stop_at_the_second)
    assert calls == 2


def test_images_show_the_view_above_its_disparity(kitti: str, tmp_path: Path) -> None:
    weights = round_weights(PASMnet().state_dict())
    found = Validator.open([kitti], None).measure(weights, ModelSpec("pasmnet"), CPU, nothing)
    save_images(tmp_path / "shown", found)
    files = sorted((tmp_path / "shown").iterdir())
    assert [file.name for file in files] == ["1-kitti2015-1.png", "1-kitti2015-2.png"]
    shown = np.asarray(Image.open(files[0]))
    left = np.asarray(Image.open(tmp_path / "training/image_2/000000_10.png"))
    assert shown.shape == (128, 96, 3)
    assert np.array_equal(shown[:64], left)


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


def test_d1_is_best_low_and_psnr_high() -> None:
    disparity, superres = Validator([], None), Validator([], 4)
    assert disparity.is_better(20, {0: 30, 5: 25})
    assert not disparity.is_better(30, {5: 30})
    assert superres.is_better(30, {0: 20})


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
    network = PASMnet2() if name == "pasmnet2" else PASMnet()
    weights = round_weights(network.state_dict())
    Validator.open([kitti], None).measure(weights, ModelSpec(name), CPU, nothing)
    assert found == [size]
