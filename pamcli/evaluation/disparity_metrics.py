"""Compute disparity errors as KITTI and Middlebury define them, per image and per data set.

A data set has two averages: pooled over all pixels, as KITTI 2015 ranks and pam's documentation reports; and
the mean of the images, as KITTI 2012 and Middlebury rank. KITTI fills holes of a result first and reports the
density before. Elsewhere holes fail every threshold and are excluded from means and quantiles.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, format_size
from pamcli.errors import InputError, UsageError
from pamcli.evaluation import pixels
from pamcli.evaluation.loop import ImageFigures, Meter
from pamcli.evaluation.pixels import REGIONS, Mask
from pamcli.evaluation.protocols import DisparityProtocol
from pamcli.evaluation.tables import Figures, flatten
from pamcli.files.paths import pluralize
from pamcli.imaging.disparity_files import UNITS, measure_scale_factor, round_to_known_unit

BAD_THRESHOLDS = (0.5, 1, 2, 3, 4, 5, 6, 8)
"""Error thresholds, px, of bad pixels: KITTI 2012's Out uses 2 to 5 (3 is the headline), Middlebury and ETH3D
0.5, 1, 2 and 4, Booster 2, 4, 6 and 8."""

QUANTILES = {"a50": 0.5, "a90": 0.9, "a95": 0.95, "a99": 0.99}

METRICS = {
    "pixels": "number of counted pixels",
    "density": "% of the counted pixels with an estimate, before KITTI's interpolation",
    "invalid": "% of the counted pixels without an estimate (Middlebury)",
    "epe": "mean error, px, of estimated pixels (KITTI: after interpolation); Avg, avgerr",
    "rms": "root mean squared error, px, of estimated pixels (KITTI: after interpolation)",
    **{f"bad-{t:g}": f"% with an error above {t:g} px, or without an estimate" for t in BAD_THRESHOLDS},
    "d1": "% with an error above 3 px and above 5 % of the ground truth, or without an estimate",
    "d1-1": "% with an error above 1 px and above 5 % of the ground truth, or without an estimate",
    "d1-estimated": "d1 of the pixels that had an estimate before interpolation",
    **{
        name: f"px, error that {q:.0%} of the estimated pixels do not exceed (a50: median; all and noc only)"
        for name, q in QUANTILES.items()
    },
    "visible-precision": "% visible in both images, of the pixels predicted as visible",
    "visible-recall": "% predicted as visible, of the pixels visible in both images",
    "occluded-precision": "% occluded, of the pixels predicted as occluded",
    "occluded-recall": "% predicted as occluded, of the occluded pixels",
    "ause-epe": "area under the sparsification error of the confidence, by end-point error",
    "ause-bad-2": "area under the sparsification error of the confidence, by bad-2",
}


@dataclass(frozen=True)
class Estimate:
    """The result of a method for one sample."""

    disparity: NDArray[np.floating]  # (H, W), px; NaN or inf = no estimate (KITTI: also below 0)
    visible: Mask | None = None  # (H, W), True where visible in both images
    confidence: NDArray[np.floating] | None = None  # (H, W), in [0, 1]
    seconds: float | None = None  # run time of the method, s
    memory: int | None = None  # peak memory of the method beyond what was in use before, bytes
    again: Callable[..., Any] | None = None  # runs the network on the same pair again, for further outputs
    of_network: bool = False  # True for networks of this package, whose units need no check
    units: float | None = None  # units per pixel with which a result file was read


class DisparityMeter(Meter[Sample, Estimate]):
    """The metrics of a method on a data set; memory grows only by the metrics of each sample."""

    def __init__(self, protocol: DisparityProtocol | None = None, *, full_size: bool = False) -> None:
        super().__init__()
        self.protocol = protocol or DisparityProtocol()
        self.weights = self.protocol.weights
        self.full_size = full_size
        self._counters: dict[str, Counter[str]] = {}
        self.histograms = {"all": pixels.make_error_histogram(), "noc": pixels.make_error_histogram()}
        """Distributions of the errors of all counted pixels with an estimate; one takes 8 MB."""
        self._by_confidence = np.zeros((3, 1))
        self._confidence_errors = pixels.make_error_histogram()
        self._clipped = self._without_fine = 0

    def add(self, case: Sample, answer: Estimate) -> ImageFigures:
        """Measure one estimate; samples without a counted pixel add nothing. Raises InputError."""
        _check_estimate(case, answer)
        protocol, sample, times = self.protocol, case, 1
        if protocol.parts:
            sample = replace(sample, masks={**(sample.masks or {}), **pixels.compute_regions(sample)})
        if protocol.fine == "each":
            sample, times = pixels.use_fine_grid(sample)
        estimate = pixels.repeat_pixels(answer.disparity, times) * times
        bounded = protocol.clip and sample.calibration and sample.calibration.ndisp
        if bounded:
            estimate = np.where(np.isfinite(estimate), np.clip(estimate, 0, bounded), estimate)
        if protocol.within_width:
            with np.errstate(invalid="ignore"):
                estimate = np.where(np.abs(estimate) <= estimate.shape[1], estimate, np.nan)
        estimated = np.isfinite(estimate)
        if protocol.fill:
            estimated &= estimate >= 0
            known = np.where(estimated, estimate, np.nan).astype(np.float32)
            estimate = pixels.interpolate_background(known)
        nearest = protocol.fine == "nearest"
        truth, error, outliers = pixels.compute_pixel_errors(estimate, sample, nearest=nearest)
        counted = _mask_counted(truth, protocol)
        areas: dict[str, float] = {}
        if answer.confidence is not None:
            sure = counted & estimated
            confidence = pixels.repeat_pixels(answer.confidence, times)[sure]
            by_level = pixels.count_by_confidence(error[sure], confidence, name=sample.name)
            histogram = pixels.make_error_histogram(error[sure])
            if curve := pixels.compute_sparsification(by_level, histogram):
                areas = curve.areas()
            self._confidence_errors += histogram
            self._by_confidence = self._by_confidence + by_level
        regions: dict[str, dict[str, float]] = {}
        for region, mask in pixels.make_region_masks(sample, truth, counted, protocol.ranges).items():
            if not mask.any():
                continue
            counters = _count(error[mask], outliers[0][mask], outliers[1][mask], estimated[mask])
            if region == "all" and answer.visible is not None and sample.visible is not None:
                predicted, true = pixels.repeat_pixels(answer.visible, times)[mask], sample.visible[mask]
                kinds = (("visible", predicted, true), ("occluded", ~predicted, ~true))
                for kind, here, there in kinds if not true.all() else ():  # only if some pixels are occluded
                    counters[f"both-{kind}"] = int(np.count_nonzero(here & there))
                    counters[f"predicted-{kind}"] = int(np.count_nonzero(here))
                    counters[f"true-{kind}"] = int(np.count_nonzero(there))
            self._counters.setdefault(region, Counter()).update(counters)
            regions[region] = _compute_figures(counters, skip_holes=protocol.skip_holes)
            if region in self.histograms:
                finite = error[mask & np.isfinite(error)]
                self.histograms[region] += pixels.make_error_histogram(finite)
                regions[region] |= _find_quantiles(finite, floor=protocol.floor_quantiles)
        if regions:
            regions["all"] |= areas
        self.images.append(ImageFigures(sample.name, regions, answer.seconds, answer.memory))
        self._without_fine += bool(protocol.fine and case.fine is None and not self.full_size)
        self._clipped += bool(bounded)
        return self.images[-1]

    @cached_property
    def pooled_metrics(self) -> Figures:
        """Metrics over all pixels of the data set. Raises InputError if no pixel was counted."""
        protocol = self.protocol
        if not self._counters:
            limit = "" if protocol.max_gt is None else f" below {protocol.max_gt:g} px"
            images = pluralize(len(self.images), "image")
            message = f"nothing to measure: no pixel has ground truth{limit} in {images}"
            raise InputError(message, "measure on data with ground truth")
        pooled = {}
        for region in (*REGIONS, *pixels.name_ranges(protocol.ranges)):
            if region in self._counters:
                pooled[region] = _compute_figures(self._counters[region], skip_holes=protocol.skip_holes)
                for name, fraction in QUANTILES.items() if region in self.histograms else ():
                    pooled[region][name] = pixels.find_quantile(self.histograms[region], fraction)
        if curve := self.curve():
            pooled["all"] |= curve.areas()
        return pooled

    @property
    def headline(self) -> Figures:
        return self.pooled_metrics

    def curve(self) -> pixels.SparsificationCurve | None:
        """Return the sparsification curve over all pixels; None without confidence."""
        return pixels.compute_sparsification(self._by_confidence, self._confidence_errors)

    @property
    def notes(self) -> list[str]:
        """The rules that change the metrics, one clause each."""
        rules, notes = self.protocol, []
        if rules.fill:
            notes.append(
                "density is measured before holes are filled, all other metrics after, as KITTI does"
            )
        if rules.max_gt is not None:
            notes.append(f"only ground truth below {rules.max_gt:g} px counts")
        if rules.corner is not None:
            notes.append("only the {}x{} pixels at the bottom right count".format(*rules.corner))
        if rules.skip_holes:
            notes.append("pixels without an estimate count in density and invalid only")
        if rules.resize is not None:
            notes.append("images and ground truth are resized to {}x{} first".format(*rules.resize))
        if self._without_fine:
            pairs = pluralize(self._without_fine, "pair")
            notes.append(
                f"{pairs} without full-size ground truth: errors are in pixels of the images themselves"
            )
        if self._clipped:
            clipped = f"estimates of {pluralize(self._clipped, 'pair')} are clipped"
            notes.append(f"{clipped} to [0, ndisp], as Middlebury's evaluation does")
        return notes


def disparity_metrics(
    estimate: NDArray[np.floating],
    truth: NDArray[np.floating],
    *,
    visible: Mask | None = None,
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
        UsageError: An argument is no map.
        InputError: Shapes differ, a confidence is outside [0, 1], or no pixel is counted.
    """
    maps = {"estimate": estimate, "truth": truth, "visible": visible, "confidence": confidence}
    for name, values in maps.items():
        is_optional = name in ("visible", "confidence")
        if not (is_optional and values is None) and len(getattr(values, "shape", ())) != 2:
            shape = getattr(values, "shape", None)
            got = type(values).__name__ if shape is None else f"an array {shape}"
            raise UsageError(f"`{name}` must be an array (H, W), got {got}")
    image = np.zeros((*truth.shape, 3), np.uint8)
    mask = None if visible is None else np.asarray(visible, bool)  # masks read from images hold 0 and 255
    sample = Sample("the map", image, image, np.asarray(truth, np.float32), visible=mask)
    meter = DisparityMeter(DisparityProtocol(max_gt=max_gt))
    meter.add(sample, Estimate(estimate, confidence=confidence))
    return flatten(meter.pooled_metrics)


