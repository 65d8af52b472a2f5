"""Measuring super-resolution over a data set, always beside bicubic, and the tables of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Source
from pamcli.evaluation.report_pictures import Example, superres_example
from pamcli.evaluation.superres_metrics import (
    METRICS,
    PROTOCOLS,
    Figures,
    SuperresPair,
    mean_figures,
    superres_figures,
    superres_pair,
)
from pamcli.evaluation.tables import Column, Table, Value

BICUBIC = "bicubic"
Enlarged = tuple[NDArray[np.uint8], NDArray[np.uint8]]


@dataclass(frozen=True)
class MeasuredPair:
    """One pair's figures by method, and what the network took."""

    name: str
    figures: dict[str, Figures]
    seconds: float | None


@dataclass(frozen=True)
class MeasuredSet:
    """What bicubic and a method reach on a data set."""

    label: str
    means: dict[str, Figures]
    """Method -> protocol -> metric -> mean over the pairs."""
    pairs: tuple[MeasuredPair, ...]
    examples: tuple[Example, ...]
    """The pairs with the lowest PSNR, worst first."""
    notes: tuple[str, ...]


def measure_superres(
    label: str,
    source: Source,
    scale: int,
    method: str | None,
    enlarge: Callable[[str, SuperresPair], tuple[Enlarged, float | None] | None],
    *,
    worst: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> MeasuredSet:
    """Measure bicubic and, unless it is None, a method on every pair of a source.

    enlarge: from name and low-resolution pair to both enlarged views and seconds; None = nothing for it.
    Raises InputError as the metrics do.
    """
    pairs: list[MeasuredPair] = []
    examples: list[tuple[float, Example]] = []
    for index in range(len(source)):
        sample = source.load(index)
        pair = superres_pair(sample.left, sample.right, scale, name=sample.name)
        results: dict[str, Enlarged] = {BICUBIC: pair.bicubic()}
        seconds = None
        if method is not None:
            found = enlarge(sample.name, pair)
            if found is None:
                advance()
                continue
            results[method], seconds = found
        figures = {name: superres_figures(pair, *views, name=sample.name) for name, views in results.items()}
        pairs.append(MeasuredPair(sample.name, figures, seconds))
        if worst:
            shown = results.get(method) if method is not None else None
            quality = figures[method or BICUBIC]["left"]["psnr"]
            gain = quality - figures[BICUBIC]["left"]["psnr"]
            caption = f"{quality:.2f} dB (left)" + (f", {gain:+.2f} dB over bicubic" if shown else "")
            example = superres_example(
                sample.name, caption, results[BICUBIC][0], shown[0] if shown else None, pair.left
            )
            examples.append((quality, example))
            examples.sort(key=lambda one: one[0])
            del examples[worst:]
        advance()
    methods = [BICUBIC] if method is None else [BICUBIC, method]
    return MeasuredSet(
        label,
        {name: mean_figures([pair.figures[name] for pair in pairs]) for name in methods},
        tuple(pairs),
        tuple(example for _, example in examples),
        tuple(source.missing),
    )


def _keys() -> list[tuple[str, str, str]]:
    return [(f"{protocol} {metric}", protocol, metric) for protocol in PROTOCOLS for metric in METRICS]


def _columns() -> tuple[Column, ...]:
    return tuple(
        Column(
            key,
            f"{protocol} {metric.replace('psnr', 'PSNR').replace('ssim', 'SSIM')}",
            "dB" if metric == "psnr" else "",
            2 if metric == "psnr" else 4,
            note=f"{PROTOCOLS[protocol]}; {METRICS[metric]}",
        )
        for key, protocol, metric in _keys()
    )


def _words(*keys: str) -> tuple[Column, ...]:
    return tuple(Column(key, key, text=True) for key in keys)


def _row(figures: Figures) -> dict[str, Value]:
    return {key: figures[protocol][metric] for key, protocol, metric in _keys()}


def summary_table(sets: list[MeasuredSet]) -> Table:
    """A row for each set and method; means over the pairs."""
    words = (*_words("data", "method"), Column("pairs", "pairs", decimals=0))
    rows: list[dict[str, Value]] = [
        {"data": one.label, "method": method, "pairs": len(one.pairs), **_row(figures)}
        for one in sets
        for method, figures in one.means.items()
    ]
    return Table((*words, *_columns()), tuple(rows))


def pairs_table(sets: list[MeasuredSet]) -> Table:
    """A row for each pair and method."""
    rows: list[dict[str, Value]] = [
        {
            "data": one.label,
            "name": pair.name,
            "method": method,
            "seconds": None if method == BICUBIC else pair.seconds,
            **_row(figures),
        }
        for one in sets
        for pair in one.pairs
        for method, figures in pair.figures.items()
    ]
    columns = (*_words("data", "name", "method"), Column("seconds", "time", "s", 3), *_columns())
    return Table(columns, tuple(rows))
