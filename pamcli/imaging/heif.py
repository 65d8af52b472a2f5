"""Read HEIC photos, and both views of Apple's spatial photos, with pillow-heif (extra `heif`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from pamcli.errors import InputError, import_extra
from pamcli.imaging.raster import Decoded, check_size, report_damage

HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_LARGEST_HEADER = 1 << 24  # bytes of the boxes that describe the images
_USER_TYPES = {  # of `uuid` boxes in which headsets store these properties
    bytes.fromhex("22cc04c7d6d94e079d904eb6ecbaf3a3"): b"cmin",
    bytes.fromhex("4363e9145b7d4aab97aebea69803b434"): b"cmex",
}


def read_heif(stream: BinaryIO, name: str, max_pixels: int | None) -> Decoded:
    """Read the main image of a HEIC photo, upright. Raises InputError for a spatial photo, UsageError."""
    with report_damage(name):
        if _read_boxes(stream.read(_LARGEST_HEADER))[0]:
            raise InputError(f"{name} holds both views", "pass this file alone instead of two images")
        stream.seek(0)
        file = import_extra("pillow_heif").open_heif(stream, convert_hdr_to_8bit=False)
        return _decode(file[file.primary_index], name, max_pixels)


def read_spatial(
    stream: BinaryIO, name: str, max_pixels: int | None
) -> tuple[Decoded, Decoded, dict[str, Any]] | None:
    """Return both views of a spatial photo and the fields of the `Calibration` that it states, else None.

    The views are the images of an entity group `ster`, their cameras the properties `cmin` and `cmex`
    (ISO/IEC 23008-12), also in `uuid` boxes; the calibration is empty if one is missing.
    """
    magic = stream.read(12)
    stream.seek(0)
    if magic[4:8] != b"ftyp" or magic[8:12] not in HEIF_BRANDS:
        return None
    with report_damage(name):
        groups, cameras = _read_boxes(stream.read(_LARGEST_HEADER))
        stream.seek(0)
        if not groups:
            return None
        if len(groups[0]) != 2:
            raise InputError(f"{name} holds a group of {len(groups[0])} views", "save two of them as images")
        file = import_extra("pillow_heif").open_heif(stream, convert_hdr_to_8bit=False)
        known = [group for group in file.info.get("entity_groups", ()) if group["type"] == "ster"]
        if not known or None in known[0]["images"]:
            raise InputError(f"{name} is damaged: a view is missing")
        left, right = (_decode(file[index], name, max_pixels) for index in known[0]["images"])
    one, two = (cameras.get(item, {}) for item in groups[0])
    stated, size = dict[str, Any](), left[0].shape[1::-1]
    if all({"cmin", "cmex", "size"} <= each.keys() and each["size"] == size for each in (one, two)):
        (focal, x, y), (_, other, _) = one["cmin"], two["cmin"]
        baseline = math.dist(one["cmex"], two["cmex"])
        if focal > 0 and baseline > 0:
            stated = {"focal_length": focal * size[0], "baseline": baseline, "size": size}
            # Whole numbers are the corners of pixels in the file, and their centres in a `Calibration`.
            stated["principal"] = x * size[0] - 0.5, y * size[1] - 0.5
            stated["offset"] = (other - x) * size[0]
    return left, right, stated


def _decode(image: Any, name: str, max_pixels: int | None) -> Decoded:
    width, height = image.size
    check_size(width, height, name, max_pixels)
    samples = np.array(image)
    samples = samples.reshape(height, samples.shape[1], -1)[:, :width]
    stated = {"icc_profile": image.info.get("icc_profile"), "exif": image.info.get("exif") or b""}
    # libheif has turned the image already, whatever its EXIF block says.
    return np.ascontiguousarray(samples), {**stated, "orientation": 1}


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield type and content of the boxes in a sequence."""
    at = 0
    while at + 8 <= len(data):
        size, kind, head = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16]), 16
        end = at + size if size else len(data)
        if size and size < head:
            raise ValueError("a box is too small")
        if kind == b"uuid":
            kind, head = _USER_TYPES.get(data[at + head : at + head + 16], kind), head + 16
        yield kind, data[at + head : end]
        at = end


def _read_boxes(data: bytes) -> tuple[list[tuple[int, ...]], dict[int, dict[str, Any]]]:
    """Return the items of each `ster` group, and the camera of each item: `cmin`, `cmex` and its size."""
    meta = next((content[4:] for kind, content in _boxes(data) if kind == b"meta"), b"")
    parts = dict(_boxes(meta))
    groups = []
    for kind, content in _boxes(parts.get(b"grpl", b"")):
        if kind == b"ster":
            count = int.from_bytes(content[8:12])
            groups.append(tuple(np.frombuffer(content, ">u4", count, 12).tolist()))
    properties = dict(_boxes(parts.get(b"iprp", b"")))
    values = [_read_camera_property(*box) for box in _boxes(properties.get(b"ipco", b""))]
    cameras: dict[int, dict[str, Any]] = {}
    for item, indices in _read_associations(properties.get(b"ipma", b"")):
        found = [values[index - 1] for index in indices if 0 < index <= len(values)]
        cameras[item] = {key: value for each in found for key, value in each.items()}
    return groups, cameras


def _read_camera_property(kind: bytes, content: bytes) -> dict[str, Any]:
    """Read one property: `cmin` in shares of width and height, `cmex` in metres, `ispe` as the size."""
    flags, numbers = int.from_bytes(content[1:4]), content[4:]
    if kind == b"ispe":
        return {"size": tuple(np.frombuffer(numbers, ">u4", 2).tolist())}
    if kind == b"cmin":
        return {"cmin": (np.frombuffer(numbers, ">i4", 3) / (1 << (flags >> 8 & 0x1F))).tolist()}
    if kind == b"cmex":
        given = [bool(flags & 1 << bit) for bit in range(3)]
        lengths = iter((np.frombuffer(numbers, ">i4", sum(given)) / 1e6).tolist())
        return {"cmex": [next(lengths) if each else 0.0 for each in given]}
    return {}


def _read_associations(content: bytes) -> Iterator[tuple[int, list[int]]]:
    """Yield each item with the numbers of its properties, from 1 (box `ipma`)."""
    wide_items, wide_numbers = content[:1] > b"\0", content[3:4] > b"\0" and content[3] & 1
    at, step = 8, 2 if wide_numbers else 1
    for _ in range(int.from_bytes(content[4:8])):
        width = 4 if wide_items else 2
        item, count = int.from_bytes(content[at : at + width]), content[at + width]
        at += width + 1
        mask = 0x7FFF if wide_numbers else 0x7F
        places = range(at, at + count * step, step)
        yield item, [int.from_bytes(content[n : n + step]) & mask for n in places]
        at += count * step
