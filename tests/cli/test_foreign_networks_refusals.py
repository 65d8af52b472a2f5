"""Tests of the errors about foreign networks and their descriptions."""

from __future__ import annotations

import os
from pathlib import Path

import foreign_networks as made
import numpy as np
import pytest
from pam_program import pam, refuse, unchanged

from pamcli.errors import UsageError
from pamcli.inference.foreign import ForeignModel
from pamcli.registry.description import Description

for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")


DISPARITY = ["disparity", "left.png", "right.png", "-o", "x.npy", "--overwrite", "--device", "cpu"]
SUPERRES = ["superres", "left.png", "right.png", "-o", "x.tif", "--output-right", "y.tif", "--overwrite"]


def test_images_come_back_in_the_numbers_of_images() -> None:
    network = object.__new__(ForeignModel)
    network.spec = Description(
        task="superres",
        inputs={"l": "left", "r": "right"},
        outputs={"a": "left", "b": "right"},
        channels="BGR",
        white=255,
        mean=(10.0, 20.0, 30.0),
        deviation=(2.0, 3.0, 4.0),
        scale=2,
    )
    pair = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    given = network._normalise(pair)
    assert given.max() > 50
    np.testing.assert_allclose(network._denormalise(given[0]), pair[0], atol=1e-6)
    with pytest.raises(UsageError, match="grey"):
        network.spec.with_values(channels="grey")


def test_names_that_are_not_utf8_are_refused_with_the_file(pair: Path) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free"))
    whole = Path("whole.onnx").read_bytes()
    for name in (b"disparities", b"right"):
        Path("whole.onnx").write_bytes(whole.replace(name, b"\xff" * len(name)))
        for command in ([*DISPARITY, "--weights", "net.toml"], ["weights", "describe", "whole.onnx"]):
            refuse(pam(*command), 4, "whole.onnx")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('task = "disparity"', "", "task is missing"),
        ("white = 1", "white = 2", "white must be 1 or 255, got 2"),
        ("white = 1", "wite = 1", "unknown value 'wite' (did you mean white"),
        ('"left", right', '"right", right', "must include both images"),
        ('"disparity" }', '"left" }', "outputs of disparity must include disparity, got left"),
        ('"free"', '"100x100"\nmultiple = 32', "size 100x100 must be a multiple of 32"),
        ('"free"', '"10"', "size must "),
        ('"free"', '"65536x65536"', "has more than 67,108,864 pixels"),
        ('"whole.onnx"', '"a\\u0000b.onnx"', "net.toml: network: a path has at most 4096 characters"),
        (
            '"whole.onnx"',
            '"whole.onnx"\ninitial = "\\u0000"',
            "net.toml: initial: a path has at most 4096 characters",
        ),
        ("white = 1", "white = " + "1" * 5000, "net.toml is not a description of a network: a number has"),
        ("white = 1", "a" + ".a" * 50_000 + " = 1", "net.toml is not a description of a network: a line has"),
        ("white = 1", "white = " + "[" * 5000, "net.toml is not a description of a network"),
        ('"free"', '"free"\nlarger = "reduce"', "requires a fixed size"),
        ("white = 1", "white = ", "is not a description of a network: "),
        ("white = 1", "scale = 2", "superres requires a scale"),
        ("white = 1", "deviation = [0, 1, 1]", "deviation must be above 0"),
        ("left =", "links =", "does not have the inputs and outputs of its description"),
        ("whole.onnx", "gone.onnx", "gone.onnx does not exist"),
    ],
)
def test_descriptions_that_cannot_be(pair: Path, was: str, now: str, said: str) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    text = made.DESCRIBED.format(name="whole", size="free")
    assert was in text
    Path("net.toml").write_text(text.replace(was, now))
    with unchanged():
        refuse(pam(*DISPARITY, "--weights", "net.toml"), 4, said)


def test_a_map_of_another_size_than_described(pair: Path) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free") + "resolution = 0.5")
    run = pam(*DISPARITY, "--weights", "net.toml")
    assert run.code == 4
    assert "output disparities has the shape 1x1x64x96, expected 48x32 px" in run.stderr


NO_MEMORY = [
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Conv node. Name:'' Status "
    "Message: Failed to allocate memory for requested buffer of size 97844723712",
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: std::bad_alloc",
    "Available memory of 1048576 is smaller than requested bytes of 97844723712",
]


