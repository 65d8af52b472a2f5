"""Stereo matching of two arrays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pamcli.errors import ModelError, UsageError
from pamcli.inference.consistency import consistent, cycle_confidence
from pamcli.inference.device import Compute
from pamcli.inference.memory import enough_memory
from pamcli.inference.pictures import crop_padding, pad_to_multiple, to_tensors
from pamcli.networks.blocks import upsample
from pamcli.networks.pasmnet import IMAGE_MEAN, IMAGE_STD, SIZE_MULTIPLE, Matching, PASMnet
from pamcli.registry.catalog import locate
from pamcli.registry.load import load_network
from pamcli.registry.spec import ModelSpec

SMALLEST_SIDE = 16
EXTRAS = frozenset({"right_disparity", "visible", "confidence"})
"""What can be computed beside the disparity of the left view."""


@dataclass(frozen=True)
class StereoResult:
    """What was found out about a pair, at the size of its pictures. What was not asked for is None."""

    disparity: NDArray[np.float32]
    """(H, W), pixels, >= 0: left pixel (y, x) matches right pixel (y, x - disparity). Dense."""
    right_disparity: NDArray[np.float32] | None = None
    """(H, W), pixels, >= 0: right pixel (y, x) matches left pixel (y, x + disparity). Dense."""
    visible: NDArray[np.bool_] | None = None
    """(H, W): the left pixel is seen in the right view too."""
    confidence: NDArray[np.float32] | None = None
    """(H, W) in [0, 1]: how far the attention of both views supports the disparity."""

    def disparity_where(
        self, *, visible: bool = False, min_confidence: float | None = None
    ) -> NDArray[np.float32]:
        """The disparity with NaN (unknown) where a pixel is not visible, or not confident enough.

        Raises UsageError when what it needs was not computed.
        """
        known = np.ones(self.disparity.shape, bool)
        if visible:
            if self.visible is None:
                raise UsageError("visibility was not computed for this result")
            known &= self.visible
        if min_confidence is not None:
            if self.confidence is None:
                raise UsageError("confidence was not computed for this result")
            known &= self.confidence >= min_confidence
        return np.where(known, self.disparity, np.float32(np.nan))


class StereoMatcher:
    """A PASMnet on a device, for any number of pairs.

    >>> matcher = StereoMatcher.load("pasmnet")
    >>> result = matcher(left, right)  # two (H, W, 3) RGB arrays of a rectified pair
    >>> result.disparity.shape == left.shape[:2]
    """

    def __init__(
        self, network: PASMnet, spec: ModelSpec, compute: Compute, max_disparity: int | None = None
    ) -> None:
        """`max_disparity` in pixels limits the search; it is rounded up to a multiple of 16."""
        if max_disparity is not None and max_disparity < 1:
            raise UsageError(f"a maximum disparity of {max_disparity} px leaves nothing to search")
        self.network = network.to(compute.device)
        self.spec = spec
        self.compute = compute
        self.max_disparity = None if max_disparity is None else -(-max_disparity // 16) * 16
        self._mean = torch.tensor(IMAGE_MEAN, device=compute.device).view(3, 1, 1)
        self._std = torch.tensor(IMAGE_STD, device=compute.device).view(3, 1, 1)

    @classmethod
    def load(
        cls,
        weights: str | Path = "pasmnet",
        *,
        device: str = "auto",
        precision: str = "auto",
        max_disparity: int | Literal["stored"] | None = "stored",
    ) -> StereoMatcher:
        """Load a network once.

        `weights`: a registered name, a path, or hf:owner/repo/file.safetensors[@revision]; a `Path` is always
        a path. `device`: auto, cpu, cuda, cuda:N, mps. `precision`: auto, fp32, bf16, fp16.
        `max_disparity`: a number of pixels, None for no limit, or "stored" for the prior that the weights
        were trained with.
        Raises ModelError, DeviceError, UsageError.
        """
        compute = Compute.choose(device, precision)
        network, spec = load_network(locate(weights).path)
        if not isinstance(network, PASMnet):
            raise ModelError(f"{weights} is a {spec.architecture}, which finds no disparity", "use pasmnet")
        return cls(network, spec, compute, spec.max_disparity if max_disparity == "stored" else max_disparity)

    def __call__(
        self, left: NDArray[np.generic], right: NDArray[np.generic], *, extras: Collection[str] = EXTRAS
    ) -> StereoResult:
        """Match a rectified pair of (H, W, 3) RGB arrays: uint8, uint16, or floating-point in [0, 1].

        Any size from 16 px up. `extras` names what to compute beside the disparity: "right_disparity" and
        "visible" cost a second pass on the mirrored pair, "confidence" next to nothing.
        Raises InputError for arrays that are no such pair, DeviceError when memory does not suffice.
        """
        if unknown := set(extras) - EXTRAS:
            raise UsageError(
                f"no result is called {sorted(unknown)[0]!r}", f"known: {', '.join(sorted(EXTRAS))}"
            )
        left_view, right_view = to_tensors(left, right, SMALLEST_SIDE)
        height, width = left_view.shape[-2:]
        memory = enough_memory(_bytes_needed(width, height), width, height, self.compute.device)
        with torch.inference_mode(), memory:
            matching = self._match(left_view, right_view)
            maps = matching.maps[-1]
            disparity = crop_padding(matching.disparity, height, width)
            right_disparity = visible = confidence = None
            if "right_disparity" in extras or "visible" in extras:
                # Mirrored, the right view is the left view of a pair whose disparities are positive again.
                mirrored = self._match(right_view.flip(-1), left_view.flip(-1))
                of_right = crop_padding(mirrored.disparity, height, width).flip(-1)
                right_disparity = of_right if "right_disparity" in extras else None
                if "visible" in extras:
                    attended = F.interpolate(maps.valid_left[:, None].float(), scale_factor=4)
                    visible = consistent(disparity, of_right)
                    visible &= crop_padding(attended, height, width) > 0.5
            if "confidence" in extras:
                quarter = cycle_confidence(matching.disparity, maps)[:, None]
                confidence = crop_padding(upsample(quarter, 4), height, width)
        return StereoResult(
            disparity=_array(disparity),
            right_disparity=None if right_disparity is None else _array(right_disparity),
            visible=None if visible is None else _array(visible),
            confidence=None if confidence is None else _array(confidence),
        )

    def _match(self, left: Tensor, right: Tensor) -> Matching:
        """Both views (1, 3, H, W) in [0, 1]; the maps and the disparity returned are of the padded pair."""
        views = []
        for view in (left, right):
            normalised = (view.to(self.compute.device) - self._mean) / self._std
            views.append(pad_to_multiple(normalised, SIZE_MULTIPLE))
        with self.compute.autocast():
            matching: Matching = self.network(views[0], views[1], self.max_disparity)
        return matching


def _bytes_needed(width: int, height: int) -> int:
    """Peak above the loaded network: measured from 0.5 to 2 megapixels, and a little above all of it.

    Five float32 maps of stage 3 (both costs, or both maps of the first pass beside a second one), and
    activations in proportion to the pixels.
    """
    return 5 * 4 * (height // 4) * (width // 4) ** 2 + 1000 * height * width


def _array(values: Tensor) -> NDArray[Any]:
    """(1, 1, H, W) to a contiguous (H, W) array."""
    return np.ascontiguousarray(values[0, 0].cpu().numpy())
