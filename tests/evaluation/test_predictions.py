"""Result files of other programs: found by the names of the samples, read, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_measuring import Held

from pamcli.data.source import Sample
from pamcli.errors import InputError, UsageError
from pamcli.evaluation.disparity_metrics import Estimate
from pamcli.evaluation.methods import DisparityFiles, UpscaledFiles
from pamcli.evaluation.superres_metrics import SuperresPair, Upscaled
from pamcli.imaging.disparity_encoding import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image

MAP = np.array([[1.5, np.nan, 3], [4, 5, 200.25]], np.float32)
BLACK = np.zeros((4, 6, 3), np.uint8)


def put(path: Path, disparity: np.ndarray = MAP) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_disparity(disparity, path.suffix).data)


def put_image(path: Path, pixels: np.ndarray = BLACK) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(RgbImage(pixels), path.suffix, name=path.name))


def find(folder: Path, *names: str, kind: Any = DisparityFiles, allow: bool = False) -> dict[str, list[Path]]:
    method = kind(folder, allow)
    method.open_set(Held(*(Sample(name, BLACK, BLACK) for name in names)))
    return method.files


def read(folder: Path, name: str, shape: tuple[int, int] = (2, 3), scale: float | None = None) -> Estimate:
    view = np.zeros((*shape, 3), np.uint8)
    sample, method = Sample(name, view, view), DisparityFiles(folder, scale=scale)
    method.open_set(Held(sample))
    return method.run(sample)


def read_views(folder: Path, name: str, height: int, width: int) -> Upscaled:
    view = np.zeros((height, width, 3), np.uint8)
    method = UpscaledFiles(folder)
    method.open_set(Held(Sample(name, view, view)))
    return method.run(SuperresPair(view, view, view, view, 1, name))


@pytest.mark.parametrize("suffix", [".pfm", ".png", ".npy", ".tif", ".tiff", ".PFM"])
def test_every_format_is_read_by_the_name_of_the_sample(tmp_path: Path, suffix: str) -> None:
    put(tmp_path / f"000001_10{suffix}")
    assert np.array_equal(read(tmp_path, "000001_10").disparity, MAP, equal_nan=True)


def test_folders_of_a_name_are_folders_and_dots_belong_to_it(tmp_path: Path) -> None:
    put(tmp_path / "TEST/A/0000/left/0006.pfm")
    put(tmp_path / "a.b.npy", MAP + 1)
    put(tmp_path / "a.b_right.pfm")
    put(tmp_path / "a.npy")
    found = find(tmp_path, "TEST/A/0000/left/0006", "a.b")
    assert found["TEST/A/0000/left/0006"] == [tmp_path / "TEST/A/0000/left/0006.pfm"]
    assert read(tmp_path, "a.b").disparity[0, 0] == 2.5


def test_predictions_lie_as_in_the_archives_of_kitti_and_middlebury(tmp_path: Path) -> None:
    put(tmp_path / "kitti/disp_0/000001_10.png")
    [found] = find(tmp_path / "kitti", "000001_10").values()
    assert found == [tmp_path / "kitti/disp_0/000001_10.png"]
    for name in ("disp0GT", "disp0SGM", "disp0SGM_s"):
        put(tmp_path / f"trainingQ/Jadeplant/{name}.pfm")
    found = find(tmp_path / "trainingQ", "Jadeplant")
    assert found["Jadeplant"] == [tmp_path / "trainingQ/Jadeplant/disp0SGM.pfm"]
    put(tmp_path / "trainingQ/Jadeplant/disp0Other.pfm")
    with pytest.raises(UsageError, match=r"two predictions for Jadeplant in .*disp0Other.pfm"):
        find(tmp_path / "trainingQ", "Jadeplant")


def test_a_folder_without_predictions_is_always_an_error(tmp_path: Path) -> None:
    put(tmp_path / "other.pfm")
    for allow in (False, True):
        with pytest.raises(UsageError, match="no prediction") as raised:
            find(tmp_path, "a", "b", allow=allow)
        assert "a.pfm" in (raised.value.hint or "")
    with pytest.raises(UsageError, match="no such folder"):
        find(tmp_path / "nowhere", "a")
    with pytest.raises(UsageError, match=r"other\.pfm is not a folder") as raised:
        find(tmp_path / "other.pfm", "a")
    assert "unpack" in (raised.value.hint or "")


def test_files_that_cannot_be_used_are_errors(tmp_path: Path) -> None:
    put(tmp_path / "k/a.png")
    put(tmp_path / "k/a.pfm")
    with pytest.raises(UsageError, match=r"two predictions for k/a .*a\.pfm, a\.png"):
        find(tmp_path, "k/a")
    put(tmp_path / "a.pfm")
    with pytest.raises(InputError, match=r"a\.pfm is 3x2, but a is 6x4"):
        read(tmp_path, "a", (4, 6))
    (tmp_path / "a.pfm").write_bytes(b"Pf\n3 2\n-1\nabc")
    with pytest.raises(InputError, match=r"a\.pfm is damaged"):
        read(tmp_path, "a")


def test_upscaled_pairs(tmp_path: Path) -> None:
    left, right = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3), dtype=np.uint8)
    put_image(tmp_path / "k/a_left.png", left)
    put_image(tmp_path / "k/a_right.tif", right)
    found = read_views(tmp_path, "k/a", 4, 6)
    assert np.array_equal(found.left, left)
    assert np.array_equal(found.right, right)
    with pytest.raises(InputError, match=r"a_left\.png is 6x4, but the ground truth is 8x4"):
        read_views(tmp_path, "k/a", 4, 8)
    put_image(tmp_path / "k/a_left.png", BLACK.astype(np.uint16))
    with pytest.raises(InputError, match=r"a_left\.png has 16 bits"):
        read_views(tmp_path, "k/a", 4, 6)


def test_a_pair_without_one_view_is_missing(tmp_path: Path) -> None:
    for name in ("a_left", "b_left", "b_right"):
        put_image(tmp_path / f"{name}.png")
    with pytest.raises(UsageError, match=r"lacks 1 prediction: a_right"):
        find(tmp_path, "a", "b", kind=UpscaledFiles)
    assert list(find(tmp_path, "a", "b", kind=UpscaledFiles, allow=True)) == ["b"]
    with pytest.raises(UsageError, match="no prediction"):
        find(tmp_path, "a", kind=UpscaledFiles, allow=True)
