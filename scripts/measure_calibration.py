"""Measure the accuracy of `pam calibration make` on rendered images of boards by known rigs.

python scripts/measure_calibration.py --rigs 20

For pinhole and fisheye lenses: 30 boards each, 0.3 px of blur, noise of 2.5 grey levels. Prints for each rig
by how much focal lengths and baseline are off, how far rows of the true rig's pictures lie apart after the
found one's rectification, and how often focal lengths and baseline lie within twice the stated uncertainty.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from pamcli.calibration.board_calibration import calibrate_rig
from pamcli.calibration.boards import Board
from pamcli.calibration.sightings import SightingCollector
from pamcli.settings.parsing import parse_image_size

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "calibration"))
from simulated_rigs import make_chessboard, make_rig, measure_row_errors, photograph, sample_poses  # type: ignore[import-not-found]

BOARD = Board(9, 6, 0.03)
LENSES = ("pinhole", "fisheye")


def measure(seed: int, *, fisheye: bool, size: tuple[int, int], boards: int) -> dict[str, float]:
    """Shares by which focal lengths and baseline are off, pixels between rows, deviations they are off by."""
    rig = make_rig(seed, fisheye=fisheye, size=size)
    found = SightingCollector(BOARD)
    pairs = photograph(rig, make_chessboard(9, 6, BOARD.square), sample_poses(rig, boards, seed), seed)
    for number, pair in enumerate(pairs):
        found.add(f"{number:02}", *(np.repeat(view[..., None], 3, axis=2) for view in pair))
    made = calibrate_rig(found.sightings, BOARD, size, fisheye=fisheye)
    off, sigmas = [], []
    for number, (camera, true) in enumerate(((made.rig.left, rig.left), (made.rig.right, rig.right))):
        for axis in (0, 1):
            error = camera.matrix[axis, axis] - true.matrix[axis, axis]
            off.append(abs(error) / true.matrix[axis, axis])
            sigmas.append(abs(error) / made.uncertainty.focal[number][axis])
    sigmas.append(abs(made.rig.baseline - rig.baseline) / made.uncertainty.baseline)
    rows = measure_row_errors(rig, made.rig)
    return {
        "focal %": 100 * max(off),
        "baseline %": 100 * abs(made.rig.baseline / rig.baseline - 1),
        "rows px": float(np.percentile(rows, 95)),
        "worst px": float(rows.max()),
        "error px": made.error,
        "pairs": made.pairs,
        "out": len(made.rejections) + len(found.rejections),
        "within": float(np.mean(np.array(sigmas) < 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rigs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first rig")
    parser.add_argument("--lens", action="append", choices=LENSES, help="both by default")
    parser.add_argument("--boards", type=int, default=30)
    parser.add_argument("--size", default="1024x640")
    options = parser.parse_args()
    size = parse_image_size(options.size, "--size")
    for fisheye in (lens == "fisheye" for lens in options.lens or LENSES):
        rows = []
        for seed in range(options.first, options.first + options.rigs):
            rows.append(measure(seed, fisheye=fisheye, size=size, boards=options.boards))
            if seed == options.first:
                print(f"{'fisheye' if fisheye else 'pinhole'}, {size[0]} x {size[1]}")
                print("rig  " + "".join(f"{name:>12}" for name in rows[0]))
            print(f"{seed:<5}" + "".join(f"{value:12.3f}" for value in rows[-1].values()), flush=True)
        for name, kind in (("worst", np.max), ("mean", np.mean)):
            print(f"{name:<5}" + "".join(f"{kind([row[key] for row in rows]):12.3f}" for key in rows[0]))


if __name__ == "__main__":
    main()
