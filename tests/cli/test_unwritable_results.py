"""Results that cannot be written: code 7, known before the network runs where it can be, nothing half."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pam_program import names, pam, refuse, unchanged

from pamcli.files import atomic
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler

pytestmark = pytest.mark.usefixtures("networks", "pair")

COMMANDS = {
    "disparity": ["disparity", "left.png", "right.png", "-o", "good.pfm", "--output-right", "{}.pfm"],
    "superres": ["superres", "left.png", "right.png", "-o", "good.png", "--output-right", "{}.png"],
}
both_commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


@pytest.fixture
def network_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StereoMatcher, "__call__", None)
    monkeypatch.setattr(StereoUpscaler, "__call__", None)


def second_result(command: list[str], name: str) -> list[str]:
    """The command, with a name for its second result."""
    return [word.replace("{}", name) for word in command]


@pytest.fixture
def disk_fills_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let some results be written; the next one finds the disk full."""

    def fill_up(after: int) -> None:
        left = iter(range(after))

        def replace(source: Path, target: Path) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(source, target)

        monkeypatch.setattr(atomic.os, "replace", replace)

    return fill_up


# --- folders --------------------------------------------------------------------------------------------


@both_commands
@pytest.mark.parametrize("name", ["file/x", "file/new/x"])
@pytest.mark.usefixtures("network_never_runs")
def test_a_file_in_place_of_a_folder(command: list[str], name: str) -> None:
    Path("file").write_text("here")
    with unchanged():
        run = pam(*second_result(command, name))
        refuse(run, 7, f"cannot write {name}", "a part of its folder is a file")


@both_commands
@pytest.mark.usefixtures("network_never_runs")
def test_a_folder_that_must_not_be_written_to(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("locked").mkdir(mode=0o555)
    if os.geteuid() == 0:  # who may write everywhere
        locked = Path("locked").resolve()
        monkeypatch.setattr(atomic.os, "access", lambda folder, mode: Path(folder) != locked)
    with unchanged():
        run = pam(*second_result(command, "locked/x"))
        refuse(run, 7, "cannot write locked/x", "permission denied", "choose a folder with write permission")


@both_commands
@pytest.mark.usefixtures("network_never_runs")
def test_a_name_that_is_too_long(command: list[str]) -> None:
    with unchanged():
        run = pam(*second_result(command, "x" * 300))
        refuse(run, 7, "file name too long", "choose a shorter file name")


def test_unwritable_results_of_a_batch() -> None:
    for side, picture in (("l", "left.png"), ("r", "right.png")):
        Path(side).mkdir()
        for stem in "abc":
            os.link(picture, f"{side}/{stem}.png")
    Path("out").mkdir()
    Path("out/b").write_text("a file")
    run = pam("disparity", "l/{}.png", "r/{}.png", "-o", "out/{}/d.pfm", "--jsonl")
    assert run.code == 6
    assert [(record["status"], record["code"]) for record in run.records] == [
        ("ok", 0),
        ("failed", 7),
        ("ok", 0),
    ]
    assert run.complaints == [
        "error: cannot write out/b/d.pfm: a part of its folder is a file (choose another folder)",
        "2 ok, 1 failed",
    ]
    assert names("out") == ["a/d.pfm", "b", "c/d.pfm"]


# --- a full disk ----------------------------------------------------------------------------------------


@both_commands
def test_a_full_disk(command: list[str], disk_fills_up: Callable[[int], None]) -> None:
    disk_fills_up(0)
    Path("second.pfm").write_text("old")
    Path("second.png").write_text("old")
    with unchanged():
        run = pam(*second_result(command, "second"), "--overwrite")
        refuse(run, 7, "no space left on device", "free some space")


def test_a_disk_that_fills_up_during_a_batch(disk_fills_up: Callable[[int], None]) -> None:
    for side, picture in (("l", "left.png"), ("r", "right.png")):
        Path(side).mkdir()
        for stem in "abcd":
            os.link(picture, f"{side}/{stem}.png")
    disk_fills_up(3)
    command = ["disparity", "l", "r", "-o", "out/", "--color-map", "out/", "--jsonl"]
    run = pam(*command)
    assert run.code == 7
    assert [record["code"] for record in run.records] == [0]
    assert run.complaints[-2] == "stopped after 1 ok; to resume, add --skip-existing to the same command"
    assert "no space left on device (free some space" in run.complaints[-1]
    assert names("out") == ["a.pfm", "a_color.png", "b.pfm"]  # whole, and nothing temporary
    disk_fills_up(99)
    again = pam(*command, "--skip-existing")
    assert [record["status"] for record in again.records] == ["skipped", "ok", "ok", "ok"]
    assert len(names("out")) == 8
