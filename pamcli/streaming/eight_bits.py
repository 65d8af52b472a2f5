"""Convolutions in 8 bits: of what they read and of their weights; what they add up is exact.

Processors with VNNI multiply such numbers four times as fast as float32. Weights are scaled channel by
channel, what is read as a whole, by the least and the largest that a picture of noise makes of it: so weights
need nothing beside them, and a result depends on no other picture and on no strip.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 255
WHOLE = 1.5 * 2**23
"""Beside so large a number, those of float32 are whole, and the last bits of it say which they are."""
MARGIN = 1.2
"""What is read may be so many times as large as in the picture of noise before it is cut off."""

NOISE_HEIGHT, NOISE_WIDTH, NOISE_DISPARITY = 192, 384, 8
CONTRAST, LARGEST = 1.2, 2.5
"""Deviation of the noise from 0, and where it is cut off; pictures that are normalised have about 1."""


class EightBits:
    """A convolution in 8 bits; its result is in the precision of the layer's weights."""

    def __init__(self, layer: nn.Conv2d, low: float, high: float, reader: "EightBits | None" = None) -> None:
        """`low`, `high`: between which numbers are read; beyond, they are cut off.

        `reader`: what alone reads the result, if it is such a convolution: it is then given its levels.
        """
        self.low, self.high = -_rounded(-MARGIN * min(low, 0.0)), _rounded(MARGIN * max(high, 1e-6))
        self.step = (self.high - self.low) / LEVELS
        self.zero = round(-self.low / self.step)
        self.offset = torch.full((1, 1, 1, 1), WHOLE + self.zero)
        self.reader, self.kind = reader, layer.weight.dtype
        self.stride, self.dilation = layer.stride, layer.dilation
        scale = 1.0 if reader is None else reader.step  # of what is made
        weight = layer.weight.float()
        self.steps = weight.abs().amax((1, 2, 3)).clamp(min=1e-12) / 127
        whole = (weight / self.steps[:, None, None, None]).round().to(torch.int8)
        self.steps /= scale
        self.zeros = torch.zeros(len(whole), dtype=torch.int32)
        self.bias = None if layer.bias is None else layer.bias.float() / scale
        self.weight = torch.ops.onednn.qconv_prepack(
            whole, self.steps, self.step, self.zero, self.stride, layer.padding, self.dilation, 1, None
        )

    def __call__(self, x: Tensor, padding: tuple[int, int], slope: float | None) -> Tensor:
        """Convolve x (B, C, H, W) of any precision, or the levels of it, and rectify the result."""
        levels = x if x.dtype == torch.uint8 else self.levels(x)
        if self.reader is None:
            made = self._convolved(levels, padding, self.kind)
            return made if slope is None else F.leaky_relu_(made, slope)
        # In steps of the reader: its levels, but that zero is not yet among them.
        zero = self.reader.zero
        if slope == 0:
            return self._convolved(levels, padding, torch.uint8, zero, "relu")
        bounds = [-zero / (1.0 if slope is None else slope), float(LEVELS - zero)]
        made = self._convolved(levels, padding, torch.float32, 0, "hardtanh", bounds)
        if slope is not None:
            F.leaky_relu_(made, slope)
        return _low_bytes(made.add_(WHOLE + zero))

    def levels(self, x: Tensor) -> Tensor:
        """Round numbers to the levels (uint8) that stand for them."""
        exact = x.float()
        place = {} if exact is x else {"out": exact}
        steps = torch.add(self.offset, exact, alpha=1 / self.step, **place)
        return _low_bytes(steps.clamp_(WHOLE, WHOLE + LEVELS))

    def _convolved(
        self,
        levels: Tensor,
        padding: tuple[int, int],
        kind: torch.dtype,
        zero: int = 0,
        then: str = "none",
        numbers: Sequence[float] = (),
    ) -> Tensor:
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
            zero,
            kind,
            then,
            numbers,
            "",
        )


def _rounded(bound: float) -> float:
    """Round up by at most a 32nd: the last bits of what was seen are others with other threads."""
    fraction, exponent = math.frexp(bound)
    return math.ldexp(math.ceil(64 * fraction) / 64, exponent)


def _low_bytes(x: Tensor) -> Tensor:
    """Whole numbers up to 255 beyond `WHOLE`, as uint8: in half of the time of torch's own conversion."""
    return x.view(torch.int32).to(torch.int8).view(torch.uint8)


class Observed:
    """A convolution as it is, which notes between which numbers it reads."""

    def __init__(self, layer: nn.Conv2d) -> None:
        self.layer, self.low, self.high = layer, 0.0, 0.0

    def __call__(self, x: Tensor, padding: tuple[int, int], slope: float | None) -> Tensor:
        low, high = (float(bound) for bound in torch.aminmax(x))
        self.low, self.high = min(self.low, low), max(self.high, high)
        weight, bias = self.layer.weight, self.layer.bias
        x = F.conv2d(x.to(weight.dtype), weight, bias, self.layer.stride, padding, self.layer.dilation)
        return x if slope is None else F.leaky_relu_(x, slope)


def reduce_to_eight_bits(
    layers: Iterable[nn.Conv2d], readers: Mapping[nn.Conv2d, nn.Conv2d], run: Callable[[Tensor], object]
) -> None:
    """Have `rolling.convolution` compute layers in 8 bits.

    `readers`: of some layers, that which alone reads what they make. `run` runs their network on normalised
    views (2, 3, H, W), by which it is seen what they read.
    """
    observed = {layer: Observed(layer) for layer in layers}
    for layer, each in observed.items():
        layer.run = each  # type: ignore[assignment]
    made: dict[nn.Conv2d, EightBits] = {}

    def reduced(layer: nn.Conv2d) -> EightBits:
        if layer not in made:
            reader, each = readers.get(layer), observed[layer]
            made[layer] = EightBits(layer, each.low, each.high, None if reader is None else reduced(reader))
        return made[layer]

    with torch.inference_mode():
        run(pair_of_noise())
        for layer in observed:
            layer.run = reduced(layer)  # type: ignore[assignment]


def pair_of_noise() -> Tensor:
    """Normalised views (2, 3, H, W) of a pattern that has details of all sizes, as pictures have them."""
    size = NOISE_HEIGHT, NOISE_WIDTH + NOISE_DISPARITY
    noise = torch.randn(3, *size, generator=torch.Generator().manual_seed(0))
    down, across = torch.fft.fftfreq(size[0]), torch.fft.rfftfreq(size[1])
    frequency = torch.hypot(down[:, None], across).clamp(min=1 / max(size))
    pattern = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency, s=size)
    pattern = (CONTRAST * pattern / pattern.std()).clamp(-LARGEST, LARGEST)
    return torch.stack((pattern[..., :NOISE_WIDTH], pattern[..., NOISE_DISPARITY:]))
