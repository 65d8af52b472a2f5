"""Tests that need a GPU: precisions, CUDA graphs, lack of memory, training."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.inference.matcher import EXTRAS, StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.losses.total import GroundTruth, matching_terms, total_loss
from pamcli.losses.weights import LossWeights
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.training.initialisation import compile_blocks

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU"),
    pytest.mark.filterwarnings("default"),  # of libraries about GPUs
]

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
CUDA = torch.device("cuda", 0)

Image = NDArray[np.uint8]


def sample(rows: slice = slice(None), columns: slice = slice(None)) -> tuple[Image, Image]:
    left, right = (read_image(SAMPLE / f"{side}.png").pixels[rows, columns] for side in ("left", "right"))
    return left, right


def d1(disparity: NDArray[np.float32]) -> float:
    """Percent of the sample pair's pixels that are off by more than 3 px and 5 %."""
    truth = read_disparity(SAMPLE / "disparity.pfm")
    known = np.isfinite(truth) & (truth > 0)
    error = np.abs(disparity - truth)[known]
    return 100 * float(((error > 3) & (error > 0.05 * truth[known])).mean())


@pytest.mark.parametrize("network", ["pasmnet2", "pasmnet"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_disparity_is_the_cpus(network: str, precision: str) -> None:
    pair = sample()
    exact = StereoMatcher.load(network, device="cpu", precision="fp32", match_size=1)(*pair, extras=EXTRAS)
    matcher = StereoMatcher.load(network, device="cuda", precision=precision, match_size=1)
    plain, recorded = (matcher(*pair, extras=EXTRAS) for _ in range(2))
    assert matcher.model.graphs._graphs  # type: ignore[attr-defined]
    assert all(graph is not None for graph in matcher.model.graphs._graphs.values())  # type: ignore[attr-defined]
    apart = np.abs(recorded.disparity - exact.disparity).mean()
    assert np.abs(recorded.disparity - plain.disparity).mean() < 1e-3
    if precision == "fp32":
        assert apart < 1e-3
        assert np.abs(recorded.right_disparity - exact.right_disparity).mean() < 1e-3  # type: ignore[operator]
        assert np.abs(recorded.confidence - exact.confidence).mean() < 1e-4  # type: ignore[operator]
        assert (recorded.visible != exact.visible).mean() < 1e-3
    else:
        assert abs(d1(recorded.disparity) - d1(exact.disparity)) < 0.3  # one pair; all check sets: the guide
        assert apart < 0.2


@pytest.mark.parametrize("network", ["passrnet2-x4", "passrnet2-x2", "passrnet-x4"])
@pytest.mark.parametrize(("precision", "limit"), [("fp32", 0.01), ("bf16", 0.5), ("fp16", 0.5)])
def test_upscaled_images_are_the_cpus(network: str, precision: str, limit: float) -> None:
    pair = sample(slice(200, 293), slice(100, 331))
    exact = StereoUpscaler.load(network, device="cpu", precision="fp32")(*pair)
    upscaler = StereoUpscaler.load(network, device="cuda", precision=precision)
    for _ in range(3):
        found = upscaler(*pair)
    for ours, theirs in zip(found, exact, strict=True):
        assert np.abs(ours.astype(float) - theirs).mean() < limit


def test_graphs_of_twenty_sizes_take_bounded_memory_and_stay_right() -> None:
    matcher = StereoMatcher.load(device="cuda", match_size=1)
    sizes = [(slice(0, 96 + 16 * n), slice(0, 200 + 24 * n)) for n in range(20)]
    first = [matcher(*sample(*size)).disparity for size in sizes]
    reserved = []
    for _ in range(3):
        for size, expected in zip(sizes, first, strict=True):
            assert np.abs(matcher(*sample(*size)).disparity - expected).mean() < 1e-3
        reserved.append(torch.cuda.memory_reserved())
    assert len(matcher.model.graphs._graphs) <= 8  # type: ignore[attr-defined]
    assert reserved[2] <= 1.2 * reserved[1]
    assert reserved[2] < 8e9


def test_without_enough_memory_bands_are_matched_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left, right = (np.tile(image, (4, 2, 1)) for image in sample())
    matcher = StereoMatcher.load(device="cuda", precision="bf16", match_size=1)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    whole = matcher(left, right).disparity
    needed = torch.cuda.max_memory_allocated() - held
    matcher.model.graphs.forget()  # type: ignore[attr-defined]
    gc.collect()  # graphs of earlier tests
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 0.6 * needed) / total)
    try:
        found = matcher(left, right).disparity
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert np.abs(found - whole).mean() < 0.1  # other sizes, other algorithms in 16 bits
    lines = [record.message for record in caplog.records if "not enough memory" in record.message]
    assert len(lines) == 1
    assert "computed in bands" in lines[0]


def gradients(
    make: Callable[[], torch.nn.Module], run: Callable[[torch.nn.Module], torch.Tensor]
) -> torch.Tensor:
    network = make()
    run(network).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]).cpu()


def test_a_training_step_of_matching_is_the_cpus() -> None:
    left, right = (torch.rand(2, 3, 64, 128, generator=torch.Generator().manual_seed(n)) for n in (0, 1))

    def run(network: torch.nn.Module) -> torch.Tensor:
        device = next(network.parameters()).device
        views = left.to(device), right.to(device)
        nothing, none = torch.full_like(views[0][:, 0], torch.nan), torch.zeros_like(views[0][:, 0]).bool()
        unknown = GroundTruth(nothing, nothing, none, none, none[:, 0, 0])
        weights = LossWeights(photometric=1, smoothness=1)
        terms = matching_terms(network(*views, all_stages=True), *views, weights, unknown)
        return total_loss(terms)[0]

    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        return PASMnet2().train()

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        here, there = gradients(make, run), gradients(lambda: make().to(CUDA), run)
    assert torch.nn.functional.cosine_similarity(here, there, dim=0) > 0.999


@pytest.mark.parametrize("compiled", [False, True])
def test_a_training_step_of_super_resolution_with_and_without_compile(compiled: bool) -> None:
    left, right = (torch.rand(2, 3, 32, 64, generator=torch.Generator().manual_seed(n)) for n in (0, 1))

    def run(network: torch.nn.Module) -> torch.Tensor:
        device = next(network.parameters()).device
        return network(left.to(device), right.to(device), both=True).left.square().mean()

    def make() -> PASSRnet2:
        torch.manual_seed(0)
        network = PASSRnet2(2)
        for parameter in network.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        return network.train()

    def make_there() -> torch.nn.Module:
        network = make().to(CUDA)
        if compiled:
            compile_blocks(network, CUDA)
        return network

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        here, there = gradients(make, run), gradients(make_there, run)
    assert torch.nn.functional.cosine_similarity(here, there, dim=0) > 0.999
