"""Readings of a calibration, tried on two images: R and T as transform or pose, pinhole or fisheye."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from pamcli.calibration.described import EXTRINSICS, Choice, Described, Extrinsics
from pamcli.calibration.rectified import Floats, Pixels
from pamcli.calibration.rig import Rig
from pamcli.calibration.uncalibrated import FEATURES, FEWEST_MATCHES, RIVAL
from pamcli.errors import PamError
from pamcli.imaging.images import to_uint8
from pamcli.imaging.matching import match_keypoints, to_grey

WAYS: tuple[Extrinsics, ...] = ("transform", "pose", "rows", "position")
FITS = 1.0, 0.004
"""Pixels, and share of the height, within which half of the rows of a reading that fits agree."""
MUCH_BETTER = 0.4
"""Share of the row error of the reading as asked that one that fits stays below."""
ALIKE = 1.3, 0.05
"""Times, and pixels, within which two readings fit equally: the one with fewer options is named."""
RIGHT_SIDE = 0.6
"""Share of the matches that must be at positive disparities."""
AHEAD = -1.0  # pixels of disparity from which on a match is not behind infinity


@dataclass(frozen=True)
class Reading:
    """How far apart the rows of two images are by one reading of their calibration."""

    choice: Choice
    rows: float
    """Median distance of the rows of matches, pixels; infinity: the cameras are no stereo pair by it."""

    def options(self, asked: Choice) -> str:
        """Name the options that lead from what was asked to this reading."""
        parts = []
        if self.choice.extrinsics != asked.extrinsics:
            parts.append(f"`extrinsics` {self.choice.extrinsics}")
        if self.choice.fisheye != asked.fisheye:
            parts.append("`fisheye`" if self.choice.fisheye else "leave out `fisheye`")
        if self.choice.exchanged != asked.exchanged:
            parts.append("`cameras` 1:0" if self.choice.exchanged else "leave out `cameras`")
        return ", ".join(parts)


@dataclass(frozen=True)
class Readings:
    """What two images say about the readings of their calibration."""

    asked: Reading
    better: Reading | None
    """One that fits where the asked one does not; None: there is none."""

    @property
    def text(self) -> str:
        """Say how far rows are apart as asked and by the better reading."""
        assert self.better is not None
        extrinsics = self.better.choice.extrinsics
        meaning = "" if extrinsics == self.asked.choice.extrinsics else f", with {EXTRINSICS[extrinsics]}"
        before = f" instead of {self.asked.rows:.1f}" if np.isfinite(self.asked.rows) else ""
        return f"rows agree to {self.better.rows:.2f} px{before}{meaning}"

    @property
    def do(self) -> str:
        """Name the options of the better reading."""
        assert self.better is not None
        return self.better.options(self.asked.choice)


def compare_readings(described: Described, asked: Choice, left: Pixels, right: Pixels) -> Readings | None:
    """Try every reading of the cameras on two images (H, W, 3); None: they show too little to tell."""
    first, second = (to_grey(np.ascontiguousarray(to_uint8(view))) for view in (left, right))
    matches = match_keypoints(first, second, FEATURES, RIVAL)
    if len(matches[0]) < FEWEST_MATCHES or not described.pairs:
        return None
    sizes = (left.shape[1], left.shape[0]), (right.shape[1], right.shape[0])
    found = [
        Reading(choice, _rows_apart(described, choice, matches, sizes))
        for choice in _choices(described, asked)
    ]
    best = min(each.rows for each in found)
    if best > max(FITS[0], FITS[1] * left.shape[0]) or best > MUCH_BETTER * found[0].rows:
        return Readings(found[0], None)
    return Readings(found[0], next(each for each in found if each.rows <= ALIKE[0] * best + ALIKE[1]))


def _choices(described: Described, asked: Choice) -> Iterator[Choice]:
    """Yield all readings, the one that was asked for first, then those with fewer changes."""
    lenses = [camera for pair in described.pairs for camera in pair.cameras]
    either = all(not lens.fisheye and lens.distortion.size in (0, 4) for lens in lenses)
    ways: list[Extrinsics] = [asked.extrinsics, *(way for way in WAYS if way != asked.extrinsics)]
    turns = (asked.exchanged, not asked.exchanged) if described.exchangeable else (asked.exchanged,)
    fisheyes = (asked.fisheye, not asked.fisheye) if either else (asked.fisheye,)
    found = [
        replace(asked, extrinsics=way, fisheye=fisheye, exchanged=turn)
        for turn, fisheye, way in itertools.product(turns, fisheyes, ways)
    ]
    names = "extrinsics", "fisheye", "exchanged"
    yield from sorted(
        found, key=lambda each: sum(getattr(each, name) != getattr(asked, name) for name in names)
    )


def _rows_apart(
    described: Described,
    choice: Choice,
    matches: tuple[Floats, Floats],
    sizes: tuple[tuple[int, int], tuple[int, int]],
) -> float:
    with suppress(PamError):
        rig: Rig | None = described.finished(choice).rig
        assert rig is not None
        one, two = rig.for_size(*sizes[0], sizes[1]).rectified_points(*matches)
        known = np.isfinite(np.hstack([one, two]).sum(axis=1))
        if np.count_nonzero(known) >= max(FEWEST_MATCHES, 0.5 * len(known)):
            across, down = (one - two)[known].T
            if np.mean(across > AHEAD) >= RIGHT_SIDE:
                return float(np.median(np.abs(down)))
    return float("inf")
