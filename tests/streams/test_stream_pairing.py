"""Pairing by time stamps: which frames become a pair, which are dropped, and what a clock makes of stamps."""

from __future__ import annotations

import threading

import pytest

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
