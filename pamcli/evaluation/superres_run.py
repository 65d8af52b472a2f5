"""Measuring super-resolution over a data set, always beside bicubic, and the tables of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Source
from pamcli.evaluation.methods import Enlarge, Method, NetworkMethod, Views
from pamcli.evaluation.report_pictures import ShownPair, shown_superres
from pamcli.evaluation.results import WORST, Evaluation, cost_of, facts_of, opened, set_notes, with_published
from pamcli.evaluation.superres_metrics import (
    LEFT_MARGIN,
    METRICS,
    PROTOCOLS,
    Figures,
    SuperresPair,
    mean_figures,
    psnr,
    superres_figures,
    superres_pair,
)
from pamcli.evaluation.tables import Column, Table, Value, flat, json_rows, shown_value

BICUBIC = "bicubic"

COLUMNS = {
    (protocol, metric): Column(
        f"{protocol} {metric}",
        f"{protocol} {metric.replace('psnr', 'PSNR').replace('ssim', 'SSIM')}",
        "dB" if metric == "psnr" else "",
        2 if metric == "psnr" else 4,
        note=f"{PROTOCOLS[protocol]}; {METRICS[metric]}",
    )
    for protocol in PROTOCOLS
    for metric in METRICS
}


@dataclass(frozen=True)
class MeasuredPair:
    """One pair's figures by method, and what the network took."""

    name: str
    figures: dict[str, Figures]
    seconds: float | None
    second_view: float | None = None
    """dB that the left view's PSNR loses where the left view is given twice; None = not measured."""


@dataclass(frozen=True)
class MeasuredSet:
    """What bicubic and a method reach on a data set."""

    label: str
    means: dict[str, Figures]
    """Method -> protocol -> metric -> mean over the pairs."""
    pairs: tuple[MeasuredPair, ...]
    worst_pairs: tuple[ShownPair, ...]
    """The pairs with the lowest PSNR, worst first."""
    notes: tuple[str, ...]

    @property
    def second_view(self) -> float | None:
        """What the second view is worth, in dB: the mean over the pairs."""
        known = [pair.second_view for pair in self.pairs if pair.second_view is not None]
        return sum(known) / len(known) if known else None


