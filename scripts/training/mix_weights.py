"""Mix two weights of one network, often better than either: FIRST + share (SECOND - FIRST).

    python scripts/training/mix_weights.py FIRST SECOND -o RESULT.safetensors
    python scripts/training/mix_weights.py FIRST SECOND --share 0.42 --matrices 0.6 --largest 0.4=0.8 -o NEW

--matrices is the share for weight matrices. --largest PART=SHARE is the share for this part of the singular
values of their differences, the largest ones. Noise of training is spread over all singular values.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from pamcli.registry.load import load_network, save_network
from pamcli.training.muon import is_matrix


def main() -> None:
    """Load, mix, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.5, help="of SECOND")
    parser.add_argument("--matrices", type=float, help="of SECOND, for weight matrices")
    parser.add_argument("--largest", default="0=0", metavar="PART=SHARE", help="of their differences")
    given = parser.parse_args()
    (first, spec), (second, _) = (load_network(path) for path in (given.first, given.second))
    matrices = given.share if given.matrices is None else given.matrices
    part, largest = map(float, given.largest.split("="))
    others, mixed = second.state_dict(), {}
    for name, weights in first.state_dict().items():
        if not weights.is_floating_point():
            mixed[name] = weights
        elif is_matrix(weights):
            mixed[name] = weights + scale_singular_values(others[name] - weights, matrices, part, largest)
        else:
            mixed[name] = weights.lerp(others[name], given.share)
    save_network(mixed, spec, given.output)


def scale_singular_values(weights: Tensor, share: float, part: float, largest: float) -> Tensor:
    """Multiply the singular values of (O, I, h, w) by `share`, the largest `part` of them by `largest`."""
    left, values, right = torch.linalg.svd(weights.flatten(1), full_matrices=False)
    count = int(part * len(values))
    shares = torch.full_like(values, share)
    shares[:count] = largest
    scaled: Tensor = left * (values * shares) @ right
    return scaled.view_as(weights)


if __name__ == "__main__":
    main()
