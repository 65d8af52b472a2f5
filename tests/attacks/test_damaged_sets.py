"""Records of prepared sets with other values in them: exit 3, the file is named, and what to do.

`pytest tests/attacks/test_damaged_sets.py --seeds 2000` takes so many seeds a file; a failure names it.
Damage to what is not read, or that makes another valid file, goes unnoticed: all else ends in pam's codes.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import damaged

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
sys.path.insert(0, str(Path(__file__).parents[1] / "flickr1024"))
from pam_program import Run, pam
from published import LARGE, SMALL, png, split_stereogram, tree, views

from pamcli.flickr1024 import stereogram_pairs


def ends_well(run: Run, codes: tuple[int, ...], seed: int) -> None:
    assert run.code in (0, *codes), (seed, run.stderr)
    assert "unexpected" not in run.stderr, (seed, run.stderr)
    assert "Traceback" not in run.stderr, (seed, run.stderr)
    errors = [line for line in run.complaints if line.startswith("error: ")]
    assert run.code == 0 or errors, (seed, run.stderr)
    assert "\x1b" not in run.stderr, (seed, run.stderr)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


PREPARE = ["dataset", "prepare-flickr1024", "in", "-o", "out", "--scale", "2", "--workers", "1", "-q"]
SETS = {
    "packed job": ("packed", "x2.unfinished/job.json", False),
    "folders job": ("folders", "patches_x2.unfinished/job.json", False),
    "packed pair": ("packed", "x2.unfinished/done/000001.json", False),
    "folders pair": ("folders", "patches_x2.unfinished/done/000002.json", False),
    "packed index": ("packed", "x2/index.json", True),
    "folders index": ("folders", "patches_x2.json", True),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Prepare each kind of set once: one that is finished, or was stopped before its end."""

    @cache
    def make(kind: str) -> Path:
        store, _, finished = SETS[kind]
        folder = tmp_path_factory.mktemp("set")
        images = tree(folder / "in", {"Train/0001": LARGE, "Train/0002": SMALL, "Train/0003": LARGE})
        last = images / "Train/0003_R.png"
        whole = last.read_bytes()
        last.write_bytes(whole if finished else whole[:2000])
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert pam(*PREPARE, "--store", store).code == (0 if finished else 6)
        last.write_bytes(whole)
        shutil.copytree(folder / "out", folder / "kept")
        return folder

    return make


@pytest.fixture(params=SETS)
def prepared(
    request: pytest.FixtureRequest, here: Path, build: Callable[[str], Path]
) -> tuple[list[str], Path]:
    """What prepares a set in the current folder, and a file of its record."""
    shutil.copytree(build(request.param), here, dirs_exist_ok=True)
    store, file, _ = SETS[request.param]
    return [*PREPARE, "--store", store], Path("out", file)


def test_prepared_sets(prepared: tuple[list[str], Path], request: pytest.FixtureRequest) -> None:
    command, file = prepared
    value = json.loads(file.read_text())
    for seed in range(request.config.getoption("--seeds")):
        shutil.rmtree("out")
        shutil.copytree("kept", "out")
        file.write_text(json.dumps(damaged(value, seed)))
        if file.name != "job.json" and "done" not in file.parts:
            ends_well(pam("dataset", "verify", "flickr1024:out?scale=2"), (3,), seed)
        ends_well(pam(*command), (2, 3), seed)


KINDS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("packed index", lambda index: {**index, "job": []}, "job must be names with values, got []"),
    ("packed index", lambda index: {**index, "scale": 0}, "scale is 0"),
    ("packed index", lambda index: _first(index, height="120"), "height must be a valid integer, got '120'"),
    ("packed index", lambda index: _first(index, patches=10**9), "does not match its size"),
    ("folders index", lambda index: _first(index, first=0), "first must be greater than or equal to 1"),
    ("packed index", lambda index: _with_images(index, slice(None, None, -1)), "overlaps the pair before it"),
    ("packed index", lambda index: _with_images(index, slice(1), 2), "overlaps the pair before it"),
    ("packed pair", lambda _: None, "the value must be a valid list, got None"),
    ("packed pair", lambda _: [], "it lists 0 of 6 patches"),
    ("folders pair", lambda _: 7, "the value must be a valid list, got 7"),
    ("folders pair", lambda sums: sums[:-1], "it lists 1 of 2 patches"),
    ("packed pair", lambda sums: [*sums[:-1], "z" * 64], "5 must match pattern"),
    ("packed job", lambda job: [job], "the value must be names with values"),
    ("packed job", lambda job: {**job, "pictures": None}, "pictures must be a valid list, got None"),
]


