"""The images of README and guide show the results of the shipped weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pamcli.registry.catalog import CAMERA_UPSCALING, DEFAULT_MATCHING, DEFAULT_UPSCALING, recorded_sha256

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"
WEIGHTS = {
    "readme.jpg": (DEFAULT_MATCHING, DEFAULT_UPSCALING[4]),
    "superres.jpg": (DEFAULT_UPSCALING[4],),
    "camera.jpg": (DEFAULT_UPSCALING[4], CAMERA_UPSCALING[4]),
    "confidence.jpg": (DEFAULT_MATCHING,),
    "attention.jpg": (DEFAULT_MATCHING,),
}
CHECKSUMS = {
    image: "\n".join(f"{name} {recorded_sha256(name)}" for name in names) for image, names in WEIGHTS.items()
}


def comment(path: Path) -> str:
    with Image.open(path) as image:
        text: bytes = image.info["comment"]
    return text.decode()


@pytest.mark.parametrize("image", WEIGHTS)
def test_an_image_shows_the_shipped_weights(image: str) -> None:
    assert comment(SAMPLE / image) == CHECKSUMS[image], "outdated: run scripts/guide_images.py"
    assert (SAMPLE / image).stat().st_size < 400_000
