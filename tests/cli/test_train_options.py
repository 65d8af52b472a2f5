"""Tests of the options of `pam train`: errors before a run, and their effect on the recipe."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pam_program import refuse_all
from PIL import Image

from pamcli.cli import train
from pamcli.errors import InputError, UsageError
from pamcli.networks.pasmnet import PASMnet
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.load import save_network
from pamcli.settings.training import TrainDisparitySettings, TrainSuperresSettings
from pamcli.training.loop import Stop
from pamcli.training.recipes import RECIPES, make_recipe, recipe_json


def test_a_wrong_option_is_one_line_and_leaves_nothing(here: Path) -> None:
    table = """
        2 -o run | no training data | --data
        2 -o run --data photos:x | photos
        2 -o run --resume run | --output | --resume
        2 --data procedural | --output | --resume
        2 --resume run --batch 3 | --batch | --from
        2 --resume run --seed 0 | --seed
        2 --resume run --data procedural | --data
        2 --resume run --from pasmnet | --resume and --from
        3 --resume run | run has no recipe.json
    """
    refuse_all(table, "train disparity")
    table = """
        2 --val kitti2016:x | kitti2016 | kitti2015
        2 --recipe paper | paper | paper-sceneflow
        2 --recipe superres | pam train superres
        2 --crop 512 | --crop | 512x256
        2 --crop 100x64 | 100x64 | multiples of 32 px
        2 --set losses.refined | refined | KEY=VALUE
        2 --set losses.refine=1 | refine | did you mean losses.refined?
        2 --set batch_size=1 | unknown setting 'batch_size' (did you mean batch?)
        2 --set gpu=1 | unknown setting 'gpu' (pam guide recipes lists the settings)
        2 --set losses.refined=much | refined=much
        2 --set losses.refined=-1 | refined must be | equal to 0 | got -1
        2 --set losses.charbonnier=1 | term charbonnier | without losses.
        2 --set augmentation.nois=1 | did you mean augmentation.noise?
        2 --set augmentation.noise=-1 | noise must be | got -1
        2 --batch 4 --set accumulate=3 | batch | accumulate (3)
        2 --recipe paper-kitti | paper-sceneflow
        2 --network pasmnet2 --recipe scratch | pasmnet2 does not have the loss term estimate
        2 --from pasmnet --set losses.estimate=0.5 | estimate | reinitialise=refine
        2 --variant block=2 | 'block=2' | did you mean blocks | refinement
        2 --variant blocks=5 | '5' | one of 4, 3, 2, 1
        2 --network pasmnet2 --variant blocks=2 | a variant of pasmnet2 must be KEY=VALUE
        2 --variant blocks=2 --from pasmnet | the variant paper | blocks=2
        2 --variant refinement=none --set only=refine | no part 'refine' | parts: hourglass, cas_pam
        2 --set only=nose | no part 'nose' | refine
        2 --set reinitialise=upscale | no part 'upscale' | refine
        2 --recipe=paper-sceneflow --unsupervised | --unsupervised | mask_by_truth_below
        2 --unsupervised | adapt | procedural
        2 --steps 5 --epochs 1 | --steps | --epochs
        2 --epochs 1 | endless | --steps
        2 --recipe adapt | adapt | --from
        2 --learning-rate 0 | --learning-rate
        2 --unsupervised --recipe scenes | --unsupervised | scenes
        4 --from passrnet2-x4 | passrnet2 | pam train superres
        7 -o file/run | file/run
    """
    nothing = " ".join(f"--set losses.{name}=0" for name in ("refined", "estimate", "initial", "likelihood"))
    Path("file").touch()
    refuse_all(
        f"{table}\n 2 {nothing} | every loss term | above 0", "train disparity -o run --data procedural"
    )
    table = """
        2 --batch 0 | --batch | --help lists all options
        2 --steps many | --steps | --help lists all options
        2 --unsupervised | --unsupervised | --help lists all options
        2 --max-disparity 192 | --max-disparity | --help lists all options
        4 --from pasmnet2 | pasmnet2 | pam train disparity
        2 --from passrnet-x2 --scale 4 | upscales by 2
        2 --from passrnet2-x4 --recipe passrnet2-camera VARIANT | cannot remove noise | blocks=32
    """
    variant = "--variant blocks=32,consistency=bicubic"
    refuse_all(table.replace("VARIANT", variant), "train superres -o run --data procedural")


def test_data_and_folders_that_do_not_fit(here: Path) -> None:
    for side in ("left", "right"):
        Path("pairs", side).mkdir(parents=True)
        Image.new("RGB", (120, 80)).save(f"pairs/{side}/a.png")
    for name, file in (("full", "notes.txt"), ("old", "recipe.json")):
        Path(name).mkdir()
        Path(name, file).write_text(recipe_json(RECIPES["superres"]))
    table = """
        2 --data pairs:pairs -o run | pairs:pairs has no ground truth | --unsupervised
        2 --data pairs:pairs -o run --recipe paper-sceneflow | pairs:pairs has no ground truth
        2 --data procedural -o full | full is not empty
        2 --data procedural -o old | --resume old
        2 --resume old | is a run of pam train superres
    """
    refuse_all(table, "train disparity")


def recipe(task: Any, **given: Any) -> Any:
    given["settings"] = [tuple(each.split("=", 1)) for each in given.get("settings", ())]
    kinds: dict[str, Any] = {"disparity": TrainDisparitySettings, "superres": TrainSuperresSettings}
    return make_recipe(kinds[task](output=Path("run"), **given))


def test_options_change_the_recipe(here: Path) -> None:
    options: dict[str, Any] = {"steps": 7, "batch": 3, "learning_rate": 0.5, "seed": 9, "precision": "fp32"}
    data: dict[str, Any] = {"data": ["procedural"], "validation": ["kitti2015:k"], "crop": (128, 64)}
    settings = ["losses.smoothness=0", "keep=1", "schedule.kind=cosine", "rates.cas_pam=0.5"]
    more = {"settings": settings, "recipe": "paper-sceneflow", "max_disparity": 100}
    usual = RECIPES["paper-sceneflow"]
    assert recipe("disparity", **options, **data, **more) == replace(
        usual,
        **options,
        epochs=None,
        data=("procedural",),
        validation=("kitti2015:k",),
        crop=(64, 128),
        losses=replace(usual.losses, smoothness=0),
        keep=1,
        schedule=replace(usual.schedule, kind="cosine"),
        rates={"cas_pam": 0.5},
        max_disparity=112,
    )


def test_nothing_given_is_the_recipe_for_the_task() -> None:
    assert recipe("disparity") == RECIPES["scratch"]
    assert recipe("disparity", network="pasmnet2").name == "pasmnet2"
    assert recipe("disparity", start="pasmnet").name == "scenes"
    assert recipe("disparity", network="pasmnet2", unsupervised=True).row.name == "pasmnet2"
    adapted = replace(RECIPES["adapt"], start="pasmnet2", network="pasmnet2")
    assert recipe("disparity", unsupervised=True) == adapted
    assert recipe("disparity", unsupervised=True, recipe="unsupervised") == RECIPES["unsupervised"]
    assert recipe("disparity", unsupervised=True, network="pasmnet").name == "unsupervised"
    assert recipe("disparity", unsupervised=True, variant="blocks=2").start is None
    assert recipe("superres") == RECIPES["superres"]


def test_a_run_takes_the_variant_of_its_initial_weights() -> None:
    found = recipe("superres", start="passrnet2-x4", scale=2)
    assert (found.row.name, found.scale) == ("passrnet2", 2)
    assert found.variant == "blocks=32,consistency=bicubic"
    assert recipe("superres", start="passrnet2-camera-x2", network="passrnet2").variant == "blocks=32"


def test_a_recipe_s_file_can_be_changed_by_options(here: Path) -> None:
    """The network and the losses of a file count only together with the options."""
    (here / "mine.json").write_text(recipe_json(replace(RECIPES["adapt"], name="mine", batch=2, seed=4)))
    found = recipe("disparity", recipe="mine.json", batch=6)
    assert (found.name, found.batch, found.seed) == ("mine", 6, 4)
    with pytest.raises(UsageError, match="pam train disparity"):
        recipe("superres", recipe="mine.json")
    needed = {"name": "mine", "task": "disparity", "steps": 3, "batch": 2, "crop": "128x64"}
    needed["learning_rate"] = 0.001
    (here / "a.json").write_text(json.dumps(needed | {"losses": {"refined": 1, "updates": 1}}))
    assert recipe("disparity", recipe="a.json", network="pasmnet2").losses.updates == 1
    assert recipe("disparity", recipe="a.json", settings=["losses.updates=0"]).losses.updates == 0
    with pytest.raises(InputError, match=r"a.json: pasmnet does not have the loss term updates"):
        recipe("disparity", recipe="a.json", settings=["losses.nothing=0"])


def test_weights_bring_their_prior_and_their_scale(here: Path) -> None:
    save_network(PASMnet().state_dict(), ModelSpec("pasmnet", max_disparity=192), here / "p.safetensors")
    assert recipe("disparity", start="p.safetensors").max_disparity == 192
    assert recipe("disparity", start="p.safetensors", max_disparity=None).max_disparity is None
    assert recipe("disparity", start="p.safetensors", max_disparity=64).max_disparity == 64
    assert recipe("disparity", start="p.safetensors", unsupervised=True).name == "adapt"
    assert recipe("superres", start="passrnet-x2").scale == 2
    # A recipe's file says what its run was trained with.
    (here / "d.json").write_text(recipe_json(replace(RECIPES["scenes"], max_disparity=64)))
    assert recipe("disparity", recipe="d.json", start="p.safetensors").max_disparity == 64
    (here / "s.json").write_text(recipe_json(replace(RECIPES["superres"], scale=4)))
    assert recipe("superres", recipe="s.json", start="passrnet-x2").scale == 4


def test_the_second_signal_ends_at_once() -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    with train._stop_on_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert stop.reason == "interrupted"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
