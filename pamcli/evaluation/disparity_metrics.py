"""Errors of disparity maps as KITTI and Middlebury define them, of each picture and of a whole set.

Counted is every pixel whose truth is known and above 0. Figures have names (`METRICS`) and are given for
parts of the picture (`REGIONS`). Of a set there are two kinds, which differ: pooled, over all pixels of all
pictures, as KITTI 2015 ranks and as everything in pam's documentation is stated; and means of the pictures'
figures, as KITTI 2012 and Middlebury rank (there weighted, see `protocols`).

Holes of a result: KITTI fills them first (`interpolate_background`) and states the density before. Anywhere
else they stay: wrong by every threshold, and left out of means and quantiles, which have no value for them.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.evaluation.error_distributions import ConfidenceCurve, ConfidenceTally, ErrorHistogram
from pamcli.evaluation.figures import Figures, ImageFigures, Meter, Summary, flat, mean_figures
from pamcli.evaluation.protocols import DisparityProtocol, interpolate_background

BAD_THRESHOLDS = (0.5, 1, 2, 3, 4, 5)
"""Errors, px, above which a pixel is bad: 2 to 5 are KITTI 2012's Out (3 the headline), 0.5, 1, 2 and 4 those
of Middlebury and ETH3D."""

QUANTILES = {"a50": 0.5, "a90": 0.9, "a95": 0.95, "a99": 0.99}

REGIONS = {
    "all": "every pixel with truth (KITTI: occ)",
    "noc": "of them, those that both views see",
    "occluded": "of them, those that the right view does not see",
    "bg": "background (KITTI's object map)",
    "fg": "foreground (KITTI's object map)",
    "noc-bg": "background that both views see",
    "noc-fg": "foreground that both views see",
    "0-100": "truth below 100 px",
    "100-200": "truth from 100 to 200 px",
    ">200": "truth above 200 px",
    ">192": "truth above 192 px, the usual maximum of cost volumes",
}

METRICS = {
    "pixels": "pixels counted",
    "density": "% of them with an estimate, before KITTI's interpolation",
    "invalid": "% of them without one (Middlebury)",
    "epe": "mean error, px, of estimated pixels (KITTI: after interpolation); Avg, avgerr",
    "rms": "root of the mean squared error, px, of the same pixels",
    **{f"bad-{t:g}": f"% with an error above {t:g} px, or without an estimate" for t in BAD_THRESHOLDS},
    "d1": "% with an error above 3 px and above 5 % of the truth, or without an estimate",
    "d1-estimated": "the same of the pixels that had an estimate before interpolation",
    **{
        name: f"px, error that {q:.0%} of the estimated pixels do not exceed (all and noc only)"
        for name, q in QUANTILES.items()
    },
    "visible-precision": "% seen by both views of the pixels said to be",
    "visible-recall": "% said to be seen by both views of those that are",
    "occluded-precision": "% occluded of the pixels said to be",
    "occluded-recall": "% said to be occluded of those that are",
    "ause-epe": "area under the sparsification error of the confidence, by end-point error",
    "ause-bad-2": "the same by bad-2",
}


@dataclass(frozen=True)
class Estimate:
    """What a method says of a sample."""

    disparity: NDArray[np.floating]
    """(H, W) pixels; NaN or inf = no estimate (KITTI: below 0, too)."""
    visible: NDArray[np.bool_] | None = None
    """(H, W) pixels that the right view sees, too; measured where the truth knows occluded ones."""
    confidence: NDArray[np.floating] | None = None
    """(H, W) in [0, 1]."""
    seconds: float | None = None
    """What the network took."""
    again: Callable[..., Any] | None = None
    """Asks the network for more of the same pair."""


@dataclass(frozen=True, kw_only=True)
class DisparitySummary(Summary):
    """What a method reaches on a set; means are over the pictures that have the region."""

    pooled: Figures
    """Figures over all pixels of the set: the headline."""
    errors: ErrorHistogram
    """How large the errors are of all counted pixels with an estimate."""
    curve: ConfidenceCurve | None
    """How errors fall with confidence, over all pixels; None where no confidence was given."""
    wrong_from: float
    """Error, px, from which on the set's benchmark counts a pixel as wrong."""

    @property
    def headline(self) -> Figures:
        return self.pooled


