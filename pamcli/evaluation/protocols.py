"""How benchmarks measure disparity: a row of a table each, and what their rules do before measuring."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamcli.data.source import Sample
from pamcli.imaging.resize import imresize_to, nearest

MIDDLEBURY_WEIGHTS = dict.fromkeys(("PianoL", "Playroom", "Playtable", "Shelves", "Vintage"), 0.5)
"""Weights of scenes in the means of the Middlebury v3 table; all others have 1."""


@dataclass(frozen=True)
class DisparityProtocol:
    """Rules by which a set is measured: those of its benchmark, and what is asked for beside."""

    fill: bool = False
    """Holes are filled as KITTI does, by `interpolate_background`."""
    clip: bool = False
    """Estimates are clipped to [0, ndisp] where the calibration tells ndisp, as Middlebury does."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of pictures in the means, by the last part of their names; absent = 1."""
    wrong_from: float = 2.0
    """Error, px, from which on the benchmark counts a pixel as wrong."""
    max_gt: float | None = None
    """Count only truth below this, px (the paper: 192), which flatters methods that see no further."""
    resize: tuple[int, int] | None = None
    """Width and height to which pictures and truth were brought before."""
    ranges: tuple[float, ...] = ()
    """Edges of ranges of the truth, px, that are measured one by one, too."""

    def notes(self) -> Iterator[str]:
        """Yield what of it changes the figures, a clause each."""
        if self.fill:
            yield "holes are filled as in KITTI's development kit before measuring; density is from before"
        if self.max_gt is not None:
            yield f"only truth below {self.max_gt:g} px is counted"
        if self.resize is not None:
            yield f"pictures and truth are brought to {self.resize[0]} x {self.resize[1]} pixels first"


PROTOCOLS = {
    "": DisparityProtocol(),
    "kitti": DisparityProtocol(fill=True, wrong_from=3.0),
    "middlebury": DisparityProtocol(clip=True, weights=MIDDLEBURY_WEIGHTS),
}

USUAL = {"kitti2012": "kitti", "kitti2015": "kitti", "middlebury": "middlebury"}
"""The protocol of a data set, by the name of its source; all others have the first."""


def usual_protocol(data: str, **asked: Any) -> DisparityProtocol:
    """Return the protocol of a data set, by the name of its source. asked: fields that it does not set."""
    return replace(PROTOCOLS[USUAL.get(data, "")], **asked)


def interpolate_background(disparity: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill unknown pixels as the kit's `interpolateBackground` (io_disp.h) does.

    disparity: (H, W), pixels; NaN, inf or below 0 = unknown. In each row a gap takes the smaller of its two
    neighbours, what lies before the first or behind the last known pixel takes that one; then rows above the
    first and below the last row that knows anything copy that row. Rows between two such rows that know
    nothing at all stay unknown, as they do in the kit. Returns (H, W), NaN = unknown.
    """
    known = np.isfinite(disparity) & (disparity >= 0)
    width = disparity.shape[1]
    columns = np.broadcast_to(np.arange(width), disparity.shape)
    before = np.maximum.accumulate(np.where(known, columns, -1), axis=1)
    behind = np.minimum.accumulate(np.where(known, columns, width)[:, ::-1], axis=1)[:, ::-1]
    left = np.take_along_axis(disparity, np.maximum(before, 0), axis=1)
    right = np.take_along_axis(disparity, np.minimum(behind, width - 1), axis=1)
    left = np.where(before >= 0, left, np.nan)
    right = np.where(behind < width, right, np.nan)
    filled: NDArray[np.float32] = np.fmin(left, right).astype(np.float32)
    rows = np.flatnonzero(known.any(axis=1))
    if len(rows):
        filled[: rows[0]] = filled[rows[0]]
        filled[rows[-1] + 1 :] = filled[rows[-1]]
    return filled


def resize_sample(sample: Sample, width: int, height: int) -> Sample:
    """Bring a sample to pictures of `width` x `height` pixels.

    Pictures by MATLAB's antialiased bicubic; disparities by the nearest pixel, never by a mean across an
    edge, and times the ratio of the widths; masks by the nearest pixel; the calibration (focal length and
    offset) by the ratio of the widths. Raises ValueError: a side below 1.
    """
    ratio = width / sample.left.shape[1]

    def truth(disparity: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if disparity is None else nearest(disparity, width, height).astype(np.float32) * ratio

    def mask(values: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        return None if values is None else nearest(values, width, height).astype(np.bool_)

    calibration = sample.calibration
    if calibration is not None:
        calibration = replace(
            calibration,
            focal_length=calibration.focal_length * ratio,
            offset=calibration.offset * ratio,
            ndisp=None if calibration.ndisp is None else calibration.ndisp * ratio,
            principal=None,  # of another aspect, perhaps
            size=None,
            focal_length_y=None,
        )
    return replace(
        sample,
        left=imresize_to(sample.left, width, height),
        right=imresize_to(sample.right, width, height),
        disparity=truth(sample.disparity),
        right_disparity=truth(sample.right_disparity),
        visible=mask(sample.visible),
        foreground=mask(sample.foreground),
        calibration=calibration,
    )
