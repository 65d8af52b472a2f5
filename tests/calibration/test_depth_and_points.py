"""Disparities to metres: known answers of Middlebury's formula, of OpenCV, and of a plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest
from plyfile import PlyData

from pamcli.calibration.files import read_calibration
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.point_cloud import encode_point_cloud, write_point_cloud
from pamcli.errors import InputError, PamError
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import read_image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    found = read_calibration(SAMPLE / "calib.txt").rectified
    assert found is not None
    return found


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return read_disparity(SAMPLE / "disparity.pfm")


def points_of(calibration: Calibration, disparity: np.ndarray) -> np.ndarray:
    """(H, W, 3) in metres, x to the right, y down, z ahead; NaN where the depth is unknown."""
    height, width = disparity.shape
    x, y = calibration.principal or ((width - 1) / 2, (height - 1) / 2)
    row, column = np.indices(disparity.shape)
    across, down = (column - x) / calibration.focal_length, (row - y) / calibration.vertical_focal_length
    depth = calibration.depth(disparity)
    return np.stack([depth * across, depth * down, depth], axis=-1).astype(np.float32)


def test_middleburys_formula_on_the_sample(calibration: Calibration, truth: np.ndarray) -> None:
    depth = calibration.depth(truth)
    expected = 0.193001 * 994.978 / (truth.astype(np.float64) + 31.086)
    assert (np.isnan(depth) == np.isnan(truth)).all()
    np.testing.assert_allclose(depth, expected, rtol=1e-5)
    assert 1.9 < np.nanmin(depth) < np.nanmax(depth) < 5.5
    assert depth.dtype == np.float32


def test_unknown_infinite_and_behind() -> None:
    calibration = Calibration(100, 0.5, -2)
    with np.errstate(all="raise"):
        depth = calibration.depth(np.array([np.nan, np.inf, -np.inf, 2, 1, -5, 12], np.float32))
    np.testing.assert_array_equal(depth, [np.nan] * 6 + [5])


def test_another_size_of_the_same_aspect(truth: np.ndarray) -> None:
    full = Calibration(3979.911, 0.193001, 124.343, (1244.772, 1019.507), (2964, 2000))
    quarter = full.for_size(741, 500)
    assert (quarter.focal_length, quarter.offset) == pytest.approx((994.97775, 31.08575))
    assert (quarter.baseline, quarter.size) == (0.193001, (741, 500))
    assert quarter.principal == pytest.approx((310.818, 254.50175))
    assert full.for_size(2964, 2000) == full
    doubled = np.repeat(np.repeat(truth, 2, 0), 2, 1) * 2  # an area four times as large, the same scene
    single = points_of(quarter, truth)
    block = points_of(quarter.for_size(1482, 1000), doubled).reshape(500, 2, 741, 2, 3).mean((1, 3))
    np.testing.assert_allclose(block, single, rtol=1e-4, atol=1e-5)


def test_rounded_width_and_height_have_their_own_scales() -> None:
    full = Calibration(100, 0.1, 3, (10, 20), (101, 51), 90, ndisp=64)
    half = full.for_size(50, 25)
    assert (half.focal_length, half.offset, half.ndisp) == pytest.approx((5000 / 101, 150 / 101, 3200 / 101))
    assert half.focal_length_y == pytest.approx(90 * 25 / 51)
    assert half.principal == pytest.approx((10.5 * 50 / 101 - 0.5, 20.5 * 25 / 51 - 0.5))


def test_another_aspect_is_refused(calibration: Calibration) -> None:
    message = "the calibration is for 741x500 px, but the image is 745x500 px"
    with pytest.raises(InputError, match=message) as caught:
        calibration.for_size(745, 500)
    assert caught.value.exit_code == 3


def test_a_principal_point_that_nobody_states_is_in_the_middle() -> None:
    assert Calibration(100, 0.1).for_size(5, 3) == Calibration(100, 0.1, 0, (2, 1), (5, 3))
    assert (points_of(Calibration(100, 0.1), np.ones((3, 5)))[1, 2, :2] == 0).all()


MAP = np.ones((4, 6), np.float32)
ONE = Calibration(100, 1)


def cloud(disparity: np.ndarray, calibration: Any = ONE, **options: Any) -> int:
    return write_point_cloud("never.ply", disparity, calibration, **options)


NONSENSE: list[tuple[Callable[[], object], str]] = [
    (lambda: Calibration(100, float("inf")), "baseline is inf"),
    (lambda: Calibration(100, -0.1), "left of the left camera"),
    (lambda: Calibration(100, 0.1, 0, (float("nan"), 1)), "principal point is nan"),
    (lambda: Calibration("x", 1), "`focal_length` must be a number, got 'x'"),
    (lambda: Calibration(10**5000, 1), "focal length is inf px"),
    (lambda: Calibration(100, 1, size=(0, 0)), r"`size` must be \(width, height\) in px, .*got 0x0"),
    (lambda: Calibration(100, 1, principal=(1,)), r"`principal` must be \(x, y\)"),
    (lambda: ONE.depth([[1], [1, 2]]), "array of numbers: "),
    (lambda: ONE.depth_error(MAP, "x"), "`deviation` must"),
    (lambda: Calibration(100, 0).depth(np.ones(3)), "depth requires a baseline"),
    (lambda: cloud(np.zeros((0, 0))), r"shape \(height, width\), got \(0, 0\)"),
    (lambda: cloud(MAP, stride=0), "`stride` must be a whole number from 1, got 0"),
    (lambda: cloud(MAP, max_depth=-1), "`max_depth` must be above 0 m, got -1"),
    (lambda: cloud(MAP, image=np.zeros((8, 12, 3), np.uint8)), r"\(4, 6, 3\) of uint8"),
    (lambda: read_calibration(SAMPLE / "calib.txt", cameras="x"), "`cameras` must"),
]


@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_nonsense_is_refused_in_one_line(number: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    call, message = NONSENSE[number]
    with pytest.raises(PamError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((100, 120), "millimetres (`baseline` 120mm)"),
        ((100, 0.0001), "`baseline` 0.1m"),
        ((35, 0.1), "focal length of 35 px is perhaps in millimetres"),
        ((100, 0.1, 0, (30, 2), (6, 4)), "principal point 30,2 px is outside the 6x4 px image"),
    ],
)
def test_warnings(values: tuple[Any, ...], said: str) -> None:
    assert said in Calibration(*values).warnings()[0]
    assert Calibration(100, 0.1, 0, (3, 2), (6, 4)).warnings() == []


def read_back(data: bytes) -> PlyData:
    with NamedTemporaryFile(suffix=".ply") as file:  # plyfile reads from memory value by value
        file.write(data)
        file.flush()
        return PlyData.read(file.name)


def test_a_cloud_holds_the_points_and_their_colours(calibration: Calibration, truth: np.ndarray) -> None:
    image = read_image(SAMPLE / "left.png").pixels
    data, count = encode_point_cloud(truth, calibration, image=image)
    ply = read_back(data)
    vertex = ply["vertex"]
    known = np.isfinite(truth)
    assert (ply.byte_order, ply.text) == ("<", False)
    assert ply.comments == ["metres in camera coordinates: x to the right, y down, z ahead"]
    assert len(vertex) == count == np.count_nonzero(known)
    points = np.stack([vertex[axis] for axis in "xyz"], axis=1)
    np.testing.assert_allclose(points, points_of(calibration, truth)[known], rtol=1e-5, atol=1e-6)
    colors = np.stack([vertex[name] for name in ("red", "green", "blue")], axis=1)
    np.testing.assert_array_equal(colors, image[known])
    white = read_back(encode_point_cloud(truth, calibration)[0])["vertex"]
    assert [*map(str, white.properties)] == [*map(str, vertex.properties)], "one schema, whatever is known"
    assert (white["red"] == 255).all()


def test_a_cloud_of_pixels_that_are_not_square() -> None:
    calibration = Calibration(700, 0.15, 12, (3, 2), (8, 6), 350)
    disparity = np.linspace(1, 9, 48, dtype=np.float32).reshape(6, 8)
    vertex = read_back(encode_point_cloud(disparity, calibration)[0])["vertex"]
    points = np.stack([vertex[axis] for axis in "xyz"], axis=1)
    np.testing.assert_allclose(points, points_of(calibration, disparity).reshape(-1, 3), rtol=1e-5)


def test_a_thinner_and_nearer_cloud(calibration: Calibration, truth: np.ndarray) -> None:
    wide = (np.indices(truth.shape)[0][..., None].repeat(3, 2) * 64).astype(np.uint16)
    data, count = encode_point_cloud(truth, calibration, image=wide, max_depth=3, stride=7)
    vertex = read_back(data)["vertex"]
    points, rows = points_of(calibration, truth)[::7, ::7], (wide >> 8)[::7, ::7, 0]
    near = points[..., 2] <= 3
    assert 0 < len(vertex) == count == np.count_nonzero(near) < near.size
    for index, axis in enumerate("xyz"):
        np.testing.assert_allclose(vertex[axis], points[near][:, index], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(vertex["red"], rows[near])
    empty, none = encode_point_cloud(truth, calibration, max_depth=0.1)
    assert none == len(read_back(empty)["vertex"]) == 0


def test_depth_of_a_map_of_another_size_is_refused() -> None:
    """Half as large, it has half the disparities: with the focal length of the whole, twice the depths."""
    calibration = Calibration(1000, 0.2, size=(640, 480))
    half = np.full((240, 320), 25, np.float32)
    said = r"for 640x480 px, but the disparity map is 320x240 px.*calibration.for_size\(320, 240\)"
    with pytest.raises(InputError, match=said):
        calibration.depth(half)
    with pytest.raises(InputError, match=said):
        calibration.depth_error(half, 0.5)
    assert calibration.for_size(320, 240).depth(half)[0, 0] == pytest.approx(4)
    assert calibration.depth(np.full((480, 640), 50, np.float32))[0, 0] == pytest.approx(4)
    assert calibration.depth(np.float32([50]))[0] == pytest.approx(4), "points have no size"
