"""Hold the options of `pam train`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.registry.architectures import NETWORKS, Task
from pamcli.settings.options import flag, forbid, option, require
from pamcli.settings.parsing import CropSize, DataSet, KeyValue, MaxDisparity, Name, Weights
from pamcli.settings.shared import FORM, Device

RESUME_OPTIONS = {"resume", "device", "workers", "compile", "max_minutes", "steps"}
"""Options that can be combined with `resume`; all others are stored with the run."""


def _declare_network(task: Task) -> Any:
    names = "|".join(NETWORKS[task])
    return option("Train this network [default: that of the recipe or of --from].", metavar=names)


class TrainSettings(Device, panel="Learning"):
    """Options of both commands; None: as in the recipe. Raises UsageError for contradictory options."""

    positional: ClassVar[str] = "data"
    task: ClassVar[Task]
    data: Sequence[DataSet] | None = option(
        "Train on this data set (pam dataset list); repeatable, with shares set by ?weight=.",
        metavar=FORM,
        panel="Input",
    )
    crop: CropSize | None = option(
        "Train on crops of this size, px [default: as in the recipe].", panel="Input"
    )
    validation: Sequence[DataSet] | None = option(
        "Validate on this data set, and keep the best weights as best.safetensors.", "--val", panel="Input"
    )
    output: Path | None = option("Create the run in this folder.", "-o", metavar="RUN", panel="Output")
    resume: Path | None = option("Continue this interrupted run.", metavar="RUN", panel="Output")
    max_minutes: float | None = option(
        "Stop after N minutes; --resume continues.", metavar="N", panel="Output"
    )
    recipe: Name | None = option(
        "Use a recipe of pam (pam guide recipes) or the recipe.json of a run; other options override it.",
        metavar="NAME|FILE.json",
    )
    steps: int | None = option("Train for N steps in total, including those before --resume.", min=1)
    epochs: float | None = option("Train for N passes over the data, instead of --steps.", metavar="N")
    batch: int | None = option("Pairs per step, over all processes of torchrun.", min=1)
    learning_rate: float | None = option("Highest learning rate of the schedule.")
    settings: Sequence[KeyValue] | None = option(
        "Set any value of the recipe, such as losses.pam=0, ema=0.99 or schedule.kind=cosine (pam guide "
        "recipes); repeatable.",
        "--set",
    )
    seed: int | None = option("Seed of the weights and of the order of examples.", min=0)
    start: Weights | None = option(
        "Start from these weights: a name from `pam weights list`, or a file.",
        "--from",
        metavar="WEIGHTS",
        panel="Network",
    )
    variant: str | None = option(
        "Train a variant of the network, such as blocks=2,refinement=none (pam guide studies).",
        metavar="KEY=VALUE,...",
        panel="Network",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = option(
        "Compute in this precision; auto: the fastest one on the device [default: as in the recipe].",
        panel="Performance",
    )
    workers: int | None = option(
        "Prepare examples in N processes; 0: in the main process [default: 1; with a GPU, one per core].",
        min=0,
        max=256,
        panel="Performance",
    )

    rules = forbid("steps", "epochs") + require("", "output", "resume")

    def check(self) -> None:
        if self.resume is not None and (others := self.set_options(without=RESUME_OPTIONS)):
            raise UsageError(
                f"cannot use both `resume` and {others[0]}: a run continues with its own options",
                "to start a new run from its weights: `from` RUN/last.safetensors",
            )


class TrainDisparitySettings(TrainSettings, panel="Network"):
    """Options of `pam train disparity` and `train_disparity`."""

    task: ClassVar[Task] = "disparity"
    unsupervised: bool = flag(
        "Train on pairs without ground truth, starting from the default weights unless --from names others.",
        panel="Learning",
    )
    network: str | None = _declare_network("disparity")
    max_disparity: MaxDisparity | None = option(
        "Train with disparities below N px; stored with the weights [default: as stored with the weights].",
        default="stored",
    )


class TrainSuperresSettings(TrainSettings, panel="Network"):
    """Options of `pam train superres` and `train_superres`."""

    task: ClassVar[Task] = "superres"
    network: str | None = _declare_network("superres")
    scale: int | None = option("Train to upscale width and height N times.", metavar="2|3|4|8")
    compile: bool = flag(
        "Compile PASSRnet 2 for a GPU: trains 1.5 times faster or more.", panel="Performance"
    )
