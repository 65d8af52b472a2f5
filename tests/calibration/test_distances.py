"""Positions of points and boxes: a plane of known distance, tables of detectors, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pamcli.calibration.distances import Region, read_regions, select_regions
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError

CALIBRATION = Calibration(500, 0.2, 2, (39.5, 29.5), (80, 60))


def scene() -> np.ndarray:
    """A wall of 18 px (5 m) with a box of 48 px (2 m), unknown pixels and an outlier."""
    disparity = np.full((60, 80), 18, np.float32)
    disparity[20:40, 50:70] = 48
    disparity[20:28, 50:70] = np.nan
    disparity[30, 60] = 400
    return disparity


def test_a_box_has_the_median_of_its_known_pixels() -> None:
    found = Region(50, 20, 20, 20, labels={"label": "cup"}).measure(scene(), CALIBRATION, 0.5)
    assert (found["label"], found["disparity_px"], found["known"]) == ("cup", 48, 0.6)
    assert (found["x_m"], found["y_m"], found["z_m"]) == pytest.approx((0.08, 0, 2))
    error = 2**2 * 0.5 / 100  # Z^2 / (f B) for each px
    assert (found["x_error_m"], found["z_error_m"]) == pytest.approx((0.04 * error, error))
    assert (found["z_10_percent_m"], found["z_90_percent_m"]) == pytest.approx((2, 2))


def test_points_and_boxes_cover_the_pixels_that_they_name() -> None:
    columns = np.tile(np.arange(80, dtype=np.float32), (60, 1))
    for region, pixels in (
        (Region(10, 5), [10]),
        (Region(10.4, 5), [10]),
        (Region(10.6, 5), [11]),
        (Region(10, 5, 3, 2), [10, 11, 12]),
        (Region(78, 59, 0.2, 9), [78]),
    ):
        found = region.measure(columns, CALIBRATION, 0.5)
        assert found["disparity_px"] == np.median(pixels)
    half = CALIBRATION.for_size(40, 30)
    assert Region(0, 0).measure(columns[::2, ::2] + 1, half, 1)["x_m"] < 0


def test_nothing_known_and_outside() -> None:
    found = Region(52, 22, 4, 4).measure(scene(), CALIBRATION, 0.5)
    assert found["known"] == 0
    assert np.isnan([found["x_m"], found["z_m"], found["z_error_m"], found["z_10_percent_m"]]).all()
    with pytest.raises(InputError, match=r"outside of the 80x60 px image"):
        Region(5, 60, 9, 9).measure(scene(), CALIBRATION, 0.5)


SAME = [
    ("a.csv", "label,x,y,width,height\ncup,1,2,3,4\n"),
    ("a.csv", "Label;Left;Top;Right;Bottom\ncup;1;2;4;6\n"),
    ("a.csv", "x1, y1, x2, y2, label\n1, 2, 4, 6, cup\n"),
    ("a.tsv", "xmin\tymin\txmax\tymax\tlabel\n1\t2\t4\t6\tcup\n"),
    ("a.json", json.dumps([{"x": 1, "y": 2, "w": 3, "h": 4, "label": "cup"}])),
    ("a.json", json.dumps({"annotations": [{"bbox": [1, 2, 3, 4], "label": "cup"}]})),
]


@pytest.mark.parametrize(("name", "text"), SAME)
def test_tables_of_boxes(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_regions(tmp_path / name) == [Region(1, 2, 3, 4, labels={"label": "cup"})]


def test_boxes_name_their_images(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image,u,v\none.png,1,2\n,3,4\nin/two,5,6\n")
    regions = read_regions(tmp_path / "a.csv")
    for name, found in (("in/one.png", [1, 3]), ("one.pfm", [1, 3]), ("two.png", [3, 5]), ("three.png", [3])):
        assert [each.x for each in select_regions(regions, [name])] == found


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "1,2,3,4\n5,6,7,8\n", "row 1 has the columns 1, 2, 3, 4"),
        ("a.csv", "x,y\n", "holds no points or boxes"),
        ("a.csv", "x,y\n1,two\n", "row 1: y must be a number, got 'two'"),
        ("a.csv", "x1,y1,x2,y2\n1,2,3,4\n5,6,5,9\n", "row 2: a box must be at least 1 px wide"),
        ("a.json", "{", "cannot be read"),
        ("a.csv", "\0\xff", "holds no points"),
    ],
)
def test_what_is_no_table_of_boxes(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        read_regions(tmp_path / name)
