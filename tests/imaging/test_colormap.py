from __future__ import annotations

import numpy as np
import pytest

from pamcli.errors import UsageError
from pamcli.imaging.colormap import colorize, get_color_table


def cie_lab(rgb: np.ndarray) -> np.ndarray:
    """(N, 3) uint8 sRGB -> (N, 3) CIE L*, a*, b* under D65."""
    encoded = rgb / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    relative = linear @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
    f = np.where(relative > 216 / 24389, np.cbrt(relative), relative * 841 / 108 + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=-1)


def test_lightness_rises_from_every_entry_to_the_next() -> None:
    lightness = cie_lab(get_color_table())[:, 0]
    assert (np.diff(lightness) > 0).all()
    assert lightness[0] < 25
    assert lightness[-1] > 90


def test_steps_are_roughly_even() -> None:
    lab = cie_lab(get_color_table())
    lightness = lab[16:, 0] - lab[:-16, 0]
    assert lightness.max() < 1.5 * lightness.min()
    distance = np.linalg.norm(lab[16:] - lab[:-16], axis=1)
    assert distance.max() < 2.5 * distance.min()  # CIE 1976 itself exaggerates saturated blue that much


def test_the_hue_turns_one_way() -> None:
    lab = cie_lab(get_color_table()[::8])
    hue = np.unwrap(np.arctan2(lab[:, 2], lab[:, 1]))
    assert (np.diff(hue) < 0).all()
    assert abs(hue[-1] - hue[0]) > np.pi


def test_no_colour_is_near_the_black_of_unknown() -> None:
    assert np.linalg.norm(cie_lab(get_color_table()), axis=1).min() > 40


def test_the_ends_and_the_middle_of_the_range() -> None:
    table = get_color_table()
    colored = colorize(np.array([[10, 20, 30]], np.float32), 10, 30)
    assert colored.dtype == np.uint8
    assert colored.shape == (1, 3, 3)
    assert (colored[0, 0] == table[0]).all()
    assert (colored[0, 1] == table[128]).all()
    assert (colored[0, 2] == table[255]).all()


def test_disparities_outside_of_the_range_are_clipped() -> None:
    disparity = np.array([[-1, 0, 96, 192, 192.5], [np.nan, np.inf, -np.inf, 1e30, 5]], np.float32)
    colored = colorize(disparity, 0, 192)
    assert (colored[0, 0] == get_color_table()[0]).all()
    assert (colored[0, 4] == get_color_table()[255]).all()
    assert (colored[1, 3] == get_color_table()[255]).all()


def test_unknown_is_black() -> None:
    colored = colorize(np.array([[np.nan, np.inf, 0]], np.float32), 0, 192)
    assert (colored[0, :2] == 0).all()
    assert (colored[0, 2] == get_color_table()[0]).all()


def test_a_map_without_any_range() -> None:
    colored = colorize(np.full((2, 2), 7, np.float32), 7, 7)
    assert (colored == get_color_table()[0]).all()


@pytest.mark.parametrize(("low", "high"), [(5, 4), (0, np.inf), (np.nan, 3)])
def test_an_empty_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(UsageError, match="range"):
        colorize(np.zeros((2, 2), np.float32), low, high)


def test_the_table_cannot_be_changed_by_accident() -> None:
    colorize(np.full((2, 2), np.nan, np.float32), 0, 1)
    with pytest.raises(ValueError, match="read-only"):
        get_color_table()[0] = 0
