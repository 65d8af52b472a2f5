from __future__ import annotations

from pathlib import Path

import pytest

from pamcli.errors import UsageError
from pamcli.files import outputs as module
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    check_collisions,
    plan_outputs,
)
from pamcli.files.pairing import PairPaths

DISPARITY = OutputKind("disparity", "--output", (".pfm", ".png", ".npy", ".tif", ".tiff"))
RIGHT = OutputKind("right_disparity", "--output-right", DISPARITY.suffixes, "_right")
COLOR = OutputKind("color_map", "--color-map", (".png", ".jpg"), "_color")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pair(left: str = "in/a.png", right: str = "in/b.png", key: str = "a", **more: object) -> PairPaths:
    return PairPaths(Path(left), Path(right), key, **more)  # type: ignore[arg-type]


def plan(
    output: str | None = None,
    right: str | None = None,
    color: str | None = None,
    *,
    batch: bool = False,
    format_name: str | None = None,
) -> OutputPlan:
    return plan_outputs({DISPARITY: output, RIGHT: right, COLOR: color}, batch=batch, format_name=format_name)


def names(planned: OutputPlan, one: PairPaths | None = None) -> dict[str, str]:
    return {name: str(path) for name, path in planned.paths(one or pair()).items()}


def test_a_suffix_of_another_kind_names_its_option() -> None:
    cloud = OutputKind("point_cloud", "--point-cloud", (".ply",))
    with pytest.raises(UsageError, match="has the suffix") as refused:
        plan_outputs({DISPARITY: "d.ply", cloud: None}, batch=False)
    assert refused.value.hint == ".ply is a suffix for --point-cloud"


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "batch", "key", "expected"),
    [
        (("disp.PNG", "r.npy", "c.png"), False, "a", ("disp.PNG", "r.npy", "c.png")),
        (("out/{}.pfm", None, None), False, "a", ("out/a.pfm", None, None)),
        (("out/",) * 3, True, "x/a.b", ("out/x/a.b.pfm", "out/x/a.b_right.pfm", "out/x/a.b_color.png")),
        (("there.v2", None, None), False, "a", ("there.v2/a.pfm", None, None)),
        (("new", None, None), True, "a", ("new/a.pfm", None, None)),
        ((".", None, None), True, "a", ("a.pfm", None, None)),
        (("o/{}/{}.tif", None, "o/{}_c.png"), True, "x/a", ("o/x/a/x/a.tif", None, "o/x/a_c.png")),
    ],
)
def test_names_of_results(
    options: tuple[str | None, ...], batch: bool, key: str, expected: tuple[str | None, ...]
) -> None:
    Path("there.v2").mkdir()
    found = names(plan(*options, batch=batch), pair(key=key))
    assert tuple(found.get(kind) for kind in ("disparity", "right_disparity", "color_map")) == expected


def test_format_agrees_with_the_suffix() -> None:
    assert names(plan("d.tiff", "r.npy", format_name="tif")) == {
        "disparity": "d.tiff",
        "right_disparity": "r.npy",
    }
    assert names(plan("d.PFM", format_name=".pfm")) == {"disparity": "d.PFM"}
    in_folder = {
        "disparity": "out/a.npy",
        "right_disparity": "out/a_right.npy",
        "color_map": "out/a_color.png",
    }
    assert names(plan("out/", "out/", "out/", format_name="NPY")) == in_folder


# --- collisions -----------------------------------------------------------------------------------------


def test_case_counts_where_the_file_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [pair(key="A"), pair("in/c.png", key="a")]
    paths = plan("out/", batch=True).paths
    monkeypatch.setattr(module, "IGNORES_CASE", False)
    check_collisions(pairs, paths)
    monkeypatch.setattr(module, "IGNORES_CASE", True)
    with pytest.raises(UsageError, match="would come from"):
        check_collisions(pairs, paths)
