"""Simulate camera faults for training and evaluation: darkness, blur, noise, processing, JPEG.

Images are (H, W, 3) RGB uint8, and so are the results.
"""

import io
from dataclasses import dataclass, fields, replace
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

    exposure: float = 1.0  # share of the light
    resolution: float = 1.0  # share of each side that the camera resolves; it upscales before compression
    blur: float = 0.0  # standard deviation of a Gaussian, px
    noise: float = 0.0  # standard deviation, in levels of 255
    denoising: float = 0.0  # levels that a bilateral filter of radius 2 px smooths as noise
    sharpening: float = 0.0  # strength of an unsharp mask
    radius: float = 1.0  # standard deviation of the unsharp mask, px
    jpeg: int | None = None  # quality, 1 to 100, as in libjpeg; None: not compressed
    whole_colours: bool = False  # if True, JPEG keeps colours at full size instead of half of each side

    def __post_init__(self) -> None:
        shares = {"exposure": (0.01, 1), "resolution": (0.1, 1), "radius": (0.1, 10)}
        levels = {"blur": (0, 10), "noise": (0, 100), "denoising": (0, 100), "sharpening": (0, 5)}
        for name, (least, most) in {**shares, **levels, "jpeg": (1, 100)}.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} must be from {least} to {most}, got {value:g}")

    def __str__(self) -> str:
        values = {each.name: getattr(self, each.name) for each in fields(self)[:-1]}
        return ",".join(f"{name}={it:g}" for name, it in values.items() if it != getattr(Degradation, name))

    def __call__(self, view: View, rng: Generator) -> View:
        """Apply the faults to an image (H, W, 3); `rng` draws the noise."""
        import cv2

        height, width = view.shape[:2]
        if self.exposure < 1:
            view = (view * np.float32(self.exposure)).astype(np.uint8)
        if self.resolution < 1:
            size = max(1, int(self.resolution * width)), max(1, int(self.resolution * height))
            view = cv2.resize(view, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
        view = apply_blur(view, self.blur)
        if self.noise:
            grain = rng.standard_normal(view.shape, np.float32)
            view = np.clip(np.rint(view + self.noise * grain), 0, 255).astype(np.uint8)
        if self.denoising:
            view = cv2.bilateralFilter(np.ascontiguousarray(view), 5, self.denoising, 2).astype(np.uint8)
        if self.sharpening:
            percent = round(100 * self.sharpening)
            by = ImageFilter.UnsharpMask(radius=self.radius, percent=percent, threshold=0)
            view = np.asarray(Image.fromarray(np.ascontiguousarray(view)).filter(by))
        if self.resolution < 1:
            view = cv2.resize(view, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.uint8)
        return view if self.jpeg is None else compress_jpeg(view, self.jpeg, whole_colours=self.whole_colours)


CAMERAS = {
    "clean": Degradation(),
    "noise3": Degradation(noise=3),
    "noise8": Degradation(noise=8),
    "jpeg90": Degradation(jpeg=90),
    "jpeg75": Degradation(jpeg=75),
    "soft1": Degradation(blur=1),
    "soft2": Degradation(blur=2),
    "phone": Degradation(noise=6, denoising=18, sharpening=0.6, radius=1.2, jpeg=80),
    "webcam": Degradation(resolution=0.5, noise=4, jpeg=70),
    "dark": Degradation(exposure=0.12, noise=1.5),
}
"""Kinds of cameras on which `pam eval disparity --camera` measures robustness."""


def parse_degradation(text: str, option: str) -> Degradation:
    """Parse "jpeg=75,noise=5", named `option` in messages. Raises UsageError for unknown keys and values."""
    known = {each.name: int if each.name == "jpeg" else float for each in fields(Degradation)[:-1]}
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


def parse_cameras(text: str, option: str) -> dict[str, Degradation]:
    """Parse "phone,noise3" or "all", named `option` in messages. Raises UsageError for unknown kinds."""
    names = [*CAMERAS] if text == "all" else [each.strip() for each in text.split(",")]
    for name in names:
        if name not in CAMERAS:
            hint = f"{did_you_mean(name, CAMERAS)}expected all, or some of {', '.join(CAMERAS)}"
            raise UsageError(f"{option} {text!r}: unknown kind {name!r}", hint)
        if names.count(name) > 1:
            raise UsageError(f"{option} {text!r} has {name} twice", "give each kind once")
    return {name: CAMERAS[name] for name in names}


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


def draw_camera(rng: Generator) -> Degradation:
    """Draw a camera: one of the kinds in `CAMERAS`, with other strengths."""

    def draw(least: float, most: float) -> float:
        return float(np.exp(rng.uniform(np.log(least), np.log(most))))

    jpeg = int(rng.integers(50, QUALITIES[1] + 1))
    phone = Degradation(noise=draw(3, 8), denoising=draw(8, 25), sharpening=draw(0.2, 1))
    return [
        Degradation(noise=draw(1.5, 10)),
        Degradation(jpeg=jpeg),
        Degradation(blur=draw(0.5, 2.5)),
        replace(phone, radius=draw(0.8, 1.6), jpeg=max(jpeg, 65)),
        Degradation(resolution=draw(0.45, 0.8), noise=draw(2, 6), jpeg=jpeg),
        Degradation(exposure=draw(0.1, 0.5), noise=draw(0.7, 2)),
        Degradation(blur=draw(0.3, 1.2), noise=draw(1, 5), sharpening=draw(0.1, 0.6), jpeg=jpeg),
    ][rng.choice(7, p=(0.15, 0.15, 0.2, 0.2, 0.15, 0.05, 0.1))]


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
