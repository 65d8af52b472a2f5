"""Posts, wires, fences and other things put in front of real pairs, where their disparity is known.

Labels of real pairs are missing where things are thin and where the other view sees nothing, which is where
matchers err. A thing that is put in front of both views has a truth up to its edges, and so has what it hides
from one of them: the picture behind it is real, and its label known.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes import looks, thickets
from pamcli.scenes.textures import cut, made_up, opaque
from pamcli.training.augmentation import Example
from pamcli.training.redrawing import filled

Values = NDArray[np.float32]

MOST = 4  # things put before a pair
FINER = 2  # texels a pixel
NEAREST = 0.4  # largest disparity of a thing, as a part of the picture's width
_TRIALS = 4  # places tried for a thing, in front of all that is there
_WRONG = 0.005  # share of what a thing covers that may be nearer than it: labels err


class Thing(NamedTuple):
    """A texture (4, FINER h, FINER w), colours times opacity, and where it stands in the left view."""

    texture: Tensor
    left: float
    top: float
    disparity: float
    """At its top left corner, pixels."""
    across: float
    """Growth of the disparity from a column to the next."""
    down: float

    def seen(self, height: int, width: int, *, from_right: bool) -> tuple[Values, Values, Values]:
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
            if thing is not None:
                example, behind = _with(example, thing, behind)
                break
    return example


def _thing(rng: Generator, picture: NDArray[np.uint8], behind: Values) -> Thing | None:
    """A thing somewhere in front of `behind` (H, W); None: that place has no room for one."""
    height, width = behind.shape
    texture, slant = _LOOKS[rng.choice(len(_LOOKS), p=_SHARES)](rng, picture)
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
    thing = Thing(texture, left, top, disparity, float(np.clip(across, -0.3, 0.3)), down)
    return thing if _in_front(thing, behind) else None


def _in_front(thing: Thing, behind: Values) -> bool:
    """Whether it is nearer than what it covers in either view, but for a few pixels."""
    height, width = behind.shape
    for from_right in (False, True):
        _, opacity, disparity = thing.seen(height, width, from_right=from_right)
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


def _with(example: Example, thing: Thing, behind: Values) -> tuple[Example, Values]:
    """The pair, and the left view's disparities without gaps, with the thing in front."""
    height, width = behind.shape
    views, masks, truths = [], [], []
    known = example.disparity, example.right_disparity
    for from_right, view in enumerate((example.left, example.right)):
        colours, opacity, disparity = thing.seen(height, width, from_right=bool(from_right))
        mixed = view * (1 - opacity[..., None]) + 255 * colours
        views.append(np.rint(mixed).clip(0, 255).astype(np.uint8))
        masks.append(opacity > 0.5)
        learned = not from_right or np.isfinite(known[1]).any()
        truths.append(np.where(masks[-1], disparity if learned else np.nan, known[from_right]))
    columns = np.arange(width)
    seen = []
    for sign, before, disparity, own, other in (
        (-1, example.visible, truths[0], *masks),
        (1, example.right_visible, truths[1], *reversed(masks)),
    ):
        places = columns + sign * np.nan_to_num(disparity)
        inside = np.isfinite(disparity) & (places >= 0) & (places <= width - 1)
        hidden = np.take_along_axis(other, np.rint(places).clip(0, width - 1).astype(np.intp), 1)
        seen.append(inside & np.where(own, True, before & ~hidden))
    disparities = (truth.astype(np.float32) for truth in truths)
    return Example(*views, *disparities, *seen), np.where(masks[0], truths[0], behind).astype(np.float32)


def _sized(rng: Generator, picture: NDArray[np.uint8], high: float, wide: float) -> tuple[int, int]:
    """Texels of a thing at most so high and wide, in parts of the picture's height."""
    height = len(picture)
    rows, columns = (math.exp(rng.uniform(math.log(part / 4), math.log(part))) for part in (high, wide))
    return max(8, int(FINER * height * rows)), max(8, int(FINER * height * columns))


def _post(rng: Generator, picture: NDArray[np.uint8]) -> tuple[Tensor, float]:
    rows, _ = _sized(rng, picture, 1.2, 0.1)
    columns = max(4, int(FINER * math.exp(rng.uniform(math.log(2), math.log(0.08 * len(picture))))))
    texture = looks.post(rng, rows, columns)
    texture[:, :, [0, -1]] *= 0.5
    return texture, 0.0


def _fence(rng: Generator, picture: NDArray[np.uint8]) -> tuple[Tensor, float]:
    rows, columns = _sized(rng, picture, 0.7, 1.2)
    outline = (looks.bars, looks.net, thickets.rails)[rng.integers(3)]
    mask = cv2.resize(outline(rng, rows // 2 + 1, columns // 2 + 1), (columns, rows))
    return cut(thickets.even(rng, rows, columns), mask), 0.15


def _twig(rng: Generator, picture: NDArray[np.uint8]) -> tuple[Tensor, float]:
    rows, columns = _sized(rng, picture, 0.9, 0.9)
    mask = thickets.forked(rng, rows, columns)
    if rng.random() < 0.5:
        mask = mask[::-1].copy()
    return cut(thickets.bark(rng, rows, columns), mask), 0.1


def _wire(rng: Generator, picture: NDArray[np.uint8]) -> tuple[Tensor, float]:
    rows, columns = _sized(rng, picture, 0.4, 2.0)
    return cut(thickets.even(rng, rows, columns), thickets.sagging(rng, rows, columns)), 0.15


def _shape(rng: Generator, picture: NDArray[np.uint8]) -> tuple[Tensor, float]:
    """A solid outline with a made-up look, or with that of another part of the picture."""
    rows, columns = _sized(rng, picture, 0.7, 0.7)
    height, width = picture.shape[:2]
    if rng.random() < 0.5:
        surface = made_up(rng, rows, columns)
    else:
        high, wide = min(rows // FINER, height), min(columns // FINER, width)
        top, left = int(rng.integers(height - high + 1)), int(rng.integers(width - wide + 1))
        piece = picture[top : top + high, left : left + wide][:, :: rng.choice([-1, 1])]
        piece = cv2.resize(np.ascontiguousarray(piece), (columns, rows), interpolation=cv2.INTER_CUBIC)
        surface = opaque(piece / np.float32(255) * np.float32(rng.uniform(0.6, 1.4))).clamp(0, 1)
    return cut(surface, looks.random_shape(rng, rows, columns)), 0.1


_LOOKS: list[Callable[[Generator, NDArray[np.uint8]], tuple[Tensor, float]]]
_LOOKS = [_post, _fence, _twig, _wire, _shape]
_SHARES = [0.35, 0.1, 0.1, 0.1, 0.35]
