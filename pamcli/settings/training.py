"""What can be asked of `pam train`?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.registry.architectures import Task, list_architectures
from pamcli.settings import parsing
from pamcli.settings.options import Settings, flag, option
from pamcli.settings.shared import DATA, FORM, WEIGHTS, Device

ON_RESUMING = {"resume", "device", "workers", "compile", "max_minutes", "steps"}
"""Options that go with `resume`; all others are the run's already."""


class Run(Settings, panel="Output"):
    """The run's folder."""

    output: Path | None = option("The new run's folder.", "-o", metavar="RUN")
    resume: Path | None = option("Go on with a run that was stopped.", metavar="RUN")
    max_minutes: float | None = option("Stop cleanly after so many minutes; --resume goes on.", metavar="X")


class Source(Settings, panel="Input"):
    """What is learned from, and measured on."""

    data: Sequence[str] | None = option(
        "Learn from this data set of `pam dataset list`; given several times, ?weight= mixes them.",
        **(DATA | {"metavar": FORM}),
    )
    crop: tuple[int, int] | None = option(
        "Train on crops of this size, pixels.", metavar="WIDTHxHEIGHT", parse=parsing.crop_size
    )
    validation: Sequence[str] | None = option(
        "Measure the weights on this data set; the best are kept as best.", "--val", **DATA
    )


class Learning(Settings, panel="Learning"):
    """The recipe, and what is changed in it."""

    recipe: str | None = option(
        "Train by one of pam's recipes (pam guide recipes), or a run's recipe.json; options change it.",
        metavar="NAME|FILE.json",
        parse=parsing.name,
    )
    steps: int | None = option("Learn from so many batches in all; with --resume: go on to so many.", min=1)
    epochs: float | None = option("Learn from so many passes over the data, instead of --steps.")
    batch: int | None = option("Take so many pairs in a step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("Set the highest learning rate of the schedule.", metavar="X")
    settings: Sequence[tuple[str, str]] | None = option(
        "Set any value of the recipe, as in losses.pam=0, ema=0.99 or schedule.kind=cosine (pam guide "
        "training); may be given several times.",
        "--set",
        metavar="KEY=VALUE",
        parse=parsing.setting,
    )
    seed: int | None = option("Draw fresh weights and examples from this seed.", min=0)


class Start(Settings, panel="Network"):
    """The weights to begin with, and which of them learn."""

    start: str | None = option(
        "Begin with these weights: a name of `pam weights list`, or a file.",
        "--from",
        parse=parsing.name,
        **(WEIGHTS | {"metavar": "WEIGHTS"}),
    )
    variant: str | None = option(
        "Train a network of other parts, as in blocks=2,refinement=none.",
        metavar="KEY=VALUE,...",
    )


class Machine(Device):
    """Where and how to compute."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "Compute in this precision; auto: the fastest that the processor has."
    )
    workers: int | None = option("Prepare examples in N processes (0: none of their own).", min=0, max=256)


class TrainSettings(Machine, Start, Learning, Source, Run, panel="Network"):
    """What is asked of both commands; None: nothing. Raises UsageError for what does not go together."""

    positional: ClassVar[str] = "data"
    task: ClassVar[Task]
    conflicts: ClassVar = [("steps", "epochs")]
    requires: ClassVar = {"one": ("output", "resume")}

    def __post_init__(self) -> None:
        super().__post_init__()
        begins = self.set_options(without=ON_RESUMING)
        if self.resume is not None and begins:
            raise UsageError(
                f"cannot use both {begins[0]} and `resume`: a run goes on as it began",
                "a new run may begin with its weights: `from` RUN/last.safetensors",
            )


def _network(task: Task) -> Any:
    help_text = "Train this network; by default that of the recipe, or of --from."
    return option(help_text, metavar="|".join(list_architectures(task)))


class TrainDisparitySettings(TrainSettings):
    """Options of `pam train disparity` and `train_disparity`."""

    task: ClassVar[Task] = "disparity"
    unsupervised: bool = flag(
        "Learn from pairs alone, from the default weights unless others are named; no truth is opened.",
        rich_help_panel="Learning",
    )
    network: str | None = _network("disparity")
    max_disparity: int | Literal["stored"] | None = option(
        "Train with this largest disparity as a prior, which is stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.prior,
        show_default=False,
    )


class TrainSuperresSettings(TrainSettings):
    """Options of `pam train superres` and `train_superres`."""

    task: ClassVar[Task] = "superres"
    network: str | None = _network("superres")
    scale: int | None = option("Learn to enlarge 2, 3, 4 or 8 times on each side.", metavar="2|3|4|8")
    compile: bool = flag(
        "Compile PASSRnet 2 first, for a GPU: it then learns half as fast again or more.",
        rich_help_panel="Performance",
    )
