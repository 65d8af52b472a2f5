"""Products and convolutions by oneDNN and winograd.c are those of torch, wherever tiles end."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from random_networks import normalised, pasmnet2, picture_pair
from torch import nn

from pamcli import convolutions as module
from pamcli.convolutions import (
    FUSED,
    Winograd,
    available,
    can_run,
    convolve,
    multiply_by_convolution,
    use_faster_products,
)

has_choice = pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="this version of torch does not say what multiplies"
)


def made(kind: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, 40, 20, generator=generator).to(kind) for _ in range(2))
    return a, b.mT


def test_a_product_has_the_precision_of_float32() -> None:
    a, b = made()
    exact = a.double() @ b.double()
    with use_faster_products():
        assert (a @ b - exact).abs().max() < 1e-5
        total = torch.ones(3, 40, 60)[..., 10:50]  # a part of what is held
        total.baddbmm_(a, b)
    assert (total - 1 - exact).abs().max() < 1e-5


@has_choice
def test_runs_that_overlap_restore_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_onednn_faster", lambda: True)
    settings = torch.backends.mkldnn.matmul
    before = settings.fp32_precision
    first, second = use_faster_products(), use_faster_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings.fp32_precision == "bf16"
    second.__exit__(None, None, None)
    assert settings.fp32_precision == before
    with pytest.raises(RuntimeError), use_faster_products():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert settings.fp32_precision == before


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_what_follows_a_convolution_is_the_same_fused_or_not(
    fused: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fused and not FUSED["cpu", torch.float32]:
        pytest.skip("this processor's convolutions do nothing else")
    monkeypatch.setitem(FUSED, ("cpu", torch.float32), fused)
    torch.manual_seed(0)
    weight, bias = torch.randn(6, 5, size, size), torch.randn(6)
    x = torch.randn(2, 5, 7, 9).contiguous(memory_format=torch.channels_last)
    padding = (size // 2, size // 2)
    plain = F.conv2d(x, weight, bias, 1, padding)
    for slope in (None, 0.0, 0.1):
        expected = plain if slope is None else F.leaky_relu(plain, slope)
        assert torch.allclose(convolve(x, weight, bias, 1, padding, 1, slope), expected, atol=1e-5)
    if size == 1:
        total = torch.ones(2, 6, 7, 9).contiguous(memory_format=torch.channels_last)
        convolve(x, weight, bias, add_to=total)
        assert torch.allclose(total, 1 + plain, atol=1e-5)
        convolve(x[:1, :, 2:5], weight, bias, add_to=total[:1, :, 2:5])  # into a part of it
        assert torch.allclose(total[:1, :, 2:5], 1 + 2 * plain[:1, :, 2:5], atol=1e-5)
        assert torch.allclose(total[:1, :, :2], 1 + plain[:1, :, :2], atol=1e-5)
        factor = torch.full_like(plain, 3.0)
        assert torch.allclose(multiply_by_convolution(factor, x, weight, bias), 3 * plain, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_product_with_a_convolution_in_16_bits(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fused and not FUSED["cpu", torch.bfloat16]:
        pytest.skip("this processor does not convolve in 16 bits")
    monkeypatch.setitem(FUSED, ("cpu", torch.bfloat16), fused)
    torch.manual_seed(0)
    shapes = [(1, 6, 5, 7), (1, 8, 5, 7), (6, 8, 1, 1)]
    factor, x, weight = (
        torch.randn(shape).bfloat16().contiguous(memory_format=torch.channels_last) for shape in shapes
    )
    bias = torch.randn(6).bfloat16()
    expected = factor.float() * F.conv2d(x.float(), weight.float(), bias.float())
    found = multiply_by_convolution(factor, x, weight, bias)
    assert torch.allclose(found.float(), expected, rtol=0.02, atol=0.02)


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
    assert can_run(layer)
    run = Winograd(layer.weight, layer.bias, layer.dilation[0])
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
    assert can_run(layer)
    run = Winograd(layer.weight, layer.bias, layer.dilation[0])
    padding = min(rows, dilation), dilation
    expected = F.conv2d(x, layer.weight, None, 1, padding, dilation)
    assert (run(x, padding, None) - expected).abs().max() < 1e-4


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
