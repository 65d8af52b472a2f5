"""Name, find and open files: names in messages, files in a folder, and hints for unpaired ones."""

import errno
import glob
import io
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from os.path import commonprefix
from pathlib import Path
from string import digits
from typing import BinaryIO

from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.suffixes import (
    BAG_PREFIX,
    BAG_SUFFIXES,
    HEIF_SUFFIXES,
    IMAGE_SUFFIXES,
    JPEG_SUFFIXES,
    PACKED_SUFFIXES,
    VIDEO_SUFFIXES,
)

_MARKS = {**dict.fromkeys(HEIF_SUFFIXES, b"ster"), **dict.fromkeys(JPEG_SUFFIXES, b"GImage:")}
"""Markers in the metadata of spatial photos and of VR180 photos."""
_HEAD = 1 << 18  # bytes at the beginning of a file that hold its metadata
_REASONS = {
    errno.ENOENT: "there is no such file",
    errno.EISDIR: "it is a folder",
    errno.EACCES: "no permission",
}
STDIN_NAME = "standard input"
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four are full-width forms


def quote(path: Path | str) -> str:
    """Return a file name for a message, escaped if it would break the line or the terminal."""
    text = str(path)
    return text if text and text.isprintable() else repr(text)


def escape_line(text: str) -> str:
    """Escape characters that would end the line or control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        # Surrogates stand for the bytes of names in other encodings and are written unchanged.
        c if c.isprintable() or "\udc80" <= c <= "\udcff" else c.encode("unicode_escape").decode()
        for c in text
    )


def escape_csv(text: str) -> str:
    """Put an apostrophe before a name in a CSV file that a spreadsheet would compute as a formula."""
    return f"'{text}" if text[:1] in _FORMULA_STARTS or text.lstrip()[:1] in _FORMULA_STARTS else text


def join_names(items: Iterable[Path | str], separator: str = ", ", most: int = 5) -> str:
    """Return the first few items and the number of the others; paths are quoted."""
    texts = [item if isinstance(item, str) else quote(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def pluralize(number: int, noun: str) -> str:
    """Return "1 pair", "1,024 pairs", "8 patches" ..."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Return a sort key that puts frame2 before frame10."""
    parts: list[str | int] = [*re.split("([0-9]+)", text)]
    parts[1::2] = map(int, parts[1::2])
    return parts, text


def video_error(path: Path | str) -> InputError:
    """Return the error for a video that was passed as an image."""
    if path == STDIN_NAME:
        return InputError(f"{path} is a video", "pass the file name instead of -")
    command = f"mkdir frames && ffmpeg -i {shlex.quote(str(path))} frames/%06d.png"
    return InputError(f"{quote(path)} is a video", f"extract its frames: {command}")


def require_file(path: Path) -> None:
    """Raise InputError if `path` is not an existing regular file, or is a video."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"no such file: {quote(path)}", _explain_missing(path)) from None
    except OSError as error:
        raise InputError(f"cannot read {quote(path)}: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{quote(path)} is a folder, not an image")
    check_regular(path)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        raise video_error(path)


def _explain_missing(path: Path) -> str | None:
    """Return a hint on a file that does not exist, or None."""
    if "*" in path.name or "?" in path.name:
        return "use {} for the part of the names that both views share: 'lefts/{}.png'"
    if path.name[:1] in tuple("\u201c\u201d\u201e\u2018\u2019\u00ab"):
        return 'put straight quotes around names with spaces: "left image.jpg"'
    with suppress(OSError):
        names = {name.lower(): name for name in os.listdir(path.parent)}
        if any(name.startswith(f"{path.name} ") for name in names.values()):
            return f'put quotes around names with spaces: "{path.name} ..."'
        if near := get_close_matches(path.name.lower(), names, 1, 0.8):
            return f"did you mean {quote(path.parent / names[near[0]])}?"
    return None


def check_regular(path: Path, error: type[PamError] = InputError) -> None:
    """Raise `error` if `path` is a pipe, socket or device, which may never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # reported when the file is opened
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")
        raise error(f"{quote(path)} is not a regular file: it is {kind}")


