"""PSNR, SSIM and HaarPSI of super-resolution in the literature's protocols, side by side.

Protocols, both on pictures of 8 bits, one value per pair, averaged over the pairs:

- "left": the left view without its 64 left-most columns, which the right view hardly sees
  (PASSRnet, iPASSR);
- "both": the mean of the values of both views at full width (iPASSR, NAFSSR, NTIRE).

Metrics: "psnr", "ssim-ipassr", "ssim-skimage", "haarpsi"; see `psnr`, `ssim` and `haarpsi`. The SSIM of the
parallax-attention papers' own tables is defined nowhere (its figures are above both for Middlebury) and is
not computed.

Low-resolution pictures are made as in the literature: cropped at the right and the bottom to a multiple of
the scale, reduced by MATLAB's bicubic, rounded to 8 bits.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.evaluation.figures import Figures, ImageFigures, Meter, Summary, mean_figures, size_of
from pamcli.imaging.resize import imresize

LEFT_MARGIN = 64
"""Columns, of high resolution, that the "left" protocol leaves out, at every scale."""

PROTOCOLS = {"left": "left view without its 64 left-most columns", "both": "mean of both views at full width"}
METRICS = {
    "psnr": "PSNR in dB over all pixels and channels",
    "ssim-ipassr": "SSIM, 7x7 uniform window, population covariance, channels side by side",
    "haarpsi": "HaarPSI, 0 to 1: how alike edges and colours look",
    "ssim-skimage": "SSIM, 7x7 uniform window, sample covariance (49/48), mean of the channels",
}

_Number = TypeVar("_Number", np.int64, np.float64)

_WINDOW = 7
_K1, _K2 = 0.01, 0.03

_YIQ = (0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)
"""Brightness and two differences of colours, of red, green and blue."""
_HAAR_SIZES = 2, 4, 8
"""Sides of the wavelets, px; the last tells how much a place counts."""
_HAAR_C, _HAAR_ALPHA = 30.0, 4.2
"""C and alpha of the paper, fitted to what people say of pictures."""


@dataclass(frozen=True)
class SuperresPair:
    """What a method gets, and what it is compared with: (H, W, 3) uint8 each, truth `scale` times larger."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    low_left: NDArray[np.uint8]
    low_right: NDArray[np.uint8]
    scale: int
    name: str

    def bicubic(self) -> "Enlarged":
        """Enlarge both views by MATLAB's bicubic, rounded to 8 bits."""
        return Enlarged(_resized(self.low_left, self.scale), _resized(self.low_right, self.scale))


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
        sizes = " and ".join(size_of(view.shape[:2]) for view in (left, right))
        raise InputError(f"{name}: the views differ in size, {sizes} pixels")
    height, width = (side - side % scale for side in left.shape[:2])
    if width < LEFT_MARGIN + _WINDOW or height < _WINDOW:
        raise InputError(
            f"{name} is too small to measure: {size_of(left.shape[:2])} pixels",
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
                f"{pair.name}: a result is {size_of(result.shape[:2])} pixels of {result.dtype}, "
                f"the truth {size_of(pair.left.shape[:2])} of uint8",
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


def haarpsi(truth: NDArray[np.generic], result: NDArray[np.generic]) -> float:
    """Compute the Haar wavelet-based perceptual similarity index (Reisenhofer et al. 2018) of colours.

    truth, result: (H, W, 3) RGB uint8 of one shape. Returns 1 where they are equal, down to 0. Compared are
    edges of 2 and 4 px, and colours; a place counts as much as the stronger edge of 8 px there. As published:
    on every second of the means of 2x2 px, as Y, I and Q of 0 to 255, with zeros beyond the borders.
    """
    one, other = (_halved_yiq(view) for view in (truth, result))  # (3, h, w)
    similar, weights = [], []
    for turn in (np.asarray, np.transpose):  # edges from side to side, and from top to bottom
        edges = ([turn(_haar(turn(y), size)) for size in _HAAR_SIZES] for y in (one[0], other[0]))
        *fine, coarse = zip(*edges, strict=True)
        similar.append(np.mean([_alike(*pair) for pair in fine], axis=0))
        weights.append(np.maximum(*coarse))
    blurred = ([np.abs(_means(colour)) for colour in planes[1:]] for planes in (one, other))
    similar.append(np.mean([_alike(*pair) for pair in zip(*blurred, strict=True)], axis=0))
    weights.append(np.mean(weights, axis=0))
    weight = np.sum(weights)
    if weight == 0:  # black pictures
        return 1.0
    mean = np.sum(weights / (1 + np.exp(-_HAAR_ALPHA * np.array(similar)))) / weight
    return float((np.log(mean / (1 - mean)) / _HAAR_ALPHA) ** 2)


def _halved_yiq(view: NDArray[np.generic]) -> NDArray[np.float64]:
    red, green, blue = (_means(view[..., channel].astype(np.float64))[::2, ::2] for channel in range(3))
    return np.stack([r * red + g * green + b * blue for r, g, b in _YIQ])


def _means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each value, those to the right of and below it: (H, W), zeros beyond."""
    return _sums(np.pad(values, (0, 1)), 2, 2) / 4


def _haar(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Differences between the lower and the upper half of the square around each value: (H, W), from 0 on."""
    half = size // 2
    halves = _sums(np.pad(values, (half - 1, half)), half, size)
    return np.abs(halves[half:] - halves[:-half]) / size


def _alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return (2 * one * other + _HAAR_C) / (one**2 + other**2 + _HAAR_C)


def _measured(truth: NDArray[np.generic], result: NDArray[np.generic]) -> dict[str, float]:
    ipassr, skimage = ssim(truth, result)
    return {
        "psnr": psnr(truth, result),
        "ssim-ipassr": ipassr,
        "haarpsi": haarpsi(truth, result),
        "ssim-skimage": skimage,
    }


def _sums(values: NDArray[_Number], height: int = _WINDOW, width: int = _WINDOW) -> NDArray[_Number]:
    """Sum over all windows inside, exact of integers: (H, W) -> (H - height + 1, W - width + 1)."""
    rows = np.cumsum(np.pad(values, ((1, 0), (0, 0))), axis=0)
    columns = np.cumsum(np.pad(rows[height:] - rows[:-height], ((0, 0), (1, 0))), axis=1)
    return np.asarray(columns[:, width:] - columns[:, :-width])


def _resized(picture: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    return imresize(picture, scale).astype(np.uint8, copy=False)
