"""Middlebury's layouts of twenty years: images, truths and masks, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import source_trees
from source_trees import HEIGHT, MIDDLEBURY_CALIBRATION, WIDTH, levels, pair, pfm, text

from pamcli.calibration.geometry import Calibration
from pamcli.data.open import open_data
from pamcli.errors import InputError, UsageError

NAN = float("nan")


def first_row(values: np.ndarray | None, count: int) -> list[float]:
    assert values.shape == (HEIGHT, WIDTH)
    return [pytest.approx(value, nan_ok=True) for value in values[0, :count].tolist()]


def test_middlebury_2014(tmp_path: Path) -> None:
    source_trees.middlebury(tmp_path)
    source = open_data(f"middlebury:{tmp_path}")
    assert source.names == ("Adirondack-perfect", "Piano-perfect")
    sample = source.load(0)
    assert first_row(sample.disparity, 3) == [20.25, NAN, 1]
    assert first_row(sample.right_disparity, 2) == [30.5, 1]
    assert sample.visible[0, :3].tolist() == [True, False, False]
    assert sample.calibration == Calibration(3979.911, 0.193001, 124.343, (1244.772, 1019.507), (2964, 1988))


def test_middlebury_evaluation_tree(tmp_path: Path) -> None:
    home = tmp_path / "MiddEval3"
    for folder in ("trainingQ/Adirondack", "trainingQ/ArtL", "trainingH/Adirondack", "testH/Bicycle2"):
        pair(home / folder / "im0.png", home / folder / "im1.png")
        text(home / folder / "calib.txt", MIDDLEBURY_CALIBRATION)
        if "training" in folder:
            pfm(home / folder / "disp0GT.pfm", [8.5, np.inf])
            levels(home / folder / "mask0nocc.png", [255, 128, 0])
    source = open_data(f"middlebury:{tmp_path}?size=Q")
    assert source.names == ("trainingQ/Adirondack", "trainingQ/ArtL")
    assert source.absent + source.unpaired == ()
    assert first_row(source.load(0).disparity, 2) == [8.5, NAN]
    assert open_data(f"middlebury/test:{home}").names == ("testH/Bicycle2",)  # there is one size
    with pytest.raises(UsageError, match="several sizes") as caught:
        open_data(f"middlebury:{home}")
    assert "?size=H or ?size=Q" in str(caught.value)
    with pytest.raises(InputError, match="no pair of the data set middlebury/training, size=F"):
        open_data(f"middlebury:{home}?size=F")


def test_middlebury_has_full_size_truth_beside_smaller_images(tmp_path: Path) -> None:
    """The full size may be there without its images, as its archive of truths unpacks."""
    home = tmp_path / "MiddEval3"
    scene = home / "trainingQ/Adirondack"
    pair(scene / "im0.png", scene / "im1.png")
    pfm(scene / "disp0GT.pfm", [8.5, np.inf])
    levels(scene / "mask0nocc.png", [255, 128, 0])
    full = home / "trainingF/Adirondack"
    large = np.full((4 * HEIGHT, 4 * WIDTH), 34, "<f4")
    large[0, 1] = np.inf
    (full).mkdir(parents=True)
    header = f"Pf\n{4 * WIDTH} {4 * HEIGHT}\n-1.0\n".encode()
    (full / "disp0GT.pfm").write_bytes(header + large[::-1].tobytes())
    levels(full / "mask0nocc.png", [255, 0, 128], size=large.shape)
    sample = open_data(f"middlebury:{tmp_path}?size=Q").load(0)
    assert sample.fine[0, :3].tolist() == [8.5, pytest.approx(NAN, nan_ok=True), 8.5]
    assert sample.fine_visible[0, :3].tolist() == [True, False, False]
    (full / "mask0nocc.png").unlink()
    assert open_data(f"middlebury:{tmp_path}?size=Q").load(0).fine_visible is None
    (full / "disp0GT.pfm").write_bytes(b"Pf\n30 16\n-1.0\n" + bytes(4 * 30 * 16))
    with pytest.raises(InputError, match=r"trainingF/Adirondack/disp0GT\.pfm is 30x16"):
        open_data(f"middlebury:{tmp_path}?size=Q").load(0)


def test_middlebury_ground_truths_in_a_tree_of_their_own(tmp_path: Path) -> None:
    tree = "MiddEval3/MiddEval3-GT0"
    scene = "trainingQ/Adirondack"
    pair(tmp_path / f"MiddEval3/{scene}/im0.png", tmp_path / f"MiddEval3/{scene}/im1.png")
    text(tmp_path / f"MiddEval3/{scene}/calib.txt", MIDDLEBURY_CALIBRATION)
    pfm(tmp_path / tree / scene / "disp0GT.pfm", [8.5, np.inf])
    levels(tmp_path / tree / scene / "mask0nocc.png", [255, 128, 0])
    source = open_data(f"middlebury:{tmp_path}")
    assert source.absent + source.unpaired == ()
    sample = source.load(0)
    assert first_row(sample.disparity, 2) == [8.5, NAN]
    assert sample.visible[0, :3].tolist() == [True, False, False]


@pytest.mark.parametrize("scene", ["data/chess1", "Adirondack-perfect"])
def test_middlebury_2014_and_2021_masks_from_both_ground_truths(scene: str, tmp_path: Path) -> None:
    folder = tmp_path / scene
    pair(folder / "im0.png", folder / "im1.png")
    text(folder / "calib.txt", MIDDLEBURY_CALIBRATION)
    pfm(folder / "disp0.pfm", [0, 2, np.inf, 2, 1, 1])  # matches 0, out of the image, -, 1, 3, 4
    pfm(folder / "disp1.pfm", [0.5, 2.9, 1, 9, 1, 1])
    source = open_data(f"middlebury:{tmp_path}")
    assert source.absent + source.unpaired == (
        "no mask0nocc.png for 1 pair: visible where both ground truths agree",
    )
    sample = source.load(0)
    assert sample.visible[0].tolist() == [True, False, False, True, False, True]


@pytest.mark.parametrize(
    ("scene", "left", "right", "truth", "factor"),
    [
        ("cones", "im2.png", "im6.png", "disp2.png", 4),
        ("barn1", "im2.ppm", "im6.ppm", "disp2.pgm", 8),
        ("tsukuba", "scene1.row3.col3.ppm", "scene1.row3.col4.ppm", "truedisp.row3.col3.pgm", 16),
    ],
)
def test_middlebury_2001_and_2003(
    scene: str, left: str, right: str, truth: str, factor: int, tmp_path: Path
) -> None:
    folder = tmp_path / scene
    size = (375, 8) if factor == 4 else (HEIGHT, WIDTH)
    pair(folder / left, folder / right, size)
    levels(folder / truth, [100, 0], size=size)
    if scene == "cones":  # the archive holds nine views
        pair(folder / "im0.png", folder / "im1.png", size)
    sample = open_data(f"middlebury:{tmp_path}").load(0)
    assert sample.name == scene
    assert sample.disparity[0, 0] == 100 / factor
    assert np.isnan(sample.disparity[0, 1])
    assert sample.visible is None


@pytest.mark.parametrize(
    ("height", "query", "divisor"), [(1110, "", 1), (555, "", 2), (370, "", 3), (4, "?size=T", 3)]
)
def test_middlebury_2005(height: int, query: str, divisor: int, tmp_path: Path) -> None:
    size = (height, 6)
    pair(tmp_path / "Art/view1.png", tmp_path / "Art/view5.png", size)
    levels(tmp_path / "Art/disp1.png", [120, 0], size=size)
    levels(tmp_path / "Art/disp5.png", [60], size=size)
    sample = open_data(f"middlebury:{tmp_path}{query}").load(0)
    assert sample.disparity[0, 0] == 120 / divisor
    assert np.isnan(sample.disparity[0, 1])
    assert sample.right_disparity[0, 0] == 60 / divisor


def test_middlebury_ground_truth_of_unknown_scale_is_an_error(tmp_path: Path) -> None:
    pair(tmp_path / "Art/view1.png", tmp_path / "Art/view5.png")
    levels(tmp_path / "Art/disp1.png", [120])
    with pytest.raises(InputError, match="4 px high"):
        open_data(f"middlebury:{tmp_path}").load(0)
    pair(tmp_path / "mine/im2.png", tmp_path / "mine/im6.png")
    levels(tmp_path / "mine/disp2.png", [120])
    with pytest.raises(InputError, match="folder name"):
        open_data(f"middlebury:{tmp_path}").load(1)
