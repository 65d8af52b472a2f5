"""Findings about a calibration and a pair of pictures that it should be right for, each with what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pamcli.calibration.described import Choice, Described
from pamcli.calibration.lengths import Measured, dense, ground, measured
from pamcli.calibration.readings import compare_readings
from pamcli.calibration.rectified import LONGEST_BASELINE, SHORTEST_BASELINE, Calibration, Pixels, has_aspect
from pamcli.calibration.rig import Rectification, Rig
from pamcli.calibration.row_offsets import ENOUGH, MEASURED, RowOffsets, row_offsets
from pamcli.calibration.stored import StoredCalibration
from pamcli.errors import InputError
from pamcli.imaging.preflight import ORDER_LOG_ODDS, check_pair

GOOD_ROWS, GOOD_P90 = 0.5, 1.0
"""Pixels by which half, and nine of ten, of the matches of a well rectified pair may be off."""
MUCH_BETTER = 0.4
"""Exchanged pictures count as the right order where their rows are so many times as far off, or less."""
WRONG_SIDE = 0.6
"""Share of matches behind infinity from which on pictures count as exchanged."""
BEHIND, MOST_BEHIND = 1.0, 0.05
"""Pixels past infinity, and the share of matches that may lie farther past it."""
NARROWEST, WIDEST = 4.0, 165.0
"""Degrees of a field of view that a camera has."""
FARTHEST, NEAREST = 2000.0, 0.02
"""Metres outside of which the median thing in a picture hardly is."""
USUAL_BASELINES = 0.02, 2.0
"""Metres, by which it is told what a baseline that is too long was measured in."""
GOOD_LENGTH = 0.03
"""Share by which a known length may be missed."""
DISTANCES = (5, 50, 95)
ROWS_TOPICS = "rows", "matches", "rectifying", "cameras"
"""Findings that another reading of the calibration may explain."""

Verdict = Literal["ok", "look", "wrong"]
"""Judgement of a finding; look: only a person who was there can judge it."""


@dataclass(frozen=True)
class Finding:
    """One thing that was examined."""

    topic: str
    verdict: Verdict
    text: str
    do: str | None = None
    """Remedy; None: there is nothing to do."""

    def __str__(self) -> str:
        mark = self.verdict.upper() if self.verdict == "wrong" else self.verdict
        return f"{mark:<6}{self.topic}: {self.text}{f' -> {self.do}' if self.do else ''}"


@dataclass(frozen=True)
class KnownLength:
    """Two pixels of the left picture, as it is given, and how far apart they are."""

    points: tuple[tuple[float, float], tuple[float, float]]
    metres: float


@dataclass(frozen=True)
class _Pair:
    """Both pictures, rectified in one way, and what was seen of their rows."""

    left: Pixels
    right: Pixels
    calibration: Calibration | None
    rows: RowOffsets | None
    rectification: Rectification | None = None

    @property
    def median(self) -> float:
        return self.rows.median if self.rows else float("inf")

    def past_infinity(self, pixels: float) -> float:
        """Share of the matches that lie so far past it; 0 where there are none."""
        if self.rows is None:
            return 0.0
        offset = self.calibration.offset if self.calibration else 0.0
        return float(np.mean(self.rows.matches.disparity + offset < -pixels))


def examine(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, known: Sequence[KnownLength] = ()
) -> list[Finding]:
    """Look at two pictures (H, W, 3), uint8 or uint16, of one size, with their calibration.

    stored: a calibration of the cameras, whose pictures are then rectified, or of rectified pictures; None:
    the pictures count as rectified, and distances are not known.
    """
    size = left.shape[1], left.shape[0]
    findings = [] if stored is None else [_size(stored, size)]
    if findings and findings[0].verdict == "wrong":
        return findings
    try:
        pair, more = _as_meant(left, right, stored, size)
    except InputError as error:
        return [*findings, Finding("rectifying", "wrong", error.message, error.hint)]
    findings += more
    check = check_pair(pair.left, pair.right, MEASURED)
    problems = check.problems(None if pair.rectification else 0)
    shared = {each.topic: Finding(each.topic, "wrong", each.text, each.do) for each in problems}
    if stops := [shared[topic] for topic in ("images", "matches", "cameras") if topic in shared]:
        return [*findings, *stops]
    if pair.rows is None:
        few = Finding(
            "matches", "wrong", "too few features are found in both images", "do they show texture?"
        )
        return [*findings, *(shared.values() or [few])]
    # A calibration tells where infinity is; against that stands only what hides what.
    seen = pair.calibration is None or abs(check.order) > ORDER_LOG_ODDS
    order = shared.get("left and right") if pair.rectification is None and seen else None
    order = order or _exchanged(left, right, stored, pair, size)
    if order.verdict == "wrong":
        rows = [shared["rows"]] if "rows" in shared and pair.rectification is None else []
        return [*findings, *rows, order]
    findings += [_rows(pair, stored), order]
    if pair.calibration is None:
        return findings
    findings += _distances(pair, pair.calibration, stored.doubt if stored else None)
    if pair.calibration.baseline > 0:
        findings += _lengths(pair, pair.calibration, known)
    return findings


def examine_reading(
    left: Pixels,
    right: Pixels,
    described: Described,
    choice: Choice,
    known: Sequence[KnownLength] = (),
) -> list[Finding]:
    """Examine two images as `examine` does, and name the reading of their calibration that fits better.

    Raises InputError where the cameras are no stereo pair, by any reading.
    """
    other = "the calibration is of other cameras, or they have moved: pam calibration make"
    try:
        findings = examine(left, right, described.finished(choice), known)
    except InputError as error:
        found = compare_readings(described, choice, left, right)
        if found is None or found.better is None:
            raise
        return [Finding("cameras", "wrong", f"{error.message}; {found.text} by another reading", found.do)]
    doubtful = [each for each in findings if each.verdict == "wrong" and each.topic in ROWS_TOPICS]
    if doubtful and (found := compare_readings(described, choice, left, right)) is not None:
        rows = found.asked.rows
        if found.better is not None:
            return [each for each in findings if each not in doubtful] + [
                Finding("cameras", "wrong", f"{found.text} by another reading of the calibration", found.do)
            ]
        if doubtful[0].topic == "matches" and math.isfinite(rows):
            text = f"rows are {rows:.1f} px apart after rectification"
            findings[findings.index(doubtful[0])] = Finding("rows", "wrong", text, other)
    return findings


def _size(stored: StoredCalibration, size: tuple[int, int]) -> Finding:
    described = stored.rig or stored.rectified
    assert described is not None
    exact = [each for each in described.sizes if each is not None]
    names = " and ".join(f"{each[0]} x {each[1]}" for each in exact)
    mine = f"{size[0]} x {size[1]}"
    if not exact:
        return Finding(
            "size", "look", f"the calibration does not say of which size; the pictures have {mine}"
        )
    if size in exact:
        return Finding("size", "ok", f"{mine}, that of the calibration")
    if stored.rig and stored.rectified and stored.rectified.size == size:
        return Finding("size", "ok", f"{mine}, that of the rectified pictures in the calibration")
    if stored.rig and stored.rectified and stored.rectified.size and not has_aspect(exact[0], *size):
        exact = [stored.rectified.size]  # perhaps these are the rectified ones, made smaller
        names = f"{exact[0][0]} x {exact[0][1]}"
    if not has_aspect(exact[0], *size):
        text = f"the pictures have {mine} pixels, the calibration is for {names}: another part of the sensor"
        return Finding("size", "wrong", text, "calibrate with pictures of this size, or take uncut ones")
    times = size[0] / exact[0][0]
    text = f"the pictures have {mine} pixels, {times:.3g} times the calibration's {names}, which is scaled"
    do = "right if they were made smaller as a whole, wrong if the camera cut them"
    return Finding("size", "look", text, do)


def _as_meant(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, size: tuple[int, int]
) -> tuple[_Pair, list[Finding]]:
    """Take the pair as the calibration describes it: rectified by it, or as it is. Raises InputError."""
    if left.shape != right.shape:
        if stored is None or stored.rig is None:
            raise InputError(
                "the images differ in size", "give the calibration of the cameras, which describes both"
            )
        return _rectified(left, right, stored.rig, size), []
    plain, rectified = None, None if stored is None else stored.rectified
    if rectified and stored and stored.rig and rectified.size and not has_aspect(rectified.size, *size):
        rectified = None  # the pictures are the cameras' own, of another size
    if stored is None or stored.rig is None or rectified is not None:
        calibration = None if rectified is None else rectified.for_size(*size)
        plain = _Pair(left, right, calibration, row_offsets(left, right))
    if stored is None or stored.rig is None:
        assert plain is not None
        return plain, []
    if plain is not None and stored.rig.size not in (None, size):
        return plain, []
    pair = _rectified(left, right, stored.rig, size)
    straight = plain or _Pair(left, right, None, row_offsets(left, right))
    if straight.median < min(GOOD_ROWS, MUCH_BETTER * pair.median):
        text = f"the pictures are rectified already: as they are, rows agree to {straight.median:.2f} px"
        if plain is not None:
            return plain, [Finding("rectified", "ok", text)]
        do = "give the calibration of the rectified pictures (the calibration.yaml of pam rectify)"
        return straight, [Finding("rectified", "wrong", text, do)]
    return pair, []


def _rectified(left: Pixels, right: Pixels, rig: Rig, size: tuple[int, int]) -> _Pair:
    found = rig.for_size(*size, (right.shape[1], right.shape[0])).rectification()
    views = found.left(left), found.right(right)
    return _Pair(views[0], views[1], found.calibration, row_offsets(*views), found)


def _rows(pair: _Pair, stored: StoredCalibration | None) -> Finding:
    rows = pair.rows
    assert rows is not None
    text = f"{len(rows.matches)} matches are {rows.median:.2f} px above or below each other, 90 % below "
    text += f"{rows.p90:.1f}"
    if rows.median <= GOOD_ROWS and rows.p90 <= GOOD_P90:
        return Finding("rows", "ok", text)
    if rows.pattern:
        text += f": the right picture is {rows.pattern}"
    if rows.worst is not None:
        text += f"; most in the {rows.worst[0]} part, {rows.worst[1]:+.1f} px"
    if stored is None or stored.rig is None:
        do = "rectify them first, by the cameras' calibration (pam rectify)"
    else:
        do = "the cameras have moved since, or these are others: pam calibration make"
    return Finding("rows", "wrong" if rows.median > GOOD_ROWS else "look", text, do)


def _exchanged(
    left: Pixels, right: Pixels, stored: StoredCalibration | None, pair: _Pair, size: tuple[int, int]
) -> Finding:
    """Judge the order by the side that matches lie on, and whether rows agree better the other way round."""
    do = "exchange the two pictures"
    behind = pair.past_infinity(0.0)
    assert pair.rows is not None
    if left.shape == right.shape and pair.rectification is not None and stored and stored.rig is not None:
        other = _rectified(right, left, stored.rig, size)
        if other.median < MUCH_BETTER * pair.median and other.past_infinity(0.0) < WRONG_SIDE:
            text = f"exchanged, rows agree to {other.median:.2f} px instead of {pair.median:.2f}"
            return Finding("left and right", "wrong", text, do)
        if behind > WRONG_SIDE and other.past_infinity(0.0) < behind:
            text = f"{100 * behind:.0f} % of the matches lie on the wrong side, as if they were exchanged"
            return Finding("left and right", "wrong", text, do)
    elif behind > WRONG_SIDE and np.mean(pair.rows.matches.disparity < 0) > WRONG_SIDE:
        text = f"{100 * behind:.0f} % of the matches lie on the wrong side: left and right are exchanged"
        return Finding("left and right", "wrong", text, do)
    ahead = 1 - behind
    if pair.rectification is None:  # doffs that are wrong do not exchange anything
        ahead = max(ahead, float(np.mean(pair.rows.matches.disparity >= 0)))
    text = f"{100 * ahead:.0f} % of the matches lie on the right side"
    return Finding("left and right", "ok" if ahead > 1 - WRONG_SIDE else "look", text)


def _distances(pair: _Pair, calibration: Calibration, doubt: str | None = None) -> Iterator[Finding]:
    """Judge infinity, the field of view, and the distances that the baseline makes of the disparities."""
    assert pair.rows is not None
    past = pair.past_infinity(BEHIND)
    if past > MOST_BEHIND:
        lowest = float(np.percentile(pair.rows.matches.disparity + calibration.offset, 2))
        text = f"{100 * past:.0f} % of the matches lie behind infinity, by up to {-lowest:.1f} px"
        if calibration.offset:
            text += f", by doffs of {calibration.offset:g} px"
        do = "far distances are wrong: calibrate again (pam calibration make), or state `doffs`"
        yield Finding("infinity", "wrong", text, do)
    across = calibration.field_of_view[0] if calibration.size else 60.0
    if not NARROWEST <= across <= WIDEST:
        text = f"a focal length of {calibration.focal_length:g} px is a field of view of {across:.1f} degrees"
        do = "it must be in pixels: millimetres times the picture's width over the sensor's"
        yield Finding("focal length", "wrong", text, do)
    baseline = calibration.baseline
    if baseline == 0:
        text = "the calibration states none, so there are no distances"
        yield Finding("baseline", "wrong", text, "state it in metres: `baseline`")
        return
    shifted = pair.rows.matches.disparity + calibration.offset
    ahead = shifted[shifted > 0.25]
    depths = calibration.focal_length * baseline / ahead
    if len(ahead) < ENOUGH:
        yield Finding("baseline", "look", f"{_length(baseline)}; nothing in sight tells whether it is right")
        return
    near, middle, far = np.percentile(depths, DISTANCES)
    if doubt:
        text, _, do = doubt.partition("; ")
        units = {"mm": 1e-3, "cm": 1e-2, "squares of 25 mm": 0.025}
        places = ", ".join(f"{_length(scale * middle)} in {unit}" for unit, scale in units.items())
        yield Finding("unit", "look", f"{text}; half of all things are within {places}", do)
        return
    text = (
        f"{_length(baseline)}; by it things are {_length(near)} to {_length(far)} away, half of them within "
    )
    text += _length(middle)
    if baseline > LONGEST_BASELINE or middle > FARTHEST:
        do = "state it in metres: `baseline`"
        for factor, unit in ((1000, "millimetres"), (100, "centimetres")):
            if USUAL_BASELINES[0] <= baseline / factor <= USUAL_BASELINES[1]:
                do = f"these are probably {unit} that were taken for metres: `baseline` {baseline / factor:g}"
                break
        yield Finding("baseline", "wrong", text, do)
    elif baseline < SHORTEST_BASELINE or middle < NEAREST:
        do = f"these are probably metres that were taken for millimetres: `baseline` {1000 * baseline:g}"
        yield Finding("baseline", "wrong", text, do)
    else:
        yield Finding("baseline", "look", text, "is that so? `known_length` measures one of them")


def _lengths(pair: _Pair, calibration: Calibration, known: Sequence[KnownLength]) -> Iterator[Finding]:
    for each in known:
        points = np.array(each.points, np.float64)
        if pair.rectification is not None and pair.rectification.left_points is not None:
            points = pair.rectification.left_points(points)
        found = measured(pair.left, pair.right, calibration, points)
        (x1, y1), (x2, y2) = each.points
        name = f"known length {x1:g},{y1:g},{x2:g},{y2:g}"
        if not isinstance(found, Measured):
            index = int(np.abs(points - found).sum(axis=1).argmin())
            x, y = each.points[index]
            text = f"what lies at {x:g},{y:g} is not found in the right picture"
            do = "take points with texture, away from edges, that both cameras see"
            yield Finding(name, "look", text, do)
            continue
        ratio = found.metres / each.metres
        text = f"{_length(found.metres)} measured (+- {_length(found.error)} by matching), stated are "
        text += _length(each.metres)
        if abs(ratio - 1) <= max(GOOD_LENGTH, 2 * found.error / each.metres):
            yield Finding(name, "ok", text)
            continue
        right = calibration.baseline / ratio
        do = f"all distances are {ratio:.3g} times the true ones: `baseline` {right:.4g} makes this one right"
        yield Finding(name, "wrong", text, do)
    if not known:
        plane = ground(*dense(pair.left, pair.right), calibration)
        if plane is not None:
            text = f"a plane {_length(plane.height)} below the camera fills {100 * plane.share:.0f} % of the "
            text += "lower half"
            do = "if that is the ground: is the camera as high above it?"
            yield Finding("ground", "look", text, do)


def _length(metres: float) -> str:
    if metres < 0.1:
        return f"{1000 * metres:.3g} mm"
    return f"{metres:.3g} m" if metres < 100 else f"{metres:.0f} m"
