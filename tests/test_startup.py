"""Help, lists and usage errors come back without importing torch, plainly, and with the right exit code."""

from __future__ import annotations

import os
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
def started() -> Iterator[WarmPython]:
    """A Python with what `import pamcli.cli` loads, and nothing else."""
    with WarmPython("pamcli.cli") as started:
        yield started


@pytest.fixture(scope="module")
def pam(started: WarmPython) -> Pam:
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
    for name in (
        "left.png",
        "right.png",
        "there.pfm",
        "lefts/a.png",
        "lefts/b.png",
        "rights/a.png",
        "set/left/a.png",
        "set/right/a.png",
        "k/testing/image_2/000000_10.png",
        "k/testing/image_3/000000_10.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"not a picture: " + name.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], ["disparity", "superres", "weights", "train", "eval", "dataset"]),
        (["--version"], [pamcli.__version__]),
        (
            ["disparity", "--help"],
            ["--output", "--output-right", "--color-map", "--skip-existing", "--device"],
        ),
        (["superres", "--help"], ["--output", "--scale", "--max-pixels"]),
        (["weights", "--help"], ["list", "info", "verify", "import"]),
        (["weights", "list"], ["pasmnet", "passrnet-x2", "passrnet-x4"]),
        (["weights", "info", "pasmnet"], ["pasmnet", "MIT"]),
        (["dataset", "--help"], ["list", "verify", "preview", "prepare-flickr1024", "stats"]),
        (
            ["dataset", "prepare-flickr1024", "--help"],
            [
                "--scale",
                "--add",
                "--list",
                "--store",
                "--from-stereograms",
                "--layout",
                "--infinity",
                "--workers",
            ],
        ),
        (["eval", "--help"], ["disparity", "superres"]),
        (["train", "--help"], ["disparity", "superres"]),
        (["train", "disparity", "--help"], ["--data", "--unsupervised", "--recipe", "--resume", "--from"]),
        (["train", "superres", "--help"], ["--scale", "--max-minutes", "--set"]),
        (
            ["eval", "disparity", "--help"],
            ["--data", "--predictions", "--max-gt", "--report"],
        ),
        (["submit", "--help"], ["--data", "--predictions", "--prediction-seconds", "--output"]),
        (["eval", "superres", "--help"], ["--data", "--right-view", "--baseline-only", "--save"]),
    ],
    ids=" ".join,
)
def test_answers_go_to_stdout_without_torch(
    pam: Pam, folder: Path, arguments: list[str], expected: list[str]
) -> None:
    run = pam(folder, *arguments)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert [text for text in expected if text not in run.stdout] == []


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


