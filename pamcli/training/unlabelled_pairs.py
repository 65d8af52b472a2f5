"""Provide pairs without ground truth for training (pseudo-labels) and validation (block matching)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.files.atomic import write_atomically
from pamcli.files.paths import join_names, quote
from pamcli.imaging.disparity_files import encode_disparity, read_disparity
from pamcli.imaging.images import to_uint8
from pamcli.imaging.matching import match_reliably, to_grey
from pamcli.imaging.resize import resize_nearest
from pamcli.inference.images import choose_matching_size, resize_image

FEWEST = 5  # minimum number of pairs to hold some out
MOST_HELD_OUT, MOST_LEARNED = 16, 100  # bound the time for labelling and validation
SEARCH_RANGE = 0.25  # search range of block matching, as a fraction of the width
BLOCK_PIXELS = 1_000_000  # for block matching, which needs four bytes per pixel and disparity
REMARK = " held out, against block matching"

# minimum relative decrease of D1 that counts as better; differences of less than 1/17 are noise
CLEARLY = 0.1


Rgb = NDArray[np.uint8]
Values = NDArray[np.float32]


class UnlabelledPairs(Source):
    """Pairs of a data set at matching resolution, with disparities from a folder."""

    def __init__(self, source: Source, indices: Sequence[int], folder: Path) -> None:
        self.source, self.indices, self.folder = source.without_truth(), tuple(indices), folder
        self.names = tuple(source.names[index] for index in indices)
        self.spec = source.spec

    def label_of(self, index: int) -> Path:
        return self.folder / f"{self.indices[index]:06d}.tif"

    def list_unlabelled(self) -> list[int]:
        return [index for index in range(len(self)) if not self.label_of(index).exists()]

    def write_label(self, index: int, find: Callable[[Rgb, Rgb], Values]) -> None:
        """Compute the disparity map of a pair by `find`, and write it."""
        path = self.label_of(index)
        write_atomically(path, encode_disparity(find(*self.views(index)), path.suffix).data)

    def views(self, index: int) -> tuple[Rgb, Rgb]:
        """Load both images (H, W, 3); raise InputError on failure."""
        sample = self.source.load(self.indices[index])
        size = choose_matching_size("auto", *sample.left.shape[:2])
        views = [resize_image(to_uint8(view), *size) for view in (sample.left, sample.right)]
        return to_uint8(views[0]), to_uint8(views[1])

    def load(self, index: int) -> Sample:
        """Load a pair with its label; raise InputError, also if the label is missing or damaged."""
        left, right = self.views(index)
        path, hint = self.label_of(index), "start a new run, which computes new labels"
        try:
            disparity = read_disparity(path)
        except InputError as error:
            raise InputError(error.message, hint) from error
        if disparity.shape != left.shape[:2]:
            raise InputError(f"{quote(path)} has another size than the pair {quote(self.names[index])}", hint)
        return Sample(self.names[index], left, right, disparity=disparity)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


def split_pairs(source: Source, share: float, folder: Path) -> tuple[UnlabelledPairs, UnlabelledPairs | None]:
    """Split pairs into those to train on and evenly spaced held-out ones, None if too few.

    Neighbours of held-out pairs are dropped first, because adjacent video frames are nearly equal.
    """
    count = len(source)
    held_out: list[int] = []
    if share and count >= FEWEST:
        most = min(MOST_HELD_OUT, max(1, round(share * count)))
        held_out = [int((place + 0.5) * count / most) for place in range(most)]
    rest = [index for index in range(count) if index not in set(held_out)]
    if held_out and len(rest) > MOST_LEARNED:
        gap = (len(rest) - MOST_LEARNED) // (2 * len(held_out))
        near = {index + step for index in held_out for step in range(-gap, gap + 1)}
        rest = [index for index in rest if index not in near]
    if len(rest) > MOST_LEARNED:
        rest = [rest[int(place * len(rest) / MOST_LEARNED)] for place in range(MOST_LEARNED)]
    # Earlier versions call this folder "aside", too.
    kept = UnlabelledPairs(source, held_out, folder / "aside") if held_out else None
    return UnlabelledPairs(source, rest, folder), kept


def describe_split(learned: UnlabelledPairs, held_out: UnlabelledPairs | None) -> list[str]:
    count = len(learned.source)
    if held_out is None:
        few = f"{count} pairs are too few to hold some out (at least {FEWEST})"
        return [f"{few}, so the new weights cannot be compared with the initial ones"]
    lines = [f"held out for validation: {len(held_out)} of {count} pairs ({join_names(held_out.names)})"]
    if len(learned) + len(held_out) < count:
        lines.append(f"training uses {len(learned)} of the others, evenly spaced")
    return lines


def has_labels(pairs: UnlabelledPairs) -> bool:
    """Return whether any pixel has a positive label; raise InputError for a missing or damaged file."""
    labels = (pairs.load(index).disparity for index in range(len(pairs)))
    return any(label is not None and bool((label > 0).any()) for label in labels)


def match_blocks(left: Rgb, right: Rgb) -> Values:
    """Return disparities (H, W), px, of a pair (H, W, 3) where block matching is confident; else NaN."""
    height, width = left.shape[:2]
    times = max(1.0, (height * width / BLOCK_PIXELS) ** 0.5)
    rows, columns = round(height / times), round(width / times)
    one, other = (to_grey(to_uint8(resize_image(view, rows, columns))) for view in (left, right))
    found = match_reliably(one, other, max(16, int(SEARCH_RANGE * columns)))
    return resize_nearest(found, width, height) * np.float32(width / columns)
