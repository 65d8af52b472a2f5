"""PASSRnet 2 a few rows at a time: the same pictures. Both views joined in the batch, left first."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import attention
from pamcli.networks.passrnet2 import (
    DETAIL_BEHIND,
    EXCHANGES,
    Exchange,
    PASSRnet2,
    SubpixelDetail,
    bicubic,
)
from pamcli.streaming.attention import line_bytes, lines_at_once
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import (
    Given,
    Larger,
    Mapped,
    RollingMap,
    Rows,
    Shuffled,
    convolution,
    number_size,
    strips,
)

AHEAD = 17  # rows of a map that wait for those below them, in all layers together

CUBIC_REACH = 2  # rows above and below that a bicubic enlargement looks at

PRODUCTS_BY_MKL = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]


class StreamedPASSRnet2:
    """Runs a PASSRnet 2 strip by strip, in the precision of its weights; attention and result are float32."""

    def __init__(self, network: PASSRnet2, precision: torch.dtype | None = None) -> None:
        """Take a network, and bring its convolutions to a `precision`; None: as they are."""
        self.network = network if precision is None else network.to(dtype=precision)

    def footprint(self, width: int, height: int, *, both: bool) -> Footprint:
        """What a pair takes at the peak: both views are enlarged in any case."""
        each = 1030 * number_size(self.network)
        enlarged = 84 * self.network.scale**2  # of both views, before and after they are float32, and a base
        return in_strips(
            width,
            height,
            Pays(7_500),  # layers that compute little for what they read: it stays in the cache
            picture=0,
            strip=max(each, enlarged),
            waiting=[(each, AHEAD)],
            line=line_bytes(width, ordered=False),
            lines=lines_at_once(width, width),
            ahead=AHEAD,
        )

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """Enlarge a pair, as `StreamedPASSRnet.enlarge` does."""
        strip = height if strip is None else strip
        network = self.network
        given = Given(rows, height)
        x: RollingMap = convolution(given, network.first)
        for depth, block in enumerate(network.blocks):
            x = Larger(x, 1, 1, block)
            if depth in EXCHANGES:
                detail = network.detail if depth == DETAIL_BEHIND else None
                sources = (x,) if detail is None else (x, given)
                x = Mapped(_exchanged(network.exchanges[str(depth)], detail), *sources)
        scale = network.scale
        base = Larger(given, scale, CUBIC_REACH * scale, lambda x: bicubic(x.float(), scale), unit=scale)
        learned = Shuffled(convolution(x, network.last), scale)
        picture = Mapped(lambda own, base: own.float() + base, learned, base).reader()
        for first, last in strips(picture.height, scale * strip):
            enlarged = picture(first, last)
            for view in range(2 if both else 1):
                write(view, first, enlarged[view])
            picture.forget(last)


def _exchange(exchange: Exchange, views: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute what `Exchange.forward` does, line by line."""
    left, right = (x.permute(0, 2, 3, 1).float() for x in exchange.described(views))  # (B, H, W, C)
    cost = line_products(left, right.mT)
    maps = attention(cost), cost.softmax(2).transpose(2, 3)
    values = (x.permute(0, 2, 3, 1) for x in reversed(exchange.values(views)))
    given = [line_products(map_.to(x.dtype), x) for map_, x in zip(maps, values, strict=True)]
    return views + torch.cat(given).permute(0, 3, 1, 2), maps


def _exchanged(exchange: nn.Module, detail: SubpixelDetail | None) -> Callable[..., Tensor]:
    """Exchange a few lines at a time: their maps are large. With `detail`, of features and pictures."""
    assert isinstance(exchange, Exchange)

    def some(views: Tensor, *pictures: Tensor) -> Tensor:
        views, maps = _exchange(exchange, views)
        return views if detail is None else views + detail(*pictures, maps)

    def run(*sources: Tensor) -> Tensor:
        _, _, height, width = sources[0].shape
        lines = lines_at_once(width, width)
        return torch.cat([some(*(x[:, :, a:b] for x in sources)) for a, b in strips(height, lines)], 2)

    return run


def line_products(one: Tensor, other: Tensor) -> Tensor:
    """The matrix product of each epipolar line, (..., J, C) and (..., C, K) to (..., J, K), on a CPU.

    As a convolution with a group for each line, for on processors of AMD the library of convolutions takes
    half the time of that of matrix products (MKL). The stages of the other networks, which are smaller or
    cut from larger ones, gain nothing by it.
    """
    if one.device.type != "cpu" or one.dtype != torch.float32 or not PRODUCTS_BY_MKL:
        return torch.matmul(one, other)
    if not one.is_contiguous() and one.mT.is_contiguous():  # a map that is seen transposed is not copied
        return line_products(other.mT.contiguous(), one.mT).mT
    *lines, width, channels = one.shape
    groups = math.prod(lines)
    kernels = one.reshape(groups * width, channels, 1)
    product = F.conv1d(other.reshape(1, groups * channels, -1), kernels, groups=groups)
    return product.view(*lines, width, -1)
