"""Build the convolution units, upsampling and folding that the networks share.

Attribute names (`body`, and the positions inside it) are those of the authors' checkpoints.
"""

import copy
from functools import lru_cache
from typing import Self, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.onednn import add_convolution, convolve
from pamcli.winograd import winograd

SLOPE = 0.1  # negative slope of every LeakyReLU in the paper's networks

Network = TypeVar("Network", bound=nn.Module)


class Convolutions(nn.Sequential):
    """Convolutions with optional batch norms and LeakyReLUs; fused in inference once norms are folded."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_inference():
            for layer in self:
                x = layer(x)
            return x
        layers, is_fused = [*self], False
        for place, layer in enumerate(layers):
            if isinstance(layer, nn.Conv2d):
                following = layers[place + 1 : place + 3]  # a folded norm is an Identity
                if following and isinstance(following[0], nn.Identity):
                    del following[0]
                rectifier = following[0] if following else None
                slope = rectifier.negative_slope if isinstance(rectifier, nn.LeakyReLU) else None
                is_fused, x = slope is not None, convolve_layer(x, layer, slope)
            elif isinstance(layer, nn.Identity):
                continue
            elif is_fused:
                is_fused = False
            else:
                x = layer(x)
        return x


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


def is_inference() -> bool:
    """Return True without gradients and outside of compilation and export."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def is_folded(unit: nn.Sequential) -> bool:
    """Return True in inference with a unit whose batch norm is folded into its convolution."""
    return is_inference() and isinstance(unit[1], nn.Identity)


def convolve_layer(
    x: Tensor, layer: nn.Conv2d, slope: float | None = None, add_to: Tensor | None = None
) -> Tensor:
    """Convolve x (B, C, H, W) for inference, in place into `add_to` if given, then rectify with `slope`."""
    fast = vars(layer).get("winograd")
    padding, stride, dilation = layer.padding, layer.stride[0], layer.dilation[0]
    assert not isinstance(padding, str)
    sides = padding[0], padding[1]
    if fast is not None and x.dtype == torch.float32 and x.device.type == "cpu":
        return fast(x, sides, slope, add_to)  # type: ignore[no-any-return]
    x = x.to(layer.weight.dtype)  # the first layer of a network in 16 bits is in float32
    if add_to is None:
        return convolve(x, layer.weight, layer.bias, stride, sides, dilation, slope)
    return add_convolution(add_to, x, layer.weight, layer.bias, sides, dilation, slope)


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
        if not is_folded(self.body):
            return F.leaky_relu(x + self.body(x), SLOPE)
        first, second = cast("tuple[nn.Conv2d, nn.Conv2d]", (self.body[0], self.body[3]))
        x = x.to(first.weight.dtype)
        return convolve_layer(convolve_layer(x, first, SLOPE), second, SLOPE, add_to=x)


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
        self.body = nn.Sequential(conv_unit(inputs, outputs, 1), ResidualBlock(outputs, inner))

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (B, C, H/2, W/2) and the skip connection (B, C'', H, W) to (B, C', H, W)."""
        unit, residual = self.body
        assert isinstance(unit, nn.Sequential)
        return cast("Tensor", residual(upsample_and_join(unit, deeper, skip)))


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


def upsample_and_join(
    unit: nn.Sequential, deeper: Tensor, skip: Tensor | None, *, skip_first: bool = False
) -> Tensor:
    """Run a 1x1 convolution unit over upsampled `deeper` (B, C, H/2, W/2) and `skip` (B, C', H, W)."""
    # It commutes with upsampling, and is the sum of one per part: a quarter of the work, no copy.
    layer = unit[0]
    assert isinstance(layer, nn.Conv2d)
    if skip is None:
        x = upsample(pointwise(deeper, layer.weight, layer.bias))
    else:
        sizes = [deeper.shape[1], skip.shape[1]]
        deep, beside = torch.split(layer.weight, sizes[::-1] if skip_first else sizes, 1)
        if skip_first:
            deep, beside = beside, deep
        x = upsample(pointwise(deeper, deep, layer.bias))
        x = add_convolution(x, skip, beside) if is_inference() else x + pointwise(skip, beside)
    for following in list(unit)[1:]:
        x = following(x)
    return x


def fold_batch_norms(network: Network) -> Network:
    """Copy a network for inference, with batch norms folded into the convolutions before them, in float64."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in network.modules():
        vars(module).pop("winograd", None)  # prepared for weights that may have changed
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


def convert(network: Network, dtype: torch.dtype) -> Network:
    """Convert convolutions to channels last and `dtype`, in place; the first one stays in float32."""
    # Rounding the images causes almost half of the error of 16 bits; their layer is a hundredth of the work.
    kind = torch.float32
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.to(dtype=kind, memory_format=torch.channels_last)  # type: ignore[call-overload]
            kind = dtype
    return network


def prepare_winograd(network: nn.Module) -> None:
    """Compute float32 3x3 convolutions on CPUs by `winograd.c`, if it was compiled."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            winograd(layer)


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
        network.merge_products()
        if dtype == torch.float32:
            prepare_winograd(network)
        return convert(network, dtype)

    def merge_products(self) -> None:
        """Merge consecutive products of folded weights, in place, if there are any."""
