"""Images that do not fit into memory, or into a network: cut into parts, and their results joined.

A band has all columns of an image, for disparities run along rows, and a halo of rows above and below that
its own rows depend on. Networks of others that take one size alone are given tiles of that size.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE, Progress
from pamcli.inference.images import Pixels
from pamcli.inference.memory import (
    HINT,
    free_memory,
    give_back_freed_memory,
    is_memory_error,
    keep_freed_memory,
    memory_errors,
    readable,
    used_memory,
)
from pamcli.inference.model import StereoModel

LOG = logging.getLogger("pamcli")

Array = NDArray[Any]
RAMP = 0.25
"""Share of an overlap in which one part gives way to the next."""


COMFORTABLE = 0.7
"""Share of the free memory that is taken without being asked for more."""
FEWEST = 64
"""Rows of a band that count, at least: else nearly all work would be done twice."""
LARGE = 4_000_000
"""Pixels of images above which freed memory is given back to the system after each band."""
GAPS = 1.15
"""Times the predicted memory that is taken, for memory that is free may lie in pieces that are too small."""


@dataclass(frozen=True)
class Tile:
    """A part of an image."""

    rows: slice
    columns: slice
    weights: NDArray[np.float32]
    """(rows, columns): what its result counts; over all tiles 1 at each pixel."""


def spans(length: int, size: int, shared: int) -> list[tuple[int, int]]:
    """Return begin and end of equal pieces of a side, evenly spaced, neighbours sharing at least `shared`."""
    if length <= size:
        return [(0, length)]
    count = -(-(length - shared) // (size - shared))
    return [
        (begin, begin + size)
        for begin in (round(index * (length - size) / (count - 1)) for index in range(count))
    ]


def shares(pieces: Sequence[tuple[int, int]], middle: float = 0.5) -> list[NDArray[np.float32]]:
    """Return what each piece counts at each of its places, over all pieces 1.

    Where two share places, the first gives way to the second around `middle` of them, counted from 0 to 1.
    """
    found = [np.ones(end - begin, np.float32) for begin, end in pieces]
    for index, (one, other) in enumerate(pairwise(pieces)):
        shared = one[1] - other[0]
        place = (np.arange(shared, dtype=np.float32) + 0.5) / shared
        second = np.clip((place - middle) / RAMP + 0.5, 0, 1)
        found[index][len(found[index]) - shared :] *= 1 - second  # they may share nothing
        found[index + 1][:shared] *= second
    return found


def tiles(
    height: int, width: int, size: tuple[int, int], shared: tuple[int, int], middle: float
) -> Iterator[Tile]:
    """Cut an image into tiles of `size` (rows, columns) where it has as many, row by row.

    `middle`: of the columns that two tiles share, as of `shares`; of rows it is the middle.
    """
    rows, columns = spans(height, size[0], shared[0]), spans(width, size[1], shared[1])
    for down, weight in zip(rows, shares(rows), strict=True):
        for across, beside in zip(columns, shares(columns, middle), strict=True):
            yield Tile(slice(*down), slice(*across), weight[:, None] * beside)


def bands(height: int, width: int, rows: int, halo: int, multiple: int = 1) -> list[Tile]:
    """Cut an image into bands of at most `rows` rows, of which `halo` at each inner edge do not count.

    Networks pad at the top, to a multiple: bands lie on the grid that the padded image has.
    """
    if rows >= height:
        return [Tile(slice(0, height), slice(0, width), np.ones((height, width), np.float32))]
    above = -height % multiple
    units = (height + above) // multiple
    pieces = spans(units, max(rows // multiple, 1), min(-(-2 * halo // multiple), rows // multiple - 1))
    lines = [(max(first * multiple - above, 0), last * multiple - above) for first, last in pieces]
    return [
        Tile(slice(*line), slice(0, width), np.broadcast_to(weight[:, None], (len(weight), width)))
        for line, weight in zip(lines, shares(lines), strict=True)
    ]


def join(
    parts: Sequence[Tile],
    compute: Callable[[slice, slice, Progress], dict[str, Array]],
    *,
    scale: int = 1,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Compute every part and join the results.

    Args:
        parts: What `tiles` or `bands` return: together they cover the image.
        compute: From rows and columns of the image, and what is told of progress, to results by name,
            (scale h, scale w) or with channels behind. Floating-point results are blended; of others the
            part that counts most is taken.
        scale: How many times larger results are than the image.
        progress: Is told the share of the work that is done.
    """
    tell = progress or (lambda share: None)
    if len(parts) == 1:
        return compute(parts[0].rows, parts[0].columns, tell)
    height, width = parts[-1].rows.stop, parts[-1].columns.stop
    joined: dict[str, Array] = {}
    for number, part in enumerate(parts):
        place = tuple(slice(scale * side.start, scale * side.stop) for side in (part.rows, part.columns))
        weights = part.weights.repeat(scale, 0).repeat(scale, 1) if scale > 1 else part.weights
        begun = partial(_tell_part, tell, number, len(parts))
        found = compute(part.rows, part.columns, begun)
        for name, values in found.items():
            if name not in joined:
                joined[name] = np.zeros((scale * height, scale * width, *values.shape[2:]), values.dtype)
            counts = weights.reshape(*weights.shape, *(1,) * (values.ndim - 2))
            if values.dtype.kind == "f":
                joined[name][place] += counts.astype(values.dtype) * values
            else:
                np.copyto(joined[name][place], values, where=counts >= 0.5)
        tell((number + 1) / len(parts))
    return joined


