"""pam weights describe: what it finds out, what it asks for, which wrong descriptions it catches."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import foreign_networks as made
import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")

SIZE = (160, 224)
"""Rows and columns: the sample pair is reduced to it, its disparities to 18 px at most."""


def describe(*options: str) -> tuple[int, str, dict[str, object]]:
    """Exit code, stderr, and what the description says."""
    run = pam("weights", "describe", "net.onnx", "-o", "net.toml", "--overwrite", "--device", "cpu", *options)
    assert run.lines == (["net.toml", "net.png"] if run.code == 0 else [])
    return run.code, run.stderr, tomllib.loads(Path("net.toml").read_text()) if run.code == 0 else {}


def test_what_shapes_do_not_tell_is_found_out(here: Path) -> None:
    """Views in the other order under names that say nothing, 0 to 255, disparities negative."""
    made.block_matcher(Path("net.onnx"), SIZE, reach=24, white=255, sign=-1, names=("b", "a"))
    code, said, found = describe()
    assert code == 0, said
    assert found["inputs"] == {"b": "left", "a": "right"}
    assert (found["white"], found["sign"], found["size"]) == (255, -1, "224x160")
    assert "the family is unknown; " in said
    for part in ("disparities negative", "images 0 to 255", "b is left", "a is right"):
        assert part in said
    assert "sample pair: mean error " in said
    assert np.asarray(Image.open("net.png")).shape == (500, 3 * 741, 3)
    with unchanged():
        refuse(pam("weights", "describe", "net.onnx", "-o", "net.toml"), 2, "net.toml already exists")
    tried = succeed("weights", "describe", "net.toml", "-o", "net.toml", "--overwrite")
    assert "is better than" not in tried.stderr


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("sign=1", "disparities negative is better than disparities positive"),
        ("white=1", "images 0 to 255 is better than images 0 to 1"),
        ('inputs={a = "left", b = "right"}', "inputs a is right, b is left is better than inputs a is left"),
    ],
)
def test_a_wrong_description_is_caught(here: Path, setting: str, said: str) -> None:
    made.block_matcher(Path("net.onnx"), SIZE, reach=24, white=255, sign=-1, names=("b", "a"))
    right = {"sign": "-1", "white": "255", "inputs": '{b = "left", a = "right"}'}
    key, _, value = setting.partition("=")
    values = {**right, key: value}
    options = [f"--set={name}={each}" for name, each in values.items()]
    run = pam("weights", "describe", "net.onnx", "-o", "net.toml", "--device", "cpu", *options)
    assert run.code == 4, run.stderr
    (line,) = (each for each in run.complaints if each.startswith("error"))
    assert f"on the sample pair, {said}" in line
    assert names(".") == ["net.onnx"]


SIX = {"inputs": {"images": "left+right"}}
MODULES = """
import torch
import torch.nn.functional as F


def match(left, right):  # 0 to 1; block matching within 24 px
    shifted = [F.pad(right, (d, 0))[..., : left.shape[-1]] for d in range(25)]
    costs = [F.avg_pool2d((left - each).abs().mean(1, True), 9, 1, 4) for each in shifted]
    return torch.cat(costs, 1).argmin(1, True).float()


def named():
    return lambda left, right: {"map": match(left, right), "features": left[..., ::4, ::4]}


def coarse_and_fine():
    return lambda left, right: (F.avg_pool2d(-match(left, right), 8), -match(left, right))


def quarter():
    return lambda left, right: F.avg_pool2d(match(left, right), 4) / 4


def six_wide():
    return lambda images: F.interpolate(images, scale_factor=2, mode="bicubic")


def six_match():
    return lambda images: match(images[:, :3], images[:, 3:])


def wide():
    return lambda left, right: [F.interpolate(view, scale_factor=2, mode="bicubic") for view in (left, right)]
