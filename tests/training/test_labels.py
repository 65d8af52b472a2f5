"""Labels of a pair: what the network saw of it, and what comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base

from pamcli.data.source import Sample, Source
from pamcli.errors import UsageError
from pamcli.imaging.matching import DenseMatch
from pamcli.inference.matcher import StereoMatcher
from pamcli.inference.result import StereoResult
from pamcli.training import labels
from pamcli.training.labels import find_labels, select_pairs_to_label

NAN = np.nan


@pytest.mark.parametrize(
    ("side", "resolutions"), [(100, [2.0]), (1000, [1.0, 1.5**0.5]), (1200, [1.0, 1.5**0.5 / 1.2])]
)
def test_labels_are_the_mean_of_two_resolutions_that_agree(
    monkeypatch: pytest.MonkeyPatch, side: int, resolutions: list[float]
) -> None:
    first = np.full((side, side), NAN, np.float32)
    first[0, :5] = [11, 14, 20, 20, 30]
    second = first + np.float32([0.5, 0, 0.5, 0, 1.5] + [0] * (side - 5))
    disparities = iter([first, second][: len(resolutions)])
    visible = np.ones((side, side), bool)
    visible[0, 3] = False
    blocks = np.full_like(first, NAN)
    blocks[0, :6] = [10, 10, NAN, NAN, NAN, 7]
    sizes = []

    def found(self: StereoMatcher, left: object, right: object, *, extras: set[str]) -> StereoResult:
        assert extras == {"visible"}
        sizes.append(self.match_size)
        return StereoResult(next(disparities), None, visible, None)

    def matched(left: NDArray[np.uint8], right: NDArray[np.uint8], low: int, high: int) -> DenseMatch:
        return DenseMatch(blocks, blocks, np.isfinite(blocks), np.isfinite(blocks))

    monkeypatch.setattr(StereoMatcher, "__call__", found)
    monkeypatch.setattr(labels, "match_densely", matched)
    view = np.zeros((side, side, 3), np.uint8)
    label = find_labels(StereoMatcher.load(device="cpu"), view, view)
    assert sizes == pytest.approx(resolutions)
    expected = [10.625, NAN, 20.25, NAN, NAN, NAN] if len(resolutions) == 2 else [10.5, NAN, 20, NAN, 30, NAN]
    np.testing.assert_array_equal(label[0, :6], expected)
    assert np.isnan(label[1:]).all()


class Named(Source):
    """Pairs of these names, which are never loaded."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def load(self, index: int) -> Sample:
        raise AssertionError


@pytest.mark.parametrize("names", [("a/b", "a_b"), ("a/b_c", "d", "a_b/c")])
def test_pairs_whose_labels_would_be_one_file_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"{names[0]} and {names[-1]} share a label file"):
        select_pairs_to_label(Named(*names), tmp_path, mirrored=False, overwrite=False)
    assert [*select_pairs_to_label(Named("a/b", "a/c"), tmp_path, mirrored=True, overwrite=True)] == [
        "a/b",
        "a/c",
        "a/b-mirrored",
        "a/c-mirrored",
    ]


class Held(Named):
    """Pairs of evenly coloured images."""

    def __init__(self, *colours: int) -> None:
        super().__init__(*(f"{index:03d}" for index in range(len(colours))))
        self.colours = colours

    def load(self, index: int) -> Sample:
        view = np.full((48, 64, 3), self.colours[index], np.uint8)
        return Sample(self.names[index], view, view)


def test_labels_of_other_pairs_with_the_same_names_are_refused(tmp_path: Path) -> None:
    first, notes = Held(90, 20), Image.Exif()
    sample = first.load(0)
    notes[Base.ImageDescription] = labels.HASH_NOTE + labels._hash([sample.left, sample.right])
    for part in ("left", "right", "disparity"):
        (tmp_path / part).mkdir()
    for side in ("left", "right"):
        Image.new("RGB", (64, 48), (90, 90, 90)).save(tmp_path / side / "000.png", exif=notes)
    np.save(tmp_path / "disparity/000.npy", np.ones((48, 64), np.float32))
    assert [*select_pairs_to_label(first, tmp_path, mirrored=False, overwrite=False)] == ["001"]
    assert [*select_pairs_to_label(first, tmp_path, mirrored=False, overwrite=True)] == ["000", "001"]
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"has labels of other images .* 000"):
            select_pairs_to_label(Held(150, 20), tmp_path, mirrored=False, overwrite=overwrite)


def test_foreign_disparity_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "disparity").mkdir()
    for name in ("000", "001"):
        (tmp_path / f"disparity/{name}.npy").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"not labels, such as .*000\.npy"):
        select_pairs_to_label(Held(90, 20), tmp_path, mirrored=False, overwrite=False)
    (tmp_path / "disparity/001.npy").unlink()  # what a run that was killed leaves
    assert len(select_pairs_to_label(Held(90, 20), tmp_path, mirrored=False, overwrite=False)) == 2
    truth = [tmp_path / "disparity/000.npy"]
    with pytest.raises(UsageError, match="is an input"):
        select_pairs_to_label(Held(90, 20), tmp_path, mirrored=False, overwrite=True, truths=truth)
