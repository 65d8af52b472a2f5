"""`pam train`: what a run leaves; one that is stopped ends as one that never was."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pam_program import forked, gate, names, pam, refuse, succeed, unchanged
from PIL import Image
from ports import free_port
from safetensors.numpy import load_file

from pamcli.registry.catalog import DEFAULT_MATCHING, locate, read_header
from pamcli.registry.resolution import EFFORTS
from pamcli.training.recipes import read_recipe
from pamcli.training.trainer import Trainer

STEPS = 4
COMMON = ["--batch", "2", "--workers", "0", "--device", "cpu", "--seed", "3"]
LEFT_ALONE = ["--variant", "views=left", "--set", "losses.pam=0", "--set", "losses.likelihood=0"]
TINY = ["--scale", "2", "--crop", "24x16", *LEFT_ALONE, *COMMON]
RESUME = "train superres --resume run --workers 0 --device cpu"


def put_pairs(names: str, folder: Path | str = "pairs") -> str:
    """Write pairs of noise, 80 x 40 pixels, to a data set."""
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        Path(folder, side).mkdir(parents=True)
        for name in names:
            Image.fromarray(rng.integers(0, 256, (40, 80, 3), np.uint8)).save(f"{folder}/{side}/{name}.png")
    return f"pairs:{folder}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options of a run of four steps on pairs of its own."""
    data = put_pairs("ab", tmp_path_factory.mktemp("data"))
    return [*TINY, "--data", data, "--steps", str(STEPS), "--set", "checkpoint_every=1"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, made: list[str]) -> Path:
    """A run that never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = succeed("train", "superres", *made, "-o", folder)
    assert run.lines == [str(folder / "last.safetensors")]
    return folder


def same_weights(run: Path, whole: Path) -> bool:
    return (run / "last.safetensors").read_bytes() == (whole / "last.safetensors").read_bytes()


def stopped(number: signal.Signals, *arguments: str) -> tuple[int, str]:
    """A run in a process of its own that gets a signal in its second step: exit code and stderr."""
    command = ["train", "superres", "--jsonl", *arguments]
    with gate(Trainer, "take_step", 1), forked(*command, text=True) as running:
        assert json.loads(running.stdout.readline())["step"] == 1
        with open("gate", "wb"):
            running.send_signal(number)
        _, err = running.communicate()
        return running.returncode, str(err)


def test_a_run_leaves_its_recipe_log_checkpoints_and_weights(whole: Path) -> None:
    found = [name for name in names(whole) if "tfevents" not in name]
    kept = [f"checkpoints/step-{step:08d}.pt" for step in (2, 3, 4)]
    assert found == [*kept, "last.safetensors", "log.jsonl", "recipe.json"]
    assert len(names(whole)) == len(found) + 1
    recipe = read_recipe(whole / "recipe.json")
    assert (recipe.name, recipe.steps, recipe.seed, recipe.crop) == ("superres", STEPS, 3, (16, 24))
    record = json.loads((whole / "recipe.json").read_text())["made_with"]
    assert {"pam", "commit", "torch", "python", "device", "precision", "processes"} <= record.keys()
    lines = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert set(line["losses"]) == set(line["terms"]) == {"charbonnier"}
        assert 0 <= line["waiting"] <= 1
        assert line["memory_mb"] > 50
        assert datetime.datetime.fromisoformat(line["time"]).tzinfo is not None


def test_weights_of_a_variant_are_used_at_once_and_say_what_they_are(whole: Path, small_pair: Path) -> None:
    header = read_header(whole / "last.safetensors")
    assert (header.spec.architecture, header.precision) == ("passrnet", "fp16")
    assert header.spec.variant == "views=left"
    said = "recipe superres, batches of 2 at 24x16, data pairs (2 pairs); 4 of 4 steps"
    assert header.spec.training == said
    info = pam("weights", "info", whole / "last.safetensors")
    assert "variant        views=left" in info.lines
    assert any(line.startswith("parameters ") and "(1.27M)" in line for line in info.lines)
    weights = ("--weights", whole / "last.safetensors", "--device", "cpu")
    run = pam("superres", "left.png", "right.png", "-o", "l2.png", *weights)
    assert (run.code, run.lines) == (0, ["l2.png"])


def test_a_run_stopped_by_hand_or_by_the_clock_says_how_to_go_on(whole: Path, made: list[str]) -> None:
    ended, err = stopped(signal.SIGTERM, *made, "-o", "run")
    assert ended == 143, err
    assert "continue with: pam train superres --resume run" in err
    run = succeed(RESUME, "--max-minutes", "0.00001", "--jsonl")
    assert run.records[-1]["stopped"] == "time"
    assert "continue with: pam train superres --resume run" in run.stderr
    run = pam(RESUME)
    assert (run.code, run.lines) == (0, [os.path.join("run", "last.safetensors")])
    assert same_weights(Path("run"), whole)
    steps = [json.loads(line)["step"] for line in Path("run/log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]


def test_a_damaged_checkpoint_is_skipped_with_a_message(whole: Path) -> None:
    shutil.copytree(whole, "run")
    newest = Path(f"run/checkpoints/step-{STEPS:08d}.pt")
    newest.write_bytes(newest.read_bytes()[:-1000])
    Path("run/last.safetensors").unlink()
    run = succeed(RESUME)
    assert any(f"step-{STEPS:08d}.pt is damaged" in line for line in run.complaints)
    assert f"continues after step {STEPS - 1}" in run.complaints
    assert same_weights(Path("run"), whole)
    for file in Path("run/checkpoints").iterdir():
        file.write_bytes(b"")
    refuse(pam(RESUME, "--quiet"), 4, "run/checkpoints")


def test_a_finished_run_can_be_extended(whole: Path) -> None:
    shutil.copytree(whole, "run")
    Path("run/last.safetensors").unlink()  # as of a run that was killed before it could write them
    run = pam(RESUME)
    assert (run.code, run.lines) == (0, ["run/last.safetensors"]), run.stderr
    assert any(f"all {STEPS} steps are done" in line for line in run.complaints)
    assert same_weights(Path("run"), whole)
    refuse(pam(RESUME, "--steps", str(STEPS - 1)), 2, f"has {STEPS} steps")
    succeed(RESUME, "--steps", str(STEPS))
    run = succeed(RESUME, "--steps", str(STEPS + 2))
    assert read_recipe(Path("run/recipe.json")).steps == STEPS + 2
    before, after = (json.loads((path / "recipe.json").read_text()) for path in (whole, Path("run")))
    assert after["made_with"] == before["made_with"]
    lines = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert not same_weights(Path("run"), whole)


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "said"),
    [
        ("recipe.json", '"data": [\n', '"data": [7,\n', 3, "data.0 must be a valid string, got 7"),
        ("recipe.json", '"steps": 4', '"steps": "4"', 3, "last.safetensors"),
        ("log.jsonl", '"step": 2', '"step": "2"', 3, "line 2 of run/log.jsonl is damaged: step must be"),
        ("recipe.json", "views=left", "paper", 4, "step-00000004.pt"),
    ],
)
def test_damaged_records_of_a_run_are_named(
    whole: Path, file: str, old: str, new: str, code: int, said: str
) -> None:
    shutil.copytree(whole, "run")
    text = Path("run", file).read_text()
    assert old in text
    Path("run", file).write_text(text.replace(old, new))
    with unchanged():
        assert refuse(pam(RESUME, "--quiet"), code, said).endswith(")")  # what to do


def test_a_recorded_recipe_repeats_the_run(whole: Path) -> None:
    again = ("--recipe", whole / "recipe.json", "-o", "again", "--workers", "0", "--device", "cpu")
    succeed("train", "superres", *again)
    assert same_weights(Path("again"), whole)


def test_a_run_whose_data_has_changed_does_not_go_on(here: Path) -> None:
    options = [*TINY, "--data", put_pairs("abc"), "--steps", "2", "--max-minutes", "0.00001", "-o", "run"]
    succeed("train", "superres", *options)
    Path("pairs/left/c.png").rename("c.png")
    with unchanged():
        refuse(pam(RESUME), 2, "the data of the run run has changed")


def test_two_processes_train_as_one_and_talk_as_one(here: Path) -> None:
    common = [*TINY, "--data", put_pairs("abcd"), "--steps", "1", "--precision", "fp32"]
    common += ["--batch", "4"]  # two each: a single pair is convolved by another algorithm
    succeed("train", "superres", *common, "-o", "one")
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    command = ["train", "superres", *common, "-o", "two"]
    ranks = [group | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    with forked(*command, env=ranks[0]) as first, forked(*command, env=ranks[1]) as second:
        (out, err), (more_out, more_err) = first.communicate(), second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), err + more_err
    assert (out.decode().splitlines(), more_out) == ([os.path.join("two", "last.safetensors")], b"")
    assert (err + more_err).count(b"pam: step 1 of 1") == 1
    one, other = (json.loads(Path(run, "log.jsonl").read_text()) for run in ("one", "two"))
    assert other["losses"] == pytest.approx(one["losses"], rel=1e-5)


def test_learning_from_pairs_alone_opens_no_truth(here: Path) -> None:
    put_pairs("ab")
    Path("pairs/disparity").mkdir()
    for name in "ab":
        Path(f"pairs/disparity/{name}.pfm").write_bytes(b"who reads this fails")
    common = ("--data", "pairs:pairs", "--crop", "64x32", *COMMON, "--steps", "1")
    refuse(pam("train disparity -o truth", *common), 3, ".pfm")
    succeed("train disparity --unsupervised --recipe unsupervised --from pasmnet -o run", *common)
    recipe = read_recipe(Path("run/recipe.json"))
    assert (recipe.name, recipe.start) == ("unsupervised", "pasmnet")
    (line,) = Path("run/log.jsonl").read_text().splitlines()
    terms = {"photometric", "smoothness", "pam_photometric", "pam_smoothness", "pam_cycle"}
    assert set(json.loads(line)["losses"]) == terms


def test_super_resolution_begins_with_x4_weights_and_validates(here: Path) -> None:
    put_pairs("ab")
    arguments = ("--scale", "2", "--data", "pairs:pairs", "--data", "pairs:pairs?weight=0.5", *COMMON)
    more = ("--val", "pairs:pairs", "--from", "passrnet-x4", "--crop", "24x10", "--steps", "1", "-o", "run")
    run = succeed("train", "superres", *arguments, *more, "--jsonl")
    before, training, after, end = run.records
    assert {"charbonnier", "likelihood"} <= training["losses"].keys()
    assert (before["step"], after["step"], end["gained"]["metric"]) == (0, 1, "PSNR")
    assert (end["gained"]["before"], end["gained"]["after"]) == (before["figure"], after["figure"])
    assert end["gained"]["better"] is after["best"] is (after["figure"] > before["figure"])
    validation = after if after["best"] else before
    assert end["weights"] == os.path.join("run", "best.safetensors")
    spec = read_header(Path("run/best.safetensors")).spec
    assert (spec.architecture, spec.scale) == ("passrnet", 2)
    assert f"PSNR {validation['validation']['pairs']['PSNR']:.2f}" in spec.training
    assert {f"validation/step-0000000{step}/1-pairs-2.png" for step in (0, 1)} <= {*names("run")}
    measured = ("--data", "pairs:pairs", "--weights", "run/best.safetensors", "--device", "cpu", "--json")
    figures = json.loads(pam("eval", "superres", *measured).stdout)["summary"]
    assert validation["figure"] == pytest.approx(figures[1]["left psnr"], abs=1e-6)


def test_a_stopped_validation_is_repeated_by_the_next_run(here: Path) -> None:
    data = ("--scale", "2", "--data", put_pairs("a"), "--val", "pairs:pairs", "--crop", "24x10", *COMMON)
    at_once, log = ("--max-minutes", "0.00001", "--jsonl"), Path("run/log.jsonl")
    succeed("train superres --steps 1 -o run", *data, *at_once)
    run = succeed(RESUME, *at_once)
    assert run.records[-1]["stopped"] == "time"
    assert "figure" not in log.read_text()
    succeed(RESUME)
    assert "figure" in log.read_text()
    assert Path("run/best.safetensors").is_file()


# --- prepared patches ---------------------------------------------------------------------------------------


@pytest.fixture
def published(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "Flickr1024" / "Train"
    folder.mkdir(parents=True)
    for view in "LR":
        small = rng.integers(0, 256, (30, 60, 3), dtype=np.uint8)
        Image.fromarray(small).resize((240, 120), Image.Resampling.BICUBIC).save(folder / f"0001_{view}.png")
    return folder.parent


def prepare(published: Path, store: str = "packed") -> str:
    """Cut the patches at x2; return the data set."""
    succeed(f"dataset prepare-flickr1024 {published} -o {store} --scale 2 --store {store}")
    return f"flickr1024:{store}"


OPTIONS = "train superres --steps 1 --batch 2 --crop 16x8 --workers 0"


def test_training_takes_both_stores_and_learns_the_same(published: Path) -> None:
    losses = []
    for store in ("packed", "folders"):
        data = prepare(published, store)
        succeed(f"{OPTIONS} --scale 2 --data {data} -o run_{store}")
        losses.append(json.loads(Path(f"run_{store}/log.jsonl").read_text().splitlines()[0])["losses"])
        # The paper's recipe, which knows no ground truth, takes them, too.
        succeed(f"{OPTIONS} --scale 2 --recipe paper-superres --data {data} -o paper_{store}")
    assert losses[0] == losses[1]
    assert losses[0]["charbonnier"] > 0


def test_patches_that_do_not_fit(published: Path) -> None:
    data = prepare(published)
    run = pam(f"train superres --scale 2 --network passrnet2 --data {data} -o run")
    refuse(run, 2, "have 90x30 px, less than the crop of 96x32 px")
    run = pam(f"{OPTIONS} --scale 4 --data {data} -o run")
    assert run.code == 2
    assert "prepared for x2, but the run trains x4" in run.complaints[-1]


# --- adaptation to pairs without ground truth ---------------------------------------------------------------


SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
LITTLE = ["--batch", "1", "--crop", "64x32", "--workers", "0", "--device", "cpu", "--precision", "fp32"]
ADAPT = ["train", "disparity", "--unsupervised", "--data", "pairs:mine", *LITTLE]


@pytest.fixture
def mine(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five pairs of 96 x 64 pixels, matched at this size, and a truth that nobody can read."""
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=1.0))
    for side in ("left", "right"):
        picture = Image.open(SAMPLE / f"{side}.png").convert("RGB")
        Path("mine", side).mkdir(parents=True)
        for number in range(5):
            place = 200 + 60 * number, 200
            picture.crop((*place, place[0] + 96, place[1] + 64)).save(f"mine/{side}/{number}.png")
    Path("mine/disparity").mkdir()
    for number in range(5):
        Path(f"mine/disparity/{number}.pfm").write_bytes(b"who reads this fails")


