"""Render a contact sheet of a data set: left image, right image, disparity and occlusion per sample."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pamcli.data.source import Sample, Source
from pamcli.imaging.colormap import colorize
from pamcli.imaging.images import to_uint8
from pamcli.imaging.resize import resize_nearest

_GAP = 4  # px, between cells
_LINE = 14  # px, height of the text above a row
_DARK, _LIGHT = (24, 24, 24), (230, 230, 230)
_OCCLUDED, _UNKNOWN = 0, 96


def render_contact_sheet(source: Source, count: int, *, cell_width: int = 320) -> NDArray[np.uint8]:
    """Return the contact sheet as (H, W, 3) uint8 RGB: for each of `count` samples, a name and four cells.

    Disparities are coloured between their own 1st and 99th percentile, which the text states. The last cell
    is white for pixels visible in both images, black for occluded ones, grey for unknown ones. Without ground
    truth, the third cell is a red-cyan anaglyph and the last one is dark.
    """
    rows = [_render_row(source.load(index), cell_width) for index in source.spread(count)]
    gap = np.full((_GAP, 4 * cell_width + 5 * _GAP, 3), _DARK, np.uint8)
    return np.concatenate([gap, *(part for row in rows for part in (row, gap))])


def _render_row(sample: Sample, width: int) -> NDArray[np.uint8]:
    height = max(1, round(sample.left.shape[0] * width / sample.left.shape[1]))
    # Area means are fast, and good enough to look at.
    left, right = (
        np.asarray(Image.fromarray(to_uint8(view)).resize((width, height), Image.Resampling.BOX))
        for view in (sample.left, sample.right)
    )
    cells = [left, right]
    text = f"{sample.name}   {sample.left.shape[1]}x{sample.left.shape[0]}"
    if sample.disparity is None:
        cells += [np.concatenate([left[..., :1], right[..., 1:]], axis=2)]
        text += "   no ground truth"
    else:
        known = sample.disparity[np.isfinite(sample.disparity)]
        low, high = np.percentile(known, [1, 99]) if known.size else (0.0, 0.0)
        colored = colorize(sample.disparity, float(low), float(high))
        cells += [resize_nearest(colored, width, height)]
        text += f"   disparity {low:.1f} to {high:.1f} px, {known.size / sample.disparity.size:.0%} known"
    if sample.visible is not None:  # black where the ground truth is known but occluded
        has_truth = True if sample.disparity is None else np.isfinite(sample.disparity)
        levels = np.where(sample.visible, 255, np.where(has_truth, _OCCLUDED, _UNKNOWN))
        cells += [resize_nearest(np.repeat(levels[..., None], 3, axis=2), width, height)]
    row = np.full((height + _LINE, 4 * width + 5 * _GAP, 3), _DARK, np.uint8)
    for column, cell in enumerate(cells):
        start = _GAP + column * (width + _GAP)
        row[_LINE:, start : start + width] = cell
    image = Image.fromarray(row)
    ascii_text = text.encode("ascii", "backslashreplace").decode()  # all that the built-in font has for sure
    ImageDraw.Draw(image).text((_GAP, 1), ascii_text, fill=_LIGHT, font=ImageFont.load_default())
    return np.asarray(image)
