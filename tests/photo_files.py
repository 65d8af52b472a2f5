"""Photos of phones and VR cameras as tests make them: spatial HEIC, VR180 JPEG."""

from __future__ import annotations

import base64
import importlib
import io
import struct
from collections.abc import Sequence

import numpy as np
from PIL import Image
from stereo_files import with_segment


def heic(*views: np.ndarray, exif: bytes = b"") -> bytes:
    """Encode images, (H, W, 3) uint8, as one HEIC file, nearly lossless."""
    library, stream = importlib.import_module("pillow_heif"), io.BytesIO()
    file = library.HeifFile()
    for view in views:
        file.add_from_pillow(Image.fromarray(view))
    file.save(stream, quality=-1, chroma=444, matrix_coefficients=0, **({"exif": exif} if exif else {}))
    return stream.getvalue()


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content) + 8, kind) + content


def full_box(kind: bytes, content: bytes, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", flags) + content)


def boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return type and content of each box."""
    found, at = [], 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + size]))
        at += size
    return found


def camera(focal: float, x: float, y: float, position: Sequence[int]) -> list[bytes]:
    """Properties of a camera: focal length and principal point as shares of the size; micrometres."""
    shift = 24
    numbers = [round(value * (1 << shift)) for value in (focal, x, y)]
    return [
        full_box(b"cmin", struct.pack(">3i", *numbers), shift << 8),
        full_box(b"cmex", struct.pack(">3i", *position), 7),
    ]


def spatial(data: bytes, cameras: Sequence[Sequence[bytes]], order: Sequence[int] = (0, 1)) -> bytes:
    """Make a spatial photo of a HEIC file with two images: an entity group, and properties of both cameras.

    order: which image is the left view, and which the right one.
    """
    top = boxes(data)
    meta = dict(top)[b"meta"]
    parts = boxes(meta[4:])
    locations = dict(parts)[b"iloc"]
    properties = boxes(dict(parts)[b"iprp"])
    known = boxes(dict(properties)[b"ipco"])
    items = [
        struct.unpack_from(">H", content, 4)[0]
        for kind, content in boxes(dict(parts)[b"iinf"][6:])
        if content[8:12] == b"hvc1"
    ]
    ipma, first = dict(properties)[b"ipma"], len(known)
    count = struct.unpack_from(">I", ipma, 4)[0]
    added, at = b"", 8
    for _ in range(count):
        item, number = struct.unpack_from(">HB", ipma, at)
        entry = ipma[at + 3 : at + 3 + number]
        if item in items:
            own = range(first + 1, first + 1 + len(cameras[items.index(item)]))
            entry, first = entry + bytes(own), own[-1] if own else first
        added += struct.pack(">HB", item, len(entry)) + entry
        at += 3 + number
    inside = b"".join(box(*each) for each in known) + b"".join(each for camera in cameras for each in camera)
    made = box(b"iprp", box(b"ipco", inside) + box(b"ipma", ipma[:8] + added))
    views = [items[index] for index in order]
    group = box(b"grpl", full_box(b"ster", struct.pack(f">II{len(views)}I", 99, len(views), *views)))

    def build(move: int) -> bytes:
        replaced = {b"iprp": made, b"iloc": box(b"iloc", moved(locations, move))}
        content = meta[:4] + b"".join(replaced.get(kind, box(kind, each)) for kind, each in parts) + group
        return b"".join(box(b"meta", content) if kind == b"meta" else box(kind, each) for kind, each in top)

    return build(len(build(0)) - len(data))


def moved(iloc: bytes, move: int) -> bytes:
    """Return the box `iloc` for data that lies `move` bytes later in the file."""
    assert (iloc[0], iloc[4], iloc[5]) == (0, 0x44, 0x40), "another layout than libheif writes"
    made, at = bytearray(iloc), 8
    for _ in range(struct.unpack_from(">H", iloc, 6)[0]):
        _, _, base, extents = struct.unpack_from(">HHIH", iloc, at)
        struct.pack_into(">I", made, at + 4, base + move)
        at += 10 + 8 * extents
    return bytes(made)


def vr180(left: bytes, right: bytes, size: tuple[int, int], *, parts: int = 9) -> bytes:
    """Make a VR180 photo of two JPEGs: the right one in the extended XMP metadata of the left one.

    size: width and height of both. parts: segments of the extended metadata.
    """
    width, height = size
    tags = {
        **{"CroppedAreaLeftPixels": width // 2, "CroppedAreaTopPixels": 0},
        **{"CroppedAreaImageWidthPixels": width, "CroppedAreaImageHeightPixels": height},
        **{"FullPanoWidthPixels": 2 * width, "FullPanoHeightPixels": height},
    }
    guid = b"0123456789ABCDEF0123456789ABCDEF"
    text = " ".join(f'GPano:{name}="{value}"' for name, value in tags.items())
    text += f' GImage:Mime="image/jpeg" xmpNote:HasExtendedXMP="{guid.decode()}"'
    main = f"<x:xmpmeta><rdf:Description {text}/></x:xmpmeta>"
    data = b'<rdf:Description GImage:Data="' + base64.b64encode(right) + b'"/>'
    step = -(-len(data) // parts)
    made = left
    for at in reversed(range(0, len(data), step)):
        head = b"http://ns.adobe.com/xmp/extension/\0" + guid + struct.pack(">II", len(data), at)
        made = with_segment(made, 0xE1, head + data[at : at + step])
    return with_segment(made, 0xE1, b"http://ns.adobe.com/xap/1.0/\0" + main.encode())
