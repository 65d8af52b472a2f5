"""A part of the sample pair, for the tests of inference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"


@dataclass(frozen=True)
class Cut:
    """Both views (H, W, 3) uint8, and the truth (H, W), NaN unknown."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    truth: NDArray[np.float32]

    def __getitem__(self, area: tuple[slice, slice]) -> Cut:
        return Cut(self.left[area], self.right[area], self.truth[area])


def whole_sample() -> Cut:
    pictures = [read_image(SAMPLE / f"{side}.png").pixels for side in ("left", "right")]
    return Cut(pictures[0], pictures[1], read_disparity(SAMPLE / "disparity.pfm"))
