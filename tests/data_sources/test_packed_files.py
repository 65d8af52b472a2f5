"""Data sets of files that hold both views: spatial photos, VR180 photos, MPO, and packed images."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import photo_files
import pytest
import stereo_files
from PIL import Image

from pamcli.data.open import open_data
from pamcli.data.preparing import list_data_pairs
from pamcli.errors import InputError, UsageError

LEFT, RIGHT = (np.full((64, 128, 3), level, np.uint8) for level in (90, 120))


def levels(folder: Path, query: str = "") -> dict[str, tuple[int, int]]:
    """The brightness of both views of each pair, to the nearest ten."""
    source = pickle.loads(pickle.dumps(open_data(f"pairs:{folder}{query}")))
    samples = map(source.load, range(len(source)))
    return {each.name: (round(each.left.mean(), -1), round(each.right.mean(), -1)) for each in samples}


def test_files_that_state_their_layout(tmp_path: Path) -> None:
    left, right = map(stereo_files.jpeg, (LEFT, RIGHT))
    (tmp_path / "a.mpo").write_bytes(stereo_files.mpo(left, right))
    (tmp_path / "b.vr.jpg").write_bytes(photo_files.vr180(left, right, (128, 64)))
    Image.fromarray(LEFT).save(tmp_path / "flat.png")
    assert levels(tmp_path) == {"a": (90, 120), "b.vr": (90, 120)}
    assert levels(tmp_path / "a.mpo") == {"a": (90, 120)}
    assert levels(tmp_path, "?packed=auto&first=1") == {"a": (90, 120)}
    with pytest.raises(UsageError, match="image files"):
        list_data_pairs(f"pairs:{tmp_path}")


def test_packed_images_and_their_ground_truth(tmp_path: Path) -> None:
    Image.fromarray(np.concatenate([RIGHT, LEFT], axis=1)).save(tmp_path / "a.png")
    (tmp_path / "disparity").mkdir()
    np.save(tmp_path / "disparity" / "a.npy", np.full(LEFT.shape[:2], 4, np.float32))
    assert levels(tmp_path, "?packed=rl") == {"a": (90, 120)}
    source = open_data(f"pairs:{tmp_path}?packed=rl")
    truth = source.load(0).disparity
    assert (truth == 4).all()
    assert source.without_truth().load(0).disparity is None
    assert source.without_truth().load(0).left.shape == LEFT.shape
    with pytest.raises(UsageError, match="key left"):
        open_data(f"pairs:{tmp_path}?packed=rl&left={{}}.png")
    with pytest.raises(InputError, match="contains no pair"):
        open_data(f"pairs:{tmp_path}")


def test_a_spatial_photo_has_its_calibration(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed (pip install 'pamcli[heif]')")
    cameras = [photo_files.camera(0.7, 0.5, 0.5, (0, 0, 0)), photo_files.camera(0.7, 0.5, 0.5, (19200, 0, 0))]
    (tmp_path / "a.heic").write_bytes(photo_files.spatial(photo_files.heic(LEFT, RIGHT), cameras))
    assert levels(tmp_path) == {"a": (90, 120)}
    calibration = open_data(f"pairs:{tmp_path}").load(0).calibration
    assert (calibration.focal_length, calibration.baseline) == pytest.approx((0.7 * 128, 0.0192))
