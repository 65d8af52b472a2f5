"""Commands on a Python that lacks what macOS or Windows lacks: the closest to them that runs on Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from pamcli import systems

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


def test_a_lock_names_the_folder_that_another_process_holds(tmp_path: Path) -> None:
    assert systems.lock(tmp_path, wait=False) is not None
    with pytest.raises(BlockingIOError) as error:
        systems.lock(tmp_path, wait=False)
    assert error.value.args == (tmp_path.stat().st_ino,)


def test_a_process_that_has_ended_is_not_running() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert systems.is_running(1)
    assert not systems.is_running(ended.pid)
