"""Super-resolution of two arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pamcli.errors import ModelError
from pamcli.inference.device import Compute
from pamcli.inference.memory import enough_memory
from pamcli.inference.pictures import from_tensor, to_tensors
from pamcli.networks.passrnet import PASSRnet, SuperResolution
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network
from pamcli.registry.spec import ModelSpec

SMALLEST_SIDE = 8


class StereoUpscaler:
    """A PASSRnet on a device, for any number of pairs.

    >>> upscaler = StereoUpscaler.load("passrnet-x4")
    >>> left_x4, right_x4 = upscaler(left, right)  # (H, W, 3) RGB each, to (4 H, 4 W, 3)
    """

    def __init__(self, network: PASSRnet, spec: ModelSpec, compute: Compute) -> None:
        self.network = network.to(compute.device)
        self.spec = spec
        self.compute = compute

    @property
    def scale(self) -> int:
        """Enlargement of both sides."""
        return self.network.scale

    @classmethod
    def load(
        cls, weights: str | Path = "passrnet-x4", *, device: str = "auto", precision: str = "auto"
    ) -> StereoUpscaler:
        """Load a network once; arguments and errors as of `StereoMatcher.load`."""
        compute = Compute.choose(device, precision)
        network, spec = load_network(locate(weights).path)
        if not isinstance(network, PASSRnet):
            raise ModelError(f"{weights} is a {spec.architecture}, which enlarges nothing", "use passrnet-x4")
        return cls(network, spec, compute)

    def __call__(
        self, left: NDArray[np.generic], right: NDArray[np.generic]
    ) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Enlarge both views of a rectified pair of (H, W, 3) RGB arrays, any size from 8 px up.

        uint8, uint16, or floating-point in [0, 1]; each result has the type of its view. Raises InputError
        for arrays that are no such pair, DeviceError when memory does not suffice.
        """
        result = self._enlarge(left, right, both=True)
        assert result.right is not None
        return from_tensor(result.left, left.dtype), from_tensor(result.right, right.dtype)

    def left_only(self, left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.generic]:
        """Enlarge the left view alone, in about two thirds of the time. As `__call__` otherwise."""
        return from_tensor(self._enlarge(left, right, both=False).left, left.dtype)

    def _enlarge(
        self, left: NDArray[np.generic], right: NDArray[np.generic], *, both: bool
    ) -> SuperResolution:
        views = to_tensors(left, right, SMALLEST_SIDE)
        height, width = views[0].shape[-2:]
        needed = _bytes_needed(width, height, self.scale, 2 if both else 1)
        memory = enough_memory(needed, width, height, self.compute.device)
        with torch.inference_mode(), memory, self.compute.autocast():
            left_view, right_view = (view.to(self.compute.device) for view in views)
            result: SuperResolution = self.network(left_view, right_view, both=both)
        return result


def _bytes_needed(width: int, height: int, scale: int, views: int) -> int:
    """Peak above the loaded network, measured from 0.03 to 0.5 megapixels.

    Either both costs beside both maps, each height x width^2 float32, or both maps beside the activations
    of the last layers, which grow with the pixels of the result.
    """
    attention_map = 4 * height * width**2
    pixels = height * width
    return max(4 * attention_map + 3000 * pixels, 2 * attention_map + 625 * scale**2 * views * pixels)
