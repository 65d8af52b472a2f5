"""Disparities that are fused with those before: steady where nothing moves, not late where something does."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pamcli.imaging import temporal_fusion
from pamcli.imaging.temporal_fusion import PreviousFrame, fuse_frames

HEIGHT, WIDTH = 96, 160
FAR, NEAR = 8.0, 20.0
Pictures = tuple[np.ndarray, np.ndarray, np.ndarray]


def texture(seed: int, height: int, width: int) -> np.ndarray:
    rough = np.random.default_rng(seed).uniform(0, 255, (height // 3, width // 3, 3)).astype(np.float32)
    return cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC)


def scene(at: int, noise: int, near: float = NEAR, wall: int = 0) -> Pictures:
    """Left, right, disparity: a thing whose left edge is in a column, before a wall that begins at one."""
    rng = np.random.default_rng(noise)
    far, thing = texture(1, HEIGHT, 2 * WIDTH), texture(2, 48, 60)
    disparity = np.full((HEIGHT, WIDTH), FAR, np.float32)
    disparity[24:72, at : at + 60] = near
    views = []
    for shift in (0, 1):
        view = far[:, wall + shift * int(FAR) :][:, :WIDTH].copy()
        place = at - shift * round(near)
        view[24:72, place : place + 60] = thing
        noisy = view + rng.normal(0, 4, view.shape)
        views.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return views[0], views[1], disparity


def flickering(disparity: np.ndarray, seed: int) -> np.ndarray:
    """Disparities as a network finds them: a bit off, in some patches by more, each time in others."""
    rng = np.random.default_rng(seed)
    shape = (HEIGHT // 8, WIDTH // 8)
    rough = (rng.normal(0, 0.3, shape) + 6 * (rng.random(shape) < 0.15)).astype(np.float32)
    return disparity + cv2.resize(rough, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST)


@pytest.mark.parametrize(
    "frames",
    [
        [scene(60, number) for number in range(8)],  # nothing moves
        [scene(40 + 5 * number, number) for number in range(8)],  # a thing passes
        [scene(60, number, wall=4 * number) for number in range(8)],  # the camera turns after it
        [scene(60, number, NEAR + number) for number in range(8)],  # it comes nearer
    ],
    ids=["still", "thing", "camera", "nearer"],
)
def test_what_moves_is_not_late(frames: list[Pictures]) -> None:
    found = [flickering(disparity, number) for number, (_, _, disparity) in enumerate(frames)]
    fused = found[:1]
    for now, before, view in zip(found[1:], frames, frames[1:], strict=False):
        fused.append(fuse_frames(now, *view[:2], PreviousFrame(*before[:2], fused[-1])))
    truth = np.array([disparity for _, _, disparity in frames])
    wrong, steady_wrong = (np.abs(maps - truth)[1:] for maps in (np.array(found), np.array(fused)))
    assert steady_wrong.mean() < wrong.mean()
    assert (steady_wrong > 3).mean() <= (wrong > 3).mean() + 0.005
    jumps, steady_jumps = (np.ptp(np.diff(maps - truth, axis=0), axis=0) > 1 for maps in (found, fused))
    assert steady_jumps.mean() < jumps.mean()


def test_what_is_unknown_or_of_another_size_changes_nothing() -> None:
    left, right, disparity = scene(60, 1)
    found = flickering(disparity, 3)
    unknown = PreviousFrame(left, right, np.full_like(disparity, np.nan))
    np.testing.assert_array_equal(fuse_frames(found, left, right, unknown), found)
    smaller = PreviousFrame(left[:-1], right[:-1], disparity[:-1])
    assert fuse_frames(found, left, right, smaller) is found


def test_large_images_and_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flow is that of smaller copies."""
    monkeypatch.setattr(temporal_fusion, "FLOW_PIXELS", 4 * HEIGHT * WIDTH)
    frames = [scene(60 + number, number) for number in range(2)]
    large = [
        [cv2.resize(part, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC) for part in frame]
        for frame in frames
    ]
    (left, right, disparity), (next_left, next_right, truth) = large
    before = PreviousFrame(left.astype(np.uint16) * 257, right.astype(np.uint16) * 257, 4 * disparity)
    found = 4 * truth + np.float32(0.9)
    fused = fuse_frames(found, next_left.astype(np.uint16) * 257, next_right.astype(np.uint16) * 257, before)
    assert fused.dtype == np.float32
    assert np.abs(fused - 4 * truth).mean() < np.abs(found - 4 * truth).mean()
