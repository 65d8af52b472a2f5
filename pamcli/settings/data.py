"""Hold the options of `pam dataset prepare-flickr1024` and `pam dataset label`."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pamcli.settings.options import argument, flag, option, require
from pamcli.settings.parsing import DataSet, Name, Weights
from pamcli.settings.shared import FORM, Compute, Matcher, NewFile, Workers


class PrepareSettings(Workers, panel="Input"):
    """Options of `prepare-flickr1024` and `prepare_flickr1024`."""

    inputs: Sequence[Name | Path] = argument(
        "Folders or zip archives with NAME_L.png and NAME_R.png; pairs of a data set as NAME:PATH; with "
        "--from-stereograms, folders or archives of stereograms.",
        default=...,
        metavar="INPUT",
    )
    add: Sequence[str] | None = option(
        "Add the pairs of another data set before the others; images of middlebury are downscaled to half.",
        metavar="NAME:PATH",
    )
    list_file: Path | None = option(
        "Use only the pairs in this list: NAME or SOURCE/NAME per line, * as a wildcard.",
        "--list",
        metavar="FILE",
    )
    split: Literal["train", "validation", "test"] = option(
        "Use this split of the published data set.", default="train"
    )
    from_stereograms: bool = flag("Rectify the stereograms in INPUT to pairs; with --scale, cut these.")
    layout: Literal["auto", "cross", "parallel"] | None = option(
        "Layout of the stereograms: cross-eyed, parallel, or detected for each [default: auto]."
    )
    infinity: Literal["yes", "no", "auto"] | None = option(
        "State whether the farthest point is infinitely far (yes: at 0 px; no: at 40 px); auto: set "
        "unclear stereograms aside."
    )
    skip_unpaired: bool = flag("Ignore images that have no partner.")
    skip_damaged: bool = flag("Skip images that cannot be read.")
    output: Path = option(
        "Write patches into x2, x4, patches_x2 ... in this folder.",
        "-o",
        default=...,
        metavar="FOLDER",
        panel="Output",
    )
    scale: Literal["2", "4"] | None = option(
        "Downscale the patches N times, to train for this scale.", panel="Output"
    )
    store: Literal["packed", "folders"] = option(
        "Write one file that is fast to read, or the authors' folders of PNG files.",
        default="packed",
        panel="Output",
    )

    rules = (
        require("layout infinity", "from_stereograms")
        + require("from_stereograms", "infinity")
        + require("", "scale", "from_stereograms")
        + require("add list", "scale")
    )


class LabelSettings(NewFile, Matcher, Compute, panel="Output"):
    """Options of `pam dataset label`."""

    positional: ClassVar[str] = "data"
    data: DataSet = argument(f"Data set of rectified pairs, {FORM}.", default=..., panel="Input")
    output: Path = option(
        "Write the folders left, right and disparity into this folder.", "-o", default=..., metavar="FOLDER"
    )
    overwrite: bool = flag("Replace pseudo-labels that exist.")
    mirrored: bool = flag("Also label the mirrored pair, with its images exchanged: twice the training data.")
    agree_with: Weights | None = option(
        "Keep labels that this second network confirms within 2 px, instead of block matching."
    )
