"""Compute PSNR, SSIM and HaarPSI of super-resolution in the literature's protocols, on 8-bit images.

The left columns, which "left" skips, are mostly invisible in the right image (PASSRnet, iPASSR); "both" is
that of iPASSR and NTIRE. Low-resolution images are cropped at the right and bottom to a multiple of
the scale, downscaled by MATLAB's bicubic and rounded to 8 bits. The SSIM in the parallax-attention papers'
own tables is undocumented and not computed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import format_size
from pamcli.errors import InputError
from pamcli.evaluation.loop import ImageFigures, Meter, MethodResult
from pamcli.evaluation.pixels import sum_windows
from pamcli.evaluation.results import Figures
from pamcli.imaging.resize import imresize

LEFT_MARGIN = 64  # number of high-resolution columns that the "left" protocol skips, at every scale

PROTOCOLS = {
    "left": "left image without its 64 leftmost columns",
    "both": "mean of both images at full width",
}
METRICS = {
    "psnr": "PSNR in dB over all pixels and channels",
    "ssim-ipassr": "SSIM, 7x7 uniform window, population covariance, channels side by side",
    "haarpsi": "HaarPSI, 0 to 1: perceived similarity of edges and colours",
    "ssim-skimage": "SSIM, 7x7 uniform window, sample covariance (49/48), mean of the channels",
}

_WINDOW = 7
_K1, _K2 = 0.01, 0.03

_YIQ = (0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)
"""Luma and two chroma weights of red, green and blue."""
_HAAR_SIZES = 2, 4, 8  # sides of the wavelets, px; the last one weights the positions
_HAAR_C, _HAAR_ALPHA = 30.0, 4.2  # C and alpha of the paper, fitted to human judgements


@dataclass(frozen=True)
class SuperresPair:
    """The inputs and ground truth of one pair: (H, W, 3) uint8; ground truth is `scale` times larger."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    low_left: NDArray[np.uint8]
    low_right: NDArray[np.uint8]
    scale: int
    name: str

    def bicubic(self) -> "Upscaled":
        """Upscale both images by MATLAB's bicubic, rounded to 8 bits."""
        return Upscaled(_resize(self.low_left, self.scale), _resize(self.low_right, self.scale))


