"""Compute disparity errors as KITTI and Middlebury define them, per image and per data set.

A data set has two averages: pooled over all pixels, as KITTI 2015 ranks and pam's documentation reports; and
the mean of the images, as KITTI 2012 and Middlebury rank. KITTI fills holes of a result first and reports the
density before. Elsewhere holes fail every threshold and are excluded from means and quantiles.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, format_size
from pamcli.errors import InputError, UsageError
from pamcli.evaluation import pixels
from pamcli.evaluation.loop import ImageFigures, Meter, MethodResult
from pamcli.evaluation.pixels import REGIONS, Mask
from pamcli.evaluation.protocols import DisparityProtocol
from pamcli.evaluation.results import Figures, flatten
from pamcli.files.paths import pluralize
from pamcli.imaging.disparity_files import UNITS, measure_scale_factor, round_to_known_unit

BAD = {f"bad-{threshold:g}": threshold for threshold in (0.5, 1, 2, 3, 4, 5, 6, 8)}
"""Error thresholds, px, of bad pixels: KITTI 2012's Out uses 2 to 5 (3 is the headline), Middlebury and ETH3D
0.5, 1, 2 and 4, Booster 2, 4, 6 and 8."""

QUANTILES = {"a50": 0.5, "a90": 0.9, "a95": 0.95, "a99": 0.99}

METRICS = {
    "pixels": "number of counted pixels",
    "density": "% of the counted pixels with an estimate, before KITTI's interpolation",
    "invalid": "% of the counted pixels without an estimate (Middlebury)",
    "epe": "mean error, px, of estimated pixels (KITTI: after interpolation); Avg, avgerr",
    "rms": "root mean squared error, px, of estimated pixels (KITTI: after interpolation)",
    **{name: f"% with an error above {t:g} px, or without an estimate" for name, t in BAD.items()},
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
class Estimate(MethodResult):
    """The result of a method for one sample."""

    disparity: NDArray[np.floating]  # (H, W), px; NaN or inf = no estimate (KITTI: also below 0)
    visible: Mask | None = None  # (H, W), True where visible in both images
    confidence: NDArray[np.floating] | None = None  # (H, W), in [0, 1]
    again: Callable[..., Any] | None = None  # runs the network on the same pair again, for further outputs
    of_network: bool = False  # True for networks of this package, whose units need no check
    units: float | None = None  # units per pixel with which a result file was read


class DisparityMeter(Meter[Sample, Estimate]):
    """The metrics of a method on a data set; memory grows only by the metrics of each sample."""

    def __init__(
        self,
        protocol: DisparityProtocol | None = None,
        *,
        full_size: bool = False,
        protocols: Mapping[str, DisparityProtocol] = {},
    ) -> None:
        """Measure by a protocol, and in addition by others, named `protocols`."""
        self.images = []
        self.protocol = protocol or DisparityProtocol()
        self.weights = self.protocol.weights
        self.full_size = full_size
        self.by_protocol: dict[str, DisparityMeter] = {}
        for name, each in protocols.items():
            self.by_protocol[name] = DisparityMeter(each, full_size=full_size)
        self.counters: dict[str, Counter[str]] = {}
        """The sums of `_count` over the pixels of each region, and the number of images that have it."""
        self.histograms = {"all": np.zeros((2, pixels.BINS)), "noc": np.zeros((2, pixels.BINS))}
        """Distributions of the errors of all counted pixels with an estimate; one takes 8 MB."""
        self.by_confidence = np.zeros((3, 1))
        self.confidence_errors = np.zeros((2, pixels.BINS))
        self._clipped = self._without_fine = 0

    def add(self, case: Sample, answer: Estimate) -> ImageFigures:
        """Measure one estimate; samples without a counted pixel add nothing. Raises InputError."""
        _check_estimate(case, answer)
        protocol = self.protocol
        sample, found, estimated = self._apply_protocol(case, answer)
        nearest = protocol.fine == "nearest"
        truth, error, outliers = pixels.compute_pixel_errors(found.disparity, sample, nearest=nearest)
        masks = pixels.make_region_masks(sample, truth, protocol)
        areas: dict[str, float] = {}
        if found.confidence is not None:
            sure = masks["all"] & estimated
            by_level = pixels.count_by_confidence(error[sure], found.confidence[sure], name=sample.name)
            histogram = pixels.make_error_histogram(error[sure])
            if curve := pixels.compute_sparsification(by_level, histogram):
                areas = curve.areas
            self.confidence_errors += histogram
            self.by_confidence = self.by_confidence + by_level
        regions: dict[str, dict[str, float]] = {}
        for region, mask in masks.items():
            if not mask.any():
                continue
            counters = _count(error[mask], outliers[0][mask], outliers[1][mask], estimated[mask])
            if region == "all" and found.visible is not None and sample.visible is not None:
                predicted, true = found.visible[mask], sample.visible[mask]
                kinds = (("visible", predicted, true), ("occluded", ~predicted, ~true))
                for kind, here, there in kinds if not true.all() else ():  # only if some pixels are occluded
                    counters[f"both-{kind}"] = int(np.count_nonzero(here & there))
                    counters[f"predicted-{kind}"] = int(np.count_nonzero(here))
                    counters[f"true-{kind}"] = int(np.count_nonzero(there))
            self.counters.setdefault(region, Counter()).update(counters)
            regions[region] = _compute_figures(counters, skip_holes=protocol.skip_holes)
            if region in self.histograms:
                finite = error[mask & np.isfinite(error)]
                self.histograms[region] += pixels.make_error_histogram(finite)
                regions[region] |= _find_quantiles(finite, floor=protocol.floor_quantiles)
        if regions:
            regions["all"] |= areas
        self.images.append(ImageFigures(case.name, regions, answer.seconds, answer.memory))
        for meter in self.by_protocol.values():
            meter.add(case, answer)
        return self.images[-1]

    def _apply_protocol(self, sample: Sample, answer: Estimate) -> tuple[Sample, Estimate, Mask]:
        """Apply the rules to a sample and its estimate; return them, and the mask of estimated pixels."""
        protocol, estimate = self.protocol, answer.disparity
        self._without_fine += bool(protocol.fine and sample.fine is None and not self.full_size)
        if protocol.parts:
            sample = replace(sample, masks={**(sample.masks or {}), **pixels.compute_regions(sample)})
        if protocol.fine == "each" and sample.fine is not None:
            sample, times = pixels.use_fine_grid(sample)
            estimate = pixels.repeat_pixels(estimate * times, times)
            visible = (
                answer.visible if answer.visible is None else pixels.repeat_pixels(answer.visible, times)
            )
            sure = answer.confidence
            sure = sure if sure is None else pixels.repeat_pixels(sure, times)
            answer = replace(answer, visible=visible, confidence=sure)
        bounded = protocol.clip and sample.calibration and sample.calibration.ndisp
        if bounded:
            estimate = np.where(np.isfinite(estimate), np.clip(estimate, 0, bounded), estimate)
            self._clipped += 1
        if protocol.within_width:
            with np.errstate(invalid="ignore"):
                estimate = np.where(np.abs(estimate) <= estimate.shape[1], estimate, np.nan)
        estimated = np.isfinite(estimate)
        if protocol.fill:
            estimated &= estimate >= 0
            known = np.where(estimated, estimate, np.nan).astype(np.float32)
            estimate = pixels.interpolate_background(known)
        return sample, replace(answer, disparity=estimate), estimated

    @cached_property
    def pooled_metrics(self) -> Figures:
        """Metrics over all pixels of the data set. Raises InputError if no pixel was counted."""
        protocol = self.protocol
        if not self.counters:
            limit = "" if protocol.max_gt is None else f" below {protocol.max_gt:g} px"
            images = pluralize(len(self.images), "image")
            message = f"nothing to measure: no pixel has ground truth{limit} in {images}"
            raise InputError(message, "measure on data with ground truth")
        pooled = {}
        for region in (*REGIONS, *pixels.name_ranges(protocol.ranges)):
            if region in self.counters:
                pooled[region] = _compute_figures(self.counters[region], skip_holes=protocol.skip_holes)
                for name, fraction in QUANTILES.items() if region in self.histograms else ():
                    pooled[region][name] = pixels.find_quantile(self.histograms[region], fraction)
        if curve := pixels.compute_sparsification(self.by_confidence, self.confidence_errors):
            pooled["all"] |= curve.areas
        return pooled

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


def _count(error: NDArray[np.float64], outlier: Mask, outlier_1: Mask, estimated: Mask) -> Counter[str]:
    """Return the sums over pixels that metrics need. `error`: (N,), inf = no estimate even after filling."""
    finite = error[np.isfinite(error)]
    counters: Counter[str] = Counter(
        {
            "images": 1,
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
    for name, threshold in BAD.items():
        counters[name] = int(np.count_nonzero(error > threshold))
    return counters


def _compute_figures(counters: Counter[str], *, skip_holes: bool = False) -> dict[str, float]:
    """Return the metrics of the sums of `_count`; NaN where no pixel counts."""
    pixels = counters["pixels"]
    finite, estimated = counters["finite"] or math.nan, counters["estimated"] or math.nan
    # A hole fails every threshold, unless the protocol skips holes.
    holes, base = (pixels - counters["finite"], finite) if skip_holes else (0, pixels)
    figures = {
        "pixels": float(pixels),
        "density": 100 * counters["estimated"] / pixels,
        "invalid": 100 - 100 * counters["estimated"] / pixels,
        "epe": float(counters["sum"] / finite),
        "rms": float(counters["squares"] / finite) ** 0.5,
    }
    for name in (*BAD, "d1", "d1-1"):
        figures[name] = 100 * float((counters[name] - holes) / base)
    figures["d1-estimated"] = 100 * float(counters["d1-estimated"] / estimated)
    for kind in ("visible", "occluded") if "true-visible" in counters else ():
        for metric, whole in (("precision", "predicted"), ("recall", "true")):
            share = counters[f"both-{kind}"] / (counters[f"{whole}-{kind}"] or math.nan)
            figures[f"{kind}-{metric}"] = 100 * share
    return figures


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
