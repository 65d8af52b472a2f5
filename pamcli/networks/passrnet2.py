"""Define PASSRnet 2: PASSRnet's parallax attention at several depths between gated blocks.

Shapes: B batch, C channels (`WIDTH`), H rows, W columns of the low-resolution images; `views` holds the
features of both images joined in the batch, left first: (2B, C, H, W). Both images are upscaled in one pass,
with the same weights. Only 3x3 convolutions and the last step, which makes the result consistent, look at
other rows: bands of rows with a halo give the same result.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.bicubic import Consistency, upscale_bicubic
from pamcli.networks.blocks import conv, needs_gradient_on_cpu, pointwise_dilation
from pamcli.networks.fused import fold_batch_norms
from pamcli.networks.parallax import (
    VALID_MASS,
    ParallaxMaps,
    attention,
    gather_features,
    matching_cost,
    received_mass,
)
from pamcli.networks.passrnet import SuperResolution
from pamcli.networks.passrnet2_fused import EPSILON, FusedBlock, FusedExchange, Stream
from pamcli.networks.subpixel import Attended, SubpixelDetail, find_most_attended

WIDTH = 64
BLOCKS = 16
EXCHANGES = 4  # exchanges of features between the views, evenly spaced


class PASSRnet2(nn.Module):
    """Upscales both images of a rectified pair by `scale`: bicubic plus a learned difference."""

    def __init__(self, scale: int, blocks: int = BLOCKS, consistency: str = "none") -> None:
        """Make a network of `blocks` blocks, a multiple of `EXCHANGES`; consistency: none or bicubic."""
        super().__init__()
        self.scale = scale
        self.first = conv(3, WIDTH, bias=True)
        self.blocks = nn.ModuleList(GatedBlock() for _ in range(blocks))
        self.exchange_behind = [blocks * (place + 1) // EXCHANGES - 1 for place in range(EXCHANGES)]
        """Indices of the blocks after which the views exchange features."""
        self.detail_behind = self.exchange_behind[1]
        """Index of the exchange whose attention gives the subpixel positions of the other view."""
        self.exchanges = nn.ModuleDict({str(depth): Exchange() for depth in self.exchange_behind})
        self.detail = SubpixelDetail(WIDTH)
        self.last = conv(WIDTH, 3 * scale**2, bias=True)
        for parameter in self.last.parameters():  # start as bicubic upscaling
            nn.init.zeros_(parameter)
        self.consistency = Consistency(scale) if consistency == "bicubic" else None

    @property
    def HALO(self) -> int:  # noqa: N802
        """Rows above and below that affect a row: one per 3x3 convolution, and those of `Consistency`."""
        corrected = 0 if self.consistency is None else self.consistency.HALO
        return len(self.blocks) + 2 + corrected

    def prepare(self, dtype: torch.dtype) -> "PASSRnet2":
        """Return a copy for inference in `dtype` whose features are in the basis of a `Stream`."""
        network = fold_batch_norms(self)  # copies; the network has none
        stream = Stream(WIDTH)
        stream.fold_output(network.first)
        for depth, block in enumerate(network.blocks):
            network.blocks[depth] = FusedBlock(block, stream)
        for key, exchange in network.exchanges.items():
            network.exchanges[key] = FusedExchange(exchange, stream)
        stream.fold_output(network.detail.join)
        stream.fold_input(network.last)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for part in (network.blocks, network.exchanges, network.last):
            part.to(dtype)
        return network

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        """Upscale a batch of pairs (B, 3, H, W), RGB in [0, 1]; with `both` return the right images, too."""
        images = torch.cat((left, right))  # (2B, 3, H, W)
        views = self.first(images.to(self.first.weight.dtype))  # (2B, C, H, W)
        if self.last.weight.dtype != self.first.weight.dtype:  # prepared in 16 bits
            views = views.to(self.last.weight.dtype)
        for depth, block in enumerate(self.blocks):
            views = block(views)
            if depth in self.exchange_behind:
                exchange = self.exchanges[str(depth)]
                views, pair, attended = exchange(views, find_attended=depth == self.detail_behind)
                if attended is not None:
                    views = views + self.detail(images, attended).to(views.dtype)
        learned = self.last(views).float()  # (2B, 3 scale^2, H, W)
        upscaled = upscale_bicubic(images.float(), self.scale, learned)
        if self.consistency is not None and not self.training:  # crops do not continue as mirror images
            upscaled = self.consistency(upscaled, images.float())
        left, right = upscaled.chunk(2)
        return SuperResolution(left, right if both else None, partial(_parallax_maps, *pair))


class PixelNorm(nn.Module):
    """Layer norm over the channels of each pixel, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.permute(0, 2, 3, 1), (WIDTH,), self.weight, self.bias, EPSILON)
        return normal.to(x.dtype).permute(0, 3, 1, 2)


