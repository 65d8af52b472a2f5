"""Patches are those of the authors' script, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published import LARGE, SMALL, authors_patches, png, tree, views

from pamcli.errors import InputError
from pamcli.flickr1024.pairs import ImageLocation, Pair
from pamcli.flickr1024.stores import compute_crop, cut_patch, list_corners, read_views


def pair_of(folder: Path, size: tuple[int, int], halved: bool = False) -> Pair:
    tree(folder, {"a": size})
    return Pair(
        "flickr1024", "a", ImageLocation(folder / "a_L.png"), ImageLocation(folder / "a_R.png"), halved
    )


@pytest.mark.parametrize(
    ("size", "scale", "halved", "count"),
    [
        (LARGE, 2, False, 6),
        ((471, 187), 4, False, 2),
        ((483, 203), 2, True, 2),  # odd sides: half of them is rounded up
        ((192, 72), 2, False, 1),  # the smallest
    ],
)
def test_patches_equal_a_transcription_of_the_script(
    tmp_path: Path, size: tuple[int, int], scale: int, halved: bool, count: int
) -> None:
    pair = pair_of(tmp_path, size, halved)
    cut = read_views(pair, scale)
    wanted = authors_patches(*(location.read().pixels for location in (pair.left, pair.right)), scale, halved)
    places = list_corners(*cut.low.shape[::2][:2])
    assert len(places) == len(wanted) == count
    assert cut.high.shape[:3] == (
        compute_crop(*size, scale, halved)[1],
        2,
        compute_crop(*size, scale, halved)[0],
    )
    for (row, column), parts in zip(places, wanted, strict=True):
        patch = cut_patch(cut, row, column)
        made = (patch.high_left, patch.high_right, patch.low_left, patch.low_right)
        for ours, authors in zip(made, parts, strict=True):
            np.testing.assert_array_equal(ours, authors)
            assert ours.flags.c_contiguous
            assert ours.flags.writeable


def test_the_bounds_are_those_of_the_script() -> None:
    assert list_corners(36, 96) == [(2, 2)]
    assert list_corners(35, 96) == list_corners(36, 95) == []
    assert list_corners(55, 96) == [(2, 2)]
    assert list_corners(56, 116) == [(2, 2), (2, 22), (22, 2), (22, 22)]


def test_views_of_two_sizes_are_refused_with_both_named(tmp_path: Path) -> None:
    pair = pair_of(tmp_path, SMALL)
    (tmp_path / "a_R.png").write_bytes(png(views((240, 101))[1]))
    with pytest.raises(InputError, match=r"a_L.png is 241x101, but .*a_R.png is 240x101"):
        read_views(pair, 2)
