"""Results in metres: of pairs that are matched, and of disparities in files."""

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
from pamcli.batch.frames import are_videos, pair_frames
from pamcli.batch.job import Job
from pamcli.batch.operation import Operation
from pamcli.batch.plan import MAX_PIXELS, Place, Request
from pamcli.batch.run import Batch
from pamcli.calibration.described import Choice, Described, Extrinsics
from pamcli.calibration.files import choice_of, describe_calibration, naming
from pamcli.calibration.point_cloud import encode_point_cloud
from pamcli.calibration.rectified import Calibration
from pamcli.calibration.stored import StoredCalibration
from pamcli.errors import InputError, UsageError
from pamcli.files.finding import files_by_text, listed, natural, pictures_by_stem, require_file
from pamcli.files.outputs import Encoded, OutputKind
from pamcli.files.pairing import Pairing, PairName, is_template, resolve_packed
from pamcli.files.suffixes import DEPTH_SUFFIXES, DISPARITY_SUFFIXES
from pamcli.files.units import parse_length
from pamcli.imaging.disparity_files import encode_depth, read_disparity
from pamcli.imaging.images import read_picture
from pamcli.imaging.videos import Video

DEPTH = OutputKind("depth", "`depth`", DEPTH_SUFFIXES, "_depth")
DEPTH_ERROR = OutputKind("depth_error", "`depth_error`", DEPTH_SUFFIXES, "_depth_error")
POINT_CLOUD = OutputKind("point_cloud", "`point_cloud`", (".ply",), "_cloud")
BESIDE = "_confidence", "_visible", "_color", DEPTH.folder_tag, DEPTH_ERROR.folder_tag
COARSE = 0.01  # share of the median depth from which on the steps of a PNG are announced
RIGHT_VIEW = "_right"
"""What the names of other results that pam writes into a folder end with; of the right view's disparities."""


def read_description(
    files: Sequence[Place],
    cameras: tuple[int, int] | None = None,
    baseline: str | float | None = None,
    fisheye: bool = False,
    extrinsics: Extrinsics = "transform",
    unit: str | float | None = None,
) -> tuple[Described, Choice]:
    """Return what calibration files say, and what a user says beyond them, as `read_calibration` takes it."""
    if "" in files:
        raise UsageError("`calibration` is empty", "an unset variable of the shell, perhaps?")
    described, choice = describe_calibration(*map(Path, files), cameras=cameras)
    return described, replace(choice, **choice_of(extrinsics, fisheye, unit, baseline))


def finish_calibration(files: Sequence[Place], described: Described, choice: Choice) -> StoredCalibration:
    """Return the calibration of files, and log what they leave open. Raises InputError, UsageError."""
    with naming(named(files)):
        stored = described.finished(choice)
    for note in (*stored.notes, *([stored.unit_note] if stored.unit_note and not stored.doubt else [])):
        LOG.info("%s: %s", named(files), note)
    return stored


def named(files: Sequence[Place]) -> str:
    """Files, for a message."""
    return ", ".join(map(str, files))


def rectified_calibration(
    files: Sequence[Place],
    *,
    cameras: tuple[int, int] | None = None,
    baseline: str | float | None = None,
    focal: float | None = None,
    doffs: float | None = None,
    unit: str | float | None = None,
    principal_point: tuple[float, float] | None = None,
) -> Calibration | None:
    """Return the calibration of rectified images, in files or by hand; None where nothing of it is given.

    baseline, unit: lengths ("120mm", metres). focal, doffs, principal_point (x, y): pixels.
    Raises InputError, UsageError.
    """
    for name, value in {"cameras": cameras, "unit": unit}.items():
        if value is not None and not files:
            raise UsageError(f"`{name}` is about a calibration, and none is given", "give `calibration` FILE")
    given = {"focal_length": focal, "baseline": baseline, "offset": doffs, "principal": principal_point}
    by_hand: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    doubt = None
    if files:
        reading = read_description(files, cameras, baseline, unit=unit)
        stored = finish_calibration(files, *reading)
        found, doubt = stored.rectified, stored.doubt
        if found is None:
            raise InputError(
                f"{named(files)} describes cameras whose pictures are not rectified",
                "`pam rectify` makes rectified ones, and their calibration.yaml",
            )
        calibration = found.with_pixels(focal_length=focal, offset=doffs, principal=principal_point)
    elif not by_hand:
        return None
    elif focal is None or baseline is None:
        raise UsageError("depth needs `focal` and `baseline`, both", "or a file, with `calibration`")
    else:
        calibration = Calibration(**by_hand)
    for warning in [doubt] if doubt else calibration.warnings():
        LOG.warning("%s: %s", named(files) or "the calibration", warning)
    return calibration


