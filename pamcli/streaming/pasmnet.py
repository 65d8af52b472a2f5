"""PASMnet without whole attention maps, and with a few rows of most feature maps: the same disparity.

Its confidence: the cycle attention (Equation 3), counted only where it passes near the estimated position in
the right view and returns near the pixel: sum over k near j - d of M_right->left(j, k) times the sum over l
near j of M_left->right(k, l). One where both maps are sure and agree with the result, near zero where either
is spread out or contradicts.

Shapes: B = 2 views joined in the batch, left first; H, W rows and columns of the scale in question. One pair
at a time. Of the confidence R rows of a strip, W columns of both views, at a quarter of the
pictures' size.
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, upsample
from pamcli.networks.parallax import (
    NEAR,
    Towards,
    columns_near,
    fill_occlusions,
    received_mass,
    regress_disparity,
    valid_mask,
)
from pamcli.networks.pasmnet import STAGE_STRIDES, Hourglass, PASMnet, blended
from pamcli.networks.variants import Unrefined
from pamcli.streaming.attention import (
    Block,
    CostStage,
    Use,
    line_bytes,
    lines_at_once,
    query_of_keys,
    stage_cost,
    stream,
)
from pamcli.streaming.footprint import Footprint, Pays, in_strips
from pamcli.streaming.matching import (
    Progress,
    StreamedMatching,
    Telling,
    beside_enlarged,
    decoded,
    encoded,
    lowered,
)
from pamcli.streaming.rolling import (
    Convolution,
    Given,
    RollingMap,
    Rows,
    Whole,
    added,
    coarser,
    convolution,
    gathered,
    joined,
    number_size,
    strips,
)

PAYS = Pays(120_000, whole=500_000, multiple=32)

TOWARDS: tuple[Towards, Towards] = ("left", "right")

Costs = tuple[CostStage, ...]  # queries and keys of the three stages, from coarse to fine

READING, FEATURES, ATTENDING = 0.1, 0.3, 0.6
"""Shares of the time: in which the pictures are read, after which there are all features, and of the rest
the one that belongs to the attention and not to what follows it (measured at 1060 x 707)."""

Features = tuple[Tensor, Tensor, Tensor]
"""F1, F2 and E1's result, which is F4 of the left view; of both views."""

StageWeights = list[tuple[nn.Sequential, tuple[Tensor, Tensor]]]
"""Each block of a stage, four or fewer: the head, whose features are the keys, and weight (C, C, 1, 1) and
bias (C) of what makes queries of them, divided by C (see `attention.query_of_keys`)."""


