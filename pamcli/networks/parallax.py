"""Compute parallax attention (Section 3): every pixel attends along its epipolar line in the other view.

Shapes: B batch, C channels, H rows, W columns of this view, V columns of the other view.
M (B, H, W, V) holds, for pixel (i, j) of this view, the contribution of pixel (i, k) of the other view; rows
sum to one. Disparity is positive: column j of the left view matches column j - d of the right view. Functions
have no weights and do not copy to the host.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Towards = Literal["left", "right"]  # the view that an ordered map's rows are pixels of

VALID_MASS = 0.1  # threshold tau of Equation 4: pixels that receive less attention are occluded

SMALLEST_INVALID_REGION, SMALLEST_VALID_HOLE = 20, 10  # mask clean-up: regions with fewer pixels are flipped
CLOSING_RADIUS = 3  # then gaps up to this are closed

VISIBLE_THRESHOLD = 1.5  # maximum difference of both views' disparities where a point is visible in both, px

IMPOSSIBLE = -1e4  # logarithm of the attention to columns that cannot match, which is exactly 0

NEAR = 1.5  # attention counts as near an estimate within this many pixels of its scale

FILL_DECAY = 1 + 1e-4  # divisor per pixel from a valid one, as in the authors' partial convolution


@dataclass(frozen=True)
class ParallaxMaps:
    """Attention between two views at one scale."""

    right_to_left: Tensor  # M_right->left (B, H, W, V): rows are left pixels
    left_to_right: Tensor  # M_left->right (B, H, V, W): rows are right pixels
    valid_left: Tensor  # (B, H, W) bool: left pixels visible in both images (Equation 4), cleaned up
    valid_right: Tensor  # (B, H, V) bool


@dataclass(frozen=True)
class RowAttention:
    """Attention of one direction, log M = cost - normaliser, without a second whole map."""

    cost: Tensor  # (B, H, W, V), including columns that cannot match
    normaliser: Tensor  # (B, H, W): log-sum-exp of the cost over the columns that can match
    towards: Towards
    max_disparity: int | None = None

    @classmethod
    def from_cost(cls, cost: Tensor, towards: Towards, max_disparity: int | None = None) -> "RowAttention":
        masked = mask_out_of_order(cost, towards, max_disparity)
        return cls(cost, masked.logsumexp(-1), towards, max_disparity)

    def log_at(self, columns: Tensor) -> Tensor:
        """Return log M at columns (B, H, W, n) of the other image; `IMPOSSIBLE` where they cannot match."""
        logs = self.cost.gather(-1, columns) - self.normaliser[..., None]
        own = torch.arange(self.cost.shape[-2], device=columns.device)
        return logs.masked_fill(
            is_out_of_order(own[:, None], columns, self.towards, self.max_disparity), IMPOSSIBLE
        )

    def log_map(self) -> Tensor:
        """Return log M (B, H, W, V); `IMPOSSIBLE` at columns that cannot match."""
        logs = self.cost - self.normaliser[..., None]
        return mask_out_of_order(logs, self.towards, self.max_disparity, IMPOSSIBLE)


def matching_cost(query: Tensor, key: Tensor) -> Tensor:
    """Compare `query` (B, C, H, W) and `key` (B, C, H, V) along rows: (B, H, W, V) float32 (Section 3.1)."""
    q = query.permute(0, 2, 3, 1)  # (B, H, W, C)
    k = key.permute(0, 2, 1, 3)  # (B, H, C, V)
    with torch.autocast(query.device.type, enabled=False):
        return torch.matmul(q.float(), k.float())


def attention(cost: Tensor, towards: Towards | None = None, max_disparity: int | None = None) -> Tensor:
    """Compute a parallax-attention map, the softmax of `cost` (B, H, W, V) over the epipolar line.

    `towards`: "left" (rows are left pixels) keeps only k <= j, "right" only k >= j, so that disparities are
    not negative, as in the authors' code; None keeps the whole line, as in the paper.
    """
    return (cost if towards is None else mask_out_of_order(cost, towards, max_disparity)).softmax(-1)


def mask_out_of_order(
    values: Tensor, towards: Towards, max_disparity: int | None, masked: float = -torch.inf
) -> Tensor:
    """Return `values` (..., W, V) with `masked` at columns that cannot match (see `is_out_of_order`)."""
    j = torch.arange(values.shape[-2], device=values.device)
    k = torch.arange(values.shape[-1], device=values.device)
    return values.masked_fill(is_out_of_order(j[:, None], k, towards, max_disparity), masked)


def is_out_of_order(j: Tensor, k: Tensor, towards: Towards, max_disparity: int | None) -> Tensor:
    """Return True where column j cannot match column k of the other image; shapes broadcast."""
    disparity = j - k if towards == "left" else k - j
    outside = disparity < 0
    return outside if max_disparity is None else outside | (disparity >= max_disparity)


def parallax_maps(
    cost_right_to_left: Tensor,
    cost_left_to_right: Tensor,
    *,
    ordered: bool,
    max_disparity: int | None = None,
    pad_closing: bool = False,
) -> ParallaxMaps:
    """Compute both attention maps and both valid masks from the two matching costs (Figure 7c)."""
    # `ordered`: disparities are not negative, as in stereo matching. `pad_closing`: see `clean_mask`.
    right_to_left = attention(cost_right_to_left, "left" if ordered else None, max_disparity)
    left_to_right = attention(cost_left_to_right, "right" if ordered else None, max_disparity)
    return ParallaxMaps(
        right_to_left,
        left_to_right,
        valid_left=valid_mask(received_mass(left_to_right), pad_closing),
        valid_right=valid_mask(received_mass(right_to_left), pad_closing),
    )


def received_mass(attention_map: Tensor) -> Tensor:
    """Sum the attention that each pixel of the other view receives (Equation 4): (..., W, V) to (..., V)."""
    return attention_map.detach().sum(-2)


def valid_mask(attention_mass: Tensor, pad_closing: bool = False) -> Tensor:
    """Return V of Equation 4, cleaned up: pixels that receive enough attention, (B, H, W)."""
    return clean_mask(attention_mass > VALID_MASS, pad_closing)


def gather_features(attention_map: Tensor, features: Tensor) -> Tensor:
    """Warp features by M (x) R of Equation 1: (B, H, W, V) and (B, C, H, V) give (B, C, H, W)."""
    values = features.permute(0, 2, 3, 1)  # (B, H, V, C)
    return torch.matmul(attention_map.to(values.dtype), values).permute(0, 3, 1, 2)


def cycle_map(right_to_left: Tensor, left_to_right: Tensor) -> Tensor:
    """Compute cycle attention M_right->left (x) M_left->right (Equation 3), ideally the identity."""
    return torch.matmul(right_to_left, left_to_right)


def regress_disparity(right_to_left: Tensor) -> Tensor:
    """Compute the expected disparity (Equation 8), px of its scale: (B, H, W, V) to (B, H, W)."""
    j, k = (
        torch.arange(size, device=right_to_left.device, dtype=right_to_left.dtype)
        for size in right_to_left.shape[-2:]
    )
    with torch.autocast(right_to_left.device.type, enabled=False):  # bf16 cannot represent columns beyond 256
        return j - torch.matmul(right_to_left, k)


def fill_occlusions(disparity: Tensor, valid: Tensor) -> Tensor:
    """Replace invalid disparities (B, H, W) by the nearest valid one to the left, else to the right."""
    # As the authors' partial convolution, which fades by `FILL_DECAY`; empty rows keep their values.
    width = disparity.shape[-1]
    column = torch.arange(width, device=disparity.device).expand(valid.shape)
    nth = valid.long().cumsum(-1)  # number of valid pixels so far
    where = torch.full((*valid.shape[:-1], width + 2), width, device=disparity.device)
    where = where.scatter(-1, torch.where(valid, nth, 0), column)
    # The last valid column, else the next; `width` in rows without any.
    source = where.gather(-1, torch.where(nth > 0, nth, 1))
    fading = FILL_DECAY ** -(column - source).abs().to(disparity.dtype)
    filled = disparity.gather(-1, source.clamp(max=width - 1)) * fading
    return torch.where(valid | (source == width), disparity, filled)


def find_consistent(left: Tensor, right: Tensor, threshold: float = VISIBLE_THRESHOLD) -> Tensor:
    """Find left pixels whose match in the right view points back, from disparities (..., H, W), px."""
    # Not the paper's left-right consistency (Equation 1), which compares images and is learned.
    width = left.shape[-1]
    position = (torch.arange(width, device=left.device) - left).nan_to_num(nan=-1)
    low = position.floor().clamp(0, width - 1).long()
    high = (low + 1).clamp(max=width - 1)
    share = (position - low).clamp(0, 1)
    matched = torch.lerp(right.gather(-1, low), right.gather(-1, high), share)
    return ((matched - left).abs() <= threshold) & (position >= 0)


def cycle_confidence(disparity: Tensor, right_to_left: RowAttention, left_to_right: RowAttention) -> Tensor:
    """Return the cycle attention (from Equation 3) near a disparity (B, 1, 4 H, 4 W), px: (B, H, W).

    The sum over k near j - d of M_right->left(j, k) times the sum over l near j of M_left->right(k, l), in
    [0, 1]; 1 where both maps are certain and agree with the result.
    """
    width = disparity.shape[-1] // 4
    home = torch.arange(width, device=disparity.device)
    target = (home - F.avg_pool2d(disparity, 4)[:, 0] / 4)[..., None]
    k = (target - NEAR).ceil().long() + torch.arange(int(2 * NEAR) + 1, device=home.device)  # (B, H, W, 4)
    near_target = (k >= 0) & (k < width) & ((k - target).abs() <= NEAR)
    k, home = k.clamp(0, width - 1), home[:, None, None]
    near_home = home + torch.arange(-int(NEAR), int(NEAR) + 1, device=k.device)  # (W, 1, 3)
    column = near_home.clamp(0, width - 1)
    allowed = (near_home == column) & ~is_out_of_order(
        k[..., None], column, "right", left_to_right.max_disparity
    )
    places = k[..., None] * width + column  # (B, H, W, 4, 3)
    cost = left_to_right.cost.flatten(2).gather(-1, places.flatten(2)).view(places.shape)
    normaliser = left_to_right.normaliser.gather(-1, k.flatten(2)).view(k.shape)
    returns = (cost - normaliser[..., None]).masked_fill(~allowed, -torch.inf).exp().sum(-1)
    return (right_to_left.log_at(k).exp() * near_target * returns).sum(-1).clamp(0, 1)


def clean_mask(valid: Tensor, pad_closing: bool = False) -> Tensor:
    """Remove specks, fill holes and close gaps of the INVALID set of a mask (B, H, W) bool, image by image.

    Invalid regions of fewer than 20 pixels become valid, valid holes of fewer than 10 pixels invalid
    (8-connected), then the invalid set is closed with a disc of radius 3. The outside counts as valid for the
    dilation and as invalid for the erosion; `pad_closing` (super-resolution) adds three valid rows and
    columns.
    """
    invalid = ~valid
    invalid &= ~_find_small_regions(invalid, SMALLEST_INVALID_REGION)
    invalid |= _find_small_regions(~invalid, SMALLEST_VALID_HOLE)
    margin = CLOSING_RADIUS if pad_closing else 0
    invalid = ~_dilate(~_dilate(F.pad(invalid, (margin,) * 4)))
    height, width = valid.shape[-2:]
    return ~invalid[:, margin : margin + height, margin : margin + width]


def _find_small_regions(mask: Tensor, size: int) -> Tensor:
    """Return pixels of `mask` (B, H, W) in 8-connected regions of fewer than `size` pixels.

    After `size` - 1 rounds of taking the largest label around, such a region has a single label. A larger one
    does, too, with at least `size` pixels, or has neighbours of different labels.
    """
    count, height, width = mask.shape
    exact = torch.float32 if height * width < 2**24 else torch.float64
    inside = mask.to(exact)
    label = inside * torch.arange(1, height * width + 1, device=mask.device, dtype=exact).view(height, width)
    for _ in range(size - 1):
        label = _dilate_values(label) * inside
    infinite = torch.full_like(label, torch.inf)
    lowest = -_dilate_values(-torch.where(mask, label, infinite))
    undecided = (_dilate_values(label) != label) | (lowest != label)
    label = label.long().view(count, -1)
    weight = torch.where(undecided, size, 1).view(count, -1)
    total = torch.zeros(count, height * width + 1, dtype=torch.long, device=mask.device)
    total.scatter_add_(1, label, weight)
    return mask & (total.gather(1, label) < size).view_as(mask)


def _dilate_values(values: Tensor) -> Tensor:
    """Replace each value (B, H, W) by the largest of its 3 x 3 neighbourhood."""
    if torch.compiler.is_compiling():  # slower, but a single operation in an exported graph
        return F.max_pool2d(values, 3, 1, 1)
    for dim in (-1, -2):
        largest, size = values.clone(), values.shape[dim] - 1
        for here, beside in ((0, 1), (1, 0)):
            at = largest.narrow(dim, here, size)
            torch.maximum(at, values.narrow(dim, beside, size), out=at)
        values = largest
    return values


def _dilate(mask: Tensor) -> Tensor:
    """Dilate (B, H, W) bool by the disc x^2 + y^2 <= CLOSING_RADIUS^2; the outside is empty."""
    offset = torch.arange(-CLOSING_RADIUS, CLOSING_RADIUS + 1, device=mask.device)
    disc = (offset[:, None] ** 2 + offset**2 <= CLOSING_RADIUS**2).float()
    with torch.autocast(mask.device.type, enabled=False):
        return F.conv2d(mask[:, None].float(), disc[None, None], padding=CLOSING_RADIUS)[:, 0] > 0.5
