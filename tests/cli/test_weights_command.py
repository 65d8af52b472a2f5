"""pam weights list, info, verify, import."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import OrderedDict
from pathlib import Path

import foreign_networks
import pytest
import torch
from pam_program import Run, files, names, pam, refuse, unchanged
from safetensors.torch import load_file, save_file

from pamcli.registry import catalog
from pamcli.registry.catalog import recorded_sha256, sha256, weights_folder
from pamcli.registry.load import load_network, save_network
from pamcli.registry.spec import ModelSpec, read_header

NAMES = list(catalog.REGISTERED)
OUTPUT = ["-o", "new.safetensors"]


def shipped(name: str) -> Path:
    return weights_folder() / f"{name}.safetensors"


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


# --- list ---------------------------------------------------------------------------------------------------


def test_list_is_a_table_of_the_registered_networks() -> None:
    run = pam("weights", "list")
    assert (run.code, run.stderr) == (0, "")
    head, *rows = run.lines
    assert head.split() == ["NAME", "SIZE", "STORED", "VERSION", "LICENCE", "PURPOSE"]
    assert [row.split()[0] for row in rows] == NAMES
    for name, row in zip(NAMES, rows, strict=True):
        cells = re.split(r"  +", row)
        assert cells[:3] == [name, f"{shipped(name).stat().st_size / 1e6:.1f} MB", "fp16"]
        assert cells[4] == "MIT"
        assert row.index("MIT") == head.index("LICENCE")
        assert row == row.rstrip()


def test_list_as_json_is_one_object_a_line() -> None:
    run = pam("weights", "list", "--jsonl")
    assert (run.code, run.stderr) == (0, "")
    assert [record["name"] for record in run.records] == NAMES
    for record in run.records:
        assert record["bytes"] == shipped(record["name"]).stat().st_size
        assert record["precision"] == "fp16"
        assert record["parameters"] > 400_000
        assert record["licence"] == "MIT"
        assert record["architecture"] == record["name"].partition("-")[0]
    for record in run.records:
        scale = record["name"].partition("-x")[2]
        assert record["scale"] == (int(scale) if scale else None)


# --- info ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_info_of_a_name_says_all_there_is(name: str) -> None:
    run = pam("weights", "info", name)
    assert (run.code, run.stderr) == (0, "")
    spec = read_header(shipped(name)).spec
    assert value_of(run, "name") == name
    assert value_of(run, "architecture") == spec.architecture
    assert value_of(run, "licence") == "MIT"
    assert value_of(run, "training") == spec.training
    assert value_of(run, "path") == str(shipped(name))
    assert value_of(run, "sha256") == recorded_sha256(name) == sha256(shipped(name))
    assert "max disparity" not in run.stdout.decode(), "what is absent is left out"


def test_info_as_json_has_the_same() -> None:
    run = pam("weights", "info", "passrnet-x4", "--json")
    (record,) = run.records
    assert record["name"] == "passrnet-x4"
    assert record["scale"] == 4
    assert record["max_disparity"] is None
    assert record["sha256"] == recorded_sha256("passrnet-x4")
    assert record["path"] == str(shipped("passrnet-x4"))


def test_info_of_a_path(here: Path) -> None:
    spec = ModelSpec("pasmnet", max_disparity=192, source="here")
    save_network(load_file(shipped("pasmnet")), spec, Path("mine.safetensors"))
    run = pam("weights", "info", "mine.safetensors")
    assert run.code == 0
    assert value_of(run, "max disparity") == "192"
    assert value_of(run, "path") == "mine.safetensors"
    assert value_of(run, "licence") == "unknown"
    assert value_of(run, "parameters") == f"{read_header(shipped('pasmnet')).parameters} (7.82M)"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("pasmnett", ["unknown network 'pasmnett'", "did you mean pasmnet?"]),
        ("none.safetensors", ["none.safetensors does not exist", "pam weights list"]),
        (".", ["is not a safetensors file, or is damaged: it is a directory"]),
        ("c.pth.tar", ["c.pth.tar is not a safetensors file", "pam weights import", "pam guide own-network"]),
        ("empty.safetensors", ["empty.safetensors is not a safetensors file"]),
    ],
)
def test_info_of_what_is_none(checkpoint: str, weights: str, said: list[str]) -> None:
    Path("empty.safetensors").touch()
    for option in ([], ["--json"]):
        refuse(pam("weights", "info", weights, *option), 4, *said)


# --- verify -------------------------------------------------------------------------------------------------


def test_verify_checks_all_that_come_with_pam() -> None:
    run = pam("weights", "verify")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines == [f"{name}: ok, sha256 {recorded_sha256(name)}" for name in NAMES]


def test_verify_of_some() -> None:
    shutil.copy(shipped("passrnet-x2"), "mine.safetensors")
    run = pam("weights", "verify", "mine.safetensors", "passrnet-x4")
    assert run.code == 0
    assert run.lines == [
        f"mine.safetensors: ok, sha256 {recorded_sha256('passrnet-x2')}",
        f"passrnet-x4: ok, sha256 {recorded_sha256('passrnet-x4')}",
    ]


def test_verify_of_one_that_is_damaged() -> None:
    content = shipped("passrnet-x2").read_bytes()
    Path("cut.safetensors").write_bytes(content[:-1])
    refuse(pam("weights", "verify", "cut.safetensors"), 4, "cut.safetensors", "is damaged")
    state = load_file(shipped("passrnet-x2"))
    state["upscale.7.weight"] = torch.full((3, 3, 3, 3), torch.nan)
    save_network(state, ModelSpec("passrnet", scale=2), Path("nan.safetensors"))
    refuse(pam("weights", "verify", "nan.safetensors"), 4, "nan.safetensors", "NaN or infinite values")
    refuse(pam("weights", "verify", "none.safetensors"), 4, "none.safetensors does not exist")
    refuse(pam("weights", "verify", "hf:owner/net.pth"), 2, "is not a Hub address")
    damaged = pam("weights", "verify", "cut.safetensors").complaints
    assert damaged[0].count("cut.safetensors") == 1


def test_verify_goes_on_past_what_is_damaged(here: Path) -> None:
    Path("cut.safetensors").write_bytes(shipped("passrnet-x2").read_bytes()[:-1])
    run = pam("weights", "verify", "none.safetensors", "passrnet-x2", "cut.safetensors")
    assert run.code == 4
    assert run.lines == [f"passrnet-x2: ok, sha256 {recorded_sha256('passrnet-x2')}"]
    assert len(run.complaints) == 2
    assert run.complaints[0].startswith("error: none.safetensors: ")
    assert run.complaints[1].startswith("error: cut.safetensors is not ")


def test_verify_sees_that_a_shipped_file_was_changed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that leaves a working network: only the checksum tells."""
    shutil.copytree(weights_folder(), "weights")
    monkeypatch.setattr(catalog, "weights_folder", lambda: here / "weights")
    file = here / "weights" / "passrnet-x2.safetensors"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    load_network(file)
    refuse(pam("weights", "verify", "passrnet-x2"), 4, str(file), "sha256 differs", "reinstall pam")
    run = pam("weights", "verify")
    assert run.code == 4
    whole = [name for name in catalog.REGISTERED if name != "passrnet-x2"]
    assert [line.partition(":")[0] for line in run.lines] == whole


