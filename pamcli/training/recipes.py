"""Recipes: everything that decides what a training run computes, as plain values.

Those of the paper, and ours for the shipped weights. A recipe does not say where a run goes, on which device,
with how many worker processes or for how long: the same recipe gives the same run anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pamcli.errors import UsageError
from pamcli.losses.weights import KITTI, SCENEFLOW, SUPER_RESOLUTION, SUPERVISED, LossWeights
from pamcli.registry.spec import PASSRNET_SCALES
from pamcli.training.augmentation import Augmentation
from pamcli.training.schedules import Schedule

Task = Literal["disparity", "superres"]

OTHERS_TERMS: Mapping[Task, tuple[str, ...]] = {
    "disparity": ("super_resolution", "charbonnier"),
    "superres": ("photometric", "smoothness", "refined", "estimate", "initial"),
}
"""Terms of the loss that only the other network has."""

PARTS: Mapping[Task, tuple[str, ...]] = {
    "disparity": ("hourglass", "cas_pam", "refine"),
    "superres": ("init_feature", "pam", "upscale"),
}
"""Of the networks, as their weights are called."""

SIZE_MULTIPLE = 32
"""PASMnet's crops: both sides are multiples of this."""


@dataclass(frozen=True)
class Recipe:
    """A training run. Raises UsageError where values are out of range or contradict each other."""

    name: str
    task: Task
    batch: int
    """Pairs in a step, over all processes."""
    crop: tuple[int, int]
    """Height and width of what the network is given: for super-resolution at low resolution."""
    losses: LossWeights
    learning_rate: float
    """The peak of the schedule."""
    data: tuple[str, ...] = ()
    """As `--data` gives them."""
    validation: tuple[str, ...] = ()
    scale: int | None = None
    """Super-resolution: the enlargement."""
    start: str | None = None
    """Weights to start from, as `--from` gives them."""
    initialisation: Literal["default", "xavier", "upscaler"] = "default"
    """Without `start`. default: PyTorch's. xavier: as the paper's PASSRnet. upscaler: a PASSRnet that begins
    as a plain enlargement."""
    only: str | None = None
    """One of `PARTS`: nothing else learns."""
    anew: str | None = None
    """One of `PARTS`: begins with fresh weights, whatever `start` has."""
    max_disparity: int | None = None
    """The prior, pixels, a multiple of 16: trained with, and stored with the weights."""
    steps: int | None = None
    epochs: float | None = None
    """Instead of `steps`: passes over the data."""
    optimizer: Literal["adam", "adamw"] = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    clip: float | None = None
    """Largest norm of the gradient of all weights."""
    ema: float | None = None
    """Decay of the moving average that is validated and kept; None: the weights themselves."""
    freeze_batch_norm: bool = False
    """Keep the running statistics that the weights came with, and normalise by them."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    seed: int = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    log_every: int = 20
    validate_every: int = 1000
    checkpoint_every: int = 500
    keep: int = 3
    """Checkpoints that stay."""

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_terms()
        for part in (self.only, self.anew):
            if part is not None and part not in PARTS[self.task]:
                parts = ", ".join(PARTS[self.task])
                raise UsageError(
                    f"the network of pam train {self.task} has no part {part!r}", f"here: {parts}"
                )
        if self.task == "superres":
            if self.scale not in PASSRNET_SCALES:
                known = ", ".join(map(str, PASSRNET_SCALES))
                raise UsageError("super-resolution needs an enlargement", f"--scale, one of {known}")
            if self.max_disparity is not None or self.freeze_batch_norm:
                raise UsageError("a maximum disparity and batch norm are PASMnet's, not PASSRnet's")
        else:
            if self.scale is not None or self.initialisation == "upscaler":
                raise UsageError("an enlargement belongs to super-resolution")
            if any(side % SIZE_MULTIPLE for side in self.crop):
                height, width = self.crop
                raise UsageError(
                    f"a crop of {width}x{height} does not fit PASMnet",
                    f"both sides are multiples of {SIZE_MULTIPLE}",
                )

    def _check_numbers(self) -> None:
        for name in ("batch", "log_every", "validate_every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if min(self.crop) < 8:
            raise UsageError(f"a crop of {self.crop[1]}x{self.crop[0]} is too small")
        if (self.steps is None) == (self.epochs is None):
            raise UsageError("a run has a number of steps or of epochs", "give one of --steps and --epochs")
        for name in ("steps", "epochs", "learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be above 0, not {value}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas {self.betas} are no decays from 0 to below 1")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise UsageError(f"weight_decay must be a number from 0 up, not {self.weight_decay}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise UsageError(f"ema {self.ema} is no decay between 0 and 1")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"the seed {self.seed} is not a whole number from 0 up")
        prior = self.max_disparity
        if prior is not None and (prior < 1 or prior % 16):
            raise UsageError(f"a maximum disparity of {prior} px is not a positive multiple of 16")

    def _check_terms(self) -> None:
        for name in OTHERS_TERMS[self.task]:
            if getattr(self.losses, name):
                raise UsageError(f"pam train {self.task} has no term {name} in its loss")
        if not (self.supervised or self.learns_without_truth):
            raise UsageError("every term of the loss is switched off", "--loss NAME=WEIGHT weighs one")

    @property
    def supervised(self) -> bool:
        """Some term learns from known disparities."""
        losses = self.losses
        return bool(losses.refined or losses.estimate or losses.initial or losses.likelihood)

    @property
    def learns_without_truth(self) -> bool:
        """Some term learns from pairs whose disparity is not known."""
        of_attention = self.losses.pam_photometric or self.losses.pam_smoothness or self.losses.pam_cycle
        pictures = self.losses.super_resolution or self.losses.charbonnier
        return bool(self.losses.photometric or pictures or (self.losses.pam and of_attention))

    def steps_of(self, pairs: int | None) -> int:
        """Steps of the run; `pairs` is the length of a pass over the data, None where it is endless.

        Raises UsageError: epochs of endless data.
        """
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        if pairs is None:
            raise UsageError("procedural scenes never end: there are no epochs", "give --steps")
        return max(1, math.ceil(self.epochs * pairs / self.batch))


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
_SCENEFLOW = Recipe(
    name="paper-sceneflow",
    task="disparity",
    batch=14,
    crop=(256, 512),
    losses=replace(SCENEFLOW, pam_over_columns=True),
    learning_rate=1e-3,
    epochs=10,
    schedule=Schedule("step", milestones=(0.5,), factor=0.1),
)

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _SCENES,
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
        _SCENEFLOW,
        replace(
            _SCENEFLOW,
            name="paper-kitti",
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
            schedule=Schedule("step", milestones=(30 / 80, 60 / 80), factor=0.5),
            augmentation=Augmentation(mirror=0.5, upside_down=0.5),
        ),
    )
}
"""scenes: known disparities. unsupervised: the paper's losses at a batch that a laptop bears. adapt: weights
to a camera, from unlabelled pairs. superres: both pictures, taught by known disparities where there are some.
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


def default_recipe(task: Task, *, unsupervised: bool, start: bool) -> str:
    """Name of the recipe where none is asked for."""
    if task == "superres":
        return "superres"
    if not unsupervised:
        return "scenes"
    return "adapt" if start else "unsupervised"
