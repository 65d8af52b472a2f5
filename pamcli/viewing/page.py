"""Render a result as one HTML page with a slider, a pixel readout and a point cloud, and index such pages.

The index is built from the pages in a folder, whichever run wrote them.
"""

import base64
import html
import json
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote as quote_url

import numpy as np
import pydantic
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pamcli.calibration.rectified import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.atomic import write_atomically
from pamcli.files.json_files import Text, check_json, parse_stored_json
from pamcli.files.paths import join_names, natural_key, quote
from pamcli.imaging.colormap import colorize, get_color_table
from pamcli.imaging.images import RgbImage, encode_image, to_uint8

MOST_PIXELS = 2_500_000
"""Largest number of pixels on a page; larger images are shown by every second, third ... pixel and row."""
PICTURE_QUALITY = 88
FINEST_STEP = 1 / 64
"""Smallest step (px) of stored disparities; coarser if 16 bits do not span the range."""
PERCENTILES = (1, 50, 99)  # of the known disparities: range of the colours, and the middle of the scene
THUMBNAIL = 224  # px, width of the thumbnails on an index

SCRIPTS = "page.js", "measuring.js", "cloud.js"
"""Scripts of a page, in this order; the function that runs after loading is in `page.js`."""

INDEX_NAME = "index.html"
MOST_PICTURES = 500  # an index of more pages shows names only

_OWN = '<meta name="pam" '
_ENTRY = re.compile(_OWN + r'content="(.*?)">')
_INDEX = b'<meta name="pam-index"'
_HEAD = 1 << 16  # bytes at the start of a page that contain its entry


@pydantic.dataclasses.dataclass(frozen=True)
class PageEntry:
    """Title and thumbnail that a page stores about itself for the index."""

    title: Text
    picture: Annotated[str, Field(strict=True, pattern="^[A-Za-z0-9+/]*={0,2}$")]
    """A small JPEG image in base64."""


def render_page(
    title: str,
    left: NDArray[np.generic],
    disparity: NDArray[np.float32],
    *,
    confidence: NDArray[np.float32] | None = None,
    calibration: Calibration | None = None,
) -> bytes:
    """Return the page of a result as UTF-8 bytes, for a browser of 2023 or later (WebGL for the cloud).

    Args:
        title: Title of the page.
        left: Left image, (H, W, 3) RGB, uint8 or uint16.
        disparity: Disparity map, (H, W), px, any sign, NaN = unknown.
        confidence: Confidence map, (H, W), in [0, 1].
        calibration: Calibration of images of this aspect ratio; without it, no depth is shown.

    Raises:
        InputError: If the calibration belongs to another aspect ratio.
    """
    full_height, full_width = disparity.shape
    if calibration is not None:
        calibration = calibration.for_size(full_width, full_height)
    stride = math.ceil(math.sqrt(full_height * full_width / MOST_PIXELS))
    shown = np.asarray(disparity[::stride, ::stride], np.float32)
    sure = None if confidence is None else confidence[::stride, ::stride]
    picture = np.asarray(Image.fromarray(to_uint8(left)).reduce(stride))
    known = shown[np.isfinite(shown)]
    low, middle, high = np.percentile(known, PERCENTILES).tolist() if known.size else (0.0, 1.0, 1.0)
    metric = calibration is not None and calibration.baseline > 0
    depths = _depths(calibration, shown) if calibration is not None and metric else None
    values, lowest, step = _packed(shown, sure)
    thumbnail = Image.fromarray(colorize(shown, low, high))
    thumbnail.thumbnail((THUMBNAIL, 4 * THUMBNAIL))
    summary = {"size": f"{full_width} x {full_height} px", "disparities": f"{low:.1f} to {high:.1f} px"}
    if stride > 1:
        summary["shown"] = f"every {stride} pixels of every {stride} rows"
    if calibration is not None:
        summary["calibration"] = (
            f"focal length {calibration.focal_length:.5g} px, baseline {calibration.baseline:.5g} m"
        )
    return rendered(
        "page.html",
        title=title,
        entry_json=json.dumps(vars(PageEntry(title, _jpeg(np.asarray(thumbnail), 75)))),
        summary=list(summary.items()),
        picture=_jpeg(picture, PICTURE_QUALITY),
        values=values,
        facts={
            "width": shown.shape[1],
            "height": shown.shape[0],
            "stride": stride,
            "low": lowest,
            "step": step,
            "range": [low, high],
            "middle": middle,
            "confidence": sure is not None,
            "depths": depths,
            "calibration": metric,
            "camera": _camera(calibration, full_width, full_height, low),
            "colors": base64.b64encode(get_color_table().tobytes()).decode(),
        },
    )


def _depths(calibration: Calibration, disparity: NDArray[np.float32]) -> list[float] | None:
    """Return the farthest and nearest depth (m) of the colour scale, or None if no depth is known."""
    depth = calibration.depth(disparity.ravel())
    known = depth[np.isfinite(depth)]
    near, _, far = np.percentile(known, PERCENTILES).tolist() if known.size else (0.0, 0.0, 0.0)
    return [far, near] if known.size else None