class DisparityMeter(Meter[Sample, Estimate, DisparitySummary]):
    """Takes one sample after the other; memory does not grow with the set but for the figures of each."""

    def __init__(self, protocol: DisparityProtocol | None = None) -> None:
        self._images: list[ImageFigures] = []
        self.protocol = protocol or DisparityProtocol()
        self._counters: dict[str, Counter[str]] = {}
        self._histograms = {"all": ErrorHistogram(), "noc": ErrorHistogram()}
        self._confidence = ConfidenceTally()
        self._ratios: list[float] = []
        self._clipped = 0

    def add(self, case: Sample, answer: Estimate) -> ImageFigures:
        """Measure one estimate. A sample none of whose pixels counts adds nothing.

        Raises InputError naming the sample: no truth, another size, a confidence outside [0, 1].
        """
        sample, truth, estimate = case, case.disparity, answer.disparity
        visible, confidence = answer.visible, answer.confidence
        if truth is None:
            raise InputError(
                f"{sample.name} has no true disparity", "measure on a split that comes with ground truth"
            )
        _check_sizes(sample, truth.shape, estimate=estimate, visible=visible, confidence=confidence)
        bounded = self.protocol.clip and sample.calibration and sample.calibration.ndisp
        if bounded:
            estimate = np.where(np.isfinite(estimate), np.clip(estimate, 0, bounded), estimate)
        estimated = np.isfinite(estimate)
        if self.protocol.fill:
            estimated &= estimate >= 0
            estimate = interpolate_background(np.where(estimated, estimate, np.nan).astype(np.float32))
        with np.errstate(invalid="ignore"):
            counted = np.isfinite(truth) & (truth > 0)
            if self.protocol.max_gt is not None:
                counted &= truth < self.protocol.max_gt
            filled = np.where(np.isfinite(estimate), estimate, np.inf)
            error = np.abs(filled.astype(np.float64) - truth)
            outlier = _outliers(filled.astype(np.float32), truth)
        curve = None
        if confidence is not None:
            tally = ConfidenceTally()
            sure = counted & estimated
            tally.add(error[sure], confidence[sure], name=sample.name)
            self._confidence.merge(tally)
            curve = tally.curve()
        regions: dict[str, dict[str, float]] = {}
        for region, mask in _regions(sample, truth, counted, self.protocol.ranges).items():
            if not mask.any():
                continue
            counters = _counters(error[mask], outlier[mask], estimated[mask])
            if region == "all" and visible is not None and sample.visible is not None:
                counters.update(_agreement(visible[mask], sample.visible[mask]))
            self._counters.setdefault(region, Counter()).update(counters)
            regions[region] = _figures(counters)
            if region in self._histograms:
                finite = error[mask & np.isfinite(error)]
                self._histograms[region].add(finite)
                regions[region] |= _quantiles(finite)
        if regions:
            regions["all"] |= _areas(curve)
        image = ImageFigures(sample.name, regions, answer.seconds)
        self._images.append(image)
        self._ratios.append(_typical_ratio(answer.disparity, truth))
        self._clipped += bool(bounded)
        return image

    def summary(self) -> DisparitySummary:
        """Summarise all samples so far. Raises InputError: no pixel was counted."""
        protocol = self.protocol
        if not self._counters:
            limit = "" if protocol.max_gt is None else f" below {protocol.max_gt:g} px"
            raise InputError(
                f"nothing to measure: no pixel with a true disparity{limit} in {len(self._images)} pictures",
                "an empty set has no score",
            )
        regions = (*REGIONS, *range_regions(protocol.ranges))
        order = [region for region in regions if region in self._counters]
        pooled = {region: _figures(self._counters[region]) for region in order}
        for region, histogram in self._histograms.items():
            if region in pooled:
                pooled[region] |= {name: histogram.quantile(q) for name, q in QUANTILES.items()}
        curve = self._confidence.curve()
        pooled["all"] |= _areas(curve)
        return DisparitySummary(
            images=tuple(self._images),
            pooled=pooled,
            image_means=mean_figures(self._images, protocol.weights),
            errors=self._histograms["all"],
            curve=curve,
            wrong_from=protocol.wrong_from,
            notes=tuple(self._notes()),
            warnings=tuple(self._warnings()),
        )

    def _notes(self) -> Iterator[str]:
        yield from self.protocol.notes()
        if self._clipped:
            clipped = f"estimates of {self._clipped} pairs are clipped"
            yield f"{clipped} to [0, ndisp], as Middlebury's evaluation does"

    def _warnings(self) -> Iterator[str]:
        """Suspect another unit or sign: no method is so bad in half of the pictures."""
        known = [ratio for ratio in self._ratios if math.isfinite(ratio)]
        typical = float(np.median(known)) if known else 1.0
        if typical < 0:
            yield "most estimates are negative: disparities of the left view are positive"
        elif not 1 / 3 < typical < 3:
            small = f"1/{1 / typical:.0f} of" if typical else "0 times"
            times = f"{typical:.3g} times" if typical >= 0.01 else small
            asked = "are they in pixels, not multiplied or divided?"
            yield f"the estimates are typically {times} the truth: {asked}"


