"""Checks of a pair: exchanged, shifted, rotated or unrelated images, and pairs that are fine."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pamcli.imaging.preflight import ENOUGH_MATCHES, PairCheck, check_pair

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"

Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def sample() -> tuple[Picture, Picture]:
    left, right = (np.asarray(Image.open(SAMPLE / name).convert("RGB")) for name in ("left.png", "right.png"))
    return left, right


def texture(height: int, width: int, seed: int = 0) -> NDArray[np.float64]:
    """Smooth noise in [0, 1], different everywhere."""
    rng = np.random.default_rng(seed)
    noise = rng.random((height + 4, width + 4))
    for axis in (0, 1):
        noise = sum(np.roll(noise, shift, axis) for shift in range(5)) / 5
    noise = noise[4:, 4:]
    return (noise - noise.min()) / (noise.max() - noise.min())


def scene(
    far: int, near: int, vertical: int = 0, size: tuple[int, int] = (160, 240)
) -> tuple[Picture, Picture]:
    """Two views of a background at disparity `far` with a slab at `near` in front of its lower half."""
    height, width = size
    margin = 64
    back, front = texture(height + 20, width + 2 * margin, 1), texture(height + 20, width + 2 * margin, 2)
    views = []
    for shift, down in ((0, 0), (1, vertical)):
        rows = slice(10 - down, 10 - down + height)
        view = back[rows, margin + shift * far :][:, :width].copy()
        half = height // 2
        slab = front[rows, margin + shift * near :][half:, : width // 2]
        view[half:, width // 4 : width // 4 + width // 2] = slab
        views.append((np.repeat(view[..., None], 3, 2) * 255).astype(np.uint8))
    return views[0], views[1]


def advise(check: PairCheck, min_disparity: float | None = None) -> list[str]:
    """Return each problem with its remedy."""
    return [f"{each.text}: {each.do}" for each in check.problems(min_disparity)]


def test_good_pairs_give_no_warning() -> None:
    left, right = scene(far=6, near=14)
    bright = (left.astype(np.float64) / 255) ** 1.5 * 40_000 + 3_000
    deep = bright.astype(np.uint16), right.astype(np.uint16) * 257  # of another exposure
    flat = scene(far=0, near=0, vertical=1)
    for views in ((left, right), deep, flat):
        check = check_pair(*views)
        assert check.matches >= 40
        assert not check.is_exchanged
        assert not check.identical
        assert views is flat or advise(check) == advise(check, min_disparity=0) == []
    check = check_pair(left, right)
    assert check.median_disparity == pytest.approx(6, abs=0.1)  # most of it is background
    assert abs(check.vertical_offset) < 0.1
    stripes = np.tile((np.arange(240) % 20 * 10).astype(np.uint8), (160, 1))[..., None].repeat(3, 2)
    assert check_pair(stripes, np.roll(stripes, 5, axis=1)).matches == 0, "stripes have rivals"


def test_exchanged_views_are_found() -> None:
    left, right = scene(far=6, near=14)
    check = check_pair(right, left)
    assert check.is_exchanged
    assert check.median_disparity < 0
    (line,) = advise(check)
    assert "exchanged" in line
    assert "swap the two arguments" in line
    assert "`packed` rl" in line


def test_cameras_that_converge_are_no_exchange() -> None:
    check = check_pair(*scene(far=-8, near=10))
    assert not check.is_exchanged
    assert advise(check) == advise(check, min_disparity=-16) == []
    (line,) = advise(check, min_disparity=0)
    assert "matches have disparities below 0 px: use `min_disparity` -20 to search them" in line


def test_a_pair_behind_the_stereo_window_is_no_exchange(sample: tuple[Picture, Picture]) -> None:
    """Which surface hides the other tells the order, whatever the sign of the disparities."""
    check = check_pair(sample[0][:, 90:], sample[1][:, :-90])
    assert not check.is_exchanged
    (line,) = advise(check, 0)
    assert line.startswith("the pair is shifted: 100 %")
    assert line.endswith("disparities below 0 px: use `min_disparity` -90 to search them")
    assert advise(check, -90) == advise(check) == []
    swapped = check_pair(sample[1][:, :-20], sample[0][:, 20:])
    assert swapped.is_exchanged
    assert "swap the two arguments" in advise(swapped, 0)[0]


def test_small_crops_whose_rows_disagree(sample: tuple[Picture, Picture]) -> None:
    left, right = sample
    (line,) = advise(check_pair(left[100:220, 200:400], right[94:214, 200:400]), 0)
    assert re.search(r"(6\.|5\.9).* px lower in the right image", line)


def test_one_camera_above_the_other(sample: tuple[Picture, Picture]) -> None:
    upper, lower = (np.ascontiguousarray(np.rot90(view)) for view in sample)
    check = check_pair(upper, lower)
    assert check.upright
    assert "`vertical`" in advise(check, 0)[0]


def test_vertical_offsets_are_measured_with_their_sign() -> None:
    for vertical, word in ((2, "2.0 px lower"), (-3, "3.0 px higher")):
        check = check_pair(*scene(far=6, near=14, vertical=vertical))
        assert check.vertical_offset == pytest.approx(vertical, abs=0.1)
        (line,) = advise(check)
        assert word in line
        assert "rectify" in line
    left, right = scene(far=6, near=14)
    turned = right.copy()
    turned[:, :120] = np.roll(right, 3, axis=0)[:, :120]
    turned[:, 120:] = np.roll(right, -3, axis=0)[:, 120:]
    check = check_pair(left, turned)  # the offsets cancel out
    assert check.vertical_error == pytest.approx(3, abs=0.3)
    assert "rectify" in advise(check)[0]
    assert "2.5 px above or below each other" in advise(PairCheck(40, 5.0, 0.1, 2.5))[0]


def test_identical_images() -> None:
    left, _ = scene(far=6, near=14)
    check = check_pair(left, left.copy())
    assert check.identical
    (line,) = advise(check)
    assert "identical" in line


@pytest.mark.parametrize(("size", "flat"), [((1, 1), False), ((1200, 16), False), ((11, 40), True)])
def test_small_and_flat_images_give_no_verdict(size: tuple[int, int], flat: bool) -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 256, (2, *size, 3), dtype=np.uint8)
    if flat:
        left, right = np.full_like(left, 7), np.full_like(left, 9)
    check = check_pair(left, right)
    assert check.matches < ENOUGH_MATCHES
    assert advise(check) == []


def test_the_sample_pair(sample: tuple[Picture, Picture]) -> None:
    left, right = sample
    good = check_pair(left, right)
    assert advise(good) == []
    assert not good.unrelated
    assert abs(good.vertical_offset) < 0.3
    (line,) = advise(check_pair(left, np.ascontiguousarray(right[::-1, ::-1])))
    assert "different scenes" in line
    left3, right3 = (view[100:350, 200:570].repeat(3, 0).repeat(3, 1) for view in sample)
    large = check_pair(left3[4:], right3[:-4])  # measured in pixels of the full size
    assert large.vertical_offset == pytest.approx(4, abs=1)
    assert 60 < large.median_disparity < 200


def test_a_side_by_side_image_split_as_top_and_bottom(sample: tuple[Picture, Picture]) -> None:
    both = np.concatenate([view[:380, :434] for view in sample], axis=1)
    assert check_pair(both[:190], both[190:]).unrelated
    assert not check_pair(both[:190, :434], both[:190, 434:]).unrelated


def test_images_with_few_details(sample: tuple[Picture, Picture]) -> None:
    rng = np.random.default_rng(0)
    blurred = (cv2.GaussianBlur(view, (0, 0), 6) for view in (*sample, sample[1][::-1, ::-1].copy()))
    noisy = (view + rng.normal(0, 1.5, view.shape) for view in blurred)
    left, right, other = (view.clip(0, 255).astype(np.uint8) for view in noisy)
    assert not check_pair(left, right).unrelated
    assert check_pair(left, other).unrelated
    dim = [np.clip(view * 0.02 + 0.5, 0, 255).astype(np.uint8) for view in (left, other)]
    assert not check_pair(*dim).unrelated  # there is nothing to see


def test_very_near_scenes_are_pairs() -> None:
    """Disparities may exceed the reach of the usual search; the rows show that the images are a pair."""
    width, height = 320, 160
    y, x = np.mgrid[:height, :width].astype(np.float32)
    disparity = (0.42 + 0.13 * y / height) * width
    wide = (255 * texture(height, 3 * width)).astype(np.uint8)
    left, right = (cv2.remap(wide, width + x + move, y, cv2.INTER_CUBIC) for move in (0, disparity))
    check = check_pair(*(np.repeat(view[..., None], 3, 2) for view in (left, right)))
    assert not check.unrelated
    assert check.matches >= ENOUGH_MATCHES
    assert np.quantile(check.disparity, 0.1) > 0.3 * width


def test_one_problem_does_not_hide_another() -> None:
    rows, shift = advise(check_pair(*scene(far=-30, near=14, vertical=3)), 0)
    assert "3.0 px lower" in rows
    assert "the pair is shifted" in shift
    assert "rectify with `uncalibrated`, or use `min_disparity` -40 to search them" in shift
    assert "swap" not in shift


def test_an_error_near_the_limit_is_shown_with_enough_digits() -> None:
    for error, shown in ((1.04, "1.04 px"), (1.001, "1.001 px"), (1.26, "1.3 px")):
        line = advise(PairCheck(40, 5.0, -error, error))[0]
        assert f"matches lie {shown} higher in the right image" in line
        assert "min_disparity" not in line
