"""One call of the library: what it measures, leaves out, clips, resizes, and suspects."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pamcli.calibration.geometry import Calibration
from pamcli.data.listing import resize_sample
from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity import Disparity, evaluate
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.loop import measure
from pamcli.evaluation.methods import DisparityFiles, MatcherMethod
from pamcli.evaluation.protocols import USUAL
from pamcli.evaluation.report import render_report
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.imaging.resize import imresize_to

TRUTH = np.linspace(4, 40, 24 * 32, dtype=np.float32).reshape(24, 32)


class Held(Source):
    """Samples in memory."""

    def __init__(self, *samples: Sample) -> None:
        self.samples, self.names = samples, tuple(sample.name for sample in samples)

    def load(self, index: int) -> Sample:
        return self.samples[index]

    def first(self, count: int) -> Held:
        return Held(*self.samples[:count])


def sample(name: str = "a") -> Sample:
    view = np.random.default_rng(1).integers(0, 256, (*TRUTH.shape, 3), np.uint8)
    return Sample(name, view, view, disparity=TRUTH)


def measure_one(
    estimate: np.ndarray, one: Sample | None = None, units: float | None = None
) -> DisparityMeter:
    found = Estimate(np.asarray(estimate, np.float32), units=units)
    return measure(Disparity(), Held(one or sample()), {"one": lambda _: found}).meter


@pytest.mark.parametrize(
    ("factor", "units", "words"),
    [
        (256, None, "disparities are 256 times the ground truth nearly everywhere"),
        (1 / 256, None, "0.00391 times the ground truth"),
        (-0.25, None, "negative everywhere"),
        (0, None, "the disparity is 0 everywhere"),
        (64 / 256, 256, "`scale` 64 if 64 units are one pixel, as NeRF-Supervised Stereo stores them"),
        (-1, 1, "`scale` -1 if"),
    ],
)
def test_another_unit_or_sign_is_an_error_that_names_it(
    factor: float, units: float | None, words: str
) -> None:
    with pytest.raises(InputError, match=r"^a: the disparit") as refused:
        measure_one(TRUTH * factor, units=units)
    assert words in str(refused.value)


def test_the_unit_of_the_ground_truth_is_named() -> None:
    off = replace(sample(), disparity=TRUTH * np.float32(100 / 256), units=256.0)
    with pytest.raises(InputError, match=r"2\.56 times .*scale=100"):
        measure_one(TRUTH, off)


@pytest.mark.parametrize("factor", [1, 0.6, 1.7])
def test_merely_bad_estimates_are_measured(factor: float) -> None:
    assert measure_one(TRUTH * factor).pooled_metrics["all"]["density"] == 100


def test_samples_without_ground_truth_are_skipped_with_a_note() -> None:
    source = Held(replace(sample("a"), disparity=None), sample("b"), replace(sample("c"), disparity=None))
    found = measure(Disparity(), source, {"truth": lambda _: Estimate(TRUTH)})
    assert [image.name for image in found.meter.images] == ["b"]
    assert found.notes == ["2 of 3 pairs without ground truth skipped: a, c"]
    with pytest.raises(InputError, match=r"no pair has ground truth.* a"):
        measure(Disparity(), source.first(1), {"truth": lambda _: Estimate(TRUTH)})


def test_middlebury_clips_to_ndisp_where_it_is_known() -> None:
    known = replace(sample(), calibration=Calibration(100, 0.1, ndisp=45))
    disparity = TRUTH.copy()
    disparity.flat[0] = 1000
    for one, worst in ((known, 45 - TRUTH.min()), (sample(), 1000 - TRUTH.min())):
        meter = DisparityMeter(USUAL.get("middlebury"))
        meter.add(one, Estimate(disparity))
        assert meter.pooled_metrics["all"]["epe"] == pytest.approx(worst / TRUTH.size, rel=1e-4)
        assert any("ndisp" in note for note in meter.notes) == (one is known)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for part in ("left", "right", "disparity", "made"):
        (tmp_path / part).mkdir()
    for name in "ab":
        one = sample(name)
        for part, view in (("left", one.left), ("right", one.right)):
            picture = encode_image(RgbImage(np.asarray(view, np.uint8)), ".png", name=name)
            (tmp_path / part / f"{name}.png").write_bytes(picture)
        (tmp_path / "disparity" / f"{name}.pfm").write_bytes(encode_disparity(TRUTH, ".pfm").data)
        (tmp_path / "made" / f"{name}.pfm").write_bytes(encode_disparity(TRUTH + 1, ".pfm").data)
    return tmp_path


@pytest.mark.parametrize("protocols", [(), ("spring",)], ids=str)
def test_one_call_makes_figures_and_a_report(files: Path, protocols: tuple[str, ...]) -> None:
    """The study keeps its ranges under a protocol that has others."""
    task = Disparity(study="range", protocols=protocols)
    found = evaluate(task, [f"pairs:{files}?first=1"], [DisparityFiles(files / "made")])
    assert found.json()["sets"][0]["pooled"]["all"]["epe"] == pytest.approx(1, abs=1e-5)
    assert found.json()["study"]["kind"] == "range"
    assert "0 to 16" in [row["truth"] for row in found.json()["study"]["rows"]]
    page = render_report(found).decode()
    assert page.startswith("<!doctype html>")
    assert page.count("<figure><h3>") == 2
    assert "range of disparity" in page


def rows_of(page: bytes) -> list[str]:
    """The rows of a page's tables, without those of headings."""
    rows = [row.partition("</tr>")[0] for row in page.decode().split("<tr>")[1:]]
    return [row for row in rows if "<td" in row]