class GatedBlock(nn.Module):
    """The block of NAFNet without channel attention, which depends on the whole image.

    x + b conv1(gate(depthwise(conv1(norm x)))), then the same without the 3x3 convolution; a gate is the
    product of two halves of the channels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = PixelNorm()
        self.norm2 = PixelNorm()
        self.widen = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.mix = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1, groups=2 * WIDTH)
        self.narrow = conv(WIDTH, WIDTH, 1, bias=True)
        self.widen2 = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.narrow2 = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale1 = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))
        self.scale2 = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, C, H, W) to the same shape."""
        x = pointwise(self.narrow, self._gate(self.norm1(x), self.widen, self.mix), self.scale1).add_(x)
        return pointwise(self.narrow2, self._gate(self.norm2(x), self.widen2), self.scale2).add_(x)

    def _gate(self, x: Tensor, widen: nn.Conv2d, mix: nn.Conv2d | None = None) -> Tensor:
        """Multiply the two halves of the channels that one or two layers compute from x."""
        # In training on a CPU, separate halves save a tenth of the time.
        parts = 2 if needs_gradient_on_cpu(x) else 1
        made: list[Tensor] = []
        for part in range(parts):
            wide = pointwise(widen, x, part=part, parts=parts)
            if mix is not None:
                weight, bias = _slice_layer(mix, part, parts)
                wide = F.conv2d(wide, weight, bias, padding=1, groups=len(weight))
            made += wide.chunk(2 // parts, 1)
        return made[0] * made[1]


def pointwise(
    layer: nn.Conv2d, x: Tensor, scale: Tensor | None = None, part: int = 0, parts: int = 1
) -> Tensor:
    """Convolve x by one of `parts` equal parts of a 1x1 layer, times `scale` (C, 1, 1)."""
    weight, bias = _slice_layer(layer, part, parts)
    if scale is not None:
        weight, bias = weight * scale[..., None], bias * scale[:, 0, 0]
    return F.conv2d(x, weight, bias, dilation=pointwise_dilation(x))


def _slice_layer(layer: nn.Conv2d, part: int, parts: int) -> tuple[Tensor, Tensor]:
    """Return weight and bias of one of `parts` equal parts of a layer's output channels."""
    assert layer.bias is not None
    if parts == 1:
        return layer.weight, layer.bias
    return layer.weight.chunk(parts)[part], layer.bias.chunk(parts)[part]


QueriesKeys = tuple[Tensor, Tensor]  # queries of the left view and keys of the right one (B, C, H, W)


class Exchange(nn.Module):
    """Parallax attention in both directions, from one product of queries and keys.

    The scale of the gathered features starts at 0, so that the network starts as two separate ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = PixelNorm()
        self.describe = conv(WIDTH, WIDTH, 1, bias=True)
        self.value = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale = nn.Parameter(torch.zeros(WIDTH, 1, 1))

    def forward(
        self, views: Tensor, *, find_attended: bool = False
    ) -> tuple[Tensor, QueriesKeys, Sequence[Attended] | None]:
        """Compute (2B, C, H, W) to the same shape, and optionally the most attended columns."""
        queries, keys = self.project(views)
        values = pointwise(self.value, views, self.scale)  # (2B, C, H, W)
        maps, (left, right) = compute_maps(queries, keys), values.chunk(2)
        gathered = torch.cat((gather_features(maps[0], right), gather_features(maps[1], left)))
        found = [find_most_attended(each) for each in maps] if find_attended else None
        return views + gathered, (queries, keys), found

    def project(self, views: Tensor) -> QueriesKeys:
        left, right = pointwise(self.describe, self.norm(views)).chunk(2)
        return left * WIDTH**-0.5, right


def compute_maps(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the attention of both views: (B, H, W, V) and (B, H, V, W)."""
    cost = matching_cost(queries, keys)  # (B, H, W, V)
    return attention(cost), cost.softmax(2).transpose(2, 3)


def _parallax_maps(queries: Tensor, keys: Tensor) -> ParallaxMaps:
    """Compute maps and masks of Equation 4, without the clean-up."""
    right_to_left, left_to_right = compute_maps(queries, keys)
    return ParallaxMaps(
        right_to_left,
        left_to_right,
        valid_left=received_mass(left_to_right) > VALID_MASS,
        valid_right=received_mass(right_to_left) > VALID_MASS,
    )
