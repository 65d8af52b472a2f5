"""The geometry of a rectified pair: what turns its disparities into metres."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.errors import InputError
from pamcli.files.units import parse_length

Floats = NDArray[np.float64]
Pixels = NDArray[Any]
"""A picture, (H, W) or (H, W, C), uint8 or uint16."""

LONGEST_BASELINE = 5.0
SHORTEST_BASELINE = 1e-3  # metres outside of which a baseline is probably in another unit
SHORTEST_FOCAL_LENGTH = 50.0  # pixels below which a focal length is probably one in millimetres
POSSIBLE = {"focal length": (0.1, 1e7), "focal length in y": (0.1, 1e7), "baseline": (1e-7, 1e7)}
"""Smallest and largest value that can be, pixels and metres; a baseline of 0 is not known."""
EXCHANGE = "exchange the two: `cameras` 1:0"
"""What to do where the right camera stands to the left of the left one."""
SAME_SIZE = 1.0  # pixels by which a side may be off where a picture has the aspect of its calibration
SAME_LENS = 1.005  # times by which focal lengths may differ that stand for one lens


@dataclass(frozen=True)
class Calibration:
    """Two cameras that look the same way, the right one `baseline` to the right of the left one.

    >>> calibration = pamcli.Calibration(focal_length=1050.0, baseline=0.12)
    >>> depth = calibration.depth(result.disparity)  # (H, W) float32, metres

    A left pixel of disparity d lies at the depth focal_length * baseline / (d + offset). Coordinates are
    those of the left camera: x to the right, y down, z ahead; whole pixel numbers are the centres of pixels.
    Raises InputError: no finite numbers, a focal length not above 0, a negative baseline.
    """

    focal_length: float
    """Pixels."""
    baseline: float
    """Metres; 0 = not known, as in a file for one camera."""
    offset: float = 0.0
    """Pixels: the principal point of the right view minus that of the left one (Middlebury's doffs)."""
    principal: tuple[float, float] | None = None
    """(x, y) of the left view's principal point, pixels; None = the middle of the picture."""
    size: tuple[int, int] | None = None
    """(width, height) of the pictures that this is for; None = not known."""
    focal_length_y: float | None = None
    """Pixels, where pixels are not square; None = `focal_length`."""
    ndisp: float | None = None
    """Middlebury's bound on the disparities, pixels; None = not stated."""
    others: tuple["Calibration", ...] = ()
    """Calibrations for pictures of other sizes from these cameras, which are not these scaled: cut out."""
    by_hand: tuple[tuple[str, Any], ...] = ()
    """Values in pixels of the pictures themselves, whatever their size (`with_pixels`)."""

    def __post_init__(self) -> None:
        given: object = self.baseline
        if isinstance(given, str):  # "120mm"
            object.__setattr__(self, "baseline", parse_length(given, "baseline"))
        for name, value in {
            "focal length": self.focal_length,
            "focal length in y": self.vertical_focal_length,
            "baseline": self.baseline,
            "offset": self.offset,
            "principal point": math.hypot(*(self.principal or (0.0,))),
        }.items():
            if not math.isfinite(value):
                raise InputError(f"the {name} is {value}, not a number")
            if name.startswith("focal") and value <= 0:
                raise InputError(f"the {name} is {value:g} px, not above 0")
            least, most = POSSIBLE.get(name, (0.0, 1e9))
            if abs(value) > most or 0 < abs(value) < least:
                unit = "m" if name == "baseline" else "px"
                raise InputError(f"the {name} is {value:g} {unit}, which cannot be")
        if self.baseline < 0:
            raise InputError(
                f"the baseline is {self.baseline:g} m: the right camera stands to the left of the left one",
                EXCHANGE,
            )

    @classmethod
    def of(cls, p1: Floats, p2: Floats, size: tuple[int, int] | None) -> "Calibration":
        """Read P1 and P2 of OpenCV, (3, 4): K [I | t] each, of which only the difference of t counts."""
        fx, fy, x, y = (float(p1[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
        baseline, offset = float((p1[0, 3] - p2[0, 3]) / fx), float(p2[0, 2] - x)
        return cls(fx, baseline, offset, (x, y), size, None if fx == fy else fy)

    @property
    def vertical_focal_length(self) -> float:
        return self.focal_length if self.focal_length_y is None else self.focal_length_y

    @property
    def field_of_view(self) -> tuple[float, float]:
        """Degrees across and down; needs `size`."""
        assert self.size is not None
        focal_lengths = self.focal_length, self.vertical_focal_length
        across, down = (
            2 * math.degrees(math.atan(side / 2 / f))
            for side, f in zip(self.size, focal_lengths, strict=True)
        )
        return across, down

    @property
    def sizes(self) -> tuple[tuple[int, int] | None, ...]:
        """Sizes (width, height) of pictures for which nothing needs to be scaled."""
        return self.size, *(each.size for each in self.others)

    def replaced(self, **values: Any) -> "Calibration":
        """Copy it with other values, at all sizes."""
        return replace(self, **values, others=tuple(replace(each, **values) for each in self.others))

    def with_pixels(self, **values: Any) -> "Calibration":
        """Copy it with a focal length, offset or principal point that hold for images of any size."""
        known = tuple((name, value) for name, value in values.items() if value is not None)
        return replace(self, by_hand=known)

    def warnings(self) -> list[str]:
        """What looks wrong, a line each."""
        lines = baseline_warnings(self.baseline)
        if self.focal_length < SHORTEST_FOCAL_LENGTH:
            lines.append(f"a focal length of {self.focal_length:g} px: perhaps one in millimetres")
        if self.principal and self.size:
            (x, y), (width, height) = self.principal, self.size
            if not (0 <= x < width and 0 <= y < height):
                lines.append(f"the principal point {x:g}, {y:g} lies outside of {width} x {height} pixels")
        return lines

    def for_size(self, width: int, height: int) -> "Calibration":
        """The calibration of the same pictures in another size, with the principal point filled in.

        Raises InputError: `size` has another aspect, or does not tell which of several calibrations is meant.
        """
        return replace(self._for_size(width, height), by_hand=(), **_square(dict(self.by_hand)))

    def _for_size(self, width: int, height: int) -> "Calibration":
        middle = (width - 1) / 2, (height - 1) / 2
        for each in (self, *self.others):
            if each.size is None or each.size == (width, height):
                return replace(each, size=(width, height), principal=each.principal or middle, others=())
        assert self.size is not None
        x, y = scales(self.size, width, height)
        if "focal_length" not in dict(self.by_hand):
            require_alike([(each.size, each.focal_length) for each in (self, *self.others)], width, height)
        return Calibration(
            focal_length=x * self.focal_length,
            baseline=self.baseline,
            offset=x * self.offset,
            principal=scaled_point(self.principal, x, y) if self.principal else middle,
            size=(width, height),
            focal_length_y=None if self.focal_length_y is None else y * self.focal_length_y,
            ndisp=None if self.ndisp is None else x * self.ndisp,
        )

    def of_width(self, pixels: Callable[[float], float]) -> "Calibration":
        """What is known of it in pictures of another width, perhaps of another aspect: nothing of their size.

        pixels: what becomes of a number of pixels along a row.
        """
        return replace(
            self,
            by_hand=(),
            focal_length=pixels(self.focal_length),
            offset=pixels(self.offset),
            ndisp=None if self.ndisp is None else pixels(self.ndisp),
            principal=None,
            size=None,
            focal_length_y=None,
        )

    def depth(self, disparity: NDArray[np.generic]) -> NDArray[np.float32]:
        """Disparities in pixels to depths in metres, any shape; NaN where unknown, or at or past infinity.

        Raises InputError: the baseline is not known; a map (H, W) of another size than `size`, whose pixels
        are others (see `for_size`).
        """
        if self.size is not None and disparity.ndim == 2 and disparity.shape[::-1] != self.size:
            height, width = disparity.shape
            raise InputError(
                f"the calibration is for {self.size[0]} x {self.size[1]} pixels, the disparity map has "
                f"{width} x {height}",
                f"calibration.for_size({width}, {height}) is the one for pictures that were resized",
            )
        shifted = disparity.astype(np.float32) + np.float32(self.offset)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            depth = np.float32(self.focal_length * self._known_baseline()) / shifted
            return np.where(
                (shifted > 0) & np.isfinite(shifted) & np.isfinite(depth), depth, np.float32("nan")
            )

    def depth_error(self, disparity: NDArray[np.generic], deviation: float) -> NDArray[np.float32]:
        """One standard deviation of the depth in metres, from that of the disparity in pixels.

        To first order: |dZ / dd| = Z^2 / (focal_length * baseline). NaN where the depth is unknown.
        """
        per_pixel = np.float32(deviation / (self.focal_length * self._known_baseline()))
        return self.depth(disparity) ** 2 * per_pixel

    def projections(self) -> tuple[Floats, Floats]:
        """P1 and P2 of OpenCV, (3, 4) each; needs `principal`."""
        assert self.principal is not None
        x, y = self.principal
        left = np.array([[self.focal_length, 0, x, 0], [0, self.vertical_focal_length, y, 0], [0, 0, 1, 0]])
        right = left.copy()
        right[0, 2:] = x + self.offset, -self.focal_length * self.baseline
        return left, right

    def reprojection(self) -> Floats:
        """Q of OpenCV, (4, 4), for `cv2.reprojectImageTo3D`; needs `principal` and square pixels."""
        assert self.principal is not None
        x, y = self.principal
        inverse = 1 / self._known_baseline()
        last = [0, 0, inverse, self.offset * inverse]
        return np.array([[1, 0, 0, -x], [0, 1, 0, -y], [0, 0, 0, self.focal_length], last])

    def _known_baseline(self) -> float:
        if self.baseline == 0:
            raise InputError("the baseline is not known, so there is no depth", "give it in metres")
        return self.baseline


def baseline_warnings(baseline: float) -> list[str]:
    """List what looks wrong with a baseline in metres."""
    if baseline == 0:
        return ["the baseline is not known: there is no depth without it"]
    if baseline > LONGEST_BASELINE:
        units, option = "millimetres", f"`baseline` {baseline:g}mm"
        if baseline < 50:
            units, option = f"{units} or centimetres", f"{option} or {baseline:g}cm"
        return [f"a baseline of {baseline:g} m: perhaps {units} that were taken for metres ({option})"]
    if baseline < SHORTEST_BASELINE:
        return [f"a baseline of {baseline:g} m: perhaps metres that were taken for millimetres"]
    return []


def has_aspect(size: tuple[int, int], width: int, height: int) -> bool:
    """Whether a picture of `size` (width, height) may have another one by resizing, to a pixel."""
    x, y = width / size[0], height / size[1]
    return abs(x * size[1] - height) <= SAME_SIZE or abs(y * size[0] - width) <= SAME_SIZE


def require_alike(
    focal_lengths: Iterable[tuple[tuple[int, int] | None, float]], width: int, height: int
) -> None:
    """Raise InputError where calibrations of several sizes would have unlike focal lengths at another one.

    Those of a camera's modes have that cut their pictures out of the sensor: any may have been made smaller.
    """
    scaled = {
        size: width / size[0] * pixels
        for size, pixels in focal_lengths
        if size and has_aspect(size, width, height)
    }
    if scaled and max(scaled.values()) > SAME_LENS * min(scaled.values()):
        sizes = " and ".join(f"{size[0]} x {size[1]} ({pixels:.0f} px)" for size, pixels in scaled.items())
        raise InputError(
            f"the calibration does not say which of its pictures became {width} x {height}: those of {sizes} "
            "have other focal lengths then",
            "give the pictures as the camera took them",
        )


def _square(values: dict[str, Any]) -> dict[str, Any]:
    """The values; with a focal length goes one in y, which is not the file's any more."""
    return {**values, "focal_length_y": None} if "focal_length" in values else values


def scales(size: tuple[int, int], width: int, height: int) -> tuple[float, float]:
    """How many times wider and higher than `size` a picture is. Raises InputError: another aspect."""
    if not has_aspect(size, width, height):
        raise InputError(
            f"the calibration is for {size[0]} x {size[1]} pixels, the picture has {width} x {height}, "
            "which is another aspect",
            "a picture that was cut needs a calibration of its own",
        )
    return width / size[0], height / size[1]


def scaled_point(point: tuple[float, float], x: float, y: float) -> tuple[float, float]:
    """Where a point lies after resizing: pixels are areas, and whole numbers their centres."""
    return (point[0] + 0.5) * x - 0.5, (point[1] + 0.5) * y - 0.5
