"""Every command that writes, and what may befall it: the exit code, one line, nothing half-written."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import eval_trees
import numpy as np
import pam_program
import pytest
import safetensors.torch
import tifffile
import torch
from pam_program import Run, digest, names, pam, refuse, refuse_all
from PIL import Image
from unrectified import photographs, sample

from pamcli.cli import ames
from pamcli.evaluation import disparity, submissions
from pamcli.files.atomic import lock_folder
from pamcli.inference import onnx_file
from pamcli.inference.matcher import StereoMatcher

WEIGHTS = Path(__file__).parents[2] / "weights" / "passrnet-x2.safetensors"

TRAIN = "--crop 12x12 --batch 1 --steps 2 --set checkpoint_every=1 --workers 0 --device cpu -o out"
BATCHES = {
    "disparity": "disparity mine/left mine/right -o out/ --output-right out/ --color-map out/ --visible out/ "
    "--confidence out/ --page out/ --depth out/ --depth-error out/ --point-cloud out/ --focal 9 --baseline 1 "
    "--match-size 1",
    "superres": "superres mine/left mine/right --scale 2 -o out/",
    "rectify": "rectify crooked/left crooked/right --calibration crooked/rig.yaml -o out/",
    "depth": "depth made --focal 500 --baseline 0.1 -o out/ --point-cloud out/",
}
COMMANDS = {
    **BATCHES,
    "train": f"train superres --scale 2 --data pairs:mine {TRAIN}",
    "eval --save": "eval superres --scale 2 --data pairs:mine --save out",
    "eval --report": "eval disparity --data pairs:mine --predictions made --report out/r.html",
    "eval --per-image": "eval disparity --data pairs:mine --predictions made --per-image out/r.csv",
    "submit": "submit --data kitti2015/testing:kitti --predictions made -o out/k.zip",
    "asp": "pam-asp -r -9 -R 9 left.tif right.tif out/shift.tif",
    "prepare": "dataset prepare-flickr1024 large -o out --scale 2 --workers 1",
    "prepare folders": "dataset prepare-flickr1024 large -o out --scale 2 --workers 1 --store folders",
    "stereograms": "dataset prepare-flickr1024 crossed -o out --from-stereograms --infinity no --workers 1",
    "preview": "dataset preview pairs:mine -o out/sheet.png",
    "import": "weights import net.pth -o out/net.safetensors",
    "export": "weights export passrnet-x2 -o out/net.onnx",
}
MANY = ["rectify", "depth", "eval --save", "prepare", "prepare folders"]
"""Commands that write more than one result into a folder, one after the other; `disparity` as `depth`."""

pytestmark = pytest.mark.usefixtures("networks", "inputs")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read, each of them small."""
    folder = tmp_path_factory.mktemp("tree")
    eval_trees.pairs(folder / "mine")
    eval_trees.kitti2015(folder / "kitti", "testing")
    shutil.copytree(folder / "mine/disparity", folder / "made")
    views = sample((100, 100, 340, 280))
    photographs(*views).write(folder / "crooked", "left/0.png", "right/0.png")
    for part in ("large/Train", "crossed"):
        (folder / part).mkdir(parents=True)
    for number in range(3):
        for side, letter in (("left", "L"), ("right", "R")):
            taken = folder / "crooked" / side
            shutil.copy(taken / "0.png", folder / "large/Train" / f"{number:04d}_{letter}.png")
            if number:
                shutil.copy(taken / "0.png", taken / f"{number}.png")
        Image.fromarray(np.hstack(views[::-1])).save(folder / "crossed" / f"{number}.png")
    for side, view in zip(("left", "right"), views, strict=True):
        tifffile.imwrite(folder / f"{side}.tif", view[:32, :64, 1].astype(np.float32))
    torch.save(safetensors.torch.load_file(WEIGHTS), folder / "net.pth")
    return folder


