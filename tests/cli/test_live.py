"""pam live: recordings, frames and values on stdout, and what ends it."""

from __future__ import annotations

import io
import json
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pam_program import forked_quick, pam, refuse_all, succeed
from PIL import Image
from stream_server import StreamServer
from video_files import write_ideal_rig

from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.videos import Video, VideoWriter
from pamcli.streams import outputs

av = pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")

QUIET = "--no-page", "--match-size", "1"


@pytest.fixture(autouse=True)
def _networks(remembering_networks: None) -> None:
    """Use networks that are loaded once."""


def frames_of(path: str) -> dict[int, int]:
    """Return the number of frames of each stream of a video."""
    with av.open(path) as container:
        found = dict.fromkeys(range(len(container.streams)), 0)
        for packet in container.demux():
            found[packet.stream_index] += bool(packet.size)
    return found


def test_a_recording_holds_images_and_disparities(clips: list[list[np.ndarray]]) -> None:
    options = "--record out.mkv -o frames --color-map colours.mp4 --range 0:32"
    run = succeed(f"live left.mkv right.mkv {options} --at 3,2 --at 40,20", *QUIET, "--count", "4")
    assert "4 results" in run.stderr
    assert (frames_of("out.mkv"), frames_of("colours.mp4")) == ({0: 4, 1: 4}, {0: 4})
    video = Video(Path("out.mkv"))
    with av.open("out.mkv") as container:
        levels = [frame.to_ndarray() for frame in container.decode(video=1)]
    for number in range(4):
        images = [clip[number] for clip in clips]
        np.testing.assert_array_equal(video.frame(number).pixels, np.hstack(images))
        stored = read_disparity(f"frames/{number:06d}.png")
        np.testing.assert_array_equal(stored, levels[number] / np.float32(256))
        words = run.lines[number].split()
        assert [float(words[at]) for at in (3, 6)] == pytest.approx([stored[2, 3], stored[20, 40]], abs=0.01)
    succeed("disparity out.mkv --packed lr -o again/ --count 1 --match-size 1 --format png")
    np.testing.assert_array_equal(read_disparity("again/000000.png"), read_disparity("frames/000000.png"))


def test_depth_is_in_metres_everywhere(clips: list[list[np.ndarray]]) -> None:
    options = ("--focal", "60", "--baseline", "0.1", "--depth", "--count", "2", *QUIET)
    run = succeed("live left.mkv right.mkv -o depth --format tif --record d.mkv --at 9,9 --json", *options)
    first, statistics = run.records[0], run.records[-1]["statistics"]
    depth = read_disparity("depth/000000.tif")
    assert first["at"][0]["depth_m"] == pytest.approx(float(depth[9, 9]), abs=1e-3)
    assert statistics["results"] == 2
    with av.open("d.mkv") as container:
        levels = next(container.decode(video=1)).to_ndarray()
    np.testing.assert_allclose(levels / 1000, np.where(depth > 65.535, 0, depth), atol=6e-4)


@pytest.mark.parametrize("kind", ["raw", "mjpeg"])
def test_frames_go_to_stdout(clips: list[list[np.ndarray]], kind: str) -> None:
    run = succeed(f"live left.mkv right.mkv -o - --format {kind} --count 2", *QUIET)
    if kind == "raw":
        raw = np.frombuffer(run.stdout, "<u2").reshape(2, 48, 64)
        succeed("disparity left.mkv right.mkv -o d/ --format png --count 2 --match-size 1")
        np.testing.assert_array_equal(raw[1] / np.float32(256), read_disparity("d/000001.png"))
    else:
        assert run.stdout.count(b"\xff\xd8\xff") == 2
        assert cv2.imdecode(np.frombuffer(run.stdout, np.uint8), 1).shape == (48, 64, 3)


def test_a_colour_map_is_sent_over_udp(clips: list[list[np.ndarray]]) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        address = f"udp://127.0.0.1:{receiver.getsockname()[1]}"
        succeed("live left.mkv right.mkv --count 4 --range 0:32 --color-map", address, *QUIET)
        receiver.setblocking(False)
        sent = b""
        with suppress(BlockingIOError):
            while True:
                sent += receiver.recv(65536)
    with av.open(io.BytesIO(sent), format="mpegts") as container:
        sizes = [(frame.width, frame.height) for frame in container.decode(video=0)]
    assert sizes == 4 * [(64, 48)]


