"""Rectifying a pair of which no calibration is known, from what both pictures show.

Quasi-Euclidean (Fusiello and Irsara, ICPR 2008): both cameras are turned about their centres, and have one
unknown focal length, so that matching features lie in the same row. Turning keeps shapes, which general
homographies do not. Distances stay without scale.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from pamcli.calibration.camera import rotation_of
from pamcli.calibration.rectified import Floats, Pixels
from pamcli.calibration.rig import LARGEST_SIDE, MOST_EMPTY, Rectification
from pamcli.errors import InputError
from pamcli.imaging.images import to_uint8
from pamcli.imaging.matching import match_keypoints, to_grey

FEATURES = 4000
FEWEST_MATCHES = 20
RIVAL = 0.75  # share of the second best match's distance that the best one's must stay below
LARGEST_ERROR = 2.0  # median pixels by which features may lie above or below each other afterwards
ROUNDS = 100


def rectification_by_features(
    pairs: Iterable[tuple[Pixels, Pixels]], *, size: tuple[int, int] | None = None
) -> tuple[Rectification, int]:
    """Find what rectifies all pairs that two cameras took, and by how many matches of those that show enough.

    pairs: one at least, two pictures (H, W, 3) each, uint8 or uint16, all of one size. size: (width, height)
    of the rectified pictures, by default that of the pictures. The right ones are moved so that disparities
    begin just above 0. Raises InputError: too few matches, or cameras not side by side.
    """
    import cv2

    matched, refused = [], None
    for left, right in pairs:
        height, width = left.shape[:2]
        if max(width, height, *(size or ())) > LARGEST_SIDE:
            raise InputError(f"pictures of more than {LARGEST_SIDE} px a side cannot be rectified")
        try:
            matched.append(_matches(left, right))
        except InputError as too_few:
            refused = too_few
    if not matched:
        assert refused is not None
        raise refused
    size = size or (width, height)
    there = tuple(np.concatenate(side) for side in zip(*matched, strict=True))
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    scale = float(width + height)
    one, two = ((points - middle) / scale for points in there)
    turns, focal = _turned(one, two)
    sides = [_seen(points, turn, focal) for points, turn in zip((one, two), turns, strict=True)]
    error = float(np.median(np.abs(sides[0][:, 1] - sides[1][:, 1]))) * scale
    disparity = (sides[0][:, 0] - sides[1][:, 0]) * scale
    if not error <= LARGEST_ERROR:
        raise InputError(
            f"the pictures cannot be rectified without a calibration: matches stay {error:.1f} px off",
            "the cameras must stand beside each other; calibrate them",
        )
    # Both pictures move up or down together, and each along its rows, so that the middle stays in the middle.
    shift = [
        -np.median(side, axis=0) * scale + np.median(points - middle, axis=0)
        for side, points in zip(sides, there, strict=True)
    ]
    rows = (shift[0][1] + shift[1][1]) / 2
    nearest = np.percentile(disparity, 1) + shift[0][0]
    columns = shift[0][0], nearest - 0.01 * width
    zoom = min(size[0] / width, size[1] / height)
    to_camera = _scaled(1 / scale, -middle / scale)
    resized = _scaled(zoom, np.full(2, (zoom - 1) / 2))
    intrinsics = np.diag([focal, focal, 1])
    warps = []
    for turn, column in zip(turns, columns, strict=True):
        placed = _scaled(scale, middle + np.array([column, rows]))
        homography = resized @ placed @ intrinsics @ turn @ np.linalg.inv(intrinsics) @ to_camera
        warps.append(partial(cv2.warpPerspective, M=homography, dsize=size, flags=cv2.INTER_LINEAR))
    for warp in warps:
        seen = float(np.mean(warp(np.full((height, width), 255, np.uint8)) > 0))
        if seen < 1 - MOST_EMPTY:
            raise InputError(
                f"the rectified images would be {100 * (1 - seen):.0f} % empty: the cameras look in too "
                "different directions, or the matches are wrong",
                "calibrate the cameras: pam guide calibration",
            )
    return Rectification(warps[0], warps[1], None), len(one)


def _scaled(factor: float, move: Floats) -> Floats:
    """(3, 3): what multiplies a point by a factor, then moves it by (2,)."""
    return np.array([[factor, 0, move[0]], [0, factor, move[1]], [0, 0, 1]])


def _matches(left: Pixels, right: Pixels) -> tuple[Floats, Floats]:
    """(N, 2) each: x and y of features that the epipolar geometry of most of them agrees with."""
    import cv2

    first, second = (to_grey(np.ascontiguousarray(to_uint8(view))) for view in (left, right))
    one, two = match_keypoints(first, second, FEATURES, RIVAL)
    agree = np.zeros(len(one), bool)
    if len(one) >= FEWEST_MATCHES:
        try:
            _, mask = cv2.findFundamentalMat(one, two, cv2.USAC_MAGSAC, 1.0, 0.999, 10_000)
        except cv2.error:  # it now and then asserts that its last step, which failed, did not fail
            _, mask = cv2.findFundamentalMat(one, two, cv2.FM_RANSAC, 1.0, 0.999, 10_000)
        if mask is not None:
            agree = mask.ravel().astype(bool)
    if np.count_nonzero(agree) < FEWEST_MATCHES:
        raise InputError(
            f"only {np.count_nonzero(agree)} of {len(one)} matches between the pictures agree",
            "do they show one scene, with texture?",
        )
    return one[agree], two[agree]


def _turned(one: Floats, two: Floats) -> tuple[tuple[Floats, Floats], float]:
    """The rotations of both cameras, (3, 3), and their focal length in units of the points.

    Levenberg-Marquardt over five angles and the logarithm of the focal length: the left camera's turn about
    its own row changes nothing that could be seen.
    """

    def cameras(values: Floats) -> tuple[tuple[Floats, Floats], float]:
        left = rotation_of(np.array([0.0, values[0], values[1]]))
        return (left, rotation_of(values[2:5])), float(np.exp(np.clip(values[5], -3, 3)))

    def residuals(values: Floats) -> Floats:
        turns, focal = cameras(values)
        left, right = (_seen(points, turn, focal) for points, turn in zip((one, two), turns, strict=True))
        # The prior holds what few pictures tell: turns about the row's direction, and the focal length.
        prior = 1e-3 * np.concatenate([values[:5], values[5:] / 3])
        return np.concatenate([left[:, 1] - right[:, 1], prior])

    values, damping = np.zeros(6), 1e-3
    now = residuals(values)
    for _ in range(ROUNDS):
        steps = 1e-6 * np.eye(6)
        slope = np.stack([(residuals(values + step) - now) / 1e-6 for step in steps], axis=1)
        normal = slope.T @ slope
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slope.T @ now)
        then = residuals(values + change)
        if then @ then < now @ now:
            values, now, damping = values + change, then, damping / 10
            if np.abs(change).max() < 1e-9:
                break
        else:
            damping *= 10
            if damping > 1e9:
                break
    return cameras(values)


def _seen(points: Floats, turn: Floats, focal: float) -> Floats:
    """Where points (N, 2) about the middle lie after the camera has turned."""
    rays = np.concatenate([points / focal, np.ones((len(points), 1))], axis=1) @ turn.T
    return focal * rays[:, :2] / np.maximum(rays[:, 2:], 1e-3)
