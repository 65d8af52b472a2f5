"""Figures of a set of pairs: how large, which disparities, how sharp, how much in them, what is there twice.

Of the four columns of the paper's table of data sets (`tab4`) the pairs and the pixels per image are here.
CNNIQA and SR-metric are judgements of trained models, whose weights no paper contains.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.imaging.matching import grey, match_densely, reduced, reduction
from pamcli.workers import done_in_processes

LUMA = (0.2989, 0.5870, 0.1140)  # weights of red, green and blue in a grey value, as in MATLAB's rgb2gray
_HASH = 16  # a side of the differences that stand for a picture
_ALIKE = 12  # of their 256 bits, at most, that may differ between two copies of a picture
_REDUCED, _SMALLEST = 256, 16  # pixels: the width at which disparities are looked for, and the least side
_BEHIND, _BEFORE = 0.12, 0.4  # of the width: as far disparities reach below and above zero
_TEXTURE = 4.0  # root mean square of the slope along a row, grey levels a pixel, below which nothing matches


@dataclass(frozen=True)
class PairFigures:
    """What is found of one pair."""

    name: str
    pixels: int
    sharpness: float
    """Mean length of the gradient of the left picture, grey levels of 8 bits per pixel."""
    entropy: float
    """Bits: Shannon's, of the histogram of the left picture's grey levels, as MATLAB's `entropy`."""
    smallest_disparity: float
    """Estimated: the 1st percentile of block matches that agree in both directions, pixels; NaN = too few."""
    largest_disparity: float
    """The 99th percentile."""
    same_views: bool
    """Left and right hold the same pixels."""
    checksum: str
    """SHA-256 of the left picture's pixels."""
    look: int
    """256 bits that hardly change when a picture is resized or compressed."""


@dataclass(frozen=True)
class SetFigures:
    """What is found of a set."""

    pairs: tuple[PairFigures, ...]
    damaged: tuple[tuple[str, str], ...]
    """Samples that cannot be read, with the reason."""
    copies: tuple[tuple[str, str], ...]
    """Pairs whose left pictures are equal in every pixel."""
    near_copies: tuple[tuple[str, str], ...]
    """Pairs whose left pictures look alike."""

    @property
    def same_views(self) -> list[str]:
        """Pairs of the same picture twice."""
        return [pair.name for pair in self.pairs if pair.same_views]

    def repeated(self) -> list[str]:
        """State what is there twice, a line each."""
        return [
            *(f"{second} is a copy of {first}" for first, second in self.copies),
            *(f"{second} looks like {first}" for first, second in self.near_copies),
            *(f"left and right of {name} are the same picture" for name in self.same_views),
        ]

    def row(self) -> dict[str, float]:
        """Pairs; means of pixels per image, sharpness and entropy; the 5th percentile of the pairs' smallest
        disparities and the 95th of the largest. NaN where no pair has a figure."""

        def known(name: str) -> NDArray[np.float64]:
            values = np.array([getattr(pair, name) for pair in self.pairs], np.float64)
            return values[np.isfinite(values)] if np.isfinite(values).any() else np.array([np.nan])

        return {
            "pairs": len(self.pairs),
            "pixels": float(known("pixels").mean()),
            "smallest_disparity": float(np.percentile(known("smallest_disparity"), 5)),
            "largest_disparity": float(np.percentile(known("largest_disparity"), 95)),
            "sharpness": float(known("sharpness").mean()),
            "entropy": float(known("entropy").mean()),
        }


def set_figures(
    source: Source, indices: Sequence[int], workers: int = 1, advance: Callable[[], None] = lambda: None
) -> SetFigures:
    """Figures of the samples `indices` of a source. Damaged samples are listed, not raised."""
    found = {}
    for index, result in done_in_processes(partial(_figures_of, source), indices, workers):
        found[index] = result
        advance()
    results = dict(sorted(found.items()))
    pairs = tuple(each for each in results.values() if isinstance(each, PairFigures))
    damaged = [(source.names[i], each.message) for i, each in results.items() if isinstance(each, InputError)]
    return SetFigures(pairs, tuple(damaged), *_copies(pairs))