@dataclass(frozen=True)
class Upscaled(MethodResult):
    """The upscaled images of a pair: (H, W, 3) RGB uint8, of the size of the ground truth."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    alone: NDArray[np.uint8] | None = None
    """The left image upscaled from the left image alone; None = not measured."""


class SuperresMeter(Meter[SuperresPair, Upscaled]):
    """The metrics of a method on a data set, by protocol ("left", "both") and metric ("psnr", ...)."""

    notes = ()

    def __init__(self) -> None:
        self.images = []
        self._gains: list[float] = []

    @property
    def second_view(self) -> float | None:
        """Mean PSNR gain of the left image from the right image, dB; None = not measured."""
        return sum(self._gains) / len(self._gains) if self._gains else None

    def add(self, case: SuperresPair, answer: Upscaled) -> ImageFigures:
        """Measure both images; raise InputError as `measure_upscaled` does."""
        figures = measure_upscaled(case, answer.left, answer.right)
        if answer.alone is not None:
            alone = psnr(case.left[:, LEFT_MARGIN:], answer.alone[:, LEFT_MARGIN:])
            gain = figures["left"]["psnr"] - alone
            self._gains += [gain] if np.isfinite(gain) else []  # identical images have infinite PSNR
        self.images.append(ImageFigures(case.name, figures, answer.seconds, answer.memory))
        return self.images[-1]


def make_superres_pair(
    left: NDArray[np.generic], right: NDArray[np.generic], scale: int, *, name: str
) -> SuperresPair:
    """Crop two (H, W, 3) uint8 to a multiple of the scale and downscale them. Raises InputError."""
    for view in (left, right):
        if view.dtype != np.uint8 or view.ndim != 3:
            raise InputError(
                f"{name} has {8 * view.itemsize} bits per channel, but PSNR and SSIM are defined on 8 bits",
                "convert the images to 8 bits first",
            )
    if left.shape != right.shape:
        raise InputError(
            f"{name}: the left image is {format_size(left.shape)}, "
            f"but the right image is {format_size(right.shape)}",
            "both images of a rectified pair must have the same size",
        )
    height, width = (side - side % scale for side in left.shape[:2])
    if width < LEFT_MARGIN + _WINDOW or height < _WINDOW:
        raise InputError(
            f"{name} is too small to measure: {format_size(left.shape)}",
            f"images must be at least {LEFT_MARGIN + _WINDOW}x{_WINDOW}",
        )
    views = [np.ascontiguousarray(view[:height, :width]).astype(np.uint8) for view in (left, right)]
    low = [_resize(view, 1 / scale) for view in views]
    return SuperresPair(views[0], views[1], low[0], low[1], scale, name)


def measure_upscaled(pair: SuperresPair, left: NDArray[np.generic], right: NDArray[np.generic]) -> Figures:
    """Compute all metrics of results (H, W, 3) uint8 by protocol; PSNR of identical images is inf."""
    for result in (left, right):
        if result.shape != pair.left.shape or result.dtype != np.uint8:
            raise InputError(
                f"{pair.name}: a result is {format_size(result.shape)} {result.dtype}, "
                f"but the ground truth is {format_size(pair.left.shape)} uint8",
                f"the ground truth is cropped at the right and bottom to a multiple of {pair.scale}",
            )
    whole = [_measure_cropped(pair.left, left), _measure_cropped(pair.right, right)]
    return {
        "left": _measure_cropped(pair.left[:, LEFT_MARGIN:], left[:, LEFT_MARGIN:]),
        "both": {metric: (whole[0][metric] + whole[1][metric]) / 2 for metric in METRICS},
    }


def psnr(truth: NDArray[np.generic], result: NDArray[np.generic]) -> float:
    """Compute the peak signal-to-noise ratio, dB, over all values of two uint8; inf if identical."""
    error = float(np.mean((truth.astype(np.float64) - result.astype(np.float64)) ** 2))
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def ssim(truth: NDArray[np.generic], result: NDArray[np.generic]) -> tuple[float, float]:
    """Compute the structural similarity of iPASSR's tables and of scikit-image: means over 7x7 windows.

    iPASSR: the published evaluation passes (H, W, 3) to two-dimensional filters, which see (H, 3 W): channels
    side by side, so 6 windows of each row span each seam. Its tables follow that (bicubic x4 on KITTI 2012
    .7310 / .7372; the mean of the channels gives .7303 / .7366). Covariance divided by 49. scikit-image:
    `structural_similarity(channel_axis=2, data_range=255)`: the mean of the channels; divided by 48.
    """
    width, channels = truth.shape[1:]
    x, y = (np.hstack([view[..., c].astype(np.int64) for c in range(channels)]) for view in (truth, result))
    count = _WINDOW**2
    means = (sum_windows(each, _WINDOW, _WINDOW) / count for each in (x, y, x * x, y * y, x * y))
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = means
    var_x, var_y, cov = mean_xx - mean_x**2, mean_yy - mean_y**2, mean_xy - mean_x * mean_y
    c1, c2 = (_K1 * 255) ** 2, (_K2 * 255) ** 2
    brightness = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)

    def similarity(ratio: float) -> NDArray[np.float64]:
        return brightness * (2 * ratio * cov + c2) / (ratio * (var_x + var_y) + c2)

    apart = similarity(count / (count - 1))
    inside = [apart[:, start : start + width - _WINDOW + 1] for start in range(0, channels * width, width)]
    return float(np.mean(similarity(1.0))), float(np.mean([np.mean(channel) for channel in inside]))


def haarpsi(truth: NDArray[np.generic], result: NDArray[np.generic]) -> float:
    """Compute the Haar wavelet-based perceptual similarity index (Reisenhofer et al. 2018), 0 to 1.

    Edges of 2 and 4 px and colours are compared; the stronger edge of 8 px weights each position. As
    published: on every second 2x2 px mean, in Y, I and Q of 0 to 255, with zeros beyond the borders.
    """
    one, other = (_halve_to_yiq(view) for view in (truth, result))  # (3, h, w) each
    similar, weights = [], []
    for turn in (np.asarray, np.transpose):  # horizontal edges, then vertical ones
        edges = ([turn(_compute_haar(turn(y), size)) for size in _HAAR_SIZES] for y in (one[0], other[0]))
        *fine, coarse = zip(*edges, strict=True)
        similar.append(np.mean([_compute_similarity(*pair) for pair in fine], axis=0))
        weights.append(np.maximum(*coarse))
    blurred = ([np.abs(_average_2x2(colour)) for colour in planes[1:]] for planes in (one, other))
    similar.append(np.mean([_compute_similarity(*pair) for pair in zip(*blurred, strict=True)], axis=0))
    weights.append(np.mean(weights, axis=0))
    weight = np.sum(weights)
    if weight == 0:  # black images
        return 1.0
    mean = np.sum(weights / (1 + np.exp(-_HAAR_ALPHA * np.array(similar)))) / weight
    return float((np.log(mean / (1 - mean)) / _HAAR_ALPHA) ** 2)


def _halve_to_yiq(view: NDArray[np.generic]) -> NDArray[np.float64]:
    red, green, blue = (_average_2x2(view[..., channel].astype(np.float64))[::2, ::2] for channel in range(3))
    return np.stack([r * red + g * green + b * blue for r, g, b in _YIQ])


def _average_2x2(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each value and its right and lower neighbours: (H, W), zeros beyond."""
    return sum_windows(np.pad(values, (0, 1)), 2, 2) / 4


def _compute_haar(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the absolute vertical Haar response of the square around each value: (H, W)."""
    half = size // 2
    halves = sum_windows(np.pad(values, (half - 1, half)), half, size)
    return np.abs(halves[half:] - halves[:-half]) / size


def _compute_similarity(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return (2 * one * other + _HAAR_C) / (one**2 + other**2 + _HAAR_C)


def _measure_cropped(truth: NDArray[np.generic], result: NDArray[np.generic]) -> dict[str, float]:
    ipassr, skimage = ssim(truth, result)
    return {
        "psnr": psnr(truth, result),
        "ssim-ipassr": ipassr,
        "haarpsi": haarpsi(truth, result),
        "ssim-skimage": skimage,
    }


def _resize(image: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    return imresize(image, scale).astype(np.uint8, copy=False)
