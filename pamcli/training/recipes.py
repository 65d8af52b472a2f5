"""The recipes by name: those of the paper, and ours for the shipped weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pamcli.errors import UsageError
from pamcli.losses.weights import (
    KITTI,
    SCENEFLOW,
    SUPER_RESOLUTION,
    SUPERVISED,
    SUPERVISED_2,
    LossWeights,
)
from pamcli.training.augmentation import Augmentation
from pamcli.training.recipe import HEAD, Network, Recipe, Task, Wide
from pamcli.training.schedules import Schedule

_GEOMETRY = Augmentation(smallest=0.8, largest=1.25, stretch=0.1, mirror=0.5, upside_down=0.1)
_LIGHT = {"brightness": 0.2, "contrast": 0.2, "gamma": 0.2, "colour": 0.1}
"""Of both views alike: the losses without truth compare their colours."""

_SCENES = Recipe(
    name="scenes",
    task="disparity",
    batch=4,
    crop=(256, 512),
    losses=SUPERVISED,
    learning_rate=1e-3,
    steps=20000,
    optimizer="adamw",
    weight_decay=1e-4,
    schedule=Schedule("one-cycle", warmup=0.05, final=1e-3),
    clip=10.0,
    ema=0.999,
    augmentation=replace(
        _GEOMETRY,
        **_LIGHT,
        view_brightness=0.1,
        view_contrast=0.05,
        view_gamma=0.1,
        view_colour=0.05,
        noise=0.02,
        blur=0.8,
        erase=0.2,
    ),
)
_PASMNET2 = Recipe(
    name="pasmnet2",
    task="disparity",
    network="pasmnet2",
    batch=4,
    crop=(256, 512),
    wide=Wide((256, 768), 0.5),
    losses=SUPERVISED_2,
    learning_rate=5e-4,
    rates={
        "hourglass": 0.2,
        "cas_pam": 0.2,
        "hourglass.D3": 0.5,
        "cas_pam.b3": 0.5,
        "cas_pam.stage3": 0.5,
    },
    steps=20000,
    optimizer="adamw",
    betas=(0.9, 0.98),
    weight_decay=1e-5,
    schedule=Schedule("cosine", warmup=0.01, hold=0.5, final=5e-3),
    clip=1.0,
    ema=0.998,
    freeze_batch_norm=True,
    augmentation=Augmentation(
        smallest=0.8, largest=1.25, stretch=0.1, upside_down=0.15, gamma=0.4, colour=0.16
    ),
)
_SUPERRES = Recipe(
    name="superres",
    task="superres",
    batch=4,
    crop=(30, 90),
    scale=4,
    losses=LossWeights(
        charbonnier=1,
        likelihood=0.02,
        pam=0.005,
        pam_photometric=1,
        pam_smoothness=1,
        pam_cycle=1,
        pam_over_columns=True,
    ),
    learning_rate=6e-4,
    steps=20000,
    initialisation="upscaler",
    optimizer="adamw",
    schedule=Schedule("cosine", warmup=0.01, final=1e-3),
    clip=1.0,
    ema=0.999,
    augmentation=Augmentation(mirror=0.5, upside_down=0.5, permute_colours=0.5),
)
_PASSRNET2 = replace(
    _SUPERRES,
    name="passrnet2",
    network="passrnet2",
    batch=6,
    crop=(32, 96),
    losses=LossWeights(charbonnier=1, likelihood=0.01),
    learning_rate=1e-3,
    initialisation="default",
    betas=(0.9, 0.99),
    schedule=Schedule("cosine", warmup=0.01, hold=0.4, final=3e-3),
    ema=0.998,
)
_SCENEFLOW = Recipe(
    name="paper-sceneflow",
    task="disparity",
    batch=14,
    crop=(256, 512),
    losses=replace(SCENEFLOW, pam_over_columns=True, mask_by_truth_below=192),
    learning_rate=1e-3,
    epochs=10,
    precision="fp32",
    schedule=Schedule("step", milestones=(0.5,), factor=0.1),
)

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _SCENES,
        replace(_SCENES, name="scratch", losses=replace(SUPERVISED, estimate=0.5)),
        replace(
            _SCENES,
            name="refine",
            only="refine",
            anew="refine",
            losses=LossWeights(refined=1, estimate=1, smoothness=0.02),
            learning_rate=1.5e-4,
            ema=0.98,
            freeze_batch_norm=True,
        ),
        _PASMNET2,
        replace(
            _PASMNET2,
            name="pasmnet2-head",
            only=HEAD,
            rates={},
            freeze_batch_norm=False,
            learning_rate=1.2e-3,
            losses=replace(SUPERVISED_2, likelihood=0),
        ),
        replace(
            _SCENES,
            name="unsupervised",
            losses=replace(SCENEFLOW, pam_over_columns=True),
            learning_rate=5e-4,
            augmentation=replace(_GEOMETRY, **_LIGHT),
        ),
        replace(
            _SCENES,
            name="adapt",
            losses=replace(KITTI, pam_over_columns=True),
            learning_rate=2e-5,
            steps=2000,
            weight_decay=0.0,
            schedule=Schedule("cosine", warmup=0.05),
            clip=1.0,
            freeze_batch_norm=True,
            augmentation=Augmentation(smallest=0.9, largest=1.1, mirror=0.5, **_LIGHT),
            validate_every=500,
        ),
        _SUPERRES,
        _PASSRNET2,
        _SCENEFLOW,
        replace(
            _SCENEFLOW,
            name="paper-kitti",
            after="paper-sceneflow",
            losses=replace(KITTI, pam_over_columns=True),
            learning_rate=1e-4,
            epochs=80,
            schedule=Schedule("step", milestones=(0.75,), factor=0.1),
        ),
        Recipe(
            name="paper-superres",
            task="superres",
            batch=32,
            crop=(30, 90),
            scale=4,
            losses=replace(SUPER_RESOLUTION, pam_over_columns=True),
            learning_rate=2e-4,
            epochs=80,
            initialisation="xavier",
            views="left",
            precision="fp32",
            schedule=Schedule("step", milestones=(30 / 80, 60 / 80), factor=0.5),
            augmentation=Augmentation(mirror=0.5, upside_down=0.5),
        ),
    )
}
"""scenes: known disparities, from weights; scratch: the same from random ones; refine: PASMnet's refinement
alone, begun anew. pasmnet2: all of PASMnet 2, its late parts at half of the head's rate, its early ones at a
fifth; pasmnet2-head: its head behind a matching that stays as it is. unsupervised: the paper's losses at a
batch that fits a laptop. adapt: weights to a camera, from unlabelled pairs. superres: both pictures, taught
by known disparities where there are some; passrnet2: the same of PASSRnet 2.
paper-sceneflow, paper-kitti (Section 4.3.2), paper-superres (Section 5.4): as published. The lambdas were
chosen for PAM-s and PAM-c as the authors' code divides them, by the columns too, and so do all recipes: by
the pixels alone, as the equations read, both are 30 to 130 times larger and drown the photometric terms."""


def named_recipe(name: str, task: Task) -> Recipe:
    """Raises UsageError: no such recipe, or one of the other task."""
    recipe = RECIPES.get(name)
    if recipe is not None and recipe.task == task:
        return recipe
    names = ", ".join(known for known, one in RECIPES.items() if one.task == task)
    what = f"is one of pam train {recipe.task}" if recipe else "is none"
    raise UsageError(f"the recipe {name!r} {what}", f"here: {names}; a path ends in .json")


def default_recipe(task: Task, *, unsupervised: bool, start: bool, network: Network = "pasmnet") -> str:
    """Name of the recipe where none is asked for."""
    if task == "superres":
        return "passrnet2" if network == "passrnet2" else "superres"
    if not unsupervised:
        return "pasmnet2" if network == "pasmnet2" else "scenes" if start else "scratch"
    return "adapt" if start else "unsupervised"
