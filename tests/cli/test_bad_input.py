"""Options and images that cannot be used: one line on stderr, the exit code, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed
from PIL import Image

LINE = b"left.png\tright.png\n"


@pytest.fixture
def placeholders(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nothing may read: all of this is refused before an image or the network is loaded."""
    folders = [f"{side}/{stem}.png" for side in "lr" for stem in "ab"]
    for name in ("left.png", "right.png", "left2.png", "packed.png", *folders):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("not a picture")
    Path("list.tsv").write_bytes(LINE)
    monkeypatch.setattr("pamcli.batch.matching.load_matcher", None)
    monkeypatch.setattr("pamcli.batch.upscaling.load_upscaler", None)


@pytest.mark.usefixtures("placeholders")
@pytest.mark.parametrize("command", ["disparity", "superres"])
def test_both_commands(command: str) -> None:
    table = """
        2 left.png right.png | no result is requested | --output
        2 left.png right.png -o '' | no result is requested
        2 -o x.png | a left and a right image | got none
        2 left.png -o x.png | got 1 | if left.png holds both views side by side, add --packed lr
        2 left.png right.png left2.png -o x.png | got 3 | templates
        2 --packed lr -o x.png | no packed image is given
        2 left.png - -o x.png | stdin | --packed lr
        2 --pairs '' -o x.png | the name of an image or list is empty
        2 left.png right.png -o x | --output x has no suffix | .png | .tif
        2 left.png right.png -o x.exr | --output x.exr has the suffix .exr | .png | .tif
        2 left.png right.png -o x.pfm.gz | --output x.pfm.gz has the suffix .gz | .png | .tif
        2 l r -o - | --output - cannot hold a batch
        2 --pairs - -o - | --output - cannot hold a batch
        2 left.png right.png -o - --jsonl | --output - and --jsonl
        2 left.png right.png --pairs list.tsv -o o/ | --pairs and LEFT RIGHT
        2 --pairs list.tsv --packed lr -o o/ | --pairs and --packed
        2 left.png right.png -0 -o x.png | --null requires --pairs
        2 --packed lr - left.png -o o/ | - reads one image from stdin
        2 l/{}.png r/a.png -o o/ | r/a.png | contains {}
        2 l left.png -o o/ | l is a folder and left.png is a file
        2 left.png right.png -o x.png --overwrite --skip-existing | cannot use both --overwrite and --skip-
        2 left.png right.png -o x.png --packed up | --packed
    """
    refuse_all(table, command, stdin=LINE)


@pytest.mark.usefixtures("placeholders")
def test_hints_that_work() -> None:
    table = """
        2 superres left.png right.png | --output left_x4.png
        2 superres left.png right.png --scale 2 | --output left_x2.png
        2 superres l r | --output results/
        2 disparity left.png right.png | --output left_disparity.pfm
        2 rectify left.png right.png --uncalibrated | --output left_rectified.png
        2 disparity left.png right.png out.pfm | no such file: out.pfm, and no result is requested (if it
        2 superres left.png right.png 'o u/x.png' | --output 'o u/x.png')
        2 superres l r out | --output out)
        2 depth left.png metres.tif | --depth metres.tif)
        2 disparity packed.png out.pfm --packed lr | --output out.pfm)
        2 disparity left.png right.png --gpu | no such option: --gpu, did you mean --device?
        2 eval disparity --cuda | no such option: --cuda, did you mean --device?
        2 superres left.png right.png --outdir x | did you mean --output?
        2 disparity left.png right.png --over-write | did you mean --overwrite?
        2 dataset list --gpu | no such option: --gpu (pam dataset list --help
        2 disparity left.png right.png -output x.pfm | no such option: -output, did you mean --output?
        2 disparity packed.png \u2013packed lr | did you mean --packed?
        2 disparity left.png right.png --color-map -o x.pfm | --color-map requires a value, got the option -o
        2 help evl | evl
    """
    refuse_all(table)


@pytest.mark.usefixtures("placeholders")
def test_results_and_formats_of_disparity() -> None:
    table = """
        2 -o x.pfm --output-right x.jpg | --output-right x.jpg | .pfm
        2 -o x.pfm --color-map x.pfm | --color-map x.pfm | .png
        2 -o x.pfm --visible x.pfm | --visible x.pfm | .png
        2 -o x.pfm --confidence x.jpg | --confidence x.jpg | .tif
        2 -o left.png/ | --output left.png/ is a file, not a folder
        2 -o x.pfm --format png | --output x.pfm differs from --format png
        2 -o {}.pfm --format png | --output {}.pfm differs from --format
        2 -o x/ --format jpg | --format | 'jpg' | 'pfm' | --help lists all options
        2 -o - --color-map - | --output - and --color-map -
        2 --visible - --confidence - -o x.pfm | --visible - and --confidence -
        2 -o x.pfm --unknown sky | --unknown | --help lists all options
        2 -o x.pfm --range 0:9 | --range requires --color-map
        2 -o x.pfm --ray-address local | --ray-address requires --engine ray
        2 -o x.pfm --ray-cores 1 | --ray-cores requires --engine ray
    """
    for suffix in ("PFM", "Png", "TIFF", "NPY"):  # in capitals: no word on the suffix
        table += f"\n 2 -o x.{suffix} --range 0:9 | --range"
    for text in ("", "5", "5:", ":5", "5:5", "9:5", "0:inf", "nan:5", "1:2:3", "a:b", "Auto"):
        table += f"\n 2 --color-map x.png --range '{text}' | --range must be MIN:MAX | '{text}'"
    for text in ("0", "-16", "16.0", "all", "''", "9" * 5000):
        table += (
            f"\n 2 -o x.pfm --max-disparity {text} | --max-disparity must be a positive whole number or none"
        )
    for text in ("-0.1", "1.5", "nan", "high"):
        table += f"\n 2 -o x.pfm --min-confidence {text} | --min-confidence"
    for text in ("''", "abc", "0", "-1", "nan", "2x", "full"):
        table += f"\n 2 -o x.pfm --match-size {text} | --match-size must be auto"
    for text in ("0/4", "5/4", "1", "a/b", "1/0", "-1/4", "1/4/2"):
        table += f"\n 2 -o x.pfm --shard={text} | I/N | {text}"
    refuse_all(table, "disparity", "left.png", "right.png")


