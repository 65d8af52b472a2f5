"""Hold what differs between Linux, macOS and Windows; only Linux is tested.

A feature is detected where it is used, not derived from the system's name. Files of /proc, which only Linux
has, are read where their absence does no harm.
"""

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IGNORES_CASE = sys.platform.startswith(("darwin", "win"))  # A.png and a.png are usually one file
TERMINATIONS = signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)
"""Signals that end the program like Ctrl-C; Windows has no SIGHUP."""


def count_cores() -> int:
    """Return the number of cores that this process may use; macOS and Windows have no such limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_address_space() -> float:
    """Return the limit of this process's address space, MB; infinite on Windows."""
    try:
        import resource
    except ImportError:
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit // 10**6


def get_peak_memory() -> int:
    """Return the peak memory of this process, bytes; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def is_running(process: int) -> bool:
    """Return whether a process exists; True on Windows, where the question would end the process."""
    if sys.platform != "win32":
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # a process of another user
            pass
    return True


def rename_to_new(source: Path, target: Path) -> None:
    """Rename a file; raise FileExistsError if the target exists, even since a moment ago."""
    if sys.platform == "win32":
        os.rename(source, target)
        return
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        try:
            os.replace(source, target)
        except BaseException:
            target.unlink()
            raise
    else:
        source.unlink(missing_ok=True)


def lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder; return a descriptor whose closing releases it, None if the system has no such locks.

    Raises BlockingIOError, with the inode of the folder, if another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        raise BlockingIOError(inode) from error
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def shield_signals() -> Iterator[None]:
    """Block SIGINT in processes started meanwhile, and keep the handler of SIGCHLD. Not on Windows.

    This process receives SIGINT afterwards. Libraries that start processes replace the other's handler.
    """
    # Only the main process decides about SIGINT; a handler would be too late, after the imports of a start.
    set_mask: Any = getattr(signal, "pthread_sigmask", None)
    if set_mask is None:
        yield
        return
    mask, handler = set_mask(signal.SIG_BLOCK, {signal.SIGINT}), signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if handler is not None:
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGCHLD, handler)
        set_mask(signal.SIG_SETMASK, mask)
