"""Matches and disparities of two views, of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from layered_scene import layered_pair, moved
from PIL import Image

from pamcli.imaging.matching import (
    DenseMatch,
    find_matches,
    match_densely,
    match_keypoints,
    refine_matches,
    to_grey,
)


def matched(move: int) -> tuple[DenseMatch, np.ndarray]:
    left, right, disparity = layered_pair(seed=3)
    return match_densely(to_grey(left), to_grey(np.roll(right, move, axis=1)), -35, 30), disparity - move


@pytest.mark.parametrize("move", [0, 17, 40])
def test_disparities_are_found_whatever_their_sign(move: int) -> None:
    match, disparity = matched(move)
    inside = slice(45, -45)  # what was rolled around the edge has no match
    seen = match.first_seen[:, inside]
    assert seen.mean() > 0.75
    assert (np.abs(match.first - disparity)[:, inside][seen] > 1).mean() < 0.03  # beside rims, mostly
    y, x = np.nonzero(match.first_seen)
    there = np.rint(x - match.first[y, x]).astype(int)
    assert np.abs(match.second[y, there] - match.first[y, x]).max() <= 1


def test_what_one_view_alone_sees_is_not_called_seen() -> None:
    match, disparity = matched(0)
    rows, columns = np.indices(disparity.shape)
    nearest = np.full(disparity.shape, -1)
    np.maximum.at(nearest, (rows, np.clip(columns - disparity, 0, None)), disparity)
    hidden = nearest[rows, np.clip(columns - disparity, 0, None)] > disparity
    assert hidden.sum() > 1000
    assert match.first_seen[hidden].mean() < 0.3
    assert match.first_seen[~hidden].mean() > 0.8


@pytest.mark.parametrize("enlarged", [1, 2])
@pytest.mark.parametrize("deep", [False, True])
def test_places_are_measured_to_a_fraction_of_a_pixel(enlarged: int, deep: bool) -> None:
    left, right, disparity = layered_pair(seed=3, shape=(240, 480))
    views = [left, moved(right, down=1.4, degrees=0)]
    if enlarged > 1:
        size = (480 * enlarged, 240 * enlarged)
        views = [np.asarray(Image.fromarray(view).resize(size, Image.Resampling.BICUBIC)) for view in views]
    first, second = (view.astype(np.uint16) * 257 if deep else view for view in views)
    places, factor = find_matches(first, second, (80 * enlarged, 20))
    assert factor == enlarged
    assert len(places) > 50
    found = refine_matches(first, second, places, factor, 40)
    assert 20 < len(found) <= 40
    assert np.median(found.dy) == pytest.approx(1.4 * enlarged, abs=0.1 * enlarged)
    truth = disparity[(found.y / enlarged).astype(int), (found.x / enlarged).astype(int)] * enlarged
    assert np.median(np.abs(found.disparity - truth)) < 0.15 * enlarged


def test_matches_are_mutual() -> None:
    """The first image shows the scene twice, once with noise: only the clear one is matched."""
    scene = to_grey(layered_pair(seed=3, shape=(200, 300))[0])
    noise = np.random.default_rng(0).normal(0, 6, scene.shape)
    noisy = np.clip(scene + noise, 0, 255).astype(np.uint8)
    at, to = match_keypoints(np.hstack([scene, noisy]), scene, 2000, 0.8)
    copies = at[:, 0] > scene.shape[1] + 20
    assert len(at) > 50
    assert copies.mean() < 0.1
    assert np.median(np.abs(at - to)[~copies]) < 0.1
