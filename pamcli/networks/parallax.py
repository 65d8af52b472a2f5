"""Parallax attention (Section 3): every pixel attends along its epipolar line in the other view.

Shapes: B batch, C channels, H rows, W columns of this view, V columns of the other view.
A map M of shape (B, H, W, V) tells, for pixel (i, j) of this view, how much pixel (i, k) of the other
view contributes to it; its rows sum to one. Disparity is positive: column j of the left view matches
column j - d of the right view. No function here holds weights, and none copies to the host.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Towards = Literal["left", "right"]  # the view that an ordered map's rows are pixels of

VALID_MASS = 0.1
"""Threshold tau of Equation 4: a pixel that receives less attention than this is taken as occluded."""

SMALLEST_INVALID_REGION = 20
SMALLEST_VALID_HOLE = 10
CLOSING_RADIUS = 3
"""The mask clean-up: regions of fewer pixels than these are flipped, then gaps up to the radius close."""

VISIBLE_THRESHOLD = 1.5
"""Pixels by which the disparities of both views may differ where a point is seen in both."""

IMPOSSIBLE = -1e4
"""Logarithm of the attention of columns that a pixel cannot match: attention is exactly 0."""

NEAR = 1.5  # attention counts as near an estimate within this many pixels of its scale

FILL_DECAY = 1 + 1e-4
"""The authors' partial convolution divides by this at every pixel that it steps away from a valid one."""


@dataclass(frozen=True)
class ParallaxMaps:
    """Attention between two views at one scale."""

    right_to_left: Tensor
    """M_right->left (B, H, W, V): rows are left pixels."""
    left_to_right: Tensor
    """M_left->right (B, H, V, W): rows are right pixels."""
    valid_left: Tensor
    """(B, H, W) bool: left pixels that the right view sees too (Equation 4), cleaned up, detached."""
    valid_right: Tensor
    """(B, H, V) bool."""


@dataclass(frozen=True)
class RowAttention:
    """Attention of one direction as cost less normaliser, log M = cost - normaliser: no second whole map."""

    cost: Tensor
    """(B, H, W, V), also of columns that cannot match."""
    normaliser: Tensor
    """(B, H, W): logarithm of the sum of exp(cost) over the columns that can match."""
    towards: Towards
    max_disparity: int | None = None

    @classmethod
    def from_cost(cls, cost: Tensor, towards: Towards, max_disparity: int | None = None) -> "RowAttention":
        """Compute the normaliser of a cost (B, H, W, V)."""
        j, k = (torch.arange(size, device=cost.device) for size in cost.shape[-2:])
        outside = out_of_order(j[:, None], k, towards, max_disparity)
        return cls(cost, cost.masked_fill(outside, -torch.inf).logsumexp(-1), towards, max_disparity)

    def log_at(self, columns: Tensor) -> Tensor:
        """Return log M at columns (B, H, W, n) of the other image; `IMPOSSIBLE` where they cannot match."""
        logs = self.cost.gather(-1, columns) - self.normaliser[..., None]
        own = torch.arange(self.cost.shape[-2], device=columns.device)
        return logs.masked_fill(
            out_of_order(own[:, None], columns, self.towards, self.max_disparity), IMPOSSIBLE
        )

    def log_map(self) -> Tensor:
        """Return log M (B, H, W, V); `IMPOSSIBLE` at columns that cannot match."""
        j, k = (torch.arange(size, device=self.cost.device) for size in self.cost.shape[-2:])
        outside = out_of_order(j[:, None], k, self.towards, self.max_disparity)
        return (self.cost - self.normaliser[..., None]).masked_fill(outside, IMPOSSIBLE)


def matching_cost(query: Tensor, key: Tensor) -> Tensor:
    """Similarity of every pixel with every pixel of its epipolar line (the product of Section 3.1).

    `query` (B, C, H, W) and `key` (B, C, H, V) give (B, H, W, V). Always computed in float32: the
    softmax that follows turns an absolute error of the cost into a relative error of the attention.
    """
    q = query.permute(0, 2, 3, 1)  # (B, H, W, C)
    k = key.permute(0, 2, 1, 3)  # (B, H, C, V)
    with torch.autocast(query.device.type, enabled=False):
        return torch.matmul(q.float(), k.float())


def attention(cost: Tensor, towards: Towards | None = None, max_disparity: int | None = None) -> Tensor:
    """Parallax-attention map: softmax of `cost` (B, H, W, V) over the epipolar line.

    `towards="left"` (rows are left pixels) keeps only k <= j, `towards="right"` only k >= j, so that
    disparities are never negative, as in the authors' code; None keeps the whole line, as in the paper.
    `max_disparity` (in pixels of this scale) keeps only disparities below it. What is not kept is exactly
    zero.
    """
    if towards is not None:
        j, k = (torch.arange(size, device=cost.device) for size in cost.shape[-2:])
        cost = cost.masked_fill(out_of_order(j[:, None], k, towards, max_disparity), -torch.inf)
    return cost.softmax(-1)


