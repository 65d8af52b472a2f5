"""The offset of two videos: found by motion, and not guessed where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("av", reason="av is not installed (pip install 'pamcli[video]')")

from video_files import RATE, write_video

from pamcli.errors import InputError
from pamcli.imaging.video_offset import VideoOffset, find_offset
from pamcli.imaging.videos import Video

FRAMES, SIZE, DISPARITY = 60, (96, 72), 12
LATER = 20
"""Places of a path that lie before those of the left video."""


def texture() -> np.ndarray:
    small = np.random.default_rng(1).uniform(0, 255, (60, 80, 3)).astype(np.float32)
    return cv2.resize(small, (400, 300), interpolation=cv2.INTER_CUBIC)


def write_views(folder: Path, path: np.ndarray, offset: int, dropped: Sequence[int] = ()) -> None:
    """Both videos of cameras, or a thing before them, that move along a path: (N, 2) pixels."""
    noise, wall = np.random.default_rng(2), texture()
    for side, shift, first in (("left", 0, LATER), ("right", DISPARITY, LATER - offset)):
        frames = []
        for x, y in path[first : first + FRAMES]:
            place = np.array([[1, 0, -x - 100 - shift], [0, 1, -y - 100]], np.float32)
            view = cv2.warpAffine(wall, place, SIZE) + noise.normal(0, 4, (*SIZE[::-1], 3))
            frames.append(np.clip(view, 0, 255).astype(np.uint8))
        kept = [number for number in range(FRAMES) if side == "left" or number not in dropped]
        write_video(folder / f"{side}.mkv", [frames[number] for number in kept], stamps=kept)


def measure(folder: Path) -> VideoOffset:
    left, right = (Video(folder / f"{side}.mkv") for side in ("left", "right"))
    return find_offset(left, right, 1 / RATE)


def test_cameras_that_are_held_by_hand_and_drop_frames(tmp_path: Path) -> None:
    steps = np.cumsum(np.random.default_rng(3).normal(0, 1, (FRAMES + 2 * LATER, 2)), axis=0)
    steps -= steps.mean(axis=0)
    write_views(tmp_path, 30 * steps / np.abs(steps).max(), -9, dropped=(10, 11, 30))
    found = measure(tmp_path)
    assert found.frames == -9
    assert found.agreement > 0.9 > found.next_best + 0.2


def test_a_motion_that_repeats_does_not_tell_the_offset(tmp_path: Path) -> None:
    path = np.stack([np.zeros(100), 10 * np.sin(np.arange(100) * np.pi / 4)], axis=1)
    write_views(tmp_path, path, 3)
    with pytest.raises(InputError, match=r"1\.00 elsewhere"):
        measure(tmp_path)
