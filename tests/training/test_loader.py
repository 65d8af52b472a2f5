"""Batches: the same in any number of processes, errors in their turn, and scenes that serve for several."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from example_pairs import (
    CROP,
    EVERYTHING,
    NOTHING,
    Made,
    Stored,
    examples,
    make_examples,
    numbered,
    numbers,
    pair,
    unlabelled,
)
from torch.utils.data import dataloader

from pamcli.data.source import Sample, Source
from pamcli.errors import DeviceError, InputError
from pamcli.training.augmentation import Augmentation
from pamcli.training.examples import LATE, SceneCache, StepBatch, load_batches
from pamcli.training.recipe import SceneSettings


def test_batches_hold_bytes_and_masks_of_known_pixels() -> None:
    sample = pair(*CROP)
    sample.disparity[:4] = np.nan
    made = examples(sample, unlabelled(pair(*CROP, seed=1)))
    (raw,) = load_batches(made, 0, 1, 2, workers=0)
    assert raw.left.dtype == torch.uint8
    (batch,) = raw.parts(1, "cpu")
    assert batch.left.shape == batch.right.shape == (2, 3, *CROP)
    assert batch.left.dtype == torch.float32
    for index in range(2):
        picture = made[index].left.transpose(2, 0, 1).astype(np.float32) / 255
        torch.testing.assert_close(batch.left[index], torch.from_numpy(picture))
    truth = batch.truth
    labelled = [bool(np.isfinite(made[index].disparity).any()) for index in range(2)]
    assert sorted(labelled) == [False, True]
    assert truth.known.flatten(1).any(1).tolist() == labelled
    assert truth.right_disparity.isfinite().flatten(1).all(1).tolist() == labelled
    assert not truth.known[:, :4].any()
    assert not (truth.visible & ~truth.known).any()
    assert not truth.visible[labelled.index(False)].any()
    assert not truth.right_visible[labelled.index(False)].any()


def test_batches_name_the_pairs_with_left_ground_truth_only() -> None:
    left_only = dataclasses.replace(pair(*CROP), right_disparity=None)
    for sample, expected in ((left_only, True), (pair(*CROP), False)):
        (batch,) = load_batches(examples(sample), 0, 1, 2, workers=0)
        assert batch.truth.left_only.tolist() == [expected] * 2  # type: ignore[union-attr]


def colours(batches: Iterator[StepBatch]) -> list[list[int]]:
    return [batch.left[:, 0, 0, 0].tolist() for batch in batches]


def test_processes_share_the_positions_of_a_step() -> None:
    made = examples(*numbered(100))
    alone = colours(load_batches(made, 0, 5, 4, workers=0))
    assert [number for step in alone for number in step] == numbers(made, range(20))
    shares = [colours(load_batches(made, 0, 5, 2, workers=0, rank=rank, world=2)) for rank in range(2)]
    assert [first + second for first, second in zip(*shares, strict=True)] == alone
    assert colours(load_batches(made, 3, 5, 4, workers=0)) == alone[3:]
    assert colours(load_batches(made, 5, 5, 4, workers=0)) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_file_is_one_error_in_its_turn(workers: int) -> None:
    samples: list[Sample | None] = list(numbered(12))
    order = numbers(examples(*numbered(12)), range(12))
    samples[order[7]] = None
    made = load_batches(examples(*samples), 0, 6, 2, workers)
    found = [next(made) for _ in range(3)]
    assert colours(iter(found)) == [order[:2], order[2:4], order[4:6]]
    with pytest.raises(InputError) as caught:
        next(made)
    assert caught.value.message == f"{order[7]:03d}/left.png is damaged"
    assert caught.value.exit_code == 3


class Deadly(Stored):
    """Its reader is killed, as for want of memory."""

    def load(self, index: int) -> Sample:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no processes")
def test_more_workers_than_processors_are_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    made = examples(*numbered(2))
    assert colours(load_batches(made, 0, 2, 2, workers=2)) == colours(load_batches(made, 0, 2, 2, workers=0))


def test_loading_keeps_the_sigchld_handler() -> None:
    before = signal.getsignal(signal.SIGCHLD)
    made = load_batches(examples(*numbered(2)), 0, 2, 1, workers=1)
    next(made)
    assert signal.getsignal(signal.SIGCHLD) == before


class Lacking(Stored):
    """Its reader takes a package that is not installed."""

    def load(self, index: int) -> Sample:
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")


def test_unexpected_errors_of_workers_keep_their_type() -> None:
    made = make_examples([(Lacking(*numbered(2)), 1.0)], CROP, 0, NOTHING)
    with pytest.raises(ModuleNotFoundError) as caught:
        next(load_batches(made, 0, 2, 1, workers=1))
    assert caught.value.name == "elsewhere"
    assert "in load" in caught.value.__notes__[0], "where it came from"
    for worker in multiprocessing.active_children():
        worker.join(60)
    assert multiprocessing.active_children() == [], "with one left, the program would wait for it"


def test_a_killed_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = dataloader._MultiProcessingDataLoaderIter._try_get_data
    monkeypatch.setattr(waiting, "__defaults__", (0.2,))  # not 5 s, after which torch looks for its workers
    made = make_examples([(Deadly(*numbered(2)), 1.0)], CROP, 0, NOTHING)
    with pytest.raises(DeviceError, match="was killed") as caught:
        next(load_batches(made, 0, 2, 1, workers=1))
    assert "`workers`" in str(caught.value)


class Interrupted(Stored):
    """Its reader gets what Ctrl-C sends to all processes of a terminal, and a scheduler to those of a job."""

    def load(self, index: int) -> Sample:
        os.kill(os.getpid(), signal.SIGINT)
        if index == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
        return super().load(index)


def test_workers_leave_the_end_to_the_main_process() -> None:
    made = make_examples([(Interrupted(*numbered(2)), 1.0)], CROP, 0, NOTHING)
    assert len(list(load_batches(made, 0, 2, 1, workers=1))) == 2


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
    assert len(list(tmp_path.iterdir())) <= DRAWING.pool + LATE + 3, "old scenes leave the disk"
    shapes = {scenes.scene(position).left.shape[:2] for position in range(390, 400)}
    assert shapes == {(48, 96), (32, 128)}


def test_cached_scenes_equal_rendered_ones_also_after_damage(tmp_path: Path) -> None:
    source = Counted()
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
    sources = [(Stored(pair(), pair(seed=1)), 1.0), (Counted(), 3.0)]
    drawing = replace(DRAWING, augmentation=augmentation)
    return make_examples(sources, CROP, 3, EVERYTHING, scenes=drawing, folder=folder)


def test_any_number_of_workers_make_the_same_batches(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    runs = [list(load_batches(made(tmp_path / str(workers)), 0, 4, 2, workers)) for workers in (0, 2)]
    runs.append(list(load_batches(made(None), 0, 4, 2, 0)))
    assert torch.equal(torch.get_rng_state(), state), "the random state of the run is its own"
    for run in runs[1:]:
        for here, there in zip(runs[0], run, strict=True):
            assert torch.equal(here.left, there.left)
            assert torch.equal(here.right, there.right)
            for one, other in zip(here.truth, there.truth, strict=True):
                assert torch.equal(torch.nan_to_num(one, -1), torch.nan_to_num(other, -1))
    assert all(batch.prepared > 0 for batch in runs[0])


def test_scenes_have_their_own_augmentation() -> None:
    plain, mirrored = made(None), made(None, Augmentation(mirror=1))
    changed = [not np.array_equal(plain[place].left, mirrored[place].left) for place in range(6)]
    assert any(changed), "those of the scenes"
    assert not all(changed), "those of the stored pairs"


def test_a_crop_that_is_larger_than_a_scene_has_it_enlarged() -> None:
    drawing = SceneSettings(sizes=((32, 64),), pool=2)
    large = make_examples([(Counted(), 1.0)], (64, 96), 3, NOTHING, scenes=drawing)
    example = large[0]
    assert example.left.shape == (64, 96, 3)
    assert np.isfinite(example.disparity).all()
