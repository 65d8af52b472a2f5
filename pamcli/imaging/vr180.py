"""Read VR180 photos (Google's XMP metadata), and make rectilinear views of half panoramas."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from pamcli.errors import InputError
from pamcli.imaging.images import StereoPair
from pamcli.imaging.jpeg import read_jpeg_header
from pamcli.imaging.raster import report_damage

FIELD_OF_VIEW = 90.0  # degrees of the view that is made of a photo if no other is asked for
HALF_SPHERE = (-90.0, 90.0, -90.0, 90.0)  # degrees at the left, right, upper and lower edge of 180 degrees
FULL_SPHERE = (-180.0, 180.0, -90.0, 90.0)
_XMP, _EXTENSION = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
_LARGEST_SIDE = 32766  # of an image that OpenCV remaps


def find_right_view(stream: BinaryIO, name: str) -> tuple[bytes, tuple[float, ...]] | None:
    """Return the JPEG file of a VR180 photo's right view, and the span as `HALF_SPHERE`; else None."""
    image = read_jpeg_header(stream, name)
    if image is None:
        return None
    with report_damage(name):
        segments = [data for kind, data in image.applist if kind == "APP1"]
        text = b"".join(data[len(_XMP) :] for data in segments if data.startswith(_XMP))
        # Behind the name: 32 bytes that identify the whole text, its length, and the offset of this part.
        start = len(_EXTENSION) + 36
        parts = [data[start:] for data in segments if data.startswith(_EXTENSION)]
        text += b"".join(dict(sorted((part[:4], part[4:]) for part in parts)).values())
        if b"GImage:" not in text:
            return None
        found = re.search(rb'GImage:Data(?:\s*=\s*["\']|>)([^"\'<]*)', text)
        if found is None:
            raise InputError(f"{name} is damaged: its metadata lacks the right view")
        return base64.b64decode(found[1]), _parse_span(text)


def _parse_span(text: bytes) -> tuple[float, ...]:
    names = [b"CroppedArea%b" % each for each in (b"Left", b"Top", b"ImageWidth", b"ImageHeight")]
    names += [b"FullPanoWidth", b"FullPanoHeight"]
    found = [re.search(rb'GPano:%bPixels(?:\s*=\s*["\']|>)\s*(\d+)' % each, text) for each in names]
    if None in found:
        return HALF_SPHERE
    left, top, width, height, all_width, all_height = (float(each[1]) for each in found if each)
    edges = [left / all_width * 360 - 180, (left + width) / all_width * 360 - 180]
    edges += [top / all_height * 180 - 90, (top + height) / all_height * 180 - 90]
    if not (-180 <= edges[0] < 0 < edges[1] <= 180 and -90 <= edges[2] < 0 < edges[3] <= 90):
        raise ValueError("the panorama does not cover the forward direction")
    return tuple(edges)


def make_rectilinear(pair: StereoPair, field_of_view: float | None = None) -> StereoPair:
    """Return the views that cameras without distortion see straight ahead, `field_of_view` degrees wide.

    Views that are twice as wide as high span 360 degrees, others 180 degrees. The pair states its calibration
    except for the baseline, which is not known: 0.

    None: those of a VR180 photo become 90 degrees wide, and others stay unchanged.
    """
    if pair.span is None and field_of_view is None:
        return pair
    import cv2

    height, width, angle = pair.height, pair.width, field_of_view or FIELD_OF_VIEW
    span = pair.span or (FULL_SPHERE if width == 2 * height else HALF_SPHERE)
    left, right, top, bottom = np.radians(span)
    half = math.radians(angle) / 2
    if half > min(-left, right, -top, bottom) + 1e-6:
        raise InputError(f"{pair.name} spans less than {angle:g} degrees", "reduce `vr180`")
    focal = width / (right - left)  # pixels per radian
    side = 2 * round(focal * math.tan(half))
    if max(height, width, side) > _LARGEST_SIDE:
        reason = f"{pair.name} is {width}x{height}, which is too large"
        raise InputError(reason, "reduce the images, or `vr180`")
    middle = (side - 1) / 2
    x, y = np.meshgrid(*[(np.arange(side) - middle) / focal] * 2)
    longitude, latitude = np.arctan(x), np.arctan2(y, np.hypot(x, 1))
    across = ((longitude - left) / (right - left) * width - 0.5).astype(np.float32)
    down = ((latitude - top) / (bottom - top) * height - 0.5).astype(np.float32)
    edges: dict[str, Any] = {"interpolation": cv2.INTER_CUBIC, "borderMode": cv2.BORDER_REPLICATE}
    made = [
        replace(view, pixels=cv2.remap(view.pixels, across, down, **edges), alpha=None)
        for view in (pair.left, pair.right)
    ]
    stated = {"focal_length": float(focal), "baseline": 0.0, "principal": (middle, middle)}
    stated["size"] = side, side
    return replace(pair, left=made[0], right=made[1], stated=stated, span=None)
