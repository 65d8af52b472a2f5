"""Position and distance of points and boxes in an image, from its disparity map."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.calibration.geometry import Calibration, Floats
from pamcli.errors import InputError
from pamcli.files.safe_reading import parse_json, read_text

LARGEST_TABLE = 1 << 26
"""Bytes of a file with boxes."""
_BOXES = (  # columns of a box: two corners, or a corner and the size; of a point
    *("x1 y1 x2 y2", "xmin ymin xmax ymax", "x_min y_min x_max y_max", "left top right bottom"),
    *("x y width height", "x y w h", "left top width height"),
    *("x y", "u v"),
)
_IMAGE = "image", "file", "filename", "file_name"
HINT = "the first line names the columns: x,y (points), x,y,width,height or x1,y1,x2,y2 (boxes), in px"


@dataclass(frozen=True)
class Region:
    """A box in the left image, px; a point is the box of one pixel around it."""

    x: float
    y: float
    width: float = 1.0
    height: float = 1.0
    image: str | None = field(default=None, kw_only=True)
    """Name of its image in a batch; None: every image."""
    labels: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Other columns of its file, which results repeat."""

    def measure(self, disparity: Floats, calibration: Calibration, deviation: float) -> dict[str, Any]:
        """Return the position of the median disparity (H, W; px, NaN = unknown), m; NaN where unknown.

        X, Y and Z are those of the centre in the coordinates of the left camera; the errors are standard
        deviations for a `deviation` of the disparity, px. Raises InputError outside of the image.
        """
        height, width = disparity.shape
        left, top = math.floor(self.x + 0.5), math.floor(self.y + 0.5)
        right = max(left + 1, math.floor(self.x + self.width + 0.5))
        bottom = max(top + 1, math.floor(self.y + self.height + 0.5))
        inside = disparity[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        if not inside.size:
            place = f"{self.x:g},{self.y:g}"
            raise InputError(f"the point or box at {place} px is outside of the {width}x{height} px image")
        scaled = calibration.for_size(width, height)
        depths = scaled.depth(inside.ravel())
        known = np.isfinite(depths)
        middle = np.median(inside.ravel()[known]) if known.any() else np.float32("nan")
        one = np.array([middle], np.float32)
        z, error = float(scaled.depth(one)[0]), float(scaled.depth_error(one, deviation)[0])
        middle_x, middle_y = self.x + (self.width - 1) / 2, self.y + (self.height - 1) / 2
        across, down = scaled.locate(middle_x, middle_y, 1.0)
        low, high = np.quantile(depths[known], (0.1, 0.9)).tolist() if known.any() else (math.nan, math.nan)
        return {
            **self.labels,
            **{"x": self.x, "y": self.y, "width": self.width, "height": self.height},
            **{"disparity_px": float(middle), "x_m": across * z, "y_m": down * z, "z_m": z},
            **{"x_error_m": abs(across) * error, "y_error_m": abs(down) * error, "z_error_m": error},
            **{"z_10_percent_m": low, "z_90_percent_m": high, "known": float(known.mean())},
        }


def read_regions(path: Path) -> list[Region]:
    """Read points or boxes from a table with named columns (.csv), or a list of objects (.json).

    Raises InputError if columns are missing or a value is not a number.
    """
    text = read_text(path, LARGEST_TABLE)
    try:
        if path.suffix.lower() == ".json":
            tree = parse_json(text)
            rows: Any = tree.get("boxes", tree.get("annotations")) if isinstance(tree, Mapping) else tree
        else:
            mark = max(",;\t", key=text.partition("\n")[0].count)
            rows = [*csv.DictReader(io.StringIO(text), delimiter=mark, skipinitialspace=True)]
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", HINT) from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{path} holds no points or boxes", HINT)
    return [_read_region(row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _read_region(row: Mapping[Any, Any], name: str) -> Region:
    values = {str(key).strip().lower(): value for key, value in row.items()}
    if isinstance(box := values.pop("bbox", None), Sequence) and len(box) == 4:  # of COCO
        values |= dict(zip(("x", "y", "width", "height"), box, strict=True))
    columns = next((each.split() for each in _BOXES if {*each.split()} <= values.keys()), None)
    if columns is None:
        raise InputError(f"{name} has the columns {', '.join(values)}", HINT)
    numbers = []
    for each in columns:
        value = values.pop(each)
        with suppress(TypeError, ValueError):
            if abs(number := float(value)) < 1e9:
                numbers.append(number)
                continue
        raise InputError(f"{name}: {each} must be a number, got {str(value)[:40]!r}", HINT)
    if len(numbers) == 4 and ("2" in columns[2] or "max" in columns[2] or columns[2] == "right"):
        numbers[2:] = numbers[2] - numbers[0], numbers[3] - numbers[1]
    if min(numbers[2:], default=1) <= 0:
        size = f"{numbers[2]:g}x{numbers[3]:g}"
        raise InputError(f"{name}: a box must be at least 1 px wide and high, got {size}")
    images = [str(values.pop(each) or "").strip() for each in _IMAGE if each in values]
    return Region(*numbers, image=next(filter(None, images), None), labels=values)


def select_regions(regions: Iterable[Region], names: Iterable[str]) -> list[Region]:
    """Return the regions of an image: those without a name, or with its path, name or stem."""
    known = {form for name in names for form in (name, Path(name).name, Path(name).stem)}
    return [each for each in regions if each.image is None or {each.image, Path(each.image).stem} & known]
