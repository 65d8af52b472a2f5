"""Write files atomically, and lock a folder for one process at a time."""

import errno
import os
import platform
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pamcli.errors import DiskFullError, OutputError, UsageError
from pamcli.files.paths import quote
from pamcli.systems import is_running, lock, rename_to_new

_FULL = errno.ENOSPC, errno.EDQUOT
_HINTS = {
    **dict.fromkeys(_FULL, "free some space or write to another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder with write permission"),
    errno.ENAMETOOLONG: "choose a shorter file name",
    errno.ENXIO: "it is a pipe without a reader",
}

_OPEN_PIPES: dict[Path, int] = {}
"""Pipes with a reader. They stay open until they are written, as closing one would end its reader."""


_CLEANED: set[Path] = set()
"""Folders from which this process has removed the temporary files of processes that were killed."""


class FolderGoneError(OutputError):
    """A folder with results of this run was removed."""


class FileInTheWayError(UsageError):
    """A result of another process appeared while this one was computed."""


def check_writable(path: Path) -> None:
    """Check before any work that `path` can be written; nothing is created. Raises OutputError."""
    with report_write_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise OutputError(f"cannot write {path}: it is a folder", "choose a file name")
        if stat.S_ISFIFO(mode):
            _open_pipe(path)
            return
    folder = Path(os.path.realpath(path)).parent
    while not os.path.lexists(folder):
        folder = folder.parent
    with report_write_errors(path):
        if not folder.is_dir():
            raise NotADirectoryError
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # os.access does not know folders such as /proc, in which no file can be created.
        trial = folder / _temporary_name()
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL))
        os.unlink(trial)
    if folder not in _CLEANED:
        _CLEANED.add(folder)
        remove_abandoned_files(folder)


def remove_abandoned_files(folder: Path) -> None:
    """Remove temporary files of processes that were killed on this machine; ignore files that cannot be."""
    mine, _, _ = _temporary_name().rpartition(f"{os.getpid()}-")
    with suppress(OSError):
        for path in folder.glob(f"{mine}*.tmp"):
            owner = re.fullmatch(r"(\d+)-[0-9a-f]+\.tmp", path.name.removeprefix(mine))
            if owner and not is_running(int(owner[1])):
                path.unlink()


def _temporary_name() -> str:
    """Return a new name for a temporary file, with a checksum of the machine and the number of the process.

    Its length does not depend on the name of the result, which may be the longest possible.
    """
    machine = platform.node()
    with suppress(OSError):  # containers may share a host name, and number their own processes
        machine += os.readlink("/proc/self/ns/pid")
    return f".pam-{zlib.crc32(machine.encode()):x}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _open_pipe(path: Path) -> None:
    """Open a pipe until it is written. Raises OSError if no process reads it within a second."""
    if path in _OPEN_PIPES:
        return
    for _ in range(20):
        with suppress(OSError):
            _OPEN_PIPES[path] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            return
        time.sleep(0.05)
    _OPEN_PIPES[path] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)


def write_atomically(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    """Write `data` to a temporary file beside `path`, then rename it.

    Missing folders are created, symbolic links followed; devices and pipes are not replaced. Raises
    OutputError, and FileInTheWayError if the file exists and `overwrite` is false.
    """
    try:
        with report_write_errors(path):
            mode = path.stat().st_mode if path.exists() else stat.S_IFREG
            if stat.S_ISDIR(mode):
                raise OutputError(f"cannot write {path}: it is a folder", "choose a file name")
            if stat.S_ISFIFO(mode):
                _open_pipe(path)
            if not stat.S_ISREG(mode):
                path.write_bytes(data)
                if (pipe := _OPEN_PIPES.pop(path, None)) is not None:
                    os.close(pipe)
                return
            with replace_atomically(path, overwrite=overwrite) as temporary:
                # tempfile.mkstemp would set the mode 0600, which outlives the rename; here the umask decides.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
                with open(os.open(temporary, flags, 0o666), "wb") as stream:
                    stream.write(data)
    except ValueError as error:  # a NUL character in the path
        raise OutputError(f"cannot write {str(path)!r}: {error}") from error


@contextmanager
def replace_atomically(path: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary file name beside `path`, renamed to it on success and removed on failure.

    Raises OutputError, and FileInTheWayError if the file exists and `overwrite` is false.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(_temporary_name())
    with report_write_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            if overwrite:
                os.replace(temporary, target)
            else:
                _rename_to_new(temporary, target, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _rename_to_new(temporary: Path, target: Path, path: Path) -> None:
    """Rename a file by an operation that fails if the new name exists, even since a moment ago."""
    try:
        rename_to_new(temporary, target)
    except FileExistsError:
        message = f"{quote(path)} already exists: another process has written it meanwhile"
        raise FileInTheWayError(message, "use `overwrite` to replace it") from None


def require_folder(folder: Path, holds: str = ".") -> None:
    """Raise FolderGoneError if a folder with results, or its file `holds`, is missing."""
    if not (folder / holds).exists():
        raise FolderGoneError(f"the folder {folder} with results of this run was removed", "start again")


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError into an OutputError that names the path."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        reason = f"cannot write {path}: a part of its folder is a file"
        raise OutputError(reason, "choose another folder") from error
    except OSError as error:
        reason, hint = error.strerror or str(error), _HINTS.get(error.errno or 0)
        kind = DiskFullError if error.errno in _FULL else OutputError
        raise kind(f"cannot write {path}: {reason[:1].lower()}{reason[1:]}", hint) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create a folder and lock it against other processes; remove it if it stays empty.

    The lock is one of the operating system on the folder itself: it ends with its process and leaves no file.
    Raises UsageError if another process holds it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{quote(folder)} is a file", "choose a folder")
    existed = folder.exists()
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = acquire_lock(folder)
    try:
        yield
    finally:
        if not existed:
            with suppress(OSError):
                folder.rmdir()  # fails if it holds something
        if descriptor is not None:
            os.close(descriptor)


def acquire_lock(folder: Path, *, wait: bool = False) -> int | None:
    """Return a descriptor whose closing releases the lock; None if the system has no locks."""
    try:
        return lock(folder, wait=wait)
    except BlockingIOError as error:
        reason = f"another process{_find_lock_holder(error.args[0])} is writing into {quote(folder)}"
        raise UsageError(reason, "wait for it, or choose another folder") from None


def _find_lock_holder(inode: int) -> str:
    """Return " (process N)" from lines such as "1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF", or ""."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines():
            fields = line.split()
            if "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode) and fields[-4].isdigit():
                return f" (process {fields[-4]})" if fields[-4] != "0" else ""
    return ""
