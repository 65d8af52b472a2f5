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


def test_lightness_rises_in_even_steps_while_the_hue_turns_one_way() -> None:
    lab = cie_lab(get_color_table())
    lightness = lab[:, 0]
    assert (np.diff(lightness) > 0).all()
    assert lightness[0] < 25
    assert lightness[-1] > 90
    steps = lab[16:] - lab[:-16]
    assert steps[:, 0].max() < 1.5 * steps[:, 0].min()
    distance = np.linalg.norm(steps, axis=1)
    assert distance.max() < 2.5 * distance.min()  # CIE 1976 itself exaggerates saturated blue that much
    hue = np.unwrap(np.arctan2(lab[::8, 2], lab[::8, 1]))
    assert (np.diff(hue) < 0).all()
    assert abs(hue[-1] - hue[0]) > np.pi
    assert np.linalg.norm(lab, axis=1).min() > 40, "near the black of unknown"


@pytest.mark.parametrize(
    ("disparity", "entry"),
    [(10, 0), (20, 128), (30, 255), (-1, 0), (30.5, 255), (1e30, 255), (np.nan, None), (-np.inf, None)],
)
def test_disparities_are_clipped_to_the_range_and_unknown_is_black(
    disparity: float, entry: int | None
) -> None:
    colored = colorize(np.array([[disparity]], np.float32), 10, 30)
    assert (colored.dtype, colored.shape) == (np.uint8, (1, 1, 3))
    assert (colored == (0 if entry is None else get_color_table()[entry])).all()


def test_ranges_that_are_empty() -> None:
    for low, high in ((5, 4), (0, np.inf), (np.nan, 3)):
        with pytest.raises(UsageError, match="range"):
            colorize(np.zeros((2, 2), np.float32), low, high)
    assert (colorize(np.full((2, 2), 7, np.float32), 7, 7) == get_color_table()[0]).all()
