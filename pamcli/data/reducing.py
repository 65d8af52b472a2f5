"""Pictures of a sample made smaller, while its truth stays as fine as it is."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.errors import InputError
from pamcli.imaging.resize import area_mean, nearest


def reduced(sample: Sample, times: int) -> Sample:
    """Make both pictures a whole number of times smaller on each side, by the means of areas.

    Truth and masks of the new size are those of the pixels in the middle of each area, disparities in pixels
    of the new size; the whole truth is `fine`. Raises InputError: a side that is no multiple.
    """
    height, width = (side // times for side in sample.left.shape[:2])
    if (height * times, width * times) != sample.left.shape[:2]:
        raise InputError(f"{sample.name} is no multiple of {times} pixels on each side")

    def picked(values: NDArray[Any] | None) -> Any:
        return None if values is None else nearest(values, width, height)

    def truth(values: NDArray[np.float32] | None) -> Any:
        return None if values is None else picked(values) / np.float32(times)

    return replace(
        sample,
        left=area_mean(sample.left, width, height),
        right=area_mean(sample.right, width, height),
        disparity=truth(sample.disparity),
        right_disparity=truth(sample.right_disparity),
        visible=picked(sample.visible),
        foreground=picked(sample.foreground),
        masks=sample.masks and {name: picked(mask) for name, mask in sample.masks.items()},
        fine=None if sample.disparity is None else sample.disparity / np.float32(times),
        fine_visible=sample.visible,
        calibration=sample.calibration and sample.calibration.of_width(lambda side: side / times),
    )
