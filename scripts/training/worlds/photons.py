"""The noise of light that arrives as few photons."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray


def count_photons(rng: Generator, view: NDArray[np.float32], photons: float) -> NDArray[np.float32]:
    """Replace linear colours (H, W, 3) by numbers of photons, of which the mean light has `photons`."""
    unit = photons / max(float(view.mean()), 1e-9)
    return np.asarray(rng.poisson(view.clip(0) * unit) / unit, dtype=np.float32)
