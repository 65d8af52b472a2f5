"""Provide results from papers and benchmark pages (`published.toml`), to compare with measured ones."""

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from pamcli.data.statistics import SetFigures
from pamcli.evaluation.loop import MeasuredSet
from pamcli.evaluation.results import Evaluation
from pamcli.evaluation.tables import (
    Column,
    Figures,
    Table,
    Value,
    flatten,
    make_text_columns,
    to_json_row,
)

SETS = (
    ("Middlebury", 65, 3511605, 20.18, 6.01),
    ("KITTI 2012", 194, 462564, 20.32, 7.15),
    ("KITTI 2015", 200, 465573, 22.86, 7.06),
    ("Flickr1024", 1024, 800486, 19.75, 7.12),
)
"""The paper's table of data sets: name, pairs, pixels per image, CNNIQA, SR-metric."""


@dataclass(frozen=True)
class PublishedRow:
    """A published result of one method on one data set."""

    method: str  # name, with the number of parameters if published: "PASSRnet (1.42M)"
    data: str  # source name of the data set: "kitti2015", "middlebury", ...
    subset: str  # the subset of its images
    figures: Figures  # metrics by region or protocol -> metric -> value, rates in percent
    protocol: str  # training and evaluation protocol
    source: str
    scale: int | None = None  # upscaling factor; None for disparity


def list_published_rows(data: str, scale: int | None = None) -> tuple[PublishedRow, ...]:
    """Return the published rows of a data set, by source name; `scale` as in the rows."""
    return tuple(row for row in _load_rows() if (row.data, row.scale) == (data, scale))


@functools.cache
def _load_rows() -> tuple[PublishedRow, ...]:
    text = resources.files("pamcli.evaluation").joinpath("published.toml").read_text(encoding="utf-8")
    rows = []
    for table in tomllib.loads(text)["table"]:
        for method, *values in table["rows"]:
            sets: dict[str, dict[str, dict[str, float]]] = {}
            for column, value in zip(table["columns"], values, strict=False):
                data, region, metric = column.split()
                if not math.isnan(value):
                    sets.setdefault(data, {}).setdefault(region, {})[metric] = value
            for data, figures in sets.items():
                subset, protocol = (
                    text if isinstance(text := table[key], str) else text[data]
                    for key in ("subset", "protocol")
                )
                scale = table.get("scale")
                rows.append(PublishedRow(method, data, subset, figures, protocol, table["source"], scale))
    return tuple(rows)


def add_published(
    page: Evaluation, sets: Sequence[MeasuredSet[Any]], method: str, scale: int | None
) -> Evaluation:
    """Add the published rows of every data set that has some, below the row of the method under test."""
    tables, rows, notes = {}, {}, [*page.notes]
    known = [(one.source.spec.info.name, one) for one in sets if one.source.spec]
    for name, one in known:
        place = name if [each for each, _ in known].count(name) == 1 else one.label
        if published := list_published_rows(name, scale):
            tables[place] = make_published_table(published, name, one.meter.headline, method)
            rows[place] = [to_json_row(row) for row in tables[place].rows[1:]]
        else:
            notes.append(f"there are no published results for {place}")
    numbers = {**page.numbers, "published": rows}
    return replace(page, published=tables, notes=tuple(notes), numbers=numbers)


def make_published_table(rows: Sequence[PublishedRow], data: str, own: Figures, method: str) -> Table:
    """Return a table of published rows below the metrics of `method` as measured here."""
    keys = dict.fromkeys(key for row in rows for key in flatten(row.figures))
    measured = {key: value for key, value in flatten(own).items() if key in keys}
    lines: list[dict[str, Value]] = [
        {"method": f"{method} (this run)", "protocol": "measured here", "source": "", **measured}
    ]
    for row in rows:
        protocol = f"{row.subset}; {row.protocol}"
        lines.append(
            {"method": row.method, **flatten(row.figures), "protocol": protocol, "source": row.source}
        )
    columns = (
        Column("method", f"published on {data}", text=True),
        *(Column(key, key, decimals=4 if "ssim" in key else 2) for key in keys),
        *make_text_columns("protocol", "source"),
    )
    return Table(columns, tuple(lines))


def make_data_set_table(sets: Sequence[tuple[str, SetFigures, Mapping[str, float]]]) -> Table:
    """Return a table of data set contents by name and their image quality, with the paper's rows below."""
    measured = {name for _, _, quality in sets for name in quality}
    columns_of_quality = {
        "cnniqa": "CNNIQA",
        "cnniqa_left": "left",
        "cnniqa_right": "right",
        "sr_metric": "SR-metric",
    }
    columns = (
        *make_text_columns("data"),
        Column("pairs", "pairs", decimals=0),
        Column("pixels", "pixels per image", decimals=0),
        Column("smallest_disparity", "disparity from", "px", 0),
        Column("largest_disparity", "to", "px", 0),
        Column("sharpness", "sharpness"),
        Column("entropy", "entropy", "bits"),
        Column("copies", "copies", decimals=0),
        *(Column(name, title) for name, title in columns_of_quality.items() if name in measured),
    )
    rows: list[dict[str, Value]] = [
        {"data": name, **figures.row(), "copies": len(figures.copies) + len(figures.near_copies), **quality}
        for name, figures, quality in sets
    ]
    keys = "data", "pairs", "pixels", "cnniqa", "sr_metric"
    rows += [dict(zip(keys, (f"{name} in the paper", *values), strict=True)) for name, *values in SETS]
    return Table(columns, tuple(rows))
