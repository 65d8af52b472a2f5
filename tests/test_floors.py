"""The floors of the house: pyproject.toml says what each package of pamcli may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pamcli"
FLOORS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["floors"]
GRAPH = grimp.build_graph("pamcli", include_external_packages=True, cache_dir=None)
IMPORTS = {
    name: GRAPH.find_modules_directly_imported_by(name)
    for name in sorted(GRAPH.modules)
    if name.partition(".")[0] == "pamcli"
}
"""What each module of pamcli imports, also inside functions and for types alone."""

TORCH_AT_THE_TOP = {
    *("networks", "convolutions", "inference", "losses", "training"),
    *("evaluation.image_quality", "registry.load", "registry.convert"),
    "scenes",  # for sampling textures nothing else is as fast
}
"""Floors and modules that import torch when they are imported; all else does so inside functions.

What is outside networks and inference may stand here when it is itself imported inside functions only.
"""


def floor_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@pytest.mark.parametrize("name", IMPORTS)
def test_a_module_imports_only_from_the_floors_below(name: str) -> None:
    floor = floor_of(name)
    assert floor in FLOORS, "a new floor: state in pyproject.toml what it may import"
    ours, others = (texts.split() for texts in FLOORS[floor])
    for found in IMPORTS[name] - {"pamcli"}:  # all may ask for the version
        if found in IMPORTS:
            assert floor_of(found) in {floor, *ours}, f"{name} imports {found}"
        else:
            assert found in {*others, *sys.stdlib_module_names}, f"{name} imports {found}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter({name: found - {"pamcli"} for name, found in IMPORTS.items()}).prepare()


def test_nothing_but_the_entry_point_imports_cli() -> None:
    importers = {name for name, found in IMPORTS.items() if "cli" in map(floor_of, found)}
    assert {name for name in importers if floor_of(name) != "cli"} == {"pamcli.__main__"}


def test_torch_is_imported_at_the_top_only_where_it_is_stated() -> None:
    lazy = [name for name in IMPORTS if not {floor_of(name), name.removeprefix("pamcli.")} & TORCH_AT_THE_TOP]
    code = (
        "import importlib, sys\n"
        f"for name in {lazy}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", sorted((PACKAGE / "networks").glob("*.py")), ids=lambda path: path.stem)
def test_networks_have_no_input_output_and_no_device(path: Path) -> None:
    name = "pamcli.networks" + ("" if path.stem == "__init__" else f".{path.stem}")
    imports = {"os", "io", "pathlib", "sys", "shutil", "subprocess", "logging", "tempfile", "urllib"}
    assert not IMPORTS[name] & imports
    devices = r"\.(?:cuda|mps|cpu)\b|torch\.device|\.to\([^)]*(?:device|[\"'])"
    assert re.findall(rf"{devices}|\b(?:open|print)\(", path.read_text()) == []


def test_nothing_private_of_typing_typer_or_click_is_used() -> None:
    """Only what they document stays there in their next version, and in Python's."""
    private = r"\b(?:typing|typer|click)(?:\.\w+)*\._|from (?:typing|typer|click)[\w.]* import .*\b_"
    assert [path for path in PACKAGE.rglob("*.py") if re.search(private, path.read_text())] == []


@pytest.mark.parametrize("folder", ["pamcli", "tests", "scripts"])
def test_a_file_can_be_read_in_one_sitting(folder: str) -> None:
    lines = {path: path.read_bytes().count(b"\n") for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): count for path, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize(("room", "equations"), [("networks", range(1, 10)), ("losses", range(10, 19))])
def test_the_tables_at_the_doors_find_every_equation(room: str, equations: range) -> None:
    """Each equation of the paper has a row, and what a row names is there."""
    files = list((PACKAGE / room).glob("*.py"))
    code = "\n".join(path.read_text() for path in files)
    defined = {path.stem for path in files} | {*re.findall(r"^ *(?:def|class) (\w+)", code, re.MULTILINE)}
    door = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    rows = [line.split("|")[1:4] for line in door.splitlines() if line.startswith("| ")][2:]
    named = [part for row in rows for name in re.findall(r"`([\w.]+)`", row[2]) for part in name.split(".")]
    assert [name for name in named if name not in defined] == []
    paths = [path for row in rows for path in re.findall(r"`(\w+/[\w./]*)`", row[2])]
    assert [path for path in paths if not (PACKAGE / path).exists()] == []
    cited: set[int] = set()
    for row in rows:
        for text in re.findall(r"(?:Equations?|^) (\d[\d, to]*)", row[0]):
            for first, last in re.findall(r"(\d+)(?: to (\d+))?", text):
                cited |= set(range(int(first), int(last or first) + 1))
    assert set(equations) <= cited
