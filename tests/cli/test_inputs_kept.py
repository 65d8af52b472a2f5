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
from pam_program import pam, refuse, unchanged
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


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    "command",
    [
        f"{RECTIFY} --output-calibration rig.yaml",
        f"{RECTIFY} --output-calibration left.png",
        f"{RECTIFY} --output-calibration out/left.png",
        f"{DEPTH} -o link.tif",
        "disparity left.png right.png -o link.tif --overwrite --calibration out/calibration.yaml",
        "disparity --pairs list.pfm -o list.pfm --overwrite",
        "weights export net.onnx -o net.onnx --overwrite",
    ],
)
def test_pam(command: str) -> None:
    with unchanged():
        refuse(pam(*command.split()), 2, "would" if "list" not in command else "")


@pytest.mark.usefixtures("inputs", "mine", "made")
def test_a_link_with_the_suffix_of_a_report() -> None:
    os.symlink("left.png", "r.html")
    words = "eval disparity --data pairs:mine --predictions made --report r.html --overwrite"
    with unchanged():
        refuse(pam(*words.split()), 2, "r.html is a link to", "left.png")


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("output", ["l.tif", "r.tif", "same.tif"])
def test_pam_asp(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pam_program, "main", ames.main)
    with unchanged():
        refuse(pam("-r", "-9", "-R", "9", "l.tif", "r.tif", output), 2, f"{output} would overwrite an input")


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda name: os.symlink("calibration.yaml", name)])
def test_a_calibration_whose_name_is_taken(make: Callable[[str], None]) -> None:
    shutil.rmtree("out")
    os.mkdir("out")
    make("out/calibration.yaml")
    with unchanged():
        refuse(pam(*RECTIFY.split()), 7, "out/calibration.yaml")


NAMELESS = [
    "disparity left.png right.png -o d.pfm --weights E",
    "disparity --pairs list.pfm -o out/ --root E",
    "rectify left.png right.png --calibration rig.yaml -o out/ --output-calibration E",
    "depth E -o x.tif --focal 9 --baseline 1",
    "calibration show E",
    "eval disparity --data pairs:. --predictions E",
    "eval disparity --data pairs:. --report E",
    "eval superres --data pairs:. --save E",
    "dataset prepare-flickr1024 . -o E --scale 2",
    "dataset prepare-flickr1024 E -o out --scale 2",
    "disparity l r -o out/ --engine ray --ray-address E",
    "train disparity --data pairs:. -o run --recipe E",
    "train disparity --data pairs:. -o E",
    "train disparity --data pairs:. -o run --from E",
    "weights import E -o x.safetensors",
]


@pytest.mark.parametrize("command", NAMELESS)
def test_an_empty_name_is_neither_the_folder_nor_the_default(command: str) -> None:
    with unchanged():
        refuse(pam(*("" if word == "E" else word for word in command.split())), 2, "empty")