# --- import -------------------------------------------------------------------------------------------------


def test_import_recognises_the_network_and_says_so(checkpoint: str) -> None:
    run = pam("weights", "import", checkpoint, *OUTPUT)
    assert run.code == 0
    assert run.lines == ["new.safetensors"]
    assert run.complaints == ["c.pth.tar holds a passrnet x2, 52 tensors"]
    header = read_header(Path("new.safetensors"))
    assert header.spec == ModelSpec(
        "passrnet", scale=2, source=f"c.pth.tar, sha256 {sha256(Path(checkpoint))}"
    )
    assert header.precision == "fp16"
    expected = load_file(shipped("passrnet-x2"))
    found = load_file("new.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in found)
    assert pam("weights", "verify", "new.safetensors").code == 0
    assert names(".") == ["c.pth.tar", "new.safetensors"]


def test_import_in_half_the_bytes(here: Path) -> None:
    exact = {
        key: value.float() if value.is_floating_point() else value
        for key, value in load_file(shipped("pasmnet")).items()
    }
    torch.save(exact, "whole.pth")
    for name, options in (("whole.safetensors", []), ("half.safetensors", ["--half"])):
        assert pam("weights", "import", "whole.pth", "-o", name, *options).code == 0
    assert [read_header(Path(f"{name}.safetensors")).precision for name in ("whole", "half")] == [
        "fp32",
        "fp16",
    ]
    assert Path("half.safetensors").stat().st_size < 0.6 * Path("whole.safetensors").stat().st_size
    halved = load_file("half.safetensors")
    assert all(torch.equal(halved[key].to(value.dtype), value) for key, value in exact.items())


def test_import_stores_what_it_is_told(here: Path) -> None:
    torch.save(load_file(shipped("pasmnet")), "PASMnet_192.pth")
    told = ["--max-disparity", "192", "--training", "KITTI, 80 epochs", "--licence", "CC0", "--version", "7"]
    run = pam("weights", "import", "PASMnet_192.pth", "-o", "deep/in/pasm.safetensors", *told)
    assert run.code == 0
    assert run.complaints == ["PASMnet_192.pth holds a pasmnet, 706 tensors"]
    spec = read_header(Path("deep/in/pasm.safetensors")).spec
    assert (spec.max_disparity, spec.training, spec.licence, spec.version) == (
        192,
        "KITTI, 80 epochs",
        "CC0",
        "7",
    )

    from pamcli.inference.matcher import StereoMatcher

    path = "deep/in/pasm.safetensors"
    assert StereoMatcher.load(path, device="cpu").max_disparity == 192
    assert StereoMatcher.load(path, device="cpu", max_disparity=None).max_disparity is None


def test_import_does_not_replace_unless_told_to(checkpoint: str) -> None:
    Path("new.safetensors").write_bytes(b"precious")
    with unchanged():
        refuse(
            pam("weights", "import", checkpoint, *OUTPUT), 2, "new.safetensors already exists", "--overwrite"
        )
    assert pam("weights", "import", checkpoint, *OUTPUT, "--overwrite").code == 0
    assert read_header(Path("new.safetensors")).spec.scale == 2
    os.remove("new.safetensors")
    os.symlink("nowhere", "new.safetensors")
    with unchanged():
        refuse(
            pam("weights", "import", checkpoint, *OUTPUT), 2, "new.safetensors already exists", "--overwrite"
        )


def test_import_refuses_what_it_cannot_write_to(checkpoint: str) -> None:
    os.mkdir("folder.safetensors")
    with unchanged():
        for name in ("new.pth", "new", "new.SAFE", "folder/"):
            refuse(pam("weights", "import", checkpoint, "-o", name), 2, "must end in .safetensors")
        for option in ([], ["--overwrite"]):
            run = pam("weights", "import", checkpoint, "-o", "folder.safetensors", *option)
            refuse(run, 2, "folder.safetensors is a folder")
        refuse(
            pam("weights", "import", checkpoint, "-o", "c.pth.tar/new.safetensors"),
            7,
            "cannot write c.pth.tar/new.safetensors",
        )
        long = f"{'x' * 300}.safetensors"
        refuse(pam("weights", "import", checkpoint, "-o", long), 7, "cannot write", "a shorter file name")
        run = pam("weights", "import", checkpoint)
        assert run.code == 2
        assert "Missing option '--output'" in run.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("100", "--max-disparity must be a multiple of 16 px, got 100"),
        ("0", "--max-disparity must be a positive whole number or none, got '0'"),
        ("-16", "--max-disparity must be a positive whole number or none, got '-16'"),
        ("many", "--max-disparity must be a positive whole number or none, got 'many'"),
    ],
)
def test_import_refuses_a_prior_that_can_be_none(checkpoint: str, given: str, said: str) -> None:
    with unchanged():
        refuse(pam("weights", "import", checkpoint, *OUTPUT, f"--max-disparity={given}"), 2, said)