def _check_estimate(case: Sample, answer: Estimate) -> None:
    """Raise InputError without ground truth, or if an estimate has a different size, sign or unit."""
    truth = case.disparity
    if truth is None:
        raise InputError(f"{case.name} has no ground truth", "measure on a split that has ground truth")
    maps = {"disparity": answer.disparity, "visibility": answer.visible, "confidence": answer.confidence}
    for kind, values in maps.items():
        if values is not None and values.shape != truth.shape:
            raise InputError(
                f"{case.name}: the {kind} map is {format_size(values.shape)}, "
                f"but the ground truth is {format_size(truth.shape)}",
                "results must have the size of the ground truth; pam does not resize them",
            )
    if answer.of_network:
        return
    factor = measure_scale_factor(np.asarray(answer.disparity, np.float32), truth)
    if factor is None:
        return
    problem = f"the disparities are {factor:.3g} times the ground truth nearly everywhere"
    hint = "disparities must be in pixels of the images, neither multiplied nor of a smaller size"
    if factor < 0:
        problem = "the disparities are negative everywhere, but those of the left image are positive"
    if factor == 0:
        problem, hint = "the disparity is 0 everywhere", "check that these are the right files"
    elif answer.units is not None:
        right = round_to_known_unit(answer.units * factor)
        name = f", as {UNITS[int(right)]} stores them" if right in UNITS else ""
        hint = f"set `scale` {right:g} if {right:g} units are one pixel{name}"
    elif case.units is not None and factor > 0:
        right = round_to_known_unit(case.units / factor)
        hint = f"add the key scale={right:g} to the data set if {right:g} units are one pixel"
    raise InputError(f"{case.name}: {problem}", hint)


