"""Videos that are damaged, lie, or are no videos: errors of one line, and no other file is opened."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pamcli.batch.frames import pair_frames
from pamcli.errors import InputError, UsageError
from pamcli.imaging.videos import Video

av = pytest.importorskip("av")


def jpeg_packets(path: Path, shapes: list[tuple[int, int]], title: str = "") -> None:
    """A video of JPEGs, each of its own size, whatever the header says."""
    unit = Fraction(1, 10)
    with av.open(str(path), "w") as container:
        container.metadata["title"] = title
        stream = container.add_stream("mjpeg", rate=10)
        stream.height, stream.width = shapes[0]
        stream.pix_fmt, stream.codec_context.time_base = "yuvj420p", unit
        for number, (height, width) in enumerate(shapes):
            coder = av.CodecContext.create("mjpeg", "w")
            coder.height, coder.width, coder.pix_fmt, coder.time_base = height, width, "yuvj420p", unit
            frame = av.VideoFrame.from_ndarray(np.full((height, width, 3), 99, np.uint8), format="rgb24")
            frame = frame.reformat(format="yuvj420p")
            frame.pts, frame.time_base = number, unit
            for packet in [*coder.encode(frame), *coder.encode()]:
                packet.stream, packet.pts, packet.dts, packet.time_base = stream, number, number, unit
                container.mux(packet)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_title_in_another_encoding_means_nothing() -> None:
    path = Path("left.avi")
    jpeg_packets(path, [(32, 48)] * 2, title="CafE")
    path.write_bytes(path.read_bytes().replace(b"CafE", b"Caf\xe9"))
    video = Video(path)
    assert (len(video.stamps), video.frame(1).pixels.shape) == (2, (32, 48, 3))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("concat:left.avi", "no video"),
        ("subfile,,start,0,end,0,,:left.avi", "no video"),
        ("list.avi", "ffconcat version 1.0\nfile left.avi\n"),
        ("list.mkv", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nleft.avi\n#EXT-X-ENDLIST\n"),
        ("list.mov", "v=0\nm=video 5004 RTP/AVP 96\n"),
    ],
)
def test_no_other_file_is_read(name: str, text: str) -> None:
    jpeg_packets(Path("left.avi"), [(32, 48)])
    Path(name).write_text(text)
    with pytest.raises(InputError, match="cannot be read as a video"):
        Video(Path(name))


def test_each_frame_has_the_limit_of_images() -> None:
    jpeg_packets(Path("left.mkv"), [(32, 48), (200, 300), (32, 48)])
    video = Video(Path("left.mkv"))
    for number in (0, 2):
        assert video.frame(number, max_pixels=10_000).pixels.shape == (32, 48, 3)
    with pytest.raises(InputError, match="frame 1 is 300x200 = 60,000 pixels, over the limit"):
        video.frame(1, max_pixels=10_000)
    assert video.frame(1).pixels.shape == (200, 300, 3)
    with pytest.raises(InputError, match="frame 0 is 48x32"):
        video.frame(0, max_pixels=1000)


def test_places_far_beyond_a_video() -> None:
    jpeg_packets(Path("left.avi"), [(32, 48)] * 3)
    jpeg_packets(Path("right.avi"), [(32, 48)] * 3)
    huge = 10**30
    for options in ({"start": huge}, {"start": 3}, {"offset": huge}, {"offset": -huge}):
        with pytest.raises(UsageError, match="no frame to process"):
            pair_frames(["left.avi", "right.avi"], **options)  # type: ignore[arg-type]
    first = pair_frames(["left.avi", "right.avi"], every=huge, count=huge)
    assert [pair.frames for pair in first.pairs] == [(0, 0)]


def write_two_streams(path: Path, second: str) -> None:
    with av.open(str(path), "w") as container:
        streams = [container.add_stream("mjpeg", rate=10) for _ in range(2)]
        for stream in streams:
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        streams[1].disposition = av.stream.Disposition[second]
        frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
        for stream in streams:
            container.mux([*stream.encode(frame), *stream.encode()])


def test_two_streams_are_views_unless_one_is_a_thumbnail(tmp_path: Path) -> None:
    write_two_streams(tmp_path / "a.mp4", "attached_pic")
    assert Video(tmp_path / "a.mp4").size == (64, 48)
    write_two_streams(tmp_path / "3d.avi", "default")
    with pytest.raises(InputError, match=r"3d\.avi holds 2 video streams of 64x48 px") as caught:
        Video(tmp_path / "3d.avi")
    assert "-map 0:v:0 -c copy left.mkv -map 0:v:1 -c copy right.mkv" in (caught.value.hint or "")


def test_a_pipe_is_no_video() -> None:
    os.mkfifo("left.mkv")
    with pytest.raises(InputError, match="not a regular file: it is a pipe"):
        Video(Path("left.mkv"))