def test_a_report_does_not_repeat_rows(files: Path) -> None:
    """One pair, whose figures are those of its set, however they are averaged."""
    for name, truth in {"a": TRUTH, "b": TRUTH + 100}.items():
        (files / "disparity" / f"{name}.pfm").write_bytes(encode_disparity(truth, ".pfm").data)
        (files / "made" / f"{name}.pfm").write_bytes(encode_disparity(truth * 1.5 + 1, ".pfm").data)
    found = evaluate(Disparity(), [f"pairs:{files}?first=1"], [DisparityFiles(files / "made")])
    assert len(rows_of(render_report(found))) == 1
    assert set(found.json()["sets"][0]["pooled"]) == {"all", "0-100"}, "programs are told of all"

    found = evaluate(Disparity(), [f"pairs:{files}"], [DisparityFiles(files / "made")])
    rows = [(row["region"], row["average"]) for row in found.summary.rows]
    regions = ("all", "0-100", "100-200")
    assert rows == [*((region, "pooled") for region in regions), ("all", "mean of images")]
    shown = rows_of(render_report(found))
    assert len(shown) == len(set(shown)) == len(rows) + 2
    with pytest.raises(UsageError, match="is given twice"):
        evaluate(Disparity(), [f"pairs:{files}"] * 2, [DisparityFiles(files / "made")])


class Network:
    """Finds the truth, less where its search ends; right images of the wrong size are its undoing."""

    def __init__(self) -> None:
        self.max_disparity: int | None = None
        self.sizes: list[tuple[int, ...]] = []
        self.compute, self.device = self, torch.device("cpu")
        self.model, self.has_confidence, self.has_fixed_search = self, True, False

    def describe(self) -> dict[str, str]:
        return {"device": "cpu", "precision": "fp32"}

    def peak_memory(self) -> int:
        return 1

    def adaptation_note(self, height: int, width: int) -> str:
        return f"pictures of {width} x {height} px are padded"

    def __call__(self, left: np.ndarray, right: np.ndarray, *, extras: object = ()) -> Estimate:
        self.sizes.append(left.shape[:2])
        rows = np.linspace(0, TRUTH.shape[0] - 1, left.shape[0]).round().astype(int)
        columns = np.linspace(0, TRUTH.shape[1] - 1, left.shape[1]).round().astype(int)
        disparity = TRUTH[rows][:, columns] * np.float32(left.shape[1] / TRUTH.shape[1])
        found = np.minimum(disparity, self.max_disparity or np.inf).astype(np.float32)
        result = Estimate(found, confidence=np.ones_like(found))
        object.__setattr__(result, "right_disparity", found)
        return result


