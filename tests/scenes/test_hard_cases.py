"""Scenes of what matchers fail at: they occur as often as asked for, and their truth is as exact as any."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pamcli.data.open import open_data
from pamcli.errors import UsageError
from pamcli.scenes import thin_objects
from pamcli.scenes.hard_cases import CASES, NONE, HardCases
from pamcli.scenes.render import Views, render
from pamcli.scenes.scene import make_scene, scene_pair
from pamcli.scenes.solids import Camera
from pamcli.scenes.stage import Stage
from pamcli.scenes.surfaces import Surface
from pamcli.scenes.textures import TextureLibrary

MADE_UP = TextureLibrary()
HEIGHT, WIDTH = 96, 192
GROWN = {
    "twigs": thin_objects.add_twigs,
    "wires": thin_objects.add_wires,
    "fences": thin_objects.add_fences,
    "foliage": thin_objects.add_foliage,
}


def drawn(case: str, number: int) -> Views:
    scene = make_scene(np.random.default_rng((5, number)), MADE_UP, HEIGHT, WIDTH, frozenset({case}))
    return render(scene.layers, HEIGHT, WIDTH)  # without drift


def at_match(of_right: torch.Tensor, disparity: torch.Tensor) -> torch.Tensor:
    """What the right view has at the column nearest to each left pixel's match."""
    columns = (torch.arange(WIDTH) - disparity).round().clamp(0, WIDTH - 1).long()
    return of_right.gather(1, columns)


def pair(number: int, **shares: float) -> Views:
    return scene_pair(MADE_UP, 3, number, HEIGHT, WIDTH, HardCases(**shares))


def test_every_case_occurs_as_often_as_its_share_says() -> None:
    rng = np.random.default_rng(0)
    hard = HardCases(tunnels=0.1, corridors=0.2, walls=0.3, dark=0.4, rain=1.0)
    found = [hard.draw_cases(rng) for _ in range(2000)]
    for name in CASES:
        share = np.mean([name in cases for cases in found])
        assert abs(share - getattr(hard, name)) < 0.05, name
    assert max(len(cases & {"tunnels", "corridors", "walls"}) for cases in found) == 1
    assert NONE.draw_cases(rng) == frozenset()


@pytest.mark.parametrize(
    "case", ["tunnels", "corridors", "walls", "floors", "glossy", "twigs", "wires", "fences", "foliage"]
)
def test_visible_pixels_have_their_disparity_in_the_right_image(case: str) -> None:
    nearer_than_hidden = []
    for number in range(2):
        views = drawn(case, number)
        for disparity in (views.disparity, views.right_disparity):
            assert disparity.isfinite().all()
            assert disparity.min() >= 0, "nothing lies uncovered"
        inside = (torch.arange(WIDTH) - views.disparity).round() >= 0
        nearer = at_match(views.right_disparity, views.disparity) - views.disparity
        assert (nearer.abs() < 1)[views.visible].float().mean() > 0.99
        assert not views.visible[~inside].any()
        nearer_than_hidden.append(nearer[inside & ~views.visible])
    # The rest are at outlines, where rounding to the nearest column leads past the edge.
    assert (torch.cat(nearer_than_hidden) > 0).float().mean() > 0.85


def one_wall(case: str, seed: int) -> Stage:
    """A stage with nothing but a wall far behind."""
    camera = Camera(float(WIDTH), (WIDTH / 2, HEIGHT / 2), 0.0, (WIDTH, HEIGHT))
    stage = Stage(np.random.default_rng(seed), MADE_UP, HEIGHT, WIDTH, 40.0, camera, frozenset({case}))
    stage.add_backdrop(Surface(2.0))
    return stage


@pytest.mark.parametrize("case", GROWN)
def test_thin_objects_have_the_disparity_of_their_planes(case: str) -> None:
    grown = 0
    for seed in range(3):
        stage = one_wall(case, seed)
        GROWN[case](stage)
        views = render(stage.layers, HEIGHT, WIDTH)
        x, y = torch.arange(WIDTH)[None].float(), torch.arange(HEIGHT)[:, None].float()
        planes = torch.stack([layer.surface.disparity(x, y) + 0 * x * y for layer in stage.layers])
        nearest = (planes - views.disparity).abs().amin(0)
        assert nearest.max() < 1e-3, "every pixel lies on one of the surfaces"
        covered = (views.disparity - 2.0).abs() > 1e-3
        assert (views.disparity[covered] > 0).all()
        grown += int(covered.sum())
        wall = render(stage.layers[:1], HEIGHT, WIDTH)
        far = ~torch.nn.functional.max_pool2d(covered[None].float(), 3, 1, 1)[0].bool()
        alike = (views.left - wall.left).abs().amax(0) < 0.35
        assert alike[far].float().mean() > 0.9, "what has the wall's disparity looks like the wall"
    assert grown > 3 * 40


def test_the_dark_the_sun_and_rain_leave_the_truth_as_it_is() -> None:
    plain = pair(0)
    for case in ("dark", "flares", "rain"):
        hard = pair(0, **{case: 1.0})
        for part in ("disparity", "right_disparity", "visible"):
            assert np.array_equal(getattr(plain, part), getattr(hard, part))
        assert (plain.left != hard.left).mean() > 0.02, case
        assert (hard.left.mean() > plain.left.mean()) == (case != "dark")


def test_rain_and_noise_are_unlike_in_both_views() -> None:
    """An even wall, where the views are alike."""
    from pamcli.scenes.weather import add_rain, underexpose

    even = np.full((64, 128, 3), 100, np.uint8)
    rng = np.random.default_rng(2)
    for change in (
        lambda: add_rain(rng, even, 80, 0.1, 250.0, 0.0),
        lambda: underexpose(rng, even, 0.2, 2.0, 4.0),
    ):
        left, right = change().astype(float), change().astype(float)
        assert left.std() > 1
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 0.2
    lifted = underexpose(rng, even, 0.2, 0.0, 4.0)
    assert (lifted == 80).all(), "a fifth of the light, rounded, times 4"


def test_tunnels_are_dark_with_lamps_brighter_than_white() -> None:
    dark, lamps = [], 0
    for number in range(6):
        views = drawn("tunnels", number)
        dark.append(float((views.left.mean(0) < 0.35).float().mean()))
        lamps += int((views.left.amax(0) > 1.2).sum())
    assert np.mean(dark) > 0.5
    assert lamps > 20


def test_a_data_set_says_what_its_scenes_have() -> None:
    dark, usual = (open_data(f"procedural{keys}").render(1, 2, 48, 96) for keys in ("?dark=1", ""))
    assert np.array_equal(dark.disparity, usual.disparity)  # type: ignore[arg-type]
    assert not np.array_equal(dark.left, usual.left)
    few = open_data("procedural?hard=0.5&dark=0&first=3&size=960x512")
    assert len(few) == 3
    assert few._hard == HardCases(**dict.fromkeys(CASES, 0.5) | {"dark": 0.0})


@pytest.mark.parametrize("text", ["2", "-0.1", "often", "nan"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"walls must be a share of the scenes from 0 to 1"):
        open_data(f"procedural?walls={text}")
