"""Methods side by side: intervals that hold the truth, differences, parts of images, memory, OpenCV."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from test_measuring import TRUTH, Held, Network, sample

from pamcli.data.source import Sample
from pamcli.errors import UsageError
from pamcli.evaluation.comparison import LEAST_SCENES, compare_methods, compute_interval
from pamcli.evaluation.disparity import Disparity, evaluate
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import ImageFigures
from pamcli.evaluation.methods import MatcherMethod, measure_peak
from pamcli.evaluation.opencv_methods import SemiGlobalMethod
from pamcli.evaluation.pixels import compute_regions
from pamcli.evaluation.report import render_report
from pamcli.evaluation.results import Evaluation
from pamcli.inference.device import peak_memory


def test_intervals_hold_the_truth_in_93_to_97_of_100_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 scenes of 1 to 5 images, which are alike, with values of a skewed distribution."""
    monkeypatch.setattr("pamcli.evaluation.comparison.DRAWS", 1000)
    random = np.random.default_rng(3)
    held = 0
    for _ in range(600):
        of = np.repeat(np.arange(30), random.integers(1, 6, 30))
        each = random.gamma(2, 0.5, 30)
        low, high = compute_interval(each[of] + random.normal(0, 0.5, len(of)), of.tolist())
        held += low <= 1 <= high
    assert 0.93 <= held / 600 <= 0.97


def test_intervals_of_equal_values_of_too_few_scenes_and_of_weights() -> None:
    assert compute_interval(np.full(6, 2.0), range(6)) == (2, 2)
    assert all(map(math.isnan, compute_interval(np.arange(4.0), range(LEAST_SCENES - 1))))
    weights = np.array([1e-9, 1, 1e-9, 1, 1e-9, 1])
    assert compute_interval(np.array([0, 1, 0, 1, 0, 1.0]), range(6), weights) == pytest.approx(
        (1, 1), abs=1e-6
    )


def test_differences_use_the_weights_of_the_protocol() -> None:
    """Middlebury's table halves some images; the mean of +1 and +4, the second one halved, is +2."""

    def summary(piano: float, other: float) -> SimpleNamespace:
        figures = {"set/Piano": piano, "set/PianoL": other}
        images = [ImageFigures(name, {"all": {"epe": value}}) for name, value in figures.items()]
        return SimpleNamespace(images=images, weights={"PianoL": 0.5})

    methods = {"one": summary(2, 5), "other": summary(1, 1)}
    measured = SimpleNamespace(methods=methods, source=SimpleNamespace(scene=str))
    found = compare_methods(measured, "one", "other", "epe")  # type: ignore[arg-type]
    assert (found["mean"], found["images"], found["scenes"]) == (2, 2, 2)


class Off(Network):
    """Is off by so many pixels, more in one image than in others."""

    def __init__(self, by: float, worst: float) -> None:
        super().__init__()
        self.by, self.worst = by, worst

    def __call__(self, left: np.ndarray, right: np.ndarray, *, extras: object = ()) -> Estimate:
        by = self.worst if len({*map(int, left[0, 0])}) == 1 else self.by
        return Estimate((TRUTH + np.float32(by)).astype(np.float32))


def compared(source: Held, networks: dict[str, Off], worst: int = 0) -> Evaluation:
    methods = [MatcherMethod(network, name, extras=False) for name, network in networks.items()]
    return evaluate(Disparity(comparing=True), [source], methods, worst=worst)


def several(count: int) -> Held:
    """Images in as many scenes; the last one begins with a grey pixel."""
    found = [sample(f"scene{number}/frame_0001") for number in range(count)]
    found[-1].left[0, 0] = 7
    return Held(*found)


