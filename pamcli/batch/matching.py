"""Compute disparity maps, colour maps, depth maps and pages of image pairs in files."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pamcli.batch import LOG, kinds
from pamcli.batch.metric import MetricEncoder, encode_frame
from pamcli.batch.plan import Job, Plan, Result, plan_batch
from pamcli.batch.processing import Computed, NetworkProcessor, Results, attempt
from pamcli.batch.run import Batch
from pamcli.errors import DiskFullError, InputError, PamError, UsageError
from pamcli.files.atomic import FolderGoneError, write_atomically
from pamcli.files.outputs import Encoded
from pamcli.files.suffixes import BAG_OUTPUT_SUFFIXES
from pamcli.imaging.camera_faults import MatchingFault
from pamcli.imaging.disparity_encoding import encode_confidence, encode_disparity, quantize_disparity
from pamcli.imaging.disparity_files import read_disparity
from pamcli.imaging.images import StereoPair, check_encodable, encode_mask
from pamcli.imaging.temporal_fusion import PreviousFrame, fuse_frames
from pamcli.inference.loading import load_matcher
from pamcli.registry.catalog import list_network_files
from pamcli.settings.batches import MatchSettings
from pamcli.settings.options import takes

if TYPE_CHECKING:
    from pamcli.batch.colors import ColorRange
    from pamcli.batch.video_results import StoredFrames
    from pamcli.calibration.geometry import Calibration
    from pamcli.inference.matcher import StereoMatcher
    from pamcli.inference.result import StereoResult

Floats = NDArray[np.float32]

LEAST_CONFIDENCE = 0.5
"""Confidence below which `at` and `boxes` ignore a pixel, unless `min_confidence` is set."""


@takes(MatchSettings)
def match_files(settings: MatchSettings) -> Batch:
    """Match image pairs in files, as `pam disparity` does; iterate over the batch for a `Result` each.

    >>> for result in pamcli.match_files("lefts/", "rights/", output="maps/", skip_existing=True):
    ...     print(result.status, result.left, result.outputs.get("disparity"), result.error)

    Args:
        settings: A left and a right image, folders, or templates with `{}`; then a `MatchSettings`, or its
            fields as keywords, which are the options of the command (`pam guide options`). With output="-"
            the bytes of the disparity map are in `Result.data`. A video is complete after the last result.

    Returns:
        A `Batch`, whose pairs are processed while it is iterated. If a pair fails, its result has an `error`.

    Raises:
        UsageError, InputError: Before any work, for inputs that are not pairs, or results that exist.
        ModelError, DeviceError: During the iteration.
    """
    read = settings.calibration_files
    if settings.weights is not None:
        read += list_network_files(settings.weights)
    plan = plan_batch(settings, kinds.OF_MATCHING, read=read, tag="_disparity")
    if settings.range == "shared" and kinds.COLOR_MAP.name not in plan.videos:
        parts = {
            "`skip_existing`": settings.skip_existing,
            "`pairs` -": str(settings.pairs) == "-",
            "`shard`": settings.shard,
            "`engine` ray": settings.engine == "ray",
        }
        if conflict := next(filter(parts.get, parts), None):
            message = f"cannot use both `range` shared and {conflict}: the range needs the whole batch"
            raise UsageError(message, "give MIN:MAX, or drop `range` for one range per pair")
    if settings.min_disparity < 0 and kinds.STORED_AS_DISPARITY & plan.videos.keys():
        message = f"a video cannot hold negative disparities (`min_disparity` {settings.min_disparity})"
        raise UsageError(message, "write the results into a folder")
    if settings.steady and not plan.many:
        raise UsageError("`steady` requires a video or numbered frames", "drop `steady` for a single pair")
    return Batch(plan, MatchProcessor(settings, plan))


def rotate_back(image: np.ndarray) -> np.ndarray:
    """Rotate a result of `vertical` cameras, as `NetworkProcessor.rotate` rotated the images, back."""
    return np.ascontiguousarray(np.rot90(image, -1))


def describe_fault(fault: MatchingFault, *, is_upscaled: bool) -> str:
    """Return a note on what a fault of the images changes."""
    steps = ["sharpened"] if any(fault.sharpening) else []
    if fault.most < math.inf:
        steps.append("upscaled less" if is_upscaled else "not upscaled")
    kind = fault.text.partition(" (")[0]
    return f"images with {kind} are {' and '.join(steps)} before matching (`match_size` turns this off)"


class VideoFusion:
    """Fuses disparity maps with those of the previous frame as written, so that resuming changes nothing."""

    def __init__(self) -> None:
        self.previous: PreviousFrame | None = None  # the last frame that was processed
        self.restored: dict[str, PreviousFrame | None] = {}
        """The skipped frame before each pair; None if it is only in a finished video."""

    def fuse(self, job: Job, pair: StereoPair, disparity: Floats) -> Floats:
        """Return the disparity map (H, W), px, fused with the previous one."""
        previous = self.restored.pop(str(job.pair), self.previous)
        if previous is None:
            return disparity
        return fuse_frames(disparity, pair.left.pixels, pair.right.pixels, previous)

    def remember(self, job: Job, pair: StereoPair, disparity: Floats) -> None:
        """Keep a frame for the next one. disparity: as written, NaN = unknown."""
        stored = quantize_disparity(disparity, job.places.get(kinds.DISPARITY.name, Path()).suffix)
        self.previous = PreviousFrame(pair.left.pixels, pair.right.pixels, stored)


class MatchProcessor(NetworkProcessor):
    """The steps of `pam disparity` for each pair."""

    settings: MatchSettings
    stretches_eight_bits = True

    def __init__(self, settings: MatchSettings, plan: Plan) -> None:
        super().__init__(settings, plan)
        self.min_disparity, self.video_frames = settings.min_disparity, plan.frames or ()
        self.calibration: Calibration | None = None
        """The calibration of all pairs; None if each pair may state its own."""
        if settings.calibration or settings.focal:
            from pamcli.batch.camera_files import load_rectified_calibration

            self.calibration = load_rectified_calibration(settings)
            self.rectifies_recording = False
        self.fusion = VideoFusion() if settings.steady else None
        self.index: Path | None = None  # index of the pages of a batch
        if plan.many and settings.page is not None:
            from pamcli.viewing.index import check_index, find_index_path

            self.index = find_index_path(str(settings.page))
            check_index(self.index, plan.outputs)
        self.shared_range: ColorRange | None = None
        """The range of the whole batch, for colour maps that are written after it."""
        self.colors: tuple[float, float] | None = None
        self.stored: dict[Path, Path] = {}  # the stored disparity map of each of these colour maps
        if settings.steady:
            self.sequential = "`steady`"
        elif settings.range == "shared" and plan.many and kinds.COLOR_MAP.name not in plan.videos:
            from pamcli.batch.colors import ColorRange

            self.sequential, self.shared_range = "`range` shared", ColorRange()
            self.resume_hint = "results of the whole batch are written at its end, so start again"
        requested = {*plan.names.templates, *plan.returned}
        self.extras = requested & {kinds.RIGHT_DISPARITY.name, kinds.VISIBLE.name, kinds.CONFIDENCE.name}
        """Outputs of the network besides the disparity map."""
        if settings.unknown == "occluded":
            self.extras.add(kinds.VISIBLE.name)
        if settings.has_distances or settings.min_confidence is not None or kinds.PAGE.name in requested:
            self.extras.add(kinds.CONFIDENCE.name)

    @cached_property
    def network(self) -> StereoMatcher:
        return load_matcher(self.settings)[0]

    @cached_property
    def metric(self) -> MetricEncoder:
        return MetricEncoder(self.settings, self.videos)

    def get_calibration(self, pair: StereoPair) -> Calibration | None:
        """Return the given calibration, or the one that the pair states."""
        if self.calibration is not None or not pair.stated:
            return self.calibration
        from pamcli.batch.camera_files import read_stated_calibration

        return read_stated_calibration(pair, self.settings)

    def require_calibration(self, pair: StereoPair) -> Calibration:
        """Return the calibration of a pair. Raises InputError if there is none, or it does not fit."""
        calibration = self.get_calibration(pair)
        if calibration is None:
            message = f"{pair.title} does not state its calibration"
            raise InputError(message, "give `calibration`, or `focal` and `baseline`")
        self.metric.check(calibration, pair.width, pair.height)
        return calibration

    def read(self, job: Job) -> tuple[StereoPair, Sequence[str]]:
        assert job.pair is not None
        pair = self.read_rectified(job.pair)
        if self.fusion is not None and self.skipped is not None:
            self.fusion.restored[str(job.pair)] = self._read_frame(job, self.skipped)
            self.skipped = None
        if self.settings.has_distances or not kinds.METRIC.isdisjoint(job.places):
            self.require_calibration(pair)
        elif self.calibration is not None or pair.stated:
            calibration = self.get_calibration(pair)
            if calibration is not None and calibration.baseline:
                self.metric.check(calibration, pair.width, pair.height)
        for path in filter(None, map(job.places.get, (kinds.COLOR_MAP.name, kinds.DEPTH_COLOR_MAP.name))):
            size = {"height": pair.height, "width": pair.width}
            check_encodable(path.suffix, **size, bits=8, alpha=False, name=str(path))
        return pair, self.find_problems(pair)

    def _read_frame(self, job: Job, skipped: Job) -> PreviousFrame | None:
        """Read the stored result of the frame before a job if it was skipped. Raises InputError."""
        path = skipped.places[kinds.DISPARITY.name]
        if skipped.videos and not path.exists():
            stored = "the previous disparity map is stored only in a video"
            LOG.warning(f"`steady` starts anew at {job.pair}: {stored}")
            return None
        assert skipped.pair is not None
        pair = self.read_rectified(skipped.pair)
        return PreviousFrame(pair.left.pixels, pair.right.pixels, read_disparity(path, max_pixels=None))

    def apply(self, job: Job, pair: StereoPair) -> Computed:
        progress = None if self.bar is None else self.bar.watch(pair.height)
        views, settings, fault = (
            self.rotate(pair.left.pixels, pair.right.pixels),
            self.settings,
            self.video_fault,
        )
        if fault == "detect":
            fault = self.network.find_fault(*views)
        result: StereoResult = self.network(*views, extras=self.extras, progress=progress, fault=fault)
        if settings.vertical:
            size = result.matched_size and result.matched_size[::-1]
            result = result.map_arrays(rotate_back, rotate_back, disparity=lambda values: values)
            result = replace(result, matched_size=size)
        if self.fusion is not None:
            fused = self.fusion.fuse(job, pair, result.disparity)
            result = replace(result, disparity=np.maximum(fused, np.float32(settings.min_disparity)))
        is_visible = settings.unknown == "occluded"
        disparity = result.disparity
        if is_visible or settings.min_confidence is not None:
            disparity = result.disparity_where(visible=is_visible, min_confidence=settings.min_confidence)
        if self.fusion is not None:
            self.fusion.remember(job, pair, disparity)
        height, width = result.matched_size or disparity.shape
        warnings, remarks = [], self.list_remarks(pair)
        if "confidence" in self.extras and result.doubtful:
            share = f"only {100 * result.confident_share:.0f} % of the pixels are confident"
            warnings.append(f"{share}: the images may not be a pair, or have little texture")
        if width < pair.width:
            remarks.append(
                f"images of {pair.width}x{pair.height} px are matched at {width}x{height} px, and the "
                "disparity map is upsampled along image edges (`match_size` 1 matches at full size)"
            )
        if fault is not None:
            remarks.append(describe_fault(fault, is_upscaled=width > pair.width))
        facts = {"matched_width": width, "matched_height": height, "input_shows": fault and fault.text}
        if settings.has_distances:
            known = disparity
            if settings.min_confidence is None:
                known = result.disparity_where(visible=is_visible, min_confidence=LEAST_CONFIDENCE)
            distances, doubts = self.metric.measure(job, known, self.get_calibration(pair))
            facts, warnings = {**facts, **distances}, [*warnings, *doubts]
        return Computed(partial(self.encode, pair, result, disparity), facts, warnings, remarks)

    def detect_fault(self, pair: StereoPair) -> MatchingFault | None:
        return self.network.find_fault(*self.rotate(pair.left.pixels, pair.right.pixels))

    def encode(
        self, pair: StereoPair, result: StereoResult, disparity: Floats, kind: str, path: Path
    ) -> Encoded | None:
        """Encode a kind of result for a file. disparity: (H, W), px, NaN where it is unknown."""
        if kind == kinds.DISPARITY.name:
            return encode_disparity(disparity, path.suffix)
        if kind == kinds.RIGHT_DISPARITY.name:
            return encode_disparity(result.require("right_disparity"), path.suffix)
        if kind == kinds.COLOR_MAP.name:
            return self._encode_color_map(pair, disparity, path)
        if kind == kinds.VISIBLE.name:
            return Encoded(encode_mask(result.require("visible")))
        if kind == kinds.CONFIDENCE.name:
            return encode_confidence(result.require("confidence"), path.suffix)
        calibration, left = self.get_calibration(pair), pair.left.pixels
        if kind == kinds.RERUN.name:
            return encode_frame(left, pair.right.pixels, disparity, calibration)
        if kind == kinds.PAGE.name:
            from pamcli.viewing.page import render_page

            known, sure = calibration if calibration and calibration.baseline else None, result.confidence
            return Encoded(render_page(pair.title, left, disparity, confidence=sure, calibration=known))
        assert calibration is not None
        return self.metric.encode(kind, disparity, left, calibration, path)

    def _encode_color_map(self, pair: StereoPair, disparity: Floats, path: Path) -> Encoded | None:
        given, grey = self.settings.range, self.settings.grey
        if kinds.COLOR_MAP.name in self.videos:
            return encode_disparity(disparity, path.suffix)
        from pamcli.batch.colors import ColorRange, encode_colors

        if self.shared_range is not None:
            self.shared_range.add(disparity)
            stored = self.stored[path] = Path(self.stored_maps, f"{len(self.stored)}.npy")
            write_atomically(stored, encode_disparity(disparity, ".npy").data)
            return None
        if isinstance(given, tuple):
            return encode_colors(disparity, given, path, warn=True, grey=grey)
        colors = ColorRange([disparity]).report(pair.title, LOG.debug if self.many else LOG.info)
        return encode_colors(disparity, colors, path, warn=False, grey=grey)

    def write_video(self, video: Path, frames: StoredFrames) -> None:
        from pamcli.batch import colors, video_results
        from pamcli.imaging.colormap import colorize

        if frames.kind == kinds.RERUN.name:
            video_results.write_rerun(video, frames, self.metric.max_depth, self.settings.stride)
        elif video.suffix.lower() in BAG_OUTPUT_SUFFIXES:
            pair = self.read_views(next(iter(frames.pairs)))
            video_results.write_bag(video, frames, self.get_calibration(pair))
        elif frames.kind == kinds.DEPTH_COLOR_MAP.name:
            pair = self.read_views(next(iter(frames.pairs)))
            self.metric.write_color_video(video, frames, self.require_calibration(pair))
        elif frames.kind == kinds.COLOR_MAP.name:
            given = self.settings.range if isinstance(self.settings.range, tuple) else None
            paint = partial(colorize, grey=self.settings.grey)
            video_results.write_frames(video, frames, colors.render_frames(frames, given, paint))
        else:
            super().write_video(video, frames)

    def finish(self, results: Results) -> Results:
        failed = False
        for result in results if self.shared_range is None else self._color_together(results):
            failed |= result.error is not None
            yield result
        if self.index is not None:
            from pamcli.viewing.index import write_index

            index = attempt(write_index, self.index)
            if isinstance(index, PamError) and not failed:
                raise index
            if isinstance(index, PamError):
                LOG.error("%s", index)

    def _color_together(self, results: Results) -> Results:
        """Write the colour maps with one range after the last pair, then yield the results."""
        with tempfile.TemporaryDirectory(prefix="pam-") as self.stored_maps:
            done = []
            for result in results:
                if isinstance(result.error, (FolderGoneError, DiskFullError)):  # as for all
                    raise result.error
                done.append(result)
            for result in done:
                outcome = attempt(self._write_colors, result)
                yield replace(result, error=outcome) if isinstance(outcome, PamError) else result

    def _write_colors(self, result: Result) -> None:
        from pamcli.batch.colors import encode_colors

        path = result.job.files.get(kinds.COLOR_MAP.name, Path())
        if path in self.stored and self.shared_range is not None:
            disparity = read_disparity(self.stored[path], max_pixels=None)
            self.colors = self.colors or self.shared_range.report("the batch")
            encoded = encode_colors(disparity, self.colors, path, warn=False, grey=self.settings.grey)
            self.write(result.job, path, encoded.data)
