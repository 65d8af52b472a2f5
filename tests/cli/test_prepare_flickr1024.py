"""pam dataset prepare-flickr1024: what a user types, what comes of it, and what goes wrong."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pam_program import Run, files, forked, gate, names, pam, refuse, refuse_all, unchanged
from published import LARGE, SMALL, archive, tree
from published import files as pictures

from pamcli.cli.progress import Progress
from pamcli.evaluation.image_quality import CNNIQA
from pamcli.files import atomic
from pamcli.flickr1024 import resumable

PREPARE = ["dataset", "prepare-flickr1024", "Flickr1024/", "-o", "out", "--scale", "2", "--workers", "1"]


@pytest.fixture
def published(here: Path) -> Path:
    """Two training pairs with eight patches at x2, one pair for tests."""
    return tree(here / "Flickr1024", {"Train/0001": LARGE, "Train/0002": SMALL, "Test/0001": SMALL})


@pytest.fixture
def middlebury(here: Path) -> Path:
    """One scene, with one patch at x2 once it is halved."""
    for name, data in pictures({"a": (400, 150)}).items():
        path = here / "midd/Piano" / {"a_L.png": "im0.png", "a_R.png": "im1.png"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return here / "midd"


def result(run: Run) -> list[str]:
    assert run.code == 0, run.stderr
    return run.lines


@pytest.mark.usefixtures("published")
def test_patches_of_the_published_set_with_counts_and_a_data_set_that_can_be_read() -> None:
    run = pam(*PREPARE)
    assert result(run) == ["out/x2: flickr1024: 2 pairs, 8 patches", "out/x2: 2 pairs, 8 patches"]
    assert run.complaints == [
        "not included: 1 pair of test (--split)",
        "8 patches of 2 pairs, about 0.4 MB to write",
    ]
    assert names("out") == ["x2/index.json", "x2/manifest.csv", "x2/pixels.npy"]
    assert result(pam("dataset verify flickr1024:out")) == [
        "flickr1024:out: 8 pairs, 0 damage, 0 incomplete; layout unverified: the names of the images"
    ]
    assert result(pam("dataset", "preview", "flickr1024:out", "-o", "sheet.png", "-q")) == ["sheet.png"]
    run = pam("dataset", "stats", "out", "--workers", "1", "--jsonl")
    (record,) = run.records
    assert (record["data"], record["pairs"], record["cnniqa"]) == ("flickr1024:out", 2, None)
    assert record["pixels"] == (284 * 122 + 240 * 100) / 2


@pytest.mark.usefixtures("published", "middlebury")
def test_added_sets_a_list_and_the_authors_tree() -> None:
    Path("names.txt").write_text("0002\nmiddlebury/*\n")
    more = ["--add", "middlebury:midd", "--list", "names.txt", "--store", "folders", "--jsonl"]
    run = pam(*PREPARE, *more)
    (record,) = run.records
    assert record == {
        "kind": "patches",
        "path": "out/patches_x2",
        "scale": 2,
        "store": "folders",
        "split": "train",
        "pairs": 2,
        "patches": 3,
        "sources": {"middlebury": {"pairs": 1, "patches": 1}, "flickr1024": {"pairs": 1, "patches": 2}},
        "left_out": [],
    }
    assert "names.txt selects 2 of 3 pairs" in run.complaints
    assert len(names("out/patches_x2")) == 3 * 4
    # The authors number Middlebury first.
    assert Path("out/patches_x2.csv").read_text().splitlines()[1].startswith("000001,middlebury,Piano,2,2,")


def test_archives_and_other_layouts_give_the_same_patches(published: Path) -> None:
    whole = pam(*PREPARE)
    assert whole.code == 0
    archive(Path("zips/Train.zip"), pictures({"Train/0001": LARGE, "Train/0002": SMALL}))
    archive(Path("zips/Test.zip"), pictures({"0001": SMALL}))
    for number, given in enumerate((["zips"], ["zips/Train.zip"], ["Flickr1024/Train"])):
        out = f"out{number}"
        result(pam("dataset", "prepare-flickr1024", *given, "-o", out, "--scale", "2", "--workers", "1"))
        assert files(Path(out)) == files(Path("out"))
    for side, folder in (("L", "left"), ("R", "right")):
        for name in ("0001", "0002"):
            Path("own", folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(published / f"Train/{name}_{side}.png", f"own/{folder}/{name}.png")
    run = pam("dataset", "prepare-flickr1024", "pairs:own", "-o", "own2", "--scale", "2", "--workers", "1")
    assert result(run)[-1] == "own2/x2: 2 pairs, 8 patches"
    assert Path("own2/x2/pixels.npy").read_bytes() == Path("out/x2/pixels.npy").read_bytes()


@pytest.mark.parametrize("store", ["packed", "folders"])
@pytest.mark.usefixtures("published")
def test_any_number_of_workers_gives_the_same_bytes(store: str) -> None:
    for workers in ("1", "2"):
        command = [*PREPARE[:4], f"out{workers}", *PREPARE[5:-1], workers, "--store", store]
        assert result(pam(*command))[-1].endswith(": 2 pairs, 8 patches")
    assert files(Path("out1")) == files(Path("out2"))


@pytest.mark.parametrize(
    ("store", "number"),
    [("packed", signal.SIGKILL), ("folders", signal.SIGTERM)],
    ids=["packed SIGKILL", "folders SIGTERM"],
)
def test_a_run_that_is_stopped_goes_on_and_ends_in_the_same_bytes(
    here: Path, store: str, number: signal.Signals
) -> None:
    tree(here / "Flickr1024", {f"Train/{index:04d}": LARGE for index in range(1, 9)})
    prepare = ["dataset", "prepare-flickr1024", "Flickr1024", "--scale", "2", "--store", store]
    result(pam(*prepare, "-o", "whole", "--workers", "1"))
    name = "x2" if store == "packed" else "patches_x2"
    with gate(Progress, "advance", 0), forked(*prepare, "-o", "out", "--workers", "2") as running:
        with open("gate", "wb"):  # which waits until the first pair is done
            running.send_signal(number)
        assert running.wait() == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    assert not Path("out", name).exists()
    refuse(pam("dataset", "verify", "flickr1024:out"), 3, "unfinished", "repeat the command that started it")
    run = pam(*prepare, "-o", "out", "--workers", "1")
    assert result(run)[-1] == f"out/{name}: 8 pairs, 48 patches"
    assert any(line.startswith(f"out/{name} is resumed: ") for line in run.complaints)
    assert files(Path("out")) == files(Path("whole"))


@pytest.mark.usefixtures("published")
def test_a_finished_folder_is_left_as_it_is() -> None:
    first = pam(*PREPARE)
    with unchanged():
        again = pam(*PREPARE)
    assert result(again) == result(first)
    assert "out/x2 is already complete" in again.complaints


@pytest.mark.usefixtures("published", "middlebury")
def test_a_folder_of_other_options_or_images_is_refused() -> None:
    result(pam(*PREPARE))
    with unchanged():
        run = pam(*PREPARE, "--add", "middlebury:midd")
        refuse(_without_notes(run), 2, "out/x2 was made with other images: 2, now 3")
        run = pam(*PREPARE, "--split", "test")
        refuse(_without_notes(run), 2, "out/x2 was made with another split: train, now test")
    result(pam(*PREPARE, "--store", "folders"))  # another store and another scale stand beside
    shutil.rmtree("out/x2")
    Path("Flickr1024/Train/0001_R.png").write_bytes(b"no picture")
    assert pam(*PREPARE).code == 6
    with unchanged():
        run = pam(*PREPARE, "--add", "middlebury:midd")
        refuse(_without_notes(run), 2, "out/x2.unfinished was started with other images: 2, now 3")


def _without_notes(run: Run) -> Run:
    lines = [line for line in run.stderr.splitlines() if "(--split)" not in line]
    return Run(run.code, run.stdout, "\n".join(lines))


@pytest.mark.usefixtures("published")
def test_a_folder_that_holds_something_else_is_refused() -> None:
    Path("Flickr1024/Test").rename("Test")
    for place in ("mixed/notes.txt", "foreign/x2/pixels.npy", "file"):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()
    os.symlink("loop", "loop")
    broken = tree(Path("broken"), {"0001": SMALL}) / "0001_L.png"
    broken.write_bytes(b"no picture")
    table = """
        2 Flickr1024 -o mixed | mixed holds files that pam did not write: notes.txt
        2 Flickr1024 -o foreign | foreign/x2 already exists
        2 Flickr1024 -o file | file is a file
        2 Flickr1024 -o Flickr1024/out | Flickr1024/out | inside
        7 Flickr1024 -o loop | cannot write loop
        3 broken -o out | broken/0001_L.png is not an image | --skip-damaged
    """
    refuse_all(table, "dataset prepare-flickr1024 --scale 2 --workers 1")


@pytest.mark.usefixtures("published")
def test_a_truncated_image_is_named_the_rest_done_and_once_mended_it_goes_on() -> None:
    result(pam(*PREPARE[:4], "whole", *PREPARE[5:]))
    broken = Path("Flickr1024/Train/0001_R.png")
    good = broken.read_bytes()
    broken.write_bytes(good[:2000])
    run = pam(*PREPARE, "-q")
    assert (run.code, run.lines) == (6, [])
    assert run.complaints == [
        f"error: flickr1024/0001: {broken} is damaged or truncated: the file ends too early"
    ]
    broken.write_bytes(good)
    assert result(pam(*PREPARE))[-1] == "out/x2: 2 pairs, 8 patches"
    assert files(Path("out")) == files(Path("whole"))


@pytest.mark.parametrize(("store", "size"), [("packed", 2000), ("folders", 20)])
@pytest.mark.usefixtures("published")
def test_damaged_images_can_be_left_out(store: str, size: int) -> None:
    broken = Path("Flickr1024/Train/0001_L.png")
    broken.write_bytes(broken.read_bytes()[:size])
    run = pam(*PREPARE, "--store", store, "--skip-damaged")
    assert result(run)[-1].endswith("1 pair, 2 patches, 1 pair left out")
    assert any("warning: flickr1024/0001: " in line for line in run.complaints)
    assert pam("dataset verify flickr1024:out").lines[-1].startswith("flickr1024:out: 2 pairs, 0 damage")


@pytest.mark.usefixtures("published")
def test_lone_views_are_named_and_can_be_left_out() -> None:
    Path("Flickr1024/Train/0002_R.png").unlink()
    with unchanged():
        refuse(pam(*PREPARE), 2, "Flickr1024/Train/0002_L.png has no right image", "--skip-unpaired")
    run = pam(*PREPARE, "--skip-unpaired")
    assert result(run)[-1] == "out/x2: 1 pair, 6 patches"
    assert "warning: Flickr1024/Train/0002_L.png has no right image and is excluded" in run.complaints


@pytest.mark.usefixtures("published")
def test_a_disk_that_is_too_small_is_told_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(resumable.shutil, "disk_usage", lambda path: usage)
    with unchanged():
        run = _without_notes(pam(*PREPARE))
        refuse(run, 7, "out/x2 needs about 0.000442 GB, but only 1e-06 GB", "free some space")


@pytest.mark.parametrize("store", ["packed", "folders"])
@pytest.mark.usefixtures("published")
def test_a_disk_that_fills_up_is_one_line_and_the_run_goes_on_once_there_is_room(store: str) -> None:
    result(pam(*PREPARE[:4], "whole", *PREPARE[5:], "--store", store))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic.os, "replace", _until_full(2 if store == "packed" else 20))
        run = pam(*PREPARE, "--store", store, "-q")
        refuse(run, 7, "no space left on device", "free some space")
    assert result(pam(*PREPARE, "--store", store))[-1].endswith(": 2 pairs, 8 patches")
    assert files(Path("out")) == files(Path("whole"))


@pytest.mark.usefixtures("published")
def test_a_disk_without_room_for_the_pixels_is_told_before_any_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int, offset: int, count: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    run = pam(*PREPARE, "-q")
    refuse(run, 7, "cannot write out/x2.unfinished/store/pixels.npy: no space left on device")
    assert names("out") == ["x2.unfinished/job.json"]


def _until_full(count: int) -> Callable[[Path, Path], None]:
    left = iter(range(count))

    def replace(source: Path, target: Path) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(source, target)

    return replace


@pytest.mark.usefixtures("published")
def test_options_that_make_no_sense() -> None:
    tree(Path("tiny"), {"0001": (190, 90)})
    archive(Path("unsafe/more.zip"), {"0009_L.bmp": bytes(20 << 20)})
    table = """
        2 Flickr1024 | --scale | --from-stereograms
        2 Flickr1024 --scale 2 --layout cross | --layout requires --from-stereograms
        2 Flickr1024 --from-stereograms --infinity no --add pairs:x | --add requires --scale
        3 Flickr1024 --scale 2 --list none.txt | cannot read none.txt
        2 Flickr1024 --scale 2 --add kity2015:x | unknown data set 'kity2015'
        3 Flickr1024 --scale 2 --add kitti2015:x | x does not exist
        2 Flickr1024 --scale 3 | --scale | --help lists all options
        2 Flickr1024 --scale 2 --workers 0 | --workers | --help lists all options
        3 none --scale 2 | none does not exist
        3 tiny --scale 2 | too small for a patch | 192x72
        3 unsafe --scale 2 | unsafe/more.zip is unsafe | to 20,971,520 bytes
    """
    refuse_all(table, "dataset prepare-flickr1024 -o out")


# --- stats --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("published")
def test_stats_beside_the_papers_table() -> None:
    run = pam("dataset stats flickr1024:Flickr1024 --workers 1")
    assert run.lines[0].split()[:4] == ["data", "pairs", "pixels", "per"]
    assert run.lines[1].split()[:3] == ["flickr1024:Flickr1024", "2", "29698"]
    assert "not computed: CNNIQA requires --cnniqa FILE; SR-metric requires pyiqa" in run.complaints[0]


@pytest.mark.usefixtures("published")
def test_stats_with_the_image_quality_of_both_views() -> None:
    torch.manual_seed(0)
    torch.save(CNNIQA().state_dict(), "weights")
    stats = ["dataset", "stats", "flickr1024:Flickr1024", "--workers", "1", "--cnniqa", "weights"]
    (record,) = pam(*stats, "--jsonl").records
    assert record["cnniqa"] == pytest.approx((record["cnniqa_left"] + record["cnniqa_right"]) / 2)
    run = pam(*stats)
    assert run.lines[0].split()[-3:] == ["CNNIQA", "left", "right"]
    assert run.lines[1].split()[-3] == f"{record['cnniqa']:.2f}"
    words = run.lines[3].split()
    assert (words[:7], words[-3]) == (["KITTI", "2012", "in", "the", "paper", "194", "462564"], "20.32")
    refuse(pam(*stats[:-1], "none"), 4, "checkpoint none does not exist")


@pytest.mark.usefixtures("published")
def test_stats_names_copies_and_damage_and_ends_with_3() -> None:
    for side in "LR":
        shutil.copy(f"Flickr1024/Train/0002_{side}.png", f"Flickr1024/Train/0003_{side}.png")
    shutil.copy("Flickr1024/Train/0001_L.png", "Flickr1024/Train/0001_R.png")
    tree(Path("Flickr1024"), {"Train/0004": SMALL})
    Path("Flickr1024/Train/0004_R.png").write_bytes(b"no picture")
    run = pam("dataset", "stats", "flickr1024:Flickr1024", "--workers", "1", "-q")
    assert run.code == 3
    assert run.lines[:2] == [
        "flickr1024:Flickr1024: 0003 is a copy of 0002",
        "flickr1024:Flickr1024: left and right of 0001 are the same image",
    ]
    (line,) = run.complaints
    assert line.startswith("error: flickr1024:Flickr1024: 0004: Flickr1024/Train/0004_R.png is not an image")


@pytest.mark.usefixtures("published")
def test_stats_of_a_tree_of_patches_says_that_it_is_of_patches() -> None:
    result(pam(*PREPARE, "--store", "folders"))
    run = pam("dataset", "stats", "out/patches_x2", "--workers", "1", "--count", "3", "--jsonl")
    assert "patches without their images" in run.complaints[0]
    assert run.records[0]["pairs"] == 3


@pytest.mark.parametrize("store", ["packed", "folders"])
def test_names_that_are_no_utf_8(here: Path, store: str) -> None:
    tree(here / "Flickr1024", {"Train/0001": SMALL})
    for side in "LR":
        os.rename(
            f"Flickr1024/Train/0001_{side}.png", os.fsdecode(b"Flickr1024/Train/\xff_%s.png" % side.encode())
        )
    run = pam(*PREPARE, "--store", store)
    assert result(run)[-1] == {"packed": "out/x2: 1 pair, 2 patches"}.get(
        store, "out/patches_x2: 1 pair, 2 patches"
    )
    assert "already complete" in pam(*PREPARE, "--store", store).stderr
    manifest = Path("out/x2/manifest.csv" if store == "packed" else "out/patches_x2.csv").read_bytes()
    assert manifest.splitlines()[1].startswith(b"000001,flickr1024,\xff,")
    assert result(pam("dataset", "verify", "flickr1024:out"))
