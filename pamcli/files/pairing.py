"""Which pictures belong together: always by name, never guessed, and decided before any work."""

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.packed import states_layout
from pamcli.files.pairing_hints import suggest_pairing
from pamcli.files.paths import (
    check_regular,
    join_names,
    list_images,
    list_images_by_stem,
    match_template,
    natural_key,
    pluralize,
    quote,
    require_file,
)
from pamcli.files.suffixes import IMAGE_SUFFIXES, PACKED_SUFFIXES

_PACKED = " and ".join(PACKED_SUFFIXES)
STDIN = Path("-")
"""Name of a list, or of a picture that holds both views, that comes in on stdin; what messages call it."""

LONGEST_LINE = 3 * 4096
"""Bytes of a line of a list: three paths, as long as Linux takes them. What is longer is no list, and may
never end."""


class PairPaths(NamedTuple):
    """Two views that are wanted together, by name."""

    left: Path
    right: Path | None
    """None: `left` is a packed picture that holds both views."""
    key: str | None
    """What stands for `{}` in output names: may contain "/", never starts with it nor holds a ".." part.

    None: the left picture of a list lies outside of the folder whose paths the results mirror."""
    output: Path | None = None
    """Third column of a pair list: the name of the main output."""
    line: int | None = None
    """Line of the pair list, from 1 (of a NUL-separated list: the number of the pair)."""
    frames: tuple[int, int] | None = None
    """Numbers of the left and the right frame, from 0, of videos."""

    def __str__(self) -> str:
        """How a message names this pair."""
        line = "" if self.line is None else f" (line {self.line})"
        return quote(self.left) + (f", frame {self.frames[0]}" if self.frames else line)


class Pairing(NamedTuple):
    """The pairs that were found, in natural order of their keys, and the files without a partner."""

    pairs: Collection[PairPaths]
    unpaired: tuple[Path, ...] = ()
    batch: bool = True
    """False for one pair that was named by itself."""


def is_template(text: str) -> bool:
    """Whether a name contains `{}`, the place of the text that both views share."""
    return "{}" in text


def resolve_pairs(left: str, right: str) -> Pairing:
    """The pairs that two arguments mean; two folders or two templates are a batch.

    The key of two pictures is the left one's stem. Raises UsageError for a mixture of kinds, one file on both
    sides and where nothing matches, InputError for what does not exist or cannot be read.
    """
    if is_template(left) != is_template(right):
        lacking = right if is_template(left) else left
        raise UsageError(
            f"only one of {quote(left)} and {quote(right)} contains {{}}",
            f"put {{}} into {quote(lacking)} too: it stands for the same text on both sides",
        )
    if is_template(left):
        return pair_templates(left, right)
    views = Path(left), Path(right)
    folders = [*filter(os.path.isdir, views)]
    if len(folders) == 2:
        return pair_folders(*folders)
    for view in views:
        if view not in folders:
            require_file(view)
    if folders:
        other = views[views[0] in folders]
        said = f"{quote(folders[0])} is a folder and {quote(other)} is a file"
        raise UsageError(said, "give two pictures, two folders or two templates with {}")
    pair = PairPaths(*views, views[0].stem)
    _refuse_same_file([pair])
    return Pairing((pair,), batch=False)


def pair_folders(lefts: Path, rights: Path) -> Pairing:
    """Pictures of two folders that have the same stem; sub-folders and hidden files are left alone.

    Raises UsageError where a folder holds two pictures of one stem, where no stem is in both folders, and
    for one file on both sides; InputError for a folder that cannot be read.
    """
    left_by_stem, right_by_stem = list_images_by_stem(lefts), list_images_by_stem(rights)
    if os.path.samefile(lefts, rights):
        said = f"both views would come from one folder, {quote(lefts)}"
        raise UsageError(said, "use templates such as 'folder/{}_L.png' 'folder/{}_R.png'")
    both = left_by_stem.keys() & right_by_stem.keys()
    if not both:
        raise UsageError(
            f"no picture in {quote(lefts)} ({len(left_by_stem)}) is called like one in {quote(rights)} "
            f"({len(right_by_stem)}), suffixes aside: {quote(min(left_by_stem, key=natural_key))} and "
            f"{quote(min(right_by_stem, key=natural_key))}, for example",
            suggest_pairing(left_by_stem.values(), right_by_stem.values()),
        )
    return _pairing(left_by_stem, right_by_stem)


def pair_templates(left: str, right: str) -> Pairing:
    """Files whose names differ from each other as two templates do.

    Every `{}` of both stands for one and the same text; what each finds, `match_template` says. Raises
    UsageError: nothing matches, both templates are the same; InputError: their folder is unreadable.
    """
    if Path(left) == Path(right):
        raise UsageError(f"both templates are {quote(left)}", "name the left and the right view")
    left_by_text, right_by_text = match_template(left), match_template(right)
    if not left_by_text.keys() & right_by_text.keys():
        raise UsageError(
            f"no pair: {quote(left)} matches {pluralize(len(left_by_text), 'file')}, {quote(right)} matches "
            f"{pluralize(len(right_by_text), 'file')}"
            + (", none with the same text" if left_by_text and right_by_text else ""),
            suggest_pairing(left_by_text.values(), right_by_text.values())
            if left_by_text and right_by_text
            else "{} stands for the same text in both; check folders, suffixes and the rest of the names",
        )
    return _pairing(left_by_text, right_by_text)


