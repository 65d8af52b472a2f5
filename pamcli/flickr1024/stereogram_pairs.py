"""From a folder of stereograms to rectified pairs, with what became of every picture.

OUT/pairs/NAME_L.png, NAME_R.png      the pairs
OUT/stereograms.csv, .json            a line for every picture: made into a pair with what was found and
                                      undone, set aside with the reason, or damaged
"""

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import shown
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.flickr1024.archives import Location, pictures_below
from pamcli.flickr1024.prepare import check_folder
from pamcli.flickr1024.rectify_stereogram import rectify_stereogram
from pamcli.flickr1024.stereogram_views import SetAside
from pamcli.flickr1024.unfinished import Item, Unfinished, check_space, read_json, write_json
from pamcli.imaging.png import encode_png

Report = dict[str, Any]
"""JSON: "picture", "outcome" (pair, set aside, damaged), "reason" or what was found; see `FOUND`."""

SUFFIXES = (*PICTURE_SUFFIXES, ".jps", ".pns")
"""The last two: JPEG and PNG files that are known to be stereograms."""
FOUND = (
    *("layout", "certainty", "vertical_offset", "rotation", "shift"),
    *("infinity", "smallest_disparity", "largest_disparity"),
)
"""What `RectifiedPair` says of a pair, besides its pictures."""
COLUMNS = ("picture", "outcome", "reason", "name", "width", "height", *FOUND)


@dataclass(frozen=True)
class StereogramItem(Item):
    """One stereogram."""

    picture: str
    """Its path below what was given."""
    name: str
    """Of the pair."""
    location: Location
    options: Mapping[str, Any]
    """Of `rectify_stereogram`."""


StereogramPlan = Unfinished[StereogramItem]


def plan_stereograms(places: Sequence[Path], out: Path, options: Mapping[str, Any]) -> StereogramPlan:
    """Find the pictures and look at the output folder; nothing is made.

    options: of `rectify_stereogram`. Raises InputError: no picture; UsageError: two results of one name, a
    folder that holds something else or work with other options; OutputError: no room, no permission.
    """
    found = [picture for place in places for picture in pictures_below(place, SUFFIXES)]
    if not found:
        raise InputError(f"{shown(places[0])} holds no picture", "give the folder with the stereograms")
    folder = out / "pairs.unfinished"
    names: dict[str, str] = {}
    items: list[StereogramItem] = []
    for picture in found:
        path = "/".join((*picture.folders, picture.name))
        folders = [folder.removesuffix(".zip") for folder in picture.folders]
        name = "_".join((*folders, os.path.splitext(picture.name)[0]))
        if name in names:
            both = f"{shown(names[name])} and {shown(path)}"
            raise UsageError(f"{both} would both become {shown(name)}_L.png", "rename one of them")
        names[name] = path
        items.append(StereogramItem(len(items) + 1, folder, path, name, picture.location, options))
    request = {"options": dict(options), "pictures": [item.picture for item in items]}
    check_folder(out)
    plan = Unfinished(folder, out / "pairs", out / "stereograms.json", request, tuple(items))
    if not plan.finished:
        files = {item.location.path for item in items if item.number not in plan.done}
        needed = 6 * sum(file.stat().st_size for file in files)  # PNG of what came as JPEG
        check_space(out / "pairs", needed, 2 * (len(items) - len(plan.done)))
    return plan


def carry_out_stereograms(
    plan: StereogramPlan, workers: int, advance: Callable[[], None] = lambda: None
) -> tuple[Report, ...]:
    """Rectify what is not done yet and write the report; what became of every picture.

    Raises OutputError; what is done stays done.
    """
    if plan.finished:
        return tuple(read_json(plan.record)["pictures"])
    plan.begin()
    failed = plan.carry_out(rectify, workers, advance)
    found = plan.results() | {
        number: {"picture": plan.items[number - 1].picture, "outcome": "damaged", "reason": why}
        for number, why in failed.items()
    }
    outcomes = tuple(found[item.number] for item in plan.items)
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(outcomes)
    write_atomically(plan.record.with_suffix(".csv"), table.getvalue().encode())
    write_json(plan.record, {"pictures": outcomes, "job": plan.request})
    plan.complete()
    return outcomes


def rectify(item: StereogramItem) -> None:
    """One stereogram to its pair, or to the reason why not. Raises InputError: it cannot be read."""
    outcome: Report = {"picture": item.picture}
    try:
        result = rectify_stereogram(item.location.read().pixels, **item.options)
    except SetAside as why:
        outcome |= {"outcome": "set aside", "reason": str(why)}
    else:
        height, width = result.left.shape[:2]
        outcome |= {"outcome": "pair", "name": item.name, "width": width, "height": height}
        for key in FOUND:
            value = np.asarray(getattr(result, key)).item()  # NumPy's numbers are none of JSON's
            outcome[key] = round(value, 4) if isinstance(value, float) else value
        for side, pixels in (("L", result.left), ("R", result.right)):
            write_atomically(item.folder / "store" / f"{item.name}_{side}.png", encode_png(pixels))
    item.mark(outcome)
