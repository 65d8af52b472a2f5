"""Make a store of patches from pairs: plan and check it before writing, cut the patches, publish it."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import join_names, pluralize, quote
from pamcli.flickr1024 import stores
from pamcli.flickr1024.pairs import Pair
from pamcli.flickr1024.resumable import LOG, Request, Work, write_json
from pamcli.flickr1024.stores import Index, StoredPair, StoreName, StorePaths
from pamcli.reporting import SILENT, Progress

Sha256 = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
Tasks = dict[str, tuple[Pair, StoredPair]]  # pairs whose patches are to be cut, by title

_PNG_SHARE = 0.8  # approximate largest size of a photograph in PNG, relative to its raw bytes
_PATCH_FILES = 5  # four images and their folder ...
_SLACK = 12_000  # ... and bytes lost to partly filled disk blocks, including those of the folder


def make_store(
    pairs: Sequence[Pair],
    out: Path,
    scale: int,
    layout: StoreName,
    split: str,
    workers: int = 1,
    bar: Progress = SILENT,
    *,
    skip_damaged: bool = False,
) -> tuple[Path, Index]:
    """Cut the patches of pairs into a store below `out`, and return its path and its contents.

    Nothing is written before everything is checked. An interrupted or unfinished store is resumed.

    Raises:
        UsageError: If two pairs have one name, or the folder belongs to other options or holds other files.
        InputError: If an image cannot be read, or no patch remains.
        DamagedError: If images are damaged and `skip_damaged` is not set; all others are done.
        OutputError: If the store cannot be written.
    """
    paths = StorePaths.of(out, scale, layout)
    tasks, images, unreadable = _list_tasks(pairs, scale, skip_damaged=skip_damaged)
    check_folder(out)
    request = Request({"store": layout, "scale": scale, "split": split}, images)
    has_files = partial(_has_files, scale, layout)
    work = Work(paths.store, paths.index, request, tasks, list[Sha256], has_files)
    done = work.read_results()
    if done is None:
        return paths.store, stores.read_index(paths.index)
    counts = {title: stored.patches for title, (_, stored) in tasks.items()}
    patches, end = sum(counts.values()), max(stored.end(scale) for _, stored in tasks.values())
    needed, files = 300 * patches, 10  # the manifest first
    if layout == "folders":
        remaining = sum(counts[title] for title in counts.keys() - done.keys())
        patch = stores.count_bytes(stores.WIDTH * scale, stores.HEIGHT * scale, scale)
        needed += int(remaining * (_PNG_SHARE * patch + _SLACK))
        files = remaining * _PATCH_FILES
    elif not (work.store / "pixels.npy").exists():
        needed += end
    work.begin(done, needed, files)
    made = f"{pluralize(patches, 'patch')} of {pluralize(len(counts), 'pair')}"
    LOG.info(f"{made}, about {needed / 1e6:,.1f} MB to write")
    if small := [*counts.values()].count(0):
        LOG.info(f"too small for a patch: {pluralize(small, 'pair')}")
    if layout == "packed":
        stores.allocate(work.store / "pixels.npy", end)
    for title, reason in unreadable.items():
        LOG.warning("%s: %s", title, reason)
    cut = partial(_cut_patches, scale, layout)
    unreadable |= work.process(cut, done, workers, bar, skip_damaged=skip_damaged)
    finished = [title for title in tasks if title in done]
    index = Index(scale, split, tuple(tasks[title][1] for title in finished), request, (*unreadable.items(),))
    if not index.patches:
        raise InputError("no pair can be read, so there are no patches")
    home = work.store if layout == "packed" else out  # files beside patch folders are written in place
    manifest = stores.encode_manifest(index, [done[title] for title in finished])
    write_atomically(home / paths.manifest.name, manifest)
    write_json(home / paths.index.name, index.as_json())
    work.publish()
    return paths.store, index


def _list_tasks(
    pairs: Sequence[Pair], scale: int, *, skip_damaged: bool
) -> tuple[Tasks, list[list[Any]], dict[str, str]]:
    """Return the tasks, the names and sizes of all images, and why images are unreadable."""
    tasks: Tasks = {}
    images: dict[str, list[Any]] = {}
    unreadable: dict[str, str] = {}
    seen: dict[str, Pair] = {}
    first, offset = 1, 0
    for pair in pairs:
        title = str(pair)
        if other := seen.get(title):
            reason = f"two pairs have the same name {quote(title)}: {other.left} and {pair.left}"
            raise UsageError(reason, "pass one of the two inputs")
        seen[title], images[title] = pair, [title, 0, 0]
        try:
            size = pair.left.size()
            if max(size) > stores.LARGEST_SIDE:
                raise InputError(f"{pair.left} is {size[0]}x{size[1]}, larger than {stores.LARGEST_SIDE} px")
        except InputError as error:
            if not skip_damaged:
                raise InputError(error.message, "repair it, or skip it with `skip_damaged`") from None
            unreadable[title] = error.message
            continue
        images[title] = [title, *size]
        width, height = stores.compute_crop(*size, scale, pair.halved)
        if not (width and height):
            LOG.warning(f"{quote(title)} is too small for a patch: {size[0]}x{size[1]}")
            continue
        count = len(stores.list_corners(height // scale, width // scale))
        stored = StoredPair(pair.source, pair.name, width, height, first, count, offset)
        tasks[title] = pair, stored
        first, offset = first + count, stored.end(scale)
    if first == 1:
        least = f"{(stores.WIDTH + 6) * scale}x{(stores.HEIGHT + 6) * scale}"
        raise InputError(f"all images are too small for a patch, which needs at least {least}")
    return tasks, [*images.values()], unreadable


def _has_files(
    scale: int, layout: StoreName, store: Path, task: tuple[Pair, StoredPair], checksums: list[str]
) -> bool:
    """Return True unless patches of a finished pair are missing."""
    stored, pixels = task[1], store / "pixels.npy"
    if layout == "packed":
        there = pixels.exists() and pixels.stat().st_size >= stores.HEADER + stored.end(scale)
    else:
        there = not stored.patches or (store / f"{stored.first + stored.patches - 1:06d}").exists()
    return there and len(checksums) == stored.patches


def _cut_patches(scale: int, layout: StoreName, store: Path, task: tuple[Pair, StoredPair]) -> list[str]:
    """Write all patches of one pair; return their checksums. Raises InputError, OutputError."""
    pair, stored = task
    views = stores.read_views(pair, scale)
    if views.high.shape[:3] != (stored.height, 2, stored.width):
        raise InputError(f"the size of {pair.left} differs from the one in its header", "save it upright")
    if layout == "packed":
        stores.write_pixels(store / "pixels.npy", stored.offset, views)
    checksums = []
    for number, (row, column) in enumerate(stored.list_corners(scale), start=stored.first):
        patch = stores.cut_patch(views, row, column)
        checksums.append(patch.checksum())
        if layout == "folders":
            stores.write_patch_folder(store / f"{number:06d}", patch)
    return checksums


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
