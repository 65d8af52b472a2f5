"""What can be asked of `pam dataset prepare-flickr1024`?"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pamcli.settings import parsing
from pamcli.settings.options import Place, Settings, argument, flag, option
from pamcli.settings.shared import WORKERS


class PrepareSettings(Settings, panel="Input"):
    """Options of `prepare-flickr1024` and `prepare_flickr1024`."""

    requires: ClassVar = {
        "layout": ("from_stereograms",),
        "infinity": ("from_stereograms",),
        "from_stereograms": ("infinity",),
        "one": ("scale", "from_stereograms"),
        "add": ("scale",),
        "list": ("scale",),
    }
    inputs: Sequence[Place] = argument(
        "Folders or zip archives with NAME_L.png, NAME_R.png, nested or not; pairs of a data set as "
        "NAME:PATH; with --from-stereograms, folders or archives of those.",
        default=...,
        metavar="INPUT",
        parse=parsing.name,
    )
    add: Sequence[str] | None = option(
        "Add pairs of another data set, numbered before the others; middlebury is halved first.",
        metavar="NAME:PATH",
    )
    list_file: Path | None = option(
        "Take these pairs alone: NAME or SOURCE/NAME a line, * for any.", "--list", metavar="FILE"
    )
    split: Literal["train", "validation", "test"] = option(
        "Cut this part of the published set.", default="train"
    )
    from_stereograms: bool = flag("INPUT holds stereograms: rectify them to pairs; cut these with --scale.")
    layout: Literal["auto", "cross", "parallel"] | None = option(
        "How the stereograms lie: cross-eyed, parallel, or auto, found out for each.", show_default="auto"
    )
    infinity: Literal["yes", "no", "auto"] | None = option(
        "Say whether the farthest thing in them is infinitely far (yes: 0 px, no: 40 px); auto sets "
        "aside the unclear."
    )
    skip_unpaired: bool = flag("Go on without pictures that have no partner.")
    skip_damaged: bool = flag("Finish without pictures that cannot be read.")
    output: Path = option(
        "Patches go into x2, x4 or patches_x2 ... in it.",
        "-o",
        default=...,
        metavar="FOLDER",
        rich_help_panel="Output",
    )
    scale: Literal["2", "4"] | None = option(
        "Reduce the patches so many times, to learn x2 or x4.", rich_help_panel="Output"
    )
    store: Literal["packed", "folders"] = option(
        "Write one file, quick to read, or the authors' tree of PNG files.",
        default="packed",
        rich_help_panel="Output",
    )
    workers: int | None = WORKERS