def out_of_order(j: Tensor, k: Tensor, towards: Towards, max_disparity: int | None) -> Tensor:
    """Return True where no pixel of column j can match column k of the other image; shapes broadcast."""
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
    """Both attention maps and both valid masks from the two matching costs (Figure 7c).

    `ordered` says that disparities are not negative (stereo matching; super-resolution looks at the
    whole line). `pad_closing`: see `clean_mask`.
    """
    right_to_left = attention(cost_right_to_left, "left" if ordered else None, max_disparity)
    left_to_right = attention(cost_left_to_right, "right" if ordered else None, max_disparity)
    return ParallaxMaps(
        right_to_left,
        left_to_right,
        valid_left=valid_mask(received_mass(left_to_right), pad_closing),
        valid_right=valid_mask(received_mass(right_to_left), pad_closing),
    )


def received_mass(attention_map: Tensor) -> Tensor:
    """Attention that each pixel of the OTHER view receives (Equation 4): (..., W, V) -> (..., V)."""
    return attention_map.detach().sum(-2)


def valid_mask(received: Tensor, pad_closing: bool = False) -> Tensor:
    """V of Equation 4, cleaned up: pixels that receive enough of the other view's attention, (B, H, W)."""
    return clean_mask(received > VALID_MASS, pad_closing)


def gather_features(attention_map: Tensor, features: Tensor) -> Tensor:
    """M (x) R of Equation 1, the geometry-aware product: (B, H, W, V) and (B, C, H, V) give (B, C, H, W)."""
    values = features.permute(0, 2, 3, 1)  # (B, H, V, C)
    return torch.matmul(attention_map.to(values.dtype), values).permute(0, 3, 1, 2)


def cycle_map(there: Tensor, back: Tensor) -> Tensor:
    """Cycle attention, M_left->right->left = M_right->left (x) M_left->right for instance (Equation 3).

    (B, H, W, V) and (B, H, V, W) give (B, H, W, W); the identity where both maps are right.
    """
    return torch.matmul(there, back)


def regress_disparity(right_to_left: Tensor) -> Tensor:
    """Expected disparity (Equation 8), in pixels of its scale: (B, H, W, V) -> (B, H, W)."""
    j, k = (
        torch.arange(size, device=right_to_left.device, dtype=right_to_left.dtype)
        for size in right_to_left.shape[-2:]
    )
    with torch.autocast(right_to_left.device.type, enabled=False):  # columns beyond 256 are no bf16 numbers
        return j - torch.matmul(right_to_left, k)


def fill_occlusions(disparity: Tensor, valid: Tensor) -> Tensor:
    """Replace invalid disparities by the nearest valid one to the left in the row, else to the right.

    Both (B, H, W). Same result as the authors' partial convolution, which walks pixel by pixel and fades
    the value by `FILL_DECAY` at each step; a row without any valid pixel keeps its values (theirs
    becomes 0).
    """
    width = disparity.shape[-1]
    column = torch.arange(width, device=disparity.device).expand(valid.shape)
    nth = valid.long().cumsum(-1)  # of the valid ones of the row, from 1 on
    where = torch.full((*valid.shape[:-1], width + 2), width, device=disparity.device)
    where = where.scatter(-1, torch.where(valid, nth, 0), column)
    # The last valid one, else the next; `width` where the row has none.
    source = where.gather(-1, torch.where(nth > 0, nth, 1))
    fading = FILL_DECAY ** -(column - source).abs().to(disparity.dtype)
    filled = disparity.gather(-1, source.clamp(max=width - 1)) * fading
    return torch.where(valid | (source == width), disparity, filled)


def find_consistent(left: Tensor, right: Tensor, threshold: float = VISIBLE_THRESHOLD) -> Tensor:
    """Left pixels whose match in the right view points back at them: (..., H, W) bool.

    `left`, `right` (..., H, W): disparities of both views in pixels, both positive. A match outside the right
    view is not consistent. The paper has no such check of disparities: its left-right consistency (Section
    3.2, Equation 1) holds between pictures, and is learned.
    """
    width = left.shape[-1]
    position = (torch.arange(width, device=left.device) - left).nan_to_num(nan=-1)
    low = position.floor().clamp(0, width - 1).long()
    high = (low + 1).clamp(max=width - 1)
    share = (position - low).clamp(0, 1)
    matched = torch.lerp(right.gather(-1, low), right.gather(-1, high), share)
    return ((matched - left).abs() <= threshold) & (position >= 0)


def columns_near(disparity: Tensor) -> tuple[Tensor, Tensor]:
    """Columns `NEAR` the match of a disparity (..., H, W): (..., H, W, 4), and which of them count."""
    width = disparity.shape[-1]
    target = (torch.arange(width, device=disparity.device) - disparity)[..., None]
    steps = torch.arange(int(2 * NEAR) + 1, device=disparity.device)
    k = (target - NEAR).ceil().long() + steps
    return k, (k >= 0) & (k < width) & ((k - target).abs() <= NEAR)


