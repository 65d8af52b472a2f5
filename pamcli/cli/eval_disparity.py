"""pam eval disparity: how far disparities are from the truth, by the benchmarks' definitions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pamcli.cli import evaluation, options
from pamcli.cli.console import Console
from pamcli.errors import UsageError

if TYPE_CHECKING:
    from pamcli.data.open import DataSpec
    from pamcli.data.sample import Sample
    from pamcli.data.source import Source
    from pamcli.evaluation.disparity_metrics import Figures
    from pamcli.evaluation.disparity_run import Estimate, MeasuredSet
    from pamcli.evaluation.predictions import DisparityPredictions
    from pamcli.evaluation.report import Published
    from pamcli.evaluation.submissions import Prediction
    from pamcli.inference.matcher import StereoMatcher

HEADLINE = ("epe", "rms", "bad-0.5", "bad-1", "bad-2", "bad-3", "bad-4", "d1", "density")
SPREAD = ("a50", "a90", "a95", "a99")
TRUST = (
    "ause-epe",
    "ause-bad-2",
    "visible-precision",
    "visible-recall",
    "occluded-precision",
    "occluded-recall",
)
"""The figures of the three tables on the terminal; JSON, CSV and the report have all of them."""


@dataclass(frozen=True, kw_only=True)
class Input(evaluation.Measured):
    """Disparities to measure. Raises UsageError for what goes with files alone."""

    prediction_scale: Annotated[
        float,
        typer.Option(
            "--prediction-scale", metavar="X", help="What the numbers in the files are multiplied by."
        ),
    ] = 1.0
    prediction_seconds: Annotated[
        float | None,
        typer.Option(
            "--prediction-seconds",
            metavar="S",
            help="What the program took for a pair: Middlebury's and ETH3D's archives state it.",
        ),
    ] = None
    max_gt: Annotated[
        float | None,
        typer.Option("--max-gt", metavar="PX", help="Count only truth below this, as the paper: 192."),
    ] = None
    resize: Annotated[
        str | None,
        typer.Option("--resize", metavar="WxH", help="Bring pictures and truth to this size first."),
    ] = None

    def __post_init__(self) -> None:
        most = self.max_gt
        if most is not None and not (math.isfinite(most) and most >= 1):
            raise UsageError(f"--max-gt {most:g} is no number of pixels from 1 up")
        if self.predictions is None and (self.prediction_scale != 1 or self.allow_missing):
            raise UsageError("--prediction-scale and --allow-missing are about --predictions")
        _ = self.size

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height that pictures are brought to."""
        return None if self.resize is None else options.picture_size(self.resize, "--resize", 16)


@dataclass(frozen=True, kw_only=True)
class Output(evaluation.Shown):
    """Figures, or a benchmark's archive."""

    submission: Annotated[
        Path | None,
        typer.Option("--submission", metavar="FILE.zip", help="Write the archive that the benchmark takes."),
    ] = None


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
    if predictions is not None and weights is not None:
        raise UsageError("--predictions and --weights contradict each other", "give one of them")
    if predictions is not None and network.max_disparity is not None:
        raise UsageError("--max-disparity is about a network, and none is run")
    if submission is not None:
        if submission.suffix.lower() != ".zip":
            raise UsageError(f"--submission {submission} must end in .zip")
        measuring = {
            "--resize": given.resize,
            "--max-gt": given.max_gt,
            "--per-image": shown.per_image,
            "--report": shown.report,
            "--compare": shown.compare,
            "--json": shown.as_json,
            "--allow-missing": given.allow_missing,
        }
        if asked := [option for option, value in measuring.items() if value]:
            raise UsageError(
                f"--submission measures nothing, and so contradicts {', '.join(asked)}",
                "run pam eval without it for the figures",
            )
    more = [submission] if submission is not None else []
    results = evaluation.Results.plan(console, shown, more)
    sets = evaluation.open_sets(given.data, console)
    if predictions is not None and submission is None:
        evaluation.one_set(sets, "--predictions")
    archive = None if submission is None else _archive(sets)
    _check_seconds(given.prediction_seconds, archive, predictions is not None)

    matcher, path = None, None
    if predictions is None:
        from pamcli.cli.network import find_weights, load_matcher

        path = find_weights(weights or "pasmnet", console)
        matcher = load_matcher(weights or "pasmnet", network, compute, console)
    if submission is not None and archive is not None:
        _submit(
            submission,
            archive,
            sets,
            matcher,
            predictions,
            given.prediction_scale,
            given.prediction_seconds,
            console,
        )
        return
    from pamcli.evaluation.predictions import open_disparities

    measured, notes = [], []
    with console.progress("pairs", sum(len(source) for _, source in sets)) as bar:
        for spec, source in sets:
            if predictions is not None:
                files = open_disparities(
                    predictions, source.names, scale=given.prediction_scale, allow_missing=given.allow_missing
                )
                notes += evaluation.left_out_note(files.missing)
                estimate = _from_files(files)
            else:
                assert matcher is not None
                estimate = _from_network(matcher)
            measured.append(
                _measure(spec, source, estimate, given, evaluation.WORST if shown.report else 0, bar.advance)
            )
    facts = evaluation.run_facts(matcher, weights or "pasmnet", path, predictions)
    if matcher is not None:
        limit = matcher.max_disparity
        facts.append(("maximum disparity", "none" if limit is None else f"{limit} px"))
    if given.prediction_scale != 1:
        notes.append(f"the numbers in the files are multiplied by {given.prediction_scale:g}")
    _show(results, sets, measured, facts, notes, matcher, shown.compare)


