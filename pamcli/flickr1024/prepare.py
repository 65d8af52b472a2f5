"""Make a store of patches from pairs: plan it, check it before writing, carry it out, publish it."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.flickr1024 import resumable, stores
from pamcli.flickr1024.pairs import Pair
from pamcli.flickr1024.stores import Index, StoredPair, StoreName, StorePaths

Sha256 = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]

_PNG_SHARE = 0.8  # approximate largest size of a photograph in PNG, relative to its raw bytes
_PATCH_FILES = 5  # four images and their folder ...
_SLACK = 12_000  # ... and bytes lost to partly filled disk blocks, including those of the folder


@dataclass(frozen=True)
class PairItem(resumable.Item):
    """A pair whose patches are written as one resumable item."""

    pair: Pair
    stored: StoredPair
    scale: int
    layout: StoreName

    def result(self) -> list[str]:
        """Return the checksums of the pair's patches."""
        found, stored = self.read_record(list[Sha256]), self.stored
        if len(found) != stored.patches:
            reason = f"{quote(self.record)} is damaged: it lists {len(found)} of {stored.patches} patches"
            raise InputError(reason, "remove this file to process the image again")
        if self.layout == "packed":
            end = stored.offset + stores.count_bytes(stored.width, stored.height, self.scale)
            self.require(self.store / "pixels.npy", stores.HEADER + end)
        elif stored.patches:
            self.require(self.store / f"{stored.first + stored.patches - 1:06d}")
        return found


@dataclass(frozen=True)
class Plan(resumable.ResumableWork[PairItem]):
    """A store to make: its location, its pairs and the finished part."""

    scale: int
    split: str
    layout: StoreName
    unreadable: tuple[tuple[str, str], ...] = ()  # excluded pairs whose size cannot be read, with the reason

    @property
    def pixels(self) -> int:
        """Bytes of all images."""
        last = self.items[-1].stored
        return last.offset + stores.count_bytes(last.width, last.height, self.scale)

    def check_disk(self) -> None:
        """Log the work, and raise OutputError if the disk is too small for it."""
        patches = sum(item.stored.patches for item in self.items)
        remaining = sum(item.stored.patches for item in self.items if item.number not in self.done)
        needed, files = 300 * patches, 10  # the manifest first
        if self.layout == "folders":
            patch = stores.count_bytes(stores.WIDTH * self.scale, stores.HEIGHT * self.scale, self.scale)
            needed += int(remaining * (_PNG_SHARE * patch + _SLACK))
            files = remaining * _PATCH_FILES
        elif not (self.store / "pixels.npy").exists():
            needed += self.pixels
        resumable.check_space(self.target, needed, files)
        made = f"{pluralize(patches, 'patch')} of {pluralize(len(self.items), 'pair')}"
        resumable.LOG.info(f"{made}, about {resumable.format_size(needed)} to write")
        if small := sum(item.stored.patches == 0 for item in self.items):
            resumable.LOG.info(f"too small for a patch: {pluralize(small, 'pair')}")


