"""Results of `pam disparity`: formats, unknown pixels, colours, and the resolution of matching."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pam_program import Run, names, pam, refuse_all, succeed
from PIL import Image, ImageFilter
from video_files import write_video

from pamcli.errors import OutputError
from pamcli.files.atomic import write_atomically
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.inference.matcher import EXTRAS, StereoMatcher, StereoResult
from pamcli.registry.resolution import EFFORTS

pytestmark = pytest.mark.usefixtures("remembering_networks")

SUFFIXES = [".pfm", ".png"]


@pytest.fixture
def result(remembering_networks: None, views: tuple[np.ndarray, np.ndarray]) -> StereoResult:
    """What the Python interface finds out about the pair."""
    return StereoMatcher.load(device="cpu", precision="fp32")(*views, extras=EXTRAS)


def disparity(*arguments: str) -> Run:
    run = succeed("disparity", "left.png", "right.png", "--overwrite", "--device", "cpu", *arguments)
    return run


def test_results_are_those_of_the_python_interface(pair: Path, result: StereoResult) -> None:
    options = ["-o", "d.pfm", "--output-right", "r.npy", "--visible", "v.png", "--confidence", "c.tif"]
    assert disparity(*options).lines == ["d.pfm", "r.npy", "v.png", "c.tif"]
    assert np.array_equal(read_disparity(Path("d.pfm")), result.disparity)
    assert np.array_equal(read_disparity(Path("r.npy")), result.right_disparity)
    assert np.array_equal(np.asarray(Image.open("v.png")), np.where(result.visible, 255, 0))
    assert np.array_equal(read_disparity(Path("c.tif")), result.confidence)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_holds_the_same_in_a_file_and_on_stdout(
    pair: Path, result: StereoResult, suffix: str
) -> None:
    disparity("-o", f"d{suffix}")
    expected = result.disparity
    if suffix == ".png":
        expected = np.rint(expected * 256) / np.float32(256)
    assert np.array_equal(read_disparity(Path(f"d{suffix}")), expected)
    run = disparity("-o", "-", "--format", suffix[1:])
    assert (run.stdout, run.stderr) == (Path(f"d{suffix}").read_bytes(), "")


def test_other_results_on_stdout(pair: Path, result: StereoResult) -> None:
    disparity("--visible", "v.png", "--color-map", "c.png", "--output-right", "r.npy")
    assert disparity("--visible", "-", "-o", "d.pfm").stdout == Path("v.png").read_bytes()
    assert Path("d.pfm").is_file()
    assert disparity("--color-map", "-", "--quiet").stdout == Path("c.png").read_bytes()
    assert disparity("--output-right", "-", "--format", "npy").stdout == Path("r.npy").read_bytes()
    disparity("--color-map", "a.png", "--range", "0:192")
    assert disparity("--color-map", "-", "--range", "0:192").stdout == Path("a.png").read_bytes()
    assert Path("a.png").read_bytes() != Path("c.png").read_bytes()
    assert disparity("--color-map", "-", "--range", "shared").stdout == Path("c.png").read_bytes()


def test_unknown_pixels(pair: Path, result: StereoResult) -> None:
    expected = result.disparity_where(visible=True, min_confidence=0.2)
    unknown = np.isnan(expected)
    assert 0.02 < unknown.mean() < 0.98
    options = ["--unknown", "occluded", "--min-confidence", "0.2"]
    disparity("-o", "d.pfm", "--color-map", "c.png", "--output-right", "r.pfm", *options)
    assert np.array_equal(read_disparity(Path("d.pfm")), expected, equal_nan=True)
    raw = np.frombuffer(Path("d.pfm").read_bytes()[-4 * expected.size :], "<f4").reshape(expected.shape)[::-1]
    assert np.array_equal(np.isposinf(raw), unknown)
    assert np.array_equal((read_image(Path("c.png")).pixels == 0).all(axis=2), unknown)
    assert np.isfinite(read_disparity(Path("r.pfm"))).all(), "unknown pixels are those of the left view"
    disparity("-o", "d.png", *options)
    assert np.array_equal(np.asarray(Image.open("d.png")) == 0, unknown)
    disparity("-o", "d.npy", "--min-confidence", "0.5")
    alone = result.disparity_where(min_confidence=0.5)
    assert np.array_equal(np.load("d.npy"), alone, equal_nan=True)


def test_colours_run_over_a_range_that_is_reported_where_it_does_not_suffice(
    pair: Path, result: StereoResult
) -> None:
    assert disparity("--color-map", "c.png", "--range", "0:192").stderr == ""
    assert np.array_equal(np.asarray(Image.open("c.png")), colorize(result.disparity, 0, 192))
    middle = float(np.median(result.disparity))
    run = disparity("--color-map", "c.png", "--range", f"2.5:{middle!r}")
    assert np.array_equal(np.asarray(Image.open("c.png")), colorize(result.disparity, 2.5, middle))
    outside = 100 * np.mean((result.disparity < 2.5) | (result.disparity > np.float32(middle)))
    low, high = math.floor(result.disparity.min()), math.ceil(result.disparity.max())
    assert run.complaints == [
        f"warning: left.png: {outside:.2g} % of the disparities are outside of the colour range "
        f"2.5:{middle:g} px (use --range {low}:{high}, or drop --range for one range per pair)"
    ]
    assert disparity("--color-map", "d.png", "--range", f"{low}:{high}").stderr == "", "the hint works"


def test_colours_of_a_pair_run_over_its_own_range(pair: Path, result: StereoResult) -> None:
    low, high = np.percentile(result.disparity, (1, 99)).tolist()
    disparity("--color-map", "g.png", "--grey")
    levels = 255 * (result.disparity.clip(low, high) - low) / (high - low)
    np.testing.assert_allclose(np.asarray(Image.open("g.png")), levels, rtol=0, atol=0.501)
    run = disparity("--color-map", "c.png")
    said = f"left.png, right.png: colour range {low:.1f}:{high:.1f} px (1st to 99th percentile)"
    assert run.complaints == [said]
    assert np.array_equal(np.asarray(Image.open("c.png")), colorize(result.disparity, low, high))
    known = result.disparity_where(min_confidence=0.9)
    low, high = np.percentile(known[np.isfinite(known)], (1, 99)).tolist()
    disparity("--color-map", "k.png", "--min-confidence", "0.9")
    assert np.array_equal(np.asarray(Image.open("k.png")), colorize(known, low, high))


def test_one_range_for_the_whole_batch_or_one_for_each_pair(pair: Path) -> None:
    """Of one pair without pixels, and one of half the size and so half the disparities."""
    for folder, picture in (("l", "left.png"), ("r", "right.png")):
        Path(folder).mkdir()
        Path(f"{folder}/bad.png").write_bytes(b"")
        Image.open(picture).save(f"{folder}/near.png")
        Image.open(picture).resize((48, 32)).save(f"{folder}/small.png")
    run = pam("disparity l r -o d/ --color-map c/ --range shared --device cpu")
    assert run.code == 6
    assert run.lines == ["d/near.pfm", "c/near_color.png", "d/small.pfm", "c/small_color.png"]
    maps = {name: read_disparity(Path(f"d/{name}.pfm")) for name in ("near", "small")}
    edges = {name: np.percentile(values, (1, 99)).tolist() for name, values in maps.items()}
    low, high = min(edge[0] for edge in edges.values()), max(edge[1] for edge in edges.values())
    assert edges["near"][1] > edges["small"][1] + 1  # each with a range of its own looks different
    for name, values in maps.items():
        assert np.array_equal(np.asarray(Image.open(f"c/{name}_color.png")), colorize(values, low, high))
    assert run.complaints == [
        "error: l/bad.png is empty",
        f"the batch: colour range {low:.1f}:{high:.1f} px (1st to 99th percentile)",
        "2 ok, 1 failed",
    ]
    assert [name for name in os.listdir() if name.startswith("pam-")] == []
    run = pam("disparity l r --color-map own/ --device cpu --overwrite")
    assert "colour range" not in run.stderr
    for name, values in maps.items():
        own = colorize(values, *edges[name])
        assert np.array_equal(np.asarray(Image.open(f"own/{name}_color.png")), own)


def test_a_colour_map_that_cannot_be_written_fails_its_own_pair(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written last with the range of the whole batch, when the other results are there."""

    def write(path: Path, data: bytes, **options: bool) -> None:
        if path == Path("c/2.png"):
            raise OutputError("cannot write c/2.png: no space left on device")
        write_atomically(path, data, **options)

    monkeypatch.setattr("pamcli.batch.processing.write_atomically", write)
    for number in (1, 2, 3):
        os.link("left.png", f"{number}_L.png")
        os.link("right.png", f"{number}_R.png")
    options = ["-o", "d/", "--color-map", "c/{}.png", "--range", "shared"]
    run = pam("disparity", "{}_L.png", "{}_R.png", *options, "--jsonl")
    assert run.code == 6
    states = [(record["status"], record["code"]) for record in run.records]
    assert states == [("ok", 0), ("failed", 7), ("ok", 0)]
    assert names("c") == ["1.png", "3.png"]
    assert names("d") == ["1.pfm", "2.pfm", "3.pfm"]


