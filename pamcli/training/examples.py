"""Prepare training batches as a function of seed and position, whatever the workers and interruptions.

Rendered scenes are cached on disk for several crops each, because rendering costs more than learning.
"""

from __future__ import annotations

import io
import math
import signal
import time
import traceback
import warnings
import zipfile
from collections import abc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pamcli.data.source import Sample, Source
from pamcli.errors import DeviceError, OutputError, PamError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.imaging.images import to_uint8
from pamcli.imaging.resize import imresize
from pamcli.losses.supervised import find_visible_left, find_visible_right
from pamcli.losses.total import GroundTruth
from pamcli.systems import TERMINATIONS, shield_signals
from pamcli.training import augmentation as augment
from pamcli.training.augmentation import Crop, Example, choose_crop
from pamcli.training.camera_faults import apply_faults
from pamcli.training.recipe import Recipe, SceneSettings
from pamcli.training.view_synthesis import NEARER, insert_occluders, synthesize_right_view

_SCENES = 5  # random stream of a seed, among those in `examples`
LATE = 64  # further scenes to keep, for processes that lag behind
PASSED_OVER = 8  # older ones to remove too, because random choice may have skipped their removal


@dataclass(frozen=True)
class SceneCache:
    """The scene cache of one source; several processes may share the folder."""

    source: Source
    drawing: SceneSettings
    seed: int
    pace: float  # new scenes per position of the run
    folder: Path | None  # cache folder; None renders a scene for each request
    prefix: str = ""  # file name prefix, unique per source in the folder

    def number(self, position: int) -> int:
        oldest = int(position * self.pace)
        return oldest + int(default_rng((self.seed, position, _SCENES)).integers(self.drawing.pool))

    def scene(self, position: int) -> Sample:
        """Load or render the scene for a position; raise InputError for a damaged texture."""
        number = self.number(position)
        height, width = self.drawing.sizes[number % len(self.drawing.sizes)]
        if self.folder is None:
            return self.source.render(self.seed, number, height, width)
        if (kept := _read(self._path(self.folder, number))) is not None:
            return kept
        made = self.source.render(self.seed, number, height, width)
        with suppress(OutputError):  # a full disk only costs time
            buffer = io.BytesIO()
            np.savez(buffer, **{key: value for key, value in vars(made).items() if value is not None})
            write_atomically(self._path(self.folder, number), buffer.getvalue())
        last = number - self.drawing.pool - LATE
        for old in range(last - PASSED_OVER, last + 1):
            with suppress(OSError):
                self._path(self.folder, old).unlink(missing_ok=True)
        return made

    def _path(self, folder: Path, number: int) -> Path:
        return folder / f"{self.prefix}{number:08d}.npz"


