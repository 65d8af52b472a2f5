"""Synthesize the right image of a pair from the left one and its disparities, with dense ground truth."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray

from pamcli.evaluation.pixels import carry_forward, fill_rows
from pamcli.networks.parallax import VISIBLE_THRESHOLD

Values = NDArray[np.float32]
Rgb = NDArray[np.uint8]
NEARER = 1.6  # maximum change of the baseline, as a factor
_FROM, _TO = 4, 2  # samples per pixel of the left and of the synthesized image
GAP = 4.0  # px by which a gap may be wider than the occlusion
_STEP = 1.0  # maximum disparity step within a surface, px


def synthesize_right_view(
    rng: Generator, left: Rgb, right: Rgb, disparity: Values
) -> tuple[Rgb, Values, Values, NDArray[np.bool_]]:
    """Synthesize a right image (H, W, 3) for a baseline changed by a factor up to `NEARER`.

    Returns it with the disparities of both images (H, W), px, and the left pixels visible in both. NaN marks
    left gaps that are too wide, and right pixels that are occluded in the left image.
    """
    factor = float(math.exp(rng.uniform(-1, 1) * math.log(NEARER)))
    disparity, learned = fill_gaps(disparity)
    disparity *= np.float32(factor)
    nearest = _project_to_right(disparity)
    holes = np.isnan(nearest)
    behind = fill_rows(nearest)
    width = left.shape[1]
    places = ((np.arange(_TO * width, dtype=np.float32) + 0.5) / _TO - 0.5)[None]
    seen = _sample(left, places + np.nan_to_num(nearest))
    hidden = _sample(right, places + np.nan_to_num(behind) * np.float32(1 - 1 / factor))
    fine = np.where(holes[..., None], hidden, seen)
    drawn = fine.reshape(len(left), width, _TO, 3).mean(2)
    of_right = np.fmax(nearest[:, ::_TO], nearest[:, 1::_TO])
    matches = np.arange(width) - disparity
    column = np.clip(np.floor((matches + 0.5) * _TO), 0, _TO * width - 1).astype(np.intp)
    in_front = np.nan_to_num(np.take_along_axis(nearest, column, 1)) <= disparity + VISIBLE_THRESHOLD
    visible = in_front & (matches >= 0) & (matches <= width - 1)
    taught = np.where(learned, disparity, np.float32(np.nan))
    return np.rint(drawn).clip(0, 255).astype(np.uint8), taught, of_right, visible


def _sample(view: Rgb, columns: NDArray[np.floating]) -> Values:
    """Sample colours (H, N, 3) of an image (H, W, 3) at columns (H, N), by cubic interpolation."""
    height, width = view.shape[:2]
    x = torch.from_numpy(np.broadcast_to(columns, (height, columns.shape[1])).astype(np.float32))
    y = torch.linspace(-1, 1, height)[:, None].expand_as(x) if height > 1 else torch.zeros_like(x)
    grid = torch.stack((x * (2 / max(width - 1, 1)) - 1, y), -1)
    pixels = torch.from_numpy(np.require(view, requirements=("C", "W"))).permute(2, 0, 1)[None].float()
    found = F.grid_sample(pixels, grid[None], "bicubic", "border", align_corners=True)
    return np.asarray(found[0].permute(1, 2, 0).numpy())


def fill_gaps(disparity: Values) -> tuple[Values, NDArray[np.bool_]]:
    """Fill unknown disparities (NaN) with the farther neighbour in the row.

    Also returns the pixels to learn from: known ones, and gaps not wider than the occlusion beside them.
    """
    unknown = np.isnan(disparity)
    before, after = carry_forward(disparity), carry_forward(disparity[:, ::-1])[:, ::-1]
    found = np.fmin(before, after)
    found = carry_forward(carry_forward(found.T)[:, ::-1])[:, ::-1].T  # rows without known pixels
    # Rows are filled separately: smooth their steps by the median of five.
    rows = F.pad(torch.from_numpy(np.ascontiguousarray(found))[None], (0, 0, 2, 2), mode="replicate")[0]
    smooth = rows.unfold(0, 5, 1).median(-1).values.numpy()
    columns = np.broadcast_to(np.arange(disparity.shape[1], dtype=np.float32), disparity.shape)
    places = np.where(unknown, np.float32(np.nan), columns)
    first, last = np.nan_to_num(carry_forward(places), nan=-1), carry_forward(places[:, ::-1])[:, ::-1]
    hidden = after - np.nan_to_num(before)  # disparity is 0 at the left border
    explained = unknown & (last - first - 1 <= hidden + GAP)
    return np.where(unknown, smooth, disparity).astype(np.float32), ~unknown | explained


def _project_to_right(disparity: Values) -> Values:
    """Return the disparity of each sample (H, 2 W) of the right image; NaN where occluded in the left one."""
    height, width = disparity.shape
    columns = ((np.arange(_FROM * width, dtype=np.float32) + 0.5) / _FROM - 0.5).clip(0, width - 1)
    before = np.minimum(columns.astype(np.intp), width - 2)
    share = (columns - before).astype(np.float32)
    here, there = disparity[:, before], disparity[:, before + 1]
    between = here + share * (there - here)
    found = np.where(abs(there - here) <= _STEP, between, np.where(share < 0.5, here, there))
    places = np.floor((columns - found + 0.5) * _TO).astype(np.intp)
    places[(places < 0) | (places >= _TO * width)] = _TO * width  # an extra column, cut off below
    nearest = torch.full((height, _TO * width + 1), -torch.inf)
    nearest = nearest.scatter_reduce(1, torch.from_numpy(places), torch.from_numpy(found), "amax")[:, :-1]
    return nearest.masked_fill(nearest.isneginf(), torch.nan).numpy()
