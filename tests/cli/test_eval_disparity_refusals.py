"""Tests of the errors of `pam eval disparity`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pam_program import pam, refuse, refuse_all, unchanged

from pamcli.errors import OutputError

KITTI = "kitti2015:kitti"


def test_contradictions_and_bad_values(made: dict[str, np.ndarray], mine: Path) -> None:
    Path("bad.safetensors").write_bytes(b"nothing of the kind")
    Path("file").write_text("not a folder")
    table = """
        2 --resize 100 | --resize | 512x256
        2 --resize 8x64 | --resize
        2 --resize 64x-48 | --resize
        2 --per-image rows.txt | --per-image | .csv
        2 --report report.pdf | --report | .html
        7 --predictions made --report file/report.html | file
        2 --predictions made --per-image t.csv --table ./t.csv | t.csv
        2 --max-gt inf | --max-gt
        2 --max-gt nan | --max-gt | nan
        2 --max-gt 0 | --max-gt | 0
        2 --predictions made --weights pasmnet | --predictions | --weights
        2 --predictions made --max-disparity 64 | --max-disparity
        2 --predictions none | no such folder | none
        2 --predictions kitti --network-from a:b | --predictions and --network-from
        2 --scale 2 | --scale | --predictions
        2 --allow-missing | --allow-missing | --predictions
        2 --max-disparity many | --max-disparity | many
        2 --device gpu | --device | gpu
        2 --precision fp8 | --precision | --help lists all options
        2 --protocol kiti | kiti | kitti
        2 --protocol kitti --protocol kitti | --protocol kitti | twice
        3 --predictions made --max-gt 1 | nothing to measure | below 1 px
        2 --protocol kitti --max-gt 192 | --protocol | --max-gt
        2 --predictions made --data pairs:mine | the files of made | one data set
        4 --weights bad.safetensors | bad.safetensors
        4 --weights nonsense | nonsense
        4 --weights passrnet-x4 | passrnet
        2 --data kitti | kitti
        3 --data pairs:kitti | kitti | left
        2 --method a=opencv --method a=files:made | two methods | a
        2 --method opencv --predictions made | --method | --predictions
        2 --method opencv --weights pasmnet | --method | --weights
        2 --method opencv --study range | --study | --method
        2 --method files:none | no such folder | none
        2 --method opencv --allow-missing | --allow-missing
        2 --method date=opencv --method opencv | the name date | new=date
        2 --method ours=files:made --method opencv --data pairs:mine | the files of ours | one data set
        2 --camera fone | --camera 'fone' | did you mean phone?
        2 --camera dark --predictions made | --camera and --predictions
        2 --camera dark --compare | --camera and --compare
        2 --camera dark --method files:made | --method | --camera
        2 --method opencv --table t.txt | --table | .tex, .md, .csv
    """
    refuse_all(table, "eval disparity --data", KITTI)
    refuse_all("2 eval disparity | --data\n 2 eval nonsense | nonsense")


def test_figures_do_not_replace_the_list_that_names_the_pairs(mine: Path) -> None:
    pair = [str(mine / side / f"{next((mine / side).iterdir()).stem}.png") for side in ("left", "right")]
    Path("list.csv").write_text("\t".join(pair) + "\n")
    with unchanged():
        run = pam("eval disparity --data pairs:list.csv --per-image list.csv --overwrite")
        refuse(run, 2, "list.csv")


def test_figures_are_printed_even_where_a_file_cannot_be_written(
    made: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OutputError("cannot write rows.csv: no space left")

    monkeypatch.setattr("pamcli.evaluation.report.write_atomically", full)
    run = pam("eval", "disparity", "--data", KITTI, "--predictions", "made", "--per-image", "rows.csv")
    assert run.code == 7
    assert "no space left" in run.stderr
    assert any("D1" in line for line in run.lines)
