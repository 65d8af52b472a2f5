"""Rectify a stereogram step by step (the paper's Section 5.3.1).

Photographers shift the views onto a common plane of focus, so the zero of the disparities is lost: the
farthest object may be infinitely far (no disparity) or near (40 px), which must be detected or given.

The rows are related as follows, with first view (x, y) and second view (x - disparity, y + dy), coordinates
about the centre of the view, small rotations a1 and a2 of the views (positive: clockwise, the right side
lower), and the second view magnified by 1 + zoom and moved down by `offset`:

    dy = offset + (a2 - a1) x + zoom y - a2 disparity.

The last term separates the two rotations: if both views are rotated by one angle, the baseline is rotated
too, and nearer objects move up or down by more.

The views are found by cutting off the margins around and between them. A margin or frame is a run of lines of
a single colour. Frames may be nested, and may differ in width on every side of either view.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging import images, preflight
from pamcli.imaging.dense_matching import Colours, Grey, Values, match_densely, weigh_order
from pamcli.imaging.preflight import Floats, Matches

_SAME, _EXCEPTIONS = 18, 0.01  # grey levels by which a margin may differ (JPEG), share of larger ones
_SAMPLES = 300  # approximate number of pixels checked per line
_FRAMES = 4
_BLENDED = 2  # lines cut beside a margin or seam, as they blend both sides
_GAP, _SEAM = 0.1, 0.02  # largest distance of a gap, and of a seam, from the middle / width
_SHARP_SEAM = 2.5  # strength of a seam relative to the median difference of neighbouring columns
_UNLIKE_SIZES = 0.75  # smallest size of the smaller view relative to the larger one, in each direction
TINY = 16  # px, images with a smaller side are not searched
SMALLEST_SIDE = 120  # px, smallest side of a view

_Value = TypeVar("_Value", bound=np.generic)


class StereogramError(Exception):
    """An image that cannot be used; the message is the reason, a line without the name of the image."""


@dataclass(frozen=True)
class Box:
    """Rows top .. bottom - 1 and columns left .. right - 1."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width (px)."""
        return self.bottom - self.top, self.right - self.left

    def of(self, image: NDArray[_Value]) -> NDArray[_Value]:
        return image[self.top : self.bottom, self.left : self.right]


def find_views(image: NDArray[np.generic]) -> tuple[Box, Box]:
    """Return the boxes of the two views of an image (H, W, 3), of one size. Raises StereogramError."""
    levels = (image >> 8 if image.dtype == np.uint16 else image).astype(np.int16)  # type: ignore[operator]
    whole = _trim_margins(levels, Box(0, levels.shape[0], 0, levels.shape[1]))
    if min(whole.size) < 2:
        raise StereogramError("the image has a single colour")
    if min(whole.size) < TINY:
        raise StereogramError("the image is too small for two views")
    candidates = [
        [_trim_margins(levels, replace(whole, right=end)), _trim_margins(levels, replace(whole, left=start))]
        for end, start in _find_splits(levels, whole)
    ]
    boxes = max(candidates, key=_compare_sizes)
    if _compare_sizes(boxes) < _UNLIKE_SIZES:
        sizes = " and ".join(f"{width}x{height}" for height, width in (box.size for box in boxes))
        raise StereogramError(
            f"the image does not hold two views side by side: without margins, its halves are {sizes}"
        )
    height, width = (min(sides) for sides in zip(*(box.size for box in boxes), strict=True))
    if min(height, width) < SMALLEST_SIDE:
        raise StereogramError(f"the views are {width}x{height}, too small: {SMALLEST_SIDE} px are needed")
    first, second = (Box(box.top, box.top + height, box.left, box.left + width) for box in boxes)
    return first, second


def _trim_margins(levels: NDArray[np.int16], box: Box) -> Box:
    """Return the box without single-coloured lines at its sides and the blended lines beside them."""
    for _ in range(_FRAMES):
        before, lines = box, box.of(levels)
        top, bottom = _count_margin(lines), _count_margin(lines[::-1])
        box = replace(box, top=box.top + top, bottom=box.bottom - bottom)
        lines = box.of(levels).swapaxes(0, 1)
        left, right = _count_margin(lines), _count_margin(lines[::-1])
        box = replace(box, left=box.left + left, right=box.right - right)
        if box == before or min(box.size) < 2:
            break
    return box


