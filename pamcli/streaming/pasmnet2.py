"""PASMnet 2 without whole attention maps, and with a few rows of most feature maps: the same disparity.

The updates look up attention at places that are known late, so the maps of the rows that they still need are
kept: one direction of stages 2 and 3, ordered.

Shapes: H, W rows and columns of a quarter of the pictures' size; one pair at a time.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.parallax import received_mass, valid_mask
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
from pamcli.streaming.attention import Block, column_blocks
from pamcli.streaming.matching import (
    Cascade,
    StreamedMatching,
    StreamedMatchingNetwork,
    encoded,
    features_below,
)
from pamcli.streaming.rolling import (
    MEMORY_FORMAT,
    Enlarged,
    Mapped,
    Reader,
    RollingMap,
    Whole,
    added,
    convolution,
    gathered_all,
    joined,
    left_view,
    strips,
)

LAG = 44
"""Rows below a row of the result on which it depends: 14 of each update, one of the enlargement, and one."""


class StreamedPASMnet2(StreamedMatchingNetwork[PASMnet2]):
    """As its base says."""

    def _matched(
        self, pictures: RollingMap, max_disparity: int | None, strip: int, confidence: bool
    ) -> StreamedMatching:
        net, height = self.network, pictures.height
        halved = encoded(pictures, net.hourglass.E0)
        quarter, half = gathered_all(
            [encoded(halved, net.hourglass.E1), _relu(left_view(halved), net.x2)], strip // 4
        )
        cascade = Cascade(self, features_below(net.hourglass, quarter, strip), max_disparity, strip)
        start = Start(cascade, min(strip // 4 + LAG, height // 4), quarter)
        matched = left_view(cascade.stages[2].features())
        described = joined(Whole(quarter[:1]), matched)
        context = _relu(described, net.ctx)
        hidden: RollingMap = _relu(described, net.h0)
        d: RollingMap = Mapped(lambda found: found[:, :1].clone(), start)
        for _ in range(UPDATES):
            d, hidden = self._updated(d, hidden, context, start)
        unit, layer = net.mask
        assert isinstance(unit, nn.Sequential)
        mixture = convolution(_relu(joined(hidden, matched, Whole(half)), unit), layer)
        reader, around = mixture.reader(), d.reader()
        disparity = torch.empty((1, 1, height, 4 * cascade.width), device=quarter.device)
        sure = torch.empty_like(start.received)
        for first, last in strips(height // 4, strip // 4):
            weights = reader(first, last)
            values, margin = _with_margin(around, first, last, 1)
            disparity[:, :, 4 * first : 4 * last] = convex_enlarged(values, weights, margin)
            own, initial = values[:, margin[0] : values.shape[1] - margin[1]], start.initial[:, first:last]
            sure[:, first:last] = confidence_of(start.quarter.at(first), own, initial)
            reader.forget(last)
            self.done(4 * last)
        valid = valid_mask(start.received)
        return StreamedMatching(disparity, valid, start.received, sure if confidence else None)

    def _updated(
        self, d: RollingMap, hidden: RollingMap, context: RollingMap, start: "Start"
    ) -> tuple[RollingMap, RollingMap]:
        """As `Update.forward`, and what is seen and mixed."""
        update = self.network.upd
        seen = Seen(d, Enlarged(LookedUp(d, start.eighth)), start)
        mixed = _relu(joined(_relu(seen, update.enc), context, hidden), update.mix)
        hidden = added(convolution(_relu(mixed, update.res.a), update.res.b[0]), mixed, slope=0)
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

    def __init__(self, cascade: Cascade, rows: int, like: Tensor) -> None:
        """`rows`: of the maps that are kept until the updates have passed."""
        super().__init__(cascade.height, STAGE_STRIDES[2], cascade.stages[2].heads[-1].ahead)
        self.unit = cascade.lines
        rows = min(rows + self.unit, self.height)
        self.cascade, width = cascade, cascade.width
        self.eighth = KeptAttention(width // 2, cascade.limits[1], rows // 2, like)
        self.quarter = KeptAttention(width, cascade.limits[2], rows, like)
        self.pieces = cascade.costs()
        self.received = like.new_zeros((1, self.height, width), dtype=torch.float32)
        self.initial = torch.empty_like(self.received)

    def _compute(self, first: int, last: int) -> Tensor:
        new = self.received.new_empty((1, 3, last - first, self.cascade.width))

        def regress(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            self.quarter.keep(lines, block, attention)
            at = slice(lines[0] - first, lines[1] - first), slice(block.first, block.last)
            new[0, 0, *at], new[0, 1, *at] = windowed_regression(attention, (block.first, block.low))

        def receive(lines: tuple[int, int], block: Block, attention: Tensor) -> None:
            self.received[0, lines[0] : lines[1], block.low : block.high] += received_mass(attention)

        done = first
        while done < last:
            lines, towards, costs = next(self.pieces)
            self.cascade.attend(costs, lines, towards, regress if towards == "left" else receive)
            if towards == "left":
                self.cascade.attend(costs, (lines[0] // 2, lines[1] // 2), "left", self.eighth.keep, stage=2)
            else:
                done = lines[1]
        self.initial[:, first:last] = new[:, 0]
        new[:, 2] = self.received[:, first:last].clamp(max=LARGEST_RECEIVED)
        return new


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
        return torch.cat((log4, log8, shape), 1).contiguous(memory_format=MEMORY_FORMAT)


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
