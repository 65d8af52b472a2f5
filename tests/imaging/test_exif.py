"""Tests that the EXIF data of a camera is kept with its image."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from pamcli.imaging.images import RgbImage, encode_image, read_image

EXIF, GPS = 0x8769, 0x8825


def camera_notes() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "Maker", 6  # to be turned by a quarter
    exif.get_ifd(EXIF).update({0x9003: "2024:05:06 07:08:09", 0xA002: 32, 0xA003: 24, 0x829A: 0.004})
    exif.get_ifd(GPS).update({1: "N", 2: tuple(IFDRational(n) for n in (48, 30, 7))})
    return exif


def photograph(format_: str = "JPEG", exif: bytes | None = None) -> bytes:
    buffer = io.BytesIO()
    picture = Image.fromarray(np.full((24, 32, 3), 90, np.uint8))
    picture.save(buffer, format_, exif=camera_notes().tobytes() if exif is None else exif)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_time_place_and_exposure_are_kept_and_the_size_is_right(kind: str, suffix: str) -> None:
    picture = read_image(photograph(kind))
    assert picture.pixels.shape == (32, 24, 3)
    data = encode_image(picture, suffix, name="x")
    with Image.open(io.BytesIO(data)) as written:
        notes = written.getexif()
        assert (notes[0x010F], notes.get(0x0112, 1)) == ("Maker", 1)
        assert notes.get_ifd(GPS) == {1: "N", 2: (48, 30, 7)}
        camera = notes.get_ifd(EXIF)
        assert (camera[0xA002], camera[0xA003]) == (24, 32)
        assert camera[0x9003] == "2024:05:06 07:08:09"
        assert float(camera[0x829A]) == pytest.approx(0.004)
    again = read_image(data)
    assert again.orientation == 1
    if suffix in (".png", ".tif"):
        np.testing.assert_array_equal(again.pixels, picture.pixels)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
def test_names_keep_their_accents(suffix: str) -> None:
    exif, name = Image.Exif(), "José 田中".encode()
    exif[0x013B] = exif.get_ifd(EXIF)[0xA433] = name.decode("latin-1")
    encoded = exif.tobytes().replace(b"Jos?? ??????", name)
    assert encoded.count(name) == 2
    data = encode_image(read_image(photograph(exif=encoded)), suffix, name="x")
    again = encode_image(read_image(data), suffix, name="x")
    assert again.count(name + b"\0") == 2


def test_notes_that_a_jpeg_has_no_room_for_cost_no_image() -> None:
    exif = camera_notes()
    exif.get_ifd(EXIF)[0x927C] = bytes(70_000)
    picture = read_image(photograph("PNG", exif.tobytes()))
    assert len(picture.exif) > 70_000
    assert read_image(encode_image(picture, ".jpg", name="x")).exif == b""
    assert len(read_image(encode_image(picture, ".webp", name="x")).exif) > 70_000


@pytest.mark.parametrize(("kind", "suffix"), [("JPEG", ".png"), ("PNG", ".tif"), ("TIFF", ".jpg")])
def test_the_resolution_for_printing_is_kept(kind: str, suffix: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 24)).save(buffer, kind, dpi=(600, 300))
    picture = read_image(buffer.getvalue())
    assert picture.dpi == pytest.approx((600, 300), abs=0.02)
    written = encode_image(picture, suffix, name="x")
    assert Image.open(io.BytesIO(written)).info["dpi"] == pytest.approx((600, 300), abs=0.02)
    unstated = read_image(encode_image(RgbImage(picture.pixels), suffix, name="x"))
    assert unstated.dpi is None


def test_resolutions_are_turned_with_the_image_or_ignored() -> None:
    exif = camera_notes().tobytes()
    for kind, dpi, read in (
        ("JPEG", (600, 300), (300, 600)),
        ("TIFF", (0, 0), None),
        ("TIFF", (0.1, 0.1), None),
        ("TIFF", (90_000, 90_000), None),
    ):
        buffer = io.BytesIO()
        Image.new("RGB", (32, 24)).save(buffer, kind, dpi=dpi, exif=exif)
        assert read_image(buffer.getvalue()).dpi == read
