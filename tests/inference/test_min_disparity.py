"""Disparities that begin below or above 0: one view is moved inside, the results are true values."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image
from pamcli.inference.images import shift_pair
from pamcli.inference.matcher import EXTRAS, StereoMatcher, find_visible, measure_agreement

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
ROWS, COLUMNS = slice(190, 254), slice(250, 506)


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    left, right = (read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right"))
    return left, right, read_disparity(SAMPLE / "disparity.pfm")


def matcher(least: int, limit: int | None = None) -> StereoMatcher:
    return StereoMatcher.load(
        "pasmnet", device="cpu", precision="fp32", max_disparity=limit, min_disparity=least
    )


def test_views_that_were_cut_apart_have_their_true_disparities(
    sample: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    left, right, truth = sample
    cut = 60
    part = slice(COLUMNS.start - cut, COLUMNS.stop - cut)
    result = matcher(-cut)(left[ROWS, COLUMNS], right[ROWS, part], extras=EXTRAS)
    assert result.right_disparity is not None
    assert result.visible is not None
    expected = truth[ROWS, COLUMNS] - cut
    good = result.visible & np.isfinite(expected)
    error = np.abs(result.disparity - expected)[good]
    plain = np.abs(matcher(0)(left[ROWS, COLUMNS], right[ROWS, COLUMNS]).disparity - truth[ROWS, COLUMNS])[
        good
    ]
    assert good.mean() > 0.5
    assert np.median(error) < np.median(plain) + 0.05
    assert np.mean(error > 2) < np.mean(plain > 2) + 0.02
    assert np.mean(result.disparity[good] < 0) > 0.9
    there = np.arange(expected.shape[1]) - result.disparity
    assert not result.visible[(there < 0) | (there > expected.shape[1] - 1)].any()
    # A right pixel's disparity leads back to the left one's.
    row, column = np.argwhere(good)[len(np.argwhere(good)) // 2]
    back = result.right_disparity[row, round(float(there[row, column]))]
    assert back == pytest.approx(result.disparity[row, column], abs=1.5)


def test_it_is_what_the_moved_views_give(sample: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    left, right = (view[:48, :96] for view in sample[:2])
    plain = matcher(0, 56)(*shift_pair(left, right, 24), extras=EXTRAS)
    result = matcher(-24, 32)(left, right, extras=EXTRAS)
    np.testing.assert_array_equal(result.disparity, plain.disparity[:, 24:] - 24)
    np.testing.assert_array_equal(result.right_disparity, plain.right_disparity[:, :96] - 24)  # type: ignore[index]
    np.testing.assert_array_equal(result.confidence, plain.confidence[:, 24:])  # type: ignore[index]
    assert all(
        getattr(result, field.name).shape == (48, 96)
        for field in fields(result)
        if field.name not in ("matched_size", "fault")
    )
    assert result.disparity.min() >= -24


def test_what_a_network_leaves_unknown_is_neither_seen_nor_sure() -> None:
    left, right = np.full((2, 8), 2, np.float32), np.full((2, 8), 2, np.float32)
    left[0, 5] = right[1, 3] = np.nan
    sure = measure_agreement(left, right)
    assert (sure[0, 5], sure[1, 5], sure[0, 4]) == (0, 0, 1)
    seen = find_visible(left, right)
    assert (seen[0, 5], seen[1, 5], seen[0, 4]) == (False, False, True)


def test_nothing_to_search_and_views_that_are_no_pair() -> None:
    with pytest.raises(UsageError, match="must be a whole number from 1"):
        matcher(-5, -16)
    with pytest.raises(UsageError, match="must be at least 21 px"):
        matcher(20, 16)
    picture = np.zeros((32, 40, 3), np.uint8)
    with pytest.raises(InputError, match="left image is 40x32 but the right image is 39x32"):
        matcher(-5)(picture, picture[:, 1:])
