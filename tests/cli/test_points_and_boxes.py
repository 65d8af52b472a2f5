"""pam depth and pam disparity print positions of points and boxes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from pam_program import Run, pam, refuse, refuse_all
from PIL import Image

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
CAMERA = ("--focal", "700", "--baseline", "0.1m", "--principal-point", "40,30")


def table(run: Run) -> list[dict[str, str]]:
    assert run.code == 0, run.stderr
    return [*csv.DictReader(io.StringIO(run.stdout.decode()))]


@pytest.fixture
def maps(here: Path) -> Path:
    (here / "maps").mkdir()
    for name, value in (("near", 35), ("far", 7)):
        np.save(here / f"maps/{name}.npy", np.full((60, 80), value, np.float32))
    return here


def test_positions_as_a_table_and_as_json(maps: Path) -> None:
    command = ("depth", "maps/near.npy", *CAMERA, "--at", "40,30", "--at", "60,10,20,20")
    rows = table(pam(*command))
    assert [(row["image"], float(row["z_m"])) for row in rows] == [("maps/near.npy", 2)] * 2
    assert float(rows[1]["x_m"]) == pytest.approx(29.5 * 2 / 700, abs=1e-6)
    assert float(rows[0]["z_error_m"]) == pytest.approx(2**2 * 0.5 / 70, rel=1e-4)
    record = json.loads(pam(*command, "--json").stdout)
    assert record["distances"][1]["z_m"] == 2
    assert (record["outputs"], record["status"]) == ({}, "ok")


def test_each_box_of_a_batch_belongs_to_its_image(maps: Path) -> None:
    Path("boxes.csv").write_text("image,x,y,label\nnear,5,5,cup\nfar,5,5,hill\nfar,6,5,tree\n")
    rows = table(pam("depth", "maps", *CAMERA, "--boxes", "boxes.csv", "-o", "z/"))
    found = {(row["image"], row["label"], float(row["z_m"])) for row in rows}
    far = {("maps/far.npy", label, 10.0) for label in ("hill", "tree")}
    assert found == {("maps/near.npy", "cup", 2.0), *far}
    assert sorted(each.name for each in Path("z").iterdir()) == ["far_depth.tif", "near_depth.tif"]


def test_a_pair_is_measured_where_it_is_confident(here: Path) -> None:
    for side in ("left", "right"):
        Image.open(SAMPLE / f"{side}.png").crop((240, 120, 400, 220)).save(f"{side}.png")
    command = ("disparity", "left.png", "right.png", *CAMERA, "--at", "100,50,20,20", "--max-disparity", "64")
    (row,), (all_of_it,) = table(pam(*command)), table(pam(*command, "--min-confidence", "0"))
    assert float(row["z_m"]) == pytest.approx(float(all_of_it["z_m"]), rel=0.05)
    assert 0 < float(row["known"]) < float(all_of_it["known"]) == 1
    (sure,) = table(pam(*command, "--min-confidence", "1"))
    assert (sure["known"], sure["z_m"]) == ("0", "")


def test_what_is_refused(maps: Path) -> None:
    for side in ("left", "right"):
        Image.new("RGB", (80, 60)).save(f"{side}.png")
    refuse_all("2 maps/near.npy --at 1,2 | --at requires --calibration or --focal", "depth")
    table = """
        2 maps/near.npy --at 1,2,3 | --at must be X,Y or X,Y,WIDTH,HEIGHT
        2 maps/near.npy --at 1,2,0,4 | at least 1 px wide
        2 maps/near.npy --at 1,2 --boxes b.csv | cannot use both
        2 maps/near.npy --at 1,2 -o - | to stdout
        2 maps/near.npy --at 1,2 --skip-existing | cannot use both
        3 maps/near.npy --at 100,2 | outside of the 80x60 px image
        3 maps/near.npy --boxes b.csv | there is no such file
        2 left.jpg right.jpg --at 1,2 | pam disparity LEFT RIGHT
        2 left.png right.png --at 1,2 | pam disparity LEFT RIGHT
    """
    refuse_all(table, "depth", *CAMERA)


def test_disparity_maps_in_place_of_images(maps: Path) -> None:
    refuse(
        pam("disparity", "maps/near.npy", *CAMERA, "--at", "1,2"),
        2,
        "pam depth converts stored disparity maps",
    )
    for side in ("left", "right"):
        Image.new("L", (80, 60)).save(f"disp_{side}.png")
    run = pam("disparity", "disp_left.png", "disp_right.png", "-o", "a.pfm", "--weights", "none.safetensors")
    assert "named like disparity maps: pam depth converts those" in run.stderr
