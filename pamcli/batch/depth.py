"""Convert disparity maps to depth maps and point clouds, of matched pairs and of files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.frames import pair_frames
from pamcli.batch.jobs import EMPTY_NAME, Job, are_videos
from pamcli.batch.plan import Plan, plan_batch
from pamcli.batch.processing import Outcome, PairProcessor
from pamcli.batch.run import Batch
from pamcli.calibration.description import CameraDescription, Extrinsics, Interpretation, StoredCalibration
from pamcli.calibration.distances import Region, read_regions, select_regions
from pamcli.calibration.files import describe_calibration, prefix_errors
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.mesh import encode_mesh
from pamcli.calibration.point_cloud import encode_point_cloud
from pamcli.errors import InputError, UsageError, import_extra
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.pairing import Pairing, PairPaths, resolve_packed
from pamcli.files.paths import join_names, list_images_by_stem, match_template, natural_key, require_file
from pamcli.files.suffixes import (
    DEPTH_SUFFIXES,
    DISPARITY_INPUT_SUFFIXES,
    IMAGE_SUFFIXES,
    POINT_CLOUD_SUFFIXES,
)
from pamcli.files.units import parse_length
from pamcli.imaging.disparity_files import PNG_UNITS_PER_PIXEL, encode_depth
from pamcli.imaging.disparity_units import read_disparity_file
from pamcli.imaging.images import read_image
from pamcli.imaging.stereo_pair import StereoPair
from pamcli.imaging.videos import Video
from pamcli.recordings.bags import Recording
from pamcli.settings.batches import DepthSettings
from pamcli.settings.options import Place, takes
from pamcli.settings.shared import CalibrationFiles, MetricResults, RectifiedCalibration

DEPTH = OutputKind("depth", "`depth`", DEPTH_SUFFIXES, "_depth")
DEPTH_ERROR = OutputKind("depth_error", "`depth_error`", DEPTH_SUFFIXES, "_depth_error")
POINT_CLOUD = OutputKind("point_cloud", "`point_cloud`", POINT_CLOUD_SUFFIXES, "_cloud")
MESH = OutputKind("mesh", "`mesh`", (".glb",), "_mesh")
RERUN = OutputKind("rerun", "`rerun`", (".npz",))  # of its stored frames
DISTANCES = "distances"
METRIC = {DISTANCES, *(kind.name for kind in (DEPTH, DEPTH_ERROR, POINT_CLOUD, MESH))}
"""Kinds of results that need a calibration."""
OTHER_RESULTS = "_confidence", "_visible", "_color", DEPTH.folder_tag, DEPTH_ERROR.folder_tag
"""Endings of file names in a folder of results that are not disparity maps."""
RIGHT_VIEW = "_right"
_PHOTOS = {*IMAGE_SUFFIXES} - {*DISPARITY_INPUT_SUFFIXES}
COARSE = 0.01
"""Share of the median depth above which the 1 mm steps of a PNG are reported."""


def read_description(
    settings: CalibrationFiles,
    *,
    fisheye: bool = False,
    extrinsics: Extrinsics = "transform",
    recording: Recording | None = None,
) -> tuple[CameraDescription, Interpretation]:
    """Return the cameras in calibration files, completed by options. Raises InputError, UsageError."""
    if "" in settings.calibration_files:
        raise UsageError("`calibration` is empty", EMPTY_NAME)
    how = (extrinsics, fisheye, settings.unit, settings.baseline)
    if recording is None or settings.calibration_files:
        return describe_calibration(*settings.calibration_files, cameras=settings.cameras, how=how)
    if recording.camera_description is None:
        message = f"{recording.place} has no calibrated camera_info for both cameras"
        raise InputError(message, "give a `calibration`")
    return recording.camera_description, Interpretation(settings.cameras == (1, 0), *how)


def finish_calibration(
    files: Sequence[Place], description: CameraDescription, interpretation: Interpretation
) -> StoredCalibration:
    """Return the calibration of files, and log its notes. Raises InputError, UsageError."""
    names = ", ".join(map(str, files))
    with prefix_errors(names):
        stored = description.resolve(interpretation)
    for note in (*stored.notes, *([stored.unit_note] if stored.unit_note and not stored.doubt else [])):
        LOG.info("%s: %s", names, note)
    return stored


def load_rectified_calibration(settings: RectifiedCalibration) -> Calibration:
    """Return the calibration of rectified images, from files or options. Raises InputError, UsageError."""
    if isinstance(settings.calibration, Calibration):
        for name in ("focal", "baseline", "doffs", "cameras", "unit", "principal_point"):
            if settings.is_set(name):
                message = f"cannot use both a `Calibration` and `{name}`"
                raise UsageError(message, f"set it in the `Calibration`, or drop `{name}`")
        return settings.calibration
    files, doubt = settings.calibration_files, None
    names = ", ".join(map(str, files))
    given = {"focal_length": settings.focal, "offset": settings.doffs, "principal": settings.principal_point}
    if files:
        stored = finish_calibration(files, *read_description(settings))
        if stored.rectified is None:
            raise InputError(
                f"{names} describes cameras whose images are not rectified",
                "rectify the images with `pam rectify`, and use its calibration.yaml",
            )
        calibration, doubt = stored.rectified.with_pixels(**given), stored.doubt
    else:
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        calibration = Calibration(**known, baseline=settings.baseline)  # type: ignore[arg-type]
    for warning in [doubt] if doubt else calibration.warnings():
        LOG.warning("%s: %s", names or "the calibration", warning)
    return calibration


def read_stated_calibration(pair: StereoPair, settings: CalibrationFiles) -> Calibration | None:
    """Return the calibration that a recording or a photo states, with the user's baseline if given."""
    if not pair.stated:
        return None
    stated = Calibration(**pair.stated)
    if settings.baseline is None:
        return stated
    return stated.with_baseline(parse_length(settings.baseline, "`baseline`"))


