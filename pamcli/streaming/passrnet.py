"""PASSRnet without whole attention maps, and with a few rows of most feature maps: the same pictures.

Shapes: as in `passrnet`; one pair at a time, both views joined in the batch, left first.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE
from pamcli.networks.parallax import received_mass, valid_mask
from pamcli.networks.passrnet import WIDTH, PASSRnet, ResidualASPP, ResidualBlock
from pamcli.streaming.attention import (
    Block,
    CostStage,
    line_bytes,
    lines_at_once,
    query_of_keys,
    stage_cost,
    stream,
)
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.rolling import (
    Convolution,
    Given,
    RollingMap,
    Rows,
    Shuffled,
    Whole,
    added,
    convolution,
    empty_map,
    number_size,
    residual,
    strips,
)

CLEANING = 80
"""Bytes for each pixel of a mask while it is cleaned: labels, their neighbours and counts, 4 or 8 each."""

Write = Callable[[int, int, Tensor], None]
"""write(view, first, picture): rows first ... of the enlarged picture (3, R, scale W) of view 0 or 1."""


class StreamedPASSRnet:
    """Runs a PASSRnet strip by strip, in the precision of its weights; attention and result are float32."""

    def __init__(self, network: PASSRnet, precision: torch.dtype | None = None) -> None:
        """Take a network, and bring its convolutions to a `precision`; None: as they are."""
        self.network = network if precision is None else network.to(dtype=precision)
        pam = network.pam
        value = pam.b3.weight[:, :, 0, 0].double()
        of_gathered, of_own, of_valid = pam.fusion.weight.double().tensor_split((WIDTH, 2 * WIDTH), 1)
        assert pam.b3.bias is not None
        assert pam.fusion.bias is not None

        def layer(weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            kind = pam.b1.weight.dtype
            weight = weight.reshape(len(weight), -1, 1, 1).to(kind)
            return weight, None if bias is None else bias.to(kind)

        self.query = query_of_keys(pam.b1, pam.b2)
        # What is gathered by attention that sums to one may as well be fused before.
        gathered = of_gathered[:, :, 0, 0]
        self.value = layer(gathered @ value, gathered @ pam.b3.bias.double() + pam.fusion.bias.double())
        self.own = layer(of_own)
        self.valid = layer(of_valid)[0]
        self.widen = _widened(network)

    def footprint(self, width: int, height: int, *, both: bool) -> Footprint:
        """What a pair takes at the peak."""
        size = number_size(self.network)
        return in_strips(
            width,
            height,
            Pays(15_000, whole=30_000),
            # Fused features; attention that both views receive; a mask's clean-up.
            picture=WIDTH * size * (2 if both else 1) + 8 + CLEANING,
            strip=440 * size + 1536,  # queries, keys and values of both views are float32
            waiting=[(785 * size, 40)],
            line=line_bytes(width, ordered=False),
            lines=lines_at_once(width, width),
        )

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
            valid = valid_mask(received[view : view + 1], pad_closing=True)
            fused[view].add_(self.valid[:, :, 0] * valid.to(fused.dtype))
            self._upscale(fused[view : view + 1], strip, partial(write, view))

    def _attend(self, rows: Rows, height: int, width: int, both: bool, strip: int) -> tuple[Tensor, Tensor]:
        """Fused features (1 or 2, C, H, W), all but the valid masks' part; received attention (2, H, W)."""
        fused = empty_map((2 if both else 1, WIDTH, height, width), self.valid)
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
        """Attend in both views (2, C, R, W), into `fused` (1 or 2, C, R, W); add to `received` (2, R, W)."""
        keys = adapted.permute(0, 2, 3, 1).float().contiguous()  # (2, R, W, C)
        queries = F.conv2d(adapted, *self.query).permute(0, 2, 3, 1).float().contiguous()
        values = F.conv2d(views, *self.value).permute(0, 2, 3, 1).float().contiguous()
        fused.copy_(F.conv2d(views[: len(fused)], *self.own))
        rows, width = received.shape[1:]
        for view in (0, 1):
            stages = (CostStage(queries[view], keys[1 - view], 0, rows),)

            def use(lines: tuple[int, int], block: Block, attention: Tensor, view: int = view) -> None:
                at = slice(*lines)
                received[1 - view, at] += received_mass(attention)
                if view < len(fused):
                    gathered = torch.bmm(attention, values[1 - view, at])  # (R, W, C), Equation 1
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
        """Enlarge as `upscale` does."""
        *blocks, _, _, _, last = self.network.upscale
        scale = self.network.scale
        x: RollingMap = Whole(fused)
        for block in blocks:
            assert isinstance(block, ResidualBlock)
            x = residual(x, block.body)
        picture = convolution(Shuffled(Convolution(x, self.widen), scale), last).reader()
        for low, high in strips(picture.height, scale * strip):
            write(low, picture(low, high)[0].float())
            picture.forget(high)


def _widened(network: PASSRnet) -> Tensor:
    """The 1x1 convolution to `scale`^2 pixels of 64 channels and the 3x3 one behind it that leaves 3 of them.

    Nothing stands between them, so they are one 3x3 convolution of the small pixels to `scale`^2 pixels of 3
    channels (3 scale^2, 64, 3, 3), with a fifth of the work at x4: what a pixel gets from `offset` enlarged
    pixels away comes from the small pixel that holds that one, and each of the nine meets its own sum.
    """
    scale = network.scale
    _, _, _, _, spread, _, blend, _ = network.upscale
    assert isinstance(spread, nn.Conv2d)
    assert isinstance(blend, nn.Conv2d)
    places = spread.weight[:, :, 0, 0].double().view(WIDTH, scale, scale, WIDTH)  # channel, row, column, from
    joined = places.new_zeros((3, scale, scale, WIDTH, 3, 3))
    for row, column, down, right in product(range(scale), range(scale), (0, 1, 2), (0, 1, 2)):
        (y, row_there), (x, column_there) = divmod(row + down - 1, scale), divmod(column + right - 1, scale)
        there = blend.weight[:, :, down, right].double() @ places[:, row_there, column_there]
        joined[:, row, column, :, y + 1, x + 1] += there
    return joined.flatten(0, 2).to(blend.weight.dtype)


def _pyramids(source: RollingMap, block: ResidualASPP) -> RollingMap:
    """Run a block as `ResidualASPP.forward` does."""
    out, inner = source, source
    for group in (1, 2, 3):
        joint: nn.Conv2d = getattr(block, f"b_{group}")
        parts: list[RollingMap] = []  # the joint is a sum of its parts: no three branches side by side
        for rank, weight in enumerate(joint.weight.tensor_split(3, 1), 1):
            branch = convolution(inner, getattr(block, f"conv{rank}_{group}")[0], SLOPE)
            parts.append(Convolution(branch, weight.contiguous()))
        inner = added(added(parts[2], parts[1]), parts[0])
        out = added(out, inner, kept=out is source)
    return out
