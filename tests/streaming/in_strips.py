"""Networks run strip by strip on pictures that count how often each row is read."""

from __future__ import annotations

from typing import Any

import torch
from random_networks import CountedRows
from torch import Tensor, nn

from pamcli.networks.pasmnet import Matching
from pamcli.streaming.matching import StreamedMatching


def matched(
    streamed: Any,
    views: Tensor,
    prior: int | None,
    strip: int | None,
    confidence: bool = False,
) -> StreamedMatching:
    """Match normalised views (2, 3, H, W) strip by strip."""
    _, _, height, width = views.shape
    rows = CountedRows(views)
    with torch.inference_mode():
        found = streamed.match(rows, height, width, prior, strip=strip, confidence=confidence)
    assert rows.asked == list(range(height)), "every row is read once"
    return found


def matched_whole(network: nn.Module, views: Tensor, prior: int | None) -> Matching:
    """Match by the plain network."""
    with torch.inference_mode():
        found: Matching = network(views[:1], views[1:], prior)
    return found


def enlarged(streamed: Any, views: Tensor, strip: int | None, both: bool = True) -> Tensor:
    """The enlarged views (1 or 2, 3, scale H, scale W), written strip by strip."""
    _, _, height, width = views.shape
    scale = streamed.network.scale
    out = torch.full((2 if both else 1, 3, scale * height, scale * width), torch.nan)
    rows = CountedRows(views)

    def write(view: int, first: int, picture: Tensor) -> None:
        place = out[view, :, first : first + picture.shape[1]]
        assert picture.dtype == torch.float32
        assert place.isnan().all(), "every row is written once"
        place.copy_(picture)

    with torch.inference_mode():
        streamed.enlarge(rows, height, width, write, both=both, strip=strip)
    assert rows.asked == list(range(height)), "every row is read once"
    return out
