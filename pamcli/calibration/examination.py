"""Examination of a calibration on an image pair: findings, each with a remedy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pamcli.calibration.description import CameraDescription, Interpretation, StoredCalibration
from pamcli.calibration.geometry import (
    LONGEST_BASELINE,
    SHORTEST_BASELINE,
    Calibration,
    Floats,
    Pixels,
    Size,
    has_aspect,
)
from pamcli.calibration.interpretations import compare_interpretations
from pamcli.calibration.measurements import (
    ENOUGH,
    RowOffsets,
    find_ground,
    measure_length,
    summarize_row_offsets,
)
from pamcli.calibration.rig import Rig
from pamcli.errors import InputError
from pamcli.imaging.preflight import (
    ENOUGH_MATCHES,
    ORDER_LOG_ODDS,
    Finding,
    MeasuredMatches,
    Verdict,
    check_pair,
    measure_pair,
)

MEASURED = 400  # largest number of matches that are measured to a fraction of a pixel
GOOD_ROWS, GOOD_P90 = 0.5, 1.0  # px, largest median and 90th percentile of row offsets of a rectified pair
MUCH_BETTER = 0.4  # largest ratio of row offsets at which swapped images count as the right order
WRONG_SIDE = 0.6  # share of matches behind infinity from which images count as swapped
BEHIND, MOST_BEHIND = 1.0, 0.05  # px past infinity, and the share of matches that may be farther past it
NARROWEST, WIDEST = 4.0, 165.0  # degrees, plausible fields of view
NEAREST, FARTHEST = 0.02, 2000.0  # m, plausible median distances
USUAL_BASELINES = 0.02, 2.0  # m
GOOD_LENGTH = 0.03  # relative error of a known length
ROW_TOPICS = "rows", "matches", "rectifying", "cameras"  # findings that another interpretation may explain
KnownLength = tuple[tuple[tuple[float, float], tuple[float, float]], float]
"""Two pixels of the unrectified left image, and their known distance, m."""
SWAP = "swap the two images"
MOVED = "the cameras have moved, or the calibration is of other cameras: pam calibration make"


@dataclass(frozen=True)
class _RectifiedPair:
    """Rectified images, and the offsets of their rows."""

    left: Pixels
    right: Pixels
    calibration: Calibration | None
    rig: Rig | None = None  # that rectified the images; None: they were rectified before

    @cached_property
    def matches(self) -> MeasuredMatches:
        return measure_pair(self.left, self.right, MEASURED)

    @cached_property
    def rows(self) -> RowOffsets | None:
        return summarize_row_offsets(self.matches[1], self.left.shape[1], self.left.shape[0])

    @property
    def median(self) -> float:
        return self.rows.median if self.rows else float("inf")

    @property
    def absolute_disparity(self) -> Floats:
        """Disparities of the matches plus the offset of the principal points, 0 at infinity."""
        disparity = self.rows.matches.disparity if self.rows else np.zeros(1)
        return disparity + (self.calibration.offset if self.calibration else 0.0)

    def measure_share_behind(self, pixels: float = 0.0) -> float:
        return float(np.mean(self.absolute_disparity < -pixels))


def examine(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, known: Sequence[KnownLength] = ()
) -> list[Finding]:
    """Examine a pair with its calibration."""
    size = left.shape[1], left.shape[0]
    findings = [] if stored is None else [_judge_size(stored, size)]
    if findings and findings[0].verdict == "wrong":
        return findings
    try:
        pair, more = _prepare_pair(left, right, stored, size)
    except InputError as error:
        return [*findings, Finding("rectifying", "wrong", error.message, error.hint)]
    findings += more
    check = check_pair(pair.left, pair.right, MEASURED, pair.matches)
    shared = {each.topic: each for each in check.problems(None if pair.rig else 0)}
    if stops := [shared[topic] for topic in ("images", "matches", "cameras") if topic in shared]:
        return [*findings, *stops]
    if pair.rows is None:
        verdict: Verdict = "look" if check.matches >= ENOUGH_MATCHES else "wrong"
        few = Finding("matches", verdict, "too few features match in both images", "use images with texture")
        return [*findings, *(shared.values() or [few])]
    # With a calibration, only occlusions can contradict the position of infinity.
    doubtful = pair.calibration is None or abs(check.order) > ORDER_LOG_ODDS
    order = shared.get("left and right") if pair.rig is None and doubtful else None
    order = order or _judge_order(left, right, stored, pair)
    if order.verdict == "wrong":
        rows = [shared["rows"]] if "rows" in shared and pair.rig is None else []
        return [*findings, *rows, order]
    findings += [_judge_rows(pair.rows, stored), order]
    if pair.calibration is not None:
        findings += _judge_distances(pair, pair.calibration, stored.doubt if stored else None)
        if pair.calibration.baseline > 0:
            findings += _judge_lengths(pair, pair.calibration, known)
    return findings


def examine_interpretations(
    left: Pixels,
    right: Pixels,
    description: CameraDescription,
    asked: Interpretation,
    known: Sequence[KnownLength] = (),
) -> list[Finding]:
    """Examine a pair as `examine` does, and name the interpretation of the calibration that fits better."""
    try:
        findings = examine(left, right, description.resolve(asked), known)
    except InputError as error:
        found = compare_interpretations(description, asked, left, right)
        if found is None or found.better is None:
            raise
        text = f"{error.message}; {found.text} with another interpretation"
        return [Finding("cameras", "wrong", text, found.do)]
    doubtful = [each for each in findings if each.verdict == "wrong" and each.topic in ROW_TOPICS]
    if doubtful and (found := compare_interpretations(description, asked, left, right)) is not None:
        if found.better is not None:
            text = f"{found.text} with another interpretation of the calibration"
            rest = [each for each in findings if each not in doubtful]
            return [*rest, Finding("cameras", "wrong", text, found.do)]
        if doubtful[0].topic == "matches" and math.isfinite(found.row_error):
            text = f"rows are {found.row_error:.1f} px apart after rectification"
            findings[findings.index(doubtful[0])] = Finding("rows", "wrong", text, MOVED)
    return findings


def _judge_size(stored: StoredCalibration, size: Size) -> Finding:
    cameras = stored.rig or stored.rectified
    exact = [each for each in cameras.sizes if each is not None] if cameras else []
    names, mine = " and ".join(f"{each[0]}x{each[1]} px" for each in exact), f"{size[0]}x{size[1]} px"
    if not exact:
        return Finding("size", "look", f"the calibration states no image size; the images are {mine}")
    if size in exact:
        return Finding("size", "ok", f"{mine}, as in the calibration")
    if stored.rig and stored.rectified and stored.rectified.size:
        if stored.rectified.size == size:
            return Finding("size", "ok", f"{mine}, as the rectified images in the calibration")
        if not has_aspect(exact[0], *size):  # perhaps rectified images that were downscaled
            exact = [stored.rectified.size]
            names = "{}x{} px".format(*exact[0])
    if not has_aspect(exact[0], *size):
        text = f"the images are {mine}, but the calibration is for {names}: another part of the sensor"
        return Finding("size", "wrong", text, "calibrate with images of this size, or use uncropped images")
    text = f"the images are {mine}, {size[0] / exact[0][0]:.3g} times the size of the calibration ({names})"
    do = "the calibration is scaled: right for resized images, wrong for cropped ones"
    return Finding("size", "look", text, do)


def _prepare_pair(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, size: Size
) -> tuple[_RectifiedPair, list[Finding]]:
    rig, rectified = (stored.rig, stored.rectified) if stored else (None, None)
    if left.shape != right.shape:
        if rig is None:
            raise InputError("the images differ in size", "give the calibration of both cameras")
        return _rectify(left, right, rig), []
    if rig and rectified and rectified.size and not has_aspect(rectified.size, *size):
        rectified = None  # unrectified images, which have another size
    calibration = None if rectified is None else rectified.for_size(*size)
    plain = _RectifiedPair(left, right, calibration)
    if rig is None or (rectified is not None and rig.size not in (None, size)):
        return plain, []
    pair = _rectify(left, right, rig)
    if plain.median >= min(GOOD_ROWS, MUCH_BETTER * pair.median):
        return pair, []
    text = f"the images are rectified already: as they are, rows agree to {plain.median:.2f} px"
    if rectified is not None:
        return plain, [Finding("rectified", "ok", text)]
    do = "give the calibration of the rectified images (the calibration.yaml of pam rectify)"
    return plain, [Finding("rectified", "wrong", text, do)]


def _rectify(left: Pixels, right: Pixels, rig: Rig) -> _RectifiedPair:
    rig = rig.for_size(left.shape[1], left.shape[0], (right.shape[1], right.shape[0]))
    found = rig.compute_rectification()
    return _RectifiedPair(found.left(left), found.right(right), found.calibration, rig)


def _judge_rows(rows: RowOffsets, stored: StoredCalibration | None) -> Finding:
    text = f"{len(rows.matches)} matches are {rows.median:.2f} px above or below each other (median), "
    text += f"90 % below {rows.p90:.1f} px"
    if rows.median <= GOOD_ROWS and rows.p90 <= GOOD_P90:
        return Finding("rows", "ok", text)
    if rows.pattern:
        text += f": the right image is {rows.pattern}"
    if rows.worst is not None:
        text += f"; largest in the {rows.worst[0]} part, {rows.worst[1]:+.1f} px"
    rectify = "rectify the images first: pam rectify with `calibration`, or `uncalibrated`"
    do = MOVED if stored and stored.rig else rectify
    return Finding("rows", "wrong" if rows.median > GOOD_ROWS else "look", text, do)


def _judge_order(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, pair: _RectifiedPair
) -> Finding:
    """Judge the order by the side of the matches, and by whether rows agree better after swapping."""
    behind, disparity = pair.measure_share_behind(), pair.rows.matches.disparity if pair.rows else np.zeros(1)
    fits = pair.median <= GOOD_ROWS and behind < 1 - WRONG_SIDE  # rules out that swapping is better
    if left.shape == right.shape and pair.rig is not None and stored and stored.rig and not fits:
        other = _rectify(right, left, stored.rig)
        if other.median < MUCH_BETTER * pair.median and other.measure_share_behind() < WRONG_SIDE:
            text = f"after swapping the images, rows agree to {other.median:.2f} px"
            return Finding("left and right", "wrong", text, SWAP)
        is_swapped = behind > WRONG_SIDE and other.measure_share_behind() < behind
    else:
        # Without a calibration, a pair may be shifted, and only occlusions show the order.
        is_swapped = pair.calibration is not None and min(behind, float(np.mean(disparity < 0))) > WRONG_SIDE
    if is_swapped:
        text = f"{100 * behind:.0f} % of the matches are on the wrong side, as if the images were swapped"
        return Finding("left and right", "wrong", text, SWAP)
    ahead = 1 - behind
    if pair.rig is None:  # a wrong offset does not swap anything
        ahead = max(ahead, float(np.mean(disparity >= 0)))
    text = f"{100 * ahead:.0f} % of the matches are on the right side"
    return Finding("left and right", "ok" if ahead > 1 - WRONG_SIDE else "look", text)


def _judge_distances(pair: _RectifiedPair, calibration: Calibration, doubt: str | None) -> Iterator[Finding]:
    past = pair.measure_share_behind(BEHIND)
    if past > MOST_BEHIND:
        text = f"{100 * past:.0f} % of the matches are behind infinity, by up to "
        text += f"{-float(np.percentile(pair.absolute_disparity, 2)):.1f} px"
        if calibration.offset:
            text += f", with doffs of {calibration.offset:g} px"
        do = "far distances are wrong: calibrate again (pam calibration make), or state `doffs`"
        yield Finding("infinity", "wrong", text, do)
    across = calibration.field_of_view[0] if calibration.size else 60.0
    if not NARROWEST <= across <= WIDEST:
        text = f"a focal length of {calibration.focal_length:g} px is a field of view of {across:.1f} degrees"
        do = "state it in px: millimetres times image width in px / sensor width in mm"
        yield Finding("focal length", "wrong", text, do)
    baseline = calibration.baseline
    if baseline == 0:
        text = "the calibration states none, so depth is unknown"
        yield Finding("baseline", "wrong", text, "state `baseline`")
        return
    ahead = pair.absolute_disparity[pair.absolute_disparity > 0.25]
    if len(ahead) < ENOUGH:
        yield Finding("baseline", "look", f"{_format_length(baseline)}; too few matches to judge it")
        return
    near, middle, far = np.percentile(calibration.focal_length * baseline / ahead, (5, 50, 95))
    if doubt:
        text, _, do = doubt.partition("; ")
        units = {"mm": 1e-3, "cm": 1e-2, "squares of 25 mm": 0.025}
        places = ", ".join(f"{_format_length(scale * middle)} in {unit}" for unit, scale in units.items())
        yield Finding("unit", "look", f"{text}; the median distance is {places}", do)
        return
    text = f"{_format_length(baseline)}, which means distances of {_format_length(near)} to "
    text += f"{_format_length(far)}, median {_format_length(middle)}"
    if baseline > LONGEST_BASELINE or middle > FARTHEST:
        least, most = USUAL_BASELINES
        likely = [unit for factor, unit in ((1000, "mm"), (100, "cm")) if least <= baseline / factor <= most]
        do = "state `baseline` with its unit"
        if likely:
            do = f"it is probably in {likely[0]}: `baseline` {baseline:g}{likely[0]}"
        yield Finding("baseline", "wrong", text, do)
    elif baseline < SHORTEST_BASELINE or middle < NEAREST:
        do = f"it is probably 1000 times too small: `baseline` {1000 * baseline:g}m"
        yield Finding("baseline", "wrong", text, do)
    else:
        yield Finding("baseline", "look", text, "if unsure, measure one distance and state `known_length`")


def _judge_lengths(
    pair: _RectifiedPair, calibration: Calibration, known: Sequence[KnownLength]
) -> Iterator[Finding]:
    for ends, metres in known:
        points = np.array(ends, np.float64)
        if pair.rig is not None:
            points = pair.rig.rectify_points(points, points)[0]
        found = measure_length(pair.left, pair.right, calibration, points)
        (x1, y1), (x2, y2) = ends
        name = f"known length {x1:g},{y1:g},{x2:g},{y2:g}"
        if isinstance(found, int):
            x, y = ends[found]
            text = f"the point {x:g},{y:g} px has no match in the right image"
            do = "choose points with texture, away from edges, that both cameras see"
            yield Finding(name, "look", text, do)
            continue
        length, error = found
        ratio = length / metres
        text = f"measured {_format_length(length)} (+- {_format_length(error)} from matching), "
        text += f"stated {_format_length(metres)}"
        if abs(ratio - 1) <= max(GOOD_LENGTH, 2 * error / metres):
            yield Finding(name, "ok", text)
            continue
        right = calibration.baseline / ratio
        do = f"distances are {ratio:.3g} times the true ones: `baseline` {right:.4g}m corrects them"
        yield Finding(name, "wrong", text, do)
    if not known and (ground := find_ground(pair.left, pair.right, calibration)):
        height, share = ground
        text = f"a plane {_format_length(height)} below the camera fills {100 * share:.0f} % "
        text += "of the lower half of the image"
        yield Finding("ground", "look", text, "if it is the ground, check the height of the camera above it")


def _format_length(metres: float) -> str:
    if metres < 0.1:
        return f"{1000 * metres:.3g} mm"
    return f"{metres:.3g} m" if metres < 100 else f"{metres:.0f} m"
