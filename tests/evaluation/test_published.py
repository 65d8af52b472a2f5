from __future__ import annotations

import pytest

from pamcli.evaluation import disparity_metrics, superres_metrics
from pamcli.evaluation.pixels import REGIONS
from pamcli.evaluation.published import list_published_rows

SUPERRES = [
    (data, scale) for data in ("kitti2012", "kitti2015", "middlebury", "flickr1024") for scale in (2, 4)
]
DISPARITY = ["kitti2012", "kitti2015", "middlebury", "eth3d", "sceneflow"]


def test_the_bicubic_row_that_everything_is_checked_against() -> None:
    row = list_published_rows("kitti2012", 4)[0]
    assert row.method == "bicubic"
    assert row.figures["both"] == {"psnr": 24.58, "ssim-ipassr": 0.7372}
    assert row.figures["left"] == {"psnr": 24.52, "ssim-ipassr": 0.7310}


def test_the_row_of_the_paper() -> None:
    [row] = [row for row in list_published_rows("kitti2015") if row.method == "PASMnet"]
    assert row.figures == {"bg": {"d1": 5.89}, "fg": {"d1": 16.74}, "all": {"d1": 7.70}, "noc": {"d1": 6.99}}
    assert "without labels" in row.protocol


def test_the_ssim_of_the_paper_is_called_undefined() -> None:
    [row] = [row for row in list_published_rows("middlebury", 4) if row.method == "PASSRnet (its paper)"]
    assert row.figures == {"left": {"psnr": 28.63, "ssim": 0.871}}
    assert "not define" in row.protocol


@pytest.mark.parametrize(("data", "scale"), [*SUPERRES, *((data, None) for data in DISPARITY)])
def test_rows_are_named_as_measurements_are(data: str, scale: int | None) -> None:
    rows = list_published_rows(data, scale)
    assert len({(row.method, row.protocol, row.source) for row in rows}) == len(rows) > (8 if scale else 4)
    regions, metrics = (
        (superres_metrics.PROTOCOLS, {*superres_metrics.METRICS, "ssim"})
        if scale
        else (REGIONS, {*disparity_metrics.METRICS})
    )
    for row in rows:
        assert (row.data, row.scale) == (data, scale)
        assert row.protocol
        assert row.source
        assert row.subset
        assert row.figures
        for region, figures in row.figures.items():
            assert region in regions
            assert set(figures) <= metrics
            assert scale is None or "psnr" in figures
            for metric, value in figures.items():
                low, high = (20, 40) if metric == "psnr" else (0.6, 1) if scale else (0, 40)
                assert low < value < high


def test_unknown_sets_have_no_rows() -> None:
    assert list_published_rows("cityscapes") == ()
    assert list_published_rows("kitti2012", 3) == ()
