"""Solids: what their faces show is one and the same point of space in both views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pamcli.scenes.render import Layer, render
from pamcli.scenes.solids import Block, Camera, Face, Light, render_face, shadow
from pamcli.scenes.surfaces import Surface

WIDTH, HEIGHT = 200, 120
CAMERA = Camera(focal=180.0, centre=(95.0, 40.0), height=4.0, view=(WIDTH, HEIGHT))
LIGHT = Light(np.array([0.5, 1.0, 0.3]), ambient=0.5)
PLAIN = torch.cat((torch.full((3, 8, 8), 0.5), torch.ones(1, 8, 8)))
BEHIND = Layer(Surface(0.5), PLAIN, np.eye(3), endless=True)

BLOCKS = [
    Block(np.array([-2.0, 4.0, 9.0]), 0.4, 3.0, 2.0, 2.5),
    Block(np.array([1.5, 4.0, 12.0]), 1.1, 5.0, 2.0, 1.5, top_length=0.6, top_width=0.8, top_shift=-0.1),
    Block(np.array([0.52, 4.0, 11.03]), 0.0, 4.0, 0.4, 3.0),
]
"""The last one stands between the cameras' lines of sight: each sees a side that the other does not."""


def faces(block: Block) -> list[Layer]:
    made = [render_face(CAMERA, LIGHT, shape, PLAIN) for _, shape in block.faces()]
    return [layer for layer in made if layer is not None]


def depth_along(block: Block, ray: np.ndarray, eye: np.ndarray) -> float:
    """Depth by hand: where a ray first meets one of the faces; triangles of its corners."""
    best = np.inf
    low, high = block.ring(False), block.ring(True)
    quads = [(low[i], low[(i + 1) % 4], high[(i + 1) % 4], high[i]) for i in range(4)] + [tuple(high)]
    for a, b, c, d in quads:
        for p, q, r in ((a, b, c), (a, c, d)):
            system = np.stack([ray, p - q, p - r], 1)
            if abs(np.linalg.det(system)) > 1e-12:
                t, s, w = np.linalg.solve(system, p - eye)
                if t > 0 and s >= 0 and w >= 0 and s + w <= 1:
                    best = min(best, float(t))
    return best


@pytest.mark.parametrize("block", BLOCKS)
def test_both_views_of_a_block_agree_with_rays_that_are_traced(block: Block) -> None:
    views = render([BEHIND, *faces(block)], HEIGHT, WIDTH)
    wrong = hits = 0
    for eye, disparity in ((0.0, views.disparity), (1.0, views.right_disparity)):
        for y in range(2, HEIGHT, 8):
            for x in range(2, WIDTH, 8):
                ray = np.array([(x - 95) / 180, (y - 40) / 180, 1.0])
                z = depth_along(block, ray, np.array([eye, 0, 0]))
                expected = 180 / z if np.isfinite(z) else 0.5
                hits += expected > 0.5
                wrong += abs(float(disparity[y, x]) - expected) > 1e-3
    assert hits > 16
    assert wrong <= 0.01 * hits, "but for corners that a ray just grazes"


def test_a_face_shows_its_texture_upright() -> None:
    texture = PLAIN.clone()
    texture[0], texture[1] = torch.arange(8) / 8, (torch.arange(8) / 8)[:, None]
    shape = Face(np.array([-1.0, -1, 9]), np.array([2.0, 0, 0]), np.array([0, 2.0, 0]))
    made = render_face(CAMERA, LIGHT, shape, texture)
    views = render([BEHIND, made], HEIGHT, WIDTH)
    for picture, left in ((views.left, 75), (views.right, 55)):  # 20 pixels a baseline
        shown = picture[:, 20:60, left : left + 40][:, 1:-1, 1:-1] / made.light
        assert (shown[0, 20].diff() > -1e-4).all()
        assert (shown[1, :, 20].diff() > -1e-4).all()
        assert shown[0, 20, 4] < 0.2 < 0.7 < shown[0, 20, 36]


def test_a_shadow_lies_where_the_light_throws_it() -> None:
    """A post of height 2 in light that falls to the right at 45 degrees: 2 baselines to the right of it."""
    foot = np.array([-1.0, 4.0, 12.0])
    thrown = shadow(CAMERA, Light(np.array([1.0, 1.0, 0.0]), 0.5), [foot - 0.2, foot + 0.2], 2.0, 0.7)
    ground, surface = CAMERA.frame(np.array([0, 4.0, 1]), np.array([1.0, 0, 0]), np.array([0, 0, 1.0]))
    layer = Layer(surface, PLAIN, ground, endless=True, decals=(thrown,))
    views = render([BEHIND, layer], HEIGHT, WIDTH, sharpness=1)
    row = round(40 + 180 * 4 / 12)
    at = [round(95 + 180 * x / 12) for x in (-1.6, -0.6, 0.8, 1.6)]
    assert (views.left[0, row, at] < 0.25).tolist() == [False, True, True, False]
    bare = render([BEHIND, replace(layer, decals=())], HEIGHT, WIDTH)
    assert torch.equal(views.disparity, bare.disparity)


def test_what_lies_outside_both_views_is_left_out() -> None:
    assert not CAMERA.is_visible(np.array([[-9.0, 0, 10], [-8, 1, 10]]))
    assert CAMERA.is_visible(np.array([[6.2, 0, 10], [8, 1, 10]])), "in the right view alone"
    assert faces(Block(np.array([40.0, 4.0, 20.0]), 0.0, 2.0, 2.0, 2.0)) == []
