"""Measure what `pam superres --input auto` detects in images, as they are and with JPEG and noise.

python scripts/measure_camera_faults.py PAIRS/left PAIRS/right PHOTOS ...

Prints how many pictures as they are show traces of JPEG, and noise, with their names; how many show the right
traces after JPEG: of the whole picture, of a random cut-out of 200 x 200 px, and after a second JPEG of
quality 95; and how many show noise after noise.
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
NOISE = 3, 5, 10  # levels of 255
SIDE = 200  # pixels, of the cut-outs
CLOSE = 2  # of the quality, for traces to be right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    files = sorted(file for folder in parser.parse_args().folders for file in folder.rglob("*"))
    files = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    rng, of_noise = np.random.default_rng(0), np.random.default_rng(1)
    traced: list[str] = []
    grainy: list[str] = []
    found: dict[str, list[bool]] = {}
    for file in files:
        picture = to_uint8(read_image(file).pixels)
        quality, noise = detect_jpeg_quality(picture), measure_noise(picture)
        traced += [] if quality is None else [f"{file}: {quality}"]
        grainy += [] if noise < LEAST_NOISE else [f"{file}: {noise:.1f}"]
        for kind, saved_at, made in saved(picture, rng):
            quality = detect_jpeg_quality(made)
            right = quality is not None and abs(quality - saved_at) <= CLOSE
            found.setdefault(f"{kind}, quality {saved_at}", []).append(right)
        for level in NOISE:
            shown = measure_noise(Degradation(noise=level)(picture, of_noise)) >= LEAST_NOISE
            found.setdefault(f"noise of {level}", []).append(shown)
    for name, each in (("traces of JPEG", traced), ("noise", grainy)):
        print(f"{name}, as they are: {len(each)} of {len(files)}", *each, sep="\n")
    for name, hits in found.items():
        print(f"{name}: {sum(hits)} of {len(hits)}")


def saved(picture: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, int, np.ndarray]]:
    """Kinds, qualities and pixels of what a picture becomes."""
    for quality in QUALITIES:
        whole = compress_jpeg(picture, quality)
        top, left = (rng.integers(0, max(1, side - SIDE)) for side in picture.shape[:2])
        yield "whole", quality, whole
        yield "a part", quality, whole[top : top + SIDE, left : left + SIDE]
        yield f"then JPEG of {AGAIN}", quality, compress_jpeg(whole, AGAIN)


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
