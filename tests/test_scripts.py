"""The scripts: installation, measurements, studies of the paper's tables, and checks of rendered pairs."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import pytest
from documents import BLOCKS
from warm_python import WarmPython

from pamcli.data.open import open_data
from pamcli.training.recipes import change_recipe, get_recipe

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
sys.path += [str(SCRIPTS), str(SCRIPTS / "training"), str(SCRIPTS / "training" / "rooms")]
import render_rooms  # noqa: E402


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


class Run(Protocol):
    """Runs a script of scripts/."""

    def __call__(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run(warm_python: WarmPython) -> Run:
    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = warm_python.command(str(ROOT / "scripts" / script), *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_the_benchmark_stands_beside_the_classical_methods(run: Run, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ["--networks", "pasmnet2", "--sizes", "48x32", "--devices", "cpu", "--threads", "1"]
    made = run("benchmark.py", *tiny, "--precisions", "fp32", "--repeat", "1", "--json", str(figures))
    assert made.returncode == 0, made.stderr
    written = json.loads(figures.read_text())
    assert {"pam", "python", "torch", "opencv-python-headless"} <= written["versions"].keys()
    rows = written["figures"]
    assert [row["network"] for row in rows] == ["SGBM", "pasmnet2"]
    assert all(0 < row["min ms"] <= row["median ms"] for row in rows)
    assert rows[0]["ratio"] == 1
    assert "| pasmnet2 | 48x32 | cpu | fp32 |  | 1 | 0 |" in made.stdout


def test_memory_does_not_grow_with_a_list() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "batch_memory.py"), "--pairs", "30", "300"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # whose memory is its own
    assert made.returncode == 0, made.stderr
    counts = [
        (int(line.split()[0]), float(line.split(": ")[1].split()[0])) for line in made.stdout.splitlines()
    ]
    assert [count for count, _ in counts] == [30, 30, 300, 300]
    assert all(0 <= megabytes < 20 for _, megabytes in counts)


@pytest.mark.parametrize(
    "name",
    [
        *("check_stereograms", "compare_opencv", "compare_precisions", "measure_camera_faults"),
        *("measure_camera_images", "measure_match_size", "measure_memory", "measure_steadiness"),
        "video_bounds",
    ],
)
def test_scripts_that_take_long_say_what_they_do(run: Run, name: str) -> None:
    made = run(f"{name}.py", "--help")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("usage: ")


@pytest.fixture
def ablations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "studies")
    return importlib.import_module("ablations")


def test_every_row_can_be_trained_and_has_a_figure_in_each_column(ablations: ModuleType) -> None:
    tables = {task: [study.table for study in studies] for task, studies in ablations.STUDIES.items()}
    assert tables == {"disparity": [1, 2, 4, 5], "superres": [10, 11, 12]}
    for task, studies in ablations.STUDIES.items():
        recipe = get_recipe(ablations.RECIPES[task], task)
        for study, row in ((each, row) for each in studies for row in each.rows):
            assert len(row.published.split()) == len(study.columns), row
            weights = dict(f"losses.{loss}".split("=") for loss in row.losses)
            assert change_recipe(recipe, {"variant": row.variant, **weights}).form.text == row.variant


def test_the_commands_of_the_guide_are_understood(
    ablations: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in BLOCKS if "python scripts/studies" in block.text)
    for command in block.commands():
        _, script, *arguments = shlex.split(command)
        assert ROOT / script == Path(ablations.__file__)
        monkeypatch.setattr(sys, "argv", [script, *arguments, "--commands"])
        assert ablations.main() == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith("pam train ") for line in lines) or "counts" in arguments
    assert list(tmp_path.iterdir()) == []


def render_square() -> list[np.ndarray]:
    """A textured wall at 6 px with a textured square at 14 px in front: images and disparities."""
    rng = np.random.default_rng(0)
    wall, square = (rng.integers(40, 220, (64, 160, 3), np.uint8) for _ in range(2))
    left, right = wall.copy(), np.roll(wall, -6, axis=1)
    disparity, right_disparity = (np.full((64, 160), 6, np.float32) for _ in range(2))
    left[20:44, 60:90] = square[20:44, 60:90]
    right[20:44, 46:76] = square[20:44, 60:90]
    disparity[20:44, 60:90] = right_disparity[20:44, 46:76] = 14
    return [left, right, disparity, right_disparity]


def test_a_right_pair_is_kept() -> None:
    pair = render_square()
    assert render_rooms.find_fault(*pair) is None
    visible, contradictory = render_rooms.compare_disparities(*pair[2:])
    assert not contradictory.any()
    assert not visible[30, 52:60].any()  # occluded by the square in the right image
    assert visible[30, 62:88].all()


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (slice(2, 4), lambda values: values + 1, "fit the images better with -1 px"),
        (slice(2, 4), lambda values: values * 1.25, "fit the images better"),
        (slice(3, 4), lambda values: values - 2, "contradict"),
        (slice(3, 4), np.fliplr, "contradict"),
        (slice(0, 2), np.zeros_like, "the left image is blank"),
        (slice(2, 3), lambda values: values - 6, "ranges from 0 to 8 px"),
    ],
)
def test_a_wrong_pair_is_not_kept(index: slice, change: object, message: str) -> None:
    pair = render_square()
    pair[index] = map(change, pair[index])
    fault = render_rooms.find_fault(*pair)
    assert fault is not None
    assert message in fault


def test_written_pairs_are_read_with_the_ground_truth_of_both_images(tmp_path: Path) -> None:
    left, right, disparity, right_disparity = render_square()
    render_rooms.write_pair(tmp_path, 7, (left, right), (disparity, right_disparity))
    sample = open_data(f"pairs:{tmp_path}").load(0)
    assert sample.name == "00007"
    np.testing.assert_array_equal(sample.right, right)
    np.testing.assert_array_equal(sample.right_disparity, right_disparity)
    assert all(path.exists() for path in render_rooms.list_files(tmp_path, 7))
