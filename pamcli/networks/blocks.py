"""Build the convolution units and upsampling that the networks share, and prepare networks for inference.

Attribute names (`body`, and the positions inside it) are those of the authors' checkpoints. Inference sets
`fused` of every module, see `fuse_modules`; training and export do not.
"""

import copy
from functools import lru_cache
from typing import Any, Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.convolutions import Winograd, can_run, convolve

SLOPE = 0.1  # negative slope of every LeakyReLU in the paper's networks

Network = TypeVar("Network", bound=nn.Module)


def conv(
    inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, dilation: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Make a convolution that keeps the size (halves it with stride 2)."""
    return nn.Conv2d(inputs, outputs, kernel, stride, dilation * (kernel // 2), dilation, bias=bias)


class FusedConvolution(nn.Conv2d):
    """In inference, a convolution and the LeakyReLU behind it, if any, in one pass over memory."""

    slope: float | None = None  # of the LeakyReLU
    winograd: Winograd | None = None  # on CPUs, the layer in float32 by `winograd.c`, if that can run it
    result_dtype = torch.float32

    def forward(self, x: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Convolve x (B, C, H, W), in place into `add_to` if given, then rectify."""
        padding = cast("tuple[int, int]", self.padding)
        if self.winograd is not None and x.dtype == torch.float32 and x.device.type == "cpu":
            return self.winograd(x, padding, self.slope, add_to)
        how = self.stride[0], padding, self.dilation[0], self.slope, add_to
        return convolve(x.to(self.weight.dtype), self.weight, self.bias, *how).to(self.result_dtype)


class Convolutions(nn.Sequential):
    """Convolutions with optional batch norms and LeakyReLUs."""

    fused = False

    def forward(self, x: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Compute the layers of x; `add_to`, if given, is added before the last one, a LeakyReLU."""
        *layers, last = self
        for layer in layers:
            x = layer(x)
        if add_to is None:
            return cast("Tensor", last(x))
        return cast("Tensor", last(x, add_to) if self.fused else last(add_to + x))

    def fuse(self) -> None:
        """Fuse each convolution with the LeakyReLU behind it; a folded norm, an `nn.Identity`, disappears."""
        layers: list[Any] = []
        for layer in self:
            if isinstance(layer, nn.LeakyReLU):
                layers[-1].slope = layer.negative_slope
            elif not isinstance(layer, nn.Identity):
                layers.append(layer)
            if isinstance(layer, nn.Conv2d):
                layer.__class__ = FusedConvolution
        del self[:]
        self.extend(layers)


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


class UpsamplingUnit(nn.Sequential):
    """A 1x1 convolution unit over upsampled deeper features (B, C, H/2, W/2) and a skip connection."""

    # It commutes with upsampling, and is the sum of one per part: a quarter of the work, no copy.

    fused = False

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = False, slope: float = SLOPE, skip_first: bool = False
    ) -> None:
        """Make a unit; `skip_first`: the skip connection has the first input channels."""
        super().__init__(*conv_unit(inputs, outputs, 1, bias=bias, slope=slope))
        self.skip_first = skip_first

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (B, C, H/2, W/2) and the skip connection (B, C', H, W) to (B, C'', H, W)."""
        layer, norm, rectifier = cast("tuple[nn.Conv2d, nn.Module, nn.LeakyReLU]", self)
        count = -deeper.shape[1] if self.skip_first else deeper.shape[1]
        deep, beside = layer.weight[:, :count], layer.weight[:, count:]
        if self.skip_first:
            deep, beside = beside, deep
        x = upsample(convolve(deeper, deep, layer.bias))
        if skip is not None:
            if self.fused:
                return convolve(skip, beside, slope=rectifier.negative_slope, add_to=x)
            x = x + convolve(skip, beside)
        return cast("Tensor", rectifier(norm(x)))


def upsample(x: Tensor, factor: int = 2) -> Tensor:
    """Upsample bilinearly: (B, C, H, W) to (B, C, factor H, factor W)."""
    if x.requires_grad and runs_eagerly_on_cpu(x):
        return upsample_by_products(x, factor)
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def upsample_cost(cost: Tensor) -> Tensor:
    """Upsample trilinearly over rows and both images' columns: (B, h, w, v) to (B, 2h, 2w, 2v)."""
    if cost.requires_grad and runs_eagerly_on_cpu(cost):
        wide = upsample_by_products(cost)
        return upsample_first_axis(wide.flatten(2), 2).view(len(cost), -1, *wide.shape[2:])
    return F.interpolate(cost[:, None], scale_factor=2, mode="trilinear", align_corners=False)[:, 0]


def runs_eagerly_on_cpu(x: Tensor) -> bool:
    """Return True on a CPU except in an export; other implementations are the fastest there."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


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
        self.body = Convolutions(*conv_unit(width, inner), *conv_unit(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.body(x, add_to=x))


class ResidualUnit(nn.Module):
    """A convolution or upsampling unit and a residual block, whose `inner` channels may be fewer."""

    def __init__(self, unit: nn.Sequential, inner: int | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(unit, ResidualBlock(cast("nn.Conv2d", unit[0]).out_channels, inner))

    def forward(self, *features: Tensor) -> Tensor:
        unit, residual = self.body
        return cast("Tensor", residual(unit(*features)))


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
        fuse_modules(network, dtype)
        return convert(network, dtype)


def fold_batch_norms(network: Network) -> Network:
    """Copy a network for inference, with batch norms folded into the convolutions before them, in float64."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, nn.LeakyReLU):
            module.inplace = True
        if not isinstance(module, nn.Sequential):
            continue
        for place in range(len(module) - 1):
            layer, norm = module[place], module[place + 1]
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                assert norm.running_mean is not None
                assert norm.running_var is not None
                scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
                bias = (
                    -norm.running_mean.double()
                    if layer.bias is None
                    else layer.bias.double() - norm.running_mean.double()
                )
                weight = layer.weight.double() * scale[:, None, None, None]
                layer.weight = nn.Parameter(weight.to(layer.weight.dtype), False)
                layer.bias = nn.Parameter((bias * scale + norm.bias.double()).to(layer.weight.dtype), False)
                module[place + 1] = nn.Identity()
    return network


def fuse_modules(network: nn.Module, dtype: torch.dtype) -> None:
    """Change the modules of a folded network to their faster forms for inference in `dtype`, in place."""
    # Sets `fused` of each module and calls its method `fuse`, if any, which may replace its children.
    for module in network.modules():
        module.fused = True  # type: ignore[assignment]
        if callable(fuse := getattr(module, "fuse", None)):
            fuse()
        if isinstance(module, FusedConvolution):
            module.result_dtype = dtype
            if dtype == torch.float32 and can_run(module):
                module.winograd = Winograd(module.weight, module.bias, module.dilation[0])


def convert(network: Network, dtype: torch.dtype, first: torch.dtype = torch.float32) -> Network:
    """Convert convolutions to channels last and `dtype`, in place, and the first one to `first`."""
    # Rounding the images causes almost half of the error of 16 bits; their layer is a hundredth of the work.
    kind = first
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.to(dtype=kind, memory_format=torch.channels_last)  # type: ignore[call-overload]
            kind = dtype
    return network