def disparity_metrics(
    estimate: NDArray[np.floating],
    truth: NDArray[np.floating],
    *,
    visible: NDArray[np.bool_] | None = None,
    confidence: NDArray[np.floating] | None = None,
    max_gt: float | None = None,
) -> dict[str, float]:
    """Measure one disparity map by its truth: the figures of `METRICS`, as "epe", "d1", "bad-2", "rms".

    >>> figures = pamcli.disparity_metrics(result.disparity, truth)
    >>> figures["epe"], figures["bad-2"]  # pixels, percent

    estimate, truth: (H, W) floating point, pixels of the left view; NaN or inf = no estimate, or not known.
    Counted is where the truth is known, above 0, and below max_gt px. A pixel without an estimate is wrong by
    every threshold, and left out of means. visible: (H, W), seen by the right view too: with it, figures of
    those alone are there as "noc epe" ..., of the others as "occluded epe" ... confidence: (H, W) in [0, 1],
    for "ause-epe" and "ause-bad-2".
    Raises InputError: other shapes than the truth's, a confidence outside [0, 1], no pixel to count.
    """
    picture = np.zeros((*truth.shape, 3), np.uint8)
    sample = Sample("the estimate", picture, picture, np.asarray(truth, np.float32), visible=visible)
    meter = DisparityMeter(DisparityProtocol(max_gt=max_gt))
    meter.add(sample, Estimate(estimate, confidence=confidence))
    return flat(meter.summary().pooled)


def _typical_ratio(disparity: NDArray[np.floating], truth: NDArray[np.float32]) -> float:
    """Return the typical ratio of estimate and truth; NaN where nothing is known of both."""
    with np.errstate(invalid="ignore"):
        both = (truth > 0) & np.isfinite(truth) & np.isfinite(disparity)
    return float(np.median(disparity[both] / truth[both])) if both.any() else math.nan


def _check_sizes(sample: Sample, shape: tuple[int, ...], **maps: NDArray[np.generic] | None) -> None:
    for kind, values in maps.items():
        if values is not None and values.shape != shape:
            sizes = [" x ".join(str(side) for side in reversed(size)) for size in (values.shape, shape)]
            raise InputError(
                f"{sample.name}: the {kind} has {sizes[0]} pixels, the true disparity {sizes[1]}",
                "results are measured at the size of the truth; nothing is resized silently",
            )


