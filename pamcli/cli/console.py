"""Print results to stdout, and messages and progress to stderr."""

import codecs
import csv
import datetime
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
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from pamcli.errors import OutputError
from pamcli.files.paths import escape_line
from pamcli.reporting import SILENT
from pamcli.settings.options import Settings, flag
from pamcli.systems import TERMINATIONS

CLOSED_PIPE = 141
"""Exit code when the reader of stdout has closed it, like that of a program ended by SIGPIPE."""
STDOUT = "standard output"
SLOW = 2.0
"""Time of a pair after which its rows are shown, s."""
EVERY = 60.0
"""Time between two lines of progress, s."""
LONG = 10.0
"""Remaining time above which the first estimate is printed, s."""


def guard_streams() -> None:
    """Make stdout and stderr end the program cleanly if they cannot be written."""
    codecs.register_error("file names", _encode_as_file_name)
    sys.stdout = _guard(sys.stdout, STDOUT, "file names")
    sys.stderr = _guard(sys.stderr, "standard error", "backslashreplace")


def _encode_as_file_name(error: UnicodeError) -> tuple[bytes, int]:
    """Encode characters that stdout cannot encode as in file names."""
    assert isinstance(error, UnicodeEncodeError)
    return os.fsencode(error.object[error.start : error.end]), error.end


def _guard(stream: TextIO | None, name: str, errors: str) -> TextIO:
    if stream is None:  # closed by the caller
        return open(os.devnull, "w", encoding="utf-8")
    raw = _StandardStream(stream.fileno(), "wb", closefd=False)
    raw.name = name
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, errors, line_buffering=bool(stream.line_buffering)
    )


class _StandardStream(io.FileIO):
    def write(self, data: Any) -> int:
        """End the program quietly if the reader has gone (`| head`); raise OutputError for other errors.

        Errors of stderr are ignored: the results are complete without its messages.
        """
        try:
            return super().write(data) or 0
        except OSError as error:
            # Discard what is still buffered, or the interpreter would print an error at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                sys.exit(CLOSED_PIPE)
            if self.name != STDOUT:
                return len(data)
            raise OutputError(f"cannot write to {self.name}: {error.strerror}") from error


def complain(message: str, error: BaseException | None = None) -> None:
    """Print an error on one line of stderr; with PAM_TRACEBACK=1 after its traceback."""
    if error is not None and os.environ.get("PAM_TRACEBACK"):
        traceback.print_exception(error)
    _say(f"error: {message}")


def format_option_names(text: str) -> str:
    """Replace `max_pixels`, as the library names settings, by --max-pixels."""
    # Backticks inside of file names stay.
    return re.sub(r"(?<![\w./])`([a-z_]+)`(?![\w./])", lambda word: "--" + word[1].replace("_", "-"), text)


