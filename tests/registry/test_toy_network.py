"""A network is added by one file and one row."""

import ast
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from imageio.v3 import imread, imwrite

from pamcli.imaging.disparity_files import read_disparity, write_disparity
from pamcli.registry.architectures import ARCHITECTURES

PACKAGE = Path(__file__).parents[2] / "pamcli"

BY_NAME = ("architectures.py", "protocols.py")

NETWORK = '''
"""A matcher whose stages have one block each."""

from pamcli.networks.pasmnet import CascadedParallaxAttention, PASMnet


class Toy(PASMnet):
    def __init__(self) -> None:
        super().__init__(cas_pam=CascadedParallaxAttention(blocks=1))
'''

RUN = """
import sys
from pamcli.cli import app

for command in sys.argv[1:]:
    app(command.split(), prog_name="pam", standalone_mode=False)
"""

ROW = """
[toy]
task = "disparity"
network = "pamcli.networks.toy:Toy"
memory = [200.0, 0.2]
parts = ["hourglass", "cas_pam", "refine"]
other_terms = ["updates"]
recipe = "scenes"
recipe_from_nothing = "scratch"
normalised = true
multiple = 32
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the toy, added by one file and one row."""
    root = tmp_path_factory.mktemp("house")
    shutil.copytree(PACKAGE, root / "pamcli")
    os.symlink(PACKAGE.parent / "weights", root / "weights")
    (root / "pamcli/networks/toy.py").write_text(NETWORK)
    with (root / "pamcli/registry/architectures.toml").open("a") as rows:
        rows.write(ROW)
    return root


def toy_pam(house: Path, *commands: str) -> str:
    """Run commands of that copy in one process; their standard output."""
    environment = {**os.environ, "PYTHONPATH": str(house), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *commands], cwd=house, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_network_is_added_by_one_file_and_one_row(house: Path) -> None:
    for side in ("left", "right", "disparity"):
        (house / "mine" / side).mkdir(parents=True)
    for side in ("left", "right"):
        view = imread(PACKAGE.parent / f"scripts/sample/{side}.png")[:64, :96]
        imwrite(house / f"{side}.png", view)
        imwrite(house / "mine" / side / "a.png", view)
    truth = read_disparity(PACKAGE.parent / "scripts/sample/disparity.pfm")[:64, :96]
    write_disparity(house / "mine/disparity/a.pfm", truth)
    small = "--crop 64x32 --batch 1 --steps 1 --workers 0"
    measured = toy_pam(
        house,
        f"train disparity --data pairs:mine --network toy -o run {small}",
        "disparity left.png right.png -o found.pfm --weights run/last.safetensors --precision fp32",
        "eval disparity --data pairs:mine --weights run/last.safetensors",
    )
    found = read_disparity(house / "found.pfm")
    assert found.shape == (64, 96)
    assert np.isfinite(found).all()
    assert "last" in measured


@cache
def words() -> list[tuple[Path, int, object]]:
    """Every constant of the package, and the file and line it stands in."""
    return [
        (file, node.lineno, node.value)
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and file.name not in BY_NAME
    ]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_networks_name_stands_in_its_row_alone(name: str) -> None:
    """Beside it stands only the rule of measuring that bears the name of its paper's network."""
    assert [f"{file.relative_to(PACKAGE)}:{line}" for file, line, word in words() if word == name] == []
