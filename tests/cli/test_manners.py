"""pam help, pam guide, tab completion, the line on a terminal, Ctrl-C while it starts, exit codes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pam_program import command_line, pam, refuse, succeed

import pamcli
from pamcli.cli import app
from pamcli.cli.groups import PANELS


def test_help_of_a_command() -> None:
    for words in ([], ["disparity"], ["eval", "superres"], ["dataset"]):
        run = pam("help", *words)
        assert (run.code, run.stdout.rstrip()) == (0, pam(*words, "--help").stdout.rstrip())
    assert pam("-V").lines == pam("--version").lines == [f"pam {pamcli.__version__}"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_tab_key(shell: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine.safetensors", "mine.onnx"):
        Path(name).touch()
    Path("data").mkdir()
    for line, *offered in (
        ("pam disp", "disparity"),
        ("pam disparity --weights passrnet-", "passrnet-x2", "passrnet-x4"),
        ("pam disparity --weights mi", "mine.onnx", "mine.safetensors"),
        ("pam train disparity --from pasm", "pasmnet", "pasmnet2"),
        ("pam weights info passrnet-", "passrnet-x2", "passrnet-x4"),
        ("pam train superres --val kitti20", "kitti2012", "kitti2015"),
        ("pam eval disparity --data kitti20", "kitti2012", "kitti2015"),
        ("pam dataset verify kitti2015:da", "kitti2015data/"),
        ("pam guide batc", "batches"),
        ("pam disparity --packed r", "rl"),
    ):
        words = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }
        for name, value in {"_PAM_COMPLETE": f"complete_{shell}", **words[shell]}.items():
            monkeypatch.setenv(name, value)
        said = pam().stdout.decode().replace("\\", "").replace(":", "")  # as shells need it
        assert [word for word in offered if word not in said] == [], line
        assert "superres" not in said


@pytest.mark.usefixtures("pair")
def test_a_terminal_is_told_that_the_network_is_loaded() -> None:
    master, terminal = pty.openpty()
    command = command_line("disparity", "left.png", "right.png", "-o", "d.pfm")
    run = subprocess.run(command, stderr=terminal, stdout=subprocess.PIPE)
    os.close(terminal)
    assert run.returncode == 0
    assert os.read(master, 65536).startswith(b"pam: loading pasmnet2 ...")
    os.close(master)


def test_ctrl_c_while_a_command_imports_says_nothing(tmp_path: Path) -> None:
    """What a library in C prints of it, and makes of it, is not seen."""
    (tmp_path / "library.py").write_text(
        "import os, signal, traceback\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    traceback.print_exc()\n"
        "    raise ImportError('library failed to import')\n"
    )
    program = (
        "import typer, pamcli.cli\napp = typer.Typer()\n"
        "@app.command()\ndef run() -> None: import library\n"
        "pamcli.cli.run_guarded(app, 'pam')"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


def test_ctrl_c_while_it_ends_says_nothing() -> None:
    """Libraries' last words are interrupted."""
    last = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT); "
    program = last + "import sys; sys.argv = ['pam', '-V']; import pamcli.__main__ as m; m.main()"
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (130, f"pam {pamcli.__version__}\n", "")


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


def test_threads_of_libraries_do_not_change_the_exit_code() -> None:
    command = [sys.executable, "-c", PROGRAM + PAM, "disparity", "missing.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "terminate" in done.stderr) == (2, False)


def test_buffered_output_is_complete_and_exit_functions_run(tmp_path: Path) -> None:
    program = f"import atexit\natexit.register(lambda: open({str(tmp_path / 'ran')!r}, 'w').close())\n{PAM}"
    command = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pam ")
    assert (tmp_path / "ran").exists()


# --- help of the commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["--enlarge 0.5", "--enlarge=0.5"])
def test_a_former_option_works_with_a_warning(words: str) -> None:
    run = pam(f"disparity none.png right.png -o d.pfm {words}")
    warning, error = run.complaints
    assert warning == "warning: --enlarge is now --match-size, and will be removed in a later version"
    assert error == "error: no such file: none.png"


def every_command(group: Any, *names: str) -> Any:
    for name in group.commands:
        each = group.get_command(None, name)
        if hasattr(each, "commands"):
            yield from every_command(each, *names, name)
        else:
            yield pytest.param(each, " ".join(("pam", *names, name)), id=" ".join((*names, name)))


@pytest.mark.parametrize(("each", "name"), list(every_command(app)))
def test_every_command_has_two_examples_and_help_and_a_panel_for_each_option(each: Any, name: str) -> None:
    examples = each.epilog.split("\n")[1:]
    assert len(examples) == 2
    assert all(example.startswith(name) for example in examples)
    for parameter in each.params:
        assert parameter.help, parameter.name
        assert parameter.rich_help_panel in PANELS, parameter.name


def test_help_is_as_wide_as_the_terminal() -> None:
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "pamcli", "disparity", "--help"],
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = shown.stdout.partition("Examples:")[0].splitlines()
    assert 120 < max(map(len, lines)) <= 160


# --- pam guide ----------------------------------------------------------------------------------------------


GUIDE = Path(__file__).parents[2] / "pamcli" / "guide"


def test_without_a_page_all_are_listed() -> None:
    lines = pam("guide").stdout.decode().splitlines()
    others = sorted({page.stem for page in GUIDE.glob("*.md")} - {"start"})
    assert [line.split()[0] for line in lines] == ["start", *others]
    assert "many pairs" in next(line for line in lines if line.startswith("batches"))


def test_a_pipe_gets_the_page_as_it_is() -> None:
    run = succeed("guide", "batches")
    assert run.stdout.decode() == (GUIDE / "batches.md").read_text(encoding="utf-8")


def test_a_page_that_is_not_there_is_named_with_its_neighbour() -> None:
    refuse(pam("guide", "batch"), 2, "'batch'", "batches")
    refuse(pam("guide", "anaglyph"), 2, "'anaglyph'", "stereo-cameras", "superres")
    refuse(pam("guide", "xyzzy"), 2, "'xyzzy' (pam guide lists all pages)")


def test_a_terminal_gets_it_laid_out() -> None:
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-P", "-m", "pamcli", "guide", "python"]
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
