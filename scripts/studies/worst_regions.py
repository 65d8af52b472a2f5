"""Find the largest regions of wrong disparity in data sets, and sort the errors by the kind of surface.

    python scripts/studies/worst_regions.py DATA ... [--weights NAME|FILE ...] [--sheet PNG]

A pixel is wrong if it is off by more than 3 px and 5 % (KITTI) or by more than 2 px (other data sets).
Wrong pixels that touch form a region; regions are ranked by their share of the pixels with ground truth.
Every wrong pixel counts for the first kind that applies:

    border       its match lies outside the right image
    occluded     it is marked as visible only in the left image, or a nearer surface covers its match
    thin         foreground that is at most 8 px wide
    see-through  at least 3 steps of depth within 12 px on its row
    reflective   the right image at the true match differs by more than 20 levels
    textureless  the left image changes by less than 4 levels within 5 px
    near         its true disparity is 64 px or more
    other        none of these

stdout has a Markdown table of the shares of all pixels per kind, a column for each data set and network,
and a table of the worst regions of the last network.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import imageio.v3 as imageio
import numpy as np
from numpy.typing import NDArray

from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.inference.matcher import StereoMatcher

Mask = NDArray[np.bool_]
KINDS = ("border", "occluded", "thin", "see-through", "reflective", "textureless", "near", "other")
STEP = 2.0  # px of disparity between two surfaces


class Region(NamedTuple):
    """A connected region of wrong pixels."""

    share: float
    """Percent of the pixels with ground truth of its image."""
    kind: str
    name: str
    box: tuple[int, int, int, int]
    """x, y, width, height, px."""
    error: float
    """Mean absolute error, px."""
    tile: NDArray[np.uint8]


def main() -> None:
    """Print the table of kinds and the worst regions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="+", help="data sets of `pam dataset list`, as NAME:FOLDER")
    parser.add_argument("--weights", nargs="+", default=["pasmnet2"], help="networks to compare")
    parser.add_argument("--count", type=int, default=50, help="number of regions to print")
    parser.add_argument(
        "--sheet", type=Path, help="PNG: left image, ground truth and estimate of each printed region"
    )
    options = parser.parse_args()
    columns = {}
    for weights in options.weights:
        regions: list[Region] = []
        for data in options.data:
            shares, found = measure(data, weights)
            columns[data.partition(":")[0], weights] = shares
            regions += found
    print("| kind | " + " | ".join(f"{data}, {Path(weights).stem}" for data, weights in columns) + " |")
    print("|" + " --- |" * (1 + len(columns)))
    for kind in (*KINDS, "all"):
        print(f"| {kind} | " + " | ".join(f"{column[kind]:.2f} %" for column in columns.values()) + " |")
    regions = sorted(regions, reverse=True, key=lambda region: region.share)[: options.count]
    print(
        "\n| region | kind | x, y, width x height (px) | share of its image | mean error |\n"
        + "|"
        + " --- |" * 5
    )
    for region in regions:
        x, y, width, height = region.box
        share, error = f"{region.share:.2f} %", f"{region.error:.1f} px"
        print(f"| {region.name} | {region.kind} | {x}, {y}, {width}x{height} | {share} | {error} |")
    if options.sheet:
        imageio.imwrite(options.sheet, np.concatenate([region.tile for region in regions]))


def measure(data: str, weights: str) -> tuple[dict[str, float], list[Region]]:
    """Match all pairs of a data set; return the wrong pixels per kind, percent, and the wrong regions."""
    matcher, source = StereoMatcher.load(weights, precision="fp32"), open_data(data)
    wrong_pixels: Counter[str] = Counter()
    known, regions = 0, list[Region]()
    for index in range(len(source)):
        sample = source.load(index)
        assert sample.disparity is not None
        estimate = matcher(sample.left, sample.right).disparity
        error = np.abs(estimate - sample.disparity)
        wrong = error > 2 if not data.startswith("kitti") else (error > 3) & (error > 0.05 * sample.disparity)
        kinds = classify(sample, wrong)
        wrong_pixels.update(KINDS[kind] for kind in kinds[wrong])
        known += int(np.isfinite(sample.disparity).sum())
        regions += find_regions(sample, wrong, error, kinds, estimate)
    shares = {kind: 100 * wrong_pixels[kind] / known for kind in KINDS}
    shares["all"] = 100 * wrong_pixels.total() / known
    return shares, regions


