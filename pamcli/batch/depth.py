"""How do disparities become depth and points in metres: of pairs that are matched, and of files?"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pamcli.batch import LOG
from pamcli.batch.frames import pair_frames
from pamcli.batch.jobs import Job, are_videos
from pamcli.batch.run import Batch
from pamcli.batch.work import Found, Work
from pamcli.calibration.description import CameraDescription, Extrinsics, Interpretation, StoredCalibration
from pamcli.calibration.files import describe_calibration, prefix_errors
from pamcli.calibration.geometry import Calibration
from pamcli.calibration.point_cloud import encode_point_cloud
from pamcli.errors import InputError, UsageError
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.pairing import Pairing, PairPaths, is_template, resolve_packed
from pamcli.files.paths import join_names, list_images_by_stem, match_template, natural_key, require_file
from pamcli.files.suffixes import DEPTH_SUFFIXES, DISPARITY_SUFFIXES
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
POINT_CLOUD = OutputKind("point_cloud", "`point_cloud`", (".ply",), "_cloud")
BESIDE = "_confidence", "_visible", "_color", DEPTH.folder_tag, DEPTH_ERROR.folder_tag
COARSE = 0.01  # share of the median depth from which on the steps of a PNG are announced
RIGHT_VIEW = "_right"
"""What the names of other results that pam writes into a folder end with; of the right view's disparities."""


def read_description(
    settings: CalibrationFiles,
    *,
    fisheye: bool = False,
    extrinsics: Extrinsics = "transform",
    recording: Recording | None = None,
) -> tuple[CameraDescription, Interpretation]:
    """Return what calibration files say, and what a user says beyond them, as `read_calibration` takes it."""
    if "" in settings.calibration_files:
        raise UsageError("`calibration` is empty", "an unset variable of the shell, perhaps?")
    how = (extrinsics, fisheye, settings.unit, settings.baseline)
    if recording is None or settings.calibration_files:
        return describe_calibration(*map(Path, settings.calibration_files), cameras=settings.cameras, how=how)
    if recording.described is None:
        raise InputError(
            f"{recording.place} has no calibrated camera_info for both cameras", "give a `calibration`"
        )
    return recording.described, Interpretation(settings.cameras == (1, 0), *how)


def finish_calibration(
    files: Sequence[Place], description: CameraDescription, interpretation: Interpretation
) -> StoredCalibration:
    """Return the calibration of files, and log what they leave open. Raises InputError, UsageError."""
    with prefix_errors(named(files)):
        stored = description.resolve(interpretation)
    for note in (*stored.notes, *([stored.unit_note] if stored.unit_note and not stored.doubt else [])):
        LOG.info("%s: %s", named(files), note)
    return stored


def named(files: Sequence[Place]) -> str:
    """Files, for a message."""
    return ", ".join(map(str, files))


def rectified_calibration(settings: RectifiedCalibration) -> Calibration:
    """Return the calibration of rectified images, in files or by hand. Raises InputError, UsageError."""
    files = settings.calibration_files
    if isinstance(settings.calibration, Calibration):
        for name in ("focal", "baseline", "doffs", "cameras", "unit", "principal_point"):
            if settings.is_set(name):
                message = f"cannot use both a `Calibration` and `{name}`"
                raise UsageError(message, "change it by its own methods")
        return settings.calibration
    given = {"focal_length": settings.focal, "offset": settings.doffs, "principal": settings.principal_point}
    doubt = None
    if files:
        stored = finish_calibration(files, *read_description(settings))
        found, doubt = stored.rectified, stored.doubt
        if found is None:
            raise InputError(
                f"{named(files)} describes cameras whose pictures are not rectified",
                "`pam rectify` makes rectified ones, and their calibration.yaml",
            )
        calibration = found.with_pixels(**given)
    else:
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        calibration = Calibration(**known, baseline=settings.baseline)  # type: ignore[arg-type]
    for warning in [doubt] if doubt else calibration.warnings():
        LOG.warning("%s: %s", named(files) or "the calibration", warning)
    return calibration


def stated_calibration(pair: StereoPair, settings: MetricResults) -> Calibration | None:
    """Return the calibration that a recording or a photo states, with the user's baseline if one is given."""
    if not pair.stated:
        return None
    found = Calibration(**pair.stated)
    if settings.baseline is None:
        return found
    return found.with_baseline(parse_length(settings.baseline, "`baseline`"))