def same(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def test_weights_that_became_worse_are_kept_but_not_recommended(mine: None) -> None:
    run = succeed(*ADAPT, "--steps", "1", "--learning-rate", "0.1", "-o", "run", "--jsonl")
    assert f"pam: recipe adapt from {DEFAULT_MATCHING}, " in run.stderr
    assert "pam: held out for validation: 1 of 5 pairs (2)" in run.stderr
    assert "pam: computing pseudo-labels of 5 pairs" in run.stderr
    assert "pam: writes a checkpoint at the end of the run, also when it is stopped" in run.stderr
    labels = [name for name in names("run") if name.startswith("labels/")]
    numbers = ("000000", "000001", "000003", "000004", "aside/000002")
    assert labels == [f"labels/0/{number}.tif" for number in numbers]
    *records, end = run.records
    figures = {record["step"]: record["figure"] for record in records if "figure" in record}
    gained = end["gained"]
    assert figures == {0: gained["before"], 1: gained["after"]}
    assert gained["better"] is False
    assert end["weights"] == "run/best.safetensors"
    said = run.stderr.splitlines()[-1]
    assert said.startswith("pam: not clearly better: ")
    assert "run/best.safetensors has the initial weights, run/last.safetensors the new" in said
    assert same(Path("run/best.safetensors"), locate(DEFAULT_MATCHING))
    assert not same(Path("run/last.safetensors"), locate(DEFAULT_MATCHING))
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert set(log[1]["losses"]) == {"refined", "likelihood"}


def test_a_run_that_stops_before_its_labels_are_found_goes_on(mine: None) -> None:
    for side in ("left", "right"):
        Image.new("RGB", (96, 64)).save(f"mine/{side}/2.png")  # the held-out pair, which gets no labels
    run = pam(*ADAPT, "--steps", "1", "--max-minutes", "0.00001", "-o", "run")
    assert (run.code, run.lines) == (0, [])
    assert "pam: 0 of 5 pseudo-labels are written" in run.stderr
    assert "continue with: pam train disparity --resume run" in run.stderr
    resume = ("train", "disparity", "--resume", "run", "--workers", "0", "--device", "cpu")
    run = succeed(*resume)
    assert "computing pseudo-labels of 5 pairs" in run.stderr
    assert "pairs: block matching finds nothing reliable in held-out pairs" in run.stderr
    assert run.lines == ["run/last.safetensors"]
    label = Path("run/labels/0/000003.tif")
    label.unlink()
    run = pam(*resume, "--steps", "9", "--quiet")
    refuse(run, 3, str(label), "there is no such file", "start a new run")