def classify(sample: Sample, wrong: Mask) -> NDArray[np.uint8]:
    """Return the position in KINDS for every pixel (H, W); only wrong ones are meaningful."""
    assert sample.disparity is not None
    truth = fill(sample.disparity)
    columns = np.arange(truth.shape[1], dtype=np.float32)
    match = columns - truth
    gray, right = (cv2.cvtColor(to_bytes(view), cv2.COLOR_RGB2GRAY) for view in (sample.left, sample.right))
    rows = np.broadcast_to(np.arange(len(truth), dtype=np.float32)[:, None], truth.shape)
    matched = cv2.remap(
        right, match, np.ascontiguousarray(rows), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    background = cv2.erode(truth, np.ones((1, 17), np.uint8))
    opened = cv2.dilate(cv2.erode(truth, np.ones((1, 9), np.uint8)), np.ones((1, 9), np.uint8))
    steps = (np.abs(np.diff(truth, axis=1, prepend=truth[:, :1])) > STEP).astype(np.float32)
    steps_near = cv2.boxFilter(steps, -1, (25, 1), normalize=False)
    change = cv2.dilate(gray, np.ones((11, 11))) - cv2.erode(gray, np.ones((11, 11)))
    conditions = [
        match < 0,
        hidden(truth) if sample.visible is None else ~sample.visible,
        (truth - opened > STEP) & (truth - background > STEP),
        steps_near >= 3,
        cv2.absdiff(gray, matched) > 20,
        change < 4,
        truth >= 64,
    ]
    return np.select(conditions, range(len(conditions)), len(conditions)).astype(np.uint8)


def hidden(truth: NDArray[np.float32]) -> Mask:
    """Find left pixels whose match is covered: a pixel further right on the row has a match further left."""
    match = np.arange(truth.shape[1]) - truth
    nearest = np.minimum.accumulate(match[:, ::-1], axis=1)[:, ::-1]
    return match > nearest + 1


def fill(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give unknown pixels (NaN) the value of the nearest known one."""
    unknown = ~np.isfinite(disparity)
    _, labels = cv2.distanceTransformWithLabels(
        unknown.astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    values = np.zeros(labels.max() + 1, np.float32)
    values[labels[~unknown]] = disparity[~unknown]
    return np.asarray(values[labels])


def find_regions(
    sample: Sample,
    wrong: Mask,
    error: NDArray[np.float32],
    kinds: NDArray[np.uint8],
    estimate: NDArray[np.float32],
) -> Iterator[Region]:
    """Yield the connected regions of wrong pixels; sparse ground truth is bridged over 7 px."""
    assert sample.disparity is not None
    joined = cv2.morphologyEx(wrong.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7)))
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(joined)
    known = np.isfinite(sample.disparity).sum()
    for number in range(1, count):
        inside = (labels == number) & wrong
        pixels = int(inside.sum())
        if pixels < 0.0005 * known:
            continue
        x, y, width, height, _ = boxes[number].tolist()
        kind = KINDS[np.bincount(kinds[inside]).argmax()]
        tile = draw_tile(sample, estimate, (x, y, width, height))
        yield Region(
            100 * pixels / known, kind, sample.name, (x, y, width, height), float(error[inside].mean()), tile
        )


def draw_tile(
    sample: Sample, estimate: NDArray[np.float32], box: tuple[int, int, int, int]
) -> NDArray[np.uint8]:
    """Return the surroundings of a region (96, 576, 3): left image, ground truth and estimate."""
    assert sample.disparity is not None
    x, y, width, height = box
    reach_x, reach_y = max(48, width), max(24, height // 2)
    window = (
        slice(max(0, y - reach_y), y + height + reach_y),
        slice(max(0, x - reach_x // 2), x + width + reach_x // 2),
    )
    low, high = np.nanpercentile(sample.disparity[window], (1, 99))
    tiles = [to_bytes(sample.left)[window]]
    for values in (sample.disparity, estimate):
        scaled = np.nan_to_num(np.clip((values[window] - low) / max(high - low, 1), 0, 1)) * 255
        tiles.append(
            cv2.cvtColor(cv2.applyColorMap(scaled.astype(np.uint8), cv2.COLORMAP_TURBO), cv2.COLOR_BGR2RGB)
        )
    return np.concatenate(
        [cv2.resize(tile, (192, 96), interpolation=cv2.INTER_AREA) for tile in tiles], axis=1
    )


def to_bytes(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return an image with 8 bits per channel."""
    return (image // 256).astype(np.uint8) if image.dtype == np.uint16 else image.astype(np.uint8)


if __name__ == "__main__":
    main()
