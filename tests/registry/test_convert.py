"""Import of checkpoints in the authors' layout, and of what is none."""

from __future__ import annotations

import json
import os
import pickle
import re
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from network_states import IMPORTED, shipped, state_of
from torch import Tensor

from pamcli.errors import ModelError, UsageError
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.registry.catalog import sha256
from pamcli.registry.convert import read_checkpoint
from pamcli.registry.load import load_network, save_network

DATA = Path(__file__).parents[1] / "data"
X2 = "passrnet-x2"
LAST = "upscale.7.weight"


def write(path: Path, content: object, *, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def parallel(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name tensors as DataParallel does."""
    return OrderedDict((f"module.{key}", value) for key, value in state.items())


@pytest.mark.parametrize("name", IMPORTED)
@pytest.mark.parametrize(("record", "prefixed", "legacy"), [(False, False, True), (True, True, False)])
def test_a_checkpoint_is_recognised_and_kept_as_it_is(
    name: str, record: bool, prefixed: bool, legacy: bool, tmp_path: Path
) -> None:
    state = state_of(name)
    content: dict[str, Any] = parallel(state) if prefixed else OrderedDict(state)
    if record:
        content = {"epoch": 80, "state_dict": content}
    file = write(tmp_path / ("c.pth.tar" if record else "c.pth"), content, legacy=legacy)
    found = read_checkpoint(file, training="how", licence="MIT", version="3")
    assert found.spec.architecture == name.partition("-")[0]
    assert found.spec.scale == {"passrnet-x2": 2, "passrnet-x4": 4}.get(name)
    assert found.spec.max_disparity is None
    assert (found.spec.training, found.spec.licence, found.spec.version) == ("how", "MIT", "3")
    assert found.spec.source == f"{file.name}, sha256 {sha256(file)}"
    assert found.state.keys() == state.keys()
    for key, value in found.state.items():
        assert value.dtype == state[key].dtype
        assert torch.equal(value, state[key])


@pytest.mark.parametrize("name", IMPORTED)
def test_the_layout_is_that_of_the_authors(name: str) -> None:
    layout = json.loads((DATA / f"{name.replace('-', '_')}_keys.json").read_text())
    state = state_of(name) if name != "pasmnet2" else PASMnet2("wide").state_dict()
    shapes = {key: list(value.shape) for key, value in state.items()}
    # The prototype of PASMnet 2 did not say how far off it may be.
    assert {key: shape for key, shape in shapes.items() if not key.startswith("error_scale.")} == layout


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_importing_keeps_the_precision_and_loading_gives_the_same_tensors(
    kind: torch.dtype, tmp_path: Path
) -> None:
    state = {key: value.to(kind) for key, value in state_of(X2).items()}
    found = read_checkpoint(write(tmp_path / "c.pth", state))
    file = tmp_path / "w.safetensors"
    save_network(found.state, found.spec, file)
    assert {value.dtype for value in safetensors.torch.load_file(file).values()} == {kind}
    network, spec = load_network(file)
    assert spec == found.spec
    for key, value in network.state_dict().items():
        assert torch.equal(value, state[key].float())


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
    assert read_checkpoint(write(tmp_path / "c.pth.tar", record)).state.keys() == state.keys()


def test_scalars_of_numpy_1_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth.tar", {"psnr": np.float64(25.8), "state_dict": state_of(X2)}, legacy=True)
    content = file.read_bytes()
    assert b"cnumpy._core.multiarray\nscalar\n" in content
    file.write_bytes(content.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    assert read_checkpoint(file).spec.scale == 2


def test_a_safetensors_file_without_description_is_imported_too(tmp_path: Path) -> None:
    """What the message about such a file advises."""
    state = state_of(X2)
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match="pam weights import"):
        load_network(tmp_path / "w.safetensors")
    assert read_checkpoint(tmp_path / "w.safetensors").spec.scale == 2
    (tmp_path / "w.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-1])
    with pytest.raises(ModelError, match="is not a PyTorch checkpoint, or is damaged"):
        read_checkpoint(tmp_path / "w.safetensors")


def test_a_file_of_pam_is_not_imported_again() -> None:
    """Its description, the prior included, would be lost."""
    with pytest.raises(UsageError, match=r"passrnet-x2.safetensors is already a weights file of pam"):
        read_checkpoint(shipped(X2))


def test_the_prior_is_recorded(tmp_path: Path) -> None:
    file = write(tmp_path / "PASMnet_192.pth.tar", {"state_dict": state_of("pasmnet")})
    assert read_checkpoint(file, max_disparity=192).spec.max_disparity == 192
    with pytest.raises(UsageError, match="`max_disparity` must be a multiple of 16 px, got 100"):
        read_checkpoint(file, max_disparity=100)


def test_a_prior_of_a_passrnet_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", state_of(X2))
    with pytest.raises(UsageError, match=r"c.pth holds a passrnet, which has no maximum disparity") as caught:
        read_checkpoint(file, max_disparity=192)
    assert caught.value.exit_code == 2


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


def test_code_in_a_bare_pickle_does_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made by the pickle"
    file = tmp_path / "c.pth"
    file.write_bytes(pickle.dumps(MakesFolder(made)))
    with pytest.raises(ModelError, match=re.escape(str(file))):
        read_checkpoint(file)
    assert not made.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"layer1.0.weight": torch.zeros(2)},
            r"is neither a PASMnet nor a PASSRnet \(first keys: layer1.0.we",
        ),
        ({}, "has no state dict"),
        ([torch.zeros(2)], "has no state dict"),
        (torch.zeros(2), "has no state dict"),
        ({"epoch": 80}, "has no state dict"),
        ({"state_dict": {}}, "has no state dict"),
        ({"state_dict": None}, "has no state dict"),
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


@pytest.mark.parametrize("shape", [(), (0, 64, 1, 1), (64, 64, 1, 1), (70, 64, 1, 1), (64 * 25, 64, 1, 1)])
def test_a_scale_that_cannot_be_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", {**state_of(X2), "upscale.4.weight": torch.zeros(shape)})
    with pytest.raises(ModelError, match=r"c.pth is neither a PASMnet nor a PASSRnet"):
        read_checkpoint(file)


COUNT = "cas_pam.b2.1.num_batches_tracked"
ODD_COUNTS = (torch.bool, torch.float8_e4m3fn)


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"refine.disp.3.weight": None}, "refine.disp.3.weight is missing"),
        ({"refine.more": torch.zeros(2)}, "refine.more is unknown"),
        ({"refine.disp.3.weight": torch.zeros(2, 16, 3, 3)}, r"is \[2, 16, 3, 3\], not \[1, 16, 3, 3\]"),
        ({"refine.disp.3.weight": torch.full((1, 16, 3, 3), torch.nan)}, "NaN or infinite values"),
        ({"refine.disp.3.weight": torch.zeros(1, 16, 3, 3).to_sparse()}, "must be a dense tensor"),
        ({COUNT: torch.empty((), dtype=torch.int64, device="meta")}, "must be a dense tensor"),
        ({COUNT: nested()}, "must be a dense tensor"),
        *(({COUNT: torch.zeros((), dtype=kind)}, f"{COUNT} is {kind}") for kind in ODD_COUNTS),
        ({"refine.disp.3.weight": torch.zeros(1, 16, 3, 3, dtype=torch.int32)}, "is torch.int32"),
        ({"refine.disp.3.weight": torch.zeros(1, 16, 3, 3).to(torch.float8_e4m3fn)}, "is torch.float8"),
    ],
)
def test_a_pasmnet_that_is_not_quite_one_is_refused(
    change: dict[str, Tensor | None], words: str, tmp_path: Path
) -> None:
    state = {k: v for k, v in {**state_of("pasmnet"), **change}.items() if v is not None}
    file = write(tmp_path / "c.pth", state)
    with pytest.raises(ModelError, match=words) as caught:
        read_checkpoint(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"a text file\n" * 50, bytes(1000)])
def test_what_is_no_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "c.pth"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"(is not a PyTorch checkpoint|is damaged)") as caught:
        read_checkpoint(file)
    assert str(file) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("legacy", [False, True])
def test_damage_anywhere_is_a_model_error(legacy: bool, tmp_path: Path) -> None:
    file = write(tmp_path / "c.pth", {"state_dict": {"a": torch.zeros(9), "b": torch.ones(3)}}, legacy=legacy)
    content = file.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(256)
        file.write_bytes(damaged[: random.integers(1, len(content))] if random.random() < 0.3 else damaged)
        with pytest.raises(ModelError, match=re.escape(str(file))):
            read_checkpoint(file)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.pth does not exist"):
        read_checkpoint(tmp_path / "none.pth")
    with pytest.raises(ModelError, match=f"cannot read {tmp_path}: Is a directory"):
        read_checkpoint(tmp_path)
