"""Is a data set on disk whole and sound? Every file is read, every truth is tried on its pictures.

Each left pixel (y, x) of known disparity d is compared with right pixel (y, x - d). The same is done with the
truth scaled, negated, turned over, or with the views exchanged; a truth that is right beats all of these.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.imaging.disparity_units import UNITS

Values = NDArray[np.float32]

_SCALES = {1 / 2: "half", 2.0: "twice", 1 / 4: "a quarter"}
_FACTORS = 2, 4, 16, 100, 256

_NEGATED, _EXCHANGED = "its sign is wrong", "left and right picture are exchanged"
_MOST_PIXELS = 40_000  # known pixels that are compared; more add nothing
_FEWEST_PIXELS = 200  # fewer are not enough to judge by
_LEAST_PIXELS = 0.5  # a truth scaled down to nothing fits whatever is far away, and says nothing
_BOX = 9  # pixels: what is slower than this (brightness, vignetting) is no part of the comparison
_LEAST_CONTRAST = 2  # grey levels of 8 bits, as a standard deviation; what has less is mostly noise
# A fit is judged against the errors a few pixels beside the match. On KITTI, Middlebury and FlyingThings3D a
# truth that is right has below 0.64 of these, one of another pair from 0.68 to 1.
_FITS, _UNRELATED = 0.75, 0.8
_ASIDE_PIXELS, _ASIDE = 4, 0.005  # how far beside: pixels, or parts of the width where that is more
_CLEARLY = 0.9  # another reading is meant when its error is below this part of the truth's own


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    sample: str
    """Its name; "" = the whole set."""
    severity: Literal["damage", "incomplete"]
    """damage: figures computed on this would be wrong, or cannot be computed. incomplete: something is not
    there, the rest can be used."""
    message: str
    """One line."""

    def __str__(self) -> str:
        sample = f"{self.sample}: " if self.sample else ""
        return f"{sample}{self.severity}: {self.message}"


def verify(source: Source, progress: Callable[[int], None] | None = None) -> list[Finding]:
    """Read every sample of a source; what is wrong with it.

    Damage: a view without the other one, a file that cannot be read, sizes that differ, a truth that does
    not warp the right picture onto the left one (scaled, exchanged, turned over, of another pair).
    Incomplete: parts of the published tree that are absent. progress: called with the number of samples
    that are done. Findings come in the order of the set first, then of the samples.
    """
    findings = [Finding("", "incomplete", line) for line in source.absent]
    findings += [Finding("", "damage", line) for line in source.unpaired]
    for index, name in enumerate(source.names):
        try:
            wrong = source.check(index) if source.checks_itself else judge(source.load(index))
        except InputError as error:
            wrong = error.message
        if wrong:
            findings.append(Finding(name, "damage", wrong))
        if progress:
            progress(index + 1)
    return findings


@dataclass(frozen=True)
class Fit:
    """How well one reading of the truth fits."""

    reading: str
    """"" = as it is; else what was done to it."""
    error: float
    """Mean difference of high-passed grey values, cut off at three standard deviations, in these."""
    chance: float
    """Mean difference a few pixels to the left and right of it: a right reading is better than that."""


def judge(sample: Sample) -> str | None:
    """What is wrong with the truths of a sample, on a line; None where they fit or cannot be judged."""
    if sample.right_disparity is not None:
        if said := judge(replace(sample, right_disparity=None)):
            return said
        # A mirrored pair whose views are exchanged is a pair again, with the right view for its left one.
        left, right = sample.right[:, ::-1], sample.left[:, ::-1]
        said = judge(Sample(sample.name, left, right, disparity=sample.right_disparity[:, ::-1]))
        return said and f"right view: {said}"
    if sample.disparity is None:
        return None
    known = sample.disparity[np.isfinite(sample.disparity)]
    if not known.size:
        return "no pixel has a known disparity"
    negative = float((known < 0).mean())
    if 0.01 < negative < 0.99:
        return f"{negative:.0%} of the disparities are negative"
    if known.size < _FEWEST_PIXELS:
        return None
    if _high_pass(sample.left).std() < _LEAST_CONTRAST * (257 if sample.left.dtype == np.uint16 else 1):
        return None
    own, *others = readings(sample)
    best, second = sorted(others, key=lambda fit: fit.error)[:2]
    if best.error < min(_CLEARLY * own.error, _FITS * best.chance):
        # A wrong sign and exchanged pictures look alike where surfaces are smooth.
        alike = {best.reading, second.reading} == {_NEGATED, _EXCHANGED} and second.error < 1.1 * best.error
        reading = f"{_NEGATED}, or the {_EXCHANGED}" if alike else best.reading
        return f"the truth does not fit the pictures: {reading}"
    if own.error > _UNRELATED * own.chance:
        return "the truth does not fit the pictures, whichever way it is turned or scaled"
    return None


def readings(sample: Sample) -> Iterator[Fit]:
    """The truth as it is, and all that might be meant instead."""
    truth = sample.disparity
    assert truth is not None
    left, right = _high_pass(sample.left), _high_pass(sample.right)
    spread = float(np.sqrt((left**2).mean())) or 1.0
    aside = np.float32(max(_ASIDE_PIXELS, _ASIDE * truth.shape[1]))

    def fit(reading: str, disparity: Values, to: Values, source: Values) -> Fit:
        error, before, after = (_error(to, source, disparity + by) / spread for by in (0, -aside, aside))
        return Fit(reading, error, (before + after) / 2)

    yield fit("", truth, left, right)
    typical = float(np.nanmedian(np.abs(truth)))
    factors = {float(by) for factor in _FACTORS for by in (factor, 1 / factor)}
    if sample.units is not None:
        factors |= {sample.units / unit for unit in (1, *UNITS) if unit != sample.units}
    for scale in sorted(factors):
        if _LEAST_PIXELS <= typical * scale <= truth.shape[1]:
            yield fit(_scaled(scale, sample.units), truth * np.float32(scale), left, right)
    yield fit(_NEGATED, -truth, left, right)
    yield fit(_EXCHANGED, truth, right, left)
    yield fit("it is the truth of the other view", -truth, right, left)
    yield fit("it is mirrored", truth[:, ::-1], left, right)
    yield fit("the pictures are mirrored, the truth is not", -truth[:, ::-1], left, right)
    yield fit("it is upside down", truth[::-1], left, right)


def _scaled(by: float, units: float | None) -> str:
    """Say which multiple of the truth fits. units: units per pixel by which it was read."""
    if units is not None:
        right = units / by
        return f"it fits when its numbers are divided by {right:g}, which the key scale={right:g} declares"
    times = f"{by:g} times" if by >= 1 else f"1/{1 / by:g}"
    return f"{_SCALES.get(by, times)} of it fits"


def _high_pass(picture: NDArray[np.generic]) -> Values:
    """(H, W, 3) -> (H, W): grey values less their mean over a box."""
    import cv2

    grey = picture.mean(axis=2, dtype=np.float64)
    mean = cv2.blur(grey, (_BOX, _BOX), borderType=cv2.BORDER_REPLICATE)
    return np.asarray(grey - mean, dtype=np.float32)


def _error(to: Values, source: Values, disparity: Values) -> float:
    """Mean difference between `to` (y, x) and `source` (y, x - disparity), each cut off.

    What leads out of the picture counts as the cut-off, so that a reading does not win by leading there.
    """
    rows, columns = np.nonzero(np.isfinite(disparity))
    step = max(1, len(rows) // _MOST_PIXELS)
    rows, columns = rows[::step], columns[::step]
    contrast = np.abs(to[rows, columns])
    telling = contrast >= np.median(contrast)  # where there is nothing to see, every match is as good
    rows, columns = rows[telling], columns[telling]
    width = to.shape[1]
    places = columns - disparity[rows, columns].astype(np.float64)
    inside = (places >= 0) & (places <= width - 1)
    values = np.interp(rows * width + places.clip(0, width - 1), np.arange(source.size), source.ravel())
    cut_off = 3 * float(np.sqrt((to**2).mean()))
    differences = np.minimum(np.abs(to[rows, columns] - values), cut_off)
    return float(np.where(inside, differences, cut_off).mean())
