"""Both views out of one file, MPO, JPS or packed images, and packed into one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stereo_files as made
from image_bytes import pillow_bytes
from PIL import Image

from pamcli.errors import InputError
from pamcli.files.suffixes import PackedLayout, Packing
from pamcli.imaging.images import RgbImage, StereoPair, encode_image, read_image
from pamcli.imaging.packed_views import compute_packed_size, pack_views, read_packed_pair


def smooth(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    """An image that JPEG and squeezing leave nearly as it is."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(40, 215, (3, 4, 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


LEFT, RIGHT = smooth(1), smooth(2)


def read(data: bytes, layout: PackedLayout = "auto", name: str = "photo") -> StereoPair:
    return read_packed_pair(data, layout, max_pixels=None, name=name)


def assert_views(pair: StereoPair, left: np.ndarray = LEFT, right: np.ndarray = RIGHT, near: int = 8) -> None:
    for view, wanted in ((pair.left, left), (pair.right, right)):
        assert view.pixels.shape == wanted.shape
        assert np.abs(view.pixels.astype(int) - wanted).max() <= near


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_views_of_an_mpo_are_its_images(order: str) -> None:
    first, second = made.jpeg(LEFT), made.jpeg(RIGHT)
    data = made.mpo(first, second, order=order)
    pair = read(data)
    for view, encoded in ((pair.left, first), (pair.right, second)):
        assert np.array_equal(view.pixels, read_image(encoded).pixels)
    assert_views(read(data, "lr"))
    assert_views(read(data, "rl"), RIGHT, LEFT)
    kinds = (made.PRIMARY, made.THUMBNAIL, made.UNDEFINED)  # a thumbnail is no view
    assert_views(read(made.mpo(first, made.jpeg(LEFT[::2, ::2]), second, kinds=kinds, order=order)))
    both = made.jpeg(np.concatenate([LEFT, RIGHT], axis=1))  # nor is a gain map
    photo = made.mpo(both, made.jpeg(LEFT[::2, ::2]), kinds=(made.PRIMARY, made.UNDEFINED), order=order)
    assert_views(read(photo, "lr"))
    with pytest.raises(InputError, match="stores the views as two images"):
        read(data, "tb")
    with pytest.raises(InputError, match="holds both views"):
        read_image(data, name="left.jpg")


def test_an_mpo_as_pillow_writes_it_has_no_word_about_views(tmp_path: Path) -> None:
    pictures = [Image.fromarray(view) for view in (LEFT, RIGHT)]
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    pictures[0].save(
        tmp_path / "a.mpo", save_all=True, append_images=pictures[1:], quality=97, subsampling=0, exif=exif
    )
    for layout, views in (("auto", (LEFT, RIGHT)), ("lr", (LEFT, RIGHT)), ("rl", (RIGHT, LEFT))):
        assert_views(read((tmp_path / "a.mpo").read_bytes(), layout, "a.mpo"), *views, near=24)
    assert read_image(tmp_path / "a.mpo").pixels.shape == LEFT.shape  # such a file may be a phone's photo


def test_each_view_of_an_mpo_is_turned_and_keeps_its_profile() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    views = [made.jpeg(np.rot90(view), exif=exif.tobytes(), icc_profile=b"colours") for view in (LEFT, RIGHT)]
    pair = read(made.mpo(*views))
    assert_views(pair)
    assert pair.right.icc_profile == b"colours"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (made.mpo(made.jpeg(LEFT), made.jpeg(RIGHT[:20])), "must have the same size"),
        (made.mpo(*[made.jpeg(LEFT)] * 3, kinds=(made.DISPARITY,) * 3), "holds 3 views"),
        (made.mpo(made.jpeg(LEFT), made.jpeg(RIGHT))[:-400], "truncated"),
        (made.jpeg(LEFT), "does not state how"),
        (pillow_bytes(Image.fromarray(LEFT), "PNG"), "does not state how"),
        (made.jps(made.jpeg(LEFT), arrangement=9), "unknown layout 9"),
        (made.jps(made.jpeg(LEFT), kind=0), "holds one view"),
        (made.jps(made.jpeg(LEFT[:, :1])), "1x24, which cannot hold two views"),
    ],
)
def test_what_holds_no_two_views_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(data)


