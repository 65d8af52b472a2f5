"""Drawing both views of a scene, with exact disparity.

Every pixel of a view is traced to its surface and sampled once from its texture. Of several surfaces at a
pixel the one of the largest disparity is seen: it is the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.data.scenes.surfaces import Surface

COARSEST = 8
"""Textures are reduced at most 2^8 times: what is smaller is as good as even."""

SOLID = 0.5
"""From this opacity on a pixel belongs to the surface, and has its disparity."""

HIDES = 0.5
"""Pixels of disparity by which another surface must be nearer to hide one: what is less far in front covers
less than half a pixel of it."""


@dataclass(frozen=True)
class Layer:
    """A textured surface, bounded by its texture unless `endless`."""

    surface: Surface
    texture: Tensor
    """(4, h, w), colours times opacity, and opacity."""
    homography: NDArray[np.float64]
    """(3, 3) from left (x, y, 1) to texels, centres at whole numbers."""
    endless: bool = False
    """The texture goes on, mirrored, beyond its borders."""
    clips: tuple[tuple[float, float, float], ...] = field(default=())
    """Only where p x + q y + r > 0 in the left view, for each (p, q, r)."""
    box: tuple[float, float, float, float] = (0, 0, 0, 0)
    """Left, top, right, bottom (left view, pixels) around all of an object; of no use to an endless one."""
    _reduced: list[Tensor] = field(default_factory=list)

    def reduced(self, level: int) -> Tensor:
        """The texture at 1 / 2^level of its size: each texel is the mean of 2^level x 2^level."""
        if not self._reduced:
            self._reduced.append(self.texture)
        while len(self._reduced) <= level:
            finer = self._reduced[-1][None]
            odd = (0, finer.shape[3] % 2, 0, finer.shape[2] % 2)
            finer = F.pad(finer, odd, mode="replicate" if self.endless else "constant")
            self._reduced.append(F.avg_pool2d(finer, 2)[0])
        return self._reduced[level]


@dataclass(frozen=True)
class Views:
    """What a renderer makes. Shapes (H, W), colours (3, H, W)."""

    left: Tensor
    """RGB in [0, 1]."""
    right: Tensor
    disparity: Tensor
    """Of the left view, pixels, >= 0, exact."""
    right_disparity: Tensor
    visible: Tensor
    """Bool: left pixels whose surface point the right view sees."""


def render(layers: Sequence[Layer], height: int, width: int, drift: tuple[float, float] = (0, 0)) -> Views:
    """Both views of `layers`, in any order; together they must cover both views.

    drift: row of the left view seen at the right view's (x, y) less y, at x = 0 and its change over the
    width, in pixels (a rig that is not perfectly rectified).
    """
    left = _draw(layers, height, width, None)
    right = _draw(layers, height, width, drift)
    return Views(
        left.colours,
        right.colours,
        left.disparity,
        right.disparity,
        _visible(left, right, drift),
    )


@dataclass(frozen=True)
class _View:
    colours: Tensor
    disparity: Tensor
    layer: Tensor
    """Index of the surface that is seen."""


def _draw(layers: Sequence[Layer], height: int, width: int, drift: tuple[float, float] | None) -> _View:
    view = _View(
        torch.zeros(3, height, width),
        torch.full((height, width), -1.0),
        torch.full((height, width), -1, dtype=torch.int16),
    )
    # Grounds, walls and backdrops are opaque: the nearest of them is known before any texture is read.
    endless = [i for i, layer in enumerate(layers) if layer.endless]
    placed = [_place(layers[i], slice(0, height), slice(0, width), width, drift) for i in endless]
    nearest = torch.stack([place.disparity for place in placed]).max(0).indices
    for k, (i, place) in enumerate(zip(endless, placed, strict=True)):
        _paint(view, i, layers[i], place, nearest == k, slice(0, height), slice(0, width))
    # Objects from far to near, so that soft edges are laid over what is behind them.
    objects = sorted(
        (i for i, layer in enumerate(layers) if not layer.endless), key=lambda i: _depth_key(layers[i])
    )
    for i in objects:
        window = _window(layers[i], height, width, drift)
        if window is not None:
            place = _place(layers[i], *window, width, drift)
            _paint(view, i, layers[i], place, place.disparity > view.disparity[window], *window)
    return view


@dataclass(frozen=True)
class _Place:
    """Where the pixels of a window lie on a surface; (h, w) each."""

    x: Tensor
    """Left columns."""
    y: Tensor
    disparity: Tensor
    """-2 where the surface is clipped or behind the camera."""


def _place(
    layer: Layer, rows: slice, columns: slice, width: int, drift: tuple[float, float] | None
) -> _Place:
    x = torch.arange(columns.start, columns.stop, dtype=torch.float32)[None]
    y = torch.arange(rows.start, rows.stop, dtype=torch.float32)[:, None]
    if drift is not None:
        y = y + drift[0] + drift[1] * x / width
        x = layer.surface.left_column(x, y)
    disparity = layer.surface.disparity(x, y)
    x, y = x.expand_as(disparity), y.expand_as(disparity)
    disparity = torch.where(disparity >= 0, disparity, -2.0)
    for p, q, r in layer.clips:
        disparity = torch.where(p * x + q * y + r > 0, disparity, -2.0)
    return _Place(x, y, disparity)


def _paint(
    view: _View, index: int, layer: Layer, place: _Place, seen: Tensor, rows: slice, columns: slice
) -> None:
    """Lay the pixels `seen` (h, w) of a layer over a window of the view."""
    h = torch.from_numpy(layer.homography).float()
    flat = seen.flatten().nonzero()[:, 0]
    x, y, disparity = (values.flatten()[flat] for values in (place.x, place.y, place.disparity))
    inverse = 1 / (h[2, 0] * x + h[2, 1] * y + h[2, 2]).clamp(min=1e-6)
    u = (h[0, 0] * x + h[0, 1] * y + h[0, 2]) * inverse
    v = (h[1, 0] * x + h[1, 1] * y + h[1, 2]) * inverse
    if not layer.endless:
        texture_rows, texture_columns = layer.texture.shape[1:]
        inside = (u > -1) & (v > -1) & (u < texture_columns) & (v < texture_rows)
        kept = inside.nonzero()[:, 0]
        flat, u, v, inverse, disparity = (values[kept] for values in (flat, u, v, inverse, disparity))
    if not len(flat):
        return
    # Texels per pixel, from the derivatives of the homography.
    across = torch.hypot((h[0, 0] - u * h[2, 0]) * inverse, (h[1, 0] - v * h[2, 0]) * inverse)
    down = torch.hypot((h[0, 1] - u * h[2, 1]) * inverse, (h[1, 1] - v * h[2, 1]) * inverse)
    level = torch.maximum(across, down).clamp(1, 2**COARSEST).log2()
    texels = _sample(layer, u, v, level)
    row = flat // place.x.shape[1] + rows.start
    column = flat % place.x.shape[1] + columns.start
    pixel = row * view.disparity.shape[1] + column
    for channel, light in zip(view.colours.flatten(1), texels[:3], strict=True):
        channel[pixel] = channel[pixel] * (1 - texels[3]) + light
    solid = (texels[3] >= SOLID).nonzero()[:, 0]
    pixel = pixel[solid]
    view.disparity.view(-1)[pixel] = disparity[solid]
    view.layer.view(-1)[pixel] = index


def _depth_key(layer: Layer) -> float:
    x0, y0, x1, y1 = layer.box
    return layer.surface.disparity_at((x0 + x1) / 2, (y0 + y1) / 2)


def _window(
    layer: Layer, height: int, width: int, drift: tuple[float, float] | None
) -> tuple[slice, slice] | None:
    """Rows and columns of a view in which a layer can be seen; None: nowhere."""
    x0, y0, x1, y1 = layer.box
    if drift is not None:
        surface = layer.surface
        d = [surface.disparity_at(x, y) for x in (x0, x1) for y in (y0, y1)]
        x0, x1 = x0 - max(d) - surface.ripple, x1 - min(d) + surface.ripple
        slack = abs(drift[0]) + abs(drift[1]) + 1
        y0, y1 = y0 - slack, y1 + slack
    rows = slice(max(0, int(np.floor(y0))), min(height, int(np.ceil(y1)) + 1))
    columns = slice(max(0, int(np.floor(x0))), min(width, int(np.ceil(x1)) + 1))
    return (rows, columns) if rows.start < rows.stop and columns.start < columns.stop else None


def _sample(layer: Layer, u: Tensor, v: Tensor, level: Tensor) -> Tensor:
    """Colours and opacity (4, N) of a texture at texels (u, v), each reduced 2^level times."""
    if layer.endless:
        u, v = _mirrored(u, layer.texture.shape[2]), _mirrored(v, layer.texture.shape[1])
    low, high = (float(bound) for bound in level.aminmax())
    if high - low < 0.7:
        return _sample_level(layer, u, v, round((low + high) / 2))
    total = torch.zeros(4, len(u))
    for k in range(int(low), int(np.ceil(high)) + 1):
        share = 1 - (level - k).abs()
        these = (share > 0).nonzero()[:, 0]
        if len(these):
            total[:, these] += share[these] * _sample_level(layer, u[these], v[these], k)
    return total


def _mirrored(u: Tensor, length: int) -> Tensor:
    """Texels of a row that goes on, mirrored, at both ends."""
    u = (u + 0.5) % (2 * length)
    return torch.minimum(u, 2 * length - u) - 0.5


def _sample_level(layer: Layer, u: Tensor, v: Tensor, level: int) -> Tensor:
    texture = layer.reduced(level)
    rows, columns = texture.shape[1:]
    size = 2**level  # of a texel: both views must find it at the same place, whatever the level
    grid = torch.stack(((2 * u + 1) / (size * columns) - 1, (2 * v + 1) / (size * rows) - 1), -1)
    padding = "border" if layer.endless else "zeros"
    sampled = F.grid_sample(texture[None], grid[None, None], "bilinear", padding, align_corners=False)
    return sampled[0, :, 0]


def _visible(left: _View, right: _View, drift: tuple[float, float]) -> Tensor:
    """Left pixels whose surface is the one seen where they go to, or has nothing nearer before it there."""
    height, width = left.disparity.shape
    x = torch.arange(width, dtype=torch.float32)[None] - left.disparity
    y = torch.arange(height, dtype=torch.float32)[:, None] - drift[0] - drift[1] * x / width
    column, row = x.round().long(), y.round().long()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.clamp(0, height - 1), column.clamp(0, width - 1))
    # Where two surfaces meet, rounding may lead to the other one: its disparity is the same there.
    as_near = (right.disparity[place] - left.disparity).abs() < HIDES
    return inside & (as_near | (right.layer[place] == left.layer))
