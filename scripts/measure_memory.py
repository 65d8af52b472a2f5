"""Measure the peak memory of networks and the halo of bands, for `registry/architectures.toml`.

python scripts/measure_memory.py pasmnet2 passrnet2-x4
python scripts/measure_memory.py pasmnet2 --halo left.png right.png

Each size runs in a process of its own on the CPU. The formula is fitted to the peaks, and above all of
them: bytes per pixel, and bytes per pixel and column. With --halo, how far the results of bands are from
those of the whole image.
"""

import argparse
import resource
import subprocess
import sys
from typing import Any

import numpy as np

SIZES = {
    "disparity": ((640, 640), (1280, 320), (1280, 960), (1920, 640), (2560, 640), (3840, 640)),
    "superres": ((64, 64), (256, 64), (128, 128), (512, 96), (256, 192), (768, 64)),
}
"""WIDTHxHEIGHT of images."""

HALOS = 0, 64, 96, 128, 160, 192
ROWS = 160  # of a band that count


def main() -> None:
    """Print a row per network and precision, or one per halo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", nargs="+")
    parser.add_argument("--halo", nargs=2, metavar=("LEFT", "RIGHT"), help="a rectified pair")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--one", metavar="WIDTHxHEIGHT", help="run one size and print its bytes")
    options = parser.parse_args()
    for weights in options.weights:
        if options.one:
            print(peak(model_of(weights, options.precision), *map(int, options.one.split("x"))))
        elif options.halo:
            halos(weights, options.precision, *options.halo)
        else:
            fitted(weights, options.precision)


def model_of(weights: str, precision: str) -> Any:
    """Load a model on the CPU."""
    from pamcli.inference.model import load_model
    from pamcli.registry.catalog import locate
    from pamcli.settings.shared import MatcherSettings

    options: Any = {"device": "cpu", "precision": precision}
    return load_model(locate(weights), MatcherSettings(**options))


def peak(model: Any, width: int, height: int) -> int:
    """Return the bytes that a pair takes beyond what the process had taken before."""
    from pamcli.inference.device import get_used_memory

    def run(width: int, height: int) -> None:
        left, right = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), np.uint8)
        if model.spec.row.task == "disparity":
            model.match(left, right, lambda share: None, max_disparity=None, extras=("confidence", "visible"))
        else:
            model.upscale(left, right, lambda share: None, both=True)

    run(32, 32)
    before = get_used_memory(model.compute.device)
    run(width, height)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def fitted(weights: str, precision: str) -> None:
    """Print the peaks of all sizes and the two parameters that are above all of them."""
    task = model_of(weights, precision).spec.row.task
    rows, bytes_ = [], []
    for width, height in SIZES[task]:
        command = [sys.executable, __file__, weights, "--precision", precision, "--one", f"{width}x{height}"]
        found = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append((width * height, width * height * width))
        bytes_.append(found)
        each = found / (width * height)
        print(f"{weights} {precision} {width}x{height}: {found / 1e6:.0f} MB, {each:.0f} B/px")
    matrix, peaks = np.array(rows, float), np.array(bytes_, float)
    slope = max(np.linalg.lstsq(matrix / peaks[:, None], np.ones(len(peaks)), rcond=None)[0][1], 0.0)
    constant = ((peaks - slope * matrix[:, 1]) / matrix[:, 0]).max()
    print(f"{weights} {precision}: memory=({constant:.0f}, {slope:.3f})")


def halos(weights: str, precision: str, left: str, right: str) -> None:
    """Print the mean difference of bands to the whole image, by their halo."""
    from pamcli import read_image
    from pamcli.inference.tiles import compute_parts, make_bands

    model = model_of(weights, precision)
    images = [read_image(name).pixels for name in (left, right)]
    height, width = images[0].shape[:2]

    def match(rows: slice) -> dict[str, Any]:
        views = images[0][rows], images[1][rows]
        return dict(model.match(*views, lambda share: None, max_disparity=None, extras=()))

    whole = match(slice(None))["disparity"]
    for halo in HALOS:
        cut = make_bands(height, width, 2 * halo + ROWS, halo, model.multiple)
        apart = np.abs(compute_parts(cut, lambda band, _: match(band.rows), None)["disparity"] - whole)
        seams = [band.rows.start + halo for band in cut[1:]]
        near = (
            np.concatenate([apart[max(seam - 4, 0) : seam + 4].ravel() for seam in seams]) if seams else apart
        )
        print(
            f"{weights} {precision} halo {halo}: {len(cut)} bands, mean {apart.mean():.4f} px, "
            f"at seams {near.mean():.4f} px, above 1 px {100 * (apart > 1).mean():.2f} %"
        )


if __name__ == "__main__":
    main()
