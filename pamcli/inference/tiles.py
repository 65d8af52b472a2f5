"""Cut images that do not fit into memory or into a network into parts, and join the results.

A band has all columns of an image, as disparities run along rows, plus a halo of rows above and below.
Foreign networks with a fixed input size get tiles of that size.
"""

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import DeviceError, InputError
from pamcli.inference import PAIRS_AT_ONCE, Progress, device
from pamcli.inference.images import Pixels
from pamcli.inference.model import Maps, StereoModel

LOG = logging.getLogger("pamcli")

RAMP = 0.25  # share of an overlap in which the weight passes from one part to the next
FREE_MEMORY_SHARE = 0.7  # share of the free memory to use by default
FEWEST = 64  # rows of a band without its halo at least; fewer would double the work
LARGE = 4_000_000  # pixels of an image above which freed memory is returned to the system after each band
GPU_TURNS: defaultdict[torch.device, threading.Lock] = defaultdict(threading.Lock)
"""Locks of GPUs, whose memory is for one pair at a time."""
FRAGMENTATION = 1.15  # factor on the predicted memory, as free memory may be fragmented


class Tile(NamedTuple):
    """A part of an image."""

    rows: slice
    columns: slice
    weights: NDArray[np.float32]  # (rows, columns): weight of its result; over all tiles 1 at each pixel