def plan_preparation(
    pairs: Sequence[Pair], out: Path, scale: int, store: StoreName, split: str, *, skip_damaged: bool = False
) -> Plan:
    """Plan a store from the sizes of the images and the output folder, without writing anything."""
    by_title: dict[str, Pair] = {}
    for pair in pairs:
        if other := by_title.get(str(pair)):
            reason = f"two pairs have the same name {quote(str(pair))}: {other.left} and {pair.left}"
            raise UsageError(reason, "pass one of the two inputs")
        by_title[str(pair)] = pair
    paths = StorePaths.of(out, scale, store)
    folder = paths.store.with_name(f"{paths.store.name}.unfinished")
    items: list[PairItem] = []
    unreadable: list[tuple[str, str]] = []
    images: list[list[Any]] = []
    first, offset = 1, 0
    for title, pair in by_title.items():
        try:
            size = pair.left.size()
            if max(size) > stores.LARGEST_SIDE:
                raise InputError(f"{pair.left} is {size[0]}x{size[1]}, larger than {stores.LARGEST_SIDE} px")
        except InputError as error:
            if not skip_damaged:
                raise InputError(error.message, "repair it, or skip it with `skip_damaged`") from None
            unreadable.append((title, error.message))
            images.append([title, 0, 0])
            continue
        images.append([title, *size])
        width, height = stores.compute_crop(*size, scale, pair.halved)
        if not (width and height):
            resumable.LOG.warning(f"{quote(title)} is too small for a patch: {size[0]}x{size[1]}")
            continue
        count = len(stores.list_corners(height // scale, width // scale))
        stored = StoredPair(pair.source, pair.name, width, height, first, count, offset)
        items.append(PairItem(len(items) + 1, title, folder, pair, stored, scale, store))
        first, offset = first + count, offset + stores.count_bytes(width, height, scale)
    if first == 1:
        least = f"{(stores.WIDTH + 6) * scale}x{(stores.HEIGHT + 6) * scale}"
        raise InputError(f"all images are too small for a patch, which needs at least {least}")
    check_folder(out)
    request = resumable.Request({"store": store, "scale": scale, "split": split}, images)
    work = (folder, paths.store, paths.index, request, tuple(items))
    plan = Plan(*work, scale, split, store, tuple(unreadable))
    if not plan.is_complete:
        plan.check_disk()
    return plan


def carry_out(
    plan: Plan, workers: int, advance: Callable[[], None] = lambda: None, *, skip_damaged: bool = False
) -> Index | None:
    """Make the missing patches and publish the store; log the progress.

    Returns None if pairs cannot be read and `skip_damaged` is not set: a later run then finishes the store.
    """
    plan.log_progress()
    if plan.is_complete:
        return stores.read_index(plan.record)
    plan.begin()
    if plan.layout == "packed":
        stores.allocate(plan.store / "pixels.npy", plan.pixels)
    for title, reason in plan.unreadable:
        resumable.LOG.log(logging.WARNING if skip_damaged else logging.ERROR, "%s: %s", title, reason)
    failed = plan.process(prepare_pair, workers, advance, skip_damaged=skip_damaged)
    if failed is None:
        return None
    checksums = plan.results()
    items = [item for item in plan.items if item.number in checksums]
    left_out = (*plan.unreadable, *((plan.items[number - 1].title, why) for number, why in failed.items()))
    index = Index(plan.scale, plan.split, tuple(item.stored for item in items), plan.request, left_out)
    if not index.patches:
        raise InputError("no pair can be read, so there are no patches")
    manifest = stores.encode_manifest(index, [checksums[item.number] for item in items])
    beside = plan.layout == "folders"
    write_atomically(plan.record.with_suffix(".csv") if beside else plan.store / "manifest.csv", manifest)
    resumable.write_json(plan.record if beside else plan.store / "index.json", index.as_json())
    plan.publish()
    return index


def prepare_pair(item: PairItem) -> None:
    """Make all patches of one pair. Raises InputError if it cannot be read, and OutputError."""
    views, stored = stores.read_views(item.pair, item.scale), item.stored
    if views.high.shape[:3] != (stored.height, 2, stored.width):
        raise InputError(
            f"the size of {item.pair.left} differs from the one in its header", "save it upright"
        )
    if item.layout == "packed":
        stores.write_pixels(item.store / "pixels.npy", stored.offset, views)
    checksums = []
    for number, (row, column) in enumerate(stored.list_corners(item.scale), start=stored.first):
        patch = stores.cut_patch(views, row, column)
        checksums.append(patch.checksum())
        if item.layout == "folders":
            stores.write_patch_folder(item.store / f"{number:06d}", patch)
    item.mark_done(checksums)


def check_folder(out: Path) -> None:
    """Raise UsageError if an output folder is a file or contains files not written by pam."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{quote(out)} is a file", "choose a folder")
    results = ["pairs", *(f"{kind}{scale}" for kind in ("x", "patches_x") for scale in stores.SCALES)]
    known = {"stereograms.csv", "stereograms.json", *results, *(f"{name}.unfinished" for name in results)}
    known |= {f"patches_x{scale}{suffix}" for scale in stores.SCALES for suffix in (".csv", ".json")}
    names = os.listdir(out) if out.exists() else []
    if others := sorted(name for name in names if name not in known and name[0] != "."):
        reason = f"{quote(out)} holds files that pam did not write: {join_names(others)}"
        raise UsageError(reason, "choose a new folder, or one of an earlier run")
