"""Labels of pairs, the pairs that are held out, and what was gained in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from example_pairs import Stored, numbered, pair, unlabelled
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError, UsageError
from pamcli.imaging.dense_matching import DenseMatch
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.result import StereoResult
from pamcli.training import labels
from pamcli.training.labels import (
    describe_split,
    find_labels,
    match_blocks,
    select_pairs_to_label,
    split_pairs,
)
from pamcli.training.validation import Gain, Validator, measure_gain

NAN = np.nan


@pytest.mark.parametrize(("side", "resolutions"), [(100, [2.0]), (1200, [1.0, 1.5**0.5 / 1.2])])
def test_labels_are_the_mean_of_two_resolutions_that_agree(
    monkeypatch: pytest.MonkeyPatch, side: int, resolutions: list[float]
) -> None:
    first = np.full((side, side), NAN, np.float32)
    first[0, :5] = [11, 14, 20, 20, 30]
    second = first + np.float32([0.5, 0, 0.5, 0, 1.5] + [0] * (side - 5))
    disparities = iter([first, second][: len(resolutions)])
    visible = np.ones((side, side), bool)
    visible[0, 3] = False
    blocks = np.full_like(first, NAN)
    blocks[0, :6] = [10, 10, NAN, NAN, NAN, 7]
    sizes = []

    def found(self: StereoMatcher, left: object, right: object, *, extras: set[str]) -> StereoResult:
        assert extras == {"visible"}
        sizes.append(self.match_size)
        return StereoResult(next(disparities), None, visible, None)

    def matched(left: NDArray[np.uint8], right: NDArray[np.uint8], low: int, high: int) -> DenseMatch:
        return DenseMatch(blocks, blocks, np.isfinite(blocks), np.isfinite(blocks))

    monkeypatch.setattr(StereoMatcher, "__call__", found)
    monkeypatch.setattr(labels, "match_densely", matched)
    view = np.zeros((side, side, 3), np.uint8)
    label = find_labels(StereoMatcher.load(device="cpu"), view, view)
    assert sizes == pytest.approx(resolutions)
    expected = [10.625, NAN, 20.25, NAN, NAN, NAN] if len(resolutions) == 2 else [10.5, NAN, 20, NAN, 30, NAN]
    np.testing.assert_array_equal(label[0, :6], expected)
    assert np.isnan(label[1:]).all()


class Named(Source):
    """Pairs of these names, which are never loaded."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def load(self, index: int) -> Sample:
        raise AssertionError


@pytest.mark.parametrize("names", [("a/b", "a_b"), ("a/b_c", "d", "a_b/c")])
def test_pairs_whose_labels_would_be_one_file_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"{names[0]} and {names[-1]} share a label file"):
        select_pairs_to_label(Named(*names), tmp_path, mirrored=False, overwrite=False)
    assert [*select_pairs_to_label(Named("a/b", "a/c"), tmp_path, mirrored=True, overwrite=True)] == [
        "a/b",
        "a/c",
        "a/b-mirrored",
        "a/c-mirrored",
    ]


def test_foreign_disparity_files_are_refused(tmp_path: Path) -> None:
    source = Stored(*numbered(2))
    (tmp_path / "disparity").mkdir()
    for name in ("000", "001"):
        (tmp_path / f"disparity/{name}.npy").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"not labels, such as .*000\.npy"):
        select_pairs_to_label(source, tmp_path, mirrored=False, overwrite=False)
    (tmp_path / "disparity/001.npy").unlink()  # what a run that was killed leaves
    assert len(select_pairs_to_label(source, tmp_path, mirrored=False, overwrite=False)) == 2
    truth = [tmp_path / "disparity/000.npy"]
    with pytest.raises(UsageError, match="is an input"):
        select_pairs_to_label(source, tmp_path, mirrored=False, overwrite=True, truths=truth)


