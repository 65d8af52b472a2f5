"""By how much a pair is shifted: what its smallest disparity is, and what it should be.

Photographers shift the views onto a common plane of focus, and so the disparity of what is infinitely far is
lost. Where the picture shows a sky, it is taken to be that of the farthest thing seen; all other shots count
as close ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pamcli.data.stereograms.geometry import box_mean
from pamcli.data.stereograms.matching import Grey
from pamcli.data.stereograms.result import Rule

CLOSE = 40
"""Smallest disparity of a close shot, pixels (the paper's threshold)."""
SMALLEST, LARGEST = 1.0, 99.0
"""Percentiles that count as the smallest and the largest disparity: beyond them are mostly wrong matches."""
_TEXTURE = 2.0
"""Standard deviation over 5 x 5 pixels, grey levels, below which a disparity is guessed."""
_SMOOTH = 0.7
"""Standard deviation of disparities over 5 x 5 pixels, above which one of them is wrong or hidden."""
_FEWEST = 500
"""Pixels to take a percentile of."""
_BRIGHT = 150
"""Grey level above which a pixel without texture may be sky."""
_WARM = 5
"""By how many levels red may exceed blue there."""
_SKY = (0.05, 0.5)
"""Share of the upper third that is sky where there is one; walls fill more."""
_FAR = 0.5
"""Below this share of the range the median disparity lies where much is far."""


def trusted_disparities(
    disparity: NDArray[np.float32], seen: NDArray[np.bool_], grey: Grey
) -> NDArray[np.float32]:
    """(N,): those of textured places on smooth surfaces that both views see."""
    texture = box_mean(grey * grey) - box_mean(grey) ** 2
    rough = box_mean(disparity * disparity) - box_mean(disparity) ** 2
    return disparity[seen & (texture > _TEXTURE**2) & (rough < _SMOOTH**2)]


def disparity_range(trusted: NDArray[np.float32]) -> tuple[float, float] | None:
    """The smallest and largest without outliers; None where too few are left."""
    if len(trusted) < _FEWEST:
        return None
    low, high = np.percentile(trusted, (SMALLEST, LARGEST))
    return float(low), float(high)


def sky_share(view: NDArray[np.uint8]) -> float:
    """Share of the upper third of a view (H, W, 3) that is bright, without texture, and not reddish."""
    part = view[: max(8, len(view) // 3)].astype(np.float32)
    grey = part.mean(axis=2)
    plain = box_mean(grey * grey) - box_mean(grey) ** 2 < (_TEXTURE * 1.25) ** 2
    return float((plain & (grey > _BRIGHT) & (part[..., 2] >= part[..., 0] - _WARM)).mean())


def choose_rule(view: NDArray[np.uint8], trusted: NDArray[np.float32], low: float, high: float) -> Rule:
    """Whether the farthest thing seen is taken to be infinitely far.

    It is where a sky is seen and more of the picture is far than near: 5 to 50 % of the upper third bright,
    without texture and not reddish, and the median disparity in the lower half of the range. Without the
    without texture and not reddish, and the median disparity in the lower half of the range. Disparities
    alone cannot tell, since infinity's is unknown. Measured: wrong for 8 % of 148 stereograms made from KITTI
    2015 and Middlebury, and for 15 % of 93 made from other street scenes and rooms; both ways, mostly streets
    without sky, and rooms with white walls.
    """
    median = (float(np.median(trusted)) - low) / max(high - low, 1e-3)
    return "infinity" if _SKY[0] < sky_share(view) < _SKY[1] and median < _FAR else "close"


def shift_for(rule: Rule, smallest: float) -> int:
    """What to add to all disparities, in whole pixels: a fraction would cost another resampling."""
    return round((CLOSE if rule == "close" else 0) - smallest)
