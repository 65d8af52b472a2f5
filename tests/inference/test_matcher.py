"""Stereo matching of arrays, with the shipped network on a cut of the sample pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_cut import Cut

from pamcli.errors import InputError, ModelError, UsageError
from pamcli.inference.matcher import EXTRAS, StereoMatcher
from pamcli.inference.result import StereoResult
from pamcli.networks.pasmnet import PASMnet
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.catalog import ModelSpec, locate
from pamcli.registry.load import load_network


@pytest.fixture(scope="module")
def result(matcher: StereoMatcher, large: Cut) -> StereoResult:
    return matcher(large.left, large.right, extras=EXTRAS)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (61, 90)])
def test_every_size_gives_maps_of_its_size(
    matcher: StereoMatcher, large: Cut, height: int, width: int
) -> None:
    cut = large[:height, 100 : 100 + width]
    found = matcher(cut.left, cut.right, extras=EXTRAS)
    assert found.right_disparity is not None
    assert found.visible is not None
    assert found.confidence is not None
    for values in (found.disparity, found.right_disparity, found.visible, found.confidence):
        assert values.shape == (height, width)
        assert values.dtype == (np.bool_ if values is found.visible else np.float32)
        assert values.flags.c_contiguous
        assert np.isfinite(values).all()
    assert min(found.disparity.min(), found.right_disparity.min()) >= 0
    assert 0 <= found.confidence.min() <= found.confidence.max() <= 1


def test_an_image_below_16_px_is_refused(matcher: StereoMatcher) -> None:
    with pytest.raises(InputError, match="40x15: both sides must be at least 16 px"):
        matcher(np.zeros((15, 40, 3), np.uint8), np.zeros((15, 40, 3), np.uint8))


def test_the_disparity_is_the_plain_networks(matcher: StereoMatcher, large: Cut) -> None:
    cut = large[:96, 100:260]
    network, _ = load_network(locate("pasmnet"))
    assert isinstance(network, PASMnet)
    mean, std = torch.tensor(IMAGE_MEAN), torch.tensor(IMAGE_STD)
    views = [
        ((torch.from_numpy(view) / 255 - mean) / std).permute(2, 0, 1)[None] for view in (cut.left, cut.right)
    ]
    with torch.inference_mode():
        plain = network(*views)
    found = matcher(cut.left, cut.right, extras=())
    assert np.abs(found.disparity - plain.disparity[0, 0].numpy()).max() < 1e-3


def test_the_right_disparity_is_that_of_the_mirrored_exchanged_pair(
    matcher: StereoMatcher, small: Cut
) -> None:
    found = matcher(small.left, small.right, extras=EXTRAS)
    mirrored = matcher(small.right[:, ::-1], small.left[:, ::-1], extras=EXTRAS)
    assert found.right_disparity is not None
    assert mirrored.right_disparity is not None
    assert np.array_equal(found.right_disparity, mirrored.disparity[:, ::-1])
    assert np.array_equal(found.disparity, mirrored.right_disparity[:, ::-1])


def test_errors_fall_from_each_fifth_of_confidence_to_the_next(result: StereoResult, large: Cut) -> None:
    assert result.confidence is not None
    known = np.isfinite(large.truth)
    wrong = (np.abs(result.disparity - large.truth) > 3)[known]
    confidence = result.confidence[known]
    fifth = np.digitize(confidence, np.quantile(confidence, [0.2, 0.4, 0.6, 0.8]))
    share = [wrong[fifth == n].mean() for n in range(5)]
    assert share == sorted(share, reverse=True)
    assert share[0] > 0.5
    assert share[4] < 0.05


def test_visible_takes_away_what_is_wrong_or_hidden(result: StereoResult, large: Cut) -> None:
    assert result.visible is not None
    error = np.abs(result.disparity - large.truth)
    assert result.visible[error <= 1].mean() > 0.85
    assert result.visible[error > 3].mean() < 0.35
    outside = np.arange(large.truth.shape[1]) - large.truth < 0  # of the right view, by the truth
    assert outside.sum() > 1000
    assert result.visible[outside].mean() < 0.1


def test_only_what_is_asked_for_is_computed(
    matcher: StereoMatcher, small: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 0
    run = matcher.model.match

    def counted(*arguments: Any, **named: Any) -> dict[str, Any]:
        nonlocal passes
        passes += 1
        return run(*arguments, **named)

    monkeypatch.setattr(matcher.model, "match", counted)
    everything = matcher(small.left, small.right, extras=EXTRAS)
    assert passes == 2
    for extras in ("confidence", ("visible",), ("right_disparity",)):
        passes = 0
        found = matcher(small.left, small.right, extras=extras)
        assert passes == (2 if {"visible", "right_disparity"} & set(extras) else 1)
        assert np.array_equal(found.disparity, everything.disparity)
        for name in EXTRAS:
            value = getattr(found, name)
            assert (value is not None) == (name in extras)
            assert value is None or np.array_equal(value, getattr(everything, name))


def test_an_unknown_extra_is_refused(matcher: StereoMatcher, small: Cut) -> None:
    with pytest.raises(UsageError, match="unknown output 'depth', expected one of"):
        matcher(small.left, small.right, extras={"visible", "depth"})


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"visible": True}, [1, np.nan, 3, 4]),
        ({"min_confidence": 0.5}, [np.nan, 2, 3, 4]),
        ({"visible": True, "min_confidence": 0.5}, [np.nan, np.nan, 3, 4]),
        ({"min_confidence": 0.0}, [1, 2, 3, 4]),
    ],
)
def test_the_disparity_where_it_is_known(conditions: dict[str, Any], expected: list[float]) -> None:
    result = StereoResult(
        disparity=np.array([[1, 2, 3, 4]], np.float32),
        visible=np.array([[True, False, True, True]]),
        confidence=np.array([[0.2, 0.9, 0.5, 0.9]], np.float32),
    )
    found = result.disparity_where(**conditions)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [expected])
    assert np.array_equal(result.disparity, [[1, 2, 3, 4]]), "the result itself stays whole"


@pytest.mark.parametrize("condition", [{"visible": True}, {"min_confidence": 0}])
def test_what_was_not_computed_cannot_be_asked_about(condition: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"`(visible|confidence)` was not computed"):
        StereoResult(disparity=np.ones((2, 2), np.float32)).disparity_where(**condition)


@pytest.mark.parametrize(
    ("given", "used"), [(None, None), (1, 16), (16, 16), (17, 32), (192, 192), (193, 208)]
)
def test_a_maximum_disparity_is_rounded_up(
    matcher: StereoMatcher, given: int | None, used: int | None
) -> None:
    limited = StereoMatcher(matcher.model, given)
    assert limited.max_disparity == used


def test_the_search_ends_below_the_maximum(matcher: StereoMatcher, large: Cut) -> None:
    """The scene has disparities up to 60 px; with 16 the attention considers 0, 4, 8 and 12 px."""
    limited = StereoMatcher(matcher.model, 16)
    cut = large[176:]
    free = matcher(cut.left, cut.right, extras=())
    found = limited(cut.left, cut.right, extras=())
    assert np.quantile(free.disparity, 0.9) > 30
    assert np.quantile(found.disparity, 0.9) < 20
    again = matcher(cut.left, cut.right, extras=())
    assert np.array_equal(again.disparity, free.disparity), "the network itself remembers no limit"


def test_loading_takes_the_stored_prior_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("pasmnet", max_disparity=192)
    monkeypatch.setattr("pamcli.registry.load.load_network", lambda path: (PASMnet(), spec))
    assert StereoMatcher.load("pasmnet", device="cpu").max_disparity == 192
    assert StereoMatcher.load("pasmnet", device="cpu", max_disparity=None).max_disparity is None
    assert StereoMatcher.load("pasmnet", device="cpu", max_disparity=100).max_disparity == 112


def test_a_network_of_the_other_kind_is_refused() -> None:
    with pytest.raises(ModelError, match=r"passrnet-x2 is a passrnet, which does not match images"):
        StereoMatcher.load("passrnet-x2", device="cpu")


def test_a_path_is_a_path_even_when_its_name_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="pasmnet does not exist"):
        StereoMatcher.load(Path("pasmnet"), device="cpu")
