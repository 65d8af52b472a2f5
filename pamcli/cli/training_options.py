"""Options of pam train, for both networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from pamcli.cli import completion
from pamcli.cli.options import Device, Messages

ON_RESUMING = {"resume", "device", "workers", "max_minutes", "wandb", "as_json", "quiet", "verbose", "steps"}
"""Options that go with --resume; all others are the run's already."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run's folder, and how it is told."""

    panel: ClassVar[str] = "Output"
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="RUN", help="The new run's folder.")
    ] = None
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", help="Then stop cleanly; --resume goes on.")
    ] = None
    checkpoint_every: Annotated[
        int | None,
        typer.Option("--checkpoint-every", min=1, metavar="STEPS", help="Keep a checkpoint so often."),
    ] = None
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Checkpoints that stay.")] = None
    log_every: Annotated[
        int | None,
        typer.Option("--log-every", min=1, metavar="STEPS", help="Write a line of the log so often."),
    ] = None
    wandb: Annotated[
        str | None,
        typer.Option("--wandb", metavar="PROJECT", help="The log to Weights & Biases, too, if installed."),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--jsonl", help="Every line of the log on stdout, one JSON object a line.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is learned from, and measured on."""

    panel: ClassVar[str] = "Input"
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME[/SPLIT]:PATH[?key=value&...]",
            help="What to learn from: a data set of `pam dataset list`; ?weight= mixes several.",
            autocompletion=completion.data,
        ),
    ] = None
    crop: Annotated[
        str | None,
        typer.Option("--crop", metavar="WxH", help="Of the pictures that the network is given, pixels."),
    ] = None
    val: Annotated[
        list[str] | None,
        typer.Option("--val", metavar="DATA", help="What to measure on; the best weights are kept as best."),
    ] = None
    validate_every: Annotated[
        int | None,
        typer.Option("--validate-every", min=1, metavar="STEPS", help="Measure on --val so often."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The recipe, and what is changed in it."""

    panel: ClassVar[str] = "Learning"
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", metavar="NAME|FILE.json", help="Of this pam, or of a run folder. Options change it."
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, help="How many batches to learn from; with --resume: more."),
    ] = None
    epochs: Annotated[float | None, typer.Option("--epochs", help="The same, in passes over the data.")] = (
        None
    )
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Pairs in a step, over all processes of torchrun.")
    ] = None
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="The highest of the schedule.")
    ] = None
    learning_rate_schedule: Annotated[
        Literal["constant", "step", "cosine", "one-cycle"] | None,
        typer.Option("--learning-rate-schedule", help="How the rate moves, as --set schedule.KEY tunes."),
    ] = None
    clip: Annotated[float | None, typer.Option("--clip", help="Largest norm of the gradient.")] = None
    accumulate: Annotated[
        int | None,
        typer.Option("--accumulate", min=1, metavar="N", help="Compute a batch in N parts: less memory."),
    ] = None
    ema: Annotated[
        float | None,
        typer.Option(
            "--ema", metavar="DECAY", help="Of the average of weights, which is kept; 0.99 for short runs."
        ),
    ] = None
    loss: Annotated[
        list[str] | None,
        typer.Option("--loss", metavar="NAME=WEIGHT", help="Weigh a term of the loss; 0 switches it off."),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Of the recipe, as augmentation.noise=0.02."),
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of the fresh weights and of the examples.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Start:
    """The weights to begin with, and which of them learn."""

    panel: ClassVar[str] = "Network"
    from_weights: Annotated[
        str | None, typer.Option("--from", metavar="WEIGHTS", help="Weights to begin with, as of --weights.")
    ] = None
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PART,...", help="Let parts of the network learn, as refine or pam."),
    ] = None
    anew: Annotated[
        str | None,
        typer.Option("--anew", metavar="PART", help="Begin a part with fresh weights in spite of --from."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Machine(Device):
    """Where and how to compute."""

    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"] | None,
        typer.Option("--precision", help="auto: the fastest that the processor has."),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Processes that prepare examples (0: none of their own)."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Training(Messages, Machine, Start, Learning, Source, Run):
    """What the command line says; None = nothing."""

    panel: ClassVar[str] = "Network"

    def given(self) -> list[str]:
        """Names of the options that decide what a run computes, and stand on the command line."""
        return [
            name
            for name, value in vars(self).items()
            if name not in ON_RESUMING and value is not None and value is not False and value != []
        ]


@dataclass(frozen=True, kw_only=True)
class MatcherTraining(Training):
    """Of pam train disparity."""

    unsupervised: Annotated[
        bool,
        typer.Option(
            "--unsupervised",
            help="Learn from the pairs alone; no truth is opened.",
            rich_help_panel="Learning",
        ),
    ] = False
    network: Annotated[
        Literal["pasmnet", "pasmnet2"] | None,
        typer.Option("--network", help="Which matcher; else that of the recipe, or of --from."),
    ] = None
    max_disparity: Annotated[
        str | None,
        typer.Option("--max-disparity", metavar="N|none", help="A prior to train with: stored, too."),
    ] = None
    freeze_batch_norm: Annotated[
        bool | None,
        typer.Option("--freeze-batch-norm", help="Normalise by the statistics that the weights came with."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class UpscalerTraining(Training):
    """Of pam train superres."""

    network: Annotated[
        Literal["passrnet", "passrnet2"] | None,
        typer.Option("--network", help="Which network; else that of the recipe, or of --from."),
    ] = None
    scale: Annotated[
        int | None, typer.Option("--scale", metavar="2|3|4|8", help="Enlargement to learn: 2, 3, 4 or 8.")
    ] = None