def test_a_study_of_the_resolution_gives_the_network_other_sizes_and_measures_the_full_one() -> None:
    network = Network()
    found = evaluate(Disparity(study="resolution"), [Held(sample())], [MatcherMethod(network)], worst=0)
    rows = {row["resolution"]: row for row in found.json()["study"]["rows"]}
    assert list(rows) == [0.25, 0.5, 1.0, 1.5, 2.0]
    said = "pictures of 32 x 24 px are padded; pictures of 16 x 16 px are padded and 2 more"
    assert said in found.notes, "of an exported network"
    assert network.sizes == [(24, 32), (16, 16), (16, 16), (36, 48), (48, 64)]
    assert rows[1.0]["epe"] == 0
    assert rows[2.0]["epe"] < 0.5
    assert 0 < rows[0.25]["epe"] < 4


def test_a_study_of_the_range_limits_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pamcli.evaluation.disparity.LIMITS", (20,))
    found = evaluate(Disparity(study="range"), [Held(sample())], [MatcherMethod(Network())], worst=1)
    rows = {(row["maximum"], row["truth"]): row for row in found.json()["study"]["rows"]}
    assert rows["as measured", "all"]["epe"] == 0
    assert rows["20 px", "0 to 16"]["epe"] == 0
    assert rows["20 px", "32 to 64"]["d1"] == 100
    titles = [panel.title.partition(",")[0] for panel in found.worst_pairs[0].panels]
    assert titles[-2:] == ["Left-right difference", "Uncertainty (1 - confidence)"]


def test_a_sample_without_one_result_is_measured_for_no_method(files: Path) -> None:
    (files / "made" / "a.pfm").unlink()
    some = DisparityFiles(files / "made", allow_missing=True)
    found = evaluate(Disparity(), [f"pairs:{files}"], [some, MatcherMethod(Network(), "exact")])
    assert [(row["method"], row["name"]) for row in found.images.rows] == [("made", "b"), ("exact", "b")]
    assert "1 pair without a prediction skipped: a" in found.notes
    with pytest.raises(UsageError, match="requires a network"):
        evaluate(Disparity(study="resolution"), [f"pairs:{files}"], [some])


VIEWS = np.random.default_rng(0).integers(0, 256, (2, 4, 8, 3), dtype=np.uint8)


def test_ground_truth_and_calibration_follow_the_width() -> None:
    truth = np.full((4, 8), 10, np.float32)
    truth[:, 4:] = 50
    truth[1, :4] = math.nan
    maps = {"right_disparity": truth + 2, "visible": truth > 20, "foreground": truth < 20}
    calibration = Calibration(focal_length=100, baseline=0.1, offset=8)
    sample = Sample("a", *VIEWS, disparity=truth, calibration=calibration, **maps)
    small = resize_sample(sample, 4, 4, imresize_to)
    assert np.array_equal(small.left, imresize_to(VIEWS[0], 4, 4))
    assert np.array_equal(small.right, imresize_to(VIEWS[1], 4, 4))
    assert small.disparity.dtype == np.float32
    assert small.disparity[0].tolist() == [5, 5, 25, 25]  # half the width; no value between 5 and 25
    assert np.isnan(small.disparity[1, :2]).all()
    assert small.right_disparity[0].tolist() == [6, 6, 26, 26]
    assert small.visible.dtype == bool
    assert small.visible[0].tolist() == [False, False, True, True]
    assert small.foreground[0].tolist() == [True, True, False, False]
    # The same depth as before: f b / (d + doffs).
    assert small.calibration == Calibration(focal_length=50, baseline=0.1, offset=4)
    # The height alone changes no disparity, and unknown parts stay unknown.
    flat = resize_sample(Sample("a", *VIEWS, disparity=np.full((4, 8), 10, np.float32)), 8, 2, imresize_to)
    assert flat.left.shape == (2, 8, 3)
    assert flat.disparity.tolist() == [[10] * 8] * 2
    assert (flat.visible, flat.calibration) == (None, None)
    assert resize_sample(Sample("a", *VIEWS), 4, 2, imresize_to).disparity is None
