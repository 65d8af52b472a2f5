"""Every command once, on small files: does it end with 0, and leave what it is for?

The first thing to look at after a change, in half a minute; what each command promises is tested beside.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import eval_trees
import foreign_networks
import numpy as np
import pytest
import torch
from pam_program import succeed
from PIL import Image
from published import LARGE, tree
from safetensors.torch import load_file
from unrectified import photographs

from pamcli.cli import app
from pamcli.evaluation import submissions
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.registry.catalog import SHIPPED

CALIBRATION = "cam0=[100 0 48; 0 100 32; 0 0 1]\nbaseline=100\ndoffs=0\nwidth=96\nheight=64\n"
TRAINING = "--crop 64x32 --variant scales=1,blocks=1,refinement=none --batch 1 --steps 1 --workers 0"
COMMANDS = {
    "disparity": "left.png right.png -o out.pfm --color-map out.png --confidence out.tif --page out.html",
    "superres": "small/left.png small/right.png --scale 2 -o out.png --output-right out_right.png",
    "rectify": "photo/left.png photo/right.png --calibration photo/rig.yaml -o out/",
    "depth": "truth.pfm --calibration calib.txt -o out.tif --point-cloud out.ply",
    "export colmap": "left.png right.png --calibration calib.txt -o out/",
    "export nerfstudio": "left.png right.png --calibration calib.txt -o out/",
    "submit": "--data kitti2015/testing:testing --predictions made -o out.zip",
    "guide": "batches",
    "doctor": "",
    "help": "",
    "eval disparity": "--data kitti2015:kitti --predictions made --report out.html --per-image out.csv",
    "eval protocols": "kitti",
    "eval superres": "--data pairs:mine?first=1 --predictions enlarged --scale 2 --report out.html",
    "train disparity": f"--data pairs:mine -o out {TRAINING}",
    "train superres": "--data pairs:mine --network passrnet2 --scale 2 --crop 24x10 --batch 1 --steps 1 "
    "--workers 0 -o out",
    "calibration show": "calib.txt",
    "weights list": "",
    "weights info": "pasmnet",
    "weights verify": "{weights}/pasmnet.safetensors",
    "weights import": "checkpoint.pth.tar -o out.safetensors",
    "weights export": "passrnet-x2 -o out.onnx --size 24x16",
    "weights describe": "net.onnx -o out.toml",
    "dataset list": "",
    "dataset verify": "kitti2015:kitti",
    "dataset label": "pairs:mine -o out",
    "dataset preview": "kitti2015:kitti -o out.png",
    "dataset stats": "pairs:mine",
    "dataset prepare-flickr1024": "Flickr1024 -o out --scale 2 --workers 1",
}
"""Arguments of each command. Whatever they call out... is to be there afterwards."""
_PAIR = "left right line outputs width height seconds options status code error warnings"
STABLE_KEYS = {
    **dict.fromkeys(("disparity", "superres", "rectify", "depth"), _PAIR),
    "disparity": f"{_PAIR} device precision matched_width matched_height",
    "eval disparity": "facts notes sets seconds_per_pair peak_memory_bytes",
    "eval superres": "facts notes scale summary seconds_per_pair peak_memory_bytes",
    "eval protocols": "name about source figures",
    "doctor": "pam packages processor devices memory weights images ok",
    "calibration show": "kind rectified",
    "weights list": "name purpose architecture scale training licence version parameters bytes",
    "weights info": "name architecture scale training licence version parameters bytes path sha256",
    "weights verify": "name sha256",
    "dataset list": "name about splits keys tree",
    "dataset stats": "data pairs pixels",
    "submit": "written",
}
"""JSON keys that pam guide stability promises; that page describes how to remove one."""
ELSEWHERE = {"calibration make", "live", "view", "weights push"}
"""Commands that run in test_calibration_make.py, test_live.py, test_pages.py, test_downloads.py."""


def names_of(group: Any, *above: str) -> Iterator[str]:
    for name in group.commands:
        each = group.get_command(None, name)
        if hasattr(each, "commands"):
            yield from names_of(each, *above, name)
        else:
            yield " ".join((*above, name))


def test_none_is_left_out() -> None:
    assert set(COMMANDS) | ELSEWHERE == set(names_of(app))


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """A folder with all that is named above."""
    folder = tmp_path_factory.mktemp("every_command")
    for name in ("enlarged", "small", "made"):
        (folder / name).mkdir()
    first, *_ = eval_trees.crops()
    for view, side in zip(views, ("left", "right"), strict=True):
        picture = Image.fromarray(view)
        picture.save(folder / f"{side}.png")
        picture.save(folder / f"enlarged/{first.name}_{side}.png")
        picture.crop((0, 0, 24, 16)).save(folder / f"small/{side}.png")
    photographs(*views).write(folder / "photo")
    tree(folder / "Flickr1024", {"Train/0001": LARGE})
    eval_trees.kitti2015(folder / "kitti")
    eval_trees.kitti2015(folder / "testing", "testing")
    eval_trees.pairs(folder / "mine")
    for sample in eval_trees.crops():
        data = encode_disparity(np.nan_to_num(sample.disparity, nan=7.0) + np.float32(3.5), ".pfm").data
        (folder / f"made/{sample.name}.pfm").write_bytes(data)
    (folder / "truth.pfm").write_bytes(encode_disparity(first.disparity, ".pfm").data)
    (folder / "calib.txt").write_text(CALIBRATION)
    return folder


@pytest.fixture
def files(made_once: Path, here: Path, networks: None) -> None:
    shutil.copytree(made_once, here, dirs_exist_ok=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_it_does_its_work(name: str, files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "weights export":
        for package in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(package, reason=f"{package} is not installed (pip install 'pamcli[onnx]')")
    if name == "weights describe":
        pytest.importorskip("onnx", reason="onnx is not installed (pip install 'pamcli[onnx]')")
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install 'pamcli[onnx]')")
        foreign_networks.coarse_and_fine(Path("net.onnx"), (64, 96), outputs=("init_disp", "disp"), coarse=1)
    if name == "weights import":
        torch.save({"state_dict": load_file(SHIPPED / "pasmnet.safetensors")}, "checkpoint.pth.tar")
    if name == "submit":  # of two images, not 200
        rules = replace(submissions.load_rules("kitti2015"), test=tuple(eval_trees.BOXES))
        monkeypatch.setattr(submissions, "load_rules", lambda kind: rules)
    words = COMMANDS[name].replace("{weights}", str(SHIPPED)).split()
    as_json = [] if name == "help" else ["--json"]
    run = succeed(*name.split(), *words, *as_json)
    if name in STABLE_KEYS:
        assert [key for key in STABLE_KEYS[name].split() if key not in run.records[0]] == []
    results = [Path(word) for word in words if word.startswith("out")]
    assert [path for path in results if not path.exists()] == []
    assert results or run.stdout
    for path in results:
        assert any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
