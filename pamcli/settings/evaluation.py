"""What can be asked of `pam eval`, `pam submit` and `pam dataset label`?"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.settings import parsing
from pamcli.settings.options import Settings, argument, flag, option
from pamcli.settings.shared import (
    DATA,
    FORM,
    PRECISION,
    SCALE,
    WEIGHTS,
    Compute,
    Matcher,
    Matching,
    NewFile,
    Precision,
    Upscaling,
)

Texts = Sequence[str]
Paths = Sequence[Path]


class Exact(Compute):
    """How figures are computed: in fp32, if nothing else is said."""

    precision: Precision = option(PRECISION, default="fp32")


class DataSets(Settings, panel="Input"):
    """Data sets, and whose results."""

    positional: ClassVar[str] = "data"
    data: Texts = option(
        "Take the pairs of this data set of `pam dataset list`; may be given several times.",
        default=...,
        **(DATA | {"metavar": FORM}),
    )
    predictions: Path | None = option(
        "Take the results in this folder, which any program may have made, not a network's.", metavar="FOLDER"
    )


class Disparities(DataSets, Matching, Exact, panel="Input"):
    """Disparities of a network, or in files."""

    conflicts: ClassVar = [("predictions", other) for other in ("weights", "network_from", "max_disparity")]

    scale: float | None = SCALE


class Shown(NewFile):
    """Where the figures go."""

    per_image: Path | None = option("Write the figures of every picture.", metavar="FILE.csv")
    report: Path | None = option("Write a report that a browser shows, in one file.", metavar="FILE.html")
    table: Paths | None = option(
        "Write what is printed as a table for a paper or a page; may be given several times.",
        metavar="FILE.tex|.md|.csv",
        type=list[Path] | None,
    )
    compare: bool = flag("Show published figures for these sets beside it.")


class EvaluateDisparitySettings(Disparities, Shown, panel="Input"):
    """Options of `pam eval disparity` and `evaluate_disparity`."""

    conflicts: ClassVar = [("method", other) for other in ("predictions", "weights", "study")]
    allow_missing: bool = flag("Leave out samples that have no prediction.")
    method: Sequence[tuple[str, str]] | None = option(
        "Compare methods side by side, one for each time it is given. WHAT: a network as of --weights, "
        "files:FOLDER, opencv (StereoSGBM), opencv-wls. Differences are to the first.",
        metavar="[NAME=]WHAT",
        parse=parsing.method,
    )
    protocol: Texts | None = option(
        "Measure by the rules of this name (pam eval protocols lists them); given several times, each has "
        "a column. By default by those of each data set's benchmark.",
        metavar="NAME",
        complete="protocols",
    )
    max_gt: float | None = option(
        "Count only true disparities below this; the paper's limit is 192.", metavar="PX", parse=None
    )
    resize: tuple[int, int] | None = option(
        "Bring pictures and truth to this size first.", metavar="WIDTHxHEIGHT", parse=parsing.picture_size
    )
    study: Literal["resolution", "range"] | None = option(
        "resolution: measure also with pictures of 0.25 to 2 times the size; range: also by range of the "
        "truth and with fixed maximum disparities."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predictions is None and not any(what.startswith("files:") for _, what in self.method or ()):
            for name in ("allow_missing", "scale"):
                if self.is_set(name):
                    raise UsageError(f"`{name}` requires `predictions` or `method` files:FOLDER")


class EvaluateSuperresSettings(DataSets, Upscaling, Exact, Shown, panel="Input"):
    """Options of `pam eval superres` and `evaluate_superres`."""

    conflicts: ClassVar = [
        *(("predictions", other) for other in ("weights", "right_view", "save", "degrade")),
        *(("baseline_only", other) for other in ("predictions", "weights", "right_view", "save")),
    ]
    requires: ClassVar = {"allow_missing": ("predictions",)}
    allow_missing: bool = flag("Leave out samples that have no prediction.")
    baseline_only: bool = flag("Measure bicubic enlargement alone, without a network.")
    right_view: Literal["both", "right", "left"] = option(
        "left: give the network the left view twice. right: give it the right one. both: tell besides what "
        "the second view is worth, for up to twice the time.",
        default="both",
    )
    degrade: str | None = option(
        "Degrade the reduced pictures as a camera does before they are enlarged: KEY=VALUE,... of jpeg "
        "(quality), noise (levels of 255), blur (px), sharpening (share).",
        metavar="KEY=VALUE,...",
        parse=parsing.name,
    )
    save: Path | None = option(
        "Write enlarged views: <name>_left.png, _right.png.", metavar="FOLDER", rich_help_panel="Output"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None and self.scale != int(self.scale):
            raise UsageError(f"`scale` {self.scale:g}: pairs are measured at whole scales", "2, 3 or 4")


class SubmitSettings(Disparities, NewFile, panel="Input"):
    """Options of `pam submit`."""

    requires: ClassVar = {"scale": ("predictions",), "prediction_seconds": ("predictions",)}
    output: Path = option(
        "The archive to write.", "-o", default=..., metavar="FILE.zip", rich_help_panel="Output"
    )
    prediction_seconds: float | None = option(
        "State these seconds for each pair, which the program took; for Middlebury and ETH3D.",
        metavar="S",
    )


class LabelSettings(Matcher, Compute, panel="Output"):
    """Options of `pam dataset label`."""

    positional: ClassVar[str] = "data"
    data: str = argument(f"{FORM}, of rectified pairs.", default=..., rich_help_panel="Input", **DATA)
    output: Path = option(
        "Write folders left, right and disparity into this.", "-o", default=..., metavar="FOLDER"
    )
    overwrite: bool = flag("Label pairs anew that are labelled there.")
    mirrored: bool = flag("Label each pair mirrored, too, its views exchanged: twice as much to learn from.")
    agree_with: str | None = option(
        "Label where this other network finds the same, within 2 px, instead of asking block matching.",
        parse=parsing.name,
        **WEIGHTS,
    )
