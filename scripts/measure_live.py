"""Measure pam live on two streams of 640x480 px at 30 frames per second over the loopback address.

python scripts/measure_live.py speed [SECONDS]  # results per second beside a loop over files, and latency
python scripts/measure_live.py soak [MINUTES]   # stalls, disconnects and changed sizes: pairs and memory
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

import pamcli

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from stream_server import StreamServer, read_mark  # type: ignore[import-not-found]  # noqa: E402

SIZE = 640, 480
ROUNDS = 4
STALLS, DISCONNECTS, CHANGES = 10, 5, 2
OTHER_SIZE = 320, 240


def read_views() -> list[np.ndarray]:
    """Return a left and a right image of 640x480 px."""
    views = []
    for side in ("left", "right"):
        image = Image.open(ROOT / "scripts" / "sample" / f"{side}.png").convert("RGB")
        views.append(np.asarray(image.crop((0, 0, 667, 500)).resize(SIZE)))
    return views


def serve_views(views: list[np.ndarray]) -> list[Any]:
    """Serve each view as MJPEG; the images are encoded once."""
    start = time.monotonic()
    return [
        StreamServer(size=SIZE, start=start, paint=lambda number, size, view=view: view, encode_once=True)
        for view in views
    ]


def measure_speed(seconds: float) -> None:
    """Print the rates of a loop over files and of pam live, in turn, and the latency."""
    views = read_views()
    rates: dict[str, list[float]] = {"files": [], "live": []}
    latencies = []
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder, f"{side}.png")) for side in ("left", "right")]
        for name, view in zip(names, views, strict=True):
            Image.fromarray(view).save(name)
        matcher = pamcli.StereoMatcher.load()
        matcher(*views)
        left, right = serve_views(views)
        own, busy = own_seconds(), busy_seconds()
        with left, right:
            for _ in range(ROUNDS):
                count, began = 0, time.monotonic()
                while time.monotonic() - began < seconds:
                    matcher(*(pamcli.read_image(name).pixels for name in names))
                    count += 1
                pair = (time.monotonic() - began) / count
                rates["files"].append(1 / pair)
                frames = iter(pamcli.live(left.address, right.address, no_page=True))
                next(frames)  # the network is loaded
                count, began, found = 0, time.monotonic(), []
                while time.monotonic() - began < seconds:
                    found.append(next(frames).latency / pair)
                    count += 1
                rates["live"].append(count / (time.monotonic() - began))
                frames.close()  # type: ignore[attr-defined]
                latencies += found
                print(f"files {rates['files'][-1]:.2f}, live {rates['live'][-1]:.2f} pairs/s", flush=True)
    files, live = (statistics.median(rates[name]) for name in ("files", "live"))
    median, late = np.percentile(latencies, (50, 95))
    others = 1 - (own_seconds() - own) / (busy_seconds() - busy)
    print(f"other programs used {100 * others:.0f} % of the busy time: above 5 %, repeat on an idle machine")
    print(f"median: files {files:.2f}, live {live:.2f} pairs/s: {live / files:.2f}")
    print(f"latency in times of a pair: median {median:.2f}, 95 % {late:.2f}")


def own_seconds() -> float:
    """Return the CPU time of this process, s."""
    return sum(os.times()[:2])


def busy_seconds() -> float:
    """Return the CPU time of all processes of this machine, s."""
    fields = Path("/proc/stat").read_text().split()[1:9]
    return (sum(map(int, fields)) - int(fields[3]) - int(fields[4])) / os.sysconf("SC_CLK_TCK")


def plan_faults(seconds: float) -> Iterator[tuple[float, str]]:
    """Yield when each fault happens, s, spread over the run."""
    faults = ["stall"] * STALLS + ["disconnect"] * DISCONNECTS + ["size"] * CHANGES
    order = np.random.default_rng(0).permutation(len(faults))
    for number, index in enumerate(order):
        yield seconds * (number + 1) / (len(faults) + 1), faults[index]


def soak(minutes: float) -> None:
    """Run pam live through faults; print what does not belong together, and the memory."""
    from pamcli.inference.result import StereoResult
    from pamcli.streams import live

    def match(left: np.ndarray, right: np.ndarray, **_: Any) -> StereoResult:
        time.sleep(0.05)
        return StereoResult(np.full(left.shape[:2], read_mark(left), np.float32))

    vars(live)["load_matcher"] = lambda settings: (match, Path())
    begin = time.monotonic()
    # After a stall, the left camera sends what waited in the network, the right one the newest image.
    left, right = (StreamServer(size=SIZE, start=begin, backlog=backlog) for backlog in (20, 0))
    memory: list[float] = []
    faults, counts = list(plan_faults(60 * minutes)), SimpleNamespace(all=0, wrong=0, apart=0)
    seconds_of_memory = 60 * minutes / 20
    with left, right:
        for frame in pamcli.live(left.address, right.address, no_page=True):
            numbers = read_mark(frame.left), read_mark(frame.right)
            counts.all += 1
            counts.wrong += frame.disparity.max() != numbers[0]
            counts.apart += abs(numbers[0] - numbers[1]) > 1
            passed = time.monotonic() - begin
            if faults and passed > faults[0][0]:
                kind, server = faults.pop(0)[1], (left, right)[len(faults) % 2]
                print(f"{passed:.0f} s: {kind}", flush=True)
                if kind == "stall":
                    server.stall(3)
                elif kind == "disconnect":
                    server.disconnect()
                else:
                    left.size = right.size = OTHER_SIZE if left.size == SIZE else SIZE
            if passed > seconds_of_memory * (len(memory) + 1):
                memory.append(resident_megabytes())
            if passed > 60 * minutes:
                break
    print(
        f"{counts.all} results, {counts.wrong} of other frames, {counts.apart} of images over a frame apart"
    )
    print(frame.statistics)
    print("memory at each twentieth, MB:", *(f"{each:.0f}" for each in memory))
    print(f"largest after the second against the second: {max(memory[1:]) / memory[1] - 1:+.1%}")
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    what, amount = (*sys.argv[1:], "", "")[:2]
    if what == "speed":
        measure_speed(float(amount or 20))
    elif what == "soak":
        soak(float(amount or 20))
    else:
        sys.exit(__doc__)
