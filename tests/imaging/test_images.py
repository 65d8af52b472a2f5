"""Images of every kind, read and written, held against Pillow's and OpenCV's readers."""

from __future__ import annotations

import io
from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile
from image_bytes import pillow_bytes, png_chunk, tiff_bytes
from numpy.typing import DTypeLike
from PIL import Image, ImageCms, ImageOps

from pamcli.errors import InputError, UsageError
from pamcli.imaging import raster
from pamcli.imaging.images import RgbImage, check_encodable, encode_image, read_image

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()  # type: ignore[no-untyped-call]


def noise(*shape: int, dtype: DTypeLike = np.uint8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def picture(
    pixels: np.ndarray, alpha: np.ndarray | None = None, *, grey: bool = False, icc: bytes | None = None
) -> RgbImage:
    return RgbImage(pixels, alpha, grey, icc, 1)


def example(
    dtype: DTypeLike, *, grey: bool = False, alpha: bool = False, icc: bytes | None = None
) -> RgbImage:
    pixels = noise(12, 17, 1, dtype=dtype).repeat(3, axis=2) if grey else noise(12, 17, 3, dtype=dtype)
    return picture(pixels, noise(12, 17, dtype=dtype, seed=1) if alpha else None, grey=grey, icc=icc)


def opencv(data: bytes) -> np.ndarray:
    """OpenCV's reading, in RGB(A) order."""
    array = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert array is not None
    if array.ndim == 2:
        return array
    return array[..., [2, 1, 0, 3][: array.shape[2]]]


def test_ppm_and_pgm() -> None:
    with pytest.raises(InputError, match="PPM with 16 bits") as caught:
        read_image(b"P6 2 2 65535\n" + bytes(24))
    assert caught.value.hint == "convert it to PNG or TIFF"
    stored = noise(4, 5, dtype=np.uint16)
    read = read_image(b"P5 5 4 65535\n" + stored.astype(">u2").tobytes())
    assert read.pixels.dtype == np.uint16
    np.testing.assert_array_equal(read.pixels[..., 0], stored)
    read = read_image(b"P3\n# made by hand\n2 1\n255\n1 2 3 255 7 0\n")
    assert read.pixels.tolist() == [[[1, 2, 3], [255, 7, 0]]]


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("alpha", [False, True])
def test_written_images_are_read_again(suffix: str, dtype: DTypeLike, grey: bool, alpha: bool) -> None:
    """Other libraries read the same: Pillow 8 bits, OpenCV 16 bits."""
    if dtype == np.uint16 and suffix == ".webp":
        pytest.skip("WebP has 8 bits")
    made = example(dtype, grey=grey, alpha=alpha, icc=PROFILE)
    data = encode_image(made, suffix, name="a")
    read = read_image(data)
    np.testing.assert_array_equal(read.pixels, made.pixels)
    assert (read.pixels.dtype, read.icc_profile, read.orientation) == (dtype, PROFILE, 1)
    assert read.pixels.flags.c_contiguous
    assert read.grey == (grey and suffix != ".webp")  # WebP has no grey
    if made.alpha is None:
        assert read.alpha is None
    else:
        assert read.alpha is not None
        assert read.alpha.dtype == dtype
        np.testing.assert_array_equal(read.alpha, made.alpha)
    if dtype == np.uint16 and grey and alpha:
        return  # unknown to Pillow, and OpenCV makes four channels in its own way
    image = Image.open(io.BytesIO(data))
    assert image.info["icc_profile"] == PROFILE
    if suffix != ".webp" and dtype == np.uint8:
        assert image.mode == ("L" if grey else "RGB") + ("A" if alpha else "")
    color = made.pixels[..., 0] if grey and dtype == np.uint16 else made.pixels
    expected = color if made.alpha is None else np.dstack([color, made.alpha])
    other = np.asarray(image.convert("RGBA" if alpha else "RGB")) if dtype == np.uint8 else opencv(data)
    assert other.dtype == dtype
    np.testing.assert_array_equal(other, expected)


def test_jpeg_keeps_colour_and_profile() -> None:
    smooth = cv2.GaussianBlur(noise(64, 64, 3), (0, 0), 4)
    data = encode_image(picture(smooth, icc=PROFILE), ".jpg", name="a.jpg")
    read = read_image(data)
    assert np.abs(read.pixels.astype(int) - smooth).max() <= 6
    assert read.icc_profile == PROFILE
    assert Image.open(io.BytesIO(data)).layer[0][1:3] == (1, 1)  # type: ignore[attr-defined]
    grey = picture(noise(8, 8, 1).repeat(3, axis=2), grey=True)
    assert Image.open(io.BytesIO(encode_image(grey, ".jpeg", name="a"))).mode == "L"


@pytest.mark.parametrize(
    ("suffix", "size", "bits", "alpha", "message"),
    [
        (".jpg", (4, 4), 16, False, r"x4\.out: .*16 bits per channel.*\.jpg"),
        (".JPEG", (4, 4), 8, True, r"alpha channel.*\.jpeg"),
        (".gif", (4, 4), 8, False, r"\.gif is not a supported"),
        ("", (4, 4), 8, False, "without a suffix"),
        (".webp", (10, 16384), 8, True, r"16384x10 exceeds the limit of 16383"),
    ],
)
def test_what_a_format_cannot_hold(
    suffix: str, size: tuple[int, int], bits: int, alpha: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_encodable(suffix, height=size[0], width=size[1], bits=bits, alpha=alpha, name="x4.out")
    assert (caught.value.exit_code, caught.value.hint is None) == (2, False)
    check_encodable(".webp", height=10, width=16383, bits=8, alpha=True, name="a")
    check_encodable(".png", height=65501, width=65501, bits=16, alpha=True, name="a")
    with pytest.raises(UsageError, match="16 bits per channel"):
        encode_image(picture(noise(4, 4, 3, dtype=np.uint16)), ".jpg", name="a")


IMAGE = Image.fromarray(noise(16, 20, 3))
BY_PILLOW = [  # an image, its format, and options of Pillow
    *((IMAGE, format_, {}) for format_ in ("PNG", "TIFF", "BMP", "PPM", "GIF")),
    (IMAGE, "WEBP", {"lossless": True}),
    *((IMAGE.convert(mode), "AVIF", {}) for mode in ("RGB", "L")),
    (IMAGE, "TIFF", {"compression": "jpeg"}),
    *((IMAGE.convert(mode), "JPEG", {"progressive": it}) for mode in ("RGB", "L", "CMYK") for it in (0, 1)),
    *((IMAGE.quantize(2**bits), "PNG", {"bits": bits}) for bits in (1, 2, 4, 8)),
    *((IMAGE.quantize(2**bits), kind, {}) for kind in ("TIFF", "BMP", "GIF") for bits in (1, 2, 4, 8)),
    *((IMAGE.convert("1"), format_, {}) for format_ in ("PNG", "TIFF", "PPM", "BMP")),
    *((IMAGE.convert("1"), "TIFF", {"compression": name}) for name in ("group3", "group4", "tiff_lzw")),
]


@pytest.mark.parametrize(("image", "format_", "options"), BY_PILLOW)
def test_images_by_pillow(image: Image.Image, format_: str, options: dict[str, object]) -> None:
    if "group" in str(options) and not hasattr(imagecodecs, "ccittfax4_decode"):
        pytest.skip("this release of imagecodecs comes without fax compression")
    data = pillow_bytes(image, format_, **options, icc_profile=PROFILE)
    read, again = read_image(data), Image.open(io.BytesIO(data))
    np.testing.assert_array_equal(read.pixels, np.asarray(again.convert("RGB")))
    assert (read.grey, read.alpha) == (image.mode in ("L", "1"), None)
    if format_ in ("JPEG", "AVIF"):
        assert read.icc_profile == (None if image.mode == "CMYK" else PROFILE)  # it would describe inks


@pytest.mark.parametrize(("format_", "transparency"), [("PNG", bytes(range(0, 240, 30))), ("GIF", 3)])
def test_palette_with_transparency(format_: str, transparency: object) -> None:
    image = Image.fromarray(noise(16, 20, 3)).quantize(8)
    data = pillow_bytes(image, format_, transparency=transparency)
    read = read_image(data)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
    np.testing.assert_array_equal(read.pixels, expected[..., :3])
    assert read.alpha is not None
    np.testing.assert_array_equal(read.alpha, expected[..., 3])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    "options",
    [
        {"planarconfig": "separate", "tile": (16, 16), "byteorder": ">", "compression": "zlib"},
        {"compression": "lzw", "predictor": True},
        {"compression": "packbits", "rowsperstrip": 5},
        {"compression": "zstd"},
        {"bigtiff": True},
    ],
    ids=str,
)
def test_tiff(dtype: DTypeLike, options: dict[str, object]) -> None:
    stored = noise(20, 30, 3, dtype=dtype)
    separate = options.get("planarconfig") == "separate"
    data = tiff_bytes(np.moveaxis(stored, 2, 0) if separate else stored, photometric="rgb", **options)
    np.testing.assert_array_equal(read_image(data).pixels, stored)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tiff_where_white_is_zero(dtype: DTypeLike) -> None:
    stored = noise(20, 30, dtype=dtype)
    read = read_image(tiff_bytes(stored, photometric="miniswhite"))
    np.testing.assert_array_equal(read.pixels[..., 0], np.iinfo(dtype).max - stored)
    assert read.grey


def test_alpha_that_was_multiplied_in_is_divided_out() -> None:
    stored = np.array([[[50, 100, 25, 128], [7, 7, 7, 0], [200, 1, 0, 255]]], np.uint8)
    read = read_image(tiff_bytes(stored, photometric="rgb", extrasamples=["assocalpha"]))
    assert read.pixels.tolist() == [[[100, 199, 50], [255, 255, 255], [200, 1, 0]]]
    assert read.alpha is not None
    assert read.alpha.tolist() == [[128, 0, 255]]


def test_a_thumbnail_page_is_no_second_image(tmp_path: Path) -> None:
    stored = noise(20, 30, 3)
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(stored, photometric="rgb")
        writer.write(stored[::4, ::4], photometric="rgb", subfiletype=1)
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif").pixels, stored)


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 3, 5, 6])
def test_the_orientation_is_applied_and_reported(format_: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, object] = {"lossless": True} if format_ == "WEBP" else {}
    image = Image.fromarray(np.dstack([noise(10, 14, 3), noise(10, 14, seed=1)]))
    if format_ == "JPEG":
        image = image.convert("RGB")
    data = pillow_bytes(image, format_, exif=exif.tobytes() if format_ != "TIFF" else exif, **options)
    read = read_image(data)
    stored = Image.open(io.BytesIO(data)) if format_ == "JPEG" else image
    stored.getexif()[0x0112] = orientation
    expected = np.asarray(ImageOps.exif_transpose(stored))
    np.testing.assert_array_equal(read.pixels, expected[..., :3])
    assert read.orientation == orientation
    assert read.pixels.flags.c_contiguous
    if format_ != "JPEG":
        assert read.alpha is not None
        np.testing.assert_array_equal(read.alpha, expected[..., 3])


def test_orientation_of_a_16_bit_png_behind_the_pixels() -> None:
    stored = noise(4, 6, 3, dtype=np.uint16)
    data = encode_image(picture(stored), ".png", name="a")
    exif = Image.Exif()
    exif[0x0112] = 8
    end = len(data) - 12
    read = read_image(data[:end] + png_chunk(b"eXIf", exif.tobytes()[6:]) + data[end:])
    assert read.orientation == 8
    np.testing.assert_array_equal(read.pixels, np.rot90(stored))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(7, 1), (5, 1, 4), (13, 17, 3)])
def test_pngs_of_any_shape(shape: tuple[int, ...], dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = noise(*shape, dtype=dtype)
    data = raster.encode_png(samples)
    np.testing.assert_array_equal(opencv(data), samples)
    # A part of a larger array: its numbers do not lie side by side.
    assert raster.encode_png(np.repeat(samples, 2, axis=1)[:, ::2]) == data
    monkeypatch.setattr(raster, "_LARGEST_CHUNK", 700)
    several = raster.encode_png(samples)
    assert (several.count(b"IDAT") > 1) == (len(data) > 800)
    np.testing.assert_array_equal(opencv(several), samples)
