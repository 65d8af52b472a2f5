"""pam-asp by the contract of the Ames Stereo Pipeline, on tiles made from the sample pair."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pam_program
import pytest
import tifffile
from PIL import Image

from pamcli.cli import ames
from pamcli.imaging.disparity_files import read_disparity

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
OFFSET = 34
"""Columns by which the right tile is cut further left: disparities of 7 to 60 become -27 to 26."""
ROWS, COLUMNS = slice(140, 300), slice(150, 470)

pytestmark = pytest.mark.usefixtures("networks")


def run(*arguments: str) -> pam_program.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pam_program, "main", ames.main)
        return pam_program.pam(*arguments)


@pytest.fixture
def truth(here: Path) -> np.ndarray:
    """left.tif and right.tif, float32 as of a satellite with no data in places; their true shifts."""
    views = []
    for side, offset in (("left", 0), ("right", OFFSET)):
        grey = np.asarray(Image.open(SAMPLE / f"{side}.png").convert("L"), np.float32)
        tile = 300 + 2.7 * grey[ROWS, COLUMNS.start - offset : COLUMNS.stop - offset]
        views.append(tile.astype(np.float32))
    views[0][:, :12] = np.nan
    views[0][60:70, 100:130] = np.nan
    views[1][:20] = np.nan
    views[1][:, -15:] = np.nan
    for view, name in zip(views, ("left.tif", "right.tif"), strict=True):
        tifffile.imwrite(name, view)
    return OFFSET - read_disparity(SAMPLE / "disparity.pfm")[ROWS, COLUMNS]


def test_the_contract(truth: np.ndarray) -> None:
    result = run("-r", "-30", "-R", "30", "left.tif", "right.tif", "shift.tif")
    assert (result.code, result.stdout) == (0, b"")
    assert any("percentiles 0.5 to 99.5" in line for line in result.complaints)
    shift = tifffile.imread("shift.tif")
    assert shift.dtype == np.float32
    assert shift.shape == truth.shape
    # No data in the left tile, in the right one (its upper rows), and matches outside of it stay unknown.
    assert np.isnan(shift[np.isnan(tifffile.imread("left.tif"))]).all()
    assert np.isnan(shift[:20]).all()
    columns = np.arange(shift.shape[1]) + shift
    assert np.nanmin(columns) >= 0
    assert np.nanmax(columns) < shift.shape[1] - 15
    known = np.isfinite(shift) & np.isfinite(truth)
    assert known.mean() > 0.4
    error = np.abs(shift - truth)[known]
    assert np.median(error) < 0.7
    assert (error > 3).mean() < 0.15
    assert shift[known].min() < -15
    assert shift[known].max() > 15


def test_the_range_is_kept(truth: np.ndarray) -> None:
    assert run("-r", "-5", "-R", "30", "-occluded", "left.tif", "right.tif", "shift.tif").code == 0
    shift = tifffile.imread("shift.tif")
    assert np.nanmin(shift) >= -5.5
    assert np.nanmax(shift) <= 30.5
    confident = "-m", "-30", "-M", "30", "-min_confidence", "0.5"
    assert run(*confident, "left.tif", "right.tif", "sure.tif").code == 0
    assert 0 < np.isfinite(tifffile.imread("sure.tif")).sum() < shift.size
    tifffile.imwrite("none.tif", np.full(truth.shape, np.nan, np.float32))
    assert run("-r", "-30", "-R", "30", "none.tif", "right.tif", "unknown.tif").code == 0
    assert np.isnan(tifffile.imread("unknown.tif")).all()


def test_bad_input_is_one_line(truth: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pam_program, "main", ames.main)
    tifffile.imwrite("small.tif", np.ones((40, 40), np.float32))
    tifffile.imwrite("bytes.tif", np.ones(truth.shape, np.uint8))
    table = """
        2 -r 5 -R -5 left.tif right.tif x.tif | must be at most -R
        2 -r nan -R 5 left.tif right.tif x.tif | --lowest must be finite, got nan
        2 left.tif right.tif | Missing argument 'output'
        3 -r -5 -R 5 left.tif missing.tif x.tif | missing.tif
        3 -r -5 -R 5 left.tif bytes.tif x.tif | bytes.tif holds uint8
        2 -r -9 -R 9 left.tif right.tif left.tif | left.tif would overwrite an input
        2 -r -9 -R 9 left.tif right.tif same.tif | same.tif would overwrite an input
    """
    os.symlink("left.tif", "same.tif")
    pam_program.refuse_all(table)
    small = run("-r", "-5", "-R", "5", "left.tif", "small.tif", "x.tif")
    assert (small.code, "must have the same size" in small.complaints[-1]) == (3, True)
