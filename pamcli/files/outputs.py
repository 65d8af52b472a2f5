"""Where results go: names planned from the options, and refused before any work where they would do harm.

Only the standard library is used here, so that a mistyped command is answered at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pamcli.errors import UsageError
from pamcli.files.finding import listed, shown
from pamcli.files.pairing import PairName, is_template

_SAME_FORMAT = {".tiff": ".tif", ".jpeg": ".jpg"}
_CASE_FOLDS = sys.platform.startswith(("darwin", "win"))
"""Whether A.png and a.png are one file on this system's usual file systems."""


@dataclass(frozen=True)
class OutputKind:
    """A kind of result that can be asked for, such as a disparity or its colour map."""

    name: str
    """Key of the result, also in JSON: "disparity", "right_disparity", "color_map" ..."""
    option: str
    """The option that asks for it, for messages: "--output", "--color-map" ..."""
    suffixes: tuple[str, ...]
    """What such a file may be called, lower case with dot; the first is the default inside a folder."""
    folder_tag: str = ""
    """What follows the key in a folder's file names: "", "_right", "_color" ..."""
    joins_main_folder: bool = False
    """Written too, without being asked for, where the main option names a folder."""


@dataclass(frozen=True)
class OutputPlan:
    """The names of all results of a command; `plan_outputs` builds it."""

    main: OutputKind
    templates: Mapping[str, str]
    """Of the file of each kind, by its name; `{}` stands for the key of a pair."""
    format_suffix: str | None = None

    def paths(self, pair: PairName) -> dict[str, Path]:
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
                raise UsageError(
                    f"{at}{shown(pair.left)} lies above the folder whose paths results mirror",
                    "`root` DIR names one that holds all pictures of the list",
                )
            paths[name] = Path(template.replace("{}", pair.key))
        if not paths and pair.line is not None:
            raise UsageError(f"line {pair.line}: no output", f"add a third column or give {self.main.option}")
        return paths

    def all_paths(self, pairs: Sequence[PairName]) -> list[dict[str, Path]]:
        """`paths` of every pair; raises one UsageError with the first five bad lines and their count."""
        planned, errors = [], []
        for pair in pairs:
            try:
                planned.append(self.paths(pair))
            except UsageError as error:
                errors.append(error)
        if errors:
            raise UsageError(listed([error.message for error in errors], "; "), errors[0].hint)
        return planned


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
            raise UsageError(f"unknown format {shown(format_name)}", f"`format` takes {names}")
    main_text = options[main]
    main_folder = main_text if main_text and names_folder(main_text, batch) else None
    templates = {}
    for kind, text in options.items():
        asked = main_folder if text is None and kind.joins_main_folder else text
        if asked is not None:
            own_format = format_suffix if kind.suffixes == main.suffixes else None
            templates[kind.name] = _template(kind, asked, batch, own_format, kind is main)
    return OutputPlan(main, templates, format_suffix)


def names_folder(text: str, batch: bool) -> bool:
    """Whether the text of an output option means a folder."""
    if is_template(text):
        return False
    return text.endswith(("/", os.sep)) or os.path.isdir(text) or (batch and not Path(text).suffix)


def _template(kind: OutputKind, text: str, batch: bool, format_suffix: str | None, is_main: bool) -> str:
    if not text:
        raise UsageError(f"{kind.option} names nothing", "give a file or a folder")
    if text == "-":
        raise UsageError(f"{kind.option} - is for one result of one pair", "give a file or a folder")
    if names_folder(text, batch):
        if os.path.exists(text.rstrip("/" + os.sep)) and not os.path.isdir(text):
            raise UsageError(f"{kind.option} {shown(text)} is a file, not a folder")
        return os.path.join(text, f"{{}}{kind.folder_tag}{format_suffix or kind.suffixes[0]}")
    if batch and not is_template(text):
        raise UsageError(
            f"{kind.option} {shown(text)} is one file for many pairs",
            f"use {{}}, as in 'out/{{}}{kind.suffixes[0]}', or a folder, as in out/",
        )
    _check_suffix(kind, text, format_suffix if is_main else None)
    return text


def _check_suffix(kind: OutputKind, text: str, format_suffix: str | None, what: str | None = None) -> None:
    """what: how to call the name in messages, by default by the option that gave it."""
    suffix = os.path.splitext(text)[1].lower()
    if suffix not in kind.suffixes:
        has = f"the suffix {shown(suffix)}" if suffix else "no suffix"
        hint = None
        if is_template(text):
            hint = f"as in 'out/{{}}{kind.suffixes[0]}'"
        elif what is None and not suffix:
            hint = "a folder that does not exist yet needs a slash at its end"
        raise UsageError(
            f"{what or kind.option} {shown(text)} has {has}, which says no format: "
            f"use {', '.join(kind.suffixes)}",
            hint,
        )
    if format_suffix and _SAME_FORMAT.get(suffix, suffix) != _SAME_FORMAT.get(format_suffix, format_suffix):
        raise UsageError(
            f"{what or kind.option} {shown(text)} contradicts the format {format_suffix[1:]}",
            "drop one of them, the name or `format`",
        )


