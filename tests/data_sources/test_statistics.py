"""Figures of a set, against what is known of made-up images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published import LARGE, png, tree, views

from pamcli.data.open import open_data
from pamcli.data.source import Sample
from pamcli.data.statistics import estimate_disparity_range, measure_data_set, measure_pair


def of(picture: np.ndarray) -> Sample:
    return Sample("a", picture, picture.copy())


def test_sharpness_and_entropy_of_images_with_known_ones() -> None:
    flat = measure_pair(of(np.full((40, 60, 3), 90, np.uint8)))
    assert (flat.sharpness, flat.entropy) == (0, 0)
    assert np.isnan(flat.smallest_disparity)
    assert flat.same_views
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 40, axis=0).repeat(3, axis=2)
    steep = measure_pair(of(ramp))
    assert steep.sharpness == pytest.approx(1, rel=1e-3)
    assert steep.entropy == pytest.approx(8)
    deep = measure_pair(of(ramp.astype(np.uint16) * 257))
    assert (deep.sharpness, deep.entropy) == (pytest.approx(1, rel=1e-3), pytest.approx(8))


def test_the_range_of_disparities_of_two_planes_is_found() -> None:
    random = np.random.default_rng(0)
    width = 400
    noise = random.integers(0, 256, (120, width + 60)).astype(np.float32)
    noise = (noise + np.roll(noise, 1, axis=1) + np.roll(noise, 1, axis=0)) / 3
    scene = np.repeat(noise[..., None], 3, axis=2).astype(np.uint8)
    right = scene[:, 40 : 40 + width]
    left = scene[:, 36 : 36 + width].copy()  # left x = right x + 4
    left[60:] = scene[60:, 10 : 10 + width]  # below, + 30
    smallest, largest = estimate_disparity_range(left, right)
    assert (smallest, largest) == (pytest.approx(4, abs=2), pytest.approx(30, abs=2))


def test_copies_and_look_alikes_are_told_apart(tmp_path: Path) -> None:
    tree(tmp_path, dict.fromkeys(("0001", "0002", "0003"), LARGE))
    first = views(LARGE, seed=int.from_bytes(b"0001", "big"))
    for side, view in zip("LR", first, strict=True):
        (tmp_path / f"0004_{side}.png").write_bytes(png(view))
        (tmp_path / f"0005_{side}.png").write_bytes(png(view // 4 * 4))
    figures = measure_data_set(open_data(f"flickr1024:{tmp_path}"), range(5))
    assert figures.copies == (("0001", "0004"),)
    assert figures.near_copies == (("0001", "0005"),)
    assert figures.row()["pixels"] == LARGE[0] * LARGE[1]