def _first(index: Any, **values: Any) -> Any:
    first, *others = index["pictures"]
    return {**index, "pictures": [{**first, **values}, *others]}


def _with_images(index: Any, part: slice, times: int = 1) -> Any:
    return {**index, "pictures": index["pictures"][part] * times}


@pytest.mark.parametrize(
    ("prepared", "change", "said"),
    KINDS,
    indirect=["prepared"],
    ids=[f"{kind[0]}: {kind[2]}" for kind in KINDS],
)
def test_each_kind_of_damage_to_a_prepared_set_is_named(
    prepared: tuple[list[str], Path], change: Callable[[Any], Any], said: str
) -> None:
    command, file = prepared
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    run = pam(*command)
    assert run.code == 3, run.stderr
    (line,) = run.complaints
    assert line.startswith(f"error: {file} is damaged: ")
    assert said in line
    assert line.endswith(")")  # what to do
    assert "remove" in line


@pytest.mark.parametrize("prepared", ["packed pair", "folders pair"], indirect=True)
def test_what_a_record_says_is_there_has_to_be_there(prepared: tuple[list[str], Path]) -> None:
    command, file = prepared
    store = file.parents[1] / "store"
    shutil.rmtree(store)
    store.mkdir()
    run = pam(*command)
    assert run.code == 3
    assert f"{store}/" in run.stderr
    assert f"remove {file.parents[1]} and start again" in run.stderr


@pytest.mark.parametrize("prepared", ["packed job"], indirect=True)
def test_without_its_request_nobody_knows_what_was_done(prepared: tuple[list[str], Path]) -> None:
    command, file = prepared
    file.unlink()
    run = pam(*command)
    assert run.code == 3
    (line,) = run.complaints
    assert line.startswith(f"error: {file} is missing, so ")
    assert f"remove {file.parent}" in line


@pytest.mark.parametrize("prepared", ["packed pair"], indirect=True)
@pytest.mark.parametrize("name", ["²", "000099", "1"])
def test_a_file_of_another_name_is_no_record(prepared: tuple[list[str], Path], name: str) -> None:
    command, file = prepared
    file.with_name(f"{name}.json").write_text("null")
    assert pam(*command).code == 0


@pytest.mark.parametrize(
    "file", ["stereograms.json", "pairs.unfinished/job.json", "pairs.unfinished/done/000001.json"]
)
def test_stereograms(
    file: str, here: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(stereogram_pairs, "rectify_stereogram", split_stereogram)
    Path("in").mkdir()
    Path("in/a.png").write_bytes(png(np.hstack(views(SMALL, 1))))
    Path("in/b.png").write_bytes(png(np.zeros((20, 40, 3), np.uint8)))
    command = ["dataset", "prepare-flickr1024", "in", "-o", "out", "--from-stereograms", "--infinity", "no"]
    command += ["--workers", "1", "-q"]
    assert pam(*command).code == 0
    record = json.loads(Path("out/stereograms.json").read_text())
    if "unfinished" in file:  # as after a kill before the second was done
        Path("out/pairs").rename("store")
        shutil.rmtree("out")
        Path("out/pairs.unfinished/done").mkdir(parents=True)
        Path("store").rename("out/pairs.unfinished/store")
        Path("out/pairs.unfinished/done/000001.json").write_text(json.dumps(record["pictures"][0]))
        Path("out/pairs.unfinished/job.json").write_text(json.dumps(record["job"]))
    shutil.copytree("out", "kept")
    value = json.loads(Path("out", file).read_text())
    for seed in range(request.config.getoption("--seeds")):
        shutil.rmtree("out")
        shutil.copytree("kept", "out")
        Path("out", file).write_text(json.dumps(damaged(value, seed)))
        ends_well(pam(*command), (2, 3, 6), seed)
