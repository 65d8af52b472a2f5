"""PSNR and SSIM of stereo super-resolution in the literature's protocols, side by side.

Protocols, both on pictures of 8 bits, one value per pair, averaged over the pairs:

- "left": the left view without its 64 left-most columns, which the right view hardly sees
  (PASSRnet, iPASSR);
- "both": the mean of the values of both views at full width (iPASSR, NAFSSR, NTIRE).

Metrics: "psnr", "ssim-ipassr", "ssim-skimage"; see `psnr` and `ssim`. The SSIM of the parallax-attention
papers' own tables is defined nowhere (its figures are above both for Middlebury) and is not computed.

Low-resolution pictures are made as in the literature: cropped at the right and the bottom to a multiple of
the scale, reduced by MATLAB's bicubic, rounded to 8 bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.evaluation.figures import Figures, ImageFigures, Meter, Summary, mean_figures
from pamcli.imaging.resize import imresize

LEFT_MARGIN = 64
"""Columns, of high resolution, that the "left" protocol leaves out, at every scale."""

PROTOCOLS = {"left": "left view without its 64 left-most columns", "both": "mean of both views at full width"}
METRICS = {
    "psnr": "PSNR in dB over all pixels and channels",
    "ssim-ipassr": "SSIM, 7x7 uniform window, population covariance, channels side by side",
    "ssim-skimage": "SSIM, 7x7 uniform window, sample covariance (49/48), mean of the channels",
}

_WINDOW = 7
_K1, _K2 = 0.01, 0.03


@dataclass(frozen=True)
class SuperresPair:
    """What a method gets, and what it is compared with: (H, W, 3) uint8 each, truth `scale` times larger."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    low_left: NDArray[np.uint8]
    low_right: NDArray[np.uint8]
    scale: int
    name: str

    def bicubic(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Enlarge both views by MATLAB's bicubic, rounded to 8 bits."""
        return _resized(self.low_left, self.scale), _resized(self.low_right, self.scale)


@dataclass(frozen=True)
class Enlarged:
    """What a method makes of a low-resolution pair: (H, W, 3) RGB uint8 each, of the size of the truth."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    seconds: float | None = None
    """What the network took."""
    alone: NDArray[np.uint8] | None = None
    """The left view once more, where it was given twice; None = not tried."""


@dataclass(frozen=True, kw_only=True)
class SuperresSummary(Summary):
    """What a method reaches on a set, by protocol ("left", "both") and metric ("psnr" ...)."""

    second_view: float | None = None
    """dB that the left view's PSNR loses, in the mean, where it is given twice; None = not measured."""


class SuperresMeter(Meter[SuperresPair, Enlarged, SuperresSummary]):
    """Takes one pair after the other; memory does not grow with the set but for the figures of each."""

    def __init__(self) -> None:
        self._images: list[ImageFigures] = []
        self._gains: list[float] = []

    def add(self, case: SuperresPair, answer: Enlarged) -> ImageFigures:
        """Measure both views. Raises InputError as `superres_figures` does."""
        figures = superres_figures(case, answer.left, answer.right)
        if answer.alone is not None:
            alone = psnr(case.left[:, LEFT_MARGIN:], answer.alone[:, LEFT_MARGIN:])
            gain = figures["left"]["psnr"] - alone
            self._gains += [gain] if np.isfinite(gain) else []  # a perfect picture has no finite PSNR
        self._images.append(ImageFigures(case.name, figures, answer.seconds))
        return self._images[-1]

    def summary(self) -> SuperresSummary:
        """Summarise all pairs so far. Raises InputError: no pair."""
        worth = sum(self._gains) / len(self._gains) if self._gains else None
        images = tuple(self._images)
        return SuperresSummary(images=images, image_means=mean_figures(images), second_view=worth)


def superres_pair(
    left: NDArray[np.generic], right: NDArray[np.generic], scale: int, *, name: str
) -> SuperresPair:
    """Cut the truth to a multiple of the scale (right and bottom) and make its low-resolution pair.

    left, right: (H, W, 3) RGB uint8 of one size. name: the pair, for messages.
    Raises InputError: not 8 bits, sizes that differ, too small for the protocols.
    """
    for view in (left, right):
        if view.dtype != np.uint8 or view.ndim != 3:
            raise InputError(
                f"{name} has {8 * view.itemsize} bits a channel; PSNR and SSIM are defined here on 8 bits",
                "convert the pictures to 8 bits first",
            )
    if left.shape != right.shape:
        raise InputError(f"{name}: the views differ in size, {_size(left)} and {_size(right)} pixels")
    height, width = (side - side % scale for side in left.shape[:2])
    if width < LEFT_MARGIN + _WINDOW or height < _WINDOW:
        raise InputError(
            f"{name} is too small to measure: {_size(left)} pixels",
            f"the smallest is {LEFT_MARGIN + _WINDOW} x {_WINDOW}",
        )
    views = [np.ascontiguousarray(view[:height, :width]).astype(np.uint8) for view in (left, right)]
    low = [_resized(view, 1 / scale) for view in views]
    return SuperresPair(views[0], views[1], low[0], low[1], scale, name)


def superres_figures(pair: SuperresPair, left: NDArray[np.generic], right: NDArray[np.generic]) -> Figures:
    """Measure one pair by all metrics in all protocols.

    left, right: results, (H, W, 3) RGB uint8 of the size of `pair.left`. PSNR is inf where both are equal.
    Raises InputError: another size or type.
    """
    for result in (left, right):
        if result.shape != pair.left.shape or result.dtype != np.uint8:
            raise InputError(
                f"{pair.name}: a result is {_size(result)} pixels of {result.dtype}, "
                f"the truth {_size(pair.left)} of uint8",
                f"the truth is cut at the right and the bottom to a multiple of {pair.scale}",
            )
    whole = [_measured(pair.left, left), _measured(pair.right, right)]
    return {
        "left": _measured(pair.left[:, LEFT_MARGIN:], left[:, LEFT_MARGIN:]),
        "both": {metric: (whole[0][metric] + whole[1][metric]) / 2 for metric in METRICS},
    }


def psnr(truth: NDArray[np.generic], result: NDArray[np.generic]) -> float:
    """Compute the peak signal-to-noise ratio: 10 log10(255^2 / mean squared error over all values) dB.

    truth, result: uint8 of one shape. Returns inf where they are equal.
    """
    error = float(np.mean((truth.astype(np.float64) - result.astype(np.float64)) ** 2))
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def ssim(truth: NDArray[np.generic], result: NDArray[np.generic]) -> tuple[float, float]:
    """Compute the structural similarity as iPASSR's tables and scikit-image have it: means of 7x7 windows.

    truth, result: (H, W, C) uint8 of one shape, at least 7 x 7 pixels. Returns (iPASSR's, scikit-image's).
    Both take equal weights, windows wholly inside the picture, K = (0.01, 0.03), and L = 255 on 0 ... 255,
    which is L = 1 on [0, 1].

    iPASSR: the published evaluation hands (H, W, 3) to filters for two dimensions, which see (H, 3 W): the
    channels side by side, so 6 windows of each row span each seam. Its tables follow that (bicubic x4 on
    KITTI 2012 .7310 / .7372; the mean of the channels gives .7303 / .7366). Covariance divided by 49.
    scikit-image: `structural_similarity(channel_axis=2, data_range=255)`: each channel on its own, then
    their mean; covariance divided by 48; the 3 pixels at the borders cropped, hence windows as above.
    """
    width, channels = truth.shape[1:]
    x, y = (np.hstack([view[..., c].astype(np.int64) for c in range(channels)]) for view in (truth, result))
    count = _WINDOW**2
    mean_x, mean_y = _sums(x) / count, _sums(y) / count
    var_x = _sums(x * x) / count - mean_x**2
    var_y = _sums(y * y) / count - mean_y**2
    cov = _sums(x * y) / count - mean_x * mean_y
    c1, c2 = (_K1 * 255) ** 2, (_K2 * 255) ** 2
    brightness = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)

    def similarity(ratio: float) -> NDArray[np.float64]:
        return brightness * (2 * ratio * cov + c2) / (ratio * (var_x + var_y) + c2)

    apart = similarity(count / (count - 1))
    inside = [apart[:, start : start + width - _WINDOW + 1] for start in range(0, channels * width, width)]
    return float(np.mean(similarity(1.0))), float(np.mean([np.mean(channel) for channel in inside]))


def _measured(truth: NDArray[np.generic], result: NDArray[np.generic]) -> dict[str, float]:
    ipassr, skimage = ssim(truth, result)
    return {"psnr": psnr(truth, result), "ssim-ipassr": ipassr, "ssim-skimage": skimage}


def _sums(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum over all 7x7 windows, exact: (H, W) -> (H - 6, W - 6)."""
    rows = np.cumsum(np.pad(values, ((1, 0), (0, 0))), axis=0)
    columns = np.cumsum(np.pad(rows[_WINDOW:] - rows[:-_WINDOW], ((0, 0), (1, 0))), axis=1)
    return np.asarray(columns[:, _WINDOW:] - columns[:, :-_WINDOW])


def _resized(picture: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    return imresize(picture, scale).astype(np.uint8, copy=False)


def _size(picture: NDArray[np.generic]) -> str:
    return f"{picture.shape[1]} x {picture.shape[0]}"
