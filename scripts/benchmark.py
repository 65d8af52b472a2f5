"""Measure the speed of the networks beside OpenCV's StereoSGBM and bicubic upscaling, in one run.

python scripts/benchmark.py                                   # every device, precision and size
python scripts/benchmark.py --networks pasmnet2 --sizes 1248x384 --threads 1,2 --neighbours 0,2
python scripts/benchmark.py --networks pasmnet2 --efforts fast,normal,best --sizes 1248x384
python scripts/benchmark.py --devices cuda --json figures.json
python scripts/benchmark.py --compare figures.json            # exit code 1 if something got slower

Arrays in, arrays out, from Python. Variants alternate, so that a machine that slows down does so for all.
`ratio` is the median of the repetitions' times by that of the classical method on the CPU in the same
repetition, and `lowest` and `highest` are the quartiles. A figure got slower if its `lowest` is above the
`highest` of before. Neighbours are other processes that keep a core busy. The table goes to stdout.
"""

import argparse
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pamcli  # before torch: it says how threads wait
from pamcli.systems import count_cores

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
    parser.add_argument("--efforts", default="", help="fast, normal, best [default: at the image size]")
    parser.add_argument(
        "--threads", default="", help="numbers of threads of the CPU [default: 1 and all cores]"
    )
    parser.add_argument("--neighbours", default="0", help="numbers of busy processes")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures to a file, too")
    parser.add_argument("--compare", type=Path, help="say what got slower than in a file of --json")
    parser.add_argument("--one", nargs=2, type=int, metavar=("THREADS", "NEIGHBOURS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(measured(options, *options.one))))
        return
    before = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else None
    threads = [int(each) for each in (options.threads or f"1,{count_cores()}").split(",")]
    rows: list[dict[str, Any]] = []
    for count in sorted(set(threads)):
        for neighbours in map(int, options.neighbours.split(",")):
            command = [sys.executable, __file__, *sys.argv[1:], "--one", str(count), str(neighbours)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows += json.loads(done.stdout.splitlines()[-1])
    now = {"machine": machine(), "versions": versions(), "figures": rows}
    if options.json:
        options.json.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    columns = [*rows[0]]
    about = ", ".join(f"{name} {value}" for name, value in versions().items())
    print(f"{machine()}; {about}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(value) for value in row.values())} |")
    if before is not None:
        lines, is_slower = compared(before, now)
        print("", *lines, sep="\n")
        sys.exit(is_slower)


def compared(before: dict[str, Any], now: dict[str, Any]) -> tuple[list[str], bool]:
    """Return a line for each figure that two runs share, and whether one got slower beyond its noise."""
    old = {key_of(row): row for row in before["figures"]}
    lines, is_slower = [], False
    if before["machine"] != now["machine"]:
        lines.append(f"Measured before on {before['machine']}: the ratios may differ for that reason.")
    for row in now["figures"]:
        then = old.get(key_of(row))
        if then is None or row["precision"] == "classical":
            continue
        slower, faster = row["lowest"] > then["highest"], row["highest"] < then["lowest"]
        verdict = "slower" if slower else "faster" if faster else "the same within the noise"
        is_slower |= slower
        lines.append(f"{' '.join(map(str, key_of(row)))}: {then['ratio']} -> {row['ratio']}, {verdict}")
    return lines, is_slower


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a figure."""
    names = "network", "size", "device", "precision", "effort", "threads", "neighbours"
    return tuple(row.get(name) for name in names)


def machine() -> str:
    """Return the processor and GPU that the figures were measured on."""
    import torch

    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(": ")[2] for line in info.splitlines() if line.startswith("model name")]
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return f"{(names or [platform.processor() or platform.machine()])[0]}, {count_cores()} cores, {gpu}"


def versions() -> dict[str, str]:
    """Return the versions of pam and of the libraries that the times depend on."""
    found = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "opencv-python-headless")}
    return {"pam": pamcli.__version__, "python": platform.python_version(), **found}


def measured(options: Any, threads: int, neighbours: int) -> Iterator[dict[str, Any]]:
    """Measure everything at a number of threads beside a number of busy processes."""
    import torch

    torch.set_num_threads(threads)
    for network in options.networks.split(","):
        task = "superres" if "passrnet" in network else "disparity"
        for size in (options.sizes or SIZES[task]).split(","):
            width, height = map(int, size.split("x"))
            pair = sample_pair(width, height)
            base = "cpu", "classical", ""
            runs: dict[tuple[str, str, str], Callable[[], Any]] = {base: classical(task, network, pair)}
            for device in options.devices.split(",") if options.devices else devices():
                for precision in options.precisions.split(",") if options.precisions else precisions(device):
                    for effort in options.efforts.split(","):
                        call = run_of(task, network, device, precision, effort, pair)
                        runs[device, precision, effort] = call
            times = alternate(runs, options.repeat, neighbours)
            for (device, precision, effort), seconds in times.items():
                ratios = [each / other for each, other in zip(seconds, times[base], strict=True)]
                quarter, _, three_quarters = statistics.quantiles(ratios * 2, n=4, method="inclusive")
                yield {
                    "network": ("SGBM" if task == "disparity" else "bicubic")
                    if precision == "classical"
                    else network,
                    "size": size,
                    "device": device,
                    "precision": precision,
                    "effort": effort,
                    "threads": threads,
                    "neighbours": neighbours,
                    "min ms": round(1000 * min(seconds), 1),
                    "median ms": round(1000 * statistics.median(seconds), 1),
                    "ratio": float(f"{statistics.median(ratios):.3g}"),
                    "lowest": float(f"{quarter:.3g}"),
                    "highest": float(f"{three_quarters:.3g}"),
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


def run_of(task: str, network: str, device: str, precision: str, effort: str, pair: Any) -> Callable[[], Any]:
    """Return a call that matches or upscales the pair."""
    from pamcli import StereoMatcher, StereoUpscaler

    if task == "disparity":
        size: Any = {"effort": effort} if effort else {"match_size": 1.0}
        matcher = StereoMatcher.load(network, device=device, precision=precision, **size)
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
    runs: dict[tuple[str, str, str], Callable[[], Any]], repeat: int, neighbours: int
) -> dict[tuple[str, str, str], list[float]]:
    """Time all calls in turn, after two each that do not count (a GPU records its graph in the second)."""
    for run in runs.values():
        run()
        run()
    times: dict[tuple[str, str, str], list[float]] = {key: [] for key in runs}
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
