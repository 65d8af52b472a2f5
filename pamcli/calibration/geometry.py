"""Geometry of a rectified pair, which converts disparities to metres."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.files.units import parse_length

Floats = NDArray[np.float64]
Pixels = NDArray[Any]  # an image (H, W) or (H, W, C), uint8 or uint16
Size = tuple[int, int]  # width and height of an image, px

SHORTEST_BASELINE, LONGEST_BASELINE = 1e-3, 5.0  # m; others are probably in another unit
SHORTEST_FOCAL_LENGTH = 50.0  # px; a shorter one is probably in millimetres
SWAP_CAMERAS = "swap the cameras: `cameras` 1:0"
SAME_SIZE = 1.0  # px by which a side may deviate from the aspect ratio of the calibration
RESIZED, SAME_CENTRE = 1.3, 1.1
"""Ratios of a principal point to the image centre, and of x to y, that show resized images."""
SAME_LENS = 1.005  # largest ratio of focal lengths that belong to one lens


@dataclass(frozen=True)
class Calibration:
    """Two parallel cameras, the right one `baseline` to the right of the left one.

    >>> calibration = pamcli.Calibration(focal_length=1050.0, baseline=0.12)
    >>> depth = calibration.depth(result.disparity)  # (H, W) float32, metres

    A left pixel with disparity d has the depth focal_length * baseline / (d + offset). Coordinates are those
    of the left camera: x to the right, y down, z ahead. Whole pixel numbers are centres of pixels.

    Args:
        focal_length: Focal length, px.
        baseline: Distance of the cameras: metres, or a text such as "120mm"; 0 = unknown.
        offset: Principal point of the right image minus that of the left one, px (Middlebury's doffs).
        principal: Principal point (x, y) of the left image, px; None = the image centre.
        size: (width, height) of the images, px; None = unknown.
        focal_length_y: Vertical focal length, px; None = `focal_length`.
        ndisp: Upper bound of the disparities, px (Middlebury).
        others: Calibrations for other image sizes that are crops of the sensor, not scaled.
        by_hand: Values in px that hold for any image size (`with_pixels`).

    Raises:
        InputError: If a value is not finite or out of range, or the baseline is negative.
    """

    focal_length: float
    baseline: float
    offset: float = 0.0
    principal: tuple[float, float] | None = None
    size: Size | None = None
    focal_length_y: float | None = None
    ndisp: float | None = None
    others: tuple["Calibration", ...] = ()
    by_hand: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(given := cast(object, self.baseline), str):
            object.__setattr__(self, "baseline", parse_length(given, "baseline"))
        for name in ("focal_length", "baseline", "offset", "focal_length_y", "ndisp"):
            if (value := getattr(self, name)) is not None or name in ("focal_length", "baseline", "offset"):
                object.__setattr__(self, name, _read_number(value, name))
        if self.principal is not None:
            object.__setattr__(self, "principal", _read_pair(self.principal, "principal", "(x, y)"))
        if self.size is not None:
            object.__setattr__(self, "size", _read_size(self.size))
        if self.baseline < 0:
            message = f"the baseline is {self.baseline:g} m: the right camera is left of the left camera"
            raise InputError(message, SWAP_CAMERAS)
        for name, value, least, most, unit in (
            ("focal length", self.focal_length, 0.1, 1e7, "px"),
            ("vertical focal length", self.vertical_focal_length, 0.1, 1e7, "px"),
            ("baseline", self.baseline, 1e-7 if self.baseline else 0.0, 1e7, "m"),
            ("offset", self.offset, -1e9, 1e9, "px"),
            ("principal point", math.hypot(*(self.principal or (0.0,))), 0.0, 1e9, "px"),
        ):
            if not least <= value <= most:  # also true for NaN
                raise InputError(f"the {name} is {value:g} {unit}, expected {least:g} to {most:g} {unit}")

    @classmethod
    def from_projections(cls, p1: Floats, p2: Floats, size: Size | None) -> "Calibration":
        """Build it from OpenCV's P1 and P2, K [I | t] (3, 4); only the difference of t matters."""
        fx, fy, x, y = (float(p1[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
        baseline, offset = float((p1[0, 3] - p2[0, 3]) / fx), float(p2[0, 2] - x)
        return cls(fx, baseline, offset, (x, y), size, None if fx == fy else fy)

    @property
    def vertical_focal_length(self) -> float:
        return self.focal_length if self.focal_length_y is None else self.focal_length_y

    @property
    def field_of_view(self) -> tuple[float, float]:
        """Horizontal and vertical field of view, degrees; requires `size`."""
        assert self.size is not None
        lengths = self.focal_length, self.vertical_focal_length
        across, down = np.degrees(2 * np.arctan(np.array(self.size) / 2 / lengths)).tolist()
        return across, down

    @property
    def sizes(self) -> tuple[Size | None, ...]:
        return self.size, *(each.size for each in self.others)

    def with_baseline(self, metres: float) -> "Calibration":
        others = tuple(replace(each, baseline=metres) for each in self.others)
        return replace(self, baseline=metres, others=others)

    def with_pixels(self, **values: Any) -> "Calibration":
        """Copy it with a focal length, offset or principal point (px) that hold for any image size."""
        known = tuple((name, value) for name, value in values.items() if value is not None)
        return replace(self, by_hand=known)

    def warnings(self) -> list[str]:
        lines = check_baseline(self.baseline)
        if self.focal_length < SHORTEST_FOCAL_LENGTH:
            lines.append(f"the focal length of {self.focal_length:g} px is perhaps in millimetres")
        if self.principal and self.size:
            (x, y), (width, height) = self.principal, self.size
            if not (0 <= x < width and 0 <= y < height):
                lines.append(f"the principal point {x:g},{y:g} px is outside the {width}x{height} px image")
        return lines

    def for_size(self, width: int, height: int) -> "Calibration":
        """Return the calibration of the same images at another size, with the principal point filled in.

        Raises:
            InputError: If `size` has another aspect ratio, or several calibrations could be meant.
        """
        values = dict(self.by_hand)
        if "focal_length" in values:
            values["focal_length_y"] = None
        return replace(self._scale_to(*_read_size((width, height))), by_hand=(), **values)

    def _scale_to(self, width: int, height: int) -> "Calibration":
        centre = (width - 1) / 2, (height - 1) / 2
        for each in (self, *self.others):
            if each.size is None or each.size == (width, height):
                return replace(each, size=(width, height), principal=each.principal or centre, others=())
        assert self.size is not None
        x, y = compute_scales(self.size, width, height)
        if "focal_length" not in dict(self.by_hand):
            require_one_lens([(each.size, each.focal_length) for each in (self, *self.others)], width, height)
        return Calibration(
            focal_length=x * self.focal_length,
            baseline=self.baseline,
            offset=x * self.offset,
            principal=scale_point(self.principal, x, y) if self.principal else centre,
            size=(width, height),
            focal_length_y=None if self.focal_length_y is None else y * self.focal_length_y,
            ndisp=None if self.ndisp is None else x * self.ndisp,
        )

    def scale_width(self, ratio: float) -> "Calibration":
        """Return the calibration of images `ratio` times as wide, without values that depend on height."""
        ndisp = None if self.ndisp is None else self.ndisp * ratio
        return Calibration(self.focal_length * ratio, self.baseline, self.offset * ratio, ndisp=ndisp)

    def depth(self, disparity: NDArray[np.generic]) -> NDArray[np.float32]:
        """Convert disparities (px, any shape) to depth (m), NaN where unknown or not in front of infinity.

        Raises:
            InputError: If the baseline is unknown, or a map (H, W) has another size than `size`.
        """
        disparity = read_map(disparity)
        if self.size is not None and disparity.ndim == 2 and disparity.shape[::-1] != self.size:
            height, width = disparity.shape
            sizes = f"{self.size[0]}x{self.size[1]} px, but the disparity map is {width}x{height} px"
            hint = f"use calibration.for_size({width}, {height}) for images that were resized"
            raise InputError(f"the calibration is for {sizes}", hint)
        shifted = disparity.astype(np.float32) + np.float32(self.offset)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            depth = np.float32(self.focal_length * self._require_baseline()) / shifted
            known = (shifted > 0) & np.isfinite(shifted) & np.isfinite(depth)
            return np.where(known, depth, np.float32("nan"))

    def locate(self, x: Any, y: Any, depth: Any) -> tuple[Any, Any]:
        """Return X and Y (m) of pixels (px) and their depth (m); None as principal point counts as 0, 0."""
        x0, y0 = self.principal or (0.0, 0.0)
        return depth * ((x - x0) / self.focal_length), depth * ((y - y0) / self.vertical_focal_length)

    def disparity(self, depth: NDArray[np.generic]) -> NDArray[np.float32]:
        """Convert depth (m, any shape) to disparities (px), NaN where the depth is not above 0."""
        values = read_map(depth).astype(np.float32)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            disparity = np.float32(self.focal_length * self._require_baseline()) / values
            return np.where((values > 0) & np.isfinite(values), disparity - np.float32(self.offset), np.nan)

    def depth_error(self, disparity: NDArray[np.generic], deviation: float) -> NDArray[np.float32]:
        """Return the standard deviation of the depth (m), given that of the disparity (px).

        To first order: |dZ / dd| = Z^2 / (focal_length * baseline). NaN where the depth is unknown.
        """
        deviation = _read_number(deviation, "deviation")
        per_pixel = np.float32(deviation / (self.focal_length * self._require_baseline()))
        return self.depth(disparity) ** 2 * per_pixel

    def projections(self) -> tuple[Floats, Floats]:
        """Return OpenCV's P1 and P2, (3, 4) each; requires `principal`."""
        assert self.principal is not None
        x, y = self.principal
        left = np.array([[self.focal_length, 0, x, 0], [0, self.vertical_focal_length, y, 0], [0, 0, 1, 0]])
        right = left.copy()
        right[0, 2:] = x + self.offset, -self.focal_length * self.baseline
        return left, right

    def reprojection(self) -> Floats:
        """Return OpenCV's Q (4, 4) for `cv2.reprojectImageTo3D`; requires `principal` and square pixels."""
        assert self.principal is not None
        x, y = self.principal
        inverse = 1 / self._require_baseline()
        last = [0, 0, inverse, self.offset * inverse]
        return np.array([[1, 0, 0, -x], [0, 1, 0, -y], [0, 0, 0, self.focal_length], last])

    def _require_baseline(self) -> float:
        if self.baseline == 0:
            message = "depth requires a baseline, and the calibration states none"
            raise InputError(message, "state `baseline`; 1 gives a shape without scale")
        return self.baseline


def read_map(disparity: Any, *, ndim: int | None = None) -> NDArray[Any]:
    """Return disparities as an array of numbers, of `ndim` dimensions and not empty if it is stated.

    Raises:
        InputError: If they are not numbers, or an array of another shape.
    """
    try:
        found = np.asarray(disparity)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of unequal lengths, tensors of a GPU
        raise InputError(f"the disparity map must be an array of numbers: {error}") from error
    if found.dtype.kind not in "biuf":
        raise InputError(f"the disparity map must be an array of numbers, got {type(disparity).__name__}")
    if ndim is not None and not (found.ndim == ndim and found.size):
        raise InputError(f"the disparity map must have the shape (height, width), got {found.shape}")
    return found


def _read_number(value: Any, name: str) -> float:
    """Return a number as float, infinite if it is too large. Raises InputError with the name."""
    with suppress(TypeError, ValueError, RuntimeError):
        if not isinstance(value, str | bytes | bool):
            return math.inf if isinstance(value, int) and abs(value) > 1e300 else float(value)
    raise InputError(f"`{name}` must be a number, got {str(value)[:40]!r}")


def _read_pair(value: Any, name: str, form: str) -> tuple[float, float]:
    try:
        one, two = value
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be {form} in px, got {str(value)[:40]!r}") from None
    return _read_number(one, name), _read_number(two, name)


def _read_size(value: Any) -> Size:
    width, height = _read_pair(value, "size", "(width, height)")
    if not all(1 <= side < 1e9 and side.is_integer() for side in (width, height)):
        raise InputError(f"`size` must be (width, height) in px, each at least 1, got {width:g}x{height:g}")
    return int(width), int(height)


def check_baseline(baseline: float) -> list[str]:
    """Return warnings about an implausible baseline (m)."""
    if baseline == 0:
        return ["the baseline is unknown, so depth cannot be computed"]
    if baseline > LONGEST_BASELINE:
        units = "millimetres or centimetres" if baseline < 50 else "millimetres"
        option = f"`baseline` {baseline:g}mm" + (f" or {baseline:g}cm" if baseline < 50 else "")
        return [f"the baseline of {baseline:g} m is perhaps in {units} ({option})"]
    if baseline < SHORTEST_BASELINE:
        return [f"the baseline of {baseline:g} m is perhaps in km (`baseline` {1000 * baseline:g}m)"]
    return []


def describe_resizing(point: Iterable[float], focal_length: float, width: int, height: int) -> str | None:
    """Return a warning if a principal point (px) is the centre of a larger or smaller image than this one."""
    centre_x, centre_y = point
    x, y = (2 * centre_x + 1) / width, (2 * centre_y + 1) / height
    if not (x > 0 and 1 / SAME_CENTRE < y / x < SAME_CENTRE) or 1 / RESIZED < x < RESIZED:
        return None
    values = f"`focal` {focal_length / x:.6g} and `principal_point` {centre_x / x:.6g},{centre_y / y:.6g}"
    other = f"{round(x * width)}x{round(y * height)} px, but the image is {width}x{height} px"
    do = f"if it was resized, multiply the calibration by {1 / x:.3g} ({values})"
    return f"the principal point {centre_x:g},{centre_y:g} px fits {other}: {do}"


def has_aspect(size: Size, width: int, height: int) -> bool:
    """Return True if an image of `size` can be resized to (width, height), to a pixel."""
    x, y = width / size[0], height / size[1]
    return abs(x * size[1] - height) <= SAME_SIZE or abs(y * size[0] - width) <= SAME_SIZE


def require_one_lens(focal_lengths: Iterable[tuple[Size | None, float]], width: int, height: int) -> None:
    """Raise InputError if the image could be resized from several crops of the sensor."""
    sizes = [(size, pixels) for size, pixels in focal_lengths if size and has_aspect(size, width, height)]
    scaled = {size: width / size[0] * pixels for size, pixels in sizes}
    if scaled and max(scaled.values()) > SAME_LENS * min(scaled.values()):
        names = " or ".join(f"{size[0]}x{size[1]} px" for size in scaled)
        lengths = " or ".join(f"{pixels:.0f} px" for pixels in scaled.values())
        message = f"cannot scale the calibration to {width}x{height} px: the images were resized from {names}"
        hint = "use the images at the size at which the camera took them"
        raise InputError(f"{message}, which means a focal length of {lengths}", hint)


def compute_scales(size: Size, width: int, height: int) -> tuple[float, float]:
    """Return the factors from `size` to (width, height). Raises InputError for another aspect ratio."""
    if not has_aspect(size, width, height):
        sizes = f"{size[0]}x{size[1]} px, but the image is {width}x{height} px"
        hint = "a cropped image needs a calibration of its own"
        raise InputError(f"the calibration is for {sizes}: the aspect ratios differ", hint)
    return width / size[0], height / size[1]


def scale_point(point: tuple[float, float], x: float, y: float) -> tuple[float, float]:
    """Return the position of a point after resizing; whole numbers are centres of pixels."""
    return (point[0] + 0.5) * x - 0.5, (point[1] + 0.5) * y - 0.5
