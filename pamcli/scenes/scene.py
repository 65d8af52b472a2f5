"""Generate a scene from its number, render it, and simulate two slightly different cameras."""

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from pamcli.scenes import appearance, thin_objects
from pamcli.scenes.hard_cases import NONE, HardCases
from pamcli.scenes.interiors import make_corridor, make_room
from pamcli.scenes.render import Decal, Layer, Reflection, Views, render
from pamcli.scenes.solids import SHADOW_TEXELS
from pamcli.scenes.stage import Stage
from pamcli.scenes.streets import make_street
from pamcli.scenes.textures import TextureLibrary
from pamcli.scenes.weather import add_glare, apply_weather

SMALLEST_RANGE = 6  # px, about the smallest value of a scene's largest disparity
LARGEST_PART = 0.4  # part of the width, the largest disparity; nearer objects leave the right view
USUAL_RANGE = 45.0, 130.0  # px, common range of the largest disparity, for cameras on cars and desks ...
USUAL = 0.6  # ... and the share of such scenes
STREETS = 0.45  # share of street scenes


@dataclass(frozen=True)
class Scene:
    """The layers of a scene, and its rectification error."""

    layers: tuple[Layer, ...]
    drift: tuple[float, float]  # vertical shift (px) at x = 0, and its change over the width


def scene_pair(
    library: TextureLibrary, seed: int, number: int, height: int, width: int, hard: HardCases = NONE
) -> Views[NDArray[Any]]:
    """Return scene `number` of the series `seed` at (height, width) px; equal arguments give equal scenes.

    Images are (H, W, 3) uint8; ground truth is known everywhere.
    """
    rng = np.random.default_rng((seed, number))
    # A separate stream, so that scenes without hard cases stay the same.
    cases = hard.draw_cases(rng.spawn(1)[0])
    scene = make_scene(rng, library, height, width, cases)
    sharpness = float(rng.uniform(0.5, 1.1))
    views = render(scene.layers, height, width, scene.drift, sharpness=sharpness)
    left, right, *truths = views
    if "tunnels" in cases:
        reach = float(rng.uniform(0.005, 0.02)) * width
        left, right = add_glare(left, reach), add_glare(right, reach)
    images = apply_weather(rng, *simulate_cameras(rng, left, right), cases)
    return Views(*images, *(truth.numpy() for truth in truths))


def make_scene(
    rng: Generator, library: TextureLibrary, height: int, width: int, cases: frozenset[str] = frozenset()
) -> Scene:
    """Return a random street, room or loose layers of (height, width) px with these `hard_cases.CASES`."""
    if rng.random() < USUAL:
        largest = float(rng.uniform(*USUAL_RANGE)) * min(1.0, LARGEST_PART * width / USUAL_RANGE[1])
    else:
        largest = float(np.exp(rng.uniform(np.log(SMALLEST_RANGE), np.log(LARGEST_PART * width))))
    asked = rng, library, height, width, largest, cases
    inside = bool(cases & {"corridors", "walls"})
    street = "tunnels" in cases or (rng.random() < STREETS and not inside)
    make = make_street if street else make_corridor if "corridors" in cases else make_room
    stage = make(*asked)
    if "glossy" in cases:
        make_glossy(stage)
    for case in ("twigs", "wires", "fences", "foliage"):
        if case in cases:
            getattr(thin_objects, f"add_{case}")(stage)
    layers = stage.layers if street else [_shade(rng, layer) for layer in stage.layers]
    offset, slope = np.clip(rng.normal(0, 0.3, 2), -1, 1).tolist() if rng.random() < 0.5 else (0.0, 0.0)
    return Scene(tuple(layers), (offset, slope))


