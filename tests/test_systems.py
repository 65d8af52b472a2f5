"""Little memory, few threads, Ctrl-C beside other processes, and systems that lack what Linux has."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli import limits
from pamcli.errors import DeviceError, InputError, OutputError, convert_system_error
from pamcli.files.safe_reading import read_bytes
from pamcli.imaging.raster import encode_png
from pamcli.limits import OF_A_THREAD, require_room
from pamcli.workers import run_in_processes


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment, without counts of threads, on a machine of eight cores."""
    for name in limits.THREAD_COUNTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "count_cores", lambda: 8)
    monkeypatch.setattr(limits, "usable_cores", lambda: limits.count_cores())
    monkeypatch.setattr(limits, "_count_threads", lambda most: most)
    environment: dict[str, str] = {}
    monkeypatch.setattr(os.environ, "update", environment.update)
    return environment


@pytest.mark.parametrize(
    ("megabytes", "threads"),
    [(1300, "1"), (1300 + 3 * OF_A_THREAD, "3"), (1300 + 8 * OF_A_THREAD, None), (math.inf, None)],
)
def test_no_more_threads_than_the_address_space_has_room_for(
    counts: dict[str, str], monkeypatch: pytest.MonkeyPatch, megabytes: float, threads: str | None
) -> None:
    monkeypatch.setattr(limits, "get_address_space", lambda: megabytes)
    require_room("torch")
    assert counts.get("OMP_NUM_THREADS") == threads
    assert counts.get("OPENBLAS_NUM_THREADS") == threads


def test_no_more_threads_than_cores_of_the_container(
    counts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "usable_cores", lambda: 2)
    require_room("numpy")
    assert counts["OMP_NUM_THREADS"] == "2"
    counts.clear()
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    require_room("numpy")
    assert not counts, "the user's number counts"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ImportError("cv2.so: failed to map segment from shared object"), DeviceError),
        (RuntimeError("could not create a primitive"), DeviceError),
        (RuntimeError("std::bad_alloc"), DeviceError),
        (OSError(12, "Cannot allocate memory"), DeviceError),
        (RuntimeError("can't start new thread"), DeviceError),
        (MemoryError(), DeviceError),
        (OSError(28, "No space left on device"), OutputError),
        (RecursionError(), InputError),
        (UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "x"), InputError),
        (RuntimeError("something else"), type(None)),
    ],
)
def test_what_the_system_refuses_is_told_from_faults(error: Exception, kind: type) -> None:
    assert type(convert_system_error(error)) is kind


def in_limits(folder: Path, limit: str, count: int, *command: str) -> subprocess.CompletedProcess[str]:
    for name in ("left.png", "right.png"):
        view = np.random.default_rng(len(name)).integers(0, 255, (32, 64, 3), np.uint8)
        (folder / name).write_bytes(encode_png(view))
    words = ["bash", "-c", f'ulimit {limit} {count} && exec "$0" "$@"', sys.executable, "-P", "-m", "pamcli"]
    words += ["disparity", "left.png", "right.png", "-o", "d.pfm", "-q"]
    return subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("megabytes", [100, 1100])
def test_little_address_space_is_one_line(tmp_path: Path, megabytes: int) -> None:
    run = in_limits(tmp_path, "-v", megabytes * 1000)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (5, "", 1)
    assert run.stderr.startswith("pam: error: not enough memory")


@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or not shutil.which("setpriv"), reason="takes another user"
)
@pytest.mark.parametrize("count", [3])
def test_few_processes_are_one_line(tmp_path: Path, count: int) -> None:
    keep = "+dac_override,+dac_read_search"
    other = ["setpriv", "--reuid", "54322", "--inh-caps", keep, "--ambient-caps", keep]
    run = in_limits(tmp_path, "-u", count, *other)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (5, "", 1)
    assert "cannot start more threads" in run.stderr


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


SAMPLE = Path(__file__).parents[1] / "scripts" / "sample"

LIKE_WINDOWS = """
import ctypes, os, signal, sys
sys.modules.update(dict.fromkeys(("resource", "fcntl")))  # importing them fails
del os.sched_getaffinity, signal.pthread_sigmask, signal.SIGHUP
class Library(ctypes.CDLL):
    def __init__(self, name, *arguments, **more):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *arguments, **more)
ctypes.CDLL = Library
"""
LIKE_MACOS = """
import multiprocessing, os
multiprocessing.set_start_method("spawn", force=True)  # for Python 3.14, "forkserver" is similar
del os.sched_getaffinity
"""
TRAIN = (
    "train superres --scale 2 --data pairs:mine -o run --steps 1 --batch 1 --crop 12x12 --workers 0 "
    "--device cpu --variant views=left --set losses.pam=0 --set losses.likelihood=0"
)
MATCH = "disparity mine/left/a.png mine/right/a.png -o map.pfm --match-size 1 --device cpu"


@pytest.mark.parametrize(
    ("system", "command"),
    [(LIKE_WINDOWS, TRAIN), (LIKE_MACOS, MATCH)],
    ids=["train on Windows", "disparity on macOS"],
)
def test_commands_do_without_features_of_linux(system: str, command: str, tmp_path: Path) -> None:
    for side in ("left", "right"):
        (tmp_path / "mine" / side).mkdir(parents=True)
        Image.open(SAMPLE / f"{side}.png").crop((300, 200, 348, 232)).save(tmp_path / "mine" / side / "a.png")
    program = f"{system}\nif __name__ == '__main__':\n    from pamcli.cli import main\n    main()\n"
    (tmp_path / "program.py").write_text(program)
    words = [sys.executable, "program.py", *command.split()]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / ("run/last.safetensors" if command.startswith("train") else "map.pfm")).is_file()
