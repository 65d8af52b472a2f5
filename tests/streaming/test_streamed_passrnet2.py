"""PASSRnet 2 in strips gives PASSRnet 2's pictures."""

from __future__ import annotations

import pytest
import torch
from in_strips import enlarged
from random_networks import passrnet2, picture_pair
from torch import Tensor

from pamcli.streaming import passrnet2 as streamed
from pamcli.streaming.passrnet2 import LOG2_E, StreamedPASSRnet2, _shares


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


@pytest.mark.parametrize("strip", [3, None])
def test_a_deeper_one_in_strips_gives_its_own_pictures(strip: int | None) -> None:
    views, network = picture_pair(40, 17, shift=3), passrnet2(4, 32)
    with torch.inference_mode():
        plain = network(views[:1], views[1:], both=True)
    assert plain.right is not None
    found = enlarged(StreamedPASSRnet2(network), views, strip)
    assert (found - torch.cat((plain.left, plain.right))).abs().max() < 1e-5


def test_few_lines_of_attention_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    views = picture_pair(21, 17, shift=3)
    expected = run(2, views, None)
    monkeypatch.setattr(streamed, "lines_at_once", lambda width, other: 4)
    assert (run(2, views, None) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("largest", [1.0, 30.0, 100.0])
def test_attention_of_pixels_that_fit_nowhere_is_that_of_the_softmax(largest: float) -> None:
    """Beside a pixel that fits this well the exponentials of all others vanish."""
    generator = torch.Generator().manual_seed(3)
    queries, keys = (torch.randn(1, 2, 9, 8, generator=generator) for _ in range(2))
    queries[0, 0, 4], keys[0, 0, 6] = largest / 8, largest
    cost = queries @ keys.mT
    expected = cost.softmax(3), cost.softmax(2).mT
    for share, map_ in zip(_shares(LOG2_E * queries, keys, torch.float32), expected, strict=True):
        torch.testing.assert_close(share.weights / share.total[..., None], map_, atol=1e-6, rtol=1e-4)
