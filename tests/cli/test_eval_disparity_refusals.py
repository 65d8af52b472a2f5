"""Tests of the errors of `pam eval disparity`."""

from __future__ import annotations

from pathlib import Path

import eval_trees
import numpy as np
import pytest
from pam_program import pam, refuse, refuse_options, unchanged

from pamcli.errors import OutputError

KITTI = "kitti2015:kitti"
NAMES = list(eval_trees.BOXES)


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        (["--resize", "100"], ["--resize", "512x256"]),
        (["--resize", "8x64"], ["--resize"]),
        (["--resize", "64x-48"], ["--resize"]),
        (["--per-image", "rows.txt"], ["--per-image", ".csv"]),
        (["--report", "report.pdf"], ["--report", ".html"]),
        (["--predictions", "made", "--per-image", "t.csv", "--table", "./t.csv"], ["t.csv"]),
        (["--max-gt", "inf"], ["--max-gt"]),
        (["--max-gt", "nan"], ["--max-gt", "nan"]),
        (["--max-gt", "0"], ["--max-gt", "0"]),
        (["--predictions", "made", "--weights", "pasmnet"], ["--predictions", "--weights"]),
        (["--predictions", "made", "--max-disparity", "64"], ["--max-disparity"]),
        (["--predictions", "none"], ["no such folder", "none"]),
        (["--scale", "2"], ["--scale", "--predictions"]),
        (["--allow-missing"], ["--allow-missing", "--predictions"]),
        (["--max-disparity", "many"], ["--max-disparity", "many"]),
        (["--device", "gpu"], ["--device", "gpu"]),
        (["--protocol", "kiti"], ["kiti", "kitti"]),
        (["--protocol", "kitti", "--protocol", "kitti"], ["--protocol kitti", "twice"]),
        (["--protocol", "kitti", "--max-gt", "192"], ["--protocol", "--max-gt"]),
        (["--predictions", "made", "--data", "pairs:mine"], ["the files of made", "one data set"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_contradictions_and_bad_values(
    made: dict[str, np.ndarray], mine: Path, more: list[str], texts: list[str]
) -> None:
    with unchanged():
        refuse(pam("eval", "disparity", "--data", KITTI, *more), 2, *texts)


@pytest.mark.parametrize(
    ("data", "code", "texts"),
    [
        ("kitti2016:kitti", 2, ["kitti2016", "kitti2015"]),
        ("kitti2015/test:kitti", 2, ["test", "testing"]),
        ("kitti2015:kitti?frist=1", 2, ["frist", "first"]),
        ("kitti2015:kitti?first=0", 2, ["first", "got 0"]),
        ("kitti", 2, ["kitti"]),
        ("kitti2015:nowhere", 3, ["nowhere does not exist"]),
        ("pairs:kitti", 3, ["kitti", "left"]),
    ],
)
def test_bad_data(kitti: Path, data: str, code: int, texts: list[str]) -> None:
    with unchanged():
        refuse(pam("eval", "disparity", "--data", data), code, *texts)


def test_bad_options() -> None:
    refuse_options(pam("eval", "disparity"), "--data")
    refuse_options(pam("eval", "disparity", "--data", KITTI, "--precision", "fp8"), "--precision")
    refuse_options(pam("eval", "nonsense"), "nonsense")


def test_bad_weights(kitti: Path) -> None:
    Path("bad.safetensors").write_bytes(b"nothing of the kind")
    for weights in ("bad.safetensors", "nonsense", "passrnet-x4"):
        with unchanged():
            refuse(pam("eval", "disparity", "--data", KITTI, "--weights", weights), 4)


def test_a_folder_that_cannot_be_written_to_is_known_first(made: dict[str, np.ndarray]) -> None:
    arguments = ["eval", "disparity", "--data", KITTI, "--predictions", "made"]
    Path("file").write_text("not a folder")
    with unchanged():
        refuse(pam(*arguments, "--report", "file/report.html"), 7, "file")


def test_figures_do_not_replace_the_list_that_names_the_pairs(mine: Path) -> None:
    pair = [str(mine / side / f"{next((mine / side).iterdir()).stem}.png") for side in ("left", "right")]
    Path("list.csv").write_text("\t".join(pair) + "\n")
    with unchanged():
        refuse(
            pam("eval", "disparity", "--data", "pairs:list.csv", "--per-image", "list.csv", "--overwrite"),
            2,
            "list.csv",
        )


def test_figures_are_printed_even_where_a_file_cannot_be_written(
    made: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OutputError("cannot write rows.csv: no space left")

    monkeypatch.setattr("pamcli.evaluation.run.write_atomically", full)
    run = pam("eval", "disparity", "--data", KITTI, "--predictions", "made", "--per-image", "rows.csv")
    assert run.code == 7
    assert "no space left" in run.stderr
    assert any("D1" in line for line in run.lines)


def test_a_damaged_image_is_named(made: dict[str, np.ndarray]) -> None:
    Path("kitti/training/image_3/000001_10.png").write_bytes(b"nothing")
    run = pam("eval", "disparity", "--data", KITTI, "--predictions", "made", "--per-image", "rows.csv")
    refuse(run, 3, "image_3/000001_10.png")
    assert not Path("rows.csv").exists()
