"""Define the errors that users can cause, with their exit codes.

The command line prints a `PamError` as one line: `message`, then `hint`, which says what to do. Hints name
settings in backticks (`max_pixels`), which the command line shows as options.
"""

import errno
import importlib
import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import Any

SIMILAR = 0.7  # least similarity of names, from 0 to 1, for a suggestion

_EXTRAS = {  # optional packages, with the extra that installs each, and the message if it is missing
    "av": ("video", "videos require PyAV"),
    "OpenEXR": ("exr", "OpenEXR files require the package OpenEXR"),
    "laspy": ("las", "LAS and LAZ files require laspy"),
    "pillow_heif": ("heif", "HEIC photos require pillow-heif"),
    "rerun": ("rerun", "`rerun` requires the package rerun-sdk"),
    "rosbags": ("ros", "ROS bags require the package rosbags"),
}


class PamError(Exception):
    """An error with a message, a hint and an exit code."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(PamError):  # invalid or incompatible options, images that cannot be paired, existing outputs
    exit_code = 2


class InputError(PamError):  # an unreadable or invalid input
    exit_code = 3


class ModelError(PamError):  # unknown, missing, damaged or unreachable weights, or a network that fails
    exit_code = 4


class DeviceError(PamError):  # a missing device or feature of a device, or too little memory
    exit_code = 5


class OutputError(PamError):  # a result that cannot be written: disk full, no permission, missing directory
    exit_code = 7


class DiskFullError(OutputError):
    """There is no space for a result."""


BATCH_FAILED = 6  # exit code of a batch in which at least one pair failed


_SHORT_OF_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|bad_alloc|could not create a primitive", re.IGNORECASE
)


def convert_system_error(error: Exception) -> PamError | None:
    """Return a PamError for an error of the operating system, whatever its class; None for other errors."""
    if isinstance(error, MemoryError) or _SHORT_OF_MEMORY.search(str(error)):
        reason = f": {error}" if isinstance(error, MemoryError) and str(error) else ""
        return DeviceError(f"not enough memory{reason}", "use smaller images")
    if "can't start new thread" in str(error):
        return DeviceError("cannot start more threads", "raise the limit of ulimit -u, or of the container")
    if isinstance(error, RecursionError):
        return InputError("an input is nested too deeply")
    if isinstance(error, UnicodeError):
        return InputError(f"cannot convert a name or text between encodings: {error}")
    if not isinstance(error, OSError):
        return None
    message = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
    return OutputError(message) if is_full else InputError(message)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean NAME? " for the most similar known name, or "", to start a hint with."""
    near = get_close_matches(name.lower(), list(known), 1)
    return f"did you mean {near[0]}? " if near else ""


def find_closest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names similar to `name`; "lr" and "batch_size" mean "learning_rate" and "batch"."""
    words = name.rpartition(".")[2].lower().replace("-", "_").split("_")

    def similarity(each: str) -> float:
        others = each.rpartition(".")[2].lower().split("_")
        given, other = "".join(words), "".join(others)
        is_initials = given == "".join(part[:1] for part in others)
        is_part = other.startswith(given) or {*words} <= {*others} or {*others} <= {*words}
        ratio = SequenceMatcher(None, given, other).ratio()
        whole = SequenceMatcher(None, name.lower(), each.lower()).ratio()  # orders names of equal last parts
        return max(ratio, 0.9 * is_part, 0.9 * is_initials) + 0.05 * whole

    found = sorted(((similarity(each), each) for each in known), reverse=True)
    return [each for score, each in found[:count] if score >= SIMILAR]


def describe_missing_package(error: ImportError) -> str:
    """Return the message for a package that is missing or has an unsupported version."""
    what = f"the package {(error.name or '').partition('.')[0]} is not installed"
    if not isinstance(error, ModuleNotFoundError):
        what = f"the version of a package is not supported: {error}"
    return f"{what} (list missing packages: pip check; install pam without --no-deps)"


def import_extra(module: str) -> Any:
    """Import a module of an optional package. Raises UsageError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        extra, message = _EXTRAS[module.partition(".")[0]]
        raise UsageError(message, suggest_extra(extra)) from None


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
