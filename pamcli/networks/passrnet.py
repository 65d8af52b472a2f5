"""PASSRnet, the stereo super-resolution network (Section 5.1, Figure 13).

Shapes: B batch, C channels (64 throughout), H rows, W columns of the low-resolution pictures; `views`
holds both views joined in the batch, left first: (2B, C, H, W). Attribute names are those of the authors'
checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, conv
from pamcli.networks.parallax import ParallaxMaps, gather_features, matching_cost, parallax_maps

WIDTH = 64
DILATIONS = (1, 4, 8)


@dataclass(frozen=True)
class SuperResolution:
    """Enlarged views of a batch of pairs, not clamped."""

    left: Tensor
    """(B, 3, scale H, scale W), RGB, about [0, 1]."""
    right: Tensor | None
    """The right picture alike, if it was asked for."""
    maps: ParallaxMaps | None
    """Attention over the whole row and valid masks, at low resolution; None: of a variant without any."""


class PASSRnet(nn.Module):
    """Enlarges the left view (and the right) of a rectified pair by `scale`, with detail from the other."""

    def __init__(
        self, scale: int, pyramid: type[ResidualASPP] | None = None, pam: ParallaxAttention | None = None
    ) -> None:
        """The published network; parts that are given take the place of its own (see `variants`)."""
        super().__init__()
        self.scale = scale
        pyramid = ResidualASPP if pyramid is None else pyramid
        self.init_feature = nn.Sequential(
            conv(3, WIDTH),
            nn.LeakyReLU(SLOPE),
            ResidualBlock(),
            pyramid(),
            ResidualBlock(),
            pyramid(),
            ResidualBlock(),
        )
        self.pam = ParallaxAttention() if pam is None else pam
        self.upscale = nn.Sequential(
            ResidualBlock(),
            ResidualBlock(),
            ResidualBlock(),
            ResidualBlock(),
            conv(WIDTH, WIDTH * scale**2, 1),
            nn.PixelShuffle(scale),
            conv(WIDTH, 3),
            conv(3, 3),
        )

    def forward(self, left: Tensor, right: Tensor, *, both: bool = False) -> SuperResolution:
        """`left`, `right` (B, 3, H, W), RGB in [0, 1], any size.

        With `both` the right view is enlarged too; it equals the left result of the exchanged pair, for the
        two directions of the attention are computed either way.
        """
        views = self.init_feature(torch.cat((left, right)))  # (2B, C, H, W)
        fused, maps = self.pam(views, both=both)
        pictures = self.upscale(fused).float().chunk(2 if both else 1)
        return SuperResolution(pictures[0], pictures[1] if both else None, maps)


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(WIDTH, WIDTH), nn.LeakyReLU(SLOPE), conv(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


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
                self.add_module(f"conv{rank}_{group}", nn.Sequential(branch, nn.LeakyReLU(SLOPE)))
            self.add_module(f"b_{group}", conv(WIDTH * len(DILATIONS), WIDTH, 1))

    def forward(self, x: Tensor) -> Tensor:
        out, inner = x, x
        for group in (1, 2, 3):
            inner = self.group(inner, group)
            out = out + inner
        return out

    def group(self, x: Tensor, group: int) -> Tensor:
        branches = [getattr(self, f"conv{rank}_{group}")(x) for rank in (1, 2, 3)]
        joined: Tensor = getattr(self, f"b_{group}")(torch.cat(branches, 1))
        return joined


class ParallaxAttention(nn.Module):
    """Features of the other view, gathered by attention and fused with the own ones (Figure 13c)."""

    def __init__(self) -> None:
        super().__init__()
        self.rb = ResidualBlock()
        self.b1 = conv(WIDTH, WIDTH, 1, bias=True)
        self.b2 = conv(WIDTH, WIDTH, 1, bias=True)
        self.b3 = conv(WIDTH, WIDTH, 1, bias=True)
        self.fusion = conv(2 * WIDTH + 1, WIDTH, 1, bias=True)

    def forward(self, views: Tensor, *, both: bool) -> tuple[Tensor, ParallaxMaps | None]:
        """(2B, C, H, W) to fused features of the left view, or of both, joined in the batch, and the maps."""
        adapted = self.rb(views)
        query_left, query_right = self.b1(adapted).chunk(2)
        key_left, key_right = self.b2(adapted).chunk(2)
        maps = parallax_maps(
            matching_cost(query_left, key_right),
            matching_cost(query_right, key_left),
            ordered=False,
            pad_closing=True,
        )
        return self.fused(views, maps, both=both), maps

    def fused(self, views: Tensor, maps: ParallaxMaps, *, both: bool) -> Tensor:
        """Features of a view with those that its attention gathers from the other."""
        left, right = views.chunk(2)
        fused = self._fuse(left, right, maps.right_to_left, maps.valid_left)
        if both:
            fused = torch.cat((fused, self._fuse(right, left, maps.left_to_right, maps.valid_right)))
        return fused

    def _fuse(self, own: Tensor, other: Tensor, attention: Tensor, valid: Tensor) -> Tensor:
        gathered = gather_features(attention, self.b3(other))
        fused: Tensor = self.fusion(torch.cat((gathered, own, valid[:, None].to(own.dtype)), 1))
        return fused
