"""Define the faster forms of PASSRnet 2's parts for inference; shapes are those of `passrnet2`."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import pointwise_dilation
from pamcli.networks.subpixel import Attended, find_most_attended
from pamcli.onednn import add_convolution, convolve, multiply_by_convolution

EPSILON = 1e-6  # of the variance that a norm divides by
MEAN_SCALE = 2.0**-8  # of a prepared network's mean of channels, so that it hardly affects a pixel's length

MAP_BYTES = 1_500_000  # exponentials of costs to compute at a time on CPUs
SMALLEST_SUM = 1e-37  # lower bound of a sum of exponentials, which avoids NaN for pixels without a match


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
            for wide, mixed in zip(_halves(self.widen), _halves(self.mix), strict=True)
        )
        add_convolution(x, one.mul_(other), self.narrow.weight, self.narrow.bias)
        normal = self.norm(x)
        first, second = _halves(self.widen2)
        gate = multiply_by_convolution(convolve(normal, *first), normal, *second)
        add_convolution(x, gate, self.narrow2.weight, self.narrow2.bias)


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
    return F.conv2d(x, layer.weight, layer.bias, dilation=pointwise_dilation(x))


def _halves(layer: nn.Conv2d) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weight and bias of each half of a layer's output channels."""
    assert layer.bias is not None
    yield from zip(layer.weight.chunk(2), layer.bias.chunk(2), strict=True)


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
