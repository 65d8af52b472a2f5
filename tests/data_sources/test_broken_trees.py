"""Each data source on trees that are broken: nothing there, half of a pair, no truth, a truth cut short."""

from __future__ import annotations

from pathlib import Path

import pytest
import source_trees
from source_trees import HEIGHT, TREES, WIDTH, picture

from pamcli.data.open import open_data
from pamcli.data.source import Files, Source
from pamcli.errors import InputError, UsageError

WITH_TRUTH = [data for data in TREES if data not in ("flickr1024", "holopix50k/val")]


def opened(data: str, root: Path) -> Source:
    return open_data(f"{data}:{root}")


def truth_of(files: Files) -> Path:
    return files.parts["occ" if "occ" in files.parts else "disparity"]


@pytest.mark.parametrize("data", TREES)
def test_a_tree_that_is_not_recognised_gets_one_line(data: str, tmp_path: Path) -> None:
    picture(tmp_path / "holidays/0001.png")
    with pytest.raises(InputError, match=f"no pair of .* {data.partition('/')[0]}") as caught:
        opened(data, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("kitti2015/testing", "testing/image_2/000000_10.png, testing/image_3/000000_10.png"),
        ("flickr1024/validation", "Validation/0001_L.png, Validation/0001_R.png"),
        ("pairs", "left/NAME.png, right/NAME.png"),
    ],
)
def test_the_expected_files_follow_the_split(data: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        opened(data, tmp_path)
    assert caught.value.hint == f"expected {expected}"


@pytest.mark.parametrize("data", TREES)
def test_half_of_a_pair_is_named_and_left_out(data: str, tmp_path: Path) -> None:
    TREES[data](tmp_path)
    whole = opened(data, tmp_path)
    whole.files[0].right.unlink()
    source = opened(data, tmp_path)
    assert source.names == whole.names[1:]
    assert source.absent + source.unpaired == (f"{whole.files[0].left} has no right image",)
    assert source.absent == ()


def test_ground_truth_of_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "truth.docx"):
        (tmp_path / name).touch()
    (tmp_path / "list.tsv").write_text(
        "\t".join(f"{tmp_path}/{each}" for each in ("a.png", "b.png", "truth.docx"))
    )
    with pytest.raises(UsageError, match=r"cannot read .*truth\.docx"):
        open_data(f"pairs:{tmp_path}/list.tsv")


@pytest.mark.parametrize("data", WITH_TRUTH)
def test_ground_truth_that_is_not_there_is_named(data: str, tmp_path: Path) -> None:
    TREES[data](tmp_path)
    whole = opened(data, tmp_path)
    for files in whole.files:
        for path in files.parts.values():
            path.unlink(missing_ok=True)
    source = opened(data, tmp_path)
    assert source.names == whole.names
    assert source.absent + source.unpaired
    assert all(line.startswith("no ") for line in source.absent + source.unpaired)
    assert not source.unpaired
    sample = source.load(0)
    assert sample.disparity is sample.right_disparity is sample.visible is None


@pytest.mark.parametrize("data", WITH_TRUTH)
def test_a_damaged_ground_truth_is_an_error_that_names_the_file(data: str, tmp_path: Path) -> None:
    TREES[data](tmp_path)
    source = opened(data, tmp_path)
    path = truth_of(source.files[0])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=path.name):
        source.load(0)


@pytest.mark.parametrize("data", TREES)
def test_an_image_of_another_size_is_named(data: str, tmp_path: Path) -> None:
    TREES[data](tmp_path)
    source = opened(data, tmp_path)
    picture(source.files[0].right, size=(HEIGHT, WIDTH + 1))
    with pytest.raises(InputError, match=r"is 7x4, .* is 6x4") as caught:
        source.load(0)
    assert str(source.files[0].right) in caught.value.message


def test_ground_truth_of_another_size(tmp_path: Path) -> None:
    source_trees.instereo2k(tmp_path)
    source = opened("instereo2k", tmp_path)
    source_trees.levels(source.files[0].parts["disparity"], [5], 16, size=(2, 3))
    with pytest.raises(InputError, match=r"left_disp\.png is 3x2, .* is 6x4"):
        source.load(0)


def test_missing_ground_truths_are_counted_and_named(tmp_path: Path) -> None:
    for number in range(12):
        source_trees.pair(tmp_path / f"left/{number}.png", tmp_path / f"right/{number}.png")
    source_trees.npy(tmp_path / "disparity/3.npy", [2])
    assert opened("pairs", tmp_path).absent == (
        "no ground truth (disparity) for 11 of 12 pairs: 0, 1, 2, 4, 5 and 6 more",
    )


@pytest.mark.parametrize(
    ("data", "file", "content", "message"),
    [
        ("middlebury", "Piano-perfect/calib.txt", "cam0=[9 0 1; 0 9 1; 0 0 1]\n", "baseline is missing"),
        ("kitti2015", "training/calib_cam_to_cam/000001.txt", "P_rect_02: 1\n", r"000001\.txt: P_rect_02"),
        ("fallingthings", "single/002_master_chef_can_16k/kitchen_0/_camera_settings.json", "{}", "fx"),
    ],
)
def test_a_calibration_without_its_numbers(
    data: str, file: str, content: str, message: str, tmp_path: Path
) -> None:
    TREES[data](tmp_path)
    source_trees.text(tmp_path / file, content)
    with pytest.raises(InputError, match=message):
        opened(data, tmp_path).load(1)


def test_a_colour_image_is_no_ground_truth(tmp_path: Path) -> None:
    source_trees.instereo2k(tmp_path)
    source_trees.rgb(tmp_path / "train/part1/000000/left_disp.png", [(255, 0, 0)])
    with pytest.raises(InputError, match="must be a grey image"):
        opened("instereo2k", tmp_path).load(0)


def test_masks_of_two_sizes_are_named(tmp_path: Path) -> None:
    source_trees.sintel(tmp_path)
    picture(tmp_path / "training/outofframe/alley_1/frame_0002.png", size=(2, 3))
    with pytest.raises(InputError, match="differ in size"):
        opened("sintel", tmp_path).load(1)