def split_side(length: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Return begin and end of equal pieces of a side, evenly spaced, that share at least `overlap`."""
    if length <= size:
        return [(0, length)]
    count = -(-(length - overlap) // (size - overlap))
    begins = (round(index * (length - size) / (count - 1)) for index in range(count))
    return [(begin, begin + size) for begin in begins]


def blend_weights(pieces: Sequence[tuple[int, int]], middle: float = 0.5) -> list[NDArray[np.float32]]:
    """Return the weights of pieces, 1 in sum; they pass to the next piece around `middle` of an overlap."""
    weights = [np.ones(end - begin, np.float32) for begin, end in pieces]
    for index, (one, other) in enumerate(pairwise(pieces)):
        overlap = one[1] - other[0]
        place = (np.arange(overlap, dtype=np.float32) + 0.5) / overlap
        second = np.clip((place - middle) / RAMP + 0.5, 0, 1)
        weights[index][len(weights[index]) - overlap :] *= 1 - second  # the overlap may be empty
        weights[index + 1][:overlap] *= second
    return weights


def make_tiles(
    height: int, width: int, size: tuple[int, int], overlap: tuple[int, int], middle: float
) -> list[Tile]:
    """Return tiles of at most `size` (height, width) that cover an image; `middle`: for columns."""
    rows, columns = split_side(height, size[0], overlap[0]), split_side(width, size[1], overlap[1])
    return [
        Tile(slice(*down), slice(*across), weight[:, None] * beside)
        for down, weight in zip(rows, blend_weights(rows), strict=True)
        for across, beside in zip(columns, blend_weights(columns, middle), strict=True)
    ]


def make_bands(height: int, width: int, rows: int, halo: int, multiple: int = 1) -> list[Tile]:
    """Cut an image into bands of at most `rows` rows, with `halo` rows of weight 0 at each inner edge."""
    if rows >= height:
        return [Tile(slice(0, height), slice(0, width), np.ones((height, width), np.float32))]
    # Networks pad at the top to a multiple, so bands lie on the grid of the padded image.
    above, units = -height % multiple, -(-height // multiple)
    overlap = min(-(-2 * halo // multiple), rows // multiple - 1)
    pieces = split_side(units, max(rows // multiple, 1), overlap)
    lines = [(max(first * multiple - above, 0), last * multiple - above) for first, last in pieces]
    return [
        Tile(slice(*line), slice(0, width), np.broadcast_to(weight[:, None], (len(weight), width)))
        for line, weight in zip(lines, blend_weights(lines), strict=True)
    ]


def split_progress(progress: Progress | None, work: Sequence[float]) -> list[Progress]:
    """Return a callback for each of several consecutive pieces of work; `work`: their relative durations."""
    if progress is None:
        return [lambda share: None] * len(work)
    begins, reports = [0.0, *accumulate(work)], list[Progress]()
    for begin, size in zip(begins, work, strict=False):
        reports.append(lambda share, begin=begin, size=size: progress((begin + share * size) / begins[-1]))  # type: ignore[misc]
    return reports


def join_parts(parts: Sequence[Tile], results: Iterator[Maps], scale: int = 1) -> Maps:
    """Join the results of all parts, at `scale` times their size, by name.

    Floating-point results are blended; others come from the part of largest weight.
    """
    if len(parts) == 1:
        return next(results)
    height, width = parts[-1].rows.stop, parts[-1].columns.stop
    joined: Maps = {}
    for part, result in zip(parts, results, strict=True):
        place = tuple(slice(scale * side.start, scale * side.stop) for side in (part.rows, part.columns))
        weights = part.weights.repeat(scale, 0).repeat(scale, 1) if scale > 1 else part.weights
        for name, values in result.items():
            if name not in joined:
                joined[name] = np.zeros((scale * height, scale * width, *values.shape[2:]), values.dtype)
            shares = weights.reshape(*weights.shape, *(1,) * (values.ndim - 2))
            if values.dtype.kind == "f":
                joined[name][place] += shares.astype(values.dtype) * values
            else:
                np.copyto(joined[name][place], values, where=shares >= 0.5)
    return joined


class MemoryBudget:
    """The memory that a model may use, and the rows of an image that fit into it."""

    def __init__(self, model: StereoModel, max_memory: int | None) -> None:
        """`max_memory`: bytes that the whole program may use; None = a comfortable amount."""
        self.model, self.max_memory = model, max_memory
        self._device = model.compute.device
        self._turn = nullcontext() if self._device.type == "cpu" else GPU_TURNS[self._device]
        device.keep_freed_memory()
        self._used = device.get_used_memory(self._device)

    def run(
        self,
        compute: Callable[[Pixels, Pixels, Progress], Maps],
        left: Pixels,
        right: Pixels,
        *,
        scale: int = 1,
        results: int = 0,
        originals: tuple[Pixels, Pixels] | None = None,
        progress: Progress,
    ) -> Maps:
        """Compute results of a pair by name, whole or in bands that are joined, at `scale` times its size.

        `results`: bytes of all that is in memory meanwhile. `originals`: the images before resizing.
        """
        originals, (height, width) = originals or (left, right), left.shape[:2]
        size, (given_height, given_width) = self.model.size, originals[0].shape[:2]
        if size is not None and (height > size[0] or width > size[1]):
            is_resized = (height, width) != (given_height, given_width)
            raise InputError(
                f"images of {given_width}x{given_height}{f', matched at {width}x{height},' * is_resized} are "
                f"larger than {size[1]}x{size[0]}, the size that the network was exported for",
                "export it for their size, or for any size: pam weights export",
            )
        is_large = given_height * given_width > LARGE and self._device.type == "cpu"

        def compute_bands(bands: Sequence[Tile]) -> Iterator[Maps]:
            for band, report in zip(bands, split_progress(progress, [1.0] * len(bands)), strict=True):
                found = compute(left[band.rows], right[band.rows], report)
                if is_large:
                    device.release_freed_memory()  # fragments between live blocks would add up
                report(1)
                yield found

        is_reduced = False
        with self._turn:
            rows = self._count_rows(left, right, results, originals)
            while True:
                bands = make_bands(height, width, rows, self.model.halo, self.model.multiple)
                try:
                    found = join_parts(bands, compute_bands(bands), scale)
                except (MemoryError, RuntimeError) as error:
                    fewer = max(self._count_fewest_rows(height), min(rows, height) // 2)
                    if not device.is_memory_error(error) or fewer >= min(rows, height):
                        with device.catch_memory_errors(f"not enough memory for a pair of {width}x{height}"):
                            raise
                else:
                    if is_reduced:
                        note = "not enough memory for %dx%d at once: computed in bands of %d rows"
                        LOG.warning(note, width, height, rows)
                    return found
                rows, is_reduced = fewer, True
                self.model.release_memory()

    def _count_fewest_rows(self, height: int) -> int:
        multiple, least = self.model.multiple, 2 * self.model.halo + FEWEST
        return min(-(-least // multiple), -(-height // multiple)) * multiple

    def _count_rows(self, left: Pixels, right: Pixels, results: int, originals: tuple[Pixels, Pixels]) -> int:
        """Return how many rows to compute at a time; raise DeviceError if the fewest do not fit."""
        height, width, multiple = *map(int, left.shape[:2]), self.model.multiple
        held = images = 0
        if self._device.type == "cpu":
            held = results + (0 if originals[0] is left else left.nbytes + right.nbytes)
            images = PAIRS_AT_ONCE * (originals[0].nbytes + originals[1].nbytes)
        fewest = self._count_fewest_rows(height)
        least = held + int(FRAGMENTATION * self.model.memory(fewest, width))
        whole = int(FRAGMENTATION * self.model.memory(height, width))
        pair = f"a pair of {originals[0].shape[1]}x{originals[0].shape[0]}"
        limit = math.inf
        if self.max_memory is not None:
            limit = self.max_memory - self._used - images
            if least > limit:
                raise DeviceError(
                    f"{pair} does not fit into `max_memory` {device.format_bytes(self.max_memory)}",
                    f"set `max_memory` to at least {device.format_bytes(self._used + images + least)}",
                )
        if (free := device.get_free_memory(self._device)) is not None:
            if least > free:
                needed, known = device.format_bytes(least), device.format_bytes(free)
                raise DeviceError(f"{pair} needs {needed} of memory, only {known} are free", device.HINT)
            limit = min(limit, max(least, int(FREE_MEMORY_SHARE * free)))
        if held + whole <= limit:
            return height + multiple
        rows = int(limit - held) * height // max(whole, 1)
        return max(fewest, rows // multiple * multiple)
