"""Layers that go down a picture a few rows at a time: each row is computed once, few are held.

A feature map is asked for rows from top to bottom. It asks the maps that it is made from for as many rows as
its kernel can see, computes what is new, and says which of their rows it will never look at again. So a whole
network runs in the memory of a few rows of each of its maps, with the result of running it on the whole
picture: at the true edges, and only there, the layers pad as ever. Before rows are computed, all maps are
told which rows these need of them (`expect`), so that each computes its own at once, for all that read it.

Shapes: B batch, C channels, H rows, W columns of the map in question. In memory the channels of a pixel lie
side by side (`MEMORY_FORMAT`).
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pamcli.networks.blocks import SLOPE, upsample
from pamcli.onednn import convolved
from pamcli.winograd import winograd

Rows = Callable[[int, int], Tensor]  # rows(first, last): rows first ... last - 1 of a map (B, C, H, W)

MEMORY_FORMAT = torch.channels_last
"""Convolutions of few channels are two to four times as fast in it, those of many a little."""

Network = TypeVar("Network", bound=nn.Module)


def strips(height: int, rows: int) -> Iterator[tuple[int, int]]:
    """(first, last) of consecutive strips of at most `rows` rows that cover `height`."""
    for first in range(0, height, rows):
        yield first, min(first + rows, height)


def coarser(first: int, last: int, height: int) -> tuple[int, int]:
    """Rows of a map of `height` rows on which rows first ... last - 1 of its enlargement by 2 depend.

    Bilinear enlargement without aligned corners. Enlarging these rows alone gives rows 2 low ... 2 high - 1,
    of which the wanted ones are right.
    """
    return max(0, (first - 1) // 2), min(height, last // 2 + 1)


class RollingMap(ABC):
    """A map (B, C, H, W) of which the rows are computed from top to bottom, on demand."""

    unit = 1
    """Rows are computed in multiples of this."""

    def __init__(self, height: int, step: float = 1, ahead: float = 0, strip: float = math.inf) -> None:
        """`step`, `ahead`: rows of the picture from a row to the next, and those below that it depends on.

        `strip`: rows of the picture that are computed at a time, at most.
        """
        self.height, self.step, self.ahead, self.strip = height, step, ahead, strip
        self.last = self._expected = 0
        """Rows above these have been computed, and will be asked for before the next call of `expect`."""
        self._first = self._start = 0  # rows above are forgotten; those that are held begin with
        self._held: list[Tensor] = []  # one after the other, as they were computed
        self._needed: list[int] = []

    def reader(self) -> "Reader":
        """A place from which the map is read; rows that all readers have passed are forgotten."""
        self._needed.append(0)
        return Reader(self, len(self._needed) - 1)

    def read(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1, computed where they are new; a view if they are part of more."""
        while self.last < last <= self.height:
            most = max(1, self.strip / self.step) + self.last  # a strip
            until = -(-min(max(last, self._expected), most) // self.unit) * self.unit
            new = self._compute(self.last, min(int(until), self.height))
            self._held.append(new)
            self.last += new.shape[2]
        assert self._first <= first < last <= self.last, "these rows are forgotten, or beyond the edge"
        parts, start = [], self._start
        for held in self._held:
            end = start + held.shape[2]
            if start < last and end > first:
                parts.append(held[:, :, max(first - start, 0) : last - start])
            start = end
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def forget(self, reader: int, before: int) -> None:
        """A reader will not read the rows above row `before` again."""
        self._needed[reader] = max(self._needed[reader], before)
        self._first = min([*self._needed, self.last])
        while self._held and self._start + self._held[0].shape[2] <= self._first:
            self._start += self._held.pop(0).shape[2]
        if not self._held or self.last == self.height:
            return  # no more rows will come, and to copy the rest costs more than to keep it
        rest = self._held[0][:, :, self._first - self._start :]
        if 2 * rest.shape[2] <= self._held[0].shape[2]:
            self._held[0] = rest.clone()  # a view would keep all of them
            self._start = self._first

    def expect(self, last: int) -> None:
        """Rows above row `last` will be asked for soon, and what they are made from of other maps."""
        last = min(last, self.height)
        if last > max(self._expected, self.last):
            self._expected = min(-(-last // self.unit) * self.unit, self.height)
            for source, rows in self._reads(self._expected):
                source.expect(rows)

    def _reads(self, last: int) -> "Reads":
        """Up to which rows it reads other maps for its own up to row `last`; more is computed on demand."""
        return ()

    @abstractmethod
    def _compute(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1, which follow those computed before."""


class Reader:
    """Reads a map from top to bottom."""

    def __init__(self, map_: RollingMap, number: int) -> None:
        self._map, self._number = map_, number
        self.height, self.step, self.ahead = map_.height, map_.step, map_.ahead

    def __call__(self, first: int, last: int) -> Tensor:
        """Rows first ... last - 1."""
        self._map.expect(last)
        return self._map.read(first, last)

    def expect(self, last: int) -> None:
        """Rows above row `last` will be read soon."""
        self._map.expect(last)

    def forget(self, before: int) -> None:
        """Rows above row `before` will not be read again."""
        self._map.forget(self._number, before)


Reads = Sequence[tuple[Reader | RollingMap, int]]


def read_all(readers: Sequence[Reader], first: int, last: int) -> list[Tensor]:
    """Rows first ... last - 1 of several maps, whichever looks furthest ahead first."""
    for reader in readers:
        reader.expect(last)
    order = sorted(range(len(readers)), key=lambda number: -readers[number].ahead)
    parts = {number: readers[number](first, last) for number in order}
    return [parts[number] for number in range(len(readers))]


class Given(RollingMap):
    """Rows that come from elsewhere, as from a picture."""

    def __init__(self, rows: Rows, height: int, strip: float = math.inf) -> None:
        super().__init__(height, strip=strip)
        self.given = rows

    def _compute(self, first: int, last: int) -> Tensor:
        return self.given(first, last).contiguous(memory_format=MEMORY_FORMAT)


class Whole(RollingMap):
    """A map that is there."""

    def __init__(self, whole: Tensor) -> None:
        super().__init__(whole.shape[2])
        self._held, self.last = [whole], whole.shape[2]

    def forget(self, reader: int, before: int) -> None:
        pass

    def _compute(self, first: int, last: int) -> Tensor:
        raise AssertionError("all of it is there")


class Convolution(RollingMap):
    """A convolution of odd kernel that keeps the size or halves it (stride 2), in its weights' precision."""

    def __init__(
        self,
        source: RollingMap,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        stride: int = 1,
        dilation: int = 1,
        slope: float | None = None,
        run: Callable[[Tensor, tuple[int, int], float | None], Tensor] | None = None,
    ) -> None:
        """`slope`: of the leaky rectifier behind it, if there is one. `run`: what convolves x with a padding
        and rectifies it, in place of `convolved`."""
        self.reach = (weight.shape[2] // 2 * dilation, weight.shape[3] // 2 * dilation)
        ahead = source.ahead + self.reach[0] * source.step
        super().__init__(-(-source.height // stride), stride * source.step, ahead, source.strip)
        self.source = source.reader()
        self.weight, self.bias, self.stride, self.dilation, self.slope = weight, bias, stride, dilation, slope
        self.run = run

    def _reads(self, last: int) -> Reads:
        return [(self.source, self.stride * (last - 1) + self.reach[0] + 1)]

    def _compute(self, first: int, last: int) -> Tensor:
        reach, columns = self.reach
        low, high = self.stride * first - reach, self.stride * (last - 1) + reach + 1
        above, below = max(0, -low), max(0, high - self.source.height)
        x = self.source(low + above, high - below)
        padding = max(above, below) if self.stride == 1 else above
        if self.run is not None:
            x = self.run(x, (padding, columns), self.slope)
        else:
            how = self.stride, (padding, columns), self.dilation, self.slope
            x = convolved(x.to(self.weight.dtype), self.weight, self.bias, *how)
        self.source.forget(self.source.height if last == self.height else self.stride * last - reach)
        return x.narrow(2, padding - above, last - first)  # padding on one side alone costs copies


class Mapped(RollingMap):
    """What a function makes of the same rows of some maps."""

    def __init__(self, function: Callable[..., Tensor], *sources: RollingMap) -> None:
        ahead, strip = max(source.ahead for source in sources), min(source.strip for source in sources)
        super().__init__(sources[0].height, sources[0].step, ahead, strip)
        self.function, self.sources = function, [source.reader() for source in sources]

    def _reads(self, last: int) -> Reads:
        return [(source, last) for source in self.sources]

    def _compute(self, first: int, last: int) -> Tensor:
        made = self.function(*read_all(self.sources, first, last))
        for source in self.sources:
            source.forget(last)
        return made


class Leading(RollingMap):
    """A map behind which others of its size never fall: they are computed to the same row."""

    def __init__(self, source: RollingMap, *others: RollingMap) -> None:
        super().__init__(source.height, source.step, source.ahead, source.strip)
        self.source, self.others = source.reader(), others

    def _reads(self, last: int) -> Reads:
        return [(self.source, last), *((other, last) for other in self.others)]

    def _compute(self, first: int, last: int) -> Tensor:
        rows = self.source(first, last)
        self.source.forget(last)
        for other in self.others:
            other.read(first, last)
        return rows


def added(own: RollingMap, other: RollingMap, slope: float | None = None, *, kept: bool = False) -> Mapped:
    """`own` + `other`; in the memory of `own`, which then nothing else may read, unless that is `kept`."""

    def add(x: Tensor, y: Tensor) -> Tensor:
        total = x + y if kept else x.add_(y)
        return total if slope is None else F.leaky_relu_(total, slope)

    return Mapped(add, own, other)


def left_view(source: RollingMap, *, kept: bool = False) -> Mapped:
    """The left view of both; in the memory of both, if that is `kept` anyway."""
    return Mapped(lambda x: x[:1] if kept else x[:1].clone(memory_format=MEMORY_FORMAT), source)


def joined(*sources: RollingMap) -> Mapped:
    """The channels of several maps, one after the other."""
    return Mapped(lambda *parts: torch.cat(parts, 1).contiguous(memory_format=MEMORY_FORMAT), *sources)


class Larger(RollingMap):
    """A map `scale` times as large, of which a row depends on those within `reach` rows of it."""

    def __init__(
        self, source: RollingMap, scale: int, reach: int, function: Callable[[Tensor], Tensor], unit: int = 1
    ) -> None:
        ahead = source.ahead + -(-reach // scale) * source.step
        super().__init__(scale * source.height, source.step / scale, ahead, source.strip)
        self.source, self.scale, self.reach, self.function = source.reader(), scale, reach, function
        self.unit = unit

    def _reads(self, last: int) -> Reads:
        return [(self.source, (last - 1 + self.reach) // self.scale + 1)]

    def _compute(self, first: int, last: int) -> Tensor:
        scale, height = self.scale, self.source.height
        low = max(0, (first - self.reach) // scale)
        high = min(height, (last - 1 + self.reach) // scale + 1)
        x = self.function(self.source(low, high))[:, :, first - scale * low : last - scale * low]
        self.source.forget(height if last == self.height else (last - self.reach) // scale)
        return x


class Enlarged(Larger):
    """Bilinear enlargement by 2, and a leaky rectifier of the slope."""

    def __init__(self, source: RollingMap, slope: float | None = None) -> None:
        def function(x: Tensor) -> Tensor:
            return upsample(x) if slope is None else F.leaky_relu_(upsample(x), slope)

        super().__init__(source, 2, 1, function)


class Shuffled(Larger):
    """Channels to pixels: (B, C scale^2, H, W) to (B, C, scale H, scale W)."""

    def __init__(self, source: RollingMap, scale: int) -> None:
        super().__init__(source, scale, 0, lambda x: F.pixel_shuffle(x, scale), unit=scale)


def convolution(source: RollingMap, layer: nn.Module, slope: float | None = None) -> Convolution:
    """Run a layer, which is a convolution, followed by a leaky rectifier of the slope.

    By what `eight_bits` has put into its place, where it has, or by `winograd` where that can.
    """
    assert isinstance(layer, nn.Conv2d)
    stride, dilation, run = layer.stride[0], layer.dilation[0], getattr(layer, "run", None) or winograd(layer)
    return Convolution(
        source, layer.weight, layer.bias, stride=stride, dilation=dilation, slope=slope, run=run
    )


def residual(source: RollingMap, body: nn.Sequential, slope: float | None = None) -> RollingMap:
    """source + body(source), a residual block (batch norm folded), and a rectifier."""
    first, second = (layer for layer in body if isinstance(layer, nn.Conv2d))
    return added(convolution(convolution(source, first, SLOPE), second), source, slope)


def empty_map(shape: Sequence[int], like: Tensor) -> Tensor:
    """Room for a map (B, C, H, W), of the kind of numbers and on the device of another tensor."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=MEMORY_FORMAT)


def gathered(map_: RollingMap, rows: int, into: Tensor | None = None) -> Tensor:
    """All of a map, computed `rows` rows at a time; `into` the memory given."""
    return gathered_all([map_], rows, None if into is None else [into])[0]


def gathered_all(
    maps: Sequence[RollingMap], rows: int, into: Sequence[Tensor] | None = None
) -> Sequence[Tensor]:
    """Compute all of several maps of one height, as `gathered` does of one."""
    readers, height = [map_.reader() for map_ in maps], maps[0].height
    if rows >= height and into is None:
        return read_all(readers, 0, height)
    for first, last in strips(height, rows):
        parts = read_all(readers, first, last)
        if into is None:
            shapes = [(*part.shape[:2], height, part.shape[3]) for part in parts]
            into = [empty_map(shape, parts[0]) for shape in shapes]
        for whole, part, reader in zip(into, parts, readers, strict=True):
            whole[:, :, first:last] = part
            reader.forget(last)
        del parts, part
    assert into is not None
    return into


def number_size(network: nn.Module) -> int:
    """Bytes of a number in the precision that most layers compute in."""
    return min(weight.element_size() for weight in network.parameters())


def folded(network: Network) -> Network:
    """A copy for inference in which every batch norm that follows a convolution has become part of it.

    The copy must not be trained: its running statistics are gone. Its leaky rectifiers work in place.
    """
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in network.modules():
        vars(module).pop("winograd", None)  # of a copy of it that has run: weights may be others now
        if isinstance(module, nn.LeakyReLU):
            module.inplace = True
        if not isinstance(module, nn.Sequential):
            continue
        for place in range(len(module) - 1):
            conv, norm = module[place], module[place + 1]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                module[place] = _with_norm(conv, norm)
                module[place + 1] = nn.Identity()
    return network


def _with_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    bias = (
        -norm.running_mean.double() if conv.bias is None else conv.bias.double() - norm.running_mean.double()
    )
    joined = copy.deepcopy(conv)
    joined.weight = nn.Parameter(
        (conv.weight.double() * scale[:, None, None, None]).to(conv.weight.dtype), False
    )
    joined.bias = nn.Parameter((bias * scale + norm.bias.double()).to(conv.weight.dtype), False)
    return joined
