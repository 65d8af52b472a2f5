"""Define PASSRnet 2: PASSRnet's parallax attention at several depths between gated blocks.

Shapes: B batch, C channels (`WIDTH`), H rows, W columns of the low-resolution images; `views` holds the
features of both images joined in the batch, left first: (2B, C, H, W). Both images are upscaled in one pass,
with the same weights. Only 3x3 convolutions and the last step, which makes the result consistent, look at
other rows: bands of rows with a halo give the same result.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.convolutions import convolve, multiply_by_convolution
from pamcli.networks.bicubic import Consistency, upscale_bicubic
from pamcli.networks.blocks import conv, fold_batch_norms, runs_eagerly_on_cpu
from pamcli.networks.parallax import (
    VALID_MASS,
    ParallaxMaps,
    attention,
    gather_features,
    matching_cost,
    received_mass,
)
from pamcli.networks.passrnet import SuperResolution
from pamcli.networks.subpixel import Attended, SubpixelDetail, find_most_attended

WIDTH = 64
BLOCKS = 16
EXCHANGES = 4  # exchanges of features between the views, evenly spaced

EPSILON = 1e-6  # of the variance that a norm divides by
MEAN_SCALE = 2.0**-8  # of a prepared network's mean of channels, so that it hardly affects a pixel's length

MAP_BYTES = 1_500_000  # exponentials of costs to compute at a time on CPUs
SMALLEST_SUM = 1e-37  # lower bound of a sum of exponentials, which avoids NaN for pixels without a match


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
        gate = self._gate(self.norm1(x), self.widen, self.mix)
        x = convolve(gate, *_scale(self.narrow, self.scale1)).add_(x)
        gate = self._gate(self.norm2(x), self.widen2)
        return convolve(gate, *_scale(self.narrow2, self.scale2)).add_(x)

    def _gate(self, x: Tensor, widen: nn.Conv2d, mix: nn.Conv2d | None = None) -> Tensor:
        """Multiply the two halves of the channels that one or two layers compute from x."""
        # In training on a CPU, separate halves save a tenth of the time.
        parts = 2 if x.requires_grad and runs_eagerly_on_cpu(x) else 1
        made: list[Tensor] = []
        for place, layer in enumerate(_split(widen, parts)):
            wide = convolve(x, *layer)
            if mix is not None:
                wide = F.conv2d(wide, *_split(mix, parts)[place], padding=1, groups=wide.shape[1])
            made += wide.chunk(2 // parts, 1)
        return made[0] * made[1]


def _scale(layer: nn.Conv2d, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer times `scale` (C, 1, 1)."""
    assert layer.bias is not None
    return layer.weight * scale[..., None], layer.bias * scale[:, 0, 0]


def _split(layer: nn.Conv2d, parts: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of each of equal parts of a layer's output channels."""
    assert layer.bias is not None
    return [*zip(layer.weight.chunk(parts), layer.bias.chunk(parts), strict=True)]


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
        values = convolve(views, *_scale(self.value, self.scale))  # (2B, C, H, W)
        maps, (left, right) = compute_maps(queries, keys), values.chunk(2)
        gathered = torch.cat((gather_features(maps[0], right), gather_features(maps[1], left)))
        found = [find_most_attended(each) for each in maps] if find_attended else None
        return views + gathered, (queries, keys), found

    def project(self, views: Tensor) -> QueriesKeys:
        left, right = convolve(self.norm(views), self.describe.weight, self.describe.bias).chunk(2)
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


# --- the faster forms of the parts for inference ---


class Stream:
    """The basis of the features between prepared blocks.

    An orthogonal matrix makes the first channel the mean of all channels, which is scaled down. A norm then
    only divides a pixel by its length, as the following layer ignores the first channel.
    """

    def __init__(self, width: int) -> None:
        """Make the basis of `width` channels."""
        axis = torch.full((width,), -(width**-0.5), dtype=torch.float64)
        axis[0] += 1
        mirrored = torch.eye(width, dtype=torch.float64) - 2 * torch.outer(axis, axis) / axis.dot(axis)
        scales = torch.ones(width, dtype=torch.float64)
        scales[0] = MEAN_SCALE
        self.into, self.back = scales[:, None] * mirrored, mirrored / scales
        centered = torch.eye(width, dtype=torch.float64) - 1 / width
        self.normal = centered @ self.back * width**0.5  # from a pixel of length 1 to one of variance 1

    def fold_input(self, layer: nn.Conv2d, norm: Any = None) -> None:
        """Make a convolution read the stream, or a `norm` of it, which then is only a division."""
        weight, inputs = layer.weight.double(), self.back
        if norm is not None:
            assert layer.bias is not None
            shift = torch.einsum("oikl,i->o", weight, norm.bias.double())
            layer.bias = nn.Parameter((layer.bias.double() + shift).float(), False)
            inputs = norm.weight.double()[:, None] * self.normal
        layer.weight = nn.Parameter(torch.einsum("oikl,ij->ojkl", weight, inputs).float(), False)

    def fold_output(self, layer: nn.Conv2d, scale: Tensor | None = None) -> None:
        """Make a convolution write the stream, multiplied by a `scale` (C, 1, 1)."""
        assert layer.bias is not None
        outputs = self.into if scale is None else self.into * scale.double()[:, 0, 0]
        weight = torch.einsum("po,oikl->pikl", outputs, layer.weight.double())
        layer.weight = nn.Parameter(weight.float(), False)
        layer.bias = nn.Parameter((outputs @ layer.bias.double()).float(), False)


class LengthNorm(nn.Module):
    """A `PixelNorm` with folded weights: divides each pixel by its length."""

    def forward(self, x: Tensor) -> Tensor:
        # CPUs sum 16-bit numbers in float32 anyway; requesting it costs a pass over x.
        dtype = None if x.device.type == "cpu" else torch.float32
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=dtype).float()
        factor: Tensor = length.square_().add_(x.shape[1] * EPSILON).rsqrt_().to(x.dtype)  # (B, 1, H, W)
        return x * factor


