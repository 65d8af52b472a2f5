from __future__ import annotations

import pytest

from pamcli.evaluation import disparity_metrics, superres_metrics
from pamcli.evaluation.pixels import REGIONS
from pamcli.evaluation.published import load_published

ROWS = load_published()


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
