"""Where a disparity map is wrong, in the colours of KITTI's error maps.

The colours stand for n = min(error / 3 px, error / 5 % of the truth) in ten steps, each twice as wide as the
one before: blue tones below n = 1, where the pixel counts as right (D1), warm tones from there on. Formula,
steps and colours are those of the development kit of KITTI 2015 (io_disp.h, log_colormap.h).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ERROR_STEPS = (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""The n at which each colour begins."""

ERROR_COLORS = (
    (49, 54, 149),
    (69, 117, 180),
    (116, 173, 209),
    (171, 217, 233),
    (224, 243, 248),
    (254, 224, 144),
    (253, 174, 97),
    (244, 109, 67),
    (215, 48, 39),
    (165, 0, 38),
)
"""RGB, one for each of `ERROR_STEPS`."""


def error_map(
    estimate: NDArray[np.float32],
    truth: NDArray[np.float32],
    *,
    visible: NDArray[np.bool_] | None = None,
    thicken: bool = False,
) -> NDArray[np.uint8]:
    """KITTI's error map: (H, W, 3) uint8, RGB; black where the truth is not known.

    estimate, truth: (H, W), pixels, NaN or inf = unknown. Where the truth is known and the estimate is not,
    the colour is that of the largest errors. (The benchmark fills such holes before it draws.)
    visible: (H, W), pixels that the right view sees too; the others are drawn half as bright, as the
    benchmark does. thicken: every pixel of the truth is drawn as 3 x 3 pixels, as the benchmark does, so
    that a sparse truth can be seen; neighbours below and to the right are drawn later and win.
    """
    known = np.isfinite(truth)
    error = np.abs(np.where(np.isfinite(estimate), estimate, np.inf) - np.where(known, truth, 0))
    error = error.astype(np.float64)  # as the kit: a difference of floats, divided as doubles
    with np.errstate(divide="ignore", invalid="ignore"):
        # A truth of 0 px: 0 / 0 is NaN, which fmin passes over.
        n = np.fmin(error / 3.0, 20.0 * error / np.abs(np.where(known, truth, 1)))
    colors = np.array(ERROR_COLORS, np.uint8)[np.searchsorted(ERROR_STEPS, n, side="right") - 1]
    if visible is not None:
        colors = np.where(visible[..., None], colors, colors // 2)
    return _thickened(colors, known) if thicken else np.where(known[..., None], colors, np.uint8(0))


def _thickened(colors: NDArray[np.uint8], known: NDArray[np.bool_]) -> NDArray[np.uint8]:
    height, width = known.shape
    drawn = np.zeros_like(colors)
    framed = np.pad(colors, ((1, 1), (1, 1), (0, 0)))
    framed_known = np.pad(known, 1)
    for y in range(3):  # in the order in which the benchmark draws: a later neighbour lies over an earlier
        for x in range(3):
            there = framed_known[y : y + height, x : x + width]
            drawn[there] = framed[y : y + height, x : x + width][there]
    return drawn
