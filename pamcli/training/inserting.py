"""Posts, wires, fences and other things put in front of real pairs, where their disparity is known.

Labels of real pairs are missing where things are thin and where the other view sees nothing, which is where
matchers err. A thing that is put in front of both views has a truth up to its edges, and so has what it hides
from one of them: the picture behind it is real, and its label known.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes.inserts import FINER, random_thing
from pamcli.training.augmentation import Example
from pamcli.training.redrawing import Picture, Values, filled

Mask = NDArray[np.bool_]
View = tuple[Values, Values, Values]
Views = tuple[View, View]
"""What the left and the right view see of a thing."""

MOST = 4  # things put before a pair
NEAREST = 0.4  # largest disparity of a thing, as a part of the picture's width
_TRIALS = 4  # places tried for a thing, in front of all that is there
_WRONG = 0.005  # share of what a thing covers that may be nearer than it: labels err


class Thing(NamedTuple):
    """A texture (4, FINER h, FINER w), colours times opacity, and where it stands in the left view."""

    texture: Tensor
    left: float
    """Its left edge, pixels; pixel 0 reaches from -0.5 to 0.5."""
    top: float
    disparity: float
    """At its top left corner, pixels."""
    across: float
    """Growth of the disparity from a column to the next."""
    down: float

    def views(self, height: int, width: int) -> Views:
        """What both views see of it."""
        return self.seen(height, width, from_right=False), self.seen(height, width, from_right=True)

    def seen(self, height: int, width: int, *, from_right: bool) -> View:
        """What a view of this size sees of it: colours times opacity (H, W, 3), opacity and disparity (H, W).

        Every pixel is the mean of FINER times FINER samples. The disparity is NaN outside of its frame.
        """
        _, rows, texels = self.texture.shape
        corners = [self.disparity + a * texels / FINER + b * rows / FINER
                   for a in (0.0, self.across) for b in (0.0, self.down)]  # fmt: skip
        nearest, farthest = (max(corners), min(corners)) if from_right else (0.0, 0.0)
        window = (
            _window(self.top, self.top + rows / FINER, height),
            _window(self.left - nearest, self.left + texels / FINER - farthest, width),
        )
        y, x = (
            torch.arange(FINER * part.start, FINER * part.stop).add(0.5).div(FINER).sub(0.5)
            for part in window
        )
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


def _window(first: float, last: float, side: int) -> slice:
    """The pixels of a side that a thing from `first` to `last` touches, at least one."""
    start = int(np.clip(math.floor(first) - 1, 0, side - 1))
    return slice(start, int(np.clip(math.ceil(last) + 1, start + 1, side)))


def inserted(rng: Generator, example: Example) -> Example:
    """A pair with up to `MOST` things in front of what is there, each at a random place nearer than that.

    The truth of the right view grows where there is one. A pair of which nothing is known stays as it is.
    """
    if not np.isfinite(example.disparity).any():
        return example
    picture = example.left
    behind, _ = filled(example.disparity)
    for _ in range(int(rng.integers(1, MOST + 1))):
        for _ in range(_TRIALS):
            thing = _thing(rng, picture, behind)
            if thing is not None and _in_front(views := thing.views(*behind.shape), behind):
                example, behind = _with(example, views, behind)
                break
    return example


def _thing(rng: Generator, picture: Picture, behind: Values) -> Thing | None:
    """A thing somewhere, nearer than what it covers of `behind` (H, W); None: it would be too near."""
    height, width = behind.shape
    texture, slant = random_thing(rng, picture)
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
    return Thing(texture, left, top, disparity, float(np.clip(across, -0.3, 0.3)), down)


def _in_front(views: Views, behind: Values) -> bool:
    """Whether a thing is nearer than what it covers in either view, but for a few pixels."""
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


def _with(example: Example, views: Views, behind: Values) -> tuple[Example, Values]:
    """The pair, and the left view's disparities without gaps, with the thing in front."""
    from_left, from_right = views
    own, there = from_left[1] > 0.5, from_right[1] > 0.5
    disparity = np.where(own, from_left[2], example.disparity)
    of_right = example.right_disparity
    if np.isfinite(of_right).any():
        of_right = np.where(there, from_right[2], of_right)
    changed = Example(
        _mixed(example.left, *from_left[:2]),
        _mixed(example.right, *from_right[:2]),
        disparity,
        of_right,
        _seen(disparity, -1, own, there, example.visible),
        _seen(of_right, 1, there, own, example.right_visible),
    )
    return changed, np.where(own, disparity, behind)


def _mixed(view: Picture, colours: Values, opacity: Values) -> Picture:
    mixed: Picture = np.rint(view * (1 - opacity[..., None]) + 255 * colours).clip(0, 255).astype(np.uint8)
    return mixed


def _seen(disparity: Values, sign: int, own: Mask, other: Mask, before: Mask) -> Mask:
    """Pixels that the other view sees, too; own, other: where the views show the thing."""
    width = disparity.shape[1]
    places = np.arange(width) + sign * np.nan_to_num(disparity)
    inside = np.isfinite(disparity) & (places >= 0) & (places <= width - 1)
    hidden = np.take_along_axis(other, np.rint(places).clip(0, width - 1).astype(np.intp), 1)
    return np.asarray(inside & (own | (before & ~hidden)))
