"""Tests of parsing variants of a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pamcli.errors import ModelError, UsageError
from pamcli.registry.architectures import parse_variant
from pamcli.registry.convert import read_checkpoint
from pamcli.registry.load import build_network, load_network, save_network
from pamcli.registry.spec import ModelSpec, read_header


def test_a_text_is_read_and_written_shortly() -> None:
    paper = {"features": "hourglass", "scales": 3, "blocks": 4, "refinement": "hourglass", "volume": "none"}
    assert parse_variant("pasmnet", "paper").values == paper
    assert str(parse_variant("pasmnet", "blocks=4,scales=3")) == "paper"
    found = parse_variant("pasmnet", "refinement=none, blocks=2")
    assert found.values == paper | {"blocks": 2, "refinement": "none"}
    assert str(found) == "blocks=2,refinement=none"
    assert parse_variant("passrnet", "volume=64").changes == ["volume=64"]
    assert parse_variant("pasmnet2", "paper").values == {"inner": "narrow"}


@pytest.mark.parametrize(
    ("architecture", "text", "said"),
    [
        ("pasmnet", "block=2", r"got 'block=2' .*did you mean blocks\?.*features, scales, blocks"),
        ("pasmnet", "blocks=5", "blocks of pasmnet must be one of 4, 3, 2, 1, got '5'"),
        ("pasmnet", "blocks", "got 'blocks'"),
        ("pasmnet", "", "got ''"),
        ("pasmnet", "volume=100", "one of none, 64, 96"),
        ("pasmnet", "volume=64,blocks=1", "blocks=1 cannot be combined with volume=64"),
        ("pasmnet", "features=pyramid,scales=1", "features=pyramid cannot be combined with scales=1"),
        ("passrnet", "blocks=1", "views, pyramid, matching"),
        ("passrnet", "views=left,transition=none", "cannot be combined"),
        ("passrnet", "volume=64,matching=stacked", "cannot be combined"),
        ("passrnet2", "blocks=20", "blocks of passrnet2 must be one of 16, 32, got '20'"),
        (
            "pasmnet2",
            "blocks=1",
            r"a variant of pasmnet2 must be KEY=VALUE,..., got 'blocks=1' \(.*keys: inner",
        ),
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
    assert read_checkpoint(checkpoint).spec.variant == "inner=wide"
    save_network(build_network(ModelSpec("pasmnet2")).state_dict(), ModelSpec("pasmnet2"), file)
    assert load_network(file)[1].variant == "paper"
