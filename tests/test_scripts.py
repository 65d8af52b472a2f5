"""The two scripts of the README: installation, reuse of environments, and error messages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def sh(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with environment.sh loaded, away from the checkout."""
    lines = f'set -eu; root="{ROOT}"; . "$root/scripts/environment.sh"; {script}'
    return subprocess.run(
        ["sh", "-c", lines], cwd="/", env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the packages of the running one."""
    folder = tmp_path_factory.mktemp("environments") / "filled"
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = folder / "lib" / version / "site-packages" / "borrowed.pth"
    link.write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n{ROOT}\n")
    run = sh('choose_environment; stamp >"$(stamp_file test)"', PAM_VENV=str(folder))
    assert run.returncode == 0, run.stderr
    return folder


def test_an_extra_is_added_once_and_its_failure_ends_nothing(filled: Path) -> None:
    run = sh("choose_environment; add_extra video json", PAM_VENV=str(filled))
    assert (run.returncode, run.stderr) == (0, "")
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(filled), "PIP_CONFIG_FILE": os.devnull}
    nowhere["PIP_FORCE_REINSTALL"] = "1"
    run = sh("choose_environment; add_extra las no_such_module", PAM_VENV=str(filled), **nowhere)
    assert run.returncode == 0
    assert run.stderr.startswith("Installing laspy>=2.5 lazrs>=0.6")
    assert run.stderr.splitlines()[-1].endswith("except what the extra las is for.")


def test_another_pytorch_or_another_checkout_installs_again(filled: Path, tmp_path: Path) -> None:
    script = "choose_environment; {} is_installed test"
    assert sh(script.format(""), PAM_VENV=str(filled)).returncode == 0
    assert sh(script.format(""), PAM_VENV=str(filled), PAM_TORCH="torch==2.99").returncode == 1
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    assert sh(script.format(f"root='{tmp_path}';"), PAM_VENV=str(filled)).returncode == 1


def test_no_python_new_enough_is_said(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    run = sh('prepare_environment ""', PAM_VENV=str(tmp_path / "venv"), PAM_PYTHON=str(old))
    assert run.returncode == 1
    assert "No Python 3.11 or newer found" in run.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_that_cannot_make_environments_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\n')
    bare.chmod(0o755)
    run = sh('prepare_environment ""', PAM_VENV=str(tmp_path / "venv"), PAM_PYTHON=str(bare))
    assert run.returncode == 1
    assert f"{bare} cannot make virtual environments" in run.stderr
    assert "python3-venv" in run.stderr


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("keep me")
    run = sh('prepare_environment ""', PAM_VENV=str(tmp_path))
    assert run.returncode == 1
    assert "is not a virtual environment" in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_the_pinned_pytorch_is_one_that_the_package_accepts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = [re.fullmatch(r"torch>=([\d.]+)", each) for each in project["dependencies"] if "torch" in each]
    pinned = re.search(r"torch==([\d.]+)", (ROOT / "scripts" / "environment.sh").read_text())
    assert asked is not None
    assert pinned is not None
    accepted, taken = ([int(part) for part in found[1].split(".")] for found in (asked, pinned))
    assert accepted <= taken


def test_no_file_of_the_project_names_a_package_index() -> None:
    installing = [*(ROOT / "scripts").glob("*.sh"), *(ROOT / ".github").rglob("*.yml"), ROOT / ".ci" / "run"]
    for file in [*installing, ROOT / ".pre-commit-config.yaml", ROOT / "pyproject.toml"]:
        assert not re.search(r"https?://(?!arxiv\.org)|index-url", file.read_text()), file
