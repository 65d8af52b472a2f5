"""Augment real pairs with occluders of known disparity: posts, wires, fences and other things."""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes.occluders import FINER, random_occluder
from pamcli.training.augmentation import Example
from pamcli.training.view_synthesis import Rgb, Values, fill_gaps

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

    def views(self, height: int, width: int) -> Views:
        return self.seen(height, width, from_right=False), self.seen(height, width, from_right=True)

    def seen(self, height: int, width: int, *, from_right: bool) -> View:
        """Render premultiplied colours (H, W, 3), opacity and disparity (H, W), NaN outside of its frame."""
        _, rows, texels = self.texture.shape
        corners = [self.disparity + a * texels / FINER + b * rows / FINER
                   for a in (0.0, self.across) for b in (0.0, self.down)]  # fmt: skip
        nearest, farthest = (max(corners), min(corners)) if from_right else (0.0, 0.0)
        down = _make_window(self.top, self.top + rows / FINER, height)
        window = down, _make_window(self.left - nearest, self.left + texels / FINER - farthest, width)
        points = [torch.arange(FINER * part.start, FINER * part.stop) for part in window]
        y, x = torch.meshgrid(*((each + 0.5) / FINER - 0.5 for each in points), indexing="ij")
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
    image = example.left
    behind, _ = fill_gaps(example.disparity)
    for _ in range(int(rng.integers(1, MOST + 1))):
        for _ in range(_TRIALS):
            thing = _make_occluder(rng, image, behind)
            if thing is not None and _is_in_front(views := thing.views(*behind.shape), behind):
                example, behind = _insert(example, views, behind)
                break
    return example


def _make_occluder(rng: Generator, image: Rgb, behind: Values) -> Occluder | None:
    """Return a random occluder in front of `behind` (H, W), or None if it would be too near."""
    height, width = behind.shape
    texture, slant = random_occluder(rng, image)
    rows, columns = (side / FINER for side in texture.shape[1:])
    left, top = rng.uniform(-columns / 2, width - columns / 2), rng.uniform(-rows / 2, height - rows / 2)
    covered = behind[max(round(top), 0) : round(top + rows), max(round(left), 0) : round(left + columns)]
    if not covered.size:
        return None
    nearer = math.exp(rng.uniform(0, math.log(0.1 * width)))
    disparity = float(np.quantile(covered, 1 - _WRONG)) + nearer
    if disparity > NEAREST * width:
        return None
    across, down = (slant * float(rng.normal()) * disparity / side for side in (columns, rows))
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
