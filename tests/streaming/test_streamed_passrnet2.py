"""PASSRnet 2 in strips gives PASSRnet 2's pictures."""

from __future__ import annotations

import pytest
import torch
from in_strips import enlarged
from random_networks import passrnet2, picture_pair
from torch import Tensor

from pamcli.streaming import passrnet2 as streamed
from pamcli.streaming.passrnet2 import StreamedPASSRnet2, line_products


def run(scale: int, views: Tensor, strip: int | None, both: bool = True) -> Tensor:
    return enlarged(StreamedPASSRnet2(passrnet2(scale)), views, strip, both)


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 31), (33, 20), (50, 11)])
def test_strips_of_any_height_give_the_plain_pictures(scale: int, height: int, width: int) -> None:
    views = picture_pair(height, width, shift=3)
    with torch.inference_mode():
        plain = passrnet2(scale)(views[:1], views[1:], both=True)
    assert plain.right is not None
    expected = torch.cat((plain.left, plain.right))
    for strip in (1, 2, 5, 16, None):
        assert (run(scale, views, strip) - expected).abs().max() < 1e-5
    assert (run(scale, views, 16, both=False) - plain.left).abs().max() < 1e-5


def test_few_lines_of_attention_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    views = picture_pair(21, 17, shift=3)
    expected = run(2, views, None)
    monkeypatch.setattr(streamed, "lines_at_once", lambda width, other: 4)
    assert (run(2, views, None) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("shape", [(5, 7, 3, 9), (1, 1, 8, 1), (4, 30, 30, 8)])
def test_the_products_of_lines_are_those_of_matrices(shape: tuple[int, int, int, int]) -> None:
    lines, width, channels, other = shape
    one, two = torch.randn(2, lines, width, channels), torch.randn(2, lines, channels, other)
    for left in (one, one.mT.contiguous().mT, one.flip(0).transpose(0, 1).contiguous().transpose(0, 1)):
        for right in (two, two.mT.contiguous().mT):
            assert torch.allclose(line_products(left, right), left @ right, atol=1e-5)
    assert torch.equal(
        line_products(one[0].bfloat16(), two[0].bfloat16()), one[0].bfloat16() @ two[0].bfloat16()
    )
