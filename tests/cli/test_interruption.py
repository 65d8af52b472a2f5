"""Signals, closed pipes, a full disk behind stdout: the exit code, no word too much, and only whole files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import command_line, forked_quick, names, pam, process
from PIL import Image

from pamcli.files import atomic
from pamcli.inference.matcher import StereoMatcher, StereoResult

RANGE = ["--range", "0:192"]
SINGLE = ["disparity", "left.png", "right.png", "-o", "d.pfm", "--color-map", "c.png", *RANGE]
SHARED = ["disparity", "{}_L.png", "{}_R.png", "-o", "out/{}.pfm", "--color-map=out/{}.png", "--range=shared"]
BATCH = [*SHARED[:-1], *RANGE]
LIST = ["disparity", "--pairs", "-", "-o", "out/"]


@pytest.fixture(autouse=True)
def pictures(pair: Path) -> list[str]:
    """A pair alone, and four for a batch; returns the names."""
    for number in range(4):
        os.link("left.png", f"{number}_L.png")
        os.link("right.png", f"{number}_R.png")
    return names(".")


def send_after(patch: pytest.MonkeyPatch, number: signal.Signals, pairs: int) -> None:
    """Let the network send a signal to its own process when it has done some pairs."""
    left = iter(range(pairs))

    def match(self: StereoMatcher, view: np.ndarray, other: np.ndarray, **options: object) -> StereoResult:
        if next(left, None) is None:
            os.kill(os.getpid(), number)
        return StereoResult(np.ones(view.shape[:2], np.float32))

    patch.setattr(StereoMatcher, "__call__", match)


def match_first(running: Any) -> None:
    """Write the first pair to the list that a process reads, and wait for its result."""
    running.stdin.write(b"0_L.png\t0_R.png\n")
    running.stdin.flush()
    assert running.stdout.readline() == b"out/0_L.pfm\n"


@pytest.mark.usefixtures("networks")
def test_a_signal_during_a_batch(pictures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    send_after(monkeypatch, signal.SIGINT, 3)
    run = pam(*BATCH)
    assert run.code == 130
    (said,) = run.complaints
    assert re.fullmatch(r"stopped after [123] ok; to resume, add --skip-existing to the same command", said)
    made = [name for name in names(".") if name not in pictures]
    assert set(run.lines) <= set(made)
    assert "out/3.pfm" not in made
    stems = {Path(name).stem for name in made}
    assert made == sorted(f"out/{stem}.{suffix}" for stem in stems for suffix in ("pfm", "png"))


@pytest.mark.usefixtures("networks")
def test_a_signal_while_a_result_is_saved(pictures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being saved is saved whole, with everything that belongs to it."""
    usual = os.link

    def link(source: Path, target: Path) -> None:
        if target.name == "d.pfm":
            os.kill(os.getpid(), signal.SIGHUP)
        usual(source, target)

    monkeypatch.setattr(atomic.os, "link", link)
    run = pam(*SINGLE)
    assert (run.code, run.stderr) == (129, "")
    assert [name for name in names(".") if name not in pictures] == ["c.png", "d.pfm"]


@pytest.mark.parametrize(
    ("command", "number", "code", "said"),
    [
        (SINGLE, signal.SIGTERM, 143, ""),
        (BATCH, signal.SIGINT, 130, "to resume, add --skip-existing to the same command"),
        (SHARED, signal.SIGHUP, 129, "results of the whole batch are written at its end, so start again"),
    ],
    ids=["single SIGTERM", "batch SIGINT", "shared SIGHUP"],
)
def test_a_signal_ends_the_process(
    pictures: list[str], command: list[str], number: signal.Signals, code: int, said: str
) -> None:
    os.mkfifo("gate")
    start = process if number == signal.SIGTERM else forked_quick
    with start(*command, env={**os.environ, "HOLD": "gate"}) as running:
        with open("gate", "wb"):  # which waits until the network has begun
            running.send_signal(number)
        output, complaints = running.communicate()
        assert (running.returncode, output) == (code, b"")
        assert complaints.decode() == (f"pam: stopped after no pairs; {said}\n" if said else "")
    os.remove("gate")
    assert names(".") == pictures


