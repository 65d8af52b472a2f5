"""How well stereograms of known truth are undone: check_stereograms.py --data SPEC [--data SPEC ...]."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class Made:
    """A stereogram and what is known of it."""

    picture: NDArray[np.uint8]
    layout: str
    left_map: NDArray[np.float64]
    """(2, 3): where in the source's left picture the stereogram's (x, y, 1) was taken from, in the left view."""
    right_map: NDArray[np.float64]
    focus: float
    offset: float
    angle: float


def make_stereogram(left: NDArray[np.uint8], right: NDArray[np.uint8], seed: int) -> Made:
    """Cut windows out of a rectified pair, one of them turned and moved, and put borders around them."""
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
    for side, picture in enumerate((left, right)):
        turn = np.eye(2)
        move = np.array([edge + (focus if side == 0 else 0), edge], dtype=float)
        middle = np.array([(columns - 1) / 2, (rows - 1) / 2])
        if side == 1:
            move[1] -= offset
        if side == tilted:
            c, s = np.cos(angle), np.sin(angle)
            turn = np.array([[c, s], [-s, c]])
            move += middle - turn @ middle
        shift = move + 0.5 - 0.5 * turn.sum(axis=1)
        data = np.concatenate([turn, shift[:, None]], axis=1).ravel()
        views.append(
            np.asarray(
                Image.fromarray(picture).transform(
                    (columns, rows), Image.Transform.AFFINE, tuple(data), Image.Resampling.BICUBIC
                )
            )
        )
        maps.append((turn, move))
    order = (1, 0) if layout == "cross" else (0, 1)
    colour = 255 if rng.random() < 0.2 else 0
    borders = rng.random() < 0.85
    tops = rng.integers(0, 40, 2) * borders
    bottoms = rng.integers(0, 40, 2) * borders
    outer, gap, end = (int(value) for value in rng.integers(0, 50, 3) * borders)
    total = max(rows + tops[i] + bottoms[i] for i in range(2))
    page = np.full((total, outer + 2 * columns + gap + end, 3), colour, np.uint8)
    found = {}
    for place, side in enumerate(order):
        x, y = outer + place * (columns + gap), int(tops[place])
        page[y : y + rows, x : x + columns] = views[side]
        turn, move = maps[side]
        found[side] = np.concatenate([turn, (move - turn @ [x, y])[:, None]], axis=1)
    stream = io.BytesIO()
    Image.fromarray(page).save(stream, "jpeg", quality=int(rng.integers(88, 97)))
    return Made(
        np.asarray(Image.open(stream)), layout, found[0], found[1], focus, float(offset), float(angle)
    )
