"""PASMnet 2 without whole attention maps, and with a few rows of most feature maps: the same disparity.

The updates look up attention at places that are known late, so the maps of the rows that they still need are
kept: one direction of stages 2 and 3, ordered.

Shapes: H, W rows and columns of a quarter of the pictures' size; one pair at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import valid_mask
from pamcli.networks.pasmnet import STAGE_STRIDES
from pamcli.networks.pasmnet2 import (
    FARTHEST,
    LARGEST_RECEIVED,
    UPDATES,
    Margin,
    PASMnet2,
    convex_enlarged,
    looked_up,
    mixed_neighbours,
    surroundings,
    windowed_regression,
)
from pamcli.networks.pasmnet2 import confidence as confidence_of
from pamcli.streaming.attention import Block, column_blocks, stage_cost, stream
from pamcli.streaming.matching import (
    Cascade,
    StageWeights,
    StreamedMatching,
    encoded,
    features_below,
)
from pamcli.streaming.rolling import (
    LAYOUT,
    Enlarged,
    Given,
    Joined,
    Left,
    Reader,
    RollingMap,
    Sum,
    Whole,
    convolution,
    read_all,
)
from pamcli.streaming.strips import Rows, strips

LAG = 44
"""Rows below a row of the result on which it depends: 14 of each update, one of the enlargement, and one."""


class StreamedPASMnet2:
    """Runs a PASMnet 2 whose batch norm is folded (`folding.folded`) strip by strip.

    In the precision of its weights (see `matching.lowered`); attention and disparity are float32.
    """

    def __init__(self, network: PASMnet2) -> None:
        self.network = network
        self.stages = StageWeights.of_all(network.cas_pam)

    def match(
        self,
        rows: Rows,
        height: int,
        width: int,
        max_disparity: int | None = None,
        *,
        strip: int | None = None,
        confidence: bool = False,
    ) -> StreamedMatching:
        """As of `StreamedPASMnet.match`."""
        assert height % 32 == width % 32 == 0
        strip = height if strip is None else strip
        assert strip % 32 == 0
        quarter, half = self._features(rows, height, strip)
        cascade = Cascade(
            self.network, self.stages, features_below(self.network.hourglass, quarter, strip), strip
        )
        start = Start(cascade, max_disparity, min(strip // 4 + LAG, height // 4), quarter)
        matched = Left(cascade.stages[2].features())
        described = Joined([Whole(quarter[:1]), matched])
        context = _relu(described, self.network.ctx)
        hidden: RollingMap = _relu(described, self.network.h0)
        d: RollingMap = Channel(start, 0)
        for _ in range(UPDATES):
            d, hidden = self._updated(d, hidden, context, start)
        unit, layer = self.network.mask
        assert isinstance(unit, nn.Sequential)
        mixture = convolution(_relu(Joined([hidden, matched, Whole(half)]), unit), layer)
        reader, around = mixture.reader(), d.reader()
        disparity = torch.empty((1, 1, height, width), device=quarter.device)
        sure = torch.empty_like(start.received)
        for first, last in strips(height // 4, strip // 4):
            weights = reader(first, last)
            values, margin = _with_margin(around, first, last, 1)
            disparity[:, :, 4 * first : 4 * last] = convex_enlarged(values, weights, margin)
            own, initial = values[:, margin[0] : values.shape[1] - margin[1]], start.initial[:, first:last]
            sure[:, first:last] = confidence_of(start.quarter.at(first), own, initial)
            reader.forget(last)
        valid = valid_mask(start.received)
        return StreamedMatching(disparity, valid, start.received, sure if confidence else None)

    def _features(self, rows: Rows, height: int, strip: int) -> tuple[Tensor, Tensor]:
        """E1's result of both views, and what the enlargement takes from E0's of the left one."""
        net = self.network
        half = encoded(Given(rows, height), net.hourglass.E0)
        maps = encoded(half, net.hourglass.E1), _relu(Left(half), net.x2)
        readers = [one.reader() for one in maps]
        whole: list[Tensor] = []
        for first, last in strips(height // 4, strip // 4):
            parts = read_all(readers, first, last)
            if not whole:
                whole = [
                    part.new_empty((*part.shape[:2], height // 4, part.shape[3])).to(memory_format=LAYOUT)
                    for part in parts
                ]
            for into, part, reader in zip(whole, parts, readers, strict=True):
                into[:, :, first:last] = part
                reader.forget(last)
        return whole[0], whole[1]

    def _updated(
        self, d: RollingMap, hidden: RollingMap, context: RollingMap, start: Start
    ) -> tuple[RollingMap, RollingMap]:
        """As `Update.forward`, and what is seen and mixed."""
        update = self.network.upd
        seen = Seen(d, Enlarged(LookedUp(d, start.eighth)), start)
        mixed = _relu(Joined([_relu(seen, update.enc), context, hidden]), update.mix)
        hidden = Sum(convolution(_relu(mixed, update.res.a), update.res.b[0]), mixed, slope=0)
        return Mixed(d, convolution(hidden, update.out)), hidden


class KeptAttention:
    """The last rows of M_right->left, in the blocks of columns that it comes in."""

    def __init__(self, width: int, limit: int | None, rows: int, like: Tensor) -> None:
        self.rows, self.size = rows, 0
        self.places: dict[Block, int] = {}
        low, high, base = (like.new_empty(width, dtype=torch.long) for _ in range(3))
        for block in column_blocks(width, width, "left", limit):
            of, span = slice(block.first, block.last), block.high - block.low
            self.places[block] = self.size
            low[of], high[of] = block.low, block.high
            base[of] = (
                self.size - block.low + span * torch.arange(block.last - block.first, device=like.device)
            )
            self.size += (block.last - block.first) * span
        self.low, self.high, self.base = low[:, None], high[:, None], base[:, None]
        self.held = like.new_empty((rows, self.size), dtype=torch.float32)
        self.last = 0

    def keep(self, lines: tuple[int, int], block: Block, attention: Tensor) -> None:
        """A piece (R, J, K); it takes the place of rows that are passed."""
        place, self.last = self.places[block], lines[1]
        pieces = attention.flatten(1)
        for row, piece in zip(range(*lines), pieces, strict=True):
            self.held[row % self.rows, place : place + len(piece)] = piece

    def at(self, first: int) -> Callable[[Tensor], Tensor]:
        """M of the rows from `first` on at columns (1, R, W, n), zero where no pixel may look."""

        assert self.last - self.rows <= first, "these rows are forgotten"

        def gather(k: Tensor) -> Tensor:
            row = torch.arange(first, first + k.shape[1], device=k.device) % self.rows * self.size
            there = (k >= self.low) & (k < self.high)
            index = row[:, None, None] + self.base + k.clamp(min=self.low).minimum(self.high - 1)
            return torch.where(there, self.held.view(-1)[index], 0)

        return gather


def kept_bytes(width: int) -> int:
    """Of a row of both stages' attention, of maps as wide as the row at a quarter of the pictures' size."""
    blocks = column_blocks(width, width, "left", None)
    of_quarter = 4 * sum((block.last - block.first) * (block.high - block.low) for block in blocks)
    return of_quarter * 9 // 8  # of stage 2 half as many rows, columns of both views


class Start(RollingMap):
    """Windowed regression of the attention: disparity, confidence, received attention, (1, 3, H, W)."""

    def __init__(self, cascade: Cascade, max_disparity: int | None, rows: int, like: Tensor) -> None:
        """`rows`: of the maps that are kept until the updates have passed."""
        super().__init__(cascade.height, STAGE_STRIDES[2], cascade.stages[2].heads[-1].ahead)
        self.unit = cascade.lines
        self.limits = [None if max_disparity is None else max_disparity // STAGE_STRIDES[s] for s in (1, 2)]
        rows = min(rows + self.unit, self.height)
        width = cascade.width
        self.eighth = KeptAttention(width // 2, self.limits[0], rows // 2, like)
        self.quarter = KeptAttention(width, self.limits[1], rows, like)
        self.width, self.pieces = width, cascade.costs()
        self.received = like.new_zeros((1, self.height, width), dtype=torch.float32)
        self.initial = torch.empty_like(self.received)

    def _compute(self, first: int, last: int) -> Tensor:
        new = self.received.new_empty((1, 3, last - first, self.width))

        def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            self.quarter.keep(lines, block, attention)
            at = slice(lines[0] - first, lines[1] - first), slice(block.first, block.last)
            new[0, 0, *at], new[0, 1, *at] = windowed_regression(attention, (block.first, block.low))

        def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            self.received[0, lines[0] : lines[1], block.low : block.high] += attention.sum(1)

        done = first
        while done < last:
            lines, towards, costs = next(self.pieces)
            use = regress if towards == "left" else receive
            stream(partial(stage_cost, costs), lines, self.width, self.width, towards, self.limits[1], use)
            if towards == "left":
                halved, width = (lines[0] // 2, lines[1] // 2), self.width // 2
                cost = partial(stage_cost, costs[:2])
                stream(cost, halved, width, width, "left", self.limits[0], self.eighth.keep)
            else:
                done = lines[1]
        self.initial[:, first:last] = new[:, 0]
        new[:, 2] = self.received[:, first:last].clamp(max=LARGEST_RECEIVED)
        return new


class Channel(RollingMap):
    """One channel of a map."""

    def __init__(self, source: RollingMap, number: int) -> None:
        super().__init__(source.height, source.step, source.ahead)
        self.source, self.number = source.reader(), number

    def _compute(self, first: int, last: int) -> Tensor:
        x = self.source(first, last)[:, self.number : self.number + 1].clone()
        self.source.forget(last)
        return x


class LookedUp(RollingMap):
    """Attention of stage 2 near the disparity: (1, 9, H/2, W/2)."""

    def __init__(self, disparity: RollingMap, attention: KeptAttention) -> None:
        super().__init__(disparity.height // 2, 2 * disparity.step, disparity.ahead)
        self.disparity, self.attention = disparity.reader(), attention

    def _compute(self, first: int, last: int) -> Tensor:
        d = F.avg_pool2d(self.disparity(2 * first, 2 * last), 2)[:, 0] / 2
        self.disparity.forget(2 * last)
        return looked_up(self.attention.at(first), d)


class Seen(RollingMap):
    """What an update sees at the current disparity (1, 45, H, W)."""

    def __init__(self, disparity: RollingMap, eighth: RollingMap, start: Start) -> None:
        ahead = max(disparity.ahead + FARTHEST * disparity.step, eighth.ahead)
        super().__init__(disparity.height, disparity.step, ahead)
        self.disparity, self.eighth, self.start = disparity.reader(), eighth.reader(), start.reader()
        self.attention = start.quarter

    def _compute(self, first: int, last: int) -> Tensor:
        around, margin = _with_margin(self.disparity, first, last, FARTHEST)
        above, below = margin
        log4 = looked_up(self.attention.at(first), around[:, above : around.shape[1] - below])
        log8, trust = self.eighth(first, last), self.start(first, last)
        self.eighth.forget(last)
        self.start.forget(last)
        shape = surroundings(around, trust[:, 1], trust[:, 2], margin)
        return torch.cat((log4, log8, shape), 1).contiguous(memory_format=LAYOUT)


class Mixed(RollingMap):
    """Disparity after an update (1, 1, H, W)."""

    def __init__(self, disparity: RollingMap, mixing: RollingMap) -> None:
        ahead = max(mixing.ahead, disparity.ahead + FARTHEST * disparity.step)
        super().__init__(disparity.height, disparity.step, ahead)
        self.disparity, self.mixing = disparity.reader(), mixing.reader()

    def _compute(self, first: int, last: int) -> Tensor:
        mixing = self.mixing(first, last)
        around, margin = _with_margin(self.disparity, first, last, FARTHEST)
        self.mixing.forget(last)
        return mixed_neighbours(around, mixing, margin)[:, None]


def _with_margin(disparity: Reader, first: int, last: int, reach: int) -> tuple[Tensor, Margin]:
    """Rows first ... last - 1 of a disparity (1, R, W) and those around, and how many; then it moves on."""
    low, high = max(0, first - reach), min(last + reach, disparity.height)
    rows = disparity(low, high)[:, 0]
    disparity.forget(max(0, last - reach) if last < disparity.height else last)
    return rows, (first - low, high - last)


def _relu(source: RollingMap, unit: nn.Sequential) -> RollingMap:
    return convolution(source, unit[0], slope=0)
