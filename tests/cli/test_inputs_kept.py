"""No result takes the place of what it is made of, whatever is asked for and by whatever name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pam_program
import pytest
import tifffile
from pam_program import pam, refuse, refuse_all, unchanged
from unrectified import photographs, sample

from pamcli.cli import ames
from pamcli.imaging.disparity_files import encode_disparity

WEIGHTS = Path(__file__).parents[2] / "weights" / "pasmnet2.safetensors"
RECTIFY = "rectify left.png right.png --calibration rig.yaml -o out/ --overwrite"
DEPTH = "depth d.pfm --calibration out/calibration.yaml --overwrite"


@pytest.fixture
def inputs(here: Path) -> None:
    """Photographs with their rig, rectified in out/; a disparity; weights; tiles; links to some of them."""
    photographs(*sample((100, 100, 420, 340))).write(here)
    assert pam(*RECTIFY.split()).code == 0
    Path("d.pfm").write_bytes(encode_disparity(np.full((240, 320), 9, np.float32), ".pfm").data)
    Path("list.pfm").write_text("left.png\tright.png\n")
    shutil.copy(WEIGHTS, "net.onnx")
    os.symlink("out/calibration.yaml", "link.tif")
    for name in ("l.tif", "r.tif"):
        tifffile.imwrite(name, np.ones((32, 32), np.float32))
    os.symlink("l.tif", "same.tif")


@pytest.mark.usefixtures("inputs", "mine", "made")
def test_results_over_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink("left.png", "r.html")
    table = f"""
        2 {RECTIFY} --output-calibration rig.yaml | would
        2 {RECTIFY} --output-calibration left.png | would
        2 {RECTIFY} --output-calibration out/left.png | would
        2 {DEPTH} -o link.tif | would
        2 disparity left.png right.png -o link.tif --overwrite --calibration out/calibration.yaml | would
        2 disparity --pairs list.pfm -o list.pfm --overwrite | list.pfm
        2 weights export net.onnx -o net.onnx --overwrite | would
        2 eval disparity --data pairs:mine --predictions made --report r.html --overwrite | r.html is a link
    """
    refuse_all(table)
    monkeypatch.setattr(pam_program, "main", ames.main)
    table = """
        2 l.tif r.tif l.tif | l.tif would overwrite an input
        2 l.tif r.tif r.tif | r.tif would overwrite an input
        2 l.tif r.tif same.tif | same.tif would overwrite an input
    """
    refuse_all(table, "-r -9 -R 9")


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda name: os.symlink("calibration.yaml", name)])
def test_a_calibration_whose_name_is_taken(make: Callable[[str], None]) -> None:
    shutil.rmtree("out")
    os.mkdir("out")
    make("out/calibration.yaml")
    with unchanged():
        refuse(pam(*RECTIFY.split()), 7, "out/calibration.yaml")


def test_an_empty_name_is_neither_the_folder_nor_the_default(here: Path) -> None:
    table = """
        2 disparity left.png right.png -o d.pfm --weights '' | empty
        2 disparity --pairs list.pfm -o out/ --root '' | empty
        2 rectify left.png right.png --calibration rig.yaml -o out/ --output-calibration '' | empty
        2 depth '' -o x.tif --focal 9 --baseline 1 | empty
        2 calibration show '' | empty
        2 eval disparity --data pairs:. --predictions '' | empty
        2 eval disparity --data pairs:. --report '' | empty
        2 eval superres --data pairs:. --save '' | empty
        2 dataset prepare-flickr1024 . -o '' --scale 2 | empty
        2 dataset prepare-flickr1024 '' -o out --scale 2 | empty
        2 disparity l r -o out/ --engine ray --ray-address '' | empty
        2 train disparity --data pairs:. -o run --recipe '' | empty
        2 train disparity --data pairs:. -o '' | empty
        2 train disparity --data pairs:. -o run --from '' | empty
        2 weights import '' -o x.safetensors | empty
    """
    refuse_all(table)