@pytest.fixture
def inputs(here: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their folder; a KITTI of two pairs; an export that comes at once, and is none."""
    shutil.copytree(tree, here, dirs_exist_ok=True)
    rules = replace(submissions.load_rules("kitti2015"), test=tuple(eval_trees.BOXES))
    monkeypatch.setattr(submissions, "load_rules", lambda kind: rules)
    made = onnx_file.Exported(b"an export", (1, 1), "grey levels", 0.0, 0.0, (0.0, 0.0))
    monkeypatch.setattr(onnx_file, "export", lambda *given, **more: made)


def results() -> dict[str, str]:
    found = Path("out").rglob("*") if Path("out").exists() else []
    return {str(path): digest(path.read_bytes()) for path in found if path.is_file()}


def started(command: str, *more: str) -> Run:
    program, *words = [*COMMANDS[command].split(), *more]
    with pytest.MonkeyPatch.context() as patch:
        if program == "pam-asp":
            patch.setattr(pam_program, "main", ames.main)
            return pam(*words)
        return pam(program, *words)


def refused(command: str, *, code: int = 7) -> str:
    """What the command says that cannot write; batches say a line a pair, and end with 6."""
    run = started(command)
    errors = [line for line in run.complaints if line.startswith("error: ")]
    assert run.code == code, run.stderr
    assert len(errors) == 1 or command in BATCHES, run.stderr
    assert not any("unexpected" in line for line in errors)
    return errors[0]


def raises(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def fill_disk(patch: pytest.MonkeyPatch, after: int) -> None:
    """Let some results be written, new ones or in the place of others; the next one finds the disk full."""
    left = iter(range(after))

    def put(usual: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise raises(errno.ENOSPC)
        usual(source, target)

    for name in ("replace", "link"):
        patch.setattr(os, name, functools.partial(put, getattr(os, name)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch, 0)
    assert "no space left on device" in refused(command)
    assert [name for name in results() if ".pam-" in name] == []


def test_a_disk_that_fills_up_during_a_batch() -> None:
    command = "disparity mine/left mine/right -o out/ --color-map out/ --jsonl"
    with pytest.MonkeyPatch.context() as patch:
        fill_disk(patch, 3)
        run = pam(command)
    assert run.code == 7
    assert [record["code"] for record in run.records] == [0]
    assert run.complaints[-2] == "stopped after 1 ok; to resume, add --skip-existing to the same command"
    assert "no space left on device (free some space" in run.complaints[-1]
    made = ["000000_10.pfm", "000000_10_color.png", "000001_10.pfm"]  # whole, and nothing temporary
    assert names("out") == made
    again = pam(command, "--skip-existing")
    assert [record["status"] for record in again.records] == ["skipped", "ok"]
    assert names("out") == [*made, "000001_10_color.png"]


def test_places_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found before the network runs."""
    monkeypatch.setattr(StereoMatcher, "__call__", None)
    Path("file").write_text("here")
    Path("locked").mkdir(mode=0o555)
    if os.geteuid() == 0:  # who may write everywhere
        locked = Path("locked").resolve()
        monkeypatch.setattr(os, "access", lambda folder, mode: Path(folder) != locked)
    table = f"""
        7 file/x.pfm | cannot write file/x.pfm | a part of its folder is a file
        7 file/new/x.pfm | cannot write file/new/x.pfm | a part of its folder is a file
        7 locked/x.pfm | cannot write locked/x | permission denied | choose a folder with write
        7 {"x" * 300}.pfm | file name too long | choose a shorter file name
    """
    pair = "mine/left/000000_10.png mine/right/000000_10.png"
    refuse_all(table, f"disparity {pair} -o good.pfm --output-right")


@pytest.mark.parametrize("command", ["disparity", "rectify", "train", "submit", "prepare", "import"])
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
    later = command in BATCHES and command != "rectify"  # whose calibration is tried before the pairs
    assert "read-only file system" in refused(command, code=6 if later else 7)
    assert results() == {}


@pytest.mark.parametrize("command", MANY)
def test_a_folder_that_is_removed_in_the_middle(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is lost, and that is said: not a folder made anew with the rest in it, and a 0."""
    count = iter(range(1000))

    def put(usual: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        usual(source, target)
        if next(count) == 2:
            shutil.rmtree("out")

    for name in ("replace", "link"):
        monkeypatch.setattr(os, name, functools.partial(put, getattr(os, name)))
    run = started(command)
    errors = [line for line in run.complaints if line.startswith("error: ")]
    assert (run.code, len(errors)) == (7, 1), run.stderr
    assert "out" in errors[0]


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluated(*given: object, **more: object) -> None:
        raise MemoryError("12 GiB for an array")

    monkeypatch.setattr(disparity, "evaluate", evaluated)
    refuse(started("eval --report"), 5, "not enough memory: 12 GiB for an array")
    assert results() == {}


@pytest.mark.parametrize("command", ["train", "prepare", "prepare folders", "stereograms"])
def test_a_second_process(command: str) -> None:
    with lock_folder(Path("out")):
        run = started(command)
        assert run.code == 2
        assert f"another process (process {os.getpid()}) is writing into out" in run.stderr
        assert results() == {}
