"""How do the commands talk? Results go to stdout, everything else to stderr."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import typer

from pamcli.cli.progress import Bar, Lines
from pamcli.errors import BATCH_FAILED, OutputError, UsageError
from pamcli.files.paths import escape_line
from pamcli.reporting import SILENT
from pamcli.settings.options import Settings, flag

if TYPE_CHECKING:
    from pamcli.batch.jobs import Result
    from pamcli.batch.run import Batch

CLOSED_PIPE = 141
"""Exit code when stdout is read no more, as of a program that SIGPIPE stops."""


STDOUT = "standard output"
_SIGNALS = signal.SIGINT, signal.SIGTERM


def guard_streams() -> None:
    """Make stdout and stderr end the program properly where they cannot be written to."""
    codecs.register_error("file names", _as_named)
    sys.stdout = _guarded(sys.stdout, STDOUT, "file names")
    sys.stderr = _guarded(sys.stderr, "standard error", "backslashreplace")


def _as_named(error: UnicodeError) -> tuple[bytes, int]:
    """What the encoding of stdout does not have goes out as it does in names of files."""
    assert isinstance(error, UnicodeEncodeError)
    return os.fsencode(error.object[error.start : error.end]), error.end


def _guarded(stream: TextIO | None, name: str, errors: str) -> TextIO:
    if stream is None:  # closed by the caller
        return open(os.devnull, "w", encoding="utf-8")
    raw = _StandardStream(stream.fileno(), "wb", closefd=False)
    raw.name = name
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, errors, line_buffering=bool(stream.line_buffering)
    )


class _StandardStream(io.FileIO):
    def write(self, data: Any) -> int:
        """Ends the program quietly when the reader has gone (`| head`); raises OutputError for the rest.

        Of stderr only words are lost, without which the results are complete.
        """
        try:
            return super().write(data) or 0
        except OSError as error:
            # What is still buffered goes nowhere, or the interpreter would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                sys.exit(CLOSED_PIPE)
            if self.name != STDOUT:
                return len(data)
            raise OutputError(f"cannot write to {self.name}: {error.strerror}") from error


def complain(message: str, error: BaseException | None = None) -> None:
    """An error, on one line of stderr; with PAM_TRACEBACK=1 after where it came from."""
    if error is not None and os.environ.get("PAM_TRACEBACK"):
        traceback.print_exception(error)
    _say(f"error: {message}")


def as_options(text: str) -> str:
    """What the library calls `max_pixels` is --max-pixels on the command line."""
    # A mark inside of a name of a file stays.
    return re.sub(r"(?<![\w./])`([a-z_]+)`(?![\w./])", lambda word: "--" + word[1].replace("_", "-"), text)


def _say(message: str) -> None:
    print(f"pam: {escape_line(as_options(message))}", file=sys.stderr, flush=True)


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """What Ctrl-C and SIGTERM do meanwhile, each unless the program was started with it ignored."""
    before = dict(zip(_SIGNALS, map(signal.getsignal, _SIGNALS), strict=True))
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Console(Settings, panel="Messages"):
    """How talkative a command is, and in which form its results come."""

    jsonl: bool = flag(
        "Print one JSON object per pair instead of the paths of results.", rich_help_panel="Output"
    )
    quiet: bool = flag("Print only warnings and errors.", "-q")
    verbose: bool = flag("Print details of the processing.", "-v")

    @property
    def draws(self) -> bool:
        """Whether progress is shown: on a terminal, unless `quiet`."""
        return not self.quiet and sys.stderr.isatty()

    def result(self, line: str) -> None:
        """A line of stdout, delivered at once; what would break it or command the terminal is escaped."""
        self.block(escape_line(line))

    def block(self, text: str) -> None:
        """Print several lines of stdout, escaped and delivered as `result` does."""
        print("\n".join(map(escape_line, text.split("\n"))), flush=True)

    def path(self, path: Path) -> None:
        """The path of a result: as it is for programs, who use it; escaped on a terminal."""
        print(escape_line(str(path)) if sys.stdout.isatty() else path, flush=True)

    def record(self, values: dict[str, Any]) -> None:
        """A JSON object on a line of stdout. Paths are written as text, numbers that JSON lacks as null."""
        text = json.dumps(values, default=os.fspath)
        self.result(json.dumps(json.loads(text, parse_constant=lambda name: None)))

    def answer(self, values: dict[str, Any], *lines: str) -> None:
        """The values as JSON with `jsonl`, else the lines, which say the same to a person."""
        if self.jsonl:
            self.record(values)
        else:
            for line in lines:
                self.result(line)

    def binary(self, data: bytes) -> None:
        """Bytes to stdout."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def error(self, message: str, error: BaseException | None = None) -> None:
        complain(message, error)

    def warn(self, message: str) -> None:
        _say(f"warning: {message}")

    def inform(self, message: str) -> None:
        """What a person likes to know, unless `quiet`."""
        if not self.quiet:
            _say(message)

    def detail(self, message: str) -> None:
        """What only `verbose` asks for."""
        if self.verbose:
            _say(message)

    @contextmanager
    def starting(self, what: str) -> Iterator[None]:
        """While libraries and a network are loaded: a terminal shows it; Ctrl-C and SIGTERM end silently.

        An exception in the middle of a library's import may become any other, or a traceback.
        """
        if self.draws:
            _say(f"loading {what} ...")
        alone = threading.current_thread() is threading.main_thread()
        with on_signals(lambda number, frame: os._exit(128 + number)) if alone else nullcontext():
            yield

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Any]:
        """Show progress on stderr: a bar with rate and time left, or a line a minute where it is no terminal.

        Nothing with `quiet`.
        """
        if not self.draws:
            yield SILENT if self.quiet else Lines(self.inform, what, total)
            return
        from rich import progress as rich
        from rich.console import Console as Terminal

        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()]
        columns += [
            rich.TextColumn("{task.fields[rate]}"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("passed"),
        ]
        # Results that go to a pipe must not be caught for display above the bar.
        terminal = Terminal(stderr=True)
        with rich.Progress(*columns, console=terminal, redirect_stdout=sys.stdout.isatty()) as drawn:
            bar = Bar(drawn, what, total)
            try:
                yield bar
            finally:
                bar.end()


def listen(console: Console) -> Console:
    """Have a console say what the library logs, and nothing twice; return it."""
    import logging  # not for `pam --help`

    levels = {"DEBUG": console.detail, "INFO": console.inform, "WARNING": console.warn}

    def emit(record: logging.LogRecord) -> None:
        levels.get(record.levelname, console.error)(record.getMessage())

    handler, log = logging.Handler(), logging.getLogger("pamcli")
    handler.emit = emit  # type: ignore[method-assign]
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.DEBUG)
    # The Hub's library talks on stderr, too: what is wrong comes from pam, once. A value that is set stays.
    if not console.verbose:
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if console.quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return console


