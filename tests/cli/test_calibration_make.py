"""`pam calibration make`, from images of a board to a file that `pam rectify` takes."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from headless_browser import seen_by_browser
from pam_program import names, pam, refuse, refuse_all, unchanged
from PIL import Image
from simulated_rigs import make_chessboard, make_rig, photograph, sample_poses

from pamcli.calibration.files import read_calibration
from pamcli.calibration.rig import Rig

SIZE = (400, 250)
BOARD = ("--board", "9x6", "--square", "30mm")
BLURRED = 5
Pairs = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def rig() -> Rig:
    return make_rig(6, size=SIZE)


@pytest.fixture(scope="module")
def taken(rig: Rig) -> Pairs:
    flat = make_chessboard(9, 6, 0.03)
    return photograph(rig, flat, sample_poses(rig, 14, 6), 6, {BLURRED: (9, 4)})


@pytest.fixture
def folders(here: Path, taken: Pairs) -> Path:
    for number, pair in enumerate(taken):
        for side, view in zip(("lefts", "rights"), pair, strict=True):
            (here / side).mkdir(exist_ok=True)
            Image.fromarray(view).save(here / side / f"{number:02}.png")
    return here


def test_a_calibration_its_report_and_its_page(folders: Path, rig: Rig, taken: Pairs) -> None:
    (folders / "lefts" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Image.fromarray(np.full((250, 400), 99, np.uint8)).save(folders / "rights" / "torn.png")
    command = ["calibration", "make", "lefts", "rights", *BOARD, "-o", "rig.yaml", "--page", "report.html"]
    run = pam(*command)
    assert run.code == 0, run.stderr
    assert run.lines[:2] == ["rig.yaml", "report.html"]
    text = "\n".join(run.lines)
    for part in ("reprojection error", "row error", "focal length left", "+-", "mm", "coverage"):
        assert part in text
    assert f"  {BLURRED:02}: blurred: edges are" in text
    assert "  torn: " in text
    assert "to improve it:" in text
    found = read_calibration("rig.yaml").rig
    assert found.size == SIZE
    assert found.baseline == pytest.approx(rig.baseline, rel=0.005)
    assert found.left.matrix[0, 0] == pytest.approx(rig.left.matrix[0, 0], rel=0.007)
    with unchanged():
        refuse(pam(*command), 2, "rig.yaml already exists", "--overwrite")
    again = pam(*command, "--overwrite", "--json")
    (facts,) = again.records
    assert facts["written"] == ["rig.yaml", "report.html"]
    assert {each["name"] for each in facts["left_out"]} >= {f"{BLURRED:02}", "torn"}
    assert facts["baseline_m"] == pytest.approx(found.baseline, rel=1e-9)
    assert 0 < facts["baseline_deviation_m"] < 0.005 * rig.baseline
    assert facts["row_error_px"]["rms"] < 0.2
    # What it was made for: these cameras' images, rectified.
    rectified = pam("rectify lefts rights --calibration rig.yaml -o out/ --skip-unpaired")
    assert rectified.code == 6  # the torn one
    assert "calibration.yaml" in names("out")


def test_the_page_in_a_browser(folders: Path, tmp_path: Path) -> None:
    page = folders / "report.html"
    run = pam("calibration make lefts rights -o rig.yml --page report.html --json", *BOARD)
    assert run.code == 0, run.stderr
    (facts,) = run.records
    probe = """
    const all = (what) => Array.from(document.querySelectorAll(what));
    return {
      title: document.title, tips: all(".tips li").map((e) => e.textContent),
      leftOut: all(".left-out li").map((e) => e.textContent), rows: all("th").map((e) => e.textContent),
      shots: all(".shots figure").length, dots: all(".shots circle").length,
      marks: all(".coverage .mark circle").length, lines: all(".rectified .row").length,
      wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
      pictures: all("img").every((e) => e.src.startsWith("data:image/jpeg")),
    };
    """
    seen = seen_by_browser(page.read_bytes(), probe, tmp_path)
    assert seen["title"] == "rig.yml"
    assert seen["tips"] == facts["to_improve"]
    assert seen["leftOut"] == [f"{each['name']}: {each['reason']}" for each in facts["left_out"]]
    assert seen["shots"] == facts["boards_used"]
    assert seen["dots"] == seen["marks"] == 54 * (facts["boards_used"] + facts["pairs_used"])
    assert seen["lines"] == 24
    assert seen["pictures"]
    assert not seen["wide"]
    assert seen["requested"] == []


def video(path: str, frames: list[np.ndarray]) -> None:
    height, width = frames[0].shape
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 10, (width, height))
    assert writer.isOpened()
    for frame in frames:
        writer.write(cv2.cvtColor(frame, cv2.COLOR_GRAY2BGR))
    writer.release()


def test_two_videos_and_one_of_both_views(here: Path, rig: Rig, taken: Pairs) -> None:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    Path("broken.mp4").write_bytes(b"not a video")
    run = pam("calibration make -q -o rig.yaml broken.mp4 --packed lr", *BOARD)
    refuse(run, 3, "broken.mp4 cannot be read as a video")
    # Three frames at each place, then the next place.
    frames = [pair for pair in taken[:8] for _ in range(3)]
    for side, name in ((0, "left.avi"), (1, "right.avi")):
        video(name, [pair[side] for pair in frames])
    video("both.avi", [np.concatenate(pair, axis=1) for pair in frames])
    runs = [
        pam("calibration make left.avi right.avi", *BOARD, "-o", "two.yaml", "--json"),
        pam("calibration make both.avi --packed lr", *BOARD, "-o", "one.yaml", "--json"),
    ]
    for run, name in zip(runs, ("two.yaml", "one.yaml"), strict=True):
        assert run.code == 0, run.stderr
        found = read_calibration(name).rig
        assert found.baseline == pytest.approx(rig.baseline, rel=0.01)
        # The last frame at a place is not taken: the board is elsewhere in the next one.
        reasons = {each["name"]: each["reason"] for each in run.records[0]["left_out"]}
        assert reasons["frame 2 (0.2 s)"].startswith("the board moves by")
        assert "frame 1 (0.1 s)" not in reasons
    for name, side, count in (("some.avi", 0, 9), ("fewer.avi", 1, 6)):
        video(name, [pair[side] for pair in frames[:count]])
    run = pam("calibration", "make", "some.avi", "fewer.avi", *BOARD, "-o", "some.yaml")
    assert "some.avi: 3 frames ignored, because fewer.avi has none at that time: 6, 7" in run.stderr


def test_refusals_write_nothing(folders: Path) -> None:
    Path("broken.mp4").write_bytes(b"no video")
    for side in "lr":
        Path("few", side).mkdir(parents=True)
        for number in (0, 1):
            name = f"{number:02}.png"
            Path("few", side, name).write_bytes(Path("lefts" if side == "l" else "rights", name).read_bytes())
    Path("odd").mkdir()
    for number, path in enumerate(sorted(Path("rights").iterdir()), 813):
        Path(f"odd/R_{number:04}.png").write_bytes(path.read_bytes())
    table = """
        2 lefts rights --square 30mm | --board
        2 lefts rights --board 9 --square 30mm | --board | 9x6
        2 lefts rights --board 9x6 --square 30 | --square must be at most 2 m, got 30 m | 25mm
        3 lefts rights BOARD --marker 3cm | --marker (0.03 m) must be smaller than --square (0.03 m)
        2 lefts BOARD | .mpo | --packed lr
        2 lefts rights third BOARD | LEFT RIGHT | third
        2 lefts clip.mp4 BOARD | only clip.mp4 is a video
        3 a.mp4 b.mp4 BOARD | no such file: a.mp4
        2 broken.mp4 --packed auto BOARD | --packed lr, rl, tb or bt
        3 lefts nowhere BOARD | no such file: nowhere
        3 lefts rights --board 10x7 --square 3cm | --board 9x6
        3 few/l few/r BOARD | in 1 image pairs, at least 5
        3 rights lefts BOARD | swapped | swap LEFT and RIGHT
        2 lefts odd BOARD | ln -s
    """
    refuse_all(table.replace("BOARD", " ".join(BOARD)), "calibration make -q -o rig.yaml")


def test_images_without_a_partner_are_named(folders: Path) -> None:
    Path("lefts/03.png").rename("lefts/other.png")
    run = pam("calibration", "make", "lefts", "rights", *BOARD, "-o", "rig.yaml", "--json")
    assert run.code == 0, run.stderr
    assert "without a partner: lefts/other.png, rights/03.png" in run.stderr
    assert json.loads(run.lines[0])["pairs_used"] > 4
