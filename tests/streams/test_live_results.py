"""Pairing by time stamps, and `pamcli.live` on videos and on streams that stall, end and lose packets."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stream_server import StreamServer, mark, read_mark
from video_files import write_video

import pamcli
from pamcli.inference.matcher import StereoResult
from pamcli.settings.live import LiveSettings
from pamcli.streams import live as module
from pamcli.streams import sources
from pamcli.streams.pairing import Clock, Frame, FramePairing


def frame(number: int, stamp: float) -> Frame:
    return Frame(lambda: None, 9216, number, stamp, stamp)


def fill(pairing: FramePairing, left: list[float], right: list[float]) -> None:
    for side, stamps in enumerate((left, right)):
        for number, stamp in enumerate(stamps):
            pairing.add(side, frame(number, stamp))


@pytest.mark.parametrize(
    ("left", "right", "tolerance", "pair"),
    [
        ([0.0, 0.1, 0.2], [0.0, 0.1, 0.2], 0.02, (2, 2)),
        ([0.0, 0.1, 0.2], [0.01, 0.11], 0.02, (1, 1)),  # the partner of the newest has not arrived
        ([0.0, 0.1], [0.05, 0.15], 0.02, None),
        ([0.0, 0.1], [0.05, 0.17], 0.06, (1, 0)),
        ([0.3], [0.0, 0.1, 0.2, 0.31], 0.02, (0, 3)),
        ([0.0, 0.1, 0.2], [0.049, 0.149, 0.249], None, (2, 2)),  # half of a frame interval of 0.1 s
        ([0.0, 0.1, 0.2], [0.26, 0.36], None, None),
        ([], [0.0], 1.0, None),
    ],
)
def test_the_newest_pair_within_the_tolerance_is_taken(
    left: list[float], right: list[float], tolerance: float | None, pair: tuple[int, int] | None
) -> None:
    pairing = FramePairing(2, tolerance)
    fill(pairing, left, right)
    taken = pairing.take(0)
    assert (taken and tuple(each.number for each in taken)) == pair
    assert pairing.take(0) is None  # older ones are gone, and none is used twice
    assert pairing.dropped == (pair[0] if pair else 0)


def test_old_frames_are_dropped_where_the_partner_is_silent() -> None:
    pairing = FramePairing(2)
    fill(pairing, [0.1 * number for number in range(100)], [])
    assert [len(queue) for queue in pairing.queues] == [16, 0]
    assert (pairing.dropped, pairing.received) == (84, [100, 0])


def test_every_frame_of_videos_is_used_or_has_no_partner() -> None:
    pairing = FramePairing(2, 0.02, keeps_all=True)
    fill(pairing, [0.0, 0.1, 0.2, 0.4], [0.0, 0.2, 0.3, 0.4])
    for side in (0, 1):
        pairing.end(side)
    taken = [tuple(each.number for each in pairing.take(0) or ()) for _ in range(3)]
    assert taken == [(0, 0), (2, 1), (3, 3)]
    with pytest.raises(EOFError):
        pairing.take(0)
    assert pairing.dropped == 1


def test_a_reader_of_a_video_waits_for_room() -> None:
    pairing = FramePairing(1, keeps_all=True)
    numbers = range(40)
    thread = threading.Thread(target=lambda: [pairing.add(0, frame(number, number)) for number in numbers])
    thread.start()
    taken = [pair[0].number for _ in numbers if (pair := pairing.take(5))]
    thread.join()
    assert taken == [*numbers]


def test_closing_wakes_a_waiting_consumer() -> None:
    pairing = FramePairing(2)
    threading.Timer(0.05, pairing.close).start()
    with pytest.raises(EOFError):
        pairing.take(30)


def test_a_clock_removes_the_delay_of_late_arrivals() -> None:
    clock = Clock()
    delays = [0.05, 0.2, 0.04, 0.9, 0.04]
    times = [clock.convert(7000 + 0.1 * n, 100 + 0.1 * n + delay) for n, delay in enumerate(delays)]
    assert times == pytest.approx([100.05, 100.15, 100.24, 100.34, 100.44])
    assert clock.convert(None, 101.0) == 101.0
    restarted = clock.convert(0.0, 105.0)
    assert restarted == 105.0
    assert clock.convert(0.1, 105.2) == pytest.approx(105.1)


def test_a_clock_follows_a_drift() -> None:
    clock = Clock()
    for second in range(0, 2000):
        found = clock.convert(second * 1.0005, float(second))  # 0.5 ms a second fast
    assert found == pytest.approx(1999, abs=0.006)


pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
SECONDS = 0.02
"""Time that the made-up network takes."""


class Matcher:
    """A network whose disparity is the number in the left image."""

    def __call__(self, left: np.ndarray, right: np.ndarray, **options: Any) -> StereoResult:
        time.sleep(SECONDS)
        confidence = np.full(left.shape[:2], 0.5, np.float32) if "confidence" in options["extras"] else None
        return StereoResult(np.full(left.shape[:2], read_mark(left), np.float32), confidence=confidence)


@pytest.fixture(autouse=True)
def matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_matcher", lambda settings: (Matcher(), None))
    monkeypatch.setattr(sources, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(logging.getLogger("pamcli"), "propagate", True)


def cameras(kind: str, **right: Any) -> tuple[StreamServer, StreamServer]:
    start = time.monotonic()
    return StreamServer(kind, start=start), StreamServer(kind, start=start, **right)


def check(frame: pamcli.LiveFrame) -> int:
    """Assert that a result belongs to its images; return how many frames these are apart.

    A busy machine delays streams whose pairs only their arrival tells.
    """
    assert np.all(frame.disparity == read_mark(frame.left))
    assert frame.disparity.shape == frame.left.shape[:2] == frame.right.shape[:2]
    return abs(read_mark(frame.left) - read_mark(frame.right))


def test_results_belong_to_their_frames_through_all_faults(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pamcli")
    left, right = cameras("mjpeg")
    with left, right:
        apart = []
        for frame in pamcli.live(left.address, right.address, count=70):
            apart.append(check(frame))
            if frame.number == 15:
                right.stall(0.3)
            elif frame.number == 30:
                left.disconnect()
            elif frame.number == 45:
                left.size = right.size = (160, 64)
        assert np.median(apart) <= 1
        assert frame.left.shape == (64, 160, 3)
        assert frame.statistics["interruptions"] == 1
        assert 0 < frame.latency < 10
        assert frame.confidence is not None
    messages = [record.getMessage() for record in caplog.records]
    assert sum("next attempt in 0.05 s" in each for each in messages) == 1
    assert sum("the image size changed from 128x96 to 160x64 px" in each for each in messages) == 2
    assert any("restored after" in each for each in messages)


@pytest.mark.parametrize("kind", ["udp", "rtsp"])
def test_other_protocols(kind: str) -> None:
    left, right = cameras(kind)
    with left, right:
        apart = [check(frame) for frame in pamcli.live(left.address, right.address, count=20)]
    assert np.median(apart) <= 1


def test_a_lossy_stream_yields_only_whole_frames() -> None:
    left, right = cameras("mpegts", damage=25)
    with left, right:
        apart = []
        for frame in pamcli.live(left.address, right.address, count=30, no_page=True):
            apart.append(check(frame))
        assert np.median(apart) <= 1
        assert frame.confidence is None
        assert frame.statistics["damaged"] > 0


def test_a_stalled_stream_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sources, "STALLED", 0.5)
    left, right = cameras("mjpeg")
    with left, right:
        for frame in pamcli.live(left.address, right.address, count=20):
            if frame.number == 5:
                left.stall(1.5)
    assert "no data for 0.5 s; next attempt" in caplog.text


@pytest.fixture
def clips(tmp_path: Path) -> list[str]:
    """Two videos of 20 frames at 10 per second; the right one lacks frame 5."""
    for side, missing in (("left", None), ("right", 5)):
        numbers = [number for number in range(20) if number != missing]
        write_video(tmp_path / f"{side}.mkv", [mark(number) for number in numbers], stamps=numbers)
    return [str(tmp_path / f"{side}.mkv") for side in ("left", "right")]


def test_every_frame_of_videos_is_matched(clips: list[str]) -> None:
    found = []
    for frame in pamcli.live(*clips):
        assert check(frame) == 0
        found.append(read_mark(frame.left))
        time.sleep(0.005)
    assert found == [number for number in range(20) if number != 5]


def test_videos_in_real_time_take_their_time(clips: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.25)
    began = time.monotonic()
    found = [read_mark(frame.left) for frame in pamcli.live(*clips, realtime=True)]
    assert time.monotonic() - began > 1.5
    assert found == sorted(found)
    assert 1 <= len(found) <= 12  # of 19: the others came while the network was busy


def test_a_source_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("not a video")
    for name, said in (
        ("http://user:secret@127.0.0.1:1/", "cannot open http://127.0.0.1:1/: connection refused"),
        ("/dev/video77", "cannot open /dev/video77: no such file"),
        ("v4l2:/dev/null", "cannot open v4l2:/dev/null: "),
    ):
        with StreamServer() as right, pytest.raises(pamcli.PamError, match=said) as caught:
            next(iter(pamcli.live(name, right.address)))
        assert caught.value.exit_code == 3
    with pytest.raises(pamcli.PamError, match=r"text.mp4: invalid data"):
        next(iter(pamcli.live(text, text)))
    with StreamServer() as right, pytest.raises(pamcli.PamError, match="cannot be paired with a camera"):
        pamcli.live(text, right.address)


def test_leaving_the_loop_ends_the_threads() -> None:
    import threading

    left, right = cameras("mjpeg")
    with left, right:
        for frame in pamcli.live(left.address, right.address):
            if frame.number >= 3:
                break
        del frame
        names = {thread.name for thread in threading.enumerate()}
    assert not [name for name in names if name.startswith(("match", "read"))]


def test_an_unfinished_loop_does_not_disturb_the_end_of_python(clips: list[str]) -> None:
    code = f"""
