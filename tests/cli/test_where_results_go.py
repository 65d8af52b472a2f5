"""Results never meet each other, an input or an older result; folders and names are made as asked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pam_program import digest, files, forked_quick, names, pam, refuse, refuse_all, unchanged

from pamcli.files.atomic import write_atomically

pytestmark = pytest.mark.usefixtures("remembering_networks")


@pytest.fixture
def batch(pair: Path) -> Path:
    """Folders l and r with images of ten stems."""
    for folder, picture in (("l", "left.png"), ("r", "right.png")):
        Path(folder).mkdir()
        for number in range(1, 11):
            os.link(picture, f"{folder}/{number}.png")
    return pair


# --- in the place of something --------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["disparity", "superres"])
def test_results_in_the_place_of_something(batch: Path, command: str) -> None:
    Path("sub").mkdir()
    os.symlink("right.png", "link.png")
    os.symlink(".", "linked")
    for name in ("loop", "loop.png"):
        os.symlink(name, name)
    Path("x.png").write_bytes(b"old")
    Path("out/left.png").mkdir(parents=True)
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
        2 left.png right.png -o x.png | 1 result already exists: x.png
        2 left.png right.png -o out --format png --overwrite | a folder has the name of a result: out/left.png
        7 left.png right.png -o loop.png | too many levels of symbolic links
        7 left.png right.png -o loop/x.png | too many levels of symbolic links
        7 left.png right.png -o loop/ --format png | too many levels of symbolic links
    """
    refuse_all(table, command)
    if command == "disparity":
        for option in ("--color-map", "--visible", "--confidence"):
            suffix = "tif" if option == "--confidence" else "png"
            line = f"2 -o y.{suffix} {option} ./y.{suffix} | y.{suffix} would be both disparity and"
            refuse_all(line, "disparity left.png right.png")


def test_two_pairs_with_one_result(pair: Path) -> None:
    Path("a").mkdir()
    shutil.copy("left.png", "a/left.png")
    with unchanged():
        run = pam("superres", "--packed", "lr", "left.png", "./left.png", "-o", "out/")
        refuse(run, 2, "out/left_left.png would come from left.png and from left.png")
    run = pam("superres --packed lr left.png a/left.png -o out/ --scale 2")
    made = [f"out/{folder}left_{side}.png" for folder in ("", "a/") for side in ("left", "right")]
    assert (run.code, sorted(run.lines)) == (0, sorted(made))


# --- results that exist ---------------------------------------------------------------------------------


def test_existing_results_are_counted(batch: Path) -> None:
    Path("out").mkdir()
    for number in range(2, 9):
        Path(f"out/{number}.pfm").write_bytes(b"old")
    with unchanged():
        run = pam("disparity", "l", "r", "-o", "out")
        said = "7 results already exist: out/2.pfm, out/3.pfm, out/4.pfm, out/5.pfm, out/6.pfm and 2 more"
        refuse(run, 2, said, "--overwrite", "--skip-existing")


def test_overwriting_keeps_the_old_result_when_there_is_no_new_one(pair: Path) -> None:
    Path("x.pfm").write_bytes(b"old")
    Path("right.png").write_bytes(b"")
    with unchanged():
        refuse(pam("disparity left.png right.png -o x.pfm --overwrite"), 3, "right.png is empty")


def test_skipping_what_exists(batch: Path) -> None:
    Path("out").mkdir()
    for name in ("1.pfm", "1_color.png", "2.pfm", "3_color.png"):
        Path("out", name).write_bytes(b"old")
    command = ["disparity", "l", "r", "-o", "out", "--color-map", "out", "--skip-existing"]
    run = pam(*command, "--jsonl")
    assert run.code == 0
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


@pytest.mark.parametrize(("options", "code", "kept"), [("", 6, True), ("--overwrite", 0, False)])
def test_results_of_another_run_are_kept(
    options: str, code: int, kept: bool, batch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that another process writes while this one computes is not replaced without --overwrite."""

    def write_first(path: Path, data: bytes, **options: bool) -> None:
        if path.name == "3.pfm":
            path.write_bytes(b"another run")
        write_atomically(path, data, **options)

    Path("out").mkdir()
    monkeypatch.setattr("pamcli.batch.processing.write_atomically", write_first)
    run = pam(f"disparity l r -o out/ {options}")
    assert run.code == code
    assert (Path("out/3.pfm").read_bytes() == b"another run") == kept
    if code:
        assert "out/3.pfm" not in run.lines
        hint = "already exists: another process has written it meanwhile (use --overwrite to replace it)"
        assert any(f"out/3.pfm {hint}" in line for line in run.complaints)


# --- names ----------------------------------------------------------------------------------------------


def test_folders_are_made(pair: Path) -> None:
    command = "disparity left.png right.png -o a/b/ --color-map c/d/{}.JPG --visible"
    run = pam(command, "a")
    assert (run.code, run.lines) == (2, [])  # "a" is no folder yet
    run = pam(command, "a/")
    assert run.lines == ["a/b/left.pfm", "c/d/left.JPG", "a/left_visible.png"]
    assert names("a") + names("c") == ["b/left.pfm", "left_visible.png", "d/left.JPG"]


def test_every_result_in_a_folder(pair: Path) -> None:
    Path("o").mkdir()
    every = ["--output-right", "o", "--color-map", "o", "--visible", "o", "--confidence", "o"]
    run = pam("disparity", "left.png", "right.png", "-o", "o", *every, "--format", "png")
    made = ["left.png", "left_right.png", "left_color.png", "left_visible.png", "left_confidence.tif"]
    assert run.lines == [f"o/{name}" for name in made]
    assert names("o") == sorted(made)


@pytest.mark.parametrize("stem", ["ünïcødé 視差", "new\nline", "-dash", "{", "\x1b[31mred"])
def test_strange_names(pair: Path, stem: str) -> None:
    os.rename("left.png", f"{stem}.png")
    os.rename("right.png", f"{stem}_R.png")
    run = pam("disparity", "-o", "out/", "--", f"{stem}.png", f"{stem}_R.png")
    assert run.code == 0
    assert run.stdout.decode() == f"out/{stem}.pfm\n"
    assert names("out") == [f"{stem}.pfm"]
    Path(f"{stem}_R.png").write_bytes(b"")
    refuse(pam("disparity", "-o", "out2/", "--", f"{stem}.png", f"{stem}_R.png"), 3, "_R.png is empty")


def test_a_name_that_is_no_text(pair: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    os.rename("left.png", name)
    run = pam("disparity", name, "right.png", "-o", "out/")
    assert run.stdout == b"out/caf\xe9.pfm\n"
    refuse(pam("disparity", name, name, "-o", "x.pfm"), 2, r"caf\udce9.png")


def test_a_name_that_the_encoding_of_stdout_does_not_have(pair: Path) -> None:
    command = ["disparity", "left.png", "right.png", "-o", "dü.pfm"]
    with forked_quick(*command, env={**os.environ, "PYTHONIOENCODING": "ascii"}) as running:
        assert running.communicate() == (os.fsencode("dü.pfm\n"), b"")
    assert Path("dü.pfm").exists()