def resolve_packed(
    texts: Sequence[str],
    *,
    by_suffix: bool = False,
    suffixes: tuple[str, ...] = IMAGE_SUFFIXES,
    root: Path | None = None,
) -> Pairing:
    """Pictures that hold both views, from files and folders.

    A batch is a folder (without its sub-folders), or several files. A key is the path below `root`, without
    suffix; by default below the one folder that is given, of several paths below the current folder.
    `by_suffix`: of a folder only those that say so by their suffix (MPO, JPS); the others are unpaired.
    `suffixes`: of a folder's files that count. Raises InputError for what does not exist, UsageError where a
    folder holds no picture, or `texts` is empty.
    """
    paths = [Path(text) for text in texts]
    found: list[Path] = []
    alone: list[Path] = []
    for path in paths:
        if os.path.isdir(path):
            inside = list_images(path, suffixes)
            packed = [file for file in inside if not by_suffix or states_layout(file)]
            if not packed:
                said = f"no picture in {quote(path)} says that it holds both views, as {_PACKED} do"
                raise UsageError(said, "give a left and a right folder, or `packed` lr, rl, tb or bt")
            found += packed
            alone += [file for file in inside if file not in packed]
        else:
            require_file(path)
            found.append(path)
    if not found:
        raise UsageError("no packed picture is given", "name files or folders")
    alone_in = os.path.dirname(os.path.abspath(found[0])) if len(paths) == 1 else os.getcwd()
    base = os.path.abspath(root or alone_in)
    named = [PairPaths(path, None, _key_below(path, base)) for path in found]
    pairs = sorted(named, key=lambda pair: natural_key(pair.key or ""))
    return Pairing(tuple(pairs), tuple(alone), len(paths) > 1 or any(map(os.path.isdir, paths)))


def require_all_paired(pairing: Pairing) -> None:
    """Raise UsageError where files have no partner, naming the first five and the count."""
    if alone := pairing.unpaired:
        said = f"{pluralize(len(alone), 'file')} without a partner: {join_names(alone)}"
        raise UsageError(
            said, "`skip_unpaired` leaves them out; `pairs` takes a list, for cameras that count differently"
        )


@dataclass(frozen=True)
class PairList:
    """The pairs of a list in a file, in its order, read anew each time that they are asked for.

    Raises UsageError and InputError where the file is another by then.
    """

    path: Path
    nul: bool
    root: Path | None
    count: int

    def __len__(self) -> int:
        return self.count

    def __contains__(self, pair: object) -> bool:
        return any(pair == each for each in self)

    def __iter__(self) -> Iterator[PairPaths]:
        with open_pair_list(self.path) as stream:
            for _, item in iter_pair_list(stream, self.nul, self.root, look=False):
                if isinstance(item, PamError):
                    raise item
                yield item


def read_pair_list(path: Path, nul: bool = False, root: Path | None = None) -> PairList:
    """The pairs of a whole list, in its order: left<TAB>right[<TAB>output] a line, or left NUL right NUL.

    Paths are relative to the current folder; blank lines, CRLF and a byte order mark are fine. A key is the
    left's path below `root` (by default the current folder) without suffix: the same in whatever part of a
    list the pair stands.

    Raises UsageError with all bad lines (the first five and the count) or for a list without pairs, and
    InputError for a list that cannot be read.
    """
    count = 0
    bad: list[str] = []
    with open_pair_list(path) as stream:
        try:
            for _, item in iter_pair_list(stream, nul, root):
                count += 1
                if isinstance(item, PamError):
                    bad.append(item.message)
        except UsageError as error:
            raise UsageError(f"{quote(path)}: {error.message}", error.hint) from None
    if bad:
        columns = "left NUL right NUL" if nul else "left<TAB>right[<TAB>output]"
        said = f"{quote(path)}: {pluralize(len(bad), 'bad line')}: {join_names(bad, '; ')}"
        raise UsageError(said, f"a list holds {columns}, with paths relative to the current folder")
    if not count:
        raise UsageError(f"the pair list {quote(path)} holds no pair")
    return PairList(path, nul, root, count)


@contextmanager
def open_stdin() -> Iterator[BinaryIO]:
    """Stdin, for a thread that may still be waiting for it when the program ends.

    Not sys.stdin itself: the interpreter closes that one at its end, and aborts where a thread reads from it.
    Raises InputError.
    """
    if sys.stdin is None:
        raise InputError("cannot read standard input: it is closed")
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"cannot read standard input: {error.strerror}") from error