def _measure(
    spec: DataSpec,
    source: Source,
    estimate: Callable[[Sample], Estimate | None],
    given: Input,
    worst: int,
    advance: Callable[[], None],
) -> MeasuredSet:
    from pamcli.evaluation.disparity_run import DisparityProtocol, measure_disparity

    protocol = DisparityProtocol.of(spec.info.name, max_gt=given.max_gt, resize=given.size)
    return measure_disparity(spec.label, source, estimate, protocol, worst=worst, advance=advance)


def _from_network(matcher: StereoMatcher) -> Callable[[Sample], Estimate]:
    from pamcli.evaluation.disparity_run import Estimate

    def estimate(sample: Sample) -> Estimate:
        extras = {"confidence"} if sample.visible is None else {"confidence", "visible"}
        start = time.perf_counter()
        result = matcher(sample.left, sample.right, extras=extras)
        return Estimate(result.disparity, result.visible, result.confidence, time.perf_counter() - start)

    return estimate


def _from_files(files: DisparityPredictions) -> Callable[[Sample], Estimate | None]:
    from pamcli.evaluation.disparity_run import Estimate

    def estimate(sample: Sample) -> Estimate | None:
        if sample.name not in files.files:
            return None
        return Estimate(files.load(sample.name, sample.left.shape))

    return estimate


def _archive(sets: list[tuple[DataSpec, Source]]) -> tuple[str, str]:
    """Which benchmark's archive these sets make, and Middlebury's size of pictures.

    Raises UsageError, InputError: none, or an incomplete one.
    """
    from pamcli.evaluation.submissions import KINDS, require_complete

    kinds = {spec.info.name for spec, _ in sets}
    if len(kinds) > 1 or not kinds <= set(KINDS):
        given = ", ".join(sorted(kinds))
        raise UsageError(f"no benchmark takes an archive of {given}", f"known: {', '.join(KINDS)}")
    (kind,) = kinds
    # The training pairs of KITTI 2015 have the names of the test pairs: complete, and worthless.
    if kind.startswith("kitti") and any(spec.split != "testing" for spec, _ in sets):
        raise UsageError(
            f"{kind} takes results of its testing pairs alone", f"give --data {kind}/testing:PATH"
        )
    names = [name for _, source in sets for name in source.names]
    require_complete(kind, names)
    if kind != "middlebury":
        return kind, "H"
    tops = {name.rpartition("/")[0] for name in names}
    if not tops <= {f"{part}{size}" for part in ("training", "test") for size in "FHQ"}:
        raise UsageError(
            "a submission to Middlebury needs the pairs of its version 3 evaluation",
            "give the folder MiddEval3, which holds trainingF, testF and so on",
        )
    sizes = sorted({top[-1] for top in tops})
    if len(sizes) > 1:
        raise UsageError(f"one submission of several sizes: {', '.join(sizes)}", "choose one with ?size=")
    return kind, sizes[0]


