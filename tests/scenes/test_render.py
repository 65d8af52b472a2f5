"""Rendering: nearer surfaces hide others, every pixel samples its texture once, occlusion is geometric."""

from __future__ import annotations

import numpy as np
import torch

from pamcli.scenes.render import Decal, Layer, Reflection, Views, render
from pamcli.scenes.surfaces import Surface, Wave

HEIGHT, WIDTH = 24, 64
FLAT = np.eye(3)
"""The texel of each left pixel is the pixel's own place."""


def ramp(height: int = HEIGHT, width: int = WIDTH) -> torch.Tensor:
    """Red tells the column, green the row, in 1/256; opaque."""
    x = (torch.arange(width) / 256).expand(height, -1)
    y = (torch.arange(height) / 256)[:, None].expand(-1, width)
    return torch.stack((x, y, torch.full_like(x, 0.5), torch.ones_like(x)))


def even(level: float, height: int = 8, width: int = 8) -> torch.Tensor:
    return torch.cat((torch.full((3, height, width), level), torch.ones(1, height, width)))


def wall(disparity: float, level: float = 0.2) -> Layer:
    return Layer(Surface(disparity), even(level), FLAT, endless=True)


def board(
    disparity: float, left: int, top: int, width: int, height: int, level: float = 0.8, slope: float = 0.0
) -> Layer:
    """A board of even colour on whole left pixels left ... left + width - 1."""
    homography = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1.0]])
    surface = Surface(disparity - slope * (left + width / 2), slope)
    box = (left - 2, top - 2, left + width + 1, top + height + 1)
    return Layer(surface, even(level, height, width), homography, box=box)


def left_places(views: Views) -> torch.Tensor:
    """Left columns from which the right view's pixels come, by its disparity."""
    return torch.arange(WIDTH) + views.right_disparity


def test_both_views_are_sampled_from_the_texture_itself() -> None:
    """A ramp comes out exactly in both views: one linear interpolation keeps it, at any sub-pixel place."""
    surface = Surface(9.3, 0.15, -0.05, (Wave(0.7, 0.2, 0.1, 0.5),))
    views = render([Layer(surface, ramp(HEIGHT, 2 * WIDTH), FLAT, endless=True)], HEIGHT, WIDTH, sharpness=1)
    columns = torch.arange(WIDTH).expand(HEIGHT, -1)
    torch.testing.assert_close(256 * views.left[0], columns.float(), atol=1e-3, rtol=0)
    places = left_places(views)
    assert (places % 1 - 0.5).abs().min() < 0.1, "motion is finer than pixels"
    torch.testing.assert_close(256 * views.right[0], places, atol=2e-3, rtol=0)


def test_the_disparities_of_both_views_are_those_of_the_surface() -> None:
    surface = Surface(9.3, 0.15, -0.05, (Wave(0.7, 0.2, 0.1, 0.5),))
    views = render([Layer(surface, even(0.5), FLAT, endless=True)], HEIGHT, WIDTH)
    x, y = torch.arange(WIDTH)[None].float(), torch.arange(HEIGHT)[:, None].float()
    torch.testing.assert_close(views.disparity, surface.disparity(x, y))
    expected = surface.disparity(left_places(views), y)
    torch.testing.assert_close(views.right_disparity, expected, atol=1e-3, rtol=0)


def test_visible_is_what_geometry_says() -> None:
    """A board of disparity 12 before a wall of 4 hides the 8 columns of the wall to its left."""
    views = render([wall(4), board(12, left=30, top=6, width=10, height=9)], HEIGHT, WIDTH)
    expected = np.ones((HEIGHT, WIDTH), bool)
    expected[:, :4] = False  # beyond the right view's border
    expected[6:15, 22:30] = False
    assert np.array_equal(views.visible.numpy(), expected)
    assert np.array_equal(views.disparity.numpy() == 12, views.left[0].numpy() > 0.5)
    right_board = np.zeros((HEIGHT, WIDTH), bool)
    right_board[6:15, 18:28] = True
    assert np.array_equal(views.right_disparity.numpy() == 12, right_board)
    assert np.array_equal(views.right[0].numpy() > 0.5, right_board)


