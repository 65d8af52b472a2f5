"""Convolutions in 8 bits: of what they read and of their weights; what they add up is exact.

Processors with VNNI multiply such numbers four times as fast as float32. Weights are scaled channel by
channel, what is read as a whole, by the least and the largest that a picture of noise makes of it: so weights
need nothing beside them, and a result depends on no other picture and on no strip.
"""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 255
MARGIN = 1.2
"""What is read may be so many times as large as in the picture of noise before it is cut off."""

NOISE_HEIGHT, NOISE_WIDTH, NOISE_DISPARITY = 192, 384, 8
CONTRAST, LARGEST = 1.2, 2.5
"""Deviation of the noise from 0, and where it is cut off; pictures that are normalised have about 1."""


class EightBits:
    """A convolution in 8 bits; its result is in the precision of the layer's weights."""

    def __init__(self, layer: nn.Conv2d, low: float, high: float) -> None:
        """`low`, `high`: between which numbers are read; beyond, they are cut off."""
        low, high = MARGIN * min(low, 0.0), MARGIN * max(high, 1e-6)
        self.step = (high - low) / LEVELS
        self.zero = round(-low / self.step)
        self.offset = torch.full((1, 1, 1, 1), self.zero + 0.5)
        weight = layer.weight.float()
        self.steps = weight.abs().amax((1, 2, 3)).clamp(min=1e-12) / 127
        whole = (weight / self.steps[:, None, None, None]).round().to(torch.int8)
        self.zeros = torch.zeros(len(whole), dtype=torch.int32)
        self.bias = None if layer.bias is None else layer.bias.float()
        self.kind, self.stride, self.dilation = layer.weight.dtype, layer.stride, layer.dilation
        self.weight = torch.ops.onednn.qconv_prepack(
            whole, self.steps, self.step, self.zero, self.stride, layer.padding, self.dilation, 1, None
        )

    def __call__(self, x: Tensor, padding: tuple[int, int]) -> Tensor:
        """Convolve x (B, C, H, W) of any precision."""
        levels = torch.add(self.offset, x, alpha=1 / self.step).clamp_(0, LEVELS).to(torch.uint8)
        return torch.ops.onednn.qconv2d_pointwise(  # type: ignore[no-any-return]
            levels,
            self.step,
            self.zero,
            self.weight,
            self.steps,
            self.zeros,
            self.bias,
            self.stride,
            padding,
            self.dilation,
            1,
            1.0,
            0,
            self.kind,
            "none",
            [],
            "",
        )


class Observed:
    """A convolution as it is, which notes between which numbers it reads."""

    def __init__(self, layer: nn.Conv2d) -> None:
        self.layer, self.low, self.high = layer, 0.0, 0.0

    def __call__(self, x: Tensor, padding: tuple[int, int]) -> Tensor:
        low, high = (float(bound) for bound in torch.aminmax(x))
        self.low, self.high = min(self.low, low), max(self.high, high)
        weight, bias = self.layer.weight, self.layer.bias
        return F.conv2d(x.to(weight.dtype), weight, bias, self.layer.stride, padding, self.layer.dilation)


def reduce_to_eight_bits(layers: Iterable[nn.Conv2d], run: Callable[[Tensor], object]) -> None:
    """Have `rolling.convolution` compute layers in 8 bits.

    `run` runs their network on normalised views (2, 3, H, W), by which it is seen what they read.
    """
    observed = {layer: Observed(layer) for layer in layers}
    for layer, each in observed.items():
        layer.run = each  # type: ignore[assignment]
    with torch.inference_mode():
        run(pair_of_noise())
        for layer, each in observed.items():
            layer.run = EightBits(layer, each.low, each.high)  # type: ignore[assignment]


def pair_of_noise() -> Tensor:
    """Normalised views (2, 3, H, W) of a pattern that has details of all sizes, as pictures have them."""
    size = NOISE_HEIGHT, NOISE_WIDTH + NOISE_DISPARITY
    noise = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
    down, across = torch.fft.fftfreq(size[0]), torch.fft.rfftfreq(size[1])
    frequency = torch.hypot(down[:, None], across).clamp(min=1 / max(size))
    pattern = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency, s=size)
    pattern = (CONTRAST * pattern / pattern.std()).clamp(-LARGEST, LARGEST)
    return torch.stack((pattern[..., :NOISE_WIDTH], pattern[..., NOISE_DISPARITY:]))
