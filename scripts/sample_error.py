"""Print the error of a disparity file of the sample pair: sample_error.py FILE."""

from __future__ import annotations

import sys
from pathlib import Path

import pamcli

TRUTH = Path(__file__).resolve().parent / "sample" / "disparity.pfm"
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
