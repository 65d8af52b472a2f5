"""Memory and time of one run of a network, alone in a process: one JSON object on stdout.

python scripts/peak_memory.py pasmnet 384x1248 [--strip 64] [--precision bf16] [--extras visible,confidence]
python scripts/peak_memory.py passrnet-x4 93x310 [--plain]

The weights are made up. `loaded`: resident bytes of the program with the network, after a
run on a tiny pair; `peak`: the most of the whole run, of which `above` is the pair's.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pamcli.inference import loading
from pamcli.inference.device import Compute
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.memory import give_back_freed_memory, taken_memory
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.networks.pasmnet import PASMnet
from pamcli.networks.pasmnet2 import PASMnet2
from pamcli.networks.passrnet import PASSRnet
from pamcli.registry.catalog import locate
from pamcli.registry.load import Network, build_network
from pamcli.registry.spec import ModelSpec, read_header

CPU = torch.device("cpu")
NETWORKS = ["pasmnet2", "pasmnet", "passrnet2-x2", "passrnet2-x4", "passrnet-x2", "passrnet-x4"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("size", help="HEIGHTxWIDTH")
    parser.add_argument("--strip", type=int, help="rows at a time, instead of those that pam would choose")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--extras", default="", help="of pasmnet: right_disparity,visible,confidence")
    parser.add_argument("--plain", action="store_true", help="the authors' order of operations (tests/)")
    options = parser.parse_args()
    height, width = map(int, options.size.split("x"))
    network = plain_network(options) if options.plain else our_network(options)
    network(random_pair(64, 64))
    give_back_freed_memory()
    loaded = taken_memory(CPU)
    start = time.perf_counter()
    network(random_pair(width, height))
    seconds = time.perf_counter() - start
    peak = most_memory()
    print(json.dumps({"loaded": loaded, "peak": peak, "above": peak - loaded, "seconds": round(seconds, 3)}))


def most_memory() -> int:
    """Most resident bytes so far."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage tells begins with what the program that started this one had
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def random_pair(width: int, height: int) -> tuple[Any, Any]:
    """Both views (H, W, 3) uint8."""
    random = np.random.default_rng(0)
    left, right = (random.integers(0, 256, (height, width, 3), np.uint8) for _ in range(2))
    return left, right


def empty_network(name: str) -> Network:
    """A network of the form that the shipped weights of this name have."""
    torch.manual_seed(0)
    return build_network(form_of(name)).eval().requires_grad_(False)


def form_of(name: str) -> ModelSpec:
    return read_header(locate(name)).spec


def our_network(options: argparse.Namespace) -> Callable[[tuple[Any, Any]], object]:
    compute = Compute.choose("cpu", options.precision)
    made = empty_network(options.network)
    if options.strip:
        loading.choose_strip = lambda *_, **__: options.strip  # type: ignore[attr-defined]
    if isinstance(made, PASMnet | PASMnet2):
        matcher = StereoMatcher(made, form_of(options.network), compute)
        extras = [name for name in options.extras.split(",") if name]
        return lambda pair: matcher(*pair, extras=extras)
    upscaler = StereoUpscaler(made, form_of(options.network), compute)
    return lambda pair: upscaler(*pair)


def plain_network(options: argparse.Namespace) -> Callable[[tuple[Any, Any]], object]:
    """What the yardstick returns is turned into arrays, as ours are."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "networks"))
    from reference import (  # type: ignore[import-not-found]
        reference_matching,
        reference_super_resolution,
    )

    network = empty_network(options.network)

    @torch.inference_mode()
    def run(pair: tuple[Any, Any]) -> object:
        left, right = (torch.from_numpy(view).permute(2, 0, 1)[None].float() / 255 for view in pair)
        assert isinstance(network, PASMnet | PASSRnet), "the authors have the first version alone"
        if isinstance(network, PASMnet):
            return reference_matching(network, left, right).disparity.numpy()
        return [
            reference_super_resolution(network, *views).numpy() for views in ((left, right), (right, left))
        ]

    return run


if __name__ == "__main__":
    main()
