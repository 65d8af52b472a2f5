"""Make the images of README and guide with the shipped weights: readme_picture.py [FOLDER].

readme.jpg, top: the left image, its disparity map, and its points in metres, seen from the right. Bottom: a
part of the left image, downscaled and then upscaled by 4, by bicubic interpolation and by pam superres (PSNR
of the whole image without its 64 left-most columns).

camera.jpg: the same for images with JPEG artefacts and noise, by several methods.

confidence.jpg: the disparity map, and its pixels of high confidence.

rectified.jpg: a pair whose right camera is turned, before and after pam rectify --uncalibrated.

The comment of each file holds the checksums of the weights that it shows: a test fails if other weights are
shipped until this script has run again.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pamcli.calibration.files import read_calibration
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.uncalibrated import rectification_by_features
from pamcli.data.source import Sample
from pamcli.errors import PamError
from pamcli.evaluation.opencv_methods import DenoisedBicubic
from pamcli.evaluation.superres import Superres
from pamcli.evaluation.superres_metrics import Enlarged, superres_figures, superres_pair
from pamcli.files.atomic import write_atomically
from pamcli.imaging.colormap import colorize
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import read_image
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_MATCHING, DEFAULT_UPSCALING, locate, sha256

SAMPLE = Path(__file__).resolve().parent / "sample"
SCALE = 4
WEIGHTS = DEFAULT_MATCHING, DEFAULT_UPSCALING[SCALE]
CAMERA_WEIGHTS = DEFAULT_UPSCALING[SCALE], CAMERA_UPSCALING[SCALE]

WIDTH, GAP, TITLE = 1640, 16, 50
"""Width of the drawing, gap between its parts, and height of the line above each, in pixels."""
PART = slice(96, 252), slice(330, 630)
"""Rows and columns of the left picture that are shown below."""
EYE, LOOKS_AT = (0.8, -0.35, 0.4), (0.0, 0.15, 3.2)
"""Metres in the left camera's coordinates: x to the right, y down, z ahead."""
SURE = 0.5
"""Points of lower confidence are left out."""
FAULTS = {"JPEG 75": Degradation(jpeg=75), "noise of 10 levels": Degradation(noise=10)}
TURN, LINES = 2.0, 31
"""Degrees by which the right camera is turned, and half of the distance of the lines in rows."""
CROP = slice(120, 210), slice(380, 540)
"""Rows and columns of the left picture that are shown of each."""

Bytes = NDArray[np.uint8]


def main(folder: Path) -> None:
    drawings = {
        "readme.jpg": readme,
        "camera.jpg": camera,
        "confidence.jpg": confidence,
        "rectified.jpg": rectified,
    }
    for name, draw in drawings.items():
        path = folder / name
        drawing, weights, said = draw()
        stream = io.BytesIO()
        drawing.save(stream, "JPEG", quality=88, comment=checksums(weights))
        write_atomically(path, stream.getvalue())
        print(path, *said, sep="\n")


Drawn = tuple[Image.Image, tuple[str, ...], list[str]]
"""A drawing, the weights that it shows, and the titles of what can be compared."""