PAIR = ["left.png", "right.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["nonsense"], 2, ["nonsense"]),
        (["train", "disparity", "--data", "procedural"], 2, ["-o"]),
        (["train", "disparity", "--data", "nowhere:x", "-o", "run"], 2, ["nowhere"]),
        (["train", "disparity", "--data", "procedural", "-o", "run", "--crop", "100x50"], 2, ["32"]),
        (["train", "disparity", "--data", "procedural", "-o", "run", "--recipe", "mine"], 2, ["paper-kitti"]),
        (["train", "disparity", "--data", "procedural", "-o", "run", "--set", "losses.hope=1"], 2, ["hope"]),
        (["train", "superres", "--data", "procedural", "-o", "lefts"], 2, ["lefts"]),
        (["disparity", *PAIR, "-o", "d.pfm", "--nonsense"], 2, ["--nonsense"]),
        (
            ["disparity", *PAIR, "-o", "d.pfm", "--overwrite", "--skip-existing"],
            2,
            ["--overwrite", "--skip-existing"],
        ),
        (["disparity", *PAIR, "-o", "there.pfm"], 2, ["there.pfm", "--overwrite"]),
        (["disparity", *PAIR, "-o", "left.png", "--overwrite"], 2, ["left.png"]),
        (["disparity", *PAIR, "-o", "d.xyz"], 2, [".xyz", ".pfm"]),
        (["disparity", "left.png", "left.png", "-o", "d.pfm"], 2, ["left.png"]),
        (["disparity", "left.png", "-o", "d.pfm"], 2, []),
        (["disparity", "lefts", "rights", "-o", "out/"], 2, ["b.png", "--skip-unpaired"]),
        (
            ["disparity", "lefts", "rights", "-o", "-", "--format", "pfm", "--skip-unpaired"],
            2,
            ["--output -"],
        ),
        (["disparity", "none.png", "right.png", "-o", "d.pfm"], 3, ["none.png"]),
        (["superres", *PAIR, "-o", "l.png", "--overwrite", "--skip-existing"], 2, ["--overwrite"]),
        (["superres", *PAIR, "--scale", "1", "-o", "l.png"], 2, ["1"]),
        (
            ["superres", *PAIR, "--scale", "4", "--weights", "passrnet-x2", "-o", "l.png"],
            2,
            ["by 2"],
        ),
        (["disparity", *PAIR, "-o", "d.pfm", "--device", "gpu"], 2, ["gpu", "cuda:N"]),
        (["weights", "nonsense"], 2, ["nonsense"]),
        (["eval", "disparity", "--data", "kitti2016:lefts"], 2, ["kitti2016", "kitti2015"]),
        (["eval", "disparity", "--data", "kitti2015:none"], 3, ["none does not exist"]),
        (["eval", "disparity", "--data", "kitti2015:lefts"], 3, ["no pair", "image_2"]),
        (["eval", "disparity", "--data", "pairs:.", "--resize", "9"], 2, ["--resize"]),
        (["eval", "disparity", "--data", "pairs:set", "--predictions", "none"], 2, ["none"]),
        (
            ["eval", "disparity", "--data", "pairs:set", "--predictions", "k"],
            2,
            ["no prediction", "a.pfm"],
        ),
        (["submit", "--data", "pairs:set", "-o", "s.zip"], 2, ["cannot submit results on pairs"]),
        (
            ["submit", "--data", "kitti2015/testing:k", "-o", "s.zip"],
            3,
            ["199 images"],
        ),
        (
            ["eval", "superres", "--data", "pairs:set", "--scale", "4", "--weights", "passrnet-x2"],
            2,
            ["by 2"],
        ),
        (["eval", "superres", "--data", "pairs:set", "--baseline-only"], 3, ["a.png"]),
        (["dataset", "list", "nonsense"], 2, ["nonsense", "kitti2015"]),
        (["dataset", "verify", "kitti2015:none"], 3, ["none does not exist"]),
        (["dataset", "preview", "pairs:lefts", "-o", "left.png"], 2, ["left.png", "--overwrite"]),
        (["dataset", "prepare-flickr1024", "lefts", "-o", "out"], 2, ["--scale", "--from-stereograms"]),
        (["dataset", "prepare-flickr1024", "lefts", "-o", "out", "--scale", "2"], 3, ["NAME_L.png"]),
        (["dataset", "stats", "none"], 2, ["none"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_usage_errors_go_to_stderr_without_torch(
    pam: Pam, folder: Path, arguments: list[str], code: int, expected: list[str]
) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    run = pam(folder, *arguments)
    assert run.returncode == code, run.stderr
    assert run.stdout == ""
    assert run.stderr.strip() != ""
    assert [text for text in expected if text not in run.stderr] == []
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_python_m_pamcli_is_the_same_command(pam: Pam, folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "pamcli", "--version"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert run.stdout == pam(folder, "--version").stdout


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
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
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
    for at in (100, *(calls * part // 8 for part in range(1, 8)), calls - 5):
        stopped = run(at)
        assert (stopped.returncode, stopped.stderr) == (130, ""), f"call {at} of {calls}"


@pytest.mark.parametrize(
    "code",
    [
        # the second one, where the first has been caught
        "cli._run = interrupted; leave = sys.exit\nsys.exit = lambda code: [again(), leave(code)]",
        "cli._run = deleted",
        "cli._run = imported",
    ],
)
def test_ctrl_c_where_no_exception_can_tell_of_it(folder: Path, code: str) -> None:
    program = f"""
import signal, sys
from pamcli import __main__, cli

def interrupted(*given):
    signal.raise_signal(signal.SIGINT)
    return 0

def again():
    signal.raise_signal(signal.SIGINT)

class Thing:
    __del__ = interrupted

def deleted(*given):
    Thing()
    return 0

def imported(*given):
    try:
        return interrupted()
    except KeyboardInterrupt:
        raise ImportError("a library that could not be loaded")

{code}
__main__.main()
"""
    run = subprocess.run([sys.executable, "-P", "-c", program], cwd=folder, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")
