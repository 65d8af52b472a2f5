"""pam eval disparity --method: several methods in one report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import foreign_networks
import numpy as np
import pytest
from pam_program import pam, refuse

KITTI = "kitti2015:kitti"
METHODS = ["--method", "ours=files:made", "--method", "sgbm=opencv"]


def test_methods_in_one_run_and_in_every_form(made: dict[str, np.ndarray]) -> None:
    forms = ["--table", "t.md", "--table", "t.tex", "--table", "t.csv"]
    files = [*forms, "--report", "r.html", "--per-image", "p.csv"]
    run = pam("eval", "disparity", "--data", KITTI, *METHODS, *files)
    assert (run.code, run.stderr) == (0, "")
    assert "D1 minus ours (%)" in run.lines[1]
    assert any(line.startswith("sgbm: OpenCV ") and "blockSize 3" in line for line in run.lines)
    assert "ours: predictions made" in run.lines
    with Path("t.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"ours", "sgbm"}
    assert float(rows["sgbm"]["seconds"]) > 0
    assert rows["ours"]["seconds"] == ""
    assert float(rows["sgbm"]["d1-first"].split()[0]) == pytest.approx(
        float(rows["sgbm"]["d1"]) - float(rows["ours"]["d1"]), abs=0.005
    )
    assert Path("t.md").read_text().startswith("## Method comparison")
    assert r"\toprule" in Path("t.tex").read_text()
    page = Path("r.html").read_text(encoding="utf-8")
    assert "Where the methods differ most" in page
    assert "sgbm: error" in page
    with Path("p.csv").open(newline="") as file:
        pictures = [(row["method"], row["name"]) for row in csv.DictReader(file)]
    assert pictures == [(method, name) for name in made for method in ("ours", "sgbm")]


def test_a_network_beside_another_and_both_under_two_rules(
    remembering_networks: None, made: dict[str, np.ndarray]
) -> None:
    arguments = ["--method", "pasmnet2", "--method", "files:made", "--allow-missing", "--protocol", "kitti"]
    run = pam("eval", "disparity", "--data", KITTI, *arguments, "--protocol", "raft-stereo", "--json")
    assert run.code == 0, run.stderr
    found = json.loads(run.stdout)
    ours, other = found["comparison"]["methods"]
    assert (ours["method"], other["method"]) == ("pasmnet2", "made")
    assert ours["seconds"] > 0
    assert other["differences"]["d1"]["mean"] == pytest.approx(other["d1"] - ours["d1"])
    figures = found["protocols"]["raft-stereo"]["figures"]
    assert {each["method"] for each in figures} == {"pasmnet2", "made"}
    assert {"all", "edges", "occluded"} <= {row["part"] for row in found["comparison"]["parts"]}


def test_a_pytorch_network_of_ones_own_beside_another(
    kitti: Path, remembering_networks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evaluated.py").write_text(foreign_networks.AS_MODULE)
    monkeypatch.syspath_prepend(".")
    described = foreign_networks.DESCRIBED.format(name="other", size="free").replace("disparities", "0")
    Path("own.toml").write_text(described.partition("\n")[2])
    Path("onnx.toml").write_text(described)
    measure = ["eval", "disparity", "--data", KITTI, "--json", "--network-from", "evaluated:make"]
    run = pam(*measure, "--method", "own.toml", "--method", "pasmnet2", "--method", "opencv")
    assert run.code == 0, run.stderr
    methods = [each["method"] for each in run.records[0]["comparison"]["methods"]]
    assert methods == ["own", "pasmnet2", "opencv"]
    for others in (["pasmnet2"], ["opencv"], ["onnx.toml"]):
        refuse(pam(*measure, "--method", *others), 2, "--network-from", "--method")


def test_upscalers_are_compared_with_the_first(remembering_networks: None, kitti: Path) -> None:
    assert pam("eval superres --save up --right-view right --data", KITTI).code == 0
    methods = ["--method", "cubic=bicubic", "--method", "passrnet2-x4", "--method", "files:up"]
    forms = ["--table", "t.csv", "--report", "r.html", "--per-image", "p.csv"]
    run = pam("eval superres --json --data", KITTI, *methods, *forms)
    assert run.code == 0, run.stderr
    found = json.loads(run.stdout)
    cubic, network, files = found["comparison"]["methods"]
    assert [each["method"] for each in (cubic, network, files)] == ["cubic", "passrnet2-x4", "up"]
    assert found["comparison"]["reference"] == "cubic"
    gain = network["differences"]["left psnr"]
    assert gain["mean"] == pytest.approx(network["left psnr"] - cubic["left psnr"])
    assert gain["mean"] > 0
    assert (gain["images"], gain["scenes"]) == (2, 2)
    assert files["differences"]["left psnr"] == gain
    assert network["seconds"] > 0
    assert network["megabytes"] >= 0
    assert files["seconds"] is None
    assert found["second_view"] == {}
    with Path("t.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert rows["up"]["both psnr-first"].startswith("+")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "Where the methods differ most" in page
    assert page.count('<img class="crop"') == 2 * 4, "a crop of each method and of the ground truth"
    with Path("p.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["cubic", "passrnet2-x4", "up"] * 2


def test_an_onnx_file_is_compared_with_bicubic(kitti: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install 'pamcli[onnx]')")
    foreign_networks.side_by_side(Path("theirs.onnx"), 2)
    methods = ["--method", "bicubic", "--method", "theirs.onnx"]
    run = pam("eval superres --scale 2 --json --data", KITTI, *methods)
    assert run.code == 0, run.stderr
    bicubic, theirs = run.records[0]["comparison"]["methods"]
    assert theirs["differences"]["both psnr"]["mean"] == pytest.approx(
        theirs["both psnr"] - bicubic["both psnr"]
    )