def _say(message: str) -> None:
    print(f"pam: {escape_line(format_option_names(message))}", file=sys.stderr, flush=True)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C and `TERMINATIONS` within the block, unless the program was started with them ignored."""
    before = {}
    for number in (signal.SIGINT, *TERMINATIONS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Console(Settings, panel="Messages"):
    """Verbosity of a command, and the form of its results."""

    jsonl: bool = flag(
        "Print JSON instead of text, one object per line.", "--json", "--jsonl", panel="Output"
    )
    quiet: bool = flag("Print only warnings and errors.", "-q")
    verbose: bool = flag("Print details of the processing.", "-v")

    @property
    def has_bar(self) -> bool:
        """A progress bar is shown: on a terminal, unless `quiet`."""
        return not self.quiet and sys.stderr.isatty()

    def result(self, line: str) -> None:
        """Print a line to stdout at once, with control characters escaped."""
        print(escape_line(line), flush=True)

    def block(self, text: str) -> None:
        """Print several lines to stdout, as `result` does."""
        print("\n".join(map(escape_line, text.split("\n"))), flush=True)

    def path(self, path: Path) -> None:
        """Print the path of a result: with `jsonl` as JSON, else escaped on a terminal only."""
        if self.jsonl:
            self.record({"written": path})
            return
        print(escape_line(str(path)) if sys.stdout.isatty() else path, flush=True)

    def record(self, values: dict[str, Any]) -> None:
        """Print a JSON object on a line of stdout, with paths as text, and NaN and infinity as null."""
        text = json.dumps(values, default=os.fspath)
        self.result(json.dumps(json.loads(text, parse_constant=lambda name: None)))

    def table(self, rows: list[dict[str, Any]], *, titles: bool) -> None:
        """Print rows of values as CSV to stdout, with the names of the columns first if `titles`."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if titles:
            writer.writerow(rows[0])
        for row in rows:
            numbers = ((f"{each:.6g}" if isinstance(each, float) else each) for each in row.values())
            writer.writerow("" if each == "nan" else each for each in numbers)
        self.block(text.getvalue().rstrip("\n"))

    def answer(self, values: dict[str, Any], *lines: str) -> None:
        """Print the values as JSON with `jsonl`, else the lines for people."""
        if self.jsonl:
            self.record(values)
        else:
            for line in lines:
                self.result(line)

    def binary(self, data: bytes) -> None:
        """Write bytes to stdout."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def error(self, message: str, error: BaseException | None = None) -> None:
        complain(message, error)

    def warn(self, message: str) -> None:
        _say(f"warning: {message}")

    def inform(self, message: str) -> None:
        """Print a note, unless `quiet`."""
        if not self.quiet:
            _say(message)

    def detail(self, message: str) -> None:
        """Print a detail if `verbose`."""
        if self.verbose:
            _say(message)

    @contextmanager
    def starting(self, what: str) -> Iterator[None]:
        """Report on a terminal what is being loaded, and end silently on Ctrl-C and `TERMINATIONS`.

        An exception during the import of a library may become any other, or a traceback.
        """
        if self.has_bar:
            _say(f"loading {what} ...")
        is_main = threading.current_thread() is threading.main_thread()
        with handle_signals(lambda number, frame: os._exit(128 + number)) if is_main else nullcontext():
            yield

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Any]:
        """Show progress on stderr, unless `quiet`: a bar on a terminal, else a line per minute."""
        if not self.has_bar:
            yield SILENT if self.quiet else Progress(what, total, self.inform, None)
            return
        from rich import progress as rich
        from rich.console import Console as Terminal

        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()]
        columns += [
            rich.TextColumn("{task.fields[rate]}"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("elapsed"),
        ]
        # Rich must not capture results that go to a pipe.
        terminal = Terminal(stderr=True)
        with rich.Progress(*columns, console=terminal, redirect_stdout=sys.stdout.isatty()) as drawn:
            bar = Progress(what, total, self.inform, drawn)
            try:
                yield bar
            finally:
                bar.end()


def listen(console: Console) -> None:
    """Print what the library logs on a console."""
    import logging  # not for `pam --help`

    prints = {"DEBUG": console.detail, "INFO": console.inform, "WARNING": console.warn}
    handler, log = logging.Handler(), logging.getLogger("pamcli")
    handler.emit = lambda record: prints.get(record.levelname, console.error)(record.getMessage())  # type: ignore[method-assign]
    log.handlers, log.propagate = [handler], False
    log.setLevel("DEBUG" if console.verbose else "WARNING" if console.quiet else "INFO")
    # The Hub's library prints errors, too, which pam reports itself.
    if not console.verbose:
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if console.quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


class Progress:
    """Counts finished pairs on a bar of Rich, with another for the rows of a slow pair; else in lines.

    The first line is an estimate of the time, once that is known.
    """

    def __init__(self, what: str, total: int | None, print_line: Callable[[str], None], bar: Any) -> None:
        self.what, self.total, self.completed, self.rate = what, total, 0, ""
        self._print_line, self._bar = print_line, bar
        self._rows: Any = None
        self._task = bar.add_task(what, total=total, rate="") if bar else None
        self._timed, self._began = 0, time.monotonic()
        self._printed, self._estimated = self._began, False
        self._remaining = 0.0
        """Estimated time until the end, s, or 0."""

    def advance(self, *, skipped: bool = False) -> None:
        """Count one more pair. skipped: its results existed, so it took no time."""
        self.completed += 1
        now = time.monotonic()
        if skipped:
            self._began = self._began if self._timed else now
        else:
            self._timed += 1
            each = max(now - self._began, 1e-9) / self._timed
            self.rate = f"{1 / each:.2f} pairs/s" if each <= 1 else f"{each:.1f} s/pair"
            self._expect(each, 0.0)
        self._display()

    def _expect(self, each: float, passed: float) -> None:
        """Estimate the remaining time. each: time per pair, s; passed: time spent on the current pair, s."""
        if self.total is not None and (left := self.total - self.completed) > 0:
            self._remaining = max(left * each - passed, 0.0)
            speed = self.rate.partition(", ")[0] if self._timed else ""
            self.rate = f"{speed}, {_format_seconds(self._remaining)} remaining".removeprefix(", ")

    def expect(self, count: int) -> None:
        """Increase the total by `count`."""
        self.total = (self.total or 0) + count
        self._display()

    def show(self, **values: Any) -> None:
        """Set `completed`, `total` or `rate` of a bar; training prints lines of its own."""
        if self._bar is not None:
            vars(self).update(values)
            self._display()

    def watch(self, rows: int) -> Callable[[float], None]:
        """Return a function that is called with the finished share of a pair of `rows` rows."""
        self.end()
        return partial(self._show_share, rows, time.monotonic())

    def _show_share(self, rows: int, began: float, share: float) -> None:
        passed = time.monotonic() - began
        if 0 < share < 1 and passed > SLOW and not self._timed:
            self._expect(passed / share, passed)
        if share >= 1:
            self.end()
            return
        remaining = f"{_format_seconds(passed / max(share, 1e-9) * (1 - share))} remaining"
        if self._bar is None:
            self._display(f", {share:.0%} of the next one, {self.rate or remaining}")
        elif self._rows is not None or passed > SLOW:
            if self._rows is None:
                self._rows = self._bar.add_task("rows", total=rows, rate="")
            self._bar.update(self._rows, completed=int(share * rows), rate=remaining)
            self._display()

    def end(self) -> None:
        """Remove the bar of the rows."""
        if self._rows is not None:
            self._bar.remove_task(self._rows)
            self._rows = None

    def _display(self, more: str = "") -> None:
        if self._bar is not None:
            rate = self.rate and f"{self.rate}, "
            self._bar.update(self._task, completed=self.completed, total=self.total, rate=rate)
            return
        now, first = time.monotonic(), not self._estimated and self._remaining > LONG
        if (first or now - self._printed >= EVERY) and (self.total is None or self.completed < self.total):
            self._printed, self._estimated = now, self._estimated or first
            of = "" if self.total is None else f" of {self.total}"
            self._print_line(f"{self.what}: {self.completed}{of}{more or (self.rate and f', {self.rate}')}")


def _format_seconds(count: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=round(count))
