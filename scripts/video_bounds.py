"""Measure the memory of a video, and check that a killed run resumes with the same results.

python scripts/video_bounds.py --frames 100 --match-size 0.1

A lossless clip of two moving cameras is rendered into a temporary directory. `pam disparity` matches its
first frames (--few), then all of them into a video, is killed half-way (SIGKILL) and resumes with
--skip-existing; some frames are also matched alone, as images, and compared. Prints the peak memory of each
run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.videos import Video, write_video

RATE = 25
DISPARITY = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--match-size", default="0.1")
    parser.add_argument("--compared", type=int, default=3)
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, shift in (("left", 0), ("right", DISPARITY)):
            frames = drawn(given.frames, width, height, shift)
            path, rate = Path(f"{name}.mkv"), Fraction(RATE)
            write_video(path, frames, rate=rate, unit=1 / rate, notes={})
        options = ["--match-size", given.match_size, "-q"]
        clips = ["left.mkv", "right.mkv", *options]
        few = peak([*clips, "-o", "few.mkv", "--count", str(given.few)])
        print(f"{given.few} frames: {few / 1e6:.0f} MB", flush=True)

        killed = started([*clips, "-o", "all.mkv"])
        while len(list(Path().glob("all.mkv.frames/*.png"))) < given.frames // 2:
            if killed.poll() is not None:
                sys.exit("the run ended before it could be killed: take more --frames")
            time.sleep(0.005)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        done = len(list(Path().glob("all.mkv.frames/*.png")))
        assert not Path("all.mkv").exists()
        rest = peak([*clips, "-o", "all.mkv", "--skip-existing"])
        left = sorted(path.name for path in Path().iterdir())
        print(f"killed after {done} frames, the others: {rest / 1e6:.0f} MB; now there are {', '.join(left)}")

        video, views = Video(Path("all.mkv")), [Video(Path(f"{name}.mkv")) for name in ("left", "right")]
        for number in np.linspace(0, given.frames - 1, given.compared).round().astype(int).tolist():
            for view, name in zip(views, ("left.png", "right.png"), strict=True):
                Image.fromarray(view.frame(number).pixels).save(name)
            peak(["left.png", "right.png", *options, "-o", "alone.png", "--overwrite"])
            same = np.array_equal(video.disparity(number), read_disparity("alone.png"), equal_nan=True)
            print(f"frame {number} is {'the same' if same else 'NOT the same'} as matched alone")
        print(f"{len(video.stamps)} frames in {video.path}")
        os.chdir("/")


def drawn(count: int, width: int, height: int, shift: int) -> Iterator[tuple[Fraction, np.ndarray]]:
    """Frames that move over a wall of blots, each with when it is shown, seconds."""
    rough = np.random.default_rng(1).uniform(0, 255, (height // 8, width // 4, 3)).astype(np.float32)
    wall = cv2.resize(rough, (2 * width, height + 4 * count), interpolation=cv2.INTER_LINEAR).astype(np.uint8)
    for number in range(count):
        left = shift + 2 * number
        yield Fraction(number, RATE), wall[2 * number :, left:][:height, :width]


def started(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pamcli", "disparity", *arguments])


def peak(arguments: list[str]) -> int:
    """Return the peak memory of a run, bytes."""
    run = started(arguments)
    _, status, used = os.wait4(run.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return 1024 * used.ru_maxrss


if __name__ == "__main__":
    main()
