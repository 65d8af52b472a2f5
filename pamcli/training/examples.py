"""Batches of data sets: what stands at a position of a run depends on seed and position alone.

So it does not matter how many processes prepare it, or whether the run was interrupted before. Positions
count pairs from 0. Pictures travel as bytes between processes, and become numbers on the device.
"""

from __future__ import annotations

import math
import signal
import threading
import time
import traceback
import warnings
from collections import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pamcli.data.source import LARGEST_SEED, Sample, Source
from pamcli.errors import DeviceError, PamError, UsageError
from pamcli.imaging.images import eight_bits
from pamcli.imaging.resize import imresize
from pamcli.losses.supervised import visible_left, visible_right
from pamcli.losses.total import Truth
from pamcli.training.augmentation import (
    Augmentation,
    Crop,
    Example,
    choose_crop,
    erased,
    jittered,
    permuted,
    randomly_flipped,
    taken,
)
from pamcli.training.crops import Crops
from pamcli.training.inserting import inserted
from pamcli.training.kept_scenes import KeptScenes
from pamcli.training.recipe import Drawing
from pamcli.training.redrawing import NEARER, redrawn
from pamcli.workers import deaf_to_ctrl_c

# Separate random streams of a seed; 4 and 5 are those of `crops` and `kept_scenes`. None is 0: numpy takes
# (seed, position, 0) for (seed, position), which is the stream of a scene.
_CHOICE, _ORDER, _CHANGES = 1, 2, 3

_REACH = 2  # pixels of the reduced picture around one, beyond which `imresize` does not look when it reduces


class StepBatch(NamedTuple):
    """Pairs for one step. Pictures are uint8 until `to`, which makes them float32 in [0, 1]."""

    left: Tensor
    """(B, 3, H, W); for super-resolution at low resolution."""
    right: Tensor
    left_high: Tensor | None = None
    """(B, 3, sH, sW), super-resolution alone."""
    right_high: Tensor | None = None
    truth: Truth | None = None
    """Pixels of `left`; a pair without labels has none known. None: no pair of the batch has labels."""
    prepared: float = 0.0
    """Seconds of a processor that it took to make."""

    def parts(self, count: int) -> Iterator[StepBatch]:
        """Batches with the pairs of this one, equally large as far as they go up."""
        for pairs in torch.arange(len(self.left)).tensor_split(min(count, len(self.left))):
            first, last = int(pairs[0]), int(pairs[-1])
            yield self._each(lambda values, a=first, b=last + 1: values[a:b])  # type: ignore[misc]

    @classmethod
    def of(cls, examples: Sequence[Example]) -> StepBatch:
        """Examples of one size."""

        def stacked(name: str) -> Tensor:
            return torch.from_numpy(np.stack([getattr(example, name) for example in examples]))

        def views(name: str) -> Tensor:
            return stacked(name).permute(0, 3, 1, 2).contiguous()

        high = () if examples[0].left_high is None else (views("left_high"), views("right_high"))
        truth = Truth(*map(stacked, Truth._fields))
        labelled = truth.known.any() or stacked("right_disparity").isfinite().any()
        batch = cls(views("left"), views("right"), *high)
        return batch._replace(truth=truth) if labelled else batch

    def to(self, device: torch.device | str) -> StepBatch:
        """Bring it to a device, pictures as numbers; does not wait for the device."""

        def moved(values: Tensor) -> Tensor:
            values = values.to(device, non_blocking=True)
            return values.float().div_(255) if values.dtype == torch.uint8 else values

        return self._each(moved)

    def _each(self, change: Callable[[Tensor], Tensor]) -> StepBatch:
        """Change every tensor, also those of the truth."""

        def changed(values: Tensor | None) -> Tensor | None:
            return None if values is None else change(values)

        truth = None if self.truth is None else Truth._make(map(changed, self.truth))
        return StepBatch._make((*map(changed, self[:4]), truth, self.prepared))


