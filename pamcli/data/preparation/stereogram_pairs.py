"""From a folder of stereograms to rectified pairs, with what became of every picture.

OUT/pairs/NAME_L.png, NAME_R.png      the pairs
OUT/stereograms.csv, .json            a line for every picture: made into a pair with what was found and
                                      undone, set aside with the reason, or damaged
OUT/sheets/sheet001.jpg ...           every pair: left, right, and both in one for red-cyan glasses
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pamcli.data.preparation.archives import Location, pictures_below
from pamcli.data.preparation.prepare import check_folder
from pamcli.data.preparation.unfinished import (
    Job,
    Unfinished,
    check_space,
    difference,
    read_json,
    write_json,
)
from pamcli.data.preparation.workers import done_in_processes
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import check_writable, write_atomically
from pamcli.files.finding import natural, shown
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.imaging.images import Picture, encode_picture
from pamcli.imaging.png import encode_png

LayoutChoice = Literal["auto", "cross", "parallel"]
Fate = dict[str, Any]
"""JSON: "picture", "fate" (pair, set aside, damaged), "reason" or what was found; see `FOUND`."""

SUFFIXES = (*PICTURE_SUFFIXES, ".jps", ".pns")
"""The last two: JPEG and PNG files that are known to be stereograms."""
FOUND = (
    "layout",
    "certainty",
    "vertical_offset",
    "rotation",
    "shift",
    "rule",
    "smallest_disparity",
    "largest_disparity",
    "margins",
)
"""What `RectifiedPair` says of a pair, besides its pictures."""
COLUMNS = ("picture", "fate", "reason", "name", "width", "height", *FOUND)

_ROWS = 40  # of a sheet
_CELL = 320  # pixels, the width of a picture on a sheet
_GAP, _LINE = 4, 14


@dataclass(frozen=True)
class StereogramTask:
    """One stereogram's work, whatever process does it."""

    number: int
    picture: str
    """Its path below what was given."""
    name: str
    """Of the pair."""
    location: Location
    layout: LayoutChoice
    work: Unfinished


@dataclass(frozen=True)
class StereogramPlan:
    out: Path
    job: Job
    work: Unfinished
    tasks: tuple[StereogramTask, ...]
    done: frozenset[int]
    finished: bool

    @property
    def pairs(self) -> Path:
        """The folder of the pairs."""
        return self.out / "pairs"

    @property
    def report(self) -> Path:
        return self.out / "stereograms.json"


def plan_stereograms(places: Sequence[Path], out: Path, layout: LayoutChoice) -> StereogramPlan:
    """Find the pictures and look at the output folder; nothing is made.

    Raises InputError: no picture; UsageError: two results of one name, a folder that holds something else
    or work with other options; OutputError: no room, no permission.
    """
    found = [picture for place in places for picture in pictures_below(place, SUFFIXES)]
    if not found:
        raise InputError(f"{shown(places[0])} holds no picture", "give the folder with the stereograms")
    work = Unfinished(out / "pairs.unfinished")
    names: dict[str, str] = {}
    tasks: list[StereogramTask] = []
    for picture in found:
        path = "/".join((*picture.folders, picture.name))
        folders = [folder.removesuffix(".zip") for folder in picture.folders]
        name = "_".join((*folders, os.path.splitext(picture.name)[0]))
        if name in names:
            raise UsageError(
                f"{shown(names[name])} and {shown(path)} would both become {shown(name)}_L.png",
                "rename one of them",
            )
        names[name] = path
        tasks.append(StereogramTask(len(tasks) + 1, path, name, picture.location, layout, work))
    job = {"options": {"layout": layout}, "pictures": [task.picture for task in tasks]}
    check_folder(out)
    finished = _is_finished(out, job)
    if not finished:
        work.check(job)
        check_writable(out / "pairs")
    done = frozenset(work.done())
    plan = StereogramPlan(out, job, work, tuple(tasks), done, finished)
    if not finished:
        files = {task.location.path for task in tasks if task.number not in done}
        needed = 6 * sum(file.stat().st_size for file in files)  # PNG of what came as JPEG
        check_space(out / "pairs", needed, 2 * (len(tasks) - len(done)))
    return plan


def _is_finished(out: Path, job: Job) -> bool:
    if not (out / "pairs").exists():
        return False
    report = out / "stereograms.json"
    if not report.exists():
        raise UsageError(f"{shown(out / 'pairs')} exists already", "name another folder")
    if other := difference(read_json(report).get("job", {}), job):
        raise UsageError(f"{shown(out / 'pairs')} was made with {other}", "name another folder")
    return True


