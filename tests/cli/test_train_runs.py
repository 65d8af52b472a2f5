"""Runs of `pam train`: what they leave, and that one which is stopped ends as one that never was."""

from __future__ import annotations

import datetime
import gc
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from pam_program import forked, gate, names, pam, refuse
from PIL import Image
from ports import free_port
from torch.nn.parallel import DistributedDataParallel

from pamcli.registry.spec import read_header
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
    run = pam("train", "superres", *made, "-o", folder)
    assert run.code == 0, run.stderr
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
    run = pam(RESUME, "--max-minutes", "0.00001", "--jsonl")
    assert run.code == 0
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
    run = pam(RESUME)
    assert run.code == 0, run.stderr
    assert any(f"step-{STEPS:08d}.pt is damaged" in line for line in run.complaints)
    assert f"continues after step {STEPS - 1}" in run.complaints
    assert same_weights(Path("run"), whole)


def test_a_finished_run_can_be_extended(whole: Path) -> None:
    shutil.copytree(whole, "run")
    Path("run/last.safetensors").unlink()  # as of a run that was killed before it could write them
    run = pam(RESUME)
    assert (run.code, run.lines) == (0, ["run/last.safetensors"]), run.stderr
    assert any(f"all {STEPS} steps are done" in line for line in run.complaints)
    assert same_weights(Path("run"), whole)
    refuse(pam(RESUME, "--steps", str(STEPS - 1)), 2, f"has {STEPS} steps")
    assert pam(RESUME, "--steps", str(STEPS)).code == 0
    run = pam(RESUME, "--steps", str(STEPS + 2))
    assert run.code == 0, run.stderr
    assert read_recipe(Path("run/recipe.json")).steps == STEPS + 2
    before, after = (json.loads((path / "recipe.json").read_text()) for path in (whole, Path("run")))
    assert after["made_with"] == before["made_with"]
    lines = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert not same_weights(Path("run"), whole)


