"""Spatial photos and other HEIC files, VR180 photos, and views in alternating rows or as an anaglyph."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import photo_files as made
import pytest
import stereo_files
from PIL import Image

from pamcli.errors import InputError
from pamcli.files.paths import are_packed, states_layout
from pamcli.imaging.images import RgbImage, StereoPair, read_image
from pamcli.imaging.packed_views import make_rectilinear, read_packed_pair
from pamcli.imaging.preflight import check_pair, is_panorama

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
CAMERAS = [made.camera(0.7, 0.5, 0.5, (0, 0, 0)), made.camera(0.7, 0.52, 0.5, (19200, 0, 0))]


@pytest.fixture(scope="module")
def views() -> tuple[np.ndarray, np.ndarray]:
    left, right = (Image.open(SAMPLE / f"{side}.png").convert("RGB") for side in ("left", "right"))
    return np.asarray(left.crop((300, 200, 428, 264))), np.asarray(right.crop((300, 200, 428, 264)))


def read(data: bytes, layout: str = "auto") -> StereoPair:
    return read_packed_pair(data, layout, max_pixels=10**6, name="photo")  # type: ignore[arg-type]


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other).max())


@pytest.fixture
def heif() -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")


@pytest.mark.usefixtures("heif")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_spatial_photo_is_a_pair_with_its_calibration(
    order: tuple[int, int], views: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    data = made.spatial(
        made.heic(views[order[0]], views[order[1]]), [CAMERAS[index] for index in order], order
    )
    pair = read(data)
    assert difference(pair.left.pixels, views[0]) <= 2
    assert difference(pair.right.pixels, views[1]) <= 2
    assert pair.stated == {
        "focal_length": pytest.approx(0.7 * 128),
        "baseline": pytest.approx(0.0192),
        "offset": pytest.approx(0.02 * 128, abs=1e-4),
        "principal": (pytest.approx(63.5), pytest.approx(31.5)),
        "size": (128, 64),
    }
    (tmp_path / "IMG.HEIC").write_bytes(data)
    assert states_layout(tmp_path / "IMG.HEIC")
    with pytest.raises(InputError, match="holds both views"):
        read_image(tmp_path / "IMG.HEIC")
    with pytest.raises(InputError, match="two images, not packed as lr"):
        read(data, "lr")
    three = made.spatial(made.heic(*views, views[0]), [*CAMERAS, []], (0, 1, 2))
    with pytest.raises(InputError, match="3 views"):
        read(three)


@pytest.mark.usefixtures("heif")
def test_spatial_photos_without_cameras(views: tuple[np.ndarray, np.ndarray]) -> None:
    assert read(made.spatial(made.heic(*views), [[], []])).stated == {}
    assert read(made.spatial(made.heic(*views), [CAMERAS[0], CAMERAS[1][:1]])).stated == {}
    assert read(made.spatial(made.heic(*views), [CAMERAS[0], CAMERAS[0]])).stated == {}, "no baseline"


@pytest.mark.usefixtures("heif")
def test_headsets_state_the_calibration_in_uuid_boxes(views: tuple[np.ndarray, np.ndarray]) -> None:
    def user_box(kind: str, flags: int, *numbers: int) -> bytes:
        content = struct.pack(f">I{len(numbers)}i", flags, *numbers)
        return made.box(b"uuid", bytes.fromhex(kind) + content)

    intrinsics = user_box(
        "22cc04c7d6d94e079d904eb6ecbaf3a3", 24 << 8, *(round(n * 2**24) for n in (0.6, 0.5, 0.5))
    )
    positions = [user_box("4363e9145b7d4aab97aebea69803b434", *numbers) for numbers in ((0,), (1, 64000))]
    other = user_box("de22508536cb436587432f8705e7c78a", 293)
    stated = read(made.spatial(made.heic(*views), [[each, intrinsics, other] for each in positions])).stated
    assert stated["focal_length"] == pytest.approx(0.6 * 128, rel=1e-6)
    assert stated["baseline"] == pytest.approx(0.064)


@pytest.mark.usefixtures("heif")
def test_other_heic_files_are_images(views: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # to be turned by 90 degrees, which libheif does
    turned = made.heic(np.ascontiguousarray(np.rot90(views[0])), exif=exif.tobytes())
    for name, data in {"one": turned, "two": made.heic(*views)}.items():
        image = read_image(data)
        assert image.pixels.dtype == np.uint8, name
        assert image.orientation == 1
        assert difference(image.pixels, views[0]) <= 2
        (tmp_path / f"{name}.heic").write_bytes(data)
    assert not are_packed([str(tmp_path / "one.heic")])
    with pytest.raises(InputError, match=r"128 ?x ?64"):
        read_image(data, max_pixels=1000)


def panorama(move: float) -> np.ndarray:
    """Render a wall 2 m ahead, seen from x = move (metres), as half a sphere of 512 x 512 pixels."""
    longitude, latitude = np.meshgrid(*[((np.arange(512) + 0.5) / 512 - 0.5) * np.pi] * 2)
    x = 2 * np.tan(longitude) + move
    y = 2 * np.tan(latitude) / np.cos(longitude)
    wall = 127 + 50 * np.sin(6 * x + np.sin(2 * y)) + 50 * np.cos(5 * y + x)
    return np.repeat(np.where(np.hypot(x, y) < 8, wall, 0).astype(np.uint8)[..., None], 3, 2)


def test_a_vr180_photo_becomes_rectilinear_views() -> None:
    """A wall parallel to the cameras is shifted by one disparity everywhere: focal * baseline / distance."""
    left, right = (stereo_files.jpeg(panorama(move)) for move in (0.0, 0.2))
    for parts in (9, 20):
        pair = read(made.vr180(left, right, (512, 512), parts=parts))
        assert pair.span == (-90, 90, -90, 90)
    flat = make_rectilinear(pair, 80)
    focal = 512 / np.pi
    side = 2 * round(focal * np.tan(np.radians(40)))
    assert flat.left.pixels.shape == (side, side, 3)
    assert flat.stated["focal_length"] == pytest.approx(focal)
    assert flat.stated["baseline"] == 0
    shift = focal * 0.2 / 2
    columns = np.arange(60, side - 60)
    moved = np.stack(
        [np.interp(columns - shift, np.arange(side), row) for row in flat.right.pixels[20:-20, :, 0]]
    )
    assert np.abs(moved - flat.left.pixels[20:-20, columns, 0]).mean() < 1.5
    with pytest.raises(InputError, match="less than 150 degrees"):
        make_rectilinear(StereoPair(pair.left, pair.right, "photo", span=(-60, 60, -90, 90)), 150)


def test_panoramas_of_360_degrees_are_named_and_cut() -> None:
    half = [panorama(move) for move in (0.0, 0.2)]
    whole = [np.pad(view, ((0, 0), (256, 256), (0, 0)), "symmetric") for view in half]
    one, two = (
        make_rectilinear(StereoPair(*map(RgbImage, views), "pair"), 80)
        for views in (half, whole)  # type: ignore[arg-type]
    )
    assert np.abs(one.left.pixels.astype(int) - two.left.pixels).max() <= 1
    assert np.abs(one.right.pixels.astype(int) - two.right.pixels).max() <= 1
    (problem,) = check_pair(*whole).problems()
    assert (problem.topic, problem.do) == ("projection", "match a view of 90 degrees with `vr180` 90")
    flat = read_image(SAMPLE / "left.png").pixels[:370, :740]
    assert not any(map(is_panorama, (half[0], flat, two.left.pixels, np.zeros((64, 128, 3), np.uint8))))


def test_views_in_alternating_rows_are_aligned() -> None:
    """Both views keep their rows: a slanted edge stays straight, and lies at the same height in both."""
    height, columns = 40, np.arange(64)
    rows = np.arange(height)[:, None]
    smooth = (120 + 60 * np.sin(rows / 6 + columns / 9)).astype(np.uint8)
    left, right = (np.repeat(each[..., None], 3, 2) for each in (smooth, np.roll(smooth, 3, axis=1)))
    both = left.copy()
    both[1::2] = right[1::2]
    encoded = stereo_files.jps(stereo_files.jpeg(both, quality=100), flags=4, arrangement=1)
    for pair in (read(encoded), read(encoded, "rows-lr")):
        assert difference(pair.left.pixels[3:-3], left[3:-3]) <= 4
        assert difference(pair.right.pixels[3:-3], right[3:-3]) <= 4
    exchanged = read(encoded, "rows-rl")
    assert difference(exchanged.right.pixels[3:-3], left[3:-3]) <= 4


def test_an_anaglyph_is_split_by_its_colours(views: tuple[np.ndarray, np.ndarray]) -> None:
    grey = [np.asarray(Image.fromarray(view).convert("L")) for view in views]
    both = np.dstack([grey[0], grey[1] // 2, grey[1] // 2])  # dark on one side, as glasses need
    encoded = stereo_files.jps(stereo_files.jpeg(both, quality=100), arrangement=4)
    pair = read(encoded)
    assert difference(pair.left.pixels[..., 0], grey[0]) <= 4
    assert pair.left.grey
    assert pair.right.grey
    left, right = pair.left.pixels, pair.right.pixels
    assert abs(float(left.mean()) - right.mean()) < 2
    assert np.corrcoef(right[..., 1].ravel(), grey[1].ravel())[0, 1] > 0.99


def test_a_damaged_vr180_photo_is_one_line(tmp_path: Path) -> None:
    left = stereo_files.jpeg(panorama(0))
    data = made.vr180(left, b"this is not a JPEG", (512, 512))
    (tmp_path / "a.vr.jpg").write_bytes(data)
    assert states_layout(tmp_path / "a.vr.jpg")
    with pytest.raises(InputError, match="photo"):
        read(data)
    with pytest.raises(InputError, match="damaged"):
        read(made.vr180(left, left, (512, 0)))
    assert not states_layout(SAMPLE / "left.png")