def brute_force(views: Views, surfaces: list[Surface], level_of: list[float]) -> np.ndarray:
    """Visibility by hand: the pixel nearest to the match shows this surface, or one that is as near."""
    visible = np.zeros((HEIGHT, WIDTH), bool)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            own = int(np.argmin([abs(float(views.left[0, y, x]) - level) for level in level_of]))
            place = round(x - surfaces[own].disparity_at(x, y))
            if 0 <= place < WIDTH:
                there = int(np.argmin([abs(float(views.right[0, y, place]) - level) for level in level_of]))
                column = float(surfaces[there].left_column(torch.tensor([float(place)]), torch.tensor(y))[0])
                as_near = abs(surfaces[there].disparity_at(column, y) - surfaces[own].disparity_at(x, y))
                visible[y, x] = there == own or as_near < 0.5
    return visible


def test_visible_agrees_with_brute_force_on_slanted_surfaces() -> None:
    near = board(14, left=26, top=4, width=20, height=16, slope=0.3)
    far = Layer(Surface(3.3, 0.02, 0.05), even(0.2), FLAT, endless=True)
    views = render([far, near], HEIGHT, WIDTH)
    expected = brute_force(views, [far.surface, near.surface], [0.2, 0.8])
    assert 0.6 < expected.mean() < 0.95
    assert np.array_equal(views.visible.numpy(), expected)


def test_surfaces_that_cross_hide_nothing_along_their_line() -> None:
    """Where a wall meets a floor both views see both, wherever rounding leads."""
    floor = Layer(Surface(3.0, 0.0, 0.11), even(0.2), FLAT, endless=True)
    tilted = Layer(Surface(0.5, 0.13), even(0.8), FLAT, endless=True)
    views = render([floor, tilted], HEIGHT, WIDTH)
    assert 0.2 < (views.left[0] > 0.5).float().mean() < 0.8
    inside = torch.arange(WIDTH) - views.disparity
    inside = (inside > 0) & (inside < WIDTH - 1)
    assert views.visible[inside].all()


def test_what_is_nearer_is_in_front_in_any_order() -> None:
    layers = [
        board(10, left=20, top=2, width=20, height=12, level=0.4),
        wall(2),
        board(16, left=30, top=6, width=20, height=12, level=0.6),
        board(5, left=25, top=0, width=20, height=20, level=0.8),
    ]
    views = render(layers, HEIGHT, WIDTH)
    reversed_views = render(layers[::-1], HEIGHT, WIDTH)
    for part in ("left", "right", "disparity", "right_disparity", "visible"):
        assert torch.equal(getattr(views, part), getattr(reversed_views, part)), part
    assert views.disparity[10, [22, 35, 44]].tolist() == [10, 16, 16]
    assert views.disparity[1, [22, 35]].tolist() == [2, 5]
    assert views.left[0, 10, [22, 35]].tolist() == torch.tensor([0.4, 0.6]).tolist()


def test_a_clip_cuts_both_views_at_the_same_place_of_the_surface() -> None:
    cut = Layer(Surface(6), even(0.8), FLAT, endless=True, clips=((1.0, 0.0, -29.5),))  # from column 30 on
    views = render([wall(2), cut], HEIGHT, WIDTH)
    assert torch.equal(views.disparity[0] == 6, torch.arange(WIDTH) >= 30)
    assert torch.equal(views.right_disparity[0] == 6, torch.arange(WIDTH) >= 24)


