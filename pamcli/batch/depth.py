"""Convert disparity maps to depth maps and point clouds, of matched pairs and of files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pamcli.batch import LOG, kinds
from pamcli.batch.camera_files import load_other_camera, load_rectified_calibration
from pamcli.batch.frames import pair_frames
from pamcli.batch.metric import MetricEncoder, encode_frame
from pamcli.batch.plan import EMPTY_NAME, Job, Plan, are_videos, plan_batch
from pamcli.batch.processing import Computed, PairProcessor
from pamcli.batch.run import Batch
from pamcli.calibration.geometry import Calibration
from pamcli.errors import InputError, UsageError
from pamcli.files.outputs import Encoded
from pamcli.files.pairing import Pairing, PairPaths, resolve_packed
from pamcli.files.paths import join_names, list_images_by_stem, match_template, natural_key, require_file
from pamcli.files.suffixes import DISPARITY_INPUT_SUFFIXES, IMAGE_SUFFIXES
from pamcli.imaging.disparity_encoding import PNG_UNITS_PER_PIXEL, encode_disparity
from pamcli.imaging.disparity_files import read_depth, read_disparity_file
from pamcli.imaging.images import read_image
from pamcli.imaging.videos import Video
from pamcli.settings.batches import DepthSettings
from pamcli.settings.options import takes

if TYPE_CHECKING:
    from pamcli.batch.video_results import StoredFrames

OTHER_RESULTS = ("_confidence", "_visible", "_color", "_depth", "_depth_error", "_depth_color")
"""Endings of file names in a folder of results that are not disparity maps."""
RIGHT_VIEW = "_right"
_PHOTOS = {*IMAGE_SUFFIXES} - {*DISPARITY_INPUT_SUFFIXES}


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
    main = kinds.INVERTED_DEPTH if settings.invert else kinds.DEPTH
    results = (main, *kinds.OF_DISPARITY)
    files, tag = settings.calibration_files, main.folder_tag or "_disparity"
    try:
        plan = plan_batch(settings, results, find=partial(_find_maps, settings), read=files, tag=tag)
    except UsageError as error:
        if "`root`" not in (error.hint or ""):
            raise
        hint = "name their folder, or run the command in a folder above them"
        raise UsageError(error.message, hint) from error
    return Batch(plan, _DepthProcessor(settings, plan))


def _holds_8_bits(path: str) -> bool:
    """Return True if a file is a PNG of 8 bits, as images are, and disparity maps of unknown scale."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(25)
    return head.startswith(b"\x89PNG") and head[24:] == b"\x08"