def _figures_of(source: Source, index: int) -> PairFigures:
    return pair_figures(source.load(index))


def pair_figures(sample: Sample) -> PairFigures:
    """Figures of one pair, of 8 or 16 bits; all are in levels of 8 bits."""
    scale = np.float32(257 if sample.left.dtype == np.uint16 else 1)
    left = (sample.left.astype(np.float32) / scale @ np.array(LUMA, np.float32)).clip(0, 255)
    smallest, largest = disparity_range(sample.left, sample.right)
    rows, columns = np.gradient(left) if min(left.shape) > 1 else (left * 0, left * 0)
    counts = np.bincount(np.rint(left).astype(np.intp).ravel(), minlength=256).astype(np.float64)
    shares = counts[counts > 0] / counts.sum()
    # Whether each of 16 x 16 areas is brighter than the one to its right.
    small = np.asarray(Image.fromarray(left).resize((_HASH + 1, _HASH), Image.Resampling.BOX))
    brighter = np.packbits(small[:, :-1] > small[:, 1:])
    return PairFigures(
        name=sample.name,
        pixels=left.size,
        sharpness=float(np.hypot(rows, columns).mean()),
        entropy=abs(float(-(shares * np.log2(shares)).sum())),
        smallest_disparity=smallest,
        largest_disparity=largest,
        same_views=np.array_equal(sample.left, sample.right),
        checksum=hashlib.sha256(np.ascontiguousarray(sample.left).data).hexdigest(),
        look=int.from_bytes(brighter.tobytes(), "big"),
    )


def disparity_range(left: NDArray[np.generic], right: NDArray[np.generic]) -> tuple[float, float]:
    """1st and 99th percentile of the disparities of a pair, (H, W, 3), in pixels; NaN: too few matches.

    Of pictures reduced to 256 columns by a whole number; a match counts where there is texture along the row
    and both directions agree. Good to about a pixel of the reduced picture.
    """
    import cv2

    factor = reduction(left.shape, left.shape[0] * left.shape[1], _REDUCED)
    width = left.shape[1] // factor
    if min(width, left.shape[0] // factor) < _SMALLEST:
        return float("nan"), float("nan")
    first, second = (grey(reduced(view, factor)) for view in (left, right))
    match = match_densely(first, second, -round(_BEHIND * width), round(_BEFORE * width))
    slopes = np.gradient(first.astype(np.float32), axis=1)  # nothing else shows where on the row a pixel is
    agreed = match.first_seen & (cv2.blur(slopes**2, (7, 7)) > _TEXTURE**2)
    if agreed.sum() < max(50, 0.02 * agreed.size):
        return float("nan"), float("nan")
    low, high = np.percentile(match.first[agreed], [1, 99])
    return float(low * factor), float(high * factor)


def _copies(pairs: Sequence[PairFigures]) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Pairs that are there twice, and those that look alike; each with the first that it is like."""
    same, near = [], []
    seen: dict[str, str] = {}
    looks = np.array([np.frombuffer(pair.look.to_bytes(32, "big"), np.uint8) for pair in pairs], np.uint8)
    for index, pair in enumerate(pairs):
        if pair.checksum in seen:
            same.append((seen[pair.checksum], pair.name))
            continue
        seen[pair.checksum] = pair.name
        if pair.look.bit_count() in range(16, 241):  # of a plain picture it says nothing
            differing = np.bitwise_count(looks[:index] ^ looks[index]).sum(axis=1)
            alike = np.flatnonzero(differing <= _ALIKE)
            if len(alike) and pairs[alike[0]].checksum != pair.checksum:
                near.append((pairs[alike[0]].name, pair.name))
    return tuple(same), tuple(near)
