"""Each data source on a miniature tree in its published layout: names, images, the numbers of its truth."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import source_trees
from source_trees import HEIGHT, TREES, WIDTH, pair

from pamcli.calibration.geometry import Calibration
from pamcli.data.listing import Listed
from pamcli.data.open import open_data, parse_data
from pamcli.data.preparing import list_data_pairs
from pamcli.data.source import Source
from pamcli.errors import InputError, UsageError


def opened(data: str, root: Path, query: str = "") -> Source:
    """The tree of the source that `data` names is made below `root`, and opened."""
    TREES[data if data in TREES else data.partition("/")[0]](root)
    return open_data(f"{data}:{root}{query}")


def first_row(values: np.ndarray | None, count: int) -> list[float]:
    assert values.shape == (HEIGHT, WIDTH)
    return [pytest.approx(value, nan_ok=True) for value in values[0, :count].tolist()]


NAN = float("nan")


@pytest.mark.parametrize("data", TREES)
def test_every_source_reads_its_images_lazily_and_can_be_pickled(data: str, tmp_path: Path) -> None:
    source = opened(data, tmp_path)
    assert len(source) == len(source.names) == len(set(source.names)) >= 2
    assert source.absent + source.unpaired == ()
    copy = pickle.loads(pickle.dumps(source))
    sample = copy.load(0)
    assert sample.name == source.names[0]
    assert sample.left.shape == sample.right.shape == (HEIGHT, WIDTH, 3)
    assert abs(int(sample.left[0, 0, 0]) - 90) <= 2
    assert abs(int(sample.right[0, 0, 0]) - 120) <= 2
    assert source.first(1).names == source.names[:1]


FLEETING = "2018-07-09-16-11-56"
VKITTI = 725.0087 * 0.532725


@pytest.mark.parametrize(
    ("data", "query", "names", "disparity", "right_disparity"),
    [
        ("carla", "", ["scene1", "scene2"], [12.5], [12.5]),
        ("drivingstereo", "", [f"{FLEETING}/a", f"{FLEETING}/b"], [2.5, NAN], None),
        ("drivingstereo/sunny", "", ["a"], [2.5, NAN], None),
        ("drivingstereo/sunny", "?size=full", ["a"], [5, NAN], None),
        ("drivingstereo/foggy", "?size=full", ["a"], [5, NAN], None),
        (
            "fallingthings",
            "",
            ["mixed/temple_1/000000", "single/002_master_chef_can_16k/kitchen_0/000000"],
            [768.16 * 0.06, NAN, NAN],
            [768.16 * 0.06 / 2],
        ),
        ("foundationstereo", "", ["kitchen_1/0000", "office_2/0000"], [2.555, 65.538, NAN], None),
        ("holopix50k/val", "", ["-L_a", "-L_b"], None, None),
        ("instereo2k", "", ["part1/000000", "part2/000001"], [12.34, NAN], [0.5]),
        ("instereo2k/test", "", ["000040"], [12.34, NAN], [0.5]),
        ("pairs", "", ["shelf2", "shelf10"], [7.5, NAN, 1], [6.5]),  # in natural order
        (
            "virtualkitti2",
            "",
            ["Scene01/clone/00000", "Scene01/fog/00000"],
            [VKITTI / 10, NAN, NAN],
            [VKITTI / 20],
        ),
        ("virtualkitti2", "?variation=fog", ["Scene01/fog/00000"], [VKITTI / 10], [VKITTI / 20]),
    ],
)
def test_names_and_disparities_of_a_layout(
    data: str,
    query: str,
    names: list[str],
    disparity: list[float] | None,
    right_disparity: list[float] | None,
    tmp_path: Path,
) -> None:
    source = opened(data, tmp_path, query)
    assert source.names == tuple(names)
    sample = source.load(0)
    for found, expected in ((sample.disparity, disparity), (sample.right_disparity, right_disparity)):
        assert (found is None) == (expected is None)
        assert expected is None or first_row(found, len(expected)) == expected
    assert sample.calibration == {
        "fallingthings": Calibration(768.16, 0.06),
        "virtualkitti2": Calibration(725.0087, 0.532725),
    }.get(data)


def test_sceneflow(tmp_path: Path) -> None:
    source = opened("sceneflow", tmp_path)
    assert source.names == (
        "Driving/15mm_focallength/scene_backwards/fast/0001",
        "FlyingThings3D/TRAIN/A/0000/0006",
        "Monkaa/a_rain_of_stones_x2/0000",
    )
    sample = source.load(1)
    assert first_row(sample.disparity, 3) == [2.5, NAN, 1]
    assert first_row(sample.right_disparity, 3) == [3.5, NAN, 1]  # all negative in the file
    assert sample.visible is None


def test_sceneflow_by_part_split_and_pass(tmp_path: Path) -> None:
    source_trees.sceneflow(tmp_path)
    assert open_data(f"sceneflow/test:{tmp_path}").names == ("FlyingThings3D/TEST/B/0001/0006",)
    assert open_data(f"sceneflow:{tmp_path}?part=monkaa").names == ("Monkaa/a_rain_of_stones_x2/0000",)
    alone = open_data(f"sceneflow:{tmp_path / 'FlyingThings3D'}")
    assert alone.names == ("TRAIN/A/0000/0006",)
    with pytest.raises(InputError, match="no pair of the data set sceneflow/train, pass=clean") as caught:
        open_data(f"sceneflow:{tmp_path / 'Monkaa'}?pass=clean")
    assert "pass=final" in str(caught.value)


def test_kitti2015(tmp_path: Path) -> None:
    source = opened("kitti2015", tmp_path)
    assert source.names == ("000000_10", "000001_10")
    sample = source.load(0)
    assert first_row(sample.disparity, 4) == [2.5, NAN, 65535 / 256, 1 / 256]
    assert sample.visible[0, :4].tolist() == [True, False, False, True]
    assert sample.foreground[0, :4].tolist() == [False, True, True, True]
    assert sample.calibration.focal_length == 720
    assert sample.calibration.baseline == pytest.approx((44 + 340) / 720)
    visible = open_data(f"kitti2015:{tmp_path}?truth=noc").load(0)
    assert first_row(visible.disparity, 4) == [2.5, NAN, NAN, 1 / 256]
    testing = open_data(f"kitti2015/testing:{tmp_path}").load(0)
    assert testing.disparity is testing.visible is testing.foreground is None
    shutil.rmtree(tmp_path / "training")
    with pytest.raises(InputError, match="contains no pair") as caught:
        open_data(f"kitti2015:{tmp_path}")
    assert f"another split: kitti2015/testing:{tmp_path}" in str(caught.value)


def test_kitti_with_one_of_the_two_ground_truths(tmp_path: Path) -> None:
    source_trees.kitti2015(tmp_path)
    training = tmp_path / "training"
    (training / "disp_occ_0/000001_10.png").unlink()
    (training / "disp_noc_0/000000_10.png").unlink()
    source = open_data(f"kitti2015:{tmp_path}")
    assert source.absent + source.unpaired == (
        "no ground truth of all pixels (disp_occ_0) for 1 of 2 pairs: 000001_10",
        "no ground truth of visible pixels (disp_noc_0) for 1 of 2 pairs: 000000_10",
    )
    all_alone, visible_alone = source.load(0), source.load(1)
    assert first_row(all_alone.disparity, 3) == [2.5, NAN, 65535 / 256]
    assert all_alone.visible is None
    assert first_row(visible_alone.disparity, 3) == [2.5, NAN, NAN]
    assert visible_alone.visible is not None


def test_kitti2012(tmp_path: Path) -> None:
    source = opened("kitti2012", tmp_path)
    assert source.names == ("000000_10", "000001_10")
    sample = source.load(1)
    assert first_row(sample.disparity, 3) == [2.5, NAN, 65535 / 256]
    assert sample.foreground is None
    assert sample.calibration == Calibration(700, 380 / 700, 0, (600, 180))
    training = tmp_path / "training"
    (training / "colored_0").rename(training / "image_0")
    (training / "colored_1").rename(training / "image_1")
    grey = open_data(f"kitti2012:{tmp_path}")
    assert grey.absent + grey.unpaired == ("no colour images (colored_0, colored_1)",)
    assert grey.load(0).calibration == sample.calibration


def test_eth3d(tmp_path: Path) -> None:
    source = opened("eth3d", tmp_path)
    assert source.names == ("delivery_area_1l", "electro_1s")
    sample = source.load(0)
    assert first_row(sample.disparity, 2) == [5.5, NAN]
    assert sample.visible[0, :2].tolist() == [True, False]
    assert sample.calibration is not None
    assert open_data(f"eth3d/test:{tmp_path}").names == ("lakeside_1l",)


def test_flickr1024(tmp_path: Path) -> None:
    source = opened("flickr1024/test", tmp_path)
    assert source.names == ("0001", "0002")
    assert source.files[0].left == tmp_path / "Test/0001_L.png"
    assert open_data(f"flickr1024:{tmp_path / 'Validation'}").names == ("0001", "0002")


def test_flickr1024_patches(tmp_path: Path) -> None:
    for scale in ("2", "4"):
        for number in ("000001", "000002"):
            folder = tmp_path / f"patches_x{scale}" / number
            pair(folder / "hr0.png", folder / "hr1.png")
            pair(folder / "lr0.png", folder / "lr1.png", (2, 3))
    source = open_data(f"flickr1024:{tmp_path}?scale=4")
    assert source.names == ("000001", "000002")
    assert source.load(1).left.shape == (HEIGHT, WIDTH, 3)
    assert open_data(f"flickr1024:{tmp_path / 'patches_x2'}").names == ("000001", "000002")
    with pytest.raises(UsageError, match="patches_x2 and patches_x4"):
        open_data(f"flickr1024:{tmp_path}")


def test_pairs_of_two_images_of_one_stem_are_errors(tmp_path: Path) -> None:
    source_trees.pairs(tmp_path)
    source_trees.picture(tmp_path / "left/shelf2.jpg")
    with pytest.raises(UsageError, match="stem"):
        open_data(f"pairs:{tmp_path}")


def test_sintel(tmp_path: Path) -> None:
    source = opened("sintel", tmp_path)
    assert source.names == ("alley_1/frame_0001", "alley_1/frame_0002")
    sample = source.load(0)
    assert first_row(sample.disparity, 3) == [8.5, 1 / 256, 1020]
    assert sample.visible[0, :4].tolist() == [True, False, False, True]


def test_crestereo(tmp_path: Path) -> None:
    home = tmp_path / "stereo_trainset/crestereo"
    source_trees.crestereo(home)
    shutil.rmtree(home / "shapenet")
    source = open_data(f"crestereo:{tmp_path}")
    assert source.names == ("hole/7", "reflective/2", "tree/0")
    assert source.absent + source.unpaired == ("no part shapenet",)
    sample = source.load(0)
    assert first_row(sample.disparity, 2) == [3.125, NAN]
    assert first_row(sample.right_disparity, 1) == [2]
    assert open_data(f"crestereo:{tmp_path}?part=tree").names == ("tree/0",)


@pytest.mark.parametrize("wrapped", ["", "left-image"])
def test_each_folder_of_drivingstereo_may_lack_its_inner_folder(wrapped: str, tmp_path: Path) -> None:
    left, right, truth = (
        tmp_path / f"test-{kind}" / (f"{kind}-half-size" if kind != wrapped else "") / "2018-07-09"
        for kind in ("left-image", "right-image", "disparity-map")
    )
    source_trees.pair(left / "a.jpg", right / "a.jpg")
    source_trees.levels(truth / "a.png", [640, 0], 16)
    source = open_data(f"drivingstereo/test:{tmp_path}")
    assert source.names == ("2018-07-09/a",)
    assert first_row(source.load(0).disparity, 2) == [2.5, NAN]


def test_booster(tmp_path: Path) -> None:
    source = opened("booster", tmp_path)
    assert source.names == ("Bathroom/im0", "Bathroom/im1")
    sample = source.load(1)
    assert first_row(sample.disparity, 2) == [44.5, NAN]
    assert first_row(sample.right_disparity, 1) == [33.5]
    assert sample.visible[0, :2].tolist() == [True, False]

    assert sample.masks["class-3"][0].tolist() == [False, True, *[False] * 4]


def test_booster_of_smaller_images_keeps_its_whole_ground_truth(tmp_path: Path) -> None:
    source_trees.booster(tmp_path)
    sample = open_data(f"booster:{tmp_path}?size=H").load(0)
    assert sample.left.shape == sample.right.shape == (2, 3, 3)
    assert sample.disparity[0].tolist() == [0.5, 0.5, 0.5]
    assert sample.fine[0, :3].tolist() == [22.25, pytest.approx(NAN, nan_ok=True), 0.5]
    assert sample.fine_visible.shape == (HEIGHT, WIDTH)
    assert open_data(f"booster:{tmp_path}?size=H").without_truth().load(0).left.shape == (2, 3, 3)
    with pytest.raises(UsageError, match="downscales its images"):
        list_data_pairs(f"booster:{tmp_path}?size=H")
    with pytest.raises(InputError, match="multiples of 4 px"):
        open_data(f"booster:{tmp_path}?size=Q").load(0)


def test_spring(tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed (pip install 'pamcli[hdf5]')")
    source = opened("spring", tmp_path)
    assert source.names == ("0007/0001", "0007/0002")
    assert source.scene(source.names[1]) == "0007"
    sample = source.load(0)
    assert first_row(sample.disparity, 3) == [8.5, NAN, 2]
    assert first_row(sample.right_disparity, 1) == [6.5]
    assert sample.fine.shape == (2 * HEIGHT, 2 * WIDTH)
    assert sample.visible[0, :3].tolist() == [True, False, True]
    assert sample.masks["high-detail"][0, :2].tolist() == [True, False]
    assert sample.masks["sky"][0, :3].tolist() == [True, True, True]  # 2, 3 and 4 of 4: all but the first row
    path = source.files[0].parts["disparity"]
    path.write_bytes(b"none")
    with pytest.raises(InputError, match=r"disp1_left_0001\.dsp5 is damaged"):
        source.load(0)


def test_tartanair(tmp_path: Path) -> None:
    source = opened("tartanair", tmp_path)
    assert source.names == ("abandonedfactory/Easy/P000/000000", "abandonedfactory/Hard/P001/000013")
    assert source.scene(source.names[0]) == "abandonedfactory"
    sample = source.load(0)
    assert first_row(sample.disparity, 3) == [40, 0.008, 80]
    assert first_row(sample.right_disparity, 1) == [20]
    assert open_data(f"tartanair:{tmp_path}?level=Hard").names == source.names[1:]
    inside = open_data(f"tartanair:{tmp_path / 'abandonedfactory'}")
    assert inside.names == ("Easy/P000/000000", "Hard/P001/000013")
    assert first_row(inside.load(0).disparity, 1) == [40]


@pytest.mark.parametrize(
    ("data", "name", "scene"),
    [
        ("sceneflow", "FlyingThings3D/TEST/A/0000/0006", "FlyingThings3D/TEST/A/0000"),
        ("middlebury", "trainingH/PianoL", "Piano"),
        ("middlebury", "data/chess2", "chess"),
        ("eth3d", "delivery_area_1l", "delivery_area"),
        ("virtualkitti2", "Scene01/clone/00000", "Scene01"),
    ],
)
def test_images_of_one_scene_are_known(data: str, name: str, scene: str) -> None:
    source = Listed(())
    source.spec = parse_data(f"{data}:x")
    assert source.scene(name) == scene
