"""Tests of the names that `import pamcli` offers, loaded on first use, each with a running example."""

from __future__ import annotations

import doctest
import inspect
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from video_files import write_video
from warm_python import WarmPython

import pamcli

NAMES = set(pamcli.__all__)
ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "scripts" / "sample"


def run(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_former_name_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"pamcli.read_picture is now pamcli.read_image"):
        assert pamcli.read_picture is pamcli.read_image
    former, message = {"depth": "d.npy", "picture": "left.png"}, "`picture` is now `image`"
    with pytest.warns(DeprecationWarning, match=message) as seen, pytest.raises(pamcli.PamError):
        pamcli.depth_files("no.pfm", **former)
    assert seen[0].filename == __file__


def test_everything_that_the_last_release_promised_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import stable_names

    promised = stable_names.FILE.read_text(encoding="utf-8").splitlines()
    assert len(promised) > 700
    broken = sorted({*promised} - {*stable_names.names()})
    assert broken == [], "keep them, or follow pamcli/guide/stability.md and run scripts/stable_names.py"


# --- the examples of the docstrings ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples read: a small pair alone and in two folders, its truth and calibration."""
    place = tmp_path_factory.mktemp("examples")
    for side in ("left", "right"):
        small = Image.open(SAMPLE / f"{side}.png").crop((300, 200, 364, 248))
        small.save(place / f"{side}.png")
        (place / f"{side}s").mkdir()
        small.save(place / f"{side}s" / "one.png")
        wider = place / "labelled" / side / "one.png"
        wider.parent.mkdir(parents=True)
        Image.open(SAMPLE / f"{side}.png").crop((300, 150, 492, 246)).save(wider)
    for side in ("left", "right"):
        write_video(place / f"{side}.mp4", [np.asarray(Image.open(place / f"{side}.png").convert("RGB"))] * 5)
    truth = pamcli.read_disparity(SAMPLE / "disparity.pfm")[200:248, 300:364]
    labels = pamcli.read_disparity(SAMPLE / "disparity.pfm")[150:246, 300:492]
    pamcli.write_disparity(place / "labelled" / "disparity" / "one.npy", labels)
    pamcli.write_disparity(place / "disparity.pfm", truth)
    text = (SAMPLE / "calib.txt").read_text().replace("width=741\nheight=500\n", "")
    (place / "calib.txt").write_text(text)
    return place


@pytest.fixture(scope="module")
def known(folder: Path) -> dict[str, Any]:
    """What the examples have at hand."""
    left, right = (pamcli.read_image(folder / f"{side}.png").pixels for side in ("left", "right"))
    matcher = pamcli.StereoMatcher.load(device="cpu", match_size=1)
    return {
        "pamcli": pamcli,
        "Path": Path,
        "StereoMatcher": pamcli.StereoMatcher,
        "StereoUpscaler": pamcli.StereoUpscaler,
        **{"left": left, "right": right, "result": matcher(left, right)},
        "truth": pamcli.read_disparity(folder / "disparity.pfm"),
        "calibration": pamcli.read_calibration(folder / "calib.txt").rectified,
    }


def list_described_names() -> list[str]:
    """Names whose docstrings have to show an example: all but records that others return, and the error."""
    records = {
        "__version__",
        "PamError",
        "Batch",
        "Evaluation",
        "RgbImage",
        "Result",
        "StereoResult",
        "LiveFrame",
    }
    return sorted(name for name in NAMES - records if not name.endswith("Settings"))


@pytest.mark.parametrize("name", ["__doc__", *list_described_names()])
def test_every_docstring_shows_an_example_that_runs(
    name: str, folder: Path, known: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (pamcli.__doc__ if name == "__doc__" else inspect.getdoc(getattr(pamcli, name))) or ""
    examples = doctest.DocTestParser().get_examples(text)
    assert examples, f"{name} shows no example"
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    names = dict(known)
    for example in examples:
        exec(compile(example.source, name, "single"), names)


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_name_says_what_it_raises_where_it_can(name: str) -> None:
    thing = getattr(pamcli, name)
    text = inspect.getdoc(thing) or ""
    assert text
    if inspect.isfunction(thing):
        assert "Raises" in text, name


# --- files, from Python ---------------------------------------------------------------------------------


def test_what_no_disparity_file_holds_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, values, said in (
        ("d.xyz", np.zeros((2, 2), np.float32), r"\.xyz is not a supported format"),
        ("d.png", np.full((2, 2), -1, np.float32), "negative"),
        ("d.pfm", np.zeros((2, 2, 1), np.float32), r"\(H, W\)"),
        ("d.pfm", np.zeros((2, 2), np.int32), "int32"),
    ):
        with pytest.raises(pamcli.PamError, match=said):
            pamcli.write_disparity(tmp_path / path, values)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(logging.getLogger("pamcli"), "propagate", True)
    pamcli.write_disparity(tmp_path / "far.png", np.full((2, 2), 300, np.float32))
    assert "4 pixels exceed 255.996 px" in caplog.text


def test_a_batch_from_python_is_that_of_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: WarmPython
) -> None:
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    shutil.copy("lefts/one.png", "lefts/two.png")
    Path("rights/two.png").write_text("no picture")
    how: dict[str, Any] = {"device": "cpu", "match_size": 1}
    outcomes = list(pamcli.match_files("lefts/", "rights/", output="maps/", color_map="maps/", **how))
    assert [outcome.status for outcome in outcomes] == ["ok", "failed"]
    good, bad = outcomes
    assert good.outputs == {"disparity": Path("maps/one.pfm"), "color_map": Path("maps/one_color.png")}
    assert (good.facts["width"], good.facts["height"], good.error) == (64, 48, None)
    assert isinstance(bad.error, pamcli.PamError)
    assert "rights/two.png" in str(bad.error)
    assert (bad.left, bad.outputs) == (Path("lefts/two.png"), {})
    with pytest.raises(pamcli.PamError, match="`overwrite`"):
        pamcli.match_files("lefts/", "rights/", output="maps/", **how)
    again = list(pamcli.match_files("lefts/", "rights/", output="maps/", skip_existing=True, **how))
    assert [outcome.status for outcome in again] == ["skipped", "failed"]
    (handed,) = pamcli.match_files("left.png", "right.png", output="-", **how)
    assert handed.data == Path("maps/one.pfm").read_bytes()
    command = ["disparity", "lefts/", "rights/", "-o", "said/", "--device", "cpu", "--match-size", "1"]
    done = subprocess.run(warm_python.command("-m", "pamcli", *command), capture_output=True, check=False)
    assert done.returncode == 6
    assert Path("said/one.pfm").read_bytes() == handed.data
