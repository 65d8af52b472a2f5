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
    max_minutes: float | None = option("Then stop cleanly; --resume goes on.", metavar="X")
    checkpoint_every: int | None = option("Keep a checkpoint so often.", min=1, metavar="STEPS")
    keep: int | None = option("Checkpoints that stay.", min=1)
    log_every: int | None = option("Write a line of the log so often.", min=1, metavar="STEPS")
    wandb: str | None = option(
        "The log to Weights & Biases, too, if installed.", metavar="PROJECT", parse=parsing.name
    )
    as_json: bool = flag("Every line of the log on stdout, one JSON object a line.", "--jsonl")


class Source(OptionGroup, panel="Input"):
    """What is learned from, and measured on."""

    data: list[str] | None = option(
        "What to learn from: a data set of `pam dataset list`; ?weight= mixes several.",
        **(DATA | {"metavar": FORM}),
    )
    crop: tuple[int, int] | None = option(
        "Of the pictures that the network is given, pixels.", metavar="WxH", parse=parsing.crop
    )
    validation: list[str] | None = option(
        "What to measure on; the best weights are kept as best.", "--val", **DATA
    )
    validate_every: int | None = option("Measure on --val so often.", min=1, metavar="STEPS")


class Learning(OptionGroup, panel="Learning"):
    """The recipe, and what is changed in it."""

    recipe: str | None = option(
        "Of this pam, or of a run folder. Options change it.", metavar="NAME|FILE.json", parse=parsing.name
    )
    steps: int | None = option("How many batches to learn from; with --resume: more.", min=1)
    epochs: float | None = option("The same, in passes over the data.")
    batch: int | None = option("Pairs in a step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("The highest of the schedule.", metavar="X")
    learning_rate_schedule: Literal["constant", "step", "cosine", "one-cycle"] | None = option(
        "How the rate moves, as --set schedule.KEY tunes."
    )
    clip: float | None = option("Largest norm of the gradient.")
    accumulate: int | None = option("Compute a batch in N parts: less memory.", min=1, metavar="N")
    ema: float | None = option(
        "Of the average of weights, which is kept; 0.99 for short runs.", metavar="DECAY", parse=None
    )
    loss: list[str] | None = option("Weigh a term of the loss; 0 switches it off.", metavar="NAME=WEIGHT")
    settings: list[str] | None = option(
        "Of the recipe, as augmentation.noise=0.02.", "--set", metavar="KEY=VALUE"
    )
    seed: int | None = option("Of the fresh weights and of the examples.", min=0)


class Start(OptionGroup, panel="Network"):
    """The weights to begin with, and which of them learn."""

    start: str | None = option(
        "Weights to begin with, as of --weights.",
        "--from",
        parse=parsing.name,
        **(WEIGHTS | {"metavar": "WEIGHTS"}),
    )
    variant: str | None = option(
        "Parts unlike the paper's, as blocks=2,refinement=none.", metavar="KEY=VALUE,..."
    )
    only: str | None = option("Let parts of the network learn, as refine or pam.", metavar="PART,...")
    anew: str | None = option("Begin a part with fresh weights in spite of --from.", metavar="PART")


class Machine(Device):
    """Where and how to compute."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "auto: the fastest that the processor has."
    )
    workers: int | None = option("Processes that prepare examples (0: none of their own).", min=0, max=256)


class Training(Messages, Machine, Start, Learning, Source, Run, panel="Network"):
    """What the command line says; None = nothing."""


class MatcherTraining(Training):
    """Of pam train disparity."""

    unsupervised: bool = flag("Learn from the pairs alone; no truth is opened.", rich_help_panel="Learning")
    network: str | None = option(
        "Which matcher; else that of the recipe, or of --from.",
        metavar="|".join(names_of("disparity")),
        parse=parsing.one_of(*names_of("disparity")),
    )
    max_disparity: int | Literal["stored"] | None = option(
        "A prior to train with: stored, too.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )
    freeze_batch_norm: bool | None = option("Normalise by the statistics that the weights came with.")


class UpscalerTraining(Training):
    """Of pam train superres."""

    network: str | None = option(
        "Which network; else that of the recipe, or of --from.",
        metavar="|".join(names_of("superres")),
        parse=parsing.one_of(*names_of("superres")),
    )
    scale: int | None = option("Enlargement to learn: 2, 3, 4 or 8.", metavar="2|3|4|8")


AnyTraining = MatcherTraining | UpscalerTraining
