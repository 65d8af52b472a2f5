"""Small pairs with truth that is known exactly, sources that hold them, and examples made of these."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pamcli.data.listing import Listed
from pamcli.data.source import Files, Sample, Source
from pamcli.errors import InputError
from pamcli.training.augmentation import Augmentation, Example
from pamcli.training.examples import Examples
from pamcli.training.recipe import SceneSettings

NOTHING = Augmentation()
EVERYTHING = Augmentation(
    smallest=0.7,
    largest=1.4,
    stretch=0.1,
    mirror=0.5,
    upside_down=0.5,
    permute_colours=0.5,
    brightness=0.2,
    contrast=0.2,
    gamma=0.2,
    colour=0.1,
    view_brightness=0.1,
    view_gamma=0.1,
    noise=0.02,
    blur=1,
    erase=0.5,
)
CROP = (32, 64)


class Stored(Listed):
    """Samples held in memory; None stands for a damaged file."""

    def __init__(self, *samples: Sample | None) -> None:
        super().__init__(
            Files(f"{number:03d}", Path("left"), Path("right")) for number in range(len(samples))
        )
        self.samples = samples

    def load(self, index: int) -> Sample:
        sample = self.samples[index]
        if sample is None:
            raise InputError(f"{index:03d}/left.png is damaged")
        return sample

    def without_truth(self) -> Stored:
        return self


def pair(height: int = 48, width: int = 96, near: float = 12, far: float = 4, seed: int = 0) -> Sample:
    """A wall and a board before it, with both truths; of whole disparities the pixels agree exactly."""
    rng = np.random.default_rng(seed)
    wall = _smooth(rng, height, width + 40)
    board = _smooth(rng, height, width + 40)
    top, bottom, start, end = height // 4, 3 * height // 4, width // 2, width // 2 + width // 5
    views, truths = [], []
    for shift in (0, 1):
        view = wall[:, int(far) * shift :][:, :width].copy()
        truth = np.full((height, width), far, np.float32)
        place = slice(top, bottom), slice(start - int(near) * shift, end - int(near) * shift)
        view[place] = board[top:bottom, start:end]
        truth[place] = near
        views.append(view)
        truths.append(truth)
    return Sample("pair", views[0], views[1], disparity=truths[0], right_disparity=truths[1])


def _smooth(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    values = rng.normal(size=(height, width, 3))
    for _ in range(6):
        for axis in (0, 1):
            values = (np.roll(values, 1, axis) + 2 * values + np.roll(values, -1, axis)) / 4
    values = 128 + 60 * values / values.std()
    return np.asarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def example(sample: Sample) -> Example:
    """The whole pair, visible by hand: what both truths agree on."""

    def agree(own: np.ndarray, other: np.ndarray, sign: int) -> np.ndarray:
        match = np.arange(own.shape[1]) + sign * np.nan_to_num(own).astype(int)
        there = np.take_along_axis(other, match.clip(0, own.shape[1] - 1), 1)
        return np.asarray((match >= 0) & (match < own.shape[1]) & (there == own))

    left, right = sample.disparity, sample.right_disparity
    return Example(
        np.asarray(sample.left, np.uint8),
        np.asarray(sample.right, np.uint8),
        left,
        right,
        agree(left, right, -1),
        agree(right, left, 1),
    )


def warp_error(example: Example) -> float:
    """Mean difference (grey levels) of visible pixels to their matches, both views; NaN where none is."""
    left, right = np.asarray(example.left, np.float64), np.asarray(example.right, np.float64)
    differences = [
        _differences(left, right, example.disparity, example.visible, -1),
        _differences(right, left, example.right_disparity, example.right_visible, 1),
    ]
    return float(np.concatenate(differences).mean())


def _differences(
    own: np.ndarray, other: np.ndarray, disparity: np.ndarray, visible: np.ndarray, sign: int
) -> np.ndarray:
    rows, columns = np.nonzero(visible)
    places = columns + sign * disparity[rows, columns].astype(np.float64)
    assert np.isfinite(places).all(), "a visible pixel is known"
    assert (places >= 0).all()
    assert (places <= own.shape[1] - 1).all()
    before = np.minimum(np.floor(places).astype(int), own.shape[1] - 2)
    share = (places - before)[:, None]
    values = (1 - share) * other[rows, before] + share * other[rows, before + 1]
    return np.abs(own[rows, columns] - values).mean(1)


class Values(SimpleNamespace):
    """The values of a recipe that examples need, with one crop of any size."""

    batch = 1

    def crop_at(self, step: int, steps: int) -> tuple[int, int]:
        return self.crop

    def count_pairs(self, batch: int, crop: tuple[int, int]) -> int:
        return batch

    def count_most_pairs(self, batch: int) -> int:
        return batch


class Made(Examples):
    """Examples at the recipe's crop size."""

    def __getitem__(self, position: int) -> Example:
        return self.at(position, self.recipe.crop)


def make_examples(
    sources: list[tuple[Source, float]],
    crop: tuple[int, int] = CROP,
    seed: int = 3,
    augmentation: Augmentation = NOTHING,
    scale: int | None = None,
    scenes: SceneSettings | None = None,
    folder: Path | None = None,
) -> Made:
    recipe = Values(
        crop=crop, seed=seed, augmentation=augmentation, scale=scale, scenes=scenes or SceneSettings()
    )
    return Made(recipe, sources, folder)


def examples(
    *samples: Sample | None, augmentation: Augmentation = NOTHING, crop: tuple[int, int] = CROP, seed: int = 3
) -> Made:
    return make_examples([(Stored(*samples), 1.0)], crop, seed, augmentation)


def superres(
    sample: Sample, augmentation: Augmentation = NOTHING, scale: int = 4, crop: tuple[int, int] = (6, 10)
) -> Made:
    return make_examples([(Stored(sample), 1.0)], crop, 3, augmentation, scale)


def unlabelled(sample: Sample) -> Sample:
    return dataclasses.replace(sample, disparity=None, right_disparity=None, visible=None)


def numbered(count: int) -> list[Sample]:
    """Pairs of one colour each: that of their number."""
    views = [np.full((*CROP, 3), number, np.uint8) for number in range(count)]
    return [Sample(str(number), view, view) for number, view in enumerate(views)]


def numbers(made: Examples, positions: range) -> list[int]:
    return [int(made[position].left[0, 0, 0]) for position in positions]
