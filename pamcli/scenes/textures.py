"""Provide textures (4, H, W) float32: RGB in [0, 1] times the opacity, and the opacity."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from pamcli.errors import InputError
from pamcli.files.paths import quote, walk_folders
from pamcli.files.suffixes import IMAGE_SUFFIXES
from pamcli.imaging.raster import ignore_header_warnings, report_damage

MOST_TEXELS = 1024  # larger images are downscaled to this side
KEPT = 120  # decoded images per process, at most 500 MB
LEAST_TEXELS = 16  # images with a shorter side (icons, previews) are skipped


def find_textures(folder: Path) -> "TextureLibrary":
    """Return the images below a folder, each file once; raise InputError for none or an unreadable one."""
    paths = [below / name for _, below, names in walk_folders(folder) for name in sorted(names)]
    found: dict[Path, Path] = {}
    for path in paths:
        if path.suffix.lower() in IMAGE_SUFFIXES:
            found.setdefault(path.resolve(), path)
    photos: list[Path] = []
    cutouts: list[Path] = []
    for path in found.values():
        with _report_damage(path), Image.open(path) as image:
            if min(image.size) >= LEAST_TEXELS:
                (cutouts if image.has_transparency_data else photos).append(path)
    if not photos and not cutouts:
        problem = f"{quote(folder)} has no image with sides of at least {LEAST_TEXELS} px"
        raise InputError(problem, "use a directory with photographs, or `procedural` for generated textures")
    return TextureLibrary(tuple(photos), tuple(cutouts))


@dataclass(frozen=True)
class TextureLibrary:
    """A source of random textures: photographs, cut-outs (with an opacity channel), or generated ones."""

    photos: tuple[Path, ...] = ()
    cutouts: tuple[Path, ...] = ()

    def background(self, rng: Generator) -> Tensor:
        """Return an opaque texture; generated ones have sides of 256 to 512 texels."""
        if self.photos and rng.random() < 0.85:
            return _to_texture(_choose(rng, self.photos))
        return generate_texture(rng, int(rng.integers(256, 513)), int(rng.integers(256, 513)))

    def skin(self, rng: Generator, height: int, width: int) -> Tensor:
        """Return an opaque texture for an object of (height, width) texels: part of a photo, or generated."""
        if not self.photos or rng.random() < 0.3:
            return generate_texture(rng, height, width)
        photo = _choose(rng, self.photos)
        scale = min(1.0, rng.uniform(0.5, 2.0), photo.shape[1] / height, photo.shape[2] / width)
        rows = min(max(2, int(height * scale)), photo.shape[1])
        columns = min(max(2, int(width * scale)), photo.shape[2])
        top = int(rng.integers(photo.shape[1] - rows + 1))
        left = int(rng.integers(photo.shape[2] - columns + 1))
        part = _to_texture(photo[:, top : top + rows, left : left + columns])
        return F.interpolate(part[None], (height, width), mode="bilinear", align_corners=False)[0]

    def cutout(self, rng: Generator) -> Tensor | None:
        """Return an object with its own outline, mirrored at random, or None if there are no cut-outs."""
        if not self.cutouts:
            return None
        image = _to_texture(_choose(rng, self.cutouts))
        return image.flip(2) if rng.random() < 0.5 else image


def _choose(rng: Generator, paths: Sequence[Path]) -> Tensor:
    return _read_cached(paths[int(rng.integers(len(paths)))])


def _to_texture(pixels: Tensor) -> Tensor:
    texture = pixels.float() / 255
    opacity = texture[3:] if len(texture) == 4 else torch.ones_like(texture[:1])
    return torch.cat((texture[:3] * opacity, opacity))


def read_texture(path: Path) -> Tensor:
    """Return an upright image (3 or 4, H, W), uint8, downscaled, cropped to its opaque part."""
    with _report_damage(path), Image.open(path) as file:
        if file.mode.startswith("I"):  # Pillow would clip 16-bit grey values at 255
            image = Image.fromarray((np.asarray(file, np.float64) / 257).round().astype(np.uint8))
        else:
            file.thumbnail((MOST_TEXELS, MOST_TEXELS))
            image = file
        image = ImageOps.exif_transpose(image)
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        image.thumbnail((MOST_TEXELS, MOST_TEXELS))
        if image.mode == "RGBA":
            image = image.crop(image.getchannel("A").getbbox())
        pixels = np.array(image)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


_read_cached = lru_cache(KEPT)(read_texture)


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
    """Convert any error of a decoder into an InputError that names the file."""
    with ignore_header_warnings(), report_damage(quote(path)):
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large photographs are legitimate
        yield


def make_opaque(colours: NDArray[np.floating]) -> Tensor:
    """Return colours (H, W, 3) in [0, 1] as a texture without holes."""
    texture = torch.from_numpy(np.ascontiguousarray(colours.transpose(2, 0, 1), np.float32))
    return torch.cat((texture, torch.ones_like(texture[:1])))


def random_paint(rng: Generator) -> NDArray[np.float64]:
    """Return a colour: mostly grey, else dark with one brighter channel."""
    if rng.random() < 0.7:
        colour = np.full(3, rng.choice([0.03, 0.08, 0.3, 0.55, 0.85])) * rng.uniform(0.8, 1.15)
    else:
        colour = rng.uniform(0.02, 0.25, 3)
        colour[rng.integers(3)] = rng.uniform(0.3, 0.75)
    return np.asarray(colour, np.float64)


def cut(texture: Tensor, mask: NDArray[np.float32]) -> Tensor:
    """Return the texture cut out with a mask (H, W) in [0, 1]."""
    return texture * torch.from_numpy(mask)


def generate_texture(rng: Generator, height: int, width: int) -> Tensor:
    """Return a generated texture: noise, stripes, tiles, specks, or a faint gradient."""
    pattern = (noise, noise, stripes, tiles, specks, plain)[rng.integers(6)]
    grey = rng.uniform(0, 1, (2, 1))  # most objects are greyish
    two = np.clip(grey + rng.uniform(0, 0.35) * rng.normal(size=(2, 3)), 0, 1)
    amount = pattern(rng, height, width)[..., None]
    colours = two[0] * (1 - amount) + two[1] * amount
    if rng.random() < 0.6:  # uneven light
        colours = colours * (0.7 + 0.6 * noise(rng, height, width, finest=64)[..., None])
    if rng.random() < 0.6:  # grain
        colours = colours + rng.uniform(0, 0.15) * (noise(rng, height, width, coarsest=4)[..., None] - 0.5)
    return make_opaque(np.clip(colours, 0, 1))


def bare_surface(rng: Generator, grey: float | None = None, size: int = 256) -> Tensor:
    """Return a nearly uniform texture (4, size, size): one colour, uneven light, little grain."""
    level = rng.choice([rng.uniform(0.1, 0.6), rng.uniform(0.6, 0.95)]) if grey is None else grey
    colour = level * (1 + rng.uniform(0, 0.25) * np.clip(rng.normal(size=3), -1, 1))
    across = np.linspace(-0.5, 0.5, size)
    light = 1 + rng.uniform(-0.3, 0.3) * across[:, None] + rng.uniform(-0.3, 0.3) * across
    light += rng.uniform(0, 0.06) * (noise(rng, size, size, finest=32) - 0.5)
    light += rng.uniform(0, 0.02) * rng.standard_normal((size, size), np.float32)
    return make_opaque(np.clip(colour * light[..., None], 0, 1))


def noise(
    rng: Generator, height: int, width: int, finest: int = 1, coarsest: int = 128
) -> NDArray[np.float64]:
    """Return smooth noise in [0, 1] of several sizes (texels, powers of 2); larger ones are stronger."""
    roughness = rng.uniform(0.2, 1.2)
    total = torch.zeros(height, width)
    size = finest
    while size <= coarsest:
        grid = torch.from_numpy(rng.random((height // size + 2, width // size + 2), np.float32))
        fine = F.interpolate(grid[None, None], scale_factor=float(size), mode="bilinear", align_corners=False)
        total += size**roughness * fine[0, 0, :height, :width]
        size *= 2
    low, high = total.aminmax()
    return np.asarray(((total - low) / (high - low).clamp(min=1e-6)).double().numpy())


def stripes(rng: Generator, height: int, width: int) -> NDArray[np.float64]:
    """Return repeated lines, which match themselves many times along a row."""
    u, _ = _rotate_grid(rng, height, width)
    wave = np.sin(2 * np.pi * u / rng.uniform(4, 40))
    return (wave > rng.uniform(-0.6, 0.6)).astype(float) if rng.random() < 0.5 else 0.5 + 0.5 * wave


def tiles(rng: Generator, height: int, width: int) -> NDArray[np.float64]:
    """Return a checkerboard, or tiles with joints and a random grey each."""
    u, v = _rotate_grid(rng, height, width)
    across, down = rng.uniform(6, 60), rng.uniform(6, 60)
    row = np.floor(v / down).astype(int)
    u = u + (row % 2) * across * rng.choice([0, 0.5])
    column = np.floor(u / across).astype(int)
    if rng.random() < 0.3:
        return np.asarray((row + column) % 2, np.float64)
    greys = rng.uniform(0.5, 1, (64, 64)) ** rng.uniform(0, 2)
    joint = rng.uniform(0.5, 3)
    return np.where((u % across < joint) | (v % down < joint), 0.0, greys[row % 64, column % 64])


def specks(rng: Generator, height: int, width: int) -> NDArray[np.float64]:
    size = int(rng.integers(1, 6))
    cells = rng.random((height // size + 1, width // size + 1)) < rng.uniform(0.02, 0.4)
    return np.kron(cells, np.ones((size, size)))[:height, :width].astype(float)


def plain(rng: Generator, height: int, width: int) -> NDArray[np.float64]:
    x, y = np.linspace(0, 1, width)[None], np.linspace(0, 1, height)[:, None]
    return np.asarray(rng.uniform(0, 0.5) * x + rng.uniform(0, 0.5) * y)


def _rotate_grid(rng: Generator, height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    turn = rng.choice([0.0, np.pi / 2, rng.uniform(0, np.pi)])
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    return np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
