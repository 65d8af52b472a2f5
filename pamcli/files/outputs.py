"""Where do results go? Names are planned, and refused before any work where they would do harm."""

import os
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable
from pamcli.files.pairing import PairPaths, is_template
from pamcli.files.paths import join_names, quote

_SAME_FORMAT = {".tiff": ".tif", ".jpeg": ".jpg"}
_CASE_FOLDS = sys.platform.startswith(("darwin", "win"))
"""Whether A.png and a.png are one file on this system's usual file systems."""
FOLDERS = 1024
"""Folders, the last ones, whose real paths are remembered."""


@dataclass(frozen=True)
class OutputKind:
    """A kind of result that can be asked for, such as a disparity or its colour map."""

    name: str
    """Key of the result, also in JSON: "disparity", "right_disparity", "color_map" ..."""
    option: str
    """What asks for it, for messages, in backticks: "`output`", "`color_map`" ...; of these the command line
    makes options (`cli.console.as_options`)."""
    suffixes: tuple[str, ...]
    """What such a file may be called, lower case with dot; the first is the default inside a folder."""
    folder_tag: str = ""
    """What follows the key in a folder's file names: "", "_right", "_color" ..."""
    joins_main_folder: bool = False
    """Written too, without being asked for, where the main option names a folder."""


class Encoded(NamedTuple):
    """The bytes of a result's file, and what there is to say about them."""

    data: bytes
    warnings: Sequence[str] = ()
    saturated: int = 0
    """Known pixels whose value the format could not hold."""


class OutputPlan(NamedTuple):
    """The names of all results of a command; `plan_outputs` builds it."""

    main: OutputKind
    templates: Mapping[str, str]
    """File of each kind, by the kind's name; `{}` stands for the key of a pair."""
    format_suffix: str | None = None

    def paths(self, pair: PairPaths) -> dict[str, Path]:
        """Path of every result of one pair, by the names of the kinds, the main one first.

        The third column of a pair list stands in for the main option. Raises UsageError where its suffix
        is unknown, contradicts the format, neither column nor any option names a result, or the pair has no
        key and needs one.
        """
        at = "" if pair.line is None else f"line {pair.line}: "
        paths = {}
        if pair.output is not None:
            _check_suffix(self.main, str(pair.output), self.format_suffix, f"{at}the result")
            paths[self.main.name] = pair.output
        for name, template in self.templates.items():
            if name in paths:
                continue
            if pair.key is None:
                said = f"{at}{quote(pair.left)} lies above the folder whose paths results mirror"
                raise UsageError(said, "`root` DIR names one that holds all pictures of the list")
            paths[name] = Path(template.replace("{}", pair.key))
        if not paths and pair.line is not None:
            raise UsageError(f"line {pair.line}: no output", f"add a third column or give {self.main.option}")
        return paths

    def check(self, pairs: Iterable[PairPaths], read: Iterable[str | Path] = ()) -> None:
        """Raise one UsageError for pairs without `paths`, or with `collisions`: the first five and a count.

        read: as of `PathRegistry`.
        """
        unnamed: list[UsageError] = []
        bad: list[str] = []
        seen = PathRegistry(pairs, read)
        for pair in pairs:
            try:
                bad += seen.collisions(pair, self.paths(pair))
            except UsageError as error:
                unnamed.append(error)
        if unnamed:
            raise UsageError(join_names([error.message for error in unnamed], "; "), unnamed[0].hint)
        if bad:
            raise UsageError(join_names(bad, "; "), "give the results other names, or another folder")


def plan_outputs(
    options: Mapping[OutputKind, str | None], *, batch: bool, format_name: str | None = None
) -> OutputPlan:
    """Understand the output options of a command before any work.

    `options` holds every kind with the text of its option, or None where it was not given; the first kind
    is the main one. For one pair a text is a file name or a folder (existing, or with a slash at its end);
    in a batch it is a template with `{}` or a folder (also any name without suffix). `format_name`, as "pfm",
    is the suffix of the main result in a folder, and of the kinds with the same suffixes.

    Raises UsageError for an unknown suffix or format, a format that contradicts the main suffix, and a
    plain file name in a batch.
    """
    main = next(iter(options))
    format_suffix = None
    if format_name is not None:
        format_suffix = "." + format_name.lower().removeprefix(".")
        if format_suffix not in main.suffixes:
            names = ", ".join(suffix[1:] for suffix in main.suffixes)
            raise UsageError(f"unknown format {quote(format_name)}", f"`format` takes {names}")
    main_text = options[main]
    main_folder = main_text if main_text and is_folder_name(main_text, batch) else None
    templates = {}
    for kind, text in options.items():
        asked = main_folder if text is None and kind.joins_main_folder else text
        if asked is not None:
            own_format = format_suffix if kind.suffixes == main.suffixes else None
            try:
                templates[kind.name] = _template(kind, asked, batch, own_format, kind is main)
            except UsageError as error:
                suffix = Path(asked).suffix.lower()
                others = [other.option for other in options if suffix in other.suffixes]
                if error.hint or not others:
                    raise
                raise UsageError(error.message, f"{suffix} is what {others[0]} takes") from error
    return OutputPlan(main, templates, format_suffix)


