"""Match tiles of satellite images: floating-point grey with gaps, and disparities of either sign."""

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.inference.matcher import StereoMatcher

PERCENTILES = (0.5, 99.5)  # of the known pixels, mapped to black and white


def match_tile(
    matcher: StereoMatcher,
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    *,
    occluded: bool = False,
    min_confidence: float | None = None,
) -> NDArray[np.float32]:
    """Compute disparities (H, W), px, from the matcher's `min_disparity`; left (y, x) is right (y, x - d).

    `left`, `right`: (H, W) grey of any range, NaN = no data. The result is NaN where the left image or the
    match has no data, where the match is outside the right image or beyond the matcher's `max_disparity`,
    where the left pixel is occluded (unless `occluded`), and where the confidence is below `min_confidence`.
    Raises InputError: the sizes differ.
    """
    if left.shape != right.shape or left.ndim != 2:
        sizes = " and ".join("x".join(map(str, view.shape[::-1])) for view in (left, right))
        raise InputError(f"both tiles must have the same size, got {sizes}")
    known = np.isfinite(left), np.isfinite(right)
    if not (known[0].any() and known[1].any()):
        return np.full(left.shape, np.nan, np.float32)
    views = [np.repeat(stretch(fill_gaps(view))[..., None], 3, axis=2) for view in (left, right)]
    extras = ({"confidence"} if min_confidence is not None else set()) | (set() if occluded else {"visible"})
    result = matcher(*views, extras=extras)
    found = result.disparity_where(visible=not occluded, min_confidence=min_confidence)
    rows, columns = np.indices(found.shape)
    there = columns - np.nan_to_num(found)
    inside = (there >= 0) & (there <= left.shape[1] - 1)
    if matcher.max_disparity is not None:  # networks may search farther
        inside &= found <= matcher.max_disparity
    place = np.clip(np.rint(there), 0, left.shape[1] - 1).astype(np.intp)
    return np.where(known[0] & inside & known[1][rows, place], found, np.float32(np.nan)).astype(np.float32)


def fill_gaps(view: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill gaps with the nearest known pixel of the row, or of the nearest row with any."""
    known = np.isfinite(view)
    position = np.arange(view.shape[1])
    before = np.maximum.accumulate(np.where(known, position, -1), axis=1)
    after = np.minimum.accumulate(np.where(known, position, 2 * view.shape[1])[:, ::-1], axis=1)[:, ::-1]
    nearest = np.where((before >= 0) & (position - before <= after - position), before, after)
    complete = np.flatnonzero(known.any(axis=1))
    rows = complete[np.abs(np.arange(len(view))[:, None] - complete).argmin(axis=1)]
    result: NDArray[np.float32] = np.take_along_axis(view[rows], nearest[rows], axis=1)
    return result


def stretch(view: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = np.percentile(view, PERCENTILES)
    inside: NDArray[np.float32] = np.clip((view - np.float32(low)) / np.float32(max(high - low, 1e-9)), 0, 1)
    return inside
