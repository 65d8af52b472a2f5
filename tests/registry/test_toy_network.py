"""A network is added by one file and one row."""

import ast
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from imageio.v3 import imread, imwrite
from pam_program import pam

from pamcli.imaging.disparity_encoding import write_disparity
from pamcli.imaging.disparity_files import read_disparity
from pamcli.networks.pasmnet import CascadedParallaxAttention, PASMnet
from pamcli.registry.architectures import ARCHITECTURES, NETWORKS, _make_row

PACKAGE = Path(__file__).parents[2] / "pamcli"
SAMPLE = PACKAGE.parent / "scripts/sample"
ROW = """
task = "disparity"
network = "toy_network:Toy"
memory = [200.0, 0.2]
parts = ["hourglass", "cas_pam", "refine"]
other_terms = ["updates"]
recipe = "scenes"
recipe_from_nothing = "scratch"
normalised = true
multiple = 32
"""


class Toy(PASMnet):
    """A matcher whose stages have one block each."""

    def __init__(self) -> None:
        super().__init__(cas_pam=CascadedParallaxAttention(blocks=1))


def test_a_network_is_added_by_one_file_and_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toy_network", SimpleNamespace(Toy=Toy))
    monkeypatch.setitem(ARCHITECTURES, "toy", _make_row("toy", tomllib.loads(ROW)))
    monkeypatch.setitem(NETWORKS, "disparity", (*NETWORKS["disparity"], "toy"))
    monkeypatch.chdir(tmp_path)
    for side in ("left", "right", "disparity"):
        Path("mine", side).mkdir(parents=True)
    for side in ("left", "right"):
        imwrite(f"mine/{side}/a.png", imread(SAMPLE / f"{side}.png")[:64, :96])
    write_disparity("mine/disparity/a.pfm", read_disparity(SAMPLE / "disparity.pfm")[:64, :96])
    common = ("--device", "cpu", "--precision", "fp32")
    small = "--crop 64x32 --batch 1 --steps 1 --workers 0"
    trained = pam(f"train disparity --data pairs:mine --network toy -o run {small}", *common)
    assert trained.code == 0, trained.stderr
    found = pam("disparity mine/left/a.png mine/right/a.png -o d.pfm --weights run/last.safetensors", *common)
    assert found.code == 0, found.stderr
    disparity = read_disparity("d.pfm")
    assert disparity.shape == (64, 96)
    assert np.isfinite(disparity).all()


def test_a_networks_name_stands_in_its_row_alone() -> None:
    """Beside it stands only the rule of measuring that bears the name of its paper's network."""
    by_name = [PACKAGE / "registry/architectures.py", PACKAGE / "evaluation/protocols.py"]
    found = [
        f"{file}:{node.lineno}: {node.value}"
        for file in sorted({*PACKAGE.rglob("*.py")}.difference(by_name))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in [*ARCHITECTURES]
    ]
    assert found == []
