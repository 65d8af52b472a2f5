"""Choose the fastest convolutions for training on a CPU.

In float32, `winograd.c` computes 3x3 convolutions and their gradients, and oneDNN the others, in half the
time of torch's own code for 1x1; in bf16, 1x1 convolutions are matrix products.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.winograd import TOGETHER, Winograd, can_channels, can_run, weight_gradient

SMALLEST = 4000  # minimum map pixels in a batch, below which transforming the weights takes longer


def make_faster(network: nn.Module) -> None:
    """Replace the layers of a network on a CPU by faster ones, in place; weight keys do not change."""
    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d):
            continue
        if layer.kernel_size == (1, 1):
            layer.dilation = 2, 2  # no effect except that torch uses oneDNN
            plain = type(layer) is nn.Conv2d and layer.groups == 1
            if plain and layer.stride == (1, 1) and layer.padding == (0, 0):
                layer.__class__ = _Pointwise
        elif can_run(layer) and layer.padding == layer.dilation:
            layer.__class__ = _WinogradConv2d


class _Pointwise(nn.Conv2d):
    """A 1x1 layer."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_autocast_enabled("cpu") or not x.is_contiguous():  # keeps channels last
            return super().forward(x)
        weight = self.weight.flatten(1).expand(len(x), -1, -1)
        out = torch.bmm(weight, x.flatten(2)).view(len(x), -1, *x.shape[2:])
        return out if self.bias is None else out + self.bias.to(out.dtype)[:, None, None]


class _WinogradConv2d(nn.Conv2d):
    """A 3x3 layer that keeps the size and satisfies `can_run`."""

    def forward(self, x: Tensor) -> Tensor:
        small = len(x) * x.shape[2] * x.shape[3] < SMALLEST
        if small or torch.is_autocast_enabled("cpu") or x.dtype != torch.float32:
            return super().forward(x)
        run: Callable[..., Tensor] = _Convolution.apply
        return run(x, self.weight, self.bias, self.dilation[0])


class _Convolution(torch.autograd.Function):
    """A convolution of (B, I, H, W) by weights (O, I, 3, 3) and a bias (O,) or None, to (B, O, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.dilation, ctx.biased = dilation, bias is not None
        return Winograd(weight, bias, dilation)(x, (dilation, dilation), None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        outputs, same, wanted = len(weight), (ctx.dilation, ctx.dilation), ctx.needs_input_grad
        of_bias = gradient.sum((0, 2, 3)) if ctx.biased and wanted[2] else None
        if more := -outputs % TOGETHER:
            gradient = F.pad(gradient, (0, 0, 0, 0, 0, more))
            weight = F.pad(weight, (0, 0, 0, 0, 0, 0, 0, more))
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        of_x = of_weight = None
        if wanted[0] and can_channels(*weight.shape[1::-1]):
            turned = weight.flip(2, 3).transpose(0, 1)
            of_x = Winograd(turned, None, ctx.dilation)(gradient, same, None)
        if wanted[1]:
            of_weight = weight_gradient(x, gradient, ctx.dilation)
        left = [wanted[0] and of_x is None, wanted[1] and of_weight is None, False]
        if any(left):
            how = None, (1, 1), same, same, False, (0, 0), 1, left
            theirs = torch.ops.aten.convolution_backward(gradient, x, weight, *how)
            of_x, of_weight = (theirs[0] if left[0] else of_x), (theirs[1] if left[1] else of_weight)
        return of_x, None if of_weight is None else of_weight[:outputs], of_bias, None
