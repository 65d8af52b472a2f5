"""Weights files to networks: any stored precision, and nothing that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from network_states import NAMES, shipped, state_of
from torch import Tensor

from pamcli.errors import ModelError, OutputError
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry.load import build_network, load_network, save_network
from pamcli.registry.spec import ModelSpec, read_header

X2 = ModelSpec("passrnet", scale=2)
LAST = "upscale.7.weight"


def saved(folder: Path, spec: ModelSpec = X2, **changed: Tensor) -> Path:
    """A PASSRnet x2 with some tensors changed."""
    file = folder / "changed.safetensors"
    save_network({**state_of("passrnet-x2"), **changed}, spec, file)
    return file


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_network_loads_into_fp32_ready_to_use(name: str) -> None:
    network, spec = load_network(shipped(name))
    kinds = {"pasmnet2": PASMnet2, "pasmnet": PASMnet, "passrnet2": PASSRnet2, "passrnet": PASSRnet}
    assert isinstance(network, kinds[name.partition("-")[0]])
    assert getattr(network, "scale", None) == spec.scale
    assert not network.training
    stored = state_of(name)
    state = network.state_dict()
    assert state.keys() == stored.keys()
    for key, value in state.items():
        assert value.device.type == "cpu"
        assert value.dtype == (torch.float32 if stored[key].is_floating_point() else torch.int64)
        assert torch.equal(value, stored[key].to(value.dtype))
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_same_network_is_always_the_same_file(tmp_path: Path) -> None:
    spec = ModelSpec("passrnet", scale=2, training="t", licence="l", version="v", source="s")
    for name in "abcd":
        save_network(state_of("passrnet-x2"), spec, tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1
    header = read_header(tmp_path / "a")
    assert header.spec == spec


def test_half_precision_leaves_what_is_beyond_its_range(tmp_path: Path) -> None:
    state = state_of("pasmnet2")
    name = next(key for key in state if key.endswith("running_var"))
    state[name] = state[name].float()
    state[name][0] = 1e6
    save_network(state, ModelSpec("pasmnet2"), tmp_path / "half", half=True)
    stored = load_network(tmp_path / "half")[0].state_dict()
    assert torch.equal(stored[name], state[name])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_single_value_that_is_not_finite_is_enough(value: float, tmp_path: Path) -> None:
    weights = torch.zeros(3, 3, 3, 3)
    weights[1, 2, 0, 1] = value
    with pytest.raises(ModelError, match="holds NaN or infinite values"):
        load_network(saved(tmp_path, **{LAST: weights}))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_stored_precision_loads_into_fp32_and_is_written_as_it_is(
    kind: torch.dtype, tmp_path: Path
) -> None:
    file = tmp_path / "w.safetensors"
    state = {key: value.to(kind) for key, value in state_of("passrnet-x2").items()}
    save_network(state, X2, file)
    names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
    assert read_header(file).precision == names[kind]
    network, spec = load_network(file)
    assert spec == X2
    for key, value in network.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, state[key].float())


def test_a_network_without_values_takes_no_memory() -> None:
    assert all(p.is_meta for p in build_network(ModelSpec("pasmnet"), "meta").parameters())
    assert isinstance(build_network(X2, "meta"), PASSRnet)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(3, 3, 3), r"upscale.7.weight is \[3, 3, 3\], not \[3, 3, 3, 3\]"),
        (torch.zeros(1, 3, 3, 3), r"upscale.7.weight is \[1, 3, 3, 3\]"),
        (torch.zeros(3, 3, 3, 3, dtype=torch.int64), "upscale.7.weight is torch.int64"),
        (torch.zeros(3, 3, 3, 3, dtype=torch.bool), "upscale.7.weight is torch.bool"),
        (torch.full((3, 3, 3, 3), 1e300, dtype=torch.float64), "holds NaN or infinite values"),
    ],
)
def test_tensors_that_do_not_fit_are_named_with_the_file(value: Tensor, words: str, tmp_path: Path) -> None:
    file = saved(tmp_path, **{LAST: value})
    with pytest.raises(ModelError, match=words) as caught:
        load_network(file)
    assert str(file) in caught.value.message
    assert caught.value.exit_code == 4


def test_a_file_that_names_another_network_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, ModelSpec("passrnet", scale=4))
    with pytest.raises(ModelError, match=r"does not fit passrnet: upscale.4.weight is \[256, "):
        load_network(file)
    file = saved(tmp_path, ModelSpec("pasmnet"))
    with pytest.raises(ModelError, match=r"does not fit pasmnet: .* is unknown, .* and [0-9]+ more$"):
        load_network(file)


def test_a_matcher_of_an_earlier_pam_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    file = tmp_path / "earlier.safetensors"
    save_network(state_of("pasmnet"), ModelSpec("pasmnet2"), file)
    with pytest.raises(ModelError, match=r"does not fit pasmnet2: .*before pam 0.3"):
        load_network(file)


@pytest.mark.parametrize("cut", [1, 1000, 2_000_000])
def test_a_truncated_file_is_damaged(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "cut.safetensors"
    file.write_bytes(shipped("passrnet-x2").read_bytes()[:-cut])
    with pytest.raises(ModelError, match=r"cut.safetensors is .*, or is damaged: .* \(download it again"):
        load_network(file)


def test_a_file_with_bytes_to_spare_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "long.safetensors"
    file.write_bytes(shipped("passrnet-x2").read_bytes() + b"more")
    with pytest.raises(ModelError, match=r"long.safetensors is .*, or is damaged"):
        load_network(file)


def test_saving_takes_parameters_and_any_layout_in_memory(tmp_path: Path) -> None:
    state = state_of("passrnet-x2")
    turned = {
        key: torch.nn.Parameter(value.float().transpose(0, -1).contiguous().transpose(0, -1))
        if value.dim() > 1
        else value.float()
        for key, value in reversed(state.items())
    }
    save_network(turned, X2, tmp_path / "w.safetensors")
    network, spec = load_network(tmp_path / "w.safetensors")
    assert spec == X2
    for key, value in network.state_dict().items():
        assert torch.equal(value, state[key].float())


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        save_network(state_of("passrnet-x2"), X2, tmp_path / "file" / "w.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
