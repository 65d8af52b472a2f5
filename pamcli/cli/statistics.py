"""pam dataset stats: sizes, disparities, sharpness and entropy of a set's pictures, and its duplicates."""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from pamcli.cli import completion
from pamcli.cli.console import Console
from pamcli.cli.groups import argument, option
from pamcli.cli.options import Quiet, Text, Workers
from pamcli.errors import InputError

if TYPE_CHECKING:
    from pamcli.data.source import Source
    from pamcli.data.statistics import SetFigures

_PATCHES = 1000  # of a tree of patches, which show every part of a picture nearly seven times


@dataclass(frozen=True, kw_only=True)
class Sets:
    """What is looked at."""

    panel: ClassVar[str] = "Input"
    data: list[str] = argument(
        "NAME[/SPLIT]:PATH[?key=value&...], or a folder of prepare-flickr1024.",
        default=MISSING,
        metavar="DATA",
        autocompletion=completion.data,
    )
    count: int | None = option("Look at so many pairs, spread over the set.", min=1, show_default="all")


def command(given: Sets, workers: Workers, text: Text, messages: Quiet) -> None:
    """Measure the pictures of data sets.

    Pairs and pixels per image as in the paper's table of data sets, whose rows stand below; the range of
    disparities, estimated by block matching; sharpness (mean gradient) and entropy (bits) of the left
    pictures; pairs that are there twice.

    $ pam dataset stats data/flickr1024
    $ pam dataset stats kitti2015:kitti --count 100 --jsonl
    """
    console = messages.console()
    sets = [_opened(each) for each in given.data]
    from pamcli.data.statistics import set_figures

    rows = []
    for label, source in sets:
        source, chosen = _chosen(label, source, given.count, console)
        with console.progress(label, len(chosen)) as bar:
            figures = set_figures(source, chosen, workers.count, bar.advance)
        for name, reason in figures.damaged:
            console.error(f"{label}: {name}: {reason}")
        if text.jsonl:
            console.record(_record(label, figures))
        else:
            _print_duplicates(label, figures, console)
        rows.append((label, figures))
    if not text.jsonl:
        _show(rows, console)
    if any(figures.damaged for _, figures in rows):
        raise typer.Exit(InputError.exit_code)


def _opened(text: str) -> tuple[str, Source]:
    """A data set, or what `prepare-flickr1024` made of one: the pictures that its patches are cut from."""
    from pamcli.data.open import open_data, parse_data
    from pamcli.data.sources import SOURCES

    match = re.match(r"(\w+)(/\w+)?:", text)
    if not (match and match[1] in SOURCES) and Path(os.path.expanduser(text.partition("?")[0])).is_dir():
        text = f"flickr1024:{text}"
    return text, open_data(parse_data(text))


def _chosen(text: str, source: Source, count: int | None, console: Console) -> tuple[Source, list[int]]:
    source = source.pictures()
    if source.of_patches:
        console.inform(f"{text} holds patches without their pictures: figures are of patches")
        count = min(count or _PATCHES, len(source))
    return source, spread(len(source), count or len(source))


def spread(length: int, count: int) -> list[int]:
    """At most `count` of the numbers below `length`, evenly spaced, the first and the last one among them."""
    count = min(count, length)
    return [round(index * (length - 1) / max(count - 1, 1)) for index in range(count)]


def _print_duplicates(text: str, figures: SetFigures, console: Console) -> None:
    for first, second in figures.copies:
        console.result(f"{text}: {second} is a copy of {first}")
    for first, second in figures.near_copies:
        console.result(f"{text}: {second} looks like {first}")
    for pair in figures.pairs:
        if pair.same_views:
            console.result(f"{text}: left and right of {pair.name} are the same picture")


def _show(rows: list[tuple[str, SetFigures]], console: Console) -> None:
    from pamcli.data.statistics import PAPER
    from pamcli.evaluation.tables import Column, Table, Value, text_table

    columns = (
        Column("data", "data", text=True),
        Column("pairs", "pairs", decimals=0),
        Column("pixels", "pixels per image", decimals=0),
        Column("smallest_disparity", "disparity from", "px", 0),
        Column("largest_disparity", "to", "px", 0),
        Column("sharpness", "sharpness"),
        Column("entropy", "entropy", "bits"),
        Column("copies", "copies", decimals=0),
    )
    found: list[dict[str, Value]] = [
        {"data": text, **_numbers(figures), "copies": len(figures.copies) + len(figures.near_copies)}
        for text, figures in rows
    ]
    found += [{"data": f"{name} in the paper", "pairs": pairs, "pixels": ppi} for name, pairs, ppi in PAPER]
    console.block(text_table(Table(columns, tuple(found))))
    console.inform(
        "of the paper's table, CNNIQA needs the weights of its authors' network, and SR-metric its authors' "
        "MATLAB program with the regression forests in it: neither comes with pam, so neither is computed"
    )


def _numbers(figures: SetFigures) -> dict[str, float]:
    return {
        "pairs": len(figures.pairs),
        "pixels": figures.pixels_per_image,
        "smallest_disparity": figures.percentile("smallest_disparity", 5),
        "largest_disparity": figures.percentile("largest_disparity", 95),
        "sharpness": figures.mean("sharpness"),
        "entropy": figures.mean("entropy"),
    }


def _record(text: str, figures: SetFigures) -> dict[str, Any]:
    from pamcli.evaluation.tables import json_value

    return {
        "data": text,
        **{key: json_value(value) for key, value in _numbers(figures).items()},
        "cnniqa": None,
        "sr_metric": None,
        "copies": figures.copies,
        "near_copies": figures.near_copies,
        "same_views": [pair.name for pair in figures.pairs if pair.same_views],
        "damaged": figures.damaged,
    }