class Examples(Dataset[Example]):
    """The examples of a run by position, endless. Can be pickled."""

    def __init__(
        self,
        sources: Sequence[tuple[Source, float]],
        task: Literal["disparity", "superres"],
        crop: tuple[int, int],
        seed: int,
        augmentation: Augmentation,
        scale: int | None = None,
        drawing: Drawing | None = None,
        folder: Path | None = None,
        pace: float = 1.0,
    ) -> None:
        """sources: data sets, and how often each is drawn from, against the others.

        crop: height and width of what the network is given. scale: of super-resolution. drawing: of endless
        data sets; folder: where their samples are kept meanwhile; pace: crops of this size for each position,
        where some steps take fewer. Raises UsageError: a seed out of range.
        """
        if not 0 <= seed <= LARGEST_SEED:
            raise UsageError(f"the seed {seed} is not a whole number from 0 to 2^63 - 1")
        self.sources = [source for source, _ in sources]
        weights = np.array([weight for _, weight in sources], np.float64)
        weights /= weights.max()  # so that their sum is finite
        self.shares = weights / weights.sum()
        self.crop, self.seed, self.augmentation = crop, seed, augmentation
        self.drawing = Drawing() if drawing is None else drawing
        self._kept: dict[int, KeptScenes] = {}
        for place, (source, share) in enumerate(zip(self.sources, self.shares.tolist(), strict=True)):
            if source.endless and self.drawing.sizes:
                new = pace * share / self.drawing.uses
                self._kept[place] = KeptScenes(source, self.drawing, seed, new, folder, f"{place}-")
        self.scale = (scale or 1) if task == "superres" else None
        self._order: tuple[int, NDArray[np.intp]] | None = None

    @property
    def pass_length(self) -> int:
        """Pairs in a pass over the data: of one data set all of it, of several as many as they have."""
        return sum(map(len, self.sources))

    def __getitem__(self, position: int) -> Example:
        """Make the example of the recipe's crop. Raises InputError naming a file that is damaged."""
        return self.at(position, self.crop)

    def at(self, position: int, size: tuple[int, int]) -> Example:
        """The example of another height and width than `crop`."""
        rng = default_rng((self.seed, position, _CHANGES))
        place = self._place(position)
        source = self.sources[place]
        kept = self._kept.get(place)
        sample = self._sample(source, position, size) if kept is None else kept.scene(position)
        if self.scale is not None:
            example = randomly_flipped(rng, self._reduced(rng, sample, self.scale), self.augmentation)
            return taken(rng, example, self.augmentation)
        by = self.augmentation
        if source.endless:
            by = self.drawing.augmentation or by.of_scenes
        height, width = sample.left.shape[:2]
        crop = choose_crop(rng, height, width, size, by)
        left_alone = sample.disparity is not None and sample.right_disparity is None
        if left_alone and rng.random() < by.redraw:
            example = _redrawn(rng, sample, crop)
        else:
            left, right = (crop.cut(eight_bits(view)) for view in (sample.left, sample.right))
            example = Example(left, right, *_truths(sample, crop, first=0, step=1))
        if left_alone and rng.random() < by.insert:
            example = inserted(rng, example)
        example = randomly_flipped(rng, example, by)
        left, right = jittered(rng, example.left, example.right, by)
        return erased(rng, replace(example, left=left, right=right), by)

    def _sample(self, source: Source, position: int, size: tuple[int, int]) -> Sample:
        """One data set is passed through in ever new orders, of several one is drawn, and of it a sample."""
        if source.endless:
            height, width = (side * (self.scale or 1) for side in size)
            return source.draw(self.seed, position, height, width)
        if len(self.sources) > 1:
            return source.load(int(default_rng((self.seed, position, _ORDER)).integers(len(source))))
        passes, place = divmod(position, len(source))
        if self._order is None or self._order[0] != passes:
            order = default_rng((self.seed, passes, _ORDER)).permutation(len(source))
            self._order = passes, order
        return source.load(int(self._order[1][place]))

    def _place(self, position: int) -> int:
        """Place among the sources of the data set that a position takes."""
        rng = default_rng((self.seed, position, _CHOICE))
        return int(rng.choice(len(self.sources), p=self.shares))

    def _reduced(self, rng: Generator, sample: Sample, scale: int) -> Example:
        """A high-resolution crop and what it is at low resolution: as cut from the whole picture reduced."""
        height, width = sample.left.shape[:2]
        rows, columns = self.crop
        crop = choose_crop(rng, height, width, (rows * scale, columns * scale), self.augmentation, scale)
        truths = _truths(sample, crop, first=scale // 2, step=scale)
        if sample.low_left is not None and sample.low_right is not None:
            if sample.low_left.shape[0] * scale != height:
                stored = height // sample.low_left.shape[0]
                raise UsageError(
                    f"the patches of {sample.name} are of x{stored}, the training is of x{scale}",
                    f"prepare some with `scale` {scale}",
                )
            if self.augmentation.keeps_pixels and crop.scale_x == crop.scale_y == 1:
                # Stored as the whole picture reduced, so that the patch's borders are right, too.
                at = slice(crop.top // scale, None), slice(crop.left // scale, None)
                stored_views = [view[at][:rows, :columns] for view in (sample.low_left, sample.low_right)]
                high_views = (crop.cut(eight_bits(view)) for view in (sample.left, sample.right))
                views = *stored_views, *high_views
                low_left, low_right, left, right = permuted(rng, views, self.augmentation)
                return Example(low_left, low_right, *truths, left_high=left, right_high=right)
        wide = crop.widened(_REACH * scale, height, width, scale)
        left, right = (wide.cut(eight_bits(view)) for view in (sample.left, sample.right))
        left, right = jittered(rng, left, right, self.augmentation)
        top, before = crop.top - wide.top, crop.left - wide.left

        def low(view: NDArray[np.uint8]) -> NDArray[np.uint8]:
            whole = imresize(view, 1 / scale).astype(np.uint8, copy=False)
            return whole[top // scale :, before // scale :][:rows, :columns]

        def high(view: NDArray[np.uint8]) -> NDArray[np.uint8]:
            return view[top:, before:][: rows * scale, : columns * scale]

        return Example(low(left), low(right), *truths, left_high=high(left), right_high=high(right))


def _redrawn(rng: Generator, sample: Sample, crop: Crop) -> Example:
    """A crop of a pair whose right view is drawn from the left one; as it is where nothing is known."""
    assert sample.disparity is not None
    largest = np.nanmax(sample.disparity[crop.rows()], initial=0) * crop.scale_x * NEARER
    wide = crop.reaching(math.ceil(largest), sample.left.shape[1])
    left, right = (wide.cut(eight_bits(view)) for view in (sample.left, sample.right))
    disparity, right_disparity, visible, right_visible = _truths(sample, wide, first=0, step=1)
    if np.isfinite(disparity).any():
        right, disparity, right_disparity, visible = redrawn(rng, left, right, disparity)
        right_visible = np.arange(wide.width) + right_disparity <= crop.width - 1  # known is what is seen
    parts: list[Any] = [left, right, disparity, right_disparity, visible, right_visible]
    return Example(*(np.ascontiguousarray(part[:, : crop.width]) for part in parts))


def _truths(
    sample: Sample, crop: Crop, first: int, step: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Disparities and visible pixels of both views at the crop's pixels first, first + step ...

    Each is that of the nearest pixel, times the scale. What is visible is asked of whole rows: what hides a
    pixel may lie outside the crop. Then the match must lie inside.
    """
    rows, columns = crop.rows(first, step), crop.columns(first, step)
    shape = len(rows), len(columns)
    truths = sample.disparity, sample.right_disparity
    if all(truth is None for truth in truths):
        unknown, nothing = np.full(shape, np.nan, np.float32), np.zeros(shape, np.bool_)
        return unknown, unknown.copy(), nothing, nothing.copy()
    none = torch.full((len(rows), sample.left.shape[1]), torch.nan)
    lines = [none if truth is None else torch.from_numpy(truth[rows]) for truth in truths]
    # As the data set says; else where both truths agree; with one alone, where nothing nearer hides them.
    both = lines[0][None], lines[1][None]
    seen = visible_left(*both)[0] if sample.visible is None else torch.from_numpy(sample.visible[rows])
    results: list[Any] = []
    for sign, disparity, mask in zip((-1, 1), lines, (seen, visible_right(*both)[0]), strict=True):
        values = disparity.numpy()[:, columns].astype(np.float32) * np.float32(crop.scale_x / step)
        match = np.arange(shape[1], dtype=np.float32) + sign * values
        results.append((values, mask.numpy()[:, columns] & (match >= 0) & (match <= shape[1] - 1)))
    (left, visible), (right, right_visible) = results
    return left, right, visible, right_visible


@dataclass
class _Steps(Dataset["StepBatch | Exception"]):
    """Whole batches by step. An error is a result: DataLoader would make another one of it."""

    examples: Examples
    batch: int
    rank: int
    world: int
    crops: Crops

    def __getitem__(self, step: int) -> StepBatch | Exception:
        begun = time.process_time()
        start = (step * self.world + self.rank) * self.crops.most(self.batch)
        size = self.crops.at(step)
        try:
            pairs = [self.examples.at(start + i, size) for i in range(self.crops.pairs(self.batch, size))]
            return StepBatch.of(pairs)._replace(prepared=time.process_time() - begun)
        except PamError as error:
            return error
        except Exception as error:  # noqa: BLE001 - raised where the batch is wanted
            error.add_note(f"(where it came from)\n{traceback.format_exc()}")
            return error


def loader(
    examples: Examples,
    start: int,
    steps: int,
    batch: int,
    workers: int,
    rank: int = 0,
    world: int = 1,
    crops: Crops | None = None,
) -> abc.Generator[StepBatch, None, None]:
    """The batches of the steps start, start + 1 ... steps - 1, for one of `world` processes.

    batch: pairs of this process, of the examples' own crop. Step s takes the positions from s * most * world
    on, `most` being the pairs of the step that has most; of them `rank` takes its contiguous share, of which
    a step of fewer pairs takes the first. workers: processes that prepare batches ahead; 0: this one does, in
    between.
    Pictures lie in page-locked memory where there is a CUDA device.
    Raises PamError as `Examples` does, in the order of the steps; DeviceError: a worker was killed.
    """
    with _sigchld_handler_kept(), warnings.catch_warnings():
        # Who asks for more workers than there are processors gets them, and no advice.
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loaded = DataLoader(
            _Steps(examples, batch, rank, world, crops or Crops(examples.crop)),
            batch_size=None,
            sampler=range(start, steps),
            num_workers=workers,
            worker_init_fn=_begin_worker,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # its own: the run's random state belongs to the run
        )
        with deaf_to_ctrl_c():
            batches = iter(loaded)
    try:
        for found in batches:
            if isinstance(found, Exception):
                raise found
            yield found
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DeviceError(
            "a process that prepares training data was killed, most likely for want of memory",
            "give fewer `workers`, a smaller batch, or more shared memory (/dev/shm)",
        ) from None
    finally:
        del batches  # ends the workers now, and not when nobody holds the traceback of an error any more


@contextmanager
def _sigchld_handler_kept() -> Iterator[None]:
    """Undo the handler with which DataLoader raises wherever the main process is: `next` finds out anyway."""
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)


def _begin_worker(_: int) -> None:
    # A scheduler's SIGTERM goes to all processes of a job: the main one ends the others when it has saved its
    # work. A second SIGTERM is its own, for a worker that does not end.
    signal.signal(signal.SIGTERM, lambda number, _: signal.signal(number, signal.SIG_DFL))
    torch.set_num_threads(1)
