"""`pam train disparity --unsupervised`: the default network learns a person's own pairs, and is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse
from PIL import Image
from safetensors.numpy import load_file

from pamcli.registry.catalog import DEFAULT_MATCHING, locate
from pamcli.registry.resolution import EFFORTS

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
LITTLE = ["--batch", "1", "--crop", "64x32", "--workers", "0", "--device", "cpu", "--precision", "fp32"]
ADAPT = ["train", "disparity", "--unsupervised", "--data", "pairs:mine", *LITTLE]


@pytest.fixture(autouse=True)
def match_at_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match small images at their own size, not upscaled, in a quarter of the time."""
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=1.0))


@pytest.fixture
def mine(here: Path) -> Path:
    """Five pairs of 96 x 64 pixels, and a truth that nobody can read."""
    for side in ("left", "right"):
        picture = Image.open(SAMPLE / f"{side}.png").convert("RGB")
        Path("mine", side).mkdir(parents=True)
        for number in range(5):
            place = 200 + 60 * number, 200
            picture.crop((*place, place[0] + 96, place[1] + 64)).save(f"mine/{side}/{number}.png")
    Path("mine/disparity").mkdir()
    for number in range(5):
        Path(f"mine/disparity/{number}.pfm").write_bytes(b"who reads this fails")
    return here / "mine"


def weights(path: Path) -> dict[str, np.ndarray]:
    return dict(load_file(path))


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def test_the_default_network_is_adapted_and_what_is_better_is_said_and_named(mine: Path) -> None:
    run = pam(*ADAPT, "--steps", "2", "--set", "validate_every=1", "-o", "run", "--jsonl")
    assert run.code == 0, run.stderr
    assert f"pam: recipe adapt from {DEFAULT_MATCHING}, " in run.stderr
    assert "pam: held out for validation: 1 of 5 pairs (2)" in run.stderr
    assert "pam: computing pseudo-labels of 5 pairs" in run.stderr
    assert "pam: writes a checkpoint at the end of the run, also when it is stopped" in run.stderr
    labels = [name for name in names("run") if name.startswith("labels/")]
    numbers = ("000000", "000001", "000003", "000004", "aside/000002")
    assert labels == [f"labels/0/{number}.tif" for number in numbers]
    *records, end = run.records
    figures = {record["step"]: record["figure"] for record in records if "figure" in record}
    assert list(figures) == [0, 1, 2]
    gained = end["gained"]
    assert (gained["before"], gained["after"]) == (figures[0], min(figures[1], figures[2]))
    assert gained["better"] == (gained["after"] < 0.9 * gained["before"])
    verdict = "better: " if gained["better"] else "not clearly better: "
    assert run.stderr.splitlines()[-1].startswith(f"pam: {verdict}")
    assert end["weights"] == "run/best.safetensors"
    best, last, first = Path(end["weights"]), Path("run/last.safetensors"), locate(DEFAULT_MATCHING)
    assert not same(last, first)
    assert same(best, first) == (not gained["better"])
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert set(log[1]["losses"]) == {"refined", "likelihood"}


def test_weights_that_became_worse_are_kept_but_not_recommended(mine: Path) -> None:
    run = pam(*ADAPT, "--steps", "1", "--learning-rate", "0.1", "-o", "run")
    assert run.code == 0, run.stderr
    assert run.lines == ["run/best.safetensors"]
    said = run.stderr.splitlines()[-1]
    assert said.startswith("pam: not clearly better: ")
    assert "run/best.safetensors has the initial weights, run/last.safetensors the new" in said
    assert same(Path("run/best.safetensors"), locate(DEFAULT_MATCHING))
    assert not same(Path("run/last.safetensors"), Path("run/best.safetensors"))


def test_a_run_that_stops_before_its_labels_are_found_goes_on(mine: Path) -> None:
    run = pam(*ADAPT, "--steps", "1", "--max-minutes", "0.00001", "-o", "run")
    assert (run.code, run.lines) == (0, [])
    assert "pam: 0 of 5 pseudo-labels are written" in run.stderr
    assert "continue with: pam train disparity --resume run" in run.stderr
    goes_on = pam("train", "disparity", "--resume", "run", "--workers", "0", "--device", "cpu")
    assert goes_on.code == 0, goes_on.stderr
    assert goes_on.lines == ["run/best.safetensors"]
    assert "computing pseudo-labels of 5 pairs" in goes_on.stderr
    label = Path("run/labels/0/000003.tif")
    label.unlink()
    more = ("--workers", "0", "--device", "cpu", "--steps", "9", "--quiet")
    refuse(
        pam("train", "disparity", "--resume", "run", *more),
        3,
        str(label),
        "there is no such file",
        "start a new run",
    )


def test_a_held_out_pair_without_labels_is_not_measured(mine: Path) -> None:
    for side in ("left", "right"):
        Image.new("RGB", (96, 64)).save(f"mine/{side}/2.png")
    run = pam(*ADAPT, "--steps", "1", "-o", "run")
    assert run.code == 0, run.stderr
    assert "pairs: block matching finds nothing reliable in held-out pairs" in run.stderr
    assert run.lines == ["run/last.safetensors"]
    more = pam("train", "disparity", "--resume", "run", "--workers", "0", "--device", "cpu", "--steps", "2")
    assert more.code == 0, more.stderr
