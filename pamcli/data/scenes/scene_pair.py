"""A scene by its number: the one way in for those who want pairs."""

from __future__ import annotations

import numpy as np

from pamcli.data.sample import Sample
from pamcli.data.scenes.camera import photograph
from pamcli.data.scenes.layouts import make_scene
from pamcli.data.scenes.render import render
from pamcli.data.scenes.textures import TextureLibrary


def scene_pair(
    library: TextureLibrary, seed: int, number: int, height: int, width: int, device: str = "cpu"
) -> Sample:
    """The scene `number` of the series `seed`, in pictures of (height, width); always the same one.

    device: where it is drawn; on another one it is the same within rounding.
    """
    rng = np.random.default_rng((seed, number))
    scene = make_scene(rng, library, height, width)
    sharpness = float(rng.uniform(0.5, 1.1))
    views = render(scene.layers, height, width, scene.drift, sharpness=sharpness, device=device)
    left, right = photograph(rng, views.left, views.right)
    return Sample(
        name=f"{number:06d}",
        left=left,
        right=right,
        disparity=views.disparity.cpu().numpy(),
        right_disparity=views.right_disparity.cpu().numpy(),
        visible=views.visible.cpu().numpy(),
    )
