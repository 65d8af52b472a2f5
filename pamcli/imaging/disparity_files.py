"""Read and write disparity, depth and confidence maps: PFM, 16-bit PNG as in KITTI, NumPy and TIFF.

PGM, NPZ, EXR, tables of numbers, and the optical flow of KITTI are only read.

In memory, a disparity map is (H, W) float32, px, NaN = unknown. In files:

| suffix        | numbers                                     | unknown |
| ------------- | ------------------------------------------- | ------- |
| `.pfm`        | float32, little-endian, last row first      | +inf    |
| `.png`        | 16 bits, 256 for each pixel of disparity    | 0       |
| `.npy`        | float32                                     | NaN     |
| `.tif` `.tiff`| float32                                     | NaN     |
"""

import io
import logging
import math
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.atomic import write_atomically
from pamcli.files.outputs import Encoded, check_new_file
from pamcli.files.safe_reading import LARGEST_TEXT, open_source, read_npy_header
from pamcli.files.suffixes import CONFIDENCE_SUFFIXES, DEPTH_SUFFIXES, DISPARITY_SUFFIXES, TABLE_SUFFIXES
from pamcli.imaging import raster, tiff
from pamcli.validation import check_arguments

PNG_UNITS_PER_PIXEL, PNG_UNITS_PER_METRE = 256, 1000
SIGNED_UNITS_PER_PIXEL = 16  # units of the signed integers of OpenCV's StereoSGBM and StereoBM
_PNG_MAX = 65535
_TOO_LARGE = {  # warnings about values too large for a PNG, by `keep_far`
    True: "255.996 px, the limit of 16 bits, and are stored as the limit: use .pfm, .npy or .tif files",
    False: "65.535 m, the limit of 16 bits, and are stored as unknown: use .tif or .npy files",
}
_MOST_VERTICAL_FLOW = 1.0  # px, that most known pixels of a disparity map stored as flow may have
_PGM_HEADER = re.compile(rb"P([25])" + 3 * rb"\s+(?:#.*\n\s*)*(\d{1,9})" + rb"\s")
_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PFM_HEADER = re.compile(rb"\s*Pf\s+([1-9]\d*)\s+([1-9]\d*)\s+(%s)(?!\S)" % _NUMBER)


def encode_disparity(disparity: np.ndarray, suffix: str) -> Encoded:
    """Return the bytes of a file with a disparity map (H, W), float32, px; NaN or inf = unknown."""
    suffix = suffix.lower()
    if suffix == ".png":
        if np.any(disparity[np.isfinite(disparity)] < 0):
            raise UsageError("a disparity PNG cannot hold negative disparities", "use .pfm, .npy or .tif")
        return _encode_png(disparity, PNG_UNITS_PER_PIXEL, keep_far=True)
    unknown = np.inf if suffix == ".pfm" else np.nan
    values = np.where(np.isfinite(disparity), disparity, np.float32(unknown)).astype(np.float32)
    return Encoded(_encode_floats(values, suffix, DISPARITY_SUFFIXES, "disparity in pixels"))


def quantize_disparity(disparity: np.ndarray, suffix: str) -> np.ndarray:
    """Return what `read_disparity` reads from a file of `encode_disparity`: (H, W) float32, NaN = unknown."""
    if suffix.lower() == ".png":
        return decode_levels(to_levels(disparity, PNG_UNITS_PER_PIXEL, keep_far=True)[0])
    return np.where(np.isfinite(disparity), disparity, np.float32(np.nan)).astype(np.float32)


def encode_depth(depth: np.ndarray, suffix: str) -> Encoded:
    """Return the bytes of a depth file (H, W): float32 metres, NaN = unknown; in PNG mm, 0 = unknown."""
    suffix = suffix.lower()
    if suffix == ".png":
        return _encode_png(depth, PNG_UNITS_PER_METRE, keep_far=False)
    return Encoded(_encode_floats(depth.astype(np.float32), suffix, DEPTH_SUFFIXES, "metres"))


