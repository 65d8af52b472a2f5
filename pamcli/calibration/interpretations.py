"""Comparison of interpretations of a calibration on two images: meaning of R and T, lens model, order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from pamcli.calibration.description import EXTRINSICS, CameraDescription, Extrinsics, Interpretation
from pamcli.calibration.feature_rectification import FEATURES, FEWEST_MATCHES, RIVAL
from pamcli.calibration.geometry import Floats, Pixels
from pamcli.errors import PamError
from pamcli.imaging.images import to_grey
from pamcli.imaging.preflight import match_keypoints

FITS = 1.0, 0.004  # row error that half of the matches may have: px, and part of the image height
MUCH_BETTER = 0.4  # largest ratio of the row error to that of the user's interpretation
ALIKE = 1.3, 0.05  # ratio and difference (px) of row errors below which the one with fewer options is named
RIGHT_SIDE = 0.6  # smallest share of matches with positive disparities
LEAST_DISPARITY = -1.0  # px, smallest disparity of a match that is not behind infinity


@dataclass(frozen=True)
class Comparison:
    """Median row distances of matches (px; inf: not a stereo pair) with two interpretations."""

    row_error: float
    better: Interpretation | None = None
    text: str = ""  # the improvement, for people
    do: str = ""  # options of the better interpretation


def compare_interpretations(
    description: CameraDescription, asked: Interpretation, left: Pixels, right: Pixels
) -> Comparison | None:
    """Try every interpretation on two images (H, W, 3); return None if they have too few matches."""
    first, second = to_grey(left), to_grey(right)
    matches = match_keypoints(first, second, FEATURES, RIVAL)
    if len(matches[0]) < FEWEST_MATCHES or not description.pairs:
        return None
    lenses = [camera for pair in description.pairs for camera in pair.cameras]
    either = all(not lens.fisheye and lens.distortion.size in (0, 4) for lens in lenses)
    ways: Iterable[Extrinsics] = sorted(get_args(Extrinsics), key=lambda way: way != asked.extrinsics)
    swaps = (asked.swapped, not asked.swapped) if description.swappable else (asked.swapped,)
    fisheyes = (asked.fisheye, not asked.fisheye) if either else (asked.fisheye,)
    combined = itertools.product(swaps, fisheyes, ways)
    every = [replace(asked, swapped=one, fisheye=two, extrinsics=way) for one, two, way in combined]
    names = "extrinsics", "fisheye", "swapped"
    every.sort(key=lambda each: sum(getattr(each, name) != getattr(asked, name) for name in names))
    found = {each: _measure_row_error(description, each, matches, left, right) for each in every}
    best, error = min(found.values()), found[asked]
    if best > max(FITS[0], FITS[1] * left.shape[0]) or best > MUCH_BETTER * error:
        return Comparison(error)
    better = next(each for each, error in found.items() if error <= ALIKE[0] * best + ALIKE[1])
    before = f" instead of {error:.1f} px" if np.isfinite(error) else ""
    meaning, options = "", []
    if better.extrinsics != asked.extrinsics:
        meaning = f", with {EXTRINSICS[better.extrinsics]}"
        options.append(f"`extrinsics` {better.extrinsics}")
    if better.fisheye != asked.fisheye:
        options.append("`fisheye`" if better.fisheye else "leave out `fisheye`")
    if better.swapped != asked.swapped:
        options.append("`cameras` 1:0" if better.swapped else "leave out `cameras`")
    text = f"rows agree to {found[better]:.2f} px{before}{meaning}"
    return Comparison(error, better, text, ", ".join(options))


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
            if np.mean(across > LEAST_DISPARITY) >= RIGHT_SIDE:
                return float(np.median(np.abs(down)))
    return float("inf")