def evaluate_superres(
    data: Iterable[str | Source],
    method: Method | None,
    scale: int,
    *,
    compare: bool = False,
    worst: int = WORST,
    advance: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Figures, notes and report of a method, beside bicubic, on data sets.

    method: None = bicubic alone. compare: with published rows. worst: how many of the worst pairs of each set
    the report shows. advance: called after each pair. Raises UsageError, InputError.
    """
    sets = opened(data)
    name = None if method is None else _row_name(method)
    network = method.network if isinstance(method, NetworkMethod) else None
    alone = method.alone if isinstance(method, NetworkMethod) and method.right_view == "both" else None
    measured, notes = [], []
    for source in sets:
        enlarge, lines = (lambda *_: None, []) if method is None else method.enlarged(source)
        notes += lines
        measured.append(
            measure_superres(
                source.label, source, scale, name, enlarge, alone=alone, worst=worst, advance=advance
            )
        )
    described = [("method", "bicubic alone")] if method is None else method.facts()
    if isinstance(method, NetworkMethod):
        described[0] = ("network", name or "")
    seconds = [pair.seconds for one in measured for pair in one.pairs]
    cost, cost_numbers = cost_of(seconds, network, "network alone")
    facts = facts_of(described, [("scale", f"x{scale}"), *cost], sets, [len(one.pairs) for one in measured])
    worth = {one.label: one.second_view for one in measured if one.second_view is not None}
    facts += [("second view", f"{gain:+.3f} dB on the left one, {label}") for label, gain in worth.items()]
    notes += set_notes(sets, [one.notes for one in measured])
    notes.append("SSIM as the parallax-attention paper prints it is defined nowhere, and is not computed")
    summary = summary_table(measured)
    # On a terminal the same metric of both protocols side by side, PSNR first.
    words = summary.columns[: -len(COLUMNS)]
    by_metric = [COLUMNS[protocol, metric] for metric in METRICS for protocol in PROTOCOLS]
    found = Evaluation(
        title=f"Super-resolution x{scale} of {facts[0][1]}",
        facts=tuple(facts),
        summary=summary,
        images=pairs_table(measured),
        notes=tuple(notes),
        headline=(Table((*words, *by_metric), summary.rows),),
        key_figures=tuple(_key_figures(one, method) for one in measured for method in one.means),
        worst_pairs=tuple(pair for one in measured for pair in one.worst_pairs),
        numbers={"scale": scale, "summary": json_rows(summary), **cost_numbers, "second_view": worth},
    )
    own = [one.means[name or BICUBIC] for one in measured]
    return with_published(found, sets, own, name or BICUBIC, scale) if compare else found


def _row_name(method: Method) -> str:
    """The name of a row, which must not be that of the row that always stands there."""
    name = Path(method.name).stem if isinstance(method, NetworkMethod) else method.name
    name = f"{name} (files)" if name in ("", BICUBIC) else name
    if isinstance(method, NetworkMethod):
        name += method.remark + (", left view twice" if method.right_view == "left" else "")
    return name


def _key_figures(one: MeasuredSet, method: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    figures = []
    for protocol, metric in (("both", "psnr"), ("left", "psnr"), ("both", "ssim-ipassr")):
        column = COLUMNS[protocol, metric]
        figures.append((column.heading, shown_value(one.means[method][protocol][metric], column.decimals)))
    return f"{one.label}, {method}", tuple(figures)


def measure_superres(
    label: str,
    source: Source,
    scale: int,
    method: str | None,
    enlarge: Enlarge,
    *,
    alone: Callable[[SuperresPair], NDArray[np.uint8]] | None = None,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet:
    """Measure bicubic and, unless it is None, a method on every pair of a source.

    alone: to the left view enlarged without the right one, to tell what the right one is worth.
    Raises InputError as the metrics do.
    """
    pairs: list[MeasuredPair] = []
    worst_pairs: list[tuple[float, ShownPair]] = []
    for index in range(len(source)):
        sample = source.load(index)
        pair = superres_pair(sample.left, sample.right, scale, name=sample.name)
        results: dict[str, Views] = {BICUBIC: pair.bicubic()}
        seconds = None
        if method is not None:
            found = enlarge(sample.name, pair)
            if found is None:
                advance()
                continue
            results[method], seconds = found
        figures = {name: superres_figures(pair, *views, name=sample.name) for name, views in results.items()}
        second_view = None
        if method is not None and alone is not None:
            single = psnr(pair.left[:, LEFT_MARGIN:], alone(pair)[:, LEFT_MARGIN:])
            gain = figures[method]["left"]["psnr"] - single
            second_view = gain if np.isfinite(gain) else None  # a perfect picture has no finite PSNR
        pairs.append(MeasuredPair(sample.name, figures, seconds, second_view))
        if worst:
            bicubic, quality = figures[BICUBIC]["left"]["psnr"], figures[method or BICUBIC]["left"]["psnr"]
            caption, shown = f"{quality:.2f} dB (left)", None
            if method is not None:
                caption += f", {quality - bicubic:+.2f} dB over bicubic"
                shown = results[method][0]
            shown_pair = shown_superres(sample.name, caption, results[BICUBIC][0], shown, pair.left)
            worst_pairs = sorted([*worst_pairs, (quality, shown_pair)], key=lambda one: one[0])[:worst]
        advance()
    methods = [BICUBIC] if method is None else [BICUBIC, method]
    return MeasuredSet(
        label,
        {name: mean_figures([pair.figures[name] for pair in pairs]) for name in methods},
        tuple(pairs),
        tuple(shown_pair for _, shown_pair in worst_pairs),
        tuple(source.missing),
    )


def _words(*keys: str) -> tuple[Column, ...]:
    return tuple(Column(key, key, text=True) for key in keys)


def summary_table(sets: list[MeasuredSet]) -> Table:
    """A row for each set and method; means over the pairs."""
    words = (*_words("data", "method"), Column("pairs", "pairs", decimals=0))
    rows: list[dict[str, Value]] = [
        {"data": one.label, "method": method, "pairs": len(one.pairs), **flat(figures)}
        for one in sets
        for method, figures in one.means.items()
    ]
    return Table((*words, *COLUMNS.values()), tuple(rows))


def pairs_table(sets: list[MeasuredSet]) -> Table:
    """A row for each pair and method."""
    rows: list[dict[str, Value]] = [
        {
            "data": one.label,
            "name": pair.name,
            "method": method,
            "seconds": None if method == BICUBIC else pair.seconds,
            **flat(figures),
        }
        for one in sets
        for pair in one.pairs
        for method, figures in pair.figures.items()
    ]
    columns = (*_words("data", "name", "method"), Column("seconds", "time", "s", 3), *COLUMNS.values())
    return Table(columns, tuple(rows))
