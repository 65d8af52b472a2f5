from __future__ import annotations

import os
from pathlib import Path

import pytest

from pamcli.errors import UsageError
from pamcli.files import outputs as module
from pamcli.files.outputs import (
    OutputKind,
    OutputPlan,
    PathRegistry,
    check_collisions,
    check_existing,
    is_folder_name,
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
        ((None, None, "c.jpg"), False, "a", (None, None, "c.jpg")),
        ((None, None, None), False, "a", (None, None, None)),
        (("out/",) * 3, False, "x/a.b", ("out/x/a.b.pfm", "out/x/a.b_right.pfm", "out/x/a.b_color.png")),
        (("out/",) * 3, True, "x/a.b", ("out/x/a.b.pfm", "out/x/a.b_right.pfm", "out/x/a.b_color.png")),
        (("there.v2", None, None), False, "a", ("there.v2/a.pfm", None, None)),
        (("there.v2", None, None), True, "a", ("there.v2/a.pfm", None, None)),
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


def test_what_counts_as_a_folder() -> None:
    assert is_folder_name("new", batch=True)
    assert not is_folder_name("new", batch=False)
    assert not is_folder_name("new/{}", batch=True)


@pytest.mark.parametrize(
    ("options", "batch", "parts"),
    [
        ({"output": "d.exr"}, False, ["--output d.exr", ".exr", ".pfm, .png, .npy, .tif, .tiff"]),
        ({"output": "d"}, False, ["no suffix", "slash"]),
        ({"output": ".pfm"}, False, ["no suffix"]),
        ({"color": "c.pfm"}, False, ["--color-map c.pfm", ".png, .jpg"]),
        ({"output": "d.pfm"}, True, ["one file for many pairs", "'out/{}.pfm'", "out/"]),
        ({"color": "new.v2"}, True, ["one file for many pairs", "'out/{}.png'"]),
        ({"output": "out/{}"}, True, ["no suffix", "'out/{}.pfm'"]),
        ({"output": "out/{}/"}, True, ["no suffix", "'out/{}.pfm'"]),
        ({"output": "out/{}.x"}, True, ["the suffix .x"]),
        ({"output": ""}, False, ["--output is empty"]),
        ({"output": "-"}, True, ["a single result of a single pair"]),
        ({"output": "d.pfm", "format_name": "npy"}, False, ["--output d.pfm", "`format` npy"]),
        ({"output": "{}.png", "format_name": "tif"}, True, ["--output {}.png", "`format` tif"]),
        ({"output": "out/", "format_name": "exr"}, True, ["unknown `format` exr", "pfm, png, npy, tif"]),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], batch: bool, parts: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        plan(**options, batch=batch)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


def test_a_file_where_a_folder_should_be() -> None:
    Path("out").write_bytes(b"")
    with pytest.raises(UsageError, match="--output out/ is a file, not a folder"):
        plan("out/")
    with pytest.raises(UsageError, match="--output out is a file, not a folder"):
        plan("out", batch=True)


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


def test_the_third_column_replaces_the_main_name() -> None:
    listed = pair(output=Path("mine.npy"), line=3)
    assert names(plan("out/", color="out/", batch=True), listed) == {
        "disparity": "mine.npy",
        "color_map": "out/a_color.png",
    }
    assert list(names(plan(color="out/", batch=True), listed)) == ["disparity", "color_map"]
    assert names(plan(batch=True), listed) == {"disparity": "mine.npy"}
    with pytest.raises(UsageError, match=r"line 3: the result mine\.npy differs from `format` pfm"):
        plan("out/", batch=True, format_name="pfm").paths(listed)


def test_bad_third_columns_are_collected() -> None:
    lines = [pair(output=Path(f"m{i}.exr"), line=i) for i in range(1, 8)]
    with pytest.raises(UsageError) as error:
        plan("out/", batch=True).check([*lines, pair(line=9)])
    text = str(error.value)
    assert "line 5: the result m5.exr" in text
    assert "line 6" not in text
    assert "and 2 more" in text
    with pytest.raises(UsageError, match="line 9: no output"):
        plan(batch=True).check([pair(output=Path("ok.pfm"), line=8), pair(line=9)])
    plan("out/", batch=True).check([pair()])


# --- collisions -----------------------------------------------------------------------------------------


def test_results_apart_from_each_other_are_fine() -> None:
    pairs = [pair("in/a.png", "in/b.png", "a"), pair("in/c.png", "in/d.png", "c")]
    check_collisions(pairs, map(plan("out/", "out/", batch=True).paths, pairs))


def test_two_results_of_one_name() -> None:
    pairs = [pair("in/a.png", key="a"), pair("in/a.jpg", key="a", line=7)]
    with pytest.raises(UsageError) as error:
        check_collisions(pairs, map(plan("out/", batch=True).paths, pairs))
    assert "out/a.pfm would come from in/a.png and from in/a.jpg (line 7)" in str(error.value)
    one = [pair()]
    with pytest.raises(UsageError, match=r"x\.png would be both disparity and color_map"):
        check_collisions(one, map(plan("x.png", None, "./x.png").paths, one))


def test_one_place_by_two_ways() -> None:
    Path("real").mkdir()
    os.symlink("real", "link")
    paths = [{"disparity": Path("real/a.pfm")}, {"disparity": Path("link/a.pfm")}]
    with pytest.raises(UsageError, match=r"link/a\.pfm would come from"):
        check_collisions([pair(), pair("in/c.png")], paths)


def test_results_never_overwrite_inputs(here: Path) -> None:
    Path("in").mkdir()
    Path("store").mkdir()
    for name in ("in/a.png", "in/b.png", "store/c.png"):
        Path(name).write_bytes(b"")
    os.symlink("../store/c.png", "in/c.png")
    pairs = [pair(), pair("in/c.png", "in/d.png", "c")]
    for target in ("in/b.png", str(here / "in/c.png"), "store/c.png", "in/../in/d.png"):
        with pytest.raises(UsageError, match="would overwrite an input"):
            check_collisions(pairs, [{"disparity": Path(target)}, {"disparity": Path("o.png")}])


def test_a_link_to_an_input_is_an_input(here: Path) -> None:
    """Writing follows links, so the image behind one would be lost."""
    Path("in").mkdir()
    Path("in/a.png").write_bytes(b"")
    os.symlink("in/a.png", "link.png")
    os.symlink("nowhere.png", "loose.png")
    with pytest.raises(UsageError, match=r"link\.png would overwrite an input"):
        check_collisions([pair()], [{"disparity": Path("link.png")}])
    with pytest.raises(UsageError, match=r"loose\.png would be both right and disparity"):
        check_collisions([pair()], [{"right": Path("nowhere.png"), "disparity": Path("loose.png")}])


def test_many_collisions_are_counted() -> None:
    pairs = [pair(f"in/{i}.png", key="a") for i in range(9)]
    with pytest.raises(UsageError, match="and 3 more"):
        check_collisions(pairs, map(plan("out/", batch=True).paths, pairs))


def test_case_counts_where_the_file_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [pair(key="A"), pair("in/c.png", key="a")]
    paths = [*map(plan("out/", batch=True).paths, pairs)]
    monkeypatch.setattr(module, "IGNORES_CASE", False)
    check_collisions(pairs, paths)
    monkeypatch.setattr(module, "IGNORES_CASE", True)
    with pytest.raises(UsageError, match="would come from"):
        check_collisions(pairs, paths)


def test_a_list_as_it_comes() -> None:
    seen = PathRegistry()
    planned = plan("out/", batch=True)
    first = pair(line=1)
    seen.add(first, planned.paths(first))
    again = pair("in/a.jpg", line=2)
    with pytest.raises(UsageError, match=r"line 2: out/a\.pfm would come from line 1"):
        seen.add(again, planned.paths(again))
    with pytest.raises(UsageError, match=r"line 3: in/a\.png would overwrite an input"):
        seen.add(pair("in/x.png", line=3), {"disparity": Path("in/a.png")})
    with pytest.raises(UsageError, match=r"line 4: in/y\.png would overwrite an input"):
        seen.add(pair("in/y.png", line=4), {"disparity": Path("in/y.png")})
    with pytest.raises(UsageError, match=r"line 5: out/a\.pfm is a result of line 1"):
        seen.add(pair("out/a.pfm", line=5), {"disparity": Path("z.pfm")})
    seen.add(pair("in/z.png", line=6), {"disparity": Path("z.pfm")})  # nothing of line 5 was kept
    seen.add(pair("in/w.png", line=7), {"disparity": Path("in/x.png")})  # nor of line 3


def test_a_long_batch(here: Path) -> None:
    seen, planned = PathRegistry(), plan("out/", batch=True)
    for number in range(3000):
        each = pair(f"in/{number}.png", f"in/{number}_R.png", str(number))
        seen.add(each, planned.paths(each))
    names = pair("in/caf\udce9.png", key="caf\udce9")
    seen.add(names, planned.paths(names))
    for key, said in (
        ("7", "would come from line 8 and from"),
        ("caf\udce9", "would come from line 3001 and from"),
    ):
        with pytest.raises(UsageError, match=said):
            seen.add(pair("in/new.png", key=key), planned.paths(pair(key=key)))
    with pytest.raises(UsageError, match=r"in/2999_R\.png would overwrite an input"):
        seen.add(pair("in/new.png"), {"disparity": Path("in/2999_R.png")})


# --- what already exists --------------------------------------------------------------------------------


def test_existing_results_are_refused_without_a_flag() -> None:
    paths = [{"disparity": Path(f"{i}.pfm")} for i in range(8)]
    check_existing(paths, overwrite=False, skip_existing=False)
    for i in range(7):
        Path(f"{i}.pfm").write_bytes(b"")
    with pytest.raises(UsageError) as error:
        check_existing(paths, overwrite=False, skip_existing=False)
    text = str(error.value)
    assert "7 results already exist: 0.pfm, 1.pfm, 2.pfm, 3.pfm, 4.pfm and 2 more" in text
    assert "`overwrite`" in text
    assert "`skip_existing`" in text
    check_existing(paths, overwrite=True, skip_existing=False)
    check_existing(paths, overwrite=False, skip_existing=True)


def test_folders_in_the_way() -> None:
    Path("a.pfm").mkdir()
    for flags in ((True, False), (False, True), (False, False)):
        with pytest.raises(UsageError, match=r"a folder has the name of a result: a\.pfm"):
            check_existing([{"disparity": Path("a.pfm")}], overwrite=flags[0], skip_existing=flags[1])
