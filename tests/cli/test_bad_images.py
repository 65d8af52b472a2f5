"""Images that cannot be used: one line on stderr, the exit code, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pam_program import files, names, pam, refuse, refuse_all
from PIL import Image

pytestmark = pytest.mark.usefixtures("networks")

COMMANDS = {"disparity": ["disparity", "-o", "result.pfm"], "superres": ["superres", "-o", "result.png"]}
both_commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and ends there."""
    header = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


CONTENTS = {
    "empty": b"",
    "text": b"Dear diary",
    "pfm": b"Pf\n1 1\n-1.0\n\0\0\0\0",
    "header": png_header(96, 64),
    "signature": b"\x89PNG\r\n\x1a\n",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "giant.png": png_header(20001, 20000),
}


@both_commands
def test_files_that_are_no_pair(pair: Path, command: list[str]) -> None:
    for name, content in CONTENTS.items():
        Path(name).write_bytes(content)
    for suffix in ("png", "jpg", "tif", "webp"):
        Image.open("right.png").save(cut := Path(f"cut.{suffix}"))
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 2 // 3])
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.open("right.png").save("turned.png", exif=exif)
    for name, size in {"narrow": (90, 64), "flat": (96, 7), "thin": (7, 64)}.items():
        Image.open("right.png").crop((0, 0, *size)).save(f"{name}.png")
        Image.open("left.png").crop((0, 0, *size)).save(f"left_{name}.png")
    Path("folder").mkdir()
    os.symlink("left.png", "link.png")
    os.link("left.png", "hard.png")
    least = {"disparity": 16, "superres": 8}[command[0]]
    table = f"""
        3 left.png none.png | no such file: none.png
        3 l/*.png r/*.png | no such file: l/*.png | use {{}}
        2 left.png folder | folder is a folder and left.png is a file
        3 left.png empty | error: empty is empty
        3 empty right.png | error: empty is empty
        3 left.png text | text is not an image
        3 text right.png | text is not an image
        3 left.png pfm | PFM
        3 left.png header | header is damaged or truncated
        3 signature right.png | signature is damaged or truncated
        3 left.png jpeg | jpeg is damaged or truncated
        3 left.png cut.png | cut.png is damaged or truncated
        3 left.png cut.jpg | cut.jpg is damaged or truncated
        3 left.png cut.tif | cut.tif is damaged or truncated
        3 left.png cut.webp | cut.webp is damaged or truncated
        2 left.png left.png | the same file | left.png
        2 left.png ./left.png | the same file | left.png
        2 left.png link.png | the same file | left.png
        2 left.png hard.png | the same file | left.png
        3 left.png narrow.png | left.png | narrow.png | 96x64 | 90x64
        3 left.png turned.png | EXIF orientations | 1 and 3 | turned.png
        3 left_flat.png flat.png | left_flat.png | 96x7 | at least {least}
        3 left_thin.png thin.png | left_thin.png | 7x64 | at least {least}
        3 giant.png right.png | giant.png is 20001x20000 = 400,020,000 pixels, over the limit of 400,000,000
        3 giant.png right.png | --max-pixels
        3 giant.png right.png --max-pixels none | damaged or truncated
        3 giant.png right.png --max-pixels 400020000 | damaged or truncated
        3 left.png right.png --max-pixels 6143 | left.png is 96x64 = 6,144 pixels, over the limit of 6,143
        3 --packed lr - | standard input is empty
    """
    for text in ("0", "-1", "1e6", "many", "''", "1.5", "9" * 5000):
        table += (
            f"\n 2 left.png right.png --max-pixels {text} | --max-pixels must be a positive whole number or"
        )
    refuse_all(table, *command)
    refuse_all("3 --packed lr - | standard input is not an image", *command, stdin=b"no")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@both_commands
def test_an_image_without_permission(pair: Path, command: list[str]) -> None:
    Path("right.png").chmod(0)
    refuse(pam(*command, "left.png", "right.png"), 3, "right.png", "no permission")


@pytest.mark.parametrize(("command", "size"), [("disparity", 16), ("superres", 8)])
def test_the_smallest_size_and_the_smallest_limit(pair: Path, command: str, size: int) -> None:
    for name in ("left.png", "right.png"):
        Image.open(name).crop((0, 0, size, size)).save(name)
    assert pam(*COMMANDS[command], "left.png", "right.png", "--max-pixels", str(size * size)).code == 0


@both_commands
def test_a_batch_goes_on_past_bad_images(pair: Path, command: list[str]) -> None:
    for folder, picture in (("l", "left.png"), ("r", "right.png")):
        Path(folder).mkdir()
        for stem in ("empty", "good", "small", "text", "tight"):
            shutil.copy(picture, f"{folder}/{stem}.png")
    Path("r/empty.png").write_bytes(b"")
    Path("l/text.png").write_text("not a picture")
    Image.open("r/small.png").crop((0, 0, 90, 60)).save("r/small.png")
    for side in "lr":
        Image.open(f"{side}/tight.png").crop((0, 0, 5, 5)).save(f"{side}/tight.png")
    before = files(pair)
    run = pam(command[0], "l", "r", "-o", "out/", "--jsonl")
    assert run.code == 6
    assert {record["left"]: (record["status"], record["code"]) for record in run.records} == {
        "l/good.png": ("ok", 0),
        **{f"l/{stem}.png": ("failed", 3) for stem in ("empty", "small", "text", "tight")},
    }
    assert [record["left"] for record in run.records if record["outputs"]] == ["l/good.png"]
    errors = {record["left"]: record["error"] for record in run.records if record["error"]}
    assert "r/empty.png is empty" in errors["l/empty.png"]
    assert "l/text.png is not an image" in errors["l/text.png"]
    assert "l/small.png is 96x64 but r/small.png is 90x60: both images" in errors["l/small.png"]
    assert "l/tight.png: the left image is 5x5" in errors["l/tight.png"]
    assert run.complaints == [*(f"error: {error}" for error in errors.values()), "1 ok, 4 failed"]
    made = {"disparity": ["out/good.pfm"], "superres": ["out/good_left.png", "out/good_right.png"]}
    assert [name for name in names(".") if name not in before] == made[command[0]]


def test_views_of_different_kinds_are_a_pair(pair: Path) -> None:
    """8 and 16 bits, colour and grey: one camera pair can save its views like that."""
    grey = np.asarray(Image.open("right.png").convert("L")).astype(np.uint16) * 257
    Image.fromarray(grey).save("right.png")
    for command in COMMANDS.values():
        assert pam(*command, "left.png", "right.png").code == 0
