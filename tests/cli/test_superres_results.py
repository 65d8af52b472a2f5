"""Tests of the results of `pam superres`: upscaled images with depth, transparency and profile kept."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pam_program import names, pam, refuse, unchanged
from PIL import Image, ImageCms

from pamcli.imaging.images import RgbImage, encode_image, read_image
from pamcli.imaging.resize import imresize, imresize_to
from pamcli.inference.upscaler import StereoUpscaler
from pamcli.registry.catalog import DEFAULT_UPSCALING

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


# --- which images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2, 4])
def test_both_images(small_pair: Path, scale: int) -> None:
    run = pam("superres", *PAIR, "--scale", str(scale), "-o", "l.png", "--output-right", "r.tif")
    assert (run.code, run.lines, run.stderr) == (0, ["l.png", "r.tif"], "")
    left, right = larger(scale)
    assert left.shape == (32 * scale, 48 * scale, 3)
    assert np.array_equal(np.asarray(Image.open("l.png")), left)
    assert np.array_equal(np.asarray(Image.open("r.tif")), right)


@pytest.mark.parametrize(("scale", "network"), [(3, 4), (1.5, 2)])
def test_other_scales_are_the_next_networks_reduced(small_pair: Path, scale: float, network: int) -> None:
    run = pam("superres", *PAIR, "--scale", str(scale), "-o", "l.png", "--output-right", "r.png")
    assert (run.code, run.stderr) == (0, "")
    size = int(48 * scale), int(32 * scale)
    for name, view in zip(("l.png", "r.png"), larger(network), strict=True):
        assert np.array_equal(read_image(Path(name)).pixels, imresize_to(view, *size))


def test_transparency_has_the_size_of_the_colours_at_any_scale(small_pair: Path) -> None:
    for name in PAIR:
        with Image.open(name) as picture:
            picture.convert("RGBA").save(name)
    assert pam("superres", *PAIR, "--scale", "1.7", "-o", "l.png").code == 0
    with Image.open("l.png") as picture:
        assert (picture.mode, picture.size) == ("RGBA", (82, 55))  # 81.6 x 54.4, rounded up


def test_one_image(small_pair: Path) -> None:
    assert pam("superres", *PAIR, "--scale", "2", "-o", "l.png").lines == ["l.png"]
    assert np.array_equal(np.asarray(Image.open("l.png")), larger_left())
    assert pam("superres", *PAIR, "--scale", "2", "--output-right", "r.png").lines == ["r.png"]
    assert np.array_equal(np.asarray(Image.open("r.png")), larger()[1])
    assert names(".") == ["l.png", "left.png", "r.png", "right.png"]


def test_a_folder_receives_both_images(small_pair: Path) -> None:
    run = pam("superres", *PAIR, "--scale", "2", "-o", "out/", "--format", "webp")
    assert run.lines == ["out/left.webp", "out/right.webp"]
    for path, pixels in zip(run.lines, larger(), strict=True):
        assert np.array_equal(np.asarray(Image.open(path)), pixels)


def test_the_scale_is_4_unless_the_weights_say_otherwise(small_pair: Path) -> None:
    assert pam("superres", *PAIR, "-o", "four.png").code == 0
    assert read_image(Path("four.png")).pixels.shape == (128, 192, 3)
    assert pam("superres", *PAIR, "-o", "two.png", "--weights", "passrnet-x2").code == 0
    assert read_image(Path("two.png")).pixels.shape == (64, 96, 3)


def test_bytes_on_stdout(small_pair: Path) -> None:
    run = pam("superres", *PAIR, "--scale", "2", "-o", "-")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["PNG"])), larger_left())
    left, right = larger()
    run = pam("superres", *PAIR, "--scale", "2", "-o", "-", "--format", "tif", "--output-right", "r.png")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["TIFF"])), left)
    assert np.array_equal(np.asarray(Image.open("r.png")), right)
    run = pam("superres", *PAIR, "--scale", "2", "--output-right", "-")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(run.stdout), formats=["PNG"])), right)


# --- what is kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bits(small_pair: Path, suffix: str) -> None:
    rewrite(lambda picture, _: RgbImage(picture.pixels.astype(np.uint16) * 255 + 77))
    assert pam("superres", *PAIR, "--scale", "2", "-o", f"l{suffix}").code == 0
    written = read_image(Path(f"l{suffix}")).pixels
    assert written.dtype == np.uint16
    assert len(np.unique(written % 256)) == 256
    assert np.array_equal(written, larger_left())


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_transparency_of_each_view(small_pair: Path, suffix: str) -> None:
    random = np.random.default_rng(5)
    sources = rewrite(
        lambda picture, _: RgbImage(picture.pixels, random.integers(0, 256, (32, 48), dtype=np.uint8))
    )
    run = pam("superres", *PAIR, "--scale", "2", "-o", f"l{suffix}", "--output-right", f"r{suffix}")
    assert run.code == 0
    for name, source, pixels in zip("lr", sources, larger(), strict=True):
        written = read_image(Path(f"{name}{suffix}"))
        assert np.array_equal(written.alpha, imresize(source.alpha, 2))
        assert np.array_equal(written.pixels, pixels)


def test_grey_stays_grey(small_pair: Path) -> None:
    for name in PAIR:
        Image.open(name).convert("L").save(name)
    for suffix in ("png", "jpg", "tif"):
        assert pam("superres", *PAIR, "--scale", "2", "-o", f"l.{suffix}").code == 0
        assert read_image(Path(f"l.{suffix}")).grey


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp"])
def test_each_image_keeps_its_colour_profile_and_dpi(small_pair: Path, suffix: str) -> None:
    profiles = [ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes() for name in ("sRGB", "LAB")]
    rewrite(lambda picture, number: RgbImage(picture.pixels, icc_profile=profiles[number], dpi=(300, 300)))
    run = pam("superres", *PAIR, "--scale", "2", "-o", f"l{suffix}", "--output-right", f"r{suffix}")
    assert run.code == 0
    written = [read_image(Path(f"{name}{suffix}")) for name in "lr"]
    assert [image.icc_profile for image in written] == profiles
    if suffix != ".webp":  # has no field for it
        assert written[0].dpi == pytest.approx((300, 300), abs=0.02)


def test_both_in_one_image(small_pair: Path) -> None:
    left, right = larger()
    run = pam("superres", *PAIR, "--scale", "2", "-o", "l.png", "--output-packed", "both.png")
    assert run.lines == ["l.png", "both.png"]
    assert np.array_equal(np.asarray(Image.open("both.png")), np.concatenate([left, right], axis=1))
    packing = ["--packing", "red-cyan"]
    assert pam("superres", *PAIR, "--scale", "2", "--output-packed", "glasses.png", *packing).code == 0
    seen = np.asarray(Image.open("glasses.png"))
    assert np.array_equal(seen, np.concatenate([left[..., :1], right[..., 1:]], axis=2))


def test_quality_of_jpeg_and_webp(small_pair: Path) -> None:
    sizes = {}
    for suffix in ("jpg", "webp"):
        for quality in ([], ["--quality", "30"]):
            made = pam("superres --scale 2 --overwrite", *PAIR, "-o", f"q.{suffix}", *quality)
            assert made.code == 0
            sizes[suffix, bool(quality)] = Path(f"q.{suffix}").stat().st_size
    assert sizes["jpg", True] < 0.5 * sizes["jpg", False]
    assert sizes["webp", True] < 0.5 * sizes["webp", False]
    mixed = ["-o", "both/", "--output-packed", "p.jpg", "--quality", "30"]
    lines = pam("superres", *PAIR, "--scale", "2", *mixed).lines
    assert lines == ["both/left.png", "both/right.png", "p.jpg"]


def test_an_ensemble_is_finer_and_another_image(small_pair: Path) -> None:
    assert pam("superres", *PAIR, "--scale", "2", "--ensemble", "-o", "e.png").code == 0
    views = [read_image(Path(name)).pixels for name in PAIR]
    four = StereoUpscaler.load(DEFAULT_UPSCALING[2], device="cpu", ensemble=True).upscale_left(*views)
    assert np.array_equal(np.asarray(Image.open("e.png")), four)
    assert not np.array_equal(four, larger_left())


def test_the_notes_of_the_camera_are_kept_and_its_orientation_is_applied(small_pair: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open("right.png").save("right.png", exif=exif)
    exif[0x010F] = "Maker"
    exif.get_ifd(0x8825)[1] = "N"
    Image.open("left.png").save("left.png", exif=exif)
    assert pam("superres", *PAIR, "--scale", "2", "-o", "l.jpg", "--output-right", "r.jpg").code == 0
    with Image.open("l.jpg") as left, Image.open("r.jpg") as right:
        written = left.getexif()
        assert (written[0x010F], written.get_ifd(0x8825)) == ("Maker", {1: "N"})
        assert 0x010F not in right.getexif()
        for view in (left, right):
            assert (view.size, view.getexif().get(0x0112, 1)) == ((64, 96), 1)


# --- what a format cannot hold --------------------------------------------------------------------------


@pytest.fixture
def network_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StereoUpscaler, "__call__", None)
    monkeypatch.setattr(StereoUpscaler, "upscale_left", None)


@pytest.mark.usefixtures("network_never_runs")
@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["-o", "l.jpg"], "cannot write l.jpg"),
        (["-o", "l.png", "--output-right", "r.JPEG"], "cannot write r.JPEG"),
        (["-o", "out/", "--format", "jpg"], "cannot write out/left.jpg"),
        (["-o", "-", "--format", "jpg"], "cannot write standard output"),
    ],
)
@pytest.mark.parametrize("kind", ["16 bits", "alpha"])
def test_what_jpeg_cannot_hold_is_refused_before_the_network_runs(
    small_pair: Path, targets: list[str], said: str, kind: str
) -> None:
    if kind == "alpha":
        rewrite(lambda picture, _: RgbImage(picture.pixels, np.full((32, 48), 9, np.uint8)))
    else:
        rewrite(lambda picture, _: RgbImage(picture.pixels.astype(np.uint16)))
    with unchanged():
        refuse(pam("superres", *PAIR, *targets), 2, said, kind, "use .png or .tif")


@pytest.mark.usefixtures("network_never_runs")
def test_what_webp_cannot_hold_is_refused_before_the_network_runs(small_pair: Path) -> None:
    for name in PAIR:
        Image.open(name).resize((8192, 8)).save(name)
    with unchanged():
        said = "cannot write l.webp: 32768x32 exceeds the limit of 16383 px"
        refuse(pam("superres", *PAIR, "-o", "l.webp"), 2, said)


def test_what_jpeg_cannot_hold_fails_a_pair_of_a_batch(small_pair: Path) -> None:
    for folder, name in zip("lr", PAIR, strict=True):
        Path(folder).mkdir()
        Image.open(name).save(f"{folder}/1.png")
        Image.open(name).convert("RGBA").save(f"{folder}/2.png")
    run = pam("superres", "l", "r", "--scale", "2", "-o", "out/", "--format", "jpg", "--jsonl")
    assert run.code == 6
    assert [(record["status"], record["code"]) for record in run.records] == [("ok", 0), ("failed", 2)]
    assert names("out") == ["1_left.jpg", "1_right.jpg"]