class InMetres:
    """Makes files of depth and points from disparities."""

    def __init__(
        self,
        calibration: Calibration,
        disparity_error: float,
        max_depth: float | None,
        stride: int,
        has_points: bool = False,
    ) -> None:
        self.calibration, self.disparity_error = calibration, disparity_error
        self.max_depth, self.stride = max_depth, stride
        self.scaled_sizes: set[tuple[int, int]] = set()
        self.told: list[Calibration] = []
        if has_points and calibration.principal is None and "principal" not in dict(calibration.by_hand):
            assumed = "the principal point is not stated, so points assume that it is the image centre"
            LOG.info(f"{assumed}: `principal_point` X,Y states it")

    def check(self, width: int, height: int) -> None:
        """Raise InputError where the calibration is for other pictures, and log where it is scaled."""
        scaled = self.calibration.for_size(width, height)
        scaled.reprojection()  # knows the baseline
        if scaled not in self.told:
            self.told.append(scaled)
            LOG.debug(
                f"depth in metres = {scaled.focal_length:g} px * {scaled.baseline:g} m / "
                f"(disparity in px + {scaled.offset:g} px)"
            )
        size = self.calibration.size
        if size and scaled.size not in (*self.calibration.sizes, *self.scaled_sizes):
            self.scaled_sizes.add((width, height))
            LOG.info(
                f"the calibration of {size[0]} x {size[1]} is scaled to {width} x {height}: "
                f"focal length {scaled.focal_length:g} px"
            )

    def encode(self, name: str, suffix: str, disparity: Any, picture: Any) -> Encoded:
        """disparity: (H, W) pixels, NaN = unknown."""
        height, width = disparity.shape
        calibration = self.calibration.for_size(width, height)
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
                file = replace(file, warnings=[*file.warnings, f"{said}: .tif or .npy keeps fractions"])
        return file if known.any() else replace(file, warnings=["no depth is known", *file.warnings])


def in_metres(
    asked: Mapping[OutputKind, Place | None],
    calibration: Calibration | None,
    disparity_error: float,
    max_depth: str | float | None,
    stride: int,
    page: Place | None = None,
) -> InMetres | None:
    """What makes results in metres; None without a calibration.

    Raises UsageError where it is needed, or something is said of such results and there are none.
    """
    said = (
        ("max_depth", max_depth is not None, (DEPTH, DEPTH_ERROR, POINT_CLOUD)),
        ("stride", stride != 1, (POINT_CLOUD,)),
        ("disparity_error", disparity_error != 0.5, (DEPTH_ERROR,)),
    )
    for name, given, of_it in said:
        if given and all(asked.get(kind) is None for kind in of_it):
            of = " or ".join(kind.option for kind in of_it)
            raise UsageError(f"`{name}` is about {of}, and none is asked for", "leave it out")
    if calibration is not None:
        nearest = None if max_depth is None else parse_length(max_depth, "`max_depth`")
        points = asked.get(POINT_CLOUD) is not None or page is not None
        return InMetres(calibration, disparity_error, nearest, stride, points)
    if kinds := [kind.option for kind, place in asked.items() if place is not None]:
        raise UsageError(f"{kinds[0]} needs a calibration", "give `calibration`, or `focal` and `baseline`")
    return None


def depth_files(
    *inputs: Place,
    picture: Place | None = None,
    depth: Place | None = None,
    depth_error: Place | None = None,
    point_cloud: Place | None = None,
    disparity_error: float = 0.5,
    max_depth: str | float | None = None,
    stride: int = 1,
    calibration: Sequence[Place] | None = None,
    cameras: tuple[int, int] | None = None,
    baseline: str | float | None = None,
    unit: str | float | None = None,
    focal: float | None = None,
    doffs: float | None = None,
    principal_point: tuple[float, float] | None = None,
    max_pixels: int | None = MAX_PIXELS,
    skip_existing: bool = False,
    overwrite: bool = False,
) -> Batch:
    """Convert disparities in files to depth and points, as `pam depth` does, under its options' names.

    Raises UsageError and InputError before any work; what is wrong with a file is its outcome's `error`.
    """
    request = Request(inputs=inputs, max_pixels=max_pixels, skip_existing=skip_existing, overwrite=overwrite)
    places = {DEPTH: depth, DEPTH_ERROR: depth_error, POINT_CLOUD: point_cloud}
    files = calibration or ()
    asked = [*map(str, inputs)], None if picture is None else str(picture), point_cloud is not None
    try:
        batch = Batch.asked(request, places, found=partial(_stored, *asked), read=files, tag="_depth")
    except UsageError as error:
        if "`root`" not in (error.hint or ""):
            raise
        hint = "give the folder that holds them, or run it where they lie below"
        raise UsageError(error.message, hint) from error
    known = rectified_calibration(
        files,
        cameras=cameras,
        baseline=baseline,
        focal=focal,
        doffs=doffs,
        unit=unit,
        principal_point=principal_point,
    )
    metric = in_metres(places, known, disparity_error, max_depth, stride)
    assert metric is not None  # a plan has results
    return batch.working(_Converting(metric))


