"""pam superres --input: the weights for clean images, or those for images with cameras' faults."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from pam_program import pam
from PIL import Image
from video_files import write_video

import pamcli
from pamcli.errors import UsageError
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import read_image
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_UPSCALING

pytestmark = pytest.mark.usefixtures("remembering_networks")

PNG, JPG, NOISY = (["left.png", "right.png"], ["left.jpg", "right.jpg"], ["noisy.png", "right.png"])
SAID = "pam: left.jpg: JPEG quality 60: using the weights for camera images (--input clean disables this)\n"


@pytest.fixture(autouse=True)
def pictures(small_pair: Path) -> None:
    """The pair as it is, as JPEG, and with a noisy left view."""
    for clean, compressed in zip(PNG, JPG, strict=True):
        Image.open(clean).save(compressed, quality=60)
    noisy = Degradation(noise=15)(read_image(Path("left.png")).pixels, np.random.default_rng(0))
    Image.fromarray(noisy).save("noisy.png")


def larger(pair: list[str], weights: str) -> np.ndarray:
    """What the weights of that name make of the left view."""
    views = (read_image(Path(name)).pixels for name in pair)
    return StereoUpscaler.load(weights, device="cpu").upscale_left(*views)


def made(*arguments: str) -> tuple[np.ndarray, str]:
    """The left view that the command wrote, and what it said."""
    run = pam("superres", *arguments, "-o", "l.png", "--overwrite")
    assert run.code == 0, run.stderr
    return read_image(Path("l.png")).pixels, run.stderr


def test_a_jpeg_gets_the_weights_for_cameras_and_a_clean_image_its_own() -> None:
    view, said = made(*JPG)
    np.testing.assert_array_equal(view, larger(JPG, CAMERA_UPSCALING[4]))
    assert said == SAID
    view, said = made(*PNG)
    np.testing.assert_array_equal(view, larger(PNG, DEFAULT_UPSCALING[4]))
    assert said == ""


def test_noise_in_one_view_is_enough() -> None:
    view, said = made(*NOISY)
    np.testing.assert_array_equal(view, larger(NOISY, CAMERA_UPSCALING[4]))
    assert said.startswith("pam: noisy.png: noise of 1")


def test_it_can_be_said() -> None:
    view, said = made(*PNG, "--input", "camera")
    np.testing.assert_array_equal(view, larger(PNG, CAMERA_UPSCALING[4]))
    assert said == ""
    view, said = made(*JPG, "--input", "clean")
    np.testing.assert_array_equal(view, larger(JPG, DEFAULT_UPSCALING[4]))
    assert said == ""
    view, _ = made(*JPG, "--scale", "2")
    np.testing.assert_array_equal(view, larger(JPG, CAMERA_UPSCALING[2]))


@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_of_both_says_it_once_and_jsonl_of_each(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamcli.batch.run.count_threads", lambda batch: threads)
    loaded = []
    load = StereoUpscaler.load.__func__  # type: ignore[attr-defined]

    def counted(cls: type[StereoUpscaler], weights: object, **settings: object) -> object:
        loaded.append(Path(str(weights)).stem)
        time.sleep(0.2)  # in which another thread would load it, too
        return load(cls, weights, **settings)

    monkeypatch.setattr(StereoUpscaler, "load", classmethod(counted))
    pairs = [PNG, JPG, PNG, JPG]
    Path("pairs.tsv").write_text("".join("\t".join(pair) + f"\t{n}.png\n" for n, pair in enumerate(pairs)))
    run = pam("superres", "--pairs", "pairs.tsv", "--scale", "2", "--jsonl")
    assert run.code == 0, run.stderr
    assert [record["input"] for record in run.records] == ["clean", "camera", "clean", "camera"]
    assert [record["input_shows"] for record in run.records[:2]] == [None, "left.jpg: JPEG quality 60"]
    assert run.stderr == SAID + "pam: 4 ok\n"
    assert loaded == [DEFAULT_UPSCALING[2], CAMERA_UPSCALING[2]]


def test_from_python() -> None:
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", scale=2, input="clean")
    assert outcome.facts["input"] == "clean"
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", scale=2)
    assert outcome.facts["input"] == "camera"
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", weights="passrnet2-x2")
    assert "input" not in outcome.facts
    with pytest.raises(UsageError, match=r"`input` 'raw' .*one of clean, camera, auto"):
        pamcli.upscale_files(*JPG, output="-", input="raw")  # type: ignore[arg-type]


def test_a_video_has_one_network_wherever_a_run_begins() -> None:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    noisy, clean, right = (np.asarray(Image.open(f"{name}.png")) for name in ("noisy", "left", "right"))
    write_video(Path("left.mkv"), [noisy, clean, clean])
    write_video(Path("right.mkv"), [right] * 3)
    for part in ("1/3", "2/3", "3/3"):
        run = pam("superres", "left.mkv", "right.mkv", "-o", "out/", "--shard", part, "--jsonl")
        assert [record["input"] for record in run.records] == ["camera"]
