"""pam eval: how far disparities are from the truth, and what enlarged pictures are worth beside bicubic."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pamcli.cli import options, parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, flag, option, set_options
from pamcli.cli.network import DEFAULT_SCALE, Matching, Upscaling
from pamcli.cli.options import (
    DATA,
    FORM,
    PRECISION,
    Compute,
    Precision,
    at_most_one,
    check_new_file,
)
from pamcli.errors import UsageError
from pamcli.files.atomic import Kept, check_writable, write_atomically
from pamcli.files.finding import shown as named
from pamcli.files.outputs import check_collisions, check_existing
from pamcli.files.pairing import PairName

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pamcli.data.source import Source
    from pamcli.evaluation.results import Evaluation


class Measured(OptionGroup, panel="Input"):
    """What is measured."""

    data: list[str] = option(
        "A data set of `pam dataset list`; may be given several times.",
        default=...,
        **(DATA | {"metavar": FORM}),
    )
    predictions: Path | None = option(
        "Measure these files, made by any program, not a network.", metavar="FOLDER"
    )
    allow_missing: bool = flag("Leave out samples that have no prediction.")


class Shown(OptionGroup, panel="Output"):
    """Where the figures go."""

    as_json: bool = flag("One JSON object on stdout instead of tables.", "--json")
    per_image: Path | None = option("Write the figures of every picture.", metavar="FILE.csv")
    report: Path | None = option("Write a report that a browser shows, in one file.", metavar="FILE.html")
    compare: bool = flag("Show published rows of the same sets beside it.")
    overwrite: bool = flag("Replace results that exist.")

    @property
    def extent(self) -> dict[str, Any]:
        """What the measuring takes of it: `compare` and `worst`."""
        from pamcli.evaluation.results import WORST

        return {"compare": self.compare, "worst": WORST if self.report else 0}


class Exact(Compute):
    """As figures are computed: in fp32, if nothing else is said."""

    precision: Precision = option(PRECISION, default="fp32")


def check_files(shown: Shown) -> None:
    """The files that are to be written, before any work. Raises UsageError, OutputError."""
    for name, suffix in (("per_image", ".csv"), ("report", ".html"), ("submission", ".zip")):
        if path := getattr(shown, name, None):
            option = "--" + name.replace("_", "-")
            check_new_file(path, suffix, overwrite=shown.overwrite, option=option)


def show(found: Evaluation, shown: Shown, console: Console) -> None:
    """Write the files that were asked for, then print the tables, or everything as JSON."""
    if shown.per_image is not None:
        write_atomically(shown.per_image, found.csv().encode("utf-8", "surrogateescape"))
    if shown.report is not None:
        write_atomically(shown.report, found.report())
    for warning in found.warnings:
        console.warn(warning)
    # On stdout, too: a table that was kept without them cannot be compared with anything.
    lines = [*(f"{name}: {value}" for name, value in found.facts), *(f"note: {note}" for note in found.notes)]
    tables = found.text(shutil.get_terminal_size().columns).split("\n")
    console.answer(found.json(), *tables, "", *lines)


def open_sets(texts: Sequence[str], console: Console) -> list[Source]:
    """Every `--data`, opened. Raises UsageError, InputError."""
    from pamcli.evaluation.results import opened

    sets = opened(texts)
    for text, source in zip(texts, sets, strict=True):
        console.detail(f"{text}: {len(source)} pairs")
    return sets


def one_set(sets: Sequence[Source], option: str) -> Source:
    """The only set. Raises UsageError where there are several."""
    if len(sets) > 1:
        raise UsageError(f"{option} goes with one data set, {len(sets)} are given", "run pam eval for each")
    return sets[0]


ON_SUBMITTING = {"data", "predictions", "prediction_scale", "prediction_seconds", "submission", "overwrite"}
"""Options that go with --submission; all others are about measuring."""


class DisparityInput(Measured):
    """Disparities to measure. Raises UsageError for what goes with files alone."""

    prediction_scale: float = option(
        "What the numbers in the files are multiplied by.", default=1.0, metavar="X"
    )
    prediction_seconds: float | None = option(
        "What the program took for a pair: Middlebury's and ETH3D's archives state it.",
        metavar="S",
    )
    max_gt: float | None = option("Count only truth below this, as the paper: 192.", metavar="PX", parse=None)
    resize: tuple[int, int] | None = option(
        "Bring pictures and truth to this size first.", metavar="WxH", parse=parsing.picture_size
    )
    study: Literal["resolution", "range"] | None = option(
        "resolution: also with pictures of 0.25 to 2 times the size; range: also by range of the "
        "truth and with fixed maximum disparities."
    )

    def __post_init__(self) -> None:
        if self.study == "resolution" and self.predictions is not None:
            raise UsageError("--study resolution runs a network, and --predictions has none")
        most = self.max_gt
        if most is not None and not (math.isfinite(most) and most >= 1):
            raise UsageError(f"--max-gt {most:g} is no number of pixels from 1 up")
        if self.predictions is None and (self.prediction_scale != 1 or self.allow_missing):
            raise UsageError("--prediction-scale and --allow-missing are about --predictions")


class DisparityOutput(Shown):
    """Figures, or a benchmark's archive."""

    submission: Path | None = option("Write the archive that the benchmark takes.", metavar="FILE.zip")