def _mask_counted(truth: NDArray[np.float32], rules: DisparityProtocol) -> Mask:
    """Return the mask of counted pixels, given the ground truth: (H, W), px, NaN = unknown."""
    counted = np.isfinite(truth)
    with np.errstate(invalid="ignore"):
        if not rules.any_truth:
            counted &= truth > 0
        if rules.max_gt is not None:
            counted &= truth < rules.max_gt
    if rules.corner is not None:
        width, height = rules.corner
        counted[: max(0, counted.shape[0] - height)] = False
        counted[:, : max(0, counted.shape[1] - width)] = False
    return counted


def _count(error: NDArray[np.float64], outlier: Mask, outlier_1: Mask, estimated: Mask) -> Counter[str]:
    """Return the sums over pixels that metrics need. `error`: (N,), inf = no estimate even after filling."""
    finite = error[np.isfinite(error)]
    counters: Counter[str] = Counter(
        {
            "pixels": len(error),
            "estimated": np.count_nonzero(estimated),
            "finite": len(finite),
            "sum": finite.sum(),
            "squares": (finite**2).sum(),
            "d1": np.count_nonzero(outlier),
            "d1-1": np.count_nonzero(outlier_1),
            "d1-estimated": np.count_nonzero(outlier & estimated),
        }
    )
    for threshold in BAD_THRESHOLDS:
        counters[f"bad-{threshold:g}"] = int(np.count_nonzero(error > threshold))
    return counters


