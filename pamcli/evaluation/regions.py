"""Compute the image regions that metrics are reported for: visibility, objects, materials, disparity ranges.

A region is a mask of the counted pixels. Most come with the data. Edges and textureless regions are computed
as in Scharstein and Szeliski's evaluation (IJCV 2002, Section 5.1), when methods are compared.
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
"""Regions by size of the ground truth."""

FOUND = ("edges", "textureless")
"""Regions computed from ground truth and image, not given by the data."""

_JUMP, _REACH = 2.0, 4  # px of disparity; px of the image
_FLAT = 4.0  # squared 8-bit grey levels


def region_masks(
    sample: Sample, truth: NDArray[np.float32], counted: Mask, edges: tuple[float, ...]
) -> dict[str, Mask]:
    """Return the counted pixels of each region of the sample and of the ranges between edges.

    `truth`: (H, W), px, NaN = unknown. `counted`: (H, W). Returns (H, W) by name of `REGIONS` and
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
    """Return the names of the ground-truth ranges between edges, px, with their lower edges."""
    return {
        f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}": low
        for low, high in itertools.pairwise(edges)
    }


def found_regions(sample: Sample) -> dict[str, Mask]:
    """Return masks (H, W) of ground-truth edges and textureless parts of the left image, by `FOUND`.

    Edges: pixels whose ground truth differs from a 4-neighbour's by more than 2 px, and all pixels within 4
    px of them. Textureless: the squared grey-level difference to the left neighbour, averaged over 3 x 3
    pixels, is below 4 (8 bits).
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
    """Sum over the square of 2 * reach + 1 pixels around each pixel, with zeros beyond the border."""
    for axis in (0, 1):
        width = [(0, 0), (0, 0)]
        width[axis] = (reach + 1, reach)
        sums = np.pad(values, width).cumsum(axis=axis)
        later = np.take(sums, np.arange(2 * reach + 1, sums.shape[axis]), axis=axis)
        values = later - np.take(sums, np.arange(values.shape[axis]), axis=axis)
    return values
