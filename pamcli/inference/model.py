"""What a stereo model is, whoever made it, and how the networks of pam are one.

A matcher and an upscaler see a network by `StereoModel` alone: networks of pam (`TorchModel`), files that
they were exported to (`onnx_file.OnnxModel`) and networks of others (`foreign.ForeignModel`).
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
from pamcli.inference.images import Pixels, padding, plain_array, to_network, to_pixels
from pamcli.inference.match_size import MatchSize
from pamcli.inference.memory import memory_errors
from pamcli.inference.runtime import Runtime
from pamcli.networks.blocks import upsample
from pamcli.networks.parallax import valid_mask
from pamcli.registry.architectures import IMAGE_MEAN, IMAGE_STD
from pamcli.registry.description import Description
from pamcli.registry.spec import ModelSpec


@dataclass(frozen=True)
class Match:
    """What a model finds of a pair: arrays of the size of its images (H, W)."""

    disparity: NDArray[np.float32]
    """Left pixel (y, x) matches right (y, x - disparity), pixels."""
    confidence: NDArray[np.float32] | None = None
    """In [0, 1]; None: it was not asked for, or the model has none."""
    attended: NDArray[np.bool_] | None = None
    """The left pixel receives attention from the right image; None: it was not asked for."""
    right_disparity: NDArray[np.float32] | None = None
    """Disparity of the right image, where the model computes both at once."""


class StereoModel(Protocol):
    """A network for stereo matching or for super-resolution, ready to run on a device."""

    @property
    def spec(self) -> ModelSpec | Description:
        """What the network is."""
        ...

    @property
    def compute(self) -> Compute:
        """Device and precision."""
        ...

    @property
    def size(self) -> tuple[int, int] | None:
        """Rows and columns that images are padded to; None: any size is taken."""
        ...

    @property
    def multiple(self) -> int:
        """Sides of images are padded to a multiple of this."""
        ...

    @property
    def halo(self) -> int:
        """Rows above and below on which the result of a row depends noticeably."""
        ...

    @property
    def has_confidence(self) -> bool:
        """It says by itself how sure it is of a disparity."""
        ...

    @property
    def has_fixed_search(self) -> bool:
        """A maximum disparity cannot be set."""
        ...

    def match(
        self,
        left: Pixels,
        right: Pixels,
        *,
        max_disparity: int | None = None,
        confidence: bool = False,
        attended: bool = False,
        progress: Progress | None = None,
    ) -> Match:
        """Match a pair (H, W, 3) of the same size, whose disparities are not negative."""
        ...

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        """Upscale the left image (H, W, 3), or both, to (scale H, scale W, 3) of the same type."""
        ...

    def memory(self, height: int, width: int) -> int:
        """Predict the bytes that images of a size take at the peak; 0: nothing is known."""
        ...

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Say what is done to images of a size that the network itself does not do; None: nothing."""
        ...

    def fitting(self, height: int, width: int) -> tuple[int, int] | None:
        """Return rows and columns to which `auto` reduces images; None: it is `match_size`'s to decide."""
        ...

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the match size that is possible. Raises UsageError for a search that is not."""
        ...

    @property
    def says(self) -> str | None:
        """What computes, where that is not pam's own network: it may be elsewhere than expected."""
        ...


class TorchModel:
    """A network of pam's own in PyTorch."""

    size: tuple[int, int] | None = None
    has_confidence = True
    has_fixed_search = False
    says: str | None = None

    def __init__(self, network: Any, spec: ModelSpec, compute: Compute) -> None:
        """Prepare a network (see its `prepared`) for a device and a precision."""
        self.spec, self.compute = spec, compute
        self.multiple = spec.row.multiple
        with memory_errors(f"the network does not fit into the memory of {compute.device}"):
            if compute.device.type == "mps":  # which has no float64, in which networks are prepared
                network = copy.deepcopy(network).cpu()
            self.network = network.prepared(compute.dtype).to(compute.device)
        self.halo: int = network.HALO
        self.runtime = Runtime(compute)
        mean, std = (IMAGE_MEAN, IMAGE_STD) if spec.row.normalised else ((0.0,) * 3, (1.0,) * 3)
        self._mean, self._std = (
            torch.tensor(each, device=compute.device).view(3, 1, 1) for each in (mean, std)
        )

    def match(
        self,
        left: Pixels,
        right: Pixels,
        *,
        max_disparity: int | None = None,
        confidence: bool = False,
        attended: bool = False,
        progress: Progress | None = None,
    ) -> Match:
        """Match a pair, see `StereoModel`."""
        height, width = left.shape[:2]
        above, beside = padding(height, width, self.multiple)
        inside = (..., slice(above, None), slice(width))

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            left, right = to_network(left, above, beside), to_network(right, above, beside)
            views = (left - self._mean) / self._std, (right - self._mean) / self._std
            found = self.network(*views, max_disparity, confidence=confidence)
            outputs = [found.disparity[0, 0][inside]]
            if confidence:
                outputs.append(upsample(found.confidence[None], 4)[0, 0][inside])
            if attended:
                valid = valid_mask(found.received)[0]
                outputs.append(valid.repeat_interleave(4, 0).repeat_interleave(4, 1)[inside])
            return tuple(outputs)

        with self._telling(progress):
            key = max_disparity, confidence, attended
            found = self.runtime(program, key, plain_array(left), plain_array(right))
        return Match(found[0], found[1] if confidence else None, found[-1] if attended else None)

    def upscale(
        self, left: Pixels, right: Pixels, *, both: bool = True, progress: Progress | None = None
    ) -> tuple[Pixels, ...]:
        """Upscale a pair, see `StereoModel`."""
        kinds = left.dtype, right.dtype

        def program(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
            found = self.network(to_network(left), to_network(right), both=both)
            images = (found.left, found.right) if both else (found.left,)
            return tuple(to_pixels(each[0], kind) for each, kind in zip(images, kinds, strict=False))

        with self._telling(progress):
            found = self.runtime(program, (both, kinds), plain_array(left), plain_array(right))
        return tuple(each.astype(kind, copy=False) for each, kind in zip(found, kinds, strict=False))

    def memory(self, height: int, width: int) -> int:
        """Predict the bytes that images of a size take at the peak, see `StereoModel`."""
        above, beside = padding(height, width, self.multiple)
        return predict_memory(self.spec, height + above, width + beside)

    def adaptation_note(self, height: int, width: int) -> str | None:
        """Return None: images of any size are taken as they are."""
        return None

    def fitting(self, height: int, width: int) -> tuple[int, int] | None:
        """Return None: any size is taken."""
        return None

    def check_search(self, max_disparity: int | None, min_disparity: int, size: MatchSize) -> MatchSize:
        """Return the match size: everything can be searched."""
        return size

    @contextmanager
    def _telling(self, progress: Progress | None) -> Iterator[None]:
        """Tell of progress after each of the network's blocks, where it has a list of them."""
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


def predict_memory(spec: ModelSpec, height: int, width: int) -> int:
    """Predict the bytes that a network takes for images of a size, see `scripts/measure_memory.py`."""
    per_pixel, per_pixel_and_column = spec.row.memory
    return int(height * width * (per_pixel + per_pixel_and_column * width))
