"""Options that contradict each other, name no format or ask for the impossible: refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pam_program import refuse_all

LINE = b"left.png\tright.png\n"


@pytest.fixture(autouse=True)
def placeholders(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nothing may read: all of this is refused before an image or the network is loaded."""
    folders = [f"{side}/{stem}.png" for side in "lr" for stem in "ab"]
    for name in ("left.png", "right.png", "left2.png", "packed.png", *folders):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("not a picture")
    Path("list.tsv").write_bytes(LINE)
    monkeypatch.setattr("pamcli.batch.matching.load_matcher", None)
    monkeypatch.setattr("pamcli.batch.upscaling.load_upscaler", None)


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
        2 left.png '' -o x.png | the name of an image or list is empty
        2 --packed lr '' -o x.png | the name of an image or list is empty
        2 --pairs '' -o x.png | the name of an image or list is empty
        2 left.png right.png -o x | --output x has no suffix | .png | .tif
        2 left.png right.png -o x.exr | --output x.exr has the suffix .exr | .png | .tif
        2 left.png right.png -o x.pfm.gz | --output x.pfm.gz has the suffix .gz | .png | .tif
        2 left.png right.png -o .png | --output .png has no suffix | .png | .tif
        2 l r -o - | --output - cannot hold a batch
        2 l/{}.png r/{}.png -o - | --output - cannot hold a batch
        2 --pairs list.tsv -o - | --output - cannot hold a batch
        2 --pairs - -o - | --output - cannot hold a batch
        2 --packed lr packed.png left.png -o - | --output - cannot hold a batch
        2 left.png right.png -o - --jsonl | --output - and --jsonl
        2 left.png right.png --pairs list.tsv -o o/ | --pairs and LEFT RIGHT
        2 --pairs list.tsv --packed lr -o o/ | --pairs and --packed
        2 left.png right.png -0 -o x.png | --null requires --pairs
        2 --packed lr - left.png -o o/ | - reads one image from stdin
        2 l/{}.png r/a.png -o o/ | r/a.png | contains {}
        2 l left.png -o o/ | l is a folder and left.png is a file
        2 left.png right.png -o x.png --overwrite --skip-existing | cannot use both --overwrite and --skip-
        2 --pairs - -o o/ --overwrite --skip-existing | cannot use both --overwrite and --skip-existing
        2 left.png right.png -o x.png --packed up | --packed
    """
    refuse_all(table, command, stdin=LINE)


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


def test_batches_whose_range_of_colours_is_not_known() -> None:
    table = """
        2 --pairs - | --range shared | --pairs -
        2 l r --skip-existing | --range shared | --skip-existing
        2 --pairs list.tsv --shard 1/2 | --range shared | --shard
        2 l r --engine ray | --range shared and --engine ray
    """
    refuse_all(table, "disparity", "--color-map", "c/", "--range", "shared", stdin=LINE)


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
