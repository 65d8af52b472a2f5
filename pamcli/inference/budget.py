"""Running a model on images within a limit of memory: whole where they fit, else in bands of rows."""

import logging
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from pamcli.errors import DeviceError
from pamcli.inference import PAIRS_AT_ONCE
from pamcli.inference.memory import (
    HINT,
    free_memory,
    give_back_freed_memory,
    is_memory_error,
    keep_freed_memory,
    memory_errors,
    readable,
    taken_memory,
)
from pamcli.inference.model import StereoModel
from pamcli.inference.pictures import Pixels
from pamcli.inference.tiles import Progress, bands, join

Array = NDArray[Any]

LOG = logging.getLogger("pamcli")

COMFORTABLE = 0.7
"""Share of the free memory that is taken without being asked for more."""
FEWEST = 64
"""Rows of a band that count, at least: else nearly all work would be done twice."""
LARGE = 4_000_000
"""Pixels of images after which freed memory is given back to the system."""


class MemoryBudget:
    """The memory that a model may take, and how many rows of images fit into it."""

    def __init__(self, model: StereoModel, max_memory: int | None) -> None:
        """`max_memory`: bytes that the program may take in all; None: what is comfortable."""
        self.model, self.max_memory = model, max_memory
        self._device = model.compute.device
        keep_freed_memory()
        self._taken = taken_memory(self._device)

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
        rows = self._rows(left, right, results, given or (left, right))
        while True:
            parts = bands(height, width, rows, self.model.halo, self.model.multiple)
            try:
                found = join(
                    parts,
                    lambda lines, _, told: compute(left[lines], right[lines], told),
                    scale=scale,
                    progress=progress,
                )
            except (MemoryError, RuntimeError) as error:
                fewer = max(self._fewest(height), min(rows, height) // 2)
                if not is_memory_error(error) or fewer >= min(rows, height):
                    with memory_errors(f"not enough memory for a pair of {width}x{height}"):
                        raise
            else:
                if height * width > LARGE and self._device.type == "cpu":
                    give_back_freed_memory()
                return found
            rows = fewer
            LOG.warning(
                "not enough memory for %dx%d at once: continuing in bands of %d rows", width, height, rows
            )
            if (runtime := getattr(self.model, "runtime", None)) is not None:
                runtime.forget()

    def _fewest(self, height: int) -> int:
        multiple = self.model.multiple
        least = 2 * self.model.halo + FEWEST
        return min(-(-least // multiple), -(-height // multiple)) * multiple

    def _rows(self, left: Pixels, right: Pixels, results: int, given: tuple[Pixels, Pixels]) -> int:
        """Return how many rows to compute at a time. Raises DeviceError."""
        height, width = int(left.shape[0]), int(left.shape[1])
        need = self.model.memory
        free = free_memory(self._device)
        held = results + (0 if given[0] is left else left.nbytes + right.nbytes)
        images = PAIRS_AT_ONCE * sum(image.nbytes for image in given)  # a batch holds several pairs
        if self._device.type != "cpu":
            held = images = 0
        fewest = self._fewest(height)
        least = held + need(fewest, width)
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
        if not limits or held + need(height, width) <= min(limits):
            return height + self.model.multiple
        multiple = self.model.multiple
        fitting = (min(limits) - held) * height // max(need(height, width), 1)  # it grows with the rows
        return max(fewest, fitting // multiple * multiple)
