"""Compute the parallax attention of PASMnet 2, in which one matching cost serves both directions.

M_right->left is the softmax of the cost c(j, k) of left column j and right column k over k, M_left->right the
softmax over j. Only the cost and one normaliser per pixel are stored. Shapes: B batch, h rows, w columns of
the scale.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.blocks import upsample_cost
from pamcli.networks.parallax import (
    ParallaxMaps,
    RowAttention,
    columns_near,
    mask_out_of_order,
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
        else:
            logs = _cut(self.padded, before.long() - reach, 2 * reach + 2) - self.normaliser[..., None]
        logs = logs.clamp(min=SMALLEST_LOG) * LOG_SCALE
        between = torch.lerp(logs[..., :-1], logs[..., 1:], (position - before)[..., None])
        return between.permute(0, 3, 1, 2)

    def mask_columns(self) -> None:
        """In inference, set the cost of columns that cannot match to -inf, once no finer scale needs it."""
        if self.padded is not None:
            self.cost.add_(_mask(self.cost, self.max_disparity))
            _fill_edges(self.padded)

    def mass_near(self, disparity: Tensor) -> Tensor:
        """Return the attention near the match of a disparity (B, h, w): (B, h, w)."""
        k, counts = columns_near(disparity)
        found = self.right_to_left.log_at(k.clamp(0, disparity.shape[-1] - 1)).exp()
        return (found * counts).sum(-1)


def attend(
    features: tuple[Tensor, Tensor],
    coarse: Tensor | None = None,
    max_disparity: int | None = None,
    *,
    finest: bool = False,
) -> SymmetricAttention:
    """Compute the attention of a scale: c = left . right + upsampled `coarse` (B, h/2, w/2, w/2)."""
    # `finest`: no finer scale needs the cost, which `attend_in_blocks` then may overwrite.
    left, right = features
    with torch.autocast(left.device.type, enabled=False):
        cost = matching_cost(left, right)
        if coarse is not None:
            cost = cost + upsample_cost(coarse)
        found = _summarise(cost + _mask(cost, max_disparity))
        return SymmetricAttention(cost, *found, max_disparity=max_disparity)


def attend_in_blocks(
    features: tuple[Tensor, Tensor],
    coarse: Tensor | None = None,
    max_disparity: int | None = None,
    *,
    finest: bool = False,
) -> SymmetricAttention:
    """Compute `attend` for inference, on CPUs a few rows at a time."""
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
        if coarse is not None:  # edges repeated: (h/2 + 2, w/2 + 2, w/2 + 2)
            around = F.pad(coarse[image, None, None], (1,) * 6, mode="replicate")[0, 0]
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
            if finest:
                _fill_edges(padded[image, first:last])
    normaliser, initial, mass, attention_mass = found
    return SymmetricAttention(cost, normaliser, initial, mass, attention_mass, max_disparity, padded)


def _mask(cost: Tensor, max_disparity: int | None) -> Tensor:
    """Return 0, or -inf at columns k that column j cannot match, (w, w)."""
    return mask_out_of_order(torch.zeros(cost.shape[-2:], device=cost.device), "left", max_disparity)


def _fill_edges(padded: Tensor) -> None:
    padded[..., :BEFORE] = padded[..., BEFORE : BEFORE + 1]
    padded[..., -BEHIND:] = padded[..., -BEHIND - 1 : -BEHIND]


def _cut(padded: Tensor, first: Tensor, count: int) -> Tensor:
    """Return `count` adjacent costs of each pixel, from column `first` (B, h, w) on."""
    columns = padded.shape[-1]
    pixel = torch.arange(0, padded.numel(), columns, device=padded.device).view(first.shape)
    at = (first + BEFORE).clamp_(0, columns - count).add_(pixel)
    overlapping = padded.as_strided((padded.numel() - count + 1, count), (1, 1))
    return overlapping.index_select(0, at.flatten()).view(*first.shape, count)


def _summarise(cost: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return normaliser, initial disparity, mass, received attention mass (..., w) of costs (..., w, w)."""
    attention = cost.softmax(-1)
    peak = _find_peaks(attention.detach())
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


def _find_peaks(attention: Tensor) -> Tensor:
    """Return the column of the largest value of each row (..., w) as (..., 1)."""
    if attention.device.type != "cpu" or torch.compiler.is_compiling():
        return attention.argmax(-1, keepdim=True)
    return torch.from_numpy(attention.numpy().argmax(-1, keepdims=True))  # five times as fast


def _upsample_by_two(x: Tensor, dim: int, into: Tensor) -> Tensor:
    """Upsample linearly by 2 along a dimension, from n + 2 to 2n values."""
    size = x.shape[dim] - 2
    before, here, after = x.narrow(dim, 0, size), x.narrow(dim, 1, size), x.narrow(dim, 2, size)
    even, odd = torch.unflatten(into, dim, (size, 2)).unbind(dim + 1)
    torch.lerp(before, here, 0.75, out=even)
    torch.lerp(here, after, 0.25, out=odd)
    return into
