"""How much faster patches are read from the packed store than from the tree of PNG files.

    python scripts/benchmark_patches.py pairs:FOLDER [--scale 2] [--patches 5000]

Both stores are made of the same pairs in a temporary folder; the same patches are then read from both in the
same shuffled order, as training reads them, in turns of a fifth. Files are in the system's cache by then.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from pamcli.data.open import open_data, parse_data
from pamcli.data.picture_pairs import listed_pairs
from pamcli.data.source import Source
from pamcli.flickr1024.prepare import carry_out, finish, plan_preparation
from pamcli.flickr1024.stores import StoreName
from pamcli.flickr1024.unfinished import size_text

TURNS = 5
STORES: tuple[StoreName, ...] = ("folders", "packed")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to read a patch from both kinds of store.")
    parser.add_argument("data", help="pairs to cut patches from, NAME:PATH")
    parser.add_argument("--scale", type=int, choices=(2, 4), default=2)
    parser.add_argument("--patches", type=int, default=5000, help="how many are read")
    parser.add_argument("--workers", type=int, default=2, help="processes that make the stores")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = {}
        for store in STORES:
            sources[store] = made(given.data, Path(folder, store), given.scale, store, given.workers)
            files = [file for file in Path(folder, store).rglob("*") if file.is_file()]
            size = size_text(sum(file.stat().st_size for file in files))
            print(f"{store:8} {len(sources[store]):,} patches in {len(files):,} files, {size}", flush=True)
        order = np.random.default_rng(0).permutation(len(sources["packed"]))[: given.patches]
        seconds = dict.fromkeys(STORES, 0.0)
        for turn in np.array_split(order, TURNS):
            for store in STORES:
                start = time.perf_counter()
                for index in turn:
                    sources[store].load(int(index))
                seconds[store] += time.perf_counter() - start
    for store, total in seconds.items():
        print(f"{store:8} {1e3 * total / len(order):.3f} ms a patch, {len(order) / total:,.0f} patches/s")
    print(f"packed reads {len(order):,} patches {seconds['folders'] / seconds['packed']:.1f} times as fast")


def made(data: str, folder: Path, scale: int, store: StoreName, workers: int) -> Source:
    """The patches of a data set, opened from a store that is made for it."""
    spec = parse_data(data)
    plan = plan_preparation(listed_pairs(open_data(spec), spec.info.name).pairs, folder, scale, store)
    finish(plan, carry_out(plan, workers))
    return open_data(f"flickr1024:{folder}")


if __name__ == "__main__":
    main()