def disparity(
    given: DisparityInput,
    shown: DisparityOutput,
    network: Matching,
    compute: Exact,
    messages: options.Messages,
) -> None:
    """Measure disparity on data sets with ground truth: of a network, or of files by any program.

    Figures are given pooled over all pixels of a set (the headline) and as means of the pictures. With
    --submission nothing is measured: the benchmark's archive is written, and verified.

    $ pam eval disparity --data kitti2015:kitti --report kitti.html
    $ pam eval disparity --data kitti2015:kitti --predictions made/
    """
    console = messages.console(jsonl=shown.as_json)
    predictions, submission = given.predictions, shown.submission
    at_most_one({"--predictions": predictions, "--weights": network.weights})
    if predictions is not None and network.max_disparity != "stored":
        raise UsageError("--max-disparity is about a network, and none is run")
    if submission is not None:
        asked = set_options(given, without=ON_SUBMITTING) + set_options(shown, without=ON_SUBMITTING)
        if asked:
            raise UsageError(
                f"--submission measures nothing, and so contradicts {', '.join(asked)}",
                "run pam eval without it for the figures",
            )
    check_files(shown)
    sets = open_sets(given.data, console)
    if predictions is not None and submission is None:
        one_set(sets, "--predictions")
    from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod
    from pamcli.evaluation.submissions import plan_submission, submit

    planned = None if submission is None else plan_submission(sets)
    seconds = given.prediction_seconds
    states_seconds = planned is not None and planned.states_seconds and predictions is not None
    if planned is not None and states_seconds and seconds is None:
        raise UsageError(
            f"a submission to {planned.kind} states the runtime, which files do not tell",
            "--prediction-seconds S says it",
        )
    if seconds is not None and not states_seconds:
        raise UsageError("--prediction-seconds is about files for Middlebury's or ETH3D's archive")
    method: Method
    if predictions is not None:
        method = FilesMethod(predictions, given.prediction_scale, given.allow_missing)
    else:
        matcher, path = network.load(compute, console)
        method = NetworkMethod(matcher, network.name, path)
    with console.progress("pairs", sum(map(len, sets))) as bar:
        if submission is not None and planned is not None:
            written = submit(submission, planned, sets, method, seconds=seconds, advance=bar.advance)
        else:
            from pamcli.evaluation.disparity_run import evaluate_disparity

            protocol: dict[str, Any] = {"max_gt": given.max_gt, "resize": given.resize, "study": given.study}
            found = evaluate_disparity(sets, method, **protocol, **shown.extent, advance=bar.advance)
    if submission is None:
        show(found, shown, console)
        return
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.pictures} pictures, {written.files} files, verified")
    console.path(submission)


class SuperresInput(Measured):
    """Pictures to measure."""

    baseline_only: bool = flag("Bicubic alone: no network is loaded.")
    right_view: Literal["both", "right", "left"] = option(
        "left: the network gets the left view twice. right: the right one. both: tells besides what the "
        "second view is worth, for up to twice the time.",
        default="both",
    )


class SuperresOutput(Shown):
    """Figures, and the enlarged views."""

    save: Path | None = option("Write enlarged views: <name>_left.png, _right.png.", metavar="FOLDER")


def superres(
    given: SuperresInput,
    shown: SuperresOutput,
    network: Upscaling,
    compute: Exact,
    messages: options.Messages,
) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside.

    $ pam eval superres --scale 4 --data 'kitti2012/testing:kitti2012?first=20' --save larger/ --compare
    $ pam eval superres --scale 4 --data kitti2012/testing:kitti2012 --baseline-only
    """
    console = messages.console(jsonl=shown.as_json)
    predictions, save = given.predictions, shown.save
    sources = {"--predictions": predictions, "--weights": network.weights}
    at_most_one({**sources, "--baseline-only": given.baseline_only})
    if (predictions is not None or given.baseline_only) and (given.right_view != "both" or save is not None):
        raise UsageError("--right-view and --save are about a network, and none is run")
    if predictions is None and given.allow_missing:
        raise UsageError("--allow-missing is about --predictions")
    check_files(shown)
    sets = open_sets(given.data, console)
    if save is not None:
        _check_saved(save, one_set(sets, "--save"), shown.overwrite)
    from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod
    from pamcli.evaluation.superres_run import evaluate_superres

    method: Method | None = None
    factor = network.factor or DEFAULT_SCALE
    if predictions is not None:
        one_set(sets, "--predictions")
        method = FilesMethod(predictions, allow_missing=given.allow_missing)
    elif not given.baseline_only:
        upscaler, path = network.load(compute, console)
        factor = upscaler.scale
        keep = None if save is None else partial(_save, Kept(), save)
        remark = ", ensemble" if network.ensemble else ""
        method = NetworkMethod(upscaler, network.name, path, given.right_view, keep, remark)
    with console.progress("pairs", sum(map(len, sets))) as bar:
        found = evaluate_superres(sets, method, factor, **shown.extent, advance=bar.advance)
    show(found, shown, console)


def _save(kept: Kept, folder: Path, name: str, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
    from pamcli.imaging.images import Picture, encode_picture

    for view, pixels in (("left", left), ("right", right)):
        file = folder / f"{name}_{view}.png"
        kept.write(file, encode_picture(Picture(pixels), ".png", name=str(file)))


def _check_saved(folder: Path, source: Source, overwrite: bool) -> None:
    """Raise UsageError, OutputError where the views cannot be written, or not without being asked."""
    outputs = [{view: folder / f"{name}_{view}.png" for view in ("left", "right")} for name in source.names]
    check_collisions([PairName(files.left, files.right, files.name) for files in source.files], outputs)
    read = {view.parent for files in source.files for view in (files.left, files.right)}
    written = {file.parent for paths in outputs for file in paths.values()}
    if {os.path.realpath(place) for place in read} & {os.path.realpath(place) for place in written}:
        raise UsageError(f"pictures of the data set lie in {named(folder)}", "name another folder for --save")
    check_existing(outputs, overwrite=overwrite)
    for paths in outputs:
        for file in paths.values():
            check_writable(file)
