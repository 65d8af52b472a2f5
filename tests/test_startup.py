"""Help, lists and usage errors come back without importing torch, plainly, and with the right exit code."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warm_python import WarmPython

import pamcli

Pam = Callable[..., subprocess.CompletedProcess[str]]
RUN_WITHOUT_TORCH = """
import os, sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            os.write(2, b"torch was imported\\n")
            os._exit(97)  # not an exception: nothing can catch it

assert "torch" not in sys.modules
sys.meta_path.insert(0, NoTorch())
from pamcli.cli import main
main()
"""


@pytest.fixture(scope="module")
def pam() -> Pam:
    started = WarmPython(owner=os.getpid(), torch=False)

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = started.command("-c", RUN_WITHOUT_TORCH, *arguments)
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert "\x1b" not in run.stdout + run.stderr, "colour codes in a pipe"
        assert "Traceback" not in run.stderr
        return run

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that are never decoded: these commands end before they would be."""
    images = "left.png", "right.png", "there.pfm", "lefts/a.png", "lefts/b.png", "rights/a.png"
    sets = "set/left/a.png", "set/right/a.png", *(f"k/testing/image_{n}/000000_10.png" for n in (2, 3))
    for name in (*images, *sets):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not a picture: " + name.encode())
    return tmp_path


def cases(table: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words before the first bar of each line, and the texts after it."""
    for line in filter(None, map(str.strip, table.splitlines())):
        command, *texts = line.split(" | ")
        yield shlex.split(command), texts


def test_answers_go_to_stdout_without_torch(pam: Pam, folder: Path) -> None:
    table = f"""
        --help | disparity | superres | weights | train | eval | dataset
        --version | {pamcli.__version__}
        disparity --help | --output | --output-right | --color-map | --skip-existing | --device
        weights list | pasmnet | passrnet-x2 | passrnet-x4
        weights info pasmnet | pasmnet | MIT
        dataset --help | list | verify | preview | prepare-flickr1024 | stats
        train disparity --help | --data | --unsupervised | --recipe | --resume | --from | --val | --jsonl
        submit --help | --data | --predictions | --prediction-seconds | --output
    """
    for words, texts in cases(table):
        run = pam(folder, *words)
        assert (run.returncode, run.stderr) == (0, ""), words
        assert [text for text in texts if text not in run.stdout] == [], words


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], ("torch", "numpy", "pydantic")),
        (["dataset", "prepare-flickr1024", "--help"], ("torch", "numpy")),
    ],
    ids=["--help", "prepare-flickr1024"],
)
def test_help_imports_nothing_slow(folder: Path, arguments: list[str], unwanted: tuple[str, ...]) -> None:
    without = RUN_WITHOUT_TORCH.replace('== "torch"', f"in {unwanted}")
    command = [sys.executable, "-P", "-c", without, *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (run.returncode, run.stderr) == (0, "")


def test_usage_errors_go_to_stderr_without_torch(pam: Pam, folder: Path) -> None:
    table = """
        2 nonsense | nonsense
        2 train disparity --data procedural | -o
        2 train disparity --data procedural -o run --crop 100x50 | 32
        2 train disparity --data procedural -o run --set losses.hope=1 | hope
        2 train superres --data procedural -o lefts | lefts
        2 disparity left.png right.png -o there.pfm | there.pfm | --overwrite
        2 disparity lefts rights -o out/ | b.png | --skip-unpaired
        2 disparity left.png right.png -o d.pfm --device gpu | gpu | cuda:N
        2 superres left.png right.png --scale 4 --weights passrnet-x2 -o l.png | by 2
        2 weights nonsense | nonsense
        2 eval disparity --data pairs:set --predictions k | no prediction | a.pfm
        3 submit --data kitti2015/testing:k -o s.zip | 199 images
        3 eval superres --data pairs:set --baseline-only | a.png
        3 dataset verify kitti2015:none | none does not exist
        2 dataset preview pairs:lefts -o left.png | left.png | --overwrite
        3 dataset prepare-flickr1024 lefts -o out --scale 2 | NAME_L.png
    """
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for (code, *words), texts in cases(table):
        run = pam(folder, *words)
        assert (run.returncode, run.stdout) == (int(code), ""), (words, run.stderr)
        assert [text for text in texts if text not in run.stderr] == [], words
        assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}, words


WITHOUT_A_PACKAGE = """
import sys
sys.modules[sys.argv.pop(1)] = None
from pamcli.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("typer", ["--help"]), ("torch", ["disparity", "left.png", "right.png", "-o", "d.pfm"])],
)
def test_a_package_that_is_not_installed_is_one_line(
    folder: Path, package: str, arguments: list[str]
) -> None:
    command = [sys.executable, "-P", "-c", WITHOUT_A_PACKAGE, package, *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (run.returncode, run.stdout) == (1, "")
    (line,) = run.stderr.splitlines()
    assert line.startswith(
        f"pam: error: the package {package} is not installed (list missing packages: pip check"
    )


def test_the_doctor_names_a_package_that_is_not_installed(folder: Path) -> None:
    command = [sys.executable, "-P", "-c", WITHOUT_A_PACKAGE, "torch", "doctor"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (run.returncode, run.stderr) == (1, "")
    assert "FAILED: the package torch is not installed" in run.stdout


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_do_not_wait_busily_unless_asked_to(given: dict[str, str], expected: str) -> None:
    program = """
import os, sys
import pamcli
print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""
    waiting = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    kept = {name: value for name, value in os.environ.items() if name not in waiting}
    run = subprocess.run(
        [sys.executable, "-P", "-c", program], env=kept | given, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [expected, "False"], "OpenMP reads it when torch is loaded"


CTRL_C = """
import atexit, os, signal, sys
wanted, calls = int(sys.argv.pop(1)), 0
from pamcli.__main__ import main

def count(frame, event, argument):
    global calls
    if event == "c_call":  # before it Python looks at no signal, and a lock would not be released
        return
    calls += 1
    if calls == wanted:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

if not wanted:
    atexit.register(lambda: os.write(2, str(calls).encode()))
sys.setprofile(count)
main()
"""


def test_ctrl_c_at_any_time_of_a_start_says_nothing(folder: Path) -> None:
    """Once Python has read pamcli/__main__.py: what it does before is not in our hands."""

    def run(at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-c", CTRL_C, str(at), "weights", "list"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    calls = int(run(0).stderr)
    assert calls > 10_000, "the count misses the imports"
    for at in (100, calls // 2, calls * 99 // 100):  # the count varies a little
        stopped = run(at)
        assert (stopped.returncode, stopped.stderr) == (130, ""), f"call {at} of {calls}"


def test_ctrl_c_in_a_program_that_imports_the_package_raises(folder: Path) -> None:
    program = "import signal, pamcli\ntry: signal.raise_signal(2)\nexcept KeyboardInterrupt: print(1)"
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


def test_ctrl_c_while_an_object_is_deleted_ends_the_program(folder: Path) -> None:
    program = """
import signal
from pamcli import __main__, cli

class Thing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run(*given):
    Thing()
    return 0

cli._run = run
__main__.main()
"""
    run = subprocess.run([sys.executable, "-P", "-c", program], cwd=folder, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
