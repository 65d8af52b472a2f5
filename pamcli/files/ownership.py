"""One process writes into a folder at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pamcli.errors import UsageError
from pamcli.files.atomic import explained
from pamcli.files.finding import shown


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Make the folder and keep other processes that ask for it out; goes again where it is left empty.

    The lock is the operating system's, on the folder itself: it ends with its holder, however that ends, and
    leaves no file. Where there is none (Windows, some network drives) nothing is kept out.
    Raises UsageError: another process has it; OutputError: it cannot be made.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(folder, error) from error
    descriptor = _locked(folder)
    try:
        yield
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()  # fails where it holds something
        if descriptor is not None:
            os.close(descriptor)


def _locked(folder: Path) -> int | None:
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise explained(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        raise UsageError(
            f"another process{_holder(inode)} is writing into {shown(folder)}",
            "wait for it, or name another folder",
        ) from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def _holder(inode: int) -> str:
    """The words " (process N)", where there are lines "1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF"."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode) and fields[-4].isdigit():
                return f" (process {fields[-4]})" if fields[-4] != "0" else ""
    return ""
