"""Synthesize right views of real pairs, and insert occluders of known disparity: posts, wires, fences ..."""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.evaluation.pixels import carry_forward, fill_rows
from pamcli.networks.parallax import VISIBLE_THRESHOLD
from pamcli.scenes.thin_objects import FINER, random_occluder
from pamcli.training.augmentation import Example

Values = NDArray[np.float32]
Rgb = NDArray[np.uint8]
NEARER = 1.6  # maximum change of the baseline, as a factor
_FROM, _TO = 4, 2  # samples per pixel of the left and of the synthesized image
GAP = 4.0  # px by which a gap may be wider than the occlusion
_STEP = 1.0  # maximum disparity step within a surface, px


def synthesize_right_view(
    rng: Generator, left: Rgb, right: Rgb, disparity: Values
) -> tuple[Rgb, Values, Values, NDArray[np.bool_]]:
    """Synthesize a right image (H, W, 3) for a baseline changed by a factor up to `NEARER`.

    Returns it with the disparities of both images (H, W), px, and the left pixels visible in both. NaN marks
    left gaps that are too wide, and right pixels that are occluded in the left image.
    """
    factor = float(math.exp(rng.uniform(-1, 1) * math.log(NEARER)))
    disparity, learned = fill_gaps(disparity)
    disparity *= np.float32(factor)
    nearest = _project_to_right(disparity)
    holes = np.isnan(nearest)
    behind = fill_rows(nearest)
    width = left.shape[1]
    places = ((np.arange(_TO * width, dtype=np.float32) + 0.5) / _TO - 0.5)[None]
    seen = _sample(left, places + np.nan_to_num(nearest))
    hidden = _sample(right, places + np.nan_to_num(behind) * np.float32(1 - 1 / factor))
    fine = np.where(holes[..., None], hidden, seen)
    drawn = fine.reshape(len(left), width, _TO, 3).mean(2)
    of_right = np.fmax(nearest[:, ::_TO], nearest[:, 1::_TO])
    matches = np.arange(width) - disparity
    column = np.clip(np.floor((matches + 0.5) * _TO), 0, _TO * width - 1).astype(np.intp)
    in_front = np.nan_to_num(np.take_along_axis(nearest, column, 1)) <= disparity + VISIBLE_THRESHOLD
    visible = in_front & (matches >= 0) & (matches <= width - 1)
    taught = np.where(learned, disparity, np.float32(np.nan))
    return np.rint(drawn).clip(0, 255).astype(np.uint8), taught, of_right, visible


def _sample(view: Rgb, columns: NDArray[np.floating]) -> Values:
    """Sample colours (H, N, 3) of an image (H, W, 3) at columns (H, N), by cubic interpolation."""
    height, width = view.shape[:2]
    x = torch.from_numpy(np.broadcast_to(columns, (height, columns.shape[1])).astype(np.float32))
    y = torch.linspace(-1, 1, height)[:, None].expand_as(x) if height > 1 else torch.zeros_like(x)
    grid = torch.stack((x * (2 / max(width - 1, 1)) - 1, y), -1)
    pixels = torch.from_numpy(np.require(view, requirements=("C", "W"))).permute(2, 0, 1)[None].float()
    found = F.grid_sample(pixels, grid[None], "bicubic", "border", align_corners=True)
    return np.asarray(found[0].permute(1, 2, 0).numpy())


def fill_gaps(disparity: Values) -> tuple[Values, NDArray[np.bool_]]:
    """Fill unknown disparities (NaN) with the farther neighbour in the row.

    Also returns the pixels to learn from: known ones, and gaps not wider than the occlusion beside them.
    """
    unknown = np.isnan(disparity)
    before, after = carry_forward(disparity), carry_forward(disparity[:, ::-1])[:, ::-1]
    found = np.fmin(before, after)
    found = carry_forward(carry_forward(found.T)[:, ::-1])[:, ::-1].T  # rows without known pixels
    # Rows are filled separately: smooth their steps by the median of five.
    rows = F.pad(torch.from_numpy(np.ascontiguousarray(found))[None], (0, 0, 2, 2), mode="replicate")[0]
    smooth = rows.unfold(0, 5, 1).median(-1).values.numpy()
    columns = np.broadcast_to(np.arange(disparity.shape[1], dtype=np.float32), disparity.shape)
    places = np.where(unknown, np.float32(np.nan), columns)
    first, last = np.nan_to_num(carry_forward(places), nan=-1), carry_forward(places[:, ::-1])[:, ::-1]
    hidden = after - np.nan_to_num(before)  # disparity is 0 at the left border
    explained = unknown & (last - first - 1 <= hidden + GAP)
    return np.where(unknown, smooth, disparity).astype(np.float32), ~unknown | explained


