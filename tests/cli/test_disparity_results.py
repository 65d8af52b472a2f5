"""Tests of the results of `pam disparity`: formats, unknown pixels, colours, search range."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from pam_program import Run, names, pam
from PIL import Image

from pamcli.errors import OutputError
from pamcli.files.atomic import write_atomically
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.inference.matcher import EXTRAS, StereoMatcher, StereoResult

pytestmark = pytest.mark.usefixtures("remembering_networks")

SUFFIXES = [".pfm", ".png", ".npy", ".tif"]


@pytest.fixture
def result(remembering_networks: None, views: tuple[np.ndarray, np.ndarray]) -> StereoResult:
    """What the Python interface finds out about the pair."""
    return StereoMatcher.load(device="cpu", precision="fp32")(*views, extras=EXTRAS)


def disparity(*arguments: str) -> Run:
    run = pam("disparity", "left.png", "right.png", "--overwrite", "--device", "cpu", *arguments)
    assert run.code == 0, run.stderr
    return run


# --- numbers --------------------------------------------------------------------------------------------


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


# --- unknown pixels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "conditions"),
    [
        (["--unknown", "occluded"], {"visible": True}),
        (["--min-confidence", "0.5"], {"min_confidence": 0.5}),
        (["--unknown", "occluded", "--min-confidence", "0.2"], {"visible": True, "min_confidence": 0.2}),
    ],
    ids=["occluded", "confidence", "both"],
)
def test_unknown_pixels(
    pair: Path, result: StereoResult, options: list[str], conditions: dict[str, float]
) -> None:
    expected = result.disparity_where(**conditions)  # type: ignore[arg-type]
    unknown = np.isnan(expected)
    assert 0.02 < unknown.mean() < 0.98
    disparity("-o", "d.pfm", "--color-map", "c.png", *options)
    for suffix in SUFFIXES[1:]:
        disparity("-o", f"d{suffix}", *options)

    raw = np.frombuffer(Path("d.pfm").read_bytes()[-4 * expected.size :], "<f4").reshape(expected.shape)[::-1]
    assert np.array_equal(np.isposinf(raw), unknown)
    assert np.array_equal(np.asarray(Image.open("d.png")) == 0, unknown)
    assert np.array_equal(np.isnan(np.load("d.npy")), unknown)
    assert np.array_equal(np.isnan(np.asarray(Image.open("d.tif"))), unknown)
    assert np.array_equal((read_image(Path("c.png")).pixels == 0).all(axis=2), unknown)


def test_unknown_pixels_are_of_the_left_view(pair: Path, result: StereoResult) -> None:
    disparity("-o", "d.pfm", "--output-right", "r.pfm", "--unknown", "occluded")
    assert np.isfinite(read_disparity(Path("r.pfm"))).all()


# --- colours --------------------------------------------------------------------------------------------


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
    options = ["-o", "d/", "--color-map", "c/", "--range", "shared", "--device", "cpu"]
    run = pam("disparity", "l", "r", *options)
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
    for share in ("", "--shard 3/3"):
        run = pam(f"disparity l r --color-map own/ --device cpu --overwrite {share}")
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


# --- the search -----------------------------------------------------------------------------------------


def test_the_maximum_disparity_changes_the_result(pair: Path, result: StereoResult) -> None:
    disparity("-o", "d16.npy", "--max-disparity", "16")
    disparity("-o", "d9.npy", "--max-disparity", "9")  # rounded up to 16
    disparity("-o", "none.npy", "--max-disparity", "none")
    limited = np.load("d16.npy")
    assert np.array_equal(np.load("d9.npy"), limited)
    assert np.array_equal(np.load("none.npy"), result.disparity)
    assert np.median(limited) < np.median(result.disparity) - 1


def test_disparities_beyond_what_a_png_holds_are_reported(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far(self: StereoMatcher, left: np.ndarray, right: np.ndarray, **options: object) -> StereoResult:
        values = np.full(left.shape[:2], 255.0, np.float32)
        values[0, :5] = 256
        return StereoResult(values)

    monkeypatch.setattr(StereoMatcher, "__call__", far)
    run = disparity("-o", "d.png")
    (line,) = run.complaints
    assert line.startswith("warning: left.png: 5 pixels exceed 255.996 px")
    assert np.asarray(Image.open("d.png"))[0, :6].tolist() == [65535] * 5 + [255 * 256]
    assert disparity("-o", "d.pfm").stderr == ""


def test_images_that_are_no_pair_are_warned_of(pair: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    run = disparity("-o", "d.pfm", "--confidence", "c.tif")
    assert run.complaints == []
    Image.fromarray(noise).save("right.png")
    (line,) = disparity("-o", "d.pfm", "--confidence", "c.tif").complaints
    assert line.startswith("warning: left.png: only ")
    assert "may not be a pair" in line
