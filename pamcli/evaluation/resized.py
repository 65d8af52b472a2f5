"""Samples at another size: pictures and truth together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.imaging.resize import imresize_to, nearest


def resize_sample(sample: Sample, width: int, height: int) -> Sample:
    """The sample with pictures of `width` x `height` pixels.

    Pictures by MATLAB's antialiased bicubic; disparities by the nearest pixel, never by a mean across an
    edge, and times the ratio of the widths; masks by the nearest pixel; the calibration (focal length and
    offset) by the ratio of the widths. Raises ValueError: a side below 1.
    """
    ratio = width / sample.left.shape[1]

    def truth(disparity: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if disparity is None else nearest(disparity, width, height).astype(np.float32) * ratio

    def mask(values: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return None if values is None else nearest(values, width, height).astype(np.bool_)

    calibration = sample.calibration
    if calibration is not None:
        calibration = replace(
            calibration,
            focal_length=calibration.focal_length * ratio,
            offset=calibration.offset * ratio,
            ndisp=None if calibration.ndisp is None else calibration.ndisp * ratio,
            principal=None,  # of another aspect, perhaps
            size=None,
            focal_length_y=None,
        )
    return replace(
        sample,
        left=imresize_to(sample.left, width, height),
        right=imresize_to(sample.right, width, height),
        disparity=truth(sample.disparity),
        right_disparity=truth(sample.right_disparity),
        visible=mask(sample.visible),
        foreground=mask(sample.foreground),
        calibration=calibration,
    )