def encode_confidence(confidence: np.ndarray, suffix: str) -> bytes:
    """Return the bytes of a file with a confidence map (H, W), float32, 0 to 1; in PNG, 65535 = 1."""
    suffix = suffix.lower()
    if suffix == ".png":
        return raster.encode_png(np.rint(np.clip(confidence, 0, 1) * np.float32(65535)).astype(np.uint16))
    return _encode_floats(confidence.astype(np.float32), suffix, CONFIDENCE_SUFFIXES, "confidence, 0 to 1")


@check_arguments
def read_disparity(
    path: str | Path, *, scale: float | None = None, max_pixels: int | None = raster.DEFAULT_MAX_PIXELS
) -> np.ndarray:
    """Read a disparity file in the format of its suffix.

    >>> truth = pamcli.read_disparity("disparity.pfm")

    Negative disparities are kept. `read_disparity_file` also detects other markers and wrong units.

    Args:
        path: File to read.
        scale: Units per pixel of disparity; None: 256 in a 16-bit PNG, 16 for signed integers (OpenCV's
            StereoSGBM), 1 in floating point.
        max_pixels: Largest width times height, checked in the header; None = no limit.

    Returns:
        The disparity map (H, W), float32, px; NaN = unknown (inf and NaN in floating point, 0 in PNG).

    Raises:
        UsageError: If the suffix is unknown or the scale is invalid.
        InputError: If the file is unreadable, malformed, has several channels or integers without a known
            scale.
    """
    return convert_to_pixels(read_numbers(Path(path), max_pixels), Path(path), scale)


def read_depth(path: Path, *, scale: float | None, max_pixels: int | None) -> np.ndarray:
    """Read a depth map (H, W), float32, m; NaN where it is 0, negative or not finite.

    scale: Units per m; None: 1 in floating point, 1000 in 16-bit integers. Raises the errors of
    `read_disparity`.
    """
    numbers = read_numbers(path, max_pixels)
    if scale is None and not (numbers.dtype.kind == "f" or numbers.dtype.itemsize == 2):
        hint = "state the units per m with `scale` N: 1000 for mm, 100 for cm"
        raise InputError(f"{path} holds {numbers.dtype} numbers of unknown scale", hint)
    units = (1 if numbers.dtype.kind == "f" else PNG_UNITS_PER_METRE) if scale is None else scale
    with np.errstate(over="ignore", invalid="ignore"):
        depth = numbers.astype(np.float32) / np.float32(units)
        return np.where(np.isfinite(depth) & (depth > 0), depth, np.float32(np.nan))


def read_numbers(path: Path, max_pixels: int | None) -> np.ndarray:
    """Read the numbers of a disparity file as stored, (H, W). Raises the errors of `read_disparity`."""
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        convert = "convert it in Python: numpy.save('disparity.npy', values), an array (H, W) in px; "
        _reject_suffix(suffix, tuple(_READERS), f"{path}: ", convert)
    signatures, kind, read = _READERS[suffix]
    with open_source(path, str(path)) as stream:
        if not stream.read(8).startswith(signatures):
            raise InputError(f"{path} is not a {kind}")
        stream.seek(0)
        return read(stream, str(path), max_pixels)


def convert_to_pixels(numbers: np.ndarray, path: Path, scale: float | None) -> np.ndarray:
    """Convert the numbers of a file to float32 px, NaN = unknown. Raises the errors of `read_disparity`."""
    if scale is not None and not 1e-6 <= abs(scale) <= 1e6:
        reason = f"`scale` must be between 1e-6 and 1e6 units per px, or negative, got {scale:g}"
        raise UsageError(reason, "it is 256 for PNG of KITTI; negative numbers change the sign")
    units = get_default_scale(numbers.dtype, path) if scale is None else scale
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes inf, hence unknown
        disparity = numbers.astype(np.float32) / np.float32(units)
    if path.suffix.lower() in (".png", ".pgm") and numbers.dtype.kind == "u":
        disparity[numbers == 0] = np.nan
    disparity[~np.isfinite(disparity)] = np.nan
    return np.asarray(disparity, np.float32)