def is_folder_name(text: str, batch: bool) -> bool:
    """Whether the text of an output option means a folder."""
    if is_template(text):
        return False
    return text.endswith(("/", os.sep)) or os.path.isdir(text) or (batch and not Path(text).suffix)


def _template(kind: OutputKind, text: str, batch: bool, format_suffix: str | None, is_main: bool) -> str:
    if not text:
        raise UsageError(f"{kind.option} names nothing", "give a file or a folder")
    if text == "-":
        raise UsageError(f"{kind.option} - is for one result of one pair", "give a file or a folder")
    if is_folder_name(text, batch):
        if os.path.exists(text.rstrip("/" + os.sep)) and not os.path.isdir(text):
            raise UsageError(f"{kind.option} {quote(text)} is a file, not a folder")
        return os.path.join(text, f"{{}}{kind.folder_tag}{format_suffix or kind.suffixes[0]}")
    if batch and not is_template(text):
        said = f"{kind.option} {quote(text)} is one file for many pairs"
        raise UsageError(said, f"use {{}}, as in 'out/{{}}{kind.suffixes[0]}', or a folder, as in out/")
    _check_suffix(kind, text, format_suffix if is_main else None)
    return text


def _check_suffix(kind: OutputKind, text: str, format_suffix: str | None, what: str | None = None) -> None:
    """what: how to call the name in messages, by default by the option that gave it."""
    suffix = os.path.splitext(text)[1].lower()
    if suffix not in kind.suffixes:
        has = f"the suffix {quote(suffix)}" if suffix else "no suffix"
        hint = None
        if is_template(text):
            hint = f"as in 'out/{{}}{kind.suffixes[0]}'"
        elif what is None and not suffix:
            hint = "a folder that does not exist yet needs a slash at its end"
        said = f"{what or kind.option} {quote(text)} has {has}: use {', '.join(kind.suffixes)}"
        raise UsageError(said, hint)
    if format_suffix and _SAME_FORMAT.get(suffix, suffix) != _SAME_FORMAT.get(format_suffix, format_suffix):
        said = f"{what or kind.option} {quote(text)} contradicts the format {format_suffix[1:]}"
        raise UsageError(said, "drop one of them, the name or `format`")


class PathRegistry:
    """Inputs and results so far of a batch, as hashes in memory: a million pairs take 150 MB."""

    def __init__(self, known: Iterable[PairPaths] = (), read: Iterable[str | Path] = ()) -> None:
        """known: pairs to come. read: files that are inputs, too: lists, calibrations, weights."""
        self._known, self._added = known, 0
        self._real = lru_cache(FOLDERS)(os.path.realpath)
        self._hashes, self._owners = array("q", bytes(8 * 64)), array("I", bytes(4 * 64))
        """Two columns of a hash table: of a place (0: no place), and whose result it is (0: an input)."""
        self._count = 0
        for place in map(self._place, read):
            self._owner(place, 0)
        for pair in known:
            for path in (pair.left, pair.right):
                if path is not None:
                    self._owner(self._place(path), 0)

    def collisions(self, pair: PairPaths, outputs: Mapping[str, Path]) -> list[str]:
        """List what the results of a pair would overwrite, and inputs that are results of others.

        Where there is nothing of the kind the pair is taken in. Of two pairs with one result the first is its
        owner.
        """
        inputs = {self._place(pair.left): pair.left}
        if pair.right is not None:
            inputs[self._place(pair.right)] = pair.right
        bad, own = [], dict[bytes, str]()
        for place, path in inputs.items():
            if owner := self._owner(place):
                bad.append(f"{quote(path)} is a result of {self._name(owner)}")
        for name, path in outputs.items():
            place = self._place(path)
            owner = self._owner(place)
            if place in inputs or owner == 0:
                bad.append(f"{quote(path)} would overwrite an input")
            elif place in own:
                bad.append(f"{quote(path)} would be both {own[place]} and {name}")
            elif owner:
                bad.append(f"{quote(path)} would come from {self._name(owner)} and from {pair}")
            own[place] = name
        self._added += 1
        if not bad:
            for place in inputs:
                self._owner(place, 0)
            for place in own:
                self._owner(place, pair.line or self._added)
        return bad

    def add(self, pair: PairPaths, outputs: Mapping[str, Path]) -> None:
        """Take in one pair of a list; raises UsageError for its `collisions`."""
        if bad := self.collisions(pair, outputs):
            at = "" if pair.line is None else f"line {pair.line}: "
            raise UsageError(f"{at}{join_names(bad, '; ')}", "give the results other names")

    def _name(self, owner: int) -> str:
        """Name a pair by its line or its number, from 1."""
        for number, pair in enumerate(self._known, 1):
            if owner == (pair.line or number):
                return str(pair)
        return f"line {owner}"

    def _owner(self, place: bytes, new: int | None = None) -> int | None:
        """Return whose result a place is, 0 for an input, None for neither, where `new` is noted."""
        key = hash(place) or 1
        slot = self._slot(key)
        if self._hashes[slot]:
            return self._owners[slot]
        if new is not None:
            self._hashes[slot], self._owners[slot] = key, new
            self._count += 1
            if 3 * self._count > 2 * len(self._hashes):
                self._grow()
        return None

    def _grow(self) -> None:
        before = zip(self._hashes, self._owners, strict=True)
        self._hashes = array("q", bytes(16 * len(self._hashes)))
        self._owners = array("I", bytes(8 * len(self._owners)))
        for key, owner in before:
            if key:
                slot = self._slot(key)
                self._hashes[slot], self._owners[slot] = key, owner

    def _slot(self, key: int) -> int:
        """Find the slot of a hash, or the free one that it would take."""
        hashes, mask = self._hashes, len(self._hashes) - 1
        slot = key & mask
        while hashes[slot] and hashes[slot] != key:
            slot = slot + 1 & mask
        return slot

    def _place(self, path: str | Path) -> bytes:
        """One name for one place on the disk; links are followed, as writing does."""
        folder, name = os.path.split(path)
        place = os.path.join(self._real(folder), name)
        if os.path.islink(place):
            place = os.path.realpath(place)
        return os.fsencode(place.casefold() if _CASE_FOLDS else place)


