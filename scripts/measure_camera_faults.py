"""Measure what `pam superres --input auto` detects in images, as they are and with JPEG and noise.

python scripts/measure_camera_faults.py PAIRS/left PAIRS/right PHOTOS ...

Prints in how many unchanged images JPEG traces and noise are detected, with their names; in how many the
right JPEG quality is detected after compression: in the whole image, in a random crop of 200x200 px, and
after a second compression with quality 95; and in how many added noise is detected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pamcli.errors import PamError
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.camera_faults import LEAST_NOISE, detect_jpeg_quality, measure_noise
from pamcli.imaging.degradation import Degradation, compress_jpeg
from pamcli.imaging.images import read_image, to_uint8

QUALITIES = 60, 75, 85, 90
AGAIN = 95
NOISE = 3, 4, 5, 10  # levels of 255
SIDE = 200  # px, of the crops
TOLERANCE = 2  # largest error of a detected JPEG quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    files = sorted(file for folder in parser.parse_args().folders for file in folder.rglob("*"))
    files = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    rng, noise_rng = np.random.default_rng(0), np.random.default_rng(1)
    traced: list[str] = []
    grainy: list[str] = []
    found: dict[str, list[bool]] = {}
    for file in files:
        image = to_uint8(read_image(file).pixels)
        quality, noise = detect_jpeg_quality(image), measure_noise(image)
        traced += [] if quality is None else [f"{file}: {quality}"]
        grainy += [] if noise < LEAST_NOISE else [f"{file}: {noise:.1f}"]
        for kind, used, pixels in compress(image, rng):
            quality = detect_jpeg_quality(pixels)
            right = quality is not None and abs(quality - used) <= TOLERANCE
            found.setdefault(f"{kind}, quality {used}", []).append(right)
        for level in NOISE:
            shown = measure_noise(Degradation(noise=level)(image, noise_rng)) >= LEAST_NOISE
            found.setdefault(f"noise of {level}", []).append(shown)
    for name, each in (("JPEG traces", traced), ("noise", grainy)):
        print(f"{name} in unchanged images: {len(each)} of {len(files)}", *each, sep="\n")
    for name, hits in found.items():
        print(f"{name}: {sum(hits)} of {len(hits)}")


def compress(image: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield kind, JPEG quality and pixels of each compressed variant of an image."""
    for quality in QUALITIES:
        whole = compress_jpeg(image, quality)
        top, left = (rng.integers(0, max(1, side - SIDE)) for side in image.shape[:2])
        yield "whole", quality, whole
        yield "crop", quality, whole[top : top + SIDE, left : left + SIDE]
        yield f"then quality {AGAIN}", quality, compress_jpeg(whole, AGAIN)


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
