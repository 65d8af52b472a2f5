"""From a stereogram to a rectified pair, step by step."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.stereograms.alignment import Aligned, align, factor_for, grey_of, reduced
from pamcli.data.stereograms.geometry import Alignment, Floats, resampled, turned
from pamcli.data.stereograms.matching import DenseMatch, match_densely
from pamcli.data.stereograms.order import OrderEvidence, weigh_order
from pamcli.data.stereograms.result import Layout, RectifiedPair, Rule, SetAside
from pamcli.data.stereograms.shift import choose_rule, disparity_range, shift_for, trusted_disparities
from pamcli.data.stereograms.views import SMALLEST_SIDE, Box, find_views, margins_of

MULTIPLE = 12
"""Both sides of a pair are multiples of it (section 5.4.1 of the paper)."""
SURE = 0.8
"""A pair whose order is less certain is set aside."""
MOST_OFFSET = 0.08
"""Largest vertical offset, as a share of the height."""
MOST_ROTATION = 3.0
"""Degrees by which either view may be turned."""
MOST_RESIDUAL = 1.0
"""Pixels that rows may typically differ by after the fit."""
_STRAIGHT = 0.25
"""Pixels; a rotation that moves no pixel by more is left alone, for resampling blurs."""
_AREA, _WIDTH = 260_000, 640
"""Pixels of the views, and their width, at which disparities are found."""
_SPARE = 0.03
"""Share of the width by which disparities may exceed the range found at the coarse size."""
_FEWEST_SEEN = 0.4
"""Share of the pixels that must be found in both views."""


def rectify_stereogram(
    picture: NDArray[np.generic],
    layout: Literal["auto", "cross", "parallel"] = "auto",
    rule: Literal["auto", "infinity", "close"] = "auto",
) -> RectifiedPair | SetAside:
    """Split a stereogram, put its views in order and row by row, and shift and crop them (section 5.4.1).

    picture: (H, W, 3) uint8 or uint16, the views side by side. layout: "cross" where the view on the left is
    the right eye's, "parallel" where it is the left eye's, "auto" to find out. rule: what the shift is chosen
    for (`RectifiedPair.rule`), "auto" to find out. The same picture gives the same pair.
    Raises ValueError: an array of another kind.
    """
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"(H, W, 3) of 8 or 16 bits is needed, not {picture.shape} of {picture.dtype}")
    boxes = find_views(picture)
    if isinstance(boxes, SetAside):
        return boxes
    views = [np.ascontiguousarray(box.of(picture)) for box in boxes]
    aligned = align(*(grey_of(view) for view in views))
    if isinstance(aligned, SetAside):
        return aligned
    fit = aligned.fit
    size = views[0].shape[:2]
    unusable = _too_skew(fit, size)
    if unusable:
        return unusable
    maps = _maps(fit, size)
    straight = [resampled(view, places, size) for view, places in zip(views, maps, strict=True)]
    factor = factor_for(size, _AREA, _WIDTH)
    small = [_reduced_colours(view, factor) for view in straight]
    match, greys = _match(straight, aligned, factor)
    if match.first_seen.mean() < _FEWEST_SEEN:
        return SetAside(f"its halves do not show the same: {match.first_seen.mean():.0%} of them match")

    evidence = weigh_order(small[0], small[1], match)
    if layout == "auto" and evidence.certainty < SURE:
        return SetAside(f"the order of its views is unsure: {_guess(evidence)} with {evidence.certainty:.0%}")
    first_is_left = evidence.first_is_left if layout == "auto" else layout == "parallel"
    found: Layout = "parallel" if first_is_left else "cross"
    disparity, seen = (match.first, match.first_seen) if first_is_left else (match.second, match.second_seen)
    left, right = (0, 1) if first_is_left else (1, 0)
    sign = 1 if first_is_left else -1
    trusted = factor * trusted_disparities(sign * disparity, seen, greys[left])
    extremes = disparity_range(trusted)
    if extremes is None:
        return SetAside("too little of it has texture to find its smallest disparity")
    low, high = extremes
    chosen: Rule = choose_rule(small[left], trusted, low, high) if rule == "auto" else rule
    shift = shift_for(chosen, low)
    windows = _windows([maps[left], maps[right]], size, shift)
    if isinstance(windows, SetAside):
        return windows
    return RectifiedPair(
        left=windows[0].of(straight[left]).copy(),
        right=windows[1].of(straight[right]).copy(),
        layout=found,
        certainty=evidence.certainty if layout == "auto" else 1.0,
        vertical_offset=sign * float(fit.dy(0, 0, sign * float(np.median(trusted)))),
        rotation=sign * float(np.rad2deg(fit.rotation)),
        shift=shift,
        rule=chosen,
        smallest_disparity=low + shift,
        largest_disparity=high + shift,
        margins=margins_of(boxes, picture.shape[1], picture.shape[0]),
        left_map=_from_pair(windows[0], maps[left], boxes[left]),
        right_map=_from_pair(windows[1], maps[right], boxes[right]),
    )


def _guess(evidence: OrderEvidence) -> str:
    return f"{'parallel' if evidence.first_is_left else 'cross-eye'} is likelier"


def _too_skew(fit: Alignment, size: tuple[int, int]) -> SetAside | None:
    if abs(fit.offset) > MOST_OFFSET * size[0]:
        apart = f"{abs(fit.offset):.0f} of {size[0]} rows apart"
        return SetAside(f"its views are {apart}, more than {MOST_OFFSET:.0%}")
    angles = np.rad2deg([fit.second_rotation - fit.rotation, fit.second_rotation])
    angle = np.abs(angles).max()
    if angle > MOST_ROTATION:
        return SetAside(f"one of its views is turned by {angle:.1f} degrees, more than {MOST_ROTATION:g}")
    if fit.residual > MOST_RESIDUAL:
        return SetAside(
            f"its rows do not fit: matches are {fit.residual:.1f} px off after turning and moving the views"
        )
    return None


def _maps(fit: Alignment, size: tuple[int, int]) -> list[Floats]:
    """For each view, where the pixels of the straightened one lie in it."""
    reach = max(size) / 2
    angles = [
        angle if abs(angle) * reach > _STRAIGHT else 0.0
        for angle in (fit.second_rotation - fit.rotation, fit.second_rotation)
    ]
    zoom = fit.zoom if abs(fit.zoom) * size[0] / 2 > _STRAIGHT else 0.0
    offset = fit.offset
    if not any(angles) and not zoom and abs(offset - round(offset)) <= _STRAIGHT:
        offset = round(offset)
    return [turned(size, angles[0]), turned(size, angles[1], zoom, offset)]


def _reduced_colours(view: NDArray[np.generic], factor: int) -> NDArray[np.uint8]:
    """(H // factor, W // factor, 3)."""
    levels = (view >> 8).astype(np.uint8) if view.dtype == np.uint16 else view  # type: ignore[operator]
    height, width = (side // factor * factor for side in levels.shape[:2])
    return np.asarray(Image.fromarray(np.ascontiguousarray(levels[:height, :width])).reduce(factor))


def _match(
    straight: list[NDArray[np.generic]], aligned: Aligned, factor: int
) -> tuple[DenseMatch, list[NDArray[np.float32]]]:
    greys = [reduced(grey_of(view), factor) for view in straight]
    width = greys[0].shape[1]
    spare = _SPARE * width + 2
    low, high = int(aligned.lowest / factor - spare), int(aligned.highest / factor + spare)
    return match_densely(greys[0], greys[1], max(low, 1 - width), min(high, width - 1)), greys


def _windows(maps: list[Floats], size: tuple[int, int], shift: int) -> tuple[Box, Box] | SetAside:
    """What is kept of the straightened left and right view: no pixel without content, multiples of 12."""
    boxes = [_inside(places, size) for places in maps]
    top, bottom = max(box.top for box in boxes), min(box.bottom for box in boxes)
    start = max(boxes[0].left, boxes[1].left - shift)
    end = min(boxes[0].right, boxes[1].right - shift)
    height, width = (side // MULTIPLE * MULTIPLE for side in (bottom - top, end - start))
    if min(height, width) < SMALLEST_SIDE // MULTIPLE * MULTIPLE:
        area = f"{max(width, 0)} x {max(height, 0)} pixels"
        return SetAside(f"only {area} of its views are left after the shift by {shift}")
    # The middle is kept: what is cut for the multiple of 12 is cut on both sides.
    top += (bottom - top - height) // 2
    start += (end - start - width) // 2
    return (
        Box(top, top + height, start, start + width),
        Box(top, top + height, start + shift, start + shift + width),
    )


def _inside(places: Floats, size: tuple[int, int]) -> Box:
    """The largest box about the middle of a straightened view whose corners lie in the view itself."""
    height, width = size
    top = left = 0
    bottom, right = height, width
    for _ in range(4):  # what is cut at one side moves the corners of the others
        corners = np.array([[x, y, 1] for y in (top, bottom - 1) for x in (left, right - 1)]).T
        (x0, x1, x2, x3), (y0, y1, y2, y3) = places @ corners
        left += max(0, int(np.ceil(-min(x0, x2) - 1e-9)))
        right -= max(0, int(np.ceil(max(x1, x3) - (width - 1) - 1e-9)))
        top += max(0, int(np.ceil(-min(y0, y1) - 1e-9)))
        bottom -= max(0, int(np.ceil(max(y2, y3) - (height - 1) - 1e-9)))
    return Box(top, bottom, left, right)


def _from_pair(window: Box, places: Floats, box: Box) -> Floats:
    """From the finished view to the stereogram: the window, the turn, the box of the view."""
    turn = places[:, :2]
    move = turn @ [window.left, window.top] + places[:, 2] + [box.left, box.top]
    return np.concatenate([turn, move[:, None]], axis=1)
