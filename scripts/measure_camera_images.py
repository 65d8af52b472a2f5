"""Measure super-resolution of images with camera faults: networks, baselines, and --input auto.

python scripts/measure_camera_images.py --data kitti2012/testing:kitti2012 [--scale 2] [--precision fp32]

Prints a Markdown row per degradation of the low-resolution images: PSNR, SSIM as in iPASSR, and HaarPSI of
the left images without their 64 leftmost columns, as means over the pairs. The last column is the automatic
choice of pam superres, and the number of pairs for which it takes the camera network: the JPEG quality comes
from the file, noise is measured.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import Source
from pamcli.errors import PamError
from pamcli.evaluation.opencv_methods import DenoisedBicubic
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import LEFT_MARGIN, haarpsi, psnr, ssim
from pamcli.imaging.camera_faults import detect_camera_fault
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import RgbImage
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_UPSCALING

FAULTS = {
    "JPEG, quality 75": Degradation(jpeg=75),
    "JPEG, quality 90": Degradation(jpeg=90),
    "JPEG, quality 95": Degradation(jpeg=95),
    "noise of 3 levels": Degradation(noise=3),
    "noise of 4 levels": Degradation(noise=4),
    "noise of 5 levels": Degradation(noise=5),
    "noise of 10 levels": Degradation(noise=10),
    "clean": Degradation(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True, metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]")
    parser.add_argument("--scale", type=int, choices=sorted(CAMERA_UPSCALING), default=4)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    source = open_data(parse_data(options.data))
    names = DEFAULT_UPSCALING[options.scale], CAMERA_UPSCALING[options.scale]
    clean, camera = (StereoUpscaler.load(name, device="cpu", precision=options.precision) for name in names)
    columns = ["", "bicubic", "denoised, then bicubic", *(f"`{name}`" for name in names), "`auto`"]
    print(f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|", sep="\n")
    for name, fault in FAULTS.items():
        print(f"| {name} | {' | '.join(row(source, options.scale, fault, clean, camera))} |", flush=True)


def row(
    source: Source, scale: int, fault: Degradation, clean: StereoUpscaler, camera: StereoUpscaler
) -> list[str]:
    """Return the table cells of all methods for images with a fault."""
    task, denoised = Superres(scale, fault), DenoisedBicubic(fault)
    found, taken = [], 0
    for position in range(len(source)):
        pair = task.make_case(source.load(position))
        faults = [
            detect_camera_fault(RgbImage(view, jpeg_quality=fault.jpeg))
            for view in (pair.low_left, pair.low_right)
        ]
        views = pair.low_left, pair.low_right
        others = [each.left for each in (pair.bicubic(), denoised.run(pair))]
        made = [*others, clean.upscale_left(*views), camera.upscale_left(*views)]
        figures = [measure(pair.left, view) for view in made]
        taken += any(faults)
        found.append([*figures, figures[3 if any(faults) else 2]])
    means = np.mean(found, axis=0)
    cells = [f"{decibels:.2f} dB, {similar:.3f}, {seen:.3f}" for decibels, similar, seen in means]
    return [*cells[:-1], f"{cells[-1]}; camera network for {taken} of {len(source)}"]


def measure(truth: np.ndarray, view: np.ndarray) -> tuple[float, float, float]:
    """Return PSNR (dB), SSIM as in iPASSR, and HaarPSI of a left image."""
    truth, view = truth[:, LEFT_MARGIN:], view[:, LEFT_MARGIN:]
    return psnr(truth, view), ssim(truth, view)[0], haarpsi(truth, view)


if __name__ == "__main__":
    try:
        main()
    except PamError as error:
        sys.exit(str(error))
