"""How fast pam is, and in how much memory, beside the authors' order of operations, OpenCV's StereoSGBM and
bicubic enlargement: ratios of one run.

python scripts/benchmark.py                       # everything: an hour on two cores
python scripts/benchmark.py --quick               # the smallest sizes
python scripts/benchmark.py --pasmnet 384x1248 --superres none --growth none --json figures.json
python scripts/benchmark.py --quick --superres none --no-memory --only pasmnet2,StereoSGBM --parts

Plain is the transcription in tests/networks/reference.py: batch norm not folded, one view after the other,
four products, whole maps. Repetitions alternate between the variants, so that a machine that slows down does
so for all; the fastest counts, the median stands beside it. Memory is that above the loaded network, of each
variant alone in a process. Sizes are HEIGHTxWIDTH. Super-resolution is that of both views, or of the left
view alone where no variant's name has a network. With --parts the time of each network is split: that of
PASMnet 2 into convolutions, attention (costs, both normalisations, the first disparity), looking up costs and
mixing disparities; that of others by torch's operations. Figures come to stderr as they are measured, and at
the end as one table in Markdown to stdout.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.imaging.images import eight_bits, read_picture
from pamcli.imaging.matching import grey
from pamcli.inference.device import Compute, processor_has_bf16, processor_has_int8
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.memory import free_memory
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.catalog import locate
from pamcli.registry.load import Network, load_network
from pamcli.registry.spec import ModelSpec
from pamcli.streaming.pasmnet2 import LookedUp, Mixed, Seen
from pamcli.streaming.rolling import Convolution, RollingMap
from pamcli.streaming.symmetric_attention import Attended

SCRIPTS = Path(__file__).resolve().parent
PASMNET_SIZES = ["384x1248", "1088x1920", "2176x3840"]
SUPERRES_SIZES = ["93x310", "270x480", "540x960"]
BESIDE = {"pasmnet": ["pasmnet2"], "passrnet-x4": ["passrnet-x4", "passrnet2-x4"]}
CLASSICAL = {"pasmnet": "StereoSGBM", "passrnet-x4": "bicubic"}
PARTS: dict[type[Any], str] = {
    Convolution: "convolutions",
    Attended: "attention",
    Seen: "looking up",
    LookedUp: "looking up",
    Mixed: "mixing",
}
OPERATIONS = {
    "convolutions": ("convolution", "conv2d"),
    "norms": ("layer_norm", "vector_norm", "mean"),
    "attention": ("softmax", "bmm", "exp", "argmax"),
    "enlargement": ("upsample", "pixel_shuffle"),
}
GROWTH = {"width": ["256x512", "256x1024", "256x2048"], "height": ["256x640", "512x640", "1024x640"]}
PLAIN_MAPS = 8
"""Whole maps that the plain order holds at its peak, costs and attention of both directions, old and new."""


Size = tuple[int, int]
Array = NDArray[Any]
Run = Callable[[Array, Array], Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pasmnet", "--sizes", default=",".join(PASMNET_SIZES), help="HEIGHTxWIDTH,...|none")
    parser.add_argument("--superres", default=",".join(SUPERRES_SIZES), help="the same, for passrnet-x4")
    parser.add_argument("--growth", default="width,height", help="width, height, both, or none")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--precisions", help="fp32,...; by default all that the processor has")
    parser.add_argument("--only", help="NAME,...: only variants whose name holds one of these")
    parser.add_argument("--parts", action="store_true", help="split the time of each network, too")
    parser.add_argument("--no-memory", action="store_true", help="leave out the runs that measure memory")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, twice")
    parser.add_argument("--json", type=Path, help="write all figures to a file")
    options = parser.parse_args()
    if options.quick:
        options.pasmnet, options.superres = PASMNET_SIZES[0], SUPERRES_SIZES[0]
        options.growth, options.repeat = "none", 2
    here = {"fp32": True, "bf16": processor_has_bf16(), "int8": processor_has_int8()}
    all_of_it = [name for name, has in here.items() if has]
    precisions = options.precisions.split(",") if options.precisions else all_of_it
    cv2.setNumThreads(torch.get_num_threads())
    facts = {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "repetitions": options.repeat,
    }
    tell(", ".join(f"{name} {value}" for name, value in facts.items()))
    rows = []
    for network, sizes in (("pasmnet", options.pasmnet), ("passrnet-x4", options.superres)):
        variants = made_variants(network, precisions) if sizes != "none" else {}
        for other in BESIDE[network] if variants else ():
            beside = made_variants(other, precisions, both=True)
            variants |= {f"{other} {name}": run for name, run in beside.items()}
        if variants:
            variants[CLASSICAL[network]] = block_matched if network == "pasmnet" else enlarged
        if options.only:
            wanted = re.compile("|".join(map(re.escape, options.only.split(","))))
            variants = {name: run for name, run in variants.items() if wanted.search(name)}
        for size in split(sizes):
            rows += compared(network, size, variants, options.repeat, not options.no_memory)
    parts: dict[str, dict[str, dict[str, float]]] = {}
    split_up = [(name, text) for name in ("pasmnet2", "pasmnet") for text in split_names(options.pasmnet)]
    split_up += [(name, text) for name in BESIDE["passrnet-x4"] for text in split_names(options.superres)]
    for network, text in split_up if options.parts else ():
        measure = split_time if network == "pasmnet2" else split_operations
        for name, run in made_variants(network, precisions, both=True).items():
            shares = measure(run, sample_pair(*split(text)[0]))
            parts.setdefault(f"{network} {text}", {})[name] = shares
            tell(f"{network} {text:>10} {name}: {shares_of(shares)}")
    growth = {along: grown(GROWTH[along], options.repeat) for along in split_names(options.growth)}
    print("\n".join(table(rows, parts)))
    if options.json:
        text = json.dumps({"facts": facts, "rows": rows, "parts": parts, "growth": growth}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


def compared(
    network: str, size: Size, variants: dict[str, Run], repeat: int, with_memory: bool
) -> list[dict[str, Any]]:
    """A row for each variant that fits into the memory, the plain one first."""
    pair = sample_pair(*size)
    here = {name: run for name, run in variants.items() if name != "plain" or plain_fits(network, size)}
    seconds: dict[str, list[float]] = {name: [] for name in here}
    results: dict[str, Array] = {}
    for _ in range(repeat):
        for name, run in here.items():
            start = time.perf_counter()
            results[name] = run(*pair)
            seconds[name].append(time.perf_counter() - start)
    exact = results.get("plain", results.get("fp32"))
    classical = min(seconds[CLASSICAL[network]]) if CLASSICAL[network] in seconds else None
    rows = []
    for name, times in seconds.items():
        row = {
            "network": network,
            "size": f"{size[0]}x{size[1]}",
            "variant": name,
            "seconds": min(times),
            "median": statistics.median(times),
            "times_faster": min(seconds["plain"]) / min(times) if "plain" in seconds else None,
            "times_classical": None if classical is None else min(times) / classical,
            "difference": float(np.abs(results[name] - exact).max())
            if exact is not None and " " not in name and name != CLASSICAL[network]
            else None,
            "memory": peak_memory(network, size, name)
            if with_memory and name != CLASSICAL[network]
            else None,
        }
        tell(line(row))
        rows.append(row)
    return rows


def grown(sizes: Sequence[str], repeat: int) -> list[dict[str, Any]]:
    """Seconds of PASMnet in fp32 as one side doubles, and as shares of what is linear."""
    run = made_variants("pasmnet", ["fp32"])["fp32"]
    pairs = {text: sample_pair(*split(text)[0]) for text in sizes}
    seconds: dict[str, list[float]] = {text: [] for text in sizes}
    for _ in range(repeat):
        for text, pair in pairs.items():
            start = time.perf_counter()
            run(*pair)
            seconds[text].append(time.perf_counter() - start)
    first = sizes[0]
    rows = []
    for text, times in seconds.items():
        linear = min(seconds[first]) * pairs[text][0].size / pairs[first][0].size
        rows.append({"size": text, "seconds": min(times), "over_linear": min(times) / linear})
        tell(f"pasmnet {text:>10} {min(times):8.3f} s, {min(times) / linear:.2f} of linear")
    return rows


def split_time(run: Run, pair: tuple[Array, Array]) -> dict[str, float]:
    """Shares of the time of a run that go into each of `PARTS`, and into what is left."""
    spent = dict.fromkeys([*PARTS.values(), "the rest"], 0.0)
    under_way: list[str] = ["the rest"]
    since = 0.0

    def change() -> None:
        nonlocal since
        now = time.perf_counter()
        spent[under_way[-1]] += now - since
        since = now

    def timed(kind: type[Any], compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def timed_compute(self: RollingMap, first: int, last: int) -> torch.Tensor:
            change()
            under_way.append(PARTS.get(kind, "the rest"))
            made = compute(self, first, last)
            change()
            under_way.pop()
            return made

        return timed_compute

    run(*pair)  # the first run of a size prepares convolutions
    computing = {kind: kind.__dict__["_compute"] for kind in kinds(RollingMap) if "_compute" in kind.__dict__}
    try:
        for kind, compute in computing.items():
            kind._compute = timed(kind, compute)
        since = time.perf_counter()
        run(*pair)
        change()
    finally:
        for kind, compute in computing.items():
            kind._compute = compute
    total = sum(spent.values())
    return {part: seconds / total for part, seconds in spent.items()}


def split_operations(run: Run, pair: tuple[Array, Array]) -> dict[str, float]:
    """Shares of the time of a run that go into each of `OPERATIONS`, and into what is left."""
    run(*pair)  # the first run of a size prepares convolutions
    with torch.profiler.profile() as profile:
        run(*pair)
    spent = dict.fromkeys([*OPERATIONS, "the rest"], 0.0)
    for event in profile.key_averages():
        parts = (part for part, names in OPERATIONS.items() if any(name in event.key for name in names))
        spent[next(parts, "the rest")] += event.self_cpu_time_total
    total = sum(spent.values())
    return {part: each / total for part, each in spent.items()}


def kinds(kind: type[Any]) -> list[type[Any]]:
    """Find a class and all that inherit from it."""
    return [kind, *(each for child in kind.__subclasses__() for each in kinds(child))]


def block_matched(left: Array, right: Array) -> Array:
    """OpenCV's StereoSGBM up to 192 px, half of a narrow picture, in 3 directions; holes are not filled."""
    searched = min(192, left.shape[1] // 32 * 16)
    mode = cv2.STEREO_SGBM_MODE_SGBM_3WAY
    matcher = cv2.StereoSGBM.create(0, searched, 3, 216, 864, 1, 63, 10, 100, 2, mode)
    return np.asarray(matcher.compute(*(grey(eight_bits(view)) for view in (left, right))))


def enlarged(left: Array, right: Array) -> Array:
    """Both views enlarged 4 times by OpenCV's bicubic interpolation; the left one."""
    first, *_ = (cv2.resize(view, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC) for view in (left, right))
    return np.asarray(first)


def made_variants(network: str, precisions: Sequence[str], *, both: bool = False) -> dict[str, Run]:
    """Ours in each precision, on the weights that come with pam; and the authors' order, but for `both`."""
    loaded, spec = load_network(locate(network))
    runs: dict[str, Run] = {} if both else {"plain": plain(loaded)}
    for precision in precisions:
        if precision == "int8" and not spec.row.eight_bits:
            continue
        compute = Compute.choose("cpu", precision)
        runs[precision] = ours(loaded, spec, compute, both)
    return runs


def ours(network: Network, spec: ModelSpec, compute: Compute, both: bool) -> Run:
    """The left view's result, in the strips that pam chooses; `both`: enlarge the right one, too."""
    if isinstance(network, PASMnet | PASMnet2):
        matcher = StereoMatcher(network, spec, compute)
        return lambda left, right: matcher(left, right, extras=()).disparity
    upscaler = StereoUpscaler(network, spec, compute)
    return (lambda left, right: upscaler(left, right)[0]) if both else upscaler.left_only


def plain(network: Network) -> Run:
    assert not isinstance(network, PASMnet2)
    sys.path.append(str(SCRIPTS.parent / "tests" / "networks"))
    from reference import (  # type: ignore[import-not-found]
        reference_matching,
        reference_super_resolution,
    )

    mean, std = torch.tensor(IMAGE_MEAN).view(3, 1, 1), torch.tensor(IMAGE_STD).view(3, 1, 1)

    @torch.inference_mode()
    def run(left: Array, right: Array) -> Array:
        views = [torch.from_numpy(view).permute(2, 0, 1)[None] for view in (left, right)]
        if isinstance(network, PASMnet):
            views = [(view - mean) / std for view in views]
            found = reference_matching(network, *views).disparity[0, 0]
        else:
            found = reference_super_resolution(network, *views).clamp(0, 1)[0].permute(1, 2, 0)
        array: Array = found.numpy()
        return array

    return run


def plain_fits(network: str, size: Size) -> bool:
    height, width = size if network != "pasmnet" else (size[0] // 4, size[1] // 4)
    free = free_memory(torch.device("cpu"))
    return free is None or PLAIN_MAPS * 4 * height * width**2 < 0.8 * free


def peak_memory(network: str, size: Size, variant: str) -> int | None:
    """Bytes above the loaded network, measured in a process of its own; None where it did not live."""
    other, _, precision = variant.rpartition(" ")
    network = other or network
    how = ["--plain"] if variant == "plain" else ["--precision", precision]
    command = [sys.executable, str(SCRIPTS / "peak_memory.py"), network, f"{size[0]}x{size[1]}", *how]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(json.loads(run.stdout)["above"]) if run.returncode == 0 else None


def sample_pair(height: int, width: int) -> tuple[Array, Array]:
    """The sample pair in [0, 1], repeated like tiles."""
    views = []
    for side in ("left", "right"):
        picture = read_picture(SCRIPTS / "sample" / f"{side}.png").pixels
        counts = (-(-height // picture.shape[0]), -(-width // picture.shape[1]), 1)
        views.append(np.tile(picture, counts)[:height, :width].astype(np.float32) / 255)
    return views[0], views[1]


def table(rows: Sequence[dict[str, Any]], parts: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """All rows in Markdown: each network, size and precision, beside what is classical."""
    lines = ["| network | size | | seconds | median | times | memory | parts |", "| --- " * 8 + "|"]
    for row in rows:
        other, _, precision = row["variant"].rpartition(" ")
        network, classical = other or row["network"], CLASSICAL[row["network"]]
        name = classical if precision == classical else network
        times = "" if row["times_classical"] is None else f"{row['times_classical']:.1f} {classical}"
        memory = "" if row["memory"] is None else f"{row['memory'] / 1e6:.0f} MB"
        shares = shares_of(parts.get(f"{network} {row['size']}", {}).get(precision, {}))
        median = f"{row['median']:.3f}"
        cells = name, row["size"], "" if name == classical else precision, f"{row['seconds']:.3f}"
        lines.append(f"| {' | '.join((*cells, median, times, memory, shares))} |")
    return lines


def shares_of(shares: dict[str, float]) -> str:
    return ", ".join(f"{part} {100 * share:.0f} %" for part, share in shares.items())


def tell(text: str) -> None:
    print(text, file=sys.stderr)


def line(row: dict[str, Any]) -> str:
    parts = [f"{row['network']} {row['size']:>10} {row['variant']:18} {row['seconds']:8.3f} s"]
    parts.append(f"median {row['median']:8.3f} s")
    if row["times_faster"] is not None:
        parts.append(f"{row['times_faster']:5.2f} times as fast")
    if row["times_classical"] is not None:
        parts.append(f"{row['times_classical']:5.2f} times {CLASSICAL[row['network']]}")
    if row["difference"] is not None:
        parts.append(f"differs by {row['difference']:.1e} at most")
    if row["memory"] is not None:
        parts.append(f"{row['memory'] / 1e6:.0f} MB")
    return ", ".join(parts)


def processor() -> str:
    """Its name, where Linux tells, and whether it computes in bf16."""
    info = Path("/proc/cpuinfo")
    names = [
        text.partition(":")[2].strip()
        for text in (info.read_text().splitlines() if info.exists() else [])
        if text.startswith("model name")
    ]
    features = torch.backends.cpu.get_cpu_capability()
    return f"{names[0] if names else platform.machine()} ({features}{', bf16' * processor_has_bf16()})"


def split(sizes: str) -> list[Size]:
    pairs = [text.split("x") for text in split_names(sizes)]
    return [(int(height), int(width)) for height, width in pairs]


def split_names(text: str) -> list[str]:
    return [] if text == "none" else text.split(",")


if __name__ == "__main__":
    main()
