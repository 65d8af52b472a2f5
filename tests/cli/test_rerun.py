"""`--rerun`: a recording for the Rerun viewer, of a pair, a folder, a video or a bag; whole or not at all."""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pam_program import names, pam, refuse, succeed, unchanged

from pamcli.imaging.disparity_files import read_disparity

pytest.importorskip("rerun", reason="rerun-sdk is not installed (pip install 'pamcli[rerun]')")

pytestmark = pytest.mark.usefixtures("networks")
CAMERA = ["--focal", "100", "--baseline", "0.2"]


class Recorded:
    """The content of a recording."""

    def __init__(self, name: str) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        for chunk in importlib.import_module("rerun.chunk").RrdReader(name).stream():
            rows = chunk.to_record_batch().to_pylist()
            self.rows.setdefault(str(chunk.entity_path), []).extend(rows)

    @property
    def paths(self) -> set[str]:
        return self.rows.keys() - {"/__properties"}

    def column(self, path: str, name: str) -> list[Any]:
        """The values of one column, in the order of the frames."""
        rows = sorted(self.rows[path], key=lambda row: row["frame"])
        return [row[name][0] if isinstance(row[name], list) else row[name] for row in rows]

    def maps(self, path: str, kind: str) -> list[np.ndarray]:
        return [np.array(each, np.uint8).view("<f4") for each in self.column(path, f"{kind}:buffer")]


def test_a_pair_with_its_depth(pair: Path) -> None:
    run = pam("disparity", "left.png", "right.png", *CAMERA, "--rerun", "out.rrd", "--depth", "d.npy")
    assert (run.code, run.lines) == (0, ["d.npy", "out.rrd"]), run.stderr
    assert names(".") == ["d.npy", "left.png", "out.rrd", "right.png"]
    found = Recorded("out.rrd")
    images = {f"/world/{side}{part}" for side in ("left", "right") for part in ("", "/image")}
    assert found.paths == {"/world", "/disparity", "/depth", "/world/points", *images}
    (depth,) = found.maps("/depth", "DepthImage")
    np.testing.assert_array_equal(depth.reshape(64, 96), np.load("d.npy"))
    (points,) = (row["Points3D:positions"] for row in found.rows["/world/points"])
    assert len(points) == np.isfinite(depth).sum()
    assert points[0][2] == pytest.approx(depth[np.isfinite(depth)][0])
    assert "time" not in found.rows["/depth"][0]


@pytest.fixture
def folders(pair: Path) -> None:
    """The pair three times, in the folders lefts and rights."""
    for folder, name in (("lefts", "left.png"), ("rights", "right.png")):
        Path(folder).mkdir()
        for number in range(3):
            Path(folder, f"{number}.png").write_bytes(Path(name).read_bytes())


@pytest.mark.usefixtures("folders")
def test_images_without_calibration_and_stored_maps() -> None:
    succeed("disparity", "lefts", "rights", "--rerun", "out.rrd", "-o", "maps/", "--workers", "1")
    found = Recorded("out.rrd")
    assert found.paths == {"/world", "/disparity", "/world/left/image", "/world/right/image"}
    assert found.column("/disparity", "frame") == [0, 1, 2]
    options = ["--image", "lefts", "--stride", "4", "--max-depth", "1m"]
    succeed("depth", "maps", *CAMERA, *options, "--rerun", "depth.rrd", "--depth", "d/")
    metric = Recorded("depth.rrd")
    for depth, name in zip(metric.maps("/depth", "DepthImage"), names("d"), strict=True):
        np.testing.assert_array_equal(depth.reshape(64, 96), read_disparity(Path("d", name)))
        assert np.nanmax(depth) <= 1
    assert "/world/right/image" not in metric.paths
    assert all(len(row["Points3D:positions"]) <= 96 * 64 / 16 for row in metric.rows["/world/points"])


def test_a_video_and_a_bag_have_times(clips: Any, here: Path) -> None:
    pytest.importorskip("av", reason="PyAV is not installed (pip install 'pamcli[video]')")
    video_files = importlib.import_module("video_files")
    for name, frames in zip(("left.mkv", "right.mkv"), clips, strict=True):
        video_files.write_video(here / name, frames[:3])
    run = pam("disparity", "left.mkv", "right.mkv", "--start", "1", "--rerun", "out.rrd")
    assert (run.code, run.lines) == (0, ["out.rrd"]), run.stderr
    found = Recorded("out.rrd")
    assert found.column("/disparity", "frame") == [1, 2]
    seconds = [each.total_seconds() for each in found.column("/disparity", "time")]
    assert seconds == pytest.approx([0, 1 / float(video_files.RATE)])


def test_what_is_not_one_recording_is_refused_before_any_work(pair: Path, monkeypatch: Any) -> None:
    two = ["disparity", "left.png", "right.png"]
    with unchanged():
        for place in ("out/", "out.glb", "{}.rrd", "-"):
            refuse(pam(*two, "--rerun", place), 2, "--rerun", ".rrd")
        refuse(pam(*two, "-o", "out.rrd"), 2, "out.rrd", ".pfm")
        line = b"left.png\tright.png\n"
        refuse(pam("disparity", "--pairs", "-", "--rerun", "x.rrd", stdin=line), 2, "--pairs")
        monkeypatch.setitem(sys.modules, "rerun", None)
        refuse(pam(*two, "--rerun", "out.rrd"), 2, "rerun-sdk", "pip install")


@pytest.mark.usefixtures("folders")
def test_a_full_disk_leaves_no_recording(pair: Path) -> None:
    options = ["disparity", "lefts", "rights", "--rerun", "out.rrd"]
    program = [sys.executable, "-m", "pamcli", *options, "--workers", "1"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # more than a stored frame

    run = subprocess.run(program, capture_output=True, text=True, preexec_fn=limit)
    assert run.returncode == 7, run.stderr
    assert "out.rrd" in run.stderr.splitlines()[-1]
    assert not Path("out.rrd").exists()
    succeed(*options, "--skip-existing")
    assert len(Recorded("out.rrd").rows["/disparity"]) == 3
    assert not Path("out.rrd.frames").exists()
