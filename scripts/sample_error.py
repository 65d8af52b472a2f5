"""Prints how far a disparity file is from the truth of the sample pair: sample_error.py FILE."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from pamcli.errors import PamError
from pamcli.imaging.disparity_files import read_disparity

TRUTH = Path(__file__).resolve().parent / "sample" / "disparity.pfm"


def main(estimate_file: str) -> None:
    truth = read_disparity(TRUTH)
    estimate = read_disparity(Path(estimate_file))
    if estimate.shape != truth.shape:
        sys.exit(f"{estimate_file} is {estimate.shape}, the truth is {truth.shape}")

    known = np.isfinite(truth)
    estimated = known & np.isfinite(estimate)
    # A pixel without an estimate has no end-point error, but it is a bad pixel.
    error = np.where(estimated, np.abs(estimate - truth), np.inf)
    d1 = known & (error > 3) & (error > 0.05 * truth)
    print(f"end-point error  {error[estimated].mean():.2f} px")
    print(f"bad-2            {100 * (error[known] > 2).mean():.2f} %  (more than 2 px off)")
    print(f"bad-3            {100 * (error[known] > 3).mean():.2f} %  (more than 3 px off)")
    print(f"D1               {100 * d1[known].mean():.2f} %  (more than 3 px and 5 % off)")
    share = 100 * estimated.sum() / known.sum()
    print(f"over {known.sum()} pixels with a truth, {share:.1f} % of them with an estimate")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE")
    try:
        main(sys.argv[1])
    except PamError as error:
        sys.exit(str(error))
