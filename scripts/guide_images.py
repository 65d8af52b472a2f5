"""Make the images of README and guide with the shipped weights: guide_images.py [FOLDER].

readme.jpg, top: the left image, its disparity map, and its points in metres, seen from the right. Bottom: a
part of the left image, downscaled and then upscaled by 4, by bicubic interpolation and by pam superres (PSNR
of the whole image without its 64 left-most columns).

superres.jpg: a part of the left image, downscaled, upscaled by bicubic interpolation and by pam superres, and
the original.

camera.jpg: the same for images with JPEG artefacts and noise, by several methods.

confidence.jpg: the disparity map, and its pixels of high confidence.

attention.jpg: a row of the sample pair, and its attention in PASMnet 2.

rectified.jpg: a pair whose right camera is turned, before and after pam rectify --uncalibrated.

The comment of each file holds the checksums of the weights that it shows: a test fails if other weights are
shipped until this script has run again.
"""

from __future__ import annotations

import io
import sys
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pamcli.calibration.feature_rectification import estimate_rectification
from pamcli.calibration.files import read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.opencv_methods import DenoisedBicubic
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import (
    SuperresPair,
    Upscaled,
    make_superres_pair,
    measure_upscaled,
)
from pamcli.files.atomic import write_atomically
from pamcli.imaging.colormap import colorize
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import read_image
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.result import StereoResult
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_MATCHING, DEFAULT_UPSCALING, locate, sha256
from pamcli.registry.load import load_network

SAMPLE = Path(__file__).resolve().parent / "sample"
SCALE = 4
WEIGHTS = DEFAULT_MATCHING, DEFAULT_UPSCALING[SCALE]
CAMERA_WEIGHTS = DEFAULT_UPSCALING[SCALE], CAMERA_UPSCALING[SCALE]

WIDTH, GAP, TITLE = 1640, 16, 50
"""Width of an image, gap between its parts, and height of the titles, in pixels."""
PART = slice(96, 252), slice(330, 630)
"""Rows and columns of the left image in the lower half of readme.jpg."""
EYE, LOOKS_AT = (0.8, -0.35, 0.4), (0.0, 0.15, 3.2)
"""Metres in the left camera's coordinates: x to the right, y down, z ahead."""
SURE = 0.5
"""Points of lower confidence are not shown."""
FAULTS = {"JPEG 75": Degradation(jpeg=75), "noise of 10 levels": Degradation(noise=10)}
TURN, LINES = 2.0, 31
"""Rotation of the right camera in degrees, and half of the distance between lines, in rows."""
ROW = 260
"""Row of attention.jpg."""
CROP = slice(120, 210), slice(380, 540)
"""Rows and columns of the left image in superres.jpg and camera.jpg."""

Bytes = NDArray[np.uint8]


def main(folder: Path) -> None:
    for compose in (readme, superres, camera, confidence, attention, rectified):
        path = folder / f"{compose.__name__}.jpg"
        image, weights, titles = compose()
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=88, comment=checksums(weights))
        write_atomically(path, stream.getvalue())
        print(path, *titles, sep="\n")


Composed = tuple[Image.Image, tuple[str, ...], list[str]]
"""An image, the weights whose results it shows, and its titles with figures."""


