"""Read disparity and depth maps: PFM, 16-bit PNG as in KITTI, NumPy and TIFF, which are also written.

PGM, NPZ, EXR, tables of numbers, and the optical flow of KITTI are only read. Units, markers of missing
values, and implausible values in files of other programs are recognised.

In memory, a disparity map is (H, W) float32, px, NaN = unknown. In files:

| suffix        | numbers                                     | unknown |
| ------------- | ------------------------------------------- | ------- |
| `.pfm`        | float32, little-endian, last row first      | +inf    |
| `.png`        | 16 bits, 256 for each pixel of disparity    | 0       |
| `.npy`        | float32                                     | NaN     |
| `.tif` `.tiff`| float32                                     | NaN     |
"""

import io
import math
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.paths import open_source
from pamcli.files.safe_reading import LARGEST_TEXT, read_npy_header
from pamcli.files.suffixes import TABLE_SUFFIXES
from pamcli.imaging import raster, tiff
from pamcli.imaging.disparity_encoding import PNG_UNITS_PER_METRE, PNG_UNITS_PER_PIXEL, reject_suffix
from pamcli.validation import check_arguments

SIGNED_UNITS_PER_PIXEL = 16  # units of the signed integers of OpenCV's StereoSGBM and StereoBM
_MOST_VERTICAL_FLOW = 1.0  # px, that most known pixels of a disparity map stored as flow may have
_PGM_HEADER = re.compile(rb"P([25])" + 3 * rb"\s+(?:#.*\n\s*)*(\d{1,9})" + rb"\s")
_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PFM_HEADER = re.compile(rb"\s*Pf\s+([1-9]\d*)\s+([1-9]\d*)\s+(%s)(?!\S)" % _NUMBER)

Disparities = NDArray[np.float32]
UNITS = {
    16: "OpenCV's StereoSGBM",
    32: "CREStereo",
    64: "NeRF-Supervised Stereo",
    100: "InStereo2K",
    128: "128 units per px",
    200: "ApolloScape",
    256: "KITTI",
    1000: "1/1000 px",
}
"""Units per pixel of disparity, and programs or data sets that use them."""
CLOSE = 0.1  # relative error at which a measured factor counts as a known unit
MARKER_SHARE, MARKER_TIMES = 0.005, 5  # lowest value: least share, and frequency relative to the next one
OTHER_UNIT, ENOUGH = 1.8, 64  # factor to the ground truth that shows another unit; pixels needed
LEAST, MOST = 5.0, 1.0  # 98th percentile of plausible disparities: at least px, at most image widths


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
    return _convert_to_pixels(read_numbers(Path(path), max_pixels), Path(path), scale)[0]


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
        reject_suffix(suffix, tuple(_READERS), f"{path}: ", convert)
    signatures, kind, read = _READERS[suffix]
    with open_source(path, str(path)) as stream:
        if not stream.read(8).startswith(signatures):
            raise InputError(f"{path} is not a {kind}")
        stream.seek(0)
        return read(stream, str(path), max_pixels)


def _convert_to_pixels(numbers: np.ndarray, path: Path, scale: float | None) -> tuple[Disparities, float]:
    """Convert the numbers of a file to float32 px, NaN = unknown; return them and the units per pixel."""
    if scale is not None and not 1e-6 <= abs(scale) <= 1e6:
        reason = f"`scale` must be between 1e-6 and 1e6 units per px, or negative, got {scale:g}"
        raise UsageError(reason, "it is 256 for PNG of KITTI; negative numbers change the sign")
    suffix, kind = path.suffix.lower(), numbers.dtype.kind
    if scale is not None or kind == "f":
        units = 1.0 if scale is None else scale
    elif numbers.dtype == np.uint16 and suffix == ".png":
        units = PNG_UNITS_PER_PIXEL
    elif kind == "i" and suffix not in TABLE_SUFFIXES:
        units = SIGNED_UNITS_PER_PIXEL
    else:
        hint = (
            "state the units per px with `scale` N: 1 for px, 4 or 8 for Middlebury in 8 bits, 256 for KITTI"
        )
        raise InputError(f"{path} holds {numbers.dtype} numbers of unknown scale", hint)
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes inf, hence unknown
        disparity = numbers.astype(np.float32) / np.float32(units)
    if suffix in (".png", ".pgm") and kind == "u":
        disparity[numbers == 0] = np.nan
    disparity[~np.isfinite(disparity)] = np.nan
    return np.asarray(disparity, np.float32), units


class DisparityFile(NamedTuple):
    """A disparity map (H, W), float32, px, NaN = unknown."""

    disparity: Disparities
    units: float  # units per pixel in the file
    warnings: list[str]


