"""Prepared patches are what super-resolution trains on, however they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pam_program import pam, refuse
from PIL import Image


@pytest.fixture
def published(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "Flickr1024" / "Train"
    folder.mkdir(parents=True)
    for view in "LR":
        small = rng.integers(0, 256, (30, 60, 3), dtype=np.uint8)
        Image.fromarray(small).resize((240, 120), Image.Resampling.BICUBIC).save(folder / f"0001_{view}.png")
    return folder.parent


def prepare(published: Path, store: str = "packed") -> str:
    """Cut the patches at x2; return the data set."""
    run = pam(f"dataset prepare-flickr1024 {published} -o {store} --scale 2 --store {store}")
    assert run.code == 0, run.stderr
    return f"flickr1024:{store}"


OPTIONS = "train superres --steps 1 --batch 2 --crop 16x8 --workers 0"


def test_training_takes_both_stores_and_learns_the_same(published: Path) -> None:
    losses = []
    for store in ("packed", "folders"):
        data = prepare(published, store)
        trained = pam(f"{OPTIONS} --scale 2 --data {data} -o run_{store}")
        assert trained.code == 0, trained.stderr
        losses.append(json.loads(Path(f"run_{store}/log.jsonl").read_text().splitlines()[0])["losses"])
        # The paper's recipe, which knows no ground truth, takes them, too.
        trained = pam(f"{OPTIONS} --scale 2 --recipe paper-superres --data {data} -o paper_{store}")
        assert trained.code == 0, trained.stderr
    assert losses[0] == losses[1]
    assert losses[0]["charbonnier"] > 0


def test_patches_that_do_not_fit(published: Path) -> None:
    data = prepare(published)
    run = pam(f"train superres --scale 2 --network passrnet2 --data {data} -o run")
    refuse(run, 2, "have 90x30 px, less than the crop of 96x32 px")
    run = pam(f"{OPTIONS} --scale 4 --data {data} -o run")
    assert run.code == 2
    assert "prepared for x2, but the run trains x4" in run.complaints[-1]
