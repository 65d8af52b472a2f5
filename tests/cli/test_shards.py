"""Batches over several machines: --shard I/N gives the whole byte for byte; refusals of --engine ray."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pam_program import files, pam, refuse, succeed, unchanged
from PIL import Image

from pamcli.errors import suggest_extra

pytestmark = pytest.mark.usefixtures("remembering_networks")

BATCHES = [
    ["flight0/a", "flight0/b"],
    ["{}/a/1.png", "{}/b/1.png"],
    ["--pairs", "list.tsv"],
    ["--pairs", "-"],
    ["--packed", "lr", "flight0/a", "flight1/a"],
]
NAMES = [f"{day}/{number}" for day in ("flight0", "flight1") for number in range(4)]


@pytest.fixture(autouse=True)
def pictures(small_pair: Path) -> None:
    """Tiny images flight0/a/0.png and flight0/b/0.png; flight1 has the same names."""
    for name in ("left.png", "right.png"):
        Image.open(name).crop((0, 0, 32, 16)).save(name)
    for name in NAMES:
        flight, number = name.split("/")
        for side, file in (("a", "left.png"), ("b", "right.png")):
            Path(flight, side).mkdir(parents=True, exist_ok=True)
            os.link(file, f"{flight}/{side}/{number}.png")
    lines = [f"{name.replace('/', '/a/')}.png\t{name.replace('/', '/b/')}.png" for name in NAMES]
    Path("list.tsv").write_text("\n".join(lines) + "\n")


def stdin_of(batch: list[str]) -> dict[str, Any]:
    return {"stdin": Path("list.tsv").read_bytes()} if batch[-1] == "-" else {}


@pytest.mark.parametrize("batch", [BATCHES[0], BATCHES[4]], ids=str)
def test_the_shards_together_are_the_whole(batch: list[str]) -> None:
    succeed("disparity", *batch, "-o", "whole", **stdin_of(batch))
    done: list[set[str]] = []
    for number in (1, 2, 3):
        before = set(files(Path("parts"))) if done else set()
        share = ["--shard", f"{number}/3", "--skip-existing"]
        succeed("disparity", *batch, "-o", "parts", *share, **stdin_of(batch))
        done.append({name for name in files(Path("parts")) if name.endswith((".pfm", ".png"))} - before)
    assert files(Path("parts")) == files(Path("whole"))
    assert max(map(len, done)) - min(map(len, done)) <= 1


def test_several_threads_write_what_one_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several threads compute on GPUs only. On CPUs, one could switch how another multiplies, to rounding.
    monkeypatch.setattr("pamcli.convolutions.is_onednn_faster", lambda: False)
    for folder, threads in (("one", 1), ("three", 3)):
        monkeypatch.setattr("pamcli.batch.run.count_threads", lambda batch, threads=threads: threads)
        results = f"-o {folder}/ --color-map {folder}/ --page {folder}/pages/"
        run = succeed(f"disparity --pairs list.tsv {results} --jsonl")
        lefts = [record["left"] for record in run.records if "left" in record]
        assert lefts == [f"{name.replace('/', '/a/')}.png" for name in NAMES]
    assert files(Path("one")) == files(Path("three"))


def test_two_inputs_with_one_output_stop_every_shard_before_work() -> None:
    os.link("flight0/a/0.png", "flight0/a/0.bmp")
    with open("list.tsv", "a") as stream:
        stream.write("flight0/a/0.bmp\tflight0/b/0.png\n")
    for number in (1, 2):
        with unchanged():
            said = "out/flight0/a/0.pfm would come from flight0/a/0.png (line 1) and from flight0/a/0.bmp"
            run = pam("disparity", "--pairs", "list.tsv", "-o", "out/", "--shard", f"{number}/2")
            refuse(run, 2, said)


@pytest.mark.parametrize("command", ["disparity", "rectify --uncalibrated"])
def test_a_shard_without_pairs_is_no_error(command: str) -> None:
    """A scheduler that was asked for more tasks than there are pairs is to see none fail."""
    for batch in BATCHES:
        run = pam(command, *batch, "-o", "out/", "--shard", "9/9", "--jsonl", **stdin_of(batch))
        said = "shard 9/9 is empty: the batch has fewer pairs"
        assert (run.code, run.lines, run.complaints) == (0, [], [said])
        assert not Path("out").exists()


# --- --engine ray -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["disparity", "superres", "rectify --uncalibrated"])
def test_without_the_library(small_pair: object, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with open("pairs.tsv", "w") as file:
        file.write("left.png\tright.png\n")
    with unchanged():
        run = pam(*command.split(), "--pairs", "pairs.tsv", "-o", "out/", "--engine", "ray")
        refuse(run, 2, "ray is not installed", suggest_extra("ray"))
        run = pam(*command.split(), "left.png", "right.png", "-o", "x.png", "--engine", "ray")
        refuse(run, 2, "--engine ray requires a batch")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:x", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there(
    small_pair: object, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (pip install 'pamcli[ray]')")
    with open("pairs.tsv", "w") as file:
        file.write("left.png\tright.png\n")
    with unchanged():
        run = pam("disparity --pairs pairs.tsv -o out/ --engine ray --ray-address", address)
        refuse(run, 5, f"no Ray cluster answers at {address}")
    assert capfd.readouterr().err == ""