def test_images_that_are_no_pair_are_warned_of(pair: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    run = disparity("-o", "d.pfm", "--confidence", "c.tif")
    assert run.complaints == []
    Image.fromarray(noise).save("right.png")
    (line,) = disparity("-o", "d.pfm", "--confidence", "c.tif").complaints
    assert line.startswith("warning: left.png: only ")
    assert "may not be a pair" in line


DISPARITY = ["disparity", "left.png", "right.png", "--device", "cpu", "-o", "d.npy"]


@pytest.mark.usefixtures("pair")
def test_large_images_are_matched_reduced_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], largest=48 * 32))
    run = pam(*DISPARITY, "--jsonl")
    (said,) = run.complaints
    assert said.startswith("images of 96x64 px are matched at 48x32 px")
    assert "--match-size 1 matches at full size" in said
    (record,) = run.records
    assert (record["width"], record["height"]) == (96, 64)
    assert (record["matched_width"], record["matched_height"]) == (48, 32)
    reduced = np.load("d.npy")
    assert reduced.shape == (64, 96)
    assert pam(*DISPARITY, "--overwrite", "--quiet").complaints == []
    np.testing.assert_array_equal(np.load("d.npy"), reduced)
    for size in ("48", "0.5"):
        pam(*DISPARITY, "--overwrite", "--match-size", size)
        np.testing.assert_array_equal(np.load("d.npy"), reduced)
    as_they_are = pam(*DISPARITY, "--overwrite", "--match-size", "1", "--jsonl")
    assert as_they_are.complaints == []
    assert as_they_are.records[0]["matched_width"] == 96
    assert 0 < np.abs(np.load("d.npy") - reduced).mean() < 4


