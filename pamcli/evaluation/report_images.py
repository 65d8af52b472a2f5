"""Prepare the images of a report: error maps and photographs, downscaled and embedded into the page."""

import base64
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from pamcli.data.source import Sample
from pamcli.evaluation.pixels import sum_windows
from pamcli.imaging.colormap import colorize
from pamcli.imaging.images import RgbImage, encode_image, to_uint8

MAX_WIDTH = 480
CROP = 120, 160  # height and width of crops of an upscaled image

_FRAME = (255, 0, 140)
_SPARSE = 0.5  # ground truth with a smaller share of known pixels is drawn thicker


@dataclass(frozen=True)
class Panel:
    """An image with its title."""

    title: str
    pixels: NDArray[np.generic]  # (H, W, 3) RGB, uint8 or uint16
    kind: Literal["photo", "map", "errors", "crop"] = "photo"
    """photo: downscaled by averaging. map: colour-coded numbers, black = unknown, never blended. errors: a
    map in KITTI's error colours. crop: a cut-out in which single pixels must stay visible."""


@dataclass(frozen=True)
class DrawnPair:
    """The panels that show one pair in the report."""

    name: str
    caption: str  # metrics in words: "D1 31.2 %, end-point error 4.10 px"
    panels: tuple[Panel, ...]


def draw_disparities(
    sample: Sample, caption: str, disparities: Mapping[str, NDArray[np.floating]]
) -> DrawnPair:
    """Show left image, ground truth, and each method's disparity (same colours) and KITTI's error map."""
    assert sample.disparity is not None
    truth, several = sample.disparity, len(disparities) > 1
    known = truth[np.isfinite(truth)]
    low, high = (float(np.percentile(known, part)) for part in (1, 99)) if known.size else (0.0, 1.0)
    low, high = math.floor(low), math.ceil(high)
    true = Panel(f"Ground truth, dark {low} to bright {high} px", colorize(truth, low, high), "map")
    panels = [Panel("Left image", sample.left), true]
    for method, values in disparities.items():
        disparity, thicken = values.astype(np.float32), known.size < _SPARSE * truth.size
        errors = draw_error_map(disparity, truth, visible=sample.visible, thicken=thicken)
        title = f"{method}: disparity" if several else "Disparity, same colours"
        panels.append(Panel(title, colorize(disparity, low, high), "map"))
        panels.append(Panel(f"{method}: error" if several else "Error", errors, "errors"))
    return DrawnPair(sample.name, caption, tuple(panels))


