"""Records of prepared sets with other values in them: exit 3, the file is named, and what to do.

`pytest tests/attacks/test_damaged_sets.py --seeds 2000` takes so many seeds a file; a failure names it.
Damage to what is not read, or that makes another valid file, goes unnoticed: all else ends in pam's codes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pam_program import pam
from published import LARGE, SMALL, tree


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


PREPARE = ["dataset", "prepare-flickr1024", "in", "-o", "out", "--scale", "2", "--workers", "1", "-q"]
SETS = {
    "packed job": ("packed", "x2.unfinished/job.json", False),
    "packed pair": ("packed", "x2.unfinished/done.jsonl", False),
    "folders pair": ("folders", "patches_x2.unfinished/done.jsonl", False),
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


KINDS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("packed index", lambda index: {**index, "job": []}, "job must be names with values, got []"),
    ("packed index", lambda index: {**index, "scale": 0}, "scale is 0"),
    ("packed index", lambda index: _first(index, height="120"), "height must be a valid integer, got '120'"),
    ("packed index", lambda index: _first(index, patches=10**9), "does not match its size"),
    ("folders index", lambda index: _first(index, first=0), "first must be greater than or equal to 1"),
    ("packed index", lambda index: {**index, "pictures": index["pictures"][:1] * 2}, "overlaps the pair"),
    ("packed job", lambda job: {**job, "pictures": None}, "pictures must be a valid list, got None"),
]


def _first(index: Any, **values: Any) -> Any:
    first, *others = index["pictures"]
    return {**index, "pictures": [{**first, **values}, *others]}


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


LINES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a patch is missing": lambda line: [line[0], line[1][:-1]],
    "no checksum": lambda line: [line[0], [*line[1][:-1], "z" * 64]],
    "another pair": lambda line: ["flickr1024/9", line[1]],
    "half a line": lambda line: line[:1],
}


@pytest.mark.parametrize("prepared", ["packed pair", "folders pair"], indirect=True)
@pytest.mark.parametrize("kind", [*LINES, "the patches are missing"])
def test_a_damaged_result_is_computed_again(prepared: tuple[list[str], Path], kind: str) -> None:
    command, file = prepared
    first, *others = map(json.loads, filter(None, file.read_text().splitlines()))
    if kind in LINES:
        file.write_text("\n".join(map(json.dumps, [LINES[kind](first), *others])))
    else:
        shutil.rmtree(file.parent / "store")
        (file.parent / "store").mkdir()
    assert pam(*command).code == 0
    assert pam(*[*command[:4], "out2", *command[5:]]).code == 0
    assert _files("out") == _files("out2")


def _files(folder: str) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in Path(folder).rglob("*.*")}


@pytest.mark.parametrize("prepared", ["packed job"], indirect=True)
def test_without_its_request_nobody_knows_what_was_done(prepared: tuple[list[str], Path]) -> None:
    command, file = prepared
    file.unlink()
    run = pam(*command)
    assert run.code == 3
    (line,) = run.complaints
    assert line.startswith(f"error: {file} is missing, so ")
    assert f"remove {file.parent}" in line
