"""pam dataset prepare-flickr1024: training patches from published pairs, or from stereograms."""

from __future__ import annotations

import operator
import os
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from pamcli.cli import parsing
from pamcli.cli.console import Console
from pamcli.cli.groups import OptionGroup, argument, flag, option
from pamcli.cli.options import JSONL, WORKERS, Quiet
from pamcli.cli.progress import Progress
from pamcli.errors import BATCH_FAILED, UsageError
from pamcli.files.finding import counted, shown
from pamcli.files.guarded import read_text

if TYPE_CHECKING:
    from pamcli.flickr1024.pairs import Pairs


class Input(OptionGroup, panel="Input"):
    """Pairs to cut. Raises UsageError for options that do not go together."""

    inputs: list[str] = argument(
        "Folders or zip archives with NAME_L.png, NAME_R.png, nested or not; pairs of a data set as "
        "NAME:PATH; with --from-stereograms, folders or archives of those.",
        default=...,
        metavar="INPUT",
        parse=parsing.name,
    )
    add: list[str] | None = option(
        "Add pairs of another data set, numbered before the others; middlebury is halved first.",
        metavar="NAME:PATH",
    )
    list_file: Path | None = option(
        "Take these pairs alone: NAME or SOURCE/NAME a line, * for any.", "--list", metavar="FILE"
    )
    split: Literal["train", "validation", "test"] = option(
        "Cut this part of the published set.", default="train"
    )
    from_stereograms: bool = flag("INPUT holds stereograms: rectify them to pairs; cut these with --scale.")
    layout: Literal["auto", "cross", "parallel"] | None = option(
        "How the stereograms lie: cross-eyed, parallel, or auto, found out for each.", show_default="auto"
    )
    infinity: Literal["yes", "no", "auto"] | None = option(
        "Say whether the farthest thing in them is infinitely far; auto sets aside the unclear."
    )
    skip_unpaired: bool = flag("Go on without pictures that have no partner.")
    skip_damaged: bool = flag("Finish without pictures that cannot be read.")

    def __post_init__(self) -> None:
        if (self.layout or self.infinity) and not self.from_stereograms:
            hint = "add --from-stereograms, or drop them"
            raise UsageError("--layout and --infinity are about stereograms", hint)
        if self.from_stereograms and self.infinity is None:
            raise UsageError(
                "what disparity the farthest thing gets is not said",
                "add --infinity yes (it is infinitely far: 0), no (it is near: 40 px), or auto",
            )


class Output(OptionGroup, panel="Output"):
    """The patches, and who makes them."""

    output: Path = option(
        "Patches go into x2, x4 or patches_x2 ... in it.", "-o", default=..., metavar="FOLDER"
    )
    scale: Literal["2", "4"] | None = option("Reduce the patches so many times, to learn x2 or x4.")
    store: Literal["packed", "folders"] = option(
        "Write one file, quick to read, or the authors' tree of PNG files.", default="packed"
    )
    jsonl: bool = JSONL
    workers: int | None = WORKERS


