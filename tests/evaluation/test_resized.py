from __future__ import annotations

import math

import numpy as np

from pamcli.calibration.geometry import Calibration
from pamcli.data.listing import resize_sample
from pamcli.data.source import Sample
from pamcli.imaging.resize import imresize_to

VIEWS = np.random.default_rng(0).integers(0, 256, (2, 4, 8, 3), dtype=np.uint8)


def test_ground_truth_and_calibration_follow_the_width() -> None:
    truth = np.full((4, 8), 10, np.float32)
    truth[:, 4:] = 50
    truth[1, :4] = math.nan
    maps = {"right_disparity": truth + 2, "visible": truth > 20, "foreground": truth < 20}
    calibration = Calibration(focal_length=100, baseline=0.1, offset=8)
    sample = Sample("a", *VIEWS, disparity=truth, calibration=calibration, **maps)
    small = resize_sample(sample, 4, 4, imresize_to)
    assert np.array_equal(small.left, imresize_to(VIEWS[0], 4, 4))
    assert np.array_equal(small.right, imresize_to(VIEWS[1], 4, 4))
    assert small.disparity.dtype == np.float32
    assert small.disparity[0].tolist() == [5, 5, 25, 25]  # half the width; no value between 5 and 25
    assert np.isnan(small.disparity[1, :2]).all()
    assert small.right_disparity[0].tolist() == [6, 6, 26, 26]
    assert small.visible.dtype == bool
    assert small.visible[0].tolist() == [False, False, True, True]
    assert small.foreground[0].tolist() == [True, True, False, False]
    # The same depth as before: f b / (d + doffs).
    assert small.calibration == Calibration(focal_length=50, baseline=0.1, offset=4)
    # The height alone changes no disparity, and unknown parts stay unknown.
    flat = resize_sample(Sample("a", *VIEWS, disparity=np.full((4, 8), 10, np.float32)), 8, 2, imresize_to)
    assert flat.left.shape == (2, 8, 3)
    assert flat.disparity.tolist() == [[10] * 8] * 2
    assert (flat.visible, flat.calibration) == (None, None)
    assert resize_sample(Sample("a", *VIEWS), 4, 2, imresize_to).disparity is None
