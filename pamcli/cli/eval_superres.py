"""pam eval superres: PSNR and SSIM of enlarged pairs in the literature's protocols, beside bicubic."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pamcli.cli import evaluation, options
from pamcli.cli.superres import Upscaling
from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.finding import listed
from pamcli.files.outputs import check_collisions
from pamcli.files.pairing import PairName

if TYPE_CHECKING:
    from pamcli.data.open import DataSpec
    from pamcli.data.source import Source
    from pamcli.evaluation.predictions import SuperresPredictions
    from pamcli.evaluation.report import Published
    from pamcli.evaluation.superres_metrics import SuperresPair
    from pamcli.evaluation.superres_run import MeasuredSet
    from pamcli.inference.upscaler import StereoUpscaler


@dataclass(frozen=True, kw_only=True)
class Input(evaluation.Measured):
    """Pictures to measure."""

    baseline_only: Annotated[
        bool, typer.Option("--baseline-only", help="Bicubic alone: no network is loaded.")
    ] = False
    right_view: Annotated[
        Literal["right", "left"],
        typer.Option("--right-view", help="left: the network gets the left view twice."),
    ] = "right"


@dataclass(frozen=True, kw_only=True)
class Output(evaluation.Shown):
    """Figures, and the enlarged views."""

    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FOLDER", help="Write enlarged views: <name>_left.png, _right.png."),
    ] = None


def command(
    given: Input,
    shown: Output,
    network: Upscaling,
    compute: evaluation.Exact,
    messages: options.Messages,
) -> None:
    """Measure super-resolution on data sets: of a network, or of pictures by any program.

    Pictures are cut to a multiple of the scale, reduced by MATLAB's bicubic, rounded to 8 bits, enlarged, and
    compared in 8 bits; bicubic's figures always stand beside.
    """
    console = messages.console()
    predictions, weights, save = given.predictions, network.weights, shown.save
    sources = {"--predictions": predictions, "--weights": weights, "--baseline-only": given.baseline_only}
    made = [name for name, value in sources.items() if value]
    if len(made) > 1:
        raise UsageError(f"{' and '.join(made)} contradict each other", "give one of them")
    left_twice = given.right_view == "left"
    if (predictions is not None or given.baseline_only) and (left_twice or save is not None):
        raise UsageError("--right-view and --save are about a network, and none is run")
    if predictions is None and given.allow_missing:
        raise UsageError("--allow-missing is about --predictions")
    results = evaluation.Results.plan(console, shown)
    sets = evaluation.open_sets(given.data, console)
    if save is not None:
        _check_saved(save, evaluation.one_set(sets, "--save")[1], shown.overwrite)

    upscaler, path, method = None, None, None
    factor = network.factor or 4
    if predictions is not None:
        evaluation.one_set(sets, "--predictions")
        method = _method(predictions.resolve().name)
    elif not given.baseline_only:
        from pamcli.cli.network import find_weights, load_upscaler

        name = weights or f"passrnet-x{factor}"
        path = find_weights(name, console)
        upscaler = load_upscaler(name, network.factor, compute, console, ensemble=network.ensemble)
        factor = upscaler.scale
        method = _method(Path(name).stem) + (", ensemble" if network.ensemble else "")
        method += ", left view twice" if left_twice else ""

    from pamcli.evaluation.predictions import open_pictures
    from pamcli.evaluation.superres_run import measure_superres

    measured, notes = [], []
    with console.progress("pairs", sum(len(source) for _, source in sets)) as bar:
        for spec, source in sets:
            enlarge: Any = None
            if predictions is not None:
                files = open_pictures(predictions, source.names, allow_missing=given.allow_missing)
                enlarge = _from_files(files)
                notes += evaluation.left_out_note([n for n in source.names if n not in files.files])
            elif upscaler is not None:
                enlarge = _from_network(upscaler, left_twice, save)
            measured.append(
                measure_superres(
                    spec.label,
                    source,
                    factor,
                    method,
                    enlarge,
                    worst=evaluation.WORST if shown.report else 0,
                    advance=bar.advance,
                )
            )
    facts = [*evaluation.run_facts(upscaler, method or "", path, predictions), ("scale", f"x{factor}")]
    _show(results, sets, measured, facts, notes, upscaler, factor, shown.compare)


def _method(name: str) -> str:
    """The name of a row, which must not be that of the row that always stands there."""
    return f"{name} (files)" if name in ("", "bicubic") else name


def _from_network(upscaler: StereoUpscaler, left_twice: bool, save: Path | None) -> Any:
    def enlarge(name: str, pair: SuperresPair) -> tuple[Any, float]:
        start = time.perf_counter()
        left, right = upscaler(pair.low_left, pair.low_left if left_twice else pair.low_right)
        seconds = time.perf_counter() - start
        if save is not None:
            from pamcli.imaging.images import Picture, encode_picture

            for view, pixels in (("left", left), ("right", right)):
                file = save / f"{name}_{view}.png"
                write_atomically(file, encode_picture(Picture(pixels), ".png", name=str(file)))
        return (left, right), seconds

    return enlarge


def _from_files(files: SuperresPredictions) -> Any:
    def enlarge(name: str, pair: SuperresPair) -> tuple[Any, None] | None:
        return (files.load(name, pair.left.shape), None) if name in files.files else None

    return enlarge


def _check_saved(folder: Path, source: Source, overwrite: bool) -> None:
    """Raise UsageError, OutputError where the views cannot be written, or not without being asked."""
    outputs = [{view: folder / f"{name}_{view}.png" for view in ("left", "right")} for name in source.names]
    pairs = [PairName(files.left, files.right, files.name) for files in source.files]
    check_collisions(pairs, outputs)
    files = [file for paths in outputs for file in paths.values()]
    existing = [file for file in files if file.exists()]
    if existing and not overwrite:
        count = len(existing)
        raise UsageError(f"{count} results exist already: {listed(existing)}", "--overwrite replaces them")
    for file in files:
        check_writable(file)


def _show(
    results: evaluation.Results,
    sets: list[tuple[DataSpec, Source]],
    measured: list[MeasuredSet],
    facts: list[tuple[str, str]],
    notes: list[str],
    upscaler: StereoUpscaler | None,
    scale: int,
    compare: bool,
) -> None:
    from pamcli.evaluation import superres_run as run
    from pamcli.evaluation.published import published_superres
    from pamcli.evaluation.report import ReportData
    from pamcli.evaluation.tables import json_rows

    cost = evaluation.Cost.of([pair.seconds for one in measured for pair in one.pairs], upscaler)
    facts = [*facts, *cost.facts("network alone")]
    facts.append(evaluation.data_fact(sets, [len(one.pairs) for one in measured]))
    notes = [*notes, *evaluation.set_notes(sets, [one.notes for one in measured])]
    notes.append("SSIM as the parallax-attention paper prints it is defined nowhere, and is not computed")
    published: dict[str, Published] = {}
    if compare:
        published, unknown = evaluation.published(sets, lambda name: published_superres(name, scale))
        notes += unknown
    summary, pairs = run.summary_table(measured), run.pairs_table(measured)
    report = ReportData(
        title=f"Super-resolution x{scale} of {facts[0][1]}",
        facts=tuple(facts),
        summary=summary,
        images=pairs,
        notes=tuple(notes),
        published=tuple(published.values()),
        examples=tuple(example for one in measured for example in one.examples),
    )
    tables = [summary, *(each.table for each in published.values())]
    numbers = {"scale": scale, "summary": json_rows(summary), **cost.numbers()}
    if compare:
        numbers["published"] = evaluation.published_numbers(published)
    results.show(tables, pairs, report, numbers)
