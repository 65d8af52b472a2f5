"""A plane of texture, photographed by made-up cameras: rectified, its points lie in the same rows."""

from __future__ import annotations

import re
from dataclasses import replace

import calibration_files as files
import cv2
import numpy as np
import pytest
from simulated_rigs import make_texture, photograph

from pamcli.calibration.camera import Camera, Projections
from pamcli.calibration.feature_rectification import estimate_rectification
from pamcli.calibration.rig import Rectification, Rig
from pamcli.errors import InputError
from pamcli.imaging.preflight import check_pair

DEPTH = 1.5


def rig(*, fisheye: bool = False) -> Rig:
    d1, d2 = (files.FISHEYE1, files.FISHEYE2) if fisheye else (files.D1, files.D2)
    return Rig(
        Camera(files.K1, d1, fisheye), Camera(files.K2, d2, fisheye), files.R, files.T, size=files.SIZE
    )


def photographs(rig: Rig) -> tuple[np.ndarray, np.ndarray]:
    """Both views of random texture on the plane z = DEPTH, ahead of the left camera."""
    plane = make_texture(7, 3.6)
    (views,) = photograph(rig, plane, [(np.eye(3), np.array([0, 0, DEPTH]))], 7)
    left, right = (np.repeat(view[..., None], 3, axis=2) for view in views)
    return left, right


def check_rows(views: tuple[np.ndarray, np.ndarray], found: Rectification) -> None:
    """Check that matches of rectified images are in the same rows, and tell the distance of the plane."""
    check = check_pair(found.left(views[0]), found.right(views[1]))
    assert check.matches > 50
    assert check.vertical_error < 0.25
    # The plane stands nearly square to the rectified cameras.
    depth = found.calibration.depth(np.float32([check.median_disparity]))[0]
    assert depth == pytest.approx(DEPTH, rel=0.02)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_points_go_where_the_calibration_says(alpha: float) -> None:
    cameras = rig()
    calibration = cameras.compute_rectification(alpha=alpha, size=(800, 600)).calibration
    assert calibration.size == (800, 600)
    assert 0 < calibration.principal[0] < 800
    points = np.random.default_rng(1).uniform((-0.3, -0.3, 1), (0.3, 0.3, 4), (50, 3))
    turns = cv2.stereoRectify(
        files.K1, files.D1, files.K2, files.D2, files.SIZE, files.R, files.T.reshape(3, 1), alpha=alpha
    )[:2]
    moved = points @ turns[0].T
    p1, p2 = calibration.projections()
    left, right = ((np.column_stack([moved, np.ones(50)]) @ p.T) for p in (p1, p2))
    left, right = left[:, :2] / left[:, 2:], right[:, :2] / right[:, 2:]
    np.testing.assert_allclose(left[:, 1], right[:, 1], atol=1e-6)
    depth = calibration.depth(left[:, 0] - right[:, 0])
    np.testing.assert_allclose(depth, moved[:, 2], rtol=1e-5)


def test_a_stated_rectification_follows_size_and_baseline() -> None:
    p1 = np.array([[410.0, 0, 300, 0], [0, 410, 230, 0], [0, 0, 1, 0]])
    p2 = p1.copy()
    p2[0, 2:] = 306, -410 * files.BASELINE
    stated = Projections(p1, p2, (600, 450), rotations=(files.R1, files.R2))
    cameras = replace(rig(), stated=stated).with_baseline(0.5).for_size(1280, 960)
    calibration = cameras.compute_rectification().calibration
    assert calibration.baseline == pytest.approx(0.5)
    assert (calibration.focal_length, calibration.offset) == (820, 12)
    assert calibration.principal == (600.5, 460.5)
    assert calibration.size == (1200, 900)


def test_cameras_follow_the_size_of_the_images() -> None:
    double = rig().for_size(1280, 960)
    points = np.array([[0.1, 0.2, 1.0], [-0.3, 0.1, 2.0]])
    for camera, small in ((double.left, rig().left), (double.right, rig().right)):
        np.testing.assert_allclose(camera.project(points), (small.project(points) + 0.5) * 2 - 0.5, atol=1e-9)
    assert rig().with_baseline(0.5).baseline == pytest.approx(0.5)
    assert rig().to_calibration() is None
    with pytest.raises(InputError, match="aspect ratios differ"):
        rig().for_size(640, 400)
    with pytest.raises(InputError, match="only one is a fisheye"):
        replace(rig(), right=rig(fisheye=True).right)


