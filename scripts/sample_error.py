"""Prints how far a disparity file is from the truth of the sample pair: sample_error.py FILE."""

from __future__ import annotations

import sys
from pathlib import Path

from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_picture

FOLDER = Path(__file__).resolve().parent / "sample"
SHOWN = {
    "epe": ("end-point error", "px"),
    "bad-2": ("bad-2", "%   (more than 2 px off)"),
    "bad-3": ("bad-3", "%   (more than 3 px off)"),
    "d1": ("D1", "%   (more than 3 px and 5 % off)"),
    "density": ("density", "%  (pixels with an estimate)"),
}


def main(estimate_file: str) -> None:
    left, right = (read_picture(FOLDER / f"{side}.png").pixels for side in ("left", "right"))
    sample = Sample("the sample pair", left, right, read_disparity(FOLDER / "disparity.pfm"))
    meter = DisparityMeter()
    figures = meter.add(sample, Estimate(read_disparity(Path(estimate_file)))).figures["all"]
    for metric, (name, unit) in SHOWN.items():
        print(f"{name:16} {figures[metric]:.2f} {unit}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    try:
        main(sys.argv[1])
    except PamError as error:
        sys.exit(str(error))