LAYOUTS = {  # arrangement and flags of a JPS
    "lr": (2, 4),
    "rl": (2, 0),
    "tb": (3, 4),
    "bt": (3, 0),
    "lr-half": (2, 6),
    "rl-half": (2, 2),
    "tb-half": (3, 5),
    "bt-half": (3, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_images_and_what_a_jps_says_of_itself(layout: PackedLayout) -> None:
    order, _, half = layout.partition("-")
    axis = 1 if order in ("lr", "rl") else 0
    views = [LEFT, RIGHT] if order in ("lr", "tb") else [RIGHT, LEFT]
    if half:
        size = (16, 24) if axis else (32, 12)
        views = [np.asarray(Image.fromarray(view).resize(size, Image.Resampling.BOX)) for view in views]
    packed = np.concatenate(views, axis)
    arrangement, flags = LAYOUTS[layout]
    encoded = made.jpeg(packed)
    assert_views(read(pillow_bytes(Image.fromarray(packed), "PNG"), layout), near=14)
    assert_views(read(made.jps(encoded, flags=flags, arrangement=arrangement)), near=24)
    assert_views(read(made.jps(encoded, flags=4 - flags % 4), layout), near=24)  # what is asked for counts


@pytest.mark.parametrize(("name", "format_"), [("a.JPS", "JPEG"), ("a.jps", "PNG"), ("a.pns", "PNG")])
def test_a_jps_or_pns_without_a_word_is_cross_eyed(name: str, format_: str) -> None:
    data = pillow_bytes(Image.fromarray(np.concatenate([RIGHT, LEFT], axis=1)), format_)
    assert_views(read(data, name=name), near=60 if format_ == "JPEG" else 0)


@pytest.mark.parametrize(("layout", "kept"), [("lr", (24, 15)), ("tb", (11, 31)), ("rows-lr", (22, 31))])
def test_the_last_line_of_an_odd_number_is_dropped(layout: PackedLayout, kept: tuple[int, int]) -> None:
    odd = LEFT[: 24 if layout == "lr" else 23, :31]
    pair = read(pillow_bytes(Image.fromarray(odd), "PNG"), layout)
    assert pair.left.pixels.shape == pair.right.pixels.shape == (*kept, 3)
    assert np.array_equal(pair.left.pixels[0, :15], odd[0, :15])
    assert "px is odd: the last" in (pair.note or "")
    assert read(pillow_bytes(Image.fromarray(LEFT), "PNG"), layout).note is None


RNG = np.random.default_rng(0)
ONE, OTHER = (RgbImage(RNG.integers(0, 256, (6, 8, 3), np.uint8), icc_profile=name) for name in (b"l", b"r"))


@pytest.mark.parametrize("packing", ["lr", "rl", "tb", "bt"])
def test_what_is_packed_is_read_again(packing: Packing) -> None:
    both = pack_views(ONE, OTHER, packing)
    assert both.pixels.shape[:2] == compute_packed_size(6, 8, packing)
    assert both.icc_profile == b"l"
    data = encode_image(both, ".png", name="both")
    pair = read_packed_pair(data, packing, max_pixels=None, name="both")  # type: ignore[arg-type]
    assert np.array_equal(pair.left.pixels, ONE.pixels)
    assert np.array_equal(pair.right.pixels, OTHER.pixels)


def test_red_cyan() -> None:
    grey = RgbImage(np.repeat(ONE.pixels[..., :1], 3, axis=2), ONE.pixels[..., 0], grey=True)
    both = pack_views(grey, OTHER, "red-cyan")
    assert (both.alpha, both.grey) == (None, False)
    assert compute_packed_size(6, 8, "red-cyan") == (6, 8)
    assert np.array_equal(both.pixels[..., 0], grey.pixels[..., 0])
    assert np.array_equal(both.pixels[..., 1:], OTHER.pixels[..., 1:])


@pytest.mark.parametrize("packing", ["lr", "red-cyan"])
@pytest.mark.parametrize("deep", ["left", "right"])
def test_views_of_unlike_depth_become_16_bits(packing: Packing, deep: str) -> None:
    views = {"left": ONE, "right": OTHER}
    views[deep] = RgbImage(views[deep].pixels.astype(np.uint16) * 257)
    both = pack_views(views["left"], views["right"], packing)
    assert np.array_equal(both.pixels, pack_views(ONE, OTHER, packing).pixels.astype(np.uint16) * 257)


def test_profiles_and_alpha_of_packed_views() -> None:
    grey = RgbImage(np.repeat(ONE.pixels[..., :1], 3, axis=2), grey=True, icc_profile=b"levels")
    assert pack_views(grey, grey, "lr").icc_profile == b"levels"
    assert pack_views(grey, grey, "red-cyan").icc_profile is None
    assert pack_views(grey, OTHER, "lr").icc_profile is None
    alpha = RNG.integers(0, 256, (6, 8), np.uint8)
    both = pack_views(ONE, RgbImage(OTHER.pixels, alpha), "lr")  # a view without alpha is opaque
    assert both.alpha is not None
    assert np.array_equal(both.alpha, np.concatenate([np.full((6, 8), 255), alpha], axis=1))
