"""Make a store of patches from pairs: plan it, check it before writing, carry it out, finish it."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.flickr1024 import stores
from pamcli.flickr1024.pairs import LOG, Pair
from pamcli.flickr1024.resumable import Item, Request, ResumableWork, check_space, format_size, write_json
from pamcli.flickr1024.stores import Index, StoredPair, StoreName, StorePaths

Sha256 = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]

_PNG_SHARE = 0.8  # approximate largest size of a photograph in PNG, relative to its raw bytes
_PATCH_FILES = 5  # four images and their folder ...
_SLACK = 12_000  # ... and bytes lost to partly filled disk blocks, including those of the folder


@dataclass(frozen=True)
class PairItem(Item):
    """The work on one pair."""

    pair: Pair
    picture: StoredPair
    scale: int
    store: StoreName

    def result(self) -> list[str]:
        """Return the checksums of the pair's patches."""
        found, picture, store = self.read_record(list[Sha256]), self.picture, self.folder / "store"
        if len(found) != picture.patches:
            said = f"{quote(self.record)} is damaged: it has {len(found)} of {picture.patches} patches"
            raise InputError(said, "remove this file, and what it is about is done anew")
        if self.store == "packed":
            end = picture.offset + stores.count_bytes(picture.width, picture.height, self.scale)
            self.require(store / "pixels.npy", stores.HEADER + end)
        elif picture.patches:
            self.require(store / f"{picture.first + picture.patches - 1:06d}")
        return found


@dataclass(frozen=True)
class Plan(ResumableWork[PairItem]):
    """A store to make: its location, its pairs and the finished part."""

    scale: int
    split: str
    store: StoreName
    unreadable: tuple[tuple[str, str], ...] = ()
    """Excluded pairs whose size cannot be read, with the reason."""

    @property
    def patches(self) -> int:
        return sum(item.picture.patches for item in self.items)

    @property
    def needed(self) -> int:
        """Approximate number of bytes still to write."""
        manifest = 300 * self.patches
        if self.store == "packed":
            there = (self.folder / "store" / "pixels.npy").exists()
            return manifest + (0 if there else self.pixels)
        patch = stores.count_bytes(stores.WIDTH * self.scale, stores.HEIGHT * self.scale, self.scale)
        return manifest + int(self.patches_left * (_PNG_SHARE * patch + _SLACK))

    @property
    def patches_left(self) -> int:
        return sum(item.picture.patches for item in self.items if item.number not in self.done)

    def outlook(self) -> Iterator[str]:
        """Yield lines about the finished and the remaining work."""
        yield from super().outlook()
        if self.is_complete:
            return
        made = f"{pluralize(self.patches, 'patch')} of {pluralize(len(self.items), 'pair')}"
        yield f"{made}, about {format_size(self.needed)} to write"
        if small := sum(item.picture.patches == 0 for item in self.items):
            yield f"too small for a patch: {pluralize(small, 'pair')}"

    @property
    def pixels(self) -> int:
        """Bytes of all images."""
        last = self.items[-1].picture
        return last.offset + stores.count_bytes(last.width, last.height, self.scale)


