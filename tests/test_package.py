"""The wheel holds weights, licence and command, and an extra is installed where pam is."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import pamcli
from pamcli.errors import _EXTRAS, UsageError, import_extra, suggest_extra


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.iterdir()
    return zipfile.ZipFile(file)


def test_the_wheel_carries_every_weight_file_with_its_checksum(wheel: zipfile.ZipFile) -> None:
    recorded = {}
    for line in wheel.read("pamcli/weights/SHA256SUMS").decode().splitlines():
        digest, name = line.split()
        recorded[name.lstrip("*")] = digest
    files = {
        name.removeprefix("pamcli/weights/") for name in wheel.namelist() if name.endswith(".safetensors")
    }
    assert {"pasmnet.safetensors", "passrnet-x2.safetensors", "passrnet-x4.safetensors"} <= files
    assert files == set(recorded)
    for name, digest in recorded.items():
        assert hashlib.sha256(wheel.read(f"pamcli/weights/{name}")).hexdigest() == digest
        assert f"pamcli/weights/{Path(name).stem}.md" in wheel.namelist()


def test_the_wheel_names_its_command_version_and_licence(wheel: zipfile.ZipFile) -> None:
    info = f"pamcli-{pamcli.__version__}.dist-info"
    assert "pam = pamcli.__main__:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert wheel.read(f"{info}/licenses/LICENSE").startswith(b"MIT License")
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == pamcli.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    (typer,) = [each for each in metadata.get_all("Requires-Dist", []) if each.startswith("typer")]
    assert "<" in typer, "its classes are subclassed, which the next version may change"
    assert ">=" in typer


def test_the_changelog_is_in_the_order_of_versions() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", text, re.MULTILINE)
    versions = [[*map(int, version.split("."))] for version in released]
    assert first == "Unreleased"
    assert versions == sorted(versions, reverse=True)
    assert pamcli.__version__ not in released[1:]
    headings = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Removed", "Fixed", "Deprecated", "Security"}


def test_what_contributors_are_told_to_run_and_read_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    page = (ROOT / "pamcli" / "guide" / "code.md").read_text(encoding="utf-8")
    named = re.findall(r"\b(?:scripts|pamcli|tests|weights)/[\w./-]*\w", text + page)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert text.count("\n") <= 100


def test_the_wheel_holds_every_module_and_page_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    package = ROOT / "pamcli"
    modules = {str(file.relative_to(ROOT)) for file in (*package.rglob("*.py"), *package.rglob("*.md"))}
    assert "pamcli/guide/pairs.md" in modules
    held = set(wheel.namelist())
    assert modules | {"pamcli/py.typed"} <= held
    tops = {name.partition("/")[0] for name in held}
    assert tops == {"pamcli", f"pamcli-{pamcli.__version__}.dist-info"}
    assert not [name for name in held if "__pycache__" in name]


def test_the_wheel_carries_what_was_compiled_and_names_the_platform(wheel: zipfile.ZipFile) -> None:
    info = f"pamcli-{pamcli.__version__}.dist-info"
    tag = Parser().parsestr(wheel.read(f"{info}/WHEEL").decode())["Tag"]
    assert "pamcli/winograd.c" in wheel.namelist()
    if shutil.which(os.environ.get("CC", "cc")) is None:
        assert tag == "py3-none-any"
    else:
        assert {f"pamcli/libwinograd-{kind}.so" for kind in ("avx512", "avx2")} <= set(wheel.namelist())
        assert tag.startswith("py3-none-linux_")


def test_the_wheel_works_unpacked_anywhere(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    folder = tmp_path / "site/pamcli/weights"
    names = ["pasmnet", "passrnet2-x2"]
    with (folder / "pasmnet.safetensors").open("r+b") as file:
        file.truncate(1000)
    code = "import sys; sys.path.insert(0, sys.argv.pop()); import pamcli.cli as cli; cli.main()"
    verify = [sys.executable, "-P", "-c", code, "weights", "verify", *names, str(tmp_path / "site")]
    run = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 4, "it was not the unpacked file that was verified"
    assert run.stderr.startswith("pam: error: pasmnet: ")
    sound = [line.partition(": ok, ")[0] for line in run.stdout.splitlines()]
    assert sorted([*sound, "pasmnet"]) == names


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOPMENT = {"docs", "release", "test"}
EXTRAS = {name: each for name, each in PROJECT["optional-dependencies"].items() if name not in DEVELOPMENT}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the extras of the project."""
    requires = [f"{each}; extra == '{name}'" for name, all_of_it in EXTRAS.items() for each in all_of_it]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [*PROJECT["dependencies"], *requires])
    monkeypatch.setattr(sys, "executable", "/home/ann/my env/bin/python")
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.usefixtures("installed")
def test_pip_of_the_same_python_gets_the_packages_by_their_names() -> None:
    python = "'/home/ann/my env/bin/python' -m pip install"
    assert suggest_extra("video") == f"{python} av"
    assert suggest_extra("onnx") == f"{python} onnx onnxruntime onnxscript"
    assert suggest_extra("las") == f"{python} laspy lazrs"


@pytest.mark.usefixtures("installed")
def test_pipx_and_uv_have_commands_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert suggest_extra("ros") == "uv pip install --python '/home/ann/my env/bin/python' rosbags"
    monkeypatch.setattr(sys, "prefix", "/home/ann/.local/pipx/venvs/pamcli")
    assert suggest_extra("heif") == "pipx inject pamcli pillow-heif"


def test_every_extra_that_a_message_names_exists() -> None:
    sources = (Path(__file__).parents[1] / "pamcli").rglob("*.py")
    named = {
        name for file in sources for name in re.findall(r'suggest_extra\("(\w+)"\)', file.read_text("utf-8"))
    }
    assert named | {extra for extra, _ in _EXTRAS.values()} == EXTRAS.keys()


@pytest.mark.parametrize("package", _EXTRAS)
def test_a_missing_package_is_named_with_its_command(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    extra, message = _EXTRAS[package]
    with pytest.raises(UsageError) as error:
        import_extra(package)
    assert (error.value.message, error.value.hint) == (message, suggest_extra(extra))
