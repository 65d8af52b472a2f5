"""Implement `pam eval` and `pam submit`: one function of its settings per command."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from pamcli.data.open import parse_data
from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.evaluation.methods import FilesMethod, Method, NetworkMethod
from pamcli.evaluation.results import WORST, Evaluation
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_extra_output, check_new_file
from pamcli.files.paths import quote as shown_path
from pamcli.registry.catalog import DEFAULT_SCALE, check_network_files
from pamcli.registry.description import SUFFIX, read_description
from pamcli.reporting import SILENT, Reporter
from pamcli.settings.evaluation import (
    DataSets,
    DisparityMaps,
    EvaluateDisparitySettings,
    EvaluateSuperresSettings,
    SubmitSettings,
)
from pamcli.settings.options import takes

LOG = logging.getLogger("pamcli")


@takes(EvaluateDisparitySettings)
def evaluate_disparity(settings: EvaluateDisparitySettings) -> Evaluation:
    """Measure disparity on data sets with ground truth, as `pam eval disparity` does.

    >>> found = pamcli.evaluate_disparity("pairs:labelled", device="cpu", report="report.html")
    >>> print(found.text())

    Args:
        settings: Data sets as `NAME:PATH`; then an `EvaluateDisparitySettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return write_files(measure_disparity(settings, SILENT), settings)


@takes(EvaluateSuperresSettings)
def evaluate_superres(settings: EvaluateSuperresSettings) -> Evaluation:
    """Measure super-resolution on data sets against bicubic, as `pam eval superres` does.

    >>> found = pamcli.evaluate_superres("pairs:labelled", scale=2, baseline_only=True)
    >>> print(found.text())

    Args:
        settings: Data sets as `NAME:PATH`; then an `EvaluateSuperresSettings`, or its fields as keywords.

    Raises:
        PamError: A UsageError, InputError, ModelError, DeviceError or OutputError.
    """
    return write_files(measure_superres(settings, SILENT), settings)


def measure_disparity(settings: EvaluateDisparitySettings, listener: Reporter) -> Evaluation:
    """Measure disparity and report progress to a listener; raise as `evaluate_disparity`."""
    from pamcli.evaluation.disparity import Disparity

    check_files(settings, settings.weights, *(what for _, what in settings.method or ()))
    comparing, rules = len(settings.method or ()) > 1, tuple(settings.protocol or ())
    task = Disparity(settings.max_gt, settings.resize, settings.study, comparing, rules)
    sets = open_sets(settings)
    return _measured(task, sets, _methods(settings, listener), settings, listener)


def measure_superres(settings: EvaluateSuperresSettings, listener: Reporter) -> Evaluation:
    """Measure super-resolution and report progress to a listener; raise as `evaluate_superres`."""
    check_files(settings, settings.weights)
    sets, keep = open_sets(settings), None
    if settings.save is not None:
        from pamcli.evaluation.saved_views import SavedViews

        keep = SavedViews(settings.save, sets, settings.weights, overwrite=settings.overwrite)
    from pamcli.evaluation.opencv_methods import DenoisedBicubic
    from pamcli.evaluation.superres import Superres
    from pamcli.imaging.degradation import parse_degradation

    degradation = None if settings.degrade is None else parse_degradation(settings.degrade, "`degrade`")
    methods: list[Method] = [] if degradation is None else [DenoisedBicubic(degradation)]
    factor = int(settings.scale or DEFAULT_SCALE)
    if settings.predictions is not None:
        methods.append(FilesMethod(settings.predictions, allow_missing=settings.allow_missing))
    elif not settings.baseline_only:
        with listener.starting(str(settings.name)):
            from pamcli.inference.loading import load_upscaler

            upscaler, path = load_upscaler(settings)
        factor = int(upscaler.scale)
        name = Path(settings.name).stem + (", ensemble" if settings.ensemble else "")
        methods.append(NetworkMethod(upscaler, name, path, settings.right_view, keep))
    return _measured(Superres(factor, degradation), sets, methods, settings, listener)


def submit(settings: SubmitSettings, listener: Reporter) -> Any:
    """Write the archive for a benchmark server and return its `Submission`; raise as `evaluate_disparity`."""
    check_new_file(settings.output, ".zip", overwrite=settings.overwrite)
    check_network_files([settings.output], settings.weights)
    sets = open_sets(settings)
    from pamcli.evaluation.submissions import plan_submission, write_results

    rules, seconds = plan_submission(sets), settings.prediction_seconds
    if settings.predictions is not None and bool(rules.seconds) != (seconds is not None):
        if seconds is not None:
            raise UsageError("`prediction_seconds` is about Middlebury's or ETH3D's archive")
        message = f"a submission to {rules.kind} states the runtime, which files do not tell"
        raise UsageError(message, "`prediction_seconds` S says it")
    method = _method_alone(settings, listener, seconds=seconds)
    with listener.progress("pairs", sum(map(len, sets))) as bar:
        return write_results(settings.output, rules, sets, method, bar.advance, bar.watch)


def open_sets(settings: DataSets) -> list[Source]:
    """Open every data set; raise UsageError or InputError if one cannot be opened."""
    from pamcli.evaluation.run import opened

    data = [settings.data] if isinstance(settings.data, str) else [*settings.data]
    sets = opened(data)
    for text, source in zip(data, sets, strict=True):
        LOG.debug(f"{text}: {len(source)} pairs")
    return sets


def check_files(settings: Any, *weights: Any) -> None:
    """Check all output files before any work starts; raise UsageError or OutputError.

    `weights`: files that networks are loaded from.
    """
    data = [settings.data] if isinstance(settings.data, str) else [*settings.data]
    named = (parse_data(each).path for each in data)
    lists = [place for place in named if place is not None and place.is_file()]
    files: list[tuple[str, Any, list[str]]] = [("`per_image`", settings.per_image, [".csv"])]
    files.append(("`report`", settings.report, [".html"]))
    files += [("`table`", path, [".tex", ".md", ".csv"]) for path in settings.table or ()]
    files = [(name, Path(path), suffixes) for name, path, suffixes in files if path is not None]
    for name, path, suffixes in files:
        check_new_file(path, *suffixes, overwrite=settings.overwrite, option=name)
    paths = [path for _, path, _ in files]
    check_network_files(paths, *weights)
    places = [os.path.realpath(path) for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"{shown_path(path)} is asked for twice", "give each file its own name")
    for path in paths:
        check_extra_output(path, lists)


def _measured(
    task: Any, sets: list[Source], methods: list[Method], settings: Any, listener: Reporter
) -> Evaluation:
    from pamcli.evaluation.run import evaluate

    how: dict[str, Any] = {"compare": settings.compare, "worst": WORST if settings.report else 0}
    with listener.progress("pairs", sum(map(len, sets))) as bar:
        return evaluate(task, sets, methods, **how, advance=bar.advance, watch=bar.watch)


def write_files(found: Evaluation, settings: Any) -> Evaluation:
    """Write the requested files, each atomically; raise OutputError if one cannot be written."""
    forms = {".tex": found.latex, ".md": found.markdown, ".csv": found.table_csv}
    texts = [] if settings.per_image is None else [(Path(settings.per_image), found.csv)]
    texts += [(Path(path), forms[Path(path).suffix.lower()]) for path in settings.table or ()]
    for path, text in texts:
        write_atomically(path, text().encode("utf-8", "surrogateescape"))
    if settings.report is not None:
        from pamcli.evaluation.report import render_report

        write_atomically(Path(settings.report), render_report(found))
    return found


def _method_alone(settings: DisparityMaps, listener: Reporter, **files: Any) -> Method:
    """Load the network, or the `predictions` as a `FilesMethod` with the fields `files`."""
    if settings.predictions is not None:
        return FilesMethod(Path(settings.predictions), settings.scale, **files)
    matcher, path = _loaded(settings, listener)
    return NetworkMethod(matcher, str(settings.name), path)


def _loaded(settings: DisparityMaps, listener: Reporter) -> tuple[Any, Path]:
    with listener.starting(str(settings.name)):
        from pamcli.inference.loading import load_matcher

        return load_matcher(settings)


def _methods(settings: EvaluateDisparitySettings, listener: Reporter) -> list[Method]:
    if not settings.method:
        return [_method_alone(settings, listener, allow_missing=settings.allow_missing)]
    described = [Path(what) for _, what in settings.method if what.endswith(SUFFIX)]
    made = [str(path) for path in described if settings.network_from and not read_description(path).network]
    if settings.network_from and not made:
        raise UsageError("no `method` is a description (.toml) of a network that `network_from` makes")
    return [_method(name, what, settings, made, listener) for name, what in settings.method]


def _method(
    name: str, what: str, settings: EvaluateDisparitySettings, made: list[str], listener: Reporter
) -> Method:
    """Return the method for `files:FOLDER`, `opencv`, `opencv-wls` or weights; raise UsageError.

    `name`: the name of the method in tables. `made`: descriptions of networks that `network_from` builds.
    """
    if what.startswith("files:"):
        folder = Path(what.removeprefix("files:"))
        return FilesMethod(folder, settings.scale, settings.allow_missing, name=name)
    if what in ("opencv", "opencv-wls"):
        from pamcli.evaluation.opencv_methods import SemiGlobalMethod

        most = settings.max_disparity if isinstance(settings.max_disparity, int) else None
        return SemiGlobalMethod(name, what == "opencv-wls", most)
    source = settings.network_from if str(Path(what)) in made else None
    network = replace(settings, method=None, study=None, weights=what, network_from=source)
    matcher, path = _loaded(network, listener)
    return NetworkMethod(matcher, name, path)
