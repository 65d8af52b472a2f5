"""PASMnet without whole attention maps, and with a few rows of most feature maps: the same disparity.

Its confidence: the cycle attention (Equation 3), counted only where it passes near the estimated position in
the right view and returns near the pixel: sum over k near j - d of M_right->left(j, k) times the sum over l
near j of M_left->right(k, l). One where both maps are sure and agree with the result, near zero where either
is spread out or contradicts.

Shapes: as in `matching`; of the confidence R rows of a strip, W columns of both views, at a quarter of the
pictures' size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, upsample
from pamcli.networks.parallax import (
    NEAR,
    columns_near,
    fill_occlusions,
    received_mass,
    regress_disparity,
    valid_mask,
)
from pamcli.networks.pasmnet import PASMnet, blended
from pamcli.networks.variants import Unrefined
from pamcli.streaming.attention import Block
from pamcli.streaming.matching import (
    Cascade,
    StreamedMatching,
    StreamedMatchingNetwork,
    decoded,
    encoded,
    features_below,
)
from pamcli.streaming.rolling import Convolution, RollingMap, Whole, gathered, joined, strips


class StreamedPASMnet(StreamedMatchingNetwork[PASMnet]):
    """PASMnet, matched strip by strip.

    The confidence looks at the attention a second time, near the refined disparity: in one strip, what the
    attention is made of is held until then, else it is computed again.
    """

    def _matched(
        self, pictures: RollingMap, max_disparity: int | None, strip: int, confidence: bool
    ) -> StreamedMatching:
        net = self.network.hourglass
        quarter = gathered(encoded(encoded(pictures, net.E0), net.E1), strip // 4)
        features = features_below(net, quarter, strip)
        kept = confidence and strip >= pictures.height
        cascade = Cascade(self, features, max_disparity, strip, kept=kept)
        initial, received = self._attend(cascade)
        valid = valid_mask(received)
        filled = fill_occlusions(initial, valid)
        disparity = self._refine(filled[:, None], quarter[:1], strip)
        if not confidence:
            return StreamedMatching(disparity, valid, received)
        if not cascade.kept:
            cascade = Cascade(self, features, max_disparity, strip)
        return StreamedMatching(disparity, valid, received, self._confidence(cascade, disparity))

    def _attend(self, cascade: Cascade) -> tuple[Tensor, Tensor]:
        """Initial disparity and received attention of the left view, (1, H/4, W/4) each."""
        device = next(self.network.parameters()).device
        initial = torch.empty((1, cascade.height, cascade.width), device=device)
        received = torch.zeros_like(initial)

        def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            found = regress_disparity(attention, (block.first, block.low))
            initial[0, lines[0] : lines[1], block.first : block.last] = found

        def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            received[0, lines[0] : lines[1], block.low : block.high] += received_mass(attention)

        for lines, towards, costs in cascade.costs():
            cascade.attend(costs, lines, towards, regress if towards == "left" else receive)
        return initial, received

    def _confidence(self, cascade: Cascade, disparity: Tensor) -> Tensor:
        """Confidence (1, H/4, W/4) in [0, 1], see the top. `disparity` (1, 1, H, W) is the refined one."""
        quarter = F.avg_pool2d(disparity, 4)[0, 0] / 4  # (H, W)
        confidence = torch.zeros_like(quarter)
        for lines, towards, costs in cascade.costs():
            if towards == "left":
                cycle = Cycle(quarter[slice(*lines)], lines[0])
            cascade.attend(costs, lines, towards, cycle.to_right if towards == "left" else cycle.and_back)
            confidence[slice(*lines)] = cycle.confidence()
        return confidence[None]

    def _refine(self, initial: Tensor, features: Tensor, strip: int) -> Tensor:
        """Refine the disparity, as `Refinement.forward` does."""
        net = self.network.refine
        if isinstance(net, Unrefined):
            return 4 * upsample(initial, 4)
        scaled = initial / 32
        x0 = encoded(joined(Whole(scaled.to(features.dtype)), Whole(features)), net.E0)
        x1 = encoded(x0, net.E1)
        x2 = encoded(x1, net.E2)
        x3 = encoded(encoded(x2, net.E3), net.D0)
        x = decoded(decoded(decoded(x3, x2, net.D1), x1, net.D2), x0, net.D3)
        x = decoded(decoded(x, None, net.D4), None, net.D5)
        heads = _side_by_side(x, net.confidence, net.disp)
        reader = heads.reader()
        refined = scaled.new_empty((1, 1, heads.height, 4 * scaled.shape[3]))
        for first, last in strips(heads.height, strip):
            both = reader(first, last).float()  # (1, 2, R, W)
            reader.forget(last)
            plain = _enlarged4(scaled, first // 4, last // 4)
            refined[:, :, first:last] = blended(plain, both[:, :1].sigmoid(), both[:, 1:])
            self.done(last)
        return refined


def _side_by_side(source: RollingMap, *heads: nn.Sequential) -> RollingMap:
    """Heads of two 3x3 convolutions, as one whose result has a channel of each."""
    layers = [[layer for layer in head if isinstance(layer, nn.Conv2d)] for head in heads]
    biases = [first.bias for first, _ in layers if first.bias is not None]
    inner = Convolution(
        source, torch.cat([first.weight for first, _ in layers]), torch.cat(biases), slope=SLOPE
    )
    each = [second.weight.flatten(1) for _, second in layers]
    apart = torch.block_diag(*each)  # type: ignore[no-untyped-call]  # (2, 2 C 9)
    return Convolution(inner, apart.view(len(heads), -1, 3, 3))


def _enlarged4(scaled: Tensor, first: int, last: int) -> Tensor:
    """Rows 4 first ... 4 last - 1 of the bilinear enlargement by 4."""
    low, high = max(0, first - 1), min(scaled.shape[2], last + 1)
    return upsample(scaled[:, :, low:high], 4)[:, :, 4 * (first - low) : 4 * (last - low)]


class Cycle:
    """Confidence of a strip of rows, added up from pieces of both maps: first all of one, then the other."""

    def __init__(self, disparity: Tensor, first_row: int) -> None:
        """`disparity` (R, W) in its own pixels; `first_row`: row of the picture that it begins with."""
        width = disparity.shape[1]
        self.first_row = first_row
        self.column = torch.arange(width, device=disparity.device)
        self.reach = int(NEAR)
        self.near, self.there = (x.movedim(-1, 0) for x in columns_near(disparity))  # (4, R, W) columns k
        self.mass = torch.zeros(self.near.shape, device=disparity.device)
        self.total = torch.zeros_like(disparity)

    def to_right(self, lines: tuple[int, int], block: Block, attention: Tensor) -> None:
        """Attention M_right->left(j, k) for k near j - d."""
        at = slice(lines[0] - self.first_row, lines[1] - self.first_row), slice(block.first, block.last)
        for step, k in enumerate(self.near[:, *at]):
            inside = self.there[step, *at] & (k >= block.low) & (k < block.high)
            found = attention.gather(2, (k - block.low).clamp(0, block.high - block.low - 1)[..., None])
            self.mass[step, *at] = found[..., 0] * inside

    def and_back(self, lines: tuple[int, int], block: Block, attention: Tensor) -> None:
        """Multiply by M_left->right(k, l) for l near j."""
        at = slice(lines[0] - self.first_row, lines[1] - self.first_row)
        flat = attention.flatten(1)
        span = block.high - block.low
        for step, k in enumerate(self.near[:, at]):
            passes = (k >= block.first) & (k < block.last)
            row = (k - block.first).clamp(0, block.last - block.first - 1) * span
            for shift in range(-self.reach, self.reach + 1):
                home = self.column + shift - block.low
                inside = passes & (home >= 0) & (home < span)
                found = flat.gather(1, row + home.clamp(0, span - 1)) * inside
                self.total[at] += self.mass[step, at] * found

    def confidence(self) -> Tensor:
        """(R, W) in [0, 1], of what was handed over."""
        return self.total.clamp(0, 1)
