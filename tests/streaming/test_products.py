"""Products are those of float32, whichever library multiplies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pamcli.streaming import products
from pamcli.streaming.products import onednn_pays, product

has_choice = pytest.mark.skipif(
    not hasattr(torch.backends.mkldnn, "matmul"), reason="this version of torch does not say what multiplies"
)


def made(kind: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, 40, 20, generator=generator).to(kind) for _ in range(2))
    return a, b.mT


@pytest.mark.parametrize("pays", [False, True])
def test_a_product_has_the_precision_of_float32(pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if pays and not onednn_pays():
        pytest.skip("oneDNN is not the faster one here, or not exact")
    monkeypatch.setattr(products, "onednn_pays", lambda: pays)
    a, b = made()
    assert (product(a, b) - a.double() @ b.double()).abs().max() < 1e-5
    a, b = made(torch.bfloat16)
    assert product(a, b).dtype == torch.bfloat16


@has_choice
def test_what_multiplies_elsewhere_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "onednn_pays", lambda: True)
    before = torch.backends.mkldnn.matmul.fp32_precision
    product(*made())
    with pytest.raises(RuntimeError):
        product(torch.ones(2, 3), torch.ones(2, 3))
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@has_choice
@pytest.mark.parametrize(("vendor", "error", "pays"), [
    ("AuthenticAMD", 0, True), ("AuthenticAMD", 1e-3, False), ("GenuineIntel", 0, False),
])  # fmt: skip
def test_onednn_multiplies_where_it_is_exact_and_mkl_is_slow(
    vendor: str, error: float, pays: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(products, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"vendor_id : {vendor}\n")
    monkeypatch.setattr(products, "_by_onednn", lambda a, b: (a.double() @ b.double() * (1 + error)).float())
    assert onednn_pays.__wrapped__() == pays
