"""What the disparities of both views say about each other: who is seen by both, and how far they agree."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.networks.parallax import consistent
from pamcli.streaming.rolling import strips

ROWS_AT_ONCE = 64  # rows of which visibility is computed at a time


def agreement(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far the disparities (H, W) of both views agree, in [0, 1]: 1/2 where they are 1 px apart.

    Where they are d px apart it is 2^(-d^2); 0 where the match lies outside of the right view. For networks
    that do not say how sure they are.
    """
    width = left.shape[1]
    there = np.nan_to_num(np.arange(width, dtype=np.float32) - left, nan=-1)  # of networks by others
    inside = (there >= 0) & (there <= width - 1)
    place = np.clip(np.rint(there), 0, width - 1).astype(np.intp)
    apart = left - np.take_along_axis(right, place, axis=1)
    inside &= np.isfinite(apart)
    return np.where(inside, np.exp2(-np.square(np.minimum(np.abs(apart), 10))), 0).astype(np.float32)


def seen_by_both(
    left: NDArray[np.float32], right: NDArray[np.float32], valid: Tensor, above: int
) -> NDArray[np.bool_]:
    """(H, W): the disparities of both views are consistent, and the attention finds the pixel.

    `valid` (H/4, W/4) of the padded pair, which has `above` rows more at the top.
    """
    height, width = left.shape
    visible = np.empty((height, width), bool)
    column = torch.arange(width) // 4
    for first, last in strips(height, ROWS_AT_ONCE):
        rows = slice(first, last)
        attended = valid[torch.arange(first + above, last + above) // 4][:, column]
        visible[rows] = consistent(torch.from_numpy(left[rows]), torch.from_numpy(right[rows])) & attended
    return visible