def _camera(calibration: Calibration | None, width: int, height: int, low: float) -> dict[str, Any]:
    """Return the camera of the point cloud; without a calibration, a camera that sees all points."""
    values: tuple[object, ...] = width, width, 1, max(0.0, 1 - low), ((width - 1) / 2, (height - 1) / 2)
    if calibration is not None and calibration.baseline > 0:
        focal_lengths = calibration.focal_length, calibration.vertical_focal_length
        values = (*focal_lengths, calibration.baseline, calibration.offset, calibration.principal)
    names = "focal_length", "focal_length_y", "baseline", "offset", "principal"
    return dict(zip(names, values, strict=True))


def _packed(
    disparity: NDArray[np.float32], confidence: NDArray[np.float32] | None
) -> tuple[str, float, float]:
    """Return the encoded maps, the lowest disparity and the step between disparities (px).

    Disparities become 16-bit numbers (0 = unknown) and are stored as zigzag differences along each row: low
    bytes, then high bytes, then the confidence in 1/255; deflated, in base64.
    """
    known = np.isfinite(disparity)
    low, high = (float(disparity[known].min()), float(disparity[known].max())) if known.any() else (0.0, 0.0)
    step = max(FINEST_STEP, (high - low) / 65534)
    numbers = np.where(known, np.rint((np.where(known, disparity, low) - low) / step) + 1, 0).astype(
        np.uint16
    )
    change = np.diff(numbers, axis=1, prepend=np.uint16(0)).view(np.int16)
    zigzag = ((change << 1) ^ (change >> 15)).view(np.uint16)
    planes = [(zigzag & 255).astype(np.uint8), (zigzag >> 8).astype(np.uint8)]
    if confidence is not None:
        levels = np.rint(np.clip(confidence, 0, 1) * np.float32(255)).astype(np.uint8)
        planes.append(np.diff(levels, axis=1, prepend=np.uint8(0)))
    deflated = zlib.compress(b"".join(plane.tobytes() for plane in planes), 6)
    return base64.b64encode(deflated).decode(), low, step


def _jpeg(pixels: NDArray[np.uint8], quality: int) -> str:
    data = encode_image(RgbImage(np.ascontiguousarray(pixels)), ".jpg", name="the page", quality=quality)
    return base64.b64encode(data).decode()


def rendered(template: str, **values: Any) -> bytes:
    """Render a template of this package with its style sheet and scripts."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pamcli.viewing", "."), autoescape=True, undefined=StrictUndefined
    )
    files = resources.files("pamcli.viewing")
    style, *scripts = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS))
    text = environment.get_template(template).render(style=style, script="".join(scripts), **values)
    return text.encode("utf-8", "replace")  # replaces the lone surrogates of file names that are not UTF-8


def index_place(pages: str) -> Path:
    """Return the path of the index for pages in a folder, or named by a template with `{}`."""
    return Path(os.path.dirname(pages[: pages.index("{}")]) if "{}" in pages else pages, INDEX_NAME)


def check_index(place: Path, pages: Iterable[Path] = ()) -> None:
    """Raise UsageError if the index would overwrite a page or a file that is not an index."""
    hint = "take another folder or other names for the pages"
    if place in pages:
        raise UsageError(f"{quote(place)} would be both a page and the index of the pages", hint)
    if place.exists() and not (place.is_file() and _INDEX in _head(place)):
        raise UsageError(f"{quote(place)} exists and is no index of pages", hint)


def write_index(place: Path) -> None:
    """Write the index of all pages below the folder of `place`, replacing an earlier one.

    Raises:
        UsageError: If the file belongs to something else.
        InputError: If pages are damaged; the index is written without them.
    """
    if not place.parent.is_dir():
        return
    check_index(place)
    index, damaged = render_index(place.parent)
    write_atomically(place, index)
    if damaged:
        hint = "remove what is damaged and repeat the command with `skip_existing`"
        raise InputError(f"damaged, and not in {quote(place)}: {join_names(damaged)}", hint)


def _head(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(_HEAD)
    return b""


def render_index(folder: Path) -> tuple[bytes, list[Path]]:
    """Return the index of all pages below a folder, in natural order, and the paths of damaged pages."""
    pages, damaged = [], []
    for path in sorted(folder.rglob("*.html"), key=lambda path: natural_key(path.as_posix())):
        head = _head(path).decode("utf-8", "replace") if path.is_file() else ""
        if _OWN not in head:
            continue  # not written by pam
        found = _ENTRY.search(head)
        try:
            entry = parse_stored_json(html.unescape(found[1] if found else ""), path, "")
            known = check_json(PageEntry, entry, path, "")
        except InputError:
            damaged.append(path)
            continue
        inside = path.relative_to(folder)
        link = quote_url(inside.as_posix(), errors="surrogateescape")
        pages.append({"link": link, "path": inside.with_suffix("").as_posix(), **vars(known)})
    named = Counter(page["title"] for page in pages)
    for page in pages:
        if named[page["title"]] > 1:  # same name in several folders
            page["title"] += f" ({page['path']})"
    if len(pages) > MOST_PICTURES:
        pages = [{**page, "picture": ""} for page in pages]
    return rendered("index.html", pages=pages), damaged