def cycle_confidence(disparity: Tensor, there: RowAttention, back: RowAttention) -> Tensor:
    """Return the cycle attention that passes near a disparity and returns near: (B, H, W) in [0, 1].

    The sum over k near j - d of M_right->left(j, k) times the sum over l near j of M_left->right(k, l) (of
    Equation 3). It is one where both maps are sure and agree with the result.

    Args:
        disparity: (B, 1, 4 H, 4 W), full-size pixels.
        there: M_right->left of stage 3.
        back: M_left->right of stage 3.
    """
    k, near_target = columns_near(F.avg_pool2d(disparity, 4)[:, 0] / 4)  # (B, H, W, 4)
    width = disparity.shape[-1] // 4
    k = k.clamp(0, width - 1)
    home = torch.arange(width, device=k.device)[:, None, None]
    near_home = home + torch.arange(-int(NEAR), int(NEAR) + 1, device=k.device)  # (W, 1, 3)
    column = near_home.clamp(0, width - 1)
    allowed = (near_home == column) & ~out_of_order(k[..., None], column, "right", back.max_disparity)
    places = k[..., None] * width + column  # (B, H, W, 4, 3)
    cost = back.cost.flatten(2).gather(-1, places.flatten(2)).view(places.shape)
    normaliser = back.normaliser.gather(-1, k.flatten(2)).view(k.shape)
    returns = (cost - normaliser[..., None]).masked_fill(~allowed, -torch.inf).exp().sum(-1)
    return (there.log_at(k).exp() * near_target * returns).sum(-1).clamp(0, 1)


def clean_mask(valid: Tensor, pad_closing: bool = False) -> Tensor:
    """Remove specks, fill holes and close gaps of the INVALID set of a mask (B, H, W) bool, image by image.

    Invalid regions of fewer than 20 pixels become valid, valid holes of fewer than 10 pixels become
    invalid (8-connected), then the invalid set is closed with a disc of radius 3. Outside the image counts
    as valid for the dilation and as invalid for the erosion; with `pad_closing` (super-resolution) the
    closing runs on the image with three valid rows and columns around it.
    """
    invalid = ~valid
    invalid &= ~_in_small_region(invalid, SMALLEST_INVALID_REGION)
    invalid |= _in_small_region(~invalid, SMALLEST_VALID_HOLE)
    margin = CLOSING_RADIUS if pad_closing else 0
    invalid = ~_dilate(~_dilate(F.pad(invalid, (margin,) * 4)))
    height, width = valid.shape[-2:]
    return ~invalid[:, margin : margin + height, margin : margin + width]


def _in_small_region(mask: Tensor, size: int) -> Tensor:
    """Pixels of `mask` (B, H, W) that lie in 8-connected regions of fewer than `size` pixels.

    A region that small is crossed in `size` - 2 steps, so after `size` - 1 rounds in which each pixel takes
    the largest label around it, it bears one label; a larger region either does too, and counts to
    `size`, or has neighbours of different labels. Fixed work, no loop over regions.
    """
    count, height, width = mask.shape
    exact = torch.float32 if height * width < 2**24 else torch.float64
    inside = mask.to(exact)
    label = inside * torch.arange(1, height * width + 1, device=mask.device, dtype=exact).view(height, width)
    for _ in range(size - 1):
        label = _largest_around(label) * inside
    infinite = torch.full_like(label, torch.inf)
    lowest = -_largest_around(-torch.where(mask, label, infinite))
    undecided = (_largest_around(label) != label) | (lowest != label)
    label = label.long().view(count, -1)
    weight = torch.where(undecided, size, 1).view(count, -1)
    total = torch.zeros(count, height * width + 1, dtype=torch.long, device=mask.device)
    total.scatter_add_(1, label, weight)
    return mask & (total.gather(1, label) < size).view_as(mask)


def _largest_around(values: Tensor) -> Tensor:
    """Largest of the 3 x 3 values around each, (B, H, W): of three columns, then of three rows."""
    if torch.compiler.is_compiling():  # one operation, slower here, where an exported graph would have many
        return F.max_pool2d(values, 3, 1, 1)
    for dim in (-1, -2):
        largest, size = values.clone(), values.shape[dim] - 1
        for here, beside in ((0, 1), (1, 0)):
            at = largest.narrow(dim, here, size)
            torch.maximum(at, values.narrow(dim, beside, size), out=at)
        values = largest
    return values


def _dilate(mask: Tensor) -> Tensor:
    """Dilation of (B, H, W) bool with the disc x^2 + y^2 <= CLOSING_RADIUS^2; outside the image is empty."""
    offset = torch.arange(-CLOSING_RADIUS, CLOSING_RADIUS + 1, device=mask.device)
    disc = (offset[:, None] ** 2 + offset**2 <= CLOSING_RADIUS**2).float()
    with torch.autocast(mask.device.type, enabled=False):
        return F.conv2d(mask[:, None].float(), disc[None, None], padding=CLOSING_RADIUS)[:, 0] > 0.5
