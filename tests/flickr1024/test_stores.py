"""Both kinds of store hold the authors' patches, are read as a data set, and notice damage."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published import LARGE, SMALL, authors_patches, png, tree, views

from pamcli.data.open import open_data
from pamcli.data.source import Source
from pamcli.data.verify import verify
from pamcli.errors import InputError, UsageError
from pamcli.flickr1024.pairs import find_published_pairs
from pamcli.flickr1024.prepare import make_store
from pamcli.flickr1024.stores import Index, StoreName

STORES: tuple[StoreName, ...] = ("packed", "folders")
NAMES = {"packed": "x2", "folders": "patches_x2"}
both_stores = pytest.mark.parametrize("store", STORES)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Two pairs with eight patches at x2, and one that is too small for any."""
    return tree(tmp_path / "in", {"Train/0001": LARGE, "Train/0002": SMALL, "Train/0003": (100, 60)})


def prepare_store(published: Path, store: StoreName = "packed", split: str = "train") -> Index:
    pairs = find_published_pairs(published, split).pairs
    return make_store(pairs, published.parent / "out", 2, store, split)[1]


def pixels_of(source: Source) -> list[tuple[np.ndarray, ...]]:
    samples = [source.load(index) for index in range(len(source))]
    return [(each.left, each.right, each.low_left, each.low_right) for each in samples]  # type: ignore[misc]


def wanted(published: Path) -> list[tuple[np.ndarray, ...]]:
    """Patches by the transcription of the authors' script."""
    patches: list[tuple[np.ndarray, ...]] = []
    for name in ("0001", "0002", "0003"):
        pictures = (np.asarray(Image.open(published / f"Train/{name}_{side}.png")) for side in "LR")
        patches += authors_patches(*pictures, 2)
    return patches


@both_stores
def test_a_store_holds_the_patches_of_the_authors_script(published: Path, store: StoreName) -> None:
    index = prepare_store(published, store)
    assert index.sources() == {"flickr1024": {"pairs": 3, "patches": 8}}
    source = open_data(f"flickr1024:{published.parent}/out")
    assert source.names == tuple(f"{number:06d}" for number in range(1, 9))
    source.load(0)  # what is open stays behind
    source = pickle.loads(pickle.dumps(source))
    for made, authors in zip(pixels_of(source), wanted(published), strict=True):
        for ours, theirs in zip(made, authors, strict=True):
            assert ours.dtype == np.uint8
            np.testing.assert_array_equal(ours, theirs)


def test_the_packed_pixels_can_be_opened_with_numpy_alone(published: Path) -> None:
    prepare_store(published)
    folder = published.parent / "out" / "x2"
    pixels = np.load(folder / "pixels.npy", mmap_mode="r")
    index = json.loads((folder / "index.json").read_text())
    (second,) = (picture for picture in index["pictures"] if picture["name"] == "0002")
    height, width, start = second["height"], second["width"], second["offset"]
    high = pixels[start : start + 6 * height * width].reshape(height, 2, width, 3)
    for side, view in enumerate(views(SMALL, seed=int.from_bytes(b"0002", "big"))):
        np.testing.assert_array_equal(high[:, side], view[:height, :width])


def test_two_stores_side_by_side_have_one_manifest(published: Path) -> None:
    for store in STORES:
        prepare_store(published, store)
    out = published.parent / "out"
    assert (out / "patches_x2.csv").read_bytes() == (out / "x2/manifest.csv").read_bytes()
    rows = list(csv.DictReader((out / "patches_x2.csv").read_text().splitlines()))
    assert [row["patch"] for row in rows] == [f"{number:06d}" for number in range(1, 9)]
    place = {"source": "flickr1024", "picture": "0001", "row": "22", "column": "22"}
    assert rows[4].items() >= {"patch": "000005", **place, "height": "30", "width": "90"}.items()
    assert len({row["sha256"] for row in rows}) == 8
    with pytest.raises(UsageError, match="contains x2 and patches_x2"):
        open_data(f"flickr1024:{out}")
    assert len(open_data(f"flickr1024:{out}/x2")) == len(open_data(f"flickr1024:{out}/patches_x2")) == 8