def test_a_signal_leaves_complete_recordings(here: Path) -> None:
    with StreamServer() as left, StreamServer() as right:
        command = ("live", left.address, right.address, "--record", "out.mkv", "--json", "--no-page")
        with forked_quick(*command) as running:
            assert running.stdout is not None
            for _ in range(12):
                record = json.loads(running.stdout.readline())
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 143
            assert b"Traceback" not in running.stderr.read()
    counts = frames_of("out.mkv")
    assert counts[0] == counts[1] >= 12
    assert record["number"] >= 11


def test_a_changed_size_begins_another_recording(here: Path) -> None:
    with StreamServer(size=(256, 96)) as both:
        command = ("live", both.address, "--packed", "lr", "--record", "out.mkv", "--json", "--no-page")
        with forked_quick(*command) as running:
            assert running.stdout is not None
            for _ in range(5):
                running.stdout.readline()
            both.size = (320, 64)
            for line in running.stdout:
                if "number" in json.loads(line) and Path("out-2.mkv").exists():
                    break
            for _ in range(5):
                running.stdout.readline()
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 130
            assert b"out-2.mkv continues out.mkv" in running.stderr.read()
    assert Video(Path("out.mkv")).size == (256, 96)
    assert Video(Path("out-2.mkv")).size == (320, 64)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line(clips: list[list[np.ndarray]], monkeypatch: pytest.MonkeyPatch) -> None:
    def write_to_full_disk(place: str, *arguments: Any, **options: Any) -> VideoWriter:
        return VideoWriter("/dev/full", *arguments, **options)

    monkeypatch.setattr(outputs, "VideoWriter", write_to_full_disk)
    run = pam("live left.mkv right.mkv --record out.mkv --quiet", *QUIET)
    assert run.code == 7
    assert run.complaints == ["error: cannot write out.mkv: No space left on device"]


def test_bad_input_is_one_line(clips: list[list[np.ndarray]]) -> None:
    write_ideal_rig()
    Path("full").mkdir()
    Path("full/file").touch()
    Image.new("RGB", (9, 9)).save("left.png")
    refuse_all(
        """
        2 left.mkv | expected a left and a right source, got 1 | add --packed lr
        2 left.mkv right.mkv --packed lr | expected one source with --packed, got 2
        2 left.mkv --packed auto | a stream states no layout
        2 left.mkv --packed lr --offset 3 | cannot use both --packed and --offset
        2 left.mkv right.mkv --camera-fps 9 --no-page | --camera-fps requires a camera, got left.mkv
        2 http://127.0.0.1:1/ --packed lr --realtime --no-page | --realtime requires a video, got http://127.0.0.1
        2 left.mkv right.mkv --depth | --depth requires --calibration or --focal
        2 left.mkv right.mkv --format png | --format requires --output
        2 left.mkv right.mkv --format raw -o out | --format raw requires that --output is stdout
        2 left.mkv right.mkv --format png -o - | --format png requires that --output is a folder
        2 left.mkv right.mkv -o - --json | cannot write both --output - and --jsonl to stdout
        2 left.mkv right.mkv --record out.mp4 | --record out.mp4 must end in .mkv
        2 left.mkv right.mkv --record left.mkv | left.mkv already exists | --overwrite
        2 left.mkv right.mkv --color-map out.png | neither an address nor a video
        2 left.mkv right.mkv --range shared --color-map o.mkv | not known before its end
        2 left.mkv right.mkv --no-page --port 80 | cannot use both --no-page and --port
        2 left.mkv right.mkv -o full | the folder full is not empty
        2 left.mkv right.mkv --at 99,9 --no-page | --at 99,9 is outside of the image of 64x48 px
        2 left.mkv right.mkv --calibrate -o r.yaml | --calibrate requires --board
        2 left.mkv right.mkv --calibrate --board 9x6 --square 25mm | --calibrate requires --output
        2 left.mkv right.mkv --calibrate --board 9x6 --square 25mm -o r.txt | r.txt must end in .yaml, .yml
        3 left.mkv right.mkv --calibrate --board 9x6 --square 25mm -o r.yaml -q | none of the 6 image pairs
        2 left.mkv right.mkv --board 9x6 | --board requires --calibrate
        2 left.mkv right.mkv --doctor --fps 9 | cannot use both --doctor and --fps
        2 left.mkv right.mkv --fps 9 --match-size 1 | cannot use both --fps and --match-size
        3 none.mkv right.mkv --no-page | cannot open none.mkv: no such file
        3 left.mkv http://127.0.0.1:1/ --no-page | a video cannot be paired with a camera
        3 http://127.0.0.1:1/ http://127.0.0.1:1/ --no-page | connection refused
        3 left.mkv right.mkv --calibration none.yaml --no-page | none.yaml
        """,
        "live",
    )
