"""Print results to stdout, and messages and progress to stderr."""

import codecs
import csv
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
from pamcli.errors import BATCH_FAILED, DiskFullError, OutputError, UsageError
from pamcli.files.paths import escape_line
from pamcli.reporting import SILENT
from pamcli.settings.options import Settings, flag
from pamcli.systems import TERMINATIONS

if TYPE_CHECKING:
    from pamcli.batch.jobs import Result
    from pamcli.batch.run import Batch

CLOSED_PIPE = 141
"""Exit code when the reader of stdout has closed it, like that of a program ended by SIGPIPE."""
STDOUT = "standard output"


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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATIONS)}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
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
            yield SILENT if self.quiet else Lines(self.inform, what, total)
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
            bar = Bar(drawn, what, total)
            try:
                yield bar
            finally:
                bar.end()


def listen(console: Console) -> Console:
    """Print what the library logs on a console, and return it."""
    import logging  # not for `pam --help`

    levels = {"DEBUG": console.detail, "INFO": console.inform, "WARNING": console.warn}

    def emit(record: logging.LogRecord) -> None:
        levels.get(record.levelname, console.error)(record.getMessage())

    handler, log = logging.Handler(), logging.getLogger("pamcli")
    handler.emit = emit  # type: ignore[method-assign]
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.DEBUG)
    # The Hub's library prints errors, too, which pam reports itself.
    if not console.verbose:
        os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if console.quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return console


MANY = 10
"""Smallest number of pairs for which their rate is reported."""


def run_batch(batch: "Batch", console: Console, *, network: str | Path | None = None) -> None:
    """Process a batch and report it; exit with 6 if a pair failed, or raise the error of a single pair.

    network: name of the network, if there is one. Raises UsageError for a result that cannot go to stdout.
    """
    plan = batch.plan
    for name, place in vars(plan.settings).items() if plan.returned else ():
        if place == "-" and name not in ("pairs", "inputs"):
            if console.jsonl:
                message = f"cannot write both `{name}` - and `jsonl` to stdout"
                raise UsageError(message, "drop one of them")
            if sys.stdout.isatty():
                message = f"`{name}` - cannot write binary data to a terminal"
                raise UsageError(message, "use a pipe, or name a file")
    if network is not None and not plan.uses_ray:
        with console.starting(str(network)):
            batch.start()
    has_titles, counts, began = False, {"ok": 0, "skipped": 0, "failed": 0}, time.monotonic()
    try:
        with console.progress("pairs", plan.total) as bar:
            batch.bar = None if console.quiet else bar
            with closing(iter(batch)) as results:
                for each in results:
                    counts[each.status] += 1
                    report(each, console, alone=not plan.many)
                    rows = each.facts.get("distances")
                    if rows and not console.jsonl:
                        named = [{"image": each.job.names[0], **row} for row in rows]
                        console.table(named, titles=not has_titles)
                        has_titles = True
    except (KeyboardInterrupt, SystemExit, DiskFullError) as stop:
        if plan.many and getattr(stop, "code", None) != CLOSED_PIPE:
            console.inform(f"stopped after {summary(counts)}; {batch.resume_hint}")
        raise
    if not console.jsonl:
        for path in batch.made:
            console.inform(str(path)) if has_titles else console.path(path)
    shard = plan.shard
    if shard is not None and not any(counts.values()):
        console.inform(f"shard {shard[0]}/{shard[1]} is empty: the batch has fewer pairs")
    elif plan.many or shard is not None:
        rate = counts["ok"] / (time.monotonic() - began)
        console.inform(summary(counts) + (f", {rate:.2f} pairs/s" if counts["ok"] >= MANY else ""))
    if counts["failed"] and plan.many:
        raise typer.Exit(BATCH_FAILED)


def report(result: "Result", console: Console, *, alone: bool) -> None:
    """Report the result of a pair; raise its error if it is the only one."""
    job, error = result.job, result.error
    for warning in result.warnings:
        console.warn(f"{job.names[0]}: {warning}")
    if error is not None and job.names:
        files = [*job.names, *map(str, job.places.values())]
        if not any(name in str(error) for name in files):
            error.message = f"{job.names[0]}: {error.message}"
    if console.jsonl:
        console.record(result.record(format_option_names))
    elif result.data is not None:
        console.binary(result.data)
    elif result.status == "ok":
        for name, path in result.outputs.items():
            if name not in job.videos:  # they are finished at the end
                # stdout holds the table of distances alone
                console.inform(str(path)) if "distances" in result.facts else console.path(path)
    if result.status == "skipped":
        console.detail(f"{job.names[0]}: skipped, because all results exist")
    if error is not None:
        if alone:
            raise error
        console.error(str(error), error)


def summary(counts: dict[str, int]) -> str:
    """Count the pairs by status."""
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no pairs"
