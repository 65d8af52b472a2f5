"""The program `pam` as a user runs it: arguments and stdin in; exit code, stdout, stderr and files out."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import IO, Any

import pytest
from pam_without_network import replace_networks

from pamcli.cli import main
from pamcli.systems import TERMINATIONS

WITHOUT_NETWORK = str(Path(__file__).with_name("pam_without_network.py"))


@dataclass(frozen=True)
class Run:
    """What a finished run of `pam` left."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Lines of stdout."""
        return self.stdout.decode().splitlines()

    @property
    def records(self) -> list[dict[str, Any]]:
        """JSON objects on stdout."""
        return [json.loads(line) for line in self.lines]

    @property
    def complaints(self) -> list[str]:
        """Lines of stderr, without the name of the program."""
        lines = self.stderr.splitlines()
        assert all(line.startswith("pam: ") for line in lines), self.stderr
        return [line.removeprefix("pam: ") for line in lines]


def pam(command: str = "", *arguments: str | Path, stdin: bytes = b"") -> Run:
    """Run `pam` in this process and the current folder. command: the first words, as in a shell."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with pytest.MonkeyPatch.context() as patch:
            for name, file in (("stdin", given), ("stdout", out), ("stderr", err)):
                mode = "r" if file is given else "w"
                stream = open(file.fileno(), mode, encoding="utf-8", closefd=False)  # noqa: SIM115
                patch.setattr(sys, name, stream)
            patch.setattr(sys, "argv", ["pam", *shlex.split(command), *map(str, arguments)])
            patch.setattr(sys, "warnoptions", ["error"])  # main leaves the filters of the tests alone
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATIONS)}
            try:
                with pytest.raises(SystemExit) as end:
                    main()
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
            sys.stdout.flush()
            sys.stderr.flush()
        code = end.value.code or 0
        assert isinstance(code, int)
        return Run(code, _content(out), _content(err).decode())


def succeed(command: str = "", *arguments: str | Path, stdin: bytes = b"") -> Run:
    """Run `pam` as `pam` does, and assert that it ends with 0."""
    run = pam(command, *arguments, stdin=stdin)
    assert run.code == 0, run.stderr
    return run


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def command_line(*arguments: str | Path) -> list[str]:
    """The words that start `pam`, which starts quickly and finds made-up disparities."""
    return [sys.executable, "-P", WITHOUT_NETWORK, *map(str, arguments)]


@contextmanager
def process(*arguments: str | Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`pam` as a process of its own, that ends with the context; where it hangs it is killed."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command_line(*arguments), **{**pipes, **more}) as running:
        watchdog = threading.Timer(300, running.kill)
        watchdog.start()
        try:
            yield running
        finally:
            watchdog.cancel()
            running.kill()


@contextmanager
def forked(
    *arguments: str | Path, prepare: Callable[[], None] | None = None, **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command as `process` does, with networks: fork this process, which has the libraries loaded.

    prepare: called in the new process, in the environment of the command.
    """
    environment = more.pop("env", {})

    def be_pam() -> None:
        code: Any = 99
        try:
            gc.freeze()  # garbage of earlier tests may own threads, which do not exist here
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # Popen waits for its pipe: from here on signals come
            tracker = resource_tracker._resource_tracker  # whose pipe, if an earlier test began it, is closed
            tracker._fd = tracker._pid = None
            os.environ.update(environment)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as at each start of Python
            if prepare:
                prepare()
            sys.argv, sys.warnoptions = ["pam", *map(str, arguments)], ["error"]
            sys.stdin, sys.stdout, sys.stderr = (
                open(number, mode, closefd=False)  # noqa: SIM115
                for number, mode in enumerate("rww")
            )
            main()
        except KeyboardInterrupt:  # before main listens, which a real one does from its first lines on
            code = 130
        except SystemExit as end:
            code = end.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which libraries have started and wait
        with process(*arguments, preexec_fn=be_pam, **more) as running:
            yield running


def forked_quick(*arguments: str | Path, **more: Any) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start a command as `process` does, with the made-up network, but without the start of a Python."""
    return forked(*arguments, prepare=replace_networks, **more)


@contextmanager
def gate(owner: Any, name: str, after: int) -> Iterator[None]:
    """What is forked meanwhile waits before call number `after` (from 0) of a function until the pipe `gate`
    has been opened for writing, which waits for it, and closed."""
    function, calls = getattr(owner, name), itertools.count()
    os.mkfifo("gate")

    def waiting(*arguments: Any, **more: Any) -> Any:
        if next(calls) == after:
            with open("gate") as closed:
                closed.read()
        return function(*arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, waiting)
        yield
    os.remove("gate")


def answer(run: Run) -> dict[str, Any]:
    """The one JSON object of a run; NaN and Infinity, which JSON has not, fail."""
    assert run.code == 0, run.stderr

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found: dict[str, Any] = json.loads(run.stdout, parse_constant=refused)
    return found


def refuse(run: Run, code: int, *texts: str) -> str:
    """Assert that a run said in one line and with its exit code what is wrong; returns the line."""
    assert run.code == code, run.stderr
    assert run.stdout == b""
    assert len(run.complaints) == 1, run.stderr
    (line,) = run.complaints
    assert line.startswith("error: ")
    assert [text for text in texts if text not in line] == [], line
    assert "unexpected" not in line
    return line


def refuse_all(table: str, *before: str, stdin: bytes = b"") -> None:
    """Assert that each line of a table is refused and changes nothing.

    A line is an exit code, a command (after `before`), and parts of the message: `2 left.png | got 1`.
    """
    wrong = []
    for line in filter(None, map(str.strip, table.splitlines())):
        command, *texts = (part.strip() for part in line.split(" | "))
        code, *words = shlex.split(command)
        try:
            with unchanged():
                refuse(pam(" ".join(before), *words, stdin=stdin), int(code), *texts)
        except AssertionError as error:
            wrong.append(f"{line}: {error}")
    assert not wrong, "\n".join(wrong)


def files(folder: Path) -> dict[str, str | None]:
    """What is below a folder: digests of files, which make differences short; None for what is no file."""
    return {
        str(path.relative_to(folder)): digest(path.read_bytes()) if path.is_file() else None
        for path in folder.rglob("*")
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names(folder: str | Path) -> list[str]:
    """Files below a folder, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


@contextmanager
def unchanged(folder: Path | None = None) -> Iterator[None]:
    """Assert that nothing below a folder (the current one) appears, changes or goes."""
    folder = folder or Path(os.getcwd())
    before = files(folder)
    yield
    assert files(folder) == before
