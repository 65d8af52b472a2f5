"""pam weights export, and --weights of what it writes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from pam_program import pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

from pamcli.errors import suggest_extra
from pamcli.inference import onnx_file, runners
from pamcli.registry.catalog import recorded_sha256
from pamcli.registry.resolution import EFFORTS

for package in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")

pytestmark = pytest.mark.usefixtures("networks")

DISPARITY = ["disparity", "left.png", "right.png", "-o", "x.npy", "--overwrite"]
SUPERRES = ["superres", "left.png", "right.png", "-o", "x.png", "--output-right", "y.png", "--overwrite"]


def export_once(factory: pytest.TempPathFactory, difference: str, *words: str) -> Path:
    """Export a network once for all processes of the tests, which takes up to a minute."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / f"{words[0]}.onnx"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            run = pam("weights", "export", *words, "-o", path)
            assert (run.code, run.lines) == (0, [str(path)]), run.stderr
            assert difference in run.stderr
    return path


@pytest.fixture(scope="session")
def matching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PASMnet 2, for images of any size."""
    return export_once(tmp_path_factory, "px on average", "pasmnet2")


@pytest.fixture(scope="session")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PASSRnet x2 in half precision, for images of 48 x 32."""
    words = "passrnet-x2", "--size", "48x32", "--half"
    return export_once(tmp_path_factory, "difference from PyTorch at 48x32: ", *words)