def _project_to_right(disparity: Values) -> Values:
    """Return the disparity of each sample (H, 2 W) of the right image; NaN where occluded in the left one."""
    height, width = disparity.shape
    columns = ((np.arange(_FROM * width, dtype=np.float32) + 0.5) / _FROM - 0.5).clip(0, width - 1)
    before = np.minimum(columns.astype(np.intp), width - 2)
    share = (columns - before).astype(np.float32)
    here, there = disparity[:, before], disparity[:, before + 1]
    between = here + share * (there - here)
    found = np.where(abs(there - here) <= _STEP, between, np.where(share < 0.5, here, there))
    places = np.floor((columns - found + 0.5) * _TO).astype(np.intp)
    places[(places < 0) | (places >= _TO * width)] = _TO * width  # an extra column, cut off below
    nearest = torch.full((height, _TO * width + 1), -torch.inf)
    nearest = nearest.scatter_reduce(1, torch.from_numpy(places), torch.from_numpy(found), "amax")[:, :-1]
    return nearest.masked_fill(nearest.isneginf(), torch.nan).numpy()


Mask = NDArray[np.bool_]
View = tuple[Values, Values, Values]
Views = tuple[View, View]  # the left and right view of an occluder
MOST = 4  # maximum number of occluders in a pair
NEAREST = 0.4  # maximum disparity of an occluder, as a fraction of the image width
_TRIALS = 4  # attempts to place an occluder in front of everything it covers
_WRONG = 0.005  # tolerated share of covered pixels that are nearer, because labels err


class Occluder(NamedTuple):
    """An occluder: texture (4, FINER h, FINER w), premultiplied RGB and opacity, with its position."""

    texture: Tensor
    left: float  # left edge, px; pixel 0 spans -0.5 to 0.5
    top: float
    disparity: float  # at the top left corner, px
    across: float  # increase of the disparity per column
    down: float

    def seen(self, height: int, width: int, *, from_right: bool) -> View:
        """Render premultiplied colours (H, W, 3), opacity and disparity (H, W), NaN outside of its frame."""
        _, rows, texels = self.texture.shape
        nearest = farthest = 0.0
        if from_right:  # at the corners
            rise, fall = self.across * texels / FINER, self.down * rows / FINER
            nearest = self.disparity + max(0.0, rise) + max(0.0, fall)
            farthest = self.disparity + min(0.0, rise) + min(0.0, fall)
        window = (
            _make_window(self.top, self.top + rows / FINER, height),
            _make_window(self.left - nearest, self.left + texels / FINER - farthest, width),
        )
        y = (torch.arange(FINER * window[0].start, FINER * window[0].stop) + 0.5) / FINER - 0.5
        x = (torch.arange(FINER * window[1].start, FINER * window[1].stop) + 0.5) / FINER - 0.5
        y, x = torch.meshgrid(y, x, indexing="ij")
        offset = self.disparity - self.across * self.left + self.down * (y - self.top)
        columns = (x + offset) / (1 - self.across) if from_right else x
        places = ((columns - self.left) * (2 * FINER / texels) - 1, (y - self.top) * (2 * FINER / rows) - 1)
        found = F.grid_sample(self.texture[None], torch.stack(places, -1)[None], align_corners=False)
        mean = F.avg_pool2d(found, FINER)[0]
        depth = F.avg_pool2d((offset + self.across * columns)[None], FINER)[0]
        colours, opacity = np.zeros((height, width, 3), np.float32), np.zeros((height, width), np.float32)
        disparity = np.full((height, width), np.nan, np.float32)
        colours[window], opacity[window] = mean[:3].permute(1, 2, 0).numpy(), mean[3].numpy()
        disparity[window] = depth.numpy()
        return colours, opacity, disparity