def _check_seconds(seconds: float | None, archive: tuple[str, str] | None, from_files: bool) -> None:
    """Raise UsageError where a runtime is lacking, is none, or is asked for by nobody."""
    asked = from_files and archive is not None and archive[0] in ("middlebury", "eth3d")
    if seconds is None:
        if asked and archive is not None:
            raise UsageError(
                f"a submission to {archive[0]} states the runtime, which files do not tell",
                "--prediction-seconds S says it",
            )
        return
    if not asked:
        raise UsageError("--prediction-seconds is about files for Middlebury's or ETH3D's archive")
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(f"--prediction-seconds {seconds:g} is not above 0")


def _submit(
    file: Path,
    archive: tuple[str, str],
    sets: list[tuple[DataSpec, Source]],
    matcher: StereoMatcher | None,
    folder: Path | None,
    scale: float,
    stated: float | None,
    console: Console,
) -> None:
    from pamcli.evaluation.predictions import open_disparities
    from pamcli.evaluation.submissions import Prediction, write_submission

    kind, size = archive

    def predicted() -> Iterator[Prediction]:
        with console.progress("pairs", sum(len(source) for _, source in sets)) as bar:
            for _, source in sets:
                files = None if folder is None else open_disparities(folder, source.names, scale=scale)
                for index in range(len(source)):
                    sample = source.load(index)
                    start = time.perf_counter()
                    if files is not None:
                        disparity = files.load(sample.name, sample.left.shape)
                    else:
                        assert matcher is not None
                        disparity = matcher(sample.left, sample.right, extras=()).disparity
                    seconds = time.perf_counter() - start if files is None else stated or math.nan
                    shape = (int(sample.left.shape[0]), int(sample.left.shape[1]))
                    yield Prediction(sample.name, disparity, seconds, shape)
                    bar.advance()

    written = write_submission(file, kind, predicted(), size=size)
    for note in written.notes:
        console.warn(note)
    console.inform(f"{written.kind}: {written.pictures} pictures, {written.files} files, verified")
    console.result(str(file))


def _show(
    results: evaluation.Results,
    sets: list[tuple[DataSpec, Source]],
    measured: list[MeasuredSet],
    facts: list[tuple[str, str]],
    notes: list[str],
    matcher: StereoMatcher | None,
    compare: bool,
) -> None:
    from pamcli.evaluation import disparity_run as run
    from pamcli.evaluation.published import published_disparity
    from pamcli.evaluation.report import ReportData

    cost = evaluation.Cost.of([image.seconds for one in measured for image in one.images], matcher)
    facts = [*facts, *cost.facts("network with confidence (and visibility, where it is measured)")]
    facts.append(evaluation.data_fact(sets, [one.summary.images for one in measured]))
    notes = [*notes, *evaluation.set_notes(sets, [one.notes for one in measured])]
    published: dict[str, Published] = {}
    if compare:
        published, unknown = evaluation.published(sets, published_disparity)
        notes += unknown
    summary, images = run.summary_table(measured), run.images_table(measured)
    report = ReportData(
        title=f"Disparity of {facts[0][1]}",
        facts=tuple(facts),
        summary=summary,
        images=images,
        notes=tuple(notes),
        published=tuple(published.values()),
        charts=run.charts(measured),
        examples=tuple(example for one in measured for example in one.examples),
    )
    tables = [run.summary_table(measured, part) for part in (HEADLINE, SPREAD, TRUST)]
    tables = [table for table in tables if table.rows] + [each.table for each in published.values()]
    numbers = {"sets": [_numbers(one) for one in measured], **cost.numbers()}
    if compare:
        numbers["published"] = evaluation.published_numbers(published)
    results.show(tables, images, report, numbers)


def _numbers(one: MeasuredSet) -> dict[str, Any]:
    from pamcli.evaluation.tables import json_value

    summary = one.summary

    def plain(figures: Figures) -> dict[str, dict[str, Any]]:
        return {
            region: {key: json_value(value) for key, value in values.items()}
            for region, values in figures.items()
        }

    return {
        "data": one.label,
        "pictures": summary.images,
        "pooled": plain(summary.pooled),
        "image_means": plain(summary.image_means),
        "region_pictures": dict(summary.region_images),
        "notes": list(one.notes),
    }
