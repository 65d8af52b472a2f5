"""Compare a network with OpenCV's StereoSGBM on ground truth: errors, and processor time per pair.

python scripts/compare_opencv.py --data kitti2015:kitti --data middlebury:middlebury

StereoSGBM is the method `opencv` of `pam eval disparity`, which writes its settings out; 192 disparities are
searched. The network runs as in pam disparity, small images upscaled. Both have as many threads as
OMP_NUM_THREADS says.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import cv2
import torch

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.disparity_metrics import DisparityMeter, Estimate
from pamcli.evaluation.opencv_methods import DISPARITIES, SemiGlobalMethod
from pamcli.evaluation.protocols import USUAL
from pamcli.inference.matcher import StereoMatcher
from pamcli.registry.catalog import DEFAULT_MATCHING

Method = Callable[[Sample], Estimate]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]")
    parser.add_argument("--weights", default=DEFAULT_MATCHING)
    options = parser.parse_args()
    cv2.setNumThreads(torch.get_num_threads())
    network = StereoMatcher.load(options.weights, device="cpu")
    methods: dict[str, Method] = {
        "StereoSGBM": SemiGlobalMethod(max_disparity=DISPARITIES).run,
        options.weights: lambda sample: Estimate(network(sample.left, sample.right, extras=()).disparity),
    }
    for data in options.data:
        seconds = [measure(data, name, method) for name, method in methods.items()]
        print(f"{data}: StereoSGBM takes {seconds[0] / seconds[1]:.2f} of the time of {options.weights}")


def measure(data: str, name: str, method: Method) -> float:
    """Print a method's figures on a data set; returns the seconds of a pair."""
    spec = parse_data(data)
    source = open_data(spec)
    meter = DisparityMeter(USUAL.get(spec.info.name))
    seconds = []
    for position in range(len(source)):
        sample = source.load(position)
        start = time.process_time()
        found = method(sample)
        seconds.append(time.process_time() - start)
        meter.add(sample, found)
    figures = meter.pooled_metrics["all"]
    mean = sum(seconds) / len(seconds)
    print(
        f"{data}, {name}: D1 {figures['d1']:.2f} %, bad-2 {figures['bad-2']:.2f} %, "
        f"end-point error {figures['epe']:.2f} px, {mean:.2f} s of the processor for a pair"
    )
    return mean


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
