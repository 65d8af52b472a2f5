"""The images of README and guide show the results of the shipped weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def test_the_script_makes_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a quarter of the size of the sample pair, which takes a sixteenth of the time."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import guide_images

    views = guide_images.sample_views()
    small = tuple(np.asarray(Image.fromarray(view).reduce(4)) for view in views)
    monkeypatch.setattr(guide_images, "sample_views", lambda: small)
    for name in ("PART", "CROP"):
        parts = tuple(slice(part.start // 4, part.stop // 4) for part in getattr(guide_images, name))
        monkeypatch.setattr(guide_images, name, parts)
    monkeypatch.setattr(guide_images, "ROW", guide_images.ROW // 4)
    guide_images.main(tmp_path)
    for image, checksums in CHECKSUMS.items():
        assert comment(tmp_path / image) == checksums
        with Image.open(tmp_path / image) as made, Image.open(SAMPLE / image) as committed:
            assert made.width == committed.width
            if image != "attention.jpg":  # of images cut to multiples of 32
                assert abs(made.height - committed.height) <= 8, "the rounding of quarters"
    printed = capsys.readouterr().out.splitlines()
    decibels = [float(line.split()[-2]) for line in printed if line.endswith(" dB")]
    bicubic, upscaled, *camera = decibels
    assert upscaled > bicubic + 1
    for fault in (camera[:4], camera[4:]):
        assert fault[3] > max(fault[:3]), "the camera weights are the best for images with faults"
