"""The contact sheet of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import source_trees

from pamcli.data.open import open_data
from pamcli.data.preview import render_contact_sheet
from pamcli.imaging.colormap import get_color_table

GAP, LINE, CELL = 4, 14, 60
HIGH = 40  # of a cell: 4 x 6 pixels, 60 wide


def cell(sheet: np.ndarray, row: int, column: int) -> np.ndarray:
    top = GAP + row * (LINE + HIGH + GAP) + LINE
    start = GAP + column * (CELL + GAP)
    return sheet[top : top + HIGH, start : start + CELL]


def test_a_row_for_each_sample_and_a_cell_for_each_part(tmp_path: Path) -> None:
    source_trees.kitti2015(tmp_path)
    sheet = render_contact_sheet(open_data(f"kitti2015:{tmp_path}"), 8, cell_width=CELL)
    assert sheet.dtype == np.uint8
    assert sheet.shape == (GAP + 2 * (LINE + HIGH + GAP), 4 * CELL + 5 * GAP, 3)
    for row in (0, 1):
        assert (cell(sheet, row, 0) == 90).all()
        assert (cell(sheet, row, 1) == 120).all()
        disparity, visible = cell(sheet, row, 2), cell(sheet, row, 3)
        # The first pixels of the truth are 2.5, unknown, 255.996 and 1/256; a pixel fills 10 x 10.
        assert (disparity[5, 15] == 0).all()
        assert (disparity[5, 25] == get_color_table()[-1]).all()
        assert (disparity[5, 35] == get_color_table()[0]).all()
        assert [int(visible[5, x, 0]) for x in (5, 15, 25, 35)] == [255, 96, 0, 255]
        name = sheet[GAP + row * (LINE + HIGH + GAP) :][:LINE]
        assert name.max() > 200  # something is written there


def test_without_ground_truth_both_views_lie_in_one_image(tmp_path: Path) -> None:
    source_trees.holopix50k(tmp_path)
    sheet = render_contact_sheet(open_data(f"holopix50k/val:{tmp_path}"), 8, cell_width=CELL)
    assert (cell(sheet, 0, 2) == [90, 120, 120]).all()  # red of the left view, green and blue of the right
    assert (cell(sheet, 0, 3) == 24).all()
