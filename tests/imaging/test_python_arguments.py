"""Wrong arguments from Python: each raises a PamError that says what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pamcli
from pamcli.imaging.colormap import colorize
from pamcli.imaging.images import RgbImage, write_image

FLAT = np.zeros((2, 3), np.float32)
IMAGE = "an image must be (H, W, 3) of uint8 or uint16, got "


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (pamcli.read_image, (None,), "`source` must be str | pathlib.Path | bytes, got None"),
        (pamcli.read_image, (b"",), "the data is empty"),
        (pamcli.read_disparity, (None,), "`path` must be str | pathlib.Path, got None"),
        (pamcli.read_disparity, ("a\0.npy",), "embedded null byte"),
        (pamcli.write_disparity, ("", FLAT), "is a folder"),
        (pamcli.write_disparity, ("a\0.npy", FLAT), "contains the character NUL"),
        (pamcli.write_disparity, ("d.png", [[1.0]]), "`disparity` must be numpy.ndarray, got [[1.0]]"),
        (colorize, (FLAT, None, 1), "`low` must be float, got None"),
        (RgbImage, ([1],), f"{IMAGE}() of list"),
        (write_image, (Path("a.png"), np.zeros((2, 2, 3))), f"{IMAGE}(2, 2, 3) of float64"),
    ],
)
def test_wrong_arguments_raise_one_line(
    function: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(pamcli.PamError, match=re.escape(message)):
        function(*arguments)
