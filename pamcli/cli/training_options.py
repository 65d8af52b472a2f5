"""Options of pam train, for both networks."""

from pathlib import Path
from typing import Literal

from pamcli.cli import parsing
from pamcli.cli.groups import OptionGroup, flag, option
from pamcli.cli.network import WEIGHTS
from pamcli.cli.options import DATA, FORM, Device, Messages
from pamcli.registry.architectures import names_of

ON_RESUMING = {"resume", "device", "workers", "max_minutes", "wandb", "as_json", "quiet", "verbose", "steps"}
"""Options that go with --resume; all others are the run's already."""


class Run(OptionGroup, panel="Output"):
    """The run's folder, and how it is reported."""

    output: Path | None = option("The new run's folder.", "-o", metavar="RUN")
    resume: Path | None = option("Go on with a run that was stopped.", metavar="RUN")
    max_minutes: float | None = option("Stop cleanly after so many minutes; --resume goes on.", metavar="X")
    checkpoint_every: int | None = option("Write a checkpoint every so many steps.", min=1, metavar="STEPS")
    keep: int | None = option("Keep so many checkpoints, the latest.", min=1)
    log_every: int | None = option("Write a line of the log every so many steps.", min=1, metavar="STEPS")
    wandb: str | None = option(
        "Send the log to this project of Weights & Biases, too, if that is installed.",
        metavar="PROJECT",
        parse=parsing.name,
    )
    as_json: bool = flag("Print every line of the log on stdout, one JSON object a line.", "--jsonl")


class Source(OptionGroup, panel="Input"):
    """What is learned from, and measured on."""

    data: list[str] | None = option(
        "Learn from this data set of `pam dataset list`; given several times, ?weight= mixes them.",
        **(DATA | {"metavar": FORM}),
    )
    crop: tuple[int, int] | None = option(
        "Train on crops of this size, pixels.", metavar="WxH", parse=parsing.crop
    )
    validation: list[str] | None = option(
        "Measure the weights on this data set; the best are kept as best.", "--val", **DATA
    )


class Learning(OptionGroup, panel="Learning"):
    """The recipe, and what is changed in it."""

    recipe: str | None = option(
        "Train by one of pam's recipes (pam guide training), or a run's recipe.json; options change it.",
        metavar="NAME|FILE.json",
        parse=parsing.name,
    )
    steps: int | None = option("Learn from so many batches in all; with --resume: go on to so many.", min=1)
    epochs: float | None = option("Learn from so many passes over the data, instead of --steps.")
    batch: int | None = option("Take so many pairs in a step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("Set the highest learning rate of the schedule.", metavar="X")
    learning_rate_schedule: Literal["constant", "step", "cosine", "one-cycle"] | None = option(
        "Choose how the learning rate moves; --set schedule.KEY tunes it."
    )
    clip: float | None = option("Scale gradients down to at most this norm.")
    accumulate: int | None = option("Compute a batch in N parts, in less memory.", min=1, metavar="N")
    ema: float | None = option(
        "Average the weights over steps with this decay (0.99 for short runs), and keep the average.",
        metavar="DECAY",
        parse=None,
    )
    loss: list[str] | None = option("Weigh a term of the loss; 0 switches it off.", metavar="NAME=WEIGHT")
    settings: list[str] | None = option(
        "Set a value of the recipe, as in augmentation.noise=0.02.", "--set", metavar="KEY=VALUE"
    )
    seed: int | None = option("Draw fresh weights and examples from this seed.", min=0)


class Start(OptionGroup, panel="Network"):
    """The weights to begin with, and which of them learn."""

    start: str | None = option(
        "Begin with these weights: a name of `pam weights list`, or a file.",
        "--from",
        parse=parsing.name,
        **(WEIGHTS | {"metavar": "WEIGHTS"}),
    )
    variant: str | None = option(
        "Train a network with parts unlike the paper's, as in blocks=2,refinement=none.",
        metavar="KEY=VALUE,...",
    )
    only: str | None = option(
        "Let only these parts of the network learn, as in refine or pam.", metavar="PART,..."
    )
    anew: str | None = option("Begin a part with fresh weights in spite of --from.", metavar="PART")


class Machine(Device):
    """Where and how to compute."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "Compute in this precision; auto: the fastest that the processor has."
    )
    workers: int | None = option("Prepare examples in N processes (0: none of their own).", min=0, max=256)


class Training(Messages, Machine, Start, Learning, Source, Run, panel="Network"):
    """What the command line says; None = nothing."""


class MatcherTraining(Training):
    """Options of pam train disparity."""

    unsupervised: bool = flag(
        "Learn from pairs alone, from the default weights unless others are named; no truth is opened.",
        rich_help_panel="Learning",
    )
    network: str | None = option(
        "Train this matcher; by default that of the recipe, or of --from.",
        metavar="|".join(names_of("disparity")),
        parse=parsing.one_of(*names_of("disparity")),
    )
    max_disparity: int | Literal["stored"] | None = option(
        "Train with this largest disparity as a prior, which is stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )


class UpscalerTraining(Training):
    """Options of pam train superres."""

    network: str | None = option(
        "Train this network; by default that of the recipe, or of --from.",
        metavar="|".join(names_of("superres")),
        parse=parsing.one_of(*names_of("superres")),
    )
    scale: int | None = option("Learn to enlarge 2, 3, 4 or 8 times on each side.", metavar="2|3|4|8")


AnyTraining = MatcherTraining | UpscalerTraining
