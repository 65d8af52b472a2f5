"""Define PASSRnet, the stereo super-resolution network (Section 5.1, Figure 13).

Shapes: B batch, C channels (64), H rows, W columns of the low-resolution images, V columns of the other
image; `views` holds the features of both images joined in the batch, left first: (2B, C, H, W). Attribute
names are those of the authors' checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product as combinations

import torch
from torch import Tensor, nn

from pamcli.convolutions import convolve
from pamcli.networks.blocks import (
    SLOPE,
    Convolutions,
    FusedConvolution,
    conv,
    convert,
    fold_batch_norms,
    fuse_modules,
)
from pamcli.networks.parallax import (
    CLOSING_RADIUS,
    SMALLEST_INVALID_REGION,
    SMALLEST_VALID_HOLE,
    ParallaxMaps,
    gather_features,
    matching_cost,
    parallax_maps,
    received_mass,
    valid_mask,
)

WIDTH = 64
DILATIONS = (1, 4, 8)

MAP_BYTES = 1_500_000  # attention to compute at a time on CPUs, which stays in the cache


@dataclass(frozen=True)
class SuperResolution:
    """Upscaled images of a batch of pairs, not clamped."""

    left: Tensor  # (B, 3, scale H, scale W), RGB, about [0, 1]
    right: Tensor | None  # the right image likewise, if requested
    attention: Callable[[], ParallaxMaps] | None = None  # computes `maps`, if there are any

    @cached_property
    def maps(self) -> ParallaxMaps | None:
        """Attention over whole rows and valid masks at low resolution, computed on demand."""
        return None if self.attention is None else self.attention()


class PASSRnet(nn.Module):
    """Upscales the left image, or both, of a rectified pair by `scale`, with detail from the other image."""

    def __init__(
        self, scale: int, pyramid: type[ResidualASPP] | None = None, pam: ParallaxAttention | None = None
    ) -> None:
        """Make the published network; parts can be replaced (see `variants`)."""
        super().__init__()
        self.scale = scale
        pyramid = ResidualASPP if pyramid is None else pyramid
        groups = (kind() for kind in (ResidualBlock, pyramid, ResidualBlock, pyramid, ResidualBlock))
        self.init_feature = Convolutions(conv(3, WIDTH), nn.LeakyReLU(SLOPE), *groups)
        self.pam = ParallaxAttention() if pam is None else pam
        self.upscale = Convolutions(
            *(ResidualBlock() for _ in range(4)),
            conv(WIDTH, WIDTH * scale**2, 1),
            nn.PixelShuffle(scale),
            conv(WIDTH, 3),
            conv(3, 3),
        )

    @property
    def HALO(self) -> int:  # noqa: N802
        """Rows above and below on which the result of a row depends."""
        blocks = sum(2 for module in self.modules() if isinstance(module, ResidualBlock))
        pyramids = sum(3 * max(each.dilations) for each in self.modules() if isinstance(each, ResidualASPP))
        cleaning = SMALLEST_INVALID_REGION + SMALLEST_VALID_HOLE + 2 * CLOSING_RADIUS
        return 1 + blocks + pyramids + cleaning + 2  # the first layer and the last two

    def prepare(self, dtype: torch.dtype) -> PASSRnet:
        """Return a copy for inference whose features are in `dtype`; attention and results stay float32."""
        network = fold_batch_norms(self)  # copies; the network has none
        *blocks, spread, shuffle, blend, last = network.upscale
        network.upscale = Convolutions(*blocks, _merge_layers(spread, blend, self.scale), shuffle, last)
        fuse_modules(network, dtype)
        return convert(network, dtype, first=dtype)

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        """Upscale a batch of pairs (B, 3, H, W), RGB in [0, 1]; with `both` the right images, too."""
        views = self.init_feature(torch.cat((left, right)))  # (2B, C, H, W)
        fused, attention = self.pam(views, both=both)
        images = self.upscale(fused).float().chunk(2 if both else 1)
        return SuperResolution(images[0], images[1] if both else None, attention)


def _merge_layers(spread: nn.Module, blend: nn.Module, scale: int) -> nn.Conv2d:
    """Merge the 1x1 convolution to `scale`^2 pixels of 64 channels with the following 3x3 convolution.

    The result is one 3x3 convolution to `scale`^2 pixels of 3 channels, with a fifth of the work at x4. The
    neighbours of an upscaled pixel lie in the same small pixel or in one next to it.
    """
    assert isinstance(spread, nn.Conv2d) and isinstance(blend, nn.Conv2d)  # noqa: PT018
    places = spread.weight[:, :, 0, 0].double().view(WIDTH, scale, scale, WIDTH)  # channel, row, column, from
    weight = places.new_zeros((3, scale, scale, WIDTH, 3, 3))
    for row, column, down, right in combinations(range(scale), range(scale), (0, 1, 2), (0, 1, 2)):
        (y, row_there), (x, column_there) = divmod(row + down - 1, scale), divmod(column + right - 1, scale)
        there = blend.weight[:, :, down, right].double() @ places[:, row_there, column_there]
        weight[:, row, column, :, y + 1, x + 1] += there
    layer = conv(WIDTH, 3 * scale**2)
    layer.weight = nn.Parameter(weight.flatten(0, 2).float(), False)
    return layer


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Convolutions(conv(WIDTH, WIDTH), nn.LeakyReLU(SLOPE), conv(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        body: Tensor = self.body(x)
        return body.add_(x)


class ResidualASPP(nn.Module):
    """Three groups of dilated convolutions in a residual cascade (Figure 13b).

    `convR_G` is the convolution with the R-th dilation rate of group G, `b_G` joins group G's three.
    """

    dilations = DILATIONS

    def __init__(self) -> None:
        super().__init__()
        for group in (1, 2, 3):
            for rank, dilation in enumerate(self.dilations, 1):
                branch = nn.Conv2d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation, bias=False)
                self.add_module(f"conv{rank}_{group}", Convolutions(branch, nn.LeakyReLU(SLOPE)))
            self.add_module(f"b_{group}", JoiningConv(WIDTH * len(DILATIONS)))

    def forward(self, x: Tensor) -> Tensor:
        out, inner = x, x
        for group in (1, 2, 3):
            inner = self.group(inner, group)
            out = out + inner
        return out

    def group(self, x: Tensor, group: int) -> Tensor:
        branches = [getattr(self, f"conv{rank}_{group}")(x) for rank in (1, 2, 3)]
        return getattr(self, f"b_{group}")(*branches)  # type: ignore[no-any-return]


class JoiningConv(nn.Conv2d):
    """A 1x1 convolution of concatenated parts; in inference the sum of one per part, without a copy."""

    fused = False

    def __init__(self, inputs: int, *, bias: bool = False) -> None:
        super().__init__(inputs, WIDTH, 1, bias=bias)

    def forward(self, *parts: Tensor) -> Tensor:
        if not self.fused:
            return super().forward(torch.cat(parts, 1))
        weights = torch.split(self.weight, [part.shape[1] for part in parts], 1)
        total = convolve(parts[0], weights[0].contiguous(), self.bias)
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            convolve(part, weight.contiguous(), add_to=total)
        return total


class ParallaxAttention(nn.Module):
    """Gathers features of the other view by attention and fuses them (Figure 13c)."""

    fused = False

    def __init__(self) -> None:
        super().__init__()
        self.rb = ResidualBlock()
        self.b1 = conv(WIDTH, WIDTH, 1, bias=True)
        self.b2 = conv(WIDTH, WIDTH, 1, bias=True)
        self.b3 = conv(WIDTH, WIDTH, 1, bias=True)
        self.fusion = JoiningConv(2 * WIDTH + 1, bias=True)

    def forward(self, views: Tensor, *, both: bool) -> tuple[Tensor, Callable[[], ParallaxMaps] | None]:
        """Fuse features (2B, C, H, W) of the left view, or of both, and return a function for the maps."""
        adapted = self.rb(views)
        queries, keys = self.b1(adapted), self.b2(adapted)
        if self.fused:
            gathered, attention_mass = _gather(queries, keys, self.b3(views), both=both)
            valid = valid_mask(attention_mass[: len(gathered)], pad_closing=True)
            return self._join(views, gathered, valid), partial(_parallax_maps, queries, keys)
        maps = _parallax_maps(queries, keys)
        return self.join(views, maps, both=both), lambda: maps

    def join(self, views: Tensor, maps: ParallaxMaps, *, both: bool) -> Tensor:
        """Join features with those that whole maps gather from the other view."""
        left, right = self.b3(views).chunk(2)
        gathered, valid = gather_features(maps.right_to_left, right), maps.valid_left  # Equation 1
        if both:
            gathered = torch.cat((gathered, gather_features(maps.left_to_right, left)))
            valid = torch.cat((valid, maps.valid_right))
        return self._join(views, gathered, valid)

    def _join(self, views: Tensor, gathered: Tensor, valid: Tensor) -> Tensor:
        """Join `gathered` features (N, C, H, W) with those of the first N views and their masks (N, H, W)."""
        fused: Tensor = self.fusion(gathered, views[: len(gathered)], valid[:, None].to(views.dtype))
        return fused

    def fuse(self) -> None:
        for layer in self.children():
            if type(layer) is nn.Conv2d:  # not the joining one
                layer.__class__ = FusedConvolution


def _parallax_maps(queries: Tensor, keys: Tensor) -> ParallaxMaps:
    """Compute both maps and masks from queries and keys of both views (2B, C, H, W)."""
    (left, right), (key_left, key_right) = queries.chunk(2), keys.chunk(2)
    costs = matching_cost(left, key_right), matching_cost(right, key_left)
    return parallax_maps(*costs, ordered=False, pad_closing=True)


def _gather(queries: Tensor, keys: Tensor, values: Tensor, *, both: bool) -> tuple[Tensor, Tensor]:
    """Gather the other view's values by attention, on CPUs a few rows at a time, for inference."""
    # All (2B, C, H, W). Returns values (B or 2B, C, H, W), and the attention mass of both views (2B, H, W).
    (_, _, height, width), count = queries.shape, len(queries) // 2
    q, k, v = (each.permute(0, 2, 3, 1).chunk(2) for each in (queries, keys, values))  # (B, H, W, C)
    gathered = torch.empty_like(values if both else values[:count])
    places = gathered.permute(0, 2, 3, 1).chunk(2 if both else 1)
    mass = queries.new_empty((2 * count, height, width), dtype=torch.float32)
    masses = mass.chunk(2)
    rows = max(1, MAP_BYTES // (4 * count * width**2)) if queries.device.type == "cpu" else height
    for first in range(0, height, rows):
        at = slice(first, first + rows)
        for view, other in ((0, 1), (1, 0)):
            cost = torch.matmul(q[view][:, at].float(), k[other][:, at].float().mT)
            attention = cost.softmax(-1)  # (B, rows, W, V)
            masses[other][:, at] = received_mass(attention)  # Equation 4
            if view == 0 or both:
                places[view][:, at] = torch.matmul(attention, v[other][:, at].float())  # Equation 1
    return gathered, mass
