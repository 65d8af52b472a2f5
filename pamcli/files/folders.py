"""Folders on disk: what stands in one, and all that are below it; hidden files and folders are left out."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pamcli.errors import InputError
from pamcli.files.finding import natural, shown


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """List what a folder holds; nothing where there is none. Raises InputError: it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"the folder {shown(folder)} cannot be read: {error.strerror}") from None


def folders(folder: Path) -> dict[str, Path]:
    """The sub-folders of a folder by their names, in natural order; none where there is no such folder."""
    names = []
    for entry in entries_of(folder):
        with suppress(OSError):  # a link to itself is nothing
            names += [entry.name] if entry.is_dir() else []
    return {name: folder / name for name in sorted(names, key=natural)}


def folders_below(folder: Path, depth: int = 8) -> Iterator[tuple[str, Path, frozenset[str]]]:
    """The folder itself and all below it: path relative to it ("" for itself), path, names of what it holds.

    depth: levels below `folder`; so a circle of links ends, and a wrong path to a whole disk soon does.
    """
    waiting = [("", folder, depth)]
    while waiting:
        below, path, left = waiting.pop()
        yield below, path, frozenset(entry.name for entry in entries_of(path))
        if left:
            inner = [(f"{below}/{name}".lstrip("/"), sub, left - 1) for name, sub in folders(path).items()]
            waiting += reversed(inner)
