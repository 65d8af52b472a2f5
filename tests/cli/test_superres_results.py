"""Results of `pam superres`, and the weights that its input needs."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse_all, succeed
from PIL import Image, ImageCms
from video_files import write_video

import pamcli
from pamcli.errors import UsageError
from pamcli.imaging.degradation import Degradation
from pamcli.imaging.images import RgbImage, encode_image, read_image
from pamcli.imaging.resize import imresize_to
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_UPSCALING

pytestmark = pytest.mark.usefixtures("remembering_networks")

PAIR = ["left.png", "right.png"]


def larger(scale: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """What the Python interface makes of left.png and right.png."""
    left, right = (read_image(Path(name)).pixels for name in PAIR)
    return StereoUpscaler.load(DEFAULT_UPSCALING[scale], device="cpu")(left, right)


def larger_left(scale: int = 2) -> np.ndarray:
    """The left image alone, which may differ by a rounding from that of both."""
    left, right = (read_image(Path(name)).pixels for name in PAIR)
    return StereoUpscaler.load(DEFAULT_UPSCALING[scale], device="cpu").upscale_left(left, right)


def rewrite(change: Callable[[RgbImage, int], RgbImage]) -> list[RgbImage]:
    """Replace left.png and right.png by what `change` makes of them and of their numbers."""
    pictures = []
    for number, name in enumerate(PAIR):
        pictures.append(change(read_image(Path(name)), number))
        Path(name).write_bytes(encode_image(pictures[-1], ".png", name=name))
    return pictures


def test_both_images(small_pair: Path) -> None:
    run = pam("superres", *PAIR, "--scale", "2", "-o", "l.png", "--output-right", "r.tif")
    assert (run.code, run.lines, run.stderr) == (0, ["l.png", "r.tif"], "")
    run = pam("superres", *PAIR, "--scale", "2", "-o", "out/", "--format", "webp")
    assert run.lines == ["out/left.webp", "out/right.webp"]
    left, right = larger()
    assert left.shape == (64, 96, 3)
    for names_of_side, pixels in ((("l.png", "out/left.webp"), left), (("r.tif", "out/right.webp"), right)):
        assert all(np.array_equal(np.asarray(Image.open(name)), pixels) for name in names_of_side)


def test_other_scales_are_the_next_networks_reduced(small_pair: Path) -> None:
    """Also the transparency, which each view keeps."""
    random = np.random.default_rng(5)
    sources = rewrite(
        lambda picture, _: RgbImage(picture.pixels, random.integers(0, 256, (32, 48), dtype=np.uint8))
    )
    run = succeed("superres", *PAIR, "--scale", "1.7", "-o", "l.png", "--output-right", "r.webp")
    assert run.stderr == ""
    for name, source, view in zip(("l.png", "r.webp"), sources, larger(2), strict=True):
        found = read_image(Path(name))
        assert np.array_equal(found.pixels, imresize_to(view, 82, 55))  # 81.6 x 54.4, rounded up
        assert np.array_equal(found.alpha, imresize_to(source.alpha, 82, 55))


def test_one_image(small_pair: Path) -> None:
    assert pam("superres", *PAIR, "--scale", "2", "-o", "l.png").lines == ["l.png"]
    assert np.array_equal(np.asarray(Image.open("l.png")), larger_left())
    assert pam("superres", *PAIR, "--scale", "2", "--output-right", "r.png").lines == ["r.png"]
    assert np.array_equal(np.asarray(Image.open("r.png")), larger()[1])
    assert names(".") == ["l.png", "left.png", "r.png", "right.png"]


def test_bytes_on_stdout(small_pair: Path) -> None:
    run = pam("superres", *PAIR, "--scale", "2", "-o", "-")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["PNG"])), larger_left())
    left, right = larger()
    run = pam("superres", *PAIR, "--scale", "2", "-o", "-", "--format", "tif", "--output-right", "r.png")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["TIFF"])), left)
    assert np.array_equal(np.asarray(Image.open("r.png")), right)
    run = pam("superres", *PAIR, "--scale", "2", "--output-right", "-")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["PNG"])), right)


def test_16_bits(small_pair: Path) -> None:
    """Also of grey images, which stay grey."""
    rewrite(lambda picture, _: RgbImage(picture.pixels.astype(np.uint16) * 255 + 77))
    succeed("superres", *PAIR, "--scale", "2", "-o", "l.tif")
    written = read_image(Path("l.tif")).pixels
    assert written.dtype == np.uint16
    assert len(np.unique(written % 256)) == 256
    assert np.array_equal(written, larger_left())
    for name in PAIR:
        Image.open(name).convert("L").save(name)
    succeed("superres", *PAIR, "--scale", "2", "-o", "grey.png")
    assert read_image(Path("grey.png")).grey


def test_each_image_keeps_its_colour_profile_and_dpi(small_pair: Path) -> None:
    profiles = [ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes() for name in ("sRGB", "LAB")]
    rewrite(lambda picture, number: RgbImage(picture.pixels, icc_profile=profiles[number], dpi=(300, 300)))
    succeed("superres", *PAIR, "--scale", "2", "-o", "l.jpg", "--output-right", "r.png")
    for name, profile in zip(("l.jpg", "r.png"), profiles, strict=True):
        written = read_image(Path(name))
        assert written.icc_profile == profile
        assert written.dpi == pytest.approx((300, 300), abs=0.02)


def test_both_in_one_image(small_pair: Path) -> None:
    left, right = larger()
    run = pam("superres", *PAIR, "--scale", "2", "-o", "l.png", "--output-packed", "both.png")
    assert run.lines == ["l.png", "both.png"]
    assert np.array_equal(np.asarray(Image.open("both.png")), np.concatenate([left, right], axis=1))
    packing = ["--packing", "red-cyan"]
    succeed("superres", *PAIR, "--scale", "2", "--output-packed", "glasses.png", *packing)
    seen = np.asarray(Image.open("glasses.png"))
    assert np.array_equal(seen, np.concatenate([left[..., :1], right[..., 1:]], axis=2))


def test_quality_of_jpeg_and_webp(small_pair: Path) -> None:
    for suffix in ("jpg", "webp"):
        succeed("superres --scale 2", *PAIR, "-o", f"usual.{suffix}")
        succeed("superres --scale 2", *PAIR, "-o", f"low.{suffix}", "--quality", "30")
        assert Path(f"low.{suffix}").stat().st_size < 0.5 * Path(f"usual.{suffix}").stat().st_size
    mixed = ["-o", "both/", "--output-packed", "p.jpg", "--quality", "30"]
    lines = pam("superres", *PAIR, "--scale", "2", *mixed).lines
    assert lines == ["both/left.png", "both/right.png", "p.jpg"]


def test_an_ensemble_is_finer_and_another_image(small_pair: Path) -> None:
    succeed("superres", *PAIR, "--scale", "2", "--ensemble", "-o", "e.png")
    views = [read_image(Path(name)).pixels for name in PAIR]
    four = StereoUpscaler.load(DEFAULT_UPSCALING[2], device="cpu", ensemble=True).upscale_left(*views)
    assert np.array_equal(np.asarray(Image.open("e.png")), four)
    assert not np.array_equal(four, larger_left())


@pytest.fixture
def network_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StereoUpscaler, "__call__", None)
    monkeypatch.setattr(StereoUpscaler, "upscale_left", None)


@pytest.mark.usefixtures("network_never_runs")
def test_what_a_format_cannot_hold_is_refused_before_the_network_runs(small_pair: Path) -> None:
    for name in PAIR:
        Image.open(name).convert("RGBA").save(name)
    deep = Image.fromarray(np.zeros((32, 48), np.uint16))
    for name in ("deep_left.png", "deep_right.png"):
        deep.save(name)
        Image.new("RGB", (8192, 8)).save(f"wide_{name}")
    table = """
        2 left.png right.png -o l.jpg | cannot write l.jpg | alpha | use .png or .tif
        2 left.png right.png -o l.png --output-right r.JPEG | cannot write r.JPEG | alpha
        2 left.png right.png -o out/ --format jpg | cannot write out/left.jpg | alpha
        2 left.png right.png -o - --format jpg | cannot write standard output | alpha
        2 deep_left.png deep_right.png -o l.jpg | cannot write l.jpg | 16 bits | use .png or .tif
        2 wide_deep_left.png wide_deep_right.png -o l.webp | l.webp: 32768x32 exceeds the limit of 16383 px
    """
    refuse_all(table, "superres")


PNG, JPG, NOISY = (["left.png", "right.png"], ["left.jpg", "right.jpg"], ["noisy.png", "right.png"])
SAID = "pam: left.jpg: JPEG quality 60: using the weights for camera images (--input clean disables this)\n"


@pytest.fixture
def pictures(small_pair: Path) -> None:
    """The pair as it is, as JPEG, and with a noisy left view."""
    for clean, compressed in zip(PNG, JPG, strict=True):
        Image.open(clean).save(compressed, quality=60)
    noisy = Degradation(noise=15)(read_image(Path("left.png")).pixels, np.random.default_rng(0))
    Image.fromarray(noisy).save("noisy.png")


def upscaled(pair: list[str], weights: str) -> np.ndarray:
    """What the weights of that name make of the left view."""
    views = (read_image(Path(name)).pixels for name in pair)
    return StereoUpscaler.load(weights, device="cpu").upscale_left(*views)


def made(*arguments: str) -> tuple[np.ndarray, str]:
    """The left view that the command wrote, and what it said."""
    run = succeed("superres", *arguments, "-o", "l.png", "--overwrite")
    return read_image(Path("l.png")).pixels, run.stderr


@pytest.mark.usefixtures("pictures")
def test_a_jpeg_gets_the_weights_for_cameras_and_a_clean_image_its_own() -> None:
    view, said = made(*JPG)
    np.testing.assert_array_equal(view, upscaled(JPG, CAMERA_UPSCALING[4]))
    assert said == SAID
    view, said = made(*PNG)
    np.testing.assert_array_equal(view, upscaled(PNG, DEFAULT_UPSCALING[4]))
    assert said == ""
    view, said = made(*NOISY)
    np.testing.assert_array_equal(view, upscaled(NOISY, CAMERA_UPSCALING[4]))
    assert said.startswith("pam: noisy.png: noise of 1"), "noise in one view is enough"


@pytest.mark.usefixtures("pictures")
def test_it_can_be_said() -> None:
    view, said = made(*PNG, "--input", "camera")
    np.testing.assert_array_equal(view, upscaled(PNG, CAMERA_UPSCALING[4]))
    assert said == ""
    view, said = made(*JPG, "--input", "clean")
    np.testing.assert_array_equal(view, upscaled(JPG, DEFAULT_UPSCALING[4]))
    assert said == ""
    view, _ = made(*JPG, "--scale", "2")
    np.testing.assert_array_equal(view, upscaled(JPG, CAMERA_UPSCALING[2]))


@pytest.mark.usefixtures("pictures")
def test_a_batch_of_both_says_it_once_and_jsonl_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pamcli.batch.run.count_threads", lambda batch: 4)
    loaded = []
    load = StereoUpscaler.from_settings.__func__  # type: ignore[attr-defined]

    def counted(cls: type[StereoUpscaler], settings: object, path: Path) -> object:
        loaded.append(path.stem)
        time.sleep(0.2)  # in which another thread would load it, too
        return load(cls, settings, path)

    monkeypatch.setattr(StereoUpscaler, "from_settings", classmethod(counted))
    pairs = [PNG, JPG, PNG, JPG]
    Path("pairs.tsv").write_text("".join("\t".join(pair) + f"\t{n}.png\n" for n, pair in enumerate(pairs)))
    run = succeed("superres", "--pairs", "pairs.tsv", "--scale", "2", "--jsonl")
    assert [record["input"] for record in run.records] == ["clean", "camera", "clean", "camera"]
    assert [record["input_shows"] for record in run.records[:2]] == [None, "left.jpg: JPEG quality 60"]
    assert run.stderr == SAID + "pam: 4 ok\n"
    assert loaded == [DEFAULT_UPSCALING[2], CAMERA_UPSCALING[2]]


@pytest.mark.usefixtures("pictures")
def test_from_python() -> None:
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", scale=2, input="clean")
    assert outcome.facts["input"] == "clean"
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", scale=2)
    assert outcome.facts["input"] == "camera"
    (outcome,) = pamcli.upscale_files(*JPG, output="-", device="cpu", weights="passrnet2-x2")
    assert "input" not in outcome.facts
    with pytest.raises(UsageError, match=r"`input` 'raw' .*one of clean, camera, auto"):
        pamcli.upscale_files(*JPG, output="-", input="raw")  # type: ignore[arg-type]


@pytest.mark.usefixtures("pictures")
def test_a_video_has_one_network_wherever_a_run_begins() -> None:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    noisy, clean, right = (np.asarray(Image.open(f"{name}.png")) for name in ("noisy", "left", "right"))
    write_video(Path("left.mkv"), [noisy, clean, clean])
    write_video(Path("right.mkv"), [right] * 3)
    for part in ("1/3", "2/3", "3/3"):
        run = pam("superres", "left.mkv", "right.mkv", "-o", "out/", "--shard", part, "--jsonl")
        assert [record["input"] for record in run.records] == ["camera"]