@contextmanager
def open_source(
    source: Path | bytes, name: str, error: type[PamError] = InputError, missing: str | None = None
) -> Iterator[BinaryIO]:
    """Open a regular file, or bytes, as a seekable stream. Raises `error`, with the hint `missing`."""
    if isinstance(source, Path):
        check_regular(source, error)
    try:
        stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        reason = _REASONS.get(problem.errno or 0, f"{reason[:1].lower()}{reason[1:]}")
        hint = missing if problem.errno == errno.ENOENT else None
        raise error(f"cannot read {name}: {reason}", hint) from problem
    except ValueError as problem:  # a NUL character in the path
        raise error(f"cannot read {name!r}: {problem}") from problem
    with stream:
        if not stream.read(1):
            raise error(f"{name} is empty")
        stream.seek(0)
        yield stream


def list_images(folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the images in a folder by their suffixes, sorted, without hidden files and sub-folders."""
    entries = list_entries(folder)
    found = []
    for name, is_folder in entries:
        if not is_folder and name.lower().endswith(suffixes):
            found.append(folder / name)
    if found:
        return sorted(found)
    if videos := [name for name, _ in entries if name.lower().endswith(VIDEO_SUFFIXES)]:
        raise video_error(folder / min(videos))
    if not entries:
        raise UsageError(
            f"the folder {quote(folder)} is empty", "check the path, or repeat the command once images arrive"
        )
    hint = f"the suffix of an image is one of {', '.join(suffixes)}"
    if any(is_folder for _, is_folder in entries):
        hint = "use templates such as 'lefts/{}.png' 'rights/{}.png' for sub-folders: {} may contain /"
    raise UsageError(f"the folder {quote(folder)} contains no images", hint)


def list_images_by_stem(folder: Path) -> dict[str, Path]:
    """Return `list_images` by stem. Raises UsageError if two images have the same stem."""
    found: dict[str, Path] = {}
    twice = []
    for path in list_images(folder):
        if (first := found.setdefault(path.stem, path)) != path:
            twice.append(f"{quote(first)} and {quote(path)}")
    if twice:
        reason = f"two images in a folder have the same stem: {join_names(twice)}"
        raise UsageError(reason, "remove one, or use templates with a suffix such as 'lefts/{}.png'")
    return found


def match_template(template: str) -> dict[str, Path]:
    """Return the files that match a template, by the text in place of `{}`, which may contain "/".

    A template that ends in `{}` matches only images. Hidden entries are ignored unless it names them.
    """
    normal = Path(template).as_posix()
    folder = "".join(normal[: normal.index("{}")].rpartition("/")[:2])  # everything below it may match
    if not os.path.isdir(folder or "."):
        raise InputError(f"the folder {quote(folder)} does not exist")
    wanted = normal[len(folder) :]
    hidden = wanted.startswith(".") or "/." in wanted
    first, *others = [re.escape(part) for part in wanted.split("{}")]  # all {} stand for the same text
    pattern = re.compile(first + "(?P<text>.+)" + "(?P=text)".join(others), re.DOTALL)
    found: dict[str, Path] = {}
    for name in _walk_files(folder or ".", hidden):
        match = pattern.fullmatch(name)
        if match is None or {"", ".", ".."} & {*match["text"].split("/")}:
            continue
        if not wanted.endswith("{}") or name.lower().endswith(IMAGE_SUFFIXES):
            found[match["text"]] = Path(folder + name)
    return found


def _walk_files(folder: str, hidden: bool) -> Iterator[str]:
    """Yield all files below a folder, relative to it, with "/"; links are followed, but not in cycles."""
    waiting = [("", frozenset({os.path.realpath(folder)}))]
    while waiting:
        below, above = waiting.pop()
        try:
            entries = list_entries(os.path.join(folder, below), hidden)
        except InputError:
            if below:
                continue
            raise
        for name, is_folder in entries:
            if not is_folder:
                yield below + name
            elif (real := os.path.realpath(os.path.join(folder, below, name))) not in above:
                waiting.append((f"{below}{name}/", above | {real}))


def list_entries(folder: Path | str, hidden: bool = False) -> list[tuple[str, bool]]:
    """Return (name, is_folder) of a folder's entries, without broken links and, by default, dot files."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and not hidden:
                    continue
                with suppress(OSError):  # a cycle of links
                    if entry.is_file() or entry.is_dir():
                        found.append((entry.name, entry.is_dir()))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"cannot read the folder {quote(folder)}: {error.strerror}") from None
    return found


def list_folders(folder: Path) -> dict[str, Path]:
    """Return the sub-folders of a folder by name, in natural order; empty if there is no such folder."""
    names = [name for name, is_folder in list_entries(folder) if is_folder]
    return {name: folder / name for name in sorted(names, key=natural_key)}


