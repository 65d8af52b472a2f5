"""A `--weights` value leads to a file and a network: any stored precision, and nothing that does not fit."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from network_states import NAMES, shipped, state_of
from torch import Tensor

from pamcli.errors import ModelError
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.networks.passrnet2 import PASSRnet2
from pamcli.registry import catalog
from pamcli.registry.catalog import (
    CHECKSUMS,
    REGISTERED,
    SHIPPED,
    ModelSpec,
    locate,
    read_header,
    recorded_sha256,
)
from pamcli.registry.load import load_network, save_network

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


@pytest.mark.parametrize(("kind", "name"), [(torch.bfloat16, "bf16"), (torch.float64, "fp64")])
def test_any_stored_precision_loads_into_fp32_and_is_written_as_it_is(
    kind: torch.dtype, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "w.safetensors"
    state = {key: value.to(kind) for key, value in state_of("passrnet-x2").items()}
    save_network(state, X2, file)
    assert read_header(file).precision == name
    network, spec = load_network(file)
    assert spec == X2
    for key, value in network.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, state[key].float())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(3, 3, 3), r"upscale.7.weight is \[3, 3, 3\], not \[3, 3, 3, 3\]"),
        (torch.zeros(3, 3, 3, 3, dtype=torch.int64), "upscale.7.weight is torch.int64"),
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


def test_a_file_that_is_too_short_or_too_long_is_damaged(tmp_path: Path) -> None:
    file, whole = tmp_path / "cut.safetensors", shipped("passrnet-x2").read_bytes()
    for content in (whole[:-1], whole[:1000], whole + b"more"):
        file.write_bytes(content)
        with pytest.raises(ModelError, match=r"cut.safetensors is .*, or is damaged: .* \(download it again"):
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


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the weights folder, in place of the shipped one."""
    folder = tmp_path / "weights"
    shutil.copytree(SHIPPED, folder)
    monkeypatch.setattr(catalog, "SHIPPED", folder)
    return folder


def test_every_registered_name_is_there_with_its_checksum_and_its_card() -> None:
    assert tuple(REGISTERED) == NAMES
    for name in NAMES:
        path = locate(name)
        assert path == shipped(name)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == recorded_sha256(name)
        assert path.with_suffix(".md").is_file()


def test_a_registered_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pasmnet").write_bytes(b"something else")
    monkeypatch.chdir(tmp_path)
    assert locate("pasmnet") == shipped("pasmnet")


@pytest.mark.parametrize("text", ["./pasmnet", "pasmnet/", "pasmnet.safetensors", "~/x", Path("hf:x")])
def test_a_path_object_and_what_has_a_separator_or_suffix_are_paths(text: str | Path) -> None:
    assert locate(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("passmnet", r"unknown network 'passmnet' \(did you mean pasmnet\? known: pasmnet2, pasmnet, "),
        ("PASMnet", r"unknown network 'PASMnet'"),
        ("", r"unknown network ''"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        locate(text)
    assert caught.value.exit_code == 4


def test_a_shipped_file_that_is_missing_is_named(copied: Path) -> None:
    (copied / "pasmnet.safetensors").unlink()
    with pytest.raises(ModelError, match=r"the weights of pasmnet are missing: .*\(reinstall pam\)"):
        locate("pasmnet")


def test_a_missing_record_is_no_permission(copied: Path) -> None:
    record = copied / CHECKSUMS
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if "pasmnet" not in line))
    with pytest.raises(ModelError, match=f"{CHECKSUMS} has no checksum of pasmnet"):
        locate("pasmnet")
    locate("passrnet-x2")
    record.unlink()
    with pytest.raises(ModelError, match=f"{CHECKSUMS} does not exist .reinstall pam"):
        locate("passrnet-x2")


def test_the_record_is_in_the_format_of_sha256sum() -> None:
    lines = (SHIPPED / CHECKSUMS).read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == sorted(f"{name}.safetensors" for name in NAMES)
    assert sorted(os.listdir(SHIPPED)) == sorted(
        [CHECKSUMS, *(f"{name}{suffix}" for name in NAMES for suffix in (".md", ".safetensors"))]
    )
