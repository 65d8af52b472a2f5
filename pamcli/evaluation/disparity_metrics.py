"""Compute disparity errors as KITTI and Middlebury define them, per image and per data set.

`DisparityProtocol.counts` selects the counted pixels: by default those with known ground truth above 0.
`preparing.errors_of` computes D1's outliers. Metrics have names (`METRICS`) and are reported per image region
(`REGIONS`). A data set has two averages: pooled over all pixels of all images, as KITTI 2015 ranks and as
pam's documentation reports; and the mean of the per-image metrics, as KITTI 2012 and Middlebury rank
(Middlebury weights images, see `protocols`).

KITTI fills holes of a result first (`interpolate_background`) and reports the density before. Elsewhere holes
remain: they fail every threshold and are excluded from means and quantiles.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.evaluation.figures import (
    ConfidenceCurve,
    ConfidenceTally,
    ErrorHistogram,
    Figures,
    ImageFigures,
    Meter,
    Summary,
    flat,
    mean_figures,
    size_of,
)
from pamcli.evaluation.preparing import errors_of, interpolate_background, on_fine_grid, repeated
from pamcli.evaluation.protocols import DisparityProtocol
from pamcli.evaluation.regions import REGIONS, found_regions, range_regions, region_masks
from pamcli.files.paths import pluralize as amount
from pamcli.imaging.disparity_units import UNITS, measure_scale_factor, round_to_known_unit

BAD_THRESHOLDS = (0.5, 1, 2, 3, 4, 5, 6, 8)
"""Error thresholds, px, of bad pixels: KITTI 2012's Out uses 2 to 5 (3 is the headline), Middlebury and ETH3D
0.5, 1, 2 and 4, Booster 2, 4, 6 and 8."""

QUANTILES = {"a50": 0.5, "a90": 0.9, "a95": 0.95, "a99": 0.99}

METRICS = {
    "pixels": "pixels counted",
    "density": "% of them with an estimate, before KITTI's interpolation",
    "invalid": "% of them without one (Middlebury)",
    "epe": "mean error, px, of estimated pixels (KITTI: after interpolation); Avg, avgerr",
    "rms": "root of the mean squared error, px, of the same pixels",
    **{f"bad-{t:g}": f"% with an error above {t:g} px, or without an estimate" for t in BAD_THRESHOLDS},
    "d1": "% with an error above 3 px and above 5 % of the truth, or without an estimate",
    "d1-1": "% with an error above 1 px and above 5 % of the truth, or without an estimate",
    "d1-estimated": "d1 of the pixels that had an estimate before interpolation",
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
    """The result of a method for one sample."""

    disparity: NDArray[np.floating]
    """(H, W), px; NaN or inf = no estimate (KITTI: also below 0)."""
    visible: NDArray[np.bool_] | None = None
    """(H, W), True where the pixel is visible in both images; measured if the ground truth has occlusions."""
    confidence: NDArray[np.floating] | None = None
    """(H, W), in [0, 1]."""
    seconds: float | None = None
    """Run time of the method, s."""
    memory: int | None = None
    """Peak memory of the method beyond what was in use before, bytes."""
    again: Callable[..., Any] | None = None
    """Runs the network on the same pair again, for further outputs."""
    of_network: bool = False
    """A network of this package made it, which has no unit to mistake: it is measured as it is."""
    units: float | None = None
    """Units per pixel with which a result file was read."""


@dataclass(frozen=True, kw_only=True)
class DisparitySummary(Summary):
    """The metrics of a method on a data set; means are over the images that have the region."""

    pooled: Figures
    """Metrics over all pixels of the data set: the headline."""
    errors: ErrorHistogram
    """Distribution of the errors of all counted pixels with an estimate."""
    curve: ConfidenceCurve | None
    """Sparsification curve over all pixels; None without confidence."""
    protocol: DisparityProtocol
    """The rules of measurement."""
    rules: Mapping[str, "DisparitySummary"] = field(default_factory=dict)
    """Summaries of the same estimates under further protocols, by name."""

    @property
    def headline(self) -> Figures:
        return self.pooled


class DisparityMeter(Meter[Sample, Estimate, DisparitySummary]):
    """A meter that accumulates samples; memory grows only by the metrics of each sample."""

    def __init__(
        self,
        protocol: DisparityProtocol | None = None,
        beside: Mapping[str, DisparityProtocol] | None = None,
        *,
        full_size: bool = False,
    ) -> None:
        """Create an empty meter.

        `protocol`: the rules of measurement. `beside`: further protocols, by name, under which the same
        estimates are measured. `full_size`: the images have the size at which the benchmark measures.
        """
        self._images: list[ImageFigures] = []
        self.protocol = protocol or DisparityProtocol()
        self.full_size = full_size
        self._beside = {
            name: DisparityMeter(rules, full_size=full_size) for name, rules in (beside or {}).items()
        }
        self._counters: dict[str, Counter[str]] = {}
        self._histograms = {"all": ErrorHistogram(), "noc": ErrorHistogram()}
        self._confidence = ConfidenceTally()
        self._clipped = self._without_fine = 0

    def add(self, case: Sample, answer: Estimate) -> ImageFigures:
        """Measure one estimate; samples without a counted pixel add nothing.

        Raises InputError: no ground truth, a different size, or a confidence outside [0, 1].
        """
        if case.disparity is None:
            raise InputError(
                f"{case.name} has no true disparity", "measure on a split that comes with ground truth"
            )
        maps = {"estimate": answer.disparity, "visible": answer.visible, "confidence": answer.confidence}
        for kind, values in maps.items():
            if values is not None and values.shape != case.disparity.shape:
                raise InputError(
                    f"{case.name}: the {kind} has {size_of(values.shape)} pixels, the true disparity "
                    f"{size_of(case.disparity.shape)}",
                    "results are measured at the size of the truth; nothing is resized silently",
                )
        if not answer.of_network:
            check_unit(case, answer)
        for meter in self._beside.values():
            meter.add(case, answer)
        protocol, sample, times = self.protocol, case, 1
        if protocol.parts:
            sample = replace(sample, masks={**(sample.masks or {}), **found_regions(sample)})
        if protocol.fine == "each":
            sample, times = on_fine_grid(sample)
        estimate = repeated(answer.disparity, times) * times
        visible = None if answer.visible is None else repeated(answer.visible, times)
        confidence = None if answer.confidence is None else repeated(answer.confidence, times)
        bounded = protocol.clip and sample.calibration and sample.calibration.ndisp
        if bounded:
            estimate = np.where(np.isfinite(estimate), np.clip(estimate, 0, bounded), estimate)
        if protocol.within_width:
            with np.errstate(invalid="ignore"):
                estimate = np.where(np.abs(estimate) <= estimate.shape[1], estimate, np.nan)
        estimated = np.isfinite(estimate)
        if protocol.fill:
            estimated &= estimate >= 0
            estimate = interpolate_background(np.where(estimated, estimate, np.nan).astype(np.float32))
        truth, error, outliers = errors_of(estimate, sample, nearest=protocol.fine == "nearest")
        counted = protocol.counts(truth)
        curve = None
        if confidence is not None:
            tally = ConfidenceTally()
            sure = counted & estimated
            tally.add(error[sure], confidence[sure], name=sample.name)
            self._confidence.merge(tally)
            curve = tally.curve()
        regions: dict[str, dict[str, float]] = {}
        for region, mask in region_masks(sample, truth, counted, protocol.ranges).items():
            if not mask.any():
                continue
            counters = _counters(error[mask], [each[mask] for each in outliers], estimated[mask])
            if region == "all" and visible is not None and sample.visible is not None:
                counters.update(_agreement(visible[mask], sample.visible[mask]))
            self._counters.setdefault(region, Counter()).update(counters)
            regions[region] = _figures(counters, skip_holes=protocol.skip_holes)
            if region in self._histograms:
                finite = error[mask & np.isfinite(error)]
                self._histograms[region].add(finite)
                regions[region] |= _quantiles(finite, floor=protocol.floor_quantiles)
        if regions:
            regions["all"] |= _areas(curve)
        image = ImageFigures(sample.name, regions, answer.seconds, answer.memory)
        self._images.append(image)
        self._without_fine += bool(protocol.fine and case.fine is None and not self.full_size)
        self._clipped += bool(bounded)
        return image

    def summary(self) -> DisparitySummary:
        """Summarize all samples so far; raise InputError if no pixel was counted."""
        protocol = self.protocol
        if not self._counters:
            limit = "" if protocol.max_gt is None else f" below {protocol.max_gt:g} px"
            raise InputError(
                f"nothing to measure: no pixel with a true disparity{limit} in {len(self._images)} pictures",
                "an empty set has no score",
            )
        regions = (*REGIONS, *range_regions(protocol.ranges))
        order = [region for region in regions if region in self._counters]
        skip = protocol.skip_holes
        pooled = {region: _figures(self._counters[region], skip_holes=skip) for region in order}
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
            protocol=protocol,
            rules={name: meter.summary() for name, meter in self._beside.items()},
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        yield from self.protocol.notes()
        if self._without_fine:
            said = f"{amount(self._without_fine, 'pair')} without a truth of the full size"
            yield f"{said}: errors are in pixels of the pictures themselves"
        if self._clipped:
            clipped = f"estimates of {self._clipped} pairs are clipped"
            yield f"{clipped} to [0, ndisp], as Middlebury's evaluation does"


def disparity_metrics(
    estimate: NDArray[np.floating],
    truth: NDArray[np.floating],
    *,
    visible: NDArray[np.bool_] | None = None,
    confidence: NDArray[np.floating] | None = None,
    max_gt: float | None = None,
) -> dict[str, float]:
    """Compute the metrics of one disparity map against ground truth: "epe", "d1", "bad-2", "rms", ...

    >>> figures = pamcli.disparity_metrics(result.disparity, truth)
    >>> figures["epe"], figures["bad-2"]  # pixels, percent

    Only pixels with known ground truth above 0 and below `max_gt` count. Pixels without an estimate fail
    every threshold and are excluded from means.

    Args:
        estimate: (H, W) float, px of the left image; NaN or inf = no estimate.
        truth: (H, W) float, px of the left image; NaN or inf = unknown.
        visible: (H, W), True where visible in both images; adds "noc epe", "occluded epe", ...
        confidence: (H, W) in [0, 1]; adds "ause-epe" and "ause-bad-2".
        max_gt: Upper limit of counted ground truth, px.

    Returns:
        The metrics of `METRICS`, by name.

    Raises:
        InputError: Shapes differ, a confidence is outside [0, 1], or no pixel is counted.
    """
    picture = np.zeros((*truth.shape, 3), np.uint8)
    seen = None if visible is None else np.asarray(visible, bool)  # masks read from images hold 0 and 255
    sample = Sample("the map", picture, picture, np.asarray(truth, np.float32), visible=seen)
    meter = DisparityMeter(DisparityProtocol(max_gt=max_gt))
    meter.add(sample, Estimate(estimate, confidence=confidence))
    return flat(meter.summary().pooled)


def check_unit(case: Sample, answer: Estimate) -> None:
    """Raise InputError if an estimate is negative or off from the ground truth by one constant factor."""
    assert case.disparity is not None
    factor = measure_scale_factor(np.asarray(answer.disparity, np.float32), case.disparity)
    if factor is None:
        return
    said = f"{case.name}: the disparities are {factor:.3g} times the ground truth nearly everywhere"
    if factor == 0:
        raise InputError(f"{case.name}: the disparities are 0 everywhere", "are these the right files?")
    if factor < 0:
        said = f"{case.name}: the disparities are negative everywhere, those of the left view are positive"
    if answer.units is not None:
        right = round_to_known_unit(answer.units * factor)
        name = f", as {UNITS[int(right)]} stores them" if right in UNITS else ""
        raise InputError(said, f"`scale` {right:g} if {right:g} units are one pixel{name}")
    if case.units is not None and factor > 0:
        right = round_to_known_unit(case.units / factor)
        raise InputError(
            said, f"the key scale={right:g} of the data set if {right:g} units are one pixel of it"
        )
    raise InputError(
        said, "disparities are in pixels of the images, neither multiplied nor of a smaller size"
    )


def _counters(
    error: NDArray[np.float64], outliers: Sequence[NDArray[np.bool_]], estimated: NDArray[np.bool_]
) -> Counter[str]:
    """Return the sums over pixels that metrics need. `error`: (N,), inf = no estimate even after filling."""
    finite = error[np.isfinite(error)]
    outlier, outlier_1 = outliers
    return Counter(
        {
            "pixels": len(error),
            "estimated": np.count_nonzero(estimated),
            "finite": len(finite),
            "sum": finite.sum(),
            "squares": (finite**2).sum(),
            "d1": np.count_nonzero(outlier),
            "d1-1": np.count_nonzero(outlier_1),
            "d1-estimated": np.count_nonzero(outlier & estimated),
            **{f"bad-{t:g}": np.count_nonzero(error > t) for t in BAD_THRESHOLDS},
        }
    )


def _agreement(said: NDArray[np.bool_], true: NDArray[np.bool_]) -> dict[str, int]:
    if true.all():
        return {}  # the ground truth has no occluded pixels here
    counts = {}
    for kind, here, there in (("visible", said, true), ("occluded", ~said, ~true)):
        counts[f"both-{kind}"] = int(np.count_nonzero(here & there))
        counts[f"said-{kind}"] = int(np.count_nonzero(here))
        counts[f"is-{kind}"] = int(np.count_nonzero(there))
    return counts


def _figures(counters: Counter[str], *, skip_holes: bool = False) -> dict[str, float]:
    pixels, finite, estimated = counters["pixels"], counters["finite"], counters["estimated"]
    # A hole fails every threshold, unless the protocol skips holes.
    holes, base = (pixels - finite, finite) if skip_holes else (0, pixels)
    figures = {
        "pixels": pixels,
        "density": 100 * estimated / pixels,
        "invalid": 100 - 100 * estimated / pixels,
        "epe": _ratio(counters["sum"], finite),
        "rms": _ratio(counters["squares"], finite) ** 0.5,
        **{f"bad-{t:g}": 100 * _ratio(counters[f"bad-{t:g}"] - holes, base) for t in BAD_THRESHOLDS},
        "d1": 100 * _ratio(counters["d1"] - holes, base),
        "d1-1": 100 * _ratio(counters["d1-1"] - holes, base),
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


def _quantiles(errors: NDArray[np.float64], *, floor: bool = False) -> dict[str, float]:
    """Return the error quantiles; `floor` as in `DisparityProtocol.floor_quantiles`."""
    if not len(errors):
        return dict.fromkeys(QUANTILES, float("nan"))
    if floor:
        places = [int(np.float32(len(errors)) * np.float32(q)) for q in QUANTILES.values()]
        values = np.sort(errors)[np.minimum(places, len(errors) - 1)]
    else:
        values = np.quantile(errors, list(QUANTILES.values()), method="inverted_cdf")
    return dict(zip(QUANTILES, values.tolist(), strict=True))


def _areas(curve: ConfidenceCurve | None) -> dict[str, float]:
    return {} if curve is None else {"ause-epe": curve.ause_epe, "ause-bad-2": curve.ause_bad_2}
