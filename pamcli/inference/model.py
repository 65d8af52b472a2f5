"""Define what every stereo model offers, and run pam's own PyTorch networks as one.

Matchers and upscalers use any network through `StereoModel`: pam's own networks (`TorchModel`), exported
files (`onnx_file.OnnxModel`) and foreign networks (`foreign.ForeignModel`).
"""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamcli.inference import Progress
from pamcli.inference.device import Compute
from pamcli.inference.images import MatchSize, Pixels, padding, to_network, to_pixels, to_plain
from pamcli.inference.memory import catch_memory_errors
from pamcli.inference.runtime import Runtime
from pamcli.networks.blocks import upsample
from pamcli.networks.parallax import valid_mask
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description
from pamcli.registry.spec import ModelSpec


@dataclass(frozen=True)
class MatchRequest:
    """Results to compute for a pair besides the left disparity."""

    max_disparity: int | None = None
    """Search below this disparity, px, a multiple of 16; None = no limit."""
    confidence: bool = False
    attended: bool = False


@dataclass(frozen=True)
class Match:
    """The result of a model for a pair: arrays of the size of its images (H, W)."""

    disparity: NDArray[np.float32]
    """Left pixel (y, x) matches right (y, x - disparity), px."""
    confidence: NDArray[np.float32] | None = None
    """In [0, 1]; None if not requested, or if the model has none."""
    attended: NDArray[np.bool_] | None = None
    """True where the left pixel receives attention from the right image; None if not requested."""
    right_disparity: NDArray[np.float32] | None = None
    """Disparity of the right image, if the model computes both at once."""


class StereoModel(Protocol):
    """A network for stereo matching or super-resolution, ready to run on a device."""

    spec: ModelSpec | Description
    compute: Compute
    size: tuple[int, int] | None = None
    """Height and width that images are padded to; None = any size."""
    multiple: int = 1
    """Sides of images are padded to a multiple of this."""
    halo: int = 0
    """Rows above and below on which the result of a row depends noticeably."""
    has_confidence: bool = True
    has_fixed_search: bool = False
    """True if no maximum disparity can be set."""
    runtime_note: str | None = None
    """Where a network that is not pam's own runs, for people."""

    def match(
        self, left: Pixels, right: Pixels, request: MatchRequest, progress: Progress | None = None
    ) -> Match:
        """Match a pair (H, W, 3) of one size whose disparities are not negative."""
        ...

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        """Upscale the left image (H, W, 3), or both, to (scale H, scale W, 3) of the same type."""
        ...

    def memory(self, height: int, width: int) -> int:
        """Predict the peak memory for images of a size, bytes; 0 if unknown."""
        return 0

    def release_memory(self) -> None:
        """Free memory that is only kept for speed."""
        return None

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return a participle phrase on the preprocessing of images of a size, if the network needs any."""
        return None

    def reduced_size(self, height: int, width: int) -> tuple[int, int] | None:
        """Return the size at which `auto` matches; None = that of `images.choose_matching_size`."""
        return None

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the possible matching resolution; raise UsageError for an unsupported search."""
        return size


class TorchModel(StereoModel):
    """One of pam's own networks in PyTorch."""

    def __init__(self, network: Any, spec: ModelSpec, compute: Compute) -> None:
        """Prepare a network (see its `prepared`) for a device and a precision."""
        self.spec, self.compute = spec, compute
        self.multiple = spec.row.multiple
        with catch_memory_errors(f"the network does not fit into the memory of {compute.device}"):
            if compute.device.type == "mps":  # networks are prepared in float64, which mps lacks
                network = copy.deepcopy(network).cpu()
            self.network = network.prepared(compute.dtype).to(compute.device)
        self.halo = network.HALO
        self.runtime = Runtime(compute)
        mean, std = (IMAGE_MEAN, IMAGE_STD) if spec.row.normalised else ((0.0,) * 3, (1.0,) * 3)
        self._mean, self._std = (
            torch.tensor(each, device=compute.device).view(3, 1, 1) for each in (mean, std)
        )

    def match(
        self, left: Pixels, right: Pixels, request: MatchRequest, progress: Progress | None = None
    ) -> Match:
        width = left.shape[1]
        above, beside = padding(left.shape[0], width, self.multiple)

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            left, right = to_network(left, above, beside), to_network(right, above, beside)
            images = (left - self._mean) / self._std, (right - self._mean) / self._std
            found = self.network(*images, request.max_disparity, confidence=request.confidence)
            confidence = found.confidence if request.confidence else None
            return crop_outputs(request, above, width, found.disparity, found.attention_mass, confidence)

        with self._report_blocks(progress):
            return to_match(request, self.runtime(program, request, to_plain(left), to_plain(right)))

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        kinds = left.dtype, right.dtype

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            found = self.network(to_network(left), to_network(right), both=both)
            images = (found.left, found.right) if both else (found.left,)
            return tuple(to_pixels(each[0], kind) for each, kind in zip(images, kinds, strict=False))

        with self._report_blocks(progress):
            found = self.runtime(program, (both, kinds), to_plain(left), to_plain(right))
        return tuple(each.astype(kind, copy=False) for each, kind in zip(found, kinds, strict=False))

    def memory(self, height: int, width: int) -> int:
        above, beside = padding(height, width, self.multiple)
        return predict_memory(self.spec, height + above, width + beside)

    def release_memory(self) -> None:
        self.runtime.forget()

    @contextmanager
    def _report_blocks(self, progress: Progress | None) -> Iterator[None]:
        """Report progress after each of the network's blocks, if it has a list of them."""
        blocks = list(getattr(self.network, "blocks", ()))
        if progress is None or not blocks or self.compute.device.type == "cuda":
            yield
            return
        count = itertools.count(1)
        handles = [
            block.register_forward_hook(lambda *_: progress(next(count) / len(blocks))) for block in blocks
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def crop_outputs(
    request: MatchRequest,
    above: int,
    width: int,
    disparity: Tensor,
    attention_mass: Tensor,
    confidence: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return the requested outputs of a matching network without the padding.

    Args:
        request: The outputs.
        above: Padded rows at the top.
        width: Columns of the image; the rest is padding.
        disparity: (1, 1, H, W), px.
        attention_mass: Attention that each left pixel receives (1, H/4, W/4).
        confidence: (1, H/4, W/4) in [0, 1].
    """
    inside = (..., slice(above, None), slice(width))
    outputs = [disparity[0, 0][inside]]
    if request.confidence:
        assert confidence is not None
        outputs.append(upsample(confidence[None], 4)[0, 0][inside])
    if request.attended:
        valid = valid_mask(attention_mass)[0]
        outputs.append(valid.repeat_interleave(4, 0).repeat_interleave(4, 1)[inside])
    return tuple(outputs)


def to_match(request: MatchRequest, arrays: list[NDArray[Any]]) -> Match:
    """Name the outputs of `crop_outputs`."""
    return Match(
        arrays[0], arrays[1] if request.confidence else None, arrays[-1] if request.attended else None
    )


def predict_memory(spec: ModelSpec, height: int, width: int) -> int:
    """Predict the bytes that a network needs for images of a size, see `scripts/measure_memory.py`."""
    per_pixel, per_pixel_and_column = spec.row.memory
    return int(height * width * (per_pixel + per_pixel_and_column * width))
