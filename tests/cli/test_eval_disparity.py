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
import foreign_networks
import numpy as np
import pytest
from pam_program import answer, pam, refuse, refuse_all, succeed, unchanged

from pamcli.data.listing import resize_sample
from pamcli.data.source import Sample
from pamcli.errors import OutputError
from pamcli.evaluation.disparity_metrics import METRICS, DisparityMeter, Estimate
from pamcli.evaluation.protocols import PROTOCOLS, DisparityProtocol
from pamcli.evaluation.results import flatten
from pamcli.imaging.resize import imresize_to
from pamcli.inference.matcher import StereoMatcher

KITTI = "kitti2015:kitti"
NAMES = list(eval_trees.BOXES)


def measure_network(samples: list[Sample], *, kitti: bool = True, **protocol: Any) -> DisparityMeter:
    """What the network reaches on the samples, measured without the command."""
    found = DisparityMeter(DisparityProtocol(fill=kitti, **protocol))
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32")
    for sample in samples:
        extras = {"confidence"} if sample.visible is None else {"confidence", "visible"}
        result = matcher(sample.left, sample.right, extras=extras)
        found.add(sample, Estimate(result.disparity, visible=result.visible, confidence=result.confidence))
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
    assert numbers["images"] == summary.counters["all"]["images"]
    assert numbers["region_images"] == {
        region: summary.counters[region]["images"] for region in summary.pooled_metrics
    }


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
    both = answer(pam(f"{command} --method again=opencv --camera noise8 --json"))["comparison"]["methods"]
    assert both[1]["differences"]["epe"]["mean"] == 0, "every method sees the same noise"


def test_first_takes_the_first_and_a_weight_is_for_training(
    remembering_networks: None, made: dict[str, np.ndarray], mine: Path
) -> None:
    found = answer(pam(f"eval disparity --json --data {KITTI}?first=1 --data pairs:mine"))
    one, two = found["sets"]
    same(one, measure_network(eval_trees.crops()[:1]))
    same(two, measure_network(without_masks(), kitti=False))
    assert found["facts"]["data"] == f"{KITTI}?first=1 (1 pair), pairs:mine (2 pairs)"
    assert not any("development kit" in note for note in two["notes"])
    assert "noc" not in two["pooled"]
    faster = answer(pam("eval disparity --json --precision bf16 --data", f"{KITTI}?first=1"))
    assert faster["facts"]["device"] == "cpu, bf16"
    found = answer(pam("eval", "disparity", "--data", f"{KITTI}?weight=3", "--predictions", "made", "--json"))
    same(found["sets"][0], of_files(made))
    assert any("weight=3" in note for note in found["notes"])
    assert (found["facts"]["predictions"], found["seconds_per_pair"]) == ("made", None)
    assert "device" not in found["facts"]


def test_max_gt_and_resize_say_what_they_change(remembering_networks: None, mine: Path) -> None:
    small = [resize_sample(sample, 64, 48, imresize_to) for sample in without_masks()]
    for option, words, expected in (
        ("--max-gt 20", "below 20 px", measure_network(without_masks(), kitti=False, max_gt=20)),
        ("--resize 64x48", "64x48", measure_network(small, kitti=False)),
    ):
        found = answer(pam(f"eval disparity --data pairs:mine --json {option}"))
        same(found["sets"][0], expected)
        assert any(words in note for note in found["notes"])


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


