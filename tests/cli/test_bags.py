"""ROS bags in place of pairs: every command, metres, and disparity maps as bags."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import names, pam, refuse, refuse_all, succeed
from PIL import Image

pytest.importorskip("rosbags", reason="rosbags is not installed (pip install 'pamcli[ros]')")

from bag_files import BEGIN, STEP, ideal_infos, picture, write_bag

from pamcli.imaging.disparity_files import read_disparity

pytestmark = pytest.mark.usefixtures("remembering_networks")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """A folder with drive.bag, drive.mcap and the folder drive: the pair three times, 100 px and 0.2 m."""
    folder = tmp_path_factory.mktemp("bags")
    topics: dict[str, Any] = {}
    for side, view, info in zip(("left", "right"), views, ideal_infos((96, 64), 100, 0.2), strict=True):
        topics |= {f"/cam/{side}/image_raw": [picture(view)] * 3, f"/cam/{side}/camera_info": [info]}
    for name in ("drive.bag", "drive.mcap", "drive.db3"):
        write_bag(folder / name, topics)
    return folder


@pytest.fixture
def bags(pair: Path, written: Path) -> None:
    """The bags, and d.npy and d.tif with the disparity and the depth of the pair."""
    shutil.copytree(written, pair, dirs_exist_ok=True)
    options = ["--focal", "100", "--baseline", "0.2", "--depth", "d.tif", "-o", "d.npy"]
    succeed("disparity", "left.png", "right.png", *options)


@pytest.mark.parametrize("name", ["drive.bag", "bag:drive"])
def test_a_bag_becomes_metres_in_one_command(name: str, bags: None) -> None:
    run = pam("disparity", name, "--depth", "out/", "--count", "2")
    assert (run.code, run.lines) == (0, ["out/000000_depth.tif", "out/000001_depth.tif"])
    for file in names("out"):
        assert Path("out", file).read_bytes() == Path("d.tif").read_bytes()


def test_every_command_takes_bags(bags: None) -> None:
    run = pam("superres", "drive.bag", "--scale", "2", "-o", "large/", "--count", "1")
    assert run.lines == ["large/000000_left.png", "large/000000_right.png"]
    succeed("rectify", "drive.bag", "-o", "straight/", "--start", "1")
    assert names("straight") == [
        *(f"00000{number}_{side}.png" for number in (1, 2) for side in ("left", "right")),
        "calibration.yaml",
    ]
    shown = pam("calibration", "show", "straight/calibration.yaml", "--json").records[0]
    assert shown["rectified"]["baseline_m"] == pytest.approx(0.2)
    findings = pam("doctor", "drive.bag", "--json")
    assert json.loads(findings.stdout)["findings"]
    jsonl = pam("disparity", "drive.bag", "-o", "maps/", "--every", "2", "--jsonl").records
    assert [each["frame"] for each in jsonl if "frame" in each] == [0, 2]


def test_a_calibration_of_the_user_replaces_that_of_the_bag(bags: None) -> None:
    near = read_disparity(Path("d.tif"))
    for options, factor in (("--baseline 0.4", 2), ("--focal 50 --baseline 0.4", 1)):
        succeed(f"disparity drive.bag --depth far/ --count 1 --overwrite {options}")
        far = read_disparity(Path("far/000000_depth.tif"))
        np.testing.assert_allclose(far, factor * near, rtol=1e-5)


@pytest.mark.parametrize("name", ["out.bag", "out.mcap"])
def test_disparity_maps_as_a_bag(name: str, bags: None) -> None:
    run = pam("disparity", "drive.bag", "-o", name, "--unknown", "occluded")
    assert (run.code, run.lines) == (0, [name]), run.stderr
    succeed("disparity", "left.png", "right.png", "-o", "known.npy", "--unknown", "occluded")
    expected = np.load("known.npy")
    reader = importlib.import_module("rosbags.highlevel").AnyReader([Path(name)])
    with reader:
        found = [(time, reader.deserialize(data, each.msgtype)) for each, time, data in reader.messages()]
        assert [each.msgtype for each in reader.connections] == ["stereo_msgs/msg/DisparityImage"]
    assert [time for time, _ in found] == [BEGIN + number * STEP for number in range(3)]
    for time, message in found:
        assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == time
        values = message.image.data.view("<f4").reshape(64, 96)
        np.testing.assert_array_equal(values[np.isfinite(expected)], expected[np.isfinite(expected)])
        assert (values[np.isnan(expected)] < message.min_disparity).all()
        baseline = message.T if name == "out.bag" else message.t
        assert (message.f, baseline) == pytest.approx((100, 0.2))
    assert [each for each in names(".") if "out" in each] == [name]


def test_what_does_not_go_together_is_refused_before_any_work(bags: None) -> None:
    Path("text.bag").write_text("this is not a bag")
    table = """
        2 disparity drive.bag right.png -o x/ | only input | bag:FILE
        2 disparity drive.bag -o drive.bag --overwrite | overwrite an input
        2 disparity drive.bag --depth x.bag | disparity maps
        2 disparity drive.bag -o x/ --packed lr | --packed | drop
        2 disparity drive.bag -o x/ --start 9 | ends with frame 2
        3 disparity nothing.bag -o x/ | no such file: nothing.bag
        3 disparity text.bag -o x/ | text.bag cannot be read as a ROS bag
        3 rectify bag:drive.bag?rectified=yes -o no/ | already rectified
        3 calibration make drive.bag --board 9x6 --square 25mm -o x.yaml | board
        2 dataset verify bag:drive.bag?left=/no | /no | /cam/left/image_raw
        2 dataset verify bag:drive.bag?often=2 | often | every
        2 dataset verify bag:drive.bag?every=0 | every must be | got 0
        3 dataset verify nothing.bag | nothing.bag does not exist
        3 eval disparity --data drive.bag --device cpu | no pair has ground truth | two --method
    """
    refuse_all(table)


def test_depth_needs_a_camera_info(bags: None) -> None:
    views = {side: np.asarray(Image.open(f"{side}.png")) for side in ("left", "right")}
    write_bag(Path("bare.bag"), {f"/{side}/image": [picture(view)] for side, view in views.items()})
    succeed("disparity", "bare.bag", "-o", "maps/")
    run = pam("disparity", "bare.bag", "--depth", "depth/")
    assert run.code == 6
    assert "does not state its calibration" in run.stderr
    assert "--calibration" in run.stderr
    refuse(pam("rectify bare.bag -o x/"), 3, "bare.bag has no calibrated camera_info", "--calibration")


def test_data_sets_are_bags(bags: None) -> None:
    assert pam("dataset", "verify", "drive.bag").lines[-1].startswith("bag:drive.bag: 3 pairs, 0 damage")
    stats = pam("dataset", "stats", "bag:drive?left=/cam/left/image_raw&first=2", "--jsonl", "--workers", "1")
    assert (stats.code, stats.records[0]["pairs"]) == (0, 2), stats.stderr
    stats = pam("dataset", "stats", "drive.bag?every=2", "--jsonl", "--workers", "1")
    assert stats.records[0]["pairs"] == 2
    succeed("dataset", "preview", "bag:drive.mcap", "-o", "sheet.png", "--count", "1")
    succeed("dataset", "label", "drive.bag", "-o", "labelled", "--device", "cpu", "--precision", "fp32")
    assert names("labelled")[:3] == [f"disparity/00000{number}.npy" for number in range(3)]


def test_methods_are_compared_on_a_bag_without_ground_truth(bags: None) -> None:
    succeed("disparity", "drive.bag", "-o", "ours/")
    evaluate = ["eval", "disparity", "--data", "drive.bag", "--device", "cpu"]
    run = succeed(*evaluate, "--method", "ours=files:ours", "--method", "opencv", "--json")
    (found,) = run.records
    first, other = (next(e for e in found["sets"] if e["method"] == name) for name in ("ours", "opencv"))
    assert first["pooled"]["all"]["epe"] == 0 < other["pooled"]["all"]["epe"]
    assert "no ground truth: all figures are differences from ours" in " ".join(other["notes"])
    bicubic = ["--scale", "2", "--baseline-only", "--json"]
    succeed("eval", "superres", "--data", "drive.bag?first=1", *bicubic)