class StreamedPASMnet:
    """PASMnet with folded batch norm (`rolling.folded`), matched strip by strip.

    In the precision of its weights (see `lowered`); attention and disparity are float32. The confidence looks
    at the attention a second time, near the refined disparity: in one strip, what the attention is made of is
    held until then, else it is computed again.
    """

    def __init__(self, network: PASMnet, precision: torch.dtype | None = None) -> None:
        """Take a network, and bring its convolutions to a `precision` (see `lowered`); None: as they are."""
        self.network = network if precision is None else lowered(network, precision)
        cascade = network.cas_pam
        self.stages: list[StageWeights] = [
            [(pab.head, query_of_keys(pab.query[0], pab.key[0], stage.width)) for pab in stage.blocks]
            for stage in (cascade.stage1, cascade.stage2, cascade.stage3)
        ]

    def footprint(self, width: int, height: int) -> Footprint:
        """What a pair takes at the peak, whether or not the confidence is asked for."""
        size, quarter = number_size(self.network), width // 4
        queries = 284 * width  # and keys, float32
        return in_strips(
            width,
            height,
            PAYS,
            # E1's result (64 channels at 1/4), F2 (96 at 1/8) and F1 (128 at 1/16) of both views; disparity,
            # and at 1/4 the initial one, the filled one and the attention that is received.
            picture=12 * size + 4.75,
            strip=96 * size,
            # Pieces of rows are not freed in the order of their making: nearly twice their bytes are taken.
            waiting=[(210 * size, 60)],
            line=max(queries, line_bytes(quarter, ordered=True) / 4),
            lines=4 * lines_at_once(quarter, quarter),
        )

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
        progress: Progress | None = None,
    ) -> StreamedMatching:
        """`rows` gives both views, normalised: (first, last) -> (2, 3, last - first, width), top to bottom.

        `height`, `width`: multiples of 32. `strip`: rows of the picture that are computed at a time, a
        multiple of 32; None: all. `max_disparity` as of `PASMnet.forward`. `progress` is told, ever again,
        about what share of the time has passed.
        """
        assert height % 32 == width % 32 == 0
        strip = height if strip is None else strip
        assert strip % 32 == 0
        self.tell, self._height, self._attended = Telling(progress), height, 0

        def read(first: int, last: int) -> Tensor:
            if strip < height:  # else they are all read at once
                self.tell(READING * last / height)
            return rows(first, last)

        net, pictures = self.network.hourglass, Given(read, height)
        quarter = gathered(encoded(encoded(pictures, net.E0), net.E1), strip // 4)
        features = features_below(net, quarter, strip)
        kept = confidence and strip >= height
        cascade = Cascade(self, features, max_disparity, strip, kept=kept)
        initial, received = self._attend(cascade)
        filled = fill_occlusions(initial, valid_mask(received))
        disparity = self._refine(filled[:, None], quarter[:1], strip)
        if not confidence:
            return StreamedMatching(disparity, received)
        if not cascade.kept:
            cascade = Cascade(self, features, max_disparity, strip)
        return StreamedMatching(disparity, received, self._confidence(cascade, disparity))

    def attended(self, row: int) -> None:
        """Tell that the attention of the pictures' rows above `row` is there."""
        self._attended = max(row, self._attended)
        self.done(0)

    def done(self, row: int) -> None:
        """Tell that the disparity of the rows above `row` is there."""
        parts = (ATTENDING * self._attended + (1 - ATTENDING) * row) / self._height
        self.tell(FEATURES + (1 - FEATURES) * parts)

    def _attend(self, cascade: "Cascade") -> tuple[Tensor, Tensor]:
        """Initial disparity and received attention of the left view, (1, H/4, W/4) each."""
        device = next(self.network.parameters()).device
        initial = torch.empty((1, cascade.height, cascade.width), device=device)
        received = torch.zeros_like(initial)

        def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            found = regress_disparity(attention) + (block.first - block.low)  # each row sums to one
            initial[0, lines[0] : lines[1], block.first : block.last] = found

        def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            received[0, lines[0] : lines[1], block.low : block.high] += received_mass(attention)

        for lines, towards, costs in cascade.costs():
            cascade.attend(costs, lines, towards, regress if towards == "left" else receive)
        return initial, received

    def _confidence(self, cascade: "Cascade", disparity: Tensor) -> Tensor:
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


def features_below(net: Hourglass, quarter: Tensor, strip: int) -> Features:
    """Features as those of `Hourglass.forward` from E1's result on, but for F3, which is not held."""
    eighth = gathered(encoded(Whole(quarter), net.E2), strip // 8)
    x3 = encoded(Whole(eighth), net.E3)
    x4 = encoded(encoded(x3, net.E4), net.D0)
    F1 = gathered(decoded(x4, x3, net.D1), strip // 16)
    # F2 takes the place of E2's result, whose rows it has passed.
    F2 = gathered(decoded(Whole(F1), Whole(eighth), net.D2), strip // 8, into=eighth)
    return F1, F2, quarter


class Cascade:
    """The three stages that go down the picture: what their matching costs are made of."""

    def __init__(
        self,
        of: "StreamedPASMnet",
        features: Features,
        max_disparity: int | None,
        strip: int,
        *,
        kept: bool = False,
    ) -> None:
        """`kept`: all rows are held, so that `costs` can be asked a second time."""
        self.streamed = of
        network, weights, self.kept = of.network, of.stages, kept
        self.limits = [None if max_disparity is None else max_disparity // s for s in STAGE_STRIDES]
        F1, F2, quarter = map(Whole, features)
        stage1 = RollingStage(F1, weights[0], kept)
        stage2 = RollingStage(beside_enlarged(stage1.features(), F2, network.cas_pam.b2), weights[1], kept)
        F3 = decoded(F2, quarter, network.hourglass.D3)
        stage3 = RollingStage(beside_enlarged(stage2.features(), F3, network.cas_pam.b3), weights[2], kept)
        stage3.heads[-1].unit = min(strip // 4, quarter.height)
        self.stages = stage1, stage2, stage3
        self.height, self.width = quarter.height, features[2].shape[3]
        self.lines = min(strip // 4, lines_at_once(self.width, self.width))

    def costs(self) -> Iterator[tuple[tuple[int, int], Towards, Costs]]:
        """A few quarter-size rows at a time (first, last), and what the matching costs are made of there.

        First towards the left: the left view's queries and the right view's keys, for M_right->left. Then
        the other way round. As `CascadedParallaxAttention.forward`.
        """
        stage1, stage2, stage3 = self.stages
        self.streamed.attended(0)
        for rows3 in strips(self.height, self.lines):
            rows2 = coarser(*rows3, stage2.source.height)
            rows1 = coarser(*rows2, stage1.source.height)
            for view, towards in enumerate(TOWARDS):
                # Stage 3 first: it makes the others compute what it needs, a strip at a time.
                fine = stage3.cost(view, *rows3)
                yield rows3, towards, (stage1.cost(view, *rows1), stage2.cost(view, *rows2), fine)
            self.streamed.attended(4 * rows3[1])

    def attend(self, costs: Costs, rows: tuple[int, int], towards: Towards, use: Use, stage: int = 3) -> None:
        """Pass the attention of a stage to `use`, piece by piece; `rows` of that stage."""
        width = self.width >> (3 - stage)
        cost = partial(stage_cost, costs[:stage])
        stream(cost, rows, width, width, towards, self.limits[stage - 1], use)


class RollingStage:
    """A stage that goes down the picture."""

    def __init__(self, source: RollingMap, weights: StageWeights, kept: bool) -> None:
        self.source, self.weights, self.kept = source, weights, kept
        self.heads: list[RollingMap] = []
        for layers, _ in weights:
            x = self.features()
            self.heads.append(convolution(convolution(x, layers[0], SLOPE), layers[3], SLOPE))
            self.source = x
        self.readers = [head.reader() for head in self.heads]

    def features(self) -> RollingMap:
        """Features of the last block. Whoever asks for them must read them, for they are held until then."""
        return added(self.heads[-1], self.source, kept=True) if self.heads else self.source

    def cost(self, view: int, first: int, last: int) -> CostStage:
        """Queries of a view and keys of the other, rows first ... last - 1.

        The first row never decreases, unless the rows are `kept`.
        """
        for read in self.readers if not self.kept else ():
            read.forget(first)
        parts = [read(first, last) for read in reversed(self.readers)][::-1]  # the last: it drives the others
        _, channels, rows, width = parts[0].shape
        shape = rows, width, len(parts) * channels
        query, key = (parts[0].new_empty(shape, dtype=torch.float32) for _ in range(2))
        for place, (f, (_, (weight, bias))) in enumerate(zip(parts, self.weights, strict=True)):
            these = slice(place * channels, (place + 1) * channels)
            query[..., these] = F.conv2d(f[view : view + 1], weight, bias)[0].permute(1, 2, 0)
            key[..., these] = f[1 - view].permute(1, 2, 0)
        return CostStage(query, key, first, self.source.height)


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
