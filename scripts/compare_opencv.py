"""A network beside OpenCV's StereoSGBM on data with a truth: errors, and the processor's time for a pair.

python scripts/compare_opencv.py --data kitti2015:kitti --data middlebury:middlebury

StereoSGBM has the settings below, of several that were tried those with the fewest errors on KITTI. It is
given grey pictures, widened so that it finds something up to the left border. Where it finds nothing, KITTI's
evaluation fills the hole; elsewhere the farther of the two neighbours in the row does. The network runs as in
pam disparity, small pictures enlarged. Both have as many threads as OMP_NUM_THREADS says.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.protocols import usual_protocol
from pamcli.imaging.images import eight_bits
from pamcli.imaging.matching import grey
from pamcli.inference.matcher import StereoMatcher
from pamcli.registry.catalog import DEFAULT_MATCHING

DISPARITIES = 192
SETTINGS = {
    "minDisparity": 0,
    "numDisparities": DISPARITIES,
    "blockSize": 3,
    "P1": 216,
    "P2": 864,
    "disp12MaxDiff": 1,
    "preFilterCap": 63,
    "uniquenessRatio": 10,
    "speckleWindowSize": 100,
    "speckleRange": 2,
    "mode": cv2.STEREO_SGBM_MODE_SGBM_3WAY,
}

Method = Callable[[Sample], NDArray[np.float32]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]")
    parser.add_argument("--weights", default=DEFAULT_MATCHING)
    options = parser.parse_args()
    cv2.setNumThreads(torch.get_num_threads())
    network = StereoMatcher.load(options.weights, device="cpu")
    methods: dict[str, Method] = {
        "StereoSGBM": lambda sample: block_matched(sample.left, sample.right),
        options.weights: lambda sample: network(sample.left, sample.right, extras=()).disparity,
    }
    for data in options.data:
        seconds = [measure(data, name, method) for name, method in methods.items()]
        print(f"{data}: StereoSGBM takes {seconds[0] / seconds[1]:.2f} of the time of {options.weights}")


def measure(data: str, name: str, method: Method) -> float:
    """Print a method's figures on a data set; returns the seconds of a pair."""
    spec = parse_data(data)
    source = open_data(spec)
    meter = DisparityMeter(usual_protocol(spec.info.name))
    seconds = []
    for position in range(len(source)):
        sample = source.load(position)
        start = time.process_time()
        disparity = method(sample)
        seconds.append(time.process_time() - start)
        meter.add(sample, Estimate(disparity if meter.protocol.fill else filled_along_rows(disparity)))
    figures = meter.summary().pooled["all"]
    mean = sum(seconds) / len(seconds)
    print(
        f"{data}, {name}: D1 {figures['d1']:.2f} %, bad-2 {figures['bad-2']:.2f} %, "
        f"end-point error {figures['epe']:.2f} px, {mean:.2f} s of the processor for a pair"
    )
    return mean


def block_matched(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float32]:
    """Disparity (H, W), NaN where StereoSGBM finds none."""
    matcher = cv2.StereoSGBM.create(**SETTINGS)
    wider = [
        cv2.copyMakeBorder(grey(eight_bits(view)), 0, 0, DISPARITIES, 0, cv2.BORDER_REPLICATE)
        for view in (left, right)
    ]
    found = matcher.compute(*wider)[:, DISPARITIES:].astype(np.float32) / 16
    return np.where(found < 0, np.float32(np.nan), found)


def filled_along_rows(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unknown pixels get the smaller of the known disparities next to them in the row; 0 in an empty row."""
    column, known = np.arange(disparity.shape[1]), np.isfinite(disparity)
    before = np.maximum.accumulate(np.where(known, column, -1), 1)
    after = np.minimum.accumulate(np.where(known, column, len(column))[:, ::-1], 1)[:, ::-1]
    wider = np.pad(disparity, ((0, 0), (1, 1)), constant_values=np.inf)  # nothing is known beyond the row
    filled = np.minimum(*(np.take_along_axis(wider, at + 1, 1) for at in (before, after)))
    return np.where(np.isfinite(filled), filled, np.float32(0))


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
