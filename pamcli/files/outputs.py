"""Plan the names of results, and check before any work that they overwrite nothing."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pamcli.errors import UsageError
from pamcli.files.atomic import check_writable
from pamcli.files.pairing import PairPaths
from pamcli.files.paths import join_names, quote
from pamcli.systems import IGNORES_CASE

_SAME_FORMAT = {".tiff": ".tif", ".jpeg": ".jpg"}
_COLLISION_HINT = "choose other names or another folder for the results"


@dataclass(frozen=True)
class OutputKind:
    """A kind of result, such as a disparity map or its colour map."""

    name: str  # key of the result, also in JSON: "disparity", "right_disparity", "color_map" ...
    option: str  # name of its option in messages, in backticks: "`output`", "`color_map`" ...
    suffixes: tuple[str, ...]  # allowed suffixes, lower case with dot; the first is the default in a folder
    folder_tag: str = ""  # part of the file names in a folder after the key: "", "_right", "_color" ...
    joins_main_folder: bool = False  # also written, without its option, if the main option names a folder
    template: str | None = None  # the place of the results, instead of that of the option


class Encoded(NamedTuple):
    """The bytes of a result's file, and warnings about them."""

    data: bytes
    warnings: Sequence[str] = ()
    saturated: int = 0  # number of known pixels whose value does not fit into the format


class OutputPlan(NamedTuple):
    """The names of all results of a command; see `plan_outputs`."""

    main: OutputKind
    templates: Mapping[str, str]  # file of each kind, by the kind's name; `{}` stands for the key of a pair
    format_suffix: str | None = None
    views: Collection[str] = ()  # kinds that keep the names of the images: "left", "right"

    def paths(self, pair: PairPaths) -> dict[str, Path]:
        """Return the path of every result of one pair by the name of its kind. Raises UsageError."""
        line = "" if pair.line is None else f"line {pair.line}: "
        paths = {}
        if pair.output is not None:
            _check_suffix(self.main, str(pair.output), self.format_suffix, f"{line}the result")
            paths[self.main.name] = pair.output
        for name, template in self.templates.items():
            if name in paths:
                continue
            if pair.key is None:
                reason = f"{line}{quote(pair.left)} lies outside of the folder whose paths the results mirror"
                raise UsageError(reason, "use `root` DIR with a folder that contains all images of the list")
            paths[name] = Path(template.replace("{}", pair.key))
            if name in self.views and pair.right and pair.left.stem != pair.right.stem:
                own = paths[name].with_name(getattr(pair, name).stem + paths[name].suffix)
                paths[name] = own if own not in (pair.left, pair.right) else paths[name]
        if not paths and pair.line is not None:
            raise UsageError(f"line {pair.line}: no output", f"add a third column or give {self.main.option}")
        return paths


def plan_outputs(
    options: Mapping[OutputKind, str | None], *, batch: bool, format_name: str | None = None
) -> OutputPlan:
    """Interpret the output options of a command before any work; the first kind is the main one.

    For one pair a value is a file name or a folder (existing, or ending in a slash); in a batch it is a
    template with `{}` or a folder (also any name without suffix). `format_name` is the suffix in a folder.
    In a folder, the images of one pair keep the names of the inputs if these differ, as in out/right.png.
    """
    main = next(iter(options))
    format_suffix = None
    if format_name is not None:
        format_suffix = "." + format_name.lower().removeprefix(".")
        if format_suffix not in main.suffixes:
            names = ", ".join(suffix[1:] for suffix in main.suffixes)
            raise UsageError(f"unknown `format` {quote(format_name)}", f"expected one of {names}")
    main_text = options[main]
    main_folder = main_text if main_text and is_folder_name(main_text, batch) else None
    templates, views = {}, []
    for kind, text in options.items():
        value = main_folder if text is None and kind.joins_main_folder else text
        if value is None:
            continue
        if not value:
            raise UsageError(f"{kind.option} is empty", "give a file or a folder")
        if value == "-":
            message = f"{kind.option} - requires a single result of a single pair"
            raise UsageError(message, "give a file or a folder")
        if not is_folder_name(value, batch):
            if batch and "{}" not in value:
                hint = f"use {{}}, as in 'out/{{}}{kind.suffixes[0]}', or a folder, as in out/"
                raise UsageError(f"{kind.option} {quote(value)} is one file for many pairs", hint)
            _check_suffix(kind, value, format_suffix if kind is main else None, others=options)
            templates[kind.name] = value
            continue
        if os.path.exists(value.rstrip("/" + os.sep)) and not os.path.isdir(value):
            raise UsageError(f"{kind.option} {quote(value)} is a file, not a folder")
        suffix = format_suffix if kind.suffixes == main.suffixes else None
        templates[kind.name] = os.path.join(value, f"{{}}{kind.folder_tag}{suffix or kind.suffixes[0]}")
        if kind.name in ("left", "right") and not batch:
            views.append(kind.name)
    return OutputPlan(main, templates, format_suffix, views)


