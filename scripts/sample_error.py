"""Print the error of a disparity map of the sample pair; exit with 1 if it is large: sample_error.py FILE."""

from __future__ import annotations

import sys
from pathlib import Path

import pamcli

TRUTH = Path(__file__).resolve().parent / "sample" / "disparity.pfm"
MOST_PX = 3.0  # end-point error of a working installation: 1.2 px with the default weights
SHOWN = {
    "epe": ("end-point error", "px"),
    "bad-2": ("bad-2", "%   (more than 2 px off)"),
    "bad-3": ("bad-3", "%   (more than 3 px off)"),
    "d1": ("D1", "%   (more than 3 px and 5 % off)"),
    "density": ("density", "%  (pixels with an estimate)"),
}

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    try:
        estimate, truth = (pamcli.read_disparity(file) for file in (Path(sys.argv[1]), TRUTH))
        figures = pamcli.disparity_metrics(estimate, truth)
    except pamcli.PamError as error:
        sys.exit(str(error))
    for metric, (name, unit) in SHOWN.items():
        print(f"{name:16} {figures[metric]:.2f} {unit}")
    if not figures["epe"] <= MOST_PX:
        sys.exit(f"The end-point error must be at most {MOST_PX:g} px.")
