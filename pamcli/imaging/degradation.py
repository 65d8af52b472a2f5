"""Simulate camera faults to train and evaluate super-resolution: blur, noise, sharpening, JPEG.

Images are (H, W, 3) RGB uint8, and so are the results.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from pamcli.errors import UsageError, did_you_mean

View = NDArray[np.uint8]

LEAST_BLUR = 0.2  # px, smallest visible standard deviation
QUALITIES = 60, 95  # JPEG qualities common in cameras and among photographers


@dataclass(frozen=True)
class Degradation:
    """The faults of one camera, applied in this order. Raises UsageError if a value is out of range."""

    blur: float = 0.0  # standard deviation of a Gaussian, px
    noise: float = 0.0  # standard deviation, in levels of 255
    sharpening: float = 0.0  # strength of an unsharp mask with a radius of one pixel
    jpeg: int | None = None  # quality, 1 to 100, as in libjpeg; None: not compressed
    whole_colours: bool = False  # if True, JPEG keeps colours at full size instead of half of each side

    def __post_init__(self) -> None:
        within = {"blur": (0, 10), "noise": (0, 100), "sharpening": (0, 5), "jpeg": (1, 100)}
        for name, (least, most) in within.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} must be from {least} to {most}, got {value:g}")

    def __str__(self) -> str:
        return ",".join(f"{key}={it:g}" for key, it in vars(self).items() if it and key != "whole_colours")

    def __call__(self, view: View, rng: Generator) -> View:
        """Apply the faults to an image (H, W, 3); `rng` draws the noise."""
        view = apply_blur(view, self.blur)
        if self.noise:
            grain = rng.standard_normal(view.shape, np.float32)
            view = np.clip(np.rint(view + self.noise * grain), 0, 255).astype(np.uint8)
        if self.sharpening:
            by = ImageFilter.UnsharpMask(radius=1, percent=round(100 * self.sharpening), threshold=0)
            view = np.asarray(Image.fromarray(np.ascontiguousarray(view)).filter(by))
        return view if self.jpeg is None else compress_jpeg(view, self.jpeg, whole_colours=self.whole_colours)


def parse_degradation(text: str, option: str) -> Degradation:
    """Parse "jpeg=75,noise=5", named `option` in messages. Raises UsageError for unknown keys and values."""
    known = {"blur": float, "noise": float, "sharpening": float, "jpeg": int}
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, given = (each.strip() for each in part.partition("="))
        if key not in known or not equals or key in values:
            raise UsageError(
                f"{option} {text!r}: {part.strip()!r} is not a valid setting",
                f"{did_you_mean(key, known)}write KEY=VALUE,... with the keys {', '.join(known)}, each once",
            )
        try:
            values[key] = known[key](given)
        except ValueError:
            kind = "an integer" if known[key] is int else "a number"
            raise UsageError(f"{option} {text!r}: {key} must be {kind}, got {given!r}") from None
    return Degradation(**values)


def draw_degradation(rng: Generator) -> Degradation:
    """Draw random faults: JPEG with probability 0.75, noise 0.5, blur and sharpening 0.35 each."""
    compressed, grainy, soft, sharpened, whole = rng.random(5) < (0.75, 0.5, 0.35, 0.35, 0.3)
    return Degradation(
        blur=float(rng.uniform(LEAST_BLUR, 0.7)) if soft else 0.0,
        noise=float(rng.uniform(1, 12)) if grainy else 0.0,
        sharpening=float(rng.uniform(0.1, 0.8)) if sharpened else 0.0,
        jpeg=int(rng.integers(QUALITIES[0], QUALITIES[1] + 1)) if compressed else None,
        whole_colours=bool(whole),
    )


def apply_blur(view: View, deviation: float) -> View:
    """Apply a Gaussian of `deviation` px to an image (H, W, 3); below 0.2 px it is unchanged."""
    if deviation < LEAST_BLUR:
        return view
    image = Image.fromarray(np.ascontiguousarray(view))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(deviation)))


def compress_jpeg(view: View, quality: int, *, whole_colours: bool = False) -> View:
    """Return an image (H, W, 3) after JPEG compression with `quality` (1 to 100)."""
    file = io.BytesIO()
    subsampling = "4:4:4" if whole_colours else "4:2:0"
    Image.fromarray(np.ascontiguousarray(view)).save(file, "JPEG", quality=quality, subsampling=subsampling)
    with Image.open(file) as image:
        return np.asarray(image)
