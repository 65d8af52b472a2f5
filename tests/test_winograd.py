"""Convolutions by `winograd.c` are those of torch, wherever its tiles end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from random_networks import normalised, pasmnet2, picture_pair
from torch import nn

from pamcli import winograd as module
from pamcli.winograd import available, winograd

ROOT = Path(__file__).parents[1]

compiled = pytest.mark.skipif(not available(), reason="winograd.c is not compiled: there is no C compiler")


@pytest.fixture(params=["avx512", "avx2"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each form that this processor can run."""
    if module.KIND not in ("avx512", request.param):
        pytest.skip(f"this processor has no {request.param}")
    monkeypatch.setattr(module, "LIBRARY", module.LIBRARY.with_name(f"libwinograd-{request.param}.so"))
    module._library.cache_clear()
    yield request.param
    module._library.cache_clear()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def made_layer(inputs: int, outputs: int, dilation: int = 1, *, bias: bool = True) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(inputs, outputs, 3, dilation=dilation, bias=bias).requires_grad_(False)


def views(channels: int, height: int, width: int) -> torch.Tensor:
    return torch.randn(2, channels, height, width).to(memory_format=torch.channels_last)


@compiled
@pytest.mark.usefixtures("threads", "kind")
@pytest.mark.parametrize("height", [8, 47])
@pytest.mark.parametrize("width", [12, 33])
@pytest.mark.parametrize("slope", [None, 0.1])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (48, 37)])
def test_it_is_the_convolution_at_every_size(
    height: int, width: int, slope: float | None, inputs: int, outputs: int
) -> None:
    layer = made_layer(inputs, outputs)
    x = views(inputs, height, width)
    run = winograd(layer)
    assert run is not None
    expected = F.conv2d(x.double(), layer.weight.double(), layer.bias.double(), padding=1)
    if slope is not None:
        expected = F.leaky_relu(expected, slope)
    found = run(x, (1, 1), slope)
    assert found.stride(1) == 1, "channels lie side by side"
    assert (found - expected).abs().max() < 1e-4
    total = views(outputs, height, width)
    convolved = F.conv2d(x.double(), layer.weight.double(), layer.bias.double(), padding=1)
    expected = F.leaky_relu(total + convolved, 1 if slope is None else slope)
    added = run(x, (1, 1), slope, total)
    assert added.data_ptr() == total.data_ptr()
    assert (added - expected).abs().max() < 1e-4


@compiled
@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_rows_of_a_strip_are_padded_where_they_are_the_edge(dilation: int, rows: int) -> None:
    layer = made_layer(48, 48, dilation, bias=False)
    x = views(48, 40, 29)[:, :, 5:36]  # a strip of what is held
    run = winograd(layer)
    assert run is not None
    padding = min(rows, dilation), dilation
    expected = F.conv2d(x, layer.weight, None, 1, padding, dilation)
    assert (run(x, padding, None) - expected).abs().max() < 1e-4


def test_other_layers_are_torch_s_own() -> None:
    layers = [
        nn.Conv2d(64, 64, 3, stride=2),
        nn.Conv2d(64, 64, 1),
        nn.Conv2d(64, 64, 3, groups=2),
        nn.Conv2d(3, 64, 3),
        nn.Conv2d(64, 64, 3).to(torch.bfloat16),
    ]
    assert [winograd(layer) for layer in layers] == [None] * len(layers)


@compiled
def test_a_network_finds_the_same_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = normalised(picture_pair(96, 160))
    found = []
    for library in (module._library, lambda: None):
        monkeypatch.setattr(module, "_library", library)
        network = pasmnet2().prepare(torch.float32)
        ready = [each for each in network.modules() if getattr(each, "winograd", None) is not None]
        assert len(ready) == (0 if found else 27)
        with torch.inference_mode():
            found.append(network(pair[:1], pair[1:]).disparity)
    assert found[0].max() > 1
    assert 0 < (found[0] - found[1]).abs().max() < 1e-3


@pytest.mark.parametrize("there", ["nothing", "no library", "another version"])
def test_a_library_that_does_not_fit_is_not_used(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libwinograd.so"
    if there == "no library":
        library.write_bytes(b"nothing that can be loaded")
    if there == "another version":
        if not available():
            pytest.skip("winograd.c is not compiled: there is no C compiler")
        monkeypatch.setattr(module, "_Map", ctypes.c_long)
        library = module.LIBRARY
    monkeypatch.setattr(module, "LIBRARY", library)
    module._library.cache_clear()
    try:
        assert not available()
    finally:
        monkeypatch.undo()
        module._library.cache_clear()


def test_without_a_compiler_the_script_says_so_and_leaves_what_is_there() -> None:
    before = module.LIBRARY.stat().st_mtime_ns if module.LIBRARY.exists() else None
    script = [sys.executable, "scripts/build_winograd.py"]
    environment = {**os.environ, "CC": "no-such-compiler"}
    run = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("winograd.c: no-such-compiler")
    assert before == (module.LIBRARY.stat().st_mtime_ns if module.LIBRARY.exists() else None)
