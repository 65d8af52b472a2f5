"""Rectify a folder of stereograms into pairs and report the result for every image.

OUT/pairs/NAME_L.png, NAME_R.png      the pairs
OUT/stereograms.csv, .json            a line per image: a pair with its measured values, or the reason why it
                                      was set aside or is damaged
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pydantic

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.json_files import Number, Text, Whole, load_json
from pamcli.files.paths import quote
from pamcli.files.suffixes import IMAGE_SUFFIXES, MPO_SUFFIX
from pamcli.flickr1024.pairs import ImageLocation, find_images
from pamcli.flickr1024.prepare import check_folder
from pamcli.flickr1024.rectify_stereogram import StereogramError, rectify_stereogram
from pamcli.flickr1024.resumable import LOG, Request, Work, encode_csv, write_json
from pamcli.imaging.raster import encode_png
from pamcli.reporting import Progress

SUFFIXES = tuple(each for each in IMAGE_SUFFIXES if each != MPO_SUFFIX)

_LOSSLESS = (".png", ".pns", ".tif", ".tiff", ".bmp", ".ppm")
_PNG_GROWTH = 6  # estimated, from JPEG, WebP or an archive to PNG


@pydantic.dataclasses.dataclass(frozen=True)
class Report:
    """The result for one stereogram; the fields of a pair are those of `RectifiedPair`."""

    picture: Text
    outcome: Literal["pair", "set aside", "damaged"]
    reason: Text | None = None  # reason why there is no pair
    name: Text | None = None  # name of the pair's files; all fields below belong to the pair
    width: Whole | None = None
    height: Whole | None = None
    layout: Literal["cross", "parallel"] | None = None
    certainty: Number | None = None
    vertical_offset: Number | None = None
    rotation: Number | None = None
    shift: int | None = None
    infinity: Literal["yes", "no"] | None = None
    smallest_disparity: Number | None = None
    largest_disparity: Number | None = None


_COLUMNS = tuple(field.name for field in fields(Report))
_MEASURED = _COLUMNS[_COLUMNS.index("layout") :]


@pydantic.dataclasses.dataclass(frozen=True)
class Reports:
    """The record of a finished folder."""

    pictures: tuple[Report, ...]
    job: Request


@dataclass(frozen=True)
class Stereogram:
    """A stereogram to rectify."""

    title: str  # path below the input
    name: str  # name of the pair
    location: ImageLocation
    options: Mapping[str, Any]  # options of `rectify_stereogram`


def make_pairs(
    places: Sequence[Path],
    out: Path,
    options: Mapping[str, Any],
    workers: int,
    bar: Progress,
    *,
    skip_damaged: bool,
) -> tuple[Report, ...]:
    """Rectify the stereograms below `places` into `out`, and return the report of every image.

    Raises:
        UsageError: If two images would have one name, or the folder belongs to other options.
        DamagedError: If images cannot be read and `skip_damaged` is not set; all others are done.
        OutputError: If the pairs cannot be written.
    """
    target, record = out / "pairs", out / "stereograms.json"
    tasks = _list_stereograms(places, options)
    check_folder(out)
    work = Work(target, record, Request(dict(options), [*tasks]), tasks, Report, _has_files)
    reports = work.read_results()
    if reports is None:
        return load_json(Reports, record, f"remove {quote(target)} and start again").pictures
    files = {task.location.path for title, task in tasks.items() if title not in reports}
    growth = {file: 1 if file.suffix.lower() in _LOSSLESS else _PNG_GROWTH for file in files}
    needed = sum(file.stat().st_size * times for file, times in growth.items())
    work.begin(reports, needed, 2 * (len(tasks) - len(reports)))
    failed = work.process(_rectify, reports, workers, bar, skip_damaged=skip_damaged)
    reports |= {title: Report(title, "damaged", reason) for title, reason in failed.items()}
    outcomes = tuple(reports[title] for title in tasks)
    for report in outcomes:
        if report.outcome == "set aside":
            LOG.info("%s is set aside: %s", report.picture, report.reason)
    table = encode_csv([_COLUMNS, *(vars(outcome).values() for outcome in outcomes)])
    write_atomically(record.with_suffix(".csv"), table)
    known = [{key: value for key, value in vars(each).items() if value is not None} for each in outcomes]
    write_json(record, {"pictures": known, "job": vars(work.request)})
    work.publish()
    return outcomes


def _list_stereograms(places: Sequence[Path], options: Mapping[str, Any]) -> dict[str, Stereogram]:
    tasks: dict[str, Stereogram] = {}
    titles: dict[str, str] = {}
    for image in (found for place in places for found in find_images(place, SUFFIXES)):
        title = "/".join((*image.folders, image.name))
        folders = [name.removesuffix(".zip") for name in image.folders]
        name = "_".join((*folders, os.path.splitext(image.name)[0]))
        if name in titles:
            both = f"{quote(titles[name])} and {quote(title)}"
            raise UsageError(f"{both} would both become {quote(name)}_L.png", "rename one of them")
        titles[name] = title
        tasks[title] = Stereogram(title, name, image, options)
    if not tasks:
        raise InputError(f"{quote(places[0])} contains no image", "pass the folder with the stereograms")
    return tasks


def _has_files(store: Path, task: Stereogram, report: Report) -> bool:
    files = [store / f"{task.name}_{side}.png" for side in "LR"] if report.outcome == "pair" else []
    return all(file.exists() for file in files)


def _rectify(store: Path, task: Stereogram) -> Report:
    """Rectify one stereogram. Raises InputError if it cannot be read."""
    try:
        result = rectify_stereogram(task.location.read().pixels, **task.options)
    except StereogramError as why:
        return Report(task.title, "set aside", str(why))
    height, width = result.left.shape[:2]
    measured: dict[str, Any] = {key: getattr(result, key) for key in _MEASURED}
    measured |= {key: round(value, 4) for key, value in measured.items() if isinstance(value, float)}
    for side, pixels in (("L", result.left), ("R", result.right)):
        write_atomically(store / f"{task.name}_{side}.png", encode_png(pixels))
    return Report(task.title, "pair", name=task.name, width=width, height=height, **measured)
