"""Define what every stereo model offers, and run pam's own PyTorch networks as one, with CUDA graphs.

Matchers and upscalers use any network through `StereoModel`: pam's own networks (`TorchModel`), exported
files (`onnx_file.OnnxModel`) and foreign networks (`foreign.ForeignModel`).

On CUDA a program (a function of tensors) is recorded as a CUDA graph when it runs a second time with inputs
of the same size, and replayed from then on. Other devices run it eagerly.
"""

import copy
import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.inference import Progress
from pamcli.inference.device import PRECISIONS, Compute, catch_memory_errors, is_memory_error
from pamcli.inference.images import Pixels, padding, to_network, to_pixels, to_plain
from pamcli.networks.blocks import upsample
from pamcli.networks.parallax import valid_mask
from pamcli.onednn import use_faster_products
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description
from pamcli.registry.resolution import MatchSize
from pamcli.registry.spec import ModelSpec

Array = NDArray[Any]
Maps = dict[str, Array]
Names = tuple[str, ...]
Program = Callable[..., tuple[Tensor, ...]]  # depends only on shapes and values of its inputs

LOG = logging.getLogger("pamcli")
MOST_GRAPHS = 8  # cached graphs at most, which share a memory pool; the least recently used is dropped
WARM_UPS = 2  # runs on a separate stream before recording, in which libraries choose algorithms


