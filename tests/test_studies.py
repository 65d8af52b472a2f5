"""The study scripts: every row of the paper's tables can be trained, and a quick form goes the whole way."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from documents import BLOCKS

from pamcli.imaging.disparity_files import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image, read_image
from pamcli.training.recipes import change_recipe, get_recipe

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"
Call = Callable[..., tuple[str, str]]


@pytest.fixture
def ablations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "studies")
    return importlib.import_module("ablations")


@pytest.fixture
def call(
    ablations: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Runs the script on a tiny pair with a truth; what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ablations, "TIMED", {"disparity": (64, 96), "superres": (16, 24)})
    for side in ("left", "right"):
        (tmp_path / "pair" / side).mkdir(parents=True)
        view = read_image(SAMPLE / f"{side}.png").pixels[100:140, 200:296]
        (tmp_path / "pair" / side / "a.png").write_bytes(encode_image(RgbImage(view), ".png", name=side))
    (tmp_path / "pair" / "disparity").mkdir()
    truth = encode_disparity(np.full((40, 96), 9, np.float32), ".pfm").data
    (tmp_path / "pair" / "disparity" / "a.pfm").write_bytes(truth)

    def run(study: str, *arguments: str) -> tuple[str, str]:
        where = ["--data", "pairs:pair", "--val", "pairs:pair", "-o", "runs", "--workers", "0"]
        monkeypatch.setattr(sys, "argv", ["ablations.py", study, *where, "--device", "cpu", *arguments])
        assert ablations.main() == 0
        return capsys.readouterr()

    return run


def test_every_row_can_be_trained_and_has_a_figure_in_each_column(ablations: ModuleType) -> None:
    tables = {task: [study.table for study in studies] for task, studies in ablations.STUDIES.items()}
    assert tables == {"disparity": [1, 2, 4, 5], "superres": [10, 11, 12]}
    for task, studies in ablations.STUDIES.items():
        recipe = get_recipe(ablations.RECIPES[task], task)
        for study, row in ((each, row) for each in studies for row in each.rows):
            assert len(row.published.split()) == len(study.columns), row
            weights = dict(f"losses.{loss}".split("=") for loss in row.losses)
            assert str(change_recipe(recipe, {"variant": row.variant, **weights}).form) == row.variant


def test_upscalers_are_trained_and_measured_once(call: Call) -> None:
    tiny = ["--tables", "11", "--volume", "16", "--crop", "16x8", "--batch", "1"]
    shown, _ = call("superres", *tiny, "--steps", "1", "--commands")
    commands = [shlex.split(line) for line in shown.splitlines()]
    assert [command[:3] for command in commands] == [["pam", "train", "superres"]] * len(commands)
    assert not Path("runs").exists()
    out, said = call("superres", *tiny, "--steps", "1")
    assert shown.splitlines() == [line for line in said.splitlines() if line.startswith("pam train")]
    figures = json.loads(Path("runs/superres/paper/figures.json").read_text())
    assert f"bicubic {figures['bicubic']:.2f} dB" in out
    assert f"| PASSRnet | 1 of 1 at 16x8 | {figures['psnr']:.2f} (25.43) | " in out
    assert 0 < figures["psnr"] < figures["bicubic"], "after one step from nothing"
    _, said = call("superres", *tiny, "--steps", "1")
    assert "pam train" not in said, "all of it is there"


def test_the_commands_of_the_guide_are_understood(
    ablations: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in BLOCKS if "python scripts/studies" in block.text)
    for command in block.commands():
        _, script, *arguments = shlex.split(command)
        assert ROOT / script == Path(ablations.__file__)
        monkeypatch.setattr(sys, "argv", [script, *arguments, "--commands"])
        assert ablations.main() == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith("pam train ") for line in lines) or "counts" in arguments
    assert list(tmp_path.iterdir()) == []
