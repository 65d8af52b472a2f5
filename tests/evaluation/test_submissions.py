"""Submissions to the benchmarks: written, read back, and refused for every fault a server would find."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.errors import InputError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.submissions import KINDS, load_rules, write_submission

HEIGHT, WIDTH = 3, 8
DISPARITY = np.linspace(0.5, 7.5, HEIGHT * WIDTH, dtype=np.float32).reshape(HEIGHT, WIDTH)

NAMES = {kind: [*load_rules(kind).training, *load_rules(kind).test] for kind in KINDS}
NAMES["kitti2015"] = [f"testing/{name}" for name in NAMES["kitti2015"]]
FILES = {"kitti2012": 195, "kitti2015": 200, "middlebury": 60, "eth3d": 94}


Result = tuple[str, Estimate]


def result(name: str, disparity: np.ndarray = DISPARITY, seconds: float | None = None) -> Result:
    return name, Estimate(disparity, seconds=seconds)


def predictions(names: Iterable[str]) -> Iterator[Result]:
    for name in names:
        yield result(name, seconds=0.25)


@cache
def archive_of(kind: str) -> zipfile.ZipFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.zip"
        write_submission(path, load_rules(kind), predictions(NAMES[kind]))
        return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_verified(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new" / "results.zip"
    submission = write_submission(path, load_rules(kind), predictions(NAMES[kind]))
    assert (submission.kind, submission.images, submission.files) == (kind, len(NAMES[kind]), FILES[kind])
    assert list(path.parent.iterdir()) == [path]
    unverified = [note.startswith("unverified: ") for note in submission.notes]
    assert unverified == [True] * (kind in ("middlebury", "eth3d"))


def test_the_names_are_those_of_the_benchmarks() -> None:
    held = {kind: archive_of(kind).namelist() for kind in KINDS}
    assert (held["kitti2012"][0], held["kitti2012"][-1]) == ("000000_10.png", "000194_10.png")
    assert (held["kitti2015"][0], held["kitti2015"][-1]) == ("disp_0/000000_10.png", "disp_0/000199_10.png")
    assert held["middlebury"][:2] == ["trainingH/Adirondack/disp0PAM.pfm", "trainingH/Adirondack/timePAM.txt"]
    assert held["middlebury"][-1] == "testH/Staircase/timePAM.txt"
    first = "low_res_two_view/delivery_area_1l"
    assert held["eth3d"][:2] == [f"{first}.pfm", f"{first}.txt"]


def test_the_files_hold_disparity_and_runtime(tmp_path: Path) -> None:
    stored = Image.open(io.BytesIO(archive_of("kitti2015").read("disp_0/000007_10.png")))
    np.testing.assert_array_equal(np.asarray(stored), np.rint(DISPARITY * 256))
    archive = archive_of("middlebury")
    assert archive.read("testH/Hoops/timePAM.txt") == b"0.25"
    assert archive.read("testH/Hoops/disp0PAM.pfm") == b"Pf\n8 3\n-1.0\n" + DISPARITY[::-1].tobytes()
    assert archive_of("eth3d").read("low_res_two_view/forest_1s.txt") == b"runtime 0.25"
    path = tmp_path / "again.zip"
    write_submission(path, load_rules("middlebury"), predictions(NAMES["middlebury"]))
    assert path.read_bytes() == archive.fp.getvalue(), "the same results are the same bytes"


def test_training_scenes_may_stand_alone_but_test_scenes_may_not(tmp_path: Path) -> None:
    path = tmp_path / "e.zip"
    submission = write_submission(path, load_rules("eth3d"), predictions(load_rules("eth3d").training))
    assert (submission.images, submission.files) == (27, 54)
    assert "only the 27 training scenes" in submission.notes[0]
    with pytest.raises(InputError, match="27 images missing: delivery_area_1l"):
        write_submission(path, load_rules("eth3d"), predictions(load_rules("eth3d").test))


def test_an_incomplete_archive_names_the_first_five_missing(tmp_path: Path) -> None:
    path = tmp_path / "k.zip"
    path.write_bytes(b"what stood here before")
    names = NAMES["kitti2015"][:40] + NAMES["kitti2015"][47:]
    with pytest.raises(InputError, match=r"7 images missing: 000040_10.*000044_10 and 2 more"):
        write_submission(path, load_rules("kitti2015"), predictions(names))
    assert path.read_bytes() == b"what stood here before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (result("000001_10", np.full((3, 8), np.nan, np.float32)), "no estimate"),
        (result("000001_10", DISPARITY - 1), "negative disparity, -0.5 px"),
        (result("000001_10", DISPARITY + 2), "9.5 px, but the image is only 8 px wide"),
        (result("000001_10", DISPARITY / 8), "largest disparity is 0.9375 px"),
        (result("000000_10", DISPARITY), "two images for one file"),
        (result("elsewhere", DISPARITY), "1 image not part of kitti2015"),
    ],
)
def test_a_bad_result_stops_the_writing_at_once(tmp_path: Path, bad: Result, words: str) -> None:
    def some() -> Iterator[Result]:
        yield result("000000_10", DISPARITY)
        yield bad
        raise AssertionError("went on")

    with pytest.raises(InputError, match=words):
        write_submission(tmp_path / "k.zip", load_rules("kitti2015"), some())
    assert list(tmp_path.iterdir()) == []


def test_holes_are_allowed_by_kitti_but_not_in_dense_middlebury_files(tmp_path: Path) -> None:
    holes = DISPARITY.copy()
    holes[1, :2] = np.nan
    middlebury = load_rules("middlebury")
    with pytest.raises(InputError, match=r"Adirondack: 2 pixels without"):
        write_submission(tmp_path / "m.zip", middlebury, [result("Adirondack", holes, 1.0)])
    for seconds in (float("nan"), 0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match=r"Adirondack: the run time"):
            write_submission(tmp_path / "m.zip", middlebury, [result("Adirondack", DISPARITY, seconds)])
    kitti = [result(name, holes) for name in NAMES["kitti2012"]]
    assert write_submission(tmp_path / "k.zip", load_rules("kitti2012"), kitti).images == 195


def test_clipped_disparities_are_noted(tmp_path: Path) -> None:
    wide = np.full((1, 400), 10, np.float32)
    wide[0, 5:7] = 300
    some = [result(name, wide) for name in NAMES["kitti2012"]]
    submission = write_submission(tmp_path / "k.zip", load_rules("kitti2012"), some)
    assert submission.notes[0].startswith("390 pixels exceed 255.996 px")
