"""Render a calibration as one HTML page: figures, detected corners, board coverage and a rectified pair."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.advice import ENOUGH_THERE, boards_by_region, seen
from pamcli.calibration.boards import Board
from pamcli.calibration.making import LeftOut, Made
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.viewing.page import rendered

Grey = NDArray[np.uint8]

QUALITY = 80
LINES = 24
"""Number of horizontal lines drawn across the rectified pair."""
LONGER = 100
"""Factor by which residuals are lengthened so that they can be seen."""


def render_calibration(
    title: str,
    made: Made,
    board: Board,
    *,
    pictures: Mapping[str, tuple[Grey, Grey]],
    lines: Sequence[tuple[str, str]],
    left_out: Sequence[LeftOut],
    tips: Sequence[str],
) -> bytes:
    """Return the page of a calibration as UTF-8 bytes; the page loads no other file.

    Args:
        title: Title of the page.
        made: The calibration to show.
        board: Calibration board of the images.
        pictures: Left and right grey image (h, w) of each pair by its name, at any smaller size.
        lines: Names and values of the figures.
        left_out: Images that were not used, with the reason.
        tips: Advice for a better calibration.
    """
    size = made.problem.size
    views = []
    for number, sighting in enumerate(made.used):
        sides = [
            {"picture": _jpeg(picture), "corners": _dots(made, number, camera)}
            for camera, picture in enumerate(pictures[sighting.name])
        ]
        views.append({"name": sighting.name, "sides": sides})
    return rendered(
        "calibration.html",
        title=title,
        width=size[0],
        height=size[1],
        lines=lines,
        tips=tips,
        left_out=left_out,
        longer=LONGER,
        enough=ENOUGH_THERE,
        radius=max(size) / 200,
        coverage=[_coverage(made, camera) for camera in (0, 1)],
        rectified=_rectified(made, pictures),
        rows=[(index + 0.5) * 100 / LINES for index in range(LINES)],
        views=views,
    )


def _jpeg(picture: Grey) -> str:
    pixels = np.repeat(picture[..., None], 3, axis=2)
    data = encode_image(RgbImage(pixels, grey=True), ".jpg", name="the page", quality=QUALITY)
    return base64.b64encode(data).decode()


def _dots(made: Made, number: int, camera: int) -> list[tuple[float, float, str]]:
    """Return x, y and the CSS class of each corner: near, off (1.5 times the error) or far (3 times)."""
    corners, off = made.problem.views[number][camera], made.solution.residuals[number][camera]
    if corners is None or off is None:
        return []
    lengths = np.linalg.norm(off, axis=1) / max(made.error, 1e-9)
    kinds = ("near", "off", "far")
    return [
        (round(float(x), 1), round(float(y), 1), kinds[int(length > 1.5) + int(length > 3)])
        for (x, y), length in zip(corners.pixels, lengths, strict=True)
    ]


def _coverage(made: Made, camera: int) -> dict[str, Any]:
    """Return the corner positions in the images of one camera, and the lengthened residuals."""
    marks = []
    for view, residuals in zip(made.problem.views, made.solution.residuals, strict=True):
        corners, off = view[camera], residuals[camera]
        if corners is not None and off is not None:
            ends = corners.pixels + LONGER * off
            marks += np.round(np.column_stack([corners.pixels, ends]), 1).tolist()
    return {
        "side": ("left", "right")[camera],
        "marks": marks,
        "regions": boards_by_region(seen(made, camera), made.problem.size),
    }


def _rectified(made: Made, pictures: Mapping[str, tuple[Grey, Grey]]) -> dict[str, str]:
    """Return both images of the pair with the largest board, rectified."""
    best = max((each for each in made.used if each.both), key=_area)
    left, right = pictures[best.name]
    found = made.rig.for_size(left.shape[1], left.shape[0]).rectification()
    return {"name": best.name, "left": _jpeg(found.left(left)), "right": _jpeg(found.right(right))}


def _area(sighting: Any) -> float:
    return float(np.prod(np.ptp(sighting.left.corners.pixels, axis=0)))
