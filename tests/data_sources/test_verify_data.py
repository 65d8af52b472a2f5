"""Verification finds each fault that was planted, and nothing on a sound set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.source import Sample, Source
from pamcli.data.verify import check_before_training, fit_readings, judge
from pamcli.errors import InputError
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.raster import encode_png

HEIGHT, WIDTH = 60, 160

MISMATCH = "the ground truth does not match the images"


def scene(seed: int = 0) -> Sample:
    """A slanted wall with a box before it, seen by both cameras: left (y, x) = right (y, x - disparity)."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    disparity = 8 + rows / 10 + columns / 20
    disparity[10:35, 90:130] = 24
    right = random.integers(0, 256, (HEIGHT, WIDTH)).astype(np.float64)
    for _ in range(2):  # smooth enough for sub-pixel warping
        right = (np.roll(right, 1, axis=1) + 2 * right + np.roll(right, -1, axis=1)) / 4
    places = np.clip(columns - disparity, 0, WIDTH - 1)
    left = np.stack([np.interp(places[y], np.arange(WIDTH), right[y]) for y in range(HEIGHT)])
    views = (np.repeat(np.rint(view)[..., None], 3, axis=2).astype(np.uint8) for view in (left, right))
    return Sample("scene", *views, disparity=disparity.astype(np.float32))


def stored(root: Path, *samples: Sample) -> Source:
    """The samples as `pairs`, called 0, 1 ..."""
    for folder in ("left", "right", "disparity"):
        (root / folder).mkdir(exist_ok=True)
    for number, sample in enumerate(samples):
        (root / f"left/{number}.png").write_bytes(encode_png(sample.left))
        (root / f"right/{number}.png").write_bytes(encode_png(sample.right))
        (root / f"disparity/{number}.pfm").write_bytes(encode_disparity(sample.disparity, ".pfm").data)
    return open_data(f"pairs:{root}")


def with_truth(sample: Sample, disparity: np.ndarray) -> Sample:
    return Sample(sample.name, sample.left, sample.right, disparity=disparity.astype(np.float32))


def test_ground_truth_of_unknown_scale_names_the_key(tmp_path: Path) -> None:
    source = stored(tmp_path, scene())
    (tmp_path / "disparity/0.pfm").unlink()
    Image.fromarray(scene().disparity.astype(np.uint8)).save(tmp_path / "disparity/0.png")
    with pytest.raises(InputError, match=r"of unknown scale .*with the key \?scale=N"):
        open_data(source.spec.text).load(0)
    assert open_data(f"{source.spec.text}?scale=1").load(0).disparity[0, 0] == 8


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda d: d / 2, "it matches when multiplied by 2"),
        (lambda d: d / 256, "it matches when multiplied by 256"),
        (lambda d: -d, "its sign is wrong"),
        (lambda d: d[:, ::-1], "it is mirrored"),
        (lambda d: d[::-1], "it is upside down"),
    ],
)
def test_ground_truth_that_does_not_warp_right_onto_left(fault, message: str) -> None:  # type: ignore[no-untyped-def]
    sound = scene()
    said = judge(with_truth(sound, fault(sound.disparity)))
    assert said.startswith(f"the ground truth does not match the images: {message}")


def test_exchanged_and_mirrored_views() -> None:
    left, right, truth = scene().left, scene().right, scene().disparity
    exchanged = judge(Sample("x", right, left, disparity=truth))
    assert "left and right image are exchanged" in exchanged
    mirrored = judge(Sample("x", left[:, ::-1], right[:, ::-1], disparity=truth))
    assert mirrored == f"{MISMATCH}: the images are mirrored, but it is not"
    # The scene turned about: what was the left view, with its truth, is the right one of the mirrored pair.
    turned = Sample("x", right[:, ::-1], left[:, ::-1])
    said = judge(replace(turned, disparity=truth[:, ::-1]))
    assert said == f"{MISMATCH}: it is the ground truth of the right image"
    assert judge(replace(turned, right_disparity=truth[:, ::-1])) is None
    said = judge(replace(turned, right_disparity=2 * truth[:, ::-1]))
    assert said == f"right image: {MISMATCH}: it matches when multiplied by 0.5"


def test_a_smooth_scene_is_not_taken_for_the_right_image() -> None:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    disparity, right = 6 + rows / 10 + columns / 20, scene().right
    left = [np.interp(columns[0] - disparity[y], columns[0], right[y, :, 0]) for y in range(HEIGHT)]
    view = np.repeat(np.rint(left)[..., None], 3, axis=2).astype(np.uint8)
    biased = with_truth(Sample("x", view, right), disparity + 0.8)
    own, *others = fit_readings(biased)
    nearest = min(others, key=lambda fit: fit.error)
    assert nearest.reading == "it is the ground truth of the right image"
    assert nearest.error < 0.9 * own.error
    assert judge(biased) is None


def disparity_of_another_pair() -> np.ndarray:
    return np.random.default_rng(3).uniform(2, 40, (HEIGHT, WIDTH))


def test_other_ground_truths_than_the_pair_has() -> None:
    sound = scene()
    said = judge(with_truth(sound, disparity_of_another_pair()))
    assert said == f"{MISMATCH}, whether scaled, negated, mirrored or exchanged"
    nothing, mixed = np.full((HEIGHT, WIDTH), np.nan), sound.disparity.copy()
    mixed[: HEIGHT // 4] *= -1
    assert judge(with_truth(sound, nothing)) == "the ground truth is unknown at every pixel"
    assert judge(with_truth(sound, mixed)) == "25% of the disparities are negative"
    sparse = np.where(np.random.default_rng(1).random((HEIGHT, WIDTH)) < 0.1, sound.disparity, np.nan)
    assert judge(with_truth(sound, sparse)) is None
    assert judge(with_truth(sound, sparse * 2)) == f"{MISMATCH}: it matches when multiplied by 0.5"


def test_flat_noisy_darker_and_16_bit_images_are_no_fault() -> None:
    sound, flat = scene(), np.full((HEIGHT, WIDTH, 3), 127, np.uint8)
    noise = np.random.default_rng(5).normal(127, 1, (2, HEIGHT, WIDTH, 1)).repeat(3, axis=3).astype(np.uint8)
    darker = (sound.right * 0.7).astype(np.uint8)
    deep = [view.astype(np.uint16) * 257 for view in (sound.left, sound.right)]
    for left, right in ((flat, flat), noise, (sound.left, darker), deep):
        assert judge(Sample("x", left, right, disparity=sound.disparity)) is None


def test_ground_truth_in_another_unit_stops_training(tmp_path: Path) -> None:
    flat = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)  # cannot be tested
    samples = [*map(scene, range(3)), replace(scene(), left=flat, right=flat)]
    source = stored(tmp_path, *samples)
    for number, sample in enumerate(samples):
        (tmp_path / f"disparity/{number}.pfm").unlink()
        disparity = Image.fromarray(np.rint(8 * sample.disparity).astype(np.uint16))  # read as 1/256 px
        disparity.save(tmp_path / f"disparity/{number}.png")
    with pytest.raises(InputError, match=r"in 3 of 4 tested pairs.*add the key scale=8"):
        check_before_training(open_data(source.spec.text))


def test_ground_truth_of_other_pairs_is_a_warning(tmp_path: Path) -> None:
    samples = [with_truth(scene(seed), disparity_of_another_pair()) for seed in range(3)]
    assert "pam dataset verify" in check_before_training(stored(tmp_path, *samples))
    assert check_before_training(stored(tmp_path, scene(0), scene(1), samples[2])) is None
