"""Augment pairs: crop, scale, flip, and change of light, colours and noise.

Images are (H, W, 3) RGB uint8; ground truth is (H, W) float32, px, NaN where unknown, and stays correct.
"""

import math
from dataclasses import dataclass, fields, replace
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pamcli.errors import UsageError
from pamcli.imaging.degradation import apply_blur, draw_degradation
from pamcli.validation import NonNegative, Positive, Share, validate_fields

LARGEST_ERASED = 0.3  # maximum fraction of each side that an erased rectangle covers
Views = tuple[NDArray[np.uint8], ...]


@validate_fields
@dataclass(frozen=True)
class Augmentation:
    """Strengths and probabilities, 0 = off; factors as the excess over 1: 0.25 = 1/1.25 to 1.25."""

    smallest: Positive = 1.0  # lower limit of the random image scale, log-uniform up to `largest`
    largest: Positive = 1.0
    stretch: NonNegative = 0.0  # factor between the scales of width and height
    mirror: Share = 0.0  # probability of exchanging the mirrored images, if right ground truth exists
    upside_down: Share = 0.0  # probability of flipping upside down
    permute_colours: Share = 0.0  # probability of another order of the channels, the same in both images
    brightness: NonNegative = 0.0  # factor of brightness, the same in both images, like the next three
    contrast: NonNegative = 0.0  # factor of the distance from mid-grey
    gamma: NonNegative = 0.0  # factor of the exponent
    colour: NonNegative = 0.0  # factor of the brightness of each channel separately
    view_brightness: NonNegative = 0.0  # like `brightness`, for each image separately, like the next three
    view_contrast: NonNegative = 0.0
    view_gamma: NonNegative = 0.0
    view_colour: NonNegative = 0.0
    noise: NonNegative = 0.0  # maximum standard deviation of noise per image, for values in [0, 1]
    blur: NonNegative = 0.0  # maximum standard deviation of a Gaussian blur, px, for each image separately
    camera: Share = 0.0  # super-resolution: probability of degrading both low-resolution images
    synthesize_right: Share = 0.0  # probability of `view_synthesis`, if only left ground truth exists
    occluders: Share = 0.0  # probability of inserting `occluders`, if only left ground truth exists
    erase: Share = 0.0  # probability of erasing a rectangle of the right image; not for super-resolution

    camera_difference: Share = 0.0  # disparity: probability of another exposure and white balance per camera
    highlights: Share = 0.0  # probability of specular highlights, with a disparity of their own
    flare: Share = 0.0  # probability of lens flare: a veil and ghosts, at other places in the two images
    vignetting: Share = 0.0  # probability of darker corners, by up to a half, different in the two images
    low_contrast: Share = 0.0  # probability of compressing the levels to 0.3 to 0.8 of their range, as fog
    sensor_noise: Share = 0.0  # probability of shot noise, read noise, and coarser colour noise
    jpeg: Share = 0.0  # probability of JPEG compression of both images, quality 40 to 95
    cheap_camera: Share = 0.0  # probability of a cheap camera, whose images matching upscales by up to 2
    row_shift: Annotated[float, Field(ge=0, le=0.7)] = 0.0  # maximum vertical shift of the right image, px

    @property
    def keeps_pixels(self) -> bool:
        """True if only moves, flips and colour permutations are active, so that no pixel gets a new value."""
        moving = "mirror", "upside_down", "permute_colours", "camera"
        others = "synthesize_right", "occluders", "erase", *FAULTS
        return replace(self, **dict.fromkeys(moving + others, 0.0)) == Augmentation()

    def __post_init__(self) -> None:
        if self.smallest > self.largest:
            problem = f"smallest ({self.smallest}) must not be above largest ({self.largest})"
            raise UsageError(f"augmentation: {problem}")


FAULTS = tuple(each.name for each in fields(Augmentation)[-9:])  # settings of `camera_faults`
get_faults = attrgetter(*FAULTS)


