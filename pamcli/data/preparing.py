"""Prepare training patches from image pairs or stereograms (`pam dataset prepare-flickr1024`)."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pamcli.data.open import is_data_spec, open_data, parse_data
from pamcli.errors import UsageError
from pamcli.files.atomic import lock_folder
from pamcli.files.paths import pluralize, quote
from pamcli.files.safe_reading import read_text
from pamcli.flickr1024.pairs import ImageLocation, Pair, Pairs, find_published_pairs, select_pairs
from pamcli.flickr1024.prepare import make_store
from pamcli.flickr1024.resumable import DamagedError
from pamcli.reporting import SILENT, Progress, Reporter
from pamcli.settings.data import PrepareSettings
from pamcli.settings.options import takes
from pamcli.workers import default_workers

Output = tuple[dict[str, Any], Sequence[str]]  # a result as JSON values and as lines for people


@takes(PrepareSettings)
def prepare_flickr1024(settings: PrepareSettings) -> Path:
    """Make training patches for super-resolution, as `pam dataset prepare-flickr1024` does.

    >>> folder = pamcli.prepare_flickr1024("pairs:labelled", output="patches", scale="2")

    Args:
        settings: Folders or archives; then a `PrepareSettings`, or its fields as keywords.

    Returns:
        The folder of the data set: `flickr1024:FOLDER`.

    Raises:
        UsageError: If a setting is invalid.
        InputError: If an input cannot be read.
        OutputError: If the output cannot be written.
    """
    for _ in prepare_patches(settings, SILENT):
        pass
    return Path(settings.output)


def prepare_patches(settings: PrepareSettings, listener: Reporter) -> Iterator[Output]:
    """Make the patches and yield each result. Raises the errors of `prepare_flickr1024`."""
    inputs, output = [*map(str, settings.inputs)], Path(settings.output)
    for place in map(Path, map(os.path.expanduser, inputs)):
        if place.is_dir() and Path(os.path.realpath(output)).is_relative_to(os.path.realpath(place)):
            message = f"the output {quote(output)} lies inside the input {quote(place)}"
            raise UsageError(message, "choose a folder outside the input")
    # Open everything before any work, to report a mistyped path at once.
    if settings.list_file is not None:
        read_text(settings.list_file)
    found = [list_data_pairs(text) for text in settings.add or []]
    workers, damaged = settings.workers or default_workers(), False
    with lock_folder(output), listener.progress("images", 0) as bar:
        places, source = inputs, "flickr1024"
        if settings.from_stereograms:
            result, damaged = _rectify(settings, workers, bar)
            yield result
            places, source = [str(output / "pairs")], "stereograms"
        if settings.scale is not None:
            for text in places:
                if is_data_spec(text) and not Path(text).exists():
                    found.append(list_data_pairs(text))
                else:
                    place = Path(os.path.expanduser(text))
                    found.append(find_published_pairs(place, settings.split, source))
            yield _cut(reduce(operator.add, found), settings, workers, bar)
    if damaged and not settings.skip_damaged:  # pairs of an earlier run that skipped damaged images
        raise DamagedError("some images cannot be read", "skip them with `skip_damaged`")


def _cut(found: Pairs, settings: PrepareSettings, workers: int, bar: Progress) -> Output:
    pairs = select_pairs(found, settings.list_file, skip_unpaired=settings.skip_unpaired)
    scale, output, skip = int(settings.scale or 0), Path(settings.output), settings.skip_damaged
    store = pairs, output, scale, settings.store, settings.split
    path, index = make_store(*store, workers, bar, skip_damaged=skip)
    facts = {"kind": "patches", "path": path, "scale": scale, "store": settings.store, "split": index.split}
    counts = {"pairs": len(index.pictures), "patches": index.patches, "sources": index.sources()}
    missing = [{"pair": pair, "reason": reason} for pair, reason in index.left_out]
    lines = [f"{path}: {source}: {_format_amount(**each)}" for source, each in index.sources().items()]
    left_out = f", {pluralize(len(missing), 'pair')} left out" if missing else ""
    lines.append(f"{path}: {_format_amount(len(index.pictures), index.patches)}{left_out}")
    return {**facts, **counts, "left_out": missing}, lines


def _format_amount(pairs: int, patches: int) -> str:
    return f"{pluralize(pairs, 'pair')}, {pluralize(patches, 'patch')}"


def _rectify(settings: PrepareSettings, workers: int, bar: Progress) -> tuple[Output, bool]:
    """Make pairs from stereograms; return the result, and True if some are damaged."""
    from pamcli.flickr1024.stereogram_pairs import make_pairs

    options = {"layout": settings.layout or "auto", "infinity": settings.infinity}
    places = [Path(os.path.expanduser(place)) for place in map(str, settings.inputs)]
    output = Path(settings.output)
    reports = make_pairs(places, output, options, workers, bar, skip_damaged=settings.skip_damaged)
    counts = Counter(each.outcome for each in reports)
    pairs, aside, damaged = (counts[outcome] for outcome in ("pair", "set aside", "damaged"))
    place = {"kind": "pairs", "path": output / "pairs", "report": output / "stereograms.json"}
    found = {"pictures": counts.total(), "pairs": pairs, "set_aside": aside, "damaged": damaged}
    line = f"{output / 'pairs'}: {pluralize(pairs, 'pair')}, {aside} set aside, {damaged} damaged"
    return (place | found, [f"{line}; the reasons are in {output / 'stereograms.csv'}"]), bool(damaged)


def list_data_pairs(data: str) -> Pairs:
    """Return the pairs of a data set, NAME:PATH. Raises UsageError if it has no image files."""
    spec = parse_data(data)
    source, name = open_data(spec), spec.info.name
    if not source.has_image_files:  # packed patches, procedural scenes
        message = f"patches can only be cut from image files, and the data set {name} has none"
        raise UsageError(message, "give a data set of image pairs")
    if source.downscaling != 1:
        message = f"{quote(data)} downscales its images, but patches are cut from the original files"
        raise UsageError(message, "remove the key `size`")
    halved = name == "middlebury"
    pairs = [
        Pair(name, each.name, ImageLocation(each.left), ImageLocation(each.right), halved=halved)
        for each in source.files
    ]
    return Pairs(tuple(pairs), source.unpaired)
