"""Images that cannot be used: one line on stderr, the exit code, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pam_program import files, names, pam, refuse, unchanged
from PIL import Image

pytestmark = pytest.mark.usefixtures("networks")

COMMANDS = {"disparity": ["disparity", "-o", "result.pfm"], "superres": ["superres", "-o", "result.png"]}
both_commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and ends there."""
    header = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


# --- files ----------------------------------------------------------------------------------------------


@both_commands
def test_a_missing_file(pair: Path, command: list[str]) -> None:
    with unchanged():
        refuse(pam(*command, "left.png", "none.png"), 3, "no such file: none.png")


@both_commands
def test_a_file_name_that_is_a_pattern(pair: Path, command: list[str]) -> None:
    refuse(pam(*command, "l/*.png", "r/*.png"), 3, "no such file: l/*.png", "use {}")


@both_commands
def test_a_folder_in_place_of_a_file(pair: Path, command: list[str]) -> None:
    Path("folder").mkdir()
    with unchanged():
        refuse(pam(*command, "left.png", "folder"), 2, "folder is a folder and left.png is a file")


@both_commands
@pytest.mark.parametrize("side", ["left.png", "right.png"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"Dear diary", "is not an image"),
        (b"Pf\n1 1\n-1.0\n\0\0\0\0", "PFM"),
        (png_header(96, 64), "is damaged or truncated"),
        (b"\x89PNG\r\n\x1a\n", "is damaged or truncated"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "is damaged or truncated"),
    ],
    ids=["empty", "text", "pfm", "header", "signature", "jpeg"],
)
def test_no_image(pair: Path, command: list[str], side: str, content: bytes, said: str) -> None:
    Path(side).write_bytes(content)
    with unchanged():
        line = refuse(pam(*command, "left.png", "right.png"), 3, side, said)
    other = {"left.png": "right.png", "right.png": "left.png"}[side]
    assert other not in line


@both_commands
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_a_truncated_image(pair: Path, command: list[str], suffix: str) -> None:
    whole = Path(f"whole.{suffix}")
    Image.open("right.png").save(whole)
    Path(f"cut.{suffix}").write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    with unchanged():
        refuse(pam(*command, "left.png", f"cut.{suffix}"), 3, f"cut.{suffix} is damaged or truncated")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@both_commands
def test_an_image_without_permission(pair: Path, command: list[str]) -> None:
    Path("right.png").chmod(0)
    refuse(pam(*command, "left.png", "right.png"), 3, "right.png", "no permission")


# --- both of them ---------------------------------------------------------------------------------------


@both_commands
@pytest.mark.parametrize("other", ["left.png", "./left.png", "link.png", "hard.png"])
def test_the_same_file_on_both_sides(pair: Path, command: list[str], other: str) -> None:
    os.symlink("left.png", "link.png")
    os.link("left.png", "hard.png")
    with unchanged():
        refuse(pam(*command, "left.png", other), 2, "the same file", "left.png")


@both_commands
def test_different_sizes(pair: Path, command: list[str]) -> None:
    Image.open("right.png").crop((0, 0, 90, 64)).save("right.png")
    with unchanged():
        refuse(pam(*command, "left.png", "right.png"), 3, "left.png", "right.png", "96x64", "90x64")


@both_commands
def test_different_orientations(pair: Path, command: list[str]) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.open("right.png").save("right.png", exif=exif)
    with unchanged():
        refuse(pam(*command, "left.png", "right.png"), 3, "EXIF orientations", "1 and 3", "right.png")


@pytest.mark.parametrize(
    ("command", "size", "smallest"),
    [
        ("disparity", (96, 15), 16),
        ("disparity", (15, 64), 16),
        ("superres", (96, 7), 8),
        ("superres", (7, 64), 8),
    ],
)
def test_too_small(pair: Path, command: str, size: tuple[int, int], smallest: int) -> None:
    for name in ("left.png", "right.png"):
        Image.open(name).crop((0, 0, *size)).save(name)
    with unchanged():
        run = pam(*COMMANDS[command], "left.png", "right.png")
        refuse(run, 3, "left.png", f"{size[0]}x{size[1]}", f"at least {smallest}")


@pytest.mark.parametrize(("command", "size"), [("disparity", 16), ("superres", 8)])
def test_the_smallest_size(pair: Path, command: str, size: int) -> None:
    for name in ("left.png", "right.png"):
        Image.open(name).crop((0, 0, size, size)).save(name)
    assert pam(*COMMANDS[command], "left.png", "right.png").code == 0


# --- the pixel limit ------------------------------------------------------------------------------------


@both_commands
def test_the_pixel_limit_is_checked_before_decoding(pair: Path, command: list[str]) -> None:
    Path("left.png").write_bytes(png_header(20001, 20000))
    with unchanged():
        refuse(
            pam(*command, "left.png", "right.png"),
            3,
            "left.png is 20001x20000 = 400,020,000 pixels, over the limit of 400,000,000",
            "--max-pixels",
        )
        refuse(pam(*command, "left.png", "right.png", "--max-pixels", "none"), 3, "damaged or truncated")
        refuse(pam(*command, "left.png", "right.png", "--max-pixels", "400020000"), 3, "damaged or truncated")


@both_commands
def test_a_smaller_pixel_limit(pair: Path, command: list[str]) -> None:
    with unchanged():
        run = pam(*command, "left.png", "right.png", "--max-pixels", "6143")
        refuse(run, 3, "left.png is 96x64 = 6,144 pixels, over the limit of 6,143")
    assert pam(*command, "left.png", "right.png", "--max-pixels", "6144").code == 0


@both_commands
@pytest.mark.parametrize("text", ["0", "-1", "1e6", "many", "", "1.5", "9" * 5000])
def test_no_pixel_limit(pair: Path, command: list[str], text: str) -> None:
    with unchanged():
        run = pam(*command, "left.png", "right.png", "--max-pixels", text)
        refuse(run, 2, "--max-pixels", "must be a positive whole number or none")


# --- packed images ------------------------------------------------------------------------------------


@both_commands
@pytest.mark.parametrize(
    ("layout", "size", "said"),
    [
        ("lr", (95, 64), "packed.png is 95x64: its width"),
        ("rl", (95, 64), "packed.png is 95x64: its width"),
        ("tb", (96, 63), "packed.png is 96x63: its height"),
        ("bt", (96, 63), "packed.png is 96x63: its height"),
    ],
)
def test_an_odd_packed_size(
    pair: Path, command: list[str], layout: str, size: tuple[int, int], said: str
) -> None:
    Image.open("left.png").crop((0, 0, *size)).save("packed.png")
    with unchanged():
        refuse(pam(*command, "packed.png", "--packed", layout), 3, "packed.png", said, f"--packed {layout}")


@both_commands
@pytest.mark.parametrize(
    ("stdin", "said"), [(b"", "standard input is empty"), (b"no", "standard input is not an image")]
)
def test_no_image_on_stdin(here: Path, command: list[str], stdin: bytes, said: str) -> None:
    with unchanged():
        refuse(pam(*command, "--packed", "lr", "-", stdin=stdin), 3, said)


# --- in a batch -----------------------------------------------------------------------------------------


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
        "l/empty.png": ("failed", 3),
        "l/good.png": ("ok", 0),
        "l/small.png": ("failed", 3),
        "l/text.png": ("failed", 3),
        "l/tight.png": ("failed", 3),
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
