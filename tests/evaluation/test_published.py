from __future__ import annotations

import pytest

from pamcli.evaluation import disparity_metrics, superres_metrics
from pamcli.evaluation.pixels import REGIONS
from pamcli.evaluation.published import load_published

ROWS = load_published()


def test_rows_that_everything_is_checked_against() -> None:
    bicubic = ROWS["kitti2012", 4][0]
    assert bicubic["method"] == "bicubic"
    assert (bicubic["both psnr"], bicubic["both ssim-ipassr"]) == (24.58, 0.7372)
    assert (bicubic["left psnr"], bicubic["left ssim-ipassr"]) == (24.52, 0.7310)
    [paper] = [row for row in ROWS["kitti2015", None] if row["method"] == "PASMnet"]
    assert {"bg d1": 5.89, "fg d1": 16.74, "d1": 7.70, "noc d1": 6.99}.items() <= paper.items()
    assert "without labels" in paper["protocol"]
    [undefined] = [row for row in ROWS["middlebury", 4] if row["method"] == "PASSRnet (its paper)"]
    assert (undefined["left psnr"], undefined["left ssim"]) == (28.63, 0.871)
    assert "not define" in undefined["protocol"]


def test_every_data_set_of_the_papers_has_rows() -> None:
    disparity = ["kitti2012", "kitti2015", "middlebury", "eth3d", "sceneflow"]
    superres = [*disparity[:3], "flickr1024"]
    assert ROWS.keys() == {
        *((data, None) for data in disparity),
        *((data, n) for data in superres for n in (2, 4)),
    }


@pytest.mark.parametrize(("data", "scale"), ROWS)
def test_rows_are_named_as_measurements_are(data: str, scale: int | None) -> None:
    rows = ROWS[data, scale]
    assert len({(row["method"], row["protocol"], row["source"]) for row in rows}) == len(rows)
    assert len(rows) > (8 if scale else 4)
    regions, metrics = REGIONS, disparity_metrics.METRICS
    if scale:
        regions, metrics = superres_metrics.PROTOCOLS, {**superres_metrics.METRICS, "ssim": ""}
    for row in rows:
        figures = {key: value for key, value in row.items() if key not in ("method", "protocol", "source")}
        assert figures
        assert row["protocol"]
        assert row["source"]
        assert scale is None or any(key.endswith(" psnr") for key in figures)
        for key, value in figures.items():
            region, _, metric = key.rpartition(" ")
            assert region in {"", *regions}
            assert metric in metrics
            low, high = (20, 40) if metric == "psnr" else (0.6, 1) if scale else (0, 40)
            assert low < value < high