def test_import_refuses_a_prior_for_a_passrnet(checkpoint: str) -> None:
    with unchanged():
        run = pam("weights", "import", checkpoint, *OUTPUT, "--max-disparity", "192")
        refuse(run, 2, "c.pth.tar holds a passrnet, which has no maximum disparity")
    assert pam("weights", "import", checkpoint, *OUTPUT, "--max-disparity", "none").code == 0


def test_import_refuses_what_is_no_checkpoint(here: Path) -> None:
    Path("empty.pth").touch()
    Path("text.pth").write_text("not a checkpoint\n" * 20)
    torch.save({"conv1.weight": torch.zeros(3)}, "other.pth")
    before = files(here)
    for name, said in (
        ("none.pth", "checkpoint none.pth does not exist"),
        (".", "cannot read .: Is a directory"),
        ("empty.pth", "empty.pth is not a PyTorch checkpoint, or is damaged"),
        ("text.pth", "text.pth is damaged, or holds Python objects"),
        ("other.pth", "other.pth is neither a PASMnet nor a PASSRnet (first keys: conv1.weight)"),
    ):
        refuse(pam("weights", "import", name, *OUTPUT), 4, said)
    assert files(here) == before


def test_a_training_checkpoint_names_the_weights_of_its_run(here: Path) -> None:
    Path("run/checkpoints").mkdir(parents=True)
    torch.save({"step": 1}, "run/checkpoints/step-00000001.pt")
    for command in ("info", "verify"):
        refuse(pam("weights", command, "run/checkpoints/step-00000001.pt"), 4, "last.safetensors")


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_weights_of_other_networks_are_told_where_they_run(here: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(3)}, "other.pth")
    torch.jit.script(torch.nn.Linear(2, 2)).save("scripted.pt")
    save_file({"conv1.weight": torch.zeros(3)}, "other.safetensors")
    for name in ("other.pth", "scripted.pt", "other.safetensors"):
        for command in (["import", name, *OUTPUT], ["info", name]):
            refuse(pam("weights", *command), 4, name, "pam guide own-network")
        run = pam("weights", "describe", name, "-o", "net.toml")
        refuse(run, 2, f"{name} must be an .onnx file or a description", "--network-from MODULE:FUNCTION")