def test_a_signal_while_the_list_is_waited_for(pictures: list[str]) -> None:
    with forked_quick(*LIST, stdin=subprocess.PIPE) as running:
        match_first(running)
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130
        said = b"pam: stopped after 1 ok; to resume, add --skip-existing to the same command\n"
        assert running.stderr.read() == said
    assert [name for name in names(".") if name not in pictures] == ["out/0_L.pfm"]


def test_a_signal_while_an_image_is_waited_for(pictures: list[str]) -> None:
    command = ["disparity", "--packed", "lr", "-", "-o", "d.pfm"]
    with forked_quick(*command, stdin=subprocess.PIPE) as running:
        running.stdin.write(bytes(1_000_000))  # more than fits into a pipe that nobody reads
        running.send_signal(signal.SIGHUP)
        assert running.wait() == 129
        assert running.stderr.read() == b""
    assert names(".") == pictures


def test_nobody_reads_stdout_any_more(pictures: list[str]) -> None:
    with process(*LIST, stdin=subprocess.PIPE) as running:
        match_first(running)
        running.stdout.close()
        running.stdin.write(b"1_L.png\t1_R.png\n")
        running.stdin.flush()
        assert running.wait() == 141
        assert running.stderr.read() == b""
    assert [name for name in names(".") if name not in pictures] == ["out/0_L.pfm", "out/1_L.pfm"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_ever_read(pictures: list[str], stream: str) -> None:
    for name in ("left.png", "right.png"):
        Image.open(name).resize((400, 300)).save(name)  # whose map fills more than a pipe
    ours, theirs = os.pipe()
    os.close(ours)
    command = ["disparity", "left.png", "right.png", "-o", "-", "--verbose"]
    with forked_quick(*command, **{stream: theirs}) as running:
        os.close(theirs)
        output, complaints = running.communicate()
        assert running.returncode == 141
    assert not output
    assert b"Error" not in (complaints or b"")
    assert names(".") == pictures


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize(("start", "command"), [(process, SINGLE), (forked_quick, ["--help"])])
def test_stdout_is_full(start: Any, command: list[str]) -> None:
    with open("/dev/full", "wb") as full, start(*command, stdout=full) as running:
        _, complaints = running.communicate()
        assert running.returncode == 7
    assert complaints == b"pam: error: cannot write to standard output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize(("right", "code"), [("right.png", 0), ("none.png", 3), ("--bogus", 2)])
def test_stderr_is_full(right: str, code: int) -> None:
    """Words that nobody gets keep nobody from the results, and the exit code says what went wrong."""
    words = ["disparity", "left.png", right, "-o", "d.pfm", "--verbose"]
    with open("/dev/full", "wb") as full, forked_quick(*words, stderr=full) as running:
        said, _ = running.communicate()
    assert (running.returncode, said) == (code, b"" if code else b"d.pfm\n")
    assert Path("d.pfm").exists() == (code == 0)


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_has_closed(pictures: list[str], closed: str) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    command = [*shell, *command_line(*SINGLE, "--verbose")]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"d.pfm\nc.png\n" if closed == "2>&-" else b"")
    assert done.stderr == b""
    assert [name for name in names(".") if name not in pictures] == ["c.png", "d.pfm"]


@pytest.mark.parametrize("command", [LIST, ["disparity", "--packed", "lr", "-", "-o", "d.pfm"]])
def test_a_list_or_image_from_a_closed_stdin(pictures: list[str], command: list[str]) -> None:
    shell = ["sh", "-c", 'exec "$@" <&-', "sh"]
    done = subprocess.run([*shell, *command_line(*command)], capture_output=True)
    assert done.returncode == 3
    assert done.stderr == b"pam: error: cannot read standard input: it is closed\n"
    assert names(".") == pictures
