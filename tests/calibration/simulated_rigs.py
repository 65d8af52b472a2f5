"""Synthetic stereo rigs, and the photographs of boards, textured planes, and a room with wall and floor.

Rays are traced to the plane, nine per pixel; blur, vignetting, noise and 8-bit rounding follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from pamcli.calibration.camera import Camera
from pamcli.calibration.rig import Rig

BLUR = 0.3
"""Standard deviation of the blur of the lens, px."""
NOISE = 2.5
"""Standard deviation of the noise of the sensor, grey levels."""
FINER = 3
"""Rays per pixel, horizontally and vertically."""
WALL, FLOOR = 4.0, 1.2
"""Metres from the left camera: ahead, and below."""
LEVEL = cv2.Rodrigues(np.array([np.pi / 2, 0, 0]))[0]
"""Rotation of a plane that lies horizontally."""


@dataclass(frozen=True)
class Flat:
    """A plane with an image."""

    image: np.ndarray
    """(H, W), 0 to 255."""
    step: float
    """Metres from pixel to pixel."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origin of the coordinates, in pixels of the image."""


def make_chessboard(columns: int, rows: int, square: float, fine: int = 24) -> Flat:
    """Make a chessboard with columns x rows inner corners, the first at the origin, and a white margin."""
    squares = np.indices((rows + 1, columns + 1)).sum(axis=0) % 2 * 255
    picture = np.pad(np.kron(squares, np.ones((fine, fine))), fine, constant_values=255)
    return Flat(picture.astype(np.uint8), square / fine, (2 * fine - 0.5, 2 * fine - 0.5))


def make_charuco(board: cv2.aruco.CharucoBoard, fine: int = 40) -> Flat:
    """Make a ChArUco board with a white margin of half a square, in OpenCV's coordinates."""
    columns, rows = board.getChessboardSize()
    picture = board.generateImage((columns * fine, rows * fine), marginSize=0)
    margin = fine // 2
    picture = np.pad(picture, margin, constant_values=255)
    return Flat(picture, board.getSquareLength() / fine, (margin - 0.5, margin - 0.5))


@cache
def make_texture(seed: int, metres: float, side: int = 1400) -> Flat:
    """Make random texture of several scales around the origin."""
    random = np.random.default_rng(seed)
    found = np.zeros((side, side), np.float32)
    for scale in (2, 5, 12, 40):
        layer = cv2.GaussianBlur(random.random((side, side)).astype(np.float32), (0, 0), scale)
        found += (layer - layer.mean()) / layer.std()
    picture = np.clip(127 + 32 * found, 0, 255).astype(np.uint8)
    return Flat(picture, metres / side, (side / 2, side / 2))


