"""pam eval disparity."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import eval_trees
import numpy as np
import pytest
from pam_program import answer, pam, refuse, unchanged

from pamcli.data.listing import resize_sample
from pamcli.data.source import Sample
from pamcli.evaluation.disparity_metrics import METRICS, DisparityMeter, Estimate
from pamcli.evaluation.protocols import PROTOCOLS, DisparityProtocol
from pamcli.evaluation.tables import flatten
from pamcli.imaging.resize import imresize_to
from pamcli.inference.matcher import StereoMatcher

KITTI = "kitti2015:kitti"
NAMES = list(eval_trees.BOXES)


def measure_network(
    samples: list[Sample], *, kitti: bool = True, rounded: bool = False, **protocol: Any
) -> DisparityMeter:
    """What the network reaches on the samples, measured without the command; `rounded` as a PNG stores it."""
    found = DisparityMeter(DisparityProtocol(fill=kitti, **protocol))
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32")
    for sample in samples:
        extras = {"confidence"} if sample.visible is None else {"confidence", "visible"}
        result = matcher(sample.left, sample.right, extras=extras)
        disparity = np.round(256 * result.disparity) / np.float32(256) if rounded else result.disparity
        found.add(sample, Estimate(disparity, visible=result.visible, confidence=result.confidence))
    return found


def of_files(made: dict[str, np.ndarray], *, kitti: bool = True) -> DisparityMeter:
    meter = DisparityMeter(DisparityProtocol(fill=kitti))
    for sample in eval_trees.crops():
        if sample.name in made:
            meter.add(sample, Estimate(made[sample.name]))
    return meter


def without_masks() -> list[Sample]:
    """The samples as the tree `pairs` has them."""
    return [replace(sample, visible=None, foreground=None) for sample in eval_trees.crops()]


def same(numbers: dict[str, Any], summary: DisparityMeter) -> None:
    """Assert that the figures of a set are those of a summary, exactly."""
    for key, figures in (("pooled", summary.pooled_metrics), ("image_means", summary.image_means)):
        expected = {
            region: {name: None if math.isnan(value) else value for name, value in values.items()}
            for region, values in figures.items()
        }
        assert numbers[key] == expected
    assert numbers["images"] == summary.image_counts["all"]
    assert numbers["region_images"] == {
        region: summary.image_counts[region] for region in summary.pooled_metrics
    }


# --- of a network -------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_metrics(remembering_networks: None, kitti: Path) -> None:
    run = pam("eval", "disparity", "--data", KITTI, "--json")
    found = answer(run)
    assert run.stderr == ""
    assert set(found) == {"facts", "notes", "sets", "seconds_per_pair", "peak_memory_bytes"}
    (one,) = found["sets"]
    assert set(one) == {"data", "images", "pooled", "image_means", "region_images", "notes"}
    assert one["data"] == "kitti2015/training"
    same(one, measure_network(eval_trees.crops()))
    assert {"all", "noc", "occluded", "bg", "fg", "noc-bg", "noc-fg", "0-100"} == set(one["pooled"])
    assert set(one["pooled"]["all"]) == set(METRICS)
    assert found["facts"]["network"] == "pasmnet2"
    assert re.fullmatch(r"pasmnet2\.safetensors, sha256 [0-9a-f]{64}", found["facts"]["weights"])
    assert found["facts"]["device"] == "cpu, fp32"
    assert found["facts"]["maximum disparity"] == "none"
    assert found["facts"]["data"] == f"{KITTI} (2 pairs)"
    assert found["seconds_per_pair"] > 0
    assert found["peak_memory_bytes"] > 1_000_000
    assert any("calib" in note for note in found["notes"])
    assert any("before holes are filled" in note for note in found["notes"])
    assert any("unverified" in note for note in found["notes"])


def test_tables_hold_both_averages_and_what_was_measured(remembering_networks: None, kitti: Path) -> None:
    run = pam("eval", "disparity", "--data", KITTI, "--max-disparity", "64")
    assert (run.code, run.stderr) == (0, "")
    assert run.lines[0] == "data kitti2015/training, images 2"
    headings = ("region", "average", "EPE (px)", "D1 (%)", "bad-2 (%)")
    assert [heading for heading in headings if heading not in run.lines[1]] == []
    tables = run.stdout.decode().split("\n\nnetwork: ")[0].splitlines()
    assert max(map(len, tables)) <= 80, "more than a terminal shows in a line"
    rows = [re.split(r"  +", line) for line in tables]
    assert {row[1] for row in rows if row[0] in ("all", "noc")} == {"pooled", "mean of images"}
    assert {"network: pasmnet2", "maximum disparity: 64 px"} <= {*run.lines}
    assert any(line.startswith("note: kitti2015/training: no calibration") for line in run.lines)
    assert b"nan" not in run.stdout.lower()


def test_several_sets_keep_their_own_figures(remembering_networks: None, kitti: Path, mine: Path) -> None:
    found = answer(pam("eval", "disparity", "--data", KITTI, "--data", "pairs:mine", "--json"))
    one, two = found["sets"]
    same(one, measure_network(eval_trees.crops()))
    same(two, measure_network(without_masks(), kitti=False))
    assert two["data"] == "pairs"
    assert not any("development kit" in note for note in two["notes"])
    assert "noc" not in two["pooled"]
    assert "visible-precision" not in two["pooled"]["all"]


def test_cameras_have_a_row_each(kitti: Path, mine: Path) -> None:
    command = f"eval disparity --method opencv --data {KITTI} --data pairs:mine"
    run = pam(f"{command} --camera clean,noise8")
    head, *rows = [re.split(r"  +", line) for line in run.stdout.decode().split("\n\n")[0].splitlines()]
    assert head == ["data", "D1 (%)", "bad-2 (%)", "EPE (px)"]
    names = ["kitti2015/training, clean", "kitti2015/training, noise8", "pairs, clean", "pairs, noise8"]
    assert [row[0] for row in rows] == names
    plain = answer(pam(f"{command} --json"))["sets"]
    clean, noisy, *_ = answer(pam(f"{command} --camera clean,noise8 --json"))["sets"]
    assert clean["image_means"] == plain[0]["image_means"]
    assert f"{clean['image_means']['all']['d1']:.2f}" == rows[0][1], "the mean of the images"
    assert noisy["image_means"]["all"]["epe"] != clean["image_means"]["all"]["epe"]


def test_cameras_and_methods_share_a_table(mine: Path) -> None:
    methods = "--method opencv --method again=opencv --data pairs:mine --data pairs:mine?first=1"
    found = answer(pam(f"eval disparity {methods} --camera dark,jpeg75 --json"))
    rows = found["comparison"]["methods"]
    data = [f"pairs:mine{first}, {kind}" for first in ("", "?first=1") for kind in ("dark", "jpeg75")]
    assert [row["data"] for row in rows] == [each for each in data for _ in range(2)]
    assert rows[1]["differences"]["epe"]["mean"] == 0, "every method sees the same noise"


def test_first_takes_the_first_and_a_weight_is_for_training(
    remembering_networks: None, made: dict[str, np.ndarray]
) -> None:
    found = answer(pam("eval disparity --json --data", f"{KITTI}?first=1"))
    same(found["sets"][0], measure_network(eval_trees.crops()[:1]))
    faster = answer(pam("eval disparity --json --precision bf16 --data", f"{KITTI}?first=1"))
    assert faster["facts"]["device"] == "cpu, bf16"
    assert found["facts"]["data"] == f"{KITTI}?first=1 (1 pair)"
    found = answer(pam("eval", "disparity", "--data", f"{KITTI}?weight=3", "--predictions", "made", "--json"))
    same(found["sets"][0], of_files(made))
    assert any("weight=3" in note for note in found["notes"])


def test_max_gt_and_resize_say_what_they_change(remembering_networks: None, mine: Path) -> None:
    small = [resize_sample(sample, 64, 48, imresize_to) for sample in without_masks()]
    for option, words, expected in (
        ("--max-gt 20", "below 20 px", measure_network(without_masks(), kitti=False, max_gt=20)),
        ("--resize 64x48", "64x48", measure_network(small, kitti=False)),
    ):
        found = answer(pam(f"eval disparity --data pairs:mine --json {option}"))
        same(found["sets"][0], expected)
        assert any(words in note for note in found["notes"])
        everything = measure_network(without_masks(), kitti=False).pooled_metrics["all"]["pixels"]
        assert 0 < found["sets"][0]["pooled"]["all"]["pixels"] < everything


# --- by rules with names ------------------------------------------------------------------------------------


def test_two_protocols_give_two_columns_of_the_same_files(made: dict[str, np.ndarray]) -> None:
    arguments = ["eval", "disparity", "--data", KITTI, "--predictions", "made"]
    run = pam(*arguments, "--protocol", "raft-stereo", "--protocol", "kitti", "--report", "r.html")
    assert (run.code, run.stderr) == (0, "")
    head, *rows = [re.split(r"  +", line) for line in run.lines[: run.lines.index("")]]
    assert head == ["data", "region", "figure", "raft-stereo", "kitti"]
    found = {(row[1], row[2]): row[3:] for row in rows}
    usual, plain = of_files(made).pooled_metrics, of_files(made, kitti=False).pooled_metrics
    for region in ("all", "noc"):
        expected = [f"{plain[region]['bad-3']:.2f}", f"{usual[region]['d1']:.2f}"]
        assert found[region, "D1 (%)"] == expected
    assert found["fg", "D1 (%)"][0] == "-"
    assert any(line.startswith("note: kitti: ") and "io_disp.h" in line for line in run.lines)
    page = Path("r.html").read_text(encoding="utf-8")
    assert "By protocol" in page
    told = answer(pam(*arguments, "--protocol", "raft-stereo", "--json"))["protocols"]
    assert set(told) == {"raft-stereo"}
    assert told["raft-stereo"]["source"]
    first = {(each["region"], each["figure"]): each["value"] for each in told["raft-stereo"]["figures"]}
    assert first["all", "D1 (%)"] == plain["all"]["bad-3"]


def test_protocols_are_listed_with_their_sources() -> None:
    rows = [json.loads(line) for line in pam("eval", "protocols", "--jsonl").lines]
    assert [row["name"] for row in rows] == list(PROTOCOLS)
    assert all(row["about"] and row["source"] and row["figures"] for row in rows)
    shown = pam("eval", "protocols", "eth3d").lines
    assert "source: ETH3D two-view-evaluation: src/main.cc" in shown
    assert "  bad 2 = bad-2, mean of images: noc, all" in shown
    refuse(pam("eval", "protocols", "kiti"), 2, "kiti", "kitti")


# --- files that are written ---------------------------------------------------------------------------------


def test_rows_of_the_csv_are_the_images(made: dict[str, np.ndarray]) -> None:
    run = pam(f"eval disparity --data {KITTI} --predictions made", "--per-image", "out/rows.csv")
    assert (run.code, run.stderr) == (0, "")
    with Path("out/rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == NAMES
    for row, sample in zip(rows, eval_trees.crops(), strict=True):
        meter = DisparityMeter(DisparityProtocol(fill=True))
        figures = meter.add(sample, Estimate(made[sample.name])).figures
        assert (row["data"], row["seconds"]) == ("kitti2015/training", "")
        assert {key: float(row[key]) for key in flatten(figures)} == flatten(figures)


def test_the_report_shows_the_worst_pair_first(remembering_networks: None, kitti: Path) -> None:
    run = pam("eval", "disparity", "--data", KITTI, "--report", "report.html", "--quiet")
    assert (run.code, run.stderr) == (0, "")
    page = Path("report.html").read_text(encoding="utf-8")
    matcher, errors = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32"), {}
    for sample in eval_trees.crops():
        result = matcher(sample.left, sample.right, extras=())
        errors[sample.name] = DisparityMeter().add(sample, Estimate(result.disparity)).figures["all"]["d1"]
    worst, best = sorted(errors, key=lambda name: -errors[name])
    examples = re.findall(r'<figure class="example"><figcaption><b>(.*?)</b>', page)
    assert examples == [worst, best]
    assert f"D1 {errors[worst]:.1f} %" in page
    assert page.count("data:image/") >= 8
    assert "AUSE" in page
    assert "sha256" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


def test_published_rows_are_marked(remembering_networks: None, made: dict[str, np.ndarray]) -> None:
    arguments = ["eval", "disparity", "--data", KITTI, "--predictions", "made", "--compare"]
    run = pam(*arguments, "--report", "report.html")
    assert (run.code, run.stderr) == (0, "")
    table = run.stdout.decode().split("\n\n")[-2].splitlines()
    assert table[0].startswith("published on kitti2015 ")
    assert table[1].startswith("made (this run) ")
    assert max(map(len, table)) <= 80
    assert any(line.startswith("PASMnet_192 ") and "7.23" in line for line in table)
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Published on kitti2015, not measured here" in page
    assert page.count("made (this run)") == 2  # text and table
    rows = answer(pam(*arguments, "--json"))["published"]["kitti2015"]
    assert all(row["protocol"] and row["source"] for row in rows)
    assert "PASMnet_192" in [row["method"] for row in rows]


@pytest.mark.parametrize("option", ["--per-image rows.csv", "--report report.html"])
@pytest.mark.parametrize("command", ["disparity --predictions made", "superres --baseline-only"])
def test_files_that_exist_are_replaced_on_request_alone(
    made: dict[str, np.ndarray], command: str, option: str
) -> None:
    file = Path(option.split()[1])
    file.write_text("old")
    arguments = f"eval {command} --data {KITTI} {option}"
    with unchanged():
        refuse(pam(arguments), 2, file.name, "already exists", "--overwrite")
    assert pam(arguments, "--overwrite").code == 0
    assert file.read_text(encoding="utf-8") != "old"


# --- of files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["pfm", "png"])
def test_files_of_pam_disparity_get_the_figures_of_the_network(
    remembering_networks: None, kitti: Path, suffix: str
) -> None:
    views = ["kitti/training/image_2", "kitti/training/image_3"]
    assert pam("disparity", *views, "-o", "out/", "--format", suffix, "--quiet").code == 0
    found = answer(pam("eval", "disparity", "--data", KITTI, "--predictions", "out", "--json"))
    (one,) = found["sets"]
    summary = measure_network(eval_trees.crops(), rounded=suffix == "png")
    trust = {"ause-epe", "ause-bad-2"} | {name for name in METRICS if "precision" in name or "recall" in name}
    assert set(one["pooled"]) == set(summary.pooled_metrics)
    for region, figures in summary.pooled_metrics.items():
        expected = {name: value for name, value in figures.items() if name not in trust}
        assert one["pooled"][region] == expected
    assert found["facts"]["predictions"] == "out"
    assert found["seconds_per_pair"] is None
    assert "device" not in found["facts"]


def test_holes_are_filled_on_kitti_and_wrong_elsewhere(
    made: dict[str, np.ndarray], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamcli.inference.matcher.StereoMatcher.load", None)  # no network is loaded
    on_kitti = answer(pam(f"eval disparity --data {KITTI} --predictions made", "--json"))
    same(on_kitti["sets"][0], of_files(made))
    on_mine = answer(pam("eval disparity --data pairs:mine --predictions made --compare --json"))
    assert "there are no published results for pairs" in on_mine["notes"]
    figures = on_mine["sets"][0]["pooled"]["all"]
    assert figures["density"] == on_kitti["sets"][0]["pooled"]["all"]["density"] < 100
    assert figures["bad-4"] == pytest.approx(100 - figures["density"])
    assert figures["epe"] == pytest.approx(3.5)


def test_a_missing_prediction_is_named_and_an_error_unless_allowed(made: dict[str, np.ndarray]) -> None:
    Path("made/000001_10.pfm").unlink()
    arguments = ["eval", "disparity", "--data", KITTI, "--predictions", "made", "--json"]
    refuse(pam(*arguments), 2, "lacks 1 prediction", "000001_10", "--allow-missing")
    found = answer(pam(*arguments, "--allow-missing"))
    del made["000001_10"]
    same(found["sets"][0], of_files(made))
    assert "1 pair without a prediction skipped: 000001_10" in found["notes"]
    assert found["facts"]["data"] == f"{KITTI} (1 pair)"


def test_the_scale_of_predictions(made: dict[str, np.ndarray]) -> None:
    for name, disparity in made.items():
        eval_trees.write_disparity(f"made/{name}.pfm", disparity * 4)
    arguments = ["eval", "disparity", "--data", KITTI, "--predictions", "made", "--json"]
    refuse(pam(*arguments), 3, "times the ground truth nearly", "--scale 4 if 4 units are one pixel")
    found = answer(pam(*arguments, "--scale", "4"))
    same(found["sets"][0], of_files(made))
    assert any("4 units per pixel" in note for note in found["notes"])
    for value in ("nan", "inf", "0", "1e308", "1e-300"):
        refuse(pam(*arguments, f"--scale={value}"), 2, "--scale")


# --- nothing to measure -------------------------------------------------------------------------------------


def test_a_set_without_ground_truth_is_an_error_before_the_network_runs(
    remembering_networks: None, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eval_trees.pairs(here / "mine", truth=False)
    monkeypatch.setattr(StereoMatcher, "__call__", None)
    refuse(pam("eval", "disparity", "--data", "pairs:mine"), 3, "000000_10", "ground truth")


def test_ground_truth_without_pixels_is_an_error(made: dict[str, np.ndarray], mine: Path) -> None:
    for sample in eval_trees.crops():
        unknown = np.full_like(sample.disparity, np.nan)
        eval_trees.write_disparity(f"mine/disparity/{sample.name}.pfm", unknown)
    arguments = ["eval", "disparity", "--data", "pairs:mine", "--predictions", "made", "--report", "r.html"]
    refuse(pam(*arguments), 3, "nothing to measure")
    assert not Path("r.html").exists()