def command(given: Input, to: Output, messages: Quiet) -> None:
    """Make training patches for super-resolution.

    Pairs are cut to a multiple of the scale, reduced by MATLAB's bicubic and rounded to 8 bits; patches have
    30 x 90 low-resolution pixels and a stride of 20, at the authors' offsets. Same input, same bytes.

    Repeat a command that was interrupted, and it goes on. The result is a data set: flickr1024:FOLDER.

    $ pam dataset prepare-flickr1024 Flickr1024/ -o data/flickr1024 --scale 4
    $ pam dataset prepare-flickr1024 stereograms/ -o data/mine --from-stereograms --infinity no
    """
    console = messages.console(jsonl=to.jsonl)
    if not given.from_stereograms and to.scale is None:
        raise UsageError("no scale is given", "add --scale 2 or --scale 4")
    if to.scale is None and (given.add or given.list_file):
        raise UsageError("--add and --list are about patches", "add --scale 2 or --scale 4")
    for place in map(Path, map(os.path.expanduser, given.inputs)):
        if place.is_dir() and Path(os.path.realpath(to.output)).is_relative_to(os.path.realpath(place)):
            said = f"{shown(to.output)} lies in {shown(place)}, which is the input"
            raise UsageError(said, "name a folder beside it")
    # Opened before any work: a mistyped path is found at once.
    if given.list_file is not None:
        read_text(given.list_file)
    from pamcli.data.picture_pairs import data_pairs, pairs_at

    found = [data_pairs(text) for text in given.add or []]
    from pamcli.files.atomic import owned
    from pamcli.workers import default_workers

    workers, damaged = to.workers or default_workers(), False
    with owned(to.output), console.progress("pictures", 0) as bar:
        places, source = given.inputs, "flickr1024"
        if given.from_stereograms:
            rectified = _rectify(given, to, workers, console, bar)
            if rectified is None:
                raise typer.Exit(BATCH_FAILED)
            damaged = rectified
            places, source = [str(to.output / "pairs")], "stereograms"
        if to.scale is not None:
            found += [pairs_at(text, given.split, source) for text in places]
            damaged |= _cut(reduce(operator.add, found), given, to, workers, console, bar)
    if damaged and not given.skip_damaged:
        raise typer.Exit(BATCH_FAILED)


def _cut(found: Pairs, given: Input, to: Output, workers: int, console: Console, bar: Progress) -> bool:
    """Make the patches and report how many; whether some pairs could not be read."""
    from pamcli.flickr1024.pairs import selected
    from pamcli.flickr1024.prepare import carry_out, plan_preparation

    pairs, skip = selected(found, given.list_file, skip_unpaired=given.skip_unpaired), given.skip_damaged
    plan = plan_preparation(pairs, to.output, int(to.scale or 0), to.store, given.split, skip_damaged=skip)
    bar.expect(0 if plan.finished else len(plan.items))
    index, name = carry_out(plan, workers, bar.advance, skip_damaged=skip), plan.target
    if index is None:
        return True
    facts = {"kind": "patches", "path": name, "scale": plan.scale, "store": plan.store, "split": index.split}
    counts = {"pairs": len(index.pictures), "patches": index.patches, "sources": index.sources()}
    missing = [{"pair": pair, "reason": reason} for pair, reason in index.left_out]
    lines = [f"{name}: {source}: {_amount(**each)}" for source, each in index.sources().items()]
    left_out = f", {counted(len(missing), 'pair')} left out" if missing else ""
    lines.append(f"{name}: {_amount(len(index.pictures), index.patches)}{left_out}")
    console.answer({**facts, **counts, "left_out": missing}, *lines)
    return False


def _amount(pairs: int, patches: int) -> str:
    return f"{counted(pairs, 'pair')}, {counted(patches, 'patch')}"


def _rectify(given: Input, to: Output, workers: int, console: Console, bar: Progress) -> bool | None:
    """Make pairs of stereograms and report how many; whether some could not be read. None: not finished."""
    from pamcli.flickr1024.stereogram_pairs import carry_out_stereograms, plan_stereograms

    options = {"layout": given.layout or "auto", "infinity": given.infinity}
    plan = plan_stereograms([Path(os.path.expanduser(text)) for text in given.inputs], to.output, options)
    bar.expect(0 if plan.finished else len(plan.items))
    outcomes = carry_out_stereograms(plan, workers, bar.advance, skip_damaged=given.skip_damaged)
    if outcomes is None:
        return None
    counts = Counter(each.outcome for each in outcomes)
    place = {"kind": "pairs", "path": plan.target, "report": plan.record, "pictures": counts.total()}
    found = {"pairs": counts["pair"], "set_aside": counts["set aside"], "damaged": counts["damaged"]}
    others = f"{counts['set aside']} set aside, {counts['damaged']} damaged"
    reasons = f"the reasons are in {plan.record.with_suffix('.csv')}"
    console.answer(place | found, f"{plan.target}: {counted(counts['pair'], 'pair')}, {others}; {reasons}")
    return bool(counts["damaged"])
