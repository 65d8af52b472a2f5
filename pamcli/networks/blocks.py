"""Build the convolution units and upsampling that the networks share.

Attribute names (`body`, and the positions inside it) are those of the authors' checkpoints.
"""

from functools import lru_cache
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.fused import (
    FusedResidual,
    convert,
    fold_batch_norms,
    fuse_layers,
    fuse_modules,
    prepare_convolutions,
)
from pamcli.onednn import add_convolution

SLOPE = 0.1  # negative slope of every LeakyReLU in the paper's networks


class Convolutions(nn.Sequential):
    """Convolutions with optional batch norms and LeakyReLUs."""

    def make_fused(self) -> nn.Sequential:
        return fuse_layers([*self])


class UpsamplingUnit(Convolutions):
    """A 1x1 convolution unit over upsampled deeper features (B, C, H/2, W/2) and a skip connection."""

    # It commutes with upsampling, and is the sum of one per part: a quarter of the work, no copy.

    skip_first = False  # True: the skip connection has the first input channels

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (B, C, H/2, W/2) and the skip connection (B, C', H, W) to (B, C'', H, W)."""
        layer, *rest = self
        assert isinstance(layer, nn.Conv2d)
        deep, beside = self.split_weight(layer.weight, deeper.shape[1])
        x = upsample(pointwise(deeper, deep, layer.bias))
        if skip is not None:
            x = x + pointwise(skip, beside)
        for following in rest:
            x = following(x)
        return x

    def split_weight(self, weight: Tensor, deeper: int) -> tuple[Tensor, Tensor]:
        """Return the weights for the `deeper` channels and for those of the skip connection."""
        if self.skip_first:
            return weight[:, -deeper:], weight[:, :-deeper]
        return weight[:, :deeper], weight[:, deeper:]

    def make_fused(self) -> nn.Sequential:
        made = FusedUpsamplingUnit(*self)
        made.skip_first = self.skip_first
        return made


class FusedUpsamplingUnit(UpsamplingUnit):
    """The unit in inference, which adds in place."""

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        layer, _, rectifier = self
        assert isinstance(layer, nn.Conv2d) and isinstance(rectifier, nn.LeakyReLU)  # noqa: PT018
        deep, beside = self.split_weight(layer.weight, deeper.shape[1])
        x = upsample(pointwise(deeper, deep, layer.bias))
        if skip is None:
            return F.leaky_relu_(x, rectifier.negative_slope)
        return add_convolution(x, skip, beside, slope=rectifier.negative_slope)


def conv(
    inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, dilation: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Make a convolution that keeps the size (halves it with stride 2)."""
    return nn.Conv2d(inputs, outputs, kernel, stride, dilation * (kernel // 2), dilation, bias=bias)


def conv_unit(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    dilation: int = 1,
    bias: bool = False,
    slope: float = SLOPE,
) -> Convolutions:
    """Make a convolution with batch norm and LeakyReLU (slope 0: a plain ReLU)."""
    layer = conv(inputs, outputs, kernel, stride=stride, dilation=dilation, bias=bias)
    return Convolutions(layer, nn.BatchNorm2d(outputs), nn.LeakyReLU(slope))


def upsampling_unit(
    inputs: int, outputs: int, *, bias: bool = False, slope: float = SLOPE, skip_first: bool = False
) -> UpsamplingUnit:
    unit = UpsamplingUnit(*conv_unit(inputs, outputs, 1, bias=bias, slope=slope))
    unit.skip_first = skip_first
    return unit


def pointwise(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not torch.is_autocast_enabled(x.device.type):
        x = x.to(weight.dtype)
    return F.conv2d(x, weight, bias, dilation=pointwise_dilation(x))


def pointwise_dilation(x: Tensor) -> int:
    """Return a dilation for a 1x1 convolution: on one CPU thread torch uses oneDNN only with a dilation."""
    return 2 if x.device.type == "cpu" and not torch.compiler.is_compiling() else 1


def upsample(x: Tensor, factor: int = 2) -> Tensor:
    """Upsample bilinearly: (B, C, H, W) to (B, C, factor H, factor W)."""
    if needs_gradient_on_cpu(x):
        return upsample_by_products(x, factor)
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def upsample_cost(cost: Tensor) -> Tensor:
    """Upsample trilinearly over rows and both images' columns: (B, h, w, v) to (B, 2h, 2w, 2v)."""
    if needs_gradient_on_cpu(cost):
        wide = upsample_by_products(cost)
        return upsample_first_axis(wide.flatten(2), 2).view(len(cost), -1, *wide.shape[2:])
    return F.interpolate(cost[:, None], scale_factor=2, mode="trilinear", align_corners=False)[:, 0]


def needs_gradient_on_cpu(x: Tensor) -> bool:
    """Return True for training on a CPU, where other implementations are the fastest."""
    return x.requires_grad and x.device.type == "cpu" and not torch.compiler.is_compiling()


def upsample_by_products(x: Tensor, factor: int = 2) -> Tensor:
    """Upsample the last two axes linearly by matrix products, three times as fast as `F.interpolate`."""
    with torch.autocast(x.device.type, enabled=False):
        wide = x @ upsampling_weights(x.shape[-1], factor, x.dtype)
    return upsample_first_axis(wide.flatten(0, 1), factor).view(*x.shape[:2], -1, wide.shape[-1])


def upsample_first_axis(x: Tensor, factor: int) -> Tensor:
    """Upsample the first axis after the batch linearly: (B, n, m) to (B, factor n, m)."""
    weights = upsampling_weights(x.shape[1], factor, x.dtype).T
    with torch.autocast(x.device.type, enabled=False):
        return torch.bmm(weights.expand(len(x), -1, -1), x)


@lru_cache(maxsize=64)
def upsampling_weights(size: int, factor: int, dtype: torch.dtype) -> Tensor:
    identity = torch.eye(size, device="cpu")[None]
    return F.interpolate(identity, scale_factor=factor, mode="linear", align_corners=False)[0].to(dtype)


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, width: int, inner: int | None = None) -> None:
        """Make a block; `inner`: channels between the convolutions, None = as many as outside."""
        super().__init__()
        inner = inner or width
        self.body = Convolutions(
            conv(width, inner),
            nn.BatchNorm2d(inner),
            nn.LeakyReLU(SLOPE),
            conv(inner, width),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x + self.body(x), SLOPE)

    def make_fused(self) -> nn.Module:
        return FusedResidual(self.body, SLOPE)


class Encoder(nn.Module):
    """Convolution unit, halving the size with `down`, and residual block: (B, C, H, W) to (B, C', H, W)."""

    def __init__(self, inputs: int, outputs: int, inner: int | None = None, *, down: bool = False) -> None:
        super().__init__()
        unit = conv_unit(inputs, outputs, stride=2 if down else 1)
        self.body = nn.Sequential(unit, ResidualBlock(outputs, inner))

    def forward(self, x: Tensor) -> Tensor:
        unit, residual = self.body
        return cast("Tensor", residual(unit(x)))


class Decoder(nn.Module):
    """1x1 convolution unit over the upsampled deeper features and a skip connection, and a residual block."""

    def __init__(self, inputs: int, outputs: int, inner: int | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(upsampling_unit(inputs, outputs), ResidualBlock(outputs, inner))

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (B, C, H/2, W/2) and the skip connection (B, C'', H, W) to (B, C', H, W)."""
        unit, residual = self.body
        return cast("Tensor", residual(unit(deeper, skip)))


class ParallaxAttentionBlock(nn.Module):
    """Features, queries and keys of one block (Figure 7b); the weights serve both views."""

    def __init__(self, width: int, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or width
        self.head = Convolutions(*conv_unit(width, inner, bias=True), *conv_unit(inner, width, bias=True))
        self.query = Convolutions(conv(width, width, 1, bias=True), nn.BatchNorm2d(width))
        self.key = Convolutions(conv(width, width, 1, bias=True), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = self.head(x)
        return x + f, self.query(f), self.key(f)


class MatchingNetwork(nn.Module):
    """A network that computes the disparity of the left image of a rectified pair.

    `forward` takes a batch of pairs:

    - left, right: (B, 3, H, W), RGB normalised with ImageNet's mean and deviation; sides are multiples of 32.
    - max_disparity: The attention considers only disparities below it, px, a multiple of 16.
    - all_stages: Return whole maps of all stages, which the losses need (Section 4.2.3).
    - confidence: Make the confidence available, too.
    """

    HALO: int  # rows above and below that affect a row noticeably (scripts/measure_memory.py)

    def prepare(self, dtype: torch.dtype) -> Self:
        """Return a copy for inference with convolutions in `dtype` and everything else in float32."""
        network = fold_batch_norms(self)
        fuse_modules(network)
        prepare_convolutions(convert(network, dtype), dtype)
        return network
