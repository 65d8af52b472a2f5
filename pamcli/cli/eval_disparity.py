"""pam eval disparity: how far disparities are from the truth, by the benchmarks' definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pamcli.cli import evaluation, options, parsing
from pamcli.cli.groups import option, set_options
from pamcli.errors import UsageError
from pamcli.registry.catalog import DEFAULT_MATCHING

if TYPE_CHECKING:
    from pamcli.evaluation.submissions import Planned


ON_SUBMITTING = {"data", "predictions", "prediction_scale", "prediction_seconds", "submission", "overwrite"}
"""Options that go with --submission; all others are about measuring."""


@dataclass(frozen=True, kw_only=True)
class Input(evaluation.Measured):
    """Disparities to measure. Raises UsageError for what goes with files alone."""

    prediction_scale: float = option(
        "What the numbers in the files are multiplied by.",
        default=1.0,
        metavar="X",
        parse=parsing.above_zero,
    )
    prediction_seconds: float | None = option(
        "What the program took for a pair: Middlebury's and ETH3D's archives state it.",
        metavar="S",
        parse=parsing.above_zero,
    )
    max_gt: float | None = option("Count only truth below this, as the paper: 192.", metavar="PX")
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


@dataclass(frozen=True, kw_only=True)
class Output(evaluation.Shown):
    """Figures, or a benchmark's archive."""

    submission: Path | None = option("Write the archive that the benchmark takes.", metavar="FILE.zip")


def command(
    given: Input,
    shown: Output,
    network: options.Matching,
    compute: evaluation.Exact,
    messages: options.Messages,
) -> None:
    """Measure disparity on data sets with ground truth: of a network, or of files by any program.

    Figures are given pooled over all pixels of a set (the headline) and as means of the pictures. With
    --submission nothing is measured: the benchmark's archive is written, and verified.
    """
    console = messages.console()
    weights, predictions, submission = network.weights, given.predictions, shown.submission
    options.at_most_one({"--predictions": predictions, "--weights": weights})
    if predictions is not None and network.max_disparity != "stored":
        raise UsageError("--max-disparity is about a network, and none is run")
    if submission is not None:
        options.check_new_file(submission, ".zip", overwrite=shown.overwrite, option="--submission")
        asked = set_options(given, without=ON_SUBMITTING) + set_options(shown, without=ON_SUBMITTING)
        if asked:
            raise UsageError(
                f"--submission measures nothing, and so contradicts {', '.join(asked)}",
                "run pam eval without it for the figures",
            )
    evaluation.check_files(shown)
    sets = evaluation.open_sets(given.data, console)
    if predictions is not None and submission is None:
        evaluation.one_set(sets, "--predictions")
    from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod
    from pamcli.evaluation.results import WORST
    from pamcli.evaluation.submissions import plan_submission, submit

    planned = None if submission is None else plan_submission(sets)
    _check_seconds(given.prediction_seconds, planned, predictions is not None)
    method: Method
    if predictions is not None:
        method = FilesMethod(predictions, given.prediction_scale, given.allow_missing)
    else:
        from pamcli.cli.network import find_weights, load_matcher

        path = find_weights(weights or DEFAULT_MATCHING, console)
        matcher = load_matcher(weights or DEFAULT_MATCHING, network, compute, console)
        method = NetworkMethod(matcher, weights or DEFAULT_MATCHING, path)
    with console.progress("pairs", sum(map(len, sets))) as bar:
        if submission is not None and planned is not None:
            seconds = given.prediction_seconds
            written = submit(submission, planned, sets, method, seconds=seconds, advance=bar.advance)
        else:
            from pamcli.evaluation.disparity_run import evaluate_disparity

            found = evaluate_disparity(
                sets,
                method,
                max_gt=given.max_gt,
                resize=given.resize,
                study=given.study,
                compare=shown.compare,
                worst=WORST if shown.report else 0,
                advance=bar.advance,
            )
    if submission is None:
        evaluation.show(found, shown, console)
        return
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.pictures} pictures, {written.files} files, verified")
    console.path(submission)


def _check_seconds(seconds: float | None, planned: Planned | None, from_files: bool) -> None:
    """Raise UsageError where a runtime is lacking, or given without need."""
    asked = from_files and planned is not None and planned.states_seconds
    if asked and planned is not None and seconds is None:
        raise UsageError(
            f"a submission to {planned.kind} states the runtime, which files do not tell",
            "--prediction-seconds S says it",
        )
    if seconds is not None and not asked:
        raise UsageError("--prediction-seconds is about files for Middlebury's or ETH3D's archive")
