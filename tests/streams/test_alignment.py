"""pam live --calibrate on a rendered board that moves and rests, --doctor, and --fps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from pam_program import pam
from simulated_rigs import make_chessboard, make_rig, photograph, sample_poses
from video_files import write_video

import pamcli
from pamcli.calibration.rig import Rig
from pamcli.streams import live

pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")
SIZE, SQUARE = (480, 360), 0.025
BLUR = 11
"""Motion of the board during an exposure, px."""


def film_board(rig: Rig, folder: Path, poses: int) -> list[str]:
    """Write videos of a board that moves to each pose, blurred, and rests for two frames."""
    pairs = photograph(rig, make_chessboard(9, 6, SQUARE), sample_poses(rig, poses, 5, square=SQUARE), 3)
    names = [str(folder / f"{side}.mkv") for side in ("left", "right")]
    for side, name in enumerate(names):
        shown = []
        for pair in pairs:
            resting = np.repeat(pair[side][..., None], 3, axis=2)
            moving = np.roll(cv2.blur(resting, (BLUR, 1)), 20, axis=1)
            shown += [moving, resting, resting]
        write_video(Path(name), shown)
    return names


def test_a_moving_board_is_calibrated_by_itself(tmp_path: Path) -> None:
    rig = make_rig(4, size=SIZE)
    names, output = film_board(rig, tmp_path, 12), tmp_path / "rig.yaml"
    run = pam("live", *names, "--calibrate", "--board", "9x6", "--square", "25mm", "-o", output)
    assert run.code == 0, run.stderr
    stored = pamcli.read_calibration(output)
    assert stored.rig is not None
    for camera, true in ((stored.rig.left, rig.left), (stored.rig.right, rig.right)):
        assert camera.matrix[0, 0] == pytest.approx(true.matrix[0, 0], rel=0.005)
    assert stored.rig.baseline == pytest.approx(rig.baseline, rel=0.003)
    assert run.lines[0] == str(output)
    assert any(line.startswith("reprojection error") for line in run.lines)
    messages = run.stderr
    assert "board 1 taken; missing: upper left corner of the left image (" in messages
    assert "board 13 taken" not in messages, "each rests for two frames"
    assert "hold the board still" in messages


def test_the_doctor_names_shifted_rows_and_exchanged_views(tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "scripts" / "sample"
    left, right = (pamcli.read_image(sample / f"{side}.png").pixels for side in ("left", "right"))
    for name, view in (("left", left), ("right", right), ("low", np.roll(right, 3, axis=0))):
        write_video(tmp_path / f"{name}.mkv", [view[:480, :640]] * 2)

    def examine(*names: str) -> Any:
        run = pam("live --doctor --count 1 --json", *(tmp_path / f"{name}.mkv" for name in names))
        assert run.code == 0, run.stderr
        return {each["topic"]: (each["verdict"], each["text"]) for each in run.records[0]["findings"]}

    assert examine("left", "right")["rows"][0] == "ok"
    verdict, text = examine("left", "low")["rows"]
    assert verdict == "wrong"
    assert "the right image is 2.9 px lower" in text or "the right image is 3.0 px lower" in text
    assert examine("right", "left")["left and right"][0] == "wrong"


@pytest.mark.parametrize(
    ("rate", "said"), [(50.0, "holds 50 results per second"), (100_000.0, "does not hold 100000")]
)
def test_fps_chooses_the_matching_resolution(
    rate: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import logging

    caplog.set_level(logging.INFO, "pamcli")
    monkeypatch.setattr(logging.getLogger("pamcli"), "propagate", True)
    control, network = live._SpeedControl(rate), SimpleNamespace(match_size="auto")
    width, sizes = 1120, [1120]
    for _ in range(60):
        control.note(width * width * 0.75 * 1e-7, (3 * width // 4, width), network)
        if network.match_size not in ("auto", width):
            width = int(network.match_size)
            sizes.append(width)
    assert control.is_settled
    assert said in caplog.text
    assert len({record.getMessage() for record in caplog.records}) == 1
    assert sizes == ([1120, 480] if rate == 50 else [1120, 128])
