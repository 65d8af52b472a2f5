"""The result of matching a pair."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import UsageError
from pamcli.imaging.camera_faults import MatchingFault

CONFIDENT, DOUBTFUL = 0.9, 0.25
"""Images are probably not a stereo pair if a share below DOUBTFUL of the pixels is CONFIDENT: for 37 real
pairs it was at least 34 %; for images of different scenes below DOUBTFUL in 36 of 37 cases, at most 33 %
(scripts/measure_confidence.py)."""

_Change = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class StereoResult:
    """The result for a pair, at the size of its images; outputs that were not requested are None."""

    disparity: NDArray[np.float32]
    """(H, W), px, dense, at least `min_disparity`: left pixel (y, x) matches right (y, x - disparity)."""
    right_disparity: NDArray[np.float32] | None = None
    """(H, W), px, dense, in the same range: right pixel (y, x) matches left (y, x + disparity)."""
    visible: NDArray[np.bool_] | None = None  # (H, W), True where the left pixel is visible in both images
    confidence: NDArray[np.float32] | None = None
    """(H, W), in [0, 1]; the guide's page confidence explains the meaning."""
    matched_size: tuple[int, int] | None = None
    """Rows and columns of the matching resolution, if it differs from the image size."""
    fault: MatchingFault | None = None  # the fault of the images that limits their matching resolution

    @property
    def confident_share(self) -> float:
        """Share of pixels with a confidence of at least `CONFIDENT`; 1 without confidence."""
        return 1.0 if self.confidence is None else float((self.confidence >= CONFIDENT).mean())

    @property
    def doubtful(self) -> bool:
        """True if so few pixels are confident that the images are probably not a stereo pair."""
        return self.confident_share < DOUBTFUL

    def map_arrays(self, left: _Change, right: _Change, *, disparity: _Change) -> "StereoResult":
        """Apply a function to the arrays of each image, and a further one to disparities."""
        return replace(
            self,
            disparity=disparity(left(self.disparity)),
            right_disparity=None if self.right_disparity is None else disparity(right(self.right_disparity)),
            visible=None if self.visible is None else left(self.visible),
            confidence=None if self.confidence is None else left(self.confidence),
        )

    def require(self, name: str) -> NDArray[Any]:
        """Return an output by its name. Raises UsageError if it was not computed."""
        values: NDArray[Any] | None = getattr(self, name)
        if values is None:
            raise UsageError(f"`{name}` was not computed", f'match with extras=("{name}",)')
        return values

    def disparity_where(
        self, *, visible: bool = False, min_confidence: float | None = None
    ) -> NDArray[np.float32]:
        """Return the disparity with NaN where a pixel is occluded or below the confidence threshold.

        Raises UsageError: a required output was not computed.
        """
        known = np.ones(self.disparity.shape, bool)
        if visible:
            known &= self.require("visible")
        if min_confidence is not None:
            known &= self.require("confidence") >= min_confidence
        return np.where(known, self.disparity, np.float32(np.nan))
