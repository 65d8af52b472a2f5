"""--weights, --device, --precision: what cannot be had is refused with its exit code and what to do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pam_program import pam, refuse, unchanged
from safetensors.torch import load_file

from pamcli.registry.catalog import weights_folder
from pamcli.registry.load import save_network
from pamcli.registry.spec import ModelSpec, read_header

pytestmark = pytest.mark.usefixtures("networks", "pair")

COMMANDS = {
    "disparity": ["disparity", "left.png", "right.png", "-o", "x.npy"],
    "superres": ["superres", "left.png", "right.png", "-o", "x.png"],
}
both_commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


def shipped(name: str) -> Path:
    return weights_folder() / f"{name}.safetensors"


# --- weights --------------------------------------------------------------------------------------------


@both_commands
@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("pasmnett", ["unknown network 'pasmnett'", "did you mean pasmnet?"]),
        ("passrnet", ["did you mean passrnet-x", "known: pasmnet2, pasmnet, passrnet2-x2"]),
        ("nonsense", ["unknown network 'nonsense'", "known: pasmnet2"]),
        ("none.safetensors", ["none.safetensors does not exist", "pam weights list"]),
        ("./pasmnet", ["pasmnet does not exist"]),
        ("left.png", ["left.png is not a safetensors file"]),
    ],
)
def test_weights_that_are_none(command: list[str], weights: str, said: list[str]) -> None:
    with unchanged():
        refuse(pam(*command, "--weights", weights), 4, *said)


@both_commands
@pytest.mark.parametrize("name", ["net.pth", "net.pth.tar"])
def test_a_checkpoint_is_to_be_imported(command: list[str], name: str) -> None:
    torch.save({"state_dict": {}}, name)
    with unchanged():
        refuse(pam(*command, "--weights", name), 4, name, "pam weights import")


def test_the_network_of_the_other_command() -> None:
    with unchanged():
        run = pam(*COMMANDS["disparity"], "--weights", "passrnet-x4")
        refuse(run, 4, "is a passrnet, which does not match images", "use pasmnet")
        run = pam(*COMMANDS["superres"], "--weights", "pasmnet")
        refuse(run, 4, "is a pasmnet, which does not upscale images", "use passrnet2-x4")


@both_commands
def test_weights_that_are_cut_short(command: list[str]) -> None:
    name = {"disparity": "pasmnet", "superres": "passrnet-x4"}[command[0]]
    whole = shipped(name).read_bytes()
    for length in (0, 4, 1000, len(whole) - 1):
        Path("cut.safetensors").write_bytes(whole[:length])
        with unchanged():
            refuse(pam(*command, "--weights", "cut.safetensors"), 4, "cut.safetensors")


@both_commands
def test_weights_that_do_not_fit(command: list[str]) -> None:
    name = {"disparity": "pasmnet", "superres": "passrnet-x4"}[command[0]]
    state, spec = load_file(shipped(name)), read_header(shipped(name)).spec
    key = min(state)
    changes = {
        "is missing": {other: value for other, value in state.items() if other != key},
        "is unknown": {**state, "more": torch.zeros(1)},
        ", not [": {**state, key: torch.zeros(3)},
        "NaN or infinite values": {**state, key: torch.full_like(state[key], torch.nan)},
    }
    for said, changed in changes.items():
        save_network(changed, spec, Path("odd.safetensors"))
        with unchanged():
            refuse(pam(*command, "--weights", "odd.safetensors"), 4, "odd.safetensors", said)


def test_a_path_to_good_weights() -> None:
    shutil.copy(shipped("pasmnet"), "mine.safetensors")
    command = COMMANDS["disparity"]
    assert pam(*command, "--weights", "mine.safetensors").code == 0
    run = pam(*command, "--weights", "./mine.safetensors", "--overwrite", "--verbose")
    assert [line.partition(",")[0] for line in run.complaints] == ["./mine.safetensors: mine.safetensors"]
    assert "cpu, fp32, maximum disparity none" in run.stderr


def test_the_stored_maximum_disparity_is_the_default() -> None:
    save_network(
        load_file(shipped("pasmnet2")), ModelSpec("pasmnet2", max_disparity=16), Path("near.safetensors")
    )
    command = [*COMMANDS["disparity"], "--overwrite", "--device", "cpu"]
    found = {}
    near = "--weights near.safetensors"
    for options in (
        near,
        f"{near} --max-disparity 16",
        f"{near} --max-disparity none",
        "",
        "--max-disparity none",
    ):
        assert pam(*command, *options.split()).code == 0
        found[options] = np.load("x.npy")
    assert np.array_equal(found[near], found[f"{near} --max-disparity 16"])
    assert np.array_equal(found[f"{near} --max-disparity none"], found[""])
    assert np.array_equal(found["--max-disparity none"], found[""])
    assert not np.array_equal(found[near], found[""])


def test_a_scale_that_the_weights_do_not_have() -> None:
    with unchanged():
        for weights in ("passrnet-x4", shipped("passrnet-x4")):
            run = pam(*COMMANDS["superres"], "--weights", weights, "--scale", "8")
            refuse(run, 2, f"{weights} upscales by 4, not by 8", "omit --scale")


# --- device and precision -------------------------------------------------------------------------------


@both_commands
@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "", "CPU", "cuda:-1"])
def test_a_device_that_does_not_exist(command: list[str], device: str) -> None:
    with unchanged():
        run = pam(*command, "--device", device)
        refuse(run, 2, f"unknown --device {device!r}", "auto, cpu, cuda, cuda:N, mps")


@both_commands
def test_a_device_that_this_machine_has_not(command: list[str]) -> None:
    with unchanged():
        for device in ("cuda", "cuda:0", "cuda:99", "mps"):
            said = f"this machine has no {device}"
            refuse(pam(*command, "--device", device), 5, said, "use --device cpu")


@both_commands
def test_half_precision_on_the_cpu(command: list[str]) -> None:
    with unchanged():
        run = pam(*command, "--device", "cpu", "--precision", "fp16")
        refuse(run, 5, "fp16 requires a GPU", "--precision fp32 or bf16")
    run = pam(*command, "--device", "cpu", "--precision", "bf16", "--jsonl")
    assert run.code == 0
    assert (run.records[0]["device"], run.records[0]["precision"]) == ("cpu", "bf16")


def test_bf16_is_close_to_fp32_and_another_thing() -> None:
    command = [*COMMANDS["disparity"], "--device", "cpu", "--overwrite"]
    maps = []
    for precision in ("fp32", "auto", "bf16"):
        assert pam(*command, "--precision", precision).code == 0
        maps.append(np.load("x.npy"))
    assert np.array_equal(maps[0], maps[1])
    assert 0 < np.median(np.abs(maps[0] - maps[2])) < 0.5


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pamcli.networks.pasmnet2.PASMnet2.forward", exhausted)
    with unchanged():
        run = pam(*COMMANDS["disparity"], "--match-size", "1")
        refuse(run, 5, "left.png", "not enough memory", "96x64")


# --- memory ---------------------------------------------------------------------------------------------


@both_commands
def test_a_limit_of_memory_that_is_enough(command: list[str]) -> None:
    results = []
    for limit in ([], ["--max-memory", "8GB"], ["--max-memory", "7.5 gib"]):
        assert pam(*command, "--device", "cpu", "--overwrite", *limit).code == 0
        results.append(Path(command[-1]).read_bytes())
    assert results[0] == results[1] == results[2]


@both_commands
def test_a_limit_of_memory_that_is_too_low_names_one_that_would_do(command: list[str]) -> None:
    with unchanged():
        run = pam(*command, "--device", "cpu", "--max-memory", "20MB")
        said = refuse(
            run, 5, "left.png", "does not fit into --max-memory 20MB", "set --max-memory to at least"
        )
    least = re.search(r"set --max-memory to at least ([0-9.]+[MG]B)", said)
    assert least is not None
    size, unit = float(least[1][:-2]), least[1][-2:]
    assert pam(*command, "--device", "cpu", "--max-memory", f"{2 * size}{unit}").code == 0


@both_commands
@pytest.mark.parametrize("size", ["4", "4000000000", "GB", "0GB", "-4GB", "4 G", "4GBit", "1e3MB", "٤GB", ""])
def test_what_is_no_size_of_memory(command: list[str], size: str) -> None:
    with unchanged():
        refuse(pam(*command, "--max-memory", size), 2, "--max-memory must be", repr(size))
