"""Disparities of a frame fused with those of the frame before, so that they do not flicker.

The disparities before are moved along by optical flow, of which noise is no part: where both frames are as
much alike unmoved, nothing moved. Then, pixel by pixel, what was there before stays or goes by what the
pictures say: whether the left one still looks the same, and whether the right one does at that disparity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.images import eight_bits

Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]

FLOW_PIXELS = 1_500_000
"""Pixels of the pictures whose flow is computed, at most; larger ones are reduced for it."""
SMALLEST = 16  # pixels of a side below which pictures have no flow
SMOOTH = 1.0  # standard deviation, pixels, over which pictures are averaged before they are compared
COMPARED, COMPARED_UNMOVED = 5, 11  # pixels of a side of the windows that are compared
AS_GOOD, GREY_LEVELS = 1.3, 0.3
"""How many times as large the difference without motion may be, and how much more, to be as good."""
MOVING, STRONGEST = 0.5, 80
"""The camera moves where more than this share of the pixels does whose edges are stronger than this
percentile; then nothing is taken for unmoved."""
STILL, MOVED = 0.3, 0.6
"""Pixels of motion up to which a place is still, and from which on it is not; between them it is partly."""
AROUND = 15  # pixels of a side of the window over which motion is averaged for that
MOST_NOISE = 4.0  # grey levels of the median difference of both frames that may be noise
CHANGED = 3.0  # times the noise, plus 2 grey levels: where frames differ more they show another thing
MOST_COST = 40.0  # grey levels of difference beyond which all are equally bad
COMMON, AGREEING, LEAST_SHARE = 31, 2.0, 0.2
"""Pixels of a side of the window over which the change of disparities is averaged, of those that change less
than so many pixels, and the share of them that it takes."""
TAKEN, TAKEN_STILL = 0.25, 0.05
"""Share of the new disparity, where it is near the old one, in what moves and in what is still."""
FOLLOWED = 0.5  # share of the common change that the old one follows, in what moves
FAR = 1.0  # pixels from which on both are not averaged: one of them is right, by the pictures
PATIENCE, PATIENCE_STILL = -0.1, 4.0
"""Difference of left and right that the old one may have more than the new one and stays, times the noise: in
what moves it has to be smaller, in what is still it may be much larger."""
EVEN = 0.5  # pixels by which disparities change within a pixel at an edge, across which none is averaged


@dataclass(frozen=True)
class Before:
    """The frame before, and what became of its disparities."""

    left: Pixels
    """(H, W, 3) RGB."""
    right: Pixels
    disparity: Floats
    """(H, W), pixels, NaN unknown."""


def steadied(disparity: Floats, left: Pixels, right: Pixels, before: Before) -> Floats:
    """Fuse the disparities of a frame, (H, W), pixels, all known, with those of the frame before.

    left, right: (H, W, 3) RGB of this frame. Returns (H, W), all known: what is new, what changed too fast
    and what does not agree with the pictures is as in `disparity`. A frame of another size changes nothing.
    """
    import cv2

    if before.left.shape != left.shape or before.disparity.shape != disparity.shape:
        return disparity
    views = [eight_bits(view) for view in (left, right, before.left, before.right)]
    smooth = [cv2.GaussianBlur(view.astype(np.float32), (0, 0), SMOOTH) for view in views]
    flow = _real_motion(_flow(views[0], views[2]), smooth[0], smooth[2])
    right_flow = _real_motion(_flow(views[1], views[3]), smooth[1], smooth[3])

    moved = _moved(before.disparity, flow)
    known = np.isfinite(moved)
    old = np.where(known, moved, disparity).astype(np.float32)
    there = _shifted(right_flow, old)
    motion = np.maximum(np.hypot(flow[..., 0], flow[..., 1]), np.hypot(there[..., 0], there[..., 1]))
    still = np.clip((MOVED - _mean(motion, AROUND)) / (MOVED - STILL), 0, 1)

    difference = _difference(smooth[0], _warped(smooth[2], flow), COMPARED)
    noise = min(float(np.median(difference)), MOST_NOISE)
    agrees = known & (difference < CHANGED * noise + 2)
    cost, old_cost = (_cost(smooth[0], smooth[1], each) for each in (disparity, old))
    change = disparity - old
    old += FOLLOWED * (1 - still) * _common_change(change, agrees & (np.abs(change) < AGREEING))
    near = old + (TAKEN + (TAKEN_STILL - TAKEN) * still) * (disparity - old)
    patience = PATIENCE + (PATIENCE_STILL - PATIENCE) * still
    stays = old_cost <= cost + patience * noise
    fused = np.where(np.abs(disparity - old) > FAR, np.where(stays, old, disparity), near)
    return np.where(agrees, fused, disparity).astype(np.float32)


def _flow(picture: NDArray[np.uint8], before: NDArray[np.uint8]) -> Floats:
    """(H, W, 2): by how much each pixel of a picture is elsewhere in the one before, pixels, x and y."""
    import cv2

    height, width = picture.shape[:2]
    shrunk = min(1.0, (FLOW_PIXELS / (height * width)) ** 0.5)
    size = max(1, round(shrunk * width)), max(1, round(shrunk * height))
    if min(size) < SMALLEST:
        return np.zeros((height, width, 2), np.float32)
    grey = (cv2.cvtColor(view, cv2.COLOR_RGB2GRAY) for view in (picture, before))
    one, other = (
        cv2.resize(view, size, interpolation=cv2.INTER_AREA) if shrunk < 1 else view for view in grey
    )
    flow: Floats = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM).calc(one, other, None)
    if shrunk < 1:
        flow = cv2.resize(flow, (width, height)) * np.array([width / size[0], height / size[1]], np.float32)
    return flow


def _real_motion(flow: Floats, picture: Floats, before: Floats) -> Floats:
    """The flow, 0 where both pictures are as much alike without it."""
    import cv2

    unmoved = _difference(picture, before, COMPARED_UNMOVED)
    moved = _difference(picture, _warped(before, flow), COMPARED_UNMOVED)
    still = unmoved < AS_GOOD * moved + GREY_LEVELS
    grey = picture.mean(axis=2)
    edges = np.hypot(cv2.Sobel(grey, -1, 1, 0), cv2.Sobel(grey, -1, 0, 1))
    if (~still)[edges > np.percentile(edges, STRONGEST)].mean() > MOVING:
        return flow
    return np.where(still[..., None], np.float32(0), flow)


def _moved(disparity: Floats, flow: Floats) -> Floats:
    """What was seen before where each pixel was then, NaN outside; averaged, but not across edges."""
    import cv2

    x, y = _places(flow)
    nearest, between = (
        cv2.remap(disparity, x, y, how, borderMode=cv2.BORDER_CONSTANT, borderValue=float("nan"))
        for how in (cv2.INTER_NEAREST, cv2.INTER_LINEAR)
    )
    return np.asarray(np.where(np.abs(between - nearest) < EVEN, between, nearest))


def _places(flow: Floats) -> tuple[Floats, Floats]:
    rows, columns = np.indices(flow.shape[:2], dtype=np.float32)
    return columns + flow[..., 0], rows + flow[..., 1]


def _warped(picture: Floats, flow: Floats) -> Floats:
    import cv2

    x, y = _places(flow)
    return cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)  # type: ignore[no-any-return]


def _shifted(right: Floats, disparity: Floats) -> Floats:
    """What is at each left pixel's place in the right view."""
    return _warped(right, np.stack([-disparity, np.zeros_like(disparity)], axis=2))


def _mean(values: Floats, side: int) -> Floats:
    import cv2

    return cv2.boxFilter(values, -1, (side, side))  # type: ignore[no-any-return]


def _difference(one: Floats, other: Floats, side: int) -> Floats:
    """Mean difference in windows, grey levels."""
    return _mean(np.abs(one - other).mean(axis=2), side)


def _cost(left: Floats, right: Floats, disparity: Floats) -> Floats:
    """How unlike both views are at these disparities, grey levels."""
    unlike = np.abs(left - _shifted(right, disparity)).mean(axis=2)
    return _mean(np.minimum(unlike, np.float32(MOST_COST)), COMPARED)


def _common_change(change: Floats, agreeing: NDArray[np.bool_]) -> Floats:
    """Mean change around each pixel of those that agree; 0 where they are few."""
    share = _mean(agreeing.astype(np.float32), COMMON)
    total = _mean(np.where(agreeing, change, np.float32(0)), COMMON)
    return np.where(share > LEAST_SHARE, total / np.maximum(share, LEAST_SHARE), np.float32(0))
