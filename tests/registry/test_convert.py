"""Import of checkpoints in the authors' layout, and of what is none."""

from __future__ import annotations

import os
import re
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from network_states import state_of
from torch import Tensor

from pamcli.errors import ModelError
from pamcli.registry.catalog import sha256
from pamcli.registry.convert import read_checkpoint
from pamcli.registry.load import load_network

X2 = "passrnet-x2"
LAST = "upscale.7.weight"


def write(path: Path, content: object, *, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def parallel(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name tensors as DataParallel does."""
    return OrderedDict((f"module.{key}", value) for key, value in state.items())


@pytest.mark.parametrize(
    ("name", "record", "prefixed", "legacy"),
    [
        ("pasmnet", True, True, False),
        ("pasmnet2", False, False, False),
        ("passrnet-x2", False, False, True),
        ("passrnet-x4", True, False, False),
    ],
)
def test_a_checkpoint_is_recognised_and_kept_as_it_is(
    name: str, record: bool, prefixed: bool, legacy: bool, tmp_path: Path
) -> None:
    state = state_of(name)
    content: dict[str, Any] = parallel(state) if prefixed else OrderedDict(state)
    if record:
        content = {"epoch": 80, "state_dict": content}
    file = write(tmp_path / ("c.pth.tar" if record else "c.pth"), content, legacy=legacy)
    loaded, spec = read_checkpoint(file, training="how", licence="MIT", version="3")
    assert spec.architecture == name.partition("-")[0]
    assert spec.scale == {"passrnet-x2": 2, "passrnet-x4": 4}.get(name)
    assert spec.max_disparity is None
    assert (spec.training, spec.licence, spec.version) == ("how", "MIT", "3")
    assert spec.source == f"{file.name}, sha256 {sha256(file)}"
    assert loaded.keys() == state.keys()
    for key, value in loaded.items():
        assert value.dtype == state[key].dtype
        assert torch.equal(value, state[key])


def test_a_record_may_hold_an_optimizer_and_numpy_scalars(tmp_path: Path) -> None:
    state = state_of(X2)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight], betas=(0.9, 0.999))
    weight.sum().backward()
    optimizer.step()
    record = {
        "epoch": np.int64(80),
        "psnr": np.float64(25.8),
        "loss": [np.float32(0.1), 0.2],
        "optimizer": optimizer.state_dict(),
        "state_dict": state,
    }
    assert read_checkpoint(write(tmp_path / "c.pth.tar", record))[0].keys() == state.keys()


def test_scalars_of_numpy_1_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth.tar", {"psnr": np.float64(25.8), "state_dict": state_of(X2)}, legacy=True)
    content = file.read_bytes()
    assert b"cnumpy._core.multiarray\nscalar\n" in content
    file.write_bytes(content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    assert read_checkpoint(file)[1].scale == 2


def test_a_safetensors_file_without_description_is_imported_too(tmp_path: Path) -> None:
    """What the message about such a file advises."""
    state = state_of(X2)
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match="pam weights import"):
        load_network(tmp_path / "w.safetensors")
    assert read_checkpoint(tmp_path / "w.safetensors")[1].scale == 2
    (tmp_path / "w.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-1])
    with pytest.raises(ModelError, match="is not a PyTorch checkpoint, or is damaged"):
        read_checkpoint(tmp_path / "w.safetensors")


class MakesFolder:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_checkpoint_does_not_run(legacy: bool, tmp_path: Path) -> None:
    made = tmp_path / "made by the checkpoint"
    content = {"state_dict": state_of(X2), "more": MakesFolder(made)}
    file = write(tmp_path / "c.pth.tar", content, legacy=legacy)
    torch.load(file, weights_only=False)
    assert made.is_dir(), "the code is there, and would run"
    made.rmdir()
    with pytest.raises(ModelError, match="holds Python objects, which pam never executes") as caught:
        read_checkpoint(file)
    assert str(file) in caught.value.message
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"layer1.0.weight": torch.zeros(2)},
            r"is neither a PASMnet nor a PASSRnet \(first keys: layer1.0.we",
        ),
        (torch.zeros(2), "has no state dict"),
        ({"state_dict": {}}, "has no state dict"),
        ({"state_dict": {"epoch": 80}}, "has no state dict"),
    ],
)
def test_what_is_neither_network_is_refused(content: object, words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", content)
    with pytest.raises(ModelError, match=words) as caught:
        read_checkpoint(file)
    assert str(file) in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("shape", [(), (70, 64, 1, 1), (64 * 25, 64, 1, 1)])
def test_a_scale_that_cannot_be_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", {**state_of(X2), "upscale.4.weight": torch.zeros(shape)})
    with pytest.raises(ModelError, match=r"c.pth is neither a PASMnet nor a PASSRnet"):
        read_checkpoint(file)


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (LAST, None, f"{LAST} is missing"),
        ("upscale.more", torch.zeros(2), "upscale.more is unknown"),
        (LAST, torch.zeros(2, 3, 3, 3), r"is \[2, 3, 3, 3\], not \[3, 3, 3, 3\]"),
        (LAST, torch.full((3, 3, 3, 3), torch.nan), "NaN or infinite values"),
        (LAST, torch.zeros(3, 3, 3, 3).to_sparse(), "must be a dense tensor"),
        (LAST, torch.empty((3, 3, 3, 3), device="meta"), "must be a dense tensor"),
        (LAST, nested(), "must be a dense tensor"),
        (LAST, torch.zeros(3, 3, 3, 3, dtype=torch.int32), "is torch.int32"),
        (LAST, torch.zeros(3, 3, 3, 3).to(torch.float8_e4m3fn), "is torch.float8"),
    ],
)
def test_a_passrnet_that_is_not_quite_one_is_refused(
    key: str, value: Tensor | None, words: str, tmp_path: Path
) -> None:
    state = {k: v for k, v in {**state_of(X2), key: value}.items() if v is not None}
    file = write(tmp_path / "c.pth", state)
    with pytest.raises(ModelError, match=words) as caught:
        read_checkpoint(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize("kind", [torch.bool, torch.float8_e4m3fn])
def test_counts_of_batches_must_be_whole_numbers(kind: torch.dtype, tmp_path: Path) -> None:
    count = "cas_pam.b2.1.num_batches_tracked"
    file = write(tmp_path / "c.pth", {**state_of("pasmnet"), count: torch.zeros((), dtype=kind)})
    with pytest.raises(ModelError, match=f"{count} is {kind}"):
        read_checkpoint(file)


@pytest.mark.parametrize("legacy", [False, True])
def test_damage_anywhere_is_a_model_error(legacy: bool, tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", {"state_dict": {"a": torch.zeros(9), "b": torch.ones(3)}}, legacy=legacy)
    content = file.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(256)
        file.write_bytes(damaged[: random.integers(1, len(content))] if random.random() < 0.3 else damaged)
        with pytest.raises(ModelError, match=re.escape(str(file))):
            read_checkpoint(file)