def test_what_is_said_of_a_file(here: Path, matching: Path, halved: Path) -> None:
    import onnxruntime

    expected = {matching: ("pasmnet2", None, "dynamic", "fp32"), halved: ("passrnet", 2, "48x32", "fp16")}
    for path, facts in expected.items():
        (found,) = pam("weights", "info", path, "--json").records
        assert (found["architecture"], found["scale"], found["size"], found["precision"]) == facts
        assert found["bytes"] == path.stat().st_size
        assert pam("weights", "verify", path).lines == [f"{path}: ok, sha256 {found['sha256']}"]
    assert found["exported_from"] == "passrnet-x2"
    assert found["weights_sha256"] == recorded_sha256("passrnet-x2")
    assert "size           48x32" in pam("weights", "info", halved).lines
    session = onnxruntime.InferenceSession(matching.read_bytes(), providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map
    assert (said["architecture"], said["input_size"]) == ("pasmnet2", "dynamic")
    assert "multiples of 32" in said["padding"]


def test_files_that_are_damaged(here: Path, halved: Path) -> None:
    content = halved.read_bytes()
    for name, part in {"empty": b"", "text": b"not ONNX", "cut": content[: len(content) // 2]}.items():
        Path(f"{name}.onnx").write_bytes(part)
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    Path("flipped.onnx").write_bytes(flipped)
    for name in ("l.png", "r.png"):
        Image.new("RGB", (48, 32)).save(name)
    table = """
        4 weights info cut.onnx | cut.onnx is not an ONNX file, or is damaged
        4 weights verify cut.onnx | cut.onnx is not an ONNX file, or is damaged
        4 weights verify flipped.onnx | flipped.onnx is damaged
        4 weights info none.onnx | none.onnx does not exist
        4 superres l.png r.png -o x.png --weights empty.onnx | empty.onnx is not an ONNX file, or is damaged
        4 superres l.png r.png -o x.png --weights text.onnx | text.onnx is not an ONNX file, or is damaged
        4 superres l.png r.png -o x.png --weights none.onnx | none.onnx does not exist
    """
    refuse_all(table)


@pytest.mark.parametrize("options", [[], ["--match-size", "1", "--min-disparity", "-8"]], ids=str)
def test_every_result_is_that_of_pytorch(pair: Path, matching: Path, options: list[str]) -> None:
    results = ["--output-right", "r.npy", "--visible", "v.png", "--confidence", "c.tif", *options]
    made = []
    for weights in ("pasmnet2", matching):
        run = succeed(*DISPARITY, *results, "--weights", weights, "--device", "cpu", "--jsonl")
        visible, confidence = (np.asarray(Image.open(name), float) for name in ("v.png", "c.tif"))
        made.append((np.load("x.npy"), np.load("r.npy"), visible / 255, confidence))
    assert run.records[0]["device"] == "onnxruntime cpu"
    for one, other in zip(*made, strict=True):
        assert np.std(one) > 0
        assert np.abs(one - other).mean() < 1e-3


def test_enlarging_in_half_precision_pads_what_is_smaller(small_pair: Path, halved: Path) -> None:
    for width, height in ((48, 32), (40, 25)):
        for name in ("left.png", "right.png"):
            Image.open(name).crop((0, 0, width, height)).save(name)
        made = []
        for weights in ("passrnet-x2", halved):
            run = succeed(*SUPERRES, "--weights", weights, "--jsonl")
            made.append([np.asarray(Image.open(name), float) for name in ("x.png", "y.png")])
        assert run.records[0]["precision"] == "fp16"
        for one, other in zip(*made, strict=True):
            assert one.shape == other.shape == (2 * height, 2 * width, 3)
            assert np.abs(one - other).mean() < 0.5
            assert width < 48 or np.abs(one - other).max() <= 2


def test_padding_to_the_exported_size_is_noted_once(
    pair: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network itself matches images of 96x64 px at twice their size."""
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=2.0))
    succeed("weights", "export", "pasmnet2", "-o", "net.onnx", "--size", "224x128")
    for side in ("left", "right"):
        Path(f"{side}s").mkdir()
        for name in ("a", "b"):
            Path(f"{side}s/{name}.png").write_bytes(Path(f"{side}.png").read_bytes())
    batch = succeed("disparity lefts rights -o out/ --format npy --weights net.onnx")
    note = "images of 96x64 are matched at 192x128 and padded to 224x128, the exported size"
    assert batch.complaints == [note, "2 ok"]
    succeed(*DISPARITY)
    assert np.median(np.abs(np.load("out/a.npy") - np.load("x.npy"))) < 1, "but for the edges"
    for name in ("left.png", "right.png"):
        Image.open(name).resize((192, 128)).save(name)
    run = pam(*DISPARITY, "--weights", "net.onnx")
    assert run.complaints[0] == (
        "images of 192x128 are matched at 192x128 instead of 384x256 and padded to 224x128, "
        "the exported size; export the network for 384x256, or for any size"
    )


def test_what_the_file_cannot_do(pair: Path, matching: Path, halved: Path) -> None:
    Path("there.onnx").touch()
    matches, upscales = f"--weights {matching}", f"--weights {halved}"
    disparity, superres = " ".join(DISPARITY), " ".join(SUPERRES)
    table = f"""
        2 {disparity} {matches} --max-disparity 64 | can only search any disparity
        2 {disparity} {matches} --precision bf16 | has the precision fp32, not bf16 | use --precision auto
        5 {disparity} {matches} --device mps | ONNX Runtime does not support mps | use --device cpu
        5 {disparity} {matches} --device tensorrt | ONNX Runtime does not support tensorrt
        5 {disparity} {matches} --max-memory 20MB | does not fit into --max-memory 20MB
        2 {disparity} --weights pasmnet2 --device tensorrt | .onnx files only
        4 {disparity} {upscales} | is a passrnet, which does not match images
        4 {superres} {matches} | is a pasmnet2, which does not upscale images
        2 {superres} {upscales} --scale 4 | upscales by 2 cannot upscale by 4
        3 {superres} {upscales} | images of 96x64 are larger than 48x32
        2 weights export passrnet-x2 -o there.onnx | already exists
        2 weights export passrnet-x2 -o n.pt | must end in .onnx
        5 weights export passrnet-x2 -q -o n.onnx --size 9000x9000 | 9000x9000 needs | of memory | are free
    """
    for size in ("''", "384", "384x", "8x64", "-64x64", "64*64", "٦٤x64", "100000x64"):
        table += f"\n 2 weights export pasmnet2 -o n.onnx --size {size} | --size must be WIDTHxHEIGHT"
    refuse_all(table)


def test_without_the_library(pair: Path, halved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for command in (
        [*SUPERRES, "--weights", halved],
        ["weights", "export", "pasmnet2", "-q", "-o", "n.onnx"],
    ):
        with unchanged():
            refuse(pam(*command), 2, "onnxruntime is not installed", suggest_extra("onnx"))


def test_a_file_that_does_not_do_what_pytorch_does(
    here: Path, halved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "_to_onnx", lambda *arguments: halved.read_bytes())
    monkeypatch.setattr(onnx_file, "MOST", {"fp32": {"grey levels": 1e-9}})
    with unchanged():
        run = pam("weights export passrnet-x2 -q -o n.onnx --size 48x32")
        refuse(run, 4, "grey levels on average", "cannot be exported")


def test_the_device_chooses_the_provider() -> None:
    available = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    for device, expected in (
        ("auto", available[1:]),
        ("cpu", available[2:]),
        ("cuda:1", available[1:]),
        ("tensorrt", available),
    ):
        chosen, name = runners.choose_providers(available, device)
        assert [provider for provider, _ in chosen] == expected
        assert chosen[0][1].get("device_id", "0") == ("1" if device == "cuda:1" else "0")
        assert name == ("cuda" if device == "auto" else device)
