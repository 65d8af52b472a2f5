"""`pam calibration make`, from images of a board to a file that `pam rectify` takes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from headless_browser import seen_by_browser
from pam_program import names, pam, refuse, refuse_all, succeed, unchanged
from PIL import Image
from simulated_rigs import make_chessboard, make_rig, photograph, sample_poses
from video_files import write_video

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


def test_the_page_in_a_browser(here: Path, rig: Rig, taken: Pairs) -> None:
    write_pairs(taken)
    Path("lefts/03.png").rename("lefts/other.png")
    Path("rig.yml").touch()
    run = succeed("calibration make lefts rights -o rig.yml --page report.html --json --overwrite", *BOARD)
    assert "without a partner: lefts/other.png, rights/03.png" in run.stderr
    (facts,) = run.records
    assert facts["written"] == ["rig.yml", "report.html"]
    assert {each["name"] for each in facts["left_out"]} >= {f"{BLURRED:02}"}
    assert facts["baseline_m"] == pytest.approx(rig.baseline, rel=0.01)
    assert 0 < facts["baseline_deviation_m"] < 0.01 * rig.baseline
    assert facts["row_error_px"]["rms"] < 0.2
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
    seen = seen_by_browser(Path("report.html").read_bytes(), probe, here)
    assert seen["title"] == "rig.yml"
    assert seen["tips"] == facts["to_improve"]
    assert seen["leftOut"] == [f"{each['name']}: {each['reason']}" for each in facts["left_out"]]
    assert seen["shots"] == facts["boards_used"]
    assert seen["dots"] == seen["marks"] == 54 * (facts["boards_used"] + facts["pairs_used"])
    assert seen["lines"] == 24
    assert seen["pictures"]
    assert not seen["wide"]
    assert seen["requested"] == []


def test_two_videos_and_one_of_both_views(here: Path, rig: Rig, taken: Pairs) -> None:
    pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
    Path("broken.mp4").write_bytes(b"not a video")
    run = pam("calibration make -q -o rig.yaml broken.mp4 --packed lr", *BOARD)
    refuse(run, 3, "broken.mp4 cannot be read as a video")
    # Three frames at each place, then the next place.
    frames = [[np.stack([view] * 3, axis=-1) for view in pair] for pair in taken for _ in range(3)]
    write_video(Path("left.mkv"), [left for left, _ in frames])
    write_video(Path("right.mkv"), [right for _, right in frames])
    write_video(Path("both.mkv"), [np.concatenate(pair, axis=1) for pair in frames])
    for words, name in (("left.mkv right.mkv", "two.yaml"), ("both.mkv --packed lr --fisheye", "one.yaml")):
        run = succeed(f"calibration make {words} -o {name} --json", *BOARD)
        found = read_calibration(name).rig
        assert found.left.fisheye == (name == "one.yaml")
        # The last frame at a place is not taken: the board is elsewhere in the next one.
        reasons = {each["name"]: each["reason"] for each in run.records[0]["left_out"]}
        assert reasons["frame 2 (0.2 s)"].startswith("the board moves by")
        assert "frame 1 (0.1 s)" not in reasons
    assert read_calibration("two.yaml").rig.baseline == pytest.approx(rig.baseline, rel=0.01)


def test_refusals_write_nothing(here: Path, taken: Pairs) -> None:
    write_pairs(taken[:12])
    Path("broken.mp4").write_bytes(b"no video")
    for side, folder in (("l", "lefts"), ("r", "rights")):
        Path("few", side).mkdir(parents=True)
        for number in (0, 1):
            shutil.copy(f"{folder}/{number:02}.png", Path("few", side))
    Path("odd").mkdir()
    for number in range(12):
        shutil.copy(f"rights/{number:02}.png", f"odd/R_{813 + number:04}.png")
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


def write_pairs(pairs: Pairs) -> None:
    """Write the views to lefts/00.png, rights/00.png, and so on."""
    for side, name in enumerate(("lefts", "rights")):
        Path(name).mkdir()
        for number, pair in enumerate(pairs):
            Image.fromarray(pair[side]).save(f"{name}/{number:02}.png")


def test_a_calibration_and_its_report(here: Path, rig: Rig, taken: Pairs) -> None:
    write_pairs(taken)
    Path("lefts/torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Image.fromarray(np.full((250, 400), 99, np.uint8)).save("rights/torn.png")
    command = ["calibration", "make", "lefts", "rights", *BOARD, "-o", "rig.yaml", "--page", "report.html"]
    run = succeed(*command)
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
    # What it was made for: these cameras' images, rectified.
    rectified = pam("rectify lefts rights --calibration rig.yaml -o out/ --skip-unpaired")
    assert rectified.code == 6  # the torn one
    assert "calibration.yaml" in names("out")