def _count_margin(lines: NDArray[np.int16]) -> int:
    """Return the number of leading lines of (N, M, 3) that belong to a margin."""
    if not lines.size:
        return 0
    lines = lines[:, :: max(1, lines.shape[1] // _SAMPLES)]
    colour = np.median(lines[0], axis=0)
    for start in range(0, len(lines), 32):  # stops early, as most images have no margin
        other = (np.abs(lines[start : start + 32] - colour).max(axis=2) > _SAME).mean(axis=1) > _EXCEPTIONS
        if other.any():
            found = start + int(other.argmax())
            return found + _BLENDED if found else 0
    return len(lines)


def _compare_sizes(boxes: list[Box]) -> float:
    """Return the smaller box as a part of the larger one, in the direction with the larger difference."""
    sizes = np.sort([box.size for box in boxes], axis=0)
    return 0.0 if sizes.min() < 2 else float((sizes[0] / sizes[1]).min())


def _find_splits(levels: NDArray[np.int16], whole: Box) -> list[tuple[int, int]]:
    """Return candidate splits: the end column of the first view, and the start column of the second.

    One is in a gap, if a single-coloured column lies near the middle; the other is at the seam.
    """
    middle, (height, width) = (whole.left + whole.right) // 2, whole.size
    splits = []
    reach = int(_GAP * width)
    columns = levels[whole.top : whole.bottom : max(1, height // _SAMPLES), middle - reach : middle + reach]
    other = np.abs(columns - np.median(columns, axis=0)).max(axis=2) > _SAME
    plain = np.flatnonzero(other.mean(axis=0) <= _EXCEPTIONS)
    if len(plain):  # the rest of the gap is later cut as a margin
        splits.append((middle - reach + int(plain[np.abs(plain - reach).argmin()]),) * 2)
    reach = max(2, int(_SEAM * width))
    columns = levels[whole.top : whole.bottom, middle - reach : middle + reach]
    steps = np.abs(np.diff(columns, axis=1)).mean(axis=(0, 2))
    sharp = steps.max() > _SHARP_SEAM * np.median(steps)
    seam = middle - reach + int(steps.argmax()) + 1 if sharp else middle
    return [*splits, (seam - _BLENDED, seam + _BLENDED)]


ViewingChoice = Literal["auto", "cross", "parallel"]  # cross: the left-hand view is for the right eye
InfinityChoice = Literal["auto", "yes", "no"]  # yes: the farthest object is infinitely far. no: it is near
CLOSE = 40  # px, smallest disparity of a close-up (the paper's threshold)
MULTIPLE = 12  # both sides of a pair are multiples of it
SURE = 0.8  # a pair whose order is less certain is set aside
REACH, MOST_OFFSET = 0.25, 0.08  # largest disparity / width, largest vertical offset / height
MOST_ROTATION = 3.0  # degrees, largest rotation of either view
MOST_RESIDUAL = 1.0  # px, largest typical difference between rows after the fit
FEWEST_MATCHES, FEWEST_SEEN = 30, 0.4  # matches, and part of the pixels, required in both views
_AREA, _WIDTH = 260_000, 640  # px, area and width of the views for matching
_SPARE = 0.06  # part of the width by which disparities may exceed the range of the matches
_TEXTURE, _SMOOTH = 2.0, 0.7  # deviations over 5 x 5 px: least grey levels, largest px of disparity
_SPECKLE, _FEWEST_TRUSTED = 100, 500  # smallest surface (px), fewest pixels for a percentile
_NOTHING = -30_000
_BRIGHT, _WARM, _PLAIN = 150, 5, 2.5  # limits of a sky: brightness, red minus blue, texture
_NOISE = 0.3  # px, error of a good match; four times that counts as wrong
_PRIOR = np.array([100.0, 0.03, 0.001, 0.006])  # deviations of offset (px), rotation, zoom, second rotation
_STRAIGHT = 0.25  # px; smaller rotations are not applied, as resampling blurs


@dataclass(frozen=True)
class RowFit:
    """Fitted coefficients of the equation in the module's docstring."""

    offset: float
    rotation: float  # rotation of the second view minus that of the first, radians
    zoom: float
    second_rotation: float
    inliers: NDArray[np.bool_]  # (N,) mask of the matches that the fit explains
    residual: float  # median of the inliers' remaining |dy|, px

    @property
    def angles(self) -> tuple[float, float]:
        """Rotations of both views, radians."""
        return self.second_rotation - self.rotation, self.second_rotation

    def maps(self, size: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return the maps from pixels of each straightened view (height, width) to the original view."""
        angles = [angle if abs(angle) * max(size) / 2 > _STRAIGHT else 0.0 for angle in self.angles]
        zoom = self.zoom if abs(self.zoom) * size[0] / 2 > _STRAIGHT else 0.0
        whole = not any(angles) and not zoom and abs(self.offset - round(self.offset)) <= _STRAIGHT
        offset = round(self.offset) if whole else self.offset
        return make_rotation_map(size, angles[0]), make_rotation_map(size, angles[1], zoom, offset)


def fit_rows(matches: Matches, size: tuple[int, int]) -> RowFit:
    """Fit the rows of views (height, width) by Geman-McClure reweighted least squares with weak priors."""
    x, y = matches.x - (size[1] - 1) / 2, matches.y - (size[0] - 1) / 2
    terms = np.stack([np.ones(len(matches)), x, y, -matches.disparity], axis=1)
    found = np.array([np.median(matches.dy), 0.0, 0.0, 0.0])
    prior = np.diag((_NOISE / _PRIOR) ** 2)
    width = max(4 * _NOISE, 1.5 * float(np.median(np.abs(matches.dy - found[0]))))
    for _ in range(12):
        weighted = terms * (1 / (1 + ((matches.dy - terms @ found) / width) ** 2) ** 2)[:, None]
        found = np.linalg.solve(terms.T @ weighted + prior, weighted.T @ matches.dy)
        width = max(2 * _NOISE, 0.7 * width)
    left = np.abs(matches.dy - terms @ found)
    inliers = left <= 4 * _NOISE
    residual = float(np.median(left[inliers] if inliers.any() else left))
    offset, rotation, zoom, second_rotation = found.tolist()
    return RowFit(offset, rotation, zoom, second_rotation, inliers, residual)


def make_rotation_map(size: tuple[int, int], angle: float, zoom: float = 0.0, offset: float = 0.0) -> Floats:
    """Return the map (2, 3) from rectified pixels (x, y, 1) to a view rotated by `angle` radians."""
    middle = np.array([(size[1] - 1) / 2, (size[0] - 1) / 2])
    turn = (1 + zoom) * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.concatenate([turn, (middle - turn @ middle + [0, offset])[:, None]], axis=1)


def warp_view(view: NDArray[Any], places: Floats) -> NDArray[Any]:
    """Return the view (H, W, 3) resampled (bicubic) at places @ (x, y, 1) for each new pixel."""
    import cv2

    if np.array_equal(places, np.eye(2, 3)):
        return view
    size, flags = (view.shape[1], view.shape[0]), cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(view, places, size, flags=flags, borderMode=cv2.BORDER_REPLICATE))


@dataclass(frozen=True)
class RectifiedPair:
    """The two views of a stereogram in the right order, rectified and without margins."""

    left: NDArray[np.generic]  # (H, W, 3), of the stereogram's type; both sides are multiples of 12
    right: NDArray[np.generic]
    layout: Literal["cross", "parallel"]
    certainty: float  # probability in [0.5, 1] that the views are not exchanged; 1 if the layout was given
    vertical_offset: float  # rows by which the middle of the right view was lower than that of the left one
    rotation: float  # degrees of the right view against the left one; positive: its right side was lower
    shift: int  # columns added to all disparities: the right view was moved left by as many
    infinity: Literal["yes", "no"]  # "yes" if the farthest object is assumed to be infinitely far
    smallest_disparity: float  # px of the finished pair, left x - right x, without outliers
    largest_disparity: float
    left_map: Floats  # (2, 3) map from pixels (x, y, 1) of `left` to the stereogram
    right_map: Floats


def rectify_stereogram(
    image: NDArray[np.generic], layout: ViewingChoice = "auto", infinity: InfinityChoice = "auto"
) -> RectifiedPair:
    """Split a stereogram (H, W, 3), order and rectify its views, then shift and crop them.

    Raises StereogramError if the image is not usable or its layout cannot be detected.
    """
    boxes = find_views(image)
    views = [np.ascontiguousarray(box.of(image)) for box in boxes]
    size = boxes[0].size
    found, factor = preflight.find_matches(views[0], views[1], (REACH * size[1], 1.5 * MOST_OFFSET * size[0]))
    matches = preflight.refine_matches(views[0], views[1], found, factor, 500)
    fit = fit_rows(matches, size) if len(matches) >= FEWEST_MATCHES else None
    if fit is None or fit.inliers.sum() < FEWEST_MATCHES:
        count = 0 if fit is None else int(fit.inliers.sum())
        raise StereogramError(f"the halves differ: only {count} of {len(matches)} features match")
    if abs(fit.offset) > MOST_OFFSET * size[0]:
        limit = f"more than {MOST_OFFSET:.0%} of {size[0]}"
        raise StereogramError(f"the views are {abs(fit.offset):.0f} rows apart, {limit}")
    angle = np.rad2deg(np.abs(fit.angles).max())
    if angle > MOST_ROTATION:
        raise StereogramError(f"a view is rotated by {angle:.1f} degrees, more than {MOST_ROTATION:g}")
    if fit.residual > MOST_RESIDUAL:
        raise StereogramError(f"the rows differ by {fit.residual:.1f} px after rectification")
    maps = fit.maps(size)
    straight = [warp_view(view, places) for view, places in zip(views, maps, strict=True)]
    factor = images.choose_downscaling(size, _AREA, _WIDTH)
    small = [images.downscale_to_uint8(view, factor) for view in straight]
    greys = [images.to_grey(view) for view in small]
    spare = _SPARE * size[1] / factor + 2
    nearest, farthest = np.percentile(matches.disparity[fit.inliers] / factor, (99.5, 0.5))
    match = match_densely(greys[0], greys[1], int(farthest - spare), int(nearest + spare))
    if match.first_seen.mean() < FEWEST_SEEN:
        raise StereogramError(f"the halves differ: only {match.first_seen.mean():.0%} of the pixels match")

    log_odds = weigh_order(small[0], small[1], match)
    certainty = float(1 / (1 + np.exp(-min(abs(log_odds), 50.0))))  # of the likelier order
    if layout == "auto" and certainty < SURE:
        guess = "parallel" if log_odds > 0 else "cross"
        raise StereogramError(f"the order of the views is unclear: {certainty:.0%} for {guess}")
    first_is_left = log_odds > 0 if layout == "auto" else layout == "parallel"
    left, right, sign = (0, 1, 1) if first_is_left else (1, 0, -1)
    disparity, seen = (match.first, match.first_seen) if first_is_left else (match.second, match.second_seen)
    trusted = factor * _select_reliable(sign * disparity, seen, greys[left])
    if len(trusted) < _FEWEST_TRUSTED:
        raise StereogramError("too few pixels have texture to measure the smallest disparity")
    low, high = (float(value) for value in np.percentile(trusted, (1, 99)))  # mostly wrong matches lie beyond
    reaches = _decide_infinity(small[left], trusted, low, high) if infinity == "auto" else infinity
    if reaches is None:
        raise StereogramError("it is unclear whether the farthest object is infinitely far or near")
    shift = round((0 if reaches == "yes" else CLOSE) - low)  # a whole number avoids another resampling
    windows = _choose_windows([maps[left], maps[right]], size, shift)
    middle_offset = fit.offset - fit.second_rotation * sign * float(np.median(trusted))
    return RectifiedPair(
        left=windows[0].of(straight[left]).copy(),
        right=windows[1].of(straight[right]).copy(),
        layout="parallel" if first_is_left else "cross",
        certainty=certainty if layout == "auto" else 1.0,
        vertical_offset=sign * middle_offset,
        rotation=sign * float(np.rad2deg(fit.rotation)),
        shift=shift,
        infinity=reaches,
        smallest_disparity=low + shift,
        largest_disparity=high + shift,
        left_map=_map_to_stereogram(windows[0], maps[left], boxes[left]),
        right_map=_map_to_stereogram(windows[1], maps[right], boxes[right]),
    )


def _compute_variance(values: Values | Grey) -> Values:
    import cv2

    values = values.astype(np.float32)
    return np.asarray(cv2.blur(values * values, (5, 5)) - cv2.blur(values, (5, 5)) ** 2)


def _select_reliable(disparity: Values, visible: NDArray[np.bool_], levels: Grey) -> Values:
    """Return the disparities (N,) of textured pixels on smooth surfaces visible in both views."""
    import cv2

    keep = visible & (_compute_variance(levels) > _TEXTURE**2) & (_compute_variance(disparity) < _SMOOTH**2)
    steps = np.where(keep, disparity * 16, _NOTHING).astype(np.int16)
    cv2.filterSpeckles(steps, _NOTHING, _SPECKLE, 16)
    return disparity[steps > _NOTHING]


def _decide_infinity(view: Colours, trusted: Values, low: float, high: float) -> Literal["yes", "no"] | None:
    """Return "yes" if the farthest object is infinitely far, "no" if near, or None if undecided.

    "yes" needs a sky (5 to 50 % of the upper third bright, plain and not reddish) and most of the image in
    the far half of the disparities; "no" needs neither.
    """
    upper = view[: max(8, len(view) // 3)].astype(np.int16)
    plain = _compute_variance(upper.mean(axis=2)) < _PLAIN**2
    sky = float((plain & (upper.mean(axis=2) > _BRIGHT) & (upper[..., 2] >= upper[..., 0] - _WARM)).mean())
    median = (float(np.median(trusted)) - low) / max(high - low, 1e-3)
    if 0.05 < sky < 0.5 and median < 0.5:
        return "yes"
    return "no" if sky <= 0.01 and median >= 0.35 else None


def _choose_windows(maps: list[Floats], size: tuple[int, int], shift: int) -> tuple[Box, Box]:
    """Return the boxes kept of the straightened left and right views, with sides that are multiples of 12."""
    boxes = [_find_inner_box(places, size) for places in maps]
    top, bottom = max(box.top for box in boxes), min(box.bottom for box in boxes)
    start, end = max(boxes[0].left, boxes[1].left - shift), min(boxes[0].right, boxes[1].right - shift)
    height, width = (side // MULTIPLE * MULTIPLE for side in (bottom - top, end - start))
    if min(height, width) < SMALLEST_SIDE // MULTIPLE * MULTIPLE:
        area = f"{max(width, 0)} x {max(height, 0)} pixels"
        raise StereogramError(f"only {area} of the views remain after shifting them by {shift}")
    top += (bottom - top - height) // 2  # keeps the centre
    start += (end - start - width) // 2
    left, right = (Box(top, top + height, start + move, start + move + width) for move in (0, shift))
    return left, right


def _find_inner_box(places: Floats, size: tuple[int, int]) -> Box:
    """Return the largest centred box of a straightened view whose corners lie in the original view."""
    (bottom, right), top, left = size, 0, 0
    for _ in range(4):  # each cut moves the corners of the other sides
        corners = np.array([[x, y, 1] for y in (top, bottom - 1) for x in (left, right - 1)]).T
        (x0, x1, x2, x3), (y0, y1, y2, y3) = places @ corners
        left += max(0, int(np.ceil(-min(x0, x2) - 1e-9)))
        right -= max(0, int(np.ceil(max(x1, x3) - (size[1] - 1) - 1e-9)))
        top += max(0, int(np.ceil(-min(y0, y1) - 1e-9)))
        bottom -= max(0, int(np.ceil(max(y2, y3) - (size[0] - 1) - 1e-9)))
    return Box(top, bottom, left, right)


def _map_to_stereogram(window: Box, places: Floats, box: Box) -> Floats:
    """Return the map from the finished view to the stereogram."""
    turn = places[:, :2]
    move = turn @ [window.left, window.top] + places[:, 2] + [box.left, box.top]
    return np.concatenate([turn, move[:, None]], axis=1)