class MetricEncoder:
    """Encodes depth maps and point clouds from disparity maps."""

    def __init__(self, settings: MetricResults) -> None:
        self.settings = settings
        depth = settings.max_depth
        self.max_depth = None if depth is None else parse_length(depth, "`max_depth`")
        if Path(settings.point_cloud or "").suffix.lower() in POINT_CLOUD_SUFFIXES[1:]:
            import_extra("laspy")
        self.reported: list[Calibration] = []
        self.regions = [Region(*each) for each in settings.at or ()]
        if settings.boxes is not None:
            self.regions = read_regions(settings.boxes)

    def check(self, calibration: Calibration, width: int, height: int) -> None:
        """Raise InputError if the calibration does not fit images of this size; log if it is scaled."""
        scaled = calibration.for_size(width, height)
        scaled.reprojection()  # raises without a baseline
        if scaled in self.reported:
            return
        is_assumed = calibration.principal is None and "principal" not in dict(calibration.by_hand)
        has_points = any(
            getattr(self.settings, name, None)
            for name in ("point_cloud", "mesh", "page", "rerun", "has_distances")
        )
        if has_points and is_assumed and not self.reported:
            LOG.info("the image centre is used as the principal point: `principal_point` X,Y states another")
        self.reported.append(scaled)
        LOG.debug(
            f"depth (m) = {scaled.focal_length:g} px * {scaled.baseline:g} m / "
            f"(disparity (px) + {scaled.offset:g} px)"
        )
        if (size := calibration.size) and scaled.size not in calibration.sizes:
            LOG.info(
                f"the calibration of {size[0]}x{size[1]} px is scaled to {width}x{height} px: "
                f"focal length {scaled.focal_length:g} px"
            )

    def measure(self, job: Job, disparity: Any, calibration: Calibration | None) -> tuple[Any, list[str]]:
        """Return the positions of points and boxes as facts, and warnings; `disparity`: as for `encode`.

        Raises InputError if one is outside of the image.
        """
        if not self.regions or calibration is None:
            return {}, []
        regions = select_regions(self.regions, [*job.names[:1], str(job.pair and job.pair.left)])
        rows = [each.measure(disparity, calibration, self.settings.disparity_error) for each in regions]
        unknown = [f"{row['x']:g},{row['y']:g}" for row in rows if not row["known"]]
        warnings = [] if rows else [f"{self.settings.boxes} has no box for this image"]
        if unknown:
            warnings += [f"no depth is known at {join_names(unknown)} px"]
        return {DISTANCES: rows}, warnings

    def encode(self, name: str, suffix: str, disparity: Any, image: Any, calibration: Calibration) -> Encoded:
        """Encode a result. disparity: (H, W) px, NaN = unknown; image: (H, W, C), or None."""
        height, width = disparity.shape
        calibration = calibration.for_size(width, height)
        if name in (MESH.name, POINT_CLOUD.name):
            encode: Any = encode_mesh if name == MESH.name else partial(encode_point_cloud, suffix=suffix)
            options = {"max_depth": self.max_depth, "stride": self.settings.stride}
            data, count = encode(disparity, calibration, image=image, **options)
            what = name.replace("_", " ")
            return Encoded(data, [] if count else [f"the {what} is empty: all depths are unknown"])
        depth = calibration.depth(disparity)
        known = depth <= (self.max_depth or math.inf)
        if name == DEPTH_ERROR.name:
            depth = calibration.depth_error(disparity, self.settings.disparity_error)
        file = encode_depth(np.where(known, depth, np.float32("nan")), suffix)
        if not known.any():
            return file._replace(warnings=["all depths are unknown", *file.warnings])
        if suffix == ".png" and name == DEPTH.name:
            step = 0.001 / float(np.median(depth[known]))
            if step > COARSE:
                warning = f"the 1 mm steps of a PNG are {100 * step:.2g} % of the median depth"
                file = file._replace(warnings=[*file.warnings, f"{warning}: use .tif or .npy"])
        return file