class FusedBlock(nn.Module):
    """A gated block between the features of a `Stream`, with norms and scales folded."""

    def __init__(self, block: Any, stream: Stream) -> None:
        super().__init__()
        self.norm, self.mix = LengthNorm(), block.mix
        self.widen, self.narrow = block.widen, block.narrow
        self.widen2, self.narrow2 = block.widen2, block.narrow2
        stream.fold_input(self.widen, block.norm1)
        stream.fold_input(self.widen2, block.norm2)
        stream.fold_output(self.narrow, block.scale1)
        stream.fold_output(self.narrow2, block.scale2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, C, H, W) to the same shape, in place on a CPU."""
        if x.device.type == "cpu":
            for view in x.chunk(len(x)):
                self._run_in_place(view)
            return x
        one, other = self.mix(pointwise(self.widen, self.norm(x))).chunk(2, 1)
        x = pointwise(self.narrow, one * other).add_(x)
        one, other = pointwise(self.widen2, self.norm(x)).chunk(2, 1)
        return pointwise(self.narrow2, one * other).add_(x)

    def _run_in_place(self, x: Tensor) -> None:
        """Run the block on x (1, C, H, W), with separate halves of each gate for the cache."""
        normal = self.norm(x)
        one, other = (
            F.conv2d(convolve(normal, *wide), *mixed, padding=1, groups=x.shape[1])
            for wide, mixed in zip(_split(self.widen), _split(self.mix), strict=True)
        )
        convolve(one.mul_(other), self.narrow.weight, self.narrow.bias, add_to=x)
        normal = self.norm(x)
        first, second = _split(self.widen2)
        gate = multiply_by_convolution(convolve(normal, *first), normal, *second)
        convolve(gate, self.narrow2.weight, self.narrow2.bias, add_to=x)


class FusedExchange(nn.Module):
    """An exchange between the features of a `Stream`, with norm and scale folded, without whole maps."""

    def __init__(self, exchange: Any, stream: Stream) -> None:
        super().__init__()
        self.norm, self.describe, self.value = LengthNorm(), exchange.describe, exchange.value
        stream.fold_input(self.describe, exchange.norm)
        stream.fold_input(self.value)
        stream.fold_output(self.value, exchange.scale)

    def forward(
        self, views: Tensor, *, find_attended: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor], list[Attended] | None]:
        """Compute (2B, C, H, W) to the same shape, and optionally the most attended columns."""
        left, right = pointwise(self.describe, self.norm(views)).chunk(2)
        queries = left * left.shape[1] ** -0.5
        values = pointwise(self.value, views)  # (2B, C, H, W)
        gathered, attended = gather_both(queries, right, values, find_attended=find_attended)
        return gathered.add_(views), (queries, right), attended


def pointwise(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve x by a 1x1 layer; on GPUs as a product of matrices."""
    if x.is_cuda:
        return F.linear(x.permute(0, 2, 3, 1), layer.weight[:, :, 0, 0], layer.bias).permute(0, 3, 1, 2)
    return convolve(x, layer.weight, layer.bias)


def gather_both(
    queries: Tensor, keys: Tensor, values: Tensor, *, find_attended: bool
) -> tuple[Tensor, list[Attended] | None]:
    """Gather the other view's values (2B, C, H, W) for inference, on CPUs a few rows at a time."""
    # Both directions are the same exponentials, divided by their sums over rows or columns.
    count, _, height, width = queries.shape
    q, k = (each.permute(0, 2, 3, 1) for each in (queries, keys))  # (B, H, W, C)
    gathered = torch.empty_like(values)
    left, right = values.permute(0, 2, 3, 1).chunk(2)
    places = gathered.permute(0, 2, 3, 1).chunk(2)
    kind = torch.float32 if values.dtype == torch.float16 else values.dtype  # exponentials below 1e-7 count
    rows = max(1, MAP_BYTES // (4 * count * width**2)) if queries.device.type == "cpu" else height
    found: list[list[Attended]] = [[], []]
    for first in range(0, height, rows):
        at = slice(first, first + rows)
        cost = torch.matmul(q[:, at].float(), k[:, at].float().mT)  # (B, rows, W, V)
        weights = cost.sub_(cost.amax((2, 3), keepdim=True)).exp_()
        lowered = weights.to(kind)
        maps = (weights, lowered, weights.sum(3)), (weights.mT, lowered.mT, weights.sum(2))
        for place, value, (exact, low, total), attended in zip(
            places, (right, left), maps, found, strict=True
        ):
            factor = total.clamp_(min=SMALLEST_SUM).reciprocal_()[..., None]
            place[:, at] = torch.matmul(low, value[:, at].to(kind)).mul_(factor.to(kind))
            if find_attended:
                columns, near = find_most_attended(exact)
                attended.append((columns, near.mul_(factor)))
    if not find_attended:
        return gathered, None
    joined = [[torch.cat(parts, 1) for parts in zip(*each, strict=True)] for each in found]
    return gathered, [(columns, near) for columns, near in joined]
