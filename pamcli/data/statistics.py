"""Compute statistics of a set of pairs: sizes, disparity range, sharpness, entropy and duplicates."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pamcli.data.source import Sample, Source
from pamcli.errors import InputError
from pamcli.imaging.dense_matching import match_densely
from pamcli.imaging.images import choose_downscaling, downscale_to_uint8, to_grey
from pamcli.workers import run_in_processes

LUMA = (0.2989, 0.5870, 0.1140)  # weights of red, green and blue for grey values, as in MATLAB's rgb2gray
_HASH = 16  # side of the square of differences that represents an image
_ALIKE = 12  # bits of 256 that may differ between two copies of an image
_REDUCED, _SMALLEST = 256, 16  # px, width at which disparities are matched, and the smallest side
_BEHIND, _BEFORE = 0.12, 0.4  # parts of the width, range of disparities below and above zero
_TEXTURE = 4.0  # root mean square of the slope along a row (grey levels per px) that a match needs


@dataclass(frozen=True)
class PairFigures:
    """Statistics of one pair."""

    name: str
    pixels: int
    sharpness: float  # mean gradient length of the left image, in 8-bit grey levels per pixel
    entropy: float  # Shannon entropy (bits) of the histogram of grey levels, as MATLAB's `entropy`
    smallest_disparity: float  # estimate: 1st percentile of matches that agree in both directions, px
    largest_disparity: float  # estimate: 99th percentile, px
    same_views: bool  # True if left and right image have the same pixels
    checksum: str  # SHA-256 of the left image's pixels
    look: int  # perceptual hash of 256 bits; resizing and compression hardly change it


@dataclass(frozen=True)
class SetFigures:
    """Statistics of a set of pairs."""

    pairs: tuple[PairFigures, ...]
    damaged: tuple[tuple[str, str], ...]  # samples that cannot be read, with the reason
    copies: tuple[tuple[str, str], ...]  # pairs whose left images are identical
    near_copies: tuple[tuple[str, str], ...]  # pairs whose left images look alike

    @property
    def same_views(self) -> list[str]:
        """Names of the pairs whose left and right image are identical."""
        return [pair.name for pair in self.pairs if pair.same_views]

    def describe_copies(self) -> list[str]:
        """Return a line for each duplicate."""
        return [
            *(f"{second} is a copy of {first}" for first, second in self.copies),
            *(f"{second} looks like {first}" for first, second in self.near_copies),
            *(f"left and right of {name} are the same image" for name in self.same_views),
        ]

    def row(self) -> dict[str, float]:
        """Return the mean pixels, sharpness and entropy, and the 5th to 95th percentile of disparities."""

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


def measure_data_set(
    source: Source, indices: Sequence[int], workers: int = 1, advance: Callable[[], None] = lambda: None
) -> SetFigures:
    """Compute the statistics of the samples `indices`; damaged samples are listed, not raised."""
    found = {}
    for index, result in run_in_processes(partial(_measure_sample, source), indices, workers):
        found[index] = result
        advance()
    results = dict(sorted(found.items()))
    pairs = tuple(each for each in results.values() if isinstance(each, PairFigures))
    damaged = [(source.names[i], each.message) for i, each in results.items() if isinstance(each, InputError)]
    return SetFigures(pairs, tuple(damaged), *_find_copies(pairs))


def _measure_sample(source: Source, index: int) -> PairFigures:
    return measure_pair(source.load(index))


def measure_pair(sample: Sample) -> PairFigures:
    """Compute the statistics of one pair of 8 or 16 bits; grey levels are those of 8 bits."""
    scale = np.float32(257 if sample.left.dtype == np.uint16 else 1)
    left = (sample.left.astype(np.float32) / scale @ np.array(LUMA, np.float32)).clip(0, 255)
    smallest, largest = estimate_disparity_range(sample.left, sample.right)
    rows, columns = np.gradient(left) if min(left.shape) > 1 else (left * 0, left * 0)
    counts = np.bincount(np.rint(left).astype(np.intp).ravel(), minlength=256).astype(np.float64)
    shares = counts[counts > 0] / counts.sum()
    # The hash compares the brightness of each of 16 x 16 areas with that of its right neighbour.
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


def estimate_disparity_range(left: NDArray[np.generic], right: NDArray[np.generic]) -> tuple[float, float]:
    """Return the 1st and 99th percentile (px) of a pair's disparities, matched at 256 columns; or NaN."""
    import cv2

    factor = choose_downscaling(left.shape, left.shape[0] * left.shape[1], _REDUCED)
    width = left.shape[1] // factor
    if min(width, left.shape[0] // factor) < _SMALLEST:
        return float("nan"), float("nan")
    first, second = (to_grey(downscale_to_uint8(view, factor)) for view in (left, right))
    match = match_densely(first, second, -round(_BEHIND * width), round(_BEFORE * width))
    slopes = np.gradient(first.astype(np.float32), axis=1)  # only texture along the row locates a match
    agreed = match.first_seen & (cv2.blur(slopes**2, (7, 7)) > _TEXTURE**2)
    if agreed.sum() < max(50, 0.02 * agreed.size):
        return float("nan"), float("nan")
    low, high = np.percentile(match.first[agreed], [1, 99])
    return float(low * factor), float(high * factor)


def _find_copies(
    pairs: Sequence[PairFigures],
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return identical pairs and similar pairs, each with the first pair that it resembles."""
    same, near = [], []
    seen: dict[str, str] = {}
    looks = np.array([np.frombuffer(pair.look.to_bytes(32, "big"), np.uint8) for pair in pairs], np.uint8)
    for index, pair in enumerate(pairs):
        if pair.checksum in seen:
            same.append((seen[pair.checksum], pair.name))
            continue
        seen[pair.checksum] = pair.name
        if pair.look.bit_count() in range(16, 241):  # the hash of a uniform image is meaningless
            differing = np.bitwise_count(looks[:index] ^ looks[index]).sum(axis=1)
            alike = np.flatnonzero(differing <= _ALIKE)
            if len(alike) and pairs[alike[0]].checksum != pair.checksum:
                near.append((pairs[alike[0]].name, pair.name))
    return tuple(same), tuple(near)
