"""Rendering of a calibration as one HTML page: figures, detected corners, board coverage, rectified pair."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.calibration.board_calibration import BoardCalibration
from pamcli.calibration.report import ENOUGH_BOARDS, SIDES, count_boards
from pamcli.calibration.sightings import Rejection
from pamcli.viewing.page import encode_jpeg, render_template

Grey = NDArray[np.uint8]

QUALITY = 80
LINES = 24  # horizontal lines across the rectified pair
LONGER = 100  # factor by which residuals are lengthened to be visible


def render_calibration(
    title: str,
    made: BoardCalibration,
    *,
    images: Mapping[str, tuple[Grey, Grey]],
    lines: Sequence[tuple[str, str]],
    rejections: Sequence[Rejection],
    advice: Sequence[str],
) -> bytes:
    """Return the page of a calibration as UTF-8 bytes; the page loads no other file."""
    size, views = made.problem.size, []
    for number, sighting in enumerate(made.sightings):
        sides = []
        for camera, image in enumerate(images[sighting.name]):
            corners = _classify_corners(made, number, camera)
            sides.append({"image": encode_jpeg(image, QUALITY), "corners": corners})
        views.append({"name": sighting.name, "sides": sides})
    best = max(
        (each for each in made.sightings if each.left and each.right),
        key=lambda each: float(np.prod(np.ptp(each.detections[0].corners.pixels, axis=0))),
    )
    left, right = images[best.name]
    rectification = made.rig.for_size(left.shape[1], left.shape[0]).compute_rectification()
    return render_template(
        "calibration.html",
        **{"title": title, "lines": lines, "advice": advice, "rejections": rejections},
        **{"width": size[0], "height": size[1], "radius": max(size) / 200},
        **{"longer": LONGER, "enough": ENOUGH_BOARDS},
        coverage=[_describe_coverage(made, camera) for camera in (0, 1)],
        rectified={
            "name": best.name,
            "left": encode_jpeg(rectification.left(left), QUALITY),
            "right": encode_jpeg(rectification.right(right), QUALITY),
        },
        rows=[(index + 0.5) * 100 / LINES for index in range(LINES)],
        views=views,
    )


def _classify_corners(made: BoardCalibration, number: int, camera: int) -> list[tuple[float, float, str]]:
    """Return x, y and the CSS class of each corner: near, off (1.5 times the error) or far (3 times)."""
    corners, off = made.problem.views[number][camera], made.solution.residuals[number][camera]
    if corners is None or off is None:
        return []
    lengths = np.linalg.norm(off, axis=1) / max(made.error, 1e-9)
    kinds = np.array(("near", "off", "far"))[np.digitize(lengths, (1.5, 3.0))].tolist()
    pixels = corners.pixels.round(1).tolist()
    return [(x, y, kind) for (x, y), kind in zip(pixels, kinds, strict=True)]


def _describe_coverage(made: BoardCalibration, camera: int) -> dict[str, Any]:
    """Return the corners that one camera sees, with exaggerated residuals, and the boards per region."""
    marks = []
    for view, residuals in zip(made.problem.views, made.solution.residuals, strict=True):
        corners, off = view[camera], residuals[camera]
        if corners is not None and off is not None:
            ends = corners.pixels + LONGER * off
            marks += np.round(np.column_stack([corners.pixels, ends]), 1).tolist()
    regions = count_boards(made.camera_corners(camera), made.problem.size)
    return {"side": SIDES[camera], "marks": marks, "regions": regions}
