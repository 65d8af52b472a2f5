"""KITTI's error map on hand-computed errors."""

from __future__ import annotations

import numpy as np
import pytest

from pamcli.evaluation.report_images import ERROR_COLORS, ERROR_STEPS, draw_error_map

BLACK = (0, 0, 0)


def color_of(estimate: float, truth: float) -> tuple[int, ...]:
    pixels = draw_error_map(np.array([[estimate]], np.float32), np.array([[truth]], np.float32))
    assert pixels.shape == (1, 1, 3)
    assert pixels.dtype == np.uint8
    return tuple(int(value) for value in pixels[0, 0])


@pytest.mark.parametrize(
    ("estimate", "truth", "step"),
    [
        (20.0, 20.0, 0),  # no error
        (20.18, 20.0, 0),  # 0.18 px / 3 = 0.06
        (20.1875, 20.0, 1),  # 0.1875 px / 3 = 0.0625: a step begins with its lower end
        (20.75, 20.0, 3),  # 0.25
        (22.9, 20.0, 4),  # 0.967: still right
        (23.0, 20.0, 5),  # 3 px of 20 px: n = 1
        (26.0, 20.0, 6),
        (68.0, 20.0, 9),  # 48 px: 16
        (500.0, 20.0, 9),
        (104.0, 100.0, 4),  # 4 px, but 4 % of the truth: 0.8
        (105.0, 100.0, 5),  # 5 %: n = 1
        (96.0, 100.0, 4),  # below the truth as above it
        (0.0, 0.0, 0),
        (2.9, 0.0, 4),  # a truth of 0 px is measured in pixels
    ],
)
def test_the_colour_stands_for_the_error_in_units_of_3_px_or_5_percent(
    estimate: float, truth: float, step: int
) -> None:
    assert color_of(estimate, truth) == ERROR_COLORS[step]


def test_an_unknown_ground_truth_is_black_and_a_hole_in_the_estimate_is_the_worst_error() -> None:
    assert color_of(5.0, np.nan) == BLACK
    assert color_of(5.0, np.inf) == BLACK
    assert color_of(np.nan, np.nan) == BLACK
    assert color_of(np.nan, 5.0) == ERROR_COLORS[-1]
    assert color_of(np.inf, 5.0) == ERROR_COLORS[-1]


def test_there_is_a_colour_for_every_step_and_warm_ones_begin_where_d1_counts() -> None:
    assert len(ERROR_STEPS) == len(ERROR_COLORS) == 10
    assert ERROR_STEPS[5] == 1
    for step, (red, _, blue) in zip(ERROR_STEPS, ERROR_COLORS, strict=True):
        assert (red > blue) == (step >= 1)


def test_occluded_pixels_are_half_as_bright() -> None:
    same = np.array([[8.0, 8.0]], np.float32)
    pixels = draw_error_map(same, same, visible=np.array([[True, False]]))
    assert pixels.tolist() == [[[49, 54, 149], [24, 27, 74]]]


def test_a_sparse_ground_truth_is_drawn_thicker_and_later_pixels_lie_over_earlier_ones() -> None:
    truth = np.full((4, 5), np.nan, np.float32)
    truth[1, 1] = 20
    truth[2, 3] = 20
    estimate = np.full((4, 5), 20, np.float32)
    estimate[2, 3] = 100
    right, wrong = ERROR_COLORS[0], ERROR_COLORS[9]
    drawn = draw_error_map(estimate, truth, thicken=True)
    expected = [
        [right, right, right, BLACK, BLACK],
        [right, right, wrong, wrong, wrong],
        [right, right, wrong, wrong, wrong],
        [BLACK, BLACK, wrong, wrong, wrong],
    ]
    assert drawn.tolist() == [[list(color) for color in row] for row in expected]
