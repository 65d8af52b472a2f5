"""Every error that a user can cause, with the exit code it ends in.

The command line turns a `PamError` into one line (`message`, then `hint`: what to do about it);
a program that uses the library catches `PamError`, or the subclass it cares about. A hint names a setting
as the library does, in backticks (`max_pixels`); the command line shows it as its option.
"""

import errno
import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path


class PamError(Exception):
    """An error with a message for a person, a hint, and an exit code."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PamError):
    """Contradictory options, pictures that cannot be paired, outputs that exist already."""

    exit_code = 2


class InputError(PamError):
    """An input that cannot be read or is not what it should be."""

    exit_code = 3


class ModelError(PamError):
    """A network or its weights: unknown, missing, damaged, not reachable."""

    exit_code = 4


class DeviceError(PamError):
    """The device is missing, cannot do what was asked, or has too little memory."""

    exit_code = 5


class OutputError(PamError):
    """A result cannot be written: disk full, no permission, no such folder."""

    exit_code = 7


BATCH_FAILED = 6
"""Exit code of a batch in which at least one pair failed, for whatever reason."""


_SHORT_OF_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|bad_alloc|could not create a primitive", re.IGNORECASE
)


def convert_system_error(error: Exception) -> PamError | None:
    """Return what the system refused that no check had covered; None: the error is none of the system's.

    An OutputError where a disk is full, a DeviceError where memory or threads run out, whichever class a
    library makes of it.
    """
    if isinstance(error, MemoryError) or _SHORT_OF_MEMORY.search(str(error)):
        own = isinstance(error, MemoryError) and str(error)
        return DeviceError(f"not enough memory{f': {error}' if own else ''}", "take smaller pictures")
    if "can't start new thread" in str(error):
        return DeviceError("the system allows no more threads", "ulimit -u, or the container, limits them")
    if isinstance(error, RecursionError):
        return InputError("an input is nested too deeply")
    if isinstance(error, UnicodeError):
        return InputError(f"a name or a text does not fit the encoding in use: {error}")
    if not isinstance(error, OSError):
        return None
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    message = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    return OutputError(message) if full else InputError(message)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """How a hint begins: "did you mean NAME? ", the known name nearest to one that is none, or ""."""
    near = get_close_matches(name.lower(), list(known), 1)
    return f"did you mean {near[0]}? " if near else ""


def closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names most similar to `name`, the most similar first.

    Only what follows the last "." of a known name has to be similar, and "lr" stands for "learning_rate".
    """
    word = name.rpartition(".")[2].lower().replace("-", "_")

    def similarity(each: str) -> float:
        last = each.rpartition(".")[2].lower()
        letters = iter(last)
        abbreviated = last[:1] == word[:1] and all(letter in letters for letter in word)
        ratios = (
            SequenceMatcher(None, *both).ratio() for both in ((word, last), (name.lower(), each.lower()))
        )
        return max(ratios) + 0.5 * abbreviated

    return sorted(known, key=similarity, reverse=True)[:count]


def missing_package(error: ImportError) -> str:
    """What to say of a package that is not installed, or is not of the versions that pam takes."""
    what = f"the package {(error.name or '').partition('.')[0]} is not installed"
    if not isinstance(error, ModuleNotFoundError):
        what = f"a package is of a version that pam cannot use: {error}"
    return f"{what} (pip check lists what pam lacks; pip install brings it, without --no-deps)"


def suggest_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra into the environment of this program."""
    marker = re.compile(rf"""([\w.-]+).*;\s*extra == ['"]{extra}['"]""")
    try:
        found = [marker.match(each) for each in importlib.metadata.requires("pamcli") or ()]
    except importlib.metadata.PackageNotFoundError:
        found = []
    packages = " ".join(each[1] for each in found if each) or f"'pamcli[{extra}]'"
    if "pipx" in Path(sys.prefix).parts:
        return f"pipx inject pamcli {packages}"
    python = sys.executable if sys.platform == "win32" else shlex.quote(sys.executable or "python")
    if importlib.util.find_spec("pip") is None:  # environments of uv
        return f"uv pip install --python {python} {packages}"
    return f"{python} -m pip install {packages}"