def readme() -> Drawn:
    """What pam does, in five parts."""
    views = [read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right")]
    pair = superres_pair(views[0], views[1], SCALE, name="the sample pair")
    matched = StereoMatcher.load(WEIGHTS[0], device="cpu")(pair.left, pair.right, extras={"confidence"})
    low, high = np.percentile(matched.disparity, (1, 99))
    calibration = read_calibration(SAMPLE / "calib.txt").rectified
    assert calibration is not None
    points = from_the_right(pair.left, matched.disparity_where(min_confidence=SURE), calibration)

    enlarged = StereoUpscaler.load(WEIGHTS[1], device="cpu")(pair.low_left, pair.low_right)
    larger = [view.astype(np.uint8) for view in enlarged]
    made = Enlarged(larger[0], larger[1])
    below = {}
    for name, each in {"bicubic": pair.bicubic(), "pam superres": made}.items():
        figures = superres_figures(pair, each.left, each.right)
        below[f"upscaled by {SCALE} with {name}: {figures['left']['psnr']:.1f} dB"] = each.left[PART]
    above = {
        "left image": pair.left,
        f"disparity map, {low:.0f} to {high:.0f} px": colorize(matched.disparity, low, high),
        "points in metres, from the right": points,
    }
    return stacked(row(above), row(below)), WEIGHTS, [*below]


def camera() -> Drawn:
    """Parts of a picture as cameras give it, enlarged: a row for each fault, a column for each method."""
    left, right = (read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right"))
    networks = [StereoUpscaler.load(name, device="cpu") for name in CAMERA_WEIGHTS]
    rows = []
    for title, fault in FAULTS.items():
        pair = Superres(SCALE, fault).case(Sample("sample", left, right, None))
        made = {"bicubic": pair.bicubic(), "denoised, bicubic": DenoisedBicubic(fault).enlarge(pair)}
        for name, network in zip(CAMERA_WEIGHTS, networks, strict=True):
            larger = [view.astype(np.uint8) for view in network(pair.low_left, pair.low_right)]
            made[name] = Enlarged(larger[0], larger[1])
        parts = {}
        for name, each in made.items():
            figures = superres_figures(pair, each.left, each.right)
            parts[f"{name}: {figures['left']['psnr']:.1f} dB"] = each.left[CROP]
        rows.append({f"{title}: original": pair.left[CROP], **parts})
    said = [f"{next(iter(each)).partition(':')[0]}, {name}" for each in rows for name in [*each][1:]]
    return stacked(*(row(each, size=19) for each in rows)), CAMERA_WEIGHTS, said


def confidence() -> Drawn:
    """Draw a disparity map, and what a threshold of confidence keeps of it."""
    left, right = (read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right"))
    matched = StereoMatcher.load(WEIGHTS[0], device="cpu")(left, right, extras={"confidence"})
    low, high = np.percentile(matched.disparity, (1, 99))
    parts = {
        "left image": left,
        f"disparity map, {low:.0f} to {high:.0f} px": colorize(matched.disparity, low, high),
        "confidence of 0.9 or more": colorize(matched.disparity_where(min_confidence=0.9), low, high),
    }
    return row(parts), WEIGHTS[:1], []


def rectified() -> Drawn:
    """Draw a pair with lines along its rows, before and after it is rectified by its features."""
    left, right = (read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right"))
    height, width = right.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), TURN, 1)
    turned = np.asarray(cv2.warpAffine(right, turn, (width, height)), np.uint8)
    rectification, _ = rectification_by_features([(left, turned)])
    straight = rectification.left(left), rectification.right(turned)
    rows = []
    for title, (one, two) in {"before": (left, turned), "after pam rectify": straight}.items():
        joined = np.concatenate([one, two], axis=1)
        joined[LINES :: 2 * LINES] = (255, 60, 60)
        joined[LINES + 1 :: 2 * LINES] = (255, 60, 60)
        rows.append({title: joined})
    return row(rows[0] | rows[1], size=26), (), []


def checksums(weights: tuple[str, ...]) -> str:
    """A line for each of the weights that a picture shows: its name and its sha256."""
    return "\n".join(f"{name} {sha256(locate(name))}" for name in weights)


def from_the_right(picture: Bytes, disparity: NDArray[np.float32], calibration: Calibration) -> Bytes:
    """The points of known depth as they look from EYE, on white: (H, W, 3), as the picture is."""
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
    colours, far_first = picture[row, column][shown], np.argsort(-z[shown])
    seen = np.full((height, width, 3), 255, np.uint8)
    for down in range(3):  # a point is a square of so many pixels
        for right in range(3):
            at = np.stack((y + height // 2 + down, x + width // 2 + right))[:, far_first]
            inside = ((at >= 0) & (at < [[height], [width]])).all(0)
            seen[at[0, inside], at[1, inside]] = colours[far_first][inside]
    return seen


def row(parts: dict[str, Bytes], *, size: int = 34) -> Image.Image:
    """Pictures of one size beside each other, as wide as the drawing, each below its title in that size."""
    width = (WIDTH - GAP * (len(parts) - 1)) // len(parts)
    first = next(iter(parts.values()))
    height = round(width * first.shape[0] / first.shape[1])
    drawing = Image.new("RGB", (WIDTH, TITLE + height), "white")
    pen, font = ImageDraw.Draw(drawing), ImageFont.load_default(size)
    for place, (title, pixels) in enumerate(parts.items()):
        left = place * (width + GAP)
        pen.text((left, TITLE - 8), title, "black", font, anchor="ld")
        drawing.paste(
            Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC), (left, TITLE)
        )
    return drawing


def stacked(*rows: Image.Image) -> Image.Image:
    drawing = Image.new("RGB", (WIDTH, sum(each.height for each in rows)), "white")
    top = 0
    for each in rows:
        drawing.paste(each, (0, top))
        top += each.height
    return drawing


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE)
    except PamError as error:
        sys.exit(str(error))
