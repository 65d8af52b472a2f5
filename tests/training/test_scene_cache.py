"""Scenes that serve for several examples: the same ones, however often they are drawn on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from example_pairs import CROP, NOTHING, Made, Stored, make_examples, pair

from pamcli.data.open import open_data
from pamcli.data.source import Sample, Source
from pamcli.training.augmentation import Augmentation
from pamcli.training.examples import LATE, SceneCache, load_batches
from pamcli.training.recipe import SceneSettings

DRAWING = SceneSettings(sizes=((48, 96), (32, 128)), uses=5, pool=6)


class Counted(Source):
    """Draws pairs whose colour tells their number, and counts how often."""

    endless = True
    drawn: Counter[int]

    def __init__(self) -> None:
        self.drawn = Counter()

    def load(self, index: int) -> Sample:
        raise NotImplementedError

    def render(self, series: int, number: int, height: int, width: int) -> Sample:
        self.drawn[number] += 1
        made = pair(height, width)
        view = np.full_like(made.left, number % 256)
        return replace(made, name=f"{number}", left=view, visible=np.ones((height, width), np.bool_))


def kept(source: Source, folder: Path | None) -> SceneCache:
    return SceneCache(source, DRAWING, 3, 1 / DRAWING.uses, folder)


def test_each_scene_is_drawn_once_and_used_as_often_as_asked(tmp_path: Path) -> None:
    source = Counted()
    scenes = kept(source, tmp_path)
    used = Counter(scenes.scene(position).name for position in range(400))
    assert set(source.drawn.values()) == {1}
    assert abs(len(source.drawn) - (400 / DRAWING.uses + DRAWING.pool)) < 8
    middle = [used[str(number)] for number in range(10, 70)]
    assert abs(np.mean(middle) - DRAWING.uses) < 1
    shapes = {scenes.scene(position).left.shape[:2] for position in range(390, 400)}
    assert shapes == {(48, 96), (32, 128)}


def test_old_scenes_leave_the_disk(tmp_path: Path) -> None:
    scenes = kept(Counted(), tmp_path)
    for position in range(0, 800, 2):
        scenes.scene(position)
    assert len(list(tmp_path.iterdir())) <= DRAWING.pool + LATE + 3


def test_cached_scenes_equal_rendered_ones_also_after_damage(tmp_path: Path) -> None:
    source = open_data("procedural")
    first = kept(source, tmp_path).scene(7)
    (file,) = tmp_path.iterdir()
    versions = [kept(source, tmp_path).scene(7), kept(source, None).scene(7)]
    file.write_bytes(file.read_bytes()[:-3000])
    versions.append(kept(source, tmp_path).scene(7))
    for other in versions:
        assert other.name == first.name
        for part in ("left", "right", "disparity", "right_disparity", "visible"):
            assert np.array_equal(getattr(other, part), getattr(first, part))
    file.unlink()
    file.mkdir()
    assert kept(source, tmp_path).scene(7).name == first.name, "what cannot be written is drawn all the same"


def made(folder: Path | None, augmentation: Augmentation | None = None) -> Made:
    sources = [(Stored(pair(), pair(seed=1)), 1.0), (open_data("procedural"), 3.0)]
    drawing = replace(DRAWING, augmentation=augmentation)
    return make_examples(sources, CROP, 3, NOTHING, scenes=drawing, folder=folder)


def test_any_number_of_workers_make_the_same_batches(tmp_path: Path) -> None:
    runs = [list(load_batches(made(tmp_path / str(workers)), 0, 2, 2, workers)) for workers in (0, 2)]
    runs.append(list(load_batches(made(None), 0, 2, 2, 0)))
    for run in runs[1:]:
        for here, there in zip(runs[0], run, strict=True):
            assert np.array_equal(here.left, there.left)
    assert all(batch.prepared > 0 for batch in runs[0])


def test_scenes_have_their_own_augmentation() -> None:
    plain, mirrored = made(None), made(None, Augmentation(mirror=1))
    changed = {
        plain._choose_source(position): not np.array_equal(plain[position].left, mirrored[position].left)
        for position in range(6)
    }
    assert changed == {0: False, 1: True}


def test_a_crop_that_is_larger_than_a_scene_has_it_enlarged() -> None:
    drawing = SceneSettings(sizes=((32, 64),), pool=2)
    large = make_examples([(open_data("procedural"), 1.0)], (64, 96), 3, NOTHING, scenes=drawing)
    example = large[0]
    assert example.left.shape == (64, 96, 3)
    assert np.isfinite(example.disparity).all()