def _read(path: Path) -> Sample | None:
    """Load a scene; return None if the file is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file) as stored:
            return Sample(str(stored["name"]), **{key: stored[key] for key in stored.files if key != "name"})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


# Separate random streams of a seed; 4 and 5 belong to `recipe` and `scene_cache`. 0 is unused, because NumPy
# treats (seed, position, 0) as (seed, position), the stream of a scene.
_CHOICE, _ORDER, _CHANGES, _FAULTS = 1, 2, 3, 6
_REACH = 2  # px of the reduced image around each pixel that `imresize` reads when it downscales


class StepBatch(NamedTuple):
    """The pairs of one step; images are uint8 until `parts` makes them float32 in [0, 1]."""

    left: Tensor  # (B, 3, H, W); low resolution for super-resolution
    right: Tensor
    left_high: Tensor | None = None  # (B, 3, sH, sW), super-resolution only
    right_high: Tensor | None = None
    truth: GroundTruth | None = None  # NaN for pairs without labels
    prepared: float = 0.0  # CPU time of its preparation, s

    @classmethod
    def of(cls, examples: Sequence[Example], prepared: float = 0.0) -> StepBatch:
        """Stack examples of one size into a batch."""
        stacked: dict[str, Any] = {}
        for name, values in zip(Example._fields, zip(*examples, strict=True), strict=True):
            parts = None if values[0] is None else torch.from_numpy(np.stack(values))
            if parts is not None and parts.dtype == torch.uint8:
                parts = parts.permute(0, 3, 1, 2).contiguous()
            stacked[name] = parts
        left, right, left_high, right_high = map(stacked.pop, cls._fields[:4])
        return cls(left, right, left_high, right_high, GroundTruth(**stacked), prepared)

    def parts(self, count: int, device: torch.device | str) -> Iterator[StepBatch]:
        """Split the batch into up to `count` parts of nearly equal size.

        Each is moved to the device with images as floats, without waiting for the device.
        """
        for pairs in torch.arange(len(self.left)).tensor_split(min(count, len(self.left))):
            at = slice(int(pairs[0]), int(pairs[-1]) + 1)
            moved: list[Any] = []
            for values in (*self[:4], *(self.truth or ())):
                if values is not None:
                    values = values[at].to(device, non_blocking=True)
                    values = values.float().div_(255) if values.dtype == torch.uint8 else values
                moved.append(values)
            moved[4:] = [None if self.truth is None else GroundTruth(*moved[4:])]
            yield StepBatch(*moved)


class Examples:
    """The endless, picklable sequence of a run's examples, by position."""

    def __init__(
        self, recipe: Recipe, sources: Sequence[tuple[Source, float]], folder: Path | None = None
    ) -> None:
        """Prepare a run's examples. `sources`: data sets and sampling weights; `folder`: scene cache."""
        self.recipe, self.seed, self.scale = recipe, recipe.seed, recipe.scale
        self.sources, given = zip(*sources, strict=True)
        weights = np.array(given, np.float64) / max(given)  # keeps their sum finite
        self.shares = weights / weights.sum()
        self._caches: dict[int, SceneCache] = {}
        scenes, pace = recipe.scenes, recipe.batch / recipe.count_most_pairs(recipe.batch)
        for place, (source, share) in enumerate(zip(self.sources, self.shares.tolist(), strict=True)):
            if source.endless and scenes.sizes:
                new = pace * share / scenes.uses
                self._caches[place] = SceneCache(source, scenes, self.seed, new, folder, f"{place}-")
        self._order: tuple[int, NDArray[np.intp]] | None = None

    @property
    def fingerprints(self) -> list[str]:
        """Digests that change with the data sets."""
        return list(map(methodcaller("fingerprint"), self.sources))

    def at(self, position: int, size: tuple[int, int]) -> Example:
        """Return the example at a position, at a given height and width of the network input.

        Raises InputError that names a damaged file.
        """
        rng = default_rng((self.seed, position, _CHANGES))
        place = int(default_rng((self.seed, position, _CHOICE)).choice(len(self.sources), p=self.shares))
        source, by = self.sources[place], self.recipe.augmentation
        cache = self._caches.get(place)
        sample = cache.scene(position) if cache else self._sample(source, position, size)
        if self.scale is not None:
            example = self._crop_superres(rng, sample, self.scale, size)
            return augment.degrade_inputs(rng, augment.flip_randomly(rng, example, by), by)
        if source.endless:
            # Rendered scenes have their size, blur and noise already.
            changed = replace(by, smallest=1.0, largest=1.0, stretch=0.0, noise=0.0, blur=0.0)
            by = self.recipe.scenes.augmentation or changed
        height, width = sample.left.shape[:2]
        crop = choose_crop(rng, height, width, size, by)
        left_alone = sample.disparity is not None and sample.right_disparity is None
        if left_alone and rng.random() < by.synthesize_right:
            example = _synthesize(rng, sample, crop)
        else:
            left, right = crop.cut(to_uint8(sample.left)), crop.cut(to_uint8(sample.right))
            example = Example(left, right, *_crop_truths(sample, crop))
        if left_alone and rng.random() < by.occluders:
            example = insert_occluders(rng, example)
        example = augment.flip_randomly(rng, example, by)
        left, right = augment.jitter(rng, example.left, example.right, by)
        if any(augment.get_faults(by)):
            left, right = apply_faults(default_rng((self.seed, position, _FAULTS)), left, right, by)
        example = example._replace(left=left, right=right, left_only=left_alone)
        return augment.erase_rectangle(rng, example, by)

    def _sample(self, source: Source, position: int, size: tuple[int, int]) -> Sample:
        """Return the sample at a position: shuffled passes over one data set, random choice among several."""
        if source.endless:
            height, width = (side * (self.scale or 1) for side in size)
            return source.render(self.seed, position, height, width)
        if len(self.sources) > 1:
            return source.load(int(default_rng((self.seed, position, _ORDER)).integers(len(source))))
        passes, place = divmod(position, len(source))
        if self._order is None or self._order[0] != passes:
            order = default_rng((self.seed, passes, _ORDER)).permutation(len(source))
            self._order = passes, order
        return source.load(int(self._order[1][place]))

    def _crop_superres(self, rng: Generator, sample: Sample, scale: int, size: tuple[int, int]) -> Example:
        """Return a high-resolution crop and its low-resolution version, cut from the downscaled image."""
        by, (height, width), (rows, columns) = self.recipe.augmentation, sample.left.shape[:2], size
        crop = choose_crop(rng, height, width, (rows * scale, columns * scale), by, scale)
        truths = _crop_truths(sample, crop, first=scale // 2, step=scale)
        if sample.low_left is not None and sample.low_right is not None:
            if sample.low_left.shape[0] * scale != height:
                stored = f"the patches of {sample.name} are prepared for x{height // len(sample.low_left)}"
                hint = f"prepare patches with `scale` {scale}"
                raise UsageError(f"{stored}, but the run trains x{scale}", hint)
            if by.keeps_pixels and crop.scale_x == crop.scale_y == 1:
                # Patches are stored as the downscaled whole image, so their borders are correct too.
                at = slice(crop.top // scale, None), slice(crop.left // scale, None)
                low = [view[at][:rows, :columns] for view in (sample.low_left, sample.low_right)]
                views = *low, *(crop.cut(to_uint8(view)) for view in (sample.left, sample.right))
                low_left, low_right, left, right = augment.permute_colours(rng, views, by)
                return Example(low_left, low_right, *truths, left_high=left, right_high=right)
        wide = crop.widen(_REACH * scale, height, width, scale)
        left, right = (wide.cut(to_uint8(view)) for view in (sample.left, sample.right))
        left, right = augment.jitter(rng, left, right, by)
        top, before = crop.top - wide.top, crop.left - wide.left
        small = (imresize(view, 1 / scale).astype(np.uint8, copy=False) for view in (left, right))
        low = [view[top // scale :, before // scale :][:rows, :columns] for view in small]
        high = [view[top:, before:][: rows * scale, : columns * scale] for view in (left, right)]
        return Example(low[0], low[1], *truths, left_high=high[0], right_high=high[1])


def _synthesize(rng: Generator, sample: Sample, crop: Crop) -> Example:
    """Return a crop whose right image is synthesized from the left one, if any disparity is known."""
    assert sample.disparity is not None
    largest = np.nanmax(sample.disparity[crop.find_pixels()[0]], initial=0) * crop.scale_x * NEARER
    wide = crop.extend(math.ceil(largest), sample.left.shape[1])
    left, right = (wide.cut(to_uint8(view)) for view in (sample.left, sample.right))
    disparity, right_disparity, visible, right_visible = _crop_truths(sample, wide)
    if np.isfinite(disparity).any():
        right, disparity, right_disparity, visible = synthesize_right_view(rng, left, right, disparity)
        right_visible = np.arange(wide.width) + right_disparity <= crop.width - 1  # known means visible
    whole: list[Any] = [left, right, disparity, right_disparity, visible, right_visible]
    parts: list[Any] = [np.ascontiguousarray(part[:, : crop.width]) for part in whole]
    return Example(*parts)


def _crop_truths(
    sample: Sample, crop: Crop, first: int = 0, step: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return disparities and visibility of both images at the crop's pixels first, first + step, ...

    Visibility is computed on whole rows, because occluders may lie outside the crop.
    """
    rows, columns = crop.find_pixels(first, step)
    shape = len(rows), len(columns)
    if sample.disparity is None and sample.right_disparity is None:
        unknown, nothing = np.full(shape, np.nan, np.float32), np.zeros(shape, np.bool_)
        return unknown, unknown.copy(), nothing, nothing.copy()
    lines = []
    for truth in (sample.disparity, sample.right_disparity):
        whole = (
            np.full((len(rows), sample.left.shape[1]), np.nan, np.float32) if truth is None else truth[rows]
        )
        lines.append(torch.from_numpy(whole))
    # From the data set if given, else where both disparities agree, else where nothing nearer occludes.
    both = lines[0][None], lines[1][None]
    seen = find_visible_left(*both)[0] if sample.visible is None else torch.from_numpy(sample.visible[rows])
    results: list[Any] = []
    for sign, disparity, mask in zip((-1, 1), lines, (seen, find_visible_right(*both)[0]), strict=True):
        values = disparity.numpy()[:, columns].astype(np.float32) * np.float32(crop.scale_x / step)
        match = np.arange(shape[1], dtype=np.float32) + sign * values
        results.append((values, mask.numpy()[:, columns] & (match >= 0) & (match <= shape[1] - 1)))
    (left, visible), (right, right_visible) = results
    return left, right, visible, right_visible


@dataclass
class _Steps(Dataset["StepBatch | Exception"]):
    """The whole batches of a run, by step; errors are returned, because DataLoader would replace them."""

    examples: Examples
    batch: int
    rank: int
    world: int
    steps: int

    def __getitem__(self, step: int) -> StepBatch | Exception:
        begun, recipe = time.process_time(), self.examples.recipe
        size = recipe.crop_at(step, self.steps)
        start = (step * self.world + self.rank) * recipe.count_most_pairs(self.batch)
        try:
            pairs = []
            for position in range(start, start + recipe.count_pairs(self.batch, size)):
                pairs.append(self.examples.at(position, size))
            return StepBatch.of(pairs, time.process_time() - begun)
        except Exception as error:  # noqa: BLE001 - raised where the batch is used
            if not isinstance(error, PamError):
                error.add_note(f"(raised in)\n{traceback.format_exc()}")
            return error


def load_batches(
    examples: Examples, start: int, steps: int, batch: int, workers: int, rank: int = 0, world: int = 1
) -> abc.Generator[StepBatch, None, None]:
    """Yield the batches of steps start, ..., steps - 1 for one of `world` processes, `batch` pairs each.

    Raises PamError as `Examples` does, in order of the steps; DeviceError: a worker was killed.
    """
    # DataLoader's handler of SIGCHLD raises anywhere, and `next` detects dead workers too.
    with shield_signals(), warnings.catch_warnings():
        # Suppress advice on the number of workers.
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loaded = DataLoader(
            _Steps(examples, batch, rank, world, steps),
            batch_size=None,
            sampler=range(start, steps),
            num_workers=workers,
            worker_init_fn=_begin_worker,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # separate from the run's random state
        )
        batches = iter(loaded)
    try:
        for found in batches:
            if isinstance(found, Exception):
                raise found
            yield found
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        problem = "a process that prepares training data was killed, probably because memory ran out"
        hint = "use fewer `workers`, a smaller `batch`, or more shared memory (/dev/shm)"
        raise DeviceError(problem, hint) from None
    finally:
        del batches  # ends the workers now, even if a traceback still refers to them


def _begin_worker(_: int) -> None:
    # Schedulers send SIGTERM to all processes of a job, and closed terminals SIGHUP: ignore the first, as the
    # main process ends the workers after saving. A second SIGTERM ends a worker that does not stop.
    for number in TERMINATIONS:
        signal.signal(number, lambda number, _: signal.signal(number, signal.SIG_DFL))
    torch.set_num_threads(1)
