"""One call of the library: what it measures, leaves out, clips, and suspects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pamcli.calibration.rectified import Calibration
from pamcli.data.open import open_data
from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity_run import DisparityProtocol, evaluate_disparity, measure_disparity
from pamcli.evaluation.methods import Estimate, FilesMethod, NetworkMethod
from pamcli.imaging.disparity_files import encode_disparity
from pamcli.imaging.images import Picture, encode_picture

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


def times(factor: float) -> dict[str, tuple[str, ...]]:
    found = measure_disparity(
        "set", Held(sample()), lambda _: Estimate(TRUTH * np.float32(factor)), DisparityProtocol()
    )
    return {"warnings": found.warnings}


@pytest.mark.parametrize(
    ("factor", "words"),
    [(256, "256 times the truth"), (1 / 256, "1/256 of the truth"), (-1, "negative"), (0, "0 times")],
)
def test_estimates_in_another_unit_or_of_another_sign_are_suspected(factor: float, words: str) -> None:
    (line,) = times(factor)["warnings"]
    assert words in line


@pytest.mark.parametrize("factor", [1, 0.5, 2])
def test_merely_bad_estimates_are_not(factor: float) -> None:
    assert times(factor)["warnings"] == ()


def test_samples_without_truth_are_left_out_and_said() -> None:
    source = Held(replace(sample("a"), disparity=None), sample("b"), replace(sample("c"), disparity=None))
    found = measure_disparity("set", source, lambda _: Estimate(TRUTH), DisparityProtocol())
    assert [image.name for image in found.images] == ["b"]
    assert found.notes == ("2 of 3 pairs have no truth, left out: a, c",)
    with pytest.raises(InputError, match="a has no true disparity, nor has any other pair"):
        measure_disparity("set", source.first(1), lambda _: Estimate(TRUTH), DisparityProtocol())


def test_middlebury_clips_to_ndisp_where_it_is_known() -> None:
    known = replace(sample(), calibration=Calibration(100, 0.1, ndisp=45))
    protocol = DisparityProtocol.of("middlebury")
    for one, worst in ((known, 45 - TRUTH.min()), (sample(), 1000 - TRUTH.min())):
        disparity = TRUTH.copy()
        disparity.flat[0] = 1000
        found = measure_disparity("set", Held(one), lambda _, d=disparity: Estimate(d), protocol)
        assert found.summary.pooled["all"]["epe"] == pytest.approx(worst / TRUTH.size, rel=1e-4)
        assert any("ndisp" in note for note in found.notes) == (one is known)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for part in ("left", "right", "disparity", "made"):
        (tmp_path / part).mkdir()
    for name in "ab":
        one = sample(name)
        for part, view in (("left", one.left), ("right", one.right)):
            picture = encode_picture(Picture(np.asarray(view, np.uint8)), ".png", name=name)
            (tmp_path / part / f"{name}.png").write_bytes(picture)
        (tmp_path / "disparity" / f"{name}.pfm").write_bytes(encode_disparity(TRUTH, ".pfm").data)
        (tmp_path / "made" / f"{name}.pfm").write_bytes(encode_disparity(TRUTH + 1, ".pfm").data)
    return tmp_path


def test_one_call_makes_figures_and_a_report(files: Path) -> None:
    found = evaluate_disparity([f"pairs:{files}?first=1"], FilesMethod(files / "made"), study="range")
    assert found.json()["sets"][0]["pooled"]["all"]["epe"] == pytest.approx(1, abs=1e-5)
    assert found.json()["study"]["kind"] == "range"
    assert "0 to 16" in [row["truth"] for row in found.json()["study"]["rows"]]
    page = found.report().decode()
    assert page.startswith("<!doctype html>")
    assert page.count("<figure><h3>") == 2
    assert "range of disparity" in page


def test_notes_count_what_was_asked_for(files: Path) -> None:
    (files / "disparity" / "b.pfm").unlink()
    assert open_data(f"pairs:{files}").absent == ("no truth (disparity) for 1 of 2 pairs: b",)
    assert open_data(f"pairs:{files}?first=1").absent == ()


class Network:
    """Finds the truth, less where its search ends; right pictures of the wrong size are its undoing."""

    def __init__(self) -> None:
        self.max_disparity: int | None = None
        self.sizes: list[tuple[int, ...]] = []
        self.compute = self

    def describe(self) -> dict[str, str]:
        return {"device": "cpu", "precision": "fp32"}

    def peak_memory(self) -> int:
        return 1

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
    found = evaluate_disparity([Held(sample())], NetworkMethod(network), study="resolution", worst=0)
    rows = {row["resolution"]: row for row in found.json()["study"]["rows"]}
    assert list(rows) == [0.25, 0.5, 1.0, 1.5, 2.0]
    assert network.sizes == [(24, 32), (16, 16), (16, 16), (36, 48), (48, 64)]
    assert rows[1.0]["epe"] == 0
    assert rows[2.0]["epe"] < 0.5
    assert 0 < rows[0.25]["epe"] < 4


def test_a_study_of_the_range_limits_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pamcli.evaluation.studies.LIMITS", (20,))
    found = evaluate_disparity([Held(sample())], NetworkMethod(Network()), study="range", worst=1)
    rows = {(row["maximum"], row["truth"]): row for row in found.json()["study"]["rows"]}
    assert rows["as measured", "all"]["epe"] == 0
    assert rows["20 px", "0 to 16"]["epe"] == 0
    assert rows["20 px", "32 to 64"]["d1"] == 100
    titles = [panel.title for panel in found.worst_pairs[0].panels]
    assert titles[-2:] == ["Left-right difference, dark 0 to bright 3 px", "Cycle error, dark 0 to bright 1"]


def test_files_have_one_resolution(files: Path) -> None:
    with pytest.raises(UsageError, match="runs a network"):
        evaluate_disparity([f"pairs:{files}"], FilesMethod(files / "made"), study="resolution")