@pytest.mark.parametrize("reason", NO_MEMORY)
def test_what_does_not_fit_into_memory(pair: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """A free network that finds no memory for a pair, or none for itself, ends in one line."""
    import onnxruntime

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(reason)

    made.block_matcher(Path("whole.onnx"), None, reach=4)
    Path("net.toml").write_text(made.DESCRIBED.format(name="whole", size="free"))
    made.side_by_side(Path("larger.onnx"), 2, (64, 96))
    monkeypatch.setattr(onnxruntime.InferenceSession, "run", fail)
    for command, network in ((DISPARITY, "net.toml"), (SUPERRES, "larger.onnx")):
        with unchanged():
            run = pam(*command, "--weights", network)
            assert run.code == 5, run.stderr
            (line,) = (each for each in run.complaints if each.startswith("error"))
            assert "not enough memory for a pair of 96x64" in line
    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with unchanged():
        refuse(pam(*DISPARITY, "--weights", "net.toml"), 5, "not enough memory for whole.onnx")


def test_what_a_network_by_others_cannot_do(pair: Path) -> None:
    made.two_views(Path("net.onnx"), None)
    made.two_views(Path("odd.onnx"), None, output="something")
    for network, options, code, *said in (
        ("net.onnx", ["--max-disparity", "64"], 2, "no adjustable maximum disparity"),
        ("net.onnx", ["--effort", "fast"], 2, "no rule for --effort"),
        ("net.onnx", ["--precision", "bf16"], 2, "has the precision fp32, not bf16"),
        (
            "net.onnx",
            ["--device", "openvino"],
            5,
            "ONNX Runtime does not support openvino",
            "onnxruntime-openvino",
        ),
        ("odd.onnx", [], 4, "is not of a known family", "pam weights describe"),
    ):
        with unchanged():
            refuse(pam(*DISPARITY, "--weights", network, *options), code, *said)
    with unchanged():
        refuse(pam(*SUPERRES, "--weights", "net.onnx"), 4, "does not upscale images")


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("x.npy", "disparity left.png right.png -o x.npy --weights net.toml --overwrite"),
        (
            "x.npy",
            "disparity left.png right.png -o y.npy --output-right link.npy --weights net.toml --overwrite",
        ),
        ("x.png", "superres left.png right.png -o x.png --weights net.toml --overwrite"),
        ("x.csv", "eval disparity --data kitti2015:kitti --weights net.toml --overwrite --per-image x.csv"),
        ("x.csv", "eval disparity --data kitti2015:kitti --method net.toml --overwrite --table ./x.csv"),
        ("x.html", "eval superres --data pairs:. --weights net.toml --overwrite --report x.html"),
        ("x.zip", "submit --data kitti2015:kitti --weights net.toml --overwrite -o x.zip"),
        ("x.png", "weights describe net.toml -o x.toml --overwrite"),
        ("net.png", "weights describe net.toml -o net.toml --overwrite"),
        ("x.toml", "weights describe net.toml -o x.toml --overwrite"),
        ("x.png", "weights describe whole.onnx -o x.toml --overwrite --set initial=x.png"),
    ],
)
@pytest.mark.parametrize("key", ["network", "initial"])
def test_the_files_that_a_description_names_are_kept(
    pair: Path, kitti: Path, key: str, named: str, command: str
) -> None:
    made.block_matcher(Path("whole.onnx"), None, reach=4)
    made.block_matcher(Path(named), None, reach=4)
    if "link.npy" in command:
        Path("link.npy").symlink_to(named)
    text = made.DESCRIBED.format(name="whole", size="free")
    if key == "network":
        text = text.replace("whole.onnx", named)
    else:
        text = text.replace('right = "right"', 'right = "right", flow = "flow/2"') + f'initial = "{named}"'
    Path("net.toml").write_text(text)
    with unchanged():
        refuse(pam(*command.split()), 2, "would overwrite an input")


def test_pairs_are_not_labelled_over_the_network(pair: Path, mine: Path) -> None:
    Path("labelled/left").mkdir(parents=True)
    made.block_matcher(Path("labelled/left/a.png"), None, reach=4)
    text = made.DESCRIBED.format(name="whole", size="free").replace("whole.onnx", "labelled/left/a.png")
    Path("net.toml").write_text(text)
    command = ["dataset", "label", "pairs:mine", "-o", "labelled/", "--overwrite", "--weights", "net.toml"]
    with unchanged():
        refuse(pam(*command), 2, "labelled/left/a.png is an input and lies in the folder for the results")


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ({"left": (1, 3, "h", "w"), "right": (1, 3, "h", "w")}, {}, "net.onnx has no output"),
        ({}, {"o": (1,)}, "net.onnx has no input"),
        ({"left": (1, 3, 10**6, 10**6)}, {"o": (1, 3, 10**6, 10**6)}, "is larger than any supported image"),
        ({"both": (1, 6, 64, 64)}, {"o": (1, 6, 64, 64)}, "is not of a known family"),
    ],
)
def test_onnx_files_that_are_no_networks(
    pair: Path, inputs: dict[str, made.Shape], outputs: dict[str, made.Shape], said: str
) -> None:
    graph = made.Graph()
    if inputs:
        graph.node("Identity", next(iter(inputs)), to="o")
    else:
        graph.node("Identity", graph.constant(np.float32([1])), to="o")
    graph.save(Path("net.onnx"), inputs, outputs)
    refuse(pam(*DISPARITY, "--weights", "net.onnx"), 4, said)
    if "family" not in said:
        refuse(pam("weights", "info", "net.onnx"), 4, said)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_networks_that_are_no_files(pair: Path, kind: str) -> None:
    said = f"is not a regular file: it is a {kind}"
    for name in ("net.toml", "net.onnx"):
        os.mkfifo(name) if kind == "pipe" else os.symlink("/dev/zero", name)
        refuse(pam(*DISPARITY, "--weights", name), 4, f"{name} {said}")
        refuse(pam("weights", "describe", name, "-o", "made.toml"), 4, f"{name} {said}")
    Path("other.toml").write_text(made.DESCRIBED.format(name="net", size="free"))
    refuse(pam(*DISPARITY, "--weights", "other.toml"), 4, f"net.onnx {said}")
