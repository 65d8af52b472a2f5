"""Hold the options of `pam eval` and `pam submit`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pamcli.errors import UsageError
from pamcli.settings.options import Settings, flag, forbid, option, require
from pamcli.settings.parsing import DataSet, Form, ImageSize, Method, Name
from pamcli.settings.shared import (
    FORM,
    PRECISION,
    Compute,
    DisparityScale,
    Matching,
    NewFile,
    Precision,
    Upscaling,
)


class ExactCompute(Compute):
    """Device, precision and memory, in fp32 by default."""

    precision: Precision = option(PRECISION, default="fp32")


class DataSets(Settings, panel="Input"):
    """Data sets, and the results to evaluate."""

    positional: ClassVar[str] = "data"
    data: Sequence[DataSet] = option(
        "Use this data set (pam dataset list); repeatable.", default=..., metavar=FORM
    )
    predictions: Path | None = option(
        "Use the results in this folder, made by any program, instead of a network.", metavar="FOLDER"
    )


class DisparityMaps(DataSets, DisparityScale, Matching, ExactCompute, panel="Input"):
    """Disparity maps of a network, or in files."""

    rules = forbid("predictions", "weights", "network_from", "max_disparity")


class ReportFiles(NewFile):
    """Files for the figures."""

    per_image: Path | None = option("Write the figures of every image.", metavar="FILE.csv")
    report: Path | None = option("Write a report for the browser, in one file.", metavar="FILE.html")
    table: Sequence[Path] | None = option(
        "Write the printed table for a paper or a web page, or all metrics as .csv; repeatable.",
        metavar="FILE.tex|.md|.csv",
    )
    compare: bool = flag("Show published figures for the same data sets.")


class EvaluateDisparitySettings(DisparityMaps, ReportFiles, panel="Input"):
    """Options of `pam eval disparity` and `evaluate_disparity`."""

    allow_missing: bool = flag("Ignore samples without a prediction.")
    method: Sequence[Method] | None = option(
        "Compare methods with the first one; repeatable. WHAT: weights, files:FOLDER, opencv (StereoSGBM) "
        "or opencv-wls."
    )
    protocol: Sequence[Annotated[str, Form("NAME", complete="protocols")]] | None = option(
        "Evaluate under this protocol (pam eval protocols); repeatable, one column each [default: that of "
        "each data set's benchmark]."
    )
    max_gt: Annotated[float, Form("PX")] | None = option(
        "Count only pixels with a ground truth below this, px; 192 in the paper."
    )
    resize: ImageSize | None = option("Resize images and ground truth to this size first, px.")
    camera: Name | None = option(
        "Degrade the images as these cameras do, and print one row per kind: all, or some of clean, noise3, "
        "noise8, jpeg90, jpeg75, soft1, soft2, phone, webcam, dark.",
        metavar="KIND,...",
    )
    study: Literal["resolution", "range"] | None = option(
        "Repeat the evaluation. resolution: at 0.25 to 2 times the image size; range: by range of the "
        "ground truth, and with fixed maximum disparities."
    )

    rules = forbid("method", "predictions", "weights", "study") + forbid("camera", "predictions", "compare")

    def check(self) -> None:
        _check_files(self, "camera", "allow_missing", "scale")


class EvaluateSuperresSettings(DataSets, Upscaling, ExactCompute, ReportFiles, panel="Input"):
    """Options of `pam eval superres` and `evaluate_superres`."""

    allow_missing: bool = flag("Ignore samples without a prediction.")
    method: Sequence[Method] | None = option(
        "Compare methods with the first one; repeatable. WHAT: weights, files:FOLDER or bicubic."
    )
    baseline_only: bool = flag("Evaluate bicubic upscaling only, without a network.")
    right_view: Literal["both", "right", "left"] = option(
        "Second input of the network. left: the left image again; right: the right image; both: also "
        "report the gain by the right image (up to twice the time).",
        default="both",
    )
    degrade: Name | None = option(
        "Degrade the downscaled images as a camera does: KEY=VALUE,... of jpeg (quality), noise (levels of "
        "255), blur (px), sharpening (share).",
        metavar="KEY=VALUE,...",
    )
    save: Path | None = option(
        "Write the upscaled images as NAME_left.png and NAME_right.png.", metavar="FOLDER", panel="Output"
    )

    rules = (
        forbid("predictions", "weights", "right_view", "save", "degrade")
        + forbid("baseline_only", "predictions", "weights", "right_view", "save")
        + forbid("method", "predictions", "weights", "baseline_only", "right_view", "save")
    )

    def check(self) -> None:
        if self.scale is not None and self.scale != int(self.scale):
            raise UsageError(f"`scale` must be 2, 3 or 4 for an evaluation, got {self.scale:g}")
        _check_files(self, "degrade", "allow_missing")


EvaluateSettings = EvaluateDisparitySettings | EvaluateSuperresSettings


def _check_files(settings: EvaluateSettings, degrading: str, *needing_files: str) -> None:
    """Check the options that need result files, and the one that cannot be used with them."""
    has_files = settings.method is not None and any(what.startswith("files:") for _, what in settings.method)
    if has_files and settings.is_set(degrading):
        hint = "files are results for images that are not degraded"
        raise UsageError(f"cannot use both `method` files:FOLDER and `{degrading}`", hint)
    for name in needing_files:
        if settings.is_set(name) and not has_files and settings.predictions is None:
            needed = "`predictions` or `method` files:FOLDER"
            raise UsageError(f"`{name}` requires {needed}", f"add one of them, or drop `{name}`")


class SubmitSettings(DisparityMaps, NewFile, panel="Input"):
    """Options of `pam submit`."""

    output: Path = option("Write this archive.", "-o", default=..., metavar="FILE.zip", panel="Output")
    prediction_seconds: float | None = option(
        "State the program's time per pair, s; for Middlebury and ETH3D.", metavar="S"
    )

    rules = require("scale prediction_seconds", "predictions")
