"""Videos: their frames are pairs of a batch, by their time stamps; with --steady they flicker less."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed
from PIL import Image
from video_files import write_video

from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.videos import Video

pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")


from pamcli.errors import suggest_extra
from pamcli.imaging.images import read_image

Views = list[list[np.ndarray]]
pytestmark = pytest.mark.usefixtures("remembering_networks")


def test_frames_give_what_images_of_them_give(clips: Views, here: Path) -> None:
    for side, frames in zip(("lefts", "rights"), clips, strict=True):
        (here / side).mkdir()
        for number in (1, 3):
            Image.fromarray(frames[number]).save(f"{side}/{number:06}.png")
    succeed("disparity", "lefts", "rights", "-o", "pictures")
    made = succeed("disparity left.mkv right.mkv -o frames --start 1 --every 2 --count 2 --jsonl")
    assert [json.loads(line)["frame"] for line in made.lines] == [1, 3]
    assert names("frames") == names("pictures") == ["000001.pfm", "000003.pfm"]
    packed = pam("disparity --packed lr both.mkv -o packed --start 1 --every 2 --count 2")
    assert packed.lines == ["packed/000001.pfm", "packed/000003.pfm"]
    for name in names("pictures"):
        expected = read_disparity(Path("pictures", name))
        for folder in ("frames", "packed"):
            np.testing.assert_array_equal(read_disparity(Path(folder, name)), expected)


def test_what_is_there_is_left_out(clips: Views, here: Path) -> None:
    succeed("disparity left.mkv right.mkv -o frames --count 2")
    before = Path("frames/000001.pfm").stat().st_mtime_ns
    refuse(pam("disparity left.mkv right.mkv -o frames --count 3"), 2, "2 results already exist")
    made = pam("disparity left.mkv right.mkv -o frames --count 3 --skip-existing")
    assert made.lines == ["frames/000002.pfm"]
    assert Path("frames/000001.pfm").stat().st_mtime_ns == before


def test_a_dropped_frame_is_named_and_moves_no_other_one(clips: Views, here: Path) -> None:
    _, right = clips
    write_video(here / "right.mkv", right[:2] + right[3:], stamps=[0, 1, 3, 4, 5])
    made = pam("rectify left.mkv right.mkv --uncalibrated -o out")
    assert "left.mkv: 1 frame ignored, because right.mkv has none at that time: 2" in made.stderr
    kept = ["000000", "000001", "000003", "000004", "000005"]
    assert pam("disparity left.mkv right.mkv -o out --count 4").lines == [
        f"out/{name}.pfm" for name in kept[:4]
    ]


def test_without_a_calibration_all_frames_are_rectified_alike(here: Path) -> None:
    random = np.random.default_rng(2)
    wall = cv2.resize(
        random.integers(0, 256, (80, 120, 3), np.uint8), (480, 320), interpolation=cv2.INTER_CUBIC
    )
    near = np.where(np.arange(240)[:, None, None] < 120, wall[40:280, 20:340], wall[40:280, 32:352])
    turn = cv2.getRotationMatrix2D((160, 120), 1.0, 1)
    right = cv2.warpAffine(near, turn, (320, 240), borderMode=cv2.BORDER_REPLICATE)
    for name, view in (("left.mkv", wall[40:280, 40:360]), ("right.mkv", right)):
        noisy = [np.clip(view + random.normal(0, 6, view.shape), 0, 255).astype(np.uint8) for _ in range(3)]
        write_video(here / name, noisy)
    made = succeed("rectify left.mkv right.mkv --uncalibrated -o out")
    assert made.stderr.count("without a calibration") == 1
    assert re.search(r"rectified by \d+ matches in 3 frames", made.stderr)
    # What no camera saw is black to the last bit: its outline is the rectification's.
    for side in ("left", "right"):
        pictures = [read_image(path).pixels for path in sorted(here.glob(f"out/*_{side}.png"))]
        outlines = [picture.max(axis=-1) == 0 for picture in pictures]
        assert len(outlines) == 3
        assert all(np.array_equal(each, outlines[0]) for each in outlines)


def test_cameras_that_began_one_after_the_other(clips: Views, here: Path) -> None:
    write_video(here / "later.mkv", clips[1][2:])
    made = succeed("superres left.mkv later.mkv --offset -2 --scale 2 -o out --count 1 --jsonl")
    assert "left.mkv: 2 frames ignored, because later.mkv has none at that time: 0, 1" in made.stderr
    record = json.loads(made.stdout)
    assert record["frame"] == 2
    assert read_image(Path("out/000002_right.png")).pixels.shape == (96, 128, 3)


def test_the_offset_is_measured(clips: Views, here: Path) -> None:
    """The views move down by steps that no two frames have in common."""
    steps = np.cumsum(np.random.default_rng(1).integers(0, 4, 24))
    tall = [np.concatenate([view, view[::-1], view]) for view in (clips[0][0], clips[1][0])]
    shown = [[view[top : top + 48] for top in steps] for view in tall]
    write_video(here / "left.mkv", shown[0][3:])
    write_video(here / "right.mkv", shown[1])
    made = pam("disparity left.mkv right.mkv --offset auto --count 1 -o out --jsonl")
    assert "pam: offset 3: " in made.stderr
    assert made.code == 0
    write_damaged(here / "left.mov", shown[0][3:], 9)
    assert "pam: offset 3: " in pam("disparity left.mov right.mkv --offset auto --count 1 -o torn").stderr
    for side in ("left", "right"):
        write_video(here / f"{side}.mkv", shown[0][:1] * 8)
    made = pam("disparity left.mkv right.mkv --offset auto -o more")
    assert made.code == 3
    assert "hardly anything moves" in made.stderr
    assert "state --offset N" in made.stderr


def test_frames_come_in_any_order(clips: Views, here: Path) -> None:
    """Also of a codec whose frames are stored in another order than they are shown."""
    many = [np.full((48, 64, 3), 10 * number, np.uint8) for number in range(24)]
    write_video(here / "steps.mp4", many, "libx264", "yuv420p")
    video = Video(here / "steps.mp4")
    np.testing.assert_allclose(video.times, np.arange(24) / 10, atol=1e-6)
    for number in (0, 1, 20, 3, 3, 23, 22):
        assert abs(float(video.frame(number).pixels.mean()) - 10 * number) < 3


def test_more_than_8_bits_are_kept(here: Path, views: tuple[np.ndarray, np.ndarray]) -> None:
    write_video(here / "deep.mkv", [views[0]], "ffv1", "gbrp10le")
    pixels = Video(here / "deep.mkv").frame(0).pixels
    assert pixels.dtype == np.uint16
    assert np.abs(pixels / 257 - views[0]).max() < 1


def test_a_video_is_turned_as_the_telephone_was(here: Path) -> None:
    """The file says that its images are shown turned by a quarter, clockwise."""
    corner = np.zeros((48, 64, 3), np.uint8)
    corner[:24, :32] = 255
    write_video(here / "turned.mp4", [corner], "libx264", "yuv420p")
    data = bytearray((here / "turned.mp4").read_bytes())
    matrix = data.find(b"tkhd") + 44
    plain = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    assert data[matrix : matrix + 36] == plain
    data[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 48 << 16, 0, 1 << 30)
    (here / "turned.mp4").write_bytes(data)
    found = Video(here / "turned.mp4").frame(0).pixels
    assert found.shape == (64, 48, 3)
    assert np.abs(found.astype(int) - np.rot90(corner, -1)).mean() < 3


def write_damaged(path: Path, frames: list[np.ndarray], number: int) -> None:
    """Write a video whose frames need no others, and damage the beginning of one."""
    write_video(path, frames, "png", "rgb24")
    with Video(path).library.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data = path.read_bytes()
    at = data.find(packets[number])
    assert at > 0
    path.write_bytes(data[:at] + bytes(200) + data[at + 200 :])


def test_a_damaged_frame_fails_alone(clips: Views, here: Path) -> None:
    write_damaged(here / "left.mov", clips[0], 2)
    made = pam("disparity left.mov right.mkv -o out --confidence c.mkv")
    assert made.code == 6
    assert "left.mov, frame 2 cannot be decoded" in made.stderr
    assert "c.mkv lacks 1 frame that failed" in made.stderr
    assert names("out") == [f"00000{number}.pfm" for number in (0, 1, 3, 4, 5)]
    np.testing.assert_allclose(Video(Path("c.mkv")).times, [0, 0.1, 0.3, 0.4, 0.5])


def test_a_video_that_was_cut_off_is_named(clips: Views, here: Path) -> None:
    for side, frames in zip(("left", "right"), clips, strict=True):
        write_video(here / f"{side}.mkv", frames, stamps=range(0, 60, 10))
    assert "ends" not in pam("disparity left.mkv right.mkv -o whole --count 1").stderr
    whole = Path("left.mkv").read_bytes()
    Path("left.mkv").write_bytes(whole[: len(whole) // 2])
    made = succeed("disparity left.mkv right.mkv -o out --count 1")
    said = r"left.mkv ends [234]\.\d s before the end in its header .* its [234] frames are processed"
    assert re.search(said, made.stderr)
    assert "right.mkv ends" not in made.stderr


def test_what_is_asked_wrongly(clips: Views, pair: Path) -> None:
    Path("noise.mkv").write_bytes(bytes(range(256)) * 20)
    write_video(Path("fast.mkv"), clips[1], stamps=[0, 2, 4, 6, 8, 10])
    table = """
        2 left.mkv | got 1 video: left.mkv
        2 left.mkv left.mkv | left and right video are both left.mkv
        2 left.mkv right.png | only left.mkv is a video
        2 left.mkv right.mkv --start 99 | --start must be at most 5, got 99
        2 left.mkv right.mkv --offset some | whole number of frames, or auto, got 'some'
        2 both.mkv --packed auto | the layout of a video
        2 left.png right.png --every 2 | --every requires a video
        2 left.mkv right.mkv --steady --shard 1/2 | --steady and --shard
        2 left.mkv right.mkv --steady --engine ray | --steady and --engine
        3 left.mkv noise.mkv | noise.mkv cannot be read as a video
        3 left.mkv none.mkv | no such file: none.mkv
        3 left.mkv fast.mkv | left.mkv has 10 frames/s | fast.mkv
    """
    refuse_all(table, "disparity -o out")
    table = """
        2 left.png right.png -o out.pfm | --steady requires a video
        2 left.mkv right.mkv --color-map out --skip-existing | requires --output
    """
    refuse_all(table, "disparity --steady")


def test_the_decoder_is_missing(clips: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    refuse(pam("disparity left.mkv right.mkv -o out"), 2, suggest_extra("video"))


# --- --steady -----------------------------------------------------------------------------------------------


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
    succeed("disparity left.mkv right.mkv -o plain")
    succeed("disparity left.mkv right.mkv -o steady --steady")
    plain, steady = maps("plain"), maps("steady")
    np.testing.assert_array_equal(steady[0], plain[0])
    flicker, rest = (np.abs(np.diff(each, axis=0)).mean() for each in (plain, steady))
    assert rest < flicker / 3


def test_a_run_goes_on_as_if_it_had_not_stopped(noisy: Path) -> None:
    """Also where formats round, and pixels are unknown: what was written is what the next frame is given."""
    options = "left.mkv right.mkv --steady --format png --min-confidence 0.5"
    succeed(f"disparity {options} -o whole")
    succeed(f"disparity {options} -o parts --count 2")
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
    succeed("disparity left right --steady -o pictures --format png")
    succeed("disparity left.mkv right.mkv --steady --count 3 -o out.mkv --color-map c.mkv --page pages/")
    found = Video(Path("out.mkv"))
    for number, disparity in enumerate(maps("pictures")):
        np.testing.assert_array_equal(found.disparity(number), disparity)


def test_behind_a_finished_video_frames_begin_anew(noisy: Path) -> None:
    command = "disparity left.mkv right.mkv --steady -o out.mkv --depth depth/ --focal 50 --baseline 1"
    succeed(f"{command} --count 2")
    made = succeed(f"{command} --count 4 --skip-existing")
    assert "the previous disparity map is stored only in a video" in made.stderr
    assert len(names("depth")) == 4


def test_a_lost_result_of_the_frame_before_is_not_guessed(noisy: Path) -> None:
    succeed("disparity left.mkv right.mkv --steady -o out --count 2")
    Path("out/000001.pfm").write_bytes(b"damaged")
    made = pam("disparity left.mkv right.mkv --steady -o out --count 4 --skip-existing")
    assert made.code == 6
    assert "out/000001.pfm" in made.stderr
    assert names("out") == ["000000.pfm", "000001.pfm"], "nor is any that comes after it"


def test_no_disparity_falls_below_what_is_searched(noisy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What recedes with the common change of its surroundings can be taken beyond infinity."""
    monkeypatch.setattr("pamcli.batch.matching.fuse_frames", lambda disparity, *_: disparity - 100)
    assert pam("disparity left.mkv right.mkv -o out.mkv --steady --count 2").lines == ["out.mkv"]
    succeed("disparity left.mkv right.mkv -o p --steady --count 2 --min-disparity -3")
    assert maps("p")[1].min() == -3