class InMetres:
    """Makes files of depth and points from disparities."""

    def __init__(self, settings: MetricResults) -> None:
        self.settings, self.disparity_error = settings, settings.disparity_error
        far = settings.max_depth
        self.max_depth = None if far is None else parse_length(far, "`max_depth`")
        self.stride = settings.stride
        self.scaled_sizes: set[tuple[int, int]] = set()
        self.told: list[Calibration] = []
        self.has_points = settings.point_cloud is not None or getattr(settings, "page", None) is not None

    def check(self, calibration: Calibration, width: int, height: int) -> None:
        """Raise InputError where the calibration is for other pictures, and log where it is scaled."""
        is_assumed = calibration.principal is None and "principal" not in dict(calibration.by_hand)
        if self.has_points and is_assumed and not self.told:
            assumed = "the principal point is not stated, so points assume that it is the image centre"
            LOG.info(f"{assumed}: `principal_point` X,Y states it")
        scaled = calibration.for_size(width, height)
        scaled.reprojection()  # knows the baseline
        if scaled not in self.told:
            self.told.append(scaled)
            LOG.debug(
                f"depth in metres = {scaled.focal_length:g} px * {scaled.baseline:g} m / "
                f"(disparity in px + {scaled.offset:g} px)"
            )
        size = calibration.size
        if size and scaled.size not in (*calibration.sizes, *self.scaled_sizes):
            self.scaled_sizes.add((width, height))
            LOG.info(
                f"the calibration of {size[0]} x {size[1]} is scaled to {width} x {height}: "
                f"focal length {scaled.focal_length:g} px"
            )

    def encode(
        self, name: str, suffix: str, disparity: Any, picture: Any, calibration: Calibration
    ) -> Encoded:
        """disparity: (H, W) pixels, NaN = unknown."""
        height, width = disparity.shape
        calibration = calibration.for_size(width, height)
        if name == POINT_CLOUD.name:
            data, count = encode_point_cloud(
                disparity,
                calibration,
                picture=picture,
                max_depth=self.max_depth,
                stride=self.stride,
            )
            return Encoded(data, [] if count else ["the point cloud is empty: no depth is known"])
        metres = calibration.depth(disparity)
        known = metres <= (self.max_depth or math.inf)
        if name == DEPTH_ERROR.name:
            metres = calibration.depth_error(disparity, self.disparity_error)
        file = encode_depth(np.where(known, metres, np.float32("nan")), suffix)
        if known.any() and suffix.lower() == ".png" and name == DEPTH.name:
            step = 0.001 / float(np.median(metres[known]))
            if step > COARSE:
                said = (
                    f"depth in a PNG has steps of 1 mm, {100 * step:.2g} % of half of the depths here or more"
                )
                file = file._replace(warnings=[*file.warnings, f"{said}: .tif or .npy keeps fractions"])
        return file if known.any() else file._replace(warnings=["no depth is known", *file.warnings])


@takes(DepthSettings)
def depth_files(settings: DepthSettings) -> Batch:
    """Convert disparities in files to depth and points, as `pam depth` does, under its options' names.

    >>> for result in pamcli.depth_files("disparity.pfm", calibration="calib.txt", depth="metres.tif"):
    ...     print(result.status, result.outputs)

    Raises UsageError and InputError before any work; what is wrong with a file is its result's `error`.
    """
    results = {DEPTH: settings.depth, DEPTH_ERROR: settings.depth_error, POINT_CLOUD: settings.point_cloud}
    picture = None if settings.image is None else str(settings.image)
    found = partial(_stored, [*map(str, settings.inputs)], picture, settings.point_cloud is not None)
    try:
        batch = Batch(settings, results, found=found, read=settings.calibration_files, tag="_depth")
    except UsageError as error:
        if "`root`" not in (error.hint or ""):
            raise
        hint = "give the folder that holds them, or run it where they lie below"
        raise UsageError(error.message, hint) from error
    return batch.with_work(_Converting(settings))