class SeenPaths:
    """Inputs and results so far of pairs that are worked off as they come. known: pairs that are to come.

    read: files that are inputs, too: lists, calibrations, weights.
    """

    def __init__(self, known: Iterable[PairName] = (), read: Iterable[str | Path] = ()) -> None:
        self._folders: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._inputs = {place for pair in known for place in self._input_places(pair)}
        self._inputs |= {self._place(Path(path)) for path in read}

    def collisions(self, pair: PairName, outputs: Mapping[str, Path]) -> list[str]:
        """What the results of a pair would overwrite, a text each, and inputs that are results of others.

        Where there is nothing of the kind the pair is taken in. Of two pairs with one result the first is its
        owner.
        """
        inputs = self._input_places(pair)
        bad = [
            f"{shown(path)} is a result of {self._results[place]}"
            for place, path in inputs.items()
            if place in self._results
        ]
        own: dict[str, str] = {}
        for name, path in outputs.items():
            place = self._place(path)
            if place in self._inputs or place in inputs:
                bad.append(f"{shown(path)} would overwrite an input")
            elif place in own:
                bad.append(f"{shown(path)} would be both {own[place]} and {name}")
            elif place in self._results:
                bad.append(f"{shown(path)} would come from {self._results[place]} and from {pair}")
            own[place] = name
        if not bad:
            self._inputs.update(inputs)
            self._results.update(dict.fromkeys(own, str(pair)))
        return bad

    def add(self, pair: PairName, outputs: Mapping[str, Path]) -> None:
        """Take in one pair of a list; raises UsageError for its `collisions`."""
        if bad := self.collisions(pair, outputs):
            at = "" if pair.line is None else f"line {pair.line}: "
            raise UsageError(f"{at}{listed(bad, '; ')}", "give the results other names")

    def _input_places(self, pair: PairName) -> dict[str, Path]:
        return {self._place(path): path for path in (pair.left, pair.right) if path is not None}

    def _place(self, path: Path) -> str:
        """One text for one place on the disk; links are followed, as writing does."""
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        place = os.path.join(self._folders[folder], name)
        if os.path.islink(place):
            place = os.path.realpath(place)
        return place.casefold() if _CASE_FOLDS else place


def check_collisions(
    pairs: Sequence[PairName], outputs: Sequence[Mapping[str, Path]], read: Iterable[str | Path] = ()
) -> None:
    """Raise UsageError where two results share a name or one would overwrite an input of any pair.

    `outputs` are the paths of each pair's results; `read` as of `SeenPaths`. The first five cases are named,
    with their count.
    """
    seen = SeenPaths(pairs, read)
    found = [seen.collisions(pair, paths) for pair, paths in zip(pairs, outputs, strict=True)]
    if bad := [text for texts in found for text in texts]:
        raise UsageError(listed(bad, "; "), "give the results other names, or another folder")


def check_beside(
    path: Path,
    read: Sequence[str | Path],
    pairs: Sequence[PairName] = (),
    outputs: Sequence[Mapping[str, Path]] = (),
) -> None:
    """Raise UsageError where one more file would overwrite an input or a result, by whatever name.

    read: at least one; all as of `check_collisions`.
    """
    first, *others = outputs or [{}]
    pairs = pairs or [PairName(Path(read[0]), None, None)]
    check_collisions(pairs, [{**first, "one more": path}, *others], read)


def check_existing(
    outputs: Sequence[Mapping[str, Path]], *, overwrite: bool, skip_existing: bool
) -> list[bool]:
    """Whether each pair is to be skipped: with `skip_existing`, where every result asked for exists.

    Raises UsageError where a result's name is that of a folder and, with neither `overwrite` nor
    `skip_existing`, where a result exists already (the first five and the count).
    """
    there = [[path for path in paths.values() if os.path.exists(path)] for paths in outputs]
    existing = [path for paths in there for path in paths]
    folders = [path for path in existing if os.path.isdir(path)]
    if folders:
        raise UsageError(f"a folder has the name of a result: {listed(folders)}")
    if existing and not (overwrite or skip_existing):
        count = "1 result exists" if len(existing) == 1 else f"{len(existing)} results exist"
        raise UsageError(
            f"{count} already: {listed(existing)}",
            "`overwrite` replaces them, `skip_existing` leaves them out",
        )
    return [
        skip_existing and bool(paths) and len(found) == len(paths)
        for paths, found in zip(outputs, there, strict=True)
    ]