def _make_window(first: float, last: float, side: int) -> slice:
    """Return the pixels of a side between `first` and `last`, at least one."""
    start = int(np.clip(math.floor(first) - 1, 0, side - 1))
    return slice(start, int(np.clip(math.ceil(last) + 1, start + 1, side)))


def insert_occluders(rng: Generator, example: Example) -> Example:
    """Insert up to `MOST` occluders into a pair with known disparities, each in front of what it covers."""
    if not np.isfinite(example.disparity).any():
        return example
    image, size = example.left, example.disparity.shape
    behind, _ = fill_gaps(example.disparity)
    for _ in range(int(rng.integers(1, MOST + 1))):
        for _ in range(_TRIALS):
            thing = _make_occluder(rng, image, behind)
            if thing is None:
                continue
            views = thing.seen(*size, from_right=False), thing.seen(*size, from_right=True)
            if _is_in_front(views, behind):
                example, behind = _insert(example, views, behind)
                break
    return example


def _make_occluder(rng: Generator, image: Rgb, behind: Values) -> Occluder | None:
    """Return a random occluder in front of `behind` (H, W), or None if it would be too near."""
    height, width = behind.shape
    texture, slant = random_occluder(rng, image)
    rows, columns = texture.shape[1] / FINER, texture.shape[2] / FINER
    left, top = rng.uniform(-columns / 2, width - columns / 2), rng.uniform(-rows / 2, height - rows / 2)
    covered = behind[max(round(top), 0) : round(top + rows), max(round(left), 0) : round(left + columns)]
    if not covered.size:
        return None
    nearer = math.exp(rng.uniform(0, math.log(0.1 * width)))
    disparity = float(np.quantile(covered, 1 - _WRONG)) + nearer
    if disparity > NEAREST * width:
        return None
    across = slant * float(rng.normal()) * disparity / columns
    down = slant * float(rng.normal()) * disparity / rows
    return Occluder(texture, left, top, disparity, float(np.clip(across, -0.3, 0.3)), down)


def _is_in_front(views: Views, behind: Values) -> bool:
    """Return whether an occluder is nearer than what it covers in both images, except for a few pixels."""
    width = behind.shape[1]
    for from_right, (_, opacity, disparity) in enumerate(views):
        if from_right:
            places = np.rint(np.arange(width) - behind).astype(np.intp)
            outside = (places < 0) | (places >= width)
            places = places.clip(0, width - 1)
            opacity = np.where(outside, 0, np.take_along_axis(opacity, places, 1))
            disparity = np.take_along_axis(disparity, places, 1)
        covered = opacity > 0.5
        if (behind[covered] > disparity[covered] - 0.5).sum() > _WRONG * max(covered.sum(), 1):
            return False
    return True


def _insert(example: Example, views: Views, behind: Values) -> tuple[Example, Values]:
    """Insert an occluder into the pair and into the gap-free left disparities."""
    from_left, from_right = views
    own, there = from_left[1] > 0.5, from_right[1] > 0.5
    disparity = np.where(own, from_left[2], example.disparity)
    of_right = example.right_disparity
    if np.isfinite(of_right).any():
        of_right = np.where(there, from_right[2], of_right)
    changed = Example(
        _blend(example.left, *from_left[:2]),
        _blend(example.right, *from_right[:2]),
        disparity,
        of_right,
        _find_visible(disparity, -1, own, there, example.visible),
        _find_visible(of_right, 1, there, own, example.right_visible),
    )
    return changed, np.where(own, disparity, behind)


def _blend(view: Rgb, colours: Values, opacity: Values) -> Rgb:
    mixed = np.rint(view * (1 - opacity[..., None]) + 255 * colours)
    return np.asarray(mixed.clip(0, 255), np.uint8)


def _find_visible(disparity: Values, sign: int, own: Mask, other: Mask, before: Mask) -> Mask:
    """Return the pixels visible in both images; `own`, `other`: where the images show the occluder."""
    width = disparity.shape[1]
    places = np.arange(width) + sign * np.nan_to_num(disparity)
    inside = np.isfinite(disparity) & (places >= 0) & (places <= width - 1)
    hidden = np.take_along_axis(other, np.rint(places).clip(0, width - 1).astype(np.intp), 1)
    return np.asarray(inside & (own | (before & ~hidden)))