def make_glossy(stage: Stage) -> None:
    """Make half of the layers mirror their surroundings, and add panes of glass in front."""
    rng = stage.rng
    around = appearance.surroundings(rng, stage.library)
    for index, layer in enumerate(stage.layers):
        if len(layer.texture) == 4 and rng.random() < 0.5:
            share = layer.texture[3:] * stage.uniform(0.1, 0.6)
            disparity = max(layer.middle_disparity, 0.05 * stage.largest) * stage.uniform(-0.4, 0.7)
            scale = stage.log_uniform(0.3, 2)
            mirrored = Reflection(around, disparity, (scale, scale))
            texture = torch.cat((layer.texture, share))
            stage.layers[index] = replace(layer, texture=texture, reflection=mirrored)
    for _ in range(int(rng.integers(0, 4))):
        (height, width), disparity = stage.extent(), stage.uniform(0.2, 1.0) * stage.largest
        pane = thin_objects.glass(rng, *(int(np.clip(side, 32, 512)) for side in (height, width)))
        at = stage.uniform(0, 1.1) * stage.width, stage.uniform(0, 1) * stage.height
        stage.add_cutout(pane, disparity, at, (height, width), (0.5, 0.1), 0.05)
        mirrored = Reflection(around, disparity * stage.uniform(-0.4, 0.7), (1.0, 1.0))
        stage.layers[-1] = replace(stage.layers[-1], reflection=mirrored)


def _shade(rng: Generator, layer: Layer) -> Layer:
    """Light a layer, cast shadows on backgrounds, and make some objects reflect."""
    layer = replace(layer, light=layer.light * float(rng.uniform(0.6, 1.2)))
    if layer.endless:
        unshaded = layer.box is not None or rng.random() < 0.5
        count = 0 if unshaded else int(rng.integers(1, 4))
        return replace(layer, decals=tuple(_draw_shadow(rng, layer) for _ in range(count)))
    if layer.box is None or len(layer.texture) == 5 or rng.random() >= 0.15:
        return layer
    disparity, scale = layer.middle_disparity * float(rng.uniform(-0.4, 0.7)), float(rng.uniform(0.3, 2))
    mirrored = Reflection(appearance.highlights(rng, 96, 96), disparity, (scale, scale))
    texture = torch.cat((layer.texture, rng.uniform(0.1, 0.5) * layer.texture[3:]))
    return replace(layer, texture=texture, reflection=mirrored)


def _draw_shadow(rng: Generator, layer: Layer) -> Decal:
    rows, columns = layer.texture.shape[1:]
    scale = SHADOW_TEXELS / (rng.uniform(0.1, 0.8) * min(rows, columns))
    x, y = rng.uniform(0, columns), rng.uniform(0, rows)
    to_mask = np.array([[scale, 0, -scale * x], [0, scale * rng.uniform(0.5, 1.5), -scale * y], [0, 0, 1]])
    return Decal(appearance.soft_shadow(rng, SHADOW_TEXELS), to_mask @ layer.homography)


def simulate_cameras(
    rng: Generator, left: Tensor, right: Tensor
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (H, W, 3) of both views (3, H, W) with exposure, colour, vignetting, blur and noise."""
    gamma = float(np.exp(rng.normal(0, 0.2)))
    # The exposure aims at medium grey; much brighter light becomes white.
    mean = float(left.mean())
    light = float(np.clip(rng.uniform(0.28, 0.5) / max(mean, 0.02), 0.6, 2.5)) if rng.random() < 0.8 else 1.0
    unlike = float(rng.choice([0.0, 1.0, 3.0], p=[0.3, 0.5, 0.2]))  # difference between the cameras
    blur = float(rng.choice([0.0, rng.uniform(0.3, 0.8)], p=[0.75, 0.25]))
    noise = float(rng.choice([0.0, rng.uniform(0.002, 0.01), rng.uniform(0.01, 0.03)], p=[0.3, 0.5, 0.2]))
    images = []
    for view in (left, right):
        exponent = gamma * float(np.exp(unlike * rng.normal(0, 0.03)))
        image = (light * view).clamp(0, 1).pow(exponent).permute(1, 2, 0).float().numpy()
        gain = np.exp(unlike * (rng.normal(0, 0.04) + rng.normal(0, 0.015, 3)))
        image = image * gain.astype(np.float32)
        if unlike and rng.random() < 0.3:
            x, y = (np.linspace(-1, 1, side, dtype=np.float32) for side in (view.shape[2], view.shape[1]))
            image *= (1 - rng.uniform(0, 0.25) * (x**2 + y[:, None] ** 2) / 2)[..., None]
        sigma = blur + unlike * abs(rng.normal(0, 0.08))
        if sigma > 0.25:
            image = cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)
        if noise:
            grain = rng.standard_normal(image.shape, np.float32)
            image += noise * (0.5 + np.sqrt(image.clip(0, 1))) * grain
        images.append(np.rint(image.clip(0, 1) * 255).astype(np.uint8))
    return images[0], images[1]
