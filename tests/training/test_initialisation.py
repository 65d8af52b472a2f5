"""The initial weights of a run, and blocks that are compiled, here by dynamo alone, without a GPU."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pamcli.errors import DeviceError, ModelError, UsageError
from pamcli.networks.blocks import upsample
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry.architectures import ARCHITECTURES
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import save_network
from pamcli.training import initialisation
from pamcli.training.initialisation import compile_blocks, halve_scale, initial_network, initialise_by_xavier
from pamcli.training.recipes import RECIPES
from pamcli.training.trainer import set_training_mode

SUPERRES = RECIPES["superres"]


def enlarged(network: PASSRnet, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = network(left, right).left
    return result


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_an_initial_upscaler_interpolates_bilinearly(scale: int) -> None:
    network = initial_network(replace(SUPERRES, scale=scale))
    assert isinstance(network, PASSRnet)
    left, right = torch.rand(2, 1, 3, 12, 20).unbind()
    bilinear = F.interpolate(left, scale_factor=scale, mode="bilinear", align_corners=False)
    inner = (..., slice(8, -8), slice(8, -8))
    # The other channels are quiet, not silent: they keep their gradients.
    torch.testing.assert_close(enlarged(network, left, right)[inner], bilinear[inner], atol=0.02, rtol=0)
    with torch.no_grad():
        network.upscale[6].weight[:, 3:] = 0
    torch.testing.assert_close(enlarged(network, left, right)[inner], bilinear[inner], atol=1e-5, rtol=0)


def test_xavier_has_the_variance_of_the_paper_s_initialisation() -> None:
    network = PASSRnet(2)
    initialise_by_xavier(network)
    layer = network.init_feature[4].body[0]  # 64 to 64 channels, 3 x 3
    assert layer.weight.std().item() == pytest.approx((2 / (2 * 64 * 9)) ** 0.5, rel=0.02)
    assert not network.pam.b1.bias.any()


def test_one_part_learns_and_another_begins_anew(tmp_path: Path) -> None:
    trained = PASMnet()
    path = str(weights(tmp_path / "w.safetensors", trained))
    network = initial_network(replace(RECIPES["scenes"], start=path, only="refine", reinitialise="refine"))
    before = dict(trained.named_parameters())
    for name, parameter in network.named_parameters():
        refine = name.startswith("refine.")
        assert parameter.requires_grad == refine
        if not refine:
            assert torch.equal(parameter, before[name])
    name = "refine.E0.body.0.0.weight"
    assert not torch.equal(network.get_parameter(name), before[name])
    set_training_mode(replace(RECIPES["scenes"], only="refine"), network)
    modes = {
        n.split(".")[0]: m.training for n, m in network.named_modules() if isinstance(m, torch.nn.BatchNorm2d)
    }
    assert modes == {"hourglass": False, "cas_pam": False, "refine": True}


def test_a_fresh_refinement_upsamples_the_initial_disparity(tmp_path: Path) -> None:
    path = str(weights(tmp_path / "w.safetensors", PASMnet()))
    recipe = replace(RECIPES["scenes"], start=path, reinitialise="refine", freeze_batch_norm=True)
    network = initial_network(recipe)
    set_training_mode(recipe, network)
    initial = 30 * torch.rand(1, 1, 8, 16, generator=torch.Generator().manual_seed(2))
    refined, estimate = network.refine(initial, torch.randn(1, 64, 8, 16))
    expected = upsample(upsample(4 * initial))
    assert (estimate - expected).abs().max() < 1e-2, "but for batch norm's epsilon"
    estimate.square().sum().backward()
    for name, parameter in network.refine.named_parameters():
        if not name.startswith("confidence"):
            assert parameter.grad is not None
    assert refined.isfinite().all()


def test_the_parts_are_the_networks(tmp_path: Path) -> None:
    for name, network in (("pasmnet", PASMnet()), ("passrnet", PASSRnet(2)), ("passrnet2", PASSRnet2(2))):
        assert ARCHITECTURES[name].parts == tuple(dict(network.named_children()))


def weights(path: Path, network: PASMnet | PASMnet2 | PASSRnet, **spec: int) -> Path:
    kind = type(network).__name__.lower()
    save_network(network.state_dict(), ModelSpec(architecture=kind, **spec), path)  # type: ignore[arg-type]
    return path


def test_halving_changes_only_the_layer_before_the_shuffle() -> None:
    state = PASSRnet(4).state_dict()
    halved = halve_scale(state)
    assert [key for key in state if halved[key] is not state[key]] == ["upscale.4.weight"]
    torch.manual_seed(0)
    larger, smaller = PASSRnet2(4), PASSRnet2(2)
    torch.nn.init.normal_(larger.last.weight)
    torch.nn.init.normal_(larger.last.bias)
    smaller.load_state_dict(halve_scale(larger.state_dict()))
    features = torch.rand(1, 64, 5, 7)
    shuffled = (F.pixel_shuffle(network.last(features), network.scale) for network in (larger, smaller))
    torch.testing.assert_close(F.avg_pool2d(next(shuffled), 2), next(shuffled))


def test_a_head_begins_anew_behind_the_matching_of_other_weights(tmp_path: Path) -> None:
    torch.manual_seed(1)
    trained = PASMnet2()
    path = weights(tmp_path / "w.safetensors", trained)
    recipe = replace(RECIPES["pasmnet2"], start=str(path), reinitialise="head", only="head", rates={})
    network = initial_network(recipe)
    assert isinstance(network, PASMnet2)
    kept, learning = trained.state_dict(), set()
    for key, one in network.named_parameters():
        if one.requires_grad:
            learning.add(key.split(".")[0])
        else:
            assert torch.equal(one, kept[key])
    assert learning == {"s1", "s2", "s3", "x2", "mask", "error_scale"}
    assert not torch.equal(network.s1.ctx[0].weight, trained.s1.ctx[0].weight)
    with pytest.raises(ModelError, match="trains pasmnet2"):
        initial_network(replace(recipe, start=str(weights(tmp_path / "p.safetensors", PASMnet()))))


def test_a_deeper_network_begins_as_the_one_it_comes_from(tmp_path: Path) -> None:
    torch.manual_seed(4)
    network = PASSRnet2(4)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    path = tmp_path / "weights.safetensors"
    save_network(network.state_dict(), ModelSpec("passrnet2", scale=4), path)
    recipe = replace(RECIPES["passrnet2"], variant="blocks=32", start=str(path))
    left, right = torch.rand(2, 1, 3, 9, 20).unbind()
    network.to(memory_format=torch.channels_last)  # like the initial network, which else rounds differently
    deeper = initial_network(recipe)
    assert len(deeper.blocks) == 32
    expected, found = network(left, right, both=True), deeper(left, right, both=True)
    assert torch.equal(found.left, expected.left)
    assert torch.equal(found.right, expected.right)
    found.left.square().mean().backward()
    assert deeper.blocks[1].scale2.grad.abs().min() > 0  # what is silent learns
    halved = initial_network(replace(recipe, scale=2))
    shallow = initial_network(replace(recipe, scale=2, variant="paper"))
    assert torch.equal(halved(left, right).left, shallow(left, right).left)


def test_consistency_has_no_weights_so_any_run_begins_with_any(tmp_path: Path) -> None:
    network, path = PASSRnet2(4), tmp_path / "weights.safetensors"
    save_network(network.state_dict(), ModelSpec("passrnet2", scale=4, variant="consistency=bicubic"), path)
    for variant, is_consistent in (("paper", False), ("blocks=32,consistency=bicubic", True)):
        begun = initial_network(replace(RECIPES["passrnet2"], variant=variant, start=str(path)))
        assert (begun.consistency is not None) == is_consistent
        assert torch.equal(begun.first.weight, network.first.weight)


CPU, GPU = torch.device("cpu"), torch.device("cuda")


def gradients(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    left, right = torch.rand(2, 1, 3, 6, 12, generator=rng)
    result = network(left, right, both=True)
    (result.left.square().sum() + result.right.square().sum()).backward()
    return {
        key: parameter.grad for key, parameter in network.named_parameters() if parameter.grad is not None
    }


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # dynamo looks at what it traces
def test_compiled_blocks_have_the_gradients_of_the_others() -> None:
    torch.manual_seed(0)
    plain = PASSRnet2(2, blocks=4)
    torch.nn.init.normal_(plain.last.weight, std=0.1)
    other = copy.deepcopy(plain)
    compile_blocks(other, CPU, "eager")
    assert other.state_dict().keys() == plain.state_dict().keys()
    expected, found = gradients(plain), gradients(other)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-6)
    assert all(block._compiled_call_impl is not None for block in other.blocks)


def test_what_cannot_be_compiled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="only passrnet2"):
        compile_blocks(PASSRnet(4), GPU)
    network = PASSRnet2(2, blocks=4)
    with pytest.raises(UsageError, match="requires a CUDA GPU"):
        compile_blocks(network, CPU)
    monkeypatch.setattr(initialisation, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="Triton"):
        compile_blocks(network, GPU)
    assert all(block._compiled_call_impl is None for block in network.blocks)
