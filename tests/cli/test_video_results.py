"""Results as videos: whole or not at all, to the bit what a folder would hold, and resumable."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed
from PIL import Image
from video_files import RATE, write_ideal_rig, write_video

from pamcli.batch.colors import ColorRange
from pamcli.batch.matching import match_files
from pamcli.imaging import videos
from pamcli.imaging.colormap import colorize
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.imaging.videos import Video

Views = list[list[np.ndarray]]
pytestmark = pytest.mark.usefixtures("remembering_networks")


def disparities(video: str) -> list[np.ndarray]:
    opened = Video(Path(video))
    return [opened.disparity(number) for number in range(len(opened.stamps))]


def test_disparities_are_those_of_a_folder(clips: Views, here: Path) -> None:
    """In order, at the times of the left frames, and with their scale in the file."""
    left, right = clips
    stamps = [0, 1, 3, 4]  # frame 2 was dropped
    write_video(here / "left.mkv", left[:4], stamps=stamps)
    write_video(here / "right.mkv", right[:4], stamps=stamps)
    succeed("disparity left.mkv right.mkv -o frames --format png")
    made = pam("disparity left.mkv right.mkv -o out.mkv")
    assert (made.code, made.lines) == (0, ["out.mkv"])
    assert not Path("out.mkv.frames").exists()
    for found, name in zip(disparities("out.mkv"), names("frames"), strict=True):
        np.testing.assert_array_equal(found, read_disparity(Path("frames", name)))
    video = Video(Path("out.mkv"))
    np.testing.assert_allclose(video.times, np.array(stamps) / RATE)
    assert video.container.metadata["DISPARITY_SCALE"] == "256"
    assert video.stream.codec_context.name == "ffv1"


def test_colours_of_a_video_run_over_the_disparities_of_all_frames(clips: Views, here: Path) -> None:
    left, right = clips
    write_video(here / "left.mkv", [*left[:2], right[3]])  # the last one is another pair
    write_video(here / "right.mkv", right[:3])
    made = pam("disparity left.mkv right.mkv -o d.mkv --color-map c.mkv")
    assert made.lines == ["d.mkv", "c.mkv"], made.stderr
    _, second, last = found = disparities("d.mkv")
    own, whole = ColorRange([last]), ColorRange(found)
    low, high = whole.low, whole.high
    assert f"the video: colour range {low:.1f}:{high:.1f} px" in made.stderr
    assert (own.low, own.high) != (low, high)
    video = Video(Path("c.mkv"))
    for number, disparity in enumerate(found):
        np.testing.assert_array_equal(video.frame(number).pixels, colorize(disparity, low, high))
    given = pam("disparity left.mkv right.mkv --color-map given.mkv --range 5:40")
    assert given.lines == ["given.mkv"]
    np.testing.assert_array_equal(Video(Path("given.mkv")).frame(1).pixels, colorize(second, 5, 40))


def test_depth_of_a_video_in_colour_and_one_warning(clips: Views, here: Path) -> None:
    metric = "--focal 100 --baseline 50"  # most pixels are beyond 65 m
    run = succeed(f"disparity left.mkv right.mkv -o d.mkv --depth-color-map c.mkv --depth z.mkv {metric}")
    assert run.lines == ["d.mkv", "z.mkv", "c.mkv"]
    assert "1000 grey levels per m" in Video(Path("z.mkv")).container.metadata["COMMENT"]
    (warning,) = [line for line in run.complaints if "65.535 m" in line]
    assert warning.startswith("warning: z.mkv: ")
    assert warning.endswith(f"use .tif or .npy files (and in {len(clips[0]) - 1} other frames)")
    depths = [5000 / disparity for disparity in disparities("d.mkv")]
    low, high = ((min if end == 1 else max)(np.percentile(depth, end) for depth in depths) for end in (1, 99))
    for number, depth in enumerate(depths):
        found = Video(Path("c.mkv")).frame(number).pixels.astype(int)
        assert np.abs(found - colorize(-depth, -high, -low)).max() <= 2
    # A video of disparities becomes depth as their files do.
    run = succeed(f"depth d.mkv -o depth/ --depth-color-map near.mkv --max-depth 200m {metric}")
    beyond = ~(depths[1] <= 200)
    np.testing.assert_allclose(
        read_disparity(Path("depth/000001_depth.tif")), np.where(beyond, np.nan, depths[1]), rtol=1e-6
    )
    pixels = Video(Path("near.mkv")).frame(1).pixels
    np.testing.assert_array_equal(pixels[beyond], 0)
    np.testing.assert_array_equal(pixels[~beyond], colorize(-depths[1], -200, 0)[~beyond])


def test_videos_to_watch(clips: Views, here: Path) -> None:
    """Also of images with odd sides, which most videos cannot have."""
    for side, frames in zip(("left", "right"), clips, strict=True):
        write_video(here / f"{side}.mkv", [frame[:47, :63] for frame in frames])
    succeed("disparity left.mkv right.mkv -o d.mkv --color-map c.mp4 --range 5:40 --count 2")
    video = Video(Path("c.mp4"))
    assert video.stream.codec_context.name == "h264"
    for number, disparity in enumerate(disparities("d.mkv")):
        wrong = np.abs(video.frame(number).pixels.astype(int) - colorize(disparity, 5, 40))
        assert wrong.shape == (47, 63, 3)
        assert wrong.mean() < 8


def test_larger_and_rectified_images(clips: Views, here: Path) -> None:
    results = "-o l.mkv --output-right r.mp4 --output-packed b.mkv"
    made = pam(f"superres left.mkv right.mkv --scale 2 --count 2 {results}")
    assert made.lines == ["l.mkv", "r.mp4", "b.mkv"], made.stderr
    succeed("superres left.mkv right.mkv --scale 2 --count 2 -o frames/")
    for number in range(2):
        left = read_image(Path(f"frames/00000{number}_left.png")).pixels
        np.testing.assert_array_equal(Video(Path("l.mkv")).frame(number).pixels, left)
        np.testing.assert_array_equal(Video(Path("b.mkv")).frame(number).pixels[:, : left.shape[1]], left)
        assert Video(Path("r.mp4")).frame(number).pixels.shape == left.shape
    write_ideal_rig()
    made = pam("rectify left.mkv right.mkv --calibration rig.yaml -o out/l.mkv --output-right out/r.mkv")
    assert made.lines == ["out/l.mkv", "out/r.mkv"], made.stderr
    assert names("out") == ["calibration.yaml", "l.mkv", "r.mkv"]
    for side, frames in zip("lr", clips, strict=True):
        found = Video(Path(f"out/{side}.mkv")).frame(5).pixels
        assert np.abs(found.astype(int) - frames[5])[4:-4, 4:-4].mean() < 2
    again = pam("disparity out/l.mkv out/r.mkv --calibration out/calibration.yaml --depth z.mkv --count 1")
    assert again.lines == ["z.mkv"], again.stderr


def test_numbered_images_become_a_video(clips: Views, here: Path) -> None:
    for side, frames in zip(("lefts", "rights"), clips, strict=True):
        Path(side).mkdir()
        for number in range(9, 12):
            Image.fromarray(frames[number - 9]).save(f"{side}/frame{number}.png")
    assert pam("disparity lefts rights -o out.mkv").lines == ["out.mkv"]
    succeed("disparity left.mkv right.mkv -o same.mkv --count 3")
    np.testing.assert_array_equal(disparities("out.mkv"), disparities("same.mkv"))
    np.testing.assert_allclose(Video(Path("out.mkv")).times, [0, 0.04, 0.08])


def test_a_stop_while_the_video_is_made_loses_nothing(
    clips: Views, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(video: Path, frames: Iterable[Any], *_: object) -> None:
        next(iter(frames))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pamcli.batch.video_results.write_frames", stopped)
        made = pam("disparity left.mkv right.mkv -o out.mkv --count 3")
    assert made.code == 130
    assert "stopped after 3 ok; to resume, add --skip-existing" in made.stderr
    assert not Path("out.mkv").exists()
    assert names("out.mkv.frames") == ["000000.png", "000001.png", "000002.png"]
    refuse(pam("disparity left.mkv right.mkv -o out.mkv --count 3"), 2, "3 results already exist")
    Path("out.mkv.frames/000001.png").unlink()
    made = pam("disparity left.mkv right.mkv -o out.mkv --count 3 --skip-existing")
    assert made.lines == ["out.mkv"]
    assert "1 ok, 2 skipped" in made.stderr
    assert len(disparities("out.mkv")) == 3
    before = Path("out.mkv").read_bytes()
    again = pam("disparity left.mkv right.mkv -o out.mkv --count 3 --skip-existing")
    assert (again.code, again.lines) == (0, [])
    assert Path("out.mkv").read_bytes() == before
    refuse(pam("disparity left.mkv right.mkv -o out.mkv"), 2, "1 result already exists: out.mkv")
    assert pam("disparity left.mkv right.mkv -o out.mkv --count 2 --overwrite").lines == ["out.mkv"]
    assert len(disparities("out.mkv")) == 2


def test_a_video_whose_writing_fails_is_not_there(
    clips: Views, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(videos.VideoWriter, "_convert_frame", full)
    made = pam("disparity left.mkv right.mkv -o out.mkv --count 1")
    assert made.code == 7
    assert "to resume, add --skip-existing" in made.complaints[-2]
    assert "cannot write out.mkv: no space left" in made.complaints[-1]
    assert [path.name for path in here.glob("out*")] == ["out.mkv.frames"]
    assert not list(here.glob(".pam-*"))


def test_shards_leave_the_video_to_the_last_command(clips: Views, here: Path) -> None:
    """Also where the video is there already, which the frames of the shards replace."""
    succeed("disparity left.mkv right.mkv -o out.mkv --max-disparity 16")
    made = pam("disparity left.mkv right.mkv -o out.mkv --overwrite --shard 2/2")
    assert (made.code, made.lines) == (0, [])
    assert "with --skip-existing instead of --overwrite and without --shard" in made.stderr
    assert names("out.mkv.frames") == ["000001.png", "000003.png", "000005.png"]
    made = pam("disparity left.mkv right.mkv -o out.mkv --skip-existing")
    assert (made.lines, "3 ok, 3 skipped" in made.stderr) == (["out.mkv"], True)
    succeed("disparity left.mkv right.mkv -o whole.mkv")
    np.testing.assert_array_equal(disparities("out.mkv"), disparities("whole.mkv"))


def test_what_no_video_can_be(clips: Views, pair: Path) -> None:
    Path("list.tsv").write_text("left.png\tright.png\n")
    table = """
        2 left.mkv right.mkv -o out.avi | --output out.avi must end with .mkv or .mp4
        2 left.mkv right.mkv -o out.mp4 | --output out.mp4 must be lossless
        2 left.mkv right.mkv -o left.mkv --overwrite | left.mkv would overwrite an input
        2 left.mkv right.mkv -o out.mkv --color-map out.mkv | would be both disparity and color_map
        2 left.mkv right.mkv -o out.mkv --format tif | --format and the video out.mkv
        2 left.mkv right.mkv -o out.mkv --min-disparity -16 | a video cannot hold negative disparities
        2 left.mkv right.mkv --page out.mkv | --page out.mkv is one file for many pairs
        2 left.png right.png -o out.mkv | --output out.mkv has the suffix .mkv
        2 --pairs list.tsv -o out.mkv | --pairs and the video
    """
    refuse_all(table, "disparity")
    refuse_all("3 left.mkv -o d/ | is not a disparity video written by pam", "depth --focal 1 --baseline 1")


def test_frames_of_other_runs_go_before_an_overwriting_one(clips: Views, here: Path) -> None:
    Path("out.mkv.frames").mkdir()
    Path("out.mkv.frames/000005.png").write_bytes(b"of another run")
    batch = match_files("left.mkv", "right.mkv", output="out.mkv", overwrite=True)
    assert "with `skip_existing` instead of `overwrite`" in batch.resume_hint
    with closing(iter(batch)) as outcomes:
        next(outcomes)
    last = Path("out.mkv.frames/000005.png")
    assert not last.exists() or last.read_bytes() != b"of another run"
    batch = match_files("left.mkv", "right.mkv", output="out/", overwrite=True)
    assert batch.resume_hint.startswith("start again")
