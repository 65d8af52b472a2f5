"""--pairs: a list in a file is checked whole before any work, one from stdin is worked off as it arrives."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pam_program import forked_quick, names, pam, refuse_all, succeed, unchanged

pytestmark = pytest.mark.usefixtures("remembering_networks")


@pytest.fixture(autouse=True)
def pictures(pair: Path) -> None:
    """day/1_L.png, day/1_R.png, day/sub/2_L.png and so on."""
    for name in ("day/1", "day/sub/2", "night/3"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        os.link("left.png", f"{name}_L.png")
        os.link("right.png", f"{name}_R.png")


def listed(*pairs: str) -> bytes:
    """Lines of a list: of "day/1", or of "day/1 > third column"."""
    lines = []
    for pair in pairs:
        name, *output = pair.split(" > ")
        lines.append("\t".join([f"{name}_L.png", f"{name}_R.png", *output]))
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize("source", ["list.tsv", "-"])
def test_a_list_that_reaches_above_the_folder_needs_a_root(source: str, here: Path) -> None:
    Path("work").mkdir()
    os.chdir("work")
    content = f"../day/1_L.png\t../day/1_R.png\n{here}/night/3_L.png\t../night/3_R.png\n".encode()
    Path("list.tsv").write_bytes(content)
    stdin = content if source == "-" else b""
    with unchanged():
        run = pam("disparity", "--pairs", source, "-o", "out/", stdin=stdin)
    assert run.code == (6 if source == "-" else 2)
    assert "line 1: ../day/1_L.png lies outside of the folder" in run.stderr
    assert "--root DIR" in run.stderr
    run = pam("disparity", "--pairs", source, "-o", "out/", "--root", "..", stdin=stdin)
    assert run.lines == ["out/day/1_L.pfm", "out/night/3_L.pfm"]
    Path("mine.tsv").write_text("../day/1_L.png\t../day/1_R.png\tmine.pfm\n")
    assert pam("disparity", "--pairs", "mine.tsv").lines == ["mine.pfm"], "which may lie anywhere"


def test_the_third_column_is_the_output() -> None:
    Path("list.tsv").write_bytes(listed("day/1 > deep/down/first.npy", "night/3"))
    run = pam("disparity", "--pairs", "list.tsv", "-o", "out/{}.png", "--color-map", "colors/")
    made = (
        "deep/down/first.npy",
        "colors/day/1_L_color.png",
        "out/night/3_L.png",
        "colors/night/3_L_color.png",
    )
    assert run.lines == [*made]
    run = pam("superres", "--pairs", "-", "--scale", "2", stdin=listed("day/1 > larger.tif"))
    assert run.lines == ["larger.tif"]


def test_a_list_of_nul_separated_names() -> None:
    os.rename("day/1_L.png", "day/1\t\n_L.png")
    content = b"day/1\t\n_L.png\0day/1_R.png\0night/3_L.png\0night/3_R.png\0"
    Path("list").write_bytes(content)
    succeed("disparity", "--pairs", "list", "-0", "-o", "a/")
    succeed("disparity", "--pairs", "-", "--null", "-o", "b/", stdin=content)
    assert names("a") == names("b") == ["day/1\t\n_L.pfm", "night/3_L.pfm"]


def test_lists_that_cannot_be(here: Path) -> None:
    one, other = listed("day/1 > x.pfm"), listed("night/3")
    contents = {
        "same": one + listed("night/3 > x.pfm"),
        "twice": listed("day/1", "day/1"),
        "over": listed("day/1 > day/1_R.png"),
        "kind": listed("day/1 > x.xyz"),
        "dash": listed("day/1 > -"),
        "half": one + other,
        "one": one,
        "empty": b"",
        "blank": b"\n\r\n",
        "nul": b"day/1_L.png\0day/1_R.png\0",
        "lone": b"day/1_L.png\0",
        "utf16": other.decode().encode("utf-16"),
        "bad": b"\xef\xbb\xbfday/1_L.png\tday/1_R.png\r\n\r\n"
        b"day/1_L.png day/1_R.png\n"
        b"day/1_L.png\tnone.png\n"
        b"\tday/1_R.png\n"
        b"a\tb\tc.pfm\td\n"
        b"day\tday/1_R.png\n"
        b"day/1_L.png\tday/../day/1_L.png\n",
    }
    for name, content in contents.items():
        Path(name).write_bytes(content)
    table = """
        2 same | x.pfm would come from day/1_L.png (line 1) and
        2 twice -o o/ | o/day/1_L.pfm would come from day/1_L.png (line 1) and from
        2 over | day/1_R.png would overwrite an input
        2 kind | line 1: the result x.xyz has the suffix .xyz
        2 dash | line 1: the result - has no suffix
        2 half | line 2: no output
        2 one --format npy | line 1: the result x.pfm differs from --format npy
        2 empty -o o/ | the pair list empty is empty
        2 blank -o o/ | the pair list blank is empty
        2 nul -o o/ | line 1: NUL characters in a list of lines
        2 lone -o o/ -0 | line 1: the right image is missing
        2 bad -o o/ | bad: 6 bad lines: line 3: expected 2 or 3 columns, got 1; line 4: no such file: none.png
        2 bad -o o/ | line 5: column 1 is empty; line 6: expected 2 or 3 columns, got 4; line 7: day is a
        2 bad -o o/ | day is a folder, not an image and 1 more | left<TAB>right[<TAB>output]
        3 none.tsv -o o/ | cannot read the pair list none.tsv
        3 day -o o/ | cannot read the pair list day
        3 utf16 -o o/ | is in UTF-16 | save it as UTF-8
        2 one -o o/ --root none | --root must be a folder, got none
    """
    refuse_all(table, "disparity --pairs")
    refuse_all("2 -o o/ --root . | --root | --pairs", "disparity left.png right.png")


def test_a_live_producer_sees_each_result_before_it_asks_for_the_next() -> None:
    command = ["disparity", "--pairs", "-", "-o", "out/", "--jsonl"]
    with forked_quick(*command, stdin=subprocess.PIPE) as running:
        for name, status in (("day/1", "ok"), ("none", "failed"), ("day/sub/2", "ok"), ("day/1", "failed")):
            running.stdin.write(listed(name))
            running.stdin.flush()
            record = json.loads(running.stdout.readline())
            assert record["status"] == status
            if status == "ok":
                assert Path(record["outputs"]["disparity"]).is_file()
        running.stdin.close()
        assert running.wait() == 6
    assert names("out") == ["day/1_L.pfm", "day/sub/2_L.pfm"]


def test_a_bad_line_fails_alone() -> None:
    lines = {
        listed("day/1"): "",
        b"day/1_L.png\n": "line 2: expected 2 or 3 columns, got 1",
        listed("day/1") + b"\n": "would come from line 1 and from day/1_L.png (line 3)",
        listed("day/none"): "line 5: no such file: day/none_L.png",
        listed("day/sub/2 > day/1_L.png"): "line 6: day/1_L.png would overwrite an input",
        listed("day/sub/2 > x.xyz"): "line 7: the result x.xyz has the suffix .xyz",
        b"out/day/1_L.pfm\tday/1_R.png\n": "line 8: out/day/1_L.pfm is a result of line 1",
        listed("night/3"): "",
    }
    run = pam("disparity", "--pairs", "-", "-o", "out/", "--jsonl", stdin=b"".join(lines))
    assert run.code == 6
    assert [record["code"] for record in run.records] == [0, 2, 2, 3, 2, 2, 2, 0]
    assert [record["line"] for record in run.records] == [1, 2, 3, 5, 6, 7, 8, 9]
    for record, said in zip(run.records, lines.values(), strict=True):
        assert said in (record["error"] or ""), record
    assert run.complaints[-1] == "2 ok, 6 failed"
    assert names("out") == ["day/1_L.pfm", "night/3_L.pfm"]


def test_a_list_from_stdin_goes_on_where_it_stopped() -> None:
    content = listed("day/1", "day/sub/2", "night/3")
    command = ["disparity", "--pairs", "-", "-o", "out/"]
    succeed(*command, stdin=listed("day/1"))
    run = pam(*command, "--skip-existing", "--jsonl", stdin=content)
    assert [record["status"] for record in run.records] == ["skipped", "ok", "ok"]
    run = pam(*command, "--jsonl", stdin=content)
    assert run.code == 6
    assert [record["code"] for record in run.records] == [2, 2, 2]
    assert "1 result already exists: out/day/1_L.pfm (use --overwrite" in run.records[0]["error"]