MANY = 10
"""Pairs from which on their number per second says something."""


def run_batch(files: Callable[..., Batch], settings: Any, console: Console, *, loading: Any = None) -> None:
    """Process a batch and tell of it; exit with 6 when a pair of several failed.

    files: makes it of the settings. loading: the network's name. The error of a pair that was named by itself
    is raised. Paths of videos come last. Raises UsageError: a result that cannot go to stdout.
    """
    listen(console)
    for name, place in vars(settings).items():
        if place == "-" and name not in ("pairs", "inputs"):
            if console.jsonl:
                message = f"`{name}` - and `jsonl` would both go to stdout"
                raise UsageError(message, "drop one of them")
            if sys.stdout.isatty():
                message = f"`{name}` - would write binary data to the terminal"
                raise UsageError(message, "pipe it, or name a file")
    batch = files(settings)
    if loading is not None and settings.engine != "ray":
        with console.starting(str(loading)):
            batch.start()
    counts, began = {"ok": 0, "skipped": 0, "failed": 0}, time.monotonic()
    try:
        with console.progress("pairs", batch.total) as bar:
            batch.bar = None if console.quiet else bar
            with closing(iter(batch)) as results:
                for each in results:
                    counts[each.status] += 1
                    report(each, console, alone=not batch.many)
    except (KeyboardInterrupt, SystemExit) as stop:
        if batch.many and getattr(stop, "code", None) != CLOSED_PIPE:
            console.inform(f"stopped after {summary(counts)}; {batch.resume_hint}")
        raise
    if not console.jsonl:
        for path in batch.made:
            console.path(path)
    shard = settings.shard
    if shard is not None and not any(counts.values()):
        console.inform(f"shard {shard[0]}/{shard[1]} is empty: the batch has fewer pairs")
    elif batch.many or shard is not None:
        rate = counts["ok"] / (time.monotonic() - began)
        console.inform(summary(counts) + (f", {rate:.2f} pairs/s" if counts["ok"] >= MANY else ""))
    if counts["failed"] and batch.many:
        raise typer.Exit(BATCH_FAILED)


def report(outcome: Result, console: Console, *, alone: bool) -> None:
    """Print what became of a pair; the error of one that was named by itself is raised."""
    job, error = outcome.job, outcome.error
    for warning in outcome.warnings:
        console.warn(f"{job.names[0]}: {warning}")
    if error is not None and job.names:
        files = [*job.names, *map(str, job.places.values())]
        if not any(name in str(error) for name in files):
            error.message = f"{job.names[0]}: {error.message}"
    if console.jsonl:
        console.record(outcome.record(as_options))
    elif outcome.data is not None:
        console.binary(outcome.data)
    elif outcome.status == "ok":
        for name, path in outcome.outputs.items():
            if name not in job.videos:  # which are there at the end
                console.path(path)
    if outcome.status == "skipped":
        console.detail(f"{job.names[0]}: every result exists, skipped")
    if error is not None:
        if alone:
            raise error
        console.error(str(error), error)


def summary(counts: dict[str, int]) -> str:
    """Say how many pairs went how."""
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no pairs"


JSON = flag("Print one JSON object instead of text.", rich_help_panel="Output")
"""What commands with one answer take; those whose answer is a list take JSONL:"""
JSONL = flag("Print JSON instead of text, one object per line.", rich_help_panel="Output")


class Quiet(Settings, panel="Messages"):
    """How much is said, for commands without details."""

    quiet: bool = flag("Print only warnings and errors.", "-q")

    def console(self, *, jsonl: bool = False) -> Console:
        """Return the console that talks so, for the library, too. jsonl: results are to be JSON."""
        return listen(Console(quiet=self.quiet, verbose=getattr(self, "verbose", False), jsonl=jsonl))


class Messages(Quiet):
    """How much is said."""

    verbose: bool = flag("Print details of the processing.", "-v")