def test_methods_are_compared_with_the_first_and_shown_where_they_differ_most() -> None:
    found = compared(several(8), {"one": Off(1, 1), "two": Off(1.5, 9)}, worst=2)
    assert found.title == "Disparity of one and two"
    side, parts = found.sections
    first, second = side.rows
    assert (first["epe"], second["epe"]) == (pytest.approx(1), pytest.approx((7 * 1.5 + 9) / 8))
    assert "epe-first" not in first
    assert str(second["epe-first"]).startswith("+1.44 [+")
    numbers = found.json()["comparison"]
    assert numbers["reference"] == "one"
    far = numbers["methods"][1]["differences"]["epe"]
    assert (far["mean"], far["images"], far["scenes"]) == (pytest.approx(1.4375), 8, 8)
    assert 0 < far["low"] < far["mean"] < far["high"] < 10, "one scene is far off, the others are alike"
    assert {row["part"] for row in parts.rows} >= {"all", "0 to 16 px", "16 to 32 px", "32 to 64 px"}
    assert found.worst_pairs[0].name == "scene7/frame_0001"
    captions = ("one: D1 0.0 %, end-point error 1.00 px", "two: D1 100.0 %, end-point error 9.00 px")
    assert found.worst_pairs[0].caption == "; ".join(captions)
    rows = [(row["method"], row["name"]) for row in found.images.rows]
    assert rows == [(method, f"scene{n}/frame_0001") for n in range(8) for method in ("one", "two")]
    titles = [panel.title for panel in found.worst_pairs[0].panels]
    assert titles[0] == "Left image"
    assert titles[2:] == ["one: disparity", "one: error", "two: disparity", "two: error"]
    page = render_report(found).decode()
    assert "Where the methods differ most" in page
    assert "Method comparison" in page
    assert any("bootstrap of 8 scenes" in note for note in found.notes)
    assert "ause-epe" not in found.json()["sets"][0]["pooled"]["all"], "nothing but disparity is asked for"


def test_edges_and_textureless_parts() -> None:
    truth = np.full((20, 30), 10, np.float32)
    truth[:, 15:] = 14
    left = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    left[:10] = 90
    found = compute_regions(Sample("a", left, left, disparity=truth))
    assert found["edges"][5].nonzero()[0].tolist() == list(range(10, 20))
    assert found["textureless"][:9].all()
    assert found["textureless"][11:].mean() < 0.01
    deep = compute_regions(Sample("a", left.astype(np.uint16) * 257, left, disparity=truth))
    assert np.array_equal(deep["textureless"], found["textureless"])


def test_memory_excludes_what_was_in_use_before() -> None:
    def take() -> int:
        return int(np.ones(200_000_000, np.uint8).sum())

    result, memory = measure_peak(take)
    assert result == 200_000_000
    if not Path("/proc/self/clear_refs").exists():
        assert memory is None
    else:
        assert 190e6 < memory < 300e6, "larger than what malloc keeps for itself"
    most = peak_memory(torch.device("cpu"))
    measure_peak(lambda: 1)
    assert peak_memory(torch.device("cpu")) >= most, "the peak of all pairs, not of the last one"


def test_opencv_finds_a_shift_and_says_its_settings() -> None:
    random = np.random.default_rng(0)
    wide = np.repeat(random.integers(0, 256, (80, 220, 1), np.uint8), 3, axis=2)
    left, right = wide[:, :200], wide[:, 12:212]
    method = SemiGlobalMethod("sgbm", max_disparity=40)
    pair = Sample("a", left, right, disparity=np.full((80, 200), 12, np.float32))
    found = method.run(pair)
    assert found.disparity.shape == (80, 200)
    assert np.median(np.abs(found.disparity - 12)) < 0.5
    assert found.seconds is not None
    assert np.isfinite(found.disparity).all(), "holes are filled"
    dark = Sample("a", *(20_000 + 2 * view.astype(np.uint16) for view in (left, right)))
    assert np.median(np.abs(method.run(dark).disparity - 12)) < 0.5, "stretched, as for the networks"
    assert re.search("numDisparities 40, .*P1 216", dict(method.facts())["settings"])


def test_the_wls_filter_is_asked_for_where_it_is_not() -> None:
    if hasattr(cv2, "ximgproc"):
        assert "WLS filter: Lambda 8000" in dict(SemiGlobalMethod(wls=True).facts())["settings"]
    else:
        with pytest.raises(UsageError, match=r"(?s)WLS filter.*opencv-contrib"):
            SemiGlobalMethod(wls=True)
