"""Parts of a picture that figures are given for: what both views see, objects, materials, ranges of truth.

A part is a mask of the counted pixels. Most come with the data. Edges and textureless parts are found here as
Scharstein and Szeliski's evaluation defines them (IJCV 2002, Section 5.1), where methods are compared.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample

Mask = NDArray[np.bool_]

REGIONS = {
    "all": "every pixel with truth (KITTI: occ)",
    "noc": "of them, those that both views see",
    "occluded": "of them, those that the right view does not see",
    "bg": "background (KITTI's object map)",
    "fg": "foreground (KITTI's object map)",
    "noc-bg": "background that both views see",
    "noc-fg": "foreground that both views see",
    "0-100": "truth below 100 px",
    "100-200": "truth from 100 to 200 px",
    ">200": "truth above 200 px",
    ">192": "truth above 192 px, the usual maximum of cost volumes",
    "low-detail": "outside of fine structures (Spring)",
    "high-detail": "fine structures, where the truth varies within a pixel (Spring)",
    "not-sky": "what is no sky (Spring)",
    "sky": "the sky (Spring)",
    "class-0": "materials that are easy to match (Booster's class 0)",
    "class-1": "Booster's class 1",
    "class-2": "Booster's class 2",
    "class-3": "transparent and mirroring materials, the hardest (Booster's class 3)",
    "edges": "at most 4 px from where the truth jumps by more than 2 px",
    "textureless": "squared horizontal differences of grey levels are below 4 in the mean of 3 x 3 pixels",
}

RANGES = ("0-100", "100-200", ">200", ">192")
"""Regions by the size of the truth."""

FOUND = ("edges", "textureless")
"""Regions that are found in truth and picture, not told by the data."""

_JUMP, _REACH = 2.0, 4  # px of disparity; pixels
_FLAT = 4.0  # squared grey levels of 8 bits


def region_masks(
    sample: Sample, truth: NDArray[np.float32], counted: Mask, edges: tuple[float, ...]
) -> dict[str, Mask]:
    """Mark the counted pixels of each region that the sample tells, and those of the ranges between edges.

    truth: (H, W) px, NaN = unknown; counted: (H, W). Returns (H, W) for each name of `REGIONS` and
    `range_regions(edges)`; "all" is first.
    """
    masks = {"all": counted}
    if sample.visible is not None:
        masks |= {"noc": counted & sample.visible, "occluded": counted & ~sample.visible}
    if sample.foreground is not None:
        masks |= {"bg": counted & ~sample.foreground, "fg": counted & sample.foreground}
    if sample.visible is not None and sample.foreground is not None:
        masks |= {"noc-bg": masks["bg"] & sample.visible, "noc-fg": masks["fg"] & sample.visible}
    masks |= {name: counted & mask for name, mask in (sample.masks or {}).items()}
    with np.errstate(invalid="ignore"):
        masks |= {
            "0-100": counted & (truth < 100),
            "100-200": counted & (truth >= 100) & (truth <= 200),
            ">200": counted & (truth > 200),
            ">192": counted & (truth > 192),
        }
        for (region, low), high in zip(range_regions(edges).items(), edges[1:], strict=True):
            masks[region] = counted & (truth >= low) & (truth < high)
    return masks


def range_regions(edges: tuple[float, ...]) -> dict[str, float]:
    """Name the regions of truth between one edge and the next, px, with their lower edges."""
    return {
        f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}": low
        for low, high in itertools.pairwise(edges)
    }


def found_regions(sample: Sample) -> dict[str, Mask]:
    """Find edges of the truth and textureless parts of the left view: (H, W) for each of `FOUND`.

    Edges: pixels of which a neighbour (left, right, above, below) has a truth that differs by more than 2 px,
    and what lies at most 4 px from them in row and column. Textureless: the squared difference of grey levels
    to the left neighbour, in 8 bits, is below 4 in the mean over 3 x 3 pixels.
    """
    assert sample.disparity is not None
    return {"edges": _edges(sample.disparity), "textureless": _textureless(sample.left)}


def _edges(truth: NDArray[np.float32]) -> Mask:
    jumps = np.zeros(truth.shape, np.bool_)
    with np.errstate(invalid="ignore"):
        across = np.abs(np.diff(truth, axis=1)) > _JUMP
        down = np.abs(np.diff(truth, axis=0)) > _JUMP
    jumps[:, 1:] |= across
    jumps[:, :-1] |= across
    jumps[1:] |= down
    jumps[:-1] |= down
    return _box(jumps.astype(np.float64), _REACH) > 0.5


def _textureless(left: NDArray[np.generic]) -> Mask:
    grey = left.mean(axis=2, dtype=np.float64) / (257 if left.dtype == np.uint16 else 1)
    squares = np.diff(grey, axis=1, prepend=grey[:, :1]) ** 2
    ones = np.ones_like(squares)
    flat: Mask = _box(squares, 1) < _FLAT * _box(ones, 1)
    return flat


def _box(values: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """Sum over the square of 2 * reach + 1 pixels around each; beyond the border is nothing."""
    for axis in (0, 1):
        width = [(0, 0), (0, 0)]
        width[axis] = (reach + 1, reach)
        sums = np.pad(values, width).cumsum(axis=axis)
        later = np.take(sums, np.arange(2 * reach + 1, sums.shape[axis]), axis=axis)
        values = later - np.take(sums, np.arange(values.shape[axis]), axis=axis)
    return values
