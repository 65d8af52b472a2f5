"""Textured meshes in metres, as glTF 2.0 binary files (GLB)."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.geometry import Calibration
from pamcli.imaging.images import RgbImage, encode_image, to_uint8
from pamcli.imaging.resize import imresize_to

_MOST_VERTICES = 100_000  # a file of 5 MB
_LONGEST_TEXTURE = 2048  # px
_QUALITY = 85  # of the texture, a JPEG
_FARTHEST = 10.0  # largest depth by default, in medians: viewers zoom out until they show every point
_STEEPEST = 0.5  # disparity per pixel that still belongs to one surface; beyond it a new one begins
_FLOAT, _UINT, _ARRAY, _INDICES = 5126, 5125, 34962, 34963  # constants of glTF


def encode_mesh(
    disparity: NDArray[np.generic],
    calibration: Calibration,
    *,
    image: NDArray[Any] | None = None,
    max_depth: float | None = None,
    stride: int = 1,
) -> tuple[bytes, int]:
    """Return the bytes of a GLB with the surface that the left camera sees, and the number of its triangles.

    The mesh has holes where the depth is unknown, and between surfaces of different depth. Coordinates are
    metres: x to the right, y up, the camera looks along -z. Raises InputError.
    """
    height, width = disparity.shape
    calibration = calibration.for_size(width, height)
    step = max(stride, math.ceil(math.sqrt(height * width / _MOST_VERTICES)))
    depth = calibration.depth(disparity)[::step, ::step]
    samples = disparity[::step, ::step].astype(np.float32)
    finite = depth[np.isfinite(depth)]
    limit = max_depth or _FARTHEST * float(np.median(finite) if len(finite) else 1)
    samples = np.where(depth <= limit, samples, np.float32("nan"))

    corners = np.stack([samples[:-1, :-1], samples[1:, :-1], samples[:-1, 1:], samples[1:, 1:]])
    with np.errstate(invalid="ignore"):
        whole = corners.max(axis=0) - corners.min(axis=0) <= 1 + _STEEPEST * step  # False for NaN
    row, column = np.nonzero(whole)
    across = samples.shape[1]
    first = row * across + column
    # Counterclockwise seen from the camera: upper left, lower left, upper right; and the other half.
    faces = first[:, None] + [0, across, 1, 1, across, across + 1]
    used, indices = np.unique(faces.ravel(), return_inverse=True)
    y, x = np.divmod(used, across) if len(used) else (used, used)
    z = depth.ravel()[used]
    right, down = calibration.locate(x * step, y * step, z)
    points = np.stack([right, -down, -z], axis=1).astype("<f4")
    places = np.stack([(x * step + 0.5) / width, (y * step + 0.5) / height], axis=1).astype("<f4")
    texture = None
    if image is not None:
        shrink = min(1.0, _LONGEST_TEXTURE / max(image.shape))
        small = imresize_to(image, *(max(1, round(shrink * side)) for side in image.shape[1::-1]))
        texture = encode_image(RgbImage(to_uint8(small)), ".jpg", name="the texture", quality=_QUALITY)
    return _encode_glb(points, places, indices.astype("<u4"), texture), 2 * len(first)


def _encode_glb(
    points: NDArray[np.float32],
    places: NDArray[np.float32],
    indices: NDArray[np.uint32],
    texture: bytes | None,
) -> bytes:
    tree: dict[str, Any] = {"asset": {"version": "2.0", "generator": "pam"}, "scene": 0, "scenes": [{}]}
    parts: list[bytes] = []
    if len(indices):
        bounds = {"min": points.min(0).tolist(), "max": points.max(0).tolist()}
        arrays = [
            (points, {"componentType": _FLOAT, "type": "VEC3", **bounds}, _ARRAY),
            (places, {"componentType": _FLOAT, "type": "VEC2"}, _ARRAY),
            (indices, {"componentType": _UINT, "type": "SCALAR"}, _INDICES),
        ]
        parts = [array.tobytes() for array, _, _ in arrays]
        views: list[dict[str, Any]] = [{"target": target} for _, _, target in arrays]
        colour: dict[str, Any] = {"metallicFactor": 0, "baseColorFactor": [0.7, 0.7, 0.7, 1]}
        if texture is not None:
            parts.append(texture)
            views.append({})
            colour = {"metallicFactor": 0, "baseColorTexture": {"index": 0}}
            tree["images"] = [{"bufferView": 3, "mimeType": "image/jpeg"}]
            tree["samplers"] = [{"wrapS": 33071, "wrapT": 33071}]  # the edges are not repeated
            tree["textures"] = [{"source": 0, "sampler": 0}]
        surface = {"attributes": {"POSITION": 0, "TEXCOORD_0": 1}, "indices": 2, "material": 0}
        unlit = {"doubleSided": True, "extensions": {"KHR_materials_unlit": {}}}
        at = 0
        for view, part in zip(views, parts, strict=True):
            view |= {"buffer": 0, "byteOffset": at, "byteLength": len(part)}
            at += len(part) + -len(part) % 4
        tree |= {
            "extensionsUsed": ["KHR_materials_unlit"],
            "scenes": [{"nodes": [0]}],
            "nodes": [{"mesh": 0}],
        }
        tree |= {"meshes": [{"primitives": [surface]}], "bufferViews": views, "buffers": [{"byteLength": at}]}
        tree["materials"] = [{**unlit, "pbrMetallicRoughness": colour}]
        tree["accessors"] = [
            {"bufferView": number, "count": len(array), **kind}
            for number, (array, kind, _) in enumerate(arrays)
        ]
    text = json.dumps(tree, separators=(",", ":")).encode()
    chunks = [(b"JSON", text + b" " * (-len(text) % 4))]
    if parts:
        chunks.append((b"BIN\0", b"".join(part + bytes(-len(part) % 4) for part in parts)))
    body = b"".join(struct.pack("<I4s", len(data), kind) + data for kind, data in chunks)
    return struct.pack("<4sII", b"glTF", 2, len(body) + 12) + body