def get_default_scale(dtype: np.dtype[Any], path: Path) -> float:
    """Return the units per pixel for numbers of a type. Raises InputError if they are ambiguous."""
    if dtype.kind == "f":
        return 1.0
    if dtype == np.uint16 and path.suffix.lower() == ".png":
        return PNG_UNITS_PER_PIXEL
    if dtype.kind == "i" and path.suffix.lower() not in TABLE_SUFFIXES:
        return SIGNED_UNITS_PER_PIXEL
    raise InputError(
        f"{path} holds {dtype} numbers of unknown scale",
        "state the units per px with `scale` N: 1 for px, 4 or 8 for Middlebury in 8 bits, 256 for KITTI",
    )


@check_arguments
def write_disparity(path: str | Path, disparity: np.ndarray, *, overwrite: bool = False) -> None:
    """Write a disparity file atomically, in the format of its suffix; missing folders are created.

    >>> pamcli.write_disparity("disparity.png", result.disparity)

    A PNG holds 16 bits, 256 per pixel, as in KITTI: larger disparities become 255.996 px, with a warning in
    the log "pamcli".

    Args:
        path: File to write.
        disparity: Disparity map (H, W), floating point, px; NaN or inf = unknown.
        overwrite: If True, replace an existing file.

    Raises:
        UsageError: If the suffix is unknown, the file exists, or a disparity is negative in PNG.
        InputError: If the map is not (H, W) or not floating point.
        OutputError: If the file cannot be written.
    """
    path = Path(path)
    raster.check_map(disparity)
    check_new_file(path, overwrite=overwrite)
    file = encode_disparity(disparity, path.suffix)
    for warning in file.warnings:
        logging.getLogger("pamcli").warning("%s: %s", path, warning)
    write_atomically(path, file.data)


def _encode_png(values: np.ndarray, units: int, *, keep_far: bool) -> Encoded:
    levels, count = to_levels(values, units, keep_far=keep_far)
    warnings = [f"{count} pixels exceed {_TOO_LARGE[keep_far]}"] if count else []
    return Encoded(raster.encode_png(levels), warnings, count)


def to_levels(values: np.ndarray, units: int, *, keep_far: bool) -> tuple[np.ndarray, int]:
    """Return 16-bit levels (`units` for 1, 0 = unknown) and the number of values too large for them."""
    known = np.isfinite(values)
    with np.errstate(over="ignore"):  # beyond float32 is beyond 16 bits too
        rounded = np.rint(np.where(known, values, 0) * np.float32(units))
    far = rounded > _PNG_MAX
    stored = np.where(known if keep_far else known & ~far, np.clip(rounded, 1, _PNG_MAX), 0)
    return stored.astype(np.uint16), int(np.count_nonzero(far))


def _encode_floats(values: np.ndarray, suffix: str, allowed: tuple[str, ...], unit: str) -> bytes:
    if suffix == ".pfm":
        height, width = values.shape
        return f"Pf\n{width} {height}\n-1.0\n".encode() + values[::-1].astype("<f4").tobytes()
    if suffix == ".npy":
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(values, "<f4"), allow_pickle=False)
        return buffer.getvalue()
    if suffix in (".tif", ".tiff"):
        return tiff.encode_tiff(values, description=f"{unit}; NaN is unknown")
    _reject_suffix(suffix, allowed)


def _reject_suffix(suffix: str, allowed: tuple[str, ...], prefix: str = "", hint: str = "") -> NoReturn:
    reason = f"{prefix}{suffix or 'a name without suffix'} is not a supported format"
    raise UsageError(reason, f"{hint}use one of {', '.join(allowed)}")