def _stored(inputs: Sequence[str], picture: str | None, cloud: bool) -> Pairing:
    """Disparities with the left pictures that they belong to (None: without).

    Raises UsageError where a picture has no name of its own, InputError for what does not exist.
    """
    if "" in inputs:
        raise UsageError("DISPARITY is empty", "an unset variable of the shell, perhaps?")
    if are_videos(inputs):
        return _frames(inputs, picture)
    if len(inputs) == 1 and is_template(inputs[0]):
        found = files_by_text(inputs[0])
        if not found:
            raise UsageError(f"no file matches {inputs[0]}")
        names = [PairName(path, None, key) for key, path in found.items()]
        pairing = Pairing(tuple(sorted(names, key=lambda pair: natural(str(pair.key)))))
    else:
        pairing = resolve_packed(inputs, suffixes=DISPARITY_SUFFIXES)
        # A right view's have depth, but neither points in the left camera's coordinates nor its picture.
        beside = (*BESIDE, RIGHT_VIEW) if cloud or picture is not None else BESIDE
        pairing = _without_others(pairing, inputs, beside)
    if picture is None:
        return pairing
    if pairing.batch and not (is_template(picture) or os.path.isdir(picture)):
        raise UsageError(f"`picture` {picture} is one file for many", "name a folder or a template")
    if os.path.isdir(picture):
        by_stem = pictures_by_stem(Path(picture))
        if alone := [pair.left for pair in pairing.pairs if pair.left.stem not in by_stem]:
            raise UsageError(f"no picture in {picture} for {listed(alone)}")
        pictures = [by_stem[pair.left.stem] for pair in pairing.pairs]
    else:
        pictures = [Path(picture.replace("{}", pair.key or "")) for pair in pairing.pairs]
    for each in pictures:
        require_file(each)
    pairs = (replace(pair, right=each) for pair, each in zip(pairing.pairs, pictures, strict=True))
    return replace(pairing, pairs=tuple(pairs), unpaired=())


def _without_others(pairing: Pairing, named: Sequence[str], beside: Sequence[str]) -> Pairing:
    """Leave out what pam wrote beside the disparities of a folder's files.

    named: files that stay. beside: what the names of the others end with.
    """
    stems = {pair.left.with_suffix("") for pair in pairing.pairs}

    def is_other(pair: PairName) -> bool:
        stem = pair.left.with_suffix("")
        names = (stem.name.removesuffix(tag) for tag in beside if stem.name.endswith(tag))
        return str(pair.left) not in named and any(name and stem.with_name(name) in stems for name in names)

    others = dict.fromkeys(pair.left for pair in pairing.pairs if is_other(pair))
    if others:
        LOG.info(f"left out, as they are no disparities of left views by their names: {listed(others)}")
    return replace(pairing, pairs=tuple(pair for pair in pairing.pairs if pair.left not in others))


def _frames(inputs: Sequence[str], picture: str | None) -> Pairing:
    """Frames of a video of disparities. Raises UsageError, InputError."""
    if len(inputs) > 1 or picture is not None:
        raise UsageError("a video of disparities is given alone", "leave out `picture`, and other files")
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


class _Converting(Operation[None]):
    def __init__(self, metric: InMetres) -> None:
        self.metric = metric

    def read(self, job: Job, layout: Any, max_pixels: int | None) -> Any:
        assert job.pair is not None
        if job.pair.frames is not None:
            number, _ = job.pair.frames
            found = self._videos[job.pair.left].disparity(number, max_pixels=max_pixels)
            return _Map(found, None, found.shape[1], found.shape[0])
        disparity = read_disparity(job.pair.left, max_pixels=max_pixels)
        picture = None
        if job.pair.right is not None:
            picture = read_picture(job.pair.right, max_pixels=max_pixels).pixels
            if picture.shape[:2] != disparity.shape:
                raise InputError(
                    f"{job.pair.right} has {picture.shape[1]} x {picture.shape[0]} pixels, "
                    f"{job.pair.left} {disparity.shape[1]} x {disparity.shape[0]}"
                )
        height, width = disparity.shape
        return _Map(disparity, picture, width, height)

    def check(self, name: str, place: Path, pair: Any) -> None:
        self.metric.check(pair.width, pair.height)

    def apply(self, job: Job, pair: Any) -> None:
        return None

    def encode(self, name: str, place: Path, pair: Any, result: None) -> Encoded:
        return self.metric.encode(name, place.suffix.lower(), pair.disparity, pair.picture)