class StereoModel(Protocol):
    """A network for stereo matching or super-resolution, ready to run on a device."""

    spec: ModelSpec | Description
    compute: Compute
    size: tuple[int, int] | None = None  # height and width that images are padded to; None = any size
    multiple: int = 1  # sides of images are padded to a multiple of this
    halo: int = 0  # rows above and below on which the result of a row depends noticeably
    has_confidence: bool = True
    has_fixed_search: bool = False  # True if no maximum disparity can be set
    runtime_note: str | None = None  # runtime and device of a foreign network, for messages

    def match(
        self, left: Pixels, right: Pixels, progress: Progress, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        """Match a pair (H, W, 3) of one size whose disparities are not negative.

        Args:
            left: The left image.
            right: The right image.
            progress: Called with the completed fraction.
            max_disparity: Search below this disparity, px, a multiple of 16; None = no limit.
            extras: Further maps to compute: "confidence" and "visible".

        Returns:
            Maps (H, W) by the names of `StereoResult`: "disparity"; "right_disparity" if it is computed with
            the left one; if requested and available, "confidence", and "visible": True where a pixel
            receives attention from the right.
        """
        ...

    def upscale(self, left: Pixels, right: Pixels, progress: Progress, *, both: bool) -> Maps:
        """Upscale the left image (H, W, 3), or both, to (scale H, scale W, 3) of the same type, by name."""
        ...

    def memory(self, height: int, width: int) -> int:
        """Predict the peak memory for images of a size, bytes; 0 if unknown."""
        return 0

    def release_memory(self) -> None:
        return None

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a phrase on the preprocessing of images of this size, such as "padded to ...", or None."""
        return None

    def reduced_size(self, height: int, width: int) -> tuple[int, int] | None:
        """Return the only size at which efforts match; None = that of `choose_matching_size`."""
        return None

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the possible matching resolution; raise UsageError for an unsupported search."""
        return size


class TorchModel(StereoModel):
    """One of pam's own networks in PyTorch."""

    def __init__(self, network: Any, spec: ModelSpec, compute: Compute) -> None:
        """Prepare a network (see its `prepare`) for a device and a precision."""
        self.spec, self.compute = spec, compute
        self.multiple = spec.row.multiple
        with catch_memory_errors(f"the network does not fit into the memory of {compute.device}"):
            if compute.device.type == "mps":  # networks are prepared in float64, which mps lacks
                network = copy.deepcopy(network).cpu()
            self.network = network.prepare(PRECISIONS[compute.precision]).to(compute.device)
        self.halo = network.HALO
        self.runtime = Runtime(compute)
        mean, std = (IMAGE_MEAN, IMAGE_STD) if spec.row.normalised else ((0.0,) * 3, (1.0,) * 3)
        self._mean = torch.tensor(mean, device=compute.device).view(3, 1, 1)
        self._std = torch.tensor(std, device=compute.device).view(3, 1, 1)

    def match(
        self, left: Pixels, right: Pixels, progress: Progress, *, max_disparity: int | None, extras: Names
    ) -> Maps:
        width = left.shape[1]
        above, beside = padding(left.shape[0], width, self.multiple)

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            left, right = to_network(left, above, beside), to_network(right, above, beside)
            images = (left - self._mean) / self._std, (right - self._mean) / self._std
            found = self.network(*images, max_disparity, confidence="confidence" in extras)
            confidence = found.confidence if "confidence" in extras else None
            return crop_outputs(extras, above, width, found.disparity, found.attention_mass, confidence)

        found = self.runtime(program, (max_disparity, extras), to_plain(left), to_plain(right))
        return dict(zip(("disparity", *extras), found, strict=True))

    def upscale(self, left: Pixels, right: Pixels, progress: Progress, *, both: bool) -> Maps:
        kinds = left.dtype, right.dtype

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            found = self.network(to_network(left), to_network(right), both=both)
            images = (found.left, found.right) if both else (found.left,)
            return tuple(to_pixels(each[0], kind) for each, kind in zip(images, kinds, strict=False))

        with self._report_blocks(progress):
            found = self.runtime(program, (both, kinds), to_plain(left), to_plain(right))
        images = [each.astype(kind, copy=False) for each, kind in zip(found, kinds, strict=False)]
        return dict(zip(("left", "right"), images, strict=False))

    def memory(self, height: int, width: int) -> int:
        above, beside = padding(height, width, self.multiple)
        return predict_memory(self.spec, height + above, width + beside)

    def release_memory(self) -> None:
        self.runtime.forget()

    @contextmanager
    def _report_blocks(self, progress: Progress) -> Iterator[None]:
        """Report progress after each of the network's blocks, if it has a list of them."""
        blocks = [] if self.compute.device.type == "cuda" else [*getattr(self.network, "blocks", ())]
        count = itertools.count(1)
        with ExitStack() as stack:
            for block in blocks:
                hook = block.register_forward_hook(lambda *_: progress(next(count) / len(blocks)))
                stack.callback(hook.remove)
            yield


def crop_outputs(
    extras: Names, above: int, width: int, disparity: Tensor, mass: Tensor, confidence: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the disparity map and the `extras`, without `above` rows and columns beyond `width`."""
    # disparity (1, 1, H, W), px; attention mass and confidence (1, H/4, W/4).
    inside = (..., slice(above, None), slice(width))
    outputs = [disparity[0, 0][inside]]
    for name in extras:
        if name == "confidence":
            assert confidence is not None
            outputs.append(upsample(confidence[None], 4)[0, 0][inside])
        else:
            valid = valid_mask(mass)[0]
            outputs.append(valid.repeat_interleave(4, 0).repeat_interleave(4, 1)[inside])
    return tuple(outputs)


def predict_memory(spec: ModelSpec, height: int, width: int) -> int:
    """Predict the bytes that a network needs for images of a size, see `scripts/measure_memory.py`."""
    per_pixel, per_pixel_and_column = spec.row.memory
    return int(height * width * (per_pixel + per_pixel_and_column * width))


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
        self._lock = threading.RLock()
        """Held while a GPU works, because threads share the memory of graphs and the precision."""

    def __call__(self, program: Program, key: Hashable, *inputs: Array, verify: bool = False) -> list[Array]:
        """Run a program, identified by `key`, without gradients on arrays."""
        # `verify`: compare the first replay of a graph with the eager run, for foreign programs.
        tensors = [torch.from_numpy(np.require(each, requirements=("C", "W"))) for each in inputs]
        with torch.inference_mode():
            if self.compute.device.type != "cuda":
                with use_faster_products():
                    outputs = program(*[each.to(self.compute.device) for each in tensors])
                return [np.array(each.cpu().numpy(), order="C") for each in outputs]
            with self._lock, self.compute.full_precision(), torch.cuda.device(self.compute.device):
                sizes = tuple((each.shape, each.dtype) for each in tensors)
                return self._run_cuda(program, (key, sizes), tensors, verify)

    def forget(self) -> None:
        with self._lock:
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
        pinned = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in outputs]
        for here, there in zip(pinned, outputs, strict=True):
            here.copy_(there, non_blocking=True)
        torch.cuda.current_stream().synchronize()  # all at once
        return [each.numpy() for each in pinned]

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
                    raise RuntimeError("the replayed graph returns other results")
        except (RuntimeError, ValueError) as error:
            torch.cuda.synchronize()
            if is_memory_error(error):
                raise
            LOG.debug("runs without a CUDA graph: %s", str(error).partition("\n")[0])
            self._unrecordable.add(key)
            return None
        return _Graph(graph, inputs, outputs)
