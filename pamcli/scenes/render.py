"""Render both views of a scene with exact disparity.

A pixel's colour combines five points, its centre and its corners, each traced to the surface with the largest
disparity; its disparity and visibility are those of its centre.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes.surfaces import Pair, Surface

SOLID = 0.5  # smallest opacity at which a pixel belongs to the surface and has its disparity
HIDES = 0.5  # px of disparity by which a surface hides another; less covers below half a pixel of it
COARSEST = 8  # textures are downscaled at most 2^8 times; beyond that they look uniform
SHARPER = 0.75  # levels finer than a pixel at which textures are sampled, as a pixel has several points
MOST_FORESHORTENED = 4.0  # most pixel length, in sides, that a texture sample covers
Box = tuple[float, float, float, float]  # left, top, right, bottom (left view, px)
Array = TypeVar("Array")


@dataclass(frozen=True, eq=False)
class Decal:
    """An image on top of a layer, such as a road mark or a shadow."""

    texture: Tensor  # (4, h, w): colours times opacity, and opacity
    homography: NDArray[np.float64]  # from left (x, y, 1) to texels; texel centres are whole numbers
    endless: bool = False


@dataclass(frozen=True, eq=False)
class Reflection:
    """A mirror image on a layer, with its own disparity."""

    texture: Tensor  # (4, h, w), opaque; repeated by mirroring beyond its borders
    disparity: float
    density: tuple[float, float]  # texels per pixel, across and down
    endless = True


@dataclass(frozen=True, eq=False)
class Layer:
    """A textured surface, bounded by its texture unless `endless`."""

    surface: Surface
    texture: Tensor  # (4, h, w) as in `Decal`; or (5, h, w) with the reflection's share times opacity
    homography: NDArray[np.float64]  # (3, 3) homography from (x, y, 1) to texels, as in `Decal`
    endless: bool = False  # if True, the opaque texture is repeated by mirroring beyond its borders
    clips: tuple[tuple[float, float, float], ...] = ()  # limits p x + q y + r > 0 in the left view
    box: Box | None = None  # bounding box, or None if unbounded
    light: float = 1.0  # factor of the colours
    decals: tuple[Decal, ...] = ()
    reflection: Reflection | None = None
    unseen: int | None = None  # view that sees only the back: 0 left, 1 right

    @property
    def middle_disparity(self) -> float:
        """Disparity (px) in the middle of the box, without waves."""
        x0, y0, x1, y1 = self.box or (0, 0, 0, 0)
        return self.surface.disparity_at((x0 + x1) / 2, (y0 + y1) / 2)


class Views(NamedTuple, Generic[Array]):
    """A rendered pair. Maps have shape (H, W), colours (3, H, W)."""

    left: Array  # RGB, white is 1; mirrored light may be brighter
    right: Array
    disparity: Array  # exact disparity of the left view, px, >= 0
    right_disparity: Array
    visible: Array  # boolean mask of left pixels visible in both views


def render(
    layers: Sequence[Layer],
    height: int,
    width: int,
    drift: tuple[float, float] = (0, 0),
    *,
    sharpness: float = 0.5,
    dtype: torch.dtype = torch.float32,
) -> Views[Tensor]:
    """Render both views of `layers`, in any order, which together must cover both.

    `drift`: left row minus right row (px) at x = 0, and its change over the width. `sharpness`: weight of a
    pixel's centre in its colour; the rest is the mean of its corners.
    """
    like = torch.empty(0, dtype=dtype)
    sampled = cache(lambda part: Pyramid(part.texture.to(like), part.endless))
    left, right = (_Canvas(height, width, offset, like, sampled) for offset in (None, drift))
    for view in (left, right):
        view.draw(layers)
    colours = left.colours(sharpness), right.colours(sharpness)
    return Views(*colours, left.disparity, right.disparity, _find_visible(left, right, drift))


@dataclass(frozen=True)
class _Place:
    """Positions of the points of a window on a surface; (2, h, w) each."""

    rows: slice
    columns: slice
    x: Tensor  # columns of the left view
    y: Tensor
    disparity: Tensor  # -2 where the surface is clipped or behind the camera


class _Canvas:
    """A view being rendered: (2, H + 1, W + 1) points, the centres and upper left corners of its pixels."""

    def __init__(
        self, height: int, width: int, drift: Pair | None, like: Tensor, sampled: Callable[..., "Pyramid"]
    ) -> None:
        """Start a view of `drift` (None: the left view), on the device and with the type of `like`."""
        self.height, self.width, self.drift, self.sampled = height, width, drift, sampled
        self._offset = like.new_tensor([0.0, -0.5])[:, None, None]
        shape = (2, height + 1, width + 1)
        self._colours = like.new_zeros(3, *shape)
        self._nearest = like.new_full(shape, -1.0)
        self._layer = like.new_full(shape, -1, dtype=torch.int16)

    @property
    def disparity(self) -> Tensor:
        return self._nearest[0, : self.height, : self.width].contiguous()

    @property
    def layer(self) -> Tensor:
        return self._layer[0, : self.height, : self.width]

    def colours(self, sharpness: float) -> Tensor:
        centres, corners = self._colours.unbind(1)
        rows = corners[:, 1:] + corners[:, :-1]
        mean = (rows[:, :, 1:] + rows[:, :, :-1]) / 4
        return sharpness * centres[:, :-1, :-1] + (1 - sharpness) * mean

    def draw(self, layers: Sequence[Layer]) -> None:
        """Render layers, of which the nearest is visible at each point."""
        seen_here = [i for i, layer in enumerate(layers) if layer.unseen != (self.drift is not None)]
        placed: list[tuple[int, _Place]] = []
        for i in seen_here:
            # Endless layers are opaque: the nearest one is known before any texture is read.
            if layers[i].endless and (place := self._place(layers[i])) is not None:
                window = (slice(None), place.rows, place.columns)
                nearer = place.disparity > self._nearest[window]
                self._nearest[window] = torch.where(nearer, place.disparity, self._nearest[window])
                self._layer[window] = torch.where(nearer, i, self._layer[window])
                placed.append((i, place))
        for i, place in placed:
            self._paint(i, layers[i], place, self._layer[:, place.rows, place.columns] == i)
        # Objects are drawn from far to near, so that soft edges blend with the background.
        for i in sorted(seen_here, key=lambda i: layers[i].middle_disparity):
            if not layers[i].endless and (place := self._place(layers[i])) is not None:
                seen = place.disparity > self._nearest[:, place.rows, place.columns]
                self._paint(i, layers[i], place, seen)

    def _place(self, layer: Layer) -> _Place | None:
        """Return the window in which a layer may be visible, or None."""
        left, top, right, bottom = 0, 0, self.width + 1, self.height + 1
        surface, like = layer.surface, self._offset
        if layer.box is not None:
            x0, y0, x1, y1 = layer.box
            if self.drift is not None:
                ends = [x - surface.disparity_at(x, y) for x in (x0, x1) for y in (y0, y1)]
                x0, x1 = min(ends) - surface.ripple, max(ends) + surface.ripple
                slack = abs(self.drift[0]) + abs(self.drift[1]) + 1
                y0, y1 = y0 - slack, y1 + slack
            left, right = max(left, int(np.floor(x0))), min(right, int(np.ceil(x1)) + 2)
            top, bottom = max(top, int(np.floor(y0))), min(bottom, int(np.ceil(y1)) + 2)
            if top >= bottom or left >= right:
                return None
        x = torch.arange(left, right, device=like.device, dtype=like.dtype) + self._offset
        y = torch.arange(top, bottom, device=like.device, dtype=like.dtype)[:, None] + self._offset
        if self.drift is not None:
            y = y + self.drift[0] + self.drift[1] * x / self.width
            x = surface.left_column(x, y)
        disparity = surface.disparity(x, y)
        x, y = x.expand_as(disparity), y.expand_as(disparity)
        hidden = disparity < 0
        for p, q, r in layer.clips:
            hidden |= p * x + q * y <= -r
        return _Place(slice(top, bottom), slice(left, right), x, y, disparity.masked_fill(hidden, -2.0))

    def _paint(self, index: int, layer: Layer, place: _Place, visible: Tensor) -> None:
        """Paint the visible points (2, h, w) of a layer over a window of the view."""
        flat = visible.flatten().nonzero()[:, 0]
        if not len(flat):
            return
        x, y = place.x.reshape(-1)[flat], place.y.reshape(-1)[flat]
        kept, texels = self._texels(layer, x, y)
        flat, x, y = flat[kept], x[kept], y[kept]
        colours, opacity = texels[:3], texels[3]
        for decal in layer.decals:
            these, over = self._texels(decal, x, y)
            colours[:, these] = colours[:, these] * (1 - over[3]) + over[:3] * opacity[these]
        colours *= layer.light
        height, width = visible.shape[1:]
        point, rest = flat // (height * width), flat % (height * width)
        row, column = rest // width + place.rows.start, rest % width + place.columns.start
        if layer.reflection is not None:
            x = column - 0.5 * point + (0.0 if self.drift is None else layer.reflection.disparity)
            p, q = layer.reflection.density
            one = torch.ones_like(y)
            mirrored = self.sampled(layer.reflection).sample(p * x.to(y.dtype), q * y, p * one, q * one)
            colours += texels[4] * mirrored[:3]
        place_of = (point * (self.height + 1) + row) * (self.width + 1) + column
        canvas = self._colours.view(3, -1)
        if layer.endless:
            canvas[:, place_of] = colours
            return
        canvas[:, place_of] = canvas[:, place_of] * (1 - opacity) + colours
        solid = (opacity >= SOLID).nonzero()[:, 0]
        self._nearest.view(-1)[place_of[solid]] = place.disparity.reshape(-1)[flat[solid]]
        self._layer.view(-1)[place_of[solid]] = index

    def _texels(self, image: Layer | Decal, x: Tensor, y: Tensor) -> tuple[Tensor | slice, Tensor]:
        """Return the indices (M,) of left positions (N,) inside a texture, and its texels there (C, M)."""
        h = image.homography.tolist()
        inverse = 1 / (h[2][0] * x + h[2][1] * y + h[2][2]).clamp(min=1e-6)
        u = (h[0][0] * x + h[0][1] * y + h[0][2]) * inverse
        v = (h[1][0] * x + h[1][1] * y + h[1][2]) * inverse
        kept: Tensor | slice = slice(None)
        if not image.endless:
            rows, columns = image.texture.shape[1:]
            kept = ((u > -1) & (v > -1) & (u < columns) & (v < rows)).nonzero()[:, 0]
            u, v, inverse = u[kept], v[kept], inverse[kept]
        # Texels per pixel, from the derivatives of the homography.
        across = torch.hypot((h[0][0] - u * h[2][0]) * inverse, (h[1][0] - v * h[2][0]) * inverse)
        down = torch.hypot((h[0][1] - u * h[2][1]) * inverse, (h[1][1] - v * h[2][1]) * inverse)
        return kept, self.sampled(image).sample(u, v, across, down)


def _find_visible(left: _Canvas, right: _Canvas, drift: tuple[float, float]) -> Tensor:
    """Return the left pixels whose match in the right view shows the same surface or an equally near one."""
    height, width, disparity = left.height, left.width, left.disparity
    x = torch.arange(width, device=disparity.device)[None] - disparity
    y = torch.arange(height, device=disparity.device)[:, None] - drift[0] - drift[1] * x / width
    column, row = x.round().long(), y.round().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.clamp(0, height - 1), column.clamp(0, width - 1))
    # At the border of two surfaces, rounding may hit the other one, which has the same disparity there.
    as_near = (right.disparity[place] - disparity).abs() < HIDES
    return inside & (as_near | (right.layer[place] == left.layer))


class Pyramid:
    """A texture and its downscaled levels: each texel of level k is the mean of 2^k x 2^k."""

    def __init__(self, texture: Tensor, endless: bool) -> None:
        """Start with a texture (C, h, w), mirrored beyond its borders if `endless`."""
        self._levels = [texture]
        self._endless = endless

    def level(self, k: int) -> Tensor:
        while len(self._levels) <= k:
            finer = self._levels[-1][None]
            odd = (0, finer.shape[3] % 2, 0, finer.shape[2] % 2)
            finer = F.pad(finer, odd, mode="replicate" if self._endless else "constant")
            self._levels.append(F.avg_pool2d(finer, 2)[0])
        return self._levels[k]

    def sample(self, u: Tensor, v: Tensor, across: Tensor, down: Tensor) -> Tensor:
        """Return the texture (C, N) at (u, v), with `across` and `down` texels per pixel; all (N,)."""
        texels = torch.maximum((across * down).sqrt(), torch.maximum(across, down) / MOST_FORESHORTENED)
        level = (texels.clamp(2**SHARPER, 2**COARSEST).log2() - SHARPER).round()
        if self._endless:
            rows, columns = self._levels[0].shape[1:]
            u, v = _mirror_positions(u, columns), _mirror_positions(v, rows)
        low, high = (int(bound) for bound in level.aminmax()) if len(u) else (0, -1)
        if low == high:
            return self._sample_level(u, v, low)
        sampled = u.new_zeros(len(self._levels[0]), len(u))
        for k in range(low, high + 1):
            these = (level == k).nonzero()[:, 0]
            sampled[:, these] = self._sample_level(u[these], v[these], k)
        return sampled

    def _sample_level(self, u: Tensor, v: Tensor, k: int) -> Tensor:
        texture = self.level(k)
        rows, columns = texture.shape[1:]
        size = 2**k  # in texels of level 0, so that all levels agree on positions
        grid = torch.stack(((2 * u + 1) / (size * columns) - 1, (2 * v + 1) / (size * rows) - 1), -1)
        padding = "border" if self._endless else "zeros"
        sampled = F.grid_sample(texture[None], grid[None, None], "bilinear", padding, align_corners=False)
        return sampled[0, :, 0]


def _mirror_positions(u: Tensor, length: int) -> Tensor:
    u = (u + 0.5) % (2 * length)
    return torch.minimum(u, 2 * length - u) - 0.5
