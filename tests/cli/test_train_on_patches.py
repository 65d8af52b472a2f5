"""Prepared patches are what super-resolution trains on, however they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pam_program import pam
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


def test_training_takes_both_stores_and_learns_the_same(published: Path, tmp_path: Path) -> None:
    losses = []
    for store in ("packed", "folders"):
        patches, run = tmp_path / store, tmp_path / f"run_{store}"
        prepared = pam(
            "dataset",
            "prepare-flickr1024",
            str(published),
            "-o",
            str(patches),
            "--scale",
            "2",
            "--store",
            store,
        )
        assert prepared.code == 0, prepared.stderr
        options = ["--scale", "2", "--steps", "1", "--batch", "2", "--crop", "16x8", "--workers", "0"]
        trained = pam("train", "superres", "--data", f"flickr1024:{patches}", *options, "-o", str(run))
        assert trained.code == 0, trained.stderr
        losses.append(json.loads((run / "log.jsonl").read_text().splitlines()[0])["losses"])
    assert losses[0] == losses[1]
    assert losses[0]["charbonnier"] > 0


@pytest.mark.parametrize("store", ["packed", "folders"])
def test_the_paper_s_recipe_which_knows_no_truth_takes_them_too(
    published: Path, tmp_path: Path, store: str
) -> None:
    patches, run = str(tmp_path / "patches"), str(tmp_path / "run")
    pam("dataset", "prepare-flickr1024", str(published), "-o", patches, "--scale", "2", "--store", store)
    options = ["--scale", "2", "--steps", "1", "--batch", "2", "--crop", "16x8", "--workers", "0"]
    recipe = ["--recipe", "paper-superres", "--data", f"flickr1024:{patches}"]
    trained = pam("train", "superres", *recipe, *options, "-o", run)
    assert trained.code == 0, trained.stderr


def test_patches_of_another_enlargement_are_refused(published: Path, tmp_path: Path) -> None:
    patches = tmp_path / "patches"
    pam("dataset", "prepare-flickr1024", str(published), "-o", str(patches), "--scale", "2")
    options = ["--scale", "4", "--steps", "1", "--batch", "1", "--crop", "16x8", "--workers", "0"]
    run = pam("train", "superres", "--data", f"flickr1024:{patches}", *options, "-o", str(tmp_path / "run"))
    assert run.code == 2
    assert "x2" in run.stderr
    assert "x4" in run.stderr


def test_patches_smaller_than_the_crop_are_not_enlarged(published: Path, tmp_path: Path) -> None:
    patches = str(tmp_path / "patches")
    assert pam("dataset", "prepare-flickr1024", str(published), "-o", patches, "--scale", "2").code == 0
    run = ["train", "superres", "--scale", "2", "--network", "passrnet2", "--data", f"flickr1024:{patches}"]
    refused = pam(*run, "--steps", "1", "-o", str(tmp_path / "run"))
    assert refused.code == 2
    assert "have 90x30 px, less than the crop of 96x32 px" in refused.stderr
