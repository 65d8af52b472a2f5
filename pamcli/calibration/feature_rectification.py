"""Rectification of a pair without a calibration, from features in both images.

Quasi-Euclidean (Fusiello and Irsara, ICPR 2008): both cameras rotate about their centres, with one unknown
focal length, until matching features lie in the same row. Rotations preserve shapes, unlike general
homographies. Then both are cropped to the largest window that both photos fill, because matching would
invent disparities outside of them. Distances have no scale.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from pamcli.calibration.camera import make_rotation
from pamcli.calibration.geometry import Floats, Pixels, Size
from pamcli.calibration.rig import LARGEST_SIDE, MOST_EMPTY, Rectification
from pamcli.errors import InputError
from pamcli.imaging.images import to_grey
from pamcli.imaging.preflight import match_keypoints

FEATURES = 4000
FEWEST_MATCHES = 20
RIVAL = 0.75  # largest distance relative to the second-best match
LARGEST_ERROR = 2.0  # px, median distance of the rows of matches after rectification
ROUNDS = 100
WINDOW_ROWS = 200  # among which the window's first and last row are searched
MOST_TURNED, MOST_CUT = 5.0, 0.1  # degrees, and share of a photo, above which a warning says so


def estimate_rectification(
    pairs: Iterable[tuple[Pixels, Pixels]], *, size: Size | None = None
) -> tuple[Rectification, int]:
    """Rectify the pairs (H, W, 3) of two cameras; return also the number of matches.

    size: of the result, px; None: that of the window. Raises InputError.
    """
    import cv2

    matched, failures = [], []
    for left, right in pairs:
        height, width = left.shape[:2]
        if max(width, height, *(size or ())) > LARGEST_SIDE:
            raise InputError(f"cannot rectify images with a side above {LARGEST_SIDE} px")
        try:
            matched.append(_match(left, right))
        except InputError as too_few:
            failures.append(too_few)
    if not matched:
        raise failures[-1]
    photo, keeps_size, size = (width, height), size is not None, size or (width, height)
    there = tuple(np.concatenate(side) for side in zip(*matched, strict=True))
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    scale = float(width + height)
    one, two = ((points - middle) / scale for points in there)
    turns, focal = _fit_rotations(one, two)
    sides = [_rotate(points, turn, focal) for points, turn in zip((one, two), turns, strict=True)]
    error = float(np.median(np.abs(sides[0][:, 1] - sides[1][:, 1]))) * scale
    disparity = (sides[0][:, 0] - sides[1][:, 0]) * scale
    if not error <= LARGEST_ERROR:
        message = f"matches remain {error:.1f} px off their rows"
        hint = "check that the cameras are beside each other, or calibrate them: pam calibration make"
        raise InputError(f"cannot rectify the images without a calibration: {message}", hint)
    # Keep the centre in place: both images move together vertically, each one horizontally.
    shift = [
        -np.median(side, axis=0) * scale + np.median(points - middle, axis=0)
        for side, points in zip(sides, there, strict=True)
    ]
    rows = (shift[0][1] + shift[1][1]) / 2
    nearest = np.percentile(disparity, 1) + shift[0][0]
    columns = shift[0][0], nearest - 0.01 * width
    zoom = min(size[0] / width, size[1] / height)
    to_camera = _scale_and_move(1 / scale, -middle / scale)
    resize = _scale_and_move(zoom, np.full(2, (zoom - 1) / 2))
    intrinsics = np.diag([focal, focal, 1])
    homographies, valid = [], np.ones((size[1], size[0]), bool)
    for turn, column in zip(turns, columns, strict=True):
        place = _scale_and_move(scale, middle + np.array([column, rows]))
        homography = resize @ place @ intrinsics @ turn @ np.linalg.inv(intrinsics) @ to_camera
        homographies.append(homography)
        levels = cv2.warpPerspective(np.full((height, width), 255, np.uint8), homography, size)
        valid &= levels == 255  # convex
        seen = float(np.mean(levels > 0))
        if seen < 1 - MOST_EMPTY:
            why = "the cameras look in too different directions, or the matches are wrong"
            message = f"the rectified images would be {100 * (1 - seen):.0f} % empty: {why}"
            raise InputError(message, "calibrate the cameras: pam guide calibration")
    x, y, width, height = _find_window(valid)
    crop, made = _scale_and_move(1, -np.array([x, y])), (width, height)
    if keeps_size:
        zoom = max(size[0] / width, size[1] / height)
        spare = (np.array([width, height]) - np.array(size) / zoom) / 2
        crop, made = _scale_and_move(zoom, zoom * (0.5 - np.array([x, y]) - spare) - 0.5), size
    warps, warnings = [], list[str]()
    for side, homography in zip(("left", "right"), homographies, strict=True):
        place = crop @ homography
        warps.append(partial(cv2.warpPerspective, M=place, dsize=made, flags=cv2.INTER_LINEAR))
        warnings += _describe_losses(side, place, photo, made)
    return Rectification(warps[0], warps[1], None, warnings=warnings), len(one)


def _find_window(valid: Pixels) -> tuple[int, int, int, int]:
    """Return the largest window (x, y, width, height) in a convex region of valid pixels (H, W)."""
    height, width = valid.shape
    rows = np.unique(np.linspace(0, height - 1, WINDOW_ROWS).astype(int))
    some = valid[rows].any(axis=1)
    first = np.where(some, valid[rows].argmax(axis=1), width)
    last = np.where(some, width - 1 - valid[rows, ::-1].argmax(axis=1), -1)
    across = np.minimum.outer(last, last) - np.maximum.outer(first, first) + 1
    down = np.subtract.outer(-rows, -rows) + 1
    top, bottom = np.unravel_index(np.argmax(np.maximum(across, 0) * np.maximum(down, 0)), down.shape)
    x = max(first[top], first[bottom])
    return int(x), int(rows[top]), max(1, int(across[top, bottom])), int(down[top, bottom])


def _describe_losses(side: str, homography: Floats, photo: Size, size: Size) -> Iterator[str]:
    """Yield warnings if a photo is turned or cut off by a homography to an image of a size."""
    places = np.stack(np.meshgrid(*(np.linspace(0, each - 1, 50) for each in photo)), axis=-1)
    middle = (np.array(photo) - 1) / 2 + np.array([[-1.0, 0], [1, 0]])
    found = []
    for points in (places.reshape(-1, 2), middle):
        mapped = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ homography.T
        found.append(mapped[:, :2] / mapped[:, 2:])
    across, down = found[1][1] - found[1][0]
    turned = abs(float(np.degrees(np.arctan2(down, across))))
    cut = 1 - float(np.mean(np.all((found[0] > -1) & (found[0] < np.array(size)), axis=1)))
    if turned > MOST_TURNED:
        yield f"the {side} image is turned by {turned:.0f} degrees: hold both cameras level"
    if cut > MOST_CUT:
        yield (
            f"{100 * cut:.0f} % of the {side} image is cut off: let both cameras look in the same direction, "
            "or calibrate them (pam guide calibration)"
        )


def _scale_and_move(factor: float, move: Floats) -> Floats:
    return np.array([[factor, 0, move[0]], [0, factor, move[1]], [0, 0, 1]])


def _match(left: Pixels, right: Pixels) -> tuple[Floats, Floats]:
    """Return positions (N, 2) of matching features that agree with one epipolar geometry."""
    import cv2

    first, second = to_grey(left), to_grey(right)
    one, two = match_keypoints(first, second, FEATURES, RIVAL)
    agree = np.zeros(len(one), bool)
    if len(one) >= FEWEST_MATCHES:
        try:
            _, mask = cv2.findFundamentalMat(one, two, cv2.USAC_MAGSAC, 1.0, 0.999, 10_000)
        except cv2.error:  # MAGSAC fails an internal assertion now and then
            _, mask = cv2.findFundamentalMat(one, two, cv2.FM_RANSAC, 1.0, 0.999, 10_000)
        if mask is not None:
            agree = mask.ravel().astype(bool)
    if (count := np.count_nonzero(agree)) < FEWEST_MATCHES:
        message = f"only {count} of {len(one)} matches between the images agree"
        hint = "check that both images show the same scene, with texture"
        raise InputError(f"{message}, at least {FEWEST_MATCHES} are required", hint)
    return one[agree], two[agree]


def _fit_rotations(one: Floats, two: Floats) -> tuple[tuple[Floats, Floats], float]:
    """Return the rotations (3, 3) of both cameras, and their focal length in units of the points.

    Levenberg-Marquardt over five angles and the logarithm of the focal length. The left camera's rotation
    about its row direction is fixed, because it has no visible effect.
    """

    def unpack(values: Floats) -> tuple[tuple[Floats, Floats], float]:
        left = make_rotation(np.array([0.0, values[0], values[1]]))
        return (left, make_rotation(values[2:5])), float(np.exp(np.clip(values[5], -3, 3)))

    def compute_residuals(values: Floats) -> Floats:
        turns, focal = unpack(values)
        left, right = (_rotate(points, turn, focal) for points, turn in zip((one, two), turns, strict=True))
        # The prior fixes what images tell hardly: rotations about the row direction, and the focal length.
        prior = 1e-3 * np.concatenate([values[:5], values[5:] / 3])
        return np.concatenate([left[:, 1] - right[:, 1], prior])

    values, damping = np.zeros(6), 1e-3
    now = compute_residuals(values)
    for _ in range(ROUNDS):
        steps = 1e-6 * np.eye(6)
        slope = np.stack([(compute_residuals(values + step) - now) / 1e-6 for step in steps], axis=1)
        normal = slope.T @ slope
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slope.T @ now)
        then = compute_residuals(values + change)
        if then @ then < now @ now:
            values, now, damping = values + change, then, damping / 10
            if np.abs(change).max() < 1e-9:
                break
        else:
            damping *= 10
            if damping > 1e9:
                break
    return unpack(values)


def _rotate(points: Floats, turn: Floats, focal: float) -> Floats:
    rays = np.concatenate([points / focal, np.ones((len(points), 1))], axis=1) @ turn.T
    return focal * rays[:, :2] / np.maximum(rays[:, 2:], 1e-3)
