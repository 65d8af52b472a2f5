"""Verify a data set: read every file, and test the ground truth by warping the images.

Left pixel (y, x) with disparity d is compared with right pixel (y, x - d). The same is done with ground truth
that is scaled, negated or flipped, and with exchanged images; correct ground truth fits better than these.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.files.paths import quote
from pamcli.imaging.disparity_files import UNITS

Values = NDArray[np.float32]

_FACTORS = {2.0, 4.0, 16.0, 100.0, 256.0, 1 / 2, 1 / 4, 1 / 16, 1 / 100, 1 / 256}

_NEGATED, _EXCHANGED = "its sign is wrong", "left and right image are exchanged"
_MOST_PIXELS = 40_000  # pixels to compare; more do not change the result
_FEWEST_PIXELS = 200  # fewer known pixels cannot be judged
_LEAST_PIXELS = 0.5  # px; nearly zero disparities fit any distant background
_BOX = 9  # px; slower changes (brightness, vignetting) are removed before the comparison
_LEAST_CONTRAST = 2  # 8-bit grey levels (standard deviation); images with less are mostly noise
# A fit is judged against the errors a few pixels beside the match. On KITTI, Middlebury and FlyingThings3D,
# correct ground truth has less than 0.64 of that error; ground truth of another pair has 0.68 to 1.
_FITS, _UNRELATED = 0.75, 0.8
_ASIDE_PIXELS, _ASIDE = 4, 0.005  # distance to that comparison: px, or a part of the width if larger
_CLEARLY = 0.9  # another reading is reported if its error is below this part of the original's
# On smooth surfaces, the ground truth of both images is almost equal, and either can fit slightly better.
_FITS_WELL, _CLEARLY_BETTER = 0.5, 0.75
_TESTED, _ENOUGH = 5, 3  # pairs of a data set that are tested before training; needed for an error
_UNKNOWN = "the ground truth does not match the images, whether scaled, negated, mirrored or exchanged"


@dataclass(frozen=True)
class Finding:
    """One problem found in a data set."""

    sample: str  # name of the sample; "" = the whole set
    severity: Literal["damage", "incomplete"]  # incomplete: a part is missing, the rest can be used
    message: str  # a single line

    def __str__(self) -> str:
        sample = f"{self.sample}: " if self.sample else ""
        return f"{sample}{self.severity}: {self.message}"


def verify(source: Source, progress: Callable[[int], None] | None = None) -> list[Finding]:
    """Read every sample and return the problems, first of the set; `progress` gets the finished count."""
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


def check_before_training(source: Source) -> str | None:
    """Test the ground truth of a few pairs; return a warning if it does not fit the images of most of them.

    Raises InputError: one other reading of the ground truth fits in most of them, or a file is damaged.
    """
    indices = source.spread(_TESTED)
    found: Counter[str] = Counter()
    for index in indices:
        if problem := judge(source.load(index)):
            found[problem] += 1
    if found.total() <= len(indices) / 2:
        return None
    problem, count = found.most_common(1)[0]
    name = quote(source.spec.text) if source.spec else "the data set"
    text = f"{name}: in {count} of {len(indices)} tested pairs, {problem}"
    if problem == _UNKNOWN or count < max(_ENOUGH, len(indices) / 2):
        return f"{text}; test it with `pam dataset verify`"
    raise InputError(text, "correct it; `pam dataset verify` tests every pair")


@dataclass(frozen=True)
class Fit:
    """Fit of one reading of the ground truth to the images."""

    reading: str  # "" = unchanged, else a description of the change
    error: float  # mean difference of high-passed grey values in standard deviations, clipped at three
    chance: float  # mean difference a few pixels beside the match


def judge(sample: Sample) -> str | None:
    """Return the problem with the ground truth of a sample, or None if it fits or cannot be judged."""
    if sample.right_disparity is not None:
        if problem := judge(replace(sample, right_disparity=None)):
            return problem
        # Mirror the pair and exchange its images, so that the right image becomes the left one.
        left, right = sample.right[:, ::-1], sample.left[:, ::-1]
        problem = judge(Sample(sample.name, left, right, disparity=sample.right_disparity[:, ::-1]))
        return problem and f"right image: {problem}"
    if sample.disparity is None:
        return None
    known = sample.disparity[np.isfinite(sample.disparity)]
    if not known.size:
        return "the ground truth is unknown at every pixel"
    negative = float((known < 0).mean())
    if 0.01 < negative < 0.99:
        return f"{negative:.0%} of the disparities are negative"
    if known.size < _FEWEST_PIXELS:
        return None
    if _remove_mean(sample.left).std() < _LEAST_CONTRAST * (257 if sample.left.dtype == np.uint16 else 1):
        return None
    own, *others = fit_readings(sample)
    best, second = sorted(others, key=attrgetter("error"))[:2]
    part = _CLEARLY_BETTER if own.error < _FITS_WELL * own.chance else _CLEARLY
    if best.error < min(part * own.error, _FITS * best.chance):
        # A wrong sign and exchanged images are hard to tell apart on smooth surfaces.
        alike = {best.reading, second.reading} == {_NEGATED, _EXCHANGED} and second.error < 1.1 * best.error
        reading = f"{_NEGATED}, or the {_EXCHANGED}" if alike else best.reading
        return f"the ground truth does not match the images: {reading}"
    if own.error > _UNRELATED * own.chance:
        return _UNKNOWN
    return None


def fit_readings(sample: Sample) -> list[Fit]:
    """Return the fit of the ground truth, then of each alternative reading."""
    truth = sample.disparity
    assert truth is not None
    left, right = _remove_mean(sample.left), _remove_mean(sample.right)
    factors = set(_FACTORS)
    if sample.units is not None:
        for unit in {1, 8, *UNITS} - {sample.units}:
            factors.add(sample.units / unit)
    as_is, mirrored, upside_down = np.s_[:], np.s_[:, ::-1], np.s_[::-1]
    readings: list[tuple[str, float, Any, Values, Values]] = [("", 1, as_is, left, right)]
    typical = float(np.nanmedian(np.abs(truth)))
    for scale in sorted(factors):
        if _LEAST_PIXELS <= typical * scale <= truth.shape[1]:
            text = f"it matches when multiplied by {scale:g}"
            if sample.units is not None:
                units = sample.units / scale
                text = f"it matches with {units:g} units per pixel (add the key scale={units:g})"
            readings.append((text, scale, as_is, left, right))
    readings += [
        (_NEGATED, -1, as_is, left, right),
        (_EXCHANGED, 1, as_is, right, left),
        ("it is the ground truth of the right image", -1, as_is, right, left),
        ("it is mirrored", 1, mirrored, left, right),
        ("the images are mirrored, but it is not", -1, mirrored, left, right),
        ("it is upside down", 1, upside_down, left, right),
    ]
    spread = float(np.sqrt((left**2).mean())) or 1.0
    aside = np.float32(max(_ASIDE_PIXELS, _ASIDE * truth.shape[1]))
    fits = []
    for reading, factor, order, target, source in readings:
        disparity = truth[order] * np.float32(factor)
        error = _measure_difference(target, source, disparity) / spread
        before = _measure_difference(target, source, disparity - aside) / spread
        after = _measure_difference(target, source, disparity + aside) / spread
        fits.append(Fit(reading, error, (before + after) / 2))
    return fits


def _remove_mean(image: NDArray[np.generic]) -> Values:
    """Return the grey values (H, W) of an image (H, W, 3) minus their local mean."""
    import cv2

    grey = image.mean(axis=2, dtype=np.float64)
    mean = cv2.blur(grey, (_BOX, _BOX), borderType=cv2.BORDER_REPLICATE)
    return np.asarray(grey - mean, dtype=np.float32)


def _measure_difference(target: Values, source: Values, disparity: Values) -> float:
    """Return the mean clipped difference of `target` (y, x) and `source` (y, x - disparity)."""
    rows, columns = np.nonzero(np.isfinite(disparity))
    step = max(1, len(rows) // _MOST_PIXELS)
    rows, columns = rows[::step], columns[::step]
    contrast = np.abs(target[rows, columns])
    informative = contrast >= np.median(contrast)  # uniform areas match everywhere
    rows, columns = rows[informative], columns[informative]
    width = target.shape[1]
    places = columns - disparity[rows, columns].astype(np.float64)
    inside = (places >= 0) & (places <= width - 1)
    values = np.interp(rows * width + places.clip(0, width - 1), np.arange(source.size), source.ravel())
    cut_off = 3 * float(np.sqrt((target**2).mean()))
    differences = np.minimum(np.abs(target[rows, columns] - values), cut_off)
    return float(np.where(inside, differences, cut_off).mean())
