"""Miniature data sets with a truth that fits, cut out of the sample pair."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from pamcli.data.source import Sample
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.disparity_files import read_disparity

SAMPLE = Path(__file__).parents[2] / "scripts" / "sample"
BOXES = {"000000_10": (300, 200, 396, 264), "000001_10": (100, 100, 228, 180)}
"""Left, top, right, bottom of the crops by the names of their samples; 96 x 64 and 128 x 80 pixels."""


@cache
def crops() -> tuple[Sample, ...]:
    """The samples as they should be read: truth as KITTI stores it, its first columns occluded."""
    found = []
    for index, (name, (x0, y0, x1, y1)) in enumerate(BOXES.items()):
        left, right = (
            np.asarray(Image.open(SAMPLE / f"{side}.png").convert("RGB"))[y0:y1, x0:x1]
            for side in ("left", "right")
        )
        truth = read_disparity(SAMPLE / "disparity.pfm")[y0:y1, x0:x1]
        stored = np.where(np.isfinite(truth), np.round(truth * 256) / 256, np.nan).astype(np.float32)
        visible = np.ones(truth.shape, bool)
        visible[:, : 20 + index] = False
        foreground = np.zeros(truth.shape, bool)
        foreground[20:40, 30:60] = True
        found.append(Sample(name, left, right, stored, None, visible, foreground, None))
    return tuple(found)


def kitti2015(folder: Path, split: str = "training") -> None:
    """A tree of KITTI 2015, complete but for its calibration; without truth for another split."""
    for sample in crops():
        parts: dict[str, np.ndarray] = {"image_2": sample.left, "image_3": sample.right}
        if split == "training":
            seen = np.where(sample.visible, sample.disparity, np.nan)
            parts |= {
                "disp_occ_0": _stored(sample.disparity),
                "disp_noc_0": _stored(seen),
                "obj_map": sample.foreground.astype(np.uint8),
            }
        for part, pixels in parts.items():
            path = folder / split / part / f"{sample.name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)


def pairs(folder: Path, *, truth: bool = True) -> None:
    """Own pairs with their truth as PFM."""
    for sample in crops():
        for side in ("left", "right", "disparity"):
            (folder / side).mkdir(parents=True, exist_ok=True)
        Image.fromarray(sample.left).save(folder / "left" / f"{sample.name}.png")
        Image.fromarray(sample.right).save(folder / "right" / f"{sample.name}.png")
        if truth:
            data = encode_disparity(sample.disparity, ".pfm").data
            (folder / "disparity" / f"{sample.name}.pfm").write_bytes(data)


def _stored(disparity: np.ndarray) -> np.ndarray:
    return np.nan_to_num(disparity * 256).astype(np.uint16)


def write_disparity(path: str, disparity: np.ndarray) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(encode_disparity(disparity, Path(path).suffix).data)
