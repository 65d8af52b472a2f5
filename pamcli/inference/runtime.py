"""Execute PyTorch programs on a device, with CUDA graphs where possible.

On CUDA a program (a function of tensors) is recorded as a CUDA graph when it runs a second time with inputs
of the same size, and replayed from then on. Other devices run it eagerly.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.inference.device import Compute
from pamcli.inference.memory import is_memory_error

Array = NDArray[Any]
Program = Callable[..., tuple[Tensor, ...]]
"""Computes tensors from tensors, depending only on shapes and values of the inputs."""

LOG = logging.getLogger("pamcli")

MOST_GRAPHS = 8
"""Maximum number of cached graphs, which share one memory pool; the least recently used is dropped first."""

WARM_UPS = 2  # runs on a separate stream before recording, in which libraries choose algorithms


@dataclass
class _Graph:
    """A recorded program, the tensors that it reads, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Runtime:
    """Runs programs on a device: arrays in, arrays out."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._graphs: OrderedDict[Hashable, _Graph | None] = OrderedDict()
        """Graphs by program and size; None if it ran only once or cannot be recorded."""
        self._unrecordable: set[Hashable] = set()
        self._pool: Any = None

    def __call__(self, program: Program, key: Hashable, *inputs: Array, verify: bool = False) -> list[Array]:
        """Run a program without gradients.

        Args:
            program: The computation.
            key: Identifies the program and its settings within this runtime.
            inputs: Arrays, which are copied to the device.
            verify: Compare the first replay of a graph with the eager run, for foreign programs.

        Returns:
            The outputs as arrays.
        """
        tensors = [torch.from_numpy(np.require(each, requirements=("C", "W"))) for each in inputs]
        with torch.inference_mode(), self.compute.full_precision():
            if self.compute.device.type != "cuda":
                outputs = program(*(each.to(self.compute.device) for each in tensors))
                return [np.array(each.cpu().numpy(), order="C") for each in outputs]
            with torch.cuda.device(self.compute.device):
                sizes = tuple((each.shape, each.dtype) for each in tensors)
                return self._run_cuda(program, (key, sizes), tensors, verify)

    def forget(self) -> None:
        """Free the memory of all graphs."""
        self._graphs.clear()
        self._pool = None
        if self.compute.device.type == "cuda":
            torch.cuda.empty_cache()

    def _run_cuda(self, program: Program, key: Hashable, tensors: list[Tensor], verify: bool) -> list[Array]:
        known = self._graphs.get(key)
        if known is None:
            on_device = tuple(each.to(self.compute.device, non_blocking=True) for each in tensors)
            outputs = program(*on_device)
            if key in self._graphs and key not in self._unrecordable:
                known = self._record(program, key, on_device, outputs if verify else None)
            self._graphs[key] = known
        else:
            for kept, new in zip(known.inputs, tensors, strict=True):
                kept.copy_(new, non_blocking=True)
            known.graph.replay()
            outputs = known.outputs
        self._graphs.move_to_end(key)
        while len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return _to_arrays(outputs)

    def _record(
        self, program: Program, key: Hashable, inputs: tuple[Tensor, ...], expected: tuple[Tensor, ...] | None
    ) -> _Graph | None:
        """Record a program; return None if that is not possible, which is tried only once."""
        try:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    program(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = program(*inputs)
            if expected is not None:
                graph.replay()
                if not all(
                    torch.allclose(a.float(), b.float(), 1e-3, 1e-3, equal_nan=True)
                    for a, b in zip(outputs, expected, strict=True)
                ):
                    raise RuntimeError("the replay has other results")
        except (RuntimeError, ValueError) as error:
            torch.cuda.synchronize()
            if is_memory_error(error):
                raise
            LOG.debug("runs without a CUDA graph: %s", str(error).partition("\n")[0])
            self._unrecordable.add(key)
            return None
        return _Graph(graph, inputs, outputs)


def _to_arrays(tensors: tuple[Tensor, ...]) -> list[Array]:
    """Copy tensors of a CUDA GPU to arrays, all at once, through pinned memory."""
    pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in tensors]
    for here, there in zip(pinned, tensors, strict=True):
        here.copy_(there, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return [each.numpy() for each in pinned]
