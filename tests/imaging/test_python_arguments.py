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

EMPTY = np.zeros((0, 4), np.float32)
FLAT = np.zeros((2, 3), np.float32)
SHAPE = "a disparity map must have shape (H, W) and floating-point numbers, got "
IMAGE = "an image must be (H, W, 3) of uint8 or uint16, got "


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (pamcli.read_image, (None,), "`source` must be str | pathlib.Path | bytes, got None"),
        (pamcli.read_image, ([1],), "`source` must be str | pathlib.Path | bytes, got [1]"),
        (pamcli.read_image, (FLAT,), "`source` must be str"),
        (pamcli.read_image, (b"",), "the data is empty"),
        (pamcli.read_image, ("",), "it is a folder"),
        (pamcli.read_image, ("a\0b",), "embedded null byte"),
        (pamcli.read_disparity, (None,), "`path` must be str | pathlib.Path, got None"),
        (pamcli.read_disparity, ("",), "a name without suffix"),
        (pamcli.read_disparity, ("a\0.npy",), "embedded null byte"),
        (pamcli.read_disparity, ("empty.npy",), "empty.npy has no pixels: it is 4x0"),
        (pamcli.write_disparity, (None, FLAT), "`path` must be str | pathlib.Path, got None"),
        (pamcli.write_disparity, ("", FLAT), "is a folder"),
        (pamcli.write_disparity, ("a\0.npy", FLAT), "contains the character NUL"),
        (pamcli.write_disparity, ("d.png", [[1.0]]), "`disparity` must be numpy.ndarray, got [[1.0]]"),
        (pamcli.write_disparity, ("d.png", EMPTY), f"{SHAPE}(0, 4) float32"),
        (pamcli.write_disparity, ("d.pfm", EMPTY), f"{SHAPE}(0, 4) float32"),
        (pamcli.write_disparity, ("d.pfm", FLAT.astype(int)), f"{SHAPE}(2, 3) int64"),
        (pamcli.write_disparity, ("d.pfm", FLAT[..., None]), f"{SHAPE}(2, 3, 1) float32"),
        (pamcli.write_disparity, ("d.pfm", FLAT.astype(object)), f"{SHAPE}(2, 3) object"),
        (colorize, ([[1.0]], 0, 1), "`disparity` must be numpy.ndarray"),
        (colorize, (EMPTY, 0, 1), f"{SHAPE}(0, 4) float32"),
        (colorize, (FLAT, None, 1), "`low` must be float, got None"),
        (colorize, (FLAT, np.nan, 1), "the range nan:1 is empty"),
        (RgbImage, ([1],), f"{IMAGE}() of list"),
        (write_image, (Path("a.png"), None), f"{IMAGE}() of NoneType"),
        (write_image, (Path("a.png"), np.zeros((0, 2, 3), np.uint8)), f"{IMAGE}(0, 2, 3) of uint8"),
        (write_image, (Path("a.png"), np.zeros((2, 3), np.uint8)), f"{IMAGE}(2, 3) of uint8"),
        (write_image, (Path("a.png"), np.zeros((2, 2, 3))), f"{IMAGE}(2, 2, 3) of float64"),
    ],
)
def test_wrong_arguments_raise_one_line(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("empty.npy", EMPTY)
    with pytest.raises(pamcli.PamError, match=re.escape(message)):
        function(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.npy"]


@pytest.mark.parametrize("name", ["max_pixels", "scale"])
def test_wrong_keywords_are_named(name: str) -> None:
    with pytest.raises(pamcli.PamError, match=rf"`{name}` must be (int|float) \| None, got 'x'"):
        pamcli.read_disparity("d.npy", **{name: "x"})  # type: ignore[arg-type]
