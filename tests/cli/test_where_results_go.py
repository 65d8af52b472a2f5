"""Results never meet each other, an input or an older result; folders and names are made as asked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pam_program import digest, files, forked_quick, names, pam, refuse, refuse_all, succeed, unchanged
from unrectified import photographs, sample

from pamcli.files.atomic import write_atomically
from pamcli.imaging.disparity_encoding import encode_disparity

pytestmark = pytest.mark.usefixtures("remembering_networks")


@pytest.fixture
def batch(pair: Path) -> Path:
    """Folders l and r with images of ten stems."""
    for folder, picture in (("l", "left.png"), ("r", "right.png")):
        Path(folder).mkdir()
        for number in range(1, 11):
            os.link(picture, f"{folder}/{number}.png")
    return pair


def test_results_in_the_place_of_something(batch: Path) -> None:
    Path("sub").mkdir()
    os.symlink("right.png", "link.png")
    os.symlink(".", "linked")
    for name in ("loop", "loop.png"):
        os.symlink(name, name)
    Path("x.png").write_bytes(b"old")
    Path("out/left.png").mkdir(parents=True)
    Path("empty.png").touch()
    table = """
        2 left.png right.png -o left.png --overwrite | left.png would overwrite an input
        2 left.png right.png -o ./right.png --overwrite | right.png would overwrite an input
        2 left.png right.png -o sub/../left.png --overwrite | sub/../left.png would overwrite an input
        2 left.png right.png -o link.png --overwrite | link.png would overwrite an input
        2 left.png right.png -o linked/left.png --overwrite | linked/left.png would overwrite an input
        2 left.png right.png -o {}.png --overwrite | left.png would overwrite an input
        2 left.png link.png -o right.png --overwrite | right.png would overwrite an input
        2 left.png link.png -o link.png --overwrite | link.png would overwrite an input
        2 l/{}.png r/{}.png -o l/{}.png --overwrite | l/1.png would overwrite an input; l/2.png | and 5 more
        2 left.png right.png -o y.png --output-right ./y.png | y.png would be both
        2 left.png right.png -o y.png --color-map ./y.png | y.png would be both disparity and
        2 left.png right.png -o x.png | 1 result already exists: x.png
        3 left.png empty.png -o x.png --overwrite | empty.png is empty
        2 left.png right.png -o out --format png --overwrite | a folder has the name of a result: out/left.png
        7 left.png right.png -o loop.png | too many levels of symbolic links
        7 left.png right.png -o loop/x.png | too many levels of symbolic links
        7 left.png right.png -o loop/ --format png | too many levels of symbolic links
    """
    refuse_all(table, "disparity")
    table = """
        2 left.png right.png -o left.png --overwrite | left.png would overwrite an input
        2 left.png right.png -o x.png | 1 result already exists: x.png
    """
    refuse_all(table, "superres")


def test_skipping_what_exists(batch: Path) -> None:
    Path("out").mkdir()
    for name in ("1.pfm", "1_color.png", "2.pfm", "3_color.png"):
        Path("out", name).write_bytes(b"old")
    command = ["disparity", "l", "r", "-o", "out", "--color-map", "out", "--skip-existing"]
    run = succeed(*command, "--jsonl")
    assert run.complaints[-1] == "9 ok, 1 skipped"
    assert [record["left"] for record in run.records if record["status"] == "skipped"] == ["l/1.png"]
    # A pair of which one result is missing is done again whole.
    old = digest(b"old")
    assert {name for name, data in files(Path("out")).items() if data == old} == {"1.pfm", "1_color.png"}
    with unchanged():
        again = pam(*command, "--verbose")
    assert (again.code, again.lines) == (0, [])
    assert "l/3.png: skipped, because all results exist" in again.complaints
    assert again.complaints[-1] == "10 skipped"


def test_results_of_another_run_are_kept(batch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that another process writes while this one computes is not replaced."""

    def write_first(path: Path, data: bytes, **options: bool) -> None:
        if path.name == "3.pfm":
            path.write_bytes(b"another run")
        write_atomically(path, data, **options)

    Path("out").mkdir()
    monkeypatch.setattr("pamcli.batch.processing.write_atomically", write_first)
    run = pam("disparity l r -o out/")
    assert run.code == 6
    assert Path("out/3.pfm").read_bytes() == b"another run"
    assert "out/3.pfm" not in run.lines
    hint = "already exists: another process has written it meanwhile (use --overwrite to replace it)"
    assert any(f"out/3.pfm {hint}" in line for line in run.complaints)


