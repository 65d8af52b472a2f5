"""The command that installs an extra works in the environment in which pam was installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from pamcli.errors import _EXTRAS, UsageError, import_extra, suggest_extra

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
