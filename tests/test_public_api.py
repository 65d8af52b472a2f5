"""What `import pamcli` offers: a handful of names, loaded when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pamcli

SAMPLE = Path(__file__).parents[1] / "scripts" / "sample"

NAMES = {
    "Calibration",
    "PamError",
    "StereoMatcher",
    "StereoResult",
    "StereoUpscaler",
    "__version__",
    "read_calibration",
    "read_disparity",
    "read_picture",
}


def run(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, pamcli; pamcli.PamError; pamcli.__version__; dir(pamcli); print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run(code).split()}
    assert "pamcli" in loaded
    assert not loaded & {
        "torch",
        "numpy",
        "imageio",
        "PIL",
        "safetensors",
        "huggingface_hub",
        "typer",
        "rich",
    }


def test_the_readers_take_names_and_paths_and_do_without_torch() -> None:
    code = f"""
import sys, pamcli, pathlib
folder = {str(SAMPLE)!r}
picture = pamcli.read_picture(folder + "/left.png")
truth = pamcli.read_disparity(pathlib.Path(folder) / "disparity.pfm")
calibration = pamcli.read_calibration(folder + "/calib.txt").rectified
assert isinstance(calibration, pamcli.Calibration)
assert calibration.depth(truth).shape == truth.shape
assert picture.pixels.shape == (*truth.shape, 3)
assert (picture.pixels.dtype, truth.dtype) == ("uint8", "float32")
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
for read in (pamcli.read_picture, pamcli.read_disparity, pamcli.read_calibration):
    try:
        read("none.png")
    except pamcli.PamError as error:
        print(error.exit_code, error)
"""
    lines = run(code).splitlines()
    assert [line[:2] for line in lines] == ["3 ", "3 ", "3 "]
    assert all("none.png" in line for line in lines)


def test_the_names_are_listed_and_there() -> None:
    assert set(pamcli.__all__) == NAMES
    assert set(dir(pamcli)) >= NAMES
    from pamcli.inference.matcher import StereoMatcher, StereoResult
    from pamcli.inference.upscaler import StereoUpscaler

    assert pamcli.StereoMatcher is StereoMatcher
    assert pamcli.StereoResult is StereoResult
    assert pamcli.StereoUpscaler is StereoUpscaler
    assert issubclass(pamcli.PamError, Exception)


def test_a_star_import_gives_them_all() -> None:
    assert set(run(f"from pamcli import *; print(*[n for n in {NAMES} if n in globals()])").split()) == NAMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pamcli' has no attribute 'nonsense'"):
        _ = pamcli.nonsense
    with pytest.raises(ImportError, match="nonsense"):
        from pamcli import nonsense  # noqa: F401


def test_type_checkers_see_the_same_names_in_the_same_modules() -> None:
    tree = ast.parse(Path(pamcli.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    seen = {
        alias.name: found.module
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    assert seen == pamcli._LAZY
    assert set(seen) == NAMES - {"__version__"}
