"""pam eval superres."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import eval_trees
import numpy as np
import pytest
from pam_program import answer, names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

from pamcli.data.source import Sample
from pamcli.evaluation.results import flatten
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import SuperresMeter, SuperresPair, Upscaled, measure_upscaled
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import DEFAULT_UPSCALING

KITTI = "kitti2015:kitti"
NAMES = list(eval_trees.BOXES)
VIEWS = [f"{name}_{view}.png" for name in NAMES for view in ("left", "right")]


pytestmark = pytest.mark.usefixtures("kitti")


def pair_of(sample: Sample, scale: int) -> SuperresPair:
    return Superres(scale).make_case(sample)


def row(pairs: list[SuperresPair], results: list[Upscaled]) -> dict[str, float]:
    """Means over the pairs under the names of the columns."""
    meter = SuperresMeter()
    for pair, made in zip(pairs, results, strict=True):
        meter.add(pair, made)
    return flatten(meter.image_means)


def bicubic(scale: int, samples: list[Sample] | None = None) -> dict[str, float]:
    pairs = [pair_of(sample, scale) for sample in samples or eval_trees.crops()]
    return row(pairs, [pair.bicubic() for pair in pairs])


def enlarged(pair: SuperresPair, left_twice: bool = False) -> Upscaled:
    upscaler = StereoUpscaler.load(DEFAULT_UPSCALING[pair.scale], device="cpu")
    return Upscaled(*upscaler(pair.low_left, pair.low_left if left_twice else pair.low_right))


def measure_network(
    scale: int, samples: list[Sample] | None = None, *, left_twice: bool = False
) -> dict[str, float]:
    pairs = [pair_of(sample, scale) for sample in samples or eval_trees.crops()]
    return row(pairs, [enlarged(pair, left_twice) for pair in pairs])


def rows(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Figures of a summary of one data set by method."""
    words = {"data", "method", "pairs"}
    return {
        each["method"]: {key: value for key, value in each.items() if key not in words}
        for each in found["summary"]
    }


def test_figures_are_those_of_the_metrics_beside_bicubic(remembering_networks: None) -> None:
    run = pam("eval", "superres", "--scale", "4", "--data", KITTI, "--json")
    found = answer(run)
    assert run.stderr == ""
    keys = ("facts", "notes", "scale", "summary", "seconds_per_pair", "peak_memory_bytes", "second_view")
    assert set(found) == set(keys)
    assert rows(found) == {"bicubic": bicubic(4), DEFAULT_UPSCALING[4]: measure_network(4)}
    assert found["scale"] == 4
    assert [(each["data"], each["pairs"]) for each in found["summary"]] == [("kitti2015/training", 2)] * 2
    assert found["facts"]["device"] == "cpu, fp32"
    assert found["facts"]["data"] == f"{KITTI} (2 pairs)"
    assert found["seconds_per_pair"] > 0
    assert any("do not compare SSIM" in note for note in found["notes"])


def test_what_the_second_view_is_worth(here: Path, remembering_networks: None) -> None:
    weights = DEFAULT_UPSCALING[2]  # which say the scale
    eval_trees.pairs(here / "mine")
    command = f"eval superres --data {KITTI}?first=1 --json --weights {weights}"
    found = answer(pam(command))
    samples = eval_trees.crops()[:1]
    both, left_twice = measure_network(2, samples), measure_network(2, samples, left_twice=True)
    assert found["scale"] == 2
    assert rows(found) == {"bicubic": bicubic(2, samples), weights: both}
    gain = both["left psnr"] - left_twice["left psnr"]
    assert found["second_view"] == {"kitti2015/training": pytest.approx(gain, abs=1e-9)}
    assert found["facts"]["second view"] == f"{gain:+.3f} dB on the left image, kitti2015/training"
    without = answer(pam(command, "--right-view", "right"))
    assert without["second_view"] == {}
    assert without["summary"] == found["summary"]
    alone = answer(pam(command, "--right-view", "left", "--data", "pairs:mine?first=1"))
    counts = [(each["data"], each["pairs"]) for each in alone["summary"][::2]]
    assert counts == [("kitti2015/training", 1), ("pairs", 1)]
    assert rows(alone)[f"{weights}, left view twice"] == left_twice != both


