"""--weights, --device, --precision: what cannot be had is refused with its exit code and what to do."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import foreign_networks
import numpy as np
import pytest
import torch
from pam_program import pam, refuse, refuse_all, succeed, unchanged
from PIL import Image
from safetensors.torch import load_file

from pamcli.registry.catalog import SHIPPED, ModelSpec
from pamcli.registry.load import save_network

pytestmark = pytest.mark.usefixtures("networks", "small_pair")

DISPARITY = ["disparity", "left.png", "right.png", "-o", "x.npy"]


SUPERRES = ["superres", "left.png", "right.png", "-o", "x.png"]


def shipped(name: str) -> Path:
    return SHIPPED / f"{name}.safetensors"


def test_what_cannot_be_had() -> None:
    for name in ("net.pth", "net.pth.tar"):
        torch.save({"state_dict": {}}, name)
    cut = shipped("pasmnet").read_bytes()
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
    refuse_all(table, *DISPARITY)
    table = """
        4 --weights nonsense | unknown network 'nonsense' | known: pasmnet2
        2 --device gpu | unknown --device | auto, cpu, cuda, cuda:N, mps
        5 --device cuda | this machine has no cuda | use --device cpu
        2 --max-memory GB | --max-memory must be a number and MB
    """
    refuse_all(table, *SUPERRES)


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
    succeed(*DISPARITY, "--weights", "mine.safetensors")
    run = pam(*DISPARITY, "--weights", "./mine.safetensors", "--overwrite", "--verbose")
    assert [line.partition(",")[0] for line in run.complaints] == ["./mine.safetensors: mine.safetensors"]
    assert "cpu, fp32, maximum disparity none" in run.stderr


def test_the_stored_maximum_disparity_is_the_default() -> None:
    spec = ModelSpec("pasmnet2", max_disparity=16)
    save_network(load_file(shipped("pasmnet2")), spec, Path("near.safetensors"))
    found = []
    near = ["--weights", "near.safetensors"]
    for options in (near, [*near, "--max-disparity", "16"], [*near, "--max-disparity", "none"], []):
        succeed(*DISPARITY, "--overwrite", "--device", "cpu", *options)
        found.append(np.load("x.npy"))
    stored, limited, unlimited, plain = found
    assert np.array_equal(stored, limited)
    assert np.array_equal(unlimited, plain)
    assert not np.array_equal(stored, plain)


def test_a_pytorch_network_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mynetwork.py").write_text(foreign_networks.AS_MODULE)
    monkeypatch.syspath_prepend(".")
    described = foreign_networks.DESCRIBED.format(name="net", size="free").replace("disparities", "0")
    Path("both.toml").write_text(described)
    Path("mine.toml").write_text(described.partition("\n")[2])  # without the network
    run = succeed(*DISPARITY, "--device", "cpu", "--weights", "mine.toml", "--network-from", "mynetwork:make")
    assert "mynetwork:make runs in PyTorch on cpu, fp32" in run.stderr
    left, right = (
        torch.from_numpy(np.asarray(Image.open(f"{side}.png"), np.float32) / 255).permute(2, 0, 1)[None]
        for side in ("left", "right")
    )
    expected = importlib.import_module("mynetwork").make()(left, right)[0, 0].numpy()
    assert np.abs(np.load("x.npy") - expected).max() < 1e-4
    table = """
        2 --weights mine.toml --network-from mynetwork | MODULE:FUNCTION
        2 --weights mine.toml --network-from nowhere_at_all:make | no module nowhere_at_all
        2 --weights mine.toml --network-from mynetwork:other | mynetwork has no other
        4 --weights mine.toml --network-from mynetwork:torch | mynetwork:torch fails: TypeError
        2 --weights mine.toml | mine.toml does not name a network | --network-from
        2 --weights both.toml --network-from mynetwork:make | --network-from mynetwork:make | omit one
        2 --network-from mynetwork:make | requires a description as --weights
    """
    refuse_all(table, *DISPARITY, "--overwrite")
    table = """
        2 mine.toml | mine.toml does not name a network | add --network-from MODULE:FUNCTION
        2 both.toml --network-from mynetwork:make | cannot use both --network-from mynetwork:make | omit one
        2 net.onnx --network-from mynetwork:make | NET.onnx and --network-from
    """
    refuse_all(table, "weights describe -o again.toml")
    again = "weights describe mine.toml -o mine.toml --overwrite --device cpu"
    run = pam(again, "--network-from", "mynetwork:make")
    assert (run.code, run.lines) == (0, ["mine.toml", "mine.png"]), run.stderr
    assert "white = 1" in Path("mine.toml").read_text()


def test_half_precision_on_the_cpu() -> None:
    maps = []
    for precision, used in (("auto", "fp32"), ("bf16", "bf16")):
        run = succeed(*DISPARITY, "--device", "cpu", "--overwrite", "--jsonl", "--precision", precision)
        assert (run.records[0]["device"], run.records[0]["precision"]) == ("cpu", used)
        maps.append(np.load("x.npy"))
    assert 0 < np.median(np.abs(maps[0] - maps[1])) < 0.5


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pamcli.networks.pasmnet2.PASMnet2.forward", exhausted)
    with unchanged():
        run = pam(*DISPARITY, "--match-size", "1")
        refuse(run, 5, "left.png", "not enough memory", "48x32")


@pytest.mark.parametrize("command", [DISPARITY, SUPERRES], ids=["disparity", "superres"])
def test_a_limit_of_memory_that_is_too_low_names_one_that_would_do(command: list[str]) -> None:
    command = [*command, "--device", "cpu", "--max-memory"]
    low = "does not fit into --max-memory 20MB", "set --max-memory to at least"
    with unchanged():
        said = refuse(pam(*command, "20MB"), 5, "left.png", *low)
    least = re.search(r"set --max-memory to at least ([0-9.]+[MG]B)", said)
    size, unit = float(least[1][:-2]), least[1][-2:]
    succeed(*command, f"{2 * size}{unit}")
    result = Path(command[4]).read_bytes()
    succeed(*command, "7.5 gib", "--overwrite")
    assert Path(command[4]).read_bytes() == result
