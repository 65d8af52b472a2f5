"""pam submit: archives for the benchmarks."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import eval_trees
import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image

from pamcli.evaluation import submissions
from pamcli.imaging.disparity_files import read_disparity
from pamcli.inference.matcher import StereoMatcher

NAMES = list(eval_trees.BOXES)


@pytest.fixture
def two_wanted(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The testing pairs of a KITTI 2015 that has two of them."""
    eval_trees.kitti2015(here / "kitti", "testing")
    rules = replace(submissions.load_rules("kitti2015"), test=tuple(NAMES))
    monkeypatch.setattr(submissions, "load_rules", lambda kind: rules)
    return here / "kitti"


TESTING = "kitti2015/testing:kitti"


def test_a_submission_holds_what_the_network_finds(networks: None, two_wanted: Path) -> None:
    run = pam("submit", "--data", TESTING, "-o", "out/kitti2015.zip")
    assert (run.code, run.lines) == (0, ["out/kitti2015.zip"])
    assert "2 images, 2 files, verified" in run.stderr
    assert names("out") == ["kitti2015.zip"]
    with zipfile.ZipFile("out/kitti2015.zip") as archive:
        assert archive.namelist() == [f"disp_0/{name}.png" for name in NAMES]
        archive.extractall("unpacked")
    matcher = StereoMatcher.load("pasmnet2", device="cpu", precision="fp32")
    for sample in eval_trees.crops():
        found = matcher(sample.left, sample.right, extras=()).disparity
        stored = read_disparity(Path(f"unpacked/disp_0/{sample.name}.png"))
        np.testing.assert_allclose(stored, found, atol=1 / 256)


def test_a_submission_of_files(two_wanted: Path, made: dict[str, np.ndarray]) -> None:
    Path("k.zip").write_text("old")
    arguments = ["submit", "--data", TESTING, "--predictions", "made", "-o", "k.zip"]
    with unchanged():
        refuse(pam(*arguments), 2, "k.zip", "--overwrite")
    run = pam(*arguments, "--overwrite")
    assert (run.code, run.lines) == (0, ["k.zip"])
    with zipfile.ZipFile("k.zip") as archive:
        archive.extractall("unpacked")
    stored = read_disparity(Path("unpacked/disp_0/000000_10.png"))
    np.testing.assert_allclose(stored, made["000000_10"], atol=1 / 256)


def test_middlebury_gets_the_size_of_its_images(
    here: Path, made: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = ("Adirondack", "ArtL")
    rules = replace(submissions.load_rules("middlebury"), training=scenes)
    monkeypatch.setattr(submissions, "load_rules", lambda kind: rules)
    for scene, sample in zip(scenes, eval_trees.crops(), strict=True):
        folder = here / "MiddEval3" / "trainingQ" / scene
        folder.mkdir(parents=True)
        Image.fromarray(sample.left).save(folder / "im0.png")
        Image.fromarray(sample.right).save(folder / "im1.png")
        eval_trees.write_disparity(f"out/trainingQ/{scene}.pfm", np.nan_to_num(made[sample.name], nan=3.0))
    data = ["--data", "middlebury:MiddEval3"]
    arguments = ["submit", *data, "--predictions", "out", "-o", "m.zip"]
    with unchanged():  # the time that reading a file takes is not the program's
        refuse(pam(*arguments), 2, "run time", "--prediction-seconds")
    run = succeed(*arguments, "--prediction-seconds", "0.25")
    assert "unverified" in run.stderr
    with zipfile.ZipFile("m.zip") as archive:
        assert sorted(archive.namelist())[0] == "trainingQ/Adirondack/disp0PAM.pfm"
        assert archive.read("trainingQ/Adirondack/timePAM.txt") == b"0.25"


def test_contradictions_and_bad_values(
    two_wanted: Path, mine: Path, made: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pamcli.inference.matcher.StereoMatcher.from_settings", None)
    eval_trees.write_disparity("short/000000_10.pfm", made["000000_10"])
    eval_trees.write_disparity("short/000001_10.pfm", made["000001_10"][1:])
    table = f"""
        2 --data {TESTING} -o k.tar | --output | .zip
        2 --data {TESTING} -o k.zip --prediction-seconds 1 | --prediction-seconds | --predictions
        2 --data {TESTING} -o k.zip --scale 2 | --scale | --predictions
        2 --data {TESTING} -o k.zip --predictions made --prediction-seconds 1 | --prediction-sec | Middlebury
        2 --data {TESTING} -o k.zip --predictions made --weights pasmnet | --predictions | --weights
        2 --data pairs:mine -o k.zip | pairs | kitti2015
        2 --data kitti2015:kitti -o k.zip | testing pairs | kitti2015/testing
        3 --data {TESTING}?first=1 -o k.zip | incomplete | 000001_10
        3 --data {TESTING} --predictions short -o k.zip | short/000001_10.pfm | 128x79
    """
    refuse_all(table, "submit")