def _regions(
    sample: Sample, truth: NDArray[np.float32], counted: NDArray[np.bool_], edges: tuple[float, ...]
) -> dict[str, NDArray[np.bool_]]:
    """Mark the counted pixels of each region, and those of the ranges between edges."""
    masks = {"all": counted}
    if sample.visible is not None:
        masks |= {"noc": counted & sample.visible, "occluded": counted & ~sample.visible}
    if sample.foreground is not None:
        masks |= {"bg": counted & ~sample.foreground, "fg": counted & sample.foreground}
    if sample.visible is not None and sample.foreground is not None:
        masks |= {"noc-bg": masks["bg"] & sample.visible, "noc-fg": masks["fg"] & sample.visible}
    with np.errstate(invalid="ignore"):
        masks |= {
            "0-100": counted & (truth < 100),
            "100-200": counted & (truth >= 100) & (truth <= 200),
            ">200": counted & (truth > 200),
            ">192": counted & (truth > 192),
        }
        for (region, low), high in zip(range_regions(edges).items(), edges[1:], strict=True):
            masks[region] = counted & (truth >= low) & (truth < high)
    return masks


def range_regions(edges: tuple[float, ...]) -> dict[str, float]:
    """Name the regions of truth between one edge and the next, px, with their lower edges."""
    return {
        f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}": low
        for low, high in itertools.pairwise(edges)
    }


def _outliers(estimate: NDArray[np.float32], truth: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Mark what KITTI's D1 counts, in float32 as its kit: exactly 5 % exceeds 0.05 by a hair there."""
    error = np.abs(estimate - truth)
    with np.errstate(divide="ignore"):
        outlier: NDArray[np.bool_] = (error > 3) & ((error / np.abs(truth)).astype(np.float64) > 0.05)
    return outlier


def _counters(
    error: NDArray[np.float64], outlier: NDArray[np.bool_], estimated: NDArray[np.bool_]
) -> Counter[str]:
    """Count what adds up over pixels. error: (N,), inf = no estimate even after filling."""
    finite = error[np.isfinite(error)]
    return Counter(
        {
            "pixels": len(error),
            "estimated": np.count_nonzero(estimated),
            "finite": len(finite),
            "sum": finite.sum(),
            "squares": (finite**2).sum(),
            "d1": np.count_nonzero(outlier),
            "d1-estimated": np.count_nonzero(outlier & estimated),
            **{f"bad-{t:g}": np.count_nonzero(error > t) for t in BAD_THRESHOLDS},
        }
    )


def _agreement(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> dict[str, int]:
    if true.all():
        return {}  # the truth knows no occlusion here
    counts = {}
    for kind, here, there in (("visible", said, true), ("occluded", ~said, ~true)):
        counts[f"both-{kind}"] = int(np.count_nonzero(here & there))
        counts[f"said-{kind}"] = int(np.count_nonzero(here))
        counts[f"is-{kind}"] = int(np.count_nonzero(there))
    return counts


def _figures(counters: Counter[str]) -> dict[str, float]:
    pixels, finite, estimated = counters["pixels"], counters["finite"], counters["estimated"]
    figures = {
        "pixels": pixels,
        "density": 100 * estimated / pixels,
        "invalid": 100 - 100 * estimated / pixels,
        "epe": _ratio(counters["sum"], finite),
        "rms": _ratio(counters["squares"], finite) ** 0.5,
        **{f"bad-{t:g}": 100 * counters[f"bad-{t:g}"] / pixels for t in BAD_THRESHOLDS},
        "d1": 100 * counters["d1"] / pixels,
        "d1-estimated": 100 * _ratio(counters["d1-estimated"], estimated),
    }
    if "is-visible" in counters:
        for kind in ("visible", "occluded"):
            both = counters[f"both-{kind}"]
            figures[f"{kind}-precision"] = 100 * _ratio(both, counters[f"said-{kind}"])
            figures[f"{kind}-recall"] = 100 * _ratio(both, counters[f"is-{kind}"])
    return {name: float(value) for name, value in figures.items()}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _quantiles(errors: NDArray[np.float64]) -> dict[str, float]:
    if not len(errors):
        return dict.fromkeys(QUANTILES, float("nan"))
    values = np.quantile(errors, list(QUANTILES.values()), method="inverted_cdf")
    return dict(zip(QUANTILES, values.tolist(), strict=True))


def _areas(curve: ConfidenceCurve | None) -> dict[str, float]:
    return {} if curve is None else {"ause-epe": curve.ause_epe, "ause-bad-2": curve.ause_bad_2}
