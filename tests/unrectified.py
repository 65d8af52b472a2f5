"""Photographs as two crooked cameras with bad lenses would have taken them, made of a rectified pair."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from pamcli.calibration.camera import Camera
from pamcli.calibration.rig import Rig
from pamcli.imaging.images import RgbImage, encode_image


@dataclass(frozen=True)
class Photographs:
    """Both photographs, and the projections of the rectified pair that they are made of."""

    left: np.ndarray
    right: np.ndarray
    rig: dict[str, np.ndarray | int]
    """Keys of OpenCV's calibration."""
    focal_length: float
    baseline: float

    def write(
        self, folder: Path, left: str = "left.png", right: str = "right.png", file: str = "rig.yaml"
    ) -> None:
        for name, pixels in ((left, self.left), (right, self.right)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(encode_image(RgbImage(pixels), Path(name).suffix, name=name))
        storage = cv2.FileStorage(str(folder / file), cv2.FILE_STORAGE_WRITE)
        for key, value in self.rig.items():
            storage.write(key, value)
        storage.release()

    def ros(self, focal_length: float) -> tuple[str, str]:
        """The camera_info of both cameras; the rectified images' principal points are in the middle."""
        m1, d1, m2, d2, r, t = (np.asarray(self.rig[key]) for key in ("M1", "D1", "M2", "D2", "R", "T"))
        height, width = self.left.shape[:2]
        r1, r2, *_ = cv2.stereoRectify(m1, d1, m2, d2, (width, height), r, t)
        x, y = (width - 1) / 2, (height - 1) / 2
        p1 = np.array([[focal_length, 0, x, 0], [0, focal_length, y, 0], [0, 0, 1, 0]])
        p2 = p1.copy()
        p2[0, 3] = -focal_length * self.baseline
        texts = []
        for matrices in ((m1, d1, r1, p1), (m2, d2, r2, p2)):
            lines = [f"image_width: {width}", f"image_height: {height}", "distortion_model: plumb_bob"]
            names = ("camera_matrix", "distortion_coefficients", "rectification_matrix", "projection_matrix")
            lines += [
                f"{name}: {{data: {values.ravel().tolist()}}}"
                for name, values in zip(names, matrices, strict=True)
            ]
            texts.append("\n".join(lines))
        return texts[0], texts[1]


def photographs(left: np.ndarray, right: np.ndarray, *, fisheye: bool = False) -> Photographs:
    """What cameras 0.2 m apart would have seen whose rectified images are `left` and `right`."""
    height, width = left.shape[:2]
    focal = 1.1 * width
    k1 = np.array([[focal, 0, width / 2 - 3], [0, focal, height / 2 + 2], [0, 0, 1.0]])
    k2 = np.array([[focal * 1.01, 0, width / 2 + 4], [0, focal * 1.01, height / 2 - 3], [0, 0, 1.0]])
    d1, d2 = np.array([-0.12, 0.03, 0.001, -0.0005, 0.0]), np.array([-0.11, 0.02, -0.0008, 0.0007, 0.0])
    if fisheye:
        d1, d2 = np.array([-0.02, 0.01, 0.0, 0.0]), np.array([-0.015, 0.008, 0.0, 0.0])
    r = cv2.Rodrigues(np.array([0.015, -0.02, 0.02]))[0]
    t = -r @ np.array([[0.2], [0.004], [-0.003]])
    if fisheye:
        none = np.zeros(4)
        r1, r2, *_ = cv2.stereoRectify(k1, none, k2, none, (width, height), r, t)
        cameras = Rig(Camera(k1, d1, True), Camera(k2, d2, True), r, t.ravel(), (width, height))
        calibration = cameras.compute_rectification().calibration
        assert calibration is not None
        p1, p2 = calibration.projections()
    else:
        r1, r2, p1, p2, *_ = cv2.stereoRectify(
            k1, d1, k2, d2, (width, height), r, t, alpha=0, newImageSize=(width, height)
        )
    pixels = (
        np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 1, 2).astype(float)
    )
    undo = cv2.fisheye.undistortPoints if fisheye else cv2.undistortPoints
    views = []
    for view, k, d, turn, p in ((left, k1, d1, r1, p1), (right, k2, d2, r2, p2)):
        place = undo(pixels, k, d, R=turn, P=p).astype(np.float32).reshape(height, width, 2)
        views.append(cv2.remap(view, place, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT))
    rig: dict[str, np.ndarray | int] = {"image_width": width, "image_height": height}
    rig |= {"M1": k1, "D1": d1, "M2": k2, "D2": d2, "R": r, "T": t}
    return Photographs(views[0], views[1], rig, float(p1[0, 0]), float(np.linalg.norm(t)))


@cache
def sample(box: tuple[int, int, int, int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    folder = Path(__file__).parents[1] / "scripts" / "sample"
    left, right = (Image.open(folder / f"{side}.png").convert("RGB").crop(box) for side in ("left", "right"))
    return np.asarray(left), np.asarray(right)