def test_published_rows_are_marked(remembering_networks: None) -> None:
    run = pam("eval superres --compare --per-image rows.csv --report report.html --data", KITTI)
    assert (run.code, run.stderr) == (0, "")
    shown, table = (part.splitlines() for part in run.stdout.decode().split("\n\n")[:2])
    assert shown[0] == "data kitti2015/training, pairs 2"
    headings = ("left PSNR (dB)", "both PSNR (dB)", "left SSIM-ipassr", "both SSIM-ipassr")
    assert [heading for heading in headings if heading not in shown[1]] == []
    assert [re.split(r"  +", line)[0] for line in shown[2:]] == ["bicubic", "passrnet2-x4"]
    assert max(map(len, shown)) <= 80
    assert table[0].startswith("published on kitti2015 ")
    assert any(line.startswith("bicubic ") and "24.38" in line and "23.79" in line for line in table)
    assert any(line.startswith("passrnet2-x4 (this run) ") for line in table)
    assert {"network: passrnet2-x4", "scale: x4"} <= {*run.lines}
    with Path("rows.csv").open(newline="") as file:
        found = [each for each in csv.DictReader(file) if each["method"] == "passrnet2-x4"]
    pair = pair_of(eval_trees.crops()[0], 4)
    made = enlarged(pair)
    figures = flatten(measure_upscaled(pair, made.left, made.right))
    assert {key: float(found[0][key]) for key in figures} == figures
    worst = min(found, key=lambda each: float(each["left psnr"]))["name"]
    page = Path("report.html").read_text(encoding="utf-8")
    assert re.findall(r'<figure class="example"><figcaption><b>(.*?)</b>', page)[0] == worst
    assert "Published on kitti2015, not measured here" in page


