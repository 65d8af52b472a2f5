"""Images as cameras give them: blurred, noisy, sharpened, compressed."""

import numpy as np
import pytest
from PIL import Image

from pamcli.errors import UsageError
from pamcli.imaging.degradation import (
    CAMERAS,
    Degradation,
    View,
    compress_jpeg,
    draw_degradation,
    parse_cameras,
    parse_degradation,
)


def step() -> View:
    """A dark half beside a bright one, (64, 64, 3)."""
    view = np.full((64, 64, 3), 60, np.uint8)
    view[:, 32:] = 190
    return view


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("deviation", [2.0, 10.0])
def test_noise_has_the_deviation_that_is_said(deviation: float) -> None:
    change = Degradation(noise=deviation)(step(), rng()).astype(float) - step()
    assert change.std() == pytest.approx(deviation, rel=0.05)
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


def test_kinds_of_cameras() -> None:
    assert parse_cameras("phone, noise3", "--camera") == {
        "phone": CAMERAS["phone"],
        "noise3": Degradation(noise=3),
    }
    assert [*parse_cameras("all", "--camera")] == [*CAMERAS]
    for text, words in {"fone": "did you mean phone?", "dark,dark": "dark twice", "": "unknown kind"}.items():
        with pytest.raises(UsageError) as error:
            parse_cameras(text, "--camera")
        assert words in f"{error.value} {error.value.hint}"


def test_a_jpeg_is_that_of_the_library_and_worse_with_less_quality() -> None:
    texture = rng(3).integers(0, 256, (64, 64, 3), np.uint8)
    errors = [
        np.abs(compress_jpeg(texture, quality).astype(float) - texture).mean() for quality in (95, 75, 60)
    ]
    assert errors == sorted(errors)
    assert np.abs(compress_jpeg(texture, 95, whole_colours=True) - texture.astype(float)).mean() < errors[0]
    assert Image.fromarray(compress_jpeg(texture, 75)).size == (64, 64)


def test_cameras_differ_and_are_drawn_from_their_ranges() -> None:
    drawn = [draw_degradation(rng(seed)) for seed in range(300)]
    assert len(set(drawn)) > 250
    qualities = [each.jpeg for each in drawn if each.jpeg is not None]
    assert 0.65 < len(qualities) / 300 < 0.85
    assert 60 <= min(qualities) < 65
    assert 90 < max(qualities) <= 95
    assert max(each.noise for each in drawn) <= 12
    assert sum(each == Degradation(whole_colours=each.whole_colours) for each in drawn) < 60
    assert draw_degradation(rng(5)) == draw_degradation(rng(5))


def test_what_a_camera_does_is_read_and_said() -> None:
    read = parse_degradation("jpeg=75, noise=2.5", "--degrade")
    assert read == Degradation(noise=2.5, jpeg=75)
    assert parse_degradation(str(read), "--degrade") == read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jpg=75", "did you mean jpeg?"),
        ("jpeg", "'jpeg' is not a valid setting"),
        ("jpeg=75,jpeg=80", "each once"),
        ("jpeg=7.5", "must be an integer"),
        ("noise=much", "noise must be a number"),
        ("jpeg=0", "jpeg must be from 1 to 100"),
        ("noise=-1", "noise must be from 0 to 100"),
        ("got nan", "got nan"),
    ],
)
def test_what_is_no_degradation(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_degradation(text, "--degrade")
    assert words in f"{error.value} {error.value.hint}"
