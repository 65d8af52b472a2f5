"""PASSRnet without whole attention maps, and with a few rows of most feature maps: the same pictures.

Shapes: as in `passrnet`; one pair at a time, both views joined in the batch, left first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE
from pamcli.networks.parallax import VALID_MASS, clean_mask
from pamcli.networks.passrnet import WIDTH, PASSRnet, ResidualASPP, ResidualBlock
from pamcli.networks.rolling import (
    Given,
    Joined,
    RollingMap,
    Shuffled,
    Sum,
    Whole,
    convolution,
    residual,
)
from pamcli.networks.streamed_attention import Block, CostStage, stage_cost, stream
from pamcli.networks.strips import Rows, strips

Write = Callable[[int, int, Tensor], None]
"""write(view, first, picture): rows first ... of the enlarged picture (3, R, scale W) of view 0 or 1."""


class StreamedPASSRnet:
    """Runs a PASSRnet strip by strip, in the precision of its weights; attention and result are float32."""

    def __init__(self, network: PASSRnet) -> None:
        self.network = network
        pam = network.pam
        query, key, value = (layer.weight[:, :, 0, 0].double() for layer in (pam.b1, pam.b2, pam.b3))
        of_gathered, of_own, of_valid = pam.fusion.weight.double().tensor_split((WIDTH, 2 * WIDTH), 1)
        assert pam.b1.bias is not None
        assert pam.b3.bias is not None
        assert pam.fusion.bias is not None

        def layer(weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            kind = pam.b1.weight.dtype
            weight = weight.reshape(len(weight), -1, 1, 1).to(kind)
            return weight, None if bias is None else bias.to(kind)

        # The cost (Wq f + bq) . (Wk f' + bk) is, but for what does not depend on f', the product of f' with
        # Wk^T (Wq f + bq); and the softmax over f' takes no notice of the rest.
        self.query = layer(key.T @ query, key.T @ pam.b1.bias.double())
        # What is gathered by attention that sums to one may as well be fused before.
        gathered = of_gathered[:, :, 0, 0]
        self.value = layer(gathered @ value, gathered @ pam.b3.bias.double() + pam.fusion.bias.double())
        self.own = layer(of_own)
        self.valid = layer(of_valid)[0]

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """`rows` gives both views in [0, 1]: (first, last) -> (2, 3, last - first, width), top to bottom.

        `write` is given the result, not clamped, float32, from top to bottom; of the left view alone, or of
        `both`. `strip`: rows of the given pictures that are computed at a time; None: all.
        """
        strip = height if strip is None else strip
        fused, received = self._attend(rows, height, width, both, strip)
        for view in range(len(fused)):
            valid = clean_mask(received[view : view + 1] > VALID_MASS, pad_closing=True)
            fused[view].add_(self.valid[:, :, 0] * valid.to(fused.dtype))
            self._upscale(fused[view : view + 1], strip, partial(write, view))

    def _attend(self, rows: Rows, height: int, width: int, both: bool, strip: int) -> tuple[Tensor, Tensor]:
        """Fused features (1 or 2, C, H, W), all but the valid masks' part; received attention (2, H, W)."""
        fused = self.valid.new_empty((2 if both else 1, WIDTH, height, width))
        received = fused.new_zeros((2, height, width), dtype=torch.float32)
        views = self._features(Given(rows, height))
        adapted = residual(views, self.network.pam.rb.body)
        read_adapted, read_views = adapted.reader(), views.reader()
        for first, last in strips(height, strip):
            described, own = read_adapted(first, last), read_views(first, last)
            read_adapted.forget(last)
            read_views.forget(last)
            self._attend_strip(described, own, fused[:, :, first:last], received[:, first:last])
            del described, own
        return fused, received

    def _attend_strip(self, adapted: Tensor, views: Tensor, fused: Tensor, received: Tensor) -> None:
        """Of both views (2, C, R, W); into `fused` (1 or 2, C, R, W), and added to `received` (2, R, W)."""
        keys = adapted.permute(0, 2, 1, 3).float().contiguous()  # (2, R, C, W)
        queries = F.conv2d(adapted, *self.query).permute(0, 2, 1, 3).float().contiguous()
        values = F.conv2d(views, *self.value).permute(0, 2, 3, 1).float().contiguous()  # (2, R, W, C)
        fused.copy_(F.conv2d(views[: len(fused)], *self.own))
        rows, width = received.shape[1:]
        for view in (0, 1):
            stages = (CostStage(queries[view], keys[1 - view], 0, rows),)

            def use(lines: tuple[int, int], block: Block, attention: Tensor, view: int = view) -> None:
                at = slice(*lines)
                received[1 - view, at] += attention.sum(1)
                if view < len(fused):
                    gathered = torch.bmm(attention, values[1 - view, at])  # (R, W, C)
                    fused[view, :, at] += gathered.permute(2, 0, 1)

            stream(partial(stage_cost, stages), (0, rows), width, width, None, None, use)

    def _features(self, pictures: RollingMap) -> RollingMap:
        x: RollingMap = pictures
        layers = iter(self.network.init_feature)
        x = convolution(x, next(layers), SLOPE)
        next(layers)  # the rectifier of that
        for block in layers:
            if isinstance(block, ResidualASPP):
                x = _pyramids(x, block)
            else:
                assert isinstance(block, ResidualBlock)
                x = residual(x, block.body)
        return x

    def _upscale(self, fused: Tensor, strip: int, write: Callable[[int, Tensor], None]) -> None:
        """As `upscale`: residual blocks in strips, and the enlarged layers, far larger, in thinner ones."""
        *blocks, widen, _, last1, last2 = self.network.upscale
        scale = self.network.scale
        x: RollingMap = Whole(fused)
        for block in blocks:
            assert isinstance(block, ResidualBlock)
            x = residual(x, block.body)
        x.unit = min(strip, x.height)
        pixels = Shuffled(convolution(x, widen), scale)
        picture = convolution(convolution(pixels, last1), last2).reader()
        for first, last in strips(picture.height, scale * max(1, strip // scale**2)):
            write(first, picture(first, last)[0].float())
            picture.forget(last)


def _pyramids(source: RollingMap, block: ResidualASPP) -> RollingMap:
    """As `ResidualASPP.forward`."""
    out, inner = source, source
    for group in (1, 2, 3):
        branches = []
        for rank in (1, 2, 3):
            branch = getattr(block, f"conv{rank}_{group}")
            branches.append(convolution(inner, branch[0], SLOPE))
        joint: nn.Conv2d = getattr(block, f"b_{group}")
        inner = Joined(branches, partial(_apply, joint))
        out = Sum(out, inner, kept=out is source)
    return out


def _apply(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return F.conv2d(x, layer.weight, layer.bias)
