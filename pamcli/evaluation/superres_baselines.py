"""What a network for super-resolution is measured beside: bicubic, and OpenCV's denoising before it."""

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Source
from pamcli.errors import UsageError
from pamcli.evaluation.results import Fact
from pamcli.evaluation.superres_metrics import Enlarged, SuperresPair
from pamcli.imaging.degrading import Degradation

LEAST_STRENGTH = 3.0  # levels: what does best with JPEG alone


def bicubic(pair: SuperresPair) -> Enlarged:
    """Enlarge both views by MATLAB's bicubic."""
    return Enlarged(*pair.bicubic())


@dataclass(frozen=True)
class DenoisedBicubic:
    """Both views denoised by OpenCV's non-local means, then enlarged by bicubic.

    It is told how much noise there is, which no program knows of a camera's pictures.
    """

    degradation: Degradation

    row = "denoised, bicubic"

    def facts(self) -> list[Fact]:
        """State what was measured, name and value."""
        import cv2

        strength = f"h {self._strength:g}"
        return [("denoised", f"OpenCV {cv2.__version__}, fastNlMeansDenoisingColored, {strength}")]

    def notes(self) -> list[str]:
        """State what a reader of the figures must know: nothing."""
        return []

    def disparities(self, source: Source, *, extras: bool = True) -> NoReturn:
        """Raise UsageError: it matches nothing."""
        raise UsageError("denoised bicubic enlarges pictures", "it is no method for disparity")

    def enlarged(self, source: Source) -> "DenoisedBicubic":
        """Make ready for a data set."""
        return self

    def __call__(self, pair: SuperresPair) -> Enlarged:
        """Enlarge one pair."""
        low_left, low_right = (self._denoised(view) for view in (pair.low_left, pair.low_right))
        return bicubic(replace(pair, low_left=low_left, low_right=low_right))

    @property
    def _strength(self) -> float:
        return max(LEAST_STRENGTH, self.degradation.noise)

    def _denoised(self, view: NDArray[np.uint8]) -> NDArray[np.uint8]:
        import cv2

        ordered = np.ascontiguousarray(view[..., ::-1])
        found = cv2.fastNlMeansDenoisingColored(ordered, None, self._strength, self._strength)
        return np.ascontiguousarray(found[..., ::-1]).astype(np.uint8, copy=False)
