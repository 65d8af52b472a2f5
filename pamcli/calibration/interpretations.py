"""Comparison of interpretations of a calibration on two images: meaning of R and T, lens model, order."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from pamcli.calibration.description import EXTRINSICS, CameraDescription, Extrinsics, Interpretation
from pamcli.calibration.feature_rectification import FEATURES, FEWEST_MATCHES, RIVAL
from pamcli.calibration.geometry import Floats, Pixels
from pamcli.errors import PamError
from pamcli.imaging.images import to_uint8
from pamcli.imaging.matching import match_keypoints, to_grey

FITS = 1.0, 0.004  # row error that half of the matches may have: px, and part of the image height
MUCH_BETTER = 0.4  # largest ratio of the row error to that of the user's interpretation
ALIKE = 1.3, 0.05  # ratio and difference (px) of row errors below which the one with fewer options is named
RIGHT_SIDE = 0.6  # smallest share of matches with positive disparities
AHEAD = -1.0  # px, smallest disparity of a match that is not behind infinity


@dataclass(frozen=True)
class Comparison:
    """Row errors with the user's interpretation of a calibration, and with a better one if there is one.

    A row error is the median distance of the rows of matches, px; infinity: not a stereo pair.
    """

    asked: Interpretation
    row_error: float
    better: Interpretation | None = None
    better_error: float = float("inf")

    @property
    def text(self) -> str:
        """Row errors of the better and the user's interpretation, for people."""
        assert self.better is not None
        extrinsics = self.better.extrinsics
        meaning = "" if extrinsics == self.asked.extrinsics else f", with {EXTRINSICS[extrinsics]}"
        before = f" instead of {self.row_error:.1f} px" if np.isfinite(self.row_error) else ""
        return f"rows agree to {self.better_error:.2f} px{before}{meaning}"

    @property
    def do(self) -> str:
        """Options of the better interpretation."""
        assert self.better is not None
        parts = []
        if self.better.extrinsics != self.asked.extrinsics:
            parts.append(f"`extrinsics` {self.better.extrinsics}")
        if self.better.fisheye != self.asked.fisheye:
            parts.append("`fisheye`" if self.better.fisheye else "leave out `fisheye`")
        if self.better.swapped != self.asked.swapped:
            parts.append("`cameras` 1:0" if self.better.swapped else "leave out `cameras`")
        return ", ".join(parts)


def compare_interpretations(
    description: CameraDescription, asked: Interpretation, left: Pixels, right: Pixels
) -> Comparison | None:
    """Try every interpretation on two images (H, W, 3); return None if they have too few matches."""
    first, second = (to_grey(np.ascontiguousarray(to_uint8(view))) for view in (left, right))
    matches = match_keypoints(first, second, FEATURES, RIVAL)
    if len(matches[0]) < FEWEST_MATCHES or not description.pairs:
        return None
    found = {
        each: _measure_row_error(description, each, matches, left, right)
        for each in _list_interpretations(description, asked)
    }
    best = min(found.values())
    if best > max(FITS[0], FITS[1] * left.shape[0]) or best > MUCH_BETTER * found[asked]:
        return Comparison(asked, found[asked])
    better = next(each for each, error in found.items() if error <= ALIKE[0] * best + ALIKE[1])
    return Comparison(asked, found[asked], better, found[better])


def _list_interpretations(description: CameraDescription, asked: Interpretation) -> list[Interpretation]:
    """Return all interpretations: the user's, then those with fewer changes first."""
    lenses = [camera for pair in description.pairs for camera in pair.cameras]
    either = all(not lens.fisheye and lens.distortion.size in (0, 4) for lens in lenses)
    ways: list[Extrinsics] = [asked.extrinsics, *(w for w in get_args(Extrinsics) if w != asked.extrinsics)]
    swaps = (asked.swapped, not asked.swapped) if description.swappable else (asked.swapped,)
    fisheyes = (asked.fisheye, not asked.fisheye) if either else (asked.fisheye,)
    found = [
        replace(asked, extrinsics=way, fisheye=fisheye, swapped=swapped)
        for swapped, fisheye, way in itertools.product(swaps, fisheyes, ways)
    ]
    names = "extrinsics", "fisheye", "swapped"
    return sorted(found, key=lambda each: sum(getattr(each, name) != getattr(asked, name) for name in names))


def _measure_row_error(
    description: CameraDescription,
    interpretation: Interpretation,
    matches: tuple[Floats, Floats],
    left: Pixels,
    right: Pixels,
) -> float:
    with suppress(PamError):
        rig = description.resolve(interpretation).rig
        assert rig is not None
        scaled = rig.for_size(left.shape[1], left.shape[0], (right.shape[1], right.shape[0]))
        one, two = scaled.rectify_points(*matches)
        known = np.isfinite(np.hstack([one, two]).sum(axis=1))
        if np.count_nonzero(known) >= max(FEWEST_MATCHES, 0.5 * len(known)):
            across, down = (one - two)[known].T
            if np.mean(across > AHEAD) >= RIGHT_SIDE:
                return float(np.median(np.abs(down)))
    return float("inf")
