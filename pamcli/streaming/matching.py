"""What the matching networks share row by row: blocks of their features, and what is found out.

Shapes: B = 2 views joined in the batch, left first; H, W rows and columns of the scale in question. One
pair at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, Decoder, Encoder, ResidualBlock
from pamcli.networks.parallax import valid_mask
from pamcli.streaming.rolling import (
    Convolution,
    Enlarged,
    Mapped,
    Network,
    RollingMap,
    added,
    convolution,
    residual,
)


@dataclass(frozen=True)
class StreamedMatching:
    """What `Matching` says, without the maps."""

    disparity: Tensor
    """Refined disparity of the left view (1, 1, H, W), pixels, >= 0, float32."""
    received: Tensor
    """Attention that each left pixel receives (1, H/4, W/4)."""
    confidence: Tensor | None = None
    """(1, H/4, W/4) in [0, 1], see `pasmnet` and `networks.error_scale`."""

    @property
    def valid_left(self) -> Tensor:
        """(1, H/4, W/4) bool, made of what is received; see `ParallaxMaps`."""
        return valid_mask(self.received)


Progress = Callable[[float], None]
"""Is told about what share of some work is done, ever more, up to 1."""


class Telling:
    """Tells of progress where there is more of it, and somebody to be told."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.told = progress, 0.0

    def __call__(self, share: float) -> None:
        if self.progress is not None and share > self.told:
            self.told = share
            self.progress(share)


def lowered(network: Network, precision: torch.dtype) -> Network:
    """The network, all of its weights but those of the first layer brought to a lower precision.

    The rounding of the pictures is almost half of what a lower precision costs, and the layer that reads them
    a hundredth of the work.
    """
    first = next(layer for layer in network.modules() if isinstance(layer, nn.Conv2d))
    exact = {key: value.clone() for key, value in first.state_dict().items()}
    network.to(precision)
    first.float().load_state_dict(exact)
    return network


def unit(source: RollingMap, layers: nn.Module) -> RollingMap:
    """Result of a convolution unit whose batch norm is folded."""
    assert isinstance(layers, nn.Sequential)
    layer, _, rectifier = layers
    assert isinstance(rectifier, nn.LeakyReLU)
    return convolution(source, layer, rectifier.negative_slope)


def encoded(source: RollingMap, encoder: Encoder) -> RollingMap:
    unit, block = cast("tuple[nn.Sequential, ResidualBlock]", tuple(encoder.body))
    x: RollingMap = convolution(source, unit[0], SLOPE)
    precision = next(block.parameters()).dtype
    if next(unit.parameters()).dtype != precision:
        x = Mapped(lambda values: values.to(precision), x)
    return residual(x, block.body, SLOPE)


def decoded(deeper: RollingMap, skip: RollingMap | None, decoder: Decoder) -> RollingMap:
    unit, block = cast("tuple[nn.Sequential, ResidualBlock]", tuple(decoder.body))
    return residual(beside_enlarged(deeper, skip, unit), block.body, SLOPE)


def beside_enlarged(deeper: RollingMap, skip: RollingMap | None, unit: nn.Sequential) -> RollingMap:
    """1x1 convolution unit of the enlarged `deeper` beside `skip`.

    The weights of an enlargement sum to one, so it may as well follow the convolution: a quarter of the work.
    """
    layer = unit[0]
    assert isinstance(layer, nn.Conv2d)
    if skip is None:
        return Enlarged(convolution(deeper, layer), SLOPE)
    channels = layer.in_channels - layer.out_channels  # a skip connection has as many as come out
    of_deeper, of_skip = (part.contiguous() for part in layer.weight.tensor_split((channels,), 1))
    return added(Convolution(skip, of_skip), Enlarged(Convolution(deeper, of_deeper, layer.bias)), SLOPE)
