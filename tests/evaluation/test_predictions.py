from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pamcli.errors import InputError, UsageError
from pamcli.evaluation.methods import find_files, load_disparity, load_views
from pamcli.imaging.disparity_files import encode_disparity
from pamcli.imaging.images import RgbImage, encode_image

MAP = np.array([[1.5, np.nan, 3], [4, 5, 200.25]], np.float32)


def put(path: Path, disparity: np.ndarray = MAP) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_disparity(disparity, path.suffix).data)


def picture(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(RgbImage(pixels), path.suffix, name=path.name))


@pytest.mark.parametrize("suffix", [".pfm", ".png", ".npy", ".tif", ".tiff", ".PFM"])
def test_every_format_is_read_by_the_name_of_the_sample(tmp_path: Path, suffix: str) -> None:
    put(tmp_path / f"000001_10{suffix}")
    found = find_files(tmp_path, ["000001_10"])
    assert np.array_equal(
        load_disparity(found["000001_10"][0], "000001_10", (2, 3)).disparity, MAP, equal_nan=True
    )


def test_folders_of_a_name_are_folders_and_dots_belong_to_it(tmp_path: Path) -> None:
    put(tmp_path / "TEST/A/0000/left/0006.pfm")
    put(tmp_path / "a.b.npy", MAP + 1)
    put(tmp_path / "a.b_right.pfm")
    put(tmp_path / "a.npy")
    found = find_files(tmp_path, ["TEST/A/0000/left/0006", "a.b"])
    assert found["TEST/A/0000/left/0006"] == [tmp_path / "TEST/A/0000/left/0006.pfm"]
    assert load_disparity(found["a.b"][0], "a.b", (2, 3)).disparity[0, 0] == 2.5


def test_predictions_lie_as_in_the_archives_of_kitti_and_middlebury(tmp_path: Path) -> None:
    put(tmp_path / "kitti/disp_0/000001_10.png")
    assert find_files(tmp_path / "kitti", ["000001_10"])["000001_10"] == [
        tmp_path / "kitti/disp_0/000001_10.png"
    ]
    for name in ("disp0GT", "disp0SGM", "disp0SGM_s"):
        put(tmp_path / f"trainingQ/Jadeplant/{name}.pfm")
    found = find_files(tmp_path / "trainingQ", ["Jadeplant"])
    assert found["Jadeplant"] == [tmp_path / "trainingQ/Jadeplant/disp0SGM.pfm"]
    put(tmp_path / "trainingQ/Jadeplant/disp0Other.pfm")
    with pytest.raises(UsageError, match=r"two predictions for Jadeplant in .*disp0Other.pfm"):
        find_files(tmp_path / "trainingQ", ["Jadeplant"])


def test_other_units_are_scaled(tmp_path: Path) -> None:
    put(tmp_path / "x.png", MAP / 4)  # a program that stores 64 for a pixel where KITTI stores 256
    path = tmp_path / "x.png"
    assert load_disparity(path, "x", (2, 3), scale=64).disparity == pytest.approx(
        MAP, nan_ok=True, abs=1 / 64
    )
    assert load_disparity(path, "x", (2, 3), scale=512).disparity[1, 0] == 0.5


def test_missing_predictions_are_named_unless_allowed(tmp_path: Path) -> None:
    put(tmp_path / "a.pfm")
    with pytest.raises(UsageError, match=r"lacks 2 predictions: b, c/d") as raised:
        find_files(tmp_path, ["a", "b", "c/d"])
    assert "`allow_missing`" in (raised.value.hint or "")
    found = find_files(tmp_path, ["a", "b", "c/d"], allow_missing=True)
    assert list(found) == ["a"]


def test_a_folder_without_predictions_is_always_an_error(tmp_path: Path) -> None:
    put(tmp_path / "other.pfm")
    for allow in (False, True):
        with pytest.raises(UsageError, match="no prediction") as raised:
            find_files(tmp_path, ["a", "b"], allow_missing=allow)
        assert "a.pfm" in (raised.value.hint or "")
    with pytest.raises(UsageError, match="no such folder"):
        find_files(tmp_path / "nowhere", ["a"])
    with pytest.raises(UsageError, match=r"other\.pfm is not a folder") as raised:
        find_files(tmp_path / "other.pfm", ["a"])
    assert "unpack" in (raised.value.hint or "")


def test_two_predictions_for_one_sample_are_an_error(tmp_path: Path) -> None:
    put(tmp_path / "k/a.png")
    put(tmp_path / "k/a.pfm")
    with pytest.raises(UsageError, match=r"two predictions for k/a .*a\.pfm, a\.png"):
        find_files(tmp_path, ["k/a"])


def test_a_prediction_of_another_size_or_damaged_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a.pfm")
    with pytest.raises(InputError, match=r"a\.pfm is 3x2, but a is 6x4"):
        load_disparity(tmp_path / "a.pfm", "a", (4, 6, 3))
    (tmp_path / "a.pfm").write_bytes(b"Pf\n3 2\n-1\nabc")
    with pytest.raises(InputError, match=r"a\.pfm is damaged"):
        load_disparity(tmp_path / "a.pfm", "a", (2, 3))


def test_upscaled_pairs(tmp_path: Path) -> None:
    left, right = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3), dtype=np.uint8)
    picture(tmp_path / "k/a_left.png", left)
    picture(tmp_path / "k/a_right.tif", right)
    found = find_files(tmp_path, ["k/a"], views=True)
    views = load_views(found["k/a"], (4, 6))
    assert np.array_equal(views[0], left)
    assert np.array_equal(views[1], right)
    with pytest.raises(InputError, match=r"a_left\.png is 6x4, but the ground truth is 8x4"):
        load_views(found["k/a"], (4, 8))


def test_a_pair_without_one_view_is_missing(tmp_path: Path) -> None:
    black = np.zeros((4, 6, 3), np.uint8)
    picture(tmp_path / "a_left.png", black)
    picture(tmp_path / "b_left.png", black)
    picture(tmp_path / "b_right.png", black)
    with pytest.raises(UsageError, match=r"lacks 1 prediction: a_right"):
        find_files(tmp_path, ["a", "b"], views=True)
    found = find_files(tmp_path, ["a", "b"], views=True, allow_missing=True)
    assert list(found) == ["b"]
    with pytest.raises(UsageError, match="no prediction"):
        find_files(tmp_path, ["a"], views=True, allow_missing=True)


def test_images_of_16_bits_are_errors(tmp_path: Path) -> None:
    for view in ("left", "right"):
        picture(tmp_path / f"a_{view}.png", np.zeros((4, 6, 3), np.uint16))
    with pytest.raises(InputError, match=r"a_left\.png has 16 bits"):
        load_views(find_files(tmp_path, ["a"], views=True)["a"], (4, 6))
