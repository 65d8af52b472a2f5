"""pam weights list, info, verify, import."""

from __future__ import annotations

import os
import re
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from pam_program import Run, names, pam, refuse, refuse_all, succeed
from safetensors.torch import load_file, save_file

from pamcli.registry import catalog
from pamcli.registry.catalog import SHIPPED, ModelSpec, read_header, recorded_sha256, sha256
from pamcli.registry.load import save_network

NAMES = list(catalog.REGISTERED)
OUTPUT = ["-o", "new.safetensors"]


def shipped(name: str) -> Path:
    return SHIPPED / f"{name}.safetensors"


@pytest.fixture
def checkpoint(here: Path) -> str:
    """A checkpoint of a PASSRnet x2 as the authors' training writes it."""
    state = OrderedDict((f"module.{key}", value) for key, value in load_file(shipped("passrnet-x2")).items())
    torch.save({"epoch": 80, "state_dict": state}, "c.pth.tar")
    return "c.pth.tar"


def value_of(run: Run, key: str) -> str:
    """The value beside a key of `info`."""
    (line,) = (line for line in run.lines if line.startswith(f"{key} "))
    return line.removeprefix(key).strip()


def test_list_is_a_table_of_the_registered_networks() -> None:
    run = pam("weights", "list")
    assert (run.code, run.stderr) == (0, "")
    head, *rows = run.lines
    assert head.split() == ["NAME", "SIZE", "STORED", "VERSION", "LICENCE", "PURPOSE"]
    records = pam("weights", "list", "--jsonl").records
    assert [record["name"] for record in records] == NAMES
    for name, row, record in zip(NAMES, rows, records, strict=True):
        size, scale = shipped(name).stat().st_size, name.partition("-x")[2]
        cells = re.split(r"  +", row)
        assert [*cells[:3], cells[4]] == [name, f"{size / 1e6:.1f} MB", "fp16", "MIT"]
        assert row.index("MIT") == head.index("LICENCE")
        assert [record[key] for key in ("bytes", "precision", "licence")] == [size, "fp16", "MIT"]
        assert record["architecture"] == name.partition("-")[0]
        assert record["scale"] == (int(scale) if scale else None)


def test_info_of_a_name_says_all_there_is() -> None:
    run = pam("weights", "info", "passrnet-x2")
    assert (run.code, run.stderr) == (0, "")
    file = shipped("passrnet-x2")
    spec = read_header(file).spec
    assert value_of(run, "name") == "passrnet-x2"
    assert value_of(run, "architecture") == spec.architecture
    assert value_of(run, "licence") == "MIT"
    assert value_of(run, "training") == spec.training
    assert value_of(run, "path") == str(file)
    assert value_of(run, "sha256") == recorded_sha256("passrnet-x2") == sha256(file)
    assert "max disparity" not in run.stdout.decode(), "what is absent is left out"


def test_info_of_a_path(here: Path) -> None:
    spec = ModelSpec("pasmnet", max_disparity=192, source="here", training="two\nlines, “quoted”")
    save_network(load_file(shipped("pasmnet")), spec, Path("mine.safetensors"))
    run = succeed("weights", "info", "mine.safetensors")
    assert value_of(run, "max disparity") == "192"
    assert value_of(run, "path") == "mine.safetensors"
    assert value_of(run, "licence") == "unknown"
    assert value_of(run, "parameters") == f"{read_header(shipped('pasmnet')).parameters} (7.82M)"
    (record,) = pam("weights info mine.safetensors --json").records
    assert (record["training"], record["scale"], record["max_disparity"]) == (spec.training, None, 192)
    assert record["sha256"] == sha256(Path("mine.safetensors"))
    state = load_file(shipped("passrnet-x2"))
    state["upscale.4.weight"][0, 0, 0, 0] = -torch.inf
    save_network(state, ModelSpec("passrnet", scale=2), Path("odd.safetensors"))
    run = succeed("weights", "info", "odd.safetensors")
    assert value_of(run, "not finite") == "NaN or infinite values in 1 tensor: upscale.4.weight"