def _compute_figures(counters: Counter[str], *, skip_holes: bool = False) -> dict[str, float]:
    pixels, finite, estimated = counters["pixels"], counters["finite"], counters["estimated"]
    # A hole fails every threshold, unless the protocol skips holes.
    holes, base = (pixels - finite, finite) if skip_holes else (0, pixels)
    figures = {
        "pixels": float(pixels),
        "density": 100 * estimated / pixels,
        "invalid": 100 - 100 * estimated / pixels,
        "epe": _divide(counters["sum"], finite),
        "rms": _divide(counters["squares"], finite) ** 0.5,
    }
    for name in (*(f"bad-{threshold:g}" for threshold in BAD_THRESHOLDS), "d1", "d1-1"):
        figures[name] = 100 * _divide(counters[name] - holes, base)
    figures["d1-estimated"] = 100 * _divide(counters["d1-estimated"], estimated)
    if "true-visible" in counters:
        for kind in ("visible", "occluded"):
            both = counters[f"both-{kind}"]
            figures[f"{kind}-precision"] = 100 * _divide(both, counters[f"predicted-{kind}"])
            figures[f"{kind}-recall"] = 100 * _divide(both, counters[f"true-{kind}"])
    return figures


def _divide(part: float, whole: float) -> float:
    """Return a mean or a share, NaN if there are no pixels."""
    return float(part / whole) if whole else float("nan")


def _find_quantiles(errors: NDArray[np.float64], *, floor: bool = False) -> dict[str, float]:
    """Return the error quantiles; `floor` as in `DisparityProtocol.floor_quantiles`."""
    if not len(errors):
        return dict.fromkeys(QUANTILES, float("nan"))
    if floor:
        places = [int(np.float32(len(errors)) * np.float32(q)) for q in QUANTILES.values()]
        values = np.sort(errors)[np.minimum(places, len(errors) - 1)]
    else:
        values = np.quantile(errors, list(QUANTILES.values()), method="inverted_cdf")
    return dict(zip(QUANTILES, values.tolist(), strict=True))
