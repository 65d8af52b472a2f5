"""Encode depth maps, point clouds and meshes from disparity maps."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.kinds import DEPTH, DEPTH_COLOR_MAP, DEPTH_ERROR, DISTANCES, POINT_CLOUD
from pamcli.batch.plan import Job
from pamcli.calibration.geometry import describe_resizing
from pamcli.errors import import_extra
from pamcli.files.outputs import Encoded
from pamcli.files.paths import join_names
from pamcli.files.suffixes import POINT_CLOUD_SUFFIXES
from pamcli.files.units import parse_length
from pamcli.imaging.disparity_encoding import encode_depth, encode_disparity
from pamcli.imaging.images import RgbImage, encode_image
from pamcli.settings.shared import MetricResults

if TYPE_CHECKING:
    from pamcli.batch.video_results import StoredFrames
    from pamcli.calibration.distances import Region
    from pamcli.calibration.geometry import Calibration

COARSE = 0.01  # share of the median depth above which the 1 mm steps of a PNG are reported


class MetricEncoder:
    """Encodes depth maps and point clouds from disparity maps (H, W), px, NaN = unknown."""

    def __init__(self, settings: MetricResults, videos: Collection[str] = ()) -> None:
        """videos: the kinds of results that become videos."""
        self.settings, self.videos = settings, videos
        depth = settings.max_depth
        self.max_depth = None if depth is None else parse_length(depth, "`max_depth`")
        self.color_range = None if self.max_depth is None else (0.0, self.max_depth)
        """Range of the depth colours, m; if None, the range of the image or video."""
        if Path(settings.point_cloud or "").suffix.lower() in POINT_CLOUD_SUFFIXES[1:]:
            import_extra("laspy")
        self.reported: list[Calibration] = []
        self.regions: Sequence[Region] = ()
        if settings.has_distances:
            from pamcli.calibration.distances import Region, read_regions

            at = [Region(*each) for each in settings.at or ()]
            self.regions = at if settings.boxes is None else read_regions(settings.boxes)

    def check(self, calibration: Calibration, width: int, height: int) -> None:
        """Raise InputError if the calibration does not fit images of this size; log if it is scaled."""
        scaled = calibration.for_size(width, height)
        scaled.reprojection()  # raises without a baseline
        if scaled in self.reported:
            return
        is_assumed = calibration.principal is None and "principal" not in dict(calibration.by_hand)
        needing = ("point_cloud", "mesh", "page", "rerun", "has_distances")
        if is_assumed and not self.reported and any(getattr(self.settings, each, None) for each in needing):
            LOG.info("the image centre is used as the principal point: `principal_point` X,Y states another")
        self.reported.append(scaled)
        LOG.debug(
            f"depth (m) = {scaled.focal_length:g} px * {scaled.baseline:g} m / "
            f"(disparity (px) + {scaled.offset:g} px)"
        )
        point = calibration.principal if calibration.size is None else None
        if point and (warning := describe_resizing(point, calibration.focal_length, width, height)):
            LOG.warning(warning)
        if (size := calibration.size) and scaled.size not in calibration.sizes:
            LOG.info(
                f"the calibration of {size[0]}x{size[1]} px is scaled to {width}x{height} px: "
                f"focal length {scaled.focal_length:g} px"
            )

    def measure(
        self, job: Job, disparity: np.ndarray, calibration: Calibration | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Return the positions of points and boxes as facts, and warnings.

        Raises InputError if one is outside of the image.
        """
        if not self.regions or calibration is None:
            return {}, []
        from pamcli.calibration.distances import select_regions

        regions = select_regions(self.regions, [*job.names[:1], str(job.pair and job.pair.left)])
        rows = [each.measure(disparity, calibration, self.settings.disparity_error) for each in regions]
        unknown = [f"{row['x']:g},{row['y']:g}" for row in rows if not row["known"]]
        warnings = [] if rows else [f"{self.settings.boxes} has no box for this image"]
        if unknown:
            warnings += [f"no depth is known at {join_names(unknown)} px"]
        return {DISTANCES: rows}, warnings

    def encode(
        self, kind: str, disparity: np.ndarray, image: np.ndarray | None, calibration: Calibration, path: Path
    ) -> Encoded:
        """Encode a kind of result for a file. image: of the left camera, (H, W, C), or None."""
        if kind == DEPTH_COLOR_MAP.name:
            return self._encode_colors(disparity, calibration, path)
        if kind in (DEPTH.name, DEPTH_ERROR.name):
            return self._encode_depth(disparity, calibration, kind == DEPTH_ERROR.name, path)
        options: dict[str, Any] = {
            "image": image,
            "max_depth": self.max_depth,
            "stride": self.settings.stride,
        }
        if kind == POINT_CLOUD.name:
            from pamcli.calibration.point_cloud import encode_point_cloud

            data, count = encode_point_cloud(disparity, calibration, suffix=path.suffix, **options)
            return Encoded(data, [] if count else ["the point cloud is empty: all depths are unknown"])
        from pamcli.calibration.mesh import encode_mesh

        data, count = encode_mesh(disparity, calibration, **options)
        return Encoded(data, [] if count else ["the mesh is empty: all depths are unknown"])

    def compute_depth(self, disparity: np.ndarray, calibration: Calibration) -> np.ndarray:
        """Return the depth (H, W), m, NaN where it is unknown or beyond `max_depth`."""
        depth = calibration.for_size(*disparity.shape[::-1]).depth(disparity)
        return np.where(depth <= (self.max_depth or math.inf), depth, np.float32("nan"))

    def _encode_colors(self, disparity: np.ndarray, calibration: Calibration, path: Path) -> Encoded:
        if DEPTH_COLOR_MAP.name in self.videos:
            return encode_disparity(disparity, path.suffix)
        from pamcli.batch.colors import ColorRange, colorize_depth

        depth = self.compute_depth(disparity, calibration)
        colors = self.color_range or ColorRange([depth], "m").report(path.name)
        return Encoded(encode_image(RgbImage(colorize_depth(depth, *colors)), path.suffix, name=str(path)))

    def write_color_video(self, video: Path, frames: StoredFrames, calibration: Calibration) -> None:
        """Write the coloured depth of stored disparity maps as a video. Raises OutputError, InputError."""
        from pamcli.batch import colors, video_results

        measure = partial(self.compute_depth, calibration=calibration)
        images = colors.render_frames(frames, self.color_range, colors.colorize_depth, measure)
        video_results.write_frames(video, frames, images)

    def _encode_depth(
        self, disparity: np.ndarray, calibration: Calibration, is_error: bool, path: Path
    ) -> Encoded:
        depth, suffix = self.compute_depth(disparity, calibration), path.suffix.lower()
        known = np.isfinite(depth)
        if is_error:
            deviation = self.settings.disparity_error
            values = calibration.for_size(*disparity.shape[::-1]).depth_error(disparity, deviation)
            depth = np.where(known, values, np.float32("nan"))
        file = encode_depth(depth, suffix)
        if not known.any():
            return file._replace(warnings=["all depths are unknown", *file.warnings])
        if suffix == ".png" and not is_error:
            step = 0.001 / float(np.median(depth[known]))
            if step > COARSE:
                warning = f"the 1 mm steps of 16 bits are {100 * step:.2g} % of the median depth"
                file = file._replace(warnings=[*file.warnings, f"{warning}: use .tif or .npy files"])
        return file


def encode_frame(
    left: np.ndarray | None, right: np.ndarray | None, disparity: np.ndarray, calibration: Calibration | None
) -> Encoded:
    """Encode a frame of a recording."""
    from pamcli.recordings import rrd

    return Encoded(rrd.encode_frame(left, right, disparity, calibration))
