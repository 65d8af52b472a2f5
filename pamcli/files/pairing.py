"""Pair images by name, never by position, before any work."""

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pamcli.errors import InputError, PamError, UsageError
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
    states_layout,
    suggest_pairing,
    suggest_templates,
)
from pamcli.files.suffixes import IMAGE_SUFFIXES

STDIN = Path("-")  # name of a list, or of an image with both views, that is read from stdin
LONGEST_LINE = 3 * 4096  # bytes of a line: three paths of the length that Linux allows


class PairPaths(NamedTuple):
    """The paths of two views that belong together."""

    left: Path
    right: Path | None  # None: `left` is a packed image with both views
    key: str | None  # text in place of `{}` in output names; None: the left image lies outside of `root`
    output: Path | None = None  # third column of a pair list: the name of the main output
    line: int | None = None  # line of the pair list, from 1 (in a NUL-separated list: number of the pair)
    frames: tuple[int, int] | None = None  # numbers of the left and the right frame, from 0, of videos

    def __str__(self) -> str:
        """Return the name of this pair in messages."""
        line = "" if self.line is None else f" (line {self.line})"
        return quote(self.left) + (f", frame {self.frames[0]}" if self.frames else line)


class Pairing(NamedTuple):
    """Pairs in natural order of their keys, and the files without a counterpart."""

    pairs: Collection[PairPaths]
    unpaired: tuple[Path, ...] = ()
    batch: bool = True  # False for one pair that was named by itself


def resolve_pairs(left: str, right: str) -> Pairing:
    """Return the pairs that two arguments mean: two images, two folders, or two templates."""
    if ("{}" in left) != ("{}" in right):
        lacking = right if "{}" in left else left
        raise UsageError(
            f"only one of {quote(left)} and {quote(right)} contains {{}}",
            f"put {{}} into {quote(lacking)} too: it stands for the same text on both sides",
        )
    if "{}" in left:
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
        reason = f"{quote(folders[0])} is a folder and {quote(other)} is a file"
        raise UsageError(reason, "give two images, two folders or two templates with {}")
    pair = PairPaths(*views, views[0].stem)
    if os.path.samefile(*views):
        _check_different_files([pair])
    return Pairing((pair,), batch=False)


def pair_folders(lefts: Path, rights: Path) -> Pairing:
    """Pair the images of two folders by stem; sub-folders and hidden files are ignored."""
    left_by_stem, right_by_stem = list_images_by_stem(lefts), list_images_by_stem(rights)
    if os.path.samefile(lefts, rights):
        reason = f"{quote(lefts)} was given for both views"
        raise UsageError(reason, "use templates such as 'folder/{}_L.png' 'folder/{}_R.png'")
    if not left_by_stem.keys() & right_by_stem.keys():
        examples = " and ".join(quote(min(names, key=natural_key)) for names in (left_by_stem, right_by_stem))
        raise UsageError(
            f"the image names in {quote(lefts)} and {quote(rights)} do not match, for example {examples}",
            suggest_pairing(left_by_stem.values(), right_by_stem.values()),
        )
    return _pair_by_key(left_by_stem, right_by_stem)


def pair_templates(left: str, right: str) -> Pairing:
    """Pair the files that match two templates with the same text in place of `{}`; see `match_template`."""
    if Path(left) == Path(right):
        raise UsageError(
            f"both templates are {quote(left)}", "give one for the left and one for the right view"
        )
    left_by_text, right_by_text = match_template(left), match_template(right)
    if not left_by_text.keys() & right_by_text.keys():
        counts = [pluralize(len(found), "file") for found in (left_by_text, right_by_text)]
        reason = f"no pair: {quote(left)} matches {counts[0]}, {quote(right)} matches {counts[1]}"
        hint = "{} stands for the same text in both; check folders, suffixes and the rest of the names"
        if left_by_text and right_by_text:
            reason += ", none with the same text"
            hint = suggest_pairing(left_by_text.values(), right_by_text.values())
        raise UsageError(reason, hint)
    return _pair_by_key(left_by_text, right_by_text)


def resolve_packed(
    texts: Sequence[str],
    *,
    by_suffix: bool = False,
    suffixes: tuple[str, ...] = IMAGE_SUFFIXES,
    root: Path | None = None,
) -> Pairing:
    """Return the images with both views in files and folders; a folder or several files are a batch.

    `by_suffix` uses only files in folders that state their layout. The key is the path without suffix below
    `root`, by default the one given folder, or the current one for several paths.
    """
    paths = [Path(text) for text in texts]
    found: list[Path] = []
    alone: list[Path] = []
    for path in paths:
        if not os.path.isdir(path):
            require_file(path)
            found.append(path)
            continue
        inside = list_images(path, suffixes)
        packed = [file for file in inside if not by_suffix or states_layout(file)]
        if not packed:
            reason = f"no image in {quote(path)} states that it holds both views, as .mpo, .jps and .pns do"
            hint = "give a left and a right folder, or `packed` lr, rl, tb or bt"
            raise UsageError(reason, suggest_templates(inside) or hint)
        found += packed
        alone += [file for file in inside if file not in packed]
    if not found:
        raise UsageError("no packed image is given", "name files or folders")
    default = os.path.dirname(os.path.abspath(found[0])) if len(paths) == 1 else os.getcwd()
    base = os.path.abspath(root or default)
    pairs = [PairPaths(path, None, _find_key(path, base)) for path in found]
    pairs.sort(key=lambda pair: natural_key(pair.key or ""))
    return Pairing(tuple(pairs), tuple(alone), len(paths) > 1 or any(map(os.path.isdir, paths)))


