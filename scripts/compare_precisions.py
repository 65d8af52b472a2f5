"""Measure the cost of lower precisions: D1, bad-2 and mean change of disparities, on ground truth.

python scripts/compare_precisions.py --data kitti2015:kitti --data 'middlebury:middlebury?first=5'
python scripts/compare_precisions.py --data kitti2015:kitti --every 3 --precision bf16

`--precision auto` may take bf16 or fp16 where D1 and bad-2 change by no more than 0.1 points and disparities
by no more than 0.05 px on average. Exits with 1 where they change by more.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.protocols import USUAL
from pamcli.inference.matcher import StereoMatcher

MOST_POINTS, MOST_PIXELS = 0.1, 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]")
    parser.add_argument("--weights", default="pasmnet2")
    parser.add_argument("--precision", default="bf16", help="that is compared with fp32")
    parser.add_argument("--every", type=int, default=1, help="N: every Nth pair alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    matchers = [
        StereoMatcher.load(options.weights, device=options.device, precision=precision)
        for precision in ("fp32", options.precision)
    ]
    rows = [compare(data, matchers, options.every) for data in options.data]
    if options.json:
        print(json.dumps({"precision": options.precision, "sets": rows}))
    else:
        for row in rows:
            print(
                f"{row['data']:24} D1 {row['d1'][0]:.2f} -> {row['d1'][1]:.2f} %   "
                f"bad-2 {row['bad-2'][0]:.2f} -> {row['bad-2'][1]:.2f} %   "
                f"mean difference {row['mean_difference']:.3f} px   {'close' if row['close'] else 'TOO FAR'}"
            )
    return 0 if all(row["close"] for row in rows) else 1


def compare(data: str, matchers: list[StereoMatcher], every: int) -> dict[str, Any]:
    """Figures of both precisions, pooled over a set, and the mean difference over all of its pixels."""
    spec = parse_data(data)
    source = open_data(spec)
    meters = [DisparityMeter(USUAL.get(spec.info.name)) for _ in matchers]
    difference = pixels = 0.0
    indices = range(0, len(source), every)
    for index in indices:
        sample: Sample = source.load(index)
        found = [matcher(sample.left, sample.right, extras=()).disparity for matcher in matchers]
        for meter, disparity in zip(meters, found, strict=True):
            meter.add(sample, Estimate(disparity))
        difference += float(np.abs(found[0] - found[1]).sum(dtype=np.float64))
        pixels += found[0].size
    figures = [meter.pooled_metrics["all"] for meter in meters]
    d1, bad2 = ([float(each[name]) for each in figures] for name in ("d1", "bad-2"))
    mean = difference / pixels
    close = max(abs(d1[0] - d1[1]), abs(bad2[0] - bad2[1])) <= MOST_POINTS and mean <= MOST_PIXELS
    return {
        "data": spec.label,
        "pictures": len(indices),
        "d1": d1,
        "bad-2": bad2,
        "mean_difference": mean,
        "close": close,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PamError as error:
        sys.exit(str(error))