def test_the_description_of_a_pytorch_network_is_tried_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("described.py").write_text(foreign_networks.AS_MODULE)
    monkeypatch.syspath_prepend(".")
    text = foreign_networks.DESCRIBED.format(name="other", size="free").replace("disparities", "0")
    Path("own.toml").write_text(text.partition("\n")[2])
    again = ["weights", "describe", "own.toml", "-o", "own.toml", "--overwrite", "--device", "cpu"]
    refuse(pam(*again), 2, "own.toml does not name a network", "add --network-from MODULE:FUNCTION")
    run = pam(*again, "--network-from", "described:make")
    assert (run.code, run.lines) == (0, ["own.toml", "own.png"]), run.stderr
    again[2] = "other.onnx"
    refuse(pam(*again, "--network-from", "described:make"), 2, "NET.onnx and --network-from")


def test_import_refuses_what_was_imported(checkpoint: str) -> None:
    assert pam("weights", "import", checkpoint, *OUTPUT).code == 0
    with unchanged():
        run = pam("weights", "import", "new.safetensors", "-o", "again.safetensors")
        refuse(run, 2, "new.safetensors is already a weights file of pam", "use it directly")


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_info_names_tensors_with_values_that_are_not_finite(here: Path, kind: torch.dtype) -> None:
    state = {name: value.to(kind) for name, value in load_file(shipped("passrnet-x2")).items()}
    state["upscale.7.weight"][0, 1, 2, 0] = torch.nan
    state["upscale.4.weight"][0, 0, 0, 0] = -torch.inf
    save_network(state, ModelSpec("passrnet", scale=2), Path("odd.safetensors"))
    run = pam("weights", "info", "odd.safetensors")
    assert run.code == 0
    assert value_of(run, "not finite") == (
        "NaN or infinite values in 2 tensors: upscale.4.weight, upscale.7.weight"
    )


def test_json_of_info_is_one_line(here: Path) -> None:
    spec = ModelSpec("passrnet", scale=2, training="two\nlines, “quoted”")
    save_network(load_file(shipped("passrnet-x2")), spec, Path("mine.safetensors"))
    run = pam("weights", "info", "mine.safetensors", "--json")
    assert len(run.lines) == 1
    assert json.loads(run.lines[0])["training"] == spec.training


def test_only_networks_of_pam_are_exported(here: Path) -> None:
    Path("other.toml").touch()
    refuse(pam("weights", "export", "other.toml", "-o", "net.onnx"), 2, "got other.toml", "own-network")
    refuse(pam("weights", "export", "none.toml", "-o", "net.onnx"), 4, "none.toml")
