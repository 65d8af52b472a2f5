"""Tests of unreadable images: one line that names the file, and no other output."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
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
@pytest.mark.parametrize("kept", [-1, 0.5, 20])
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
        ("", "it is a folder"),
        ("left\0.png", "null"),
        ("x" * 300, "file name too long"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_image(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"\x89PNG",
        pillow_bytes(IMAGE, "PDF"),
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
    (tiff_bytes(np.zeros((8, 9), np.float32)), "floating-point numbers"),
    (tiff_bytes(np.zeros((8, 9), np.int16)), "signed or complex"),
    (tiff_bytes(np.zeros((8, 9), np.uint32)), "32 bits per channel"),
    (tiff_bytes(np.zeros((8, 9, 5), np.uint8), photometric="rgb"), "5 channels"),
    (tiff_bytes(np.zeros((8, 9, 3), np.uint8), photometric="ycbcr"), "YCBCR"),
    (tiff_bytes(np.zeros((16, 16, 16), np.uint8), volumetric=True, tile=(16, 16, 16)), "volume"),
    (tiff_bytes(np.stack([NOISE, NOISE]), photometric="rgb"), "has 2 pages"),
    (LZW.replace(COMPRESSION, struct.pack("<HHII", 259, 3, 1, 32809)), "has an unsupported format"),
    (b"PF\n1 1\n-1\n" + bytes(12), "floating-point numbers"),
]


@pytest.mark.parametrize(("data", "message"), UNSUPPORTED, ids=[message for _, message in UNSUPPORTED])
def test_kinds_of_samples_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_image(data)


def claim_tiff(width: int, height: int) -> bytes:
    """A TIFF whose directory claims a size; its pixels are missing."""
    entries = [(256, 4, width), (257, 4, height), (258, 3, 8), (262, 3, 1), (273, 4, 8), (279, 4, 1)]
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return struct.pack("<4sIH", b"II*\0", 8, len(entries)) + directory + bytes(4)


@pytest.mark.parametrize("claim", [claim_png, claim_tiff])
def test_sizes_are_checked_before_decoding(claim: Callable[[int, int], bytes]) -> None:
    said = r"^left is 60000x60000 = 3,600,000,000 pixels, over the limit of 400,000,000 "
    with pytest.raises(InputError, match=said) as caught:
        read_image(claim(60_000, 60_000), name="left")
    assert "`max_pixels`" in (caught.value.hint or "")
    with pytest.raises(InputError, match=r"no pixels|damaged"):
        read_image(claim(0, 5))


@pytest.mark.parametrize("kind", GOOD)
def test_the_limit_counts_pixels_whatever_pillow_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert read_image(GOOD[kind], max_pixels=2000).pixels.shape == (40, 50, 3)
    assert read_image(GOOD[kind], max_pixels=None).pixels.shape == (40, 50, 3)
    with pytest.raises(InputError, match=r"50x40 = 2,000 pixels, over the limit of 1,999"):
        read_image(GOOD[kind], max_pixels=1999)