@takes(DepthSettings)
def depth_files(settings: DepthSettings) -> Batch:
    """Convert disparity maps in files to depth maps and point clouds, as `pam depth` does.

    >>> for result in pamcli.depth_files("disparity.pfm", calibration="calib.txt", depth="metres.tif"):
    ...     print(result.status, result.outputs)

    Args:
        settings: Files or folders; then a `DepthSettings`, or its fields as keywords.

    Raises:
        UsageError, InputError: Before any work. If a file fails, its result has an `error`.
    """
    results = {DEPTH: settings.depth, DEPTH_ERROR: settings.depth_error, POINT_CLOUD: settings.point_cloud}
    results |= {MESH: settings.mesh, RERUN: settings.rerun}
    image = None if settings.image is None else str(settings.image)
    has_points = (settings.point_cloud, settings.mesh, settings.rerun) != (None, None, None)
    find = partial(_find_maps, [*map(str, settings.inputs)], image, has_points)
    try:
        plan = plan_batch(settings, results, find=find, read=settings.calibration_files, tag="_depth")
    except UsageError as error:
        if "`root`" not in (error.hint or ""):
            raise
        hint = "name their folder, or run the command in a folder above them"
        raise UsageError(error.message, hint) from error
    return Batch(plan, _DepthProcessor(settings, plan))


def _find_maps(inputs: Sequence[str], image: str | None, has_points: bool) -> Pairing:
    """Pair disparity maps with their left images, or None. Raises UsageError, InputError."""
    if "" in inputs:
        raise UsageError("DISPARITY is empty", EMPTY_NAME)
    if are_videos(inputs):
        if len(inputs) > 1 or image is not None:
            raise UsageError(
                "a video of disparity maps must be the only input", "drop `image` and all other inputs"
            )
        pairing = pair_frames(inputs)
        Video(Path(inputs[0])).check_disparities()
        return pairing
    if len(inputs) == 1 and "{}" in inputs[0]:
        matched = match_template(inputs[0])
        if not matched:
            raise UsageError(f"no file matches {inputs[0]}")
        names = [PairPaths(path, None, key) for key, path in matched.items()]
        pairing = Pairing(tuple(sorted(names, key=lambda pair: natural_key(str(pair.key)))))
    else:
        photos = [each for each in inputs if Path(each).suffix.lower() in _PHOTOS]
        if photos:
            hint = "pam disparity LEFT RIGHT measures in an image pair, with the same options"
            raise UsageError(f"pam depth reads disparity maps, got the image {photos[0]}", hint)
        pairing = resolve_packed(inputs, suffixes=DISPARITY_INPUT_SUFFIXES)
        # Disparities of the right view have depth, but not the points and colours of the left camera.
        endings = (*OTHER_RESULTS, RIGHT_VIEW) if has_points or image is not None else OTHER_RESULTS
        pairing = _skip_other_results(pairing, inputs, endings)
    if image is None:
        return pairing
    if pairing.batch and not ("{}" in image or os.path.isdir(image)):
        raise UsageError(f"`image` {image} is one file for several maps", "name a folder or a template")
    if os.path.isdir(image):
        by_stem = list_images_by_stem(Path(image))
        if alone := [pair.left for pair in pairing.pairs if pair.left.stem not in by_stem]:
            raise UsageError(f"`image` {image}: no image for {join_names(alone)}")
        images = [by_stem[pair.left.stem] for pair in pairing.pairs]
    else:
        images = [Path(image.replace("{}", pair.key or "")) for pair in pairing.pairs]
    for each in images:
        require_file(each)
    pairs = (pair._replace(right=each) for pair, each in zip(pairing.pairs, images, strict=True))
    return pairing._replace(pairs=tuple(pairs), unpaired=())


