"""Implement `pam train`: make a recipe from settings, and start or resume a run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from pamcli.data.open import parse_data
from pamcli.settings.options import takes
from pamcli.settings.training import TrainDisparitySettings, TrainSettings, TrainSuperresSettings
from pamcli.training.journal import NoObserver, Observer, RunFolder
from pamcli.training.recipe import Recipe
from pamcli.training.recipes import choose_recipe

if TYPE_CHECKING:
    from pamcli.training.loop import RunEnd, Stop


@takes(TrainDisparitySettings)
def train_disparity(settings: TrainDisparitySettings) -> Path:
    """Train a matcher, as `pam train disparity` does; return the file of the weights.

    >>> pamcli.train_disparity("pairs:labelled", output="run", steps=1, batch=1, crop=(64, 32), device="cpu")

    Args:
        settings: Data sets as `NAME:PATH`; then a `TrainDisparitySettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return _trained(settings)


@takes(TrainSuperresSettings)
def train_superres(settings: TrainSuperresSettings) -> Path:
    """Train PASSRnet or PASSRnet 2, as `pam train superres` does; return the file of the weights.

    >>> pamcli.train_superres("pairs:labelled", output="run4", scale=2, steps=1, batch=1, crop=(16, 8))

    Args:
        settings: Data sets as `NAME:PATH`; then a `TrainSuperresSettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return _trained(settings)


def _trained(settings: TrainSettings) -> Path:
    from pamcli.training.loop import Stop

    folder, recipe = planned(settings)
    run(settings, folder, recipe, Stop(settings.max_minutes), NoObserver())
    return folder.weights


def planned(settings: TrainSettings) -> tuple[RunFolder, Recipe | None]:
    """Return the folder of a run and its recipe (None to resume), without loading PyTorch.

    Raises UsageError, InputError, ModelError.
    """
    for text in [*(settings.data or ()), *(settings.validation or ())]:
        parse_data(text)
    folder = RunFolder(Path(settings.output or settings.resume or ""))
    if settings.resume is not None:
        return folder, None
    folder.require_new()
    return folder, make_recipe(settings)


def make_recipe(settings: TrainSettings) -> Recipe:
    """Return the requested recipe, changed by the given options; raise as `choose_recipe`."""
    given = {each.name: getattr(settings, each.name, None) for each in fields(Recipe)}
    values = {name: value for name, value in given.items() if value not in (None, [], (), "stored")}
    if settings.crop is not None:
        values["crop"] = settings.crop[::-1]  # recipes use (height, width)
    if getattr(settings, "max_disparity", "stored") != "stored":
        values["max_disparity"] = given["max_disparity"]
    changes, unsupervised = dict(settings.settings or ()), getattr(settings, "unsupervised", False)
    return choose_recipe(settings.task, settings.recipe, values, changes, unsupervised=unsupervised)


def run(
    settings: TrainSettings, folder: RunFolder, recipe: Recipe | None, stop: Stop, observer: Observer
) -> RunEnd:
    """Start a run, or resume it if `recipe` is None; raise as `run.start` and `run.resume`."""
    from pamcli.training import run as runs

    machine = runs.Machine(settings.device, settings.workers, getattr(settings, "compile", False))
    if recipe is not None:
        return runs.start(recipe, folder, machine, stop, observer)
    return runs.resume(folder, machine, stop, observer, settings.steps, task=settings.task)
