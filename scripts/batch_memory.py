"""Measure the memory of a long batch before and while it runs, with jobs that do nothing.

python scripts/batch_memory.py --pairs 10000 100000 1000000

The images are empty files in a temporary directory (two per pair), which is removed at the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Literal

from pamcli.batch.plan import plan_batch
from pamcli.files.outputs import OutputKind
from pamcli.settings.batches import MatchSettings

DISPARITY = OutputKind("disparity", "`output`", (".pfm",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 10_000])
    counts = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = 0
        for count in sorted(counts):
            write_pairs(made, count)
            made = count
            for stream in (True, False):
                with multiprocessing.get_context("spawn").Pool(1) as alone:
                    memory, seconds = alone.apply(work_off, (stream,))
                how = "read as it is worked off" if stream else "checked before"
                print(
                    f"{count} pairs, {how}: {memory / 1e3:.1f} MB, {seconds:.1f} s of the processor",
                    flush=True,
                )
        os.chdir("/")


def write_pairs(first: int, end: int) -> None:
    """Pictures and lines of the list, a thousand pairs a folder."""
    with open("list.tsv", "a", encoding="utf-8") as lines:
        for number in range(first, end):
            place = Path(f"flight{number // 1000}")
            place.mkdir(exist_ok=True)
            views = [f"{place}/{number}_{side}.png" for side in ("left", "right")]
            for view in views:
                os.close(os.open(view, os.O_CREAT | os.O_WRONLY))
            lines.write("\t".join(views) + "\n")


def work_off(stream: bool) -> tuple[int, float]:
    """Run the batch; return its memory, kB, and its processor time, s."""
    start, before = time.process_time(), most_memory()
    engine: Literal["ray", "local"] = "ray" if stream else "local"  # a cluster does not wait for the list
    plan = plan_batch(MatchSettings(pairs="list.tsv", engine=engine, output="out/"), [DISPARITY])
    deque(plan.jobs(), maxlen=0)
    return most_memory() - before, time.process_time() - start


def most_memory() -> int:
    """Most memory that this process took so far, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