def is_folder_name(text: str, batch: bool) -> bool:
    """Return True if the value of an output option means a folder."""
    if "{}" in text:
        return False
    return text.endswith(("/", os.sep)) or os.path.isdir(text) or (batch and not Path(text).suffix)


def _check_suffix(
    kind: OutputKind,
    text: str,
    format_suffix: str | None,
    label: str | None = None,
    others: Iterable[OutputKind] = (),
) -> None:
    """Check a result's name, called `label` in messages (by default its option)."""
    suffix = os.path.splitext(text)[1].lower()
    if suffix not in kind.suffixes:
        hint = None
        if "{}" in text:
            hint = f"as in 'out/{{}}{kind.suffixes[0]}'"
        elif label is None and not suffix:
            hint = "end the name of a new folder with a slash"
        elif fitting := [other.option for other in others if suffix in other.suffixes]:
            hint = f"{suffix} is a suffix for {fitting[0]}"
        has = f"the suffix {quote(suffix)}" if suffix else "no suffix"
        message = f"{label or kind.option} {quote(text)} has {has}"
        raise UsageError(f"{message}, expected one of {', '.join(kind.suffixes)}", hint)
    if format_suffix and _SAME_FORMAT.get(suffix, suffix) != _SAME_FORMAT.get(format_suffix, format_suffix):
        message = f"{label or kind.option} {quote(text)} differs from `format` {format_suffix[1:]}"
        raise UsageError(message, "change the name or the format")


class PathRegistry:
    """Inputs and results so far of a batch, as hashes in memory: a million pairs take 300 MB."""

    def __init__(self, known: Iterable[PairPaths] = (), read: Iterable[str | Path] = ()) -> None:
        """Register the inputs of pairs to come, and other files that are read (lists, weights ...)."""
        self._known, self._added = known, 0
        self._real = lru_cache(1024)(os.path.realpath)
        self._owners = dict.fromkeys(map(self._identify, read), 0)
        """The pair whose result a file is, or 0 for an input, by the hash of the file."""
        for pair in known:
            for path in filter(None, (pair.left, pair.right)):
                self._owners[self._identify(path)] = 0

    def collisions(self, pair: PairPaths, outputs: Mapping[str, Path]) -> list[str]:
        """Register a pair, unless its results would overwrite others or inputs; return the collisions."""
        found, inputs, own = [], set[int](), dict[int, str]()
        for path in filter(None, (pair.left, pair.right)):
            inputs.add(place := self._identify(path))
            if owner := self._owners.get(place):
                found.append(f"{quote(path)} is a result of {self._describe(owner)}")
        for name, path in outputs.items():
            place = self._identify(path)
            owner = self._owners.get(place)
            if place in inputs or owner == 0:
                found.append(f"{quote(path)} would overwrite an input")
            elif place in own:
                found.append(f"{quote(path)} would be both {own[place]} and {name}")
            elif owner:
                found.append(f"{quote(path)} would come from {self._describe(owner)} and from {pair}")
            own[place] = name
        self._added += 1
        if not found:
            self._owners.update(dict.fromkeys(inputs, 0))
            self._owners.update(dict.fromkeys(own, pair.line or self._added))
        return found

    def add(self, pair: PairPaths, outputs: Mapping[str, Path]) -> None:
        """Register one pair of a list. Raises UsageError for its `collisions`."""
        if found := self.collisions(pair, outputs):
            line = "" if pair.line is None else f"line {pair.line}: "
            raise UsageError(f"{line}{join_names(found, '; ')}", _COLLISION_HINT)

    def _describe(self, owner: int) -> str:
        """Name a pair by its line or its number, from 1."""
        for number, pair in enumerate(self._known, 1):
            if owner == (pair.line or number):
                return str(pair)
        return f"line {owner}"

    def _identify(self, path: str | Path) -> int:
        """Return one number per file on disk; links are followed, as in writing."""
        folder, name = os.path.split(path)
        place = os.path.join(self._real(folder), name)
        if os.path.islink(place):
            place = os.path.realpath(place)
        return hash(place.casefold() if IGNORES_CASE else place)