def read_disparity_file(
    path: Path,
    *,
    scale: float | None = None,
    invalid: float | None = None,
    max_pixels: int | None = raster.DEFAULT_MAX_PIXELS,
) -> DisparityFile:
    """Read a disparity file of any program, with markers of missing values as unknown.

    Markers are 0, and `invalid` (in the units of the file) or, without it, those of `find_missing_markers`.
    """
    numbers = read_numbers(path, max_pixels)
    if path.suffix.lower() in (".tif", ".tiff") and tiff.is_depth_map(path):
        raise InputError(
            f"{path} is a depth map in metres",
            "pass the disparity map it was made from, or add `invert` to `pam depth`",
        )
    disparity, units = _convert_to_pixels(numbers, path, scale)
    warnings = []
    if invalid is not None:
        disparity[np.isclose(numbers, invalid, rtol=1e-6, atol=0)] = np.nan
    for marker in find_missing_markers(disparity) if invalid is None else ():
        marked = disparity == np.float32(marker)
        share = 100 * marked.mean()
        warnings.append(f"{share:.2g} % of the pixels are {marker:g} px and are treated as unknown")
        disparity[marked] = np.nan
    if scale is None and (doubt := find_unit_problem(disparity, units)):
        warnings.append(doubt)
    return DisparityFile(disparity, units, warnings)


def find_missing_markers(disparity: Disparities) -> list[float]:
    """Return the frequent values (px) that mark missing ones: the lowest, or one above the image width."""
    values, counts = np.unique(disparity[np.isfinite(disparity)], return_counts=True)
    if len(values) < 2:
        return []
    often = counts >= max(MARKER_SHARE * counts.sum(), 2)
    lowest, highest = float(values[0]), float(values[-1])
    # Above 0, the lowest value may be a plane of one disparity, unless all others are fractions.
    rest = values[1:] % 1 != 0
    alone = len(rest) > 16 and counts[0] > MARKER_TIMES * counts[1:].max() and values[1] - values[0] >= 1
    whole = lowest % 1 == 0 and rest.mean() > 0.5
    is_low = counts[0] > MARKER_TIMES * counts[1] if lowest <= 0 else alone and whole
    is_high = highest > MOST * disparity.shape[1] and highest > OTHER_UNIT * abs(values[-2])
    return [lowest] * bool(often[0] and is_low) + [highest] * bool(often[-1] and is_high)


def find_unit_problem(disparity: Disparities, stored: float) -> str | None:
    """Return why `stored` units per pixel are probably wrong and which scale fits, or None if plausible."""
    known = disparity[np.isfinite(disparity)]
    if not known.size:
        return None
    high, width = float(np.quantile(known, 0.98)), disparity.shape[1]
    if high < 0:
        hint = "all disparities are negative; use `scale` -1 to change their sign"
        return hint if known.max() < 0 else None
    if (LEAST if stored != 1 else 1.0) <= high <= MOST * width:
        return None
    units = high * stored
    fitting = [each for each in UNITS if LEAST <= units / each <= min(0.8 * width, 300) and each != stored]
    hint = " or ".join(f"`scale` {each} ({UNITS[each]})" for each in fitting[:2])
    if stored == 1 and high <= 1:
        hint = f"use `scale` {1 / width:.3g} if they are fractions of the width"
    hint = hint or "state the units per px with `scale` N"
    low = float(np.quantile(known, 0.02))
    return f"disparities of {low:.3g} to {high:.3g} px are implausible in an image {width} px wide; {hint}"


def round_to_known_unit(factor: float) -> float:
    """Return the units per pixel for a measured factor."""
    near = min((0.25, 0.5, 1, 2, 4, 8, *UNITS), key=lambda unit: abs(np.log(abs(factor) / unit)))
    close = abs(abs(factor) / near - 1) <= CLOSE
    return float(np.copysign(near if close else float(f"{abs(factor):.3g}"), factor))


def measure_scale_factor(disparity: Disparities, truth: Disparities) -> float | None:
    """Return the constant factor (negative for negative maps) to the ground truth (H, W), px, or None."""
    with np.errstate(invalid="ignore", divide="ignore"):
        both = (truth > 0) & np.isfinite(truth) & np.isfinite(disparity)
        ratios = (disparity[both] / truth[both]).astype(np.float64)
    if ratios.size < ENOUGH:
        return None
    if not ratios.any():
        return 0.0
    middle = float(np.median(ratios))
    constant = np.mean(np.abs(ratios - middle) < 0.2 * abs(middle)) > 0.5
    if np.mean(ratios < 0) > 0.95:
        return middle if constant else -1.0
    return middle if constant and not 1 / OTHER_UNIT < middle < OTHER_UNIT else None


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
