"""Cut images that do not fit into memory or into a network into parts, and join the results.

A band has all columns of an image, as disparities run along rows, plus a halo of rows above and below.
Foreign networks with a fixed input size get tiles of that size.
"""

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import DeviceError, InputError
from pamcli.inference import PAIRS_AT_ONCE, Progress, Report, device
from pamcli.inference.images import Pair, Pixels
from pamcli.inference.protocol import Maps, StereoModel
from pamcli.registry.catalog import ModelSpec
from pamcli.registry.description import Description

LOG = logging.getLogger("pamcli")

RAMP = 0.25  # share of an overlap in which the weight passes from one part to the next
FREE_MEMORY_SHARE = 0.7  # share of the free memory to use by default
FEWEST = 64  # rows of a band without its halo at least; fewer would double the work
LARGE = 4_000_000  # pixels of an image above which freed memory is returned to the system after each band
GPU_TURNS: defaultdict[torch.device, threading.Lock] = defaultdict(threading.Lock)
"""Locks of GPUs, whose memory is for one pair at a time."""
FRAGMENTATION = 1.15  # factor on the predicted memory, as free memory may be fragmented


Compute = Callable[[Pixels, Pixels, Report], Maps]


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
    # Networks pad at the top to a multiple, so bands lie on the grid of the padded image.
    above, units = -height % multiple, -(-height // multiple)
    overlap = min(-(-2 * halo // multiple), rows // multiple - 1)
    pieces = split_side(units, max(rows // multiple, 1), overlap)
    lines = [(max(first * multiple - above, 0), last * multiple - above) for first, last in pieces]
    return [
        Tile(slice(*line), slice(0, width), np.broadcast_to(weight[:, None], (len(weight), width)))
        for line, weight in zip(lines, blend_weights(lines), strict=True)
    ]


def split_progress(progress: Report, work: Sequence[float]) -> Sequence[Report]:
    """Return a callback for each of several consecutive pieces of work; `work`: their relative durations."""
    if progress is None or len(work) == 1:
        return [progress] * len(work)
    begins, reports = [0.0, *accumulate(work)], list[Progress]()
    for begin, size in zip(begins, work, strict=False):
        reports.append(lambda share, begin=begin, size=size: progress((begin + share * size) / begins[-1]))  # type: ignore[misc]
    return reports


def compute_parts(
    parts: Sequence[Tile], compute: Callable[[Tile, Report], Maps], progress: Report, scale: int = 1
) -> Maps:
    """Compute the results of all parts and join them, at `scale` times their size, by name.

    Floating-point results are blended; others come from the part of largest weight.
    """
    height, width = parts[-1].rows.stop, parts[-1].columns.stop
    joined: Maps = {}
    for part, report in zip(parts, split_progress(progress, [1.0] * len(parts)), strict=True):
        result = compute(part, report)
        if report is not None:
            report(1)
        if len(parts) == 1:
            return result
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


class Limit(NamedTuple):
    """A limit of the memory of the whole program."""

    most: int  # bytes
    used: int  # bytes in use when it was set


def run_in_bands(
    model: StereoModel,
    compute: Compute,
    views: Pair,
    *,
    limit: Limit | None,
    progress: Report,
    results: int,
    originals: Pair | None = None,
    scale: int = 1,
) -> Maps:
    """Compute results of a pair by name, whole or in bands that are joined, at `scale` times its size.

    `limit`: None = a comfortable amount of memory. `results`: bytes of all that is in memory meanwhile.
    `originals`: the images before resizing.
    """
    originals, (height, width) = originals or views, views[0].shape[:2]
    size, (given_height, given_width) = model.size, originals[0].shape[:2]
    if size is not None and (height > size[0] or width > size[1]):
        is_resized = (height, width) != (given_height, given_width)
        raise InputError(
            f"images of {given_width}x{given_height}{f', matched at {width}x{height},' * is_resized} are "
            f"larger than {size[1]}x{size[0]}, the size that the network was exported for",
            "export it for their size, or for any size: pam weights export",
        )
    is_cpu, is_reduced = model.compute.device.type == "cpu", False
    is_large = is_cpu and given_height * given_width > LARGE

    def compute_band(band: Tile, report: Report) -> Maps:
        found = compute(views[0][band.rows], views[1][band.rows], report)
        if is_large:
            device.release_freed_memory()  # fragments between live blocks would add up
        return found

    with nullcontext() if is_cpu else GPU_TURNS[model.compute.device]:
        rows, fewest = _count_rows(model, views, originals, limit, results)
        while True:
            try:
                if rows >= height:
                    found = compute(*views, progress)
                else:
                    bands = make_bands(height, width, rows, model.halo, model.multiple)
                    found = compute_parts(bands, compute_band, progress, scale)
                break
            except (MemoryError, RuntimeError) as error:
                fewer = max(fewest, min(rows, height) // 2)
                if not device.is_memory_error(error) or fewer >= min(rows, height):
                    with device.catch_memory_errors(f"not enough memory for a pair of {width}x{height}"):
                        raise
            rows, is_reduced = fewer, True
            model.release_memory()
    if is_reduced:
        LOG.warning("not enough memory for %dx%d at once: computed in bands of %d rows", width, height, rows)
    if is_large:
        device.release_freed_memory()
    if progress is not None:
        progress(1)
    return found


def _count_rows(
    model: StereoModel, views: Pair, originals: Pair, limit: Limit | None, results: int
) -> tuple[int, int]:
    """Return how many rows to compute at a time, and the fewest; raise DeviceError if these do not fit."""
    height, width, multiple = *map(int, views[0].shape[:2]), model.multiple
    held = images = 0
    if model.compute.device.type == "cpu":
        held = results + (0 if originals[0] is views[0] else views[0].nbytes + views[1].nbytes)
        images = PAIRS_AT_ONCE * (originals[0].nbytes + originals[1].nbytes)
    fewest = min(-(-(2 * model.halo + FEWEST) // multiple), -(-height // multiple)) * multiple
    factor = FRAGMENTATION * model.memory_factor
    least = held + int(factor * predict_memory(model.spec, *(model.size or (fewest, width))))
    whole = int(factor * predict_memory(model.spec, *(model.size or (height, width))))
    pair = f"a pair of {originals[0].shape[1]}x{originals[0].shape[0]}"
    most = math.inf
    if limit is not None:
        most = limit.most - limit.used - images
        if least > most:
            raise DeviceError(
                f"{pair} does not fit into `max_memory` {device.format_bytes(limit.most)}",
                f"set `max_memory` to at least {device.format_bytes(limit.used + images + least)}",
            )
    if (free := device.get_free_memory(model.compute.device)) is not None:
        if least > free:
            needed, known = device.format_bytes(least), device.format_bytes(free)
            raise DeviceError(f"{pair} needs {needed} of memory, only {known} are free", device.HINT)
        most = min(most, max(least, int(FREE_MEMORY_SHARE * free)))
    if held + whole <= most:
        return height, fewest
    rows = int(most - held) * height // max(whole, 1)
    return max(fewest, rows // multiple * multiple), fewest


def predict_memory(spec: ModelSpec | Description, height: int, width: int) -> float:
    """Predict the bytes that a network needs for images of a size, see `scripts/measure_memory.py`."""
    height, width = height + -height % spec.row.multiple, width + -width % spec.row.multiple
    per_pixel, per_pixel_and_column = spec.row.memory
    return height * width * (per_pixel + per_pixel_and_column * width)
