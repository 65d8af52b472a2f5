"""Disparity files: another library reads the same numbers, and what is malformed is refused by name."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from pamcli.errors import InputError, UsageError
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DISPARITY_SUFFIXES
from pamcli.imaging.disparity_files import encode_confidence, encode_depth, encode_disparity, read_disparity
from pamcli.imaging.disparity_units import read_disparity_file

NAN = float("nan")
INF = float("inf")


def example() -> np.ndarray:
    """A map of no symmetry, with unknown pixels of both spellings."""
    disparity = np.random.default_rng(0).uniform(0.01, 250, (5, 7)).astype(np.float32)
    disparity[1, 2] = np.nan
    disparity[4, 0] = np.inf
    return disparity


def written(folder: Path, disparity: np.ndarray, suffix: str) -> Path:
    path = folder / f"disp{suffix}"
    path.write_bytes(encode_disparity(disparity, suffix).data)
    return path


def unknown_as_nan(disparity: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(disparity), disparity, np.float32(np.nan))


def saved(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", DISPARITY_SUFFIXES)
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    disparity = example()
    again = read_disparity(written(tmp_path, disparity, suffix))
    assert again.dtype == np.float32
    expected = unknown_as_nan(disparity)
    if suffix == ".png":
        expected = np.round(expected * 256) / 256
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("suffix", DISPARITY_SUFFIXES)
def test_a_result_that_is_not_contiguous_is_written_as_it_looks(tmp_path: Path, suffix: str) -> None:
    whole = np.arange(1, 61, dtype=np.float32).reshape(6, 10)
    path = written(tmp_path, whole[::-1, 1:8], suffix)
    np.testing.assert_array_equal(read_disparity(path), whole[::-1, 1:8])


@pytest.mark.parametrize("suffix", [".pfm", ".png", ".tif"])
def test_opencv_reads_the_same(tmp_path: Path, suffix: str) -> None:
    disparity = example()
    other = cv2.imread(str(written(tmp_path, disparity, suffix)), cv2.IMREAD_UNCHANGED)
    assert other is not None
    if suffix == ".png":
        assert other.dtype == np.uint16
        expected = np.round(np.nan_to_num(disparity, nan=0, posinf=0) * 256)
    else:
        assert other.dtype == np.float32
        expected = np.where(np.isfinite(disparity), disparity, INF if suffix == ".pfm" else NAN)
    np.testing.assert_array_equal(other, expected.astype(other.dtype))


@pytest.mark.parametrize(("suffix", "extension"), [(".pfm", "pfm"), (".png", "png"), (".tif", "tif")])
def test_what_opencv_writes_is_read(tmp_path: Path, suffix: str, extension: str) -> None:
    values = np.random.default_rng(1).uniform(1, 200, (6, 5)).astype(np.float32)
    stored = np.round(values * 256).astype(np.uint16) if suffix == ".png" else values
    path = tmp_path / f"other{suffix}"
    assert cv2.imwrite(str(path), stored)
    expected = stored.astype(np.float32) / 256 if suffix == ".png" else values
    np.testing.assert_array_equal(read_disparity(path), expected)


def test_suffixes_in_capitals(tmp_path: Path) -> None:
    path = saved(tmp_path, "disp.PFM", encode_disparity(example(), ".PFM").data)
    np.testing.assert_array_equal(read_disparity(path), unknown_as_nan(example()))


class TestPfm:
    def test_the_bytes(self) -> None:
        data = encode_disparity(np.array([[1, 2], [3, NAN]], np.float32), ".pfm").data
        assert data == b"Pf\n2 2\n-1.0\n" + struct.pack("<4f", 3, INF, 1, 2)

    @pytest.mark.parametrize(
        "header",
        [
            b"Pf\n3 2\n-1.0\n",
            b"Pf 3 2 -1\n",
            b"Pf\n3\n2\n-1.000000\n",
            b"Pf\t3 \n 2\t\t-0.5 ",
            b"Pf\r\n3 2\r\n-1.0\r\n",
            b"Pf\n3 2\n-3e2\n",
            b"Pf\n3 2\n1.0\n",
            b"Pf 3 2 255 ",
        ],
    )
    @pytest.mark.parametrize("first", [1.0, struct.unpack("<f", b"\n\n\n\n")[0]])
    def test_legal_headers(self, tmp_path: Path, header: bytes, first: float) -> None:
        order = "<" if b"-" in header else ">"
        path = saved(tmp_path, "a.pfm", header + struct.pack(f"{order}6f", first, 2, -INF, 4, 5, NAN))
        np.testing.assert_array_equal(
            read_disparity(path), np.array([[4, 5, NAN], [first, 2, NAN]], np.float32)
        )

    @pytest.mark.parametrize(
        "header",
        [
            b"PF\n1 1\n-1\n",
            b"Pf4\n1 1\n-1\n",
            b"\x89PNG\r\n\x1a\n",
            b"Pf\n# hello\n2 1\n-1\n",
            b"Pf\n0 1\n-1\n",
            b"Pf\n-2 1\n-1\n",
            b"Pf\n1.5 1\n-1\n",
            b"Pf\n2 0\n-1\n",
            b"Pf\n2 x\n-1\n",
            b"Pf\n2 1\nnan\n",
            b"Pf\n2 1\n0.0\n",
            b"Pf\n2 1\n-inf\n",
            b"Pf\n2 1\n1e999\n",
            b"Pf\n2 1\nlittle\n",
            b"Pf",
            b"Pf\n2",
            b"Pf\n2 1\n  ",
            b"Pf\n" + b"9" * 5000 + b" 1\n-1\n",
        ],
    )
    def test_malformed_headers(self, tmp_path: Path, header: bytes) -> None:
        path = saved(tmp_path, "a.pfm", header)
        with pytest.raises(InputError, match=r"a\.pfm is not a grey PFM: expected Pf WIDTH .*, got '"):
            read_disparity(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"Pf\n2 1\n-1", "is damaged"),
            (b"Pf\n2 1\n-1\n" + bytes(7), "is damaged"),
            (b"Pf\n2 1\n-1\n" + bytes(9), "is damaged"),
            (b"Pf\n2 1\n-1\n" + bytes(10), "is damaged"),
            (b"Pf\n2 1\n-1\n\n" + bytes(8), "is damaged"),
            (b"Pf\n100000 4000\n-1\n" + bytes(8), "is damaged"),
            (b"Pf\n100000 100000\n-1\n" + bytes(8), "limit"),
        ],
    )
    def test_wrong_amount_of_data(self, tmp_path: Path, content: bytes, message: str) -> None:
        path = saved(tmp_path, "a.pfm", content)
        with pytest.raises(InputError, match=message) as caught:
            read_disparity(path)
        assert str(path) in caught.value.message
        assert "\n" not in caught.value.message


class TestPng:
    def test_the_numbers(self) -> None:
        disparity = np.array([[0, 0.001, 1, 1.00195, 1.00196, 0.5 / 256, 1.5 / 256, 2.5 / 256]], np.float32)
        stored = np.asarray(Image.open(io.BytesIO(encode_disparity(disparity, ".png").data)))
        # a known 0 is 1, since 0 is unknown; halves go to the even neighbour (and 0 up to 1)
        assert stored.tolist() == [[1, 1, 256, 256, 257, 1, 2, 2]]

    def test_saturation_is_counted(self) -> None:
        disparity = np.array([[255.99, 255.997, 255.9981, 256, 1e30, NAN, INF]], np.float32)
        encoded = encode_disparity(disparity, ".png")
        stored = np.asarray(Image.open(io.BytesIO(encoded.data)))
        assert stored.tolist() == [[65533, 65535, 65535, 65535, 65535, 0, 0]]
        assert encoded.saturated == 3

    def test_floats_do_not_saturate(self) -> None:
        for suffix in (".pfm", ".npy", ".tif"):
            assert encode_disparity(np.full((2, 2), 1000, np.float32), suffix).saturated == 0

    @pytest.mark.parametrize(
        ("mode", "message"),
        [("L", "holds uint8 numbers"), ("P", "3 channels"), ("1", "holds uint8"), ("RGB", "3 channels")],
    )
    def test_eight_bits_are_refused(self, tmp_path: Path, mode: str, message: str) -> None:
        Image.new(mode, (4, 3)).save(tmp_path / "a.png")
        with pytest.raises(InputError, match=message):
            read_disparity(tmp_path / "a.png")

    def test_colours_are_refused(self, tmp_path: Path) -> None:
        assert cv2.imwrite(str(tmp_path / "a.png"), np.zeros((3, 4, 3), np.uint16))
        with pytest.raises(InputError, match="3 channels"):
            read_disparity(tmp_path / "a.png")

    def test_a_huge_claim_is_refused_before_decoding(self, tmp_path: Path) -> None:
        body = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 16, 0, 0, 0, 0)
        data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
        with pytest.raises(InputError, match="over the limit"):
            read_disparity(saved(tmp_path, "a.png", data))


def npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


class TestNpy:
    @pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
    def test_every_kind_of_float(self, tmp_path: Path, dtype: str) -> None:
        array = np.array([[1, 2.5, NAN], [INF, -INF, 6]], dtype)
        expected = np.array([[1, 2.5, NAN], [NAN, NAN, 6]], np.float32)
        for name, order in (("c.npy", "C"), ("f.npy", "F")):
            again = read_disparity(saved(tmp_path, name, npy(np.asarray(array, order=order))))  # type: ignore[call-overload]
            assert again.dtype == np.float32
            np.testing.assert_array_equal(again, expected)

    def test_beyond_float32_is_unknown(self, tmp_path: Path) -> None:
        path = saved(tmp_path, "a.npy", npy(np.array([[1e300, 1.0]])))
        np.testing.assert_array_equal(read_disparity(path), np.array([[NAN, 1]], np.float32))

    def test_numpy_reads_the_same(self) -> None:
        again = np.load(io.BytesIO(encode_disparity(example(), ".npy").data), allow_pickle=False)
        assert again.dtype == np.dtype("<f4")
        np.testing.assert_array_equal(again, unknown_as_nan(example()))

    def test_a_header_from_python_2(self, tmp_path: Path) -> None:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L), }".ljust(117) + b"\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<2f", 3, 4)
        assert read_disparity(saved(tmp_path, "a.npy", data)).tolist() == [[3, 4]]

    def test_objects_are_refused_and_never_unpickled(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[object, ...]:
                return (Path.touch, (tmp_path / "sprung",))

        data = npy(np.array([[Trap()]], dtype=object), allow_pickle=True)
        with pytest.raises(InputError, match="object"):
            read_disparity(saved(tmp_path, "a.npy", data))
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((2, 3), np.uint16), "uint16"),
            (np.zeros((2, 3), np.complex64), "complex64"),
            (np.zeros(6, np.float32), r"shape \(6,\)"),
            (np.zeros((2, 3, 1), np.float32), r"shape \(2, 3, 1\)"),
            (np.zeros((0, 3), np.float32), "no pixels"),
            (np.zeros((2, 3), np.dtype([("d", "<f4")])), "holds numbers"),
        ],
    )
    def test_what_is_no_map(self, tmp_path: Path, array: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            read_disparity(saved(tmp_path, "a.npy", npy(array)))

    def test_more_behind_it(self, tmp_path: Path) -> None:
        data = npy(np.zeros((2, 3), np.float32))
        with pytest.raises(InputError, match="is damaged"):
            read_disparity(saved(tmp_path, "a.npy", data + b"\0"))

    def test_a_huge_claim(self, tmp_path: Path) -> None:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 100000), }".ljust(117) + b"\n"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)
        with pytest.raises(InputError, match="over the limit"):
            read_disparity(saved(tmp_path, "a.npy", data))


class TestTiff:
    @pytest.mark.parametrize("options", [{"byteorder": ">"}, {"tile": (16, 16)}, {"compression": "lzw"}])
    def test_other_writers(self, tmp_path: Path, options: dict[str, object]) -> None:
        values = np.random.default_rng(2).random((20, 30)).astype(np.float32)
        tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", **options)
        np.testing.assert_array_equal(read_disparity(tmp_path / "a.tif"), values)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((8, 9), np.uint16), "holds uint16"),
            (np.zeros((8, 9), np.uint8), "holds uint8"),
            (np.zeros((8, 9, 3), np.float32), "3 channels"),
        ],
    )
    def test_what_is_no_map(self, tmp_path: Path, array: np.ndarray, message: str) -> None:
        tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb" if array.ndim == 3 else "minisblack")
        with pytest.raises(InputError, match=message):
            read_disparity(tmp_path / "a.tif")


@pytest.mark.parametrize("suffix", [".png", ".npy", ".tif"])
@pytest.mark.parametrize("cut", [-1, 300, 100, 20, 7])
def test_cut_short(suffix: str, cut: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    disparity = np.random.default_rng(3).random((40, 50)).astype(np.float32)
    data = encode_disparity(disparity, suffix).data
    with pytest.raises(InputError, match=r"damaged|is not a"):
        read_disparity(saved(tmp_path, f"a{suffix}", data[:cut]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".png", "PNG"), (".npy", r"NumPy \.npy file"), (".tif", "TIFF")]
)
def test_content_of_another_format(suffix: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"is not a {kind}"):
        read_disparity(saved(tmp_path, f"a{suffix}", encode_disparity(example(), ".pfm").data))


class TestConfidence:
    @pytest.mark.parametrize("suffix", CONFIDENCE_SUFFIXES)
    def test_round_trip(self, tmp_path: Path, suffix: str) -> None:
        confidence = np.array([[0, 0.25, 0.5], [0.75, 1, 0.1]], np.float32)
        path = saved(tmp_path, f"conf{suffix}", encode_confidence(confidence, suffix))
        if suffix == ".png":
            stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
            assert stored is not None
            assert stored.dtype == np.uint16
            assert stored.tolist() == [[0, 16384, 32768], [49151, 65535, 6554]]
        else:
            np.testing.assert_array_equal(read_disparity(path), confidence)

    def test_unknown_suffix(self) -> None:
        with pytest.raises(UsageError, match=r"\.jpg is not a supported format"):
            encode_confidence(np.zeros((2, 2), np.float32), ".jpg")


def test_unknown_suffixes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.exr is not a supported format") as caught:
        encode_disparity(example(), ".exr")
    assert caught.value.hint is not None
    assert ".pfm" in caught.value.hint
    with pytest.raises(UsageError, match="a name without suffix"):
        read_disparity(tmp_path / "disp")


@pytest.mark.parametrize("suffix", DISPARITY_SUFFIXES)
def test_files_that_cannot_be_read(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_disparity(tmp_path / f"missing{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        read_disparity(tmp_path / f"folder{suffix}")
    with pytest.raises(InputError, match="is empty"):
        read_disparity(saved(tmp_path, f"empty{suffix}", b""))


def test_the_limit_can_be_moved(tmp_path: Path) -> None:
    path = written(tmp_path, example(), ".pfm")
    with pytest.raises(InputError, match="over the limit of 34"):
        read_disparity(path, max_pixels=34)
    assert read_disparity(path, max_pixels=35).shape == (5, 7)
    assert read_disparity(path, max_pixels=None).shape == (5, 7)


def test_a_depth_map_is_not_read_as_a_disparity_map(tmp_path: Path) -> None:
    path = saved(tmp_path, "depth.tif", encode_depth(example(), ".tif").data)
    with pytest.raises(InputError, match="depth map in metres"):
        read_disparity_file(path)
