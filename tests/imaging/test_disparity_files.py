"""Disparity files: another library reads the same numbers, and what is malformed is refused by name."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from image_bytes import claim_png, npy_bytes, pillow_bytes, tiff_bytes
from PIL import Image

from pamcli.errors import InputError, UsageError
from pamcli.files.suffixes import (
    CONFIDENCE_SUFFIXES,
    DISPARITY_INPUT_SUFFIXES,
    TABLE_SUFFIXES,
)
from pamcli.imaging.disparity_encoding import encode_confidence, encode_depth, encode_disparity
from pamcli.imaging.disparity_files import read_disparity, read_disparity_file

NAN = float("nan")
INF = float("inf")


def example() -> np.ndarray:
    """A map of no symmetry, not contiguous, with unknown pixels of both spellings."""
    disparity = np.random.default_rng(0).uniform(0.01, 250, (5, 14)).astype(np.float32)[::-1, ::2]
    disparity[1, 2] = np.nan
    disparity[4, 0] = np.inf
    return disparity


def written(folder: Path, disparity: np.ndarray, suffix: str) -> Path:
    return saved(folder, f"disp{suffix}", encode_disparity(disparity, suffix).data)


def saved(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", [".pfm", ".png", ".tif"])
def test_opencv_reads_and_writes_the_same(tmp_path: Path, suffix: str) -> None:
    disparity = example()
    other = cv2.imread(str(written(tmp_path, disparity, suffix)), cv2.IMREAD_UNCHANGED)
    assert other is not None
    expected = np.where(np.isfinite(disparity), disparity, INF if suffix == ".pfm" else NAN)
    if suffix == ".png":
        expected = np.round(np.nan_to_num(disparity, nan=0, posinf=0) * 256)
    assert other.dtype == (np.uint16 if suffix == ".png" else np.float32)
    np.testing.assert_array_equal(other, expected.astype(other.dtype))
    values = np.random.default_rng(1).uniform(1, 200, (6, 5)).astype(np.float32)
    stored = np.round(values * 256).astype(np.uint16) if suffix == ".png" else values
    path = tmp_path / f"other{suffix}"
    assert cv2.imwrite(str(path), stored)
    expected = stored.astype(np.float32) / 256 if suffix == ".png" else values
    np.testing.assert_array_equal(read_disparity(path), expected)


# --- what each format holds -----------------------------------------------------------------------------


def test_the_bytes_of_a_pfm() -> None:
    data = encode_disparity(np.array([[1, 2], [3, NAN]], np.float32), ".pfm").data
    assert data == b"Pf\n2 2\n-1.0\n" + struct.pack("<4f", 3, INF, 1, 2)


@pytest.mark.parametrize(
    "header",
    [
        b"Pf\t3 \n 2\t\t-0.5 ",
        b"Pf\r\n3 2\r\n-1.0\r\n",
        b"Pf\n3 2\n1.0\n",
    ],
)
@pytest.mark.parametrize("first", [1.0, struct.unpack("<f", b"\n\n\n\n")[0]])
def test_legal_headers_of_pfm(tmp_path: Path, header: bytes, first: float) -> None:
    order = "<" if b"-" in header else ">"
    path = saved(tmp_path, "a.pfm", header + struct.pack(f"{order}6f", first, 2, -INF, 4, 5, NAN))
    np.testing.assert_array_equal(read_disparity(path), np.float32([[4, 5, NAN], [first, 2, NAN]]))


def test_the_numbers_of_a_png() -> None:
    disparity = np.array([[0, 0.001, 1, 1.00195, 1.00196, 0.5 / 256, 1.5 / 256, 2.5 / 256]], np.float32)
    stored = np.asarray(Image.open(io.BytesIO(encode_disparity(disparity, ".png").data)))
    # a known 0 is 1, since 0 is unknown; halves go to the even neighbour (and 0 up to 1)
    assert stored.tolist() == [[1, 1, 256, 256, 257, 1, 2, 2]]
    encoded = encode_disparity(np.float32([[255.99, 255.997, 255.9981, 256, 1e30, NAN, INF]]), ".png")
    stored = np.asarray(Image.open(io.BytesIO(encoded.data)))
    assert stored.tolist() == [[65533, 65535, 65535, 65535, 65535, 0, 0]]
    assert encoded.saturated == 3
    for suffix in (".pfm", ".npy", ".tif"):
        assert encode_disparity(np.full((2, 2), 1000, np.float32), suffix).saturated == 0


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_kind_of_float_in_npy(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.array(
        [[1, 2.5, NAN], [INF, -INF, 6 if "2" in dtype or "4" in dtype else 1e300]], dtype, order=order
    )  # type: ignore[call-overload]
    again = read_disparity(saved(tmp_path, "a.npy", npy_bytes(array)))
    assert again.dtype == np.float32
    last = 6 if array[1, 2] == 6 else NAN  # beyond float32
    np.testing.assert_array_equal(again, np.float32([[1, 2.5, NAN], [NAN, NAN, last]]))


def flow_png(vertical: float = 0) -> bytes:
    """The map of 7.5 px, with one unknown pixel, in the format of KITTI's optical flow."""
    flow = np.full((6, 8, 3), (1, 32768 + 64 * vertical, 32768 - 64 * 7.5), np.uint16)  # of OpenCV: BGR
    flow[2, 3] = 0
    return bytes(cv2.imencode(".png", flow)[1])


