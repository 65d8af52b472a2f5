"""The terms of the losses that learn from known disparities, and which of their pixels count.

Shapes: B batch, H rows, W columns of this view, V columns of the other. Disparities are (B, H, W), positive
in both views, NaN where unknown. What does not count is replaced before it enters an operation: its gradient
is exactly zero. Everything is float32; nothing is copied to the host.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pamcli.losses.unsupervised import Quotient, masked
from pamcli.networks.parallax import (
    IMPOSSIBLE,
    VISIBLE_THRESHOLD,
    ParallaxMaps,
    RowAttention,
    consistent,
)
from pamcli.networks.symmetric_attention import SymmetricAttention

SMALLEST_PROBABILITY = 1e-30
"""Below this, attention is taken as impossible. So small, because the gradient of a logarithm that is cut off
is zero: a map that is sure of a wrong position must still learn."""


def smooth_l1(
    disparity: Tensor, truth: Tensor, counts: Tensor, logarithmic_beyond: float | None = None
) -> Quotient:
    """Smooth L1 (beta 1 pixel) of a disparity (B, H, W) or (B, 1, H, W), over the pixels that count.

    Beyond `logarithmic_beyond` pixels an error grows as the logarithm does, at first with the slope that it
    has there: a few pixels that are far off do not outweigh all others.

    `truth` (B, H, W) in pixels of the full picture; `counts` (B, H, W), bool or what each pixel counts: 0 for
    none of it. N is the number of pixels that count at all.
    """
    known = counts > 0
    truth = torch.where(known, truth.float(), 0)
    disparity = disparity.float().reshape(truth.shape)
    error = F.smooth_l1_loss(disparity, truth, reduction="none", beta=1.0)
    if logarithmic_beyond is not None:
        limit, slope = logarithmic_beyond, min(logarithmic_beyond, 1.0)
        beyond = ((disparity - truth).abs() / limit).clamp(min=1).log()
        error = error.clamp(max=slope * (limit - slope / 2)) + slope * limit * beyond
    return Quotient((torch.where(known, error, 0) * counts).sum(), known.sum().float())


LARGEST_ERROR = 64.0
"""Pixels, above which an error counts as this much in its likelihood: a few do not outweigh all others."""


def error_likelihood(error_scale: Tensor, disparity: Tensor, truth: Tensor, counts: Tensor) -> Quotient:
    """Negative log-likelihood of a disparity's error under a Laplace distribution, over pixels that count.

    `error_scale` (B, h, w): logarithm of the distribution's scale, pixels; `disparity`, `truth` (B, h, w) and
    `counts` (B, h, w) bool: of the same grid, in pixels of the full picture. The disparity learns nothing.
    """
    error = torch.where(counts, (disparity.detach().float() - truth).abs(), 0).clamp(max=LARGEST_ERROR)
    return masked(math.log(2) + error_scale + error * torch.exp(-error_scale), counts)


def truth_at_stage(disparity: Tensor, counts: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """The truth at 1/stride of the size: disparity in pixels of that size, and a mask, (B, H/s, W/s).

    Each cell takes the full-size pixel next to its centre (its lower right neighbour for even strides; half a
    pixel there changes d only by half its slope): no mean across an edge of depth. `counts` (B, H, W) bool is
    taken alike.
    """
    middle = slice(stride // 2, None, stride)
    disparity, counts = disparity[:, middle, middle], counts[:, middle, middle]
    return disparity.float() / stride, counts & disparity.isfinite()


def match_likelihood(attention: Tensor | RowAttention, position: Tensor, mask: Tensor) -> Quotient:
    """Return the negative log-likelihood of the true column under the attention.

    Counted are the pixels of the mask whose position lies in the row, and is one that the map allows: not of
    a negative disparity, and below its maximum disparity.

    Args:
        attention: A whole map (B, H, W, V), or cost and normaliser, of which a few columns are looked at.
        position: (B, H, W), the matching column of the other image, as a fraction of columns: w of the way
            from k to k + 1 it gives -(1 - w) log M(k) - w log M(k + 1).
        mask: (B, H, W) bool.
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
    return masked(-(shares * logs).sum(-1), mask)


def attention_likelihood(
    maps: ParallaxMaps | SymmetricAttention,
    stride: int,
    left: tuple[Tensor, Tensor] | None,
    right: tuple[Tensor, Tensor] | None,
) -> tuple[Quotient, Quotient]:
    """Return `match_likelihood` of both directions of a scale, nothing for an image without truth.

    `left`, `right`: disparity in full-size pixels and the pixels that count (known, visible in the other
    image). Column x of the full size lies at (x + 1/2) / stride - 1/2 of the scale, so left column j matches
    the right column j - d / stride, and right column k the left column k + d / stride.
    """
    found = []
    for sign, truth in ((-1, left), (1, right)):
        if truth is None:
            nothing = torch.zeros((), device=(left or right or (torch.zeros(()),))[0].device)
            found.append(Quotient(nothing, nothing))
            continue
        disparity, counts = truth_at_stage(*truth, stride)
        column = torch.arange(disparity.shape[-1], device=disparity.device)
        attention = maps.right_to_left if sign < 0 else maps.left_to_right
        found.append(match_likelihood(attention, column + sign * disparity, counts))
    return found[0], found[1]


def visible_left(disparity: Tensor, right_disparity: Tensor | None = None) -> Tensor:
    """Left pixels of known disparity that the right view sees too, from the truths alone: (B, H, W) bool.

    Where the right view's truth is known at the match: those whose match points back at them, within 1.5
    pixels. Elsewhere: those in front of whatever else falls on their columns of the right view, as far as the
    left truth knows it (where that is sparse, it knows little).
    """
    known = disparity.isfinite()
    own = torch.where(known, disparity.float(), 0)
    columns, inside = _matching_columns(own)
    visible = _in_front(own, known & inside, columns)
    if right_disparity is not None:
        right_known = right_disparity.isfinite()
        agrees = consistent(own, torch.where(right_known, right_disparity.float(), 0))
        at_floor, at_ceiling = right_known.gather(-1, columns).chunk(2, -1)
        visible = torch.where(at_floor & at_ceiling, agrees, visible)
    return visible & known & inside


def visible_right(disparity: Tensor, right_disparity: Tensor) -> Tensor:
    """Right pixels of known disparity that the left view sees too: `visible_left` of the mirrored pair."""
    return visible_left(right_disparity.flip(-1), disparity.flip(-1)).flip(-1)


def _matching_columns(disparity: Tensor) -> tuple[Tensor, Tensor]:
    """Both columns around each pixel's match, (B, H, 2 W), and whether it lies in the row, (B, H, W)."""
    last = disparity.shape[-1] - 1
    position = torch.arange(last + 1, device=disparity.device) - disparity
    columns = torch.cat((position.floor(), position.ceil()), -1).clamp(0, last).long()
    return columns, (position >= 0) & (position <= last)


def _in_front(disparity: Tensor, counts: Tensor, columns: Tensor) -> Tensor:
    """Pixels that nothing nearer hides on either of their `columns`, (B, H, W) bool.

    Both columns, so that a surface stretched in the other view has no gaps through which others are seen.
    """
    nearest = torch.full_like(disparity, -torch.inf).scatter_reduce(
        -1, columns, torch.where(counts, disparity, -torch.inf).repeat(1, 1, 2), "amax"
    )
    in_front = disparity.repeat(1, 1, 2) >= nearest.gather(-1, columns) - VISIBLE_THRESHOLD
    at_floor, at_ceiling = in_front.chunk(2, -1)
    return at_floor & at_ceiling
