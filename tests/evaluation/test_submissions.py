"""Submissions to the benchmarks: written, verified, and refused for every fault a server would find."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pamcli.errors import InputError, OutputError, UsageError
from pamcli.evaluation.submissions import (
    KINDS,
    Prediction,
    Submission,
    require_complete,
    rules_of,
    verify_submission,
    write_submission,
)
from pamcli.imaging.disparity_files import encode_disparity

HEIGHT, WIDTH = 3, 8
DISPARITY = np.linspace(0.5, 7.5, HEIGHT * WIDTH, dtype=np.float32).reshape(HEIGHT, WIDTH)

NAMES = {
    "kitti2012": [f"{index:06}_10" for index in range(195)],
    "kitti2015": [f"testing/{index:06}_10" for index in range(200)],
    "middlebury": [*rules_of("middlebury").training, *rules_of("middlebury").test],
    "eth3d": [*rules_of("eth3d").training, *rules_of("eth3d").test],
}
FILES = {"kitti2012": 195, "kitti2015": 200, "middlebury": 60, "eth3d": 94}


def predictions(names: list[str]) -> Iterator[Prediction]:
    for name in names:
        yield Prediction(name, DISPARITY, 0.25, (HEIGHT, WIDTH))


def written(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.zip"
    path.write_bytes(archive_of(kind))
    return path


@cache
def archive_of(kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.zip"
        write_submission(path, kind, predictions(NAMES[kind]))
        return path.read_bytes()


def changed(path: Path, *, drop: tuple[str, ...] = (), add: dict[str, bytes] | None = None) -> Path:
    """A copy of an archive without some files and with others, in the place of theirs or besides."""
    target = path.with_name("changed.zip")
    replaced = add or {}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            if info.filename not in drop and info.filename not in replaced:
                new.writestr(info, old.read(info))
        for name, data in replaced.items():
            new.writestr(name, data)
    return target


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_verified(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new" / "results.zip"
    submission = write_submission(path, kind, predictions(NAMES[kind]))
    assert (submission.kind, submission.pictures, submission.files) == (kind, len(NAMES[kind]), FILES[kind])
    sizes = {name.rpartition("/")[2]: (HEIGHT, WIDTH) for name in NAMES[kind]}
    assert verify_submission(path, kind, picture_sizes=sizes) == submission
    assert list(path.parent.iterdir()) == [path]


def test_the_names_are_those_of_the_benchmarks(tmp_path: Path) -> None:
    held = {kind: zipfile.ZipFile(written(tmp_path, kind)).namelist() for kind in KINDS}
    assert (held["kitti2012"][0], held["kitti2012"][-1]) == ("000000_10.png", "000194_10.png")
    assert (held["kitti2015"][0], held["kitti2015"][-1]) == ("disp_0/000000_10.png", "disp_0/000199_10.png")
    assert held["middlebury"][:2] == ["trainingH/Adirondack/disp0PAM.pfm", "trainingH/Adirondack/timePAM.txt"]
    assert held["middlebury"][-1] == "testH/Staircase/timePAM.txt"
    assert held["eth3d"][:2] == [
        "low_res_two_view/delivery_area_1l.pfm",
        "low_res_two_view/delivery_area_1l.txt",
    ]


def test_the_files_hold_disparity_and_runtime(tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path, "kitti2015")) as archive:
        stored = np.asarray(Image.open(io.BytesIO(archive.read("disp_0/000007_10.png"))))
    np.testing.assert_array_equal(stored, np.rint(DISPARITY * 256))
    with zipfile.ZipFile(written(tmp_path, "middlebury")) as archive:
        data = archive.read("testH/Hoops/disp0PAM.pfm")
        assert archive.read("testH/Hoops/timePAM.txt") == b"0.25"
    assert data == b"Pf\n8 3\n-1.0\n" + DISPARITY[::-1].tobytes()
    with zipfile.ZipFile(written(tmp_path, "eth3d")) as archive:
        assert archive.read("low_res_two_view/forest_1s.txt") == b"runtime 0.25"


def test_the_same_results_are_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "again.zip"
    write_submission(path, "middlebury", predictions(NAMES["middlebury"]))
    assert path.read_bytes() == archive_of("middlebury")


def test_middlebury_files_carry_the_name_of_the_method_and_the_size(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    names = [f"trainingQ/{scene}" for scene in rules_of("middlebury").training]
    write_submission(path, "middlebury", predictions(names), method="Mine-2", size="Q")
    assert "trainingQ/Teddy/disp0Mine-2.pfm" in zipfile.ZipFile(path).namelist()
    assert verify_submission(path, "middlebury").pictures == 15
    for bad in ("a b", "", "../x", "PAM_s"):
        with pytest.raises(UsageError, match="method"):
            write_submission(path, "middlebury", predictions(names), method=bad)
    with pytest.raises(UsageError, match="size"):
        write_submission(path, "middlebury", predictions(names), size="X")


def test_training_scenes_may_stand_alone_but_test_scenes_may_not(tmp_path: Path) -> None:
    path = tmp_path / "e.zip"
    submission = write_submission(path, "eth3d", predictions(list(rules_of("eth3d").training)))
    assert (submission.pictures, submission.files) == (27, 54)
    assert "only the 27 training scenes" in submission.notes[0]
    with pytest.raises(InputError, match="27 pictures missing: delivery_area_1l"):
        write_submission(path, "eth3d", predictions(list(rules_of("eth3d").test)))


def test_notes_say_what_is_unverified_and_unchecked(tmp_path: Path) -> None:
    path = written(tmp_path, "eth3d")
    notes = verify_submission(path, "eth3d").notes
    assert notes[0].startswith("unverified: ")
    assert "size of 47 pictures is not known" in notes[-1]
    path = written(tmp_path, "kitti2015")
    assert verify_submission(path, "kitti2015", picture_sizes={"000000_10": (3, 8)}).notes == (
        "the size of 199 pictures is not known here and was not checked",
    )


def test_an_incomplete_one_is_refused_naming_the_first_five(tmp_path: Path) -> None:
    path = tmp_path / "k.zip"
    path.write_bytes(b"what stood here before")
    names = NAMES["kitti2015"][:40] + NAMES["kitti2015"][47:]
    with pytest.raises(InputError) as caught:
        write_submission(path, "kitti2015", predictions(names))
    assert str(caught.value) == (
        "incomplete for kitti2015: 7 pictures missing: "
        "000040_10, 000041_10, 000042_10, 000043_10, 000044_10 and 2 more"
    )
    assert path.read_bytes() == b"what stood here before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_would_be_incomplete_is_known_before_any_work() -> None:
    require_complete("kitti2012", NAMES["kitti2012"])
    require_complete("eth3d", [f"two_view_training/{name}" for name in rules_of("eth3d").training])
    with pytest.raises(InputError, match="195 pictures missing"):
        require_complete("kitti2012", [])
    with pytest.raises(InputError, match="1 picture not of kitti2012: 000195_10"):
        require_complete("kitti2012", [*NAMES["kitti2012"], "000195_10"])
    with pytest.raises(InputError, match="two pictures for one file of a kitti2012 submission: 000003_10"):
        require_complete("kitti2012", [*NAMES["kitti2012"], "again/000003_10"])
    with pytest.raises(UsageError, match="kitti2016"):
        require_complete("kitti2016", [])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Prediction("000001_10", DISPARITY, 0.1, (3, 9)), "has 8 x 3 pixels, its picture 9 x 3"),
        (Prediction("000001_10", np.full((3, 8), np.nan, np.float32)), "no estimate at all"),
        (Prediction("000001_10", DISPARITY + 2), "9.5 px in a picture 8 px wide"),
        (Prediction("000001_10", DISPARITY / 8), "largest disparity is 0.9375 px"),
        (Prediction("000000_10", DISPARITY), "two pictures for one file"),
        (Prediction("elsewhere", DISPARITY), "1 picture not of kitti2015"),
    ],
)
def test_a_bad_result_stops_the_writing_at_once(tmp_path: Path, bad: Prediction, words: str) -> None:
    def some() -> Iterator[Prediction]:
        yield Prediction("000000_10", DISPARITY)
        yield bad
        raise AssertionError("went on")

    with pytest.raises(InputError, match=words):
        write_submission(tmp_path / "k.zip", "kitti2015", some())
    assert list(tmp_path.iterdir()) == []


def test_holes_are_taken_by_kitti_and_refused_in_dense_middlebury_files(tmp_path: Path) -> None:
    holes = DISPARITY.copy()
    holes[1, :2] = np.nan
    one = [Prediction("Adirondack", holes, 1.0)]
    with pytest.raises(InputError, match=r"disp0PAM.pfm: 2 pixels have no estimate"):
        write_submission(tmp_path / "m.zip", "middlebury", one)
    kitti = [Prediction(name, holes) for name in NAMES["kitti2012"]]
    assert write_submission(tmp_path / "k.zip", "kitti2012", kitti).pictures == 195


def test_a_missing_runtime_is_refused(tmp_path: Path) -> None:
    for seconds in (float("nan"), 0.0, -1.0, float("inf")):
        one = [Prediction("Adirondack", DISPARITY, seconds)]
        with pytest.raises(InputError, match=r"timePAM.txt should hold"):
            write_submission(tmp_path / "m.zip", "middlebury", one)


def test_what_the_format_cannot_hold_is_said(tmp_path: Path) -> None:
    wide = np.full((1, 400), 10, np.float32)
    wide[0, 5:7] = 300
    some = [Prediction(name, wide) for name in NAMES["kitti2012"]]
    submission = write_submission(tmp_path / "k.zip", "kitti2012", some)
    assert submission.notes[0] == "390 pixels lie beyond 255.996 px, the largest that the files hold"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"cannot write .*k.zip"):
        write_submission(tmp_path / "file" / "k.zip", "kitti2012", predictions([]))


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


UNITS = np.rint(DISPARITY * 256).astype(np.uint16)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (png((UNITS >> 8).astype(np.uint8)), "000042_10.png has 1 channel.* of 8 bits, not one of 16"),
        (png(np.zeros((3, 8, 3), np.uint8)), "has 3 channel.* of 8 bits"),
        (png(UNITS[:2]), "has 8 x 2 pixels, its picture 8 x 3"),
        (png(UNITS)[:60], "is damaged or truncated"),
        (b"Pf\n8 3\n-1.0\n", "is not a PNG"),
        (b"", "is not a PNG"),
        (png(np.zeros_like(UNITS)), "has no estimate at all"),
        (png(np.full_like(UNITS, 9 * 256)), "holds a disparity of 9 px in a picture 8 px wide"),
        (png(UNITS >> 8), "the largest disparity is 0.0273438 px"),
    ],
)
def test_a_bad_png_is_found(tmp_path: Path, data: bytes, words: str) -> None:
    path = changed(written(tmp_path, "kitti2015"), add={"disp_0/000042_10.png": data})
    with pytest.raises(InputError, match=words) as caught:
        verify_submission(path, "kitti2015", picture_sizes={"000042_10": (3, 8)})
    assert "changed.zip: disp_0/000042_10.png" in str(caught.value)


def pfm(disparity: np.ndarray) -> bytes:
    return encode_disparity(disparity, ".pfm").data


def with_value(value: float) -> bytes:
    return pfm(DISPARITY).replace(DISPARITY[0, 0].tobytes(), np.float32(value).tobytes())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pfm(DISPARITY[:, :7]), "has 7 x 3 pixels, its picture 8 x 3"),
        (pfm(DISPARITY)[:-1], "95 bytes of pixels where 8 x 3 need 96"),
        (pfm(DISPARITY).replace(b"Pf", b"PF"), "is not a grey PFM"),
        (pfm(DISPARITY).replace(b"-1.0", b"0.00"), "is not a grey PFM"),
        (png(UNITS), "is not a grey PFM"),
        (b"", "is not a grey PFM"),
        (with_value(-3), "negative disparity, -3 px"),
        (with_value(np.nan), "holds NaN"),
        (with_value(-np.inf), "holds NaN or -inf"),
        (with_value(8.5), "8.5 px in a picture 8 px wide"),
        (with_value(np.inf), "1 pixels have no estimate"),
        (pfm(np.full_like(DISPARITY, np.inf)), "has no estimate at all"),
    ],
)
def test_a_bad_pfm_is_found(tmp_path: Path, data: bytes, words: str) -> None:
    path = changed(written(tmp_path, "middlebury"), add={"trainingH/Teddy/disp0PAM.pfm": data})
    with pytest.raises(InputError, match=words) as caught:
        verify_submission(path, "middlebury", picture_sizes={"Teddy": (3, 8)})
    assert "changed.zip: trainingH/Teddy/disp0PAM.pfm" in str(caught.value)


def test_big_endian_pfm_is_read(tmp_path: Path) -> None:
    data = b"Pf 8 3 1\n" + DISPARITY[::-1].astype(">f4").tobytes()
    path = changed(written(tmp_path, "eth3d"), add={"low_res_two_view/tunnel_1l.pfm": data})
    assert verify_submission(path, "eth3d").pictures == 47


@pytest.mark.parametrize("text", [b"0.25", b"runtime", b"runtime x", b"runtime -1", b"runtime nan", b"\xff"])
def test_a_bad_runtime_is_found(tmp_path: Path, text: bytes) -> None:
    path = changed(written(tmp_path, "eth3d"), add={"low_res_two_view/forest_1s.txt": text})
    with pytest.raises(InputError, match=r"forest_1s.txt should hold 'runtime the seconds'"):
        verify_submission(path, "eth3d")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    gone = tuple(f"0000{index}_10.png" for index in range(10, 17))
    path = changed(written(tmp_path, "kitti2012"), drop=gone)
    with pytest.raises(InputError, match=r"7 files missing: 000010_10.png, .*000014_10.png and 2 more$"):
        verify_submission(path, "kitti2012")
    path = changed(written(tmp_path, "middlebury"), drop=("testH/Hoops/timePAM.txt",))
    with pytest.raises(InputError, match=r"1 file missing: testH/Hoops/timePAM.txt"):
        verify_submission(path, "middlebury")


def test_an_extra_file_is_named(tmp_path: Path) -> None:
    path = changed(written(tmp_path, "kitti2012"), add={"__MACOSX/._x": b"", "notes.txt": b""})
    with pytest.raises(InputError, match=r"holds 2 files that kitti2012 does not want: __MACOSX/._x, notes"):
        verify_submission(path, "kitti2012")
    path = changed(written(tmp_path, "middlebury"), add={"testQ/Hoops/disp0PAM.pfm": pfm(DISPARITY)})
    with pytest.raises(InputError, match="holds 1 file that middlebury does not want: testQ/Hoops"):
        verify_submission(path, "middlebury")


def test_files_at_the_wrong_depth_get_one_plain_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        verify_submission(written(tmp_path, "kitti2012"), "kitti2015")
    assert "none of the 200 files that kitti2015 wants, but 000000_10.png" in caught.value.message
    assert caught.value.hint == "the first should be disp_0/000000_10.png"


def test_a_file_that_is_there_twice_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "kitti2012")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("000005_10.png", png(UNITS))
    with pytest.raises(InputError, match=r"more than once: 000005_10.png"):
        verify_submission(path, "kitti2012")


def test_folders_in_an_archive_are_nothing_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, "kitti2015")
    with zipfile.ZipFile(path, "a") as archive:
        archive.mkdir("disp_0")
    assert isinstance(verify_submission(path, "kitti2015"), Submission)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path, "kitti2012").read_bytes()
    path = tmp_path / "damaged.zip"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="no zip archive that can be read"):
        verify_submission(path, "kitti2012")
    start = data.index(b"IDAT") + 6
    path.write_bytes(data[:start] + bytes([data[start] ^ 255]) + data[start + 1 :])
    with pytest.raises(InputError, match="no zip archive that can be read: Bad CRC"):
        verify_submission(path, "kitti2012")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="no zip archive"):
        verify_submission(path, "kitti2012")
    with pytest.raises(InputError, match=r"absent.zip cannot be read: No such file"):
        verify_submission(tmp_path / "absent.zip", "kitti2012")
