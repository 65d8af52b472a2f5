"""Define PASMnet, the stereo matching network (Section 4.1, Figure 7), for training, inference and export.

Shapes: B batch, C channels, H rows, W columns of a scale. `views` holds both images joined in the batch, left
first: (2B, C, H, W), so in training batch norm sees both images at once, unlike in the authors' code.
Attribute names are those of the authors' checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pamcli.networks.blocks import (
    Convolutions,
    MatchingNetwork,
    ParallaxAttentionBlock,
    ResidualUnit,
    UpsamplingUnit,
    conv,
    conv_unit,
    runs_eagerly_on_cpu,
    upsample,
    upsample_cost,
)
from pamcli.networks.parallax import (
    ParallaxMaps,
    RowAttention,
    attention,
    cycle_confidence,
    fill_occlusions,
    matching_cost,
    parallax_maps,
    received_mass,
    regress_disparity,
    valid_mask,
)

SIZE_MULTIPLE = 32  # height and width of PASMnet's inputs are multiples of this

STAGE_STRIDES = (16, 8, 4)  # pixels of the input per pixel of the three stages of the cascade

BLOCK = 3_000_000  # number of costs to process at a time on CPUs, which stay in the cache

Costs = Sequence[tuple[Tensor, Tensor]]  # right->left and left->right (B, H, W, W) of each stage


@dataclass(frozen=True)
class Matching:
    """The outputs of PASMnet for a batch of pairs."""

    disparity: Tensor  # refined disparity of the left image (B, 1, H, W), px, >= 0
    initial: Tensor  # from the attention of stage 3 (B, H/4, W/4), px of that scale, occlusions filled
    maps: tuple[ParallaxMaps, ...]  # attention and masks of stages 1, 2, 3; empty if not requested
    estimate: Tensor | None = None  # of the refinement (B, 1, H, W), px, before blending; may be below 0
    attention_mass: Tensor | None = None  # attention that each left pixel receives (B, H/4, W/4), detached
    directions: tuple[RowAttention, RowAttention] | None = None  # of stage 3, for the confidence
    scales: tuple[()] = ()
    log_expected_error: None = None  # only PASMnet 2 has updates and an expected error

    @property
    def confidence(self) -> Tensor:
        """(B, H/4, W/4) in [0, 1], see `cycle_confidence`; must have been requested."""
        assert self.directions is not None
        return cycle_confidence(self.disparity, *self.directions)


class PASMnet(MatchingNetwork):
    """The published network; parts can be replaced (see `variants`)."""

    HALO = 192

    def __init__(
        self,
        hourglass: Hourglass | None = None,
        cas_pam: CascadedParallaxAttention | None = None,
        refine: Refinement | None = None,
    ) -> None:
        super().__init__()
        self.hourglass = hourglass or Hourglass()
        self.cas_pam = cas_pam or CascadedParallaxAttention()
        self.refine = refine or Refinement()

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        max_disparity: int | None = None,
        *,
        all_stages: bool = False,
        confidence: bool = True,
    ) -> Matching:
        F1, F2, F3, F4 = self.hourglass(torch.cat((left, right)))
        costs, _ = self.cas_pam(F1, F2, F3)
        there, back = costs[-1]
        limit = max_disparity and max_disparity // STAGE_STRIDES[-1]
        maps: tuple[ParallaxMaps, ...] = ()
        if all_stages:
            maps = tuple(
                parallax_maps(*cost, ordered=True, max_disparity=max_disparity and max_disparity // stride)
                for cost, stride in zip(costs, STAGE_STRIDES[-len(costs) :], strict=True)
            )
            regressed = regress_disparity(maps[-1].right_to_left)
            attention_mass, valid = received_mass(maps[-1].left_to_right), maps[-1].valid_left
        else:
            regressed, attention_mass = _regress_and_receive(there, back, limit)
            valid = valid_mask(attention_mass)
        directions = None
        if confidence:
            directions = (
                RowAttention.from_cost(there, "left", limit),
                RowAttention.from_cost(back, "right", limit),
            )
        initial = fill_occlusions(regressed, valid)
        disparity, estimate = self.refine(initial[:, None], F4[: len(left)])
        return Matching(disparity, initial, maps, estimate, attention_mass, directions)


def _regress_and_receive(
    right_to_left_cost: Tensor, left_to_right_cost: Tensor, limit: int | None
) -> tuple[Tensor, Tensor]:
    """Compute disparity and attention mass (B, H, W) from both costs, on CPUs a few rows at a time."""
    height, width = right_to_left_cost.shape[1:3]
    step = max(1, BLOCK // width**2) if runs_eagerly_on_cpu(right_to_left_cost) else height
    disparity, attention_mass = [], []
    for first in range(0, height, step):
        rows = slice(first, first + step)
        disparity.append(regress_disparity(attention(right_to_left_cost[:, rows], "left", limit)))
        attention_mass.append(received_mass(attention(left_to_right_cost[:, rows], "right", limit)))
    return torch.cat(disparity, 1), torch.cat(attention_mass, 1)


class SkipDecoder(nn.Module):
    """The decoder that both hourglasses share: from H/32 to H/4, with skip connections."""

    def add_decoder(self) -> None:
        """Add the layers; after those of the encoder, so that random weights do not change."""
        self.D0 = ResidualUnit(conv_unit(160, 160))
        self.D1 = ResidualUnit(UpsamplingUnit(160 + 128, 128))
        self.D2 = ResidualUnit(UpsamplingUnit(128 + 96, 96))
        self.D3 = ResidualUnit(UpsamplingUnit(96 + 64, 64))

    def decode(self, deepest: Tensor, x3: Tensor, x2: Tensor, x1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features at H/16 (128 channels), H/8 (96) and H/4 (64)."""
        F1 = self.D1(self.D0(deepest), x3)
        F2 = self.D2(F1, x2)
        return F1, F2, self.D3(F2, x1)


