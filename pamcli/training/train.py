"""Train networks from Python, and check the options of a run without loading PyTorch."""

from __future__ import annotations

from pathlib import Path

from pamcli.reporting import SILENT
from pamcli.settings.options import takes
from pamcli.settings.training import TrainDisparitySettings, TrainSettings, TrainSuperresSettings
from pamcli.training.recipes import plan_run


@takes(TrainDisparitySettings)
def train_disparity(settings: TrainDisparitySettings) -> Path:
    """Train a matcher, as `pam train disparity` does; return the file of the weights.

    >>> pamcli.train_disparity("pairs:labelled", output="run", steps=1, batch=1, crop=(64, 32), device="cpu")

    Args:
        settings: Data sets as `NAME:PATH`; then a `TrainDisparitySettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return _train(settings)


@takes(TrainSuperresSettings)
def train_superres(settings: TrainSuperresSettings) -> Path:
    """Train PASSRnet or PASSRnet 2, as `pam train superres` does; return the file of the weights.

    >>> pamcli.train_superres("pairs:labelled", output="run4", scale=2, steps=1, batch=1, crop=(16, 8))

    Args:
        settings: Data sets as `NAME:PATH`; then a `TrainSuperresSettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return _train(settings)


def _train(settings: TrainSettings) -> Path:
    folder, recipe = plan_run(settings)
    from pamcli.training.loop import Stop
    from pamcli.training.run import run

    run(settings, folder, recipe, Stop(settings.max_minutes), SILENT)
    return folder.weights
