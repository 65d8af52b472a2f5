"""pam guide: the pages, laid out on a terminal and as they are in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from pam_program import pam, refuse

GUIDE = Path(__file__).parents[2] / "pamcli" / "guide"


def test_without_a_page_all_are_listed() -> None:
    lines = pam("guide").stdout.decode().splitlines()
    others = sorted({page.stem for page in GUIDE.glob("*.md")} - {"start"})
    assert [line.split()[0] for line in lines] == ["start", *others]
    assert "many pairs" in next(line for line in lines if line.startswith("batches"))


def test_a_pipe_gets_the_page_as_it_is() -> None:
    run = pam("guide", "batches")
    assert run.code == 0
    assert run.stdout.decode() == (GUIDE / "batches.md").read_text(encoding="utf-8")


def test_a_page_that_is_not_there_is_named_with_its_neighbour() -> None:
    refuse(pam("guide", "batch"), 2, "'batch'", "batches")
    refuse(pam("guide", "anaglyph"), 2, "'anaglyph'", "stereo-cameras", "superres")
    refuse(pam("guide", "xyzzy"), 2, "'xyzzy' (pam guide lists all pages)")


@pytest.mark.parametrize("page", ["batches", "python"])
def test_a_terminal_gets_it_laid_out(page: str) -> None:
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-P", "-m", "pamcli", "guide", page]
    with subprocess.Popen(command, stdout=terminal, env=environment) as run:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # how Linux says that the other end is closed
            pass
    os.close(master)
    assert run.returncode == 0
    assert b"\x1b[" in shown
    assert b"```" not in shown
