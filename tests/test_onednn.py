"""Products and convolutions are those of torch, whatever computes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pamcli import onednn
from pamcli.onednn import (
    FUSED,
    add_convolution,
    convolve,
    is_onednn_faster,
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
    monkeypatch.setattr(onednn, "is_onednn_faster", lambda: True)
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


@has_choice
@pytest.mark.parametrize(("vendor", "error", "pays"), [
    ("AuthenticAMD", 0, True), ("AuthenticAMD", 1e-3, False), ("GenuineIntel", 0, False),
])  # fmt: skip
def test_onednn_multiplies_where_it_is_exact_and_mkl_is_slow(
    vendor: str, error: float, pays: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(onednn, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"vendor_id : {vendor}\n")
    monkeypatch.setattr(onednn, "_multiply", lambda a, b: (a.double() @ b.double() * (1 + error)).float())
    assert is_onednn_faster.__wrapped__() == pays


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_what_follows_a_convolution_is_the_same_fused_or_not(
    fused: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fused and not FUSED[torch.float32]:
        pytest.skip("this processor's convolutions do nothing else")
    monkeypatch.setitem(FUSED, torch.float32, fused)
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
        add_convolution(total, x, weight, bias)
        assert torch.allclose(total, 1 + plain, atol=1e-5)
        add_convolution(total[:1, :, 2:5], x[:1, :, 2:5], weight, bias)  # into a part of it
        assert torch.allclose(total[:1, :, 2:5], 1 + 2 * plain[:1, :, 2:5], atol=1e-5)
        assert torch.allclose(total[:1, :, :2], 1 + plain[:1, :, :2], atol=1e-5)
        factor = torch.full_like(plain, 3.0)
        assert torch.allclose(multiply_by_convolution(factor, x, weight, bias), 3 * plain, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_a_product_with_a_convolution_in_16_bits(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fused and not FUSED[torch.bfloat16]:
        pytest.skip("this processor does not convolve in 16 bits")
    monkeypatch.setitem(FUSED, torch.bfloat16, fused)
    torch.manual_seed(0)
    shapes = [(1, 6, 5, 7), (1, 8, 5, 7), (6, 8, 1, 1)]
    factor, x, weight = (
        torch.randn(shape).bfloat16().contiguous(memory_format=torch.channels_last) for shape in shapes
    )
    bias = torch.randn(6).bfloat16()
    expected = factor.float() * F.conv2d(x.float(), weight.float(), bias.float())
    found = multiply_by_convolution(factor, x, weight, bias)
    assert torch.allclose(found.float(), expected, rtol=0.02, atol=0.02)
