"""Fuse the disparities of a frame with those of the frame before, to reduce flicker.

Optical flow moves the old disparities along; it is ignored if both frames agree as well without it, as it is
then noise. The old disparity of a pixel is kept if the left image looks the same as before, and the right
image does at that disparity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.images import to_uint8

Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]

FLOW_PIXELS = 1_500_000  # largest area (px) for optical flow; larger images are downscaled
SMALLEST = 16  # px, images with a smaller side have no flow
SMOOTH = 1.0  # px, standard deviation of the smoothing before comparisons
COMPARED, COMPARED_UNMOVED = 5, 11  # px, side of the windows that are compared
AS_GOOD, GREY_LEVELS = 1.3, 0.3  # factor and grey levels within which no motion fits as well
MOVING, STRONGEST = 0.5, 80  # the camera moves if this share of the edges above this percentile moves
STILL, MOVED = 0.3, 0.6  # motion (px) up to which a pixel is still, and from which it moves
AROUND = 15  # px, side of the window for averaging that motion
MOST_NOISE = 4.0  # grey levels, largest median difference of both frames that may be noise
CHANGED = 3.0  # times the noise, plus 2 grey levels: larger differences show another object
MOST_COST = 40.0  # grey levels, differences beyond it are equally bad
COMMON = 31  # px, window for averaging the change of disparities
AGREEING, LEAST_SHARE = 2.0, 0.2  # largest change (px) that is averaged, smallest share of such pixels
TAKEN, TAKEN_STILL = 0.25, 0.05  # weight of the new disparity near the old one, moving and still
FOLLOWED = 0.5  # share of the common change that old disparities of moving pixels follow
MOST_AVERAGED = 1.0  # px, difference from which one of both is chosen instead of averaging
PATIENCE, PATIENCE_STILL = -0.1, 4.0  # surplus of the old cost (times the noise) at which it is kept
EVEN = 0.5  # px, disparity change within a pixel from which an edge is not interpolated


@dataclass(frozen=True)
class PreviousFrame:
    """The frame before, and its final disparities."""

    left: Pixels  # (H, W, 3) RGB
    right: Pixels
    disparity: Floats  # (H, W), px, NaN = unknown


def fuse_frames(disparity: Floats, left: Pixels, right: Pixels, previous: PreviousFrame) -> Floats:
    """Fuse the disparities (H, W), px, all known, of a frame (H, W, 3) with those of the frame before.

    New, fast changing or inconsistent pixels keep their value, as do all pixels if the size changed.
    """
    import cv2

    if previous.left.shape != left.shape or previous.disparity.shape != disparity.shape:
        return disparity
    views = [to_uint8(view) for view in (left, right, previous.left, previous.right)]
    smooth = [cv2.GaussianBlur(view.astype(np.float32), (0, 0), SMOOTH) for view in views]
    flow = _suppress_noise(_estimate_flow(views[0], views[2]), smooth[0], smooth[2])
    right_flow = _suppress_noise(_estimate_flow(views[1], views[3]), smooth[1], smooth[3])

    beyond = {"borderMode": cv2.BORDER_CONSTANT, "borderValue": float("nan")}
    nearest = _warp(previous.disparity, flow, interpolation=cv2.INTER_NEAREST, **beyond)
    between = _warp(previous.disparity, flow, **beyond)
    moved = np.where(np.abs(between - nearest) < EVEN, between, nearest)  # not interpolated across edges
    known = np.isfinite(moved)
    old = np.where(known, moved, disparity).astype(np.float32)
    there = _warp(right_flow, _move_left(old))
    motion = np.maximum(np.hypot(flow[..., 0], flow[..., 1]), np.hypot(there[..., 0], there[..., 1]))
    still = np.clip((MOVED - _average(motion, AROUND)) / (MOVED - STILL), 0, 1)

    difference = _compare(smooth[0], _warp(smooth[2], flow), COMPARED)
    noise = min(float(np.median(difference)), MOST_NOISE)
    agrees = known & (difference < CHANGED * noise + 2)
    costs = []
    for each in (disparity, old):
        unlike = np.abs(smooth[0] - _warp(smooth[1], _move_left(each))).mean(axis=2)
        costs.append(_average(np.minimum(unlike, np.float32(MOST_COST)), COMPARED))
    change = disparity - old
    agreeing = agrees & (np.abs(change) < AGREEING)
    share = _average(agreeing.astype(np.float32), COMMON)
    total = _average(np.where(agreeing, change, np.float32(0)), COMMON)
    common = np.where(share > LEAST_SHARE, total / np.maximum(share, LEAST_SHARE), np.float32(0))
    old += FOLLOWED * (1 - still) * common
    near = old + (TAKEN + (TAKEN_STILL - TAKEN) * still) * (disparity - old)
    patience = PATIENCE + (PATIENCE_STILL - PATIENCE) * still
    stays = costs[1] <= costs[0] + patience * noise
    fused = np.where(np.abs(disparity - old) > MOST_AVERAGED, np.where(stays, old, disparity), near)
    return np.where(agrees, fused, disparity).astype(np.float32)


def _estimate_flow(image: NDArray[np.uint8], previous: NDArray[np.uint8]) -> Floats:
    """Return the flow (H, W, 2), px in x and y, from an image to the one before."""
    import cv2

    height, width = image.shape[:2]
    shrunk = min(1.0, (FLOW_PIXELS / (height * width)) ** 0.5)
    size = max(1, round(shrunk * width)), max(1, round(shrunk * height))
    if min(size) < SMALLEST:
        return np.zeros((height, width, 2), np.float32)
    one, other = (cv2.cvtColor(view, cv2.COLOR_RGB2GRAY) for view in (image, previous))
    if shrunk < 1:
        one, other = (cv2.resize(view, size, interpolation=cv2.INTER_AREA) for view in (one, other))
    flow: Floats = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM).calc(one, other, None)
    if shrunk < 1:
        flow = cv2.resize(flow, (width, height)) * np.array([width / size[0], height / size[1]], np.float32)
    return flow


def _suppress_noise(flow: Floats, image: Floats, previous: Floats) -> Floats:
    """Return the flow, with 0 where both images agree as well without it."""
    import cv2

    unmoved = _compare(image, previous, COMPARED_UNMOVED)
    moved = _compare(image, _warp(previous, flow), COMPARED_UNMOVED)
    still = unmoved < AS_GOOD * moved + GREY_LEVELS
    grey = image.mean(axis=2)
    edges = np.hypot(cv2.Sobel(grey, -1, 1, 0), cv2.Sobel(grey, -1, 0, 1))
    if (~still)[edges > np.percentile(edges, STRONGEST)].mean() > MOVING:
        return flow
    return np.where(still[..., None], np.float32(0), flow)


def _warp(image: Floats, flow: Floats, **how: Any) -> Floats:
    import cv2

    rows, columns = np.indices(flow.shape[:2], dtype=np.float32)
    how = {"interpolation": cv2.INTER_LINEAR, "borderMode": cv2.BORDER_REPLICATE} | how
    return np.asarray(cv2.remap(image, columns + flow[..., 0], rows + flow[..., 1], **how))


def _move_left(disparity: Floats) -> Floats:
    """Return the flow from left pixels to their matches in the right image."""
    return np.stack([-disparity, np.zeros_like(disparity)], axis=2)


def _average(values: Floats, side: int) -> Floats:
    import cv2

    return cv2.boxFilter(values, -1, (side, side))  # type: ignore[no-any-return]


def _compare(one: Floats, other: Floats, side: int) -> Floats:
    """Return the mean difference in windows, grey levels."""
    return _average(np.abs(one - other).mean(axis=2), side)
