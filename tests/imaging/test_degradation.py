"""Images as cameras give them: blurred, noisy, sharpened, compressed."""

import numpy as np
import pytest

from pamcli.errors import UsageError
from pamcli.imaging.degradation import (
    Degradation,
    View,
    draw_degradation,
    parse_degradation,
)


def step() -> View:
    """A dark half beside a bright one, (64, 64, 3)."""
    view = np.full((64, 64, 3), 60, np.uint8)
    view[:, 32:] = 190
    return view


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_noise_has_the_deviation_that_is_said() -> None:
    change = Degradation(noise=10)(step(), rng()).astype(float) - step()
    assert change.std() == pytest.approx(10, rel=0.05)
    assert abs(change.mean()) < 0.2
    np.testing.assert_array_equal(Degradation()(step(), rng()), step())


def test_blur_widens_an_edge_and_sharpening_overshoots() -> None:
    soft, sharp = (
        made(step(), rng())[32, :, 0].astype(int)
        for made in (Degradation(blur=0.7), Degradation(sharpening=0.8))
    )
    assert 60 < soft[31] < 190
    assert soft.min() == 60
    assert sharp.max() > 195
    assert sharp.min() < 55


def test_resolution_exposure_and_denoising() -> None:
    stripes = np.broadcast_to(np.where(np.arange(64) % 2, 190, 60)[:, None], (64, 64, 3)).astype(np.uint8)
    assert np.ptp(Degradation(resolution=0.5)(stripes, rng()).astype(int)) <= 1, "finer than it resolves"
    np.testing.assert_array_equal(Degradation(exposure=0.5)(step(), rng()), step() // 2)
    noisy, denoised = (
        made(step(), rng()).astype(float) - step()
        for made in (Degradation(noise=6), Degradation(noise=6, denoising=18))
    )
    assert denoised.std() < 0.7 * noisy.std(), "noise is reduced, and the edge stays"


def test_cameras_differ_and_are_drawn_from_their_ranges() -> None:
    drawn = [draw_degradation(rng(seed)) for seed in range(300)]
    assert len(set(drawn)) > 250
    qualities = [each.jpeg for each in drawn if each.jpeg is not None]
    assert 60 <= min(qualities) < max(qualities) <= 95
    assert max(each.noise for each in drawn) <= 12
    assert draw_degradation(rng(5)) == draw_degradation(rng(5))
    read = parse_degradation("jpeg=75, noise=2.5", "--degrade")
    assert read == Degradation(noise=2.5, jpeg=75) == parse_degradation(str(read), "--degrade")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jpeg=75,jpeg=80", "each once"),
        ("jpeg=7.5", "must be an integer"),
        ("noise=much", "noise must be a number"),
        ("jpeg=0", "jpeg must be from 1 to 100"),
    ],
)
def test_what_is_no_degradation(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_degradation(text, "--degrade")
    assert words in f"{error.value} {error.value.hint}"