def require_all_paired(pairing: Pairing) -> None:
    """Raise UsageError if files have no counterpart, with the first five and the count."""
    if alone := pairing.unpaired:
        raise UsageError(
            f"{pluralize(len(alone), 'file')} without a counterpart: {join_names(alone)}",
            "use `skip_unpaired` to ignore them, or `pairs` with a list if the cameras count differently",
        )


@dataclass(frozen=True)
class PairList:
    """The pairs of a list in a file, in its order, read again at each iteration."""

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
            for _, item in iter_pair_list(stream, self.nul, self.root, check_files=False):
                if isinstance(item, PamError):
                    raise item
                yield item


def read_pair_list(path: Path, nul: bool = False, root: Path | None = None) -> PairList:
    """Read and check a whole list: lines left<TAB>right[<TAB>output], or left NUL right NUL.

    Paths are relative to the current folder; blank lines, CRLF and a byte order mark are accepted. A key is
    the left path below `root` (by default the current folder) without suffix.
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
        reason = f"{quote(path)}: {pluralize(len(bad), 'bad line')}: {join_names(bad, '; ')}"
        raise UsageError(reason, f"a line is {columns}, with paths relative to the current folder")
    if not count:
        raise UsageError(f"the pair list {quote(path)} is empty")
    return PairList(path, nul, root, count)


@contextmanager
def open_stdin() -> Iterator[BinaryIO]:
    """Open stdin for a thread that may still wait for it when the program ends.

    Python closes sys.stdin at its end, and aborts if a thread is reading from it.
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
    """Open a list, or stdin. Raises InputError if it cannot be read."""
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
        raise InputError(f"cannot read the pair list {quote(path)}: {error.strerror}") from None


def iter_pair_list(
    stream: BinaryIO, nul: bool = False, root: Path | None = None, *, check_files: bool = True
) -> Iterator[tuple[int, PairPaths | PamError]]:
    """Yield each line number and its pair, or its error, as soon as the line is complete."""
    base, first = os.path.abspath(root or os.getcwd()), True
    for line, columns in _split_nul(stream) if nul else _split_lines(stream):
        if first and not nul and len(columns) == 1 and "\0" not in columns[0]:
            raise UsageError(
                f"the list has one column: line {line} is {quote(columns[0])}",
                "a line is left<TAB>right[<TAB>output]; pass packed images as arguments",
            )
        first = False
        item: PairPaths | PamError
        try:
            item = _make_pair(columns, line, base, nul, check_files)
        except PamError as error:
            error.message, item = f"line {line}: {error.message}", error
        yield line, item


def _check_length(size: int, line: int) -> None:
    if size > LONGEST_LINE:
        reason = f"line {line} of the list has more than {LONGEST_LINE} bytes"
        raise UsageError(reason, "check that the file is a list of pairs")


def _split_lines(stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    for line, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1):
        _check_length(len(raw), line)
        if line == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        if raw.strip(b" \r"):
            yield line, [os.fsdecode(column) for column in raw.split(b"\t")]


def _split_nul(stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    columns: list[str] = []
    line, field = 1, bytearray()
    # One byte at a time: a larger read would wait for the next pair before it yields this one.
    for byte in iter(lambda: stream.read(1), b""):
        if byte != b"\0":
            field += byte
            _check_length(len(field), line)
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


def _make_pair(columns: list[str], line: int, base: str, nul: bool, check_files: bool) -> PairPaths:
    if nul and len(columns) != 2:
        raise UsageError("the right image is missing")
    if any("\0" in column for column in columns):
        raise UsageError("NUL characters in a list of lines", "use `null` for NUL-separated lists")
    if not nul and len(columns) not in (2, 3):
        reason = f"expected 2 or 3 columns, got {len(columns)}"
        raise UsageError(reason, "separate columns by one tab")
    if "" in columns:
        raise UsageError(f"column {columns.index('') + 1} is empty")
    left, right = Path(columns[0]), Path(columns[1])
    output = Path(columns[2]) if len(columns) == 3 else None
    pair = PairPaths(left, right, _find_key(left, base), output, line)
    if check_files:
        require_file(left)
        require_file(right)
        _check_different_files([pair])
    return pair


def _find_key(path: Path, base: str) -> str | None:
    """Return the path below the absolute folder `base` without suffix, or None if it lies outside."""
    absolute = Path(os.path.abspath(path))
    inside = absolute.is_relative_to(base)
    return absolute.relative_to(base).with_suffix("").as_posix() if inside else None


def _pair_by_key(lefts: dict[str, Path], rights: dict[str, Path]) -> Pairing:
    keys = sorted(lefts.keys() & rights.keys(), key=natural_key)
    pairs = tuple(PairPaths(lefts[key], rights[key], key) for key in keys)
    _check_different_files(pairs)
    # A right view can look like a left one: '{}.png' also matches what '{}_R.png' is meant for.
    used = {path for pair in pairs for path in (pair.left, pair.right)}
    alone = {path for path in (*lefts.values(), *rights.values()) if path not in used}
    return Pairing(pairs, tuple(sorted(alone, key=lambda path: natural_key(str(path)))))


def _check_different_files(pairs: Collection[PairPaths]) -> None:
    same = []
    for pair in pairs:
        if pair.right is not None and os.path.samefile(pair.left, pair.right):
            same.append(f"{quote(pair.left)} = {quote(pair.right)}")
    if same:
        raise UsageError(f"left and right are the same file: {join_names(same)}", "give two different images")