def _skip_other_results(pairing: Pairing, inputs: Sequence[str], endings: Sequence[str]) -> Pairing:
    """Ignore files that pam wrote beside the disparity maps of a folder, except those that are named."""
    stems = {pair.left.with_suffix("") for pair in pairing.pairs}

    def is_other(pair: PairPaths) -> bool:
        stem = pair.left.with_suffix("")
        names = (stem.name.removesuffix(ending) for ending in endings if stem.name.endswith(ending))
        return str(pair.left) not in inputs and any(name and stem.with_name(name) in stems for name in names)

    others = dict.fromkeys(pair.left for pair in pairing.pairs if is_other(pair))
    if others:
        LOG.info(f"ignored, because their names are not those of left disparity maps: {join_names(others)}")
    return pairing._replace(pairs=tuple(pair for pair in pairing.pairs if pair.left not in others))


def check_same_size(file: Path, image: np.ndarray, result: Path, disparity: np.ndarray) -> None:
    """Raise InputError if an image does not have the size of a disparity map."""
    if image.shape[:2] != disparity.shape:
        (height, width), (rows, columns) = image.shape[:2], disparity.shape
        hint = "use the file that belongs to this disparity map, at the same size"
        raise InputError(f"{file} is {width}x{height} but {result} is {columns}x{rows}", hint)


@dataclass(frozen=True)
class _Map:
    """A disparity map, and the left image."""

    disparity: np.ndarray
    image: np.ndarray | None
    warnings: Sequence[str] = ()
    is_default_png: bool = False
    """True if the default scale of 16-bit PNG was used."""

    @property
    def width(self) -> int:
        return int(self.disparity.shape[1])

    @property
    def height(self) -> int:
        return int(self.disparity.shape[0])


class _DepthProcessor(PairProcessor):
    settings: DepthSettings

    def __init__(self, settings: DepthSettings, plan: Plan) -> None:
        super().__init__(settings, plan)
        self.metric, self.calibration = MetricEncoder(settings), load_rectified_calibration(settings)

    def read(self, job: Job) -> _Map:
        assert job.pair is not None
        path, settings, max_pixels = job.pair.left, self.settings, self.settings.max_pixels
        if job.pair.frames is not None:
            return _Map(self.reader.videos[path].disparity(job.pair.frames[0], max_pixels=max_pixels), None)
        file = read_disparity_file(
            path, scale=settings.scale, invalid=settings.invalid, max_pixels=max_pixels
        )
        is_default_png = settings.scale is None and file.units == PNG_UNITS_PER_PIXEL
        loaded = _Map(file.disparity, None, file.warnings, is_default_png)
        if job.pair.right is None:
            return loaded
        image = read_image(job.pair.right, max_pixels=max_pixels).pixels
        check_same_size(job.pair.right, image, path, loaded.disparity)
        return replace(loaded, image=image)

    def check_result(self, name: str, path: Path, pair: _Map) -> None:
        self.metric.check(self.calibration, pair.width, pair.height)

    def apply(self, job: Job, pair: _Map) -> Outcome:
        distances, doubts = self.metric.measure(job, pair.disparity, self.calibration)
        return None, distances, [*pair.warnings, *doubts]

    def remarks(self, pair: _Map, facts: Mapping[str, Any]) -> list[str]:
        note = "PNG files are read with 256 units per px, as KITTI stores them; `scale` sets another unit"
        return [note] if pair.is_default_png else []

    def encode(self, name: str, path: Path, pair: _Map, computed: None) -> Encoded:
        if name == RERUN.name:
            from pamcli.recordings.rrd import encode_frame

            return Encoded(encode_frame(pair.image, None, pair.disparity, self.calibration))
        return self.metric.encode(name, path.suffix.lower(), pair.disparity, pair.image, self.calibration)

    def write_video(self, kind: str, video: Path, frames: Any) -> None:
        if kind == RERUN.name:
            from pamcli.batch.video_results import write_rerun

            write_rerun(video, frames, self.metric.max_depth, self.settings.stride)
        else:
            super().write_video(kind, video, frames)