def _stored(inputs: Sequence[str], picture: str | None, cloud: bool) -> Pairing:
    """Disparities with the left pictures that they belong to (None: without).

    Raises UsageError where a picture has no name of its own, InputError for what does not exist.
    """
    if "" in inputs:
        raise UsageError("DISPARITY is empty", "an unset variable of the shell, perhaps?")
    if are_videos(inputs):
        return _frames(inputs, picture)
    if len(inputs) == 1 and is_template(inputs[0]):
        found = match_template(inputs[0])
        if not found:
            raise UsageError(f"no file matches {inputs[0]}")
        names = [PairPaths(path, None, key) for key, path in found.items()]
        pairing = Pairing(tuple(sorted(names, key=lambda pair: natural_key(str(pair.key)))))
    else:
        pairing = resolve_packed(inputs, suffixes=DISPARITY_SUFFIXES)
        # A right view's have depth, but neither points in the left camera's coordinates nor its picture.
        beside = (*BESIDE, RIGHT_VIEW) if cloud or picture is not None else BESIDE
        pairing = _without_others(pairing, inputs, beside)
    if picture is None:
        return pairing
    if pairing.batch and not (is_template(picture) or os.path.isdir(picture)):
        raise UsageError(f"`image` {picture} is one file for many", "name a folder or a template")
    if os.path.isdir(picture):
        by_stem = list_images_by_stem(Path(picture))
        if alone := [pair.left for pair in pairing.pairs if pair.left.stem not in by_stem]:
            raise UsageError(f"no picture in {picture} for {join_names(alone)}")
        pictures = [by_stem[pair.left.stem] for pair in pairing.pairs]
    else:
        pictures = [Path(picture.replace("{}", pair.key or "")) for pair in pairing.pairs]
    for each in pictures:
        require_file(each)
    pairs = (pair._replace(right=each) for pair, each in zip(pairing.pairs, pictures, strict=True))
    return pairing._replace(pairs=tuple(pairs), unpaired=())


def _without_others(pairing: Pairing, named: Sequence[str], beside: Sequence[str]) -> Pairing:
    """Leave out what pam wrote beside the disparities of a folder's files.

    named: files that stay. beside: what the names of the others end with.
    """
    stems = {pair.left.with_suffix("") for pair in pairing.pairs}

    def is_other(pair: PairPaths) -> bool:
        stem = pair.left.with_suffix("")
        names = (stem.name.removesuffix(tag) for tag in beside if stem.name.endswith(tag))
        return str(pair.left) not in named and any(name and stem.with_name(name) in stems for name in names)

    others = dict.fromkeys(pair.left for pair in pairing.pairs if is_other(pair))
    if others:
        LOG.info(f"left out, as they are no disparities of left views by their names: {join_names(others)}")
    return pairing._replace(pairs=tuple(pair for pair in pairing.pairs if pair.left not in others))


def _frames(inputs: Sequence[str], picture: str | None) -> Pairing:
    """Frames of a video of disparities. Raises UsageError, InputError."""
    if len(inputs) > 1 or picture is not None:
        raise UsageError("a video of disparities is given alone", "drop `image` and the other files")
    pairing = pair_frames(inputs)
    Video(Path(inputs[0])).check_disparities()
    return pairing


@dataclass(frozen=True)
class _Map:
    """A stored disparity, and the left picture."""

    disparity: np.ndarray
    picture: np.ndarray | None
    width: int
    height: int
    warnings: Sequence[str] = ()
    default: str | None = None
    """What the default unit is taken for, where the file does not state it."""


class _Converting(Work):
    def __init__(self, settings: DepthSettings) -> None:
        super().__init__(settings)
        self.metric, self.calibration = InMetres(settings), rectified_calibration(settings)

    def read(self, job: Job) -> Any:
        assert job.pair is not None
        max_pixels = self.settings.max_pixels
        if job.pair.frames is not None:
            number, _ = job.pair.frames
            frame = self._videos[job.pair.left].disparity(number, max_pixels=max_pixels)
            return _Map(frame, None, frame.shape[1], frame.shape[0])
        scale = self.settings.scale
        invalid = self.settings.invalid
        found = read_disparity_file(job.pair.left, scale=scale, invalid=invalid, max_pixels=max_pixels)
        disparity = found.disparity
        picture = None
        if job.pair.right is not None:
            picture = read_image(job.pair.right, max_pixels=max_pixels).pixels
            if picture.shape[:2] != disparity.shape:
                raise InputError(
                    f"{job.pair.right} has {picture.shape[1]} x {picture.shape[0]} pixels, "
                    f"{job.pair.left} {disparity.shape[1]} x {disparity.shape[0]}"
                )
        height, width = disparity.shape
        default = None
        if scale is None and found.units == PNG_UNITS_PER_PIXEL:
            default = "a PNG is read with 256 units per pixel, as KITTI stores it; `scale` states others"
        return _Map(disparity, picture, width, height, found.warnings, default)

    def look(self, pair: Any) -> Sequence[str]:
        return pair.warnings  # type: ignore[no-any-return]

    def remark(self, pair: Any) -> str | None:
        return pair.default  # type: ignore[no-any-return]

    def check(self, name: str, place: Path, pair: Any) -> None:
        self.metric.check(self.calibration, pair.width, pair.height)

    def apply(self, job: Job, pair: Any) -> Found:
        return None, {}, ()

    def encode(self, name: str, place: Path, pair: Any, found: None) -> Encoded:
        return self.metric.encode(name, place.suffix.lower(), pair.disparity, pair.picture, self.calibration)
