"""Tests of unreadable images: one line that names the file, and no other output."""

from __future__ import annotations

import errno
import os
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from image_bytes import claim_png, pillow_bytes, png_chunk, tiff_bytes
from PIL import Image

from pamcli.errors import InputError
from pamcli.imaging.images import RgbImage, encode_image, read_image

NOISE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
IMAGE = Image.fromarray(NOISE)

GOOD = {
    "png": pillow_bytes(IMAGE, "PNG"),
    "palette.png": pillow_bytes(IMAGE.quantize(16), "PNG"),
    "16.png": encode_image(RgbImage(NOISE * np.uint16(257), None, False, None, 1), ".png", name="a"),
    "jpg": pillow_bytes(IMAGE, "JPEG"),
    "progressive.jpg": pillow_bytes(IMAGE, "JPEG", progressive=True),
    "lossless.webp": pillow_bytes(IMAGE, "WEBP", lossless=True),
    "lossy.webp": pillow_bytes(IMAGE, "WEBP"),
    "tif": tiff_bytes(NOISE, photometric="rgb"),
    "lzw.tif": tiff_bytes(NOISE, photometric="rgb", compression="lzw", rowsperstrip=7),
    "jpeg.tif": tiff_bytes(NOISE, photometric="rgb", compression="jpeg"),
    "16.tif": encode_image(RgbImage(NOISE * np.uint16(257), None, False, None, 1), ".tif", name="a"),
    "avif": pillow_bytes(IMAGE, "AVIF"),
    "bmp": pillow_bytes(IMAGE, "BMP"),
    "ppm": pillow_bytes(IMAGE, "PPM"),
}


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("kept", [-1, 0.95, 0.5, 40, 20])
def test_truncated(tmp_path: Path, kind: str, kept: float, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"left.{kind}"
    whole = GOOD[kind]
    path.write_bytes(whole[: int(kept * len(whole)) if 0 < kept < 1 else int(kept)])
    if kept == -1 and kind.endswith(("jpg", "bmp")):
        pytest.skip("half an end marker or padding: every pixel is there")
    with pytest.raises(InputError, match="damaged or truncated") as caught:
        read_image(path)
    assert str(path) in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
    assert capfd.readouterr() == ("", "")


def test_broken_chunks_of_png(capfd: pytest.CaptureFixture[str]) -> None:
    for kind in ("png", "16.png"):
        good = GOOD[kind]
        data = bytearray(good)
        data[len(data) // 2] ^= 1
        with pytest.raises(InputError, match="wrong checksum in IDAT"):
            read_image(bytes(data))
        read = read_image(good[:33] + png_chunk(b"iCCP", b"name\0\0rubbish") + good[33:])
        assert read.icc_profile is None  # dropped in silence
        np.testing.assert_array_equal(read.pixels, read_image(good).pixels)
    data = GOOD["16.png"][:33] + png_chunk(b"IDAT", zlib.compress(bytes(50))) + png_chunk(b"IEND", b"")
    with pytest.raises(InputError, match="damaged or truncated"):
        read_image(data)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.png", r"cannot read .*missing\.png: there is no such file"),
        ("", "it is a folder"),
        ("empty.png", r"empty\.png is empty"),
        ("left\0.png", "null"),
        ("x" * 300, "file name too long"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(InputError, match=said):
        read_image(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"P",
        b"\x89PNG",
        pillow_bytes(IMAGE, "EPS"),
        pillow_bytes(IMAGE, "PDF"),
        pillow_bytes(IMAGE, "ICO"),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"RIFF\x00\x00\x00\x00WAVEfmt ",
    ],
    ids=lambda content: content[:12].decode("ascii", "replace"),
)
def test_not_a_image(content: bytes) -> None:
    with pytest.raises(InputError, match=r"^left is not an image") as caught:
        read_image(content, name="left")
    assert caught.value.hint == "supported formats are PNG, JPEG, TIFF, WebP, AVIF, HEIC, BMP, PPM and GIF"


def test_animated_images_are_refused() -> None:
    frames = {"save_all": True, "append_images": [Image.fromarray(NOISE[::-1])], "duration": 100}
    for format_ in ("PNG", "WEBP", "GIF", "AVIF"):
        with pytest.raises(InputError, match="is animated"):
            read_image(pillow_bytes(IMAGE, format_, **frames))


LZW = tiff_bytes(NOISE, photometric="rgb", compression="lzw")
COMPRESSION = struct.pack("<HHII", 259, 3, 1, 5)
UNSUPPORTED = [
    (tiff_bytes(np.zeros((8, 9, 3), np.float32), photometric="rgb"), "floating-point numbers"),
    (tiff_bytes(np.zeros((8, 9), np.float32)), "floating-point numbers"),
    (tiff_bytes(np.zeros((8, 9), np.int16)), "signed or complex"),
    (tiff_bytes(np.zeros((8, 9), np.uint32)), "32 bits per channel"),
    (tiff_bytes(np.zeros((8, 9, 5), np.uint8), photometric="rgb"), "5 channels"),
    (tiff_bytes(np.zeros((8, 9, 6), np.uint16), planarconfig="contig"), "6 chan"),
    (tiff_bytes(np.zeros((8, 9, 3), np.uint8), photometric="cielab"), "CIELAB"),
    (tiff_bytes(np.zeros((8, 9, 3), np.uint8), photometric="ycbcr"), "YCBCR"),
    (tiff_bytes(np.zeros((16, 16, 16), np.uint8), volumetric=True, tile=(16, 16, 16)), "volume"),
    (tiff_bytes(np.stack([NOISE, NOISE]), photometric="rgb"), "has 2 pages"),
    (LZW.replace(COMPRESSION, struct.pack("<HHII", 259, 3, 1, 32809)), "has an unsupported format"),
    (b"Pf\n1 1\n-1\n" + bytes(12), "floating-point numbers"),
    (b"PF\n1 1\n-1\n" + bytes(12), "floating-point numbers"),
]


@pytest.mark.parametrize(("data", "message"), UNSUPPORTED, ids=[message for _, message in UNSUPPORTED])
def test_kinds_of_samples_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_image(data)


def claiming(kind: str, width: int, height: int) -> bytes:
    """A few dozen bytes whose header claims an image of that size."""
    if kind == "png":
        return claim_png(width, height)
    if kind == "tif":
        entries = [(256, 4, width), (257, 4, height), (258, 3, 8), (262, 3, 1), (273, 4, 8), (279, 4, 1)]
        return (
            struct.pack("<4sIH", b"II*\0", 8, len(entries))
            + b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
            + bytes(4)
        )
    if kind == "webp":
        sides = [(side - 1).to_bytes(3, "little") for side in (width, height)]
        extended = bytes(4) + b"".join(sides)
        return b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0" + extended
    if kind == "bmp":
        return b"BM" + struct.pack("<IIIIiiHHIIIIII", 54, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    if kind == "ppm":
        return b"P6 %d %d 255\n" % (width, height)
    frame = struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\0"
    return b"\xff\xd8\xff\xc0" + frame + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0"


@pytest.mark.parametrize("kind", ["png", "tif", "bmp", "ppm", "webp", "jpg"])
def test_sizes_are_checked_before_decoding(kind: str) -> None:
    said = r"^left is 60000x60000 = 3,600,000,000 pixels, over the limit of 400,000,000 "
    with pytest.raises(InputError, match=said) as caught:
        read_image(claiming(kind, 60_000, 60_000), name="left")
    assert "`max_pixels`" in (caught.value.hint or "")
    if kind not in ("webp", "jpg"):
        with pytest.raises(InputError, match=r"no pixels|damaged"):
            read_image(claiming(kind, 0, 5))


@pytest.mark.parametrize("kind", GOOD)
def test_the_limit_counts_pixels_whatever_pillow_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read_image(GOOD[kind], max_pixels=2000).pixels.shape == (40, 50, 3)
    assert read_image(GOOD[kind], max_pixels=None).pixels.shape == (40, 50, 3)
    with pytest.raises(InputError, match=r"50x40 = 2,000 pixels, over the limit of 1,999"):
        read_image(GOOD[kind], max_pixels=1999)


def test_reading_in_threads_leaves_the_warning_filters() -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(read_image, [*GOOD.values()] * 8))
    assert all(picture.pixels.shape == (40, 50, 3) for picture in read)
    assert all(picture.pixels.flags.writeable for picture in read)
    assert list(warnings.filters) == before


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # the tests may run as root, who may read everything
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"cannot read .*left\.png: no permission"):
        read_image(tmp_path / "left.png")
