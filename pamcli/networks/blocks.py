"""Building blocks of the matching networks: convolution units of an hourglass.

The attribute names (`body`, and the positions inside it) are those of the authors' checkpoints.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.1  # negative slope of every LeakyReLU in the paper's networks


def conv(
    inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, dilation: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Convolution that keeps the size (halves it with stride 2)."""
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
) -> nn.Sequential:
    """Convolution, batch norm, LeakyReLU (with slope 0 a plain ReLU)."""
    layer = conv(inputs, outputs, kernel, stride=stride, dilation=dilation, bias=bias)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.LeakyReLU(slope))


def pointwise_dilation(x: Tensor) -> int:
    """Dilation for a 1x1 convolution of x, which it does not change.

    With one thread of a CPU, torch computes those without dilation itself, others by oneDNN: twice as fast.
    """
    return 2 if x.device.type == "cpu" and not torch.compiler.is_compiling() else 1


def upsample(x: Tensor, factor: int = 2) -> Tensor:
    """Bilinear enlargement (B, C, H, W) -> (B, C, factor H, factor W)."""
    if learns_on_cpu(x):
        return enlarged_by_products(x, factor)
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def upsample_cost(cost: Tensor) -> Tensor:
    """Trilinear enlargement over rows and both views' columns: (B, h, w, v) to (B, 2h, 2w, 2v)."""
    if learns_on_cpu(cost):
        wide = enlarged_by_products(cost)
        return first_enlarged(wide.flatten(2), 2).view(len(cost), -1, *wide.shape[2:])
    return F.interpolate(cost[:, None], scale_factor=2, mode="trilinear", align_corners=False)[:, 0]


def learns_on_cpu(x: Tensor) -> bool:
    """Whether a gradient will be asked for on a processor, where other ways are fast than elsewhere."""
    return x.requires_grad and x.device.type == "cpu" and not torch.compiler.is_compiling()


def enlarged_by_products(x: Tensor, factor: int = 2) -> Tensor:
    """Linear enlargement of the last two axes, by products of matrices, in the precision of `x`.

    With its gradient it takes a third of the time of `F.interpolate`, as long as the axes are short.
    """
    with torch.autocast(x.device.type, enabled=False):
        wide = x @ enlarging(x.shape[-1], factor, x.dtype)
    return first_enlarged(wide.flatten(0, 1), factor).view(*x.shape[:2], -1, wide.shape[-1])


def first_enlarged(x: Tensor, factor: int) -> Tensor:
    """Linear enlargement of the first axis behind the batch: (B, n, m) to (B, factor n, m)."""
    weights = enlarging(x.shape[1], factor, x.dtype).T
    with torch.autocast(x.device.type, enabled=False):
        return torch.bmm(weights.expand(len(x), -1, -1), x)


@lru_cache(maxsize=64)
def enlarging(size: int, factor: int, dtype: torch.dtype) -> Tensor:
    """What each of `size` values counts in each of `factor` times as many: (size, factor size)."""
    alone = torch.eye(size, device="cpu")[None]
    return F.interpolate(alone, scale_factor=factor, mode="linear", align_corners=False)[0].to(dtype)


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(width, width),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(SLOPE),
            conv(width, width),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x + self.body(x), SLOPE)


class Encoder(nn.Module):
    """3x3 convolution unit, halving the size with `down`, and a residual block."""

    def __init__(self, inputs: int, outputs: int, *, down: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_unit(inputs, outputs, stride=2 if down else 1), ResidualBlock(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


class Decoder(nn.Module):
    """1x1 convolution unit over the enlarged deeper features and a skip connection, and a residual block."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_unit(inputs, outputs, 1), ResidualBlock(outputs))

    def forward(self, deeper: Tensor, skip: Tensor | None = None) -> Tensor:
        x = upsample(deeper)
        out: Tensor = self.body(x if skip is None else torch.cat((x, skip), 1))
        return out
