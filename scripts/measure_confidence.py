"""Measure how well the confidence predicts errors, and how many unrelated images are detected.

python scripts/measure_confidence.py --data kitti2015:kitti --data 'middlebury:middlebury?first=5'

Prints for each data set and each --min-confidence the share of the pixels with ground truth that remain, and
the share of these with an error above 3 px. Then, over all data sets, the number of pairs that the checks
report as unrelated: unchanged (false alarms), and with the right image of another pair.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data, parse_data
from pamcli.imaging.preflight import check_pair
from pamcli.inference.matcher import StereoMatcher

THRESHOLDS = (0.0, 0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 0.995)
WRONG = 3.0  # px


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]")
    parser.add_argument("--weights", default="pasmnet2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs-only", action="store_true", help="run only the checks that need no network")
    options = parser.parse_args()
    matcher = None if options.pairs_only else StereoMatcher.load(options.weights, device=options.device)
    views: list[tuple[NDArray[np.generic], NDArray[np.generic]]] = []
    for data in options.data:
        source = open_data(parse_data(data))
        samples = [source.load(index) for index in range(len(source))]
        views += [(sample.left, sample.right) for sample in samples]
        if matcher is None:
            continue
        kept, wrong = np.zeros(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
        for sample in samples:
            assert sample.disparity is not None
            known = np.isfinite(sample.disparity) & (sample.disparity > 0)
            result = matcher(sample.left, sample.right, extras={"confidence"})
            assert result.confidence is not None
            off = np.abs(result.disparity - sample.disparity)[known] > WRONG
            sure = result.confidence[known]
            for index, threshold in enumerate(THRESHOLDS):
                kept[index] += np.count_nonzero(sure >= threshold)
                wrong[index] += np.count_nonzero(off & (sure >= threshold))
        print(f"{data}, {len(samples)} pairs, {options.weights}")
        for threshold, count, bad in zip(THRESHOLDS, kept, wrong, strict=True):
            print(
                f"  {threshold:5.3f}  remain {100 * count / kept[0]:5.1f} %  wrong {100 * bad / count:5.2f} %"
            )
    unrelated = [views[(index + 1) % len(views)][1] for index in range(len(views))]
    for name, rights in (
        ("pairs", [right for _, right in views]),
        ("unrelated images", unrelated),
    ):
        checks = [check_pair(*_common(left, right)) for (left, _), right in zip(views, rights, strict=True)]
        print(f"{sum(check.unrelated for check in checks)} of {len(checks)} {name} are reported as unrelated")
        if matcher is not None:
            found = [
                matcher(*_common(v, r), extras={"confidence"})
                for (v, _), r in zip(views, rights, strict=True)
            ]
            shares = [100 * result.confident_share for result in found]
            doubted = sum(result.doubtful for result in found)
            span = f"{min(shares):.0f} to {max(shares):.0f} %"
            print(f"  {doubted} by the confidence; {span} of the pixels are confident")
    swapped = sum(check_pair(right, left).is_exchanged for left, right in views)
    print(f"{swapped} of {len(views)} exchanged pairs are reported as exchanged")


def _common(
    left: NDArray[np.generic], right: NDArray[np.generic]
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Crop both images to their common size."""
    height, width = np.minimum(left.shape[:2], right.shape[:2])
    return left[:height, :width], right[:height, :width]


if __name__ == "__main__":
    main()
