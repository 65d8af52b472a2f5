"""PASSRnet without whole attention maps, and with no more feature maps than fit: the same pictures.

Shapes: as in `passrnet`; one pair at a time, both views joined in the batch, left first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import VALID_MASS, clean_mask
from pamcli.networks.passrnet import WIDTH, PASSRnet
from pamcli.networks.streamed_attention import Block, CostStage, stage_cost, stream
from pamcli.networks.strips import Rows, strips, with_halo

# Rows around a strip that its layers can see.
FEATURE_HALO = 1 + 3 * 2 + 2 * 3 * 8  # a convolution, three residual blocks, two ASPPs of three groups
ADAPTER_HALO = 2  # the transition block
BODY_HALO = 4 * 2  # four residual blocks
PIXEL_HALO = 1  # two 3x3 convolutions of the enlarged picture, which is at least twice as large
BODY_LAYERS = 4

Write = Callable[[int, int, Tensor], None]
"""write(view, first, picture): rows first ... of the enlarged picture (3, R, scale W) of view 0 or 1."""


class StreamedPASSRnet:
    """Runs a PASSRnet strip by strip."""

    def __init__(self, network: PASSRnet) -> None:
        self.network = network

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """`rows` gives both views in [0, 1]: (first, last) -> (2, 3, last - first, width).

        `write` is given the result, not clamped, float32, from top to bottom; of the left view alone, or of
        `both`. `strip`: rows of the given pictures that are computed at a time; None: all.
        """
        strip = height if strip is None else strip
        fused, received = self._attend(rows, height, width, both, strip)
        weight = self.network.pam.fusion.weight[:, -1:]  # of the valid mask, the last input
        for view in range(len(fused)):
            valid = clean_mask(received[view : view + 1] > VALID_MASS, pad_closing=True)
            fused[view].add_(weight[:, :, 0].to(fused.dtype) * valid.to(fused.dtype))
            self._upscale(fused[view : view + 1], strip, lambda first, rows, v=view: write(v, first, rows))

    def _attend(self, rows: Rows, height: int, width: int, both: bool, strip: int) -> tuple[Tensor, Tensor]:
        """Fused features (1 or 2 views, C, H, W) but for the valid masks' part; received attention (2, H, W)."""
        fused: Tensor | None = None
        received = torch.zeros((2, height, width), device=self.network.pam.b1.weight.device)
        for first, last in strips(height, strip):
            part = self._attend_strip(rows, first, last, height, received[:, first:last], both)
            if fused is None:
                fused = part.new_empty((*part.shape[:2], height, width))
            fused[:, :, first:last] = part
        assert fused is not None
        return fused, received

    def _attend_strip(
        self, rows: Rows, first: int, last: int, height: int, received: Tensor, both: bool
    ) -> Tensor:
        """Of the rows first ... last - 1; `received` (2, R, W) is added to."""
        net = self.network
        wide = with_halo(first, last, ADAPTER_HALO, height)
        low, high = with_halo(*wide, FEATURE_HALO, height)
        views = net.init_feature(rows(low, high))[:, :, wide[0] - low : wide[1] - low]
        adapted = net.pam.rb(views)
        inner = slice(first - wide[0], last - wide[0])
        views, adapted = views[:, :, inner], adapted[:, :, inner]
        queries = net.pam.b1(adapted).permute(0, 2, 3, 1).float().contiguous()  # (2, R, W, C)
        keys = net.pam.b2(adapted).permute(0, 2, 1, 3).float().contiguous()  # (2, R, C, W)
        values = net.pam.b3(views).permute(0, 2, 3, 1).float().contiguous()  # (2, R, W, C)
        count = 2 if both else 1
        gathered = torch.empty_like(values[:count])
        for view in (0, 1):
            stages = (CostStage(queries[view], keys[1 - view], 0, last - first),)

            def use(lines: tuple[int, int], block: Block, attention: Tensor, view: int = view) -> None:
                at = slice(*lines)
                received[1 - view, at] += attention.sum(1)
                if view < count:
                    torch.bmm(attention, values[1 - view, at], out=gathered[view, at])

            width = views.shape[3]
            stream(partial(stage_cost, stages), (0, last - first), width, width, None, None, use)
        return self._fuse(gathered.permute(0, 3, 1, 2).to(views.dtype), views[:count])

    def _fuse(self, gathered: Tensor, own: Tensor) -> Tensor:
        """The fusion layer without the valid mask, which is known when all rows are."""
        fusion = self.network.pam.fusion
        return F.conv2d(torch.cat((gathered, own), 1), fusion.weight[:, : 2 * WIDTH], fusion.bias)

    def _upscale(self, fused: Tensor, strip: int, write: Callable[[int, Tensor], None]) -> None:
        """As `upscale`: residual blocks in strips, and the enlarged layers, far larger, in thinner ones."""
        layers = self.network.upscale
        body, pixels = layers[:BODY_LAYERS], layers[BODY_LAYERS:]
        assert isinstance(body, nn.Sequential)
        height, scale = fused.shape[2], self.network.scale
        thin = max(2, strip // (scale * scale))
        for first, last in strips(height, strip):
            wide = with_halo(first, last, PIXEL_HALO, height)
            low, high = with_halo(*wide, BODY_HALO, height)
            features = body(fused[:, :, low:high])[:, :, wide[0] - low : wide[1] - low]
            for a, b in strips(last - first, thin):
                a, b = a + first, b + first
                top, bottom = with_halo(a, b, PIXEL_HALO, height)
                picture = pixels(features[:, :, top - wide[0] : bottom - wide[0]]).float()
                write(scale * a, picture[0, :, scale * (a - top) : scale * (b - top)])