def carry_out_stereograms(
    plan: StereogramPlan, workers: int, advance: Callable[[], None] = lambda: None
) -> tuple[Fate, ...]:
    """Rectify what is not done yet and write the report and the sheets; what became of every picture.

    Raises OutputError; what is done stays done.
    """
    if plan.finished:
        return tuple(read_json(plan.report)["pictures"])
    plan.work.begin(plan.job)
    for _ in plan.done:
        advance()
    todo = [task for task in plan.tasks if task.number not in plan.done]
    damaged = {}
    for task, result in done_in_processes(rectify, todo, workers):
        if isinstance(result, InputError):
            damaged[task.number] = {"picture": task.picture, "fate": "damaged", "reason": result.message}
        advance()
    done = plan.work.done()
    fates = tuple(done.get(task.number) or damaged[task.number] for task in plan.tasks)
    write_sheets(plan, fates)
    write_atomically(plan.out / "stereograms.csv", _encode_report(fates))
    write_json(plan.report, {"pictures": fates, "job": plan.job})
    plan.work.finish(plan.pairs)
    return fates


def rectify(task: StereogramTask) -> None:
    """One stereogram to its pair, or to the reason why not. Raises InputError: it cannot be read."""
    from pamcli.data import stereograms

    result = stereograms.rectify_stereogram(task.location.read().pixels, task.layout)
    fate: Fate = {"picture": task.picture}
    if isinstance(result, stereograms.SetAside):
        fate |= {"fate": "set aside", "reason": result.reason}
    else:
        height, width = result.left.shape[:2]
        fate |= {"fate": "pair", "name": task.name, "width": width, "height": height}
        fate |= {key: _plain(getattr(result, key)) for key in FOUND}
        for side, pixels in (("L", result.left), ("R", result.right)):
            write_atomically(task.work.store / f"{task.name}_{side}.png", encode_png(pixels))
    task.work.mark(task.number, fate)


def _plain(value: Any) -> Any:
    """For JSON: NumPy's numbers become Python's, of a few digits."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def _encode_report(fates: Sequence[Fate]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for fate in fates:
        margins = fate.get("margins")
        text = {"margins": "; ".join(" ".join(map(str, sides)) for sides in margins)} if margins else {}
        writer.writerow({**fate, **text})
    return out.getvalue().encode()


# --- contact sheets -----------------------------------------------------------------------------------------


def write_sheets(plan: StereogramPlan, fates: Sequence[Fate]) -> None:
    """Every pair as made, `_ROWS` a picture. Raises OutputError."""
    made = sorted((fate for fate in fates if fate["fate"] == "pair"), key=lambda fate: natural(fate["name"]))
    for start in range(0, len(made), _ROWS):
        rows = []
        for fate in made[start : start + _ROWS]:
            views = [
                Location(plan.work.store / f"{fate['name']}_{side}.png").read().pixels for side in ("L", "R")
            ]
            text = (
                f"{fate['name']}   {fate['width']} x {fate['height']}   {fate['layout']} "
                f"({fate['certainty']:.0%})   disparity {fate['smallest_disparity']:.0f} to "
                f"{fate['largest_disparity']:.0f} px   shift {fate['shift']:+d} px ({fate['rule']})"
            )
            rows.append(sheet_row(views[0], views[1], text))
        path = plan.out / "sheets" / f"sheet{start // _ROWS + 1:03d}.jpg"
        write_atomically(path, encode_picture(Picture(np.concatenate(rows)), ".jpg", name=str(path)))


def sheet_row(left: NDArray[np.generic], right: NDArray[np.generic], text: str) -> NDArray[np.uint8]:
    """(H, W, 3): a line of text above left, right, and red of the left with green and blue of the right."""
    height = max(1, round(_CELL * left.shape[0] / left.shape[1]))
    views = [_shrunk(view, height) for view in (left, right)]
    overlay = np.concatenate([views[0][..., :1], views[1][..., 1:]], axis=2)
    row = np.full((_LINE + height + _GAP, 3 * _CELL + 4 * _GAP, 3), 24, np.uint8)
    for column, cell in enumerate((*views, overlay)):
        start = _GAP + column * (_CELL + _GAP)
        row[_LINE : _LINE + height, start : start + _CELL] = cell
    image = Image.fromarray(row)
    plain = text.encode("ascii", "backslashreplace").decode()  # all that the built-in font may know
    ImageDraw.Draw(image).text((_GAP, 1), plain, fill=(230, 230, 230), font=ImageFont.load_default())
    return np.asarray(image)


def _shrunk(picture: NDArray[np.generic], height: int) -> NDArray[np.uint8]:
    eight = picture.astype(np.uint16) >> 8 if picture.dtype == np.uint16 else picture
    image = Image.fromarray(eight.astype(np.uint8))
    return np.asarray(image.resize((_CELL, height), Image.Resampling.BOX))
