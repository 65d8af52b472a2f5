"""Measure OpenCV's methods: StereoSGBM, optionally with the WLS filter, and denoising before bicubic."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.errors import UsageError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.loop import Method, Watch
from pamcli.evaluation.methods import measure_peak
from pamcli.evaluation.pixels import interpolate_background
from pamcli.evaluation.results import Fact
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.files.paths import pluralize
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import stretch_levels, to_grey, to_uint8

SETTINGS = {
    "minDisparity": 0,
    "blockSize": 3,
    "P1": 216,
    "P2": 864,
    "disp12MaxDiff": 1,
    "preFilterCap": 63,
    "uniquenessRatio": 10,
    "speckleWindowSize": 100,
    "speckleRange": 2,
}
"""StereoSGBM settings with the fewest errors on KITTI among those tried, in mode SGBM_3WAY."""

DISPARITIES = 192  # number of disparities to search, px, unless a calibration or the user sets it

LEAST_STRENGTH = 3.0  # minimum denoising strength, grey levels: best for JPEG artefacts alone

WLS = {"Lambda": 8000.0, "SigmaColor": 1.5}  # WLS filter settings: smoothness and colour tolerance


@dataclass(frozen=True)
class SemiGlobalMethod(Method[Sample, Estimate]):
    """StereoSGBM on grey images, padded on the left so that the left border is matched too."""

    name: str = "opencv"
    wls: bool = False  # smooth the result with the weighted-least-squares filter of opencv-contrib
    max_disparity: int | None = None
    """Disparities to search, px, rounded up to a multiple of 16; None = the calibration's ndisp, else 192."""

    def __post_init__(self) -> None:
        if self.wls and not hasattr(cv2, "ximgproc"):
            raise UsageError(
                "this OpenCV was built without the WLS filter",
                "install opencv-contrib-python-headless instead of opencv-python-headless, or use opencv",
            )

    def facts(self) -> list[Fact]:
        limit = self.max_disparity or f"the calibration's ndisp, else {DISPARITIES}"
        chosen = {"mode": "SGBM_3WAY", "numDisparities": limit, **self._settings}
        settings = ", ".join(f"{key} {value}" for key, value in chosen.items())
        if self.wls:
            settings += "; WLS filter: " + ", ".join(f"{key} {value:g}" for key, value in WLS.items())
        filled = "" if self.wls else "; holes are filled with the smaller neighbouring disparity of the row"
        version = f"OpenCV {cv2.__version__} StereoSGBM"
        device = f"cpu, {pluralize(cv2.getNumThreads(), 'thread')}"
        return [("method", version), ("settings", settings + filled), ("device", device)]

    @property
    def _settings(self) -> dict[str, int]:
        """The filter rejects bad matches itself, so its input keeps all of them."""
        without = {"disp12MaxDiff": 1_000_000, "uniquenessRatio": 0, "speckleWindowSize": 0}
        return {**SETTINGS, **(without if self.wls else {})}

    def run(self, case: Sample, watch: Watch | None = None) -> Estimate:
        start = time.perf_counter()
        disparity, memory = measure_peak(lambda: self._find_disparity(case))
        return Estimate(disparity, seconds=time.perf_counter() - start, memory=memory)

    def _find_disparity(self, sample: Sample) -> NDArray[np.float32]:
        bound = sample.calibration.ndisp if sample.calibration else None
        searched = 16 * math.ceil((self.max_disparity or bound or DISPARITIES) / 16)
        matcher = cv2.StereoSGBM.create(
            numDisparities=searched, mode=cv2.STEREO_SGBM_MODE_SGBM_3WAY, **self._settings
        )
        views = [to_uint8(view) for view in stretch_levels(sample.left, sample.right, eight_bits=True)[:2]]
        colour, left, right = (
            cv2.copyMakeBorder(view, 0, 0, searched, 0, cv2.BORDER_REPLICATE)
            for view in (views[0], *map(to_grey, views))
        )
        if self.wls:
            filters: Any = vars(cv2)["ximgproc"]  # only in opencv-contrib
            smooth = filters.createDisparityWLSFilter(matcher)  # changes the matcher's settings
            smooth.setLambda(WLS["Lambda"])
            smooth.setSigmaColor(WLS["SigmaColor"])
            backward = filters.createRightMatcher(matcher).compute(right, left)
            found = smooth.filter(matcher.compute(left, right), colour, disparity_map_right=backward)
        else:
            found = matcher.compute(left, right)
        disparity = found[:, searched:].astype(np.float32) / 16
        return interpolate_background(
            np.where((disparity < 0) | (disparity > searched), np.float32(np.nan), disparity)
        )


@dataclass(frozen=True)
class DenoisedBicubic(Method[SuperresPair, Upscaled]):
    """Non-local means denoising by OpenCV, which gets the true noise level, then bicubic upscaling."""

    degradation: Degradation

    name = "denoised, bicubic"

    def facts(self) -> list[Fact]:
        strength = f"h {self._strength:g}"
        return [("denoised", f"OpenCV {cv2.__version__}, fastNlMeansDenoisingColored, {strength}")]

    def run(self, case: SuperresPair, watch: Watch | None = None) -> Upscaled:
        low_left, low_right = (self._denoise(view) for view in (case.low_left, case.low_right))
        return replace(case, low_left=low_left, low_right=low_right).bicubic()

    @property
    def _strength(self) -> float:
        return max(LEAST_STRENGTH, self.degradation.noise)

    def _denoise(self, view: NDArray[np.uint8]) -> NDArray[np.uint8]:
        ordered = np.ascontiguousarray(view[..., ::-1])
        found = cv2.fastNlMeansDenoisingColored(ordered, None, self._strength, self._strength)
        return np.ascontiguousarray(found[..., ::-1]).astype(np.uint8, copy=False)
