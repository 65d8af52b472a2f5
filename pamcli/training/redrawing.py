"""The right view of a pair, drawn anew from the left one and its disparities: a truth at every pixel.

Labels of real pairs end where the other view sees nothing, which is where matchers err. A view that is drawn
from them hides what it hides by known disparities, in the light and along the edges of a real picture. What
comes into sight behind things is taken from the pair's own right view, which shows just that.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray

from pamcli.networks.parallax import VISIBLE_THRESHOLD

Values = NDArray[np.float32]
Picture = NDArray[np.uint8]

NEARER = 1.6  # most by which the baseline is lengthened or shortened
_FROM, _TO = 4, 2  # samples a pixel of the left view, and of the drawn one
GAP = 4.0  # pixels by which a gap may be wider than what is hidden there
_STEP = 1.0  # pixels of disparity between neighbours that belong to one surface at most


def redrawn(
    rng: Generator, left: Picture, right: Picture, disparity: Values
) -> tuple[Picture, Values, Values, NDArray[np.bool_]]:
    """Another right view of a pair, by a baseline up to `NEARER` times as long or as short.

    left, right: (H, W, 3) RGB. disparity: (H, W) of the left view, pixels, NaN where unknown, not everywhere.
    Returns the right view, the disparities of both views, and the left pixels that it sees too (bool). NaN:
    in the left one what is too wide a gap to be known, in the right one what the left one does not see.
    """
    factor = float(math.exp(rng.uniform(-1, 1) * math.log(NEARER)))
    disparity, learned = filled(disparity)
    disparity *= np.float32(factor)
    nearest = _seen_from_right(disparity)
    holes = np.isnan(nearest)
    behind = np.fmin(_carried(nearest), _carried(nearest[:, ::-1])[:, ::-1])
    width = left.shape[1]
    places = ((np.arange(_TO * width, dtype=np.float32) + 0.5) / _TO - 0.5)[None]
    seen = _sampled(left, places + np.nan_to_num(nearest))
    hidden = _sampled(right, places + np.nan_to_num(behind) * np.float32(1 - 1 / factor))
    fine = np.where(holes[..., None], hidden, seen)
    drawn = fine.reshape(len(left), width, _TO, 3).mean(2)
    of_right = np.fmax(nearest[:, ::_TO], nearest[:, 1::_TO])
    matches = np.arange(width) - disparity
    column = np.clip(np.floor((matches + 0.5) * _TO), 0, _TO * width - 1).astype(np.intp)
    in_front = np.nan_to_num(np.take_along_axis(nearest, column, 1)) <= disparity + VISIBLE_THRESHOLD
    visible = in_front & (matches >= 0) & (matches <= width - 1)
    taught = np.where(learned, disparity, np.float32(np.nan))
    return np.rint(drawn).clip(0, 255).astype(np.uint8), taught, of_right, visible


def _sampled(view: Picture, columns: NDArray[np.floating]) -> Values:
    """Colours (H, N, 3) of a view (H, W, 3) at columns (H, N) of its rows, between pixels by a cubic."""
    height, width = view.shape[:2]
    x = torch.from_numpy(np.broadcast_to(columns, (height, columns.shape[1])).astype(np.float32))
    y = torch.linspace(-1, 1, height)[:, None].expand_as(x) if height > 1 else torch.zeros_like(x)
    grid = torch.stack((x * (2 / max(width - 1, 1)) - 1, y), -1)
    pixels = torch.from_numpy(np.ascontiguousarray(view)).permute(2, 0, 1)[None].float()
    found = F.grid_sample(pixels, grid[None], "bicubic", "border", align_corners=True)
    return np.asarray(found[0].permute(1, 2, 0).numpy())


def filled(disparity: Values) -> tuple[Values, NDArray[np.bool_]]:
    """Disparities with unknown pixels (NaN) given the farther one of those beside them in their row.

    Returned with the pixels (bool) that may be learned from: the known ones, and gaps before a nearer thing,
    or at the left border, that are no wider than what it hides.
    """
    unknown = np.isnan(disparity)
    before, after = _carried(disparity), _carried(disparity[:, ::-1])[:, ::-1]
    found = np.fmin(before, after)
    found = _carried(_carried(found.T)[:, ::-1])[:, ::-1].T  # rows without any
    # Rows are filled each by itself: their steps are evened out by the median of five.
    rows = F.pad(torch.from_numpy(np.ascontiguousarray(found))[None], (0, 0, 2, 2), mode="replicate")[0]
    smooth = rows.unfold(0, 5, 1).median(-1).values.numpy()
    columns = np.broadcast_to(np.arange(disparity.shape[1], dtype=np.float32), disparity.shape)
    places = np.where(unknown, np.float32(np.nan), columns)
    first, last = np.nan_to_num(_carried(places), nan=-1), _carried(places[:, ::-1])[:, ::-1]
    hidden = after - np.nan_to_num(before)  # the left border is where disparities would be 0
    explained = unknown & (last - first - 1 <= hidden + GAP)
    return np.where(unknown, smooth, disparity).astype(np.float32), ~unknown | explained


def _carried(values: Values) -> Values:
    """(H, W) with NaN replaced by the last value before it in the row; NaN where there is none."""
    places = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    np.maximum.accumulate(places, axis=1, out=places)
    return np.take_along_axis(values, places, 1)


def _seen_from_right(disparity: Values) -> Values:
    """Disparity of what each sample (H, 2 W) of the right view shows; NaN: nothing that the left one shows.

    Of all surfaces that fall on a sample the nearest is seen.
    """
    height, width = disparity.shape
    columns = ((np.arange(_FROM * width, dtype=np.float32) + 0.5) / _FROM - 0.5).clip(0, width - 1)
    before = np.minimum(columns.astype(np.intp), width - 2)
    share = (columns - before).astype(np.float32)
    here, there = disparity[:, before], disparity[:, before + 1]
    between = here + share * (there - here)
    found = np.where(abs(there - here) <= _STEP, between, np.where(share < 0.5, here, there))
    places = np.floor((columns - found + 0.5) * _TO).astype(np.intp)
    places[(places < 0) | (places >= _TO * width)] = _TO * width  # a column that is cut off
    nearest = torch.full((height, _TO * width + 1), -torch.inf).scatter_reduce(
        1, torch.from_numpy(places), torch.from_numpy(found), "amax"
    )
    return nearest[:, :-1].masked_fill(nearest[:, :-1].isneginf(), torch.nan).numpy()
