"""--steady: frames that follow each other flicker less, wherever a run goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse_all
from PIL import Image
from video_files import write_video

from pamcli.imaging.disparity_files import encode_disparity, quantize_disparity, read_disparity
from pamcli.imaging.videos import Video

Views = list[list[np.ndarray]]
pytestmark = pytest.mark.usefixtures("networks")


@pytest.fixture
def noisy(clips: Views, here: Path) -> Path:
    """left.mkv and right.mkv: a still scene, with noise."""
    rng = np.random.default_rng(1)
    for side, frames in zip(("left", "right"), clips, strict=True):
        shown = [frames[0] + rng.normal(0, 8, frames[0].shape) for _ in range(5)]
        write_video(here / f"{side}.mkv", [np.clip(each, 0, 255).astype(np.uint8) for each in shown])
    return here


def maps(folder: str) -> np.ndarray:
    return np.array([read_disparity(Path(folder, name)) for name in names(folder)])


def test_a_still_scene_flickers_less(noisy: Path) -> None:
    assert pam("disparity left.mkv right.mkv -o plain").code == 0
    made = pam("disparity left.mkv right.mkv -o steady --steady")
    assert made.code == 0, made.stderr
    plain, steady = maps("plain"), maps("steady")
    np.testing.assert_array_equal(steady[0], plain[0])
    flicker, rest = (np.abs(np.diff(each, axis=0)).mean() for each in (plain, steady))
    assert rest < flicker / 3


def test_a_run_goes_on_as_if_it_had_not_stopped(noisy: Path) -> None:
    """Also where formats round, and pixels are unknown: what was written is what the next frame is given."""
    options = "left.mkv right.mkv --steady --format png --min-confidence 0.5"
    assert pam(f"disparity {options} -o whole").code == 0
    assert pam(f"disparity {options} -o parts --count 2").code == 0
    made = pam(f"disparity {options} -o parts --skip-existing")
    assert "3 ok, 2 skipped" in made.stderr
    Path("parts/000003.png").unlink()
    assert "1 ok, 4 skipped" in pam(f"disparity {options} -o parts --skip-existing").stderr
    for name in names("whole"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes(), name


def test_videos_and_numbered_images(noisy: Path) -> None:
    for side in ("left", "right"):
        Path(side).mkdir()
        for number in range(3):
            pixels = Video(Path(f"{side}.mkv")).frame(number).pixels
            Image.fromarray(pixels).save(f"{side}/{number}.png")
    assert pam("disparity left right --steady -o pictures --format png").code == 0
    made = pam("disparity left.mkv right.mkv --steady --count 3 -o out.mkv --color-map c.mkv --page pages/")
    assert made.code == 0, made.stderr
    found = Video(Path("out.mkv"))
    for number, disparity in enumerate(maps("pictures")):
        np.testing.assert_array_equal(found.disparity(number), disparity)


def test_behind_a_finished_video_frames_begin_anew(noisy: Path) -> None:
    command = "disparity left.mkv right.mkv --steady -o out.mkv --depth depth/ --focal 50 --baseline 1"
    assert pam(f"{command} --count 2").code == 0
    made = pam(f"{command} --count 4 --skip-existing")
    assert made.code == 0, made.stderr
    assert "the previous disparity map is stored only in a video" in made.stderr
    assert len(names("depth")) == 4


def test_a_lost_result_of_the_frame_before_is_not_guessed(noisy: Path) -> None:
    assert pam("disparity left.mkv right.mkv --steady -o out --count 2").code == 0
    Path("out/000001.pfm").write_bytes(b"damaged")
    made = pam("disparity left.mkv right.mkv --steady -o out --count 4 --skip-existing")
    assert made.code == 6
    assert "out/000001.pfm" in made.stderr
    assert names("out") == ["000000.pfm", "000001.pfm"], "nor is any that comes after it"


def test_what_is_not_steady(noisy: Path, pair: Path) -> None:
    table = """
        2 left.png right.png -o out.pfm | --steady requires a video
        2 left.mkv right.mkv -o out --shard 1/2 | --steady and --shard
        2 left.mkv right.mkv -o out --engine ray | --steady and --engine
        2 left.mkv right.mkv --color-map out --skip-existing | requires --output
    """
    refuse_all(table, "disparity --steady")


@pytest.mark.parametrize("suffix", [".pfm", ".png", ".npy", ".tif"])
def test_what_is_kept_is_what_is_read(here: Path, suffix: str) -> None:
    disparity = np.array([[0.001, 1.2345, 300, np.nan], [0, 17.3, np.inf, 255.99]], np.float32)
    Path(f"one{suffix}").write_bytes(encode_disparity(disparity, suffix).data)
    np.testing.assert_array_equal(quantize_disparity(disparity, suffix), read_disparity(Path(f"one{suffix}")))


def test_no_disparity_falls_below_what_is_searched(noisy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What recedes with the common change of its surroundings can be taken beyond infinity."""
    monkeypatch.setattr("pamcli.batch.matching.fuse_frames", lambda disparity, *_: disparity - 100)
    assert pam("disparity left.mkv right.mkv -o out.mkv --steady --count 2").lines == ["out.mkv"]
    assert pam("disparity left.mkv right.mkv -o p --steady --count 2 --min-disparity -3").code == 0
    assert maps("p")[1].min() == -3