@pytest.fixture
def faulty(remembering_networks: None, pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blurred images of 96x64 px, which would be upscaled without blur."""
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=1.5))
    for name in ("left.png", "right.png"):
        Image.open(name).save(f"clean_{name}")
        Image.open(name).filter(ImageFilter.GaussianBlur(2)).save(name)


@pytest.mark.usefixtures("faulty")
def test_blurred_images_are_not_upscaled_and_it_is_said() -> None:
    run = pam(*DISPARITY, "--jsonl")
    said = "images with blur are sharpened and not upscaled before matching (--match-size turns this off)"
    assert run.complaints == [said]
    assert run.records[0]["matched_width"] == 96
    assert run.records[0]["input_shows"].startswith("blur (sharpness 0.")
    run = pam(*DISPARITY, "--jsonl", "--overwrite", "--match-size", "1.5")
    assert run.complaints == []
    assert (run.records[0]["matched_width"], run.records[0]["input_shows"]) == (144, None)


@pytest.mark.usefixtures("faulty")
def test_the_first_frame_decides_for_a_video_each_pair_in_a_list() -> None:
    Path("pairs.tsv").write_text("left.png\tright.png\ta.pfm\nclean_left.png\tclean_right.png\tb.pfm\n")
    run = pam("disparity --pairs pairs.tsv --device cpu --jsonl")
    assert [record["matched_width"] for record in run.records] == [96, 144]
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    for side in ("left", "right"):
        views = [np.asarray(Image.open(f"{name}{side}.png")) for name in ("clean_", "", "")]
        write_video(Path(f"{side}.mkv"), views)
    for shard in ("1/3", "2/3"):
        run = pam(
            "disparity", "left.mkv", "right.mkv", "-o", "f/", "--shard", shard, "--jsonl", "--device=cpu"
        )
        assert [record["matched_width"] for record in run.records] == [144], "as the clean first frame"


@pytest.mark.usefixtures("pair")
def test_an_effort_sets_the_matching_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "fast", replace(EFFORTS["fast"], pixels=96, least=0.5))
    for effort, width in (("fast", 48), ("best", 192)):
        run = pam(*DISPARITY, "--overwrite", "--jsonl", "--effort", effort)
        assert (run.code, run.records[0]["matched_width"]) == (0, width), run.stderr


@pytest.mark.usefixtures("pair")
def test_sizes_out_of_reach() -> None:
    refuse_all("2 slow | 'slow' is not one of 'fast', 'normal', 'best'", *DISPARITY, "--effort")
    table = """
        2 1 --effort fast | cannot use both --effort and --match-size
        2 0.01 | --match-size must be auto, a factor from 0.0625 to 4, or a width
        2 17 | --match-size must be auto
        2 inf | --match-size must be auto
        2 400 | --match-size 400 px is more than 4 times the width of the images, 96 px
    """
    refuse_all(table, *DISPARITY, "--match-size")
