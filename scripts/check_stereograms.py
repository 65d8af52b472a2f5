"""Check the conversion of stereograms with known ground truth: check_stereograms.py --data SPEC ...

The script makes stereograms from every rectified pair of the data (named as for `pam eval --data`). It cuts
windows out of both images, 0 to 60 px apart, turns one by up to half a degree, and moves the right one up or
down by 1 to 3 px. It joins them side by side in either order, with borders and a gap, and saves a JPEG file.

Figures of the stereograms that are converted:

- order: share with the left view recognised;
- rows: |right y - left y| in the converted pair over all pixels with ground truth, mean and 95th percentile;
  and the same minus the row error of the data itself (0.3 px in one pair of KITTI 2015);
- shift: the smallest disparity minus the 0 or 40 px that the rule promises. The smallest disparity is the 1st
  percentile of the ground truth, or of OpenCV's disparities where the ground truth is sparse (KITTI);
- camera's infinity: disparity of infinitely distant points by the calibration, where the rule is "infinity";
- rule: whether "infinity" or "close" is chosen as expected (KITTI: infinity, others: close).
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.flickr1024.rectify_stereogram import InfinityChoice, StereogramError, rectify_stereogram
from pamcli.imaging.images import to_uint8

Floats = NDArray[np.float64]
Colours = NDArray[np.uint8]

LARGEST_SIDE = 1400
"""Larger images are first downscaled by a whole number; px."""
DENSE = 0.5
"""Share of pixels with ground truth above which the ground truth includes the farthest points."""


@dataclass(frozen=True)
class Stereogram:
    """A stereogram with known ground truth."""

    image: Colours
    layout: str
    left_map: Floats
    """(2, 3): affine map from (x, y) in the left view of the stereogram to the left image."""
    right_map: Floats


def make_stereogram(left: Colours, right: Colours, seed: int) -> Stereogram:
    """Make a random stereogram from a rectified pair (H, W, 3)."""
    rng = np.random.default_rng(seed)
    height, width = left.shape[:2]
    layout = "cross" if rng.random() < 0.5 else "parallel"
    focus = int(rng.integers(0, 61))
    offset = rng.uniform(1, 3) * rng.choice([-1, 1])
    angle = np.deg2rad(rng.uniform(-0.5, 0.5))
    tilted = rng.integers(2)
    edge = int(np.ceil(abs(np.sin(angle)) * max(height, width) / 2 + abs(offset))) + 2
    rows, columns = height - 2 * edge, width - 2 * edge - focus
    views, maps = [], []
    for side, image in enumerate((left, right)):
        turn = np.eye(2)
        move = np.array([edge + (focus if side == 0 else 0), edge], dtype=float)
        middle = np.array([(columns - 1) / 2, (rows - 1) / 2])
        if side == 1:
            move[1] -= offset
        if side == tilted:
            cosine, sine = np.cos(angle), np.sin(angle)
            turn = np.array([[cosine, sine], [-sine, cosine]])
            move += middle - turn @ middle
        corner = move + 0.5 - 0.5 * turn.sum(axis=1)  # Pillow counts from the corner of a pixel
        matrix = tuple(np.concatenate([turn, corner[:, None]], axis=1).ravel())
        view = Image.fromarray(image).transform(
            (columns, rows), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
        )
        views.append(np.asarray(view))
        maps.append((turn, move))
    order = (1, 0) if layout == "cross" else (0, 1)
    colour = 255 if rng.random() < 0.2 else 0
    borders = rng.random() < 0.85
    tops, bottoms = rng.integers(0, 40, 2) * borders, rng.integers(0, 40, 2) * borders
    outer, gap, end = (int(value) for value in rng.integers(0, 50, 3) * borders)
    total = int(max(rows + tops[i] + bottoms[i] for i in range(2)))
    page = np.full((total, outer + 2 * columns + gap + end, 3), colour, np.uint8)
    found = {}
    for place, side in enumerate(order):
        x, y = outer + place * (columns + gap), int(tops[place])
        page[y : y + rows, x : x + columns] = views[side]
        turn, move = maps[side]
        found[side] = np.concatenate([turn, (move - turn @ [x, y])[:, None]], axis=1)
    stream = io.BytesIO()
    Image.fromarray(page).save(stream, "jpeg", quality=int(rng.integers(88, 97)))
    return Stereogram(np.asarray(Image.open(stream)), layout, found[0], found[1])


@dataclass(frozen=True)
class GroundTruth:
    """A pair of the data with its ground truth: points of the left image and their disparities."""

    left: Colours
    right: Colours
    x: Floats
    y: Floats
    disparity: Floats
    own_rows: float
    """Vertical offset of the data itself: right y - left y, px."""
    far_x: Floats
    """Points among which the smallest disparity is found."""
    far_y: Floats
    far_disparity: Floats
    infinity: bool


def read_ground_truth(sample: Sample, name: str) -> GroundTruth:
    """Return the ground truth of a pair, downscaled if it is large."""
    left, right, disparity = to_uint8(sample.left), to_uint8(sample.right), sample.disparity
    factor = -(-max(left.shape) // LARGEST_SIDE)
    if factor > 1:
        left, right = (np.asarray(Image.fromarray(view).reduce(factor)) for view in (left, right))
        disparity = (
            None if disparity is None else disparity[factor // 2 :: factor, factor // 2 :: factor] / factor
        )
    matched = disparity is None or np.isfinite(disparity).mean() < DENSE
    far = _match(left, right) if matched else disparity
    truth = disparity if disparity is not None else far
    assert truth is not None
    assert far is not None
    (y, x), (far_y, far_x) = (np.nonzero(np.isfinite(values)) for values in (truth, far))
    return GroundTruth(
        left,
        right,
        x.astype(float),
        y.astype(float),
        truth[y, x].astype(float),
        _measure_row_offset(left, right, x, y, truth[y, x]),
        far_x.astype(float),
        far_y.astype(float),
        far[far_y, far_x].astype(float),
        "kitti" in name,
    )


def _match(left: Colours, right: Colours) -> NDArray[np.float32]:
    """Return the disparity map (H, W) of StereoSGBM, px, NaN where it is unknown or there is no texture."""
    import cv2

    matcher = cv2.StereoSGBM.create(
        minDisparity=-16,
        numDisparities=256,
        blockSize=5,
        P1=600,
        P2=2400,
        disp12MaxDiff=1,
        uniquenessRatio=10,
        speckleWindowSize=200,
        speckleRange=1,
    )
    sides = [cv2.copyMakeBorder(view, 0, 0, 256, 16, cv2.BORDER_REPLICATE) for view in (left, right)]
    found = matcher.compute(*sides)[:, 256:-16].astype(np.float32) / 16
    grey = cv2.cvtColor(left, cv2.COLOR_RGB2GRAY).astype(np.float32)
    spread = cv2.blur(grey * grey, (9, 9)) - cv2.blur(grey, (9, 9)) ** 2
    return np.where((found > -16) & (spread > 16), found, np.float32(np.nan))


def _measure_row_offset(
    left: Colours, right: Colours, x: NDArray[Any], y: NDArray[Any], disparity: NDArray[Any]
) -> float:
    """Return the vertical offset, px, at which the right image, warped by the ground truth, fits best."""
    one, two = (view.mean(axis=2) for view in (left, right))
    height, width = one.shape
    places = x - disparity
    keep = (places > 1) & (places < width - 2) & (y > 3) & (y < height - 5)
    x, y, places = x[keep], y[keep], places[keep]
    column = places.astype(int)
    part = places - column

    def at(rows: NDArray[Any]) -> Floats:
        values: Floats = (1 - part) * two[rows, column] + part * two[rows, column + 1]
        return values

    def error(move: float) -> float:
        whole = int(np.floor(move))
        value = (1 - (move - whole)) * at(y + whole) + (move - whole) * at(y + whole + 1)
        # interpolation between rows blurs, which lowers the error: blur whole rows as well
        blur = 0.5 * min(move - whole, 1 - (move - whole))
        spread = 0.25 - blur
        value = (1 - spread) * value + spread / 2 * (at(y + whole - 1) + at(y + whole + 1))
        return float(np.abs(value - one[y, x]).clip(0, 30).mean())

    moves = np.arange(-1, 1.01, 0.1)
    errors = [error(float(move)) for move in moves]
    best = int(np.clip(np.argmin(errors), 1, len(moves) - 2))
    before, at_best, after = errors[best - 1 : best + 2]
    curve = before - 2 * at_best + after
    return float(moves[best] + (0.05 * (before - after) / curve if curve > 0 else 0))


def measure(pair: GroundTruth, seed: int, infinity: InfinityChoice | None = None) -> dict[str, Any]:
    stereogram = make_stereogram(pair.left, pair.right, seed)
    start = time.process_time()
    try:
        result = rectify_stereogram(stereogram.image, infinity=infinity or ("yes" if pair.infinity else "no"))
    except StereogramError as why:
        return {"seconds": time.process_time() - start, "set aside": str(why)}
    seconds = time.process_time() - start
    right_order = result.layout == stereogram.layout
    row: dict[str, Any] = {
        "seconds": seconds,
        "order": right_order,
        "certainty": result.certainty,
        "infinity": result.infinity,
        "infinity_right": (result.infinity == "yes") == pair.infinity,
    }
    if not right_order:
        return row
    to_left = _invert(_compose(stereogram.left_map, result.left_map))
    to_right = _invert(_compose(stereogram.right_map, result.right_map))

    def convert(x: Floats, y: Floats, disparity: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        (lx, ly), (rx, ry) = (
            places[:, :2] @ np.stack([column, y]) + places[:, 2:]
            for places, column in ((to_left, x), (to_right, x - disparity))
        )
        height, width = result.left.shape[:2]
        inside = (np.minimum(lx, rx) >= 0) & (np.maximum(lx, rx) < width) & (ly >= 0) & (ly < height)
        return lx - rx, ry - ly, inside

    _, rows, inside = convert(pair.x, pair.y, pair.disparity)
    rows = rows[inside]
    row["rows_mean"] = float(np.abs(rows).mean())
    row["rows_p95"] = float(np.percentile(np.abs(rows), 95))
    corrected = rows + pair.own_rows
    row["rows_less_own_mean"] = float(np.abs(corrected).mean())
    row["rows_less_own_p95"] = float(np.percentile(np.abs(corrected), 95))
    disparity, _, inside = convert(pair.far_x, pair.far_y, pair.far_disparity)
    smallest = float(np.percentile(disparity[inside], 1))
    row["smallest"] = smallest
    row["shift_error"] = smallest - (40 if result.infinity == "no" else 0)
    zero, _, _ = convert(pair.x, pair.y, np.zeros_like(pair.x))
    row["zero"] = float(np.median(zero))
    return row


def _compose(outer: Floats, inner: Floats) -> Floats:
    turn = outer[:, :2] @ inner[:, :2]
    return np.concatenate([turn, (outer[:, :2] @ inner[:, 2] + outer[:, 2])[:, None]], axis=1)


def _invert(places: Floats) -> Floats:
    turn = np.linalg.inv(places[:, :2])
    return np.concatenate([turn, -(turn @ places[:, 2])[:, None]], axis=1)


def summarize(rows: list[dict[str, Any]]) -> dict[str, float]:
    kept = [row for row in rows if "set aside" not in row]
    right = [row for row in kept if row["order"]]

    def share(of: list[dict[str, Any]], test: Callable[[dict[str, Any]], bool]) -> float:
        return float(np.mean([test(row) for row in of])) if of else float("nan")

    far = [row for row in right if row["infinity"] == "yes" and row["infinity_right"]]
    return {
        "stereograms": len(rows),
        "set aside": 1 - len(kept) / len(rows),
        "right order of the others": share(kept, lambda row: row["order"]),
        "rows within 0.5 px (mean)": share(right, lambda row: row["rows_mean"] <= 0.5),
        "rows within 0.5 px (mean, less the data's own)": share(
            right, lambda r: r["rows_less_own_mean"] <= 0.5
        ),
        "rows within 0.5 px (95th percentile, less the data's own)": share(
            right, lambda row: row["rows_less_own_p95"] <= 0.5
        ),
        "shift within 2 px": share(right, lambda row: abs(row["shift_error"]) <= 2),
        "the camera's infinity within 2 px of zero": share(far, lambda row: abs(row["zero"]) <= 2),
        "the camera's infinity, median px": float(np.median([row["zero"] for row in far]))
        if far
        else float("nan"),
        "infinity or not, right": share(kept, lambda row: row["infinity_right"]),
        "seconds": float(np.mean([row["seconds"] for row in rows])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", action="append", required=True, help="NAME:PATH of rectified pairs")
    parser.add_argument("--each", type=int, default=3, help="stereograms of each pair (default: 3)")
    parser.add_argument(
        "--auto", action="store_true", help="let the converter choose between infinity and close"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for spec in options.data:
        data = open_data(spec)
        for index in range(len(data)):
            pair = read_ground_truth(data.load(index), f"{spec} {data.names[index]}")
            for turn in range(options.each):
                seed = options.seed + 1000 * turn + index
                row = measure(pair, seed, "auto" if options.auto else None)
                rows.append({"data": spec.partition(":")[0], "name": data.names[index], "seed": seed, **row})
                print(*(f"{key}={_short(value)}" for key, value in rows[-1].items()), flush=True)
    groups = {
        name: [row for row in rows if row["data"] == name] for name in dict.fromkeys(r["data"] for r in rows)
    }
    figures = {name: summarize(group) for name, group in (*groups.items(), ("all", rows))}
    for name, values in figures.items():
        print(f"\n{name}")
        for what, value in values.items():
            print(f"  {what:60} {value:.3g}")
    if options.output:
        options.output.write_text(json.dumps({"figures": figures, "stereograms": rows}, indent=1) + "\n")


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