def test_verify_checks_all_that_come_with_pam(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pam("weights", "verify")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == [f"{name}: ok, sha256 {recorded_sha256(name)}" for name in NAMES]
    # A change that leaves a working network: only the checksum tells.
    Path("weights").mkdir()
    shutil.copy(SHIPPED / "SHA256SUMS", "weights")
    monkeypatch.setattr(catalog, "SHIPPED", here / "weights")
    content = bytearray(shipped("passrnet-x2").read_bytes())
    content[-2] ^= 1
    Path("weights/passrnet-x2.safetensors").write_bytes(content)
    run = pam("weights", "verify", "passrnet-x2")
    refuse(run, 4, "passrnet-x2.safetensors", "sha256 differs", "reinstall pam")


def test_verify_goes_on_past_what_is_damaged(here: Path) -> None:
    shutil.copy(shipped("passrnet-x4"), "mine.safetensors")
    Path("cut.safetensors").write_bytes(shipped("passrnet-x2").read_bytes()[:-1])
    run = pam("weights verify none.safetensors passrnet-x2 mine.safetensors cut.safetensors")
    assert run.code == 4
    assert run.lines == [
        f"passrnet-x2: ok, sha256 {recorded_sha256('passrnet-x2')}",
        f"mine.safetensors: ok, sha256 {recorded_sha256('passrnet-x4')}",
    ]
    assert len(run.complaints) == 2
    assert run.complaints[0].startswith("error: none.safetensors: ")
    assert run.complaints[1].startswith("error: cut.safetensors is not ")


def test_import_recognises_the_network_and_says_so(checkpoint: str) -> None:
    run = succeed("weights", "import", checkpoint, *OUTPUT)
    assert run.lines == ["new.safetensors"]
    assert run.complaints == ["c.pth.tar holds a passrnet x2, 52 tensors"]
    header = read_header(Path("new.safetensors"))
    source = f"c.pth.tar, sha256 {sha256(Path(checkpoint))}"
    assert (header.spec, header.precision) == (ModelSpec("passrnet", scale=2, source=source), "fp16")
    expected, found = load_file(shipped("passrnet-x2")), load_file("new.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in found)
    assert names(".") == ["c.pth.tar", "new.safetensors"]


def test_import_in_half_the_bytes(here: Path) -> None:
    exact = {key: value.float() for key, value in load_file(shipped("passrnet-x2")).items()}
    torch.save(exact, "whole.pth")
    for name, options in (("whole", []), ("half", ["--half"])):
        succeed("weights", "import", "whole.pth", "-o", f"{name}.safetensors", *options)
    whole, half = Path("whole.safetensors"), Path("half.safetensors")
    assert [read_header(path).precision for path in (whole, half)] == ["fp32", "fp16"]
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    halved = load_file(half)
    assert all(torch.equal(halved[key].to(value.dtype), value) for key, value in exact.items())


def test_import_stores_what_it_is_told(here: Path) -> None:
    torch.save(load_file(shipped("pasmnet")), "PASMnet_192.pth")
    told = ["--max-disparity", "192", "--training", "KITTI, 80 epochs", "--licence", "CC0", "--version", "7"]
    run = succeed("weights", "import", "PASMnet_192.pth", "-o", "deep/in/pasm.safetensors", *told)
    assert run.complaints == ["PASMnet_192.pth holds a pasmnet, 706 tensors"]
    spec = read_header(Path("deep/in/pasm.safetensors")).spec
    found = (spec.max_disparity, spec.training, spec.licence, spec.version)
    assert found == (192, "KITTI, 80 epochs", "CC0", "7")


def test_import_writes_only_where_and_what_it_can(checkpoint: str) -> None:
    Path("new.safetensors").write_bytes(b"precious")
    os.symlink("nowhere", "link.safetensors")
    os.mkdir("folder.safetensors")
    table = f"""
        2 -o new.safetensors | new.safetensors already exists | --overwrite
        2 -o link.safetensors | link.safetensors already exists | --overwrite
        2 -o new.pth | must end in .safetensors
        2 -o new | must end in .safetensors
        2 -o new.SAFE | must end in .safetensors
        2 -o folder/ | must end in .safetensors
        2 -o folder.safetensors | folder.safetensors is a folder
        2 -o folder.safetensors --overwrite | folder.safetensors is a folder
        7 -o c.pth.tar/new.safetensors | cannot write c.pth.tar/new.safetensors
        7 -o {"x" * 300}.safetensors | cannot write | a shorter file name
        2 | Missing option '--output'
        2 -o n.safetensors --max-disparity=100 | --max-disparity must be a multiple of 16 px, got 100
        2 -o n.safetensors --max-disparity=0 | must be a positive whole number or none, got '0'
        2 -o n.safetensors --max-disparity=-16 | must be a positive whole number or none, got '-16'
        2 -o n.safetensors --max-disparity=many | must be a positive whole number or none, got 'many'
        2 -o n.safetensors --max-disparity=192 | c.pth.tar holds a passrnet, which has no maximum disparity
    """
    refuse_all(table, "weights import", checkpoint)
    succeed("weights import --overwrite --max-disparity none", checkpoint, *OUTPUT)
    assert read_header(Path("new.safetensors")).spec.scale == 2


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_files_that_are_no_weights(checkpoint: str) -> None:
    torch.save({"conv1.weight": torch.zeros(3)}, "other.pth")
    torch.jit.script(torch.nn.Linear(2, 2)).save("scripted.pt")
    save_file({"conv1.weight": torch.zeros(3)}, "other.safetensors")
    Path("run/checkpoints").mkdir(parents=True)
    torch.save({"step": 1}, "run/checkpoints/step-00000001.pt")
    for name in ("empty.safetensors", "empty.pth", "other.toml"):
        Path(name).touch()
    Path("text.pth").write_text("not a checkpoint\n" * 20)
    Path("cut.safetensors").write_bytes(shipped("passrnet-x2").read_bytes()[:-1])
    state = load_file(shipped("passrnet-x2"))
    state["upscale.7.weight"] = torch.full((3, 3, 3, 3), torch.nan)
    save_network(state, ModelSpec("passrnet", scale=2), Path("nan.safetensors"))
    table = """
        4 info pasmnett | unknown network 'pasmnett' | did you mean pasmnet?
        4 info none.safetensors | none.safetensors does not exist | pam weights list
        4 info none.safetensors --json | none.safetensors does not exist
        4 info ./run | run is a folder, not a weights file | last.safetensors
        4 info c.pth.tar | c.pth.tar is not a safetensors file | pam weights import | pam guide own-network
        4 info empty.safetensors | empty.safetensors is not a safetensors file
        4 info run/checkpoints/step-00000001.pt | last.safetensors
        4 verify run/checkpoints/step-00000001.pt | last.safetensors
        4 verify cut.safetensors | error: cut.safetensors is not | is damaged
        4 verify nan.safetensors | nan.safetensors | NaN or infinite values
        4 verify none.safetensors | none.safetensors does not exist
        2 verify hf:owner/net.pth | is not a Hub address
        2 export other.toml -o net.onnx | got other.toml | own-network
        4 export none.toml -o net.onnx | none.toml
        4 import none.pth -o new.safetensors | checkpoint none.pth does not exist
        4 import . -o new.safetensors | cannot read .: Is a directory
        4 import empty.pth -o new.safetensors | empty.pth is not a PyTorch checkpoint, or is damaged
        4 import text.pth -o new.safetensors | text.pth is damaged, or holds Python objects
        4 import other.pth -o new.safetensors | is neither a PASMnet nor a PASSRnet (first keys: conv1.weight)
        2 import nan.safetensors -o new.safetensors | is already a weights file of pam | use it directly
    """
    for name in ("other.pth", "scripted.pt", "other.safetensors"):
        table += f"\n 4 import {name} -o new.safetensors | {name} | pam guide own-network"
        table += f"\n 4 info {name} | {name} | pam guide own-network"
        table += f"\n 2 describe {name} -o n.toml | {name} must be an .onnx file or a description | MODULE:F"
    refuse_all(table, "weights")