@both_stores
def test_verify_finds_every_changed_patch_and_nothing_else(published: Path, store: StoreName) -> None:
    prepare_store(published, store)
    out = published.parent / "out"
    assert verify(open_data(f"flickr1024:{out}")) == []
    if store == "packed":
        with open(out / "x2/pixels.npy", "r+b") as stream:
            stream.seek(-10, 2)  # the last patch is not that far at the edge: a pixel that is in none
            stream.write(b"\0")
            stream.seek(128 + 5 * 6 * 284 + 30)  # row 5 of the first pair, left view, column 10
            stream.write(b"\7\7\7\7\7\7")
    else:
        (out / "patches_x2/000001/lr1.png").write_bytes(png(np.zeros((30, 90, 3), np.uint8)))
    (finding,) = verify(open_data(f"flickr1024:{out}"))
    assert (finding.sample, finding.severity) == ("000001", "damage")
    assert "its pixels differ from the checksum" in finding.message


def test_the_whole_images_of_a_packed_store(published: Path) -> None:
    prepare_store(published)
    source = open_data(f"flickr1024:{published.parent}/out?view=pictures")
    assert source.names == ("flickr1024/0001", "flickr1024/0002", "flickr1024/0003")
    sample = pickle.loads(pickle.dumps(source)).load(0)
    left, right = (np.asarray(Image.open(published / f"Train/0001_{side}.png")) for side in "LR")
    np.testing.assert_array_equal(sample.left, left[:122, :284])
    np.testing.assert_array_equal(sample.right, right[:122, :284])
    assert sample.low_left.shape == (61, 142, 3)


def test_damaged_stores_are_named(published: Path) -> None:
    prepare_store(published)
    folder = published.parent / "out" / "x2"
    pixels = (folder / "pixels.npy").read_bytes()
    (folder / "pixels.npy").write_bytes(pixels[: len(pixels) // 2])
    with pytest.raises(InputError, match=r"pixels\.npy is damaged or truncated"):
        open_data(f"flickr1024:{folder}").load(0)
    (folder / "pixels.npy").write_bytes(pixels)
    index = json.loads((folder / "index.json").read_text())
    index["pictures"][-1]["offset"] += 1
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"pixels\.npy is damaged: .*index\.json"):
        open_data(f"flickr1024:{folder}").load(0)
    (folder / "index.json").unlink()
    with pytest.raises(InputError, match=r"index\.json is missing"):
        open_data(f"flickr1024:{folder}")


def test_a_store_of_another_split_is_not_taken_for_it(published: Path) -> None:
    tree(published, {"Test/0001": LARGE})
    prepare_store(published, split="test")
    out = published.parent / "out"
    assert len(open_data(f"flickr1024/test:{out}")) == 6
    with pytest.raises(InputError, match="patches of the split test, not validation"):
        open_data(f"flickr1024/validation:{out}")


def test_the_authors_own_tree_is_read_without_a_manifest(published: Path) -> None:
    prepare_store(published, "folders")
    out = published.parent / "out"
    (out / "patches_x2.csv").unlink()
    (out / "patches_x2.json").unlink()
    names = ["hr0.png", "hr1.png", "lr0.png", "lr1.png"]
    assert sorted(path.name for path in (out / "patches_x2/000001").iterdir()) == names
    source = open_data(f"flickr1024:{out}")
    assert len(source) == 8
    assert len(source.absent) == 1
    (out / "patches_x2/000003/hr1.png").write_bytes(png(views(SMALL)[0]))
    with pytest.raises(InputError, match=r"000003/hr1\.png must have the size of the left image"):
        source.load(2)