def test_the_report_shows_the_worst_pair_first(remembering_networks: None, kitti: Path) -> None:
    files = ["--report", "report.html", "--per-image", "out/rows.csv"]
    run = pam("eval", "disparity", "--data", KITTI, *files, "--quiet")
    assert (run.code, run.stderr) == (0, "")
    page = Path("report.html").read_text(encoding="utf-8")
    with Path("out/rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["data"], row["name"]) for row in rows] == [("kitti2015/training", name) for name in NAMES]
    assert all(float(row["seconds"]) > 0 for row in rows)
    for row, sample in zip(rows, eval_trees.crops(), strict=True):
        figures = flatten(measure_network([sample]).pooled_metrics)
        assert float(row["d1"]) == figures["d1"]
    errors = {row["name"]: float(row["d1"]) for row in rows}
    worst, best = sorted(errors, key=lambda name: -errors[name])
    examples = re.findall(r'<figure class="example"><figcaption><b>(.*?)</b>', page)
    assert examples == [worst, best]
    assert f"D1 {errors[worst]:.1f} %" in page
    assert page.count("data:image/") >= 8
    assert "AUSE" in page
    assert "sha256" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


@pytest.mark.parametrize(
    "command",
    [
        "disparity --predictions made --per-image rows.csv",
        "superres --baseline-only --report report.html",
    ],
)
def test_files_that_exist_are_replaced_on_request_alone(made: dict[str, np.ndarray], command: str) -> None:
    file = Path(command.split()[-1])
    file.write_text("old")
    arguments = f"eval {command} --data {KITTI}"
    with unchanged():
        refuse(pam(arguments), 2, file.name, "already exists", "--overwrite")
    succeed(arguments, "--overwrite")
    assert file.read_text(encoding="utf-8") != "old"


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


METHODS = ["--method", "ours=files:made", "--method", "sgbm=opencv"]


def test_methods_in_one_run_and_in_every_form(made: dict[str, np.ndarray]) -> None:
    forms = ["--table", "t.md", "--table", "t.tex", "--table", "t.csv"]
    files = [*forms, "--report", "r.html", "--per-image", "p.csv"]
    run = pam("eval", "disparity", "--data", KITTI, *METHODS, *files)
    assert (run.code, run.stderr) == (0, "")
    assert "D1 minus ours (%)" in run.lines[1]
    assert any(line.startswith("sgbm: OpenCV ") and "blockSize 3" in line for line in run.lines)
    assert "ours: predictions made" in run.lines
    with Path("t.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"ours", "sgbm"}
    assert float(rows["sgbm"]["seconds"]) > 0
    assert rows["ours"]["seconds"] == ""
    assert float(rows["sgbm"]["d1-first"].split()[0]) == pytest.approx(
        float(rows["sgbm"]["d1"]) - float(rows["ours"]["d1"]), abs=0.005
    )
    assert Path("t.md").read_text().startswith("## Method comparison")
    assert r"\toprule" in Path("t.tex").read_text()
    page = Path("r.html").read_text(encoding="utf-8")
    assert "Where the methods differ most" in page
    assert "sgbm: error" in page
    with Path("p.csv").open(newline="") as file:
        pictures = [(row["method"], row["name"]) for row in csv.DictReader(file)]
    assert pictures == [(method, name) for name in made for method in ("ours", "sgbm")]


def test_a_pytorch_network_of_ones_own_beside_another(
    kitti: Path, remembering_networks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evaluated.py").write_text(foreign_networks.AS_MODULE)
    monkeypatch.syspath_prepend(".")
    described = foreign_networks.DESCRIBED.format(name="other", size="free").replace("disparities", "0")
    Path("own.toml").write_text(described.partition("\n")[2])
    Path("onnx.toml").write_text(described)
    measure = ["eval", "disparity", "--data", KITTI, "--json", "--network-from", "evaluated:make"]
    run = succeed(*measure, "--method", "own.toml", "--method", "pasmnet2", "--method", "opencv")
    methods = [each["method"] for each in run.records[0]["comparison"]["methods"]]
    assert methods == ["own", "pasmnet2", "opencv"]
    for others in (["pasmnet2"], ["opencv"], ["onnx.toml"]):
        refuse(pam(*measure, "--method", *others), 2, "--network-from", "--method")


def test_contradictions_and_bad_values(made: dict[str, np.ndarray], mine: Path) -> None:
    Path("file").write_text("not a folder")
    eval_trees.pairs(Path("bare"), truth=False)
    table = """
        2 --resize 100 | --resize | 512x256
        2 --per-image rows.txt | --per-image | .csv
        2 --report report.pdf | --report | .html
        7 --predictions made --report file/report.html | file
        2 --predictions made --per-image t.csv --table ./t.csv | t.csv
        2 --max-gt inf | --max-gt
        2 --predictions made --weights pasmnet | --predictions | --weights
        2 --predictions made --max-disparity 64 | --max-disparity
        2 --predictions none | no such folder | none
        2 --predictions kitti --network-from a:b | --predictions and --network-from
        2 --scale 2 | --scale | --predictions
        2 --allow-missing | --allow-missing | --predictions
        2 --protocol kiti | kiti | kitti
        2 --protocol kitti --protocol kitti | --protocol kitti | twice
        3 --predictions made --max-gt 1 | nothing to measure | below 1 px
        2 --protocol kitti --max-gt 192 | --protocol | --max-gt
        2 --predictions made --data pairs:mine | the files of made | one data set
        4 --weights passrnet-x4 | passrnet
        2 --method a=opencv --method a=files:made | two methods | a
        2 --method opencv --predictions made | --method | --predictions
        2 --method opencv --weights pasmnet | --method | --weights
        2 --method opencv --study range | --study | --method
        2 --method files:none | no such folder | none
        2 --method opencv --allow-missing | --allow-missing
        2 --method date=opencv --method opencv | the name date | new=date
        2 --method ours=files:made --method opencv --data pairs:mine | the files of ours | one data set
        2 --camera fone | --camera 'fone' | did you mean phone?
        2 --camera dark --predictions made | --camera and --predictions
        2 --camera dark --compare | --camera and --compare
        2 --camera dark --method files:made | --method | --camera
        2 --method opencv --table t.txt | --table | .tex, .md, .csv
    """
    refuse_all(table, "eval disparity --data", KITTI)
    table = """
        2 disparity | --data
        2 nonsense | nonsense
        3 disparity --data pairs:bare | 000000_10 | ground truth
    """
    refuse_all(table, "eval")


def test_figures_are_printed_even_where_a_file_cannot_be_written(
    made: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OutputError("cannot write rows.csv: no space left")

    monkeypatch.setattr("pamcli.evaluation.report.write_atomically", full)
    run = pam("eval", "disparity", "--data", KITTI, "--predictions", "made", "--per-image", "rows.csv")
    assert run.code == 7
    assert "no space left" in run.stderr
    assert any("D1" in line for line in run.lines)
