"""Tests of the options of `pam train`: errors before a run, and their effect on the recipe."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import pam, refuse, refuse_all
from PIL import Image

from pamcli.cli import train
from pamcli.errors import InputError, UsageError
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.load import save_network
from pamcli.registry.spec import ModelSpec
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
        2 --set noise | noise | KEY=VALUE
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
        2 --max-disparity far | --max-disparity | far
        2 --steps 5 --epochs 1 | --steps | --epochs
        2 --epochs 1 | endless | --steps
        2 --epochs nan | --epochs
        2 --recipe adapt | adapt | --from
        2 --learning-rate 0 | --learning-rate
        2 --max-minutes -1 | --max-minutes
        2 --device gpu | gpu | cuda:N
        2 --unsupervised --recipe scenes | --unsupervised | scenes
        4 --from passrnet2-x4 | passrnet2 | pam train superres
        4 --from none.safetensors | none.safetensors
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
        2 --precision fp8 | --precision | --help lists all options
        2 --nonsense | --nonsense | --help lists all options
        2 --unsupervised | --unsupervised | --help lists all options
        2 --max-disparity 192 | --max-disparity | --help lists all options
        4 --from pasmnet2 | pasmnet2 | pam train disparity
        2 --from passrnet-x2 --scale 4 | upscales by 2
    """
    refuse_all(table, "train superres -o run --data procedural")


def test_unlabelled_pairs_need_to_be_called_so(here: Path) -> None:
    rng = np.random.default_rng(0)
    for side in ("left", "right"):
        (here / "pairs" / side).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (80, 120, 3), np.uint8)).save(here / "pairs" / side / "a.png")
    table = """
        2 -o run | pairs:pairs has no ground truth | --unsupervised
        2 -o run --recipe paper-sceneflow | pairs:pairs has no ground truth
    """
    refuse_all(table, "train disparity --data pairs:pairs")


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
    for name, file in (("run", "notes.txt"), ("old", "recipe.json"), ("other", "recipe.json")):
        Path(name).mkdir()
        Path(name, file).write_text(recipe_json(RECIPES["superres"]))
    table = """
        2 --data procedural -o run | run is not empty
        2 --data procedural -o old | --resume old
        2 --resume other | is a run of pam train superres
    """
    refuse_all(table, "train disparity")


def recipe(task: Any, **given: Any) -> Any:
    given["settings"] = [tuple(each.split("=", 1)) for each in given.get("settings", ())]
    kinds: dict[str, Any] = {"disparity": TrainDisparitySettings, "superres": TrainSuperresSettings}
    return make_recipe(kinds[task](output=Path("run"), **given))


def test_settings_complete_options(here: Path) -> None:
    given = {"network": "pasmnet2", "recipe": "scratch", "settings": ["losses.estimate=0"]}
    assert recipe("disparity", **given).network == "pasmnet2"


def test_options_correct_a_file_that_contradicts_itself(here: Path) -> None:
    """The network and the losses of a file count only together with the options."""
    needed = {"name": "mine", "task": "disparity", "steps": 3, "batch": 2, "crop": "128x64"}
    needed["learning_rate"] = 0.001
    (here / "a.json").write_text(json.dumps(needed | {"losses": {"refined": 1, "updates": 1}}))
    assert recipe("disparity", recipe="a.json", network="pasmnet2").losses.updates == 1
    assert recipe("disparity", recipe="a.json", settings=["losses.updates=0"]).losses.updates == 0
    with pytest.raises(InputError, match=r"a.json: pasmnet does not have the loss term updates"):
        recipe("disparity", recipe="a.json", settings=["losses.nothing=0"])


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
def test_a_run_takes_the_variant_of_its_initial_weights(
    network: str | None,
) -> None:
    found = recipe("superres", start="passrnet2-x4", network=network, scale=2)
    assert (found.architecture, found.scale) == ("passrnet2", 2)
    assert found.variant == "blocks=32,consistency=bicubic"
    assert recipe("superres", start="passrnet2-camera-x2").variant == "blocks=32"


def test_camera_augmentation_excludes_bicubic_consistency() -> None:
    given: dict[str, Any] = {"start": "passrnet2-x4", "recipe": "passrnet2-camera"}
    assert recipe("superres", **given).variant == "blocks=32"
    problem = "a network with consistency=bicubic cannot remove noise and JPEG artefacts"
    with pytest.raises(UsageError, match=problem) as caught:
        recipe("superres", **given, variant="blocks=32,consistency=bicubic")
    assert caught.value.hint == "set `variant` blocks=32, or augmentation.camera=0"


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
