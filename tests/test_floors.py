"""The floors of the house: what a module may import follows from where it stands."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pamcli"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS: dict[str, tuple[set[str], set[str]]] = {
    # floor: (floors or single modules it may import besides itself, packages from outside it may import)
    "errors": (set(), set()),
    "systems": (set(), set()),
    "validation": ({"errors"}, {"pydantic"}),
    "limits": ({"errors", "systems"}, set()),
    "workers": ({"errors", "limits"}, set()),
    "files": ({"errors", "systems", "validation"}, {"pydantic", "numpy", "yaml"}),
    "imaging": (
        {"errors", "validation", "files"},
        {"numpy", "imageio", "PIL", "tifffile", "imagecodecs", "cv2", "av"},
    ),
    "calibration": ({"errors", "files", "imaging"}, {"numpy", "cv2", "yaml", "plyfile"}),
    "recordings": ({"errors", "files", "imaging", "calibration"}, {"numpy", "cv2"}),
    "onednn": (set(), {"torch"}),
    "winograd": ({"onednn"}, {"torch"}),
    "networks": ({"onednn", "winograd"}, {"torch"}),
    "registry": (
        {"errors", "validation", "files", "networks"},
        {"torch", "safetensors", "huggingface_hub", "numpy", "pydantic"},
    ),
    "inference": (
        {
            "errors",
            "systems",
            "limits",
            "files",
            "imaging",
            "networks",
            "onednn",
            "registry",
            "settings",
            "winograd",
            "workers",
        },
        {"torch", "numpy", "safetensors"},
    ),
    "reporting": (set(), set()),
    "settings": ({"errors", "files", "registry"}, set()),
    "scenes": ({"errors", "validation", "files", "imaging"}, {"torch", "numpy", "PIL", "cv2"}),
    "flickr1024": ({"errors", "workers", "files", "imaging", "reporting"}, {"numpy", "cv2", "pydantic"}),
    "batch": (
        {"errors", "limits", "files", "imaging", "calibration", "recordings", "registry", "inference"}
        | {"viewing", "settings", "workers"},
        {"numpy"},
    ),
    "streams": (
        {"errors", "files", "imaging", "calibration", "inference", "batch", "settings", "viewing"},
        {"numpy"},
    ),
    "data": (
        {"errors", "workers", "files", "imaging", "calibration", "recordings", "scenes", "flickr1024"}
        | {"settings", "reporting"},
        {"numpy", "PIL", "cv2", "h5py"},
    ),
    "evaluation": (
        {"errors", "files", "imaging", "data", "inference", "registry", "settings", "reporting"},
        {"numpy", "jinja2", "markupsafe", "PIL", "cv2", "torch"},
    ),
    "losses": ({"validation", "networks"}, {"torch"}),
    "training": (
        {"errors", "systems", "validation", "workers", "files", "imaging", "networks", "losses"}
        | {"registry", "inference", "scenes", "data", "evaluation", "winograd", "settings"},
        {"torch", "numpy", "safetensors", "tensorboardX", "PIL", "pydantic"},
    ),
    "viewing": ({"errors", "files", "imaging", "calibration"}, {"numpy", "PIL", "jinja2", "pydantic"}),
    "cli": (
        {
            *("errors", "systems", "workers", "files", "imaging", "calibration", "recordings", "registry"),
            *("inference", "batch", "streams"),
            *("flickr1024", "data", "evaluation", "viewing", "losses", "training", "settings", "reporting"),
        },
        {"typer", "rich", "numpy"},
    ),
    "__init__": (
        {"calibration", "errors", "imaging", "registry", "inference", "batch", "evaluation"}
        | {"data", "training", "settings", "streams"},
        set(),
    ),
    "__main__": ({"cli", "errors", "limits"}, set()),
}

TORCH_AT_THE_TOP = {
    "networks",
    "onednn",
    "winograd",
    "inference",
    "losses",
    "training",
    "pamcli.evaluation.image_quality",
    "pamcli.registry.load",
    "pamcli.registry.convert",
    "scenes",  # for sampling textures nothing else is as fast
}
"""Floors, packages and modules that import torch when they are imported; all else does so inside functions.

What is outside networks and inference may stand here when it is itself imported inside functions
only.
"""

NO_PLACE_IN_NETWORKS = {"os", "io", "pathlib", "sys", "shutil", "subprocess", "logging", "tempfile", "urllib"}


@dataclass(frozen=True)
class Import:
    """One imported name."""

    module: str
    """Absolute: `pamcli.errors`, `torch.nn`."""
    line: int
    lazy: bool
    """Inside a function or under `if TYPE_CHECKING:`; importing the module does not run it."""


def module_name(file: Path) -> str:
    """`pamcli.cli` for pamcli/cli/__init__.py."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    return tuple(imports_in(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE.parent).parent.parts))


def imports_in(code: str, package: tuple[str, ...]) -> Iterator[Import]:
    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, lazy)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(package[: len(package) - child.level + 1]) if child.level else ""
                source = ".".join(part for part in (base, child.module) if part)
                for alias in child.names:
                    inner = f"{source}.{alias.name}"
                    yield Import(
                        inner if inner in MODULES or source == "pamcli" else source, child.lineno, lazy
                    )
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from visit(child, lazy or inside or typing)

    yield from visit(ast.parse(code), lazy=False)


