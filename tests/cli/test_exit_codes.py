"""The exit code of a program whose results are complete, whatever its threads do while it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading, time
import numpy as np, torch

class Held(np.ndarray):
    def __del__(self):
        started.set()
        while True:  # until the process ends, or Python ends this thread
            time.sleep(0.001)

def drop():
    tensor = torch.from_numpy(np.zeros(3).view(Held))
    del tensor

started = threading.Event()
threading.Thread(target=drop, daemon=True).start()
started.wait()
"""
PAM = """
from pamcli.__main__ import main
main()
"""


def run(program: str, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("words", "expected"), [("disparity missing.png", 2)])
def test_threads_of_libraries_do_not_change_the_exit_code(words: str, expected: int) -> None:
    code, said = run(PROGRAM + PAM, *words.split())
    assert (code, "terminate" in said) == (expected, False)


def test_buffered_output_is_complete_and_exit_functions_run(tmp_path: Path) -> None:
    program = f"import atexit\natexit.register(lambda: open({str(tmp_path / 'ran')!r}, 'w').close())\n{PAM}"
    command = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pam ")
    assert (tmp_path / "ran").exists()
