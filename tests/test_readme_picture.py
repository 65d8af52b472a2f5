"""The pictures of README and guide show what the shipped weights do, and one command draws them anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from PIL import Image
from warm_python import WarmPython

from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_MATCHING, DEFAULT_UPSCALING, recorded_sha256

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"
SHOWN = {
    "readme.jpg": (DEFAULT_MATCHING, DEFAULT_UPSCALING[4]),
    "camera.jpg": (DEFAULT_UPSCALING[4], CAMERA_UPSCALING[4]),
    "confidence.jpg": (DEFAULT_MATCHING,),
}
SHIPPED = {
    picture: "\n".join(f"{name} {recorded_sha256(name)}" for name in names)
    for picture, names in SHOWN.items()
}


def comment(path: Path) -> str:
    with Image.open(path) as picture:
        said: bytes = picture.info["comment"]
    return said.decode()


@pytest.mark.parametrize("picture", SHOWN)
def test_the_picture_shows_the_weights_that_are_shipped(picture: str) -> None:
    assert comment(SAMPLE / picture) == SHIPPED[picture], "others are shipped: run scripts/readme_picture.py"
    assert (SAMPLE / picture).stat().st_size < 400_000


def test_the_script_draws_them(tmp_path: Path, warm_python: WarmPython) -> None:
    script = ROOT / "scripts" / "readme_picture.py"
    run = subprocess.run(warm_python.command(str(script), str(tmp_path)), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for picture, shipped in SHIPPED.items():
        assert comment(tmp_path / picture) == shipped
        with Image.open(tmp_path / picture) as new, Image.open(SAMPLE / picture) as shown:
            assert new.size == shown.size
    decibels = [float(line.split()[-2]) for line in run.stdout.splitlines() if line.endswith(" dB")]
    small, large, *of_cameras = decibels
    assert large > small + 1  # what the two parts below are there to show
    for fault in (of_cameras[:4], of_cameras[4:]):
        assert fault[3] > max(fault[:3])  # the weights for such pictures