def plan_preparation(
    pairs: Sequence[Pair],
    out: Path,
    scale: int,
    store: StoreName = "packed",
    split: str = "train",
    *,
    skip_damaged: bool = False,
) -> Plan:
    """Plan a store from the sizes of the images and the output folder, without writing anything.

    Pairs are given in the order in which patches are numbered.

    Raises:
        InputError: If an image has no readable header (unless `skip_damaged`), or all are too small.
        UsageError: If two pairs of a source have one name, or the folder holds other files or options.
        OutputError: If there is no space or no permission.
    """
    items: list[PairItem] = []
    unreadable: list[tuple[str, str]] = []
    pictures: list[list[Any]] = []
    named: dict[str, Pair] = {}
    for pair in pairs:
        if other := named.get(str(pair)):
            said = f"two pairs are both called {quote(str(pair))}: {other.left} and {pair.left}"
            raise UsageError(said, "give one of the two places")
        named[str(pair)] = pair
    paths = StorePaths.of(out, scale, store)
    folder = paths.store.with_name(f"{paths.store.name}.unfinished")
    first, offset = 1, 0
    for pair in pairs:
        try:
            given = pair.left.size()
            if max(given) > stores.LARGEST_SIDE:
                raise InputError(f"{pair.left} is {given[0]} x {given[1]}: too large")
        except InputError as error:
            if not skip_damaged:
                raise InputError(error.message, "mend it, or leave it out with `skip_damaged`") from None
            unreadable.append((str(pair), error.message))
            pictures.append([str(pair), 0, 0])
            continue
        pictures.append([str(pair), *given])
        width, height = stores.compute_crop(*given, scale, pair.halved)
        if not (width and height):
            LOG.warning(f"{quote(str(pair))} is too small for a patch: {given[0]} x {given[1]}")
            continue
        count = len(stores.list_corners(height // scale, width // scale))
        picture = StoredPair(pair.source, pair.name, width, height, first, count, offset)
        items.append(PairItem(len(items) + 1, folder, pair, picture, scale, store))
        first, offset = first + count, offset + stores.count_bytes(width, height, scale)
    if first == 1:
        least = f"{(stores.WIDTH + 6) * scale} x {(stores.HEIGHT + 6) * scale} pixels"
        raise InputError(f"no picture is large enough for a patch: the smallest that is has {least}")
    request = Request({"store": store, "scale": scale, "split": split}, pictures)
    check_folder(out)
    work = (folder, paths.store, paths.index, request, tuple(items))
    plan = Plan(*work, scale, split, store, tuple(unreadable))
    if not plan.is_complete:
        check_space(paths.store, plan.needed, plan.patches_left * _PATCH_FILES if store == "folders" else 10)
    return plan


def carry_out(
    plan: Plan, workers: int, advance: Callable[[], None] = lambda: None, *, skip_damaged: bool = False
) -> Index | None:
    """Make the missing patches and finish the store, calling `advance` for each pair; log the progress.

    Returns the index, or None if pairs cannot be read and `skip_damaged` is not set: a later run then
    finishes the store. Raises OutputError, as for a full disk, keeping finished work, and InputError if all
    pairs are damaged.
    """
    for line in plan.outlook():
        LOG.info(line)
    if plan.is_complete:
        return stores.read_index(plan.record)
    store = plan.begin()
    if plan.store == "packed":
        stores.allocate(store / "pixels.npy", plan.pixels)
    reasons = plan.carry_out(prepare_pair, workers, advance)
    failed = [(str(plan.items[number - 1].pair), why) for number, why in reasons.items()]
    for pair, why in (*plan.unreadable, *failed):
        LOG.log(logging.WARNING if skip_damaged else logging.ERROR, "%s: %s", pair, why)
    if failed and not skip_damaged:
        items = len(plan.items)
        LOG.info(
            f"{items - len(failed)} of {items} pairs are done: mend the others and repeat the command to "
            "finish, or add `skip_damaged` to finish without them"
        )
        return None
    return _finish(plan, failed)


def prepare_pair(item: PairItem) -> None:
    """Make all patches of one pair. Raises InputError if it cannot be read, and OutputError."""
    views = stores.read_views(item.pair, item.scale)
    picture = item.picture
    if views.high.shape[:3] != (picture.height, 2, picture.width):
        raise InputError(f"{item.pair.left} is not of the size that its header says", "save it upright")
    if item.store == "packed":
        stores.write_pixels(item.folder / "store" / "pixels.npy", picture.offset, views)
    checksums = []
    for number, (row, column) in enumerate(picture.boxes(item.scale), start=picture.first):
        patch = stores.cut_patch(views, row, column)
        checksums.append(patch.checksum())
        if item.store == "folders":
            stores.write_patch_folder(item.folder / "store" / f"{number:06d}", patch)
    item.mark(checksums)


def _finish(plan: Plan, failed: Sequence[tuple[str, str]]) -> Index:
    checksums = plan.results()
    items = [item for item in plan.items if item.number in checksums]
    left_out = (*plan.unreadable, *failed)
    index = Index(plan.scale, plan.split, tuple(item.picture for item in items), plan.request, left_out)
    if not index.patches:
        raise InputError("no pair could be read, so there is no patch")
    manifest = stores.encode_manifest(index, [checksums[item.number] for item in items])
    beside, store = plan.store == "folders", plan.folder / "store"
    write_atomically(plan.record.with_suffix(".csv") if beside else store / "manifest.csv", manifest)
    write_json(plan.record if beside else store / "index.json", index.as_json())
    plan.complete()
    return index


def check_folder(out: Path) -> None:
    """Raise UsageError if an output folder is a file or contains files not written by pam."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{quote(out)} is a file", "name a folder")
    results = ["pairs", *(f"{kind}{scale}" for kind in ("x", "patches_x") for scale in stores.SCALES)]
    known = {"stereograms.csv", "stereograms.json", *results, *(f"{name}.unfinished" for name in results)}
    known |= {f"patches_x{scale}{suffix}" for scale in stores.SCALES for suffix in (".csv", ".json")}
    names = os.listdir(out) if out.exists() else []
    others = sorted(name for name in names if name not in known and name[0] != ".")
    if others:
        said = f"{quote(out)} holds something else already: {join_names(others)}"
        raise UsageError(said, "name a new folder, or one that a run like this made")
