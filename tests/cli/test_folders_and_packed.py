"""Two folders, two templates, packed images: who belongs together, and what the results are called."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

pytestmark = pytest.mark.usefixtures("remembering_networks")


def put(*places: str) -> None:
    """left.png and right.png again, under names that say L or R."""
    for place in places:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        os.link("left.png" if "L" in place else "right.png", place)


def test_images_without_a_partner(small_pair: Path) -> None:
    put("L/a.png", "L/b.png", "L/c.png", "R/a.png", "R/d.png")
    for command in ("disparity", "superres"):
        with unchanged():
            said = "3 files without a counterpart", "--skip-unpaired", "L/b.png, L/c.png, R/d.png"
            refuse(pam(command, "L", "R", "-o", "out/"), 2, *said)
        run = succeed(command, "L", "R", "-o", command, "--skip-unpaired")
        lonely = [
            f"warning: {name} has no partner and is ignored" for name in ("L/b.png", "L/c.png", "R/d.png")
        ]
        assert run.complaints == [*lonely, "1 ok"]
    assert names("disparity") == ["a.pfm"]
    Path("empty").mkdir()
    refuse(pam("disparity empty R -o out/ --skip-unpaired"), 2, "the folder empty is empty", "check the path")


def test_folders_and_templates_that_do_not_fit(small_pair: Path) -> None:
    put("aL/a.png", "bR/b.png", "twoL/a.png", "twoL/a.jpg", "twoR/a.png", "textL/a.txt", "subL/sub/a.png")
    put("L/L_0001.png", "L/L_0002.png", "R/R_0813.png", "R/R_0814.png", "day/1_L.png", "day/2_R.png")
    table = r"""
        2 aL bR -o out/ | the image names in aL and bR do not match, for example a and b
        2 twoL twoR -o out/ | have the same stem: twoL/a.jpg and twoL/a.png
        2 L R -o out/ | paste <(printf '%s\n' L/L_*.png) <(printf '%s\n' R/R_*.png) >pairs.txt
        2 textL bR -o out/ | the folder textL contains no images
        2 subL bR -o out/ | the folder subL contains no images
        2 . . -o out/ | . was given for both views | {}_L.png
        2 day/{}_L.png day/{}_R.png -o o/ | none with the same text
        2 x_{}.png day/{}_R.png -o o/ | x_{}.png matches 0 files
        2 day/{} day/{} -o o/ | both templates are day/{}
        3 none/{}_L.png day/{}_R.png -o o/ | the folder none/ does not exist
    """
    refuse_all(table, "disparity")
    put("oneL/a.png", "oneR/a.png")
    table = """
        2 -o x.png | x.png is one file for many pairs | out/{}
        2 --color-map x.png | x.png is one file for many pairs | out/{}
    """
    refuse_all(table, "disparity oneL oneR")


def test_templates_reach_into_folders(small_pair: Path) -> None:
    put("day/1_L.png", "day/1_R.png", "day/sub/2_L.png", "day/sub/2_R.png", "day/3_L.jpg")
    colors = ["--color-map", "colors/{}/c.png"]
    run = pam("disparity", "day/{}_L.png", "day/{}_R.png", "-o", "out/{}.npy", *colors)
    assert run.lines == ["out/1.npy", "colors/1/c.png", "out/sub/2.npy", "colors/sub/2/c.png"]
    run = pam("superres", "./day/{}_L.png", "day//{}_R.png", "--scale", "2", "-o", "x2")
    assert names("x2") == ["1_left.png", "1_right.png", "sub/2_left.png", "sub/2_right.png"]


@pytest.fixture
def packed(small_pair: Path) -> Path:
    """Packed images lr.png, rl.png, tb.png and bt.png, and the result d.pfm of the pair."""
    left, right = (np.asarray(Image.open(name)) for name in ("left.png", "right.png"))
    for layout, views, axis in (
        ("lr", (left, right), 1),
        ("rl", (right, left), 1),
        ("tb", (left, right), 0),
        ("bt", (right, left), 0),
    ):
        Image.fromarray(np.concatenate(views, axis)).save(f"{layout}.png")
    succeed("disparity", "left.png", "right.png", "-o", "d.pfm")
    return small_pair


def test_packed_views_are_told_apart(packed: Path) -> None:
    for layout in ("lr", "rl", "tb", "bt"):
        run = pam("disparity", "--packed", layout, f"{layout}.png", "-o", f"p_{layout}.pfm")
        assert run.lines == [f"p_{layout}.pfm"]
        assert Path(f"p_{layout}.pfm").read_bytes() == Path("d.pfm").read_bytes()


def test_a_packed_image_from_stdin(packed: Path) -> None:
    picture = Path("rl.png").read_bytes()
    run = pam("disparity", "--packed", "rl", "-", "-o", "-", stdin=picture)
    assert run.stdout == Path("d.pfm").read_bytes()
    assert pam("disparity", "--packed", "rl", "-", "-o", "from/", stdin=picture).lines == ["from/stdin.pfm"]
    run = pam("disparity", "--packed", "rl", "-", "-o", "p.pfm", "--jsonl", stdin=picture)
    assert (run.records[0]["left"], run.records[0]["right"]) == ("-", None)
    twice = np.tile(np.asarray(Image.open("left.png")), (1, 2, 1))
    buffer = io.BytesIO()
    Image.fromarray(twice).save(buffer, "png")
    run = succeed("disparity", "--packed", "lr", "-", "-o", "q.pfm", stdin=buffer.getvalue())
    assert [line.partition(",")[0] for line in run.complaints] == [
        "warning: standard input: both images are identical"
    ]


def test_packed_images_of_a_batch(packed: Path) -> None:
    for name in ("frames/a.jpg", "frames/sub/b.jpg", "frames/a.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.open("lr.png").save(name, "jpeg")
    run = pam("disparity", "--packed", "lr", "frames", "-o", "out")
    assert run.lines == ["out/a.pfm"]
    run = pam("disparity", "--packed", "lr", "frames/a.jpg", "frames/sub/b.jpg", "-o", "out2")
    assert run.lines == ["out2/frames/a.pfm", "out2/frames/sub/b.pfm"]
    here = os.getcwd()
    os.chdir("frames/sub")
    command = ["disparity", "--packed", "lr", "../a.jpg", "b.jpg", "-o", "out"]
    with unchanged():
        refuse(pam(*command), 2, "../a.jpg lies outside of the folder", "--root DIR")
    assert pam(*command, "--root", "..").lines == ["out/a.pfm", "out/sub/b.pfm"]
    os.chdir(here)
    with unchanged():
        said = "no such file: frames/c.jpg"
        refuse(pam("disparity", "--packed", "lr", "frames/a.jpg", "frames/c.jpg", "-o", "o/"), 3, said)
