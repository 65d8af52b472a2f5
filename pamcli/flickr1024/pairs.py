"""Find the left and right images of pairs in folders and archives."""

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pamcli.errors import InputError, UsageError
from pamcli.files.paths import join_names, natural_key, pluralize, quote
from pamcli.files.safe_reading import read_text
from pamcli.flickr1024.archives import ImageLocation, find_images
from pamcli.flickr1024.resumable import LOG

SPLITS = ("train", "validation", "test")

_SPLIT = re.compile(r"(?<![a-z])(train|val|test)(ing|idation)?(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Pair:
    """Two images of high resolution, not yet read."""

    source: str  # data set of the pair: "flickr1024", "middlebury" ...
    name: str  # unique within its source
    left: ImageLocation
    right: ImageLocation
    halved: bool = False  # True if the images are first downscaled by 2, as the authors did with Middlebury

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


@dataclass(frozen=True)
class Pairs:
    """Pairs in the order in which their patches are numbered."""

    pairs: tuple[Pair, ...]
    unpaired: tuple[str, ...] = ()  # images without a counterpart, a line each
    other_splits: Mapping[str, int] = field(default_factory=dict)  # number of pairs in the other splits

    def __add__(self, other: "Pairs") -> "Pairs":
        counts = Counter(self.other_splits) + Counter(other.other_splits)
        return Pairs(self.pairs + other.pairs, self.unpaired + other.unpaired, dict(counts))


def find_published_pairs(place: Path, split: str, source: str = "flickr1024") -> Pairs:
    """Return the pairs NAME_L, NAME_R below a folder or in a zip archive, nested or flat.

    A folder or archive on its path (Train, Validation.zip, Test_2) assigns an image to a split; otherwise it
    belongs to `split`. An unpacked image takes precedence over one in an archive.
    """
    views: dict[str, dict[str, ImageLocation]] = {"_L": {}, "_R": {}}
    others: dict[str, set[str]] = {name: set() for name in SPLITS}
    for found in find_images(place):
        stem = os.path.splitext(found.name)[0]
        side, stem = stem[-2:], stem[:-2]
        if side not in views or not stem:
            continue
        belongs, kept = split, []
        for folder in found.folders:
            if match := _SPLIT.search(folder):
                belongs = next(name for name in SPLITS if name.startswith(match[1].lower()))
            elif folder.lower() != "flickr1024" and not folder.lower().endswith(".zip"):
                kept.append(folder)
        name = "/".join([*kept, stem])
        if belongs != split:
            others[belongs].add(name)
            continue
        both = [each for each in (views[side].get(name), found) if each is not None]
        unpacked = [each for each in both if each.member is None]
        if len(both) > 1 and len(unpacked) != 1:
            reason = f"two images have the name {quote(name)}: {both[0]} and {both[1]}"
            raise InputError(reason, "pass only the folder or archive to use")
        views[side][name] = (unpacked or both)[0]
    lefts, rights = views["_L"], views["_R"]
    names = sorted(lefts.keys() & rights.keys(), key=natural_key)
    unpaired = [f"{lefts[name]} has no right image" for name in lefts.keys() - rights.keys()]
    unpaired += [f"{rights[name]} has no left image" for name in rights.keys() - lefts.keys()]
    counts = {name: len(found) for name, found in others.items() if found}
    if not names and not unpaired:
        if counts:
            present = join_names([f"{count} of {name}" for name, count in counts.items()])
            hint = f"use `split` {next(iter(counts))}"
            raise InputError(f"{quote(place)} contains no pair of the split {split}, but {present}", hint)
        raise InputError(
            f"{quote(place)} contains no image pair",
            "expected NAME_L.png and NAME_R.png, in one folder or zip archive, or in Train, Validation and "
            "Test; for other layouts pass NAME:PATH, such as pairs:mine",
        )
    pairs = [Pair(source, name, lefts[name], rights[name]) for name in names]
    return Pairs(tuple(pairs), tuple(sorted(unpaired, key=natural_key)), counts)


def select_pairs(found: Pairs, names: Path | None, *, skip_unpaired: bool) -> tuple[Pair, ...]:
    """Return the pairs that the file `names` lists (None: all), and log the excluded ones."""
    if found.unpaired and not skip_unpaired:
        hint = "add the missing images, or ignore these with `skip_unpaired`"
        raise UsageError(join_names(found.unpaired, "; "), hint)
    for line in found.unpaired:
        LOG.warning("%s and is excluded", line)
    if others := [f"{pluralize(count, 'pair')} of {name}" for name, count in found.other_splits.items()]:
        LOG.info(f"not included: {join_names(others)} (`split`)")
    if names is None:
        return found.pairs
    pairs = filter_by_name(found.pairs, read_text(names).splitlines(), str(names))
    LOG.info(f"{quote(names)} selects {len(pairs)} of {len(found.pairs)} pairs")
    return pairs


def filter_by_name(pairs: Sequence[Pair], lines: Sequence[str], file: str) -> tuple[Pair, ...]:
    """Return the listed pairs in their original order; a line is NAME or SOURCE/NAME, with * for any text."""
    wanted = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    exact = set(wanted)
    patterns = [(line, re.compile(fnmatch.translate(line))) for line in wanted if "*" in line]
    used: set[str] = set()
    taken = []
    for pair in pairs:
        calls = {pair.name, str(pair)}
        hits = calls & exact
        hits |= {line for line, pattern in patterns if any(map(pattern.match, calls))}
        used |= hits
        if hits:
            taken.append(pair)
    if unused := [line for line in wanted if line not in used]:
        raise UsageError(
            f"{len(unused)} lines of {quote(file)} match no pair: {join_names(unused)}",
            f"pairs have names such as {join_names([str(pair) for pair in pairs[:2]])}" if pairs else None,
        )
    if not taken:
        raise UsageError(f"{quote(file)} lists no pair", "write one name per line")
    return tuple(taken)