def check_collisions(
    pairs: Iterable[PairPaths],
    name_results: Callable[[PairPaths], Mapping[str, Path]],
    read: Iterable[str | Path] = (),
) -> None:
    """Raise one UsageError for all pairs whose results have no name, share one, or overwrite an input."""
    unnamed: list[UsageError] = []
    collisions: list[str] = []
    registry = PathRegistry(pairs, read)
    for pair in pairs:
        try:
            collisions += registry.collisions(pair, name_results(pair))
        except UsageError as error:
            unnamed.append(error)
    if unnamed:
        raise UsageError(join_names([error.message for error in unnamed], "; "), unnamed[0].hint)
    if collisions:
        raise UsageError(join_names(collisions, "; "), _COLLISION_HINT)


def check_extra_output(
    path: Path, read: Sequence[str | Path], done: Iterable[tuple[PairPaths, Mapping[str, Path]]] = ()
) -> None:
    """Raise UsageError if an additional file would overwrite an input, or a result of the pairs in `done`."""
    registry = PathRegistry(read=read)
    for pair, outputs in done:
        registry.collisions(pair, outputs)
    if read:
        registry.add(PairPaths(Path(read[0]), None, None), {"extra": path})


def check_separate_folders(folders: Iterable[Path], read: Iterable[Path]) -> None:
    """Raise UsageError if a file that is read lies in one of the folders for results."""
    written = {os.path.realpath(folder) for folder in folders}
    for path in read:
        if {os.path.realpath(path.parent), os.path.dirname(os.path.realpath(path))} & written:
            reason = f"{quote(path)} is an input and lies in the folder for the results"
            raise UsageError(reason, "choose another folder for the results")


def check_new_file(path: Path, *suffixes: str, overwrite: bool, option: str = "`output`") -> None:
    """Check that a file has an allowed suffix, can be written, and does not exist unless `overwrite`."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(f"{option} {quote(path)} must end in {', '.join(suffixes)}".lstrip())
    if "\0" in str(path):
        raise UsageError(f"{quote(path)} contains the character NUL", "choose another file name")
    if os.path.isdir(path):
        raise UsageError(f"{quote(path)} is a folder", "choose a file name")
    if os.path.lexists(path) and not overwrite:  # unlike Path.exists, accepts impossible names
        raise UsageError(f"{quote(path)} already exists", "use `overwrite` to replace it")
    if suffixes and os.path.islink(path) and Path(os.path.realpath(path)).suffix.lower() not in suffixes:
        raise UsageError(
            f"{quote(path)} is a link to {quote(os.path.realpath(path))}", "choose another file name"
        )
    check_writable(path)


def check_existing(
    outputs: Iterable[Mapping[str, Path]], *, overwrite: bool, skip_existing: bool | None = None
) -> None:
    """Raise UsageError if results exist already, with the first five and the count.

    With `overwrite` or `skip_existing` (None: no such option), only folders with their names are errors.
    """
    is_in_the_way = os.path.isdir if overwrite or skip_existing else os.path.exists
    existing: list[Path] = []
    for paths in outputs:
        existing += filter(is_in_the_way, paths.values())
    if not existing:
        return
    if folders := [path for path in existing if os.path.isdir(path)]:
        raise UsageError(f"a folder has the name of a result: {join_names(folders)}")
    count = "1 result already exists" if len(existing) == 1 else f"{len(existing)} results already exist"
    skipping = "" if skip_existing is None else ", or `skip_existing` to skip them"
    raise UsageError(f"{count}: {join_names(existing)}", f"use `overwrite` to replace them{skipping}")