def test_save_writes_both_views_and_they_measure_the_same(remembering_networks: None) -> None:
    found = answer(pam("eval", "superres", "--data", KITTI, "--save", "out", "--json"))
    assert names("out") == sorted(VIEWS)
    sample = eval_trees.crops()[1]
    made = enlarged(pair_of(sample, 4))
    for view, pixels in (("left", made.left), ("right", made.right)):
        np.testing.assert_array_equal(np.asarray(Image.open(f"out/{sample.name}_{view}.png")), pixels)
    again = answer(pam("eval", "superres", "--data", KITTI, "--predictions", "out", "--json"))
    assert rows(again) == {"bicubic": bicubic(4), "out": rows(found)["passrnet2-x4"]}
    assert again["facts"]["predictions"] == "out"
    Path("out/000001_10_right.png").write_text("old")
    arguments = ["eval", "superres", "--data", KITTI, "--save", "out"]
    with unchanged():
        refuse(pam(*arguments), 2, "000001_10_right.png", "--overwrite")
    succeed(*arguments, "--overwrite")
    assert Path("out/000001_10_right.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("name", "said"), [("one_left", "overwrite an input"), ("two", "is an input")])
def test_saved_views_never_mix_with_the_images_of_the_set(here: Path, name: str, said: str) -> None:
    for side in ("left", "right"):
        (here / "mine" / side).mkdir(parents=True)
        for file in ("one", name):
            Image.fromarray(eval_trees.crops()[0].left).save(here / "mine" / side / f"{file}.png")
    with unchanged():
        refuse(pam("eval", "superres", "--data", "pairs:mine", "--save", "mine/left", "--overwrite"), 2, said)


def test_noise_costs_and_is_the_same_in_every_run(remembering_networks: None) -> None:
    command = f"eval superres --baseline-only --json --data {KITTI}?first=1"
    clean, noisy, again = (answer(pam(command + degrade)) for degrade in ("", *[" --degrade noise=25"] * 2))
    assert "degraded_by" not in clean
    assert noisy["degraded_by"] == "noise=25"
    before, after = ({name: row["left psnr"] for name, row in rows(each).items()} for each in (clean, noisy))
    assert after["bicubic"] < before["bicubic"] - 0.3
    assert after["denoised, bicubic"] != after["bicubic"]
    assert rows(again) == rows(noisy)
    run = succeed(f"eval superres --degrade jpeg=60 --right-view right --data {KITTI}?first=1")
    shown = [line.split("  ")[0] for line in run.lines[2:5]]
    assert shown == ["bicubic", "denoised, bicubic", "passrnet2-x4"]
    assert "degraded by jpeg=60" in run.stdout.decode()


def test_the_ground_truth_itself_is_infinitely_good() -> None:
    Path("truth").mkdir()
    for sample in eval_trees.crops():
        Image.fromarray(sample.left).save(f"truth/{sample.name}_left.png")
        Image.fromarray(sample.right).save(f"truth/{sample.name}_right.png")
    Path("truth/000000_10_right.png").unlink()
    predictions = ["--predictions", "truth", "--allow-missing"]
    found = answer(pam("eval superres --json --report r.html --data", KITTI, *predictions))
    figures = rows(found)["truth"]
    assert figures["left psnr"] == figures["both psnr"] == "inf"
    assert figures["left ssim-ipassr"] == pytest.approx(1)
    assert rows(found)["bicubic"] == bicubic(4, eval_trees.crops()[1:])
    assert "1 pair without a prediction skipped: 000000_10" in found["notes"]


def test_upscalers_are_compared_with_the_first(remembering_networks: None) -> None:
    succeed("eval superres --save up --right-view right --data", KITTI)
    methods = ["--method", "cubic=bicubic", "--method", "passrnet2-x4", "--method", "files:up"]
    forms = ["--table", "t.csv", "--report", "r.html", "--per-image", "p.csv"]
    run = succeed("eval superres --json --data", KITTI, *methods, *forms)
    found = json.loads(run.stdout)
    cubic, network, files = found["comparison"]["methods"]
    assert [each["method"] for each in (cubic, network, files)] == ["cubic", "passrnet2-x4", "up"]
    assert found["comparison"]["reference"] == "cubic"
    gain = network["differences"]["left psnr"]
    assert gain["mean"] == pytest.approx(network["left psnr"] - cubic["left psnr"])
    assert gain["mean"] > 0
    assert (gain["images"], gain["scenes"]) == (2, 2)
    assert files["differences"]["left psnr"] == gain
    assert network["seconds"] > 0
    assert network["megabytes"] >= 0
    assert files["seconds"] is None
    assert found["second_view"] == {}
    with Path("t.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert rows["up"]["both psnr-first"].startswith("+")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "Where the methods differ most" in page
    assert page.count('<img class="crop"') == 2 * 4, "a crop of each method and of the ground truth"
    with Path("p.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["cubic", "passrnet2-x4", "up"] * 2


def test_contradictions_and_bad_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StereoUpscaler, "__call__", None)
    Path("bicubic").mkdir()
    for sample in eval_trees.crops():
        Path(f"bicubic/{sample.name}_left.png").touch()
    Path("bicubic/000001_10_right.png").touch()
    Path("empty").mkdir()
    Path("file").write_text("not a folder")
    for side in ("left", "right"):
        Path("tiny", side).mkdir(parents=True)
        Image.new("RGB", (60, 64)).save(f"tiny/{side}/a.png")
    table = """
        2 --scale 4 --weights passrnet2-x2 | upscales by 2 | --scale
        2 --predictions out --weights passrnet2-x4 | --predictions | --weights
        2 --predictions out --baseline-only | --predictions | --baseline-only
        2 --baseline-only --weights passrnet2-x4 | --weights | --baseline-only
        2 --baseline-only --save out | --save
        2 --baseline-only --right-view left | --right-view
        2 --predictions out | no such folder | out
        2 --predictions empty --allow-missing | no prediction | empty
        2 --predictions bicubic | lacks 1 prediction | 000000_10_right | --allow-missing
        2 --allow-missing | --allow-missing | --predictions
        2 --save out --data kitti2015:kitti?first=1 | --save | one data set
        7 --save file/out | file
        2 --baseline-only --report r.pdf | --report | .html
        2 --scale 1 | --scale
        2 --scale 2.5 | --scale | 2.5
        2 --right-view none | --right-view | --help lists all options
        2 --degrade jpg=75 | --degrade 'jpg=75' | did you mean jpeg?
        2 --degrade jpeg=75 --predictions kitti | --predictions and --degrade
        4 --weights pasmnet | pasmnet
        2 --method bicubic --predictions out | --method | --predictions
        2 --method bicubic --weights passrnet2-x4 | --method | --weights
        2 --method bicubic --baseline-only | --method | --baseline-only
        2 --method bicubic --right-view left | --method | --right-view
        2 --method bicubic --save out | --method | --save
        2 --method bicubic --method bicubic | two methods | bicubic
        2 --method files:out --degrade jpeg=75 | --method | --degrade
        2 --method bicubic --allow-missing | --allow-missing | files:FOLDER
        2 --method bicubic --network-from a:b | --network-from | --method
        2 --method passrnet2-x2 --method passrnet2-x4 | upscale by 2 and 4 | --scale
        2 --method files:none | no such folder | none
    """
    refuse_all(table, "eval superres --data", KITTI)
    table = """
        2 | --data
        3 --data pairs:tiny --baseline-only --per-image rows.csv | a | 60x64 | too small
    """
    refuse_all(table, "eval superres")
