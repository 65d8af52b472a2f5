"""Processes beside the main one, which alone answers to Ctrl-C, though a terminal sends it to all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pamcli.errors import InputError
from pamcli.files.safe_reading import read_bytes
from pamcli.workers import run_in_processes

PROGRAM = """
from pamcli.workers import run_in_processes

try:
    print(list(run_in_processes(abs, [-1, -2], workers=2)))
except KeyboardInterrupt:
    print("stopped")
"""
SLOW_START = """
import os, sys, time
if "-c" in sys.orig_argv:  # a worker, which has only begun to start
    open("started", "w").close()
    while not os.path.exists("go on"):
        time.sleep(0.02)
"""


def test_ctrl_c_while_workers_start_is_seen_by_the_main_process_alone(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        while running.poll() is None and not (tmp_path / "started").exists():
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGINT)
        (tmp_path / "go on").touch()
        said, complaints = running.communicate(timeout=300)
    assert (running.returncode, said, complaints) == (0, "stopped\n", "")


def test_answers_are_in_order_and_errors_are_raised() -> None:
    assert list(run_in_processes(abs, [-1, -2, 3], 2)) == [(-1, 1), (-2, 2), (3, 3)]
    with pytest.raises(TypeError, match="bad operand"):
        list(run_in_processes(abs, ["x", "y"], 2))  # type: ignore[arg-type]
    (found,) = {type(answer) for _, answer in run_in_processes(read_bytes, [Path("no1"), Path("no2")], 2)}
    assert found is InputError