@contextmanager
def open_pair_list(path: Path) -> Iterator[BinaryIO]:
    """A list's file, or stdin. Raises InputError where it cannot be read."""
    if path == STDIN:
        with open_stdin() as stdin:
            yield stdin
        return
    check_regular(path)
    try:
        with open(path, "rb") as stream:
            if stream.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise InputError(f"the pair list {quote(path)} is in UTF-16", "save it as UTF-8")
            yield stream
    except OSError as error:
        raise InputError(f"the pair list {quote(path)} cannot be read: {error.strerror}") from None


def iter_pair_list(
    stream: BinaryIO, nul: bool = False, root: Path | None = None, *, look: bool = True
) -> Iterator[tuple[int, PairPaths | PamError]]:
    """The pairs of a list that may never end, each as soon as its line is complete; a bad line stops nothing.

    Each comes with its line, where it is bad as what is wrong with it; formats and keys as of
    `read_pair_list`. look: whether the pictures are there. Raises UsageError where the first line has one
    column, or a line is longer than `LONGEST_LINE`.
    """
    base, first = os.path.abspath(root or os.getcwd()), True
    for line, columns in _nul_pairs(stream) if nul else _tab_lines(stream):
        if first and not nul and len(columns) == 1 and "\0" not in columns[0]:
            raise UsageError(
                f"the list has one column: line {line} is {quote(columns[0])}",
                "a line is left<TAB>right[<TAB>output]; packed pictures are named as arguments",
            )
        first = False
        item: PairPaths | PamError
        try:
            item = _listed_pair(columns, line, base, nul, look)
        except PamError as error:
            error.message, item = f"line {line}: {error.message}", error
        yield line, item


def _not_too_long(size: int, line: int) -> None:
    if size > LONGEST_LINE:
        said = f"line {line} of the list is longer than three paths can be"
        raise UsageError(said, "is it a list of pairs?")


def _tab_lines(stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    for line, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1):
        _not_too_long(len(raw), line)
        if line == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        if raw.strip(b" \r"):
            yield line, [os.fsdecode(column) for column in raw.split(b"\t")]


def _nul_pairs(stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    columns: list[str] = []
    line, field = 1, bytearray()
    # One byte at a time: a larger read would wait for the next pair before it yields this one.
    for byte in iter(lambda: stream.read(1), b""):
        if byte != b"\0":
            field += byte
            _not_too_long(len(field), line)
            continue
        columns.append(os.fsdecode(bytes(field)))
        field.clear()
        if len(columns) == 2:
            yield line, columns
            line, columns = line + 1, []
    if field and (columns or field != b"\n"):
        columns.append(os.fsdecode(bytes(field)))
    if columns:
        yield line, columns


def _listed_pair(columns: list[str], line: int, base: str, nul: bool, look: bool) -> PairPaths:
    if nul and len(columns) != 2:
        raise UsageError("a left picture without its right one")
    if any("\0" in column for column in columns):
        raise UsageError("NUL characters in a list of lines", "`null` is for NUL-separated lists")
    if not nul and len(columns) not in (2, 3):
        said = f"{pluralize(len(columns), 'column')} instead of 2 or 3"
        raise UsageError(said, "columns are separated by one tab")
    if "" in columns:
        raise UsageError(f"column {columns.index('') + 1} is empty")
    left, right = Path(columns[0]), Path(columns[1])
    output = Path(columns[2]) if len(columns) == 3 else None
    pair = PairPaths(left, right, _key_below(left, base), output, line)
    if look:
        require_file(left)
        require_file(right)
        _refuse_same_file([pair])
    return pair


def _key_below(path: Path, base: str) -> str | None:
    """The path below the absolute folder `base` without suffix; None where it lies outside."""
    absolute = Path(os.path.abspath(path))
    inside = absolute.is_relative_to(base)
    return absolute.relative_to(base).with_suffix("").as_posix() if inside else None


def _pairing(lefts: dict[str, Path], rights: dict[str, Path]) -> Pairing:
    both = sorted(lefts.keys() & rights.keys(), key=natural_key)
    pairs = tuple(PairPaths(lefts[key], rights[key], key) for key in both)
    _refuse_same_file(pairs)
    # A right view can look like a left one: '{}.png' also finds what '{}_R.png' is meant for.
    used = {path for pair in pairs for path in (pair.left, pair.right)}
    alone = {path for path in (*lefts.values(), *rights.values()) if path not in used}
    return Pairing(pairs, tuple(sorted(alone, key=lambda path: natural_key(str(path)))))


def _refuse_same_file(pairs: Collection[PairPaths]) -> None:
    same: list[PairPaths] = []
    for pair in pairs:
        if pair.right is not None and os.path.samefile(pair.left, pair.right):
            same.append(pair)
    if same:
        names = join_names(f"{quote(pair.left)} = {quote(pair.right or '')}" for pair in same)
        raise UsageError(f"the same file on both sides: {names}", "give the left and the right view")