"""


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("named", {"outputs": {"map": "disparity"}}),
        ("coarse_and_fine", {"outputs": {"1": "disparity"}, "sign": -1}),
        ("quarter", {"outputs": {"0": "disparity"}, "resolution": 0.25, "unit": "output pixels"}),
        ("wide", {"task": "superres", "outputs": {"0": "left", "1": "right"}, "scale": 2}),
        ("six_wide", {**SIX, "task": "superres", "outputs": {"0": "left+right"}, "scale": 2}),
        ("six_match", {**SIX, "outputs": {"0": "disparity"}}),
    ],
)
def test_outputs_of_a_pytorch_network_are_found(
    here: Path, monkeypatch: pytest.MonkeyPatch, function: str, values: dict[str, object]
) -> None:
    Path("modules.py").write_text(MODULES)
    monkeypatch.syspath_prepend(".")
    size = ["--set", "size=224x160"] if "wide" not in function else []
    options = [*size, "--set", "white=1", "-o", "n.toml", "--device", "cpu"]
    run = succeed("weights", "describe", "--network-from", f"modules:{function}", *options)
    found = tomllib.loads(Path("n.toml").read_text())
    assert {key: found.get(key) for key in values} == values
    if "wide" in function:
        assert "sample pair: PSNR " in run.stderr
        assert "dB, bicubic interpolation " in run.stderr


def test_of_what_is_about_as_good_the_plainest_is_taken(here: Path) -> None:
    """Mean and deviation of 1/2 leave a little less of the error by chance; the network is for 0 to 1."""
    made.block_matcher(Path("net.onnx"), SIZE, reach=24, weights=(1 / 3, 1 / 3, 1 / 3))
    code, said, found = describe()
    assert code == 0, said
    assert found["white"] == 1
    assert "mean" not in found
    assert found["channels"] == "RGB"
    ranges, colours = (line for line in said.splitlines() if "accurate" in line and "the chosen" in line)
    assert re.search(r"-1 to 1 \(mean error \S+ px\) is slightly more accurate than .* 0 to 1 \(mean", ranges)
    assert re.search(r"channels BGR \(mean error (\S+) px\) .* channels RGB \(mean error \1 px\)", colours)
    settings = shlex.split(ranges.partition("add ")[2])
    code, said, found = describe(*settings)
    assert code == 0, said
    assert (found["mean"], found["deviation"]) == ([0.5] * 3, [0.5] * 3)
    assert "images" not in said
    code, said, found = describe(*shlex.split(colours.partition("add ")[2]))
    assert (code, found["channels"]) == (0, "BGR")


def test_what_cannot_be_told_is_asked_for(here: Path) -> None:
    """The tests have no terminal: the settings are named, and nothing is written."""
    made.two_views(Path("net.onnx"), SIZE, names=("one", "two"), output="something")
    code, said, _ = describe()
    assert code == 2
    for words in ("which input is the left image", "--set white=1 or 255", "--set channels=RGB or BGR"):
        assert words in said
    assert names(".") == ["net.onnx"]
    code, said, found = describe(
        "--set", "white=1", "--set", "channels=BGR", "--set", "sign=1", "--set", "unit=pixels",
        "--set", 'inputs={one = "left", two = "right"}',
    )  # fmt: skip
    assert code == 0, said
    assert found["channels"] == "BGR"
    assert "the network does not work on the sample pair" in said


def test_a_known_family_is_recognised_without_a_question(here: Path) -> None:
    made.coarse_and_fine(Path("net.onnx"), SIZE, outputs=("disparity", "upscaled_disparity"), coarse=2)
    code, said, found = describe()
    assert code == 0, said
    assert "recognised as RAFT-Stereo by its inputs and outputs" in said
    assert (found["white"], found["sign"], found["padding"]) == (255, -1, "centre")


def test_what_is_no_stereo_network(here: Path) -> None:
    graph = made.Graph()
    graph.node("Relu", "picture", to="out")
    graph.save(Path("net.onnx"), {"picture": (1, 3, 64, 96)}, {"out": (1, 3, 64, 96)})
    Path("net.py").write_text("def make():\n    return lambda left, right: (left, right)\n")
    table = """
        4 net.onnx -o net.toml -q | the inputs must be two images
        2 -o net.toml | a network is required
        2 net.onnx -o net.txt | must end in .toml
        4 none.onnx -o net.toml | none.onnx does not exist
        2 net.onnx -o net.toml --set white | KEY=VALUE
        2 --network-from net:make -o net.toml -q --set task=superres --set scale=x2 | scale
    """
    refuse_all(table, "weights describe")


def asked(*exchanges: tuple[str, str]) -> tuple[int, str]:
    """Exit code and stdout of `describe` at a terminal that answers what is asked."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pamcli", "weights", "describe", "net.onnx", "-o", "net.toml"]
    running = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = ""
    for question, answer in exchanges:
        while question not in shown:
            block = os.read(ours, 4096)  # raises OSError on Linux where the command has ended
            shown += block.decode()
        shown = ""
        os.write(ours, answer.encode())
    with suppress(OSError):
        while os.read(ours, 4096):
            pass
    os.close(ours)
    output, _ = running.communicate(timeout=100)
    return running.returncode, output.decode()


def test_a_terminal_is_asked(here: Path) -> None:
    """What is answered stands in the description; a number that is no choice is asked for again."""
    made.two_views(Path("net.onnx"), SIZE, names=("one", "two"), output="something")
    assert asked(("left image (1: one, 2: two)", "\4")) == (2, "")
    assert names(".") == ["net.onnx"], "without an answer nothing is written"
    code, output = asked(
        ("left image (1: one, 2: two)", "2\n"),
        ("black and white (1: 0 to 1, 2: 0 to 255", "7\n"),
        ("black and white (1: 0 to 1, 2: 0 to 255", "2\n"),
        ("order of the channels (1: RGB, 2: BGR)", "2\n"),
        ("the sign of the disparity (1: positive, 2: negative)", "2\n"),
    )
    assert (code, output) == (0, "net.toml\nnet.png\n")
    found = tomllib.loads(Path("net.toml").read_text())
    assert found["inputs"] == {"one": "right", "two": "left"}
    assert (found["white"], found["channels"], found["sign"]) == (255, "BGR", -1)
