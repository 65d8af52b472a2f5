"""Replace modules of a trained network by faster ones that compute the same, for inference."""

import copy
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from pamcli.onednn import add_convolution, convolve
from pamcli.winograd import Winograd, winograd

Network = TypeVar("Network", bound=nn.Module)


class FusedConvolution(nn.Module):
    """A convolution and the LeakyReLU of slope `slope` behind it, if any, in one pass over memory."""

    def __init__(self, layer: nn.Conv2d, slope: float | None = None) -> None:
        super().__init__()
        self.layer, self.slope = layer, slope
        self.winograd: Winograd | None = None
        """On CPUs, the layer in float32 by `winograd.c`, if that can run it."""
        self.result_dtype: torch.dtype | None = None  # None = that of the layer

    def forward(self, x: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Convolve x (B, C, H, W), in place into `add_to` if given, then rectify."""
        layer, slope = self.layer, self.slope
        padding, stride, dilation = layer.padding, layer.stride[0], layer.dilation[0]
        assert not isinstance(padding, str)
        sides = padding[0], padding[1]
        if self.winograd is not None and x.dtype == torch.float32 and x.device.type == "cpu":
            return self.winograd(x, sides, slope, add_to)
        x = x.to(layer.weight.dtype)
        if add_to is not None:
            return add_convolution(add_to, x, layer.weight, layer.bias, sides, dilation, slope)
        x = convolve(x, layer.weight, layer.bias, stride, sides, dilation, slope)
        return x if self.result_dtype is None else x.to(self.result_dtype)


class FusedSum(nn.Module):
    """A 1x1 convolution of concatenated parts, as the sum of one per part, without a copy of them."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *parts: Tensor) -> Tensor:
        weights = torch.split(self.layer.weight, [part.shape[1] for part in parts], 1)
        total = convolve(parts[0], weights[0].contiguous(), self.layer.bias)
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            add_convolution(total, part, weight.contiguous())
        return total


class FusedResidual(nn.Module):
    """Two convolutions with a residual connection, which the second one adds to."""

    def __init__(self, body: nn.Sequential, slope: float) -> None:
        """Take a block's fused layers; `slope`: of the LeakyReLU behind the sum."""
        super().__init__()
        self.first, second = body
        self.second = FusedConvolution(cast("FusedConvolution", second).layer, slope)

    def forward(self, x: Tensor) -> Tensor:
        """Compute (B, C, H, W) to the same shape, in place."""
        return self.second(self.first(x), add_to=x)  # type: ignore[no-any-return]


def fuse_layers(layers: Sequence[nn.Module]) -> nn.Sequential:
    """Fuse each convolution with the LeakyReLU behind it; a folded norm, an `nn.Identity`, disappears."""
    layers = [layer for layer in layers if not isinstance(layer, nn.Identity)]
    made = nn.Sequential()
    for layer, behind in zip(layers, [*layers[1:], None], strict=True):
        if isinstance(layer, nn.Conv2d):
            slope = behind.negative_slope if isinstance(behind, nn.LeakyReLU) else None
            made.append(FusedConvolution(layer, slope))
        elif not isinstance(layer, nn.LeakyReLU):
            made.append(layer)
    return made


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


def fuse_modules(network: nn.Module) -> None:
    """Replace each module that has a method `make_fused` by what that returns, inner ones first, in place."""
    for name, child in list(network.named_children()):
        fuse_modules(child)
        make_fused = getattr(child, "make_fused", None)
        if make_fused is not None:
            setattr(network, name, make_fused())


def convert(network: Network, dtype: torch.dtype) -> Network:
    """Convert convolutions to channels last and `dtype`, in place; the first one stays in float32."""
    # Rounding the images causes almost half of the error of 16 bits; their layer is a hundredth of the work.
    kind = torch.float32
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.to(dtype=kind, memory_format=torch.channels_last)  # type: ignore[call-overload]
            kind = dtype
    return network


def prepare_convolutions(network: nn.Module, dtype: torch.dtype) -> None:
    """Choose how the fused convolutions of a converted network run, in place."""
    fused = [module for module in network.modules() if isinstance(module, FusedConvolution)]
    if dtype != torch.float32:
        fused[0].result_dtype = dtype
    for module in fused:
        module.winograd = winograd(module.layer)
