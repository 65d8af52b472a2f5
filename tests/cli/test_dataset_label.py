"""pam dataset label: what agrees becomes a label, what is there stays, and the result can be learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pam_program import pam, refuse_all
from PIL import Image

from pamcli.data.open import open_data
from pamcli.inference.matcher import StereoMatcher
from pamcli.training.labels import CONTRADICTION, combine_networks, combine_with_blocks, find_labels

pytestmark = pytest.mark.usefixtures("remembering_networks")
NAN = np.nan


@pytest.fixture
def mine(here: Path, views: tuple[np.ndarray, np.ndarray]) -> Path:
    """Three pairs without a truth: two sound ones, and one of two walls without texture."""
    even = [np.full_like(views[0], 128)] * 2
    for name, pair in (("a", views), ("b", views), ("wall", even)):
        for side, view in zip(("left", "right"), pair, strict=True):
            (here / "mine" / side).mkdir(parents=True, exist_ok=True)
            Image.fromarray(view).save(here / "mine" / side / f"{name}.png")
    return here / "mine"


def test_labels_are_what_both_found_without_contradiction() -> None:
    network = np.array([[5.0, 5.0, NAN, 5.0, NAN, 9.0]], np.float32)
    blocks = np.array([[5.5, NAN, 4.0, 5.0 + 1.1 * CONTRADICTION, NAN, 9.0]], np.float32)
    expected = np.array([[5.25, 5.0, NAN, NAN, NAN, 9.0]], np.float32)
    np.testing.assert_array_equal(combine_with_blocks(network, blocks), expected)


def test_labels_of_two_networks_are_their_mean_where_they_agree() -> None:
    first = np.array([[5.0, 5.0, NAN, 5.0, NAN]], np.float32)
    second = np.array([[6.0, NAN, 4.0, 5.0 + 1.1 * CONTRADICTION, NAN]], np.float32)
    np.testing.assert_array_equal(combine_networks(first, second), [[5.5, NAN, NAN, NAN, NAN]])


def test_another_network_is_asked_instead_of_block_matching(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=1", "-o", "labelled", "--agree-with", "pasmnet"]
    run = pam(*label, "--device", "cpu", "--precision", "fp32")
    assert run.code == 0
    sample = open_data("pairs:labelled").load(0)
    ours, papers = (
        StereoMatcher.load(name, device="cpu", precision="fp32") for name in ("pasmnet2", "pasmnet")
    )
    expected = find_labels(ours, sample.left, sample.right, papers)
    np.testing.assert_allclose(sample.disparity, expected, atol=1e-4)
    alone = ours(sample.left, sample.right, extras={"visible"}).disparity_where(visible=True)
    known = np.isfinite(expected)
    assert 0.3 < known.mean() < np.isfinite(alone).mean(), (
        "where one finds nothing, or something else, there is none"
    )
    assert np.abs(expected - alone)[known & np.isfinite(alone)].max() <= CONTRADICTION / 2 + 1e-4


def test_pairs_get_labels_that_fit_them_and_can_be_learned_from(mine: Path) -> None:
    run = pam("dataset", "label", "pairs:mine", "-o", "labelled", "--device", "cpu", "--jsonl")
    assert run.code == 0
    assert [record["pair"] for record in run.records] == ["a", "b", "wall"]
    made = open_data("pairs:labelled")
    kept = [record["pair"] for record in run.records if record["kept"]]
    assert list(made.names) == kept
    assert {"a", "b"} <= set(kept)
    sample = made.load(0)
    known = np.isfinite(sample.disparity)
    assert known.mean() == pytest.approx(run.records[0]["labelled"])
    assert 0.3 < known.mean() < 1
    rows, columns = np.nonzero(known)
    match = np.rint(columns - sample.disparity[known]).astype(int)
    inside = match >= 0
    there = sample.right[rows[inside], match[inside]].astype(int)
    difference = np.abs(sample.left[known][inside].astype(int) - there).mean()
    shuffled = np.abs(sample.left[known][inside].astype(int) - np.roll(there, 999, 0)).mean()
    assert difference < 0.3 * shuffled
    assert np.array_equal(sample.left, np.asarray(Image.open("mine/left/a.png")))
    verified = pam("dataset", "verify", "pairs:labelled")
    assert verified.code == 0


def test_mirrored_pairs_are_pairs_of_their_own(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=1", "-o", "labelled", "--device", "cpu"]
    assert pam(*label).code == 0
    run = pam(*label, "--mirrored", "--jsonl")
    assert run.code == 0
    assert [record["pair"] for record in run.records] == ["a-mirrored"], "the other is there"
    made = open_data("pairs:labelled")
    assert list(made.names) == ["a", "a-mirrored"]
    plain, mirrored = made.load(0), made.load(1)
    assert np.array_equal(mirrored.left, np.fliplr(plain.right))
    assert np.array_equal(mirrored.right, np.fliplr(plain.left))
    known = np.isfinite(mirrored.disparity)
    assert known.mean() > 0.3
    # The right view's disparities, found again where the left view's labels say.
    rows, columns = np.nonzero(np.isfinite(plain.disparity))
    match = np.rint(columns - plain.disparity[rows, columns]).astype(int)
    rows, columns, match = (values[match >= 0] for values in (rows, columns, match))
    difference = mirrored.disparity[rows, 95 - match] - plain.disparity[rows, columns]
    assert np.nanmedian(np.abs(difference)) < 0.5


def test_a_second_call_goes_on_and_overwrites_only_when_asked(mine: Path) -> None:
    label = ["dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu"]
    assert pam(*label).code == 0
    (mine.parent / "labelled/right/b.png").unlink()
    run = pam(*label)
    assert run.code == 0
    assert "1 of 2 pairs have labels already" in run.stderr
    assert [line.partition(":")[0] for line in run.stdout.decode().splitlines()] == ["b"]
    assert Path("labelled/right/b.png").exists()
    np.save("labelled/disparity/a.npy", np.zeros((64, 96), np.float32))
    assert pam(*label).code == 0
    assert not np.load("labelled/disparity/a.npy").any(), "left as it was"
    assert pam(*label, "--overwrite", "--quiet").code == 0
    assert np.load("labelled/disparity/a.npy").any()


def test_a_damaged_image_is_one_line_and_the_others_are_labelled(mine: Path) -> None:
    (mine / "left/a.png").write_bytes(b"no picture")
    run = pam("dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu")
    assert run.code == 6
    assert "a: " in run.stderr
    assert open_data("pairs:labelled").names == ("b",)


def test_what_cannot_be_labelled_is_an_error(mine: Path) -> None:
    Path("full/left").mkdir(parents=True)
    Path("full/left/other.onnx").write_bytes(b"a network")
    for side in ("left", "right"):
        Path("twice", side).mkdir(parents=True)
        for name in ("a", "a-mirrored"):
            Path(f"twice/{side}/{name}.png").write_bytes((mine / side / "a.png").read_bytes())
    table = """
        2 procedural -o labelled | has ground truth at every pixel
        2 pairs:mine -o mine | is an input
        2 pairs:mine -o mine/left/a.png | is a file
        3 pairs:nowhere -o labelled | does not exist
        2 mine -o labelled | does not begin with the name of a data set
        2 pairs:twice -o labelled --mirrored | already called a-mirrored
        2 pairs:mine -o labelled --agree-with pasmnet2 | --agree-with pasmnet2 is the network
        2 pairs:mine -o full --agree-with full/left/other.onnx | is an input
        4 pairs:mine -o labelled --weights passrnet2-x4 | does not match images
    """
    refuse_all(table, "dataset label")


def test_a_pair_that_is_labelled_too_little_now_loses_its_labels(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = ["dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu"]
    assert pam(*label).code == 0
    monkeypatch.setattr("pamcli.training.labels.LEAST", 1.01)
    run = pam(*label, "--overwrite")
    assert "too few, skipped" in run.stdout.decode()
    assert "to train on these labels" not in run.stderr
    assert not any(path.is_file() for path in Path("labelled").rglob("*"))


LABEL = ["dataset", "label", "pairs:mine?first=2", "-o", "labelled", "--device", "cpu"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_changed_image_is_noticed_in_any_place(mine: Path, side: str) -> None:
    assert pam(*LABEL).code == 0
    before = np.load("labelled/disparity/b.npy")
    view = np.asarray(Image.open(f"mine/{side}/b.png")).copy()
    view[:2, :2] ^= 1  # next to nothing
    Image.fromarray(view).save(f"mine/{side}/b.png")
    run = pam(*LABEL)
    assert run.code == 2
    assert "labelled has labels of other images with the names of these pairs: b" in run.stderr
    assert "--overwrite" in run.stderr
    assert np.array_equal(np.load("labelled/disparity/b.npy"), before, equal_nan=True)
    run = pam(*LABEL, "--overwrite")
    assert run.code == 0
    assert "the images of b changed after labelling" in run.stderr
    assert np.array_equal(np.asarray(Image.open(f"labelled/{side}/b.png")), view)
    run = pam(*LABEL)
    assert (run.code, "2 of 2 pairs have labels already" in run.stderr) == (0, True)


def test_labels_that_are_deleted_are_named(mine: Path) -> None:
    assert pam(*LABEL).code == 0
    view = np.asarray(Image.open("mine/right/b.png"))
    Image.fromarray(255 - view[::-1]).save("mine/right/b.png")
    run = pam(*LABEL, "--overwrite")
    assert run.code == 0
    assert "warning: b: deleted its earlier labels" in run.stderr
    assert [path.name for path in Path("labelled/right").iterdir()] == ["a.png"]
