"""A folder with a small pair, and networks that are loaded once for all tests."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is also that of temporary files: what stays behind is seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def views() -> tuple[np.ndarray, np.ndarray]:
    """A pair of 96 x 64 pixels with disparities from about 10 to 30 px."""
    pictures = [Image.open(SAMPLE / f"{side}.png").convert("RGB") for side in ("left", "right")]
    left, right = (np.asarray(picture.crop((300, 200, 396, 264))) for picture in pictures)
    return left, right


@pytest.fixture
def pair(here: Path, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """left.png and right.png in the current folder."""
    for view, name in zip(views, ("left.png", "right.png"), strict=True):
        Image.fromarray(view).save(name)
    return here


@pytest.fixture
def small_pair(pair: Path) -> Path:
    """The middle of the pair, 48 x 32 pixels: super-resolution takes its time."""
    for name in ("left.png", "right.png"):
        Image.open(name).crop((24, 16, 72, 48)).save(name)
    return pair


@pytest.fixture(scope="session")
def load_once() -> Callable[[Path], object]:
    from pamcli.registry.load import load_network

    return functools.cache(load_network)


@pytest.fixture
def networks(load_once: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks stay loaded from test to test, on the CPU: every machine is one without a GPU."""
    import torch

    from pamcli.inference import matcher, upscaler

    for module in (matcher, upscaler):
        monkeypatch.setattr(module, "load_network", load_once)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
