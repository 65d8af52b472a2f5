"""Compute the supervised loss terms and the masks of the pixels that they count.

Shapes: B batch, H rows, W columns of this image, V columns of the other. Disparities are (B, H, W), positive
in both images, NaN where unknown. Excluded values are replaced first, so their gradient is zero.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.networks.parallax import (
    IMPOSSIBLE,
    VISIBLE_THRESHOLD,
    ParallaxMaps,
    RowAttention,
    find_consistent,
)
from pamcli.networks.symmetric_attention import SymmetricAttention

SMALLEST_PROBABILITY = 1e-30
"""Lower bound of attention in logarithms. It is tiny because clamping zeroes the gradient, and a map that is
certain of a wrong position must still learn."""


@dataclass(frozen=True)
class Quotient:
    """An undivided mean, so that several processes can sum both parts before the division."""

    total: Tensor  # scalar, differentiable
    count: Tensor  # scalar float, detached: the paper's N; zero for an empty mask


def masked_mean(values: Tensor, mask: Tensor) -> Quotient:
    """Return the mean of `values` over the pixels of `mask`, both (B, H, W)."""
    return Quotient(torch.where(mask, values, 0).sum(), mask.sum().float())


def smooth_l1(
    disparity: Tensor,
    truth: Tensor,
    counts: Tensor,
    logarithmic_beyond: float | None = None,
    clamp: Tensor | None = None,
) -> Quotient:
    """Compute the smooth L1 loss (beta 1 px) of a disparity (B, H, W) or (B, 1, H, W) over counted pixels.

    Errors beyond `logarithmic_beyond` px grow logarithmically, with a continuous slope. `counts`: (B, H, W),
    bool or the weight of each pixel. `clamp`: (B,), px, limit of the errors of each pair, without gradient.
    """
    known = counts > 0
    truth = torch.where(known, truth.float(), 0)
    disparity = disparity.float().reshape(truth.shape)
    if clamp is not None:
        limit_of_pair = clamp[:, None, None]
        disparity = torch.clamp(disparity, truth - limit_of_pair, truth + limit_of_pair)
    error = F.smooth_l1_loss(disparity, truth, reduction="none", beta=1.0)
    if logarithmic_beyond is not None:
        limit, slope = logarithmic_beyond, min(logarithmic_beyond, 1.0)
        beyond = ((disparity - truth).abs() / limit).clamp(min=1).log()
        error = error.clamp(max=slope * (limit - slope / 2)) + slope * limit * beyond
    return Quotient((torch.where(known, error, 0) * counts).sum(), known.sum().float())


LARGEST_ERROR = 64.0  # errors are clamped to this in the likelihood, px, so that outliers do not dominate


def error_likelihood(error_scale: Tensor, disparity: Tensor, truth: Tensor, counts: Tensor) -> Quotient:
    """Compute the negative log-likelihood of the error, px, under a Laplace distribution (B, h, w)."""
    error = torch.where(counts, (disparity.detach().float() - truth).abs(), 0).clamp(max=LARGEST_ERROR)
    return masked_mean(math.log(2) + error_scale + error * torch.exp(-error_scale), counts)


def sample_truth(disparity: Tensor, counts: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Sample the ground truth at 1/stride of the size: disparity in px of that size, and mask, (B, H/s, W/s).

    Each cell takes the full-size pixel next to its centre, which avoids averages across depth edges.
    """
    middle = slice(stride // 2, None, stride)
    disparity, counts = disparity[:, middle, middle], counts[:, middle, middle]
    return disparity.float() / stride, counts & disparity.isfinite()


def match_likelihood(attention: Tensor | RowAttention, position: Tensor, mask: Tensor) -> Quotient:
    """Compute the negative log-likelihood of the true column (B, H, W) under the attention.

    Only masked pixels count whose position lies in the row and is allowed by the map. At fraction w from
    column k to k + 1 the loss is -(1 - w) log M(k) - w log M(k + 1).
    """
    whole = attention.cost if isinstance(attention, RowAttention) else attention
    width = whole.shape[-1]
    mask = mask & (position >= 0) & (position <= width - 1)
    position = torch.where(mask, position.float(), 0)
    before = position.floor().clamp(max=max(width - 2, 0))
    share = position - before
    index = torch.stack((before, (before + 1).clamp(max=width - 1)), -1).long()
    shares = torch.stack((1 - share, share), -1)
    if isinstance(attention, RowAttention):
        logs = attention.log_at(index)
        allowed, logs = logs > IMPOSSIBLE / 2, logs.clamp(min=math.log(SMALLEST_PROBABILITY))
    else:
        found = attention.float().gather(-1, index)
        allowed, logs = found > 0, found.clamp(min=SMALLEST_PROBABILITY).log()
    mask = mask & ((shares == 0) | allowed).all(-1)
    return masked_mean(-(shares * logs).sum(-1), mask)


def attention_likelihood(
    maps: ParallaxMaps | SymmetricAttention,
    stride: int,
    left: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
) -> tuple[Quotient, Quotient]:
    """Compute `match_likelihood` of both directions of a scale; 0 for an image without ground truth.

    `left`, `right`: disparity in full-size px and the pixels that are visible in both images, if known.
    Column x at full size lies at (x + 1/2) / stride - 1/2 of the scale, so left column j matches right column
    j - d / stride, and right column k matches left column k + d / stride.
    """
    found = []
    for sign, truth in ((-1, left), (1, right)):
        disparity, counts = sample_truth(*truth, stride)
        column = torch.arange(disparity.shape[-1], device=disparity.device)
        attention = maps.right_to_left if sign < 0 else maps.left_to_right
        found.append(match_likelihood(attention, column + sign * disparity, counts))
    return found[0], found[1]


def find_visible_left(disparity: Tensor, right_disparity: Tensor | None = None) -> Tensor:
    """Return the left pixels of known disparity that are visible in both images: (B, H, W) bool.

    Where the right disparity is known at the match, the match must point back within 1.5 px. Elsewhere, the
    pixel must be the nearest one on its columns of the right image.
    """
    known = disparity.isfinite()
    own = torch.where(known, disparity.float(), 0)
    last = own.shape[-1] - 1
    position = torch.arange(last + 1, device=own.device) - own
    inside = (position >= 0) & (position <= last)
    columns = torch.cat((position.floor(), position.ceil()), -1).clamp(0, last).long()  # (B, H, 2 W)
    shown = torch.where(known & inside, own, -torch.inf).repeat(1, 1, 2)
    nearest = torch.full_like(own, -torch.inf).scatter_reduce(-1, columns, shown, "amax")
    in_front = own.repeat(1, 1, 2) >= nearest.gather(-1, columns) - VISIBLE_THRESHOLD
    visible = in_front[..., : last + 1] & in_front[..., last + 1 :]
    if right_disparity is not None:
        right_known = right_disparity.isfinite()
        agrees = find_consistent(own, torch.where(right_known, right_disparity.float(), 0))
        at_floor, at_ceiling = right_known.gather(-1, columns).chunk(2, -1)
        visible = torch.where(at_floor & at_ceiling, agrees, visible)
    return visible & known & inside


def find_visible_right(disparity: Tensor, right_disparity: Tensor) -> Tensor:
    """Return the right pixels of known disparity that are visible in both images, see `find_visible_left`."""
    return find_visible_left(right_disparity.flip(-1), disparity.flip(-1)).flip(-1)
