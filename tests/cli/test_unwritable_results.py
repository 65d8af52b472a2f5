"""Results that cannot be written: code 7, known before the network runs where it can be, nothing half."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pam_program import names, pam, refuse, refuse_all, unchanged

from pamcli.files import atomic
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler

LINK, REPLACE = os.link, os.replace
pytestmark = pytest.mark.usefixtures("networks", "pair")


def fill_disk(patch: pytest.MonkeyPatch, after: int) -> None:
    """Let some results be written; the next one finds the disk full."""
    left = iter(range(after))

    def fill(usual: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def place(source: Path, target: Path) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            usual(source, target)

        return place

    for usual in (LINK, REPLACE):  # a new result, and one that is overwritten
        patch.setattr(atomic.os, usual.__name__, fill(usual))


@pytest.mark.parametrize(("command", "suffix"), [("disparity", "pfm"), ("superres", "png")])
def test_places_that_cannot_be_written_to(command: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("here")
    Path("locked").mkdir(mode=0o555)
    Path(f"old.{suffix}").write_text("old")
    words = f"{command} left.png right.png -o good.{suffix} --output-right"
    with monkeypatch.context() as patch, unchanged():
        fill_disk(patch, 0)
        run = pam(words, f"old.{suffix}", "--overwrite")
        refuse(run, 7, "no space left on device", "free some space")
    monkeypatch.setattr(StereoMatcher, "__call__", None)
    monkeypatch.setattr(StereoUpscaler, "__call__", None)
    if os.geteuid() == 0:  # who may write everywhere
        locked = Path("locked").resolve()
        monkeypatch.setattr(atomic.os, "access", lambda folder, mode: Path(folder) != locked)
    table = f"""
        7 file/x.{suffix} | cannot write file/x.{suffix} | a part of its folder is a file
        7 file/new/x.{suffix} | cannot write file/new/x.{suffix} | a part of its folder is a file
        7 locked/x.{suffix} | cannot write locked/x | permission denied | choose a folder with write
        7 {"x" * 300}.{suffix} | file name too long | choose a shorter file name
    """
    refuse_all(table, words)


def test_a_disk_that_fills_up_during_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    put_pairs("abcd")
    fill_disk(monkeypatch, 3)
    command = "disparity l r -o out/ --color-map out/ --jsonl"
    run = pam(command)
    assert run.code == 7
    assert [record["code"] for record in run.records] == [0]
    assert run.complaints[-2] == "stopped after 1 ok; to resume, add --skip-existing to the same command"
    assert "no space left on device (free some space" in run.complaints[-1]
    assert names("out") == ["a.pfm", "a_color.png", "b.pfm"]  # whole, and nothing temporary
    fill_disk(monkeypatch, 99)
    again = pam(command, "--skip-existing")
    assert [record["status"] for record in again.records] == ["skipped", "ok", "ok", "ok"]
    assert len(names("out")) == 8


def put_pairs(stems: str) -> None:
    for side, name in (("l", "left.png"), ("r", "right.png")):
        Path(side).mkdir()
        for stem in stems:
            os.link(name, f"{side}/{stem}.png")
