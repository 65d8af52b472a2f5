"""Rendering of a result as one HTML page: slider, pixel readout, measuring tools and point cloud."""

import base64
import json
import math
import zlib
from importlib import resources
from typing import Annotated, Any

import numpy as np
import pydantic
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pamcli.calibration.geometry import Calibration
from pamcli.files.json_files import Text
from pamcli.imaging.colormap import colorize, get_color_table
from pamcli.imaging.images import RgbImage, encode_image, to_uint8

MOST_PIXELS = 2_500_000  # on a page; of larger images every second, third ... pixel and row is shown
FINEST_STEP = 1 / 64  # px, between stored disparities; coarser if 16 bits do not span the range
PERCENTILES = (1, 50, 99)  # of the known disparities: range of the colours, and the middle of the scene
THUMBNAIL = 224  # px, width of the thumbnails on an index
CAMERA = "focal_length", "focal_length_y", "baseline", "offset", "principal"
SCRIPTS = "page.js", "measuring.js", "cloud.js", "live.js"  # in this order: `page.js` runs after loading


@pydantic.dataclasses.dataclass(frozen=True)
class PageEntry:
    """Title and thumbnail (JPEG in base64) that a page stores for the index."""

    title: Text
    picture: Annotated[str, Field(strict=True, pattern="^[A-Za-z0-9+/]*={0,2}$")]


def render_page(
    title: str,
    left: NDArray[np.generic],
    disparity: NDArray[np.float32],
    *,
    confidence: NDArray[np.float32] | None = None,
    calibration: Calibration | None = None,
    live: bool = False,
) -> bytes:
    """Return the page of a result as UTF-8 bytes, for a browser of 2023 or later (WebGL for the cloud).

    live: the page asks its server for the results that follow, and shows a histogram instead of the cloud.
    """
    height, width = disparity.shape
    calibration = calibration and calibration.for_size(width, height)
    described = describe_result(left, disparity, confidence=confidence, calibration=calibration)
    facts = described["facts"]
    (low, high), stride = facts["range"], facts["stride"]
    thumbnail = Image.fromarray(colorize(disparity[::stride, ::stride], low, high))
    thumbnail.thumbnail((THUMBNAIL, 4 * THUMBNAIL))
    summary = {"size": f"{width}x{height} px", "disparity": f"{low:.1f} to {high:.1f} px"}
    if stride > 1:
        summary["shown"] = f"every {stride} pixels of every {stride} rows"
    if calibration is not None:
        focal = f"focal length {calibration.focal_length:.5g} px"
        summary["calibration"] = f"{focal}, baseline {calibration.baseline:.5g} m"
    return render_template(
        "page.html",
        **{"title": title, "live": live, "summary": list(summary.items()), **described},
        entry_json=json.dumps(vars(PageEntry(title, encode_jpeg(np.asarray(thumbnail), 75)))),
    )


def describe_result(
    left: NDArray[np.generic],
    disparity: NDArray[np.float32],
    *,
    confidence: NDArray[np.float32] | None,
    calibration: Calibration | None,
    most_pixels: int | None = None,
    level: int = 6,
) -> dict[str, Any]:
    """Return the image, the maps (both encoded) and the facts that a page shows.

    calibration: at the size of the image; most_pixels: default `MOST_PIXELS`; level: of compression, from 1.
    """
    height, width = disparity.shape
    stride = math.ceil(math.sqrt(height * width / (most_pixels or MOST_PIXELS)))
    small = np.asarray(disparity[::stride, ::stride], np.float32)
    confidence = None if confidence is None else confidence[::stride, ::stride]
    known = small[np.isfinite(small)]
    low, middle, high = np.percentile(known, PERCENTILES).tolist() if known.size else (0.0, 1.0, 1.0)
    metric, depths = calibration if calibration and calibration.baseline > 0 else None, None
    # Without metric calibration, the camera of the point cloud is one that sees all points.
    camera: tuple[Any, ...] = width, width, 1, max(0.0, 1 - low), ((width - 1) / 2, (height - 1) / 2)
    if metric is not None:
        depth = metric.depth(small.ravel())
        if len(finite := depth[np.isfinite(depth)]):
            depths = np.percentile(finite, PERCENTILES[::-2]).tolist()
        focal_lengths = metric.focal_length, metric.vertical_focal_length
        camera = (*focal_lengths, metric.baseline, metric.offset, metric.principal)
    values, lowest, step = _encode_maps(small, confidence, level)
    return {
        "image": encode_jpeg(np.asarray(Image.fromarray(to_uint8(left)).reduce(stride)), 88),
        "values": values,
        "facts": {
            **{"width": small.shape[1], "height": small.shape[0], "stride": stride},
            **{"low": lowest, "step": step, "range": [low, high], "middle": middle, "depths": depths},
            **{"confidence": confidence is not None, "calibration": metric is not None},
            "camera": dict(zip(CAMERA, camera, strict=True)),
            "colors": base64.b64encode(get_color_table().tobytes()).decode(),
        },
    }


def _encode_maps(
    disparity: NDArray[np.float32], confidence: NDArray[np.float32] | None, level: int
) -> tuple[str, float, float]:
    """Return the encoded maps, the lowest disparity and the step between disparities (px).

    Disparities become 16-bit numbers (0 = unknown) and are stored as zigzag differences along each row: low
    bytes, then high bytes, then the confidence in 1/255; deflated, in base64.
    """
    known = np.isfinite(disparity)
    low, high = (float(disparity[known].min()), float(disparity[known].max())) if known.any() else (0.0, 0.0)
    step = max(FINEST_STEP, (high - low) / 65534)
    levels = np.rint((np.where(known, disparity, low) - low) / step) + 1
    numbers = np.where(known, levels, 0).astype(np.uint16)
    change = np.diff(numbers, axis=1, prepend=np.uint16(0)).view(np.int16)
    zigzag = ((change << 1) ^ (change >> 15)).view(np.uint16)
    planes = [(zigzag & 255).astype(np.uint8), (zigzag >> 8).astype(np.uint8)]
    if confidence is not None:
        sure = np.rint(np.clip(confidence, 0, 1) * np.float32(255)).astype(np.uint8)
        planes.append(np.diff(sure, axis=1, prepend=np.uint8(0)))
    deflated = zlib.compress(b"".join(plane.tobytes() for plane in planes), level)
    return base64.b64encode(deflated).decode(), low, step


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> str:
    """Encode an image (H, W, 3), or a grey one (H, W), as JPEG in base64."""
    is_grey = pixels.ndim == 2
    pixels = np.repeat(pixels[..., None], 3, axis=2) if is_grey else np.ascontiguousarray(pixels)
    data = encode_image(RgbImage(pixels, grey=is_grey), ".jpg", name="the page", quality=quality)
    return base64.b64encode(data).decode()


def render_template(template: str, **values: Any) -> bytes:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pamcli.viewing", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    files = resources.files("pamcli.viewing")
    style, *scripts = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS))
    text = environment.get_template(template).render(style=style, script="".join(scripts), **values)
    return text.encode("utf-8", "replace")  # replaces the lone surrogates of file names that are not UTF-8
