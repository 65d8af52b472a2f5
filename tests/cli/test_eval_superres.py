"""pam eval superres."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import eval_trees
import numpy as np
import pytest
from pam_program import answer, names, pam, refuse, refuse_all, unchanged
from PIL import Image

from pamcli.data.source import Sample
from pamcli.evaluation.opencv_methods import DenoisedBicubic
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import SuperresMeter, SuperresPair, Upscaled, measure_upscaled
from pamcli.evaluation.tables import flatten
from pamcli.imaging.degradation import Degradation
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


def test_the_table_names_the_protocols(remembering_networks: None) -> None:
    run = pam("eval", "superres", "--data", KITTI)
    assert (run.code, run.stderr) == (0, "")
    assert run.lines[0] == "data kitti2015/training, pairs 2"
    headings = ("left PSNR (dB)", "both PSNR (dB)", "left SSIM-ipassr", "both SSIM-ipassr")
    assert [heading for heading in headings if heading not in run.lines[1]] == []
    assert [re.split(r"  +", line)[0] for line in run.lines[2:4]] == ["bicubic", "passrnet2-x4"]
    assert max(map(len, run.lines[:4])) <= 80
    assert {"network: passrnet2-x4", "scale: x4"} <= {*run.lines}


def test_several_sets_and_first(here: Path) -> None:
    eval_trees.pairs(here / "mine")
    data = ["--data", f"{KITTI}?first=1", "--data", "pairs:mine"]
    found = answer(pam("eval", "superres", *data, "--baseline-only", "--json"))
    one, two = found["summary"]
    expected = bicubic(4, eval_trees.crops()[:1])
    assert one == {"data": "kitti2015/training", "method": "bicubic", "pairs": 1, **expected}
    assert two == {"data": "pairs", "method": "bicubic", "pairs": 2, **bicubic(4)}
    assert found["facts"]["data"] == f"{KITTI}?first=1 (1 pair), pairs:mine (2 pairs)"


def test_what_the_second_view_is_worth(remembering_networks: None) -> None:
    weights = DEFAULT_UPSCALING[2]  # which say the scale
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
    alone = rows(answer(pam(command, "--right-view", "left")))
    assert alone[f"{weights}, left view twice"] == left_twice != both


# --- what is written ----------------------------------------------------------------------------------------


def test_rows_of_the_csv_are_the_pairs_by_method(remembering_networks: None) -> None:
    run = pam("eval", "superres", "--data", KITTI, "--per-image", "rows.csv", "--quiet")
    assert (run.code, run.stderr) == (0, "")
    with Path("rows.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(each["name"], each["method"]) for each in found] == [
        (name, method) for name in NAMES for method in ("bicubic", "passrnet2-x4")
    ]
    for index, sample in enumerate(eval_trees.crops()):
        pair = pair_of(sample, 4)
        for each, made in zip(found[2 * index :], (pair.bicubic(), enlarged(pair)), strict=False):
            figures = flatten(measure_upscaled(pair, made.left, made.right))
            assert {key: float(each[key]) for key in figures} == figures
    assert [each["seconds"] == "" for each in found] == [True, False] * 2


def test_the_report_shows_the_worst_pair_first(remembering_networks: None) -> None:
    run = pam("eval", "superres", "--data", KITTI, "--report", "report.html")
    assert (run.code, run.stderr) == (0, "")
    page = Path("report.html").read_text(encoding="utf-8")
    quality = {}
    for sample in eval_trees.crops():
        pair = pair_of(sample, 4)
        quality[sample.name] = row([pair], [enlarged(pair)])["left psnr"]
    worst, best = sorted(quality, key=lambda name: quality[name])
    assert re.findall(r'<figure class="example"><figcaption><b>(.*?)</b>', page) == [worst, best]
    assert f"{quality[worst]:.2f} dB (left)" in page
    assert "over bicubic" in page
    assert page.count("data:image/") >= 6
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)


def test_published_rows_are_marked() -> None:
    arguments = ["eval", "superres", "--data", KITTI, "--baseline-only", "--compare"]
    run = pam(*arguments, "--report", "report.html")
    assert (run.code, run.stderr) == (0, "")
    table = run.stdout.decode().split("\n\n")[1].splitlines()
    assert table[0].startswith("published on kitti2015 ")
    assert any(line.startswith("bicubic ") and "24.38" in line and "23.79" in line for line in table)
    assert table[1].startswith("bicubic (this run) ")
    assert "Published on kitti2015, not measured here" in Path("report.html").read_text(encoding="utf-8")
    found = answer(pam(*arguments, "--json", "--scale", "2"))
    row = next(row for row in found["published"]["kitti2015"] if row["method"] == "bicubic")
    assert (row["both psnr"], row["left psnr"]) == (28.61, 27.81)
    assert row["protocol"]
    assert row["source"]


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
    assert pam(*arguments, "--overwrite").code == 0
    assert Path("out/000001_10_right.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("name", "said"), [("one_left", "overwrite an input"), ("two", "is an input")])
def test_saved_views_never_mix_with_the_images_of_the_set(here: Path, name: str, said: str) -> None:
    for side in ("left", "right"):
        (here / "mine" / side).mkdir(parents=True)
        for file in ("one", name):
            Image.fromarray(eval_trees.crops()[0].left).save(here / "mine" / side / f"{file}.png")
    with unchanged():
        refuse(pam("eval", "superres", "--data", "pairs:mine", "--save", "mine/left", "--overwrite"), 2, said)


# --- images as cameras give them ----------------------------------------------------------------------------


def test_noise_costs_and_is_the_same_in_every_run() -> None:
    command = f"eval superres --baseline-only --json --data {KITTI}"
    clean, noisy, again = (answer(pam(command + degrade)) for degrade in ("", *[" --degrade noise=25"] * 2))
    assert "degraded_by" not in clean
    assert noisy["degraded_by"] == "noise=25"
    before, after = ({name: row["left psnr"] for name, row in rows(each).items()} for each in (clean, noisy))
    assert after["bicubic"] < before["bicubic"] - 0.3
    assert after["denoised, bicubic"] != after["bicubic"]
    assert rows(again) == rows(noisy)


def test_denoising_helps_where_there_is_no_texture() -> None:
    ramp = np.tile(np.linspace(40, 200, 512, dtype=np.uint8)[:, None], (64, 1, 3)).reshape(64, 512, 3)
    camera = Degradation(noise=10)
    pair = Superres(4, camera).make_case(Sample("ramp", ramp, ramp, None))
    made = pair.bicubic(), DenoisedBicubic(camera).run(pair)
    noisy, denoised = (measure_upscaled(pair, each.left, each.right)["left"]["psnr"] for each in made)
    assert denoised > noisy + 2


def test_a_network_stands_beside_both() -> None:
    run = pam("eval superres --degrade jpeg=60 --right-view right --data", f"{KITTI}?first=1")
    assert run.code == 0, run.stderr
    shown = [line.split("  ")[0] for line in run.lines[2:5]]
    assert shown == ["bicubic", "denoised, bicubic", "passrnet2-x4"]
    assert "degraded by jpeg=60" in run.stdout.decode()


# --- of files -----------------------------------------------------------------------------------------------


@pytest.fixture
def made() -> Path:
    """The folder bicubic/ with what bicubic makes of the pairs."""
    Path("bicubic").mkdir()
    for sample in eval_trees.crops():
        made = pair_of(sample, 4).bicubic()
        for view, pixels in (("left", made.left), ("right", made.right)):
            Image.fromarray(pixels).save(f"bicubic/{sample.name}_{view}.png")
    return Path("bicubic")


PREDICTIONS = ["eval", "superres", "--data", KITTI, "--predictions", "bicubic"]


def test_the_ground_truth_itself_is_infinitely_good(made: Path) -> None:
    for sample in eval_trees.crops():
        Image.fromarray(sample.left).save(made / f"{sample.name}_left.png")
        Image.fromarray(sample.right).save(made / f"{sample.name}_right.png")
    figures = rows(answer(pam(*PREDICTIONS, "--json", "--report", "r.html")))["bicubic (files)"]
    assert figures["left psnr"] == figures["both psnr"] == "inf"
    assert figures["left ssim-ipassr"] == pytest.approx(1)


def test_a_missing_view_is_named_and_an_error_unless_allowed(made: Path) -> None:
    (made / "000000_10_right.png").unlink()
    refuse(pam(*PREDICTIONS), 2, "lacks 1 prediction", "000000_10_right", "--allow-missing")
    found = answer(pam(*PREDICTIONS, "--allow-missing", "--json"))
    only = bicubic(4, eval_trees.crops()[1:])
    assert rows(found) == {"bicubic": only, "bicubic (files)": only}
    assert "1 pair without a prediction skipped: 000000_10" in found["notes"]


def test_contradictions_and_bad_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StereoUpscaler, "__call__", None)
    Path("bad.safetensors").write_bytes(b"nothing of the kind")
    Path("bicubic").mkdir()
    Path("file").write_text("not a folder")
    table = """
        2 --scale 4 --weights passrnet2-x2 | upscales by 2 | --scale
        2 --predictions out --weights passrnet2-x4 | --predictions | --weights
        2 --predictions out --baseline-only | --predictions | --baseline-only
        2 --baseline-only --weights passrnet2-x4 | --weights | --baseline-only
        2 --baseline-only --save out | --save
        2 --baseline-only --right-view left | --right-view
        2 --predictions out | no such folder | out
        2 --predictions bicubic --allow-missing | no prediction | bicubic
        2 --allow-missing | --allow-missing | --predictions
        2 --save out --data kitti2015:kitti?first=1 | --save | one data set
        7 --save file/out | file
        2 --baseline-only --report r.pdf | --report | .html
        2 --device gpu | --device | gpu
        2 --scale 1 | --scale
        2 --scale 2.5 | --scale | 2.5
        2 --right-view none | --right-view | --help lists all options
        2 --degrade jpg=75 | --degrade 'jpg=75' | did you mean jpeg?
        2 --degrade jpeg=75 --predictions kitti | --predictions and --degrade
        4 --weights bad.safetensors | bad.safetensors
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
        3 --data flickr1024:kitti | kitti
    """
    refuse_all(table, "eval superres --data", KITTI)
    refuse_all("2 eval superres | --data")


def test_pairs_that_are_too_small_are_named(kitti: Path) -> None:
    for side in ("image_2", "image_3"):
        file = kitti / "training" / side / "000000_10.png"
        Image.open(file).crop((0, 0, 60, 64)).save(file)
    for part in ("disp_occ_0", "disp_noc_0", "obj_map"):
        (kitti / "training" / part / "000000_10.png").unlink()
    run = pam("eval", "superres", "--data", KITTI, "--baseline-only", "--per-image", "rows.csv")
    refuse(run, 3, "000000_10", "60x64", "too small")
    assert not Path("rows.csv").exists()