def test_folders_are_made(pair: Path) -> None:
    command = "disparity left.png right.png -o a/b/ --color-map c/d/{}.JPG --confidence c/ --visible"
    run = pam(command, "a")
    assert (run.code, run.lines) == (2, [])  # "a" is no folder yet
    run = pam(command, "a/", "--output-right", "a/")
    made = ["a/b/left.pfm", "a/left_right.pfm", "c/d/left.JPG", "a/left_visible.png", "c/left_confidence.tif"]
    assert run.lines == made
    assert [f"a/{name}" for name in names("a")] + [f"c/{name}" for name in names("c")] == sorted(made)


@pytest.mark.parametrize("stem", ["ünïcødé 視差", "-dash", "\x1b[31mred\n", os.fsdecode(b"caf\xe9")])
def test_strange_names(pair: Path, stem: str) -> None:
    os.rename("left.png", f"{stem}.png")
    os.rename("right.png", f"{stem}_R.png")
    run = succeed("disparity", "-o", "out/", "--", f"{stem}.png", f"{stem}_R.png")
    assert run.stdout == os.fsencode(f"out/{stem}.pfm\n")
    assert names("out") == [f"{stem}.pfm"]
    Path(f"{stem}_R.png").write_bytes(b"")
    refuse(pam("disparity", "-o", "out2/", "--", f"{stem}.png", f"{stem}_R.png"), 3, "_R.png is empty")


def test_a_name_that_the_encoding_of_stdout_does_not_have(pair: Path) -> None:
    command = ["disparity", "left.png", "right.png", "-o", "dü.pfm"]
    with forked_quick(*command, env={**os.environ, "PYTHONIOENCODING": "ascii"}) as running:
        assert running.communicate() == (os.fsencode("dü.pfm\n"), b"")
    assert Path("dü.pfm").exists()


WEIGHTS = Path(__file__).parents[2] / "weights" / "pasmnet2.safetensors"
RECTIFY = "rectify left.png right.png --calibration rig.yaml -o out/ --overwrite"
DEPTH = "depth d.pfm --calibration out/calibration.yaml --overwrite"


@pytest.fixture
def inputs(here: Path) -> None:
    """Photographs with their rig, rectified in out/; a disparity; weights; a link."""
    photographs(*sample((100, 100, 420, 340))).write(here)
    succeed(*RECTIFY.split())
    Path("d.pfm").write_bytes(encode_disparity(np.full((240, 320), 9, np.float32), ".pfm").data)
    Path("list.pfm").write_text("left.png\tright.png\n")
    shutil.copy(WEIGHTS, "net.onnx")
    os.symlink("out/calibration.yaml", "link.tif")


@pytest.mark.usefixtures("inputs", "mine", "made")
def test_results_over_inputs() -> None:
    os.symlink("left.png", "r.html")
    table = f"""
        2 {RECTIFY} --output-calibration rig.yaml | would
        2 {RECTIFY} --output-calibration left.png | would
        2 {RECTIFY} --output-calibration out/left.png | would
        2 {DEPTH} -o link.tif | would
        2 disparity left.png right.png -o link.tif --overwrite --calibration out/calibration.yaml | would
        2 disparity --pairs list.pfm -o list.pfm --overwrite | list.pfm
        2 weights export net.onnx -o net.onnx --overwrite | would
        2 eval disparity --data pairs:mine --predictions made --report r.html --overwrite | r.html is a link
    """
    refuse_all(table)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda name: os.symlink("calibration.yaml", name)])
def test_a_calibration_whose_name_is_taken(make: Callable[[str], None]) -> None:
    shutil.rmtree("out")
    os.mkdir("out")
    make("out/calibration.yaml")
    with unchanged():
        refuse(pam(*RECTIFY.split()), 7, "out/calibration.yaml")


def test_an_empty_name_is_neither_the_folder_nor_the_default(here: Path) -> None:
    table = """
        2 disparity left.png right.png -o d.pfm --weights '' | empty
        2 disparity --pairs list.pfm -o out/ --root '' | empty
        2 rectify left.png right.png --calibration rig.yaml -o out/ --output-calibration '' | empty
        2 depth '' -o x.tif --focal 9 --baseline 1 | empty
        2 calibration show '' | empty
        2 eval disparity --data pairs:. --predictions '' | empty
        2 eval disparity --data pairs:. --report '' | empty
        2 eval superres --data pairs:. --save '' | empty
        2 dataset prepare-flickr1024 . -o '' --scale 2 | empty
        2 dataset prepare-flickr1024 '' -o out --scale 2 | empty
        2 disparity l r -o out/ --engine ray --ray-address '' | empty
        2 train disparity --data pairs:. -o run --recipe '' | empty
        2 train disparity --data pairs:. -o '' | empty
        2 train disparity --data pairs:. -o run --from '' | empty
        2 weights import '' -o x.safetensors | empty
    """
    refuse_all(table)
