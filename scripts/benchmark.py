"""Measure the speed of the networks beside OpenCV's StereoSGBM and bicubic upscaling, in one run.

python scripts/benchmark.py                                   # every device, precision and size
python scripts/benchmark.py --networks pasmnet2 --sizes 1248x384 --threads 1,2 --neighbours 0,2
python scripts/benchmark.py --devices cuda --json figures.json

Arrays in, arrays out, from Python. Variants alternate, so that a machine that slows down does so for all; the
fastest repetition and the median are printed, and their ratio to the classical method on the CPU. Neighbours
are other processes that keep a core busy. The table goes to stdout as Markdown.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parent / "sample"
SIZES = {"disparity": "640x480,1248x384,1920x1080", "superres": "310x93,480x270"}
NETWORKS = "pasmnet2,pasmnet,passrnet2-x4,passrnet-x4"


def main() -> None:
    """Measure each number of threads and neighbours in a process of its own, and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--sizes", default="", help="WIDTHxHEIGHT, ... [default: by task]")
    parser.add_argument("--devices", default="", help="cpu, cuda, mps [default: all that are there]")
    parser.add_argument("--precisions", default="", help="fp32, bf16, fp16 [default: all of the device]")
    parser.add_argument(
        "--threads", default="", help="numbers of threads of the CPU [default: 1 and all cores]"
    )
    parser.add_argument("--neighbours", default="0", help="numbers of busy processes")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to a file, too")
    parser.add_argument("--one", nargs=2, type=int, metavar=("THREADS", "NEIGHBOURS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(measured(options, *options.one))))
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = [int(each) for each in (options.threads or f"1,{cores}").split(",")]
    rows: list[dict[str, Any]] = []
    for count in sorted(set(threads)):
        for neighbours in map(int, options.neighbours.split(",")):
            command = [sys.executable, __file__, *sys.argv[1:], "--one", str(count), str(neighbours)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows += json.loads(done.stdout.splitlines()[-1])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "figures": rows}, indent=1) + "\n")
    columns = [*rows[0]]
    print(f"{machine()}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(value) for value in row.values())} |")


def machine() -> str:
    """Return what the figures were measured on."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return f"{platform.processor() or platform.machine()}, {gpu}, torch {torch.__version__}"


def measured(options: Any, threads: int, neighbours: int) -> Iterator[dict[str, Any]]:
    """Measure everything at a number of threads beside a number of busy processes."""
    importlib.import_module("pamcli")  # before torch: it says how threads wait
    import torch

    torch.set_num_threads(threads)
    for network in options.networks.split(","):
        task = "superres" if "passrnet" in network else "disparity"
        for size in (options.sizes or SIZES[task]).split(","):
            width, height = map(int, size.split("x"))
            pair = sample_pair(width, height)
            runs: dict[tuple[str, str], Callable[[], Any]] = {
                ("cpu", "classical"): classical(task, network, pair)
            }
            for device in options.devices.split(",") if options.devices else devices():
                for precision in options.precisions.split(",") if options.precisions else precisions(device):
                    runs[device, precision] = run_of(task, network, device, precision, pair)
            times = alternate(runs, options.repeat, neighbours)
            base = times["cpu", "classical"]
            for (device, precision), seconds in times.items():
                yield {
                    "network": ("SGBM" if task == "disparity" else "bicubic")
                    if precision == "classical"
                    else network,
                    "size": size,
                    "device": device,
                    "precision": precision,
                    "threads": threads,
                    "neighbours": neighbours,
                    "min ms": round(1000 * min(seconds), 1),
                    "median ms": round(1000 * statistics.median(seconds), 1),
                    "by classical": round(min(seconds) / min(base), 2),
                }


def devices() -> list[str]:
    """Return the kinds of device that are there."""
    import torch

    kinds = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    return kinds + ["mps"] * torch.backends.mps.is_available()


def precisions(device: str) -> list[str]:
    """Return the precisions in which a device computes natively."""
    from pamcli.inference.device import cpu_has_bf16

    return {"cpu": ["fp32"] + ["bf16"] * cpu_has_bf16(), "mps": ["fp32"]}.get(
        device, ["fp32", "bf16", "fp16"]
    )


def run_of(task: str, network: str, device: str, precision: str, pair: Any) -> Callable[[], Any]:
    """Return a call that matches or upscales the pair."""
    from pamcli import StereoMatcher, StereoUpscaler

    if task == "disparity":
        matcher = StereoMatcher.load(network, device=device, precision=precision, match_size=1.0)
        return lambda: matcher(*pair)
    upscaler = StereoUpscaler.load(network, device=device, precision=precision)
    return lambda: upscaler(*pair)


def classical(task: str, network: str, pair: Any) -> Callable[[], Any]:
    """Return a call of OpenCV's StereoSGBM, or of bicubic upscaling of both images."""
    import cv2

    if task == "disparity":
        count = -(-pair[0].shape[1] // 8 // 16) * 16
        matcher = cv2.StereoSGBM.create(0, count, 5, 8 * 3 * 25, 32 * 3 * 25, 1, 63, 10, 100, 2)
        return lambda: matcher.compute(*pair)
    scale = int(network[-1])
    size = scale * pair[0].shape[1], scale * pair[0].shape[0]
    return lambda: [cv2.resize(image, size, interpolation=cv2.INTER_CUBIC) for image in pair]


def alternate(
    runs: dict[tuple[str, str], Callable[[], Any]], repeat: int, neighbours: int
) -> dict[tuple[str, str], list[float]]:
    """Time all calls in turn, after two each that do not count (a GPU records its graph in the second)."""
    for run in runs.values():
        run()
        run()
    times: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    with busy(neighbours):
        for _ in range(repeat):
            for key, run in runs.items():
                begun = time.perf_counter()
                run()
                times[key].append(time.perf_counter() - begun)
    return times


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep other processes busy meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def sample_pair(width: int, height: int) -> Any:
    """Return the sample pair at a size."""
    import cv2

    from pamcli import read_image

    images = [read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right")]
    return [cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA) for image in images]


if __name__ == "__main__":
    main()
