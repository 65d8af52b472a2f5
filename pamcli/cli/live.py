"""`pam live`: match cameras and streams while they run."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pamcli.cli.console import Console, format_option_names
from pamcli.errors import UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import check_new_file
from pamcli.settings.live import LiveSettings

EVERY = 5.0
"""Seconds between two lines of statistics."""


def command(settings: LiveSettings, console: Console) -> None:
    """Match two cameras, network streams or videos while they run, and show the result in the browser.

    The newest images are matched; older ones are dropped. One line on stderr shows speed, latency, skew of
    the time stamps, and dropped frames. Interrupted streams are opened again. Ctrl-C ends the command and
    completes the recordings.

    If the images are not rectified, give the --calibration of the cameras. It has not been tried on real
    cameras yet.

    $ pam live /dev/video0 --packed lr
    $ pam live /dev/video0 /dev/video2 --calibration rig.yaml --record drive.mkv
    """
    if settings.doctor:
        return _examine(settings, console)
    if settings.calibrate:
        return _calibrate(settings, console)
    if settings.output == "-":
        if console.jsonl:
            raise UsageError("cannot write both `output` - and `jsonl` to stdout", "drop one of them")
        if sys.stdout.isatty():
            raise UsageError(
                "`output` - cannot write binary data to a terminal", "use a pipe, or name a folder"
            )
    from pamcli.streams.outputs import LiveOutputs

    with ExitStack() as stack:
        outputs = stack.enter_context(LiveOutputs(settings, console.binary))
        with console.starting(str(settings.name)):
            from pamcli.streams.live import live
        # Ctrl-C interrupts the main thread only: what this one writes is complete.
        writer = stack.enter_context(ThreadPoolExecutor(1))
        writer.submit(int).result()
        page = None if settings.no_page else stack.enter_context(_open_page(settings))
        last, statistics, shown = time.monotonic(), None, None
        try:
            for frame in stack.enter_context(closing(live(settings))):  # type: ignore[type-var]
                writer.submit(outputs.write, frame).result()
                if page is not None:
                    page.show(frame)
                    if statistics is None:
                        _announce(page.address, settings, console)
                _report(frame, settings, console)
                statistics = frame.statistics
                if time.monotonic() - last >= EVERY:
                    _show_statistics(statistics, console)
                    last, shown = time.monotonic(), statistics
        finally:
            if statistics is not None and statistics is not shown:
                _show_statistics(statistics, console)


def _examine(settings: LiveSettings, console: Console) -> None:
    """Print what is wrong with the newest pair, again and again."""
    from pamcli.streams.alignment import examine_pairs

    for number, findings in enumerate(examine_pairs(settings), 1):
        lines = [format_option_names(str(each)) for each in findings]
        console.answer({"findings": [asdict(each) for each in findings]}, " | ".join(lines))
        if number == settings.count:
            return


def _calibrate(settings: LiveSettings, console: Console) -> None:
    """Take boards, and write the calibration with its report."""
    output = Path(settings.output or "")
    check_new_file(output, ".yaml", ".yml", overwrite=settings.overwrite)
    with console.starting("OpenCV"):
        from pamcli.batch.calibration import fit_boards
        from pamcli.calibration.boards import Board
        from pamcli.streams.alignment import take_boards
    assert settings.board is not None
    assert settings.square is not None
    taker = take_boards(settings, Board(*settings.board, settings.square, settings.marker), console.inform)
    found = fit_boards(taker.found, fisheye=settings.fisheye, tip=format_option_names)
    write_atomically(output, found.file())
    console.answer({"written": [str(output)], **found.facts()}, str(output), *found.lines())


def _open_page(settings: LiveSettings) -> Any:
    from pamcli.streams.page import LivePage
    from pamcli.streams.sources import hide_password

    return LivePage(f"pam live {', '.join(map(hide_password, settings.inputs))}", settings.port)


def _announce(address: str, settings: LiveSettings, console: Console) -> None:
    """Print the address of the page, and open it."""
    import webbrowser

    if settings.output == "-" or settings.at:
        console.inform(f"the page is at {address}")
    else:
        console.answer({"address": address}, address)
    console.inform("press Ctrl-C to stop")
    if not settings.no_browser and not webbrowser.open(address):
        console.warn("no browser found: open the address yourself")


def _report(frame: Any, settings: LiveSettings, console: Console) -> None:
    """Print the values at the requested pixels, and with `jsonl` a record of the result."""
    import numpy as np

    height, width = frame.disparity.shape
    depth, found = frame.depth if settings.at else None, []
    for x, y in settings.at or ():
        column, row = round(x), round(y)
        if not (0 <= column < width and 0 <= row < height):
            raise UsageError(f"`at` {x:g},{y:g} is outside of the image of {width}x{height} px")
        value = float((frame.disparity if depth is None else depth)[row, column])
        unit, digits = ("px", 2) if depth is None else ("m", 3)
        text = f"{value:.{digits}f} {unit}" if np.isfinite(value) else "unknown"
        found.append((x, y, value, text, "disparity_px" if depth is None else "depth_m"))
    if console.jsonl:
        record = {"number": frame.number, "time_s": round(frame.time, 4), "sources": list(frame.sources)}
        record |= {"latency_ms": round(1000 * frame.latency, 1), "skew_ms": round(1000 * frame.skew, 2)}
        if found:
            record["at"] = [{"x": x, "y": y, name: round(value, 4)} for x, y, value, _, name in found]
        console.record(record)
    elif found:
        console.result(
            f"{frame.time:.3f} s  " + "  ".join(f"{x:g},{y:g}: {text}" for x, y, _, text, _ in found)
        )


def _show_statistics(record: dict[str, Any], console: Console) -> None:
    """Show the statistics in one line of stderr, and with `jsonl` as a record."""
    from pamcli.streams.statistics import format_statistics

    if console.jsonl:
        console.record({"statistics": record})
    console.inform(format_statistics(record))
