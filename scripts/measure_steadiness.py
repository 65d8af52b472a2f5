"""Measure the flicker of disparity maps from frame to frame, with and without --steady, and its time.

python scripts/measure_steadiness.py --scenes 4

Rendered scenes with noise (5 grey levels): still, with a moving camera, and with moving objects (measured on
these objects). Columns, each without and with --steady:

jumps     pixels that change by more than 1 px from one frame to the next (%)
range     pixels whose disparities over all frames differ by more than 1 px (%; still scenes)
error     mean error (px), and pixels with an error above 3 px (%)
temporal  temporal end-point error: mean error of the change of disparity along the known motion (px),
          and pixels with such an error above 1 px (%)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from moving_scenes import Frame, sequence
from numpy.typing import NDArray

from pamcli.imaging.temporal_fusion import PreviousFrame, fuse_frames
from pamcli.inference.matcher import StereoMatcher

KINDS = {
    "still": {"walls": False, "things": False},
    "camera": {"walls": True, "things": True},
    "objects": {"walls": False, "things": True},
}
NOISE = 5.0
Maps = Sequence[NDArray[np.float32]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenes", type=int, default=4, help="of each kind")
    parser.add_argument("--frames", type=int, default=20, help="of still scenes; half as many of others")
    parser.add_argument("--size", default="384x256")
    parser.add_argument("--weights", default=None)
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    matcher = StereoMatcher.load(*filter(None, [given.weights]), match_size=1.0)
    matching = fusion = 0.0
    for number, (kind, moves) in enumerate(KINDS.items()):
        rows = []
        for scene in range(given.scenes):
            count = given.frames if kind == "still" else given.frames // 2
            rendered = sequence(10 * number + scene, height, width, count, noise=NOISE, **moves)
            frames, found, fused = list(rendered), list[NDArray[np.float32]](), list[NDArray[np.float32]]()
            for frame in frames:
                start = time.process_time()
                found.append(matcher(frame.left, frame.right).disparity)
                middle = time.process_time()
                if fused:
                    last = frames[len(fused) - 1]
                    before = PreviousFrame(last.left, last.right, fused[-1])
                    fused.append(fuse_frames(found[-1], frame.left, frame.right, before))
                else:
                    fused.append(found[-1])
                matching, fusion = matching + middle - start, fusion + time.process_time() - middle
            rows.append([measure(frames, maps, only_moved=kind == "objects") for maps in (found, fused)])
            print(f"{kind} {scene}: " + format_columns(np.array(rows[-1])), flush=True)
        print(f"{kind}, mean: " + format_columns(np.mean(rows, axis=0)), flush=True)
    print(f"--steady takes {100 * fusion / matching:.1f} % of the time of matching")


def measure(frames: Sequence[Frame], maps: Maps, *, only_moved: bool) -> list[float]:
    """Return the columns; `only_moved`: count only pixels whose surface moved since the last frame."""
    steps = np.abs(np.diff(maps, axis=0))
    jumps, spread = 100 * (steps > 1).mean(), 100 * (np.ptp(np.array(maps), axis=0) > 1).mean()
    errors, changes = [], []
    height, width = frames[0].disparity.shape
    rows, columns = np.indices((height, width))
    for number in range(1, len(frames)):
        last, frame = frames[number - 1], frames[number]
        x, y = np.rint(frame.before).astype(int).transpose(2, 0, 1)
        moved = np.hypot(frame.before[..., 0] - columns, frame.before[..., 1] - rows) > 0.1
        counted = moved if only_moved else np.ones_like(moved)
        error = maps[number] - frame.disparity
        errors.append(np.abs(error)[counted])
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        x, y = x.clip(0, width - 1), y.clip(0, height - 1)
        seen = counted & inside & (last.layer[y, x] == frame.layer)
        changes.append(np.abs(error - (maps[number - 1] - last.disparity)[y, x])[seen])
    error, change = np.concatenate(errors), np.concatenate(changes)
    return [
        *(float(jumps), float(spread), float(error.mean()), 100 * float((error > 3).mean())),
        *(float(change.mean()), 100 * float((change > 1).mean())),
    ]


def format_columns(both: NDArray[np.float64]) -> str:
    """Format the columns (2, N), without and with --steady."""
    names = ("jumps {:.2f}", "range {:.2f}", "error {:.3f} px", "{:.2f} %", "temporal {:.3f} px", "{:.2f} %")
    columns = zip(names, both.T, strict=True)
    return ", ".join(f"{name.format(plain)} -> {steady:.3f}" for name, (plain, steady) in columns)


if __name__ == "__main__":
    main()
