"""Image files in memory, as other libraries write them."""

from __future__ import annotations

import io
import zlib

import numpy as np
import tifffile
from PIL import Image


def pillow_bytes(image: Image.Image, format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def tiff_bytes(array: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, array, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