class Example(NamedTuple):
    """An augmented pair as network input; masks are (H, W) bool."""

    left: NDArray[np.uint8]
    right: NDArray[np.uint8]
    disparity: NDArray[np.float32]  # left disparity; NaN = unknown
    right_disparity: NDArray[np.float32]
    visible: NDArray[np.bool_]  # left pixels of known disparity, visible in both images
    right_visible: NDArray[np.bool_]
    left_only: bool = False  # true if the data set has left ground truth only, as pseudo-labels are
    left_high: NDArray[np.uint8] | None = None  # super-resolution: (sH, sW, 3), the images before downscaling
    right_high: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Crop:
    """A crop window of a scaled image; sizes and positions are px of the scaled image."""

    top: int
    left: int
    height: int
    width: int
    scale_y: float = 1.0
    scale_x: float = 1.0

    def widen(self, margin: int, height: int, width: int, grid: int) -> "Crop":
        """Add a margin on each side, in cells of `grid`, as far as an image of height x width has them."""
        bottom, right = self.top + self.height, self.left + self.width
        below = max(_scale_side(height, self.scale_y) // grid * grid - bottom, 0)
        beyond = max(_scale_side(width, self.scale_x) // grid * grid - right, 0)
        top, left = max(self.top - margin, 0), max(self.left - margin, 0)
        rows, columns = bottom + min(margin, below) - top, right + min(margin, beyond) - left
        return replace(self, top=top, left=left, height=rows, width=columns)

    def extend(self, columns: int, width: int) -> "Crop":
        """Add columns on the right, as far as the unscaled image of this width has them."""
        spare = _scale_side(width, self.scale_x) - self.left - self.width
        return replace(self, width=self.width + max(0, min(columns, spare)))

    def find_pixels(self, first: int = 0, step: int = 1) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the original rows and columns nearest to the window's pixels first, first + step, ..."""
        # Centre i of the scaled image lies in pixel (i + 1/2) / scale, rounded down.
        rows = (self.top + np.arange(first, self.height, step) + 0.5) / self.scale_y
        columns = (self.left + np.arange(first, self.width, step) + 0.5) / self.scale_x
        return rows.astype(np.intp), columns.astype(np.intp)

    def cut(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Cut the window (height, width, 3) from an image; scaling is bicubic with antialiasing."""
        if self.scale_x == self.scale_y == 1:
            return image[self.top : self.top + self.height, self.left : self.left + self.width]
        height, width = image.shape[:2]
        x, y = self.left / self.scale_x, self.top / self.scale_y
        right = min(x + self.width / self.scale_x, width)
        bottom = min(y + self.height / self.scale_y, height)
        size, box = (self.width, self.height), (x, y, right, bottom)
        whole = Image.fromarray(np.ascontiguousarray(image))
        return np.asarray(whole.resize(size, Image.Resampling.BICUBIC, box))


def _scale_side(side: int, scale: float) -> int:
    return int(side * scale + 1e-6)  # tolerates the rounding of scales computed to fit


def choose_crop(
    rng: Generator, height: int, width: int, crop: tuple[int, int], augmentation: Augmentation, grid: int = 1
) -> Crop:
    """Choose a random window of (height, width) px at multiples of `grid`; upscale small images."""
    scale = math.exp(rng.uniform(math.log(augmentation.smallest), math.log(augmentation.largest)))
    stretch = ((1 + augmentation.stretch) ** rng.uniform(-1, 1)) ** 0.5
    scale_y, scale_x = scale / stretch, scale * stretch
    upscale = max(1.0, crop[0] / (height * scale_y), crop[1] / (width * scale_x))
    scale_y, scale_x = scale_y * upscale, scale_x * upscale
    spare_y = max(0, _scale_side(height, scale_y) - crop[0]) // grid
    spare_x = max(0, _scale_side(width, scale_x) - crop[1]) // grid
    top, left = int(rng.integers(spare_y + 1)) * grid, int(rng.integers(spare_x + 1)) * grid
    return Crop(top, left, *crop, scale_y, scale_x)


def flip_randomly(rng: Generator, example: Example, augmentation: Augmentation) -> Example:
    """Mirror and flip the example at random."""
    mirror, upside_down = (rng.random(2) < (augmentation.mirror, augmentation.upside_down)).tolist()
    if mirror and (np.isfinite(example.right_disparity).any() or not np.isfinite(example.disparity).any()):
        example = mirror_example(example)
    return flip_example(example) if upside_down else example


def mirror_example(example: Example) -> Example:
    """Mirror the example: the mirrored right image becomes the left one."""
    turned = flip_example(example, axis=1)
    return Example(*itemgetter(1, 0, 3, 2, 5, 4, 6, 8, 7)(turned))


def flip_example(example: Example, axis: int = 0) -> Example:
    """Flip all images and maps: upside down, or, with `axis` 1, left to right; disparities stay the same."""
    parts: list[Any] = []
    for part in example:
        parts.append(np.flip(part, axis) if isinstance(part, np.ndarray) else part)
    return Example(*parts)


def jitter(
    rng: Generator, left: NDArray[np.uint8], right: NDArray[np.uint8], augmentation: Augmentation
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Change light, colours, blur and noise at random; changes of the scene are the same in both images."""
    by = augmentation
    left, right = permute_colours(rng, (left, right), augmentation)
    both = _draw_light(rng, by.brightness, by.contrast, by.gamma, by.colour)
    views = []
    for view in (left, right):
        own = _draw_light(rng, by.view_brightness, by.view_contrast, by.view_gamma, by.view_colour)
        sigma, noise = float(rng.uniform(0, by.blur)), float(rng.uniform(0, by.noise))
        light = both * own
        view = apply_blur(view, sigma) if sigma else view
        if (light != 1).any():
            view = np.asarray(Image.fromarray(np.ascontiguousarray(view)).point(_make_tables(light)))
        if noise:
            grain = rng.standard_normal(view.shape, np.float32)
            view = np.clip(np.rint(view + 255 * noise * grain), 0, 255).astype(np.uint8)
        views.append(view)
    return views[0], views[1]


def degrade_inputs(rng: Generator, example: Example, augmentation: Augmentation) -> Example:
    """Degrade both network inputs at random, independently, as two cameras would."""
    if rng.random() >= augmentation.camera:
        return example
    left, right = (draw_degradation(rng)(view, rng) for view in (example.left, example.right))
    return example._replace(left=left, right=right)


def permute_colours(rng: Generator, images: Views, augmentation: Augmentation) -> Views:
    """Permute the colours of all images at random, in the same way."""
    if rng.random() >= augmentation.permute_colours:
        return images
    order = rng.permutation(3)
    return images if (order == np.arange(3)).all() else tuple(image[..., order] for image in images)


def _draw_light(
    rng: Generator, brightness: float, contrast: float, gamma: float, colour: float
) -> NDArray[np.float64]:
    """Return random factors of contrast and exponent, and of the brightness of three channels."""
    factors = []
    for beyond in (contrast, gamma, brightness, colour, colour, colour):
        factors.append((1 + beyond) ** rng.uniform(-1, 1))
    light = np.array(factors[:2] + factors[3:])
    light[2:] *= factors[2]
    return light


def _make_tables(light: NDArray[np.float64]) -> list[int]:
    """Return lookup tables for red, green and blue, concatenated."""
    contrast, gamma, gains = light[0], light[1], light[2:]
    levels = ((np.arange(256) / 255) ** gamma - 0.5) * contrast + 0.5
    return [*map(int, np.rint(np.outer(255 * gains, levels)).clip(0, 255).ravel())]


def erase_rectangle(rng: Generator, example: Example, augmentation: Augmentation) -> Example:
    """Erase a rectangle of the right image at random; the pixels behind it become occluded."""
    if rng.random() >= augmentation.erase:
        return example
    height, width = example.right.shape[:2]
    rows, columns = (max(1, int(side * rng.uniform(0.05, LARGEST_ERASED))) for side in (height, width))
    top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
    covered = slice(top, top + rows), slice(left, left + columns)
    right, right_disparity = example.right.copy(), example.right_disparity.copy()
    visible, right_visible = example.visible.copy(), example.right_visible.copy()
    right[covered] = right.mean((0, 1))
    right_disparity[covered] = np.nan
    right_visible[covered] = False
    match = np.arange(width) - example.disparity[top : top + rows]
    visible[top : top + rows] &= ~((match > left - 1) & (match < left + columns))
    return example._replace(
        right=right, right_disparity=right_disparity, visible=visible, right_visible=right_visible
    )