class Hourglass(SkipDecoder):
    """Features of both views, with shared weights (Figure 7a)."""

    def __init__(self) -> None:
        super().__init__()
        self.E0 = ResidualUnit(conv_unit(3, 32, stride=2))
        self.E1 = ResidualUnit(conv_unit(32, 64, stride=2))
        self.E2 = ResidualUnit(conv_unit(64, 96, stride=2))
        self.E3 = ResidualUnit(conv_unit(96, 128, stride=2))
        self.E4 = ResidualUnit(conv_unit(128, 160, stride=2))
        self.add_decoder()

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute (2B, 3, H, W) to F1 (H/16, 128 channels), F2 (H/8, 96), F3 and F4 (H/4, 64)."""
        x1 = self.E1(self.E0(views))  # H/4
        x2 = self.E2(x1)  # H/8
        x3 = self.E3(x2)  # H/16
        return (*self.decode(self.E4(x3), x3, x2, x1), x1)


class Stage(nn.Module):
    """Four parallax-attention blocks, `pab1` to `pab4`.

    Each adds query * key / C to the cost of the previous one (Equations 5 to 7; the division by C is from the
    authors' code). Features do not depend on the cost, so all products are one product of the concatenated
    queries and keys.
    """

    def __init__(self, width: int, blocks: int = 4) -> None:
        super().__init__()
        self.width = width
        for place in range(1, blocks + 1):
            self.add_module(f"pab{place}", ParallaxAttentionBlock(width))

    @property
    def blocks(self) -> list[ParallaxAttentionBlock]:
        return [block for block in self.children() if isinstance(block, ParallaxAttentionBlock)]

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute (2B, C, H, W) to the same shape, and right->left and left->right cost (B, H, W, W)."""
        queries, keys = [], []
        for block in self.blocks:
            views, query, key = block(views)
            queries.append(query)
            keys.append(key)
        query_left, query_right = torch.cat(queries, 1).chunk(2)  # (B, 4C, H, W) each
        key_left, key_right = torch.cat(keys, 1).chunk(2)
        return (
            views,
            matching_cost(query_left / self.width, key_right),
            matching_cost(query_right / self.width, key_left),
        )


class CascadedParallaxAttention(nn.Module):
    """Matching costs from coarse to fine (Figure 7b)."""

    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.stage1 = Stage(128, blocks)
        self.stage2 = Stage(96, blocks)
        self.stage3 = Stage(64, blocks)
        self.b2 = UpsamplingUnit(128 + 96, 96, bias=True)
        self.b3 = UpsamplingUnit(96 + 64, 64, bias=True)

    def forward(self, f1: Tensor, f2: Tensor, f3: Tensor) -> tuple[Costs, Tensor]:
        """Compute features to the costs of the stages, and stage 3's features (2B, 64, H/4, W/4)."""
        views, *cost1 = self.stage1(f1)
        views, *cost2 = self.stage2(self.b2(views, f2))
        cost2 = [fine + upsample_cost(coarse) for fine, coarse in zip(cost2, cost1, strict=True)]
        views, *cost3 = self.stage3(self.b3(views, f3))
        cost3 = [fine + upsample_cost(coarse) for fine, coarse in zip(cost3, cost2, strict=True)]
        return [(cost[0], cost[1]) for cost in (cost1, cost2, cost3)], views


class Refinement(SkipDecoder):
    """Residual disparity and its blending weight from the initial disparity and the left features (4.1.4)."""

    # `confidence` has its name in the checkpoints; it blends two estimates and is not a confidence.

    def __init__(self) -> None:
        super().__init__()
        self.E0 = ResidualUnit(conv_unit(1 + 64, 64))
        self.E1 = ResidualUnit(conv_unit(64, 96, stride=2))
        self.E2 = ResidualUnit(conv_unit(96, 128, stride=2))
        self.E3 = ResidualUnit(conv_unit(128, 160, stride=2))
        self.add_decoder()
        self.D4 = ResidualUnit(UpsamplingUnit(64, 32))
        self.D5 = ResidualUnit(UpsamplingUnit(32, 16))
        self.confidence = Convolutions(*conv_unit(16, 16), conv(16, 1), nn.Sigmoid())
        self.disp = Convolutions(*conv_unit(16, 16), conv(16, 1))

    def forward(self, initial: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Refine `initial` (B, 1, H/4, W/4), px there, by F4; return it and its estimate (B, 1, H, W), px."""
        scaled = initial / 32
        x0 = self.E0(torch.cat((scaled.to(features.dtype), features), 1))  # H/4
        x1 = self.E1(x0)
        x2 = self.E2(x1)
        *_, x = self.decode(self.E3(x2), x2, x1, x0)  # H/4
        x = self.D5(self.D4(x))  # H
        blend = self.confidence(x).float()
        estimate = self.disp(x).float()
        return blend_estimates(upsample(scaled, 4), blend, estimate), estimate * 128


def blend_estimates(initial: Tensor, blend: Tensor, estimate: Tensor) -> Tensor:
    """Compute Equation 9 in px, from 128ths: `initial` D_ini upsampled, `estimate` D_res, `blend` M_con."""
    return torch.lerp(initial, estimate.clamp(min=0), blend) * 128
