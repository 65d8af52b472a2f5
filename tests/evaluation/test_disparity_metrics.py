"""Every figure on arrays small enough to count by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.evaluation.disparity_metrics import METRICS, DisparityMeter, Estimate, disparity_metrics
from pamcli.evaluation.pixels import REGIONS, compute_sparsification
from pamcli.evaluation.protocols import DisparityProtocol
from pamcli.evaluation.results import Figures

NAN = math.nan


def sample(truth: list[list[float]] | None, *, name: str = "one", **masks: list[list[int]]) -> Sample:
    views = np.zeros((1, 1, 3), np.uint8)
    known = None if truth is None else np.array(truth, np.float32)
    return Sample(name, views, views, known, **{key: np.array(mask, bool) for key, mask in masks.items()})


def meter_of(*pairs: tuple[Sample, list[list[float]]], **rules: Any) -> DisparityMeter:
    meter = DisparityMeter(DisparityProtocol(**rules))
    for one, estimate in pairs:
        meter.add(one, Estimate(np.array(estimate, np.float32)))
    return meter


def measured(one: Sample, estimate: list[list[float]], **rules: Any) -> Figures:
    return meter_of((one, estimate), **rules).images[0].figures


def test_one_pixel_wrong() -> None:
    figures = measured(sample([[10, 20, 30, 40]]), [[10, 20, 34, 40]])["all"]
    assert figures["pixels"] == 4
    assert (figures["epe"], figures["rms"]) == (1, 2)
    assert [figures[f"bad-{t}"] for t in ("0.5", "1", "2", "3")] == [25] * 4
    assert (figures["bad-4"], figures["bad-5"]) == (0, 0)  # 4 px is not more than 4 px
    assert figures["d1"] == 25
    assert (figures["density"], figures["invalid"]) == (100, 0)
    assert (figures["a50"], figures["a90"], figures["a99"]) == (0, 4, 4)


@pytest.mark.parametrize(
    ("truth", "estimate", "wrong"),
    [
        (10, 13, False),  # exactly 3 px
        (10, 13.01, True),
        (100, 95, True),  # exactly 5 %, which exceeds it in float32
        (100, 104, False),  # more than 3 px, less than 5 %
        (60, 63, False),  # both at once
        (20, 22, False),  # 10 %, but 2 px
    ],
)
def test_d1_at_its_borders(truth: float, estimate: float, wrong: bool) -> None:
    figures = measured(sample([[truth]]), [[estimate]])["all"]
    assert figures["d1"] == (100 if wrong else 0)


def test_only_pixels_with_ground_truth_count() -> None:
    figures = measured(sample([[NAN, 0, math.inf, -1, 8]]), [[1, 1, 1, 1, 9]])["all"]
    assert (figures["pixels"], figures["epe"]) == (1, 1)
    figures = measured(sample([[191.5, 192, 250]]), [[191.5] * 3], max_gt=192)
    assert (figures["all"]["pixels"], figures["all"]["epe"]) == (1, 0)
    assert ">192" not in figures


def test_holes_are_wrong_and_have_no_error() -> None:
    figures = measured(sample([[10, 10, 10, 10]]), [[10, NAN, 16, math.inf]])["all"]
    assert (figures["density"], figures["invalid"]) == (50, 50)
    assert figures["bad-5"] == figures["d1"] == 75
    assert (figures["epe"], figures["a50"], figures["a90"]) == (3, 0, 6)
    assert figures["d1-estimated"] == 50
    for fill in (False, True):
        figures = measured(sample([[10, 20]]), [[NAN, NAN]], fill=fill)["all"]
        assert figures["bad-0.5"] == figures["bad-5"] == figures["d1"] == 100
        assert figures["density"] == 0
        assert all(math.isnan(figures[name]) for name in ("epe", "rms", "a50", "a99", "d1-estimated"))


def test_filled_pixels_do_not_count_in_the_confidence_curve() -> None:
    meter = DisparityMeter(DisparityProtocol(fill=True))
    sure = np.array([[1, NAN, 0.5]], np.float32)
    meter.add(sample([[10, 10, 10]]), Estimate(np.array([[10, NAN, 12]], np.float32), confidence=sure))
    assert meter.pooled_metrics["all"]["density"] == pytest.approx(200 / 3)
    assert compute_sparsification(meter.by_confidence, meter.confidence_errors).epe[0] == 1


def test_a_mask_may_be_an_image() -> None:
    estimate, truth = np.array([[11.0, 22, 33]]), np.array([[10.0, 20, 30]])
    mask = np.array([[255, 0, 255]], np.uint8)
    found = disparity_metrics(estimate, truth, visible=mask)
    assert found == disparity_metrics(estimate, truth, visible=mask > 0)


def test_ranges_of_the_ground_truth() -> None:
    truth = [[1, 99.5, 100, 192, 193, 200, 200.5, 300]]
    figures = measured(sample(truth, visible=[[0] * 8]), [[0] * 8])
    pixels = {name: figures[name]["pixels"] for name in ("0-100", "100-200", ">200", ">192", "occluded")}
    assert pixels == {"0-100": 2, "100-200": 4, ">200": 2, ">192": 4, "occluded": 8}
    assert "noc" not in figures, "all are occluded"
    figures = measured(sample([[9.5, 10, 19.5, 20, 500]]), [[0] * 5], ranges=(10, 20, math.inf))
    assert (figures["10 to 20"]["pixels"], figures["20 and more"]["pixels"]) == (2, 2)


def test_pooled_and_means_of_images_differ() -> None:
    large, small = sample([[10, 10, 10]], name="large"), sample([[10, NAN, NAN]], name="small")
    meter = meter_of((large, [[10, 10, 10]]), (small, [[18, 0, 0]]))
    assert meter.counters["all"]["images"] == 2
    assert (meter.pooled_metrics["all"]["d1"], meter.image_means["all"]["d1"]) == (25, 50)
    assert (meter.pooled_metrics["all"]["epe"], meter.image_means["all"]["epe"]) == (2, 4)
    assert meter.pooled_metrics["all"]["rms"] == 4
    assert [image.name for image in meter.images] == ["large", "small"]


def test_means_take_the_images_that_have_the_region() -> None:
    one, other = (sample([[10, 10]], foreground=foreground) for foreground in ([[1, 0]], [[0, 0]]))
    meter = meter_of((one, [[12, 10]]), (other, [[10, 10]]), (sample([[10, 10]]), [[10, 10]]))
    assert [meter.counters[region]["images"] for region in ("all", "bg", "fg", "0-100")] == [3, 2, 1, 3]
    assert "noc" not in meter.counters
    assert meter.image_means["fg"]["epe"] == 2


def test_an_image_without_an_estimate_counts_in_the_means_but_not_one_without_truth() -> None:
    meter = meter_of((sample([[10]]), [[10]]), (sample([[10]]), [[NAN]]))
    assert meter.image_means["all"]["d1"] == meter.pooled_metrics["all"]["d1"] == 50
    assert math.isnan(meter.image_means["all"]["epe"])
    meter = meter_of((sample([[10]]), [[12]]), (sample([[NAN]]), [[12]]))
    assert meter.counters["all"]["images"] == 1
    assert meter.image_means["all"]["epe"] == meter.pooled_metrics["all"]["epe"] == 2


def test_visibility_is_measured_if_the_ground_truth_has_occlusions() -> None:
    meter = DisparityMeter()
    truth = sample([[10, 10, 10, 10, NAN]], visible=[[1, 1, 1, 0, 0]])
    estimate = np.full((1, 5), 10, np.float32)
    said = np.array([[1, 1, 0, 1, 1]], bool)
    figures = meter.add(truth, Estimate(estimate, visible=said)).figures["all"]
    assert figures["visible-precision"] == pytest.approx(200 / 3)
    assert figures["visible-recall"] == pytest.approx(200 / 3)
    assert (figures["occluded-precision"], figures["occluded-recall"]) == (0, 0)
    # An image whose truth has no occluded pixel says nothing about the mask.
    blind = meter.add(sample([[10] * 5], visible=[[1] * 5]), Estimate(estimate, visible=said)).figures["all"]
    assert "visible-precision" not in blind
    assert meter.pooled_metrics["all"]["visible-precision"] == pytest.approx(200 / 3)
    never = Estimate(np.full((1, 2), 10.0), visible=np.ones((1, 2), bool))
    figures = DisparityMeter().add(sample([[10, 10]], visible=[[1, 0]]), never).figures["all"]
    assert (figures["visible-recall"], figures["occluded-recall"]) == (100, 0)
    assert math.isnan(figures["occluded-precision"])


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(InputError, match="in 0 images"):
        _ = DisparityMeter().pooled_metrics
    meter = DisparityMeter()
    unknown = meter.add(sample([[NAN, 0]]), Estimate(np.ones((1, 2)), confidence=np.ones((1, 2))))
    assert unknown.figures == {}
    with pytest.raises(InputError, match="no pixel has ground truth in 1 image"):
        _ = meter.pooled_metrics
    with pytest.raises(InputError, match="below 192 px"):
        _ = meter_of((sample([[200]]), [[1]]), max_gt=192).pooled_metrics


def test_errors_name_the_sample() -> None:
    meter = DisparityMeter()
    with pytest.raises(InputError, match="bare has no ground truth"):
        meter.add(sample(None, name="bare"), Estimate(np.ones((1, 1))))
    with pytest.raises(InputError, match=r"tall: the disparity map is 1x2, .* 2x1"):
        meter.add(sample([[1, 1]], name="tall"), Estimate(np.ones((2, 1))))
    with pytest.raises(InputError, match=r"odd: the confidence"):
        meter.add(sample([[1, 1]], name="odd"), Estimate(np.ones((1, 2)), confidence=np.full((1, 2), 1.5)))
    with pytest.raises(InputError, match="in 0 images"):  # and they left nothing behind
        _ = meter.pooled_metrics


def test_every_figure_has_a_name_and_a_meaning() -> None:
    meter = DisparityMeter(DisparityProtocol(parts=True))
    one = sample([[10, 150, 201, 10]], visible=[[1, 0, 1, 1]], foreground=[[1, 1, 0, 0]])
    told = ("low-detail", "high-detail", "not-sky", "sky", *(f"class-{number}" for number in range(4)))
    one = replace(one, masks={name: np.ones((1, 4), bool) for name in told})
    meter.add(one, Estimate(np.full((1, 4), 10.0), visible=np.ones((1, 4), bool), confidence=np.ones((1, 4))))
    pooled = meter.pooled_metrics
    assert list(pooled) == list(REGIONS)
    assert set(pooled["all"]) == set(METRICS)
