"""Files on disk, found by name: what a folder holds, and what a template with `{}` matches."""

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pamcli.errors import InputError, PamError, UsageError
from pamcli.files.suffixes import IMAGE_SUFFIXES, VIDEO_SUFFIXES

STDIN_NAME = "standard input"
_FORMULAS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # what they begin with, also in East Asia


def quote(path: Path | str) -> str:
    """A file name for a message: as it is, or escaped where it would break the line or the terminal."""
    text = str(path)
    return text if text and text.isprintable() else repr(text)


def escape_line(text: str) -> str:
    """Escape what would end the line of a text or command the terminal, as it may stand in a file's name."""
    return "".join(
        # The halves of characters that stand for names in no encoding stay: they go out as they came.
        c if c.isprintable() or "\udc80" <= c <= "\udcff" else c.encode("unicode_escape").decode()
        for c in text
    )


def escape_csv(text: str) -> str:
    """Put an apostrophe before a name in a CSV file that a spreadsheet would compute as a formula."""
    return f"'{text}" if text[:1] in _FORMULAS or text.lstrip()[:1] in _FORMULAS else text


def join_names(items: Iterable[Path | str], separator: str = ", ", most: int = 5) -> str:
    """The first few items, and how many more there are."""
    texts = [item if isinstance(item, str) else quote(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def pluralize(number: int, thing: str) -> str:
    """The number with the word in its form: "1 pair", "1,024 pairs", "8 patches"."""
    plural = f"{thing}es" if thing.endswith("ch") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Sort key that puts frame2 before frame10."""
    parts = re.split("([0-9]+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], text


def video_error(path: Path | str) -> InputError:
    """What to say of a video, with the line that makes frames of it."""
    if path == STDIN_NAME:
        return InputError(f"{path} is a video", "name its file instead of -")
    way = f"mkdir frames && ffmpeg -i {shlex.quote(str(path))} frames/%06d.png"
    return InputError(f"{quote(path)} is a video", f"make pictures of it: {way}")


def require_file(path: Path) -> None:
    """Raise InputError where this is no existing regular file, or a video."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        hint = "use {} for the part of the names that both views share, as in 'lefts/{}.png'"
        pattern = "*" in str(path) or "?" in str(path)
        raise InputError(f"no such file: {quote(path)}", hint if pattern else None) from None
    except OSError as error:
        raise InputError(f"{quote(path)} cannot be read: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{quote(path)} is a folder, not a picture")
    check_regular(path)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        raise video_error(path)


def check_regular(path: Path, error: type[PamError] = InputError) -> None:
    """Raise the error where something else than a regular file stands: a pipe or a device may never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # opening it says what is wrong
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")
        raise error(f"{quote(path)} is not a regular file: it is {kind}")


def list_images(folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Pictures of a folder by their suffixes, without hidden ones and what sub-folders hold, sorted by name.

    Raises UsageError where there is none, InputError where the folder cannot be read.
    """
    entries = list_entries(folder)
    found = [folder / name for name, is_folder in entries if not is_folder and _has_suffix(name, suffixes)]
    if found:
        return sorted(found)
    videos = [name for name, _ in entries if Path(name).suffix.lower() in VIDEO_SUFFIXES]
    if videos:
        raise video_error(folder / min(videos))
    hint = f"pictures are those with {', '.join(suffixes)}"
    if any(is_folder for _, is_folder in entries):
        hint = "it has sub-folders: use templates such as 'lefts/{}.png' 'rights/{}.png', {} may contain /"
    raise UsageError(f"no picture in the folder {quote(folder)}", hint)


def list_images_by_stem(folder: Path) -> dict[str, Path]:
    """`list_images` by their stems; raises UsageError where two share one."""
    found: dict[str, Path] = {}
    both = [(found.setdefault(path.stem, path), path) for path in list_images(folder)]
    if twice := [f"{quote(first)} and {quote(other)}" for first, other in both if first != other]:
        said = f"two pictures of one stem in a folder: {join_names(twice)}"
        raise UsageError(said, "keep one of them, or use templates with a suffix such as 'lefts/{}.png'")
    return found


def match_template(template: str) -> dict[str, Path]:
    """Files that match a template, by the text that stands for its `{}`, which may contain "/".

    A template that ends in `{}` finds pictures only, any other one what its suffix says. Hidden files and
    folders are left alone unless the template names them, sub-folders that may not be read are passed over.
    Raises InputError where the folder of the template cannot be read.
    """
    normal = Path(template).as_posix()
    # The folder of the part before the first `{}`: everything below it may match.
    folder = "".join(normal[: normal.index("{}")].rpartition("/")[:2])
    if not os.path.isdir(folder or "."):
        raise InputError(f"the folder {quote(folder)} cannot be read: there is none")
    wanted = normal[len(folder) :]
    hidden = wanted.startswith(".") or "/." in wanted
    # The first `{}` is any text, the others are the same.
    first, *others = [re.escape(part) for part in wanted.split("{}")]
    pattern = re.compile(first + "(?P<text>.+)" + "(?P=text)".join(others), re.DOTALL)
    found: dict[str, Path] = {}
    for name in _walk(folder or ".", hidden):
        match = pattern.fullmatch(name)
        if match is None or {"", ".", ".."} & {*match["text"].split("/")}:
            continue
        if not wanted.endswith("{}") or _has_suffix(name):
            found[match["text"]] = Path(folder + name)
    return found


def _walk(folder: str, hidden: bool) -> Iterator[str]:
    """Paths of all files below a folder, relative to it, with "/"; links are followed, but not in circles."""
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
            real = os.path.realpath(os.path.join(folder, below, name)) if is_folder else ""
            if not is_folder:
                yield below + name
            elif real not in above:
                waiting.append((f"{below}{name}/", above | {real}))


def list_entries(folder: Path | str, hidden: bool = False) -> list[tuple[str, bool]]:
    """List what a folder holds: names, and whether each is a folder; nothing where there is none.

    Links count as what they lead to, and not at all where that is nothing. hidden: those files and folders,
    too. Raises InputError: it cannot be read.
    """
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and not hidden:
                    continue
                with suppress(OSError):  # a link in a circle is nothing
                    if entry.is_file() or entry.is_dir():
                        found.append((entry.name, entry.is_dir()))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"the folder {quote(folder)} cannot be read: {error.strerror}") from None
    return found


def list_folders(folder: Path) -> dict[str, Path]:
    """The sub-folders of a folder by their names, in natural order; none where there is no such folder."""
    names = [name for name, is_folder in list_entries(folder) if is_folder]
    return {name: folder / name for name in sorted(names, key=natural_key)}


def walk_folders(folder: Path, depth: int = 8) -> Iterator[tuple[str, Path, frozenset[str]]]:
    """The folder itself and all below it: path relative to it ("" for itself), path, names of what it holds.

    Hidden ones are left out. depth: levels below `folder`; so a circle of links ends, and a wrong path to a
    whole disk soon does.
    """
    waiting = [("", folder, depth)]
    while waiting:
        below, path, left = waiting.pop()
        yield below, path, frozenset(name for name, _ in list_entries(path))
        if left:
            inner = [
                (f"{below}/{name}".lstrip("/"), sub, left - 1) for name, sub in list_folders(path).items()
            ]
            waiting += reversed(inner)


def _has_suffix(name: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> bool:
    return os.path.splitext(name)[1].lower() in suffixes
