"""Hold the options of `pam train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.registry.architectures import Task, list_architectures
from pamcli.settings import parsing
from pamcli.settings.options import Settings, flag, option
from pamcli.settings.shared import DATA, FORM, WEIGHTS, Device

RESUME_OPTIONS = {"resume", "device", "workers", "compile", "max_minutes", "steps"}
"""Options that can be combined with `resume`; all others are stored with the run."""


class Run(Settings, panel="Output"):
    """The run's folder."""

    output: Path | None = option("Create the run in this folder.", "-o", metavar="RUN")
    resume: Path | None = option("Continue this interrupted run.", metavar="RUN")
    max_minutes: float | None = option("Stop after N minutes; --resume continues.", metavar="N")


class Source(Settings, panel="Input"):
    """Data sets for training and validation."""

    data: Sequence[str] | None = option(
        "Train on this data set (pam dataset list); repeatable, with shares set by ?weight=.",
        **(DATA | {"metavar": FORM}),
    )
    crop: tuple[int, int] | None = option(
        "Train on crops of this size, px.",
        metavar="WIDTHxHEIGHT",
        parse=parsing.parse_crop_size,
        show_default="as in the recipe",
    )
    validation: Sequence[str] | None = option(
        "Validate on this data set, and keep the best weights as best.safetensors.", "--val", **DATA
    )


class Learning(Settings, panel="Learning"):
    """The recipe of a run, and changes to its values."""

    recipe: str | None = option(
        "Use a recipe of pam (pam guide recipes) or the recipe.json of a run; other options override it.",
        metavar="NAME|FILE.json",
        parse=parsing.parse_name,
    )
    steps: int | None = option("Train for N steps in total, including those before --resume.", min=1)
    epochs: float | None = option("Train for N passes over the data, instead of --steps.", metavar="N")
    batch: int | None = option("Pairs per step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("Highest learning rate of the schedule.", metavar="X")
    settings: Sequence[tuple[str, str]] | None = option(
        "Set any value of the recipe, such as losses.pam=0, ema=0.99 or schedule.kind=cosine (pam guide "
        "recipes); repeatable.",
        "--set",
        metavar="KEY=VALUE",
        parse=parsing.parse_setting,
    )
    seed: int | None = option("Seed of the weights and of the order of examples.", min=0)


class Start(Settings, panel="Network"):
    """The initial weights."""

    start: str | None = option(
        "Start from these weights: a name from `pam weights list`, or a file.",
        "--from",
        parse=parsing.parse_name,
        **(WEIGHTS | {"metavar": "WEIGHTS"}),
    )
    variant: str | None = option(
        "Train a variant of the network, such as blocks=2,refinement=none (pam guide studies).",
        metavar="KEY=VALUE,...",
    )


class Machine(Device):
    """Device, precision and processes."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "Compute in this precision; auto: the fastest one on the device.", show_default="as in the recipe"
    )
    workers: int | None = option(
        "Prepare examples in N processes; 0: in the main process.",
        min=0,
        max=256,
        show_default="1; with a GPU, one per core",
    )


class TrainSettings(Machine, Start, Learning, Source, Run, panel="Network"):
    """Options of both commands; None: as in the recipe. Raises UsageError for contradictory options."""

    positional: ClassVar[str] = "data"
    task: ClassVar[Task]
    conflicts: ClassVar = [("steps", "epochs")]
    requires: ClassVar = {"one": ("output", "resume")}

    def __post_init__(self) -> None:
        super().__post_init__()
        others = self.set_options(without=RESUME_OPTIONS)
        if self.resume is not None and others:
            raise UsageError(
                f"cannot use both `resume` and {others[0]}: a run continues with its own options",
                "to start a new run from its weights: `from` RUN/last.safetensors",
            )


def _declare_network(task: Task) -> Any:
    names = "|".join(list_architectures(task))
    return option("Train this network.", metavar=names, show_default="that of the recipe or of --from")


class TrainDisparitySettings(TrainSettings):
    """Options of `pam train disparity` and `train_disparity`."""

    task: ClassVar[Task] = "disparity"
    unsupervised: bool = flag(
        "Train on pairs without ground truth, starting from the default weights unless --from names others.",
        rich_help_panel="Learning",
    )
    network: str | None = _declare_network("disparity")
    max_disparity: int | Literal["stored"] | None = option(
        "Train with disparities below N px; stored with the weights.",
        default="stored",
        metavar="N|none",
        parse=parsing.parse_max_disparity,
        show_default="as stored with the weights",
    )


class TrainSuperresSettings(TrainSettings):
    """Options of `pam train superres` and `train_superres`."""

    task: ClassVar[Task] = "superres"
    network: str | None = _declare_network("superres")
    scale: int | None = option("Train to upscale width and height N times.", metavar="2|3|4|8")
    compile: bool = flag(
        "Compile PASSRnet 2 for a GPU: trains 1.5 times faster or more.", rich_help_panel="Performance"
    )
