"""Building blocks of the matching networks: convolution units of an hourglass.

The attribute names (`body`, and the positions inside it) are those of the authors' checkpoints.
"""

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
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


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