import numpy, pamcli, pamcli.streams.live, types
result = types.SimpleNamespace(confidence=None, disparity_where=lambda **_: numpy.ones((96, 128), "f"))
pamcli.streams.live.load_matcher = lambda settings: (lambda *_, **more: result, None)
frames = iter(pamcli.live(*{clips!r}, realtime=True))
print(next(frames).number)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "0\n", "")


def test_an_error_of_the_network_reaches_the_loop(clips: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise pamcli.PamError("too little memory")

    monkeypatch.setattr(module, "load_matcher", lambda settings: (fail, None))
    with pytest.raises(pamcli.PamError, match="too little memory"):
        next(iter(pamcli.live(*clips)))


@pytest.fixture
def source() -> sources.Source:
    settings = LiveSettings(inputs=["http://127.0.0.1/"], packed="lr")
    address = sources.parse_address("http://127.0.0.1/", settings)
    return sources.Source(0, "left", address, None, FramePairing(1), settings)


def connect(kind: str, times: list[float]) -> Any:
    """Return a container whose packets are whole images with these time stamps."""
    packets = []
    for time_stamp in times:
        packet = SimpleNamespace(pts=time_stamp, time_base=1.0, is_corrupt=False, size=9)
        packet.width, packet.height, packet.key_frame = 9, 9, True
        packet.decode = lambda packet=packet: [packet]
        packets.append(packet)
    stream = SimpleNamespace(codec_context=SimpleNamespace(name="mjpeg" if kind == "mpjpeg" else "h264"))
    return SimpleNamespace(
        streams=SimpleNamespace(video=[stream]), format=SimpleNamespace(name=kind), demux=lambda *_: packets
    )


@pytest.mark.parametrize(("kind", "taken"), [("mpjpeg", [2, 4, 7]), ("mpegts", [*range(2, 8)])])
def test_frames_that_waited_in_buffers_are_skipped(
    kind: str, taken: list[int], source: sources.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their arrival says nothing about their time: of all frames without time stamps, else at the start."""
    container = connect(kind, [number / 10 for number in range(8)])
    packets, waits = container.demux(), [0, 0, 0.09, 0, 0.09, 3, 0, 0.09]
    monkeypatch.setattr(sources, "_demux", lambda *_: zip(packets, waits, strict=True))
    assert [packets.index(frame.read.args[0]) for frame in source._decode(container)] == taken


def test_time_stamps_of_a_new_connection_begin_anew(
    source: sources.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where they are near those before, which a clock would take for the same stream."""
    now = iter([100.0, 100.1, 100.2, 100.3, 110.0, 110.1, 110.2])
    stamps = [[5.0, 5.1, 5.2], [5.3, 5.4]]  # the second connection began 10 s later
    monkeypatch.setattr(sources, "_demux", lambda container, _: ((each, 0.1) for each in container.demux()))
    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=lambda: next(now)))
    found = [frame.captured for part in stamps for frame in source._decode(connect("mpegts", part))]
    assert found == pytest.approx([100.1, 100.2, 100.3, 110.1, 110.2])
