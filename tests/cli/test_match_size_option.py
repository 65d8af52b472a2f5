"""--match-size: in which size images are matched, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pam_program import pam, refuse_all
from PIL import Image, ImageFilter
from video_files import write_video

from pamcli.registry.resolution import EFFORTS

pytestmark = pytest.mark.usefixtures("networks", "pair")

DISPARITY = ["disparity", "left.png", "right.png", "--device", "cpu", "-o", "d.npy"]


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
def faulty(networks: None, pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blurred images of 96x64 px, which would be upscaled without blur."""
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], most=1.5))
    for name in ("left.png", "right.png"):
        Image.open(name).save(f"clean_{name}")
        Image.open(name).filter(ImageFilter.GaussianBlur(2)).save(name)


@pytest.mark.usefixtures("faulty")
def test_blurred_images_are_not_upscaled_and_it_is_said() -> None:
    run = pam(*DISPARITY, "--jsonl")
    said = "images with blur are sharpened and not upscaled before matching (not with --match-size)"
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


def test_each_size_of_a_batch_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "normal", replace(EFFORTS["normal"], largest=48 * 32))
    for side in ("left", "right"):
        Path(side).mkdir()
        view = Image.open(f"{side}.png")
        for name, size in (("a", (96, 64)), ("b", (96, 64)), ("c", (80, 60)), ("d", (40, 30))):
            view.crop((0, 0, *size)).save(f"{side}/{name}.png")
    run = pam("disparity", "left", "right", "-o", "out/", "--device", "cpu")
    assert [line.partition(" px")[0] for line in run.complaints] == [
        "images of 96x64",
        "images of 80x60",
        "4 ok",
    ]


def test_an_effort_sets_the_matching_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "fast", replace(EFFORTS["fast"], pixels=96, least=0.5))
    for effort, width in (("fast", 48), ("best", 192)):
        run = pam(*DISPARITY, "--overwrite", "--jsonl", "--effort", effort)
        assert (run.code, run.records[0]["matched_width"]) == (0, width), run.stderr


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
