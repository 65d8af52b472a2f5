"""Provide results from papers and benchmark pages (`published.toml`), to compare with measured ones."""

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from pamcli.data.statistics import SetFigures
from pamcli.evaluation.loop import MeasuredSet
from pamcli.evaluation.results import Column, Evaluation, Row, Table, Value, flatten, make_text_columns

SETS = (
    ("Middlebury", 65, 3511605, 20.18, 6.01),
    ("KITTI 2012", 194, 462564, 20.32, 7.15),
    ("KITTI 2015", 200, 465573, 22.86, 7.06),
    ("Flickr1024", 1024, 800486, 19.75, 7.12),
)
"""The paper's table of data sets: name, pairs, pixels per image, CNNIQA, SR-metric."""


@functools.cache
def load_published() -> dict[tuple[str, int | None], list[Row]]:
    """Load the published rows by source name and upscaling factor (None for disparity).

    A row has the `method` with its number of parameters, if published; the `protocol` with the subset of the
    images; the `source`; and the metrics by the names of `flatten`, rates in percent.
    """
    text = resources.files("pamcli.evaluation").joinpath("published.toml").read_text(encoding="utf-8")
    found: dict[tuple[str, int | None], list[Row]] = {}
    for table in tomllib.loads(text)["table"]:
        for method, *values in table["rows"]:
            rows: dict[str, dict[str, Value]] = {}
            for column, value in zip(table["columns"], values, strict=False):
                data, region, metric = column.split()
                if not math.isnan(value):
                    key = metric if region == "all" else f"{region} {metric}"
                    rows.setdefault(data, {"method": method})[key] = value
            for data, row in rows.items():
                subset, protocol = (
                    text if isinstance(text := table[key], str) else text[data]
                    for key in ("subset", "protocol")
                )
                row |= {"protocol": f"{subset}; {protocol}", "source": table["source"]}
                found.setdefault((data, table.get("scale")), []).append(row)
    return found


def add_published(
    page: Evaluation, sets: Sequence[MeasuredSet[Any]], method: str, scale: int | None = None
) -> None:
    """Add the published rows of every data set that has some, below the row of the method under test."""
    page.numbers["published"] = {}
    known = [(one.source.spec.info.name, one) for one in sets if one.source.spec]
    for name, one in known:
        place = name if [each for each, _ in known].count(name) == 1 else one.label
        published = load_published().get((name, scale))
        if published is None:
            page.notes.append(f"there are no published results for {place}")
            continue
        figures = one.meter.image_means if scale else one.meter.pooled_metrics
        about = {"method": f"{method} (this run)", "protocol": "measured here", "source": ""}
        keys = dict.fromkeys(key for row in published for key in row if key not in about)
        columns = [
            Column("method", f"published on {name}", text=True),
            *(Column(key, key, decimals=4 if "ssim" in key else 2) for key in keys),
            *make_text_columns("protocol", "source"),
        ]
        page.published[place] = Table(columns, [{**flatten(figures), **about}, *published])
        page.numbers["published"][place] = published


def make_data_set_table(sets: Sequence[tuple[str, SetFigures, Mapping[str, float]]]) -> Table:
    """Return a table of data set contents by name and their image quality, with the paper's rows below."""
    measured = {name for _, _, quality in sets for name in quality}
    quality_columns = (
        Column("cnniqa", "CNNIQA"),
        Column("cnniqa_left", "left"),
        Column("cnniqa_right", "right"),
        Column("sr_metric", "SR-metric"),
    )
    columns = [
        *make_text_columns("data"),
        Column("pairs", "pairs", decimals=0),
        Column("pixels", "pixels per image", decimals=0),
        Column("smallest_disparity", "disparity from", "px", 0),
        Column("largest_disparity", "to", "px", 0),
        Column("sharpness", "sharpness"),
        Column("entropy", "entropy", "bits"),
        Column("copies", "copies", decimals=0),
        *(column for column in quality_columns if column.key in measured),
    ]
    rows: list[Row] = [
        {"data": name, **figures.row(), "copies": len(figures.copies) + len(figures.near_copies), **quality}
        for name, figures, quality in sets
    ]
    keys = "data", "pairs", "pixels", "cnniqa", "sr_metric"
    rows += [dict(zip(keys, (f"{name} in the paper", *values), strict=True)) for name, *values in SETS]
    return Table(columns, rows)
