"""Labels for a person's own pairs, the pairs that are kept aside, and what is said in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from example_pairs import Stored, numbered, pair, unlabelled

from pamcli.errors import InputError
from pamcli.training import labels
from pamcli.training.labels import describe_split, match_blocks, split_pairs
from pamcli.training.validation import Gain, Validator, measure_gain


class Pairs(Stored):
    def without_truth(self) -> Pairs:
        return self


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
    found, _ = split_pairs(Pairs(*samples), 0.2, tmp_path)
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
    validator = Validator([], None, clearly=labels.CLEARLY)
    assert measure_gain(lines, validator) == expected
    if expected is not None:
        best = [
            step
            for step, figure in figures.items()
            if validator.is_better(figure, {one: figures[one] for one in figures if one < step})
        ]
        assert best[-1] == (expected.step if expected.better else 0), "the file of the best says the same"


def test_the_gain_of_super_resolution_is_its_highest_psnr() -> None:
    lines = [{"step": step, "figure": figure} for step, figure in {0: 30.0, 10: 30.5, 20: 29.0}.items()]
    found = measure_gain(lines, Validator([], 4))
    assert found == Gain(30.0, 30.5, 10, better=True, metric="PSNR")
    assert "PSNR is 30.50 dB after 10 steps, and was 30.00 dB" in found.describe(Path("b"), Path("l"))


def test_the_end_names_the_file_of_the_better_weights() -> None:
    best, last = Path("run/best.safetensors"), Path("run/last.safetensors")
    assert Gain(6.0, 5.0, 100, better=True).describe(best, last) == (
        "better: D1 is 5.00 % after 100 steps, and was 6.00 %; run/best.safetensors has these weights"
    )
    said = Gain(6.0, 6.2, 200, better=False).describe(best, last)
    assert said.startswith("not clearly better: D1 is 6.20 % at best, and was 6.00 %")
    assert "run/best.safetensors has the initial weights" in said