def test_the_right_view_of_a_drifting_rig_sees_other_rows() -> None:
    """Right pixel (x, y) shows the left row y + drift, which changes along the width."""
    texture = ramp(2 * HEIGHT, 2 * WIDTH)
    lower = np.array([[1, 0, 0], [0, 1, 10.0], [0, 0, 1]])  # row 0 of the views is texel row 10
    views = render([Layer(Surface(5), texture, lower, endless=True)], HEIGHT, WIDTH, drift=(0.75, -0.5))
    x, y = torch.arange(WIDTH)[None], torch.arange(HEIGHT)[:, None]
    expected = (10 + y + 0.75 - 0.5 * x / WIDTH).expand(HEIGHT, WIDTH)
    torch.testing.assert_close(256 * views.right[1], expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(256 * views.left[1], (10.0 + y).expand(HEIGHT, WIDTH), atol=1e-3, rtol=0)
    assert not views.visible[0, 5:36].any(), "the first row lies above the right view where the drift is 1/2"
    assert views.visible[0, 45:].all()
    assert views.visible[1:, 5:].all()


def test_a_texture_stays_in_place_however_far_it_is_reduced() -> None:
    """A surface 2^k texels a pixel shows the same ramp, whatever the texture's size."""
    for width in (900, 1001, 1023):
        texture = torch.ones(4, 37, width)
        texture[:3] = torch.linspace(0, 1, width)
        for density in (3.0, 8.0, 11.0):
            homography = np.diag([density, 1.0, 1.0])
            views = render([Layer(Surface(1.5), texture, homography, endless=True)], 8, 64)
            columns = torch.arange(10, 60)
            torch.testing.assert_close(
                views.left[0, 4, 10:60], density * columns / (width - 1), atol=1e-4, rtol=0
            )


def test_a_texture_goes_on_mirrored() -> None:
    texture = ramp(4, 10)
    views = render([Layer(Surface(0.0), texture, FLAT, endless=True)], 4, 40, sharpness=1)
    row = list(range(10))
    expected = torch.tensor([*row, *row[::-1], *row, *row[::-1]]) / 256
    torch.testing.assert_close(views.left[0, 2], expected)


def test_soft_edges_blend_and_half_opaque_pixels_are_solid() -> None:
    texture = even(0.8, 8, 8)
    texture[:, :, 0] *= 0.25
    texture[:, :, 7] *= 0.75
    layer = Layer(Surface(6), texture, np.array([[1, 0, -30], [0, 1, -4], [0, 0, 1.0]]), box=(29, 3, 39, 13))
    views = render([wall(2, level=0.4), layer], HEIGHT, WIDTH, sharpness=1)
    torch.testing.assert_close(
        views.left[0, 8, [29, 30, 31, 37, 38]], torch.tensor([0.4, 0.5, 0.8, 0.7, 0.4])
    )
    assert views.disparity[8, [29, 30, 31, 37, 38]].tolist() == [2, 2, 6, 6, 2]


def test_a_pixel_is_made_of_its_centre_and_its_corners() -> None:
    """An edge through a pixel, 1/4 to the left of its centre: its left corners are of the background."""
    cut = Layer(Surface(8), even(1.0), FLAT, endless=True, clips=((1.0, 0.0, -29.75),))
    for sharpness in (1.0, 0.6, 0.0):
        views = render([wall(2, level=0.0), cut], HEIGHT, WIDTH, sharpness=sharpness)
        left, right = views.left[0, 5], views.right[0, 5]
        expected = torch.tensor([0.0, sharpness + (1 - sharpness) / 2, 1.0])
        torch.testing.assert_close(left[29:32], expected)
        torch.testing.assert_close(right[21:24], expected)
        assert views.disparity[5, 28:32].tolist() == [2, 2, 8, 8], "of the centre, whatever the colours"


def test_fine_texture_does_not_alias() -> None:
    """Stripes of 1 texel at 3.7 texels a pixel are an even grey, and a step stays between its two levels."""
    texture = even(1.0, 512, 512)
    texture[:3, :, ::2] = 0
    views = render([Layer(Surface(3.3), texture, np.diag([3.7, 3.7, 1]), endless=True)], 16, 128)
    assert (views.left - 0.5).abs().max() < 0.15
    assert (views.right - 0.5).abs().max() < 0.15


def test_a_decal_moves_with_its_layer_and_hides_nothing() -> None:
    mark = Decal(even(1.0, 4, 6), np.array([[1, 0, -30], [0, 1, -8], [0, 0, 1.0]]))
    marked = Layer(Surface(7), even(0.2), FLAT, endless=True, decals=(mark,))
    views = render([marked], HEIGHT, WIDTH, sharpness=1)
    bright = np.zeros((HEIGHT, WIDTH), bool)
    bright[8:12, 30:36] = True
    assert np.array_equal(views.left[0].numpy() > 0.9, bright)
    assert np.array_equal(views.right[0].numpy() > 0.9, np.roll(bright, -7, 1))
    assert (views.disparity == 7).all()


def test_a_reflection_has_its_own_disparity() -> None:
    glass = torch.cat((torch.zeros(3, 8, 8), torch.ones(1, 8, 8), torch.full((1, 8, 8), 0.5)))
    mirror = Reflection(ramp(HEIGHT, 2 * WIDTH), 3.0, (1.0, 1.0))
    views = render([Layer(Surface(20.0), glass, FLAT, endless=True, reflection=mirror)], HEIGHT, WIDTH)
    columns = torch.arange(1.0, WIDTH).expand(HEIGHT, -1)
    torch.testing.assert_close(256 * views.left[0, :, 1:], 0.5 * columns, atol=1e-3, rtol=0)
    torch.testing.assert_close(256 * views.right[0, :, 1:], 0.5 * (columns + 3), atol=1e-3, rtol=0)
    assert (views.disparity == 20).all()
