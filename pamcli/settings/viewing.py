"""Hold the options of `pam view`."""

from pathlib import Path
from typing import ClassVar

from pamcli.settings.options import argument, flag, option
from pamcli.settings.shared import INVALID, SCALE, RectifiedCalibration


class ViewSettings(RectifiedCalibration, panel="Input"):
    """Options of `pam view`. Raises UsageError for contradictory options."""

    requires: ClassVar = dict.fromkeys(("confidence", "scale", "invalid", "calibration", "focal"), ("image",))
    result: Path = argument(
        "Page (.html) or folder of pages from --page, or a disparity map (.pfm, .npy, .tif, .png).",
        default=...,
        metavar="RESULT",
    )
    image: Path | None = argument("Left image of the disparity map.", metavar="IMAGE")
    confidence: Path | None = option("Confidence map of the disparity map, from 0 to 1.", metavar="FILE")
    scale: float | None = SCALE
    invalid: float | None = INVALID
    port: int = option(
        "Serve on this port of this computer.",
        default=0,
        min=0,
        max=65535,
        show_default="a free one",
        rich_help_panel="Output",
    )
    no_browser: bool = flag("Print the address without opening a browser.", rich_help_panel="Output")