def test_turned_and_cut_results_are_reported() -> None:
    cameras = rig()
    straight = replace(cameras, left=Camera(files.K1, np.zeros(0)), right=Camera(files.K2, np.zeros(0)))
    left, right = relief(straight)
    turn = cv2.getRotationMatrix2D((319.5, 239.5), 16, 1.0)
    turned = cv2.warpAffine(right, turn, (640, 480))
    rectification, _ = estimate_rectification([(left, turned)], size=(320, 240))
    texts = "\n".join(rectification.warnings)
    assert re.search(r"the right image is turned by 1\d degrees: hold both cameras level", texts)
    assert re.search(r"[34]\d % of the right image is cut off: let both", texts)
    white = np.full((480, 640), 255, np.uint8)
    assert rectification.right(white).shape == (240, 320)
    assert rectification.right(white).min() == 255


def relief(rig: Rig) -> tuple[np.ndarray, np.ndarray]:
    """Two planes of texture one above the other: a plane alone leaves the epipolar geometry open."""
    views = photographs(rig)
    near = photographs(replace(rig, translation=rig.translation * 1.6))
    for view, other in zip(views, near, strict=True):
        view[240:] = other[240:]
    return views


def test_images_without_features_are_refused() -> None:
    flat = np.full((200, 300, 3), 90, np.uint8)
    with pytest.raises(InputError, match="only 0 of 0 matches"):
        estimate_rectification([(flat, flat)])


def wide_fisheye(degrees: float) -> Rig:
    """Cameras of an 848 x 800 sensor that sees so many degrees across."""
    focal = 848 / np.radians(degrees)
    matrix = np.array([[focal, 0, 423.5], [0, focal, 399.5], [0, 0, 1]])
    pose = np.eye(4)
    pose[:3, :3] = cv2.Rodrigues(np.array([0.012, -0.02, 0.01]))[0]
    rotation = pose[:3, :3]  # no memory of its own, as in a matrix of 4 x 4 that a file holds
    camera = Camera(matrix, np.zeros(4), True)
    return Rig(camera, camera, rotation, -rotation @ [0.064, 0, 0], (848, 800))


@pytest.mark.parametrize("degrees", [70, 200])
def test_a_rectified_fisheye_keeps_the_scale_of_its_middle(degrees: float) -> None:
    cameras = wide_fisheye(degrees)
    assert cameras.left.field_of_view((848, 800)) == pytest.approx((degrees, degrees * 800 / 848), rel=1e-3)
    found = cameras.compute_rectification()
    assert found.calibration.focal_length == pytest.approx(cameras.left.matrix[0, 0])
    assert found.calibration.field_of_view[0] < degrees
    assert (found.left(np.full((800, 848), 255, np.uint8)) == 255).mean() > 0.999
    whole = cameras.compute_rectification(alpha=1).calibration
    # The corners of an image reach farther than the middles of its edges.
    assert min(degrees, 155) < whole.field_of_view[0] < 162


@pytest.mark.parametrize("fisheye", [False, True], ids=["pinhole", "fisheye"])
def test_a_field_of_view_that_is_asked_for(fisheye: bool) -> None:
    cameras = rig(fisheye=fisheye)
    white = np.full((480, 640), 255, np.uint8)
    for degrees in (40, 90):
        found = cameras.compute_rectification(fov=degrees)
        assert found.calibration.field_of_view[0] == pytest.approx(degrees)
        assert found.calibration.baseline == pytest.approx(files.BASELINE)
        assert ((found.left(white) == 255).mean() > 0.999) == (degrees == 40)
    check_rows(photographs(cameras), cameras.compute_rectification(fov=40))


def test_rays_are_the_way_back_from_pixels() -> None:
    points = np.random.default_rng(3).uniform((-0.4, -0.3, 1), (0.4, 0.3, 3), (40, 3))
    for camera in (rig().left, rig(fisheye=True).left):
        rays = camera.rays(camera.project(points))
        np.testing.assert_allclose(rays, points / np.linalg.norm(points, axis=1, keepdims=True), atol=1e-4)
