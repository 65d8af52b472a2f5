"""The metadata of weights files and the texts of variants: round trips, contradictions, damage."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from network_states import shipped

from pamcli.errors import ModelError, UsageError
from pamcli.registry.architectures import SCALES, parse_variant
from pamcli.registry.catalog import ModelSpec, read_header
from pamcli.registry.convert import read_checkpoint
from pamcli.registry.load import build_network, load_network, save_network

FULL = ModelSpec(
    "pasmnet",
    max_disparity=192,
    training="Scenes, 1,500 steps; “D1” 22 %\nand a second line",
    licence="MIT",
    version="1.2",
    source="PASMnet_192.pth.tar, sha256 00ff",
)


@pytest.mark.parametrize(
    "spec", [FULL, ModelSpec("pasmnet"), *(ModelSpec("passrnet", scale=scale) for scale in SCALES)]
)
def test_metadata_give_the_description_back(spec: ModelSpec) -> None:
    metadata = spec.to_metadata()
    assert all(isinstance(value, str) for value in metadata.values())
    assert ModelSpec.from_metadata(metadata) == spec


def test_the_variant_is_stored_so_that_others_can_follow() -> None:
    metadata = FULL.to_metadata()
    assert json.loads(metadata["configuration"]) == {"variant": "paper"}
    metadata["configuration"] = json.dumps({"variant": "without cascade"})
    with pytest.raises(ModelError, match=r"unknown variant 'without cascade' of pasmnet \(update pam"):
        ModelSpec.from_metadata(metadata)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architecture": "psmnet"}, "unknown architecture 'psmnet'"),
        ({"architecture": "passrnet"}, "must have a scale"),
        ({"architecture": "pasmnet", "scale": 2}, "must have a scale"),
        ({"architecture": "passrnet", "scale": 5}, "got 5"),
        ({"architecture": "passrnet", "scale": 2, "max_disparity": 192}, "can have a maximum disparity"),
        ({"architecture": "pasmnet", "max_disparity": 17}, "multiple of 16 px, got 17"),
        ({"architecture": "pasmnet", "max_disparity": 0}, "multiple of 16 px, got 0"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        ModelSpec(**fields)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("name", "millions"),
    [("pasmnet2", 2.53), ("pasmnet", 7.82), ("passrnet-x2", 1.37), ("passrnet2-x4", 0.92)],
)
def test_the_header_of_a_shipped_file(name: str, millions: float) -> None:
    header = read_header(shipped(name))
    assert header.precision == "fp16"
    assert header.spec.scale == (int(name[-1]) if "-x" in name else None)
    assert header.spec.licence == "MIT"
    assert header.spec.training
    assert round(header.parameters / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("kinds", "precision"),
    [
        ((torch.float32, torch.float32), "fp32"),
        ((torch.float16, torch.int64), "fp16"),
        ((torch.float16, torch.float32), "mixed"),
    ],
)
def test_precision_and_parameters(
    kinds: tuple[torch.dtype, torch.dtype], precision: str, tmp_path: Path
) -> None:
    file = tmp_path / "w.safetensors"
    tensors = {"a": torch.zeros(2, 3, dtype=kinds[0]), "b": torch.zeros((), dtype=kinds[1])}
    tensors["a.running_mean"] = torch.zeros(100, dtype=kinds[0])
    safetensors.torch.save_file(tensors, file, FULL.to_metadata())
    header = read_header(file)
    assert header.precision == precision
    assert header.parameters == 6 + kinds[1].is_floating_point


TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
GOOD = FULL.to_metadata()


def packed(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


def test_the_header_that_the_damaged_ones_come_from_is_good(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(packed({"__metadata__": GOOD, "a": TENSOR}))
    assert (read_header(file).spec, read_header(file).parameters) == (FULL, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello, this is a text file\n" * 9,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 3) + b"{}",
        packed(b"[" * 100_000),
        packed({"__metadata__": GOOD, "a": {"dtype": "F32", "shape": ["x"]}}),
        packed({"__metadata__": GOOD, "a": {**TENSOR, "data_offsets": [0, 80]}}),
        packed({"__metadata__": {**GOOD, "training": "\ud800"}, "a": TENSOR}),
    ],
    ids=lambda content: repr(content[:60]),
)
def test_what_is_no_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelError, match="is not a safetensors file") as caught:
        read_header(file)
    assert str(file) in caught.value.message
    assert "pam weights import" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "do not name a network of pam"),
        ({}, "do not name a network of pam .*pam weights import"),
        ({**GOOD, "pam_format": "2"}, "do not name a network of pam"),
        ({**GOOD, "architecture": "psmnet"}, "unknown architecture 'psmnet'"),
        ({key: GOOD[key] for key in GOOD if key != "configuration"}, "the metadata are damaged"),
        ({**GOOD, "configuration": "[]"}, "the metadata are damaged"),
        ({**GOOD, "configuration": "[" * 100_000}, "the metadata are damaged"),
        ({**GOOD, "max_disparity": "many"}, "the metadata are damaged"),
        ({**GOOD, "scale": "2"}, "must have a scale"),
    ],
)
def test_metadata_that_are_not_understood_are_refused(
    metadata: dict[str, str] | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(packed({"__metadata__": metadata, "a": TENSOR}))
    with pytest.raises(ModelError, match=words) as caught:
        read_header(file)
    assert caught.value.message.startswith(str(file))


def test_a_file_in_a_file_is_no_weights_file() -> None:
    with pytest.raises(ModelError, match="Not a directory"):
        read_header(shipped("pasmnet") / "w.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_what_has_no_size_is_no_safetensors_file() -> None:
    with pytest.raises(ModelError, match="/dev/zero is not a regular file: it is a device"):
        read_header(Path("/dev/zero"))


def test_a_text_is_read_and_written_shortly() -> None:
    paper = {"features": "hourglass", "scales": 3, "blocks": 4, "refinement": "hourglass", "volume": "none"}
    assert parse_variant("pasmnet", "paper").values == paper
    assert parse_variant("pasmnet", "blocks=4,scales=3").text == "paper"
    found = parse_variant("pasmnet", "refinement=none, blocks=2")
    assert found.values == paper | {"blocks": 2, "refinement": "none"}
    assert found.text == "blocks=2,refinement=none"
    assert parse_variant("passrnet", "volume=64").changes == ["volume=64"]
    assert parse_variant("pasmnet2", "paper").values == {"inner": "narrow"}


@pytest.mark.parametrize(
    ("architecture", "text", "said"),
    [
        ("pasmnet", "block=2", r"got 'block=2' .*did you mean blocks\?.*features, scales, blocks"),
        ("pasmnet", "blocks=5", "blocks of pasmnet must be one of 4, 3, 2, 1, got '5'"),
        ("pasmnet", "", "got ''"),
        ("pasmnet", "volume=100", "one of none, 64, 96"),
        ("pasmnet", "volume=64,blocks=1", "blocks=1 cannot be combined with volume=64"),
        ("passrnet", "volume=64,matching=stacked", "cannot be combined"),
        ("passrnet2", "blocks=20", "blocks of passrnet2 must be one of 16, 32, got '20'"),
    ],
)
def test_what_is_no_variant_is_refused_with_what_there_is(architecture: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_variant(architecture, text)


def test_weights_say_their_variant_and_others_tensors_are_refused(tmp_path: Path) -> None:
    spec = ModelSpec("pasmnet", variant="blocks=1,refinement=none")
    state = build_network(spec).state_dict()
    save_network(state, spec, tmp_path / "one.safetensors")
    assert read_header(tmp_path / "one.safetensors").spec.variant == "blocks=1,refinement=none"
    network, found = load_network(tmp_path / "one.safetensors")
    assert found == spec
    assert network.state_dict().keys() == state.keys()
    wrong = ModelSpec("pasmnet", variant="blocks=2,refinement=none")
    save_network(state, wrong, tmp_path / "two.safetensors")
    with pytest.raises(
        ModelError, match=r"two.safetensors does not fit pasmnet with blocks=2,.*pab2.* is missing"
    ):
        load_network(tmp_path / "two.safetensors")
    with pytest.raises(ModelError, match=r"unknown variant 'blocks=9' of pasmnet \(update pam"):
        ModelSpec("pasmnet", variant="blocks=9")


def test_wide_pasmnet2_is_recognised_in_older_files_and_in_checkpoints(tmp_path: Path) -> None:
    wide = build_network(ModelSpec("pasmnet2", variant="inner=wide")).state_dict()
    file, checkpoint = tmp_path / "older.safetensors", tmp_path / "wide.pt"
    save_network(wide, ModelSpec("pasmnet2", version="16"), file)
    torch.save(wide, checkpoint)
    network, found = load_network(file)
    assert found == ModelSpec("pasmnet2", variant="inner=wide", version="16")
    assert all(torch.equal(value, wide[key]) for key, value in network.state_dict().items())
    assert read_checkpoint(checkpoint)[1].variant == "inner=wide"
    save_network(build_network(ModelSpec("pasmnet2")).state_dict(), ModelSpec("pasmnet2"), file)
    assert load_network(file)[1].variant == "paper"
