"""Traces of JPEG in pictures: as they are, and after JPEG of known qualities.

python scripts/measure_jpeg_traces.py PAIRS/left PAIRS/right PHOTOS ...

Prints how many pictures as they are show traces, with their names, and how many show the right ones after
JPEG: of the whole picture, of a random cut-out of 200 x 200 px, and after a second JPEG of quality 95.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pamcli.errors import PamError
from pamcli.files.suffixes import PICTURE_SUFFIXES
from pamcli.imaging.camera_faults import traced_quality
from pamcli.imaging.degrading import compressed
from pamcli.imaging.images import eight_bits, read_picture

QUALITIES = 60, 75, 85, 90
AGAIN = 95
SIDE = 200  # pixels, of the cut-outs
CLOSE = 2  # of the quality, for traces to be right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    files = sorted(file for folder in parser.parse_args().folders for file in folder.rglob("*"))
    files = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    rng = np.random.default_rng(0)
    traced: dict[Path, int] = {}
    right: dict[tuple[str, int], list[bool]] = {}
    for file in files:
        picture = eight_bits(read_picture(file).pixels)
        found = traced_quality(picture)
        if found is not None:
            traced[file] = found
        for kind, quality, made in saved(picture, rng):
            found = traced_quality(made)
            right.setdefault((kind, quality), []).append(found is not None and abs(found - quality) <= CLOSE)
    print(
        f"{len(traced)} of {len(files)} as they are",
        *(f"{file}: {traced[file]}" for file in traced),
        sep="\n",
    )
    for (kind, quality), each in right.items():
        print(f"{kind}, quality {quality}: {sum(each)} of {len(each)}")


def saved(picture: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, int, np.ndarray]]:
    """Kinds, qualities and pixels of what a picture becomes."""
    for quality in QUALITIES:
        whole = compressed(picture, quality)
        top, left = (rng.integers(0, max(1, side - SIDE)) for side in picture.shape[:2])
        yield "whole", quality, whole
        yield "a part", quality, whole[top : top + SIDE, left : left + SIDE]
        yield f"then JPEG of {AGAIN}", quality, compressed(whole, AGAIN)


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
