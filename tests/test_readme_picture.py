"""The picture in the README shows what the shipped weights do, and one command draws it anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

from PIL import Image
from warm_python import WarmPython

from pamcli.registry.catalog import DEFAULT_MATCHING, DEFAULT_UPSCALING, recorded_sha256

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "scripts" / "sample" / "readme.jpg"
SHIPPED = "\n".join(f"{name} {recorded_sha256(name)}" for name in (DEFAULT_MATCHING, DEFAULT_UPSCALING[4]))


def comment(path: Path) -> str:
    with Image.open(path) as picture:
        said: bytes = picture.info["comment"]
    return said.decode()


def test_the_picture_shows_the_weights_that_are_shipped() -> None:
    assert comment(PICTURE) == SHIPPED, "other weights are shipped: run scripts/readme_picture.py"


def test_the_script_draws_it(tmp_path: Path, warm_python: WarmPython) -> None:
    script, drawn = ROOT / "scripts" / "readme_picture.py", tmp_path / "drawn.jpg"
    run = subprocess.run(warm_python.command(str(script), str(drawn)), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert comment(drawn) == SHIPPED
    with Image.open(drawn) as new, Image.open(PICTURE) as shown:
        assert new.size == shown.size
    decibels = [float(line.split()[-2]) for line in run.stdout.splitlines()[1:]]
    assert decibels[1] > decibels[0] + 1  # what the two parts below are there to show