def _find_maps(settings: DepthSettings) -> Pairing:
    """Pair disparity maps with their left images, or None. Raises UsageError, InputError."""
    inputs = [*map(str, settings.inputs)]
    image = None if settings.image is None else str(settings.image)
    if "" in inputs:
        raise UsageError("DISPARITY is empty", EMPTY_NAME)
    if are_videos(inputs):
        if len(inputs) > 1 or image is not None:
            message = "a video of disparity maps must be the only input"
            raise UsageError(message, "drop `image` and all other inputs")
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
        if len(inputs) == 2 and settings.scale is None:
            photos += filter(_holds_8_bits, inputs)
        if photos:
            hint = "pam disparity LEFT RIGHT measures in an image pair, with the same options"
            raise UsageError(f"pam depth reads disparity maps, got the image {photos[0]}", hint)
        pairing = resolve_packed(inputs, suffixes=DISPARITY_INPUT_SUFFIXES)
        # Disparities of the right view have depth, but not the points and colours of the left camera.
        needs_left = any((settings.point_cloud, settings.mesh, settings.rerun, image))
        endings = (*OTHER_RESULTS, RIGHT_VIEW) if needs_left else OTHER_RESULTS
        pairing = _skip_other_results(pairing, inputs, endings)
    if image is None:
        return pairing
    if os.path.isdir(image):
        by_stem = list_images_by_stem(Path(image))
        if alone := [pair.left for pair in pairing.pairs if pair.left.stem not in by_stem]:
            raise UsageError(f"`image` {image}: no image for {join_names(alone)}")
        images = [by_stem[pair.left.stem] for pair in pairing.pairs]
    elif pairing.batch and "{}" not in image:
        raise UsageError(f"`image` {image} is one file for several maps", "name a folder or a template")
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

    if others := dict.fromkeys(pair.left for pair in pairing.pairs if is_other(pair)):
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
    """A disparity map, and the image of the same camera."""

    disparity: np.ndarray
    calibration: Calibration
    image: np.ndarray | None = None
    warnings: Sequence[str] = ()
    remarks: Sequence[str] = ()

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
        self.metric = MetricEncoder(settings, plan.videos)
        self.calibration = load_rectified_calibration(settings)
        self.others = load_other_camera(settings)
        if any(each.camera.distortion.any() or each.camera.fisheye for each in self.others):
            named = [name for name in ("point_cloud", "mesh", "at", "boxes") if settings.is_set(name)]
            if named:
                message = f"`{named[0]}` requires images without distortion, and {settings.align_to} has some"
                raise InputError(message, "undistort its images, and state their K without D; or use `depth`")

    def read(self, job: Job) -> tuple[_Map, Sequence[str]]:
        assert job.pair is not None
        path, image_path, limit = job.pair.left, job.pair.right, self.settings.max_pixels
        if job.pair.frames is not None:
            disparity = self.input_videos[path].disparity(job.pair.frames[0], max_pixels=limit)
            pair, image_path = _Map(disparity, self.calibration), None
        else:
            pair = self._read_map(path)
        if job.places or self.settings.has_distances:
            self.metric.check(self.calibration, pair.width, pair.height)
        if self.others:
            fits = [each for each in self.others if each.left_size == (pair.width, pair.height)]
            other = (fits or self.others)[0]
            disparity, calibration = other.align(pair.disparity, self.calibration)
            pair = replace(pair, disparity=disparity, calibration=calibration)
        if image_path is not None:
            image = read_image(image_path, max_pixels=limit).pixels
            check_same_size(image_path, image, path, pair.disparity)
            pair = replace(pair, image=image)
        return pair, ()

    def _read_map(self, path: Path) -> _Map:
        """Return a disparity map, or the one of a depth map. Raises InputError."""
        settings, limit = self.settings, self.settings.max_pixels
        if settings.invert:
            depth = read_depth(path, scale=settings.scale, max_pixels=limit)
            height, width = depth.shape
            disparity = self.calibration.for_size(width, height).disparity(depth)
            near = float(np.nanmax(disparity, initial=0))
            wide = f"disparities reach {near:.0f} px in an image {width} px wide"
            doubts = [f"{wide}; `scale` states the units per m"] if near > width else []
            return _Map(disparity, self.calibration, None, doubts)
        file = read_disparity_file(path, scale=settings.scale, invalid=settings.invalid, max_pixels=limit)
        note = "PNG files are read with 256 units per px, as KITTI stores them; `scale` sets another unit"
        is_default_png = settings.scale is None and file.units == PNG_UNITS_PER_PIXEL
        return _Map(file.disparity, self.calibration, None, file.warnings, [note] if is_default_png else [])

    def apply(self, job: Job, pair: _Map) -> Computed:
        distances, doubts = self.metric.measure(job, pair.disparity, pair.calibration)
        return Computed(partial(self.encode, pair), distances, [*pair.warnings, *doubts], pair.remarks)

    def encode(self, pair: _Map, kind: str, path: Path) -> Encoded:
        """Encode a kind of result for a file."""
        if kind == kinds.INVERTED_DEPTH.name:
            return encode_disparity(pair.disparity, path.suffix)
        if kind == kinds.RERUN.name:
            return encode_frame(pair.image, None, pair.disparity, pair.calibration)
        return self.metric.encode(kind, pair.disparity, pair.image, pair.calibration, path)

    def write_video(self, video: Path, frames: StoredFrames) -> None:
        if frames.kind == kinds.RERUN.name:
            from pamcli.batch.video_results import write_rerun

            write_rerun(video, frames, self.metric.max_depth, self.settings.stride)
        elif frames.kind == kinds.DEPTH_COLOR_MAP.name:
            pair, _ = self.read(Job(next(iter(frames.pairs))))
            self.metric.write_color_video(video, frames, pair.calibration)
        else:
            super().write_video(video, frames)
