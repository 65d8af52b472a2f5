"""Variants of the networks that are not streamed: run on whole pairs, but called as the streamed ones are.

Memory grows with the rows times the square of the columns: `whole_footprint` counts it, so that what cannot
fit is refused before it is tried.
"""

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pamcli.inference.device import Compute
from pamcli.registry.load import build_network
from pamcli.registry.spec import ModelSpec
from pamcli.streaming.footprint import LIBRARIES, Footprint
from pamcli.streaming.matching import Progress, StreamedMatching
from pamcli.streaming.passrnet import Write
from pamcli.streaming.rolling import MEMORY_FORMAT, Rows

COPIES = 2.25
"""Bytes taken for each byte of tensors, with convolutions' own copies: 0.6 to 2.1 were measured."""


class AliveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside this context, `peak` is the most bytes that tensors made inside it took.

    Views of those made outside, as of weights and of the given pictures, do not count.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if _has_bytes(x)}
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if _has_bytes(value):
                storage = value.untyped_storage()
                if storage._cdata not in self.sizes and storage._cdata not in given:
                    self.sizes[storage._cdata] = storage.nbytes()
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._gone, storage._cdata)
        return out

    def _gone(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def _has_bytes(value: object) -> bool:
    """Say whether it is a tensor whose bytes are known: weights in a layout of oneDNN's own are none."""
    return isinstance(value, Tensor) and not value.is_mkldnn


class WholeNetwork:
    """A network that is given whole pictures; `match` and `enlarge` are those of the streamed networks."""

    def __init__(self, network: Any, spec: ModelSpec, compute: Compute) -> None:
        self.network, self.spec, self.compute = network, spec, compute

    def footprint(self, width: int, height: int, **asked: bool) -> Footprint:
        return whole_footprint(self.spec, width, height)

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
        """Match a pair as `StreamedPASMnet` does; `strip` has no effect."""
        views = rows(0, height).contiguous(memory_format=MEMORY_FORMAT)
        with self.compute.autocast():
            found = self.network(views[:1], views[1:], max_disparity)
        return StreamedMatching(found.disparity, found.received, found.confidence if confidence else None)

    def enlarge(
        self, rows: Rows, height: int, width: int, write: Write, *, both: bool, strip: int | None = None
    ) -> None:
        """Enlarge a pair as `StreamedPASSRnet` does; `strip` has no effect."""
        views = rows(0, height)
        with self.compute.autocast():
            found = self.network(views[:1], views[1:], both=both)
        write(0, 0, found.left[0])
        if found.right is not None:
            write(1, 0, found.right[0])


@cache
def whole_footprint(spec: ModelSpec, width: int, height: int) -> Footprint:
    """Memory of a variant for `width` x `height` px: what tensors take, counted without computing them."""
    with FakeTensorMode(), torch.inference_mode():
        network = build_network(spec).eval()
        left, right = torch.empty(2, 1, 3, height, width)
        with AliveTensors() as alive:
            network(left, right, **({} if spec.scale is None else {"both": True}))
    return Footprint(lambda strip: LIBRARIES + int(COPIES * alive.peak), rows=(height, height, height))
