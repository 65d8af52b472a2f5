"""Files that appear whole or not at all, in a folder that one process writes into at a time."""

import errno
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pamcli.errors import OutputError, UsageError
from pamcli.files.paths import quote

_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space or write to another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder that you may write to"),
    errno.ENAMETOOLONG: "choose a shorter file name",
    errno.ENXIO: "it is a pipe without a reader",
}

_HELD: dict[Path, int] = {}
"""Pipes that were found to be read. To their reader, the first writer to close one would be the end."""


def check_writable(path: Path) -> None:
    """Raise OutputError where `write_atomically` would because of the name or the folder.

    To be asked before the work is done; nothing is made.
    """
    with report_write_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise OutputError(f"cannot write {path}: it is a folder", "name a file")
        if stat.S_ISFIFO(mode):
            _hold(path)
            return
    folder = Path(os.path.realpath(path)).parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise convert_os_error(path, NotADirectoryError())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise convert_os_error(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    with report_write_errors(
        path
    ):  # os.access knows nothing of folders such as /proc, in which no file can be made
        descriptor, trial = tempfile.mkstemp(prefix=".pam-", suffix=".tmp", dir=folder)
        os.close(descriptor)
        os.unlink(trial)


def _hold(path: Path) -> None:
    """Open a pipe until it is written to. Raises OSError: within a second no process has begun to read it."""
    if path in _HELD:
        return
    for _ in range(20):
        with suppress(OSError):
            _HELD[path] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            return
        time.sleep(0.05)
    _HELD[path] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`: into a temporary file in the same folder, which is then renamed.

    Until the rename, a file that stood at `path` before stays as it was; whatever goes wrong, including
    Ctrl-C, the temporary file is removed. Missing parent folders are made. A symbolic link is followed, and
    a device or a pipe is written to, not replaced.

    Raises OutputError: disk full, no permission, a folder stands at `path`, a parent is a file, and so on.
    """
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise OutputError(f"cannot write {path}: it is a folder", "name a file")
        if stat.S_ISFIFO(mode):
            _hold(path)
        if not stat.S_ISREG(mode):
            path.write_bytes(data)
            if (held := _HELD.pop(path, None)) is not None:
                os.close(held)
            return
        with replace_atomically(path) as temporary:
            # Not tempfile.mkstemp: its 0600 would outlive the rename, while here the umask decides.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with open(os.open(temporary, flags, 0o666), "wb") as stream:
                stream.write(data)
    except ValueError as error:  # a NUL character in the path
        raise OutputError(f"cannot write {str(path)!r}: {error}") from error
    except OSError as error:
        raise convert_os_error(path, error) from error


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """A new name beside `path`, which is renamed to it when all went well, and removed when not.

    A symbolic link is followed, missing parent folders are made. Raises OutputError.
    """
    target = Path(os.path.realpath(path))
    # Its length does not grow with the target's, which may already be as long as a name can be.
    temporary = target.with_name(f".pam-{secrets.token_hex(8)}.tmp")
    with report_write_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


class FolderGoneError(OutputError):
    """A folder has gone, and with it results of this run."""


def require_folder(folder: Path, holds: str = ".") -> None:
    """Raise GoneError where a folder that held results, and this one among them, is not there."""
    if not (folder / holds).exists():
        raise FolderGoneError(f"the folder {folder} is gone, and results of this run with it", "begin anew")


def convert_os_error(path: Path, error: OSError) -> OutputError:
    """What is wrong with writing to a path, in plain words and with what to do about it."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return OutputError(
            f"cannot write {path}: a part of its folder is a file", "name a folder, or a new one to be made"
        )
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path}: {reason[:1].lower()}{reason[1:]}", _HINTS.get(error.errno or 0))


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into an OutputError that names the path."""
    try:
        yield
    except OSError as error:
        raise convert_os_error(path, error) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder and keep other processes that ask for it out; goes again where it is left empty.

    The lock is the operating system's, on the folder itself: it ends with its holder, however that ends, and
    leaves no file. Where there is none (Windows, some network drives) nothing is kept out.
    Raises UsageError: another process has it, it is a file; OutputError: it cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{quote(folder)} is a file", "name a folder")
    made = not folder.exists()
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
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
    """Lock a folder. Raises OSError, UsageError."""
    if sys.platform == "win32":
        return None
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        said = f"another process{_holder(inode)} is writing into {quote(folder)}"
        raise UsageError(said, "wait for it, or name another folder") from None
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