def test_where_no_checkpoint_is_whole_nothing_is_begun_anew(whole: Path) -> None:
    shutil.copytree(whole, "run")
    for file in Path("run/checkpoints").iterdir():
        file.write_bytes(b"")
    run = pam("train", "superres", "--resume", "run", "--quiet")
    refuse(run, 4, "run/checkpoints")


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "said"),
    [
        (
            "recipe.json",
            '"data": [\n      "',
            '"data": [\n      7, "',
            3,
            "data.0 must be a valid string, got 7",
        ),
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
    before = names("run")
    assert refuse(pam(RESUME, "--quiet"), code, said).endswith(")")  # what to do
    assert names("run") == before


def test_a_recorded_recipe_repeats_the_run(whole: Path) -> None:
    again = ("--recipe", whole / "recipe.json", "-o", "again", "--workers", "1", "--device", "cpu")
    run = pam("train", "superres", *again)
    assert run.code == 0, run.stderr
    assert same_weights(Path("again"), whole)


def test_a_run_whose_data_has_changed_does_not_go_on(here: Path) -> None:
    options = [*TINY, "--data", put_pairs("abc"), "--steps", "2", "--max-minutes", "0.00001", "-o", "run"]
    run = pam("train", "superres", *options)
    assert run.code == 0, run.stderr
    Path("pairs/left/c.png").rename("c.png")
    before = names("run")
    refuse(pam(RESUME), 2, "the data of the run run has changed")
    assert names("run") == before
    Path("c.png").rename("pairs/left/c.png")
    assert pam(RESUME).code == 0


def test_two_processes_train_as_one_and_talk_as_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = dist.destroy_process_group

    def part_when_nothing_holds_the_group() -> None:
        assert not [each for each in gc.get_objects() if type(each) is DistributedDataParallel]
        part()

    monkeypatch.setattr(dist, "destroy_process_group", part_when_nothing_holds_the_group)
    common = [*TINY, "--data", put_pairs("abcd"), "--steps", "1", "--precision", "fp32"]
    common += ["--batch", "4"]  # two each: a single pair is convolved by another algorithm
    assert pam("train", "superres", *common, "-o", "one").code == 0
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
    run = pam("train disparity --unsupervised --recipe unsupervised --from pasmnet -o run", *common)
    assert run.code == 0, run.stderr
    recipe = read_recipe(Path("run/recipe.json"))
    assert (recipe.name, recipe.start) == ("unsupervised", "pasmnet")
    (line,) = Path("run/log.jsonl").read_text().splitlines()
    terms = {"photometric", "smoothness", "pam_photometric", "pam_smoothness", "pam_cycle"}
    assert set(json.loads(line)["losses"]) == terms


def test_pairs_of_which_some_have_a_truth_are_counted(here: Path) -> None:
    put_pairs("ab")
    Path("pairs/disparity").mkdir()
    np.save("pairs/disparity/b.npy", np.full((40, 80), 4, np.float32))
    run = pam("train disparity --data pairs:pairs --crop 64x32 --steps 1 -o r", *COMMON)
    assert run.code == 0, run.stderr
    assert "pairs: no ground truth (disparity) for 1 of 2 pairs: a" in run.stderr


def test_super_resolution_begins_with_x4_weights_and_validates(here: Path) -> None:
    put_pairs("ab")
    arguments = ("--scale", "2", "--data", "pairs:pairs", "--data", "pairs:pairs?weight=0.5", *COMMON)
    more = ("--val", "pairs:pairs", "--from", "passrnet-x4", "--crop", "24x10", "--steps", "1", "-o", "run")
    run = pam("train", "superres", *arguments, *more, "--jsonl")
    assert run.code == 0, run.stderr
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


def test_passrnet_2_is_trained_measured_and_used(here: Path) -> None:
    put_pairs("a")
    more = ("--scale", "2", "--crop", "24x10", "--steps", "1", "--val", "pairs:pairs", "--jsonl", *COMMON)
    run = pam("train superres --data pairs:pairs --network passrnet2 -o run", *more)
    assert run.code == 0, run.stderr
    weights = Path("run/best.safetensors")
    assert read_header(weights).spec.architecture == "passrnet2"
    used = pam("superres pairs/left/a.png pairs/right/a.png --device cpu -o large.png --weights", weights)
    assert used.code == 0, used.stderr
    with Image.open("large.png") as large:
        assert large.size == (160, 80)


def test_a_stopped_validation_is_repeated_by_the_next_run(here: Path) -> None:
    put_pairs("a")
    data = ("--scale", "2", "--data", "pairs:pairs", "--val", "pairs:pairs", "--crop", "24x10", *COMMON)
    at_once = ("--max-minutes", "0.00001", "--jsonl")
    assert pam("train", "superres", *data, "--steps", "1", *at_once, "-o", "run").code == 0
    resume = ("train", "superres", "--resume", "run", "--workers", "0", "--device", "cpu")
    run = pam(*resume, *at_once)
    assert (run.code, run.records[-1]["stopped"]) == (0, "time")
    assert "figure" not in Path("run/log.jsonl").read_text()
    assert pam(*resume).code == 0
    assert "figure" in Path("run/log.jsonl").read_text()
    assert Path("run/best.safetensors").is_file()


def test_damaged_data_leaves_the_last_checkpoint(here: Path) -> None:
    for side in ("left", "right"):
        Path("pairs", side).mkdir(parents=True)
        Image.new("RGB", (64, 32)).save(f"pairs/{side}/a.png")
        Path(f"pairs/{side}/b.png").write_bytes(b"no picture")
    common = ("--crop", "64x32", *COMMON, "--batch", "1", "--steps", "2", "--set", "checkpoint_every=1")
    seed = ("--seed", "4")  # of which a comes before b
    data = ("--unsupervised", "--recipe", "unsupervised", "--data", "pairs:pairs")
    run = pam("train", "disparity", *data, *common, *seed, "-o", "run", "--quiet")
    refuse(run, 3, "b.png")
    assert os.listdir("run/checkpoints") == ["step-00000001.pt"]