class CameraSimulator:
    """A camera that photographs planes."""

    def __init__(self, camera: Camera, size: tuple[int, int]) -> None:
        self.size = width, height = size
        margin = 2
        x, y = np.meshgrid(np.arange(-margin, width + margin), np.arange(-margin, height + margin))
        self.rays = compute_rays(camera, np.stack([x, y], axis=-1).reshape(-1, 2)).reshape(*x.shape, 3)
        self.margin = margin

    def photograph(
        self,
        flat: Flat,
        rotation: np.ndarray,
        translation: np.ndarray,
        random: np.random.Generator,
        *,
        background: float = 90,
        motion: tuple[float, float] = (0, 0),
    ) -> np.ndarray:
        """Return the image (H, W) uint8 of a plane whose points x are at rotation @ x + translation.

        `motion` is the movement (x, y) during the exposure, px.
        """
        width, height = self.size
        plane = np.linalg.inv(np.column_stack([rotation[:, :2], translation]))
        places = self.rays @ plane.T
        with np.errstate(divide="ignore", invalid="ignore"):
            places = places[..., :2] / places[..., 2:]
            # Behind the camera, or past the horizon of the plane.
            behind = (places @ rotation[:, :2].T + translation)[..., 2] * np.sign(self.rays[..., 2]) <= 0
        places = places / flat.step + flat.origin
        places[behind | ~np.isfinite(places).all(axis=-1)] = -1e6
        inside = ((places >= -1) & (places <= np.array(flat.image.shape[::-1]))).all(axis=-1)
        whole = np.full(inside.shape, background, np.float32)
        if inside.any():
            reach = 3 + int(max(map(abs, motion)))
            box = tuple(
                slice(max(0, at[0] - reach), at[-1] + reach)
                for at in (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
            )
            whole[box] = self._seen(flat, np.clip(places[box], -1e6, 1e6), background, motion)
        found = whole[self.margin : self.margin + height, self.margin : self.margin + width]
        y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
        light = 0.85 - 0.15 * (x**2 + y**2) + random.uniform(-0.1, 0.1) * x + random.uniform(-0.1, 0.1) * y
        found = 20 + 0.85 * light * found + random.normal(0, NOISE, found.shape)
        return np.clip(np.rint(found), 0, 255).astype(np.uint8)

    @staticmethod
    def _seen(flat: Flat, places: np.ndarray, background: float, motion: tuple[float, float]) -> np.ndarray:
        fine = (places.shape[1] * FINER, places.shape[0] * FINER)
        where = cv2.resize(places.astype(np.float32), fine, interpolation=cv2.INTER_LINEAR)
        found = cv2.remap(
            flat.image.astype(np.float32), where, None, cv2.INTER_LINEAR, borderValue=background
        )
        if any(motion):
            steps = FINER * np.outer(np.linspace(-0.5, 0.5, 15), motion)
            moves = [np.float32([[1, 0, x], [0, 1, y]]) for x, y in steps]
            edges = {"flags": cv2.INTER_LINEAR, "borderMode": cv2.BORDER_REPLICATE}
            found = np.mean([cv2.warpAffine(found, move, fine, **edges) for move in moves], axis=0)
        found = cv2.GaussianBlur(found, (0, 0), BLUR * FINER)
        return cv2.resize(found, places.shape[1::-1], interpolation=cv2.INTER_AREA)


def compute_rays(camera: Camera, points: np.ndarray) -> np.ndarray:
    """Return directions (N, 3) of pixels (N, 2), inverting the lens polynomial by iteration."""
    if camera.fisheye:
        return camera.rays(points.astype(np.float64))  # from a table of 4096 angles, good to 1e-7
    seen = (points - camera.matrix[:2, 2]) / camera.matrix[[0, 1], [0, 1]]
    k1, k2, p1, p2, k3 = np.append(camera.distortion, np.zeros(5))[:5]
    flat = seen
    for _ in range(30):
        before = flat
        x, y = flat.T
        square = x * x + y * y
        radial = 1 + square * (k1 + square * (k2 + square * k3))
        across = 2 * p1 * x * y + p2 * (square + 2 * x * x)
        down = p1 * (square + 2 * y * y) + 2 * p2 * x * y
        flat = (seen - np.column_stack([across, down])) / radial[:, None]
        if np.abs(flat - before).max() < 1e-9:
            break
    return np.column_stack([flat, np.ones(len(flat))])


def make_rig(seed: int, *, fisheye: bool = False, size: tuple[int, int] = (1024, 640)) -> Rig:
    """Make a typical rig: two similar lenses, rotated by a degree or two."""
    random = np.random.default_rng([seed, fisheye])
    width = size[0]
    focal = width * (1 / np.radians(random.uniform(115, 165)) if fisheye else random.uniform(0.6, 1.15))
    cameras = []
    for _ in range(2):
        f = focal * random.uniform(0.99, 1.01)
        x, y = (np.array(size) - 1) / 2 + random.uniform(-0.015, 0.015, 2) * width
        matrix = np.array([[f, 0, x], [0, f * random.uniform(0.998, 1.002), y], [0, 0, 1]])
        if fisheye:
            distortion = random.uniform(-1, 1, 4) * [0.02, 0.01, 0.005, 0.002]
        else:
            k1 = random.uniform(-0.3, 0.05)
            distortion = np.array([k1, 0.3 * k1**2, *random.uniform(-0.0008, 0.0008, 2), 0.0])
        cameras.append(Camera(matrix, distortion, fisheye))
    rotation = cv2.Rodrigues(np.radians(random.uniform(-1.5, 1.5, 3)))[0]
    baseline = random.uniform(0.06, 0.25)
    center = baseline * np.array([1, *random.uniform(-0.03, 0.03, 2)])
    return Rig(cameras[0], cameras[1], rotation, -rotation @ center, size)


def sample_poses(
    rig: Rig, count: int, seed: int, columns: int = 9, rows: int = 6, square: float = 0.03
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Sample rotations and translations of a board that cover the image.

    All inner corners are in the image of one camera, which is the left one two times out of three.
    """
    random = np.random.default_rng([seed, 99])
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows), [0]), axis=-1).reshape(-1, 3) * square
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while len(found) < count:
        camera = rig.right if len(found) % 3 == 2 else rig.left
        place = random.uniform(0.08, 0.92, 2) * rig.size
        angles = [*random.uniform(-40, 40, 2), random.uniform(-25, 25)]
        ray = camera.rays(place[None])[0]
        axis = np.cross([0, 0, 1], ray)  # it faces the camera wherever it is held, then is tilted
        facing = cv2.Rodrigues(axis / max(np.linalg.norm(axis), 1e-9) * np.arccos(np.clip(ray[2], -1, 1)))[0]
        rotation = facing @ cv2.Rodrigues(np.radians(angles))[0]
        wide = random.uniform(0.25, 0.6) * rig.size[0]
        distance = (columns - 1) * square * camera.matrix[0, 0] / wide
        translation = ray * distance - rotation @ grid.mean(axis=0)
        corners = camera.project(grid @ rotation.T + translation)
        if camera is rig.right:
            rotation = rig.rotation.T @ rotation
            translation = rig.rotation.T @ (translation - rig.translation)
        if (corners > 8).all() and (corners < np.array(rig.size) - 9).all():
            found.append((rotation, translation))
    return found


def photograph(
    rig: Rig,
    flat: Flat,
    poses: list[tuple[np.ndarray, np.ndarray]],
    seed: int,
    motion: dict[int, tuple[float, float]] | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Photograph a plane with both cameras at each pose, (H, W) uint8, with motion blur (px) at some."""
    random = np.random.default_rng([seed, 7])
    simulators = [CameraSimulator(camera, rig.size) for camera in (rig.left, rig.right)]
    found = []
    for number, (rotation, translation) in enumerate(poses):
        there = rig.rotation @ rotation, rig.rotation @ translation + rig.translation
        moved = (motion or {}).get(number, (0, 0))
        left = simulators[0].photograph(flat, rotation, translation, random, motion=moved)
        found.append((left, simulators[1].photograph(flat, *there, random, motion=moved)))
    return found


def photograph_room(rig: Rig, seed: int = 0, *, floor: float = FLOOR) -> tuple[np.ndarray, np.ndarray]:
    """Photograph the room: left and right image (H, W, 3) uint8, before rectification."""
    flats = (
        (make_texture(seed, 14), np.eye(3), [0, 0, WALL]),
        (make_texture(seed + 1, 14), LEVEL, [0, floor, WALL]),
    )
    views = []
    for camera, turn, there in (
        (rig.left, np.eye(3), np.zeros(3)),
        (rig.right, rig.rotation, rig.translation),
    ):
        simulator = CameraSimulator(camera, rig.size if camera is rig.left else rig.right_size or rig.size)
        view = None
        for flat, rotation, translation in flats:
            pose = turn @ rotation, turn @ np.array(translation) + there
            taken = simulator.photograph(flat, *pose, np.random.default_rng(seed + len(views)))
            rays = (
                simulator.rays[simulator.margin : -simulator.margin, simulator.margin : -simulator.margin]
                @ turn
            )
            below = rays[..., 1] / np.maximum(rays[..., 2], 1e-9) > floor / WALL  # the floor
            view = taken if view is None else np.where(below, taken, view)
        views.append(np.repeat(view[..., None], 3, axis=2).astype(np.uint8))
    return views[0], views[1]
