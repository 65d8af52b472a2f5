"""Rectify a folder of stereograms into pairs and report the result for every image.

OUT/pairs/NAME_L.png, NAME_R.png      the pairs
OUT/stereograms.csv, .json            a line per image: a pair with its measured values, or the reason why it
                                      was set aside or is damaged
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pydantic

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.json_files import Number, Text, Whole, load_json
from pamcli.files.paths import quote
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.flickr1024.archives import ImageLocation, find_images
from pamcli.flickr1024.prepare import check_folder
from pamcli.flickr1024.rectify_stereogram import rectify_stereogram
from pamcli.flickr1024.resumable import LOG, Item, Request, ResumableWork, check_space, encode_csv, write_json
from pamcli.flickr1024.stereogram_views import StereogramError
from pamcli.imaging.raster import encode_png

SUFFIXES = (*(each for each in IMAGE_SUFFIXES if each != ".mpo"), ".jps", ".pns")  # JPEG and PNG stereograms

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

    def as_json(self) -> dict[str, Any]:
        """Return the known fields."""
        return {name: value for name, value in vars(self).items() if value is not None}


_COLUMNS = tuple(field.name for field in fields(Report))
_MEASURED = _COLUMNS[_COLUMNS.index("layout") :]


@pydantic.dataclasses.dataclass(frozen=True)
class Reports:
    """The record of a finished folder."""

    pictures: tuple[Report, ...]
    job: Request


@dataclass(frozen=True)
class StereogramItem(Item):
    """The work on one stereogram; the title is its path below the input."""

    name: str  # name of the pair
    location: ImageLocation
    options: Mapping[str, Any]  # options of `rectify_stereogram`

    def result(self) -> Report:
        """Return the stored report of this stereogram."""
        found = self.read_record(Report)
        if found.outcome == "pair":
            for side in "LR":
                self.require(self.store / f"{self.name}_{side}.png")
        return found


def plan_stereograms(
    places: Sequence[Path], out: Path, options: Mapping[str, Any]
) -> ResumableWork[StereogramItem]:
    """Find the images and check the output folder, without writing anything."""
    folder = out / "pairs.unfinished"
    items: dict[str, StereogramItem] = {}
    for image in (found for place in places for found in find_images(place, SUFFIXES)):
        path = "/".join((*image.folders, image.name))
        folders = [name.removesuffix(".zip") for name in image.folders]
        name = "_".join((*folders, os.path.splitext(image.name)[0]))
        if name in items:
            both = f"{quote(items[name].title)} and {quote(path)}"
            raise UsageError(f"{both} would both become {quote(name)}_L.png", "rename one of them")
        items[name] = StereogramItem(len(items) + 1, path, folder, name, image, options)
    if not items:
        raise InputError(f"{quote(places[0])} contains no image", "pass the folder with the stereograms")
    request = Request(dict(options), [item.title for item in items.values()])
    check_folder(out)
    plan = ResumableWork(folder, out / "pairs", out / "stereograms.json", request, tuple(items.values()))
    if not plan.is_complete:
        files = {item.location.path for item in plan.items if item.number not in plan.done}
        lossless = (".png", ".pns", ".tif", ".tiff", ".bmp", ".ppm")
        needed = sum(
            file.stat().st_size * (1 if file.suffix.lower() in lossless else _PNG_GROWTH) for file in files
        )
        check_space(out / "pairs", needed, 2 * (len(items) - len(plan.done)))
    return plan


def carry_out_stereograms(
    plan: ResumableWork[StereogramItem], workers: int, advance: Callable[[], None], *, skip_damaged: bool
) -> tuple[Report, ...] | None:
    """Rectify the remaining stereograms, write the report and return it.

    Returns None if images cannot be read and `skip_damaged` is not set: a later run then finishes the folder.
    """
    plan.log_progress()
    if plan.is_complete:
        return load_json(Reports, plan.record, f"remove {quote(plan.target)} and start again").pictures
    failed = plan.process(rectify, workers, advance, skip_damaged=skip_damaged)
    reports = plan.results()
    for report in reports.values():
        if report.outcome == "set aside":
            LOG.info("%s is set aside: %s", report.picture, report.reason)
    if failed is None:
        return None
    reports |= {
        number: Report(plan.items[number - 1].title, "damaged", reason) for number, reason in failed.items()
    }
    outcomes = tuple(reports[item.number] for item in plan.items)
    table = encode_csv([_COLUMNS, *(vars(outcome).values() for outcome in outcomes)])
    write_atomically(plan.record.with_suffix(".csv"), table)
    records = [outcome.as_json() for outcome in outcomes]
    write_json(plan.record, {"pictures": records, "job": vars(plan.request)})
    plan.publish()
    return outcomes


def rectify(item: StereogramItem) -> None:
    """Rectify one stereogram and record the pair or the reason. Raises InputError if it cannot be read."""
    try:
        result = rectify_stereogram(item.location.read().pixels, **item.options)
    except StereogramError as why:
        item.mark_done(Report(item.title, "set aside", str(why)).as_json())
        return
    height, width = result.left.shape[:2]
    measured: dict[str, Any] = {key: getattr(result, key) for key in _MEASURED}
    measured |= {key: round(value, 4) for key, value in measured.items() if isinstance(value, float)}
    for side, pixels in (("L", result.left), ("R", result.right)):
        write_atomically(item.store / f"{item.name}_{side}.png", encode_png(pixels))
    report = Report(item.title, "pair", name=item.name, width=width, height=height, **measured)
    item.mark_done(report.as_json())
