"""pam doctor, pam help, tab completion, the line on a terminal, Ctrl-C while it starts."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pam_program import command_line, pam

import pamcli
from pamcli.cli import progress
from pamcli.cli.console import Console
from pamcli.errors import ModelError
from pamcli.inference import system_checks


def test_doctor_tells_what_is_there_and_tries_it() -> None:
    run = pam("doctor", "--json")
    assert run.code == 0, run.stderr
    (found,) = run.records
    assert found["ok"] is True
    assert found["pam"].startswith(f"{pamcli.__version__}, Python 3.")
    assert found["packages"]["torch"][0].isdigit()
    assert found["weights"]["pasmnet"].startswith("ok, ")
    assert ".webp" in found["images"]
    assert "a pair with 8 px of disparity matched to 0." in found["self-test"]
    assert {"vectors", "bf16", "fp32", "cores"} == set(found["processor"])
    lines = pam("doctor").lines
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [*system_checks.PARTS]


def test_doctor_names_what_is_wrong_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: object, **options: object) -> None:
        raise ModelError("pasmnet is damaged")

    monkeypatch.setattr(system_checks, "locate", damaged)
    run = pam("doctor", "--json")
    assert run.code == 4
    (found,) = run.records
    assert (found["ok"], found["weights"]) == (False, "FAILED: pasmnet is damaged")
    assert found["images"].startswith(".png")


@pytest.mark.parametrize("words", [[], ["disparity"], ["eval", "superres"], ["dataset"]], ids=" ".join)
def test_help_of_a_command(words: list[str]) -> None:
    run = pam("help", *words)
    assert (run.code, run.stdout.rstrip()) == (0, pam(*words, "--help").stdout.rstrip())
    assert pam("-V").lines == pam("--version").lines == [f"pam {pamcli.__version__}"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pam disp", ["disparity"]),
        ("pam disparity --weights passrnet-", ["passrnet-x2", "passrnet-x4"]),
        ("pam disparity --weights mi", ["mine.onnx", "mine.safetensors"]),
        ("pam train disparity --from pasm", ["pasmnet", "pasmnet2"]),
        ("pam weights info passrnet-", ["passrnet-x2", "passrnet-x4"]),
        ("pam train superres --val kitti20", ["kitti2012:", "kitti2015:"]),
        ("pam eval disparity --data kitti20", ["kitti2012:", "kitti2015:"]),
        ("pam dataset verify kitti2015:da", ["kitti2015:data/"]),
        ("pam guide batc", ["batches"]),
        ("pam disparity --packed r", ["rl"]),
    ],
)
def test_the_tab_key(line: str, offered: list[str], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine.safetensors").touch()
    (here / "mine.onnx").touch()
    (here / "data").mkdir()
    shells = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    for shell, words in shells.items():
        for name, value in {"_PAM_COMPLETE": f"complete_{shell}", **words}.items():
            monkeypatch.setenv(name, value)
        said = pam().stdout.decode().replace("\\", "").replace(":", "")
        assert [word for word in offered if word.replace(":", "") not in said] == [], shell
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


def test_skipped_pairs_are_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    shown = progress.Progress(total=1011)
    for _ in range(1000):
        shown.advance(skipped=True)
    assert shown.rate == ""
    now += 0.25
    shown.advance()
    assert shown.rate == "4.00 pairs/s, 0:00:02 remaining"  # and the time that passed


def test_the_expected_time_is_printed_after_the_first_band_and_the_first_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = 0.0, list[str]()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    shown = progress.Lines(said.append, "pairs", 15)
    first = shown.watch(100)
    now = 3.0
    first(0.25)  # 12 s a pair, of which 3 have passed
    assert said == ["pairs: 0 of 15, 25% of the next one, 0:02:57 remaining"]
    now = 8.0
    first(0.5)
    assert shown.rate == "0:03:52 remaining"
    now = 10.0
    shown.advance()
    assert len(said) == 1, "what follows comes once a minute"
    short = progress.Lines(said.append, "pairs", 3)
    now = 22.0
    short.advance()
    assert said[1:] == ["pairs: 1 of 3, 12.0 s/pair, 0:00:24 remaining"]
    quick = progress.Lines(said.append, "pairs", 3)
    now = 23.0
    quick.advance()
    assert len(said) == 2, "2 s are not worth a line"


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


def test_starting_leaves_handlers_as_they_were() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Console(quiet=True).starting("x"):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
