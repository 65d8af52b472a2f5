"""Surfaces: their disparity, the way back from the right view, and where an image lies on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pamcli.scenes.surfaces import STEEPEST, Surface, Wave

WIDTH, HEIGHT = 512, 256


def grid() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.arange(0.0, WIDTH, 7)[None], torch.arange(0.0, HEIGHT, 5)[:, None]
    return x.expand(len(y), -1), y.expand(-1, x.shape[1])


WAVES = (Wave(3.0, 0.08, 0.05, 1.0), Wave(2.0, -0.1, 0.02, 4.0), Wave(0.5, 0.3, 0.3, 0.2))


@pytest.mark.parametrize(
    "surface",
    [
        Surface(12.25),
        Surface(-40.0, 0.0, 0.7),
        Surface(5.0, STEEPEST, 0.01),
        Surface(400.0, -0.9, 0.1),
        Surface(30.0, 0.0, 0.02, WAVES),
        Surface(30.0, 0.2, 0.02, WAVES),
        Surface(300.0, -1.5, 0.02, WAVES),
        Surface(20.0, 0.0, 0.0, (Wave(7.9, 0.1, 0.0, 0.0),)),
    ],
)
def test_the_right_view_leads_back_to_the_left_column(surface: Surface) -> None:
    x, y = grid()
    x_right = x - surface.disparity(x, y)
    torch.testing.assert_close(surface.left_column(x_right, y), x, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("slope", "waves"), [(0.81, ()), (0.5, (Wave(4.0, 0.1, 0.0, 0.0),)), (0.0, (Wave(1.0, 0.9, 0.0, 0.0),))]
)
def test_a_surface_hidden_from_the_right_view_is_refused(slope: float, waves: tuple[Wave, ...]) -> None:
    with pytest.raises(ValueError, match="no inverse"):
        Surface(1.0, slope, 0.0, waves)


def test_a_tilted_surface_has_its_disparity_where_it_is_put() -> None:
    surface = Surface.tilted(40.0, 100.0, 50.0, 0.5, -0.3, focal=500)
    assert surface.disparity_at(100, 50) == pytest.approx(40)
    assert surface.b == pytest.approx(40 / 500 * np.tan(0.5))
    assert surface.c == pytest.approx(40 / 500 * np.tan(-0.3))


def texel(homography: np.ndarray, x: float, y: float) -> np.ndarray:
    mapped = homography @ [x, y, 1]
    return np.asarray(mapped[:2] / mapped[2])


def test_an_image_lies_at_its_anchor_with_its_density() -> None:
    homography = Surface(16.0).texture_map((30, 20), (7, 5), (2, 0.5), 0.0, 400, (256, 128))
    assert texel(homography, 30, 20) == pytest.approx([7, 5])
    assert texel(homography, 31, 22) == pytest.approx([9, 6])


def test_an_image_on_a_tilted_plane_is_foreshortened() -> None:
    """Equal steps on the plane in space are equal steps in the image."""
    focal, centre = 400.0, (256.0, 128.0)
    surface = Surface.tilted(20.0, 200, 100, 0.8, 0.4, focal)
    homography = surface.texture_map((200, 100), (0, 0), (1, 1), 0.3, focal, centre)

    def point(x: float, y: float) -> np.ndarray:
        return np.array([x - centre[0], y - centre[1], focal]) / surface.disparity_at(x, y)

    corners = [(200, 100), (260, 110), (150, 160), (300, 40)]
    steps = [np.linalg.norm(point(*a) - point(*b)) for a in corners for b in corners if a != b]
    texels = [
        np.linalg.norm(texel(homography, *a) - texel(homography, *b))
        for a in corners
        for b in corners
        if a != b
    ]
    assert np.array(texels) / np.array(steps) == pytest.approx(surface.disparity_at(200, 100))