def npz_bytes(**arrays: np.ndarray) -> bytes:
    np.savez_compressed(buffer := io.BytesIO(), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def exr_bytes(folder: Path, **channels: np.ndarray) -> bytes:
    openexr = pytest.importorskip("OpenEXR", reason="OpenEXR is not installed (pip install 'pamcli[exr]')")
    path = str(folder / "written.exr")
    openexr.File({"type": openexr.scanlineimage}, channels).write(path)
    return Path(path).read_bytes()


OF_OTHERS: list[tuple[str, bytes, float | None]] = [
    ("d.npz", npz_bytes(disp=np.full((6, 8), 7.5, np.float32)), None),
    ("d.npy", npy_bytes(np.full((1, 1, 6, 8), 7.5, np.float32)), None),
    ("d.npy", npy_bytes(np.full((6, 8, 1), 7.5, np.float64)), None),
    ("d.csv", b"7.5,7.5,7.5,\n7.5,7.5,7.5,\n", None),
    ("d.csv", b"7,5;7,5;nan\r\n7,5;7,5;7,5\r\n", None),
    ("d.txt", b"# disparity\n7.5 7.5  7.5\n7.5 7.5 7.5 \n", None),
    ("d.txt", b"15\t15\n15\t15\n", 2),
    ("d.pgm", b"P5\n# Middlebury\n3 2\n63\n" + bytes([30] * 5 + [0]), 4),
    ("d.pgm", b"P5 2 1 65535\n\x07\x80\x07\x80", 256),
    ("d.pgm", b"P2 2 2 255\n30 30 30\n0", 4),
    ("d.png", flow_png(), None),
]


@pytest.mark.parametrize(("name", "data", "scale"), OF_OTHERS, ids=str)
def test_maps_of_other_programs(tmp_path: Path, name: str, data: bytes, scale: float | None) -> None:
    found = read_disparity(saved(tmp_path, name, data), scale=scale)
    assert found.ndim == 2
    assert set(found[np.isfinite(found)]) == {7.5}
    has_unknown = name == "d.png" or any(part in data for part in (b"nan", b"P5\n", b"P2"))
    assert np.isnan(found).sum() == has_unknown


def test_exr_has_one_channel(tmp_path: Path) -> None:
    values = np.random.default_rng(0).uniform(1, 90, (6, 8)).astype(np.float32)
    for channels in ({"Y": values}, {"RGB": np.dstack([values] * 3)}):
        np.testing.assert_array_equal(
            read_disparity(saved(tmp_path, "d.exr", exr_bytes(tmp_path, **channels))), values
        )
    two = saved(tmp_path, "d.exr", exr_bytes(tmp_path, u=values, v=-values))
    with pytest.raises(InputError, match="one channel, but holds u, v"):
        read_disparity(two)


def npy_header(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    buffer = io.BytesIO()
    np.save(buffer, np.array([[Trap()]], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="object"):
        read_disparity(saved(tmp_path, "a.npy", buffer.getvalue()))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("options", [{"byteorder": ">"}, {"tile": (16, 16)}, {"compression": "lzw"}])
def test_tiff_of_other_writers(tmp_path: Path, options: dict[str, object]) -> None:
    values = np.random.default_rng(2).random((20, 30)).astype(np.float32)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", **options)
    np.testing.assert_array_equal(read_disparity(tmp_path / "a.tif"), values)


# --- what is refused ------------------------------------------------------------------------------------

NO_PFM = [
    *(b"PF\n1 1\n-1\n", b"\x89PNG\r\n\x1a\n", b"Pf\n2"),
    *(b"Pf\n%b\n-1\n" % size for size in (b"0 1", b"-2 1", b"1.5 1", b"9" * 5000 + b" 1")),
    *(b"Pf\n2 1\n%b\n" % scale for scale in (b"nan", b"0.0", b"1e999", b"little")),
]
PFM = encode_disparity(example(), ".pfm").data
COLOURS = cv2.imencode(".png", np.zeros((3, 4, 3), np.uint16))[1].tobytes()
REFUSED: list[tuple[str, bytes, str]] = [
    *(("a.pfm", header, "a.pfm is not a grey PFM: expected Pf WIDTH ") for header in NO_PFM),
    ("a.pfm", b"Pf\n2 1\n-1\n" + bytes(7), "is damaged"),
    ("a.pfm", b"Pf\n2 1\n-1\n" + bytes(9), "is damaged"),
    ("a.pfm", b"Pf\n100000 4000\n-1\n" + bytes(8), "is damaged"),
    ("a.pfm", b"Pf\n100000 100000\n-1\n" + bytes(8), "limit"),
    ("a.png", pillow_bytes(Image.new("L", (4, 3)), "PNG"), "holds uint8 numbers"),
    ("a.png", COLOURS, "3 channels"),
    ("a.png", claim_png(100_000, 100_000, 16, 0), "over the limit"),
    ("a.npy", npy_bytes(np.zeros((2, 3), np.complex64)), "complex64"),
    ("a.npy", npy_bytes(np.zeros((2, 3, 2), np.float32)), "shape (2, 3, 2)"),
    ("a.npz", npz_bytes(a=np.zeros((2, 3)), b=np.zeros(2)), "must hold one array, but holds 2 (a, b)"),
    ("a.npz", npz_bytes(a=np.zeros((2, 3)))[:-30], "is damaged"),
    ("a.pgm", b"P5 3 2 255\n" + bytes(6), "holds uint8 numbers"),
    ("a.pgm", b"P5 3 2 255\n" + bytes(5), "is damaged: the header states 6 bytes of data, found 5"),
    ("a.pgm", b"P5 3 2 255\n" + bytes(7), "found more"),
    ("a.pgm", b"P2 3 2 255\n1 2 3", "is damaged"),
    ("a.pgm", b"P5 x", "must be a PGM"),
    ("a.pgm", b"P5 99999 99999 255\n", "over the limit"),
    ("a.csv", b"x,y\n1,2\n", "is not a table of numbers"),
    ("a.txt", b"1.5\n2.5\n3.5\n", "holds 3 numbers in a single row or column"),
    ("a.txt", b"1 2\n3 4\n", "holds int64 numbers of unknown scale"),
    ("a.txt", b"\xff\xfe1", "is not a table of numbers"),
    ("a.png", flow_png(vertical=5), "optical flow with vertical motion"),
    ("a.exr", b"v/1\x01" + bytes(20), "is damaged"),
    ("a.npy", npy_bytes(np.zeros((0, 3), np.float32)), "no pixels"),
    ("a.npy", npy_bytes(np.zeros((2, 3), np.float32)) + b"\0", "is damaged"),
    ("a.npy", npy_header("(100000, 100000)") + bytes(8), "over the limit"),
    ("a.tif", tiff_bytes(np.zeros((8, 9), np.uint16), photometric="minisblack"), "holds uint16"),
    ("a.tif", tiff_bytes(np.zeros((8, 9, 3), np.float32), photometric="rgb"), "3 channels"),
    ("a.png", PFM, "is not a PNG"),
    ("a.tif", PFM, "is not a TIFF"),
    *((f"a{suffix}", b"", "is empty") for suffix in (*DISPARITY_INPUT_SUFFIXES, *TABLE_SUFFIXES)),
]


@pytest.mark.parametrize(("name", "data", "said"), REFUSED, ids=str)
def test_what_is_no_disparity_map(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    path = saved(tmp_path, name, data)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        read_disparity(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("suffix", [".png", ".npy", ".tif"])
@pytest.mark.parametrize("cut", [-1, 100, 7])
def test_cut_short(suffix: str, cut: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    disparity = np.random.default_rng(3).random((40, 50)).astype(np.float32)
    data = encode_disparity(disparity, suffix).data
    with pytest.raises(InputError, match=r"damaged|is not a"):
        read_disparity(saved(tmp_path, f"a{suffix}", data[:cut]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", CONFIDENCE_SUFFIXES)
def test_confidence(tmp_path: Path, suffix: str) -> None:
    confidence = np.array([[0, 0.25, 0.5], [0.75, 1, 0.1]], np.float32)
    path = saved(tmp_path, f"conf{suffix}", encode_confidence(confidence, suffix).data)
    if suffix == ".png":
        stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert stored is not None
        assert stored.dtype == np.uint16
        assert stored.tolist() == [[0, 16384, 32768], [49151, 65535, 6554]]
    else:
        np.testing.assert_array_equal(read_disparity(path), confidence)


def test_names_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.jpg is not a supported format"):
        encode_confidence(np.zeros((2, 2), np.float32), ".jpg")
    with pytest.raises(UsageError, match=r"\.exr is not a supported format") as caught:
        encode_disparity(example(), ".exr")
    assert ".pfm" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="a name without suffix"):
        read_disparity(tmp_path / "disp")
    with pytest.raises(InputError, match="there is no such file"):
        read_disparity(tmp_path / "missing.pfm")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        read_disparity(tmp_path / "folder.png")


def test_the_limit_can_be_moved(tmp_path: Path) -> None:
    path = written(tmp_path, example(), ".pfm")
    with pytest.raises(InputError, match="over the limit of 34"):
        read_disparity(path, max_pixels=34)
    for limit in (35, None):
        assert read_disparity(path, max_pixels=limit).shape == (5, 7)


def test_a_depth_map_is_not_read_as_a_disparity_map(tmp_path: Path) -> None:
    path = saved(tmp_path, "depth.tif", encode_depth(example(), ".tif").data)
    with pytest.raises(InputError, match="depth map in metres"):
        read_disparity_file(path)
