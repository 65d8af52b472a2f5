"""A person's own pairs, without a truth: labels to learn from, and pairs kept aside to measure on.

The labels are those of `labels`, by the network that a run begins with. On the pairs kept aside, weights are
measured against what block matching alone is sure of. That is no truth: it errs, too, and knows nothing of
bare walls. It ranks weights that are far apart as a truth does; small differences are chance (`CLEARLY`).
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.files.atomic import write_atomically
from pamcli.files.finding import listed, shown
from pamcli.imaging.disparity_files import encode_disparity, read_disparity
from pamcli.imaging.images import eight_bits
from pamcli.imaging.matching import agreed_disparity, grey
from pamcli.imaging.resize import nearest
from pamcli.inference.match_size import matched_size, resized

FEWEST = 5
MOST_ASIDE, MOST_LEARNED = 16, 100
"""Pairs. Of fewer than the first none are kept aside; the others bound the time of labels and measuring."""

SEARCHED = 0.25  # of the width, by block matching
BLOCK_PIXELS = 1_000_000
"""Pixels of the pictures that block matching alone looks at, which takes up to 2 GB of memory so."""

REMARK = " kept aside, against block matching"

CLEARLY = 0.1
"""Share by which D1 on the pairs kept aside must have fallen for new weights to count as better.

Against block matching four sets of weights had D1 3.5, 5.4, 6.8 and 16.7 % on ten KITTI pairs, with the truth
5.4, 6.8, 9.7 and 20.3 %. A small difference was uncertain by 0.2 points, a seventeenth.
"""


class OwnPairs(Source):
    """Some pairs of a data set, in the size in which they are matched, with disparities from a folder."""

    def __init__(self, source: Source, indices: Sequence[int], folder: Path) -> None:
        self.source, self.indices, self.folder = source.without_truth(), tuple(indices), folder
        self.names = tuple(source.names[index] for index in indices)
        self.spec = source.spec

    def label_of(self, index: int) -> Path:
        """The file of a pair's disparities."""
        return self.folder / f"{self.indices[index]:06d}.tif"

    def unlabelled(self) -> int:
        """How many pairs have no disparities yet."""
        return sum(not self.label_of(index).exists() for index in range(len(self)))

    def views(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Both pictures (H, W, 3). Raises InputError."""
        sample = self.source.load(self.indices[index])
        size = matched_size("auto", *sample.left.shape[:2])
        views = [resized(eight_bits(view), *size) for view in (sample.left, sample.right)]
        return eight_bits(views[0]), eight_bits(views[1])

    def load(self, index: int) -> Sample:
        """Load a pair with its label. Raises InputError also where that is gone or damaged."""
        left, right = self.views(index)
        path = self.label_of(index)
        try:
            disparity = read_disparity(path)
            if disparity.shape != left.shape[:2]:
                raise InputError(f"{shown(path)} has another size than the pair {shown(self.names[index])}")
        except InputError as error:
            raise InputError(error.message, "begin a new run, whose labels are found anew") from error
        return Sample(self.names[index], left, right, disparity=disparity)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


def apart(source: Source, share: float, folder: Path) -> tuple[OwnPairs, OwnPairs | None]:
    """The pairs to learn from, and those kept aside, evenly spaced; None: there are too few for that.

    Where there are more than are learned from, neighbours of those aside are left out first: the next frames
    of a video are almost the same pictures.
    folder: where the labels of both are to lie.
    """
    count = len(source)
    aside: list[int] = []
    if share and count >= FEWEST:
        most = min(MOST_ASIDE, max(1, round(share * count)))
        aside = [int((place + 0.5) * count / most) for place in range(most)]
    rest = [index for index in range(count) if index not in set(aside)]
    if aside and len(rest) > MOST_LEARNED:
        gap = (len(rest) - MOST_LEARNED) // (2 * len(aside))
        near = {index + step for index in aside for step in range(-gap, gap + 1)}
        rest = [index for index in rest if index not in near]
    if len(rest) > MOST_LEARNED:
        rest = [rest[int(place * len(rest) / MOST_LEARNED)] for place in range(MOST_LEARNED)]
    kept = OwnPairs(source, aside, folder / "aside") if aside else None
    return OwnPairs(source, rest, folder), kept


def said_of(learned: OwnPairs, aside: OwnPairs | None) -> list[str]:
    """What a person should know of the choice, a line each."""
    count = len(learned.source)
    if aside is None:
        return [
            f"none of {count} pairs is kept aside, so nothing tells whether the new weights are better; "
            f"{FEWEST} would do"
        ]
    lines = [f"kept aside, to be measured on: {len(aside)} of {count} pairs ({listed(aside.names)})"]
    if len(learned) + len(aside) < count:
        lines.append(f"learned from: {len(learned)} of the others, evenly spaced")
    return lines


def any_label(pairs: OwnPairs) -> bool:
    """Whether any pixel of them has a label that counts. Raises InputError: a file is gone or damaged."""
    truths = (pairs.load(index).disparity for index in range(len(pairs)))
    return any(truth is not None and bool((truth > 0).any()) for truth in truths)


Find = Callable[[NDArray[np.uint8], NDArray[np.uint8]], NDArray[np.float32]]
"""Finds the disparities (H, W) of both views (H, W, 3), NaN where there are none."""


def write_labels(labelled: OwnPairs, find: Find, indices: Iterable[int], go_on: Callable[[], bool]) -> bool:
    """Find the disparities of pairs that have none yet.

    go_on: asked before every pair; once it says no, the rest is left undone and the result is False.
    Raises InputError, OutputError, DeviceError.
    """
    for index in indices:
        if not go_on():
            return False
        if not (path := labelled.label_of(index)).exists():
            write_atomically(path, encode_disparity(find(*labelled.views(index)), path.suffix).data)
    return True


def sure_disparity(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Disparities (H, W) of a pair (H, W, 3) where block matching is sure of them, pixels; NaN elsewhere.

    It is searched in pictures of at most `BLOCK_PIXELS`: it takes four bytes for every pixel and disparity.
    """
    height, width = left.shape[:2]
    times = max(1.0, (height * width / BLOCK_PIXELS) ** 0.5)
    rows, columns = round(height / times), round(width / times)
    one, other = (grey(eight_bits(resized(view, rows, columns))) for view in (left, right))
    found = agreed_disparity(one, other, max(16, int(SEARCHED * columns)))
    return nearest(found, width, height).astype(np.float32) * np.float32(width / columns)
