"""Compute the parallax attention of PASMnet 2, in which one matching cost serves both directions.

M_right->left is the softmax of the cost c(j, k) of left column j and right column k over k, M_left->right the
softmax over j. Only the cost and one normaliser per pixel are stored. Shapes: B batch, C channels, h rows, w
columns of the scale; left columns are j, right ones k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.convolutions import convolve
from pamcli.networks.blocks import ParallaxAttentionBlock, upsample_cost
from pamcli.networks.parallax import (
    NEAR,
    ParallaxMaps,
    RowAttention,
    matching_cost,
    received_mass,
    valid_mask,
)

WINDOW = 2  # columns on each side of the attention's peak over which the initial disparity is averaged

SMALLEST_LOG = -16.0  # lower bound of the logarithm of attention
LOG_SCALE = 0.25  # its factor in the inputs of convolutions

SMALLEST_TOTAL = 1e-30  # lower bound of the attention to a right column

BEFORE, BEHIND = 12, 6  # columns that pad the cost in inference, so that lookups read adjacent values

BLOCK = 600_000  # number of costs to compute at a time on CPUs, which stay in the cache


class Stage(nn.Module):
    """Blocks of one scale, and the features whose products are the cost of both directions.

    The cost of left column j and right column k is (q_l(j) k_r(k) + k_l(j) q_r(k)) / 2C, summed over the
    blocks, in one product of concatenated queries and keys. With queries W f + w and keys V f + v of features
    f, it is (W f + w) . (V f' + v) + (V f + v) . (W f' + w), over 2C. This is L f . (f', 1): in inference,
    queries and keys are one convolution L of the left features.
    """

    def __init__(self, width: int, inner: int | None = None, *, blocks: int) -> None:
        super().__init__()
        self.width = width
        made = []
        for _ in range(blocks):
            made.append(ParallaxAttentionBlock(width, inner))
        self.blocks = cast("Sequence[ParallaxAttentionBlock]", nn.ModuleList(made))
        self.products = nn.ParameterList()  # in inference, weight and bias of L for each block

    def forward(self, views: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute (2B, C, h, w) to features (2B, C, h, w), and left and right features of the cost."""
        lefts, rights = [], []
        for place, block in enumerate(self.blocks):
            f = block.head(views)
            views = views + f
            if self.products:
                left, right = f.float().chunk(2)
                lefts.append(convolve(left, *self.products[2 * place : 2 * place + 2]))
                rights.append(F.pad(right, (0, 0, 0, 0, 0, 1), value=1.0))
            else:
                query, key = block.query(f).chunk(2), block.key(f).chunk(2)
                lefts += [query[0] / (2 * self.width), key[0] / (2 * self.width)]
                rights += [key[1], query[1]]
        return views, (torch.cat(lefts, 1), torch.cat(rights, 1))

    def fuse(self) -> None:
        """Merge the layers of queries and keys."""
        for block in self.blocks:
            query, key = cast("tuple[nn.Conv2d, nn.Conv2d]", (block.query[0], block.key[0]))
            assert query.bias is not None and key.bias is not None  # noqa: PT018
            W, V = query.weight[:, :, 0, 0].double(), key.weight[:, :, 0, 0].double()
            w, v = query.bias.double(), key.bias.double()
            vector = (W.T @ v + V.T @ w)[None]
            weight = torch.cat((W.T @ V + V.T @ W, vector))[..., None, None] / (2 * self.width)
            bias = torch.cat((vector[0], 2 * (w @ v)[None])) / (2 * self.width)
            self.products += [nn.Parameter(weight.float(), False), nn.Parameter(bias.float(), False)]
            del block.query, block.key


@dataclass(frozen=True)
class SymmetricAttention:
    """Attention of both directions at one scale."""

    cost: Tensor  # c(j, k), (B, h, w, w): rows are left pixels j; also for k > j, for the finer scale
    normaliser: Tensor  # (B, h, w): log-sum-exp of the cost over the columns k that pixel j can match
    initial: Tensor  # expected disparity around the attention's peak (B, h, w), pixels of the scale
    mass: Tensor  # attention in that window (B, h, w)
    attention_mass: Tensor  # that each left pixel receives (B, h, w), detached (Equation 4)
    max_disparity: int | None = None
    padded: Tensor | None = None  # in inference, the cost with repeated columns on its sides

    @property
    def right_to_left(self) -> RowAttention:
        """The attention M_right->left (B, h, w, w); its rows are left columns j."""
        return RowAttention(self.cost, self.normaliser, "left", self.max_disparity)

    @cached_property
    def left_to_right(self) -> RowAttention:
        """The attention M_left->right (B, h, w, w); its rows are right columns k."""
        normaliser = (self.cost + _mask(self.cost, self.max_disparity)).logsumexp(-2)
        return RowAttention(self.cost.transpose(-1, -2), normaliser, "right", self.max_disparity)

    def maps(self) -> ParallaxMaps:
        there, back = self.right_to_left.log_map().exp(), self.left_to_right.log_map().exp()
        return ParallaxMaps(there, back, valid_mask(self.attention_mass), valid_mask(received_mass(there)))

    def lookup(self, disparity: Tensor, reach: int) -> Tensor:
        """Return log M_right->left at d + reach ... d - reach, interpolated: (B, 2 reach + 1, h, w)."""
        width = disparity.shape[-1]
        position = torch.arange(width, device=disparity.device) - disparity
        before = position.floor()
        if self.padded is None:
            steps = torch.arange(-reach, reach + 2, device=disparity.device)
            columns = (before.long()[..., None] + steps).clamp(0, width - 1)  # (B, h, w, 2 reach + 2)
            logs = self.right_to_left.log_at(columns)
        else:  # adjacent costs of each pixel
            count, row, size = 2 * reach + 2, self.padded.shape[-1], self.padded.numel()
            pixel = torch.arange(0, size, row, device=disparity.device).view(before.shape)
            at = (before.long() + (BEFORE - reach)).clamp_(0, row - count).add_(pixel)
            overlapping = self.padded.as_strided((size - count + 1, count), (1, 1))
            logs = overlapping.index_select(0, at.flatten()).view(*before.shape, count)
            logs = logs - self.normaliser[..., None]
        logs = logs.clamp(min=SMALLEST_LOG) * LOG_SCALE
        between = torch.lerp(logs[..., :-1], logs[..., 1:], (position - before)[..., None])
        return between.permute(0, 3, 1, 2)

    def mass_near(self, disparity: Tensor) -> Tensor:
        """Return the attention within `NEAR` of the match of a disparity (B, h, w): (B, h, w)."""
        column = torch.arange(disparity.shape[-1], device=disparity.device)
        target = (column - disparity)[..., None]
        k = (target - NEAR).ceil().long() + torch.arange(int(2 * NEAR) + 1, device=disparity.device)
        apart = column[:, None] - k
        counts = (k >= 0) & (apart >= 0) & ((k - target).abs() <= NEAR)
        if self.max_disparity is not None:
            counts &= apart < self.max_disparity
        logs = self.cost.gather(-1, k.clamp(0, disparity.shape[-1] - 1)) - self.normaliser[..., None]
        return logs.exp().masked_fill(~counts, 0).sum(-1)


def attend(
    features: tuple[Tensor, Tensor],
    coarser: SymmetricAttention | None = None,
    max_disparity: int | None = None,
    *,
    finest: bool = False,
) -> SymmetricAttention:
    """Compute the attention of a scale: c = left . right + the upsampled cost of the coarser scale."""
    # `finest`: no finer scale needs the cost, which `attend_in_blocks` then may overwrite.
    left, right = features
    with torch.autocast(left.device.type, enabled=False):
        cost = matching_cost(left, right)
        if coarser is not None:
            cost = cost + upsample_cost(coarser.cost)
        return SymmetricAttention(cost, *_summarise(cost + _mask(cost, max_disparity)), max_disparity)


def attend_in_blocks(
    features: tuple[Tensor, Tensor],
    coarser: SymmetricAttention | None = None,
    max_disparity: int | None = None,
    *,
    finest: bool = False,
) -> SymmetricAttention:
    """Compute `attend` for inference, on CPUs a few rows at a time, and prepare costs for lookups."""
    left, right = features
    count, _, height, width = left.shape
    padded = torch.empty(count, height, width, BEFORE + width + BEHIND, device=left.device)
    cost = padded[..., BEFORE:-BEHIND]
    found = cost.new_empty(4, count, height, width)
    mask = _mask(cost, max_disparity)
    step = max(2, BLOCK // width**2 // 2 * 2) if cost.device.type == "cpu" else height
    lines_left, lines_right = left.float().permute(0, 2, 3, 1), right.float().permute(0, 2, 3, 1)
    for image in range(count):
        around = None
        if coarser is not None:  # edges repeated: (h/2 + 2, w/2 + 2, w/2 + 2)
            around = F.pad(coarser.cost[image, None, None], (1,) * 6, mode="replicate")[0, 0]
        for first in range(0, height, step):
            last = min(first + step, height)
            rows = cost[image, first:last]
            one, other = lines_left[image, first:last], lines_right[image, first:last].mT
            if around is None:
                rows.copy_(torch.matmul(one, other))
            else:
                near = around[first // 2 : last // 2 + 2]  # (n/2 + 2, w/2 + 2, w/2 + 2)
                wide = _upsample_by_two(near, 2, near.new_empty(*near.shape[:2], width))
                _upsample_by_two(_upsample_by_two(wide, 1, near.new_empty(len(near), width, width)), 0, rows)
                rows.baddbmm_(one, other)
            allowed = rows.add_(mask) if finest else rows + mask
            for values, new in zip(found[:, image, first:last], _summarise(allowed), strict=True):
                values.copy_(new)
    complete = [padded] if finest else []
    if coarser is not None and coarser.padded is not None:
        coarser.cost.add_(_mask(coarser.cost, coarser.max_disparity))
        complete.append(coarser.padded)
    for each in complete:
        each[..., :BEFORE] = each[..., BEFORE : BEFORE + 1]
        each[..., -BEHIND:] = each[..., -BEHIND - 1 : -BEHIND]
    normaliser, initial, mass, attention_mass = found
    return SymmetricAttention(cost, normaliser, initial, mass, attention_mass, max_disparity, padded)


def _mask(cost: Tensor, max_disparity: int | None) -> Tensor:
    """Return 0, or -inf at columns k that column j cannot match, (w, w)."""
    column = torch.arange(cost.shape[-1], device=cost.device)
    disparity = column[:, None] - column
    outside = disparity < 0
    if max_disparity is not None:
        outside |= disparity >= max_disparity
    return torch.where(outside, -torch.inf, 0.0)


def _summarise(cost: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return normaliser, initial disparity, mass, received attention mass (..., w) of costs (..., w, w)."""
    attention = cost.softmax(-1)
    if attention.device.type != "cpu" or torch.compiler.is_compiling():
        peak = attention.argmax(-1, keepdim=True)
    else:  # five times as fast
        peak = torch.from_numpy(attention.detach().numpy().argmax(-1, keepdims=True))
    largest = attention.gather(-1, peak)[..., 0]
    normaliser = cost.gather(-1, peak)[..., 0] - largest.log()
    width = cost.shape[-1]
    k = peak + torch.arange(-WINDOW, WINDOW + 1, device=cost.device)
    near = attention.gather(-1, k.clamp(0, width - 1)) * ((k >= 0) & (k < width))
    mass = near.sum(-1)
    column = torch.arange(width, device=cost.device)
    initial = (column - (near * k).sum(-1) / mass.clamp(min=1e-6)).clamp(min=0)
    # A right column k gives M(j, k) exp(n_j) / sum over j of the same to the left pixel j.
    attention, total = attention.detach(), normaliser.detach()
    share = (total - total.amax(-1, keepdim=True)).exp()
    given = 1 / torch.matmul(share[..., None, :], attention).clamp(min=SMALLEST_TOTAL)
    attention_mass = share * torch.matmul(given, attention.mT)[..., 0, :]  # six times as fast in this order
    return normaliser, initial, mass, attention_mass


def _upsample_by_two(x: Tensor, dim: int, into: Tensor) -> Tensor:
    """Upsample linearly by 2 along a dimension, from n + 2 to 2n values."""
    size = x.shape[dim] - 2
    before, here, after = x.narrow(dim, 0, size), x.narrow(dim, 1, size), x.narrow(dim, 2, size)
    even, odd = torch.unflatten(into, dim, (size, 2)).unbind(dim + 1)
    torch.lerp(before, here, 0.75, out=even)
    torch.lerp(here, after, 0.25, out=odd)
    return into