@pytest.mark.usefixtures("placeholders")
def test_batches_whose_range_of_colours_is_not_known() -> None:
    table = """
        2 --pairs - | --range shared | --pairs -
        2 l r --skip-existing | --range shared | --skip-existing
        2 --pairs list.tsv --shard 1/2 | --range shared | --shard
        2 l r --engine ray | --range shared and --engine ray
    """
    refuse_all(table, "disparity", "--color-map", "c/", "--range", "shared", stdin=LINE)


@pytest.mark.usefixtures("placeholders")
def test_superres() -> None:
    table = """
        2 -o x.png --format jpg | --output x.png differs from --format
        2 -o x/ --format pfm | --format | 'pfm' | 'png' | --help lists all options
        2 -o - --output-right - | --output - and --output-right -
        2 -o x.png --color-map c.png | --color-map | --help lists all options
        2 -o x.png --scale 5 | the scale of shipped networks must be at most 4, got 5
        2 -o x.png --packing red-cyan | --packing | --output-packed
        2 -o p.jpg --quality 101 | quality
        2 -o q.png --quality 30 | --quality applies | use .jpg
        2 -o x.png --input camera --weights passrnet2-x4 | --input | --weights
        2 -o x.png --input jpeg | --input | clean
    """
    for scale in ("1", "0.5", "9", "nan", "''", "two"):
        table += f"\n 2 -o x.png --scale {scale} | --scale must be a number above 1"
    refuse_all(table, "superres", "left.png", "right.png")


# --- images that cannot be used -----------------------------------------------------------------------------


COMMANDS = {"disparity": ["disparity", "-o", "result.pfm"], "superres": ["superres", "-o", "result.png"]}


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


@pytest.mark.usefixtures("networks")
def test_files_that_are_no_pair(pair: Path) -> None:
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
    table = """
        3 left.png none.png | no such file: none.png
        3 l/*.png r/*.png | no such file: l/*.png | use {}
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
        3 left_flat.png flat.png | left_flat.png | 96x7 | at least 16
        3 left_thin.png thin.png | left_thin.png | 7x64 | at least 16
        3 giant.png right.png | giant.png is 20001x20000 = 400,020,000 pixels, over the limit of 400,000,000
        3 giant.png right.png | --max-pixels
        3 giant.png right.png --max-pixels none | damaged or truncated
        3 giant.png right.png --max-pixels 400020000 | damaged or truncated
        3 left.png right.png --max-pixels 6143 | left.png is 96x64 = 6,144 pixels, over the limit of 6,143
        3 --packed lr - | standard input is empty
    """
    for text in ("0", "-1", "1e6", "many", "''", "1.5", "9" * 5000):
        words = f"2 left.png right.png --max-pixels {text}"
        table += f"\n {words} | --max-pixels must be a positive whole number or"
    refuse_all(table, *COMMANDS["disparity"])
    refuse_all("3 --packed lr - | standard input is not an image", *COMMANDS["disparity"], stdin=b"no")
    table = """
        3 left.png text | text is not an image
        3 left.png cut.png | cut.png is damaged or truncated
        3 left_flat.png flat.png | left_flat.png | 96x7 | at least 8
    """
    refuse_all(table, *COMMANDS["superres"])


@pytest.mark.usefixtures("networks")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_image_without_permission(pair: Path) -> None:
    Path("right.png").chmod(0)
    refuse(pam("disparity left.png right.png -o x.pfm"), 3, "right.png", "no permission")


@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize(("command", "size"), [("disparity", 16), ("superres", 8)])
def test_the_smallest_size_and_the_smallest_limit(pair: Path, command: str, size: int) -> None:
    for name in ("left.png", "right.png"):
        Image.open(name).crop((0, 0, size, size)).save(name)
    succeed(*COMMANDS[command], "left.png", "right.png", "--max-pixels", str(size * size))


@pytest.mark.usefixtures("networks")
def test_a_batch_goes_on_past_bad_images(pair: Path) -> None:
    for folder, picture in (("l", "left.png"), ("r", "right.png")):
        Path(folder).mkdir()
        for stem in ("empty", "good", "small", "text", "tight"):
            shutil.copy(picture, f"{folder}/{stem}.png")
    Path("r/empty.png").write_bytes(b"")
    Path("l/text.png").write_text("not a picture")
    Image.open("r/small.png").crop((0, 0, 90, 60)).save("r/small.png")
    for side in "lr":
        Image.open(f"{side}/tight.png").crop((0, 0, 5, 5)).save(f"{side}/tight.png")
    run = pam("disparity l r -o out/ --jsonl")
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
    assert names("out") == ["good.pfm"]


@pytest.mark.usefixtures("networks")
def test_views_of_different_kinds_are_a_pair(pair: Path) -> None:
    """8 and 16 bits, colour and grey: one camera pair can save its views like that."""
    grey = np.asarray(Image.open("right.png").convert("L")).astype(np.uint16) * 257
    Image.fromarray(grey).save("right.png")
    succeed("disparity left.png right.png -o x.pfm")