def _read_pfm(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    header = stream.read(512)
    found = _PFM_HEADER.match(header)
    scale = float(found[3]) if found else 0.0
    if found is None or not 0 < abs(scale) < math.inf:
        start = " ".join(header[:60].decode("ascii", "backslashreplace").split()[:4])
        raise InputError(f"{name} is not a grey PFM: expected Pf WIDTH HEIGHT SCALE, got {start!r}")
    width, height = int(found[1]), int(found[2])
    raster.check_size(width, height, name, max_pixels)
    # A single white-space character ends the header; with CR LF line ends, there are two.
    has_two = header[found.end() :].startswith(b"\r\n")
    has_two = has_two and stream.seek(0, io.SEEK_END) == found.end() + 2 + 4 * width * height
    stream.seek(found.end() + 1 + has_two)
    values = _read_array(stream, np.dtype("<f4" if scale < 0 else ">f4"), width * height, name)
    return values.reshape(height, width)[::-1]


def _read_array(stream: BinaryIO, dtype: np.dtype[Any], count: int, name: str) -> np.ndarray:
    """Read the rest of a file, which must hold this number of values."""
    expected = count * dtype.itemsize
    data = stream.read(expected + 1)
    if len(data) != expected:
        found = f"found {len(data)}" if len(data) < expected else "found more"
        raise InputError(f"{name} is damaged: the header states {expected} bytes of data, {found}")
    return np.frombuffer(data, dtype)


def _read_png(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    samples = raster.read_png(stream, name, max_pixels)[0]
    if samples.dtype == np.uint16 and samples.shape[2] == 3 and samples[..., 2].max() == 1:
        known = samples[..., 2] == 1  # a flow map of KITTI
        across, down = (samples[..., :2].astype(np.float32) - 32768).transpose(2, 0, 1) / 64
        if np.quantile(np.abs(down[known]), 0.9) > _MOST_VERTICAL_FLOW:
            raise InputError(f"{name} is optical flow with vertical motion, so it is not a disparity map")
        return np.where(known, -across, np.float32(np.nan))
    if samples.shape[2] != 1:
        reason = f"{name} has {samples.shape[2]} channels, but a disparity map has one"
        raise InputError(reason, "pass the disparity map itself, not its colour map")
    return samples[..., 0]


def _read_pgm(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    # Image libraries would stretch the levels of a PGM whose largest one is below 255.
    if (found := _PGM_HEADER.match(stream.read(4096))) is None:
        raise InputError(f"{name} must be a PGM: P5 WIDTH HEIGHT LARGEST")
    width, height, largest = (int(each) for each in found.groups()[1:])
    raster.check_size(width, height, name, max_pixels)
    stream.seek(found.end())
    dtype = np.dtype(">u2" if largest > 255 else "u1")
    if found[1] == b"2":
        with raster.report_damage(name):
            levels = np.array(stream.read(LARGEST_TEXT).split(), np.uint16).reshape(height, width)
    else:
        levels = _read_array(stream, dtype, width * height, name).reshape(height, width)
    return levels.astype(dtype.newbyteorder("="))


def _read_npz(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    with raster.report_damage(name):
        archive = zipfile.ZipFile(stream)
        arrays = [each.removesuffix(".npy") for each in archive.namelist()]
        if len(arrays) != 1:
            hint = f"numpy.save('disparity.npy', numpy.load({name!r})[NAME]) extracts one of them"
            names = ", ".join(arrays[:8]) or "none"
            raise InputError(f"{name} must hold one array, but holds {len(arrays)} ({names})", hint)
        with archive.open(archive.infolist()[0]) as member:
            return _read_npy(member, name, max_pixels)  # type: ignore[arg-type]


def _read_table(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    """Read a text of numbers: one row of the map a line, after "," ";" tabs or spaces."""
    data = stream.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise InputError(f"{name} has more than {LARGEST_TEXT >> 20} MB")
    text = data.decode("utf-8", "replace")
    mark = next((mark for mark in ";\t," if mark in text), None)
    text = text.replace(",", ".") if mark == ";" else text  # 1,5;2,5 where commas are decimal marks
    lines = [line.rstrip(" ,;\t\r") for line in text.splitlines()]
    hint = "a table of disparities has one line of numbers for each row of the image"
    try:
        numbers: np.ndarray = np.loadtxt(lines, np.float64, delimiter=mark, ndmin=2)
    except (ValueError, UnicodeError) as error:
        reason = " ".join(str(error).partition(";")[0].split())[:120]
        raise InputError(f"{name} is not a table of numbers: {reason}", hint) from None
    if min(numbers.shape) < 2:
        raise InputError(f"{name} holds {numbers.size} numbers in a single row or column", hint)
    raster.check_size(numbers.shape[1], numbers.shape[0], name, max_pixels)
    is_whole = bool(np.isfinite(numbers).all()) and not (numbers % 1).any()
    return numbers.astype(np.int64) if is_whole and "." not in text else numbers


def _read_exr(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    openexr = import_extra("OpenEXR")
    with raster.report_damage(name):
        box = openexr.File(name, header_only=True).header()["dataWindow"]
        width, height = (int(each) + 1 for each in box[1] - box[0])
        raster.check_size(width, height, name, max_pixels)
        channels = openexr.File(name, separate_channels=True).channels()
    maps = [np.asarray(each.pixels, np.float32) for each in channels.values() if each.name != "A"]
    if not maps or any(not np.array_equal(maps[0], other, equal_nan=True) for other in maps[1:]):
        raise InputError(
            f"{name} must hold one channel, but holds {', '.join(channels)}", "write one of them"
        )
    return maps[0]


def decode_levels(levels: np.ndarray) -> np.ndarray:
    """Convert 16-bit grey levels (H, W) to disparities, float32, px; 0 becomes NaN (unknown)."""
    units = levels.astype(np.float32)
    return np.where(units > 0, units / PNG_UNITS_PER_PIXEL, np.float32(np.nan))


def _read_npy(stream: BinaryIO, name: str, max_pixels: int | None) -> np.ndarray:
    # Reading the header separately avoids numpy.load, which allocates any claimed size.
    with raster.report_damage(name), raster.ignore_header_warnings():
        shape, fortran_order, dtype = read_npy_header(stream)
    if dtype.kind not in "fiu":
        raise InputError(f"{name} holds {dtype} values, but a disparity map holds numbers")
    sides = shape
    while len(sides) > 2 and 1 in (sides[0], sides[-1]):  # batches and channels of one map
        sides = sides[1:] if sides[0] == 1 else sides[:-1]
    if len(sides) != 2:
        raise InputError(f"{name} has shape {shape}, but a disparity map has shape (H, W)")
    raster.check_size(sides[1], sides[0], name, max_pixels)
    values = _read_array(stream, dtype, sides[0] * sides[1], name)
    return values.reshape(shape, order="F" if fortran_order else "C").reshape(sides)


_READERS = {
    # first bytes of a file, name of the format, reader
    ".pfm": ((b"",), "PFM", _read_pfm),  # the reader reports the first word
    ".png": ((raster.PNG_SIGNATURE,), "PNG", _read_png),
    ".npy": ((b"\x93NUMPY",), "NumPy .npy file", _read_npy),
    ".npz": ((b"PK",), "NumPy .npz file", _read_npz),
    ".pgm": ((b"P5", b"P2"), "PGM", _read_pgm),
    ".exr": ((b"v/1\x01",), "OpenEXR file", _read_exr),
    **dict.fromkeys(TABLE_SUFFIXES, ((b"",), "table", _read_table)),
    ".tif": (tiff.SIGNATURES, "TIFF", tiff.read_map),
    ".tiff": (tiff.SIGNATURES, "TIFF", tiff.read_map),
}
