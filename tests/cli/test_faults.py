"""Every command that writes, and what may befall it: the exit code, one line, nothing half-written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import eval_trees
import pytest
import safetensors.torch
import torch
from pam_program import pam
from unrectified import photographs, sample

from pamcli.files.atomic import owned

TRAIN = "--crop 12x12 --batch 1 --steps 2 --checkpoint-every 1 --workers 0 --device cpu -o out"
BATCHES = {
    "disparity": "disparity mine/left mine/right -o out/ --color-map out/",
    "superres": "superres mine/left mine/right --scale 2 -o out/",
    "rectify": "rectify crooked/left crooked/right --calibration crooked/rig.yaml -o out/",
    "depth": "depth made --focal 500 --baseline 0.1 -o out/ --point-cloud out/",
}
COMMANDS = {
    **BATCHES,
    "train": f"train superres --scale 2 --data pairs:mine {TRAIN}",
    "eval --save": "eval superres --scale 2 --data pairs:mine --save out",
    "eval --report": "eval disparity --data pairs:mine --predictions made --report out/r.html",
    "prepare": "dataset prepare-flickr1024 large -o out --scale 2 --workers 1",
    "prepare folders": "dataset prepare-flickr1024 large -o out --scale 2 --workers 1 --store folders",
    "preview": "dataset preview pairs:mine -o out/sheet.png",
    "import": "weights import net.pth -o out/net.safetensors",
}
MANY = [*BATCHES, "train", "eval --save", "prepare", "prepare folders"]
"""Those that write more than one result into a folder, one after the other."""

pytestmark = pytest.mark.usefixtures("networks", "inputs")


@pytest.fixture
def inputs(here: Path) -> None:
    """Pairs with truth in mine/, disparities in made/, crooked photographs, large pictures, a checkpoint."""
    eval_trees.pairs(here / "mine")
    shutil.copytree("mine/disparity", "made")
    taken = photographs(*sample((100, 100, 420, 340)))
    for number in range(3):
        taken.write(here / "crooked", f"left/{number}.png", f"right/{number}.png")
        for side, letter in (("left", "L"), ("right", "R")):
            Path("large/Train").mkdir(parents=True, exist_ok=True)
            shutil.copy(f"crooked/{side}/{number}.png", f"large/Train/{number:04d}_{letter}.png")
    weights = Path(__file__).parents[2] / "weights" / "passrnet-x2.safetensors"
    torch.save(safetensors.torch.load_file(weights), "net.pth")


def results() -> dict[str, bytes]:
    found = Path("out").rglob("*") if Path("out").exists() else []
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def refused(command: str) -> str:
    """What the command says that cannot write; batches say a line a pair, and end with 6."""
    run = pam(*COMMANDS[command].split())
    errors = [line for line in run.complaints if line.startswith("error: ")]
    assert run.code == (6 if command in BATCHES else 7), run.stderr
    assert len(errors) == 1 or command in BATCHES, run.stderr
    assert not any("unexpected" in line for line in errors)
    return errors[0]


def raises(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        raise raises(errno.ENOSPC)

    monkeypatch.setattr(os, "replace", replace)
    assert "no space left on device" in refused(command)
    assert [name for name in results() if ".pam-" in name] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_can_only_be_read(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, make = os.open, os.mkdir

    def opened(path: str, flags: int, *more: int, **names: int) -> int:
        if (flags & os.O_CREAT and "out" in str(path)) or ".pam-" in str(path):
            raise raises(errno.EROFS)
        return usual(path, flags, *more, **names)

    def made(path: str, *more: int, **names: int) -> None:
        if "out" in str(path):
            raise raises(errno.EROFS)
        make(path, *more, **names)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "mkdir", made)
    assert "read-only file system" in refused(command)
    assert results() == {}


@pytest.mark.parametrize("command", MANY)
def test_a_folder_that_is_removed_in_the_middle(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is lost, and that is said: not a folder made anew with the rest in it, and a 0."""
    usual, count = os.replace, iter(range(1000))

    def replace(source: Path, target: Path) -> None:
        usual(source, target)
        if next(count) == 2:
            shutil.rmtree("out")

    monkeypatch.setattr(os, "replace", replace)
    run = pam(*COMMANDS[command].split())
    errors = [line for line in run.complaints if line.startswith("error: ")]
    assert (run.code, len(errors)) == (7, 1), run.stderr
    assert "out" in errors[0]


@pytest.mark.parametrize("command", ["train", "prepare", "prepare folders"])
def test_a_second_process(command: str) -> None:
    with owned(Path("out")):
        run = pam(*COMMANDS[command].split())
        assert run.code == 2
        assert f"another process (process {os.getpid()}) is writing into out" in run.stderr
        assert results() == {}


@pytest.mark.parametrize("command", BATCHES)
def test_two_batches_into_one_folder_leave_what_one_would(command: str) -> None:
    """As every result appears whole, whichever was there first."""
    words = COMMANDS[command].split()
    assert pam(*words).code == 0
    first = results()
    assert first
    assert pam(*words, "--overwrite").code == 0
    assert results() == first
    assert pam(*words).code == 2
    assert results() == first