def floor_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def at_import(module: str) -> set[str]:
    """Every module that importing `module` imports, as far as the package's own files tell."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])  # a package's __init__ runs before its modules
        if name in MODULES:
            waiting += [found.module for found in imports_of(MODULES[name]) if not found.lazy]
    return seen


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_a_module_imports_only_from_the_floors_below(file: Path) -> None:
    floor = floor_of(module_name(file)) if file.parent != PACKAGE else file.stem
    assert floor in FLOORS, f"a new floor: say in {Path(__file__).name} what it may import"
    below, outside = FLOORS[floor]
    for found in imports_of(file):
        where = f"{file.name}:{found.line} imports {found.module}"
        top = found.module.partition(".")[0]
        if found.module in {"pamcli", "pamcli.__version__"}:
            continue
        if top == "pamcli":
            assert {floor_of(found.module), found.module} & (below | {floor}), where
        elif top not in sys.stdlib_module_names:
            assert top in outside, where


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone count, too."""
    modules = {name: file for name, file in MODULES.items() if name != "pamcli"}  # all ask for the version
    left = {name: {found.module for found in imports_of(file)} for name, file in modules.items()}
    while free := [name for name, needed in left.items() if not needed & left.keys() - {name}]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_nothing_but_the_entry_point_imports_cli() -> None:
    importers = {
        name for name in MODULES if any(i.module.startswith("pamcli.cli") for i in imports_of(MODULES[name]))
    }
    assert {name for name in importers if floor_of(name) != "cli"} == {"pamcli.__main__"}


@pytest.mark.parametrize("name", MODULES)
def test_torch_is_imported_at_the_top_only_where_it_is_stated(name: str) -> None:
    if not {floor_of(name), name, name.rpartition(".")[0]} & TORCH_AT_THE_TOP:
        assert "torch" not in {module.partition(".")[0] for module in at_import(name)}


@pytest.mark.parametrize("name", [name for name in MODULES if floor_of(name) == "networks"])
def test_networks_have_no_input_output_and_no_device(name: str) -> None:
    for found in imports_of(MODULES[name]):
        assert found.module.partition(".")[0] not in NO_PLACE_IN_NETWORKS, (
            f"line {found.line}: {found.module}"
        )
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"cuda", "mps", "cpu"}, f"line {node.lineno}: .{node.attr}"
            assert ast.unparse(node) != "torch.device", f"line {node.lineno}"
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print"}, f"line {node.lineno}: {node.func.id}()"
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            given = " ".join(ast.unparse(argument) for argument in [*node.args, *node.keywords])
            assert "device" not in given, f"line {node.lineno}: .to({given})"
            assert not any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args), given


def private_uses(code: str, packages: set[str]) -> Iterator[str]:
    """Names with a leading underscore that are asked of what a file imports from some packages."""
    tree = ast.parse(code)
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                parts = [part for part in (*source.split("."), *alias.name.split(".")) if part]
                if parts[0] in packages:
                    bound.add(alias.asname or (alias.name if source else parts[0]))
                    yield from (f"line {node.lineno}: {part}" for part in parts if part.startswith("_"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            root: ast.expr = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in bound:
                yield f"line {node.lineno}: {ast.unparse(node)}"
    if "typer.core" in code:  # whose classes are subclassed: their private parts would be asked of self
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("folder", ["pamcli", "tests", "scripts"])
def test_nothing_private_of_typing_typer_or_click_is_used(folder: str) -> None:
    """Only what they document stays there in their next version, and in Python's."""
    found = {
        str(path): [*private_uses(path.read_text(encoding="utf-8"), {"typing", "typer", "click"})]
        for path in (PACKAGE.parent / folder).rglob("*.py")
    }
    assert {path: uses for path, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from typing import Annotated\nA = Annotated.__class_getitem__((int, 3))", 1),
        ("import typer\nU = typer.BadParameter.__mro__[1]", 1),
        ("from typer._click import UsageError", 1),
        ("import typer.core as c\nclass G(c.TyperGroup):\n    def f(self): return self._main()", 1),
        ("import typing as t\nt._GenericAlias", 1),
        ("import typer\nimport os\nos._exit(typer.echo().code)\nx.__doc__", 0),
    ],
)
def test_what_is_private_is_seen(code: str, expected: int) -> None:
    assert len([*private_uses(code, {"typing", "typer", "click"})]) == expected


@pytest.mark.parametrize("folder", ["pamcli", "tests", "scripts"])
def test_a_file_can_be_read_in_one_sitting(folder: str) -> None:
    lines = {path: path.read_bytes().count(b"\n") for path in (PACKAGE.parent / folder).rglob("*.py")}
    assert {str(path): count for path, count in lines.items() if count > 400} == {}


def test_the_walk_sees_relative_and_lazy_imports() -> None:
    code = "import torch.nn\nfrom ..errors import InputError\ndef f():\n    from pamcli import cli\n"
    assert list(imports_in(code, package=("pamcli", "imaging"))) == [
        Import("torch.nn", 1, lazy=False),
        Import("pamcli.errors", 2, lazy=False),
        Import("pamcli.cli", 4, lazy=True),
    ]


@pytest.mark.parametrize(("room", "equations"), [("networks", range(1, 10)), ("losses", range(10, 19))])
def test_the_tables_at_the_doors_find_every_equation(room: str, equations: range) -> None:
    """Each equation of the paper has a row, and what a row names is there."""
    defined = {room_file.stem for room_file in (PACKAGE / room).glob("*.py")}
    for room_file in (PACKAGE / room).glob("*.py"):
        nodes = ast.walk(ast.parse(room_file.read_text(encoding="utf-8")))
        defined |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    door = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
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