def check_collisions(
    pairs: Iterable[PairPaths], outputs: Iterable[Mapping[str, Path]], read: Iterable[str | Path] = ()
) -> None:
    """Raise UsageError where two results share a name or one would overwrite an input of any pair.

    `outputs` are the paths of each pair's results; `read` as of `PathRegistry`. The first five cases are
    named, with their count.
    """
    seen = PathRegistry(pairs, read)
    if bad := [text for both in zip(pairs, outputs, strict=True) for text in seen.collisions(*both)]:
        raise UsageError(join_names(bad, "; "), "give the results other names, or another folder")


def check_extra_output(
    path: Path, read: Sequence[str | Path], done: Iterable[tuple[PairPaths, Mapping[str, Path]]] = ()
) -> None:
    """Raise UsageError where one more file would overwrite an input or a result, by whatever name.

    read: as of `PathRegistry`; done: pairs with their results.
    """
    seen = PathRegistry(read=read)
    for pair, outputs in done:
        seen.collisions(pair, outputs)
    if read and (bad := seen.collisions(PairPaths(Path(read[0]), None, None), {"one more": path})):
        raise UsageError(join_names(bad, "; "), "give the results other names, or another folder")


def check_separate_folders(folders: Iterable[Path], read: Iterable[Path]) -> None:
    """Raise UsageError where a file that is read lies in one of the folders that results go to."""
    written = {os.path.realpath(folder) for folder in folders}
    for path in read:
        if {os.path.realpath(path.parent), os.path.dirname(os.path.realpath(path))} & written:
            where = f"{quote(path)}, which is read, lies where results would go"
            raise UsageError(where, "name another folder for them")


def check_new_file(path: Path, *suffixes: str, overwrite: bool, option: str = "`output`") -> None:
    """Raise UsageError, OutputError where a file cannot be written, or not without being asked.

    suffixes: those that it may have; none: any. option: what named it, for messages.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"{option} {quote(path)} must end in {', '.join(suffixes)}".lstrip())
    if os.path.isdir(path):
        raise UsageError(f"{quote(path)} is a folder", "name a file")
    if os.path.lexists(path) and not overwrite:  # of os.path: a name that cannot be is no error yet
        raise UsageError(f"{quote(path)} exists already", "`overwrite` replaces it")
    if suffixes and os.path.islink(path) and Path(os.path.realpath(path)).suffix.lower() not in suffixes:
        raise UsageError(f"{quote(path)} is a link to {quote(os.path.realpath(path))}", "name another file")
    check_writable(path)


def check_existing(
    outputs: Iterable[Mapping[str, Path]], *, overwrite: bool, skip_existing: bool | None = None
) -> None:
    """Raise UsageError where a result exists already (the first five and the count).

    With `overwrite` or `skip_existing` (None: there is no such option) only where a folder has its name.
    """
    in_the_way = os.path.isdir if overwrite or skip_existing else os.path.exists
    existing: list[Path] = []
    for paths in outputs:
        existing += filter(in_the_way, paths.values())
    if not existing:
        return
    if folders := [path for path in existing if os.path.isdir(path)]:
        raise UsageError(f"a folder has the name of a result: {join_names(folders)}")
    count = "1 result exists" if len(existing) == 1 else f"{len(existing)} results exist"
    skipping = "" if skip_existing is None else ", `skip_existing` leaves them out"
    raise UsageError(f"{count} already: {join_names(existing)}", f"`overwrite` replaces these{skipping}")