@pytest.mark.parametrize(
    ("count", "learned", "aside"),
    [(4, [0, 1, 2, 3], []), (5, [0, 1, 3, 4], [2]), (10, [0, 1, 3, 4, 5, 6, 8, 9], [2, 7])],
)
def test_a_share_of_enough_pairs_is_held_out(
    tmp_path: Path, count: int, learned: list[int], aside: list[int]
) -> None:
    found, kept = split_pairs(Stored(*numbered(count)), 0.2, tmp_path)
    assert list(found.indices) == learned
    assert ([] if kept is None else list(kept.indices)) == aside
    (line,) = describe_split(found, kept)
    assert line.startswith(
        "4 pairs are too few" if count == 4 else f"held out for validation: {len(aside)} of"
    )
    assert all(f"{index:03d}" in line for index in aside)


def test_many_pairs_are_thinned_and_held_out_apart(tmp_path: Path) -> None:
    found, kept = split_pairs(Stored(*numbered(250)), 0.2, tmp_path)
    assert (len(found), len(kept)) == (labels.MOST_LEARNED, labels.MOST_HELD_OUT)
    assert not set(found.names) & set(kept.names)
    assert max(np.diff(found.indices)) <= 11
    assert min(abs(one - other) for one in found.indices for other in kept.indices) == 5, "frames are alike"
    assert describe_split(found, kept)[1] == "training uses 100 of the others, evenly spaced"
    assert split_pairs(Stored(*numbered(250)), 0.0, tmp_path)[1] is None


def test_labels_are_written_and_read(tmp_path: Path) -> None:
    samples = [unlabelled(pair(seed=seed)) for seed in range(3)]
    found, _ = split_pairs(Stored(*samples), 0.2, tmp_path)
    given: list[tuple[int, ...]] = []

    def find(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        given.append(left.shape)
        return np.full(left.shape[:2], 5.5, np.float32)

    found.write_label(0, find)
    assert found.list_unlabelled() == [1, 2]
    with pytest.raises(InputError, match=found.label_of(1).name):
        found.load(1)
    for index in found.list_unlabelled():
        found.write_label(index, find)
    assert given == [(96, 192, 3)] * 3  # small images are matched larger, and learned from so
    sample = found.load(2)
    assert sample.name == "002"
    assert sample.left.shape == sample.right.shape == (96, 192, 3)
    assert np.unique(sample.disparity) == 5.5


def test_block_matching_of_large_images_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = pair(height=96, width=240)
    whole = match_blocks(sample.left, sample.right)
    monkeypatch.setattr(labels, "BLOCK_PIXELS", 48 * 120)
    found = match_blocks(sample.left, sample.right)
    assert found.shape == whole.shape
    both = np.isfinite(found) & np.isfinite(whole)
    assert both.mean() > 0.3
    assert np.median(np.abs(found - whole)[both]) < 0.5


def test_block_matching_is_right_where_it_is_sure() -> None:
    sample = pair(height=96, width=240)
    found = match_blocks(np.asarray(sample.left, np.uint8), np.asarray(sample.right, np.uint8))
    known = np.isfinite(found)
    assert known.mean() > 0.5
    assert (np.abs(found - sample.disparity)[known] > 1).mean() < 0.02


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({0: 6.0, 100: 5.0, 200: 5.5}, Gain(6.0, 5.0, 100, better=True)),
        ({0: 6.0, 100: 5.5, 200: 5.3}, Gain(6.0, 5.3, 200, better=True)),
        ({0: 6.0, 100: 6.5, 200: 6.2}, Gain(6.0, 6.2, 200, better=False)),
        ({0: 6.0, 100: 5.5}, Gain(6.0, 5.5, 100, better=False)),
        ({100: 6.0, 200: 5.0}, None),
        ({0: 6.0}, None),
    ],
)
def test_what_was_gained_is_read_from_the_log(figures: dict[int, float], expected: Gain | None) -> None:
    lines = [{"step": step, "figure": figure} for step, figure in figures.items()] + [
        {"step": 1, "loss": 3.0}
    ]
    assert measure_gain(lines, Validator([], None, clearly=labels.CLEARLY)) == expected


def test_the_gain_of_super_resolution_is_its_highest_psnr() -> None:
    lines = [{"step": step, "figure": figure} for step, figure in {0: 30.0, 10: 30.5, 20: 29.0}.items()]
    found = measure_gain(lines, Validator([], 4))
    assert found == Gain(30.0, 30.5, 10, better=True, metric="PSNR")
    assert "PSNR is 30.50 dB after 10 steps, and was 30.00 dB" in found.describe(Path("b"), Path("l"))
