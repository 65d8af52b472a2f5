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
from pamcli.networks.blocks import (
    conv,
    fold_batch_norms,
    is_inference,
    needs_gradient_on_cpu,
    pointwise_dilation,
)
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
from pamcli.onednn import add_convolution, convolve, multiply_by_convolution

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
        """Return a copy for inference in `dtype` with norms and scales folded (see `Stream`)."""
        network = fold_batch_norms(self)  # copies; the network has none
        stream = Stream()
        stream.fold_output(network.first)
        for block in network.blocks:
            block.fold(stream)  # type: ignore[operator]
        for exchange in network.exchanges.values():
            exchange.fold(stream)  # type: ignore[operator]
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


class Stream:
    """The basis of the features between prepared blocks.

    An orthogonal matrix makes the first channel the mean of all channels, which is scaled down. A norm then
    only divides a pixel by its length, as the following layer ignores the first channel.
    """

    def __init__(self) -> None:
        axis = torch.full((WIDTH,), -(WIDTH**-0.5), dtype=torch.float64)
        axis[0] += 1
        mirrored = torch.eye(WIDTH, dtype=torch.float64) - 2 * torch.outer(axis, axis) / axis.dot(axis)
        scales = torch.ones(WIDTH, dtype=torch.float64)
        scales[0] = MEAN_SCALE
        self.into, self.back = scales[:, None] * mirrored, mirrored / scales
        centered = torch.eye(WIDTH, dtype=torch.float64) - 1 / WIDTH
        self.normal = centered @ self.back * WIDTH**0.5  # from a pixel of length 1 to one of variance 1

    def fold_input(self, layer: nn.Conv2d, norm: "PixelNorm | None" = None) -> None:
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


class PixelNorm(nn.Module):
    """Layer norm over the channels of each pixel, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.permute(0, 2, 3, 1), (WIDTH,), self.weight, self.bias, EPSILON)
        return normal.to(x.dtype).permute(0, 3, 1, 2)


class LengthNorm(nn.Module):
    """A `PixelNorm` with folded weights: divides each pixel by its length."""

    def forward(self, x: Tensor) -> Tensor:
        # CPUs sum 16-bit numbers in float32 anyway; requesting it costs a pass over x.
        dtype = None if x.device.type == "cpu" else torch.float32
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=dtype).float()
        factor: Tensor = length.square_().add_(WIDTH * EPSILON).rsqrt_().to(x.dtype)  # (B, 1, H, W)
        return x * factor


class GatedBlock(nn.Module):
    """The block of NAFNet without channel attention, which depends on the whole image.

    x + b conv1(gate(depthwise(conv1(norm x)))), then the same without the 3x3 convolution; a gate is the
    product of two halves of the channels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm1: nn.Module = PixelNorm()
        self.norm2: nn.Module = PixelNorm()
        self.widen = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.mix = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1, groups=2 * WIDTH)
        self.narrow = conv(WIDTH, WIDTH, 1, bias=True)
        self.widen2 = conv(WIDTH, 2 * WIDTH, 1, bias=True)
        self.narrow2 = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale1: Tensor | None = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))
        self.scale2: Tensor | None = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))

    def fold(self, stream: Stream) -> None:
        assert isinstance(self.norm1, PixelNorm) and isinstance(self.norm2, PixelNorm)  # noqa: PT018
        stream.fold_input(self.widen, self.norm1)
        stream.fold_input(self.widen2, self.norm2)
        stream.fold_output(self.narrow, self.scale1)
        stream.fold_output(self.narrow2, self.scale2)
        self.norm1, self.norm2, self.scale1, self.scale2 = LengthNorm(), LengthNorm(), None, None

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, C, H, W) to the same shape; in place for prepared blocks on a CPU."""
        if self.scale1 is None and is_inference() and x.device.type == "cpu":
            for view in x.chunk(len(x)):
                self._run_in_place(view)
            return x
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

    def _run_in_place(self, x: Tensor) -> None:
        """Run a prepared block on x (1, C, H, W), with separate halves of each gate for the cache."""
        normal = self.norm1(x)
        one, other = (
            F.conv2d(
                convolve(normal, *_slice_layer(self.widen, part, 2)),
                *_slice_layer(self.mix, part, 2),
                padding=1,
                groups=WIDTH,
            )
            for part in (0, 1)
        )
        add_convolution(x, one.mul_(other), self.narrow.weight, self.narrow.bias)
        normal = self.norm2(x)
        one = convolve(normal, *_slice_layer(self.widen2, 0, 2))
        gate = multiply_by_convolution(one, normal, *_slice_layer(self.widen2, 1, 2))
        add_convolution(x, gate, self.narrow2.weight, self.narrow2.bias)


def pointwise(
    layer: nn.Conv2d, x: Tensor, scale: Tensor | None = None, part: int = 0, parts: int = 1
) -> Tensor:
    """Convolve x by one of `parts` equal parts of a 1x1 layer, times `scale` (C, 1, 1)."""
    weight, bias = _slice_layer(layer, part, parts)
    if scale is not None:
        weight, bias = weight * scale[..., None], bias * scale[:, 0, 0]
    if x.is_cuda and is_inference():
        return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0], bias).permute(0, 3, 1, 2)
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
        self.norm: nn.Module = PixelNorm()
        self.describe = conv(WIDTH, WIDTH, 1, bias=True)
        self.value = conv(WIDTH, WIDTH, 1, bias=True)
        self.scale: Tensor | None = nn.Parameter(torch.zeros(WIDTH, 1, 1))

    def fold(self, stream: Stream) -> None:
        assert isinstance(self.norm, PixelNorm)
        stream.fold_input(self.describe, self.norm)
        stream.fold_input(self.value)
        stream.fold_output(self.value, self.scale)
        self.norm, self.scale = LengthNorm(), None

    def forward(
        self, views: Tensor, *, find_attended: bool = False
    ) -> tuple[Tensor, QueriesKeys, Sequence[Attended] | None]:
        """Compute (2B, C, H, W) to the same shape, and optionally the most attended columns."""
        queries, keys = self.project(views)
        values = pointwise(self.value, views, self.scale)  # (2B, C, H, W)
        if is_inference():
            with torch.autocast(views.device.type, enabled=False):
                gathered, attended = _gather_both(queries, keys, values, find_attended=find_attended)
            return gathered.add_(views), (queries, keys), attended
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


def _gather_both(
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


def _parallax_maps(queries: Tensor, keys: Tensor) -> ParallaxMaps:
    """Compute maps and masks of Equation 4, without the clean-up."""
    right_to_left, left_to_right = compute_maps(queries, keys)
    return ParallaxMaps(
        right_to_left,
        left_to_right,
        valid_left=received_mass(left_to_right) > VALID_MASS,
        valid_right=received_mass(right_to_left) > VALID_MASS,
    )