def draw_consistency(
    disparity: NDArray[np.float32], right: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[Panel, Panel]:
    """Draw the left-right difference and the uncertainty of a network from maps (H, W); disparities in px."""
    width = disparity.shape[1]
    match = np.arange(width) - disparity
    inside = (match >= 0) & (match <= width - 1)
    nearest = np.rint(np.clip(match, 0, width - 1)).astype(np.intp)
    difference = np.abs(disparity - np.take_along_axis(right, nearest, axis=1))
    difference = np.where(inside, difference, np.nan).astype(np.float32)
    uncertainty = (1 - confidence).astype(np.float32)
    return (
        Panel("Left-right difference, dark 0 to bright 3 px", colorize(difference, 0.0, 3.0), "map"),
        Panel("Uncertainty (1 - confidence), dark 0 to bright 1", colorize(uncertainty, 0.0, 1.0), "map"),
    )


def draw_superres(
    name: str, caption: str, views: Mapping[str, NDArray[np.uint8]], truth: NDArray[np.uint8]
) -> DrawnPair:
    """Show the left image, and the crop with the largest error of the last of `views`: each, ground truth."""
    cut = _find_worst_window([*views.values()][-1], truth)
    panels = [Panel("Left image with the crop shown below", _draw_frame(truth, cut))]
    panels += [Panel(title, view[cut], "crop") for title, view in views.items()]
    return DrawnPair(name, caption, (*panels, Panel("Ground truth", truth[cut], "crop")))


def encode_data_uri(panel: Panel) -> tuple[str, int, int]:
    """Encode an image as a data: URI (JPEG or lossless WebP), at most `MAX_WIDTH` px wide, with its size."""
    small = to_uint8(panel.pixels)
    factor = -(-small.shape[1] // MAX_WIDTH)
    if factor > 1:
        is_map = panel.kind in ("map", "errors")
        small = _pick_coloured(small, factor) if is_map else np.asarray(Image.fromarray(small).reduce(factor))
    suffix, media = (".jpg", "jpeg") if panel.kind == "photo" else (".webp", "webp")
    data = encode_image(RgbImage(np.ascontiguousarray(small)), suffix, name=panel.title)
    return f"data:image/{media};base64,{base64.b64encode(data).decode()}", small.shape[1], small.shape[0]


def _pick_coloured(pixels: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Return the first pixel of each block that is not black, so that sparse maps keep their brightness."""
    height, width = (-(-side // factor) for side in pixels.shape[:2])
    padding = ((0, height * factor - pixels.shape[0]), (0, width * factor - pixels.shape[1]), (0, 0))
    blocks = np.pad(pixels, padding, mode="edge").reshape(height, factor, width, factor, 3)
    blocks = blocks.swapaxes(1, 2).reshape(height, width, factor * factor, 3)
    first = blocks.any(axis=3).argmax(axis=2)
    return np.take_along_axis(blocks, first[..., None, None], axis=2)[:, :, 0]


def _find_worst_window(result: NDArray[np.uint8], truth: NDArray[np.uint8]) -> tuple[slice, slice]:
    """Return the rows and columns of the crop with the largest sum of squared errors."""
    height, width = (min(side, most) for side, most in zip(truth.shape[:2], CROP, strict=True))
    sums = sum_windows(np.square(result.astype(np.float64) - truth).sum(axis=2), height, width)
    y, x = map(int, np.unravel_index(int(sums.argmax()), sums.shape))
    return slice(y, y + height), slice(x, x + width)


def _draw_frame(pixels: NDArray[np.uint8], cut: tuple[slice, slice]) -> NDArray[np.uint8]:
    """Return a copy with a frame around the crop, thick enough to survive downscaling."""
    thick = max(2, 2 * -(-pixels.shape[1] // MAX_WIDTH))
    framed = Image.fromarray(pixels)
    (top, bottom), (left, right) = ((side.start - thick, side.stop + thick - 1) for side in cut)
    ImageDraw.Draw(framed).rectangle((left, top, right, bottom), outline=_FRAME, width=thick)
    return np.asarray(framed)


ERROR_STEPS = (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # where each colour begins

_COOL, _WARM = "#313695 #4575b4 #74add1 #abd9e9 #e0f3f8", "#fee090 #fdae61 #f46d43 #d73027 #a50026"
ERROR_COLORS = tuple(ImageColor.getrgb(color) for color in (*_COOL.split(), *_WARM.split()))
"""RGB colours, one for each of `ERROR_STEPS`."""


def draw_error_map(
    estimate: NDArray[np.float32],
    truth: NDArray[np.float32],
    *,
    visible: NDArray[np.bool_] | None = None,
    thicken: bool = False,
) -> NDArray[np.uint8]:
    """Draw KITTI's error map: (H, W, 3) uint8 RGB, black where the ground truth is unknown.

    Colours encode n = min(error / 3 px, error / 5 % of the ground truth) in ten steps, each twice as wide as
    the one before, as in the KITTI 2015 development kit (io_disp.h, log_colormap.h). Missing estimates have
    the colour of the largest errors. Pixels not `visible` are drawn half as bright. `thicken`: draw every
    pixel as 3 x 3 pixels, as the benchmark does for sparse ground truth.
    """
    known = np.isfinite(truth)
    error = np.abs(np.where(np.isfinite(estimate), estimate, np.inf) - np.where(known, truth, 0))
    error = error.astype(np.float64)  # as in the kit: a difference of floats, divided as doubles
    with np.errstate(divide="ignore", invalid="ignore"):
        # Ground truth of 0 px gives 0 / 0 = NaN, which fmin ignores.
        n = np.fmin(error / 3.0, 20.0 * error / np.abs(np.where(known, truth, 1)))
    colors = np.array(ERROR_COLORS, np.uint8)[np.searchsorted(ERROR_STEPS, n, side="right") - 1]
    if visible is not None:
        colors = np.where(visible[..., None], colors, colors // 2)
    if not thicken:
        return np.where(known[..., None], colors, np.uint8(0))
    height, width = known.shape
    drawn = np.zeros((height, width, 3), np.uint8)
    framed, framed_known = np.pad(colors, ((1, 1), (1, 1), (0, 0))), np.pad(known, 1)
    for y, x in itertools.product(range(3), range(3)):  # as the benchmark: later neighbours win
        shift = slice(y, y + height), slice(x, x + width)
        drawn[framed_known[shift]] = framed[shift][framed_known[shift]]
    return drawn
