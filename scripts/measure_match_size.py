"""Measure errors and time of large images at several matching resolutions.

python scripts/measure_match_size.py --textures ~/photos --scenes 8
python scripts/measure_match_size.py --data 'middlebury:middlebury2014?first=5' --widths 3000,2100,1500

Without --data, procedural scenes are rendered larger, with fine details of other textures. Every result is
upsampled to full size. off: share of the pixels with an error above 1/1500 and 1/375 of the image width (4
and 16 px of 6000). Times are processor times of matching and upsampling. The limits in
pamcli/registry/resolution.py were chosen with this script; another network may need others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor

from pamcli.data.open import open_data, parse_data
from pamcli.data.source import LARGEST_SEED, Sample
from pamcli.inference.matcher import StereoMatcher
from pamcli.scenes.render import Layer, render
from pamcli.scenes.scene import make_scene, simulate_cameras
from pamcli.scenes.surfaces import Surface, Wave
from pamcli.scenes.textures import TextureLibrary, find_textures

SERIES = LARGEST_SEED + 2  # of scenes that nothing else draws
PARTS = 1500, 375
SHARPNESS = 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", metavar="NAME[/SPLIT]:PATH[?KEY=VALUE]", help="pairs, instead of scenes")
    parser.add_argument("--textures", type=Path, help="photographs and cut-outs; without, all is made up")
    parser.add_argument("--scenes", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("--width", type=int, default=3000, help="of the scenes")
    parser.add_argument("--drawn", type=int, default=1500, help="width for which they are made up")
    parser.add_argument(
        "--widths", default="3000,2121,1732,1500,1225,1060,750", help="that they are matched at"
    )
    parser.add_argument("--weights", default="pasmnet2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split(",")]
    rows: dict[int, list[tuple[float, ...]]] = {width: [] for width in widths}
    for sample in samples(options):
        assert sample.disparity is not None
        known = np.isfinite(sample.disparity)
        height, width = known.shape
        print(f"{sample.name}: {width} x {height}, disparities to {sample.disparity[known].max():.0f} px")
        for each in [each for each in widths if each <= width]:
            matcher = StereoMatcher.load(
                options.weights, device=options.device, precision=options.precision, match_size=each
            )
            start = time.process_time()
            found = matcher(sample.left, sample.right, extras=()).disparity
            seconds = time.process_time() - start
            error = np.abs(found - sample.disparity)[known]
            off = [100 * float((error > width / part).mean()) for part in PARTS]
            rows[each].append((*off, float(error.mean()), float(np.median(error)), seconds))
            show(f"  {each} x {round(each * height / width)}", rows[each][-1])
    for each, measured in rows.items():
        if measured:
            show(f"{each} px wide, mean of {len(measured)}", np.mean(measured, axis=0))


def show(name: str, figures: tuple[float, ...]) -> None:
    off, far, mean, median, seconds = figures
    far_off = "  ".join(f"off 1/{part} {share:5.2f} %" for part, share in zip(PARTS, (off, far), strict=True))
    print(f"{name:28} {far_off}  mean {mean:6.2f} px  median {median:5.2f} px  {seconds:6.1f} s", flush=True)


def samples(options: argparse.Namespace) -> Iterator[Sample]:
    """Yield the pairs with their ground truth."""
    if options.data:
        source = open_data(parse_data(options.data))
        yield from (source.load(index) for index in range(len(source)))
        return
    library = TextureLibrary() if options.textures is None else find_textures(options.textures)
    for number in range(options.first, options.first + options.scenes):
        yield large_scene(library, number, options.width, options.drawn)


def large_scene(library: TextureLibrary, number: int, width: int, drawn: int) -> Sample:
    """Render scene `number` for images `drawn` px wide in images about `width` px wide."""
    rng = np.random.default_rng((SERIES, number))
    times = max(1, width // drawn)
    height, width = times * (drawn * 2 // 3), times * drawn
    scene = make_scene(rng, library, height // times, drawn)
    layers = [enlarged(layer, times, library, rng) for layer in scene.layers]
    offset, slope = scene.drift
    views = render(layers, height, width, (times * offset, times * slope), sharpness=SHARPNESS)
    left, right = simulate_cameras(rng, views.left, views.right)
    return Sample(f"scene {number}", left, right, views.disparity.numpy())


def enlarged(layer: Layer, times: int, library: TextureLibrary, rng: Generator) -> Layer:
    """Return the layer for images that are `times` larger."""
    if times == 1:
        return layer
    middle = (times - 1) / 2  # of the pixels that the first one becomes
    back = np.array([[1, 0, -middle], [0, 1, -middle], [0, 0, times]]) / times
    surface, mirrored = layer.surface, layer.reflection
    waves = tuple(
        Wave(times * w.amplitude, w.kx / times, w.ky / times, w.phase - (w.kx + w.ky) * middle / times)
        for w in surface.waves
    )
    if mirrored is not None:
        across, down = mirrored.density
        mirrored = replace(
            mirrored, disparity=times * mirrored.disparity, density=(across / times, down / times)
        )
    texels = np.array([[times, 0, middle], [0, times, middle], [0, 0, 1]])
    left, top, right, bottom = layer.box or (0, 0, 0, 0)
    box = times * left + middle, times * top + middle, times * right + middle, times * bottom + middle
    return replace(
        layer,
        surface=Surface(times * surface.a - (surface.b + surface.c) * middle, surface.b, surface.c, waves),
        texture=detailed(layer.texture, times, library, rng, layer.endless),
        homography=texels @ layer.homography @ back,
        clips=tuple((p / times, q / times, r - (p + q) * middle / times) for p, q, r in layer.clips),
        box=box if layer.box else None,
        decals=tuple(replace(decal, homography=decal.homography @ back) for decal in layer.decals),
        reflection=mirrored,
    )


def detailed(texture: Tensor, times: int, library: TextureLibrary, rng: Generator, endless: bool) -> Tensor:
    """Upscale a texture (C, h, w) of a layer, with a sharp outline and the finest details of another one.

    Natural images have as much contrast in fine details as in those of twice the size, so the added details
    are as strong as the finest of the texture.
    """
    large = F.interpolate(texture[None], scale_factor=float(times), mode="bicubic")[0]
    other = library.background(rng)[:3]
    details, strength = lost(other, times), 0.0
    if min(texture.shape[1:]) >= 4:
        finest, others = (lost(each, 2).abs().median() for each in (texture[:3], other))
        strength = float((finest / others.clamp(min=1e-4)).clamp(max=2))
    places = [mirrored(rng, *sides) for sides in zip(large.shape[1:], details.shape[1:], strict=True)]
    opacity = large[3:4].clamp(0, 1)
    added = strength * details[:, places[0]][:, :, places[1]] * opacity
    if endless:
        return torch.cat(((large[:3] + added).clamp(min=0), opacity, large[4:].clamp(min=0)))
    outline = ((opacity - 0.5) * times + 0.5).clamp(0, 1)
    inside = outline / opacity.clamp(min=0.05)
    colours = ((large[:3] + added) * inside).clamp(min=0)
    return torch.cat((torch.minimum(colours, outline), outline, (large[4:] * inside).clamp(min=0)))


def lost(texture: Tensor, times: int) -> Tensor:
    """Return what a texture (C, h, w) loses by downscaling; sides are cut to multiples."""
    rows, columns = (side // times * times for side in texture.shape[1:])
    cut = texture[None, :, :rows, :columns]
    smaller = F.avg_pool2d(cut, times)
    return (cut - F.interpolate(smaller, scale_factor=float(times), mode="bilinear"))[0]


def mirrored(rng: Generator, count: int, length: int) -> Tensor:
    """Return random consecutive places of a line that is continued by mirroring."""
    place = (torch.arange(count) + int(rng.integers(length))) % (2 * length)
    return torch.minimum(place, 2 * length - 1 - place)


if __name__ == "__main__":
    main()
