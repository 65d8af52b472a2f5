"""--weights, --device, --precision: what cannot be had is refused with its exit code and what to do."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pam_program import pam, refuse, refuse_all, unchanged
from PIL import Image
from safetensors.torch import load_file

from pamcli.registry.catalog import SHIPPED
from pamcli.registry.load import save_network
from pamcli.registry.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("networks", "small_pair")

COMMANDS = {
    "disparity": ["disparity", "left.png", "right.png", "-o", "x.npy"],
    "superres": ["superres", "left.png", "right.png", "-o", "x.png"],
}
both_commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


def shipped(name: str) -> Path:
    return SHIPPED / f"{name}.safetensors"


# --- weights --------------------------------------------------------------------------------------------


@both_commands
def test_what_cannot_be_had(command: list[str]) -> None:
    for name in ("net.pth", "net.pth.tar"):
        torch.save({"state_dict": {}}, name)
    cut = shipped({"disparity": "pasmnet", "superres": "passrnet-x4"}[command[0]]).read_bytes()
    for length in (0, 4, 1000, len(cut) - 1):
        Path(f"cut{length}.safetensors").write_bytes(cut[:length])
    table = """
        4 --weights pasmnett | unknown network 'pasmnett' | did you mean pasmnet?
        4 --weights passrnet | did you mean passrnet-x | known: pasmnet2, pasmnet, passrnet2-x2
        4 --weights nonsense | unknown network 'nonsense' | known: pasmnet2
        4 --weights none.safetensors | none.safetensors does not exist | pam weights list
        4 --weights ./pasmnet | pasmnet does not exist
        4 --weights left.png | left.png is not a safetensors file
        4 --weights net.pth | net.pth | pam weights import
        4 --weights net.pth.tar | net.pth.tar | pam weights import
        5 --device cpu --precision fp16 | fp16 requires a GPU | --precision fp32 or bf16
    """
    for path in Path().glob("cut*"):
        table += f"\n 4 --weights {path} | {path}"
    for device in ("gpu", "cuda:", "cuda:x", "''", "CPU", "cuda:-1"):
        table += f"\n 2 --device {device} | unknown --device | auto, cpu, cuda, cuda:N, mps"
    for device in ("cuda", "cuda:0", "cuda:99", "mps"):
        table += f"\n 5 --device {device} | this machine has no {device} | use --device cpu"
    for size in ("4", "4000000000", "GB", "0GB", "-4GB", "'4 G'", "4GBit", "1e3MB", "٤GB", "''"):
        table += f"\n 2 --max-memory {size} | --max-memory must be a number and MB"
    refuse_all(table, *command)


def test_networks_of_the_other_command_and_scale() -> None:
    table = f"""
        4 disparity -o x.npy --weights passrnet-x4 | is a passrnet, which does not match images | use pasmnet
        4 superres -o x.png --weights pasmnet | is a pasmnet, which does not upscale images | use passrnet2-x4
        2 superres -o x.png --weights passrnet-x4 --scale 8 | passrnet-x4 upscales by 4, not by 8 | omit
        2 superres -o x.png --weights {shipped("passrnet-x4")} --scale 8 | upscales by 4, not by 8
    """
    refuse_all(table.replace(" -o", " left.png right.png -o"))


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


# --- device and precision -------------------------------------------------------------------------------


@both_commands
def test_half_precision_on_the_cpu(command: list[str]) -> None:
    if command[0] == "superres":
        for name in ("left.png", "right.png"):  # bf16 is slow where the processor lacks it
            Image.open(name).crop((0, 0, 24, 16)).save(name)
    results = {}
    for precision, used in (("fp32", "fp32"), ("auto", "fp32"), ("bf16", "bf16")):
        run = pam(*command, "--device", "cpu", "--overwrite", "--jsonl", "--precision", precision)
        assert run.code == 0
        assert (run.records[0]["device"], run.records[0]["precision"]) == ("cpu", used)
        results[precision] = Path(command[-1]).read_bytes()
    assert results["fp32"] == results["auto"] != results["bf16"]
    if command[0] == "disparity":
        maps = [np.load(io.BytesIO(results[precision])) for precision in ("fp32", "bf16")]
        assert np.median(np.abs(maps[0] - maps[1])) < 0.5


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pamcli.networks.pasmnet2.PASMnet2.forward", exhausted)
    with unchanged():
        run = pam(*COMMANDS["disparity"], "--match-size", "1")
        refuse(run, 5, "left.png", "not enough memory", "48x32")


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
    size, unit = float(least[1][:-2]), least[1][-2:]
    assert pam(*command, "--device", "cpu", "--max-memory", f"{2 * size}{unit}").code == 0