def walk_folders(folder: Path, depth: int = 8) -> Iterator[tuple[str, Path, frozenset[str]]]:
    """Yield a folder and all below it: relative path ("" for itself), path, names of the entries.

    The limit of the depth ends cycles of links, and the search of a whole disk after a mistyped path.
    """
    waiting = [("", folder, depth)]
    while waiting:
        below, path, left = waiting.pop()
        yield below, path, frozenset(name for name, _ in list_entries(path))
        if left:
            for name, sub in reversed(list_folders(path).items()):
                waiting.append((f"{below}/{name}".lstrip("/"), sub, left - 1))


def are_packed(paths: Sequence[str]) -> bool:
    """Return True for one folder, and for files that state that they hold both views."""
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return True
    return bool(paths) and all(map(states_layout, paths))


def states_layout(path: str | Path) -> bool:
    """Return True if a file states that it holds both views, by its suffix or its metadata."""
    suffix = os.path.splitext(path)[1].lower()
    mark = _MARKS.get(suffix)
    if mark is None or not os.path.isfile(path):
        return suffix in PACKED_SUFFIXES
    with suppress(OSError), open(path, "rb") as stream:
        return mark in stream.read(_HEAD)
    return False


def suggest_pairing(lefts: Iterable[Path], rights: Iterable[Path]) -> str:
    """Return a hint for two sets of images without a common name: the words to type instead.

    `pam` itself never pairs by position: after one image dropped by a camera, all pairs would be wrong.
    """
    sides = [sorted(map(str, side)) for side in (lefts, rights)]
    if len(sides[0]) == len(sides[1]) == 1:
        return f"name both images: {shlex.join([*sides[0], *sides[1]])}"
    ends = [_find_ends(files) for files in sides]
    left, right = (
        {file[len(before) : len(file) - len(behind)] for file in files}
        for files, (before, behind) in zip(sides, ends, strict=True)
    )
    if 2 * len(left & right) > max(len(left), len(right)):
        return f"use templates: {shlex.join(['{}'.join(each) for each in ends])}"
    lists = [_list_by_number(*each) for each in zip(sides, ends, strict=True)]
    if len(sides[0]) == len(sides[1]) and all(lists):
        return (
            f"if the cameras count differently: paste {lists[0]} {lists[1]} >pairs.txt, check that each line "
            "is a pair, and use `pairs` pairs.txt instead of both views"
        )
    return (
        "use templates such as 'lefts/{}_L.png' 'rights/{}_R.png', or a list with left<TAB>right per line: "
        "`pairs` pairs.txt"
    )


def suggest_templates(files: Iterable[Path]) -> str | None:
    """Return a hint for a folder whose file names end with the side, as in `1_left.png`, or None."""
    known = set(files)
    for left, right in (("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT"), ("l", "r"), ("L", "R")):
        for file in files:
            before, gap = re.fullmatch(r"(.*?)([-_ .]?)", file.stem.removesuffix(left)).groups()  # type: ignore[union-attr]
            if before + gap + left == file.stem and file.with_stem(before + gap + right) in known:
                ends = (file.with_name(f"{{}}{gap}{side}{file.suffix}") for side in (left, right))
                return f"use templates: {shlex.join(map(str, ends))}"
    return None


def _find_ends(files: list[str]) -> tuple[str, str]:
    """Return the common beginning and end of all names; numbers and suffixes stay whole."""
    before = commonprefix(files).rstrip(digits)  # noqa: RUF071 - of text, not of folders
    behind = commonprefix([file[len(before) :][::-1] for file in files])[::-1]  # noqa: RUF071
    return before, behind.lstrip(digits) if "." in behind else ""


def _list_by_number(files: list[str], ends: tuple[str, str]) -> str | None:
    """Return shell words that list these files by number, or None if there are none."""
    if sorted(glob.glob("*".join(map(glob.escape, ends)))) != files:
        return None
    pattern = "*".join(shlex.quote(end) if end else "" for end in ends)
    by_number = "" if sorted(files, key=natural_key) == files else " | sort -V"
    return f"<(printf '%s\\n' {pattern}{by_number})"


def is_recording(text: str) -> bool:
    """Return True if an input is a ROS bag: `bag:FILE?left=...`, a file, or the folder of a ROS 2 bag."""
    if text.startswith(BAG_PREFIX) or text.lower().endswith(BAG_SUFFIXES):
        return True
    try:
        return Path(text, "metadata.yaml").read_bytes().startswith(b"rosbag2_bagfile_information")
    except (OSError, ValueError):
        return False