def sample_views() -> tuple[Bytes, Bytes]:
    """Return both images of the sample pair."""
    left, right = (read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right"))
    return left.astype(np.uint8), right.astype(np.uint8)


def upscale(name: str, pair: SuperresPair) -> Upscaled:
    """Upscale a downscaled pair with shipped weights."""
    left, right = StereoUpscaler.load(name, device="cpu")(pair.low_left, pair.low_right)
    return Upscaled(left.astype(np.uint8), right.astype(np.uint8))


@cache
def upscaled_sample() -> tuple[SuperresPair, Upscaled]:
    """Return the sample pair with its downscaled images, and these upscaled with the default weights."""
    pair = make_superres_pair(*sample_views(), SCALE, name="the sample pair")
    return pair, upscale(WEIGHTS[1], pair)


@cache
def matched_sample() -> StereoResult:
    """Return the match of the sample pair, with its confidence, by the default weights."""
    return StereoMatcher.load(WEIGHTS[0], device="cpu")(*sample_views(), extras={"confidence"})


def crops_with_psnr(
    pair: SuperresPair, results: dict[str, Upscaled], part: tuple[slice, slice]
) -> dict[str, Bytes]:
    """Return the same part of each result, by a title with the PSNR of the whole left image."""
    parts = {}
    for name, each in results.items():
        figures = measure_upscaled(pair, each.left, each.right)
        parts[f"{name}: {figures['left']['psnr']:.1f} dB"] = each.left[part]
    return parts


def readme() -> Composed:
    """Show an image, its disparity map, its points, and a part of it upscaled."""
    pair, upscaled = upscaled_sample()
    left, matched = sample_views()[0], matched_sample()
    low, high = np.percentile(matched.disparity, (1, 99))
    calibration = read_calibration(SAMPLE / "calib.txt").rectified
    assert calibration is not None
    above = {
        "left image": left,
        f"disparity map, {low:.0f} to {high:.0f} px": colorize(matched.disparity, low, high),
        "points in metres, from the right": from_the_right(
            left, matched.disparity_where(min_confidence=SURE), calibration
        ),
    }
    results = {"bicubic": pair.bicubic(), "pam superres": upscaled}
    titled = {f"upscaled by {SCALE} with {name}": each for name, each in results.items()}
    below = crops_with_psnr(pair, titled, PART)
    return stack(row(above), row(below)), WEIGHTS, [*below]


def superres() -> Composed:
    """Show a part of an image: downscaled, upscaled in two ways, and the original."""
    pair, upscaled = upscaled_sample()
    results = {"bicubic": pair.bicubic(), "pam superres": upscaled}
    small = pair.low_left.repeat(SCALE, axis=0).repeat(SCALE, axis=1)
    parts = {
        "input": small[CROP].astype(np.uint8),
        **crops_with_psnr(pair, results, CROP),
        "original": pair.left[CROP],
    }
    return row(parts, size=26), WEIGHTS[1:], []


def camera() -> Composed:
    """Show a part of an image with faults: a row for each fault, a column for each method."""
    rows, titles = [], []
    for title, fault in FAULTS.items():
        pair = Superres(SCALE, fault).make_case(Sample("sample", *sample_views(), None))
        results = {"bicubic": pair.bicubic(), "denoised, bicubic": DenoisedBicubic(fault).run(pair)}
        results |= {name: upscale(name, pair) for name in CAMERA_WEIGHTS}
        parts = crops_with_psnr(pair, results, CROP)
        rows.append(row({f"{title}: original": pair.left[CROP], **parts}, size=19))
        titles += [f"{title}, {name}" for name in parts]
    return stack(*rows), CAMERA_WEIGHTS, titles


def confidence() -> Composed:
    """Show a disparity map, and its pixels above a threshold of confidence."""
    left, matched = sample_views()[0], matched_sample()
    low, high = np.percentile(matched.disparity, (1, 99))
    parts = {
        "left image": left,
        f"disparity map, {low:.0f} to {high:.0f} px": colorize(matched.disparity, low, high),
        "confidence of 0.9 or more": colorize(matched.disparity_where(min_confidence=0.9), low, high),
    }
    return row(parts), WEIGHTS[:1], []


def attention() -> Composed:
    """Show a row of both images, and the attention of its left columns to its right columns."""
    pair = []
    for view in sample_views():
        height, width = (side // 32 * 32 for side in view.shape[:2])
        pair.append(view[:height, :width].copy())
    network, _ = load_network(locate(WEIGHTS[0]))
    with torch.inference_mode():
        inputs = (torch.from_numpy((view / 255 - IMAGE_MEAN) / IMAGE_STD).float() for view in pair)
        result = network.eval()(*(each.movedim(2, 0)[None] for each in inputs))
        weights = result.maps[-1].right_to_left[0, ROW // 4].numpy()
    shades = 255 - 255 * np.sqrt(weights / weights.max(axis=1, keepdims=True))
    square = cv2.resize(shades.astype(np.uint8), (480, 480), interpolation=cv2.INTER_AREA)
    framed = cv2.copyMakeBorder(square, 0, 0, 128, 128, cv2.BORDER_CONSTANT, value=[200])
    for view in pair:
        view[ROW - 1 : ROW + 2] = (255, 60, 60)
    parts = {
        f"left image, row {ROW}": pair[0],
        f"right image, row {ROW}": pair[1],
        "attention: left (down), right (across)": np.stack([framed] * 3, axis=2),
    }
    return row(parts, size=28), WEIGHTS[:1], []


def rectified() -> Composed:
    """Show a pair with lines along its rows, before and after rectification without a calibration."""
    left, right = sample_views()
    height, width = right.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), TURN, 1)
    turned = np.asarray(cv2.warpAffine(right, turn, (width, height)), np.uint8)
    rectification, _ = estimate_rectification([(left, turned)])
    straight = rectification.left(left), rectification.right(turned)
    parts = {}
    for title, pair in {"before": (left, turned), "after pam rectify": straight}.items():
        joined = np.concatenate(pair, axis=1)
        joined[LINES :: 2 * LINES] = (255, 60, 60)
        joined[LINES + 1 :: 2 * LINES] = (255, 60, 60)
        parts[title] = joined
    return row(parts, size=26), (), []


def checksums(weights: tuple[str, ...]) -> str:
    """Return a line with name and sha256 for each of the weights."""
    return "\n".join(f"{name} {sha256(locate(name))}" for name in weights)


def from_the_right(image: Bytes, disparity: NDArray[np.float32], calibration: Calibration) -> Bytes:
    """Return an image (H, W, 3) of the points of known depth, seen from EYE, on white."""
    height, width = disparity.shape
    calibration = calibration.for_size(width, height)
    depth = calibration.depth(disparity)
    row, column = np.nonzero(np.isfinite(depth))
    rays = np.linalg.inv(calibration.projections()[0][:, :3]) @ np.stack((column, row, np.ones_like(row)))
    points = (rays * depth[row, column]).T - EYE
    ahead = np.subtract(LOOKS_AT, EYE)
    ahead = ahead / np.linalg.norm(ahead)
    across = np.cross((0, 1, 0), ahead)
    across = across / np.linalg.norm(across)
    x, y, z = np.stack((across, np.cross(ahead, across), ahead)) @ points.T
    shown = z > 0.5
    focal = calibration.focal_length
    x, y = (np.rint(focal * side[shown] / z[shown]).astype(int) for side in (x, y))
    colours, far_first = image[row, column][shown], np.argsort(-z[shown])
    seen = np.full((height, width, 3), 255, np.uint8)
    for down in range(3):  # a point is a square of 3x3 pixels
        for right in range(3):
            at = np.stack((y + height // 2 + down, x + width // 2 + right))[:, far_first]
            inside = ((at >= 0) & (at < [[height], [width]])).all(0)
            seen[at[0, inside], at[1, inside]] = colours[far_first][inside]
    return seen


def row(parts: dict[str, Bytes], *, size: int = 34) -> Image.Image:
    """Place images of one size next to each other, each below its title in a font of `size`."""
    width = (WIDTH - GAP * (len(parts) - 1)) // len(parts)
    first = next(iter(parts.values()))
    height = round(width * first.shape[0] / first.shape[1])
    joined = Image.new("RGB", (WIDTH, TITLE + height), "white")
    pen, font = ImageDraw.Draw(joined), ImageFont.load_default(size)
    for place, (title, pixels) in enumerate(parts.items()):
        left = place * (width + GAP)
        pen.text((left, TITLE - 8), title, "black", font, anchor="ld")
        joined.paste(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC), (left, TITLE))
    return joined


def stack(*rows: Image.Image) -> Image.Image:
    """Place rows below each other."""
    joined = Image.new("RGB", (WIDTH, sum(each.height for each in rows)), "white")
    top = 0
    for each in rows:
        joined.paste(each, (0, top))
        top += each.height
    return joined


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
    except PamError as error:
        sys.exit(str(error))
