"""Tests of the options of `pam train`: errors before a run, and their effect on the recipe."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import pam, refuse, unchanged
from PIL import Image

from pamcli.cli import train
from pamcli.errors import UsageError
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.load import save_network
from pamcli.registry.spec import ModelSpec
from pamcli.settings.training import TrainDisparitySettings, TrainSuperresSettings
from pamcli.training.loop import Stop
from pamcli.training.recipes import RECIPES, make_recipe, recipe_json


@pytest.fixture
def pairs(here: Path) -> Path:
    """A folder of one unlabelled pair."""
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        (here / "pairs" / side).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (80, 120, 3), np.uint8)).save(here / "pairs" / side / "a.png")
    return here / "pairs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "procedural"], ["--output", "--resume"]),
        (["-o", "run"], ["no training data", "--data"]),
        (["-o", "run", "--data", "photos:x"], ["photos"]),
        (["-o", "run", "--data", "procedural", "--val", "kitti2016:x"], ["kitti2016", "kitti2015"]),
        (["-o", "run", "--data", "procedural", "--recipe", "paper"], ["paper", "paper-sceneflow"]),
        (["-o", "run", "--data", "procedural", "--recipe", "superres"], ["pam train superres"]),
        (["-o", "run", "--data", "procedural", "--crop", "512"], ["--crop", "512x256"]),
        (["-o", "run", "--data", "procedural", "--crop", "100x64"], ["100x64", "multiples of 32 px"]),
        (["-o", "run", "--data", "procedural", "--set", "losses.refined"], ["refined", "KEY=VALUE"]),
        (
            ["-o", "run", "--data", "procedural", "--set", "losses.refine=1"],
            ["refine", "did you mean losses.refined or "],
        ),
        (["-o", "run", "--data", "procedural", "--set", "losses.refined=much"], ["refined=much"]),
        (
            ["-o", "run", "--data", "procedural", "--set", "losses.refined=-1"],
            ["refined must be", "equal to 0", "got -1"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--set", "losses.charbonnier=1"],
            ["term charbonnier", "without losses."],
        ),
        (["-o", "run", "--data", "procedural", "--set", "noise"], ["noise", "KEY=VALUE"]),
        (["-o", "run", "--data", "procedural", "--set", "augmentation.nois=1"], ["augmentation.noise or "]),
        (
            ["-o", "run", "--data", "procedural", "--set", "augmentation.noise=-1"],
            ["noise must be", "got -1"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--batch", "4", "--set", "accumulate=3"],
            ["batch", "accumulate (3)"],
        ),
        (["-o", "run", "--data", "procedural", "--recipe", "paper-kitti"], ["paper-sceneflow"]),
        (
            ["-o", "run", "--data", "procedural", "--network", "pasmnet2", "--recipe", "scratch"],
            ["pasmnet2 does not have the loss term estimate"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--from", "pasmnet", "--set", "losses.estimate=0.5"],
            ["estimate", "reinitialise=refine"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--variant", "block=2"],
            ["'block=2'", "did you mean blocks", "refinement"],
        ),
        (["-o", "run", "--data", "procedural", "--variant", "blocks=5"], ["'5'", "one of 4, 3, 2, 1"]),
        (
            ["-o", "run", "--data", "procedural", "--network", "pasmnet2", "--variant", "blocks=2"],
            ["pasmnet2 has no variants"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--variant", "blocks=2", "--from", "pasmnet"],
            ["the variant paper", "blocks=2"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--variant", "refinement=none", "--set", "only=refine"],
            ["no part 'refine'", "parts: hourglass, cas_pam"],
        ),
        (["-o", "run", "--data", "procedural", "--set", "only=nose"], ["no part 'nose'", "refine"]),
        (
            ["-o", "run", "--data", "procedural", "--set", "reinitialise=upscale"],
            ["no part 'upscale'", "refine"],
        ),
        (
            [
                "-o",
                "run",
                "--data",
                "procedural",
                *(f"--set=losses.{n}=0" for n in ("refined", "estimate", "initial", "likelihood")),
            ],
            ["every loss term", "above 0"],
        ),
        (
            ["-o", "run", "--data=procedural", "--recipe=paper-sceneflow", "--unsupervised"],
            ["--unsupervised", "mask_by_truth_below"],
        ),
        (
            ["-o", "run", "--data", "procedural", "--unsupervised"],
            ["adapt", "procedural"],
        ),
        (["-o", "run", "--data", "procedural", "--max-disparity", "far"], ["--max-disparity", "far"]),
        (["-o", "run", "--data", "procedural", "--steps", "5", "--epochs", "1"], ["--steps", "--epochs"]),
        (["-o", "run", "--data", "procedural", "--epochs", "1"], ["endless", "--steps"]),
        (["-o", "run", "--data", "procedural", "--epochs", "nan"], ["--epochs"]),
        (["-o", "run", "--data", "procedural", "--recipe", "adapt"], ["adapt", "--from"]),
        (["-o", "run", "--data", "procedural", "--learning-rate", "0"], ["--learning-rate"]),
        (["-o", "run", "--data", "procedural", "--max-minutes", "-1"], ["--max-minutes"]),
        (["-o", "run", "--data", "procedural", "--device", "gpu"], ["gpu", "cuda:N"]),
        (
            ["-o", "run", "--data", "procedural", "--unsupervised", "--recipe", "scenes"],
            ["--unsupervised", "scenes"],
        ),
        (["-o", "run", "--resume", "run"], ["--output", "--resume"]),
        (["--resume", "run", "--batch", "3"], ["--batch", "--from"]),
        (["--resume", "run", "--seed", "0"], ["--seed"]),
        (["--resume", "run", "--data", "procedural"], ["--data"]),
        (["--resume", "run", "--from", "pasmnet"], ["--resume and --from"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_wrong_option_is_one_line_and_leaves_nothing(
    here: Path, arguments: list[str], said: list[str]
) -> None:
    with unchanged(here):
        refuse(pam("train", "disparity", *arguments), 2, *said)


@pytest.mark.parametrize(
    "arguments", [["--batch", "0"], ["--steps", "many"], ["--precision", "fp8"], ["--nonsense"]]
)
def test_what_the_parser_refuses_is_one_line_too(here: Path, arguments: list[str]) -> None:
    with unchanged(here):
        refuse(pam("train", "superres", "-o", "run", *arguments), 2, arguments[0])


def test_super_resolution_has_neither_a_prior_nor_to_be_told_that_it_needs_no_truth(here: Path) -> None:
    for option in (["--unsupervised"], ["--max-disparity", "192"]):
        refuse(pam("train", "superres", "--data", "procedural", "-o", "run", *option), 2, option[0])


def test_unlabelled_pairs_need_to_be_called_so(pairs: Path) -> None:
    with unchanged():
        run = pam("train", "disparity", "--data", "pairs:pairs", "-o", "run")
        refuse(run, 2, "pairs:pairs has no ground truth", "--unsupervised")
        masked = ("--recipe", "paper-sceneflow")
        run = pam("train", "disparity", "--data", "pairs:pairs", "-o", "run", *masked)
        refuse(run, 2, "pairs:pairs has no ground truth")


def test_validation_data_in_another_unit_are_an_error(here: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(3):
        left = rng.integers(0, 256, (48, 96, 3), np.uint8)
        for folder, view in (("left", left), ("right", np.roll(left, -8, axis=1))):
            Path("val", folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(view).save(f"val/{folder}/{number}.png")
        Path("val/disparity").mkdir(exist_ok=True)
        np.save(f"val/disparity/{number}.npy", np.full((48, 96), 16, np.float32))
    run = pam("train", "disparity", "--data", "procedural", "--val", "pairs:val", "-o", "run")
    refuse(run, 3, "pairs:val", "scale=2")
    assert not Path("run").exists()


def test_a_folder_that_holds_something_is_never_trained_into(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "notes.txt").write_text("mine")
    with unchanged(here):
        refuse(pam("train", "disparity", "--data", "procedural", "-o", "run"), 2, "run is not empty")
    (here / "run" / "recipe.json").write_text("{}")
    with unchanged(here):
        refuse(pam("train", "disparity", "--data", "procedural", "-o", "run"), 2, "--resume run")


def test_what_is_no_run_cannot_be_resumed(here: Path) -> None:
    refuse(pam("train", "disparity", "--resume", "run"), 3, "run has no recipe.json")
    (here / "run").mkdir()
    (here / "run" / "recipe.json").write_text(recipe_json(RECIPES["superres"]))
    refuse(pam("train", "disparity", "--resume", "run"), 2, "is a run of pam train superres")


def test_no_run_begins_where_nothing_can_be_written(here: Path) -> None:
    (here / "file").write_text("")
    with unchanged(here):
        refuse(pam("train", "disparity", "--data", "procedural", "-o", "file/run"), 7, "file/run")


def test_weights_that_do_not_fit_are_refused(here: Path) -> None:
    common = ("--data", "procedural", "-o", "run", "--from")
    with unchanged(here):
        refuse(pam("train", "disparity", *common, "passrnet2-x4"), 4, "passrnet2", "pam train superres")
        refuse(pam("train", "superres", *common, "pasmnet2"), 4, "pasmnet2", "pam train disparity")
        refuse(pam("train", "superres", *common, "passrnet-x2", "--scale", "4"), 2, "upscales by 2")
        refuse(pam("train", "disparity", *common, "none.safetensors"), 4, "none.safetensors")


def recipe(task: Any, **given: Any) -> Any:
    given["settings"] = [tuple(each.split("=", 1)) for each in given.get("settings", ())]
    kinds: dict[str, Any] = {"disparity": TrainDisparitySettings, "superres": TrainSuperresSettings}
    return make_recipe(kinds[task](output=Path("run"), **given))


def test_settings_complete_options(here: Path) -> None:
    given = {"network": "pasmnet2", "recipe": "scratch", "settings": ["losses.estimate=0"]}
    assert recipe("disparity", **given).network == "pasmnet2"


def test_options_change_the_recipe(here: Path) -> None:
    found = recipe(
        "disparity",
        data=["procedural"],
        validation=["kitti2015:k"],
        recipe="paper-sceneflow",
        steps=7,
        batch=3,
        crop=(128, 64),
        learning_rate=0.5,
        seed=9,
        precision="fp32",
        settings=[
            *("losses.smoothness=0", "losses.mask_by_truth_below=192", "keep=1", "log_every=5", "clip=2"),
            *("accumulate=3", "schedule.kind=cosine", "schedule.warmup=0.2"),
            *("augmentation.noise=0.02", "rates.cas_pam=0.5"),
        ],
        max_disparity=100,
    )
    expected = replace(
        RECIPES["paper-sceneflow"],
        data=("procedural",),
        validation=("kitti2015:k",),
        steps=7,
        epochs=None,
        batch=3,
        crop=(64, 128),
        learning_rate=0.5,
        losses=replace(RECIPES["paper-sceneflow"].losses, smoothness=0, mask_by_truth_below=192.0),
        seed=9,
        precision="fp32",
        keep=1,
        log_every=5,
        clip=2.0,
        accumulate=3,
        schedule=replace(RECIPES["paper-sceneflow"].schedule, kind="cosine", warmup=0.2),
        augmentation=replace(RECIPES["paper-sceneflow"].augmentation, noise=0.02),
        rates={"cas_pam": 0.5},
        max_disparity=112,
    )
    assert found == expected


def test_nothing_given_is_the_recipe_for_the_task() -> None:
    assert recipe("disparity") == RECIPES["scratch"]
    assert recipe("disparity", network="pasmnet2").name == "pasmnet2"
    assert recipe("disparity", start="pasmnet").name == "scenes"
    assert recipe("disparity", network="pasmnet2", unsupervised=True).architecture == "pasmnet2"
    adapted = replace(RECIPES["adapt"], start="pasmnet2", network="pasmnet2")
    assert recipe("disparity", unsupervised=True) == adapted
    assert recipe("disparity", unsupervised=True, recipe="unsupervised") == RECIPES["unsupervised"]
    assert recipe("disparity", unsupervised=True, network="pasmnet").name == "unsupervised"
    assert recipe("disparity", unsupervised=True, variant="blocks=2").start is None
    assert recipe("superres") == RECIPES["superres"]


@pytest.mark.parametrize("network", [None, "passrnet2"])
def test_weights_of_a_variant_begin_a_run_of_theirs_whatever_is_said_of_the_network(
    network: str | None,
) -> None:
    found = recipe("superres", start="passrnet2-x4", network=network, scale=2)
    assert (found.architecture, found.variant, found.scale) == ("passrnet2", "blocks=32", 2)
    assert recipe("superres", start="passrnet2-camera-x2").variant == "paper"


def test_a_recipe_s_file_can_be_changed_by_options(here: Path) -> None:
    (here / "mine.json").write_text(recipe_json(replace(RECIPES["adapt"], name="mine", batch=2, seed=4)))
    found = recipe("disparity", recipe="mine.json", batch=6)
    assert (found.name, found.batch, found.seed) == ("mine", 6, 4)
    with pytest.raises(UsageError, match="pam train disparity"):
        recipe("superres", recipe="mine.json")


def test_weights_bring_their_prior_and_their_scale(here: Path) -> None:
    save_network(PASMnet().state_dict(), ModelSpec("pasmnet", max_disparity=192), here / "p.safetensors")
    save_network(PASSRnet(2).state_dict(), ModelSpec("passrnet", scale=2), here / "s.safetensors")
    assert recipe("disparity", start="p.safetensors").max_disparity == 192
    assert recipe("disparity", start="p.safetensors", max_disparity=None).max_disparity is None
    assert recipe("disparity", start="p.safetensors", max_disparity=64).max_disparity == 64
    assert recipe("superres", start="s.safetensors").scale == 2
    assert recipe("superres", start="s.safetensors", scale=4).scale == 4
    assert recipe("disparity", start="p.safetensors", unsupervised=True).name == "adapt"
    # A recipe's file says what its run was trained with.
    (here / "d.json").write_text(recipe_json(replace(RECIPES["scenes"], max_disparity=64)))
    assert recipe("disparity", recipe="d.json", start="p.safetensors").max_disparity == 64
    (here / "s.json").write_text(recipe_json(replace(RECIPES["superres"], scale=4)))
    assert recipe("superres", recipe="s.json", start="s.safetensors").scale == 4


@pytest.mark.parametrize(
    ("number", "reason", "second"),
    [
        (signal.SIGINT, "interrupted", KeyboardInterrupt),
        (signal.SIGTERM, "terminated", SystemExit),
        (signal.SIGHUP, "terminated", SystemExit),
    ],
)
def test_the_second_signal_ends_at_once(
    number: signal.Signals, reason: str, second: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    stop = Stop()
    before = signal.getsignal(number)
    with train._stop_on_signals(stop):
        signal.raise_signal(number)
        assert stop.reason == reason
        with pytest.raises(second):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_help_lists_what_the_issue_s_commands_use(here: Path) -> None:
    shown = {task: pam("train", task, "--help").stdout.decode() for task in ("disparity", "superres")}
    for option in ("--data", "--val", "--recipe", "--steps", "--epochs", "--resume", "--from", "--jsonl"):
        assert all(option in text for text in shown.values())
    assert "--unsupervised" in shown["disparity"]
    assert "--scale" in shown["superres"]