def _tell_part(tell: Progress, number: int, count: int, share: float) -> None:
    """Tell what the share of one part is of all."""
    tell((number + share) / count)


class MemoryBudget:
    """The memory that a model may take, and how many rows of images fit into it."""

    def __init__(self, model: StereoModel, max_memory: int | None) -> None:
        """`max_memory`: bytes that the program may take in all; None: what is comfortable."""
        self.model, self.max_memory = model, max_memory
        self._device = model.compute.device
        keep_freed_memory()
        self._taken = used_memory(self._device)

    def run(
        self,
        compute: Callable[[Pixels, Pixels, Progress], dict[str, Array]],
        left: Pixels,
        right: Pixels,
        *,
        scale: int = 1,
        results: int = 0,
        given: tuple[Pixels, Pixels] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Array]:
        """Compute results of a pair by name, whole or in bands that are joined.

        Args:
            compute: From rows of both images, and what is told of progress, to results of the same rows,
                `scale` times larger.
            left: (H, W, 3), what the network is given.
            right: The same of the right image.
            scale: How many times larger results are.
            results: Bytes of the results, and of what else is held meanwhile.
            given: The images that these were made from, if they were resized.
            progress: Is told the share of the work that is done.

        Raises:
            DeviceError: Not even the smallest band fits.
        """
        height, width = left.shape[:2]
        given = given or (left, right)
        rows = self._rows(left, right, results, given)

        def compute_rows(lines: slice, _: slice, told: Progress) -> dict[str, Array]:
            found = compute(left[lines], right[lines], told)
            if given[0][..., 0].size > LARGE and self._device.type == "cpu":
                give_back_freed_memory()  # else gaps between what is held add up
            return found

        is_reduced = False
        while True:
            parts = bands(height, width, rows, self.model.halo, self.model.multiple)
            try:
                found = join(parts, compute_rows, scale=scale, progress=progress)
            except (MemoryError, RuntimeError) as error:
                fewer = max(self._fewest(height), min(rows, height) // 2)
                if not is_memory_error(error) or fewer >= min(rows, height):
                    with memory_errors(f"not enough memory for a pair of {width}x{height}"):
                        raise
            else:
                if is_reduced:
                    said = "not enough memory for %dx%d at once: computed in bands of %d rows"
                    LOG.warning(said, width, height, rows)
                return found
            rows, is_reduced = fewer, True
            if (runtime := getattr(self.model, "runtime", None)) is not None:
                runtime.forget()

    def _fewest(self, height: int) -> int:
        multiple = self.model.multiple
        least = 2 * self.model.halo + FEWEST
        return min(-(-least // multiple), -(-height // multiple)) * multiple

    def _need(self, height: int, width: int) -> int:
        return int(GAPS * self.model.memory(height, width))

    def _rows(self, left: Pixels, right: Pixels, results: int, given: tuple[Pixels, Pixels]) -> int:
        """Return how many rows to compute at a time. Raises DeviceError."""
        height, width = int(left.shape[0]), int(left.shape[1])
        free = free_memory(self._device)
        held = results + (0 if given[0] is left else left.nbytes + right.nbytes)
        images = PAIRS_AT_ONCE * sum(image.nbytes for image in given)  # a batch holds several pairs
        if self._device.type != "cpu":
            held = images = 0
        fewest = self._fewest(height)
        least = held + self._need(fewest, width)
        size = f"a pair of {given[0].shape[1]}x{given[0].shape[0]}"
        limits: list[int] = []
        if self.max_memory is not None:
            allowed = self.max_memory - self._taken - images
            if least > allowed:
                raise DeviceError(
                    f"{size} does not fit into `max_memory` {readable(self.max_memory)}",
                    f"`max_memory` {readable(self._taken + images + least)} is the least that would do",
                )
            limits.append(allowed)
        if free is not None:
            if least > free:
                raise DeviceError(
                    f"{size} needs {readable(least)} of memory, {readable(free)} are free", HINT
                )
            limits.append(max(least, int(COMFORTABLE * free)))
        if not limits or held + self._need(height, width) <= min(limits):
            return height + self.model.multiple
        multiple = self.model.multiple
        fitting = (min(limits) - held) * height // max(self._need(height, width), 1)  # it grows with the rows
        return max(fewest, fitting // multiple * multiple)
